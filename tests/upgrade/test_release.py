"""The last release is replaced by this program while it serves: everything works meanwhile as the model of the soak says.

Writers, importers, undo, followers, readers of the past and receivers that misbehave go on all the time; clients behind a TCP proxy
note each answer.  A first migration fails; the second one is done; then the processes are replaced in turn.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from app.auth.keys import hash_key, make_key
from app.errors import REPLACED
from soak import audit, imports, receiver, writers
from soak.__main__ import actors, start
from soak.ledger import Ledger
from soak.load import Client, Seen, proxy
from soak.world import BDS, COMPANIES, Reply, World, prepared
from tests.service.serving import unused_port
from tests.upgrade.releases import built, migrations_since, release

pytestmark = [pytest.mark.processes, pytest.mark.slow]

WORK = 2.0  # seconds of work before and after each step
SERVICES = 2
CLIENTS = 2
# who works meanwhile, so that two processors do
ACTORS = {
    "writer a", "importer of alpha", "tags of alpha", "past of alpha", "updated of alpha",
    *(f"{name} of {company}" for name in ("sql", "stream") for company in COMPANIES),
}  # fmt: skip
# of a DBA: the schema is not to change today
FREEZE = """
    create function public.refuse() returns event_trigger language plpgsql as $$
    begin
        if current_setting('application_name') = 'bds migrate' then
            raise exception 'the schema is frozen';
        end if;
    end
    $$;
    create event trigger no_changes_today on ddl_command_start when tag in ('ALTER TABLE', 'CREATE FUNCTION') execute function public.refuse();
"""
THAW = "drop event trigger no_changes_today; drop function public.refuse()"


@dataclass
class Upgraded:
    """What was seen: before the upgrade, meanwhile and after it."""

    world: World
    ledger: Ledger
    old: World  # as world, with the commands of the release
    key: str  # of companies gamma and rest
    migrations: list[str]
    seen: Seen = field(default_factory=Seen)
    lines: dict[str, Any] = field(default_factory=dict)
    results: list[audit.Result] = field(default_factory=list)


@contextmanager
def looping() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


@contextmanager
def proxied(ports: list[int], loop: asyncio.AbstractEventLoop) -> Iterator[int]:
    """The port of a plain TCP proxy before some ports."""
    opened = proxy(ports)
    try:
        yield asyncio.run_coroutine_threadsafe(opened.__aenter__(), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(opened.__aexit__(None, None, None), loop).result()


@contextmanager
def clients(port: int, key: str, seen: Seen, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Clients of company gamma, while the block lasts."""
    stop = asyncio.Event()

    async def work() -> None:
        await asyncio.gather(*(Client(f"k{n}", "gamma", port, key, seen).run(stop) for n in range(CLIENTS)))

    working = asyncio.run_coroutine_threadsafe(work(), loop)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        working.result(timeout=120)


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upgraded]:
    commit = release()
    bds = built(tmp_path_factory.mktemp("release"), commit)
    ledger, ports, key = Ledger(), [unused_port() for _ in range(SERVICES)], make_key()
    with prepared([str(bds)]) as old, looping() as loop, receiver.receiving(ledger, random.Random(1)) as hooks:
        with old.connect() as connection:
            connection.execute("select bds.create_company('gamma'), bds.create_company('rest')")
            connection.execute("insert into data.units (company_id, code, name) values ('rest', 'U', 'Unit')")
            connection.execute("select bds.create_key(%s, 'gamma', '{gamma,rest}', null, '{read,import}')", (hash_key(key),))
        for port in ports:
            old.start_service(port)
        for port in ports:
            replace(old, port=port).wait_until_ready()
        old.refused = {*old.refused, *REPLACED}
        with proxied(ports, loop) as old.port:
            found = Upgraded(replace(old, bds=BDS), ledger, old, key, migrations_since(commit))
            receiver.register(old, ledger, hooks, COMPANIES)
            writers.prepare(old)
            imports.prepare(old, COMPANIES)
            with clients(old.port, key, found.seen, loop):
                threads = start([each for each in actors(found.world, ledger, random.Random(2)) if each[0] in ACTORS], ledger)
                upgrade(found, ports)
                ledger.stop.set()
            found.results = audit.audit(found.world, ledger, threads)
            yield found


