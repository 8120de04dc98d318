"""The sender of the HTTP request that is being answered, or the user who runs a command; the database is told: bds.audit has it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg

TELL: LiteralString = "select set_config('bds.actor', %s, true), set_config('bds.caller', %s, true)"


@dataclass(slots=True)
class Caller:
    """The address and id of a request; and once it is known, its sender: an actor, and the user or key that it names."""

    address: str | None
    request: str
    actor: str = ""

    def as_json(self) -> str:
        """What bds.audit tells of it."""
        kind, _, name = self.actor.partition(" ")
        return json.dumps({**({kind: name} if name else {}), "address": self.address, "requestId": self.request})


CALLER: ContextVar[Caller | None] = ContextVar("caller", default=None)
COMMAND: ContextVar[str] = ContextVar("command", default="")  # who runs the command; empty in a service


@contextmanager
def acting(user: str) -> Iterator[None]:
    """Run the block as a command of a user; of nobody if it is empty."""
    token = COMMAND.set(user)
    try:
        yield
    finally:
        COMMAND.reset(token)


def name_actor(actor: str) -> None:
    """Note who sends the request."""
    if (caller := CALLER.get()) is not None:
        caller.actor = actor


def settings() -> tuple[str, str]:
    """The values of bds.actor and bds.caller; empty outside a request and a command."""
    caller = CALLER.get()
    return (caller.actor, caller.as_json()) if caller else (COMMAND.get(), "")


async def tell(connection: psycopg.AsyncConnection[Any]) -> None:
    """Tell the transaction of a connection who sends the request."""
    await connection.execute(TELL, settings())
