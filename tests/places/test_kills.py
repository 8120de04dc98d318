"""Moves that are killed at any step, resumed and aborted, while hooks run and workers die, too.

BDS_TEST_KILLS=30 kills so many; the steps and what follows are chosen by BDS_TEST_SEED.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.database.servers.directory import HOME
from app.errors import ServiceError
from app.places.move import Move
from tests.places.conftest import COMPANY, Places
from tests.places.test_crash import AFTER, BEFORE
from tests.places.test_hooks import PATHS, webhook_ids, writing
from tests.service.serving import wait_until
from tests.webhooks.conftest import COMMAND, ROOT, SETTINGS
from tests.webhooks.receiving import Receiver, receiving

pytestmark = [pytest.mark.processes, pytest.mark.slow]

KILLS = int(os.environ.get("BDS_TEST_KILLS", "2"))
SEED = int(os.environ.get("BDS_TEST_SEED", "1"))
WINDOW = 0.2  # seconds that a hook collects changes
UNDER_WAY = 3.0  # seconds that an attempt may take on a busy machine

# moves a company, copies for more than three windows, and kills itself after a step
MOVER = f"""
import json, os, sys, time
from app.places import move
move.GRACE = 0.0
urls, company, target, last = json.loads(sys.argv[1])
def say(step):
    if step in ("subscribed", "copied"):
        time.sleep({4 * WINDOW})
    if step == last:
        os.kill(os.getpid(), 9)
with move.Move.of(urls, company, say) as one:
    one.start(target)
"""


@dataclass
class Worker:
    """A process that delivers webhooks."""

    url: str
    log: Path
    killed: list[float] = field(default_factory=list)

    def start(self) -> None:
        environment = {**os.environ, "BDS_DATABASE_URL": self.url, **SETTINGS, "BDS_WEBHOOK_WINDOW": str(WINDOW)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*COMMAND, "worker"], cwd=ROOT, stderr=log, env=environment)
        wait_until(lambda: b"delivering" in self.log.read_bytes())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.killed.append(time.monotonic())


def kill_mover(pair: Places, target: str, step: str) -> float:
    """Start a move, which kills itself after a step; returns when."""
    words = [sys.executable, "-c", MOVER, json.dumps([pair.urls, COMPANY, target, step])]
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    at = time.monotonic()
    pair.home.rows("select pg_advisory_xact_lock(hashtextextended('bds.move:' || %s, 0))::text", (COMPANY,))
    return at


def finish(pair: Places, chosen: random.Random) -> str:
    """Resume or abort the move; returns which of them."""
    with Move.of(pair.urls, COMPANY, lambda _: None) as move:
        if chosen.random() < 0.5:
            try:
                move.abort()
                return "aborted"
            except ServiceError as error:
                assert error.code == "conflict", error  # it has arrived
        move.resume()
        return "resumed"


def sent_twice(receiver: Receiver, deaths: list[float]) -> tuple[int, int]:
    """How many deliveries were accepted twice, and how many of them without an attempt under way when a process died."""
    accepted: dict[tuple[str, str], list[float]] = {}
    for path in ("/all", "/some"):  # these answer 200 alone
        for request in receiver.of(path):
            accepted.setdefault((path, request.headers["webhook-id"]), []).append(request.at)
    twice = [times for times in accepted.values() if len(times) > 1]
    odd = [times for times in twice if not any(times[0] <= death <= times[0] + UNDER_WAY for death in deaths)]
    return len(twice), len(odd)


def test_killed_moves_send_each_change_to_each_hook_under_one_id(pair: Places, tmp_path: Path) -> None:
    chosen, deaths, done = random.Random(SEED), [], []
    pair.company(HOME)
    worker = Worker(pair.urls[HOME], tmp_path / "worker.log")
    with receiving() as receiver:
        receiver.answers["/retried"] = [*[500, 200] * 10, 200]
        for path, filter in (("/all", None), ("/some", "code like 'U%'"), ("/retried", None)):
            pair.home.write(COMPANY, "select bds.create_hook(%s, 'units', %s, %s)", (COMPANY, receiver.url(path), filter))
        worker.start()
        try:
            with writing(pair):
                for number in range(KILLS):
                    place, _ = pair.directory()
                    step = chosen.choice(BEFORE + AFTER) if number else "departed"
                    deaths.append(kill_mover(pair, "west" if place == HOME else HOME, step))
                    if number % 3 == 1:
                        worker.kill()
                        worker.start()
                    done.append((step, finish(pair, chosen)))
                    assert len(pair.writable()) == 1 and pair.directory()[1] is None, done
            [place] = pair.writable()
            written = {id for (id,) in pair.at(place).rows("select id from bds.change_log where company_id = 'demo'")}
            wait_until(lambda: {(path, id) for path in PATHS for id in written} <= webhook_ids(receiver).keys())
        finally:
            worker.process.terminate()
            worker.process.wait(30)
        sent = webhook_ids(receiver)
    assert {pair: ids for pair, ids in sent.items() if len(ids) > 1} == {}, done
    twice, odd = sent_twice(receiver, [*deaths, *worker.killed])
    print(f"{done}; {len(written)} changes to {len(PATHS)} hooks, {twice} deliveries twice, {odd} of them without a death")
    assert odd == 0, done
