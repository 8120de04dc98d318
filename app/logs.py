"""What the service says of its work: a line for each event on standard error, as JSON or as text.

Every line that is said while a request is answered carries the request's id.  What could be a secret is taken out of each line
before it is written, whoever wrote it: keys, tokens, secrets of hooks, passwords in connection strings, and values that an
exception quotes.
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

REQUEST: ContextVar[str | None] = ContextVar("request", default=None)  # the id of the request that is being answered

SECRETS = re.compile(
    r"(?P<key>bds_)[A-Za-z0-9_-]{43}"
    r"|(?P<hook>whsec_)[A-Za-z0-9+/=_-]+"
    r"|(?P<token>eyJ)[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+"
    r"|(?P<url>postgres(?:ql)?://[^:/@\s]*:)[^@\s]+(?=@)"
    r"|(?P<password>password=)\S+"
    r"|(?P<scheme>\b(?:Basic|Bearer) )[A-Za-z0-9+/=._~-]{8,}",
    re.IGNORECASE,
)
HINTS = ("bds_", "whsec_", "eyJ", "://", "assword=", "asic ", "earer ")  # without any of which nothing is looked for
LITERAL = re.compile("(?:'|%27).*(?:'|%27)")  # a key's value in a path, up to the last quotation mark
LATE = 0.1  # seconds that the line of a request may wait for others
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
# classes of errors whose messages name what the schema calls things, not what a row holds
NAMING = ("42", "55", "57", "08", "53", "58", "XX", "25", "40", "BD")


def start(config: Config | None = None) -> None:
    """Say things on standard error; as the configuration has it, for a service."""
    # what no line of ours says is not looked up for each of them
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = Lines.ours = Lines(sys.stderr)
    is_json = config is not None and (config.log_format == "json" or (config.log_format == "auto" and not sys.stderr.isatty()))
    handler.setFormatter(Json() if is_json else Text())
    level = logging.INFO if config is None else logging.getLevelName(config.log_level.upper())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("psycopg.pool").setLevel(max(level, logging.ERROR))  # the pulse says it, once
    logging.getLogger("aiohttp.access").disabled = True
    logging.captureWarnings(True)


def hide(text: str) -> str:
    """The text without what could be a secret."""
    for hint in HINTS:  # every line of the log passes here: any() would take twice as long
        if hint in text:
            break
    else:
        return text
    return SECRETS.sub(lambda found: next(filter(None, found.groups())) + "***", text)


def quiet(text: str) -> str:
    """The text without what stands in quotation marks: values of rows and requests, as exceptions quote them."""
    return QUOTED.sub("'...'", text)


def tell(error: BaseException) -> str:
    """An exception in a line, without the values that it quotes."""
    name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    if isinstance(error, psycopg.Error) and error.sqlstate:
        message = error.diag.message_primary or ""
        about = [each for each in (error.diag.table_name, error.diag.column_name, error.diag.constraint_name) if each]
        said = message if error.sqlstate[:2] in NAMING else quiet(message)
        return f"{name}: {error.sqlstate} {said}" + (f" ({', '.join(about)})" if about else "")
    return f"{name}: {quiet(str(error))}"


def trace(error: BaseException) -> str:
    """Where an exception came from, and those behind it, without their values."""
    parts = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        frames = traceback.extract_tb(current.__traceback__)
        where = "".join(f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}\n' for frame in frames)
        parts.append(f"{where}{tell(current)}")
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return "\ncaused by\n".join(parts)


class Answered(NamedTuple):
    """What the log says of a request."""

    at: float  # Unix time
    id: str
    remote: str | None
    method: str
    path: str
    company: str | None
    actor: str | None
    status: int
    size: int  # bytes
    seconds: float

    def __str__(self) -> str:
        return (
            f'{{"id": {quoted(self.id)}, "remote": {_quoted_or_null(self.remote)}, "method": {quoted(self.method)},'
            f' "path": {quoted(shown(self.path))}, "company": {_quoted_or_null(self.company)},'
            f' "actor": {_quoted_or_null(self.actor)}, "status": {self.status}, "bytes": {self.size},'
            f' "ms": {self.seconds * 1000:.1f}}}'
        )


def answered(request: Answered) -> None:
    """Say that a request was answered."""
    if access.isEnabledFor(logging.INFO):
        if Lines.ours is None:
            access.info("%s", request)
        else:
            Lines.ours.add(request)


def shown(path: str) -> str:
    """A path as the log has it: without literals, which may be anything."""
    return LITERAL.sub("'...'", path) if "'" in path or "%27" in path else path


def _quoted_or_null(text: str | None) -> str:
    return "null" if text is None else quoted(text)


class Lines(logging.StreamHandler[TextIO]):
    """Writes what is said at once; what requests have to say up to LATE seconds later, together, at a third of the price."""

    ours: Lines | None = None
    _waiting: list[Answered]

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._waiting = []

    def add(self, request: Answered) -> None:
        """Say it soon."""
        self._waiting.append(request)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_later(LATE, self.flush)

    def emit(self, record: logging.LogRecord) -> None:
        self.flush()  # lines stay in order
        super().emit(record)

    def flush(self) -> None:
        with (
            self.lock or contextlib.nullcontext(),
            contextlib.suppress(OSError, ValueError),
        ):  # a log that is full or closed stops nobody
            waiting, self._waiting = self._waiting, []
            if waiting and isinstance(self.formatter, Text | Json):
                self.stream.write("".join(self.formatter.request(each) + "\n" for each in waiting))
            super().flush()


class Text(logging.Formatter):
    """For people: time, logger, level, message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(name)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return hide(super().format(record))

    def request(self, request: Answered) -> str:
        """The line of a request."""
        shown = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(request.at))
        return hide(f"{shown},{int(request.at % 1 * 1000):03} {access.name} INFO {request}")

    def formatException(self, ei: Any) -> str:
        return trace(ei[1])


class Json(logging.Formatter):
    """For machines: one object a line, with `time`, `level`, `logger`, and `message` or the members of the event."""

    _second, _shown = -1, ""

    def _time(self, at: float) -> str:
        second = int(at)
        if second != self._second:
            self._second, self._shown = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._shown}.{int(at % 1 * 1000):03}Z"

    def request(self, request: Answered) -> str:
        """The line of a request."""
        return hide(f'{{"time": "{self._time(request.at)}", "level": "info", "logger": "{access.name}", {str(request)[1:]}')

    def format(self, record: logging.LogRecord) -> str:
        start = f'{{"time": "{self._time(record.created)}", "level": "{record.levelname.lower()}", "logger": "{record.name}"'
        message = record.getMessage()
        more: dict[str, Any] = {"message": message}
        request = REQUEST.get()
        if request is not None:
            more["request"] = request
        if record.exc_info and record.exc_info[1] is not None:
            more["error"], more["trace"] = tell(record.exc_info[1]), trace(record.exc_info[1])
        return hide(f"{start}, {json.dumps(more, ensure_ascii=False, default=str)[1:]}")
