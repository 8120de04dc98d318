"""Requests with an Idempotency-Key: the first one is done, those that repeat it get its answer.

A request claims its key for the id that its import will have, before its body is read, so that of two at once one is done.  What
it is, a hash of path, query and decoded body, is noted when its body has arrived; its answer is the report of its import, or the
problem that is noted in the transaction in which the import ends.  Another request with the key reads its body for the hash alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, LiteralString
from uuid import UUID, uuid4

import psycopg
from aiohttp import web

from app.database.database import Database
from app.errors import SQLSTATES, ServiceError

HEADER = "Idempotency-Key"
REPLAYED = {"Idempotency-Replayed": "true"}
KEY = re.compile(r"[!-~]{1,255}")
UNSETTLED = (401, 403, 413, 415, 429)  # statuses that leave the key free, as 500 and more do: the same request may succeed later
POLL = (0.05, 1.0)  # seconds between two looks whether the first request has ended, at first and at most

# One round trip; the company is named before the function runs.
NAMED: LiteralString = " from (select set_config('bds.company', %s, true) offset 0) c (name) where name <> ''"
CLAIM: LiteralString = "select bds_service.claim_request(%s, %s, %s)" + NAMED
NOTE: LiteralString = "select bds_service.note_request(%s, %s, %s, %s)" + NAMED
END: LiteralString = "select bds_service.end_request(%s, %s, %s, %s)" + NAMED
ANSWER: LiteralString = "select bds_service.answer_request(%s, %s, %s)" + NAMED


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to an import or revert.  is_replayed: whether it is that of an earlier request."""

    status: int
    report: dict[str, Any]
    is_replayed: bool = False


class Claim:
    """What a request holds that was the first one with its key.  id: of its import."""

    def __init__(self, database: Database, company: str, key: str, target: str, limit: int) -> None:
        self.id = uuid4()
        self.company = company
        self.is_begun = False  # whether an import ends the request, with end()
        self._database = database
        self._key = key
        self._limit = limit  # bytes
        self._hash = hashlib.sha256(target.encode() + b"\n")
        self._is_whole = False

    async def take(self) -> bool:
        """Claim the key; whether no other request has it."""
        return bool(await self._ask(CLAIM, self._key, self.id))

    async def hashed(self, bodies: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The chunks of the decoded body, which are hashed on their way."""
        size = 0
        async for chunk in bodies:
            self._hash.update(chunk)
            size += len(chunk)
            yield chunk
            if size > self._limit:  # what reads it as a document has refused it by now
                raise ServiceError("too_large", f"the document is larger than {self._limit} bytes")
        self._is_whole = True

    async def note(self, is_async: bool) -> None:
        """Note what the request is, as its body has arrived, and whether it is answered now.

        Raises psycopg.Error BD003 if the claim was lost.
        """
        await self._ask(NOTE, self.id, self._hash.digest(), is_async)

    def end(self, connection: psycopg.Connection[Any], reason: BaseException | None, import_id: UUID | None) -> None:
        """Note the problem that is the answer, or free the key.  import_id: of the import that was listed."""
        connection.execute(END, (self.company, self.id, self._hash.digest(), self._problem(reason, import_id), self.company))

    async def end_early(self, reason: BaseException) -> None:
        """The same before there is an import."""
        with contextlib.suppress(psycopg.Error, ServiceError):  # then the claim lapses
            await self._ask(END, self.id, self._hash.digest(), self._problem(reason, None))

    def is_kept(self, error: BaseException | None) -> bool:
        """Whether an error is the answer to the requests that repeat this one, if its body arrives as a whole."""
        known = _known(error)
        return known is not None and known.status < 500 and known.status not in UNSETTLED

    def _problem(self, reason: BaseException | None, import_id: UUID | None) -> str | None:
        error = _known(reason)
        if error is None or not self._is_whole or not self.is_kept(error):
            return None
        more = ({"importId": str(import_id)} if import_id else {}) | getattr(reason, "more", {})
        return json.dumps({"code": error.code, "message": error.message, "target": error.target, "more": more}, default=str)

    async def replayed(self, *, is_async: bool) -> Answer:
        """The answer of the first request, for this one, whose body is hashed.  Raises ServiceError, also if that was it."""
        pause = POLL[0]
        while True:
            found = await self._ask(ANSWER, self._key, self._hash.digest())
            state, report, problem = found["state"], found.get("report"), found.get("problem")
            if state == "other":
                message = f"the {HEADER} belongs to another request, with another path, query or body"
                raise ServiceError("key_reused", message, target=HEADER)
            if state in ("free", "receiving"):
                reason = "is being received" if state == "receiving" else "has ended without an answer"
                message = f"the first request with this {HEADER} {reason}: send it again"
                raise ServiceError("conflict", message, target=HEADER, headers={"Retry-After": "1"})
            if is_async and report and (found["isAsync"] or state == "running"):
                return Answer(202, report, is_replayed=True)
            if problem:
                given = {"target": problem["target"], "headers": REPLAYED, **problem["more"]}
                raise ServiceError(problem["code"], problem["message"], **given)
            if state == "ended":
                return Answer(status_of(report), report, is_replayed=True)
            await asyncio.sleep(pause)
            pause = min(POLL[1], pause * 1.5)

    async def _ask(self, call: LiteralString, *parameters: Any) -> Any:
        place = self._database.place(self.company)
        while True:
            try:
                async with place.service() as connection:
                    row = await (await connection.execute(call, (self.company, *parameters, self.company))).fetchone()
            except psycopg.Error as error:
                place = await self._database.moved(self.company, place, error)
            else:
                assert row is not None
                return row[0]


def status_of(report: dict[str, Any]) -> int:
    """The status of the answer with a report."""
    return 422 if report["state"] == "failed" else 200


def _known(error: BaseException | None) -> ServiceError | None:
    """The error as a client gets it; None if it only tells that the service failed."""
    if isinstance(error, psycopg.Error) and error.sqlstate in SQLSTATES:
        return ServiceError(SQLSTATES[error.sqlstate], error.diag.message_primary or "")
    return error if isinstance(error, ServiceError) else None


def key_of(request: web.Request) -> str | None:
    """The Idempotency-Key of a request.  Raises malformed_request."""
    given = request.headers.getall(HEADER, [])
    if not given:
        return None
    if len(given) > 1 or not KEY.fullmatch(given[0]):
        found = f"{len(given)} headers" if len(given) > 1 else f"{len(given[0])} characters"
        message = f"{HEADER}: expected 1 to 255 visible ASCII characters without spaces, got {found}"
        raise ServiceError("malformed_request", message, target=HEADER)
    return given[0]


Work = Callable[[Claim | None, AsyncIterator[bytes]], Awaitable[tuple[int, dict[str, Any]]]]


async def answer(
    database: Database, request: web.Request, company: str, bodies: AsyncIterator[bytes], *, is_async: bool, work: Work, limit: int
) -> Answer:
    """Do the work of a request, given its claim and body, unless it repeats one with its key.  Raises ServiceError."""
    key = key_of(request)
    if key is None:
        return Answer(*await work(None, bodies))
    await database.wait_for_departure(company)
    claim = Claim(database, company, key, request.rel_url.raw_path_qs, limit)
    if not await claim.take():
        async for _ in claim.hashed(bodies):
            pass
        return await claim.replayed(is_async=is_async)
    try:
        return Answer(*await work(claim, claim.hashed(bodies)))
    except BaseException as error:
        if not claim.is_begun:
            await asyncio.shield(claim.end_early(error))
        raise
