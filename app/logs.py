"""The log: a line for each event on standard error, as JSON or as text.

A line logged during a request carries the request's id.  Secrets are removed from every line before it is written, whichever module
logged it: keys, tokens, hook secrets, passwords in connection strings, and the values that an exception quotes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import sys
import time
import traceback
from contextvars import ContextVar
from typing import Any, NamedTuple, TextIO

import psycopg

from app.config import Config

access = logging.getLogger("bds.access")
quoted = json.encoder.encode_basestring_ascii


class Answered:
    """What the log tells of a request that is being answered: its id, and the rows and bytes of the answer's body.

    Rows are those of entities, groups of them, changes, versions of rows.
    """

    __slots__ = ("id", "rows", "size")

    def __init__(self, id: str) -> None:
        self.id, self.rows, self.size = id, 0, 0

    def add(self, size: int, _with_heads: int) -> None:
        """Count bytes that a stream has sent."""
        self.size += size


REQUEST: ContextVar[Answered | None] = ContextVar("request", default=None)  # the current one

SECRETS = re.compile(
    r"(?P<key>bds_)[A-Za-z0-9_-]{43}"
    r"|(?P<hook>whsec_)[A-Za-z0-9+/=_-]+"
    r"|(?P<token>eyJ)[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+"
    r"|(?P<url>postgres(?:ql)?://[^:/@\s]*:)[^@\s]+(?=@)"
    r"|(?P<password>password=)\S+"
    r"|(?P<scheme>\b(?:Basic|Bearer) )[A-Za-z0-9+/=._~-]{8,}",
    re.IGNORECASE,
)
HINTS = ("bds_", "whsec_", "eyJ", "://", "assword=", "asic ", "earer ")  # a text without any of these holds no secret
DELAY = 0.1  # seconds for which request lines are collected before they are written together
QUOTED = re.compile(r"['\"].*['\"]", re.DOTALL)  # up to the last quotation mark: a value may contain some
# classes of errors (SQLSTATE) whose messages hold names of the schema, never values of a row
NAMING = ("42", "55", "57", "08", "53", "58", "XX", "25", "40", "BD")


def start(config: Config | None = None) -> None:
    """Log to standard error; a service passes its configuration for format and level."""
    # No line shows the caller, thread or process, so logging need not look them up.  _srcfile is private; with None the search for
    # the caller is skipped.  tests/service/test_private_names.py fails if that changes.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = LogHandler.active = LogHandler(sys.stderr)
    is_json = config is not None and (config.log_format == "json" or (config.log_format == "auto" and not sys.stderr.isatty()))
    handler.setFormatter(JsonFormatter() if is_json else TextFormatter())
    level = logging.INFO if config is None else logging.getLevelName(config.log_level.upper())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("psycopg.pool").setLevel(max(level, logging.ERROR))  # app/database/pool/pulse.py logs an outage once
    logging.getLogger("aiohttp.access").disabled = True
    logging.captureWarnings(True)


def count_rows(number: int) -> None:
    """Count rows that the answer to the current request has, when they are given to the client; outside of one nothing."""
    if (request := REQUEST.get()) is not None:
        request.rows += number


def forget_rows() -> None:
    """Count the rows of the current request anew, for another answer."""
    if (request := REQUEST.get()) is not None:
        request.rows = 0


def mask_secrets(text: str) -> str:
    """Replace everything that could be a secret with ***."""
    for hint in HINTS:  # runs for every line: any() would take twice as long
        if hint in text:
            break
    else:
        return text
    return SECRETS.sub(lambda found: next(filter(None, found.groups())) + "***", text)


def mask_quoted(text: str) -> str:
    """Replace everything between the first quotation mark and the last: exceptions quote values of rows and requests."""
    return QUOTED.sub("'...'", text)


def describe_error(error: BaseException) -> str:
    """An exception in one line, without the values that it quotes."""
    name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    if isinstance(error, psycopg.Error) and error.sqlstate:
        message = error.diag.message_primary or ""
        about = [each for each in (error.diag.table_name, error.diag.column_name, error.diag.constraint_name) if each]
        if error.sqlstate[:2] not in NAMING:  # what a function of PL/pgSQL raises may be anything
            message = "..." if error.diag.source_function == "exec_stmt_raise" else mask_quoted(message)
        return f"{name}: {error.sqlstate} {message}" + (f" ({', '.join(about)})" if about else "")
    return f"{name}: {mask_quoted(str(error))}"


def describe_trace(error: BaseException) -> str:
    """The traceback of an exception and of its causes, without the values that they quote."""
    parts = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        frames = traceback.extract_tb(current.__traceback__)
        where = "".join(f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}\n' for frame in frames)
        parts.append(f"{where}{describe_error(current)}")
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return "\ncaused by\n".join(parts)


class AccessRecord(NamedTuple):
    """An answered request, for the log and the metrics."""

    at: float  # Unix time
    id: str
    remote: str | None
    method: str
    path: str  # with names, but no values (app/service/logged_path.py)
    area: str  # of the service (app/wire/target.py); none if no route has the path
    company: str | None
    actor: str | None
    status: int
    rows: int  # of the answer
    size: int  # bytes of the answer's body as they were sent
    seconds: float

    def __str__(self) -> str:
        return (
            f'{{"id": {quoted(self.id)}, "remote": {_quoted_or_null(self.remote)}, "method": {quoted(self.method)},'
            f' "path": {quoted(self.path)}, "company": {_quoted_or_null(self.company)},'
            f' "actor": {_quoted_or_null(self.actor)}, "status": {self.status}, "rows": {self.rows}, "bytes": {self.size},'
            f' "ms": {self.seconds * 1000:.1f}}}'
        )


def write_access(record: AccessRecord) -> None:
    """Log an answered request."""
    if access.isEnabledFor(logging.INFO):
        if LogHandler.active is None:
            access.info("%s", record)
        else:
            LogHandler.active.add(record)


def _quoted_or_null(text: str | None) -> str:
    return "null" if text is None else quoted(text)


class LogHandler(logging.StreamHandler[TextIO]):
    """Writes records at once; collects request lines for up to DELAY seconds, which takes a third of the time."""

    active: LogHandler | None = None  # the handler of this process, once `start` has run
    _waiting: list[AccessRecord]

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._waiting = []

    def add(self, record: AccessRecord) -> None:
        """Write the line of a request soon."""
        self._waiting.append(record)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_later(DELAY, self.flush)

    def emit(self, record: logging.LogRecord) -> None:
        self.flush()  # keeps the lines in order
        super().emit(record)

    def flush(self) -> None:
        with (
            self.lock or contextlib.nullcontext(),
            contextlib.suppress(OSError, ValueError),  # a full or closed log must not stop the service
        ):
            waiting, self._waiting = self._waiting, []
            if waiting and isinstance(self.formatter, TextFormatter | JsonFormatter):
                self.stream.write(mask_secrets("".join([self.formatter.access_line(each) for each in waiting])))
            super().flush()


class TextFormatter(logging.Formatter):
    """For people: time, logger, level, message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(name)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return mask_secrets(super().format(record))

    def access_line(self, record: AccessRecord) -> str:
        """The line of a request, with its secrets."""
        shown = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.at))
        return f"{shown},{int(record.at % 1 * 1000):03} {access.name} INFO {record}\n"

    def formatException(self, ei: Any) -> str:
        return describe_trace(ei[1])


class JsonFormatter(logging.Formatter):
    """For machines: one object a line, with `time`, `level`, `logger`, and `message` or the members of the event."""

    _second, _shown = -1, ""

    def _time(self, at: float) -> str:
        second = int(at)
        if second != self._second:
            self._second, self._shown = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._shown}.{int(at % 1 * 1000):03}Z"

    def access_line(self, record: AccessRecord) -> str:
        """The line of a request, with its secrets."""
        return f'{{"time": "{self._time(record.at)}", "level": "info", "logger": "{access.name}", {str(record)[1:]}\n'

    def format(self, record: logging.LogRecord) -> str:
        start = f'{{"time": "{self._time(record.created)}", "level": "{record.levelname.lower()}", "logger": "{record.name}"'
        message = record.getMessage()
        more: dict[str, Any] = {"message": message}
        request = REQUEST.get()
        if request is not None:
            more["request"] = request.id
        if record.exc_info and record.exc_info[1] is not None:
            more["error"], more["trace"] = describe_error(record.exc_info[1]), describe_trace(record.exc_info[1])
        return mask_secrets(f"{start}, {json.dumps(more, ensure_ascii=False, default=str)[1:]}")
