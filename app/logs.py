"""What the service says of its work: a line for each event on standard error, as JSON or as text.

Every line that is said while a request is answered carries the request's id.  What could be a secret is taken out of each line
before it is written, whoever wrote it: keys, tokens, secrets of hooks, passwords in connection strings, and values that an
exception quotes.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
import traceback
from contextvars import ContextVar
from typing import Any

import psycopg

from app.config import Config

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
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
# classes of errors whose messages name what the schema calls things, not what a row holds
NAMING = ("42", "55", "57", "08", "53", "58", "XX", "25", "40", "BD")


def start(config: Config | None = None) -> None:
    """Say things on standard error; as the configuration has it, for a service."""
    # what no line of ours says is not looked up for each of them
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = logging.StreamHandler(sys.stderr)
    is_json = config is not None and (config.log_format == "json" or (config.log_format == "auto" and not sys.stderr.isatty()))
    handler.setFormatter(Json() if is_json else Text())
    level = logging.INFO if config is None else logging.getLevelName(config.log_level.upper())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("psycopg.pool").setLevel(max(level, logging.ERROR))  # the pulse says it, once
    logging.getLogger("aiohttp.access").disabled = True


def hide(text: str) -> str:
    """The text without what could be a secret."""
    if not any(hint in text for hint in HINTS):
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


class Text(logging.Formatter):
    """For people: time, logger, level, message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(name)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return hide(super().format(record))

    def formatException(self, ei: Any) -> str:
        return trace(ei[1])


class Json(logging.Formatter):
    """For machines: one object a line, with `time`, `level`, `logger`, and `message` or the members of the event."""

    _second, _shown = -1, ""

    def _time(self, record: logging.LogRecord) -> str:
        second = int(record.created)
        if second != self._second:
            self._second, self._shown = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._shown}.{int(record.msecs):03}Z"

    def format(self, record: logging.LogRecord) -> str:
        start = f'{{"time": "{self._time(record)}", "level": "{record.levelname.lower()}", "logger": "{record.name}"'
        message = record.getMessage()
        if record.name == "bds.access":  # it is an object already
            return hide(f"{start}, {message[1:]}")
        more: dict[str, Any] = {"message": message}
        request = REQUEST.get()
        if request is not None:
            more["request"] = request
        if record.exc_info and record.exc_info[1] is not None:
            more["error"], more["trace"] = tell(record.exc_info[1]), trace(record.exc_info[1])
        return hide(f"{start}, {json.dumps(more, ensure_ascii=False, default=str)[1:]}")
