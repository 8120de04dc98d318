"""One read-only statement over the companies of all places: it runs at each place, and the parts become one result.

Whether that gives what one database with all companies would give is read from PostgreSQL's plan of the statement at home:

    rows                     joined by company_id alone, or grouped by it: the parts one after the other
    groups without it        count, sum, min, max, bool_and, bool_or: groups of the parts are merged
    order by, limit at last  the parts are merged in that order

Everything else is refused: an average of averages would be wrong, and nobody would see it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any

import psycopg
from psycopg import sql

from app.database.connections import connect
from app.database.servers.directory import HOME
from app.errors import ServiceError

SCANS = {"Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Heap Scan", "Bitmap Index Scan", "Tid Scan", "Sample Scan"}
PLAIN = SCANS | {
    "Append",
    "Result",
    "Gather",
    "Gather Merge",
    "Hash",
    "Materialize",
    "Memoize",
    "Subquery Scan",
    "BitmapAnd",
    "BitmapOr",
}
PLAIN |= {"Sort", "Incremental Sort"}  # below the last step the order is PostgreSQL's own choice
JOINS = {"Hash Join", "Merge Join", "Nested Loop"}
CONDITIONS = ("Hash Cond", "Merge Cond", "Join Filter", "Index Cond", "Recheck Cond")
BY_COMPANY = re.compile(r"\bcompany_id\)?(::text)? = \(?(\w+\.)?company_id\b")
MERGED = re.compile(r"(count|sum|min|max|bool_and|bool_or)\((?!DISTINCT)[^()]*(\([^()]*\)[^()]*)*\)")
LIMIT = re.compile(r"\blimit\s+(\d+)\s*;?\s*$", re.IGNORECASE)
ORDER = re.compile(r"(?P<key>.*?)(?: COLLATE \S+)?(?P<down> DESC)?(?: NULLS (?P<nulls>FIRST|LAST))?")
MERGERS: dict[str, Callable[[Any, Any], Any]] = {
    "count": add,
    "sum": add,
    "min": min,
    "max": max,
    "bool_and": lambda one, other: one and other,
    "bool_or": lambda one, other: one or other,
}
# accounts and the directory, which home alone has
OF_HOME = "select split_part(t.name, '.', 2) from bds.tables t where t.stands = 'home'"
OF_COMPANIES = """
    select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'company_id' and not a.attisdropped
    where c.relkind in ('r', 'p') and c.relname <> all (%s)
