"""The one table of errors: a stable code, its HTTP status, its title.

    ServiceError          an error for the client: code, message, target, further members
      QueryError          a text in one of the languages is wrong at a character of an option

ERRORS has every code that leaves the service; SQLSTATES maps the SQLSTATEs that the database's functions raise to codes.  The
middleware gives an error its form (OData or problem+json).  Nothing else of an exception reaches a client: no database text, no
traceback.  `did_you_mean` and `hint` end messages about unknown names: commands, options, settings, entities, formats.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

# code -> (status, title)
ERRORS: dict[str, tuple[int, str]] = {
    "malformed_request": (400, "The request is malformed"),
    "malformed_query": (400, "The query is malformed"),
    "malformed_document": (400, "The document is not well formed"),
    "invalid_document": (400, "The document is not an import document"),
    "invalid_directive": (400, "A directive of the document is wrong"),
    "invalid_mapper": (400, "The mapper's configuration is wrong"),
    "unknown_entity": (400, "The request names an unknown entity"),
    "unauthorized": (401, "Credentials are missing or wrong"),
    "forbidden": (403, "No access"),
    "csrf_failed": (403, "The CSRF token is missing or wrong"),
    "not_found": (404, "Not found"),
    "method_not_allowed": (405, "The method is not allowed here"),
    "not_acceptable": (406, "None of the accepted media types can be served"),
    "failed_dependency": (424, "A request of the batch on which this one depends has failed"),
    "request_timeout": (408, "The body did not arrive in time"),
    "conflict": (409, "The state of the resource does not allow that"),
    "cancelled": (409, "The import was cancelled"),
    "gone": (410, "That part of the log is no longer kept"),
    "too_large": (413, "The body is too large"),
    "uri_too_long": (414, "The URL is too long"),
    "unsupported_media_type": (415, "The body's media type or encoding is not supported"),
    "too_many_changes": (422, "More changes match than one replay sends"),
    "key_reused": (422, "The Idempotency-Key belongs to another request"),
    "unwritable": (422, "A value cannot be written in that format"),
    "too_many_requests": (429, "Too many wrong credentials"),
    "internal": (500, "The service failed"),
    "not_supported": (501, "Not supported"),
    "not_installed": (501, "A part of the service is not installed"),
    "disk_full": (507, "The disk is full"),
    "aborted": (503, "The service was stopped"),
    "place_unavailable": (503, "The company's place cannot serve now"),
    "moving": (503, "The company is being moved to another place"),
    "busy": (503, "The database did not answer in time"),
}

# Seconds after which to try again, for answers of these statuses that do not name a better time themselves
RETRY_AFTER = {429: "60", 503: "5"}

# SQLSTATEs that the database's own functions raise -> code
SQLSTATES: dict[str, str] = {
    "BD001": "forbidden",  # not the company that the session has named
    "BD002": "not_found",  # no such company, entity, row or import
    "BD003": "busy",  # what is needed is not there yet or no longer: a filter to be compiled, rows staged before a restart
    "BD004": "conflict",  # the current state does not allow it
    "BD005": "malformed_request",  # an argument does not have the expected form
    "BD006": "gone",  # before the first change that the log still has
    "BD007": "conflict",  # a table was altered, and not registered again
    "BD008": "conflict",  # records of an import failed, and it was told to raise
    "BD009": "unwritable",  # an export refers to a row that it cannot name
}

# SQLSTATEs of a statement over a table that is altered and not registered again yet: what its functions and views name has gone
ALTERED = frozenset(
    {
        "42P01",  # a table or view, a column, a function, a type
        "42703",
        "42883",
        "42704",
        "42804",  # or has another type
        "42846",
        "0A000",  # a cached plan would change its result type
    }
)

# of a statement whose functions, views or tables bds migrate or bds.register replaces while it runs, too: once more, it works
REPLACED = ALTERED | {
    "XX000",  # cache lookup failed, tuple concurrently updated
    "3F000",  # a schema has gone
    "55006",  # an object is in use
    "40P01",  # a deadlock with what replaces them
}

# what PostgreSQL or this process says when it cannot write a file: no space, beyond a quota or limit (53400: of temp_file_limit),
# or a device that fails
UNWRITABLE = ("53100", "53400", errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


MOST = 2  # letters in which a word differs from the one that was meant
NO_ENTITY = re.compile(r"no such entity: '(.*)'", re.DOTALL)  # as functions of the database name it


class ServiceError(Exception):
    """An error for the client.

    code: a key of ERRORS; message: one line; target: the option, header or field that is wrong; more: further members of the
    answer; headers: headers of the answer.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        target: str | None = None,
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        message = message.replace("\0", "\ufffd")  # a message may quote a name, and reports are stored, which hold no U+0000
        super().__init__(message)
        self.code = code
        self.message = message
        self.target = target
        self.headers = headers or {}
        self.more = more

    @property
    def status(self) -> int:
        return ERRORS[self.code][0]

    @property
    def title(self) -> str:
        return ERRORS[self.code][1]


