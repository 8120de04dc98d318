"""Heads of the chains of seals: what is printed to be kept elsewhere, and the comparison of such a file with the chains.

A line of the file is a JSON object: `company`, `version` (the last sealed change) and `hash`, null without one; `audit` is the same
of the audit of administration.  The company '' is the server; `place` names the server if it is not home.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import psycopg

from app.database.connections import connect
from app.database.servers.directory import HOME
from app.errors import ServiceError
from app.types import exact_json
from app.wire.target import SLUG

HEADS = """
    select c.company_id, s.log, s.last_id, encode(s.hash, 'hex')
    from (select r.company_id from bds.residents r union all select '') c
    cross join unnest(array['changes', 'audit']) l (log)
    cross join lateral (
        select s.log, s.last_id, s.hash from bds.seals s
        where s.company_id = c.company_id and s.log = l.log order by s.first_id desc limit 1
    ) s
    order by 1
"""
IS_THERE = """
    select bds_service.has_head(%(company)s, %(log)s, %(version)s, decode(%(hash)s, 'hex'))
            -- also one that is departing; nothing verifies the log of a company without a clock
            and (%(company)s = '' or exists (select from bds.clocks where company_id = %(company)s)),
        exists (select from bds.residents where company_id = %(company)s)
"""
HASH = re.compile(r"[0-9a-f]{64}")
OBJECT = "an object of JSON as bds doctor --print-heads writes it"


@dataclass(frozen=True, slots=True)
class Head:
    """The last seal of a log when a line of a file was written."""

    line: int
    place: str
    company: str
    log: str
    version: int
    hash: str


def print_heads(urls: Mapping[str, str]) -> tuple[str, list[str]]:
    """The heads of all companies, a line each, and the places that cannot be reached.  Raises psycopg.Error for home."""
    lines, away = dict[tuple[str, str], dict[str, Any]](), list[str]()
    for place, connection in _reached(urls, away):
        for company, log, version, hash in connection.execute(HEADS.encode()):
            at = "" if company or place == HOME else place
            line = lines.setdefault((company, at), {"company": company, "version": None, "hash": None})
            head = {"version": version, "hash": hash}
            line |= ({"place": at} if at else {}) | (head if log == "changes" else {"audit": head})
    return "".join(exact_json.dumps(lines[key]) + "\n" for key in sorted(lines)), away


def _reached(urls: Mapping[str, str], away: list[str]) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    """A connection to each place; places that cannot be reached are added to `away`."""
    for place, url in urls.items():
        try:
            connection = connect(url)
        except psycopg.OperationalError:
            if place == HOME:
                raise
            away.append(place)
            continue
        with connection:
            yield place, connection


def read_heads(content: bytes, name: str) -> list[Head]:
    """The heads of a file.  Raises ServiceError, which tells the first line that is none, and for a file without any."""
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    heads = [head for number, line in enumerate(lines, 1) for head in _read_line(line, number, name)]
    if not heads:
        raise ServiceError("malformed_request", f"{name} has no head: expected what bds doctor --print-heads writes")
    return heads


def _read_line(line: bytes, number: int, name: str) -> Iterator[Head]:
    try:
        found = json.loads(line.decode())
        expected = _expected(found)
    except UnicodeDecodeError:
        expected = "text in UTF-8"
    except (ValueError, RecursionError):
        expected = OBJECT
    if expected:
        message = f"{name}, line {number}: expected {expected}, got {repr(line[:40])[1:]}"
        raise ServiceError("malformed_request", message)
    for log, head in (("changes", found), ("audit", found.get("audit"))):
        if not _is_empty(head):
            yield Head(number, found.get("place", HOME), found["company"], log, head["version"], head["hash"])


def _expected(found: Any) -> str | None:
    """What a line would have to be of which this was read; None if it is that."""
    if not isinstance(found, dict):
        return OBJECT
    company, audit = found.get("company"), found.get("audit")
    if not isinstance(company, str) or (company and not SLUG.fullmatch(company)):
        return "as company the id of one, or an empty text"
    place = found.get("place", HOME)
    if not isinstance(place, str) or not SLUG.fullmatch(place):
        return "as place the name of one"
    for head, of in ((found, ""), (audit, " of audit")):
        if not _is_empty(head) and not _is_head(head):
            return f"a version from 1 and a hash of 64 hexadecimal digits{of}"
    if _is_empty(found) and _is_empty(audit):
        return "a version and a hash, or an audit with them"
    more = found.keys() - {"company", "version", "hash", "place", "audit"} or (audit or {}).keys() - {"version", "hash"}
    return f"{OBJECT} with nothing else" if more else None


def _is_empty(head: Any) -> bool:
    return head is None or (isinstance(head, dict) and head.get("version") is None and head.get("hash") is None)


def _is_head(head: Any) -> bool:
    if not isinstance(head, dict):
        return False
    version, hash = head.get("version"), head.get("hash")
    return type(version) is int and 0 < version < 1 << 63 and isinstance(hash, str) and HASH.fullmatch(hash) is not None


def missing_heads(urls: Mapping[str, str], heads: Sequence[Head], name: str) -> list[dict[str, Any]]:
    """A problem for each head that no chain contains.  Raises psycopg.Error for home.

    Heads of a place that cannot be reached, and of companies that may live there, are passed over: `bds doctor` reports the place.
    """
    left, known, away = list(heads), set[str](), list[str]()
    for place, connection in _reached(urls if heads else {}, away):
        found = list[Head]()
        for head in left:
            if head.company or head.place == place:
                [(is_there, lives)] = connection.execute(IS_THERE.encode(), asdict(head)).fetchall()
                found += [head] if is_there else []
                known |= {head.company} if lives else set()
        left = [head for head in left if head not in found]
    return [
        _problem(head, name, is_known=not head.company or head.company in known)
        for head in left
        if not away or (head.company in known if head.company else head.place not in away)
    ]


def _problem(head: Head, name: str, *, is_known: bool) -> dict[str, Any]:
    why = "its log was rebuilt, or is of an earlier state" if is_known else "no company of this id lives here"
    return {
        "place": head.place,
        "kind": "log altered",
        "company_id": head.company or None,
        "object": f"bds.{head.log} 1-{head.version}",
        "detail": f"the chain of seals does not contain the head of line {head.line} of {name}, {head.hash[:16]}...: {why}",
    }