"""
MOVING = "select company_id from bds.directory where phase is not null limit 1"

Node = dict[str, Any]
Row = tuple[Any, ...]


@dataclass
class Merge:
    """How rows of the parts become one result.  keys: of groups, None if rows are not grouped anew; how: a merger by
    column."""

    is_of_home: bool = False
    keys: list[int] | None = None
    how: dict[int, str] = field(default_factory=dict)
    order: list[tuple[int, bool, bool]] = field(default_factory=list)  # column, descending, nulls first
    limit: int | None = None
    width: int | None = None  # columns of the plan, if groups or an order refer to them

    def of(self, parts: Sequence[list[Row]]) -> list[Row]:
        rows = [row for part in parts for row in part]
        if self.keys is not None:
            rows = self._grouped(rows, self.keys)
        for column, down, nulls_first in reversed(self.order):
            present = sorted((row for row in rows if row[column] is not None), key=lambda row: row[column], reverse=down)
            absent = [row for row in rows if row[column] is None]
            rows = absent + present if nulls_first else present + absent
        return rows if self.limit is None else rows[: self.limit]

    def _grouped(self, rows: list[Row], keys: list[int]) -> list[Row]:
        groups: dict[Row, list[Any]] = {}
        for row in rows:
            key = tuple(row[column] for column in keys)
            group = groups.get(key)
            if group is None:
                groups[key] = list(row)
                continue
            for column, how in self.how.items():
                if group[column] is None or row[column] is None:
                    group[column] = row[column] if group[column] is None else group[column]
                else:
                    group[column] = MERGERS[how](group[column], row[column])
        return [tuple(group) for group in groups.values()]


def query(urls: dict[str, str], statement: str) -> tuple[list[str], list[Row]]:
    """Run a statement over all companies; returns the names of its columns, and its rows.

    Raises ServiceError(not_supported) if the parts could not be merged, (conflict) while a company moves, (place_unavailable);
    psycopg.Error.
    """
    with connect(urls[HOME]) as home:
        merge = plan(home, statement)
        moving = home.execute(MOVING).fetchone()
        if moving and not merge.is_of_home:
            raise ServiceError("conflict", f"{moving[0]} is being moved, so its rows are at two places: try again later")
    names: list[str] = []
    parts: list[list[Row]] = []
    for name in [HOME] if merge.is_of_home else urls:
        try:
            with connect(urls[name]) as place, _reading(place):
                cursor = place.execute(statement.encode())
                names = [column.name for column in cursor.description or ()]
                parts.append(cursor.fetchall())
        except psycopg.OperationalError as error:
            raise ServiceError("place_unavailable", f"the place {name} does not answer, so its companies lack: {error}") from error
        if merge.width and merge.width != len(names):  # the plan has columns that the result has not
            raise _refused("what is grouped or ordered by has to be selected")
    return names, merge.of(parts)


def plan(home: psycopg.Connection[Any], statement: str) -> Merge:
    """How the parts of a statement are merged.  Raises ServiceError(not_supported) that says why they cannot be."""
    with _reading(home):
        row = home.execute(sql.SQL("explain (verbose, format json) ").as_bytes(home) + statement.encode()).fetchone()
        of_home = {name for (name,) in home.execute(OF_HOME)}
        companies = {name for (name,) in home.execute(OF_COMPANIES, (list(of_home),))}
    assert row is not None
    top: Node = row[0][0]["Plan"]
    relations = {node["Relation Name"] for node in _nodes(top) if "Relation Name" in node}
    if not any(_is_of(name, companies) for name in relations):
        return Merge(is_of_home=True)
    if found := sorted(relations & of_home):
        raise _refused(f"{found[0]} is at home alone")
    return _merge(top, statement)


def _merge(top: Node, statement: str) -> Merge:
    if "Output" not in top:
        raise _refused("expected a select")
    merge, node, output = Merge(), top, top["Output"]
    if node["Node Type"] == "Limit":
        limit = LIMIT.search(statement)
        if limit is None:
            raise _refused("a limit is merged only as `limit N` at the end")
        merge.limit, node = int(limit[1]), _only(node)
    if node["Node Type"] in ("Gather Merge", "Gather"):
        node = _only(node)
    if node["Node Type"] in ("Sort", "Incremental Sort"):
        merge.order, node = [_order(key, output) for key in node["Sort Key"]], _only(node)
    elif merge.limit is not None:
        raise _refused("a limit without an order would take any rows")
    if node["Node Type"] in ("Aggregate", "Group", "Unique") and not _is_by_company(node):
        if "Filter" in node:
            raise _refused("having is judged where only a part of a group is")
        keys: list[str] = output if node["Node Type"] == "Unique" else node.get("Group Key", [])
        merge.keys = grouped = [_find(key, output, "grouped") for key in keys]
        merge.how = {n: _how(each) for n, each in enumerate(output) if n not in grouped}
        while node["Node Type"] in ("Aggregate", "Group", "Unique", "Gather", "Gather Merge", "Sort", "Incremental Sort"):
            node = _only(node)  # the same groups, by parallel workers
    for each in _nodes(node):
        _require_apart(each)
    if merge.order or merge.keys is not None:
        merge.width = len(output)
    return merge


def _require_apart(node: Node) -> None:
    """Raise ServiceError unless a step of the plan never brings rows of two companies together."""
    kind = node["Node Type"]
    if node.get("Parent Relationship") in ("InitPlan", "SubPlan") and not _is_by_company(node):
        raise _refused("a subquery sees the companies of one place")
    if kind in JOINS and not any(BY_COMPANY.search(str(each.get(name, ""))) for each in _nodes(node) for name in CONDITIONS):
        raise _refused("a join without company_id = company_id")
    if kind not in PLAIN | JOINS and not _is_by_company(node):
        raise _refused(f"the step {kind} sees the companies of one place")


def _is_by_company(node: Node) -> bool:
    """Whether each of its groups is of one company."""
    return any(re.fullmatch(r"(\w+\.)?company_id", key) for key in node.get("Group Key", ()))


def _how(expression: str) -> str:
    call = MERGED.fullmatch(expression) or MERGED.fullmatch(expression[1:-1])  # in parentheses above a sort
    if call is None:
        raise _refused(f"{expression} of all places does not follow from that of each")
    return call[1]


def _order(key: str, output: list[str]) -> tuple[int, bool, bool]:
    found = ORDER.fullmatch(key)
    assert found is not None  # each part may be empty
    column = _find(found["key"], output, "ordered")
    down = bool(found["down"])
    return column, down, found["nulls"] == "FIRST" if found["nulls"] else down


def _find(expression: str, output: list[str], what: str) -> int:
    """The column of the result that an expression of the plan is.  Raises ServiceError(not_supported)."""
    wanted, known = expression.strip("()"), [each.strip("()") for each in output]
    if wanted not in known:  # a plan names the table in some steps only
        wanted, known = _unqualified(wanted), [_unqualified(each) for each in known]
    if known.count(wanted) != 1:
        raise _refused(f"what is {what} by has to be selected once: {expression}")
    return known.index(wanted)


def _unqualified(expression: str) -> str:
    return re.sub(r"\b\w+\.(?=\w)", "", expression)


def _is_of(relation: str, companies: set[str]) -> bool:
    return relation in companies or re.sub(r"_\d{4}_?\d{2}$", "", relation) in companies


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


def _only(node: Node) -> Node:
    child: Node = node["Plans"][0]
    if len(node["Plans"]) > 1:
        raise _refused("a subquery sees the companies of one place")
    return child


@contextlib.contextmanager
def _reading(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """A transaction that reads, as the operator."""
    connection.execute("begin isolation level repeatable read, read only")
    connection.execute("set local role bds_operator")
    try:
        yield
    finally:
        connection.execute("rollback")


def _refused(why: str) -> ServiceError:
    return ServiceError("not_supported", f"the statement cannot be merged over places: {why}; ask one place with psql")
