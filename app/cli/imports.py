"""Imports from a file or a pipe, and reverts, without a server; and how either is shown."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import psycopg

from app.cli.progress import Progress, of_import
from app.config import Config
from app.database import connections
from app.database.caller import COMMAND
from app.feed.origin import Origin, file_name
from app.feed.revert import Revert
from app.feed.run import WAITING, Import, Moved, OnProgress, connect_writer
from app.feed.small import Writers
from app.formats import begun_by
from app.mapper import store
from app.mapper.document import SourceConverter
from app.mapper.exported import exported_mapper

CHUNK = 1 << 20  # bytes read at once


class Readable(Protocol):
    """A source of bytes: at most `size` at once, b"" at its end."""

    def read(self, size: int, /) -> bytes: ...


@contextmanager
def showing(size: int | None) -> Iterator[OnProgress]:
    """Show the progress of an import for the block.  size: of its document, in bytes, if it is known."""
    progress, started = Progress(), time.monotonic()

    def show(phase: str, received: int, records: int, done: int) -> None:
        if phase.startswith(WAITING):
            progress.say(phase)
            return
        share = of_import(phase, received / size if size else None, done / records if records else None)
        pace = (records if phase == "receiving" else done) / max(time.monotonic() - started, 0.001)
        arrived = f"{received / 1e6:,.1f} MB, " if received else ""
        progress.show(phase, share, f"{arrived}{records:,} records, {pace:,.0f}/s")

    try:
        yield show
    finally:
        progress.close()


def run_import(
    url: str,
    config: Config,
    company: str,
    file: Readable,
    show: OnProgress | None = None,
    *,
    name: str | None = None,
    dry_run: bool = False,
    mapper: str | None = None,
    entity: str | None = None,
) -> dict[str, Any]:
    """Import a document; returns the report.  Raises ServiceError, psycopg.Error."""
    with connections.connect(url, "bds_reader") as connection:
        catalog = connections.read_catalog(connection)
    first, converter, limit = b"", None, config.import_max
    if mapper:
        converter = SourceConverter(store.load_for_command(url, catalog, company, mapper), limit=limit)
    elif entity:
        first = file.read(CHUNK)
        converter = SourceConverter(exported_mapper(catalog, entity, begun_by(first, name)), limit=limit)
    origin = Origin(COMMAND.get() or None, file_name(name), mapper)
    moved = _moved(config, company, url)
    feed = Import(
        *(url, catalog, company), origin=origin, dry_run=dry_run, limit=limit, on_progress=show, converter=converter, moved=moved
    )
    try:
        feed.begin()
        while data := first or file.read(CHUNK):
            first = b""
            feed.receive(data)
        return feed.run()
    except BaseException as error:
        feed.fail(error)
        raise


def _moved(config: Config, company: str, url: str) -> Moved:
    """For an import: finds the company after the place with this connection string has refused it."""
    former = url

    def moved(error: psycopg.Error) -> tuple[str, Writers]:
        nonlocal former
        former = connections.resolve_again(config, company, former, error)
        return former, partial(connect_writer, former, company)

    return moved


def run_revert(
    url: str,
    config: Config,
    company: str,
    selection: Mapping[str, Any],
    show: OnProgress | None = None,
    *,
    dry_run: bool = False,
    force: bool = False,
) -> dict[str, Any]:
    """Undo changes; returns the report.  Raises psycopg.Error, ServiceError."""
    with connections.connect(url, "bds_reader") as connection:
        catalog = connections.read_catalog(connection)
    reverting = Revert(
        url,
        catalog,
        company,
        selection,
        actor=COMMAND.get() or None,
        dry_run=dry_run,
        force=force,
        on_progress=show,
        moved=_moved(config, company, url),
    )
    try:
        return reverting.run()
    except BaseException as error:
        reverting.fail(error)
        raise
