"""Values on the command line; a wrong one is reported before anything is done."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NoReturn
from uuid import UUID

from app import formats
from app.cli import stdio
from app.cli.command import argument
from app.errors import did_you_mean, meant
from app.types.event_ids import Event, read_event
from app.wire.urls import MAX_LIMIT

SCOPES = ("read", "import", "hooks")  # of a key if none is named
BY_NAME = ("propose",)  # only if it is named
MOST_PROCESSES = 64
INVALID_CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)", re.DOTALL)  # of argparse
MISSING = "the following arguments are required"  # likewise
WHEN = "a version, its name, a time (UTC), now, today, yesterday, -7d or -12h"  # as moments.absolute reads it
PATHS = ("file", "output", "key_file")  # options that name files, whose names need not be UTF-8


class Parser(argparse.ArgumentParser):
    """A parser that prints help as a result: a failed write raises OSError.  Its errors name what may have been meant.

    Options are never abbreviated, so that a new one changes no command.  options: all that it has.  Overrides
    ArgumentParser._print_message, a private method; tests/service/test_private_names.py fails if it changes.
    """

    options: Collection[str] = ()
    _words: Sequence[str] = ()  # that it has read

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._words = args or ()
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print a message and raise SystemExit."""
        if wrong := INVALID_CHOICE.search(message):
            near = meant(wrong[1], wrong[2].replace("'", "").split(", "))
            if near:
                message = f"{message[: wrong.start(1) - 1]}{wrong[1]!r}, did you mean {near!r}?"
        elif message.startswith(MISSING):  # it may be there, misspelt
            message = next(self._misspelt(self._words), message)
        super().error(message)

    def refuse_unknown(self, words: Sequence[str]) -> NoReturn:
        """Print which words are unknown and raise SystemExit."""
        self.error(next(self._misspelt(words), f"unrecognized arguments: {' '.join(words)}"))

    def _misspelt(self, words: Iterable[str]) -> Iterator[str]:
        """Yield a message for each word that is nearly an option, or the beginning of one."""
        for word in (word.partition("=")[0] for word in words if len(word) > 2 and word.startswith("--")):
            if word not in self.options and (near := did_you_mean(word, self.options) or self._begun(word)):
                yield f"unrecognized arguments: {word}{near}"

    def _begun(self, word: str) -> str:
        """The end of a message about the beginning of an option; empty if it begins none."""
        begun = [each for each in self.options if each.startswith(word)]
        return f", did you mean {' or '.join(begun)}?" if begun else ""

    def _print_message(self, message: str, file: Any = None) -> None:
        if not message:
            return
        if file is None or file is sys.stdout:
            stdio.write(message)
        else:
            stdio.message(message, end="")


def read_id(text: str) -> str:
    """The id of a key or an import."""
    try:
        return str(UUID(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected an id as the list shows it, got {text!r}") from None


def read_hook_id(text: str) -> str:
    """The id of a hook."""
    try:
        return str(UUID(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected an id as `bds hook list` shows it, got {text!r}") from None


def read_format(text: str) -> formats.Format:
    """A format of exports, in any case."""
    format = formats.find(text)
    if format is None:
        raise argparse.ArgumentTypeError(formats.unknown(text))
    return format


def read_count(text: str) -> str:
    """A number of rows."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"expected a whole number from 0, got {text!r}")
    return text


def read_limit(text: str) -> int:
    """The most items of a list."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_LIMIT:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to {MAX_LIMIT:,}, got {text!r}")
    return int(text)


def read_change(text: str) -> Event:
    """The id of an event, or 0."""
    try:
        return read_event(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected the id of a change such as 17 or 2:17, or 0, got {text!r}") from None


def read_name(text: str) -> str:
    """A name, which is not empty."""
    if not text:
        raise argparse.ArgumentTypeError("expected a name, got an empty one")
    return text


def read_idempotency_key(text: str) -> str:
    """The value of a header Idempotency-Key."""
    if not re.fullmatch(r"[!-~]{1,255}", text):
        raise argparse.ArgumentTypeError(f"expected 1 to 255 visible ASCII characters without spaces, got {text!r}")
    return text


def read_port(text: str) -> int:
    """A port of TCP, 0 for any free one."""
    if not (text.isascii() and text.isdigit() and int(text) <= 65_535):
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, got {text!r}")
    return int(text)


def read_processes(text: str) -> int:
    """How many processes serve."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST_PROCESSES:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to {MOST_PROCESSES}, got {text!r}")
    return int(text)


def read_scopes(text: str) -> list[str]:
    """What a key may do, between commas."""
    scopes = [scope.strip() for scope in text.split(",")]
    known = (*SCOPES, *BY_NAME)
    wrong = [scope for scope in scopes if scope not in known]
    if wrong:
        raise argparse.ArgumentTypeError(f"expected some of {','.join(known)}, got {wrong[0]!r}")
    return list(dict.fromkeys(scopes))


LIMIT = argument("--limit", type=read_limit, default=100, metavar="N", help=f"the most items, up to {MAX_LIMIT:,} (%(default)s)")


def find_undecodable(options: argparse.Namespace) -> str | None:
    """The error for the first value that is not UTF-8; None if all are."""
    for name, value in vars(options).items():
        for each in value if isinstance(value, list) else [value]:
            if name not in PATHS and isinstance(each, str) and not each.isascii():
                try:
                    each.encode()
                except UnicodeEncodeError:
                    return f"argument {name}: expected UTF-8, got {each!a}"
    return None
