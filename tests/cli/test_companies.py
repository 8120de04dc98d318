"""Companies at the command line: a dump is private, and leads into another database through a pipe."""

from __future__ import annotations

import os
import pty
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.cli.test_commands import BDS, ROOT, bds
from tests.conftest import Operator, fresh_database

pytestmark = pytest.mark.processes


@pytest.fixture
def environment(database_url: str, operator: Operator) -> dict[str, str]:
    operator.company("acme", "group")
    operator.write("acme", "insert into data.units (code, name) values ('a', 'A')")
    return {**os.environ, "BDS_DATABASE_URL": database_url}


@pytest.fixture
def elsewhere(server: str) -> Iterator[str]:
    yield from fresh_database(server)


def test_a_company_goes_through_a_pipe_into_another_database(environment: dict[str, str], elsewhere: str) -> None:
    there = {**environment, "BDS_DATABASE_URL": elsewhere}
    with subprocess.Popen([*BDS, "company", "dump", "acme"], env=environment, cwd=ROOT, stdout=subprocess.PIPE) as source:
        ended = subprocess.run(
            [*BDS, "company", "restore"], env=there, cwd=ROOT, stdin=source.stdout, capture_output=True, text=True, timeout=120
        )
    assert (source.returncode, ended.returncode, ended.stdout, ended.stderr) == (
        0,
        0,
        "",
        "acme is restored; its hooks are disabled\n",
    )
    listed = [each["stdout"].splitlines() for each in (vars(bds(env, "company", "list")) for env in (environment, there))]
    assert listed[0] == listed[1] and listed[0][1].split()[:2] == ["acme", "group"]
    again = bds(there, "company", "restore", "/dev/null")
    assert (again.returncode, again.stderr) == (1, "bds: the dump ends too early, at byte 0; nothing was restored\n")


def test_a_dump_of_no_company_is_empty_and_one_of_a_company_that_exists_is_refused(
    environment: dict[str, str], tmp_path: Path
) -> None:
    refused = bds(environment, "company", "dump", "nowhere")
    assert (refused.returncode, refused.stdout) == (1, "") and "nowhere" in refused.stderr
    target = tmp_path / "acme.dump"
    assert bds(environment, "company", "dump", "acme", "--output", str(target)).returncode == 0
    refused = bds(environment, "company", "restore", str(target))
    assert refused.stderr == "bds: company 'acme' already exists\n     delete it first: bds company delete acme --yes\n"


def test_a_file_is_for_its_owner_alone_and_a_terminal_is_refused(environment: dict[str, str], tmp_path: Path) -> None:
    target = tmp_path / "acme.dump"
    assert bds(environment, "company", "dump", "acme", "--output", str(target)).returncode == 0
    redirected = tmp_path / "redirected"
    with redirected.open("wb") as out:
        subprocess.run([*BDS, "company", "dump", "acme"], env=environment, cwd=ROOT, stdout=out, timeout=120, check=True)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (target, redirected)] == [0o600, 0o600]
    assert redirected.stat().st_size == target.stat().st_size > 500
    main, terminal = pty.openpty()
    try:
        ended = subprocess.run(
            [*BDS, "company", "dump", "acme"],
            env=environment,
            cwd=ROOT,
            stdout=terminal,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
        assert ended.returncode == 1 and "not shown on a terminal" in ended.stderr
        os.set_blocking(main, False)
        with pytest.raises(BlockingIOError):
            os.read(main, 1)
    finally:
        os.close(main)
        os.close(terminal)


def test_a_company_is_deleted_only_if_that_is_meant(environment: dict[str, str], operator: Operator) -> None:
    refused = bds(environment, "company", "delete", "acme")
    assert refused.returncode == 2 and "expected --yes" in refused.stderr
    assert operator.rows("select count(*) from data.units") == [(1,)]
    deleted = bds(environment, "company", "delete", "acme", "--yes")
    assert (deleted.returncode, deleted.stdout) == (0, "") and "data.units: 1 rows deleted" in deleted.stderr
    for yes in ([], ["--yes"]):
        again = bds(environment, "company", "delete", "acme", *yes)
        assert (again.returncode, again.stderr) == (1, "bds: no such company: 'acme'\n")


@pytest.mark.parametrize("command", ["dump acme", "restore /dev/null"])
def test_only_the_owner_dumps_and_restores(
    environment: dict[str, str], database_url: str, operator: Operator, command: str
) -> None:
    login = f"bds_test_operator_{os.getpid()}"
    operator.connection.execute(f"create role {login} login in role bds_operator".encode())
    try:
        url = psycopg.conninfo.make_conninfo(database_url, user=login)
        ended = bds({**environment, "BDS_DATABASE_URL": url}, "company", *command.split())
        assert (ended.returncode, ended.stderr) == (1, "bds: only a member of bds_owner dumps and restores companies\n")
    finally:
        operator.connection.execute(f"drop role {login}".encode())
