"""The parent of several processes, with children that behave badly."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import asyncio, gc, logging, os, sys, time
from app.service.supervisor import Parent, Slot

{child}

logging.basicConfig(level="INFO", stream=sys.stdout, format="%(message)s")
sys.exit(Parent([Slot("child", child, ())], lambda: print("all ready", flush=True)).run())
"""

# a child that serves until it is told to end
SERVE = """
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(15, stop.set)
    lifeline.keep(on_parent_end=stop.set)
    lifeline.ready()
    await stop.wait()
"""


# a fourth of the time between two signs of life: a process hangs after 2 s, not 8; tests/service/test_processes.py waits those
QUICK = """
from app.service import lifeline, supervisor
supervisor.TICK = lifeline.BEAT = 0.25
"""


def run(child: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM.format(child=child)], cwd=ROOT, stdout=subprocess.PIPE, text=True)


def lines_until(parent: subprocess.Popen[str], pattern: str, times: int = 1) -> list[str]:
    """What the parent writes, up to the line that matches for the last time."""
    assert parent.stdout is not None
    found = []
    for line in parent.stdout:
        found.append(line.strip())
        times -= bool(re.search(pattern, line))
        if not times:
            return found
    raise AssertionError(f"the parent ended after {found}")


def end(parent: subprocess.Popen[str]) -> int:
    parent.terminate()
    code = parent.wait(timeout=60)
    assert parent.stdout is not None
    parent.stdout.close()
    return code


@pytest.mark.slow
def test_a_process_whose_event_loop_hangs_is_killed_and_replaced(tmp_path: Path) -> None:
    once = tmp_path / "once"
    child = f"""
def child(lifeline):
    asyncio.run(main(lifeline))

async def main(lifeline):
    lifeline.keep(on_parent_end=lambda: None)
    lifeline.ready()
    if not os.path.exists({str(once)!r}):
        open({str(once)!r}, "w").close()
        await asyncio.sleep(0.1)
        time.sleep(3600)
{SERVE}
"""
    parent = run(QUICK + child)
    found = lines_until(parent, "is process \\d+ now")
    assert [line.partition(")")[2] or line for line in found[1:3]] == [
        " has given no sign of life for 2 s and is killed",
        " died: killed by SIGKILL; it is replaced in 0.1 s",
    ]
    assert end(parent) == 0


def test_processes_that_die_young_are_replaced_after_growing_delays() -> None:
    child = """
def child(lifeline):
    lifeline.ready()
    time.sleep(0.2)  # so that all are ready first
    os.kill(os.getpid(), 9)
"""
    parent = run(child)
    found = lines_until(parent, "it is replaced in", times=3)
    assert re.findall(r"it is replaced in (\S+) s", "\n".join(found)) == ["0.1", "0.2", "0.4"]
    assert end(parent) == 0


def test_a_process_that_fails_before_all_are_ready_ends_the_parent() -> None:
    parent = run("def child(lifeline): sys.exit(7)")
    out, _ = parent.communicate(timeout=60)
    assert parent.returncode == 1 and re.fullmatch(r"child \(process \d+\) could not start: exit code 7\n", out)


def test_a_killed_parent_takes_its_children_along_whichever_was_started_last(tmp_path: Path) -> None:
    child = f"""
def child(lifeline):
    os.write(1, b"pid %d\\n" % os.getpid())  # in one write, whatever PYTHONUNBUFFERED says: the parent writes there too
    asyncio.run(main(lifeline))

async def main(lifeline):
{SERVE}
"""
    program = PROGRAM.replace('[Slot("child", child, ())]', '[Slot(name, child, ()) for name in ("one", "two", "three")]')
    parent = subprocess.Popen([sys.executable, "-c", program.format(child=child)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    pids = [int(line.split()[1]) for line in lines_until(parent, "all ready") if line.startswith("pid")]
    os.kill(pids[0], signal.SIGKILL)  # its replacement is the youngest, and has inherited what the parent had open then
    pids[0] = int(lines_until(parent, "^pid")[-1].split()[1])
    parent.kill()
    assert parent.stdout is not None
    assert [line for line in parent.stdout if "error" in line.lower()] == []  # read to the end: all who could write have ended
    parent.wait()
