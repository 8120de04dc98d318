"""The CPU seconds that a run of tests has taken: unlike its duration, they hardly depend on what else the machine does."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

# of this process, or of all that pytest-xdist has started
taken = {"program": 0.0, "database": 0.0}


def add_server(directory: Path) -> None:
    """Add what an embedded server and its sessions have taken; called before it is stopped."""
    server = psutil.Process(int((directory / "postgres" / "postmaster.pid").read_text().split()[0]))
    for each in [*server.children(), server]:  # what ends meanwhile is added to the server's children that have ended
        with suppress(psutil.NoSuchProcess):
            taken["database"] += sum(each.cpu_times()[:4])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Add what this process and its commands have taken; tell it to the process that has started this one."""
    if session.config.getoption("numprocesses", None) and not hasattr(session.config, "workeroutput"):
        return
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        taken["program"] += usage.ru_utime + usage.ru_stime
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["taken"] = taken


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    for who, seconds in getattr(node, "workeroutput", {}).get("taken", {}).items():
        taken[who] += seconds


def pytest_terminal_summary(terminalreporter: Any) -> None:
    program, database = taken["program"], taken["database"]
    terminalreporter.write_line(f"CPU seconds: {program:,.0f} of the program and its commands, {database:,.0f} of the database")
