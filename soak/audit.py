"""The end: wait until nothing is under way, then check everything and print the figures."""

from __future__ import annotations

import contextlib
import http.client
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import psycopg

from soak import facts, readers
from soak.checks import CHECKS, FEW, name_of
from soak.ledger import Ledger
from soak.world import COMPANIES, World

PATIENCE = 60.0  # seconds until imports, hooks and followers must be done
PENDING = """select
    (select count(*) from bds.imports where finished_at is null),
    (select count(*) from bds.deliveries where finished_at is null) + (select count(*) from bds.hook_queue),
    (select sum(c.last_id - p.routed_id) from bds.clocks c join bds.hook_positions p using (company_id))"""
STAGED = "select count(*) from pg_class where relnamespace = 'staging'::regnamespace and relkind = 'r'"
PROBLEMS = "select kind, company_id, entity, object, detail from bds.problems where kind <> 'resting hook'"


@dataclass(frozen=True, slots=True)
class Result:
    """A check and what it found."""

    name: str
    findings: list[str]


def audit(world: World, ledger: Ledger, threads: list[threading.Thread]) -> list[Result]:
    """Let everything come to its end, then check."""
    for thread in threads:
        if not any(thread.name.startswith(follower) for follower in ("sql", "pages", "stream", "updated")):
            thread.join(PATIENCE * 2)
    say(f"actors have ended after {time.monotonic() - ledger.began:.1f} s")
    world.wait_until_ready()
    settled = _settle(world, ledger)
    ledger.drained.set()
    for thread in threads:
        thread.join(PATIENCE)
    say(f"followers and hooks have everything after {time.monotonic() - ledger.began:.1f} s")
    late = [thread.name for thread in threads if thread.is_alive()]
    results = [Result("actors found nothing", ledger.findings), Result("everything comes to its end", settled + late)]
    with world.connect() as connection:
        for company in COMPANIES:
            there = facts.read(connection, company)
            ledger.figures["changes"] += len(there.log)
            results += [Result(f"{company}: {name_of(check)}", list(check(there, ledger))) for check in CHECKS]
        results += [_past_is_the_same(world, ledger), *database_results(connection)]
    results.append(_doctor(world))
    say(f"checked after {time.monotonic() - ledger.began:.1f} s")
    return results


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _settle(world: World, ledger: Ledger) -> list[str]:
    """Wait for imports, hooks and followers; what has not ended in time."""
    deadline, pending = time.monotonic() + PATIENCE, ["the database does not answer"]
    while pending and time.monotonic() < deadline:
        time.sleep(0.2)
        with contextlib.suppress(psycopg.OperationalError), world.connect() as connection:
            row = connection.execute(PENDING).fetchone()
            last = dict(connection.execute("select company_id, last_id from bds.clocks").fetchall())
            names = ("imports under way", "deliveries under way", "changes not matched with hooks")
            pending = [f"{name}: {number}" for name, number in zip(names, row or (), strict=False) if number]
            pending += [
                f"{name} of {company} is at {len(followed)} of {last[company]}"
                for (name, company), followed in list(ledger.followed.items()) if len(followed) < last[company]
            ]  # fmt: skip
    time.sleep(0.5)  # the readers by updatedAt, which have no position to wait for
    return pending


def _past_is_the_same(world: World, ledger: Ledger) -> Result:
    before = len(ledger.findings)
    for past in ledger.remembered:
        readers.recall(world, ledger, past)
    return Result("past answers are the same bytes", ledger.findings[before:])


def database_results(connection: psycopg.Connection[Any]) -> list[Result]:
    compared = connection.execute("select kind, company_id, entity, number, examples from bds.compare_log()").fetchall()
    [(staged,)] = connection.execute(STAGED).fetchall()
    return [
        Result("rows are as the log says", [str(each) for each in compared]),
        Result("nothing is left of imports", [f"{staged} staging tables"] if staged else []),
        Result("no problem is listed", [str(each) for each in connection.execute(PROBLEMS)]),
    ]


def _doctor(world: World) -> Result:
    with contextlib.suppress(OSError, http.client.HTTPException):
        _end_rests(world)
    done = world.run("doctor", "--deep")
    return Result("bds doctor --deep lists nothing", [] if done.returncode == 0 else [done.stdout + done.stderr[-500:]])


def _end_rests(world: World) -> None:
    """A hook that rests is a problem, and here it may."""
    with world.connect() as connection:
        connection.execute("update bds.hook_states set rests_until = null, failures = 0 where rests_until is not null")


def report(ledger: Ledger, results: list[Result], seed: int, seconds: float) -> int:
    """Print figures, findings and the closing line; returns the number of failed checks."""
    writes = Counter(write.state for write in ledger.writes)
    answers = Counter("none" if each.status is None else f"{each.status // 100}xx" for each in ledger.attempts)
    states = Counter(each.state for each in ledger.ended)
    print(f"seed {seed}, {seconds:.0f} s")
    print("transactions:", _list(writes))
    print("changes:", ledger.figures.pop("changes", 0))
    print("imports by state:", _list(states), "- undone:", len(ledger.undone))
    print(f"deliveries: {len({each.webhook_id for each in ledger.attempts})}, attempts by answer: {_list(answers)}")
    print(f"past answers: {len(ledger.remembered)}, snapshots: {len(ledger.seen)}")
    print("faults:", _list(ledger.faults))
    print("more:", _list(ledger.figures))
    failed = [result for result in results if result.findings]
    for result in failed:
        print(f"FAILED {result.name}: {len(result.findings)} findings")
        for finding in result.findings[:FEW]:
            print(f"    {finding[:1500]}")
    if failed:
        print("faults by time:", *ledger.log, sep="\n    ")
    print(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    return len(failed)


def _list(counted: Counter[str]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in sorted(counted.items())) or "none"
