"""A command of `bds`: name, function and arguments, from which its parser, its help and its completion are generated."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from app.config import Config

FAILED, MISUSED, PARTIAL = 1, 2, 3  # exit codes; argparse gives the second one, for wrong usage


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument or option, as argparse takes it."""

    flags: tuple[str, ...]
    options: dict[str, Any]
    values: tuple[str, ...] = ()  # that a shell completes


def argument(*flags: str, values: Iterable[str] = (), **options: Any) -> Argument:
    return Argument(flags, options, tuple(values))


@dataclass(frozen=True, slots=True)
class Command:
    """One command.  name: one word, or a group and an action; run: returns the exit code."""

    name: str
    run: Callable[[argparse.Namespace, Config], int]
    help: str
    example: str
    arguments: tuple[Argument, ...] = ()


COMPANY = argument("--company", required=True, metavar="ID", help="the company")
