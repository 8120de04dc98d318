"""An undo: an import whose records come from the change log, so that only the run remains of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from app.database.catalog import Catalog
from app.errors import with_hint
from app.feed.heartbeat import Progress
from app.feed.origin import Origin
from app.feed.requests import Claim
from app.feed.run import NOTICE, Import, Moved, OnProgress


class Revert(Import):
    """An undo: run() it, begin() before makes it one that can be watched; fail() after any exception.

    selection: which changes, as sql/52_revert/09_select.sql says: {"changeSet": id}, {"to": version}, {"from": version} and more.
    begin and run raise psycopg.Error BD002 if there is no such change set, row or version, BD004 if it is an import under way,
    BD005 for a malformed selection, BD006 if its changes are no longer kept; then nothing is listed.
    """

    def __init__(
        self,
        url: str,
        catalog: Catalog,
        company: str,
        selection: Mapping[str, Any],
        *,
        force: bool = False,
        actor: str | None = None,
        dry_run: bool = False,
        turn: float | None = None,
        on_progress: OnProgress | None = None,
        moved: Moved | None = None,
        claim: Claim | None = None,
    ) -> None:
        how: dict[str, Any] = {"dry_run": dry_run, "turn": turn, "on_progress": on_progress, "moved": moved, "claim": claim}
        super().__init__(url, catalog, company, origin=Origin(actor), **how)
        self._selection, self._entities = selection, catalog.entities
        self._force = force
        self._rows = 0  # that are undone

    def _begin_here(self) -> tuple[UUID, int]:
        with self._connection.use() as connection, connection.transaction():
            connection.execute("select bds.set_context(%s, %s)", (self.company, self._origin.actor))
            try:
                row = connection.execute(
                    "select bds.import_begin(%s, %s, %s, undoes => %s, force => %s, claimed_id => %s)",
                    (self.company, self._origin.actor, self.dry_run, Jsonb(self._selection), self._force, self.claimed_id),
                ).fetchone()
            except psycopg.Error as error:
                raise with_hint(error, self._entities) or error from None
        assert row is not None
        self.id = row[0]
        self._heartbeat.start(row[0])
        return row[0], 0  # nothing is staged

    def received(self) -> None:
        """Nothing has to arrive."""

    def _run(self) -> dict[str, Any]:
        self.begin()
        with self._staying():
            return self._run_staged()

    def fail(self, reason: BaseException | None = None) -> None:
        if self.id is not None:
            super().fail(reason)
        else:
            self._end_unlisted(reason)

    def _on_notice(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        if match := NOTICE.fullmatch(diagnostic.message_primary or ""):
            self._rows = int(match[4])
            self._show(match[1], int(match[3]))
            self._phase = match[2]
        else:
            super()._on_notice(diagnostic)

    def _progress(self) -> Progress:
        return dataclasses.replace(super()._progress(), records=self._rows)

    def _show(self, phase: str, done: int = 0) -> None:
        self._done = done
        self._on_progress(phase, 0, self._rows, done)