def of_database(error: BaseException | None) -> ServiceError | None:
    """The error that a function of the database has raised, with what its detail adds; None for any other error."""
    code = SQLSTATES.get(getattr(error, "sqlstate", None) or "")
    if code is None:
        return None
    diagnostics: Any = getattr(error, "diag", None)
    detail = diagnostics.message_detail if code == "gone" else None  # {"firstId": 17}
    return ServiceError(code, diagnostics.message_primary or "", **(json.loads(detail) if detail else {}))


def with_hint(error: BaseException, entities: Iterable[str]) -> ServiceError | None:
    """What a function of the database has raised about an unknown entity, with the one that was meant; None for any other error."""
    raised = of_database(error)
    if raised is None or not (found := NO_ENTITY.fullmatch(raised.message)):
        return None
    return ServiceError(raised.code, raised.message + did_you_mean(found[1], entities), target=raised.target)


def disk_full(error: BaseException) -> ServiceError | None:
    """The error for what could not be written to a disk, by PostgreSQL or by this process; None for any other error."""
    if isinstance(error, ServiceError):
        return error if error.code == "disk_full" else None
    reason = error.errno if isinstance(error, OSError) else getattr(error, "sqlstate", None)
    if reason not in UNWRITABLE:
        return None
    message = "a disk of the service has no space left, or cannot be written; nothing was changed"
    return ServiceError("disk_full", message, headers={"Retry-After": "60"})


def distance(one: str, other: str) -> int:
    """The number of letters to insert, to delete or to replace between two words; letters that changed places are one."""
    before, last = list[int](), list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        row = [at]
        for to, each in enumerate(other, 1):
            best = min(last[to] + 1, row[-1] + 1, last[to - 1] + (letter != each))
            if at > 1 and to > 1 and (letter, one[at - 2]) == (other[to - 2], each):
                best = min(best, before[to - 2] + 1)
            row.append(best)
        before, last = last, row
    return last[-1]


def nearest(word: str, known: Iterable[str]) -> tuple[str, int]:
    """The nearest of the known words, of which there is at least one, and its distance."""
    return min(((each, distance(word, each)) for each in known), key=lambda found: found[1])


def meant(word: str, known: Iterable[str]) -> str | None:
    """The known word that an unknown one stands for; None if none differs by at most MOST letters, and a third of the word's."""
    most = min(MOST, max(1, len(word) // 3))
    near = [each for each in known if abs(len(each) - len(word)) <= most]  # a client may send a word of any length
    found, away = nearest(word, near) if near else ("", most + 1)
    return found if away <= most else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the one that was meant; empty if none is near enough."""
    return f", did you mean {found}?" if (found := meant(word, known)) else ""


def hint(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the one that was meant, or else all of them."""
    known = list(known)
    return did_you_mean(word, known) or f", expected one of {', '.join(known)}"


class UnknownEntity(ServiceError):
    """An entity that the model of the process does not have; it may have been registered just now."""

    def __init__(self, name: str, known: Iterable[str], kind: str = "entity") -> None:
        self.name = name.partition("(")[0]
        super().__init__("not_found", f"no such {kind}: {name}{did_you_mean(self.name, known)}")


class QueryError(ServiceError):
    """An error in a query text; `position` counts the option's characters from 1.  beside: a further sentence."""

    def __init__(
        self,
        message: str,
        *,
        target: str | None = None,
        position: int | None = None,
        code: str = "malformed_query",
        beside: str | None = None,
    ) -> None:
        more = f"; {beside}" if beside else ""
        if position is None:
            super().__init__(code, message + more, target=target)
        else:
            super().__init__(code, f"{message} (at character {position}){more}", target=target, position=position)
        self.position = position
        self._plain, self._beside = message, beside

    def within(self, target: str | None, offset: int) -> QueryError:
        """The error of a text that stands inside another one, after `offset` characters."""
        position = None if self.position is None else self.position + offset
        return QueryError(self._plain, target=target, position=position, code=self.code, beside=self._beside)

    def with_sentence(self, text: str) -> QueryError:
        """The same error, with a further sentence."""
        return QueryError(self._plain, target=self.target, position=self.position, code=self.code, beside=text)


@contextmanager
def about(target: str | None, offset: int = 0) -> Iterator[None]:
    """Set the target, an option or parameter, of a QueryError that is raised inside, unless it has one.

    target: None in a text inside of an option, which is set further outside; offset: characters before the text.
    """
    try:
        yield
    except QueryError as error:
        if error.target is not None:
            raise
        raise error.within(target, offset) from None
