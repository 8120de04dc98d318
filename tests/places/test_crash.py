"""The mover is killed after each of its steps; the move is then resumed, or aborted.  Exactly one place takes writes afterwards."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from app.database.servers.directory import HOME
from app.errors import ServiceError
from app.places.move import Move
from tests.places.conftest import COMPANY, Places

pytestmark = [pytest.mark.processes, pytest.mark.slow]

# moves a company and kills itself after a step
MOVER = """
import json, os, sys
from app.places import move
move.GRACE = 0.0
urls, company, target, last = json.loads(sys.argv[1])
def say(step):
    if step == last:
        os.kill(os.getpid(), 9)
with move.Move.of(urls, company, say) as one:
    one.start(target)
"""
BEFORE = ("announced", "published", "subscribed", "copied", "departing", "departed", "caught up", "arrived")
AFTER = ("switched", "unsubscribed", "cleared")
UNITS = "insert into data.units (code, name) select %s || n, 'unit ' || n from generate_series(1, 50) n"
LEFT = """
    select (select count(*) from pg_replication_slots where database = current_database()),
        (select count(*) from pg_publication),
        (select count(*) from pg_subscription s join pg_database d on d.oid = s.subdbid where d.datname = current_database())
"""


def kill_after(pair: Places, step: str) -> None:
    """Start a move to west, kill it after a step, and wait until its server has noticed."""
    words = json.dumps([pair.urls, COMPANY, "west", step])
    process = subprocess.run([sys.executable, "-c", MOVER, words], capture_output=True, text=True, check=False, timeout=60)
    assert process.returncode == -signal.SIGKILL, process.stderr
    pair.home.rows("select pg_advisory_xact_lock(hashtextextended('bds.move:' || %s, 0))::text", (COMPANY,))


def require_whole(pair: Places, place: str) -> None:
    """The company is at one place, whole, takes writes there alone, and nothing is left at the other one or of the replication."""
    assert pair.directory() == (place, None)
    assert pair.writable() == [place]
    there, other = pair.at(place), pair.at("west" if place == HOME else HOME)
    there.write(COMPANY, UNITS, ("late",))
    assert there.rows("select count(*), max(id), count(distinct id) from bds.change_log where company_id = 'demo'") == [
        (100, 100, 100)
    ]
    assert there.rows("select count(*), count(distinct id) from data.units where company_id = 'demo'") == [(100, 100)]
    for table in ("data.units", "bds.change_log", "bds.clocks"):
        assert other.rows(f"select from {table} where company_id = 'demo'") == [], table
    assert [operator.rows(LEFT) for operator in (pair.home, pair.west)] == [[(0, 0, 0)]] * 2


@pytest.mark.parametrize("step", BEFORE + AFTER)
def test_a_killed_move_is_resumed(pair: Places, step: str) -> None:
    pair.company(HOME)
    pair.home.write(COMPANY, UNITS, ("early",))
    kill_after(pair, step)
    assert len(pair.writable()) <= 1
    with Move.of(pair.urls, COMPANY, lambda _: None) as move:
        move.resume()
    require_whole(pair, "west")


@pytest.mark.parametrize("step", BEFORE)
def test_a_killed_move_is_aborted(pair: Places, step: str) -> None:
    pair.company(HOME)
    pair.home.write(COMPANY, UNITS, ("early",))
    kill_after(pair, step)
    with Move.of(pair.urls, COMPANY, lambda _: None) as move:
        move.abort()
    require_whole(pair, HOME)


@pytest.mark.parametrize("step", AFTER)
def test_a_company_that_has_arrived_is_not_fetched_back(pair: Places, step: str) -> None:
    pair.company(HOME)
    pair.home.write(COMPANY, UNITS, ("early",))
    kill_after(pair, step)
    assert pair.writable() == ["west"]
    with Move.of(pair.urls, COMPANY, lambda _: None) as move, pytest.raises(ServiceError, match="--resume") as refused:
        move.abort()
    assert refused.value.code == "conflict"
    with Move.of(pair.urls, COMPANY, lambda _: None) as move:
        move.resume()
    require_whole(pair, "west")