def upgrade(found: Upgraded, ports: list[int]) -> None:
    """Remember, fail to migrate, migrate, replace process after process."""
    old, new, lines = found.old, found.world, found.lines
    lines["unit"] = ask_for_unit(old, found.key)
    time.sleep(WORK)
    seal(old)
    lines["heads"] = old.run("doctor", "--print-heads").stdout
    with old.connect() as owner:
        owner.execute(FREEZE)
        lines["failed"] = new.run("migrate")
        lines["after failure"] = [replace(old, port=port).ask("/c/alpha/units?limit=1").status for port in ports]
        owner.execute(THAW)
    lines["plan"] = new.run("migrate", "--plan")
    lines["migrated"] = new.run("migrate")
    assert lines["migrated"].returncode == 0, lines["migrated"].stderr
    time.sleep(WORK)
    lines["ready"] = [replace(old, port=port).ask("/readyz") for port in ports]
    processes = old.started[-SERVICES:]
    for port, process in zip(ports, processes, strict=True):
        process.terminate()
        process.wait(60)
        new.start_service(port)
        replace(new, port=port).wait_until_ready()
        time.sleep(WORK)
    lines["same unit"] = ask_for_unit(new, found.key, **{"If-None-Match": lines["unit"].headers["ETag"]})


def seal(world: World) -> None:
    """Seal the log of each company: a call puts off what another session has locked."""
    unsealed = "select from bds.companies c where c.id = any(%s) and not exists (select from bds.seals s where s.company_id = c.id)"
    with world.connect() as owner:
        while True:
            owner.execute("select from bds.maintain(seal_age => '0')")
            if not owner.execute(unsealed, ([*COMPANIES, "gamma"],)).fetchall():
                return
            time.sleep(0.1)


def ask_for_unit(world: World, key: str, **headers: str) -> Reply:
    """A unit of a company in which nobody writes."""
    return world.ask("/c/rest/units/1", headers={"X-API-Key": key, **headers})


def test_each_request_was_answered_or_told_to_try_again(upgraded: Upgraded) -> None:
    assert set(upgraded.seen.answers) <= {"200", "503 busy"}, upgraded.seen.answers
    assert upgraded.seen.answers["200"] > 20


def test_nothing_was_lost_and_everything_goes_on(upgraded: Upgraded) -> None:
    assert {result.name: result.findings for result in upgraded.results if result.findings} == {}


def test_acknowledged_imports_are_there_once(upgraded: Upgraded) -> None:
    with upgraded.world.connect() as connection:
        codes = {code for (code,) in connection.execute("select code from data.units where company_id = 'gamma'").fetchall()}
        [(records,)] = connection.execute("select count(*) from bds.change_log where company_id = 'gamma'").fetchall()
    assert upgraded.seen.acknowledged["gamma"] <= codes and records == len(codes)


def test_a_failed_migration_left_the_release_serving(upgraded: Upgraded) -> None:
    failed = upgraded.lines["failed"]
    assert failed.returncode == 1 and "the schema is frozen" in failed.stderr, failed
    assert upgraded.lines["after failure"] == [200] * SERVICES


def test_the_plan_told_locks_and_time(upgraded: Upgraded) -> None:
    plan = upgraded.lines["plan"]
    assert plan.returncode == 0 and re.search(r": \d.* m?s", plan.stderr), plan
    assert ", locks " in plan.stderr or not upgraded.migrations, plan
    assert all(f"migrations/{each}.sql: " in plan.stderr for each in upgraded.migrations), plan


def test_processes_of_the_release_told_that_they_are_to_be_replaced(upgraded: Upgraded) -> None:
    for reply in upgraded.lines["ready"]:
        assert reply.status == 503 and reply.headers["Retry-After"] and "schema is newer" in reply.json["detail"]


def test_etags_go_on(upgraded: Upgraded) -> None:
    assert upgraded.lines["unit"].status == 200 and upgraded.lines["same unit"].status == 304


def test_seals_go_on(upgraded: Upgraded, tmp_path: Path) -> None:
    heads = tmp_path / "heads"
    heads.write_text(upgraded.lines["heads"])
    assert {json.loads(line)["company"] for line in heads.read_text().splitlines()} >= {"alpha", "gamma"}
    seal(upgraded.world)
    with upgraded.world.connect() as connection:
        faults = "select * from bds.verify_log(%s, 1, null) where kind in ('altered', 'missing', 'added', 'chain')"
        assert [row for company in (*COMPANIES, "gamma") for row in connection.execute(faults, (company,)).fetchall()] == []
    done = upgraded.world.run("doctor", "--head", str(heads))
    assert done.returncode == 0, done.stdout + done.stderr
