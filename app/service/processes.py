"""Several processes that serve one address, under a parent that serves nothing itself (app/service/supervisor.py).

Each HTTP process has a listening socket of its own for the address (SO_REUSEPORT), among which the kernel distributes connections;
one more process delivers webhooks.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import psycopg
import uvloop
from psycopg_pool import PoolTimeout

from app import logs, metrics
from app.config import Config
from app.database import connections, schema
from app.database.roles import MigrationError
from app.query.parse.parser import compile_all
from app.service import metrics_directory, server
from app.service.lifeline import Lifeline
from app.service.sockets import resolve_address
from app.service.supervisor import Parent, Slot
from app.tasks import Stopped, stoppable

log = logging.getLogger("bds.processes")


@contextmanager
def listeners(host: str, port: int, count: int) -> Iterator[list[socket.socket]]:
    """Bind sockets to one address, for a process each; port 0 takes any free port.  Raises OSError if the address is in use.

    A socket that does not listen receives no connections.
    """
    family, address = resolve_address(host, port)  # checked without SO_REUSEPORT, which would not notice another service
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(socket.socket(family, socket.SOCK_STREAM)) for _ in range(count)]
        for each in made:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            each.bind(address)
        yield made


def serve(config: Config, host: str, port: int, count: int, announce: Callable[[str, int], None], *, worker: bool = True) -> int:
    """Serve with `count` HTTP processes, and with one that delivers webhooks if `worker`; returns the exit code.

    Raises OSError if the address is taken, psycopg.Error if the database cannot be reached, ValueError, MigrationError, and
    Stopped if a signal arrives while it waits for the database.
    """
    with stoppable(), connections.connect(connections.resolve(config)) as connection:
        schema.require(schema.read(connection))  # this and errors of the configuration are reported once, by the parent
    with listeners(host, port, count) as sockets, metrics_directory.new_directory() as directory:
        address = sockets[0].getsockname()[:2]

        def announce_all() -> None:
            announce(*address)
            compile_all()  # for the processes that replace others

        shared = replace(config, spool_max=config.spool_max // count)
        slots = [Slot(f"http {n}", _http, (shared, *address, directory, n == 1), each) for n, each in enumerate(sockets, 1)]
        if worker:
            slots.append(Slot("webhooks", _webhooks, (config, directory)))
        gc.collect()
        gc.freeze()  # memory that no collection touches stays shared with the children
        return Parent(slots, announce_all, partial(metrics.drop_process, directory)).run()


# What the children run ------------------------------------------------------------------------------------------------------------


def _http(lifeline: Lifeline, listener: socket.socket, config: Config, host: str, port: int, directory: Path, first: bool) -> None:
    """One HTTP process; the first one runs maintenance for all."""
    with _child_process(config, "bds http", directory):
        settings = {"worker": False, "lifeline": lifeline, "listener": listener, "maintenance": first}
        server.serve(config, host, port, lambda *_: lifeline.ready(), **settings)


def _webhooks(lifeline: Lifeline, config: Config, directory: Path) -> None:
    """The process that delivers webhooks."""
    with _child_process(config, "bds webhooks", directory):
        uvloop.run(server.run_worker(config, lifeline.ready, lifeline=lifeline, maintenance=False))


@contextmanager
def _child_process(config: Config, name: str, directory: Path) -> Iterator[None]:
    """Name the process for `ps -o comm` and `top`, share its metrics in `directory`, and log in one line an error that ends it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name)
    logs.start(config)
    try:
        with metrics_directory.locked(directory):
            metrics.share(directory)
            yield
    except Stopped as stopped:
        log.warning("%s", stopped)
    except (psycopg.Error, PoolTimeout, MigrationError, ValueError, OSError) as error:
        log.error("%s", error)
        sys.exit(1)
