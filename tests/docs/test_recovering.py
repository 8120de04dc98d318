"""Standbys, recovery, a subscriber and a failover run as the operator's document prints them, and print what it says."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.database import embedded
from tests.docs.checkout import PSQL, Checkout, checkout
from tests.docs.documents import chapter, examples, session

pytestmark = [pytest.mark.processes, pytest.mark.slow]

FOLDERS = ("standby", "recovered", "subscriber")
OF_THE_SERVER = ("initdb", "mkdir", "cp", "tee", "pg_basebackup", "pg_ctl", "pg_rewind", "pg_verifybackup")  # run as its user


@pytest.fixture
def here() -> Iterator[Checkout]:
    """A folder with a migrated primary; the commands of servers are run as the user of the server."""
    with checkout() as here:
        here.folder.chmod(0o777)
        here.type([".venv/bin/bds company create shop"])
        primary = here.folder / "data" / "postgres"
        path, user = str(PSQL.parent), embedded._system_user()
        if user:
            if shutil.which("setpriv") is None:
                pytest.skip("under root this needs setpriv")
            for name in OF_THE_SERVER:
                drop(here.folder / "bin" / name, shutil.which(name, path=f"{path}:{os.environ['PATH']}") or name, user)
            path = f"{here.folder / 'bin'}:{path}"
            shutil.chown(primary / ".handle_pids.json", user)  # of the package that started it
        words = {"PATH": f"{path}:{os.environ['PATH']}", "OWNER": here.url, "PRIMARY": str(primary)}
        try:
            yield Checkout(here.folder, {**here.environment, **words})
        finally:
            for name in FOLDERS:
                if (here.folder / name / "postmaster.pid").exists():
                    embedded._wheel().pg_ctl(["-m", "immediate", "stop"], pgdata=here.folder / name, user=user)


def drop(command: Path, program: str, user: str) -> None:
    """Make a command that runs a program as a user."""
    command.parent.mkdir(exist_ok=True)
    # the server runs commands, too
    drop = f'[ $(id -u) != 0 ] || exec setpriv --reuid {user} --regid {user} --clear-groups {program} "$@"'
    command.write_text(f'#!/bin/sh\n{drop}\nexec {program} "$@"\n')
    command.chmod(0o755)


def test_the_session_of_servers_prints_what_the_document_says(here: Checkout) -> None:
    titles = chapter("docs/operate.md", "Standbys and recovery")
    blocks = [each for each in examples("docs/operate.md") if each.title in titles and each.is_shell]
    steps = [step for block in blocks for step in session(block.text)]
    assert len(steps) > 40
    printed = here.type([command for command, _ in steps])
    assert [(command, text.strip()) for (command, _), text in zip(steps, printed, strict=True)] == steps
