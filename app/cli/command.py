"""A command of `bds`: name, function and arguments, from which its parser, its help and its completion are generated."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.config import Config

FAILED, PARTIAL = 1, 3  # exit codes; wrong usage is 2, which argparse gives


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument or option, as argparse takes it."""

    flags: tuple[str, ...]
    options: dict[str, Any]


def argument(*flags: str, **options: Any) -> Argument:
    return Argument(flags, options)


@dataclass(frozen=True, slots=True)
class Command:
    """One command.  name: one word, or a group and an action; run: returns the exit code."""

    name: str
    run: Callable[[argparse.Namespace, Config], int]
    help: str
    example: str
    arguments: tuple[Argument, ...] = ()


COMPANY = argument("--company", required=True, metavar="ID", help="the company")
