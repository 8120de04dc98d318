"""The README's session for operators, typed as it is printed there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.database import embedded
from tests.service.serving import unused_port

ROOT = Path(__file__).resolve().parents[2]
SECTION = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Operating it\n")[2].partition("\n## ")[0]


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder like the project's own, with a PostgreSQL of its own."""
    if not (ROOT / ".venv" / "bin" / "bds").exists() or shutil.which("curl") is None or shutil.which("ps") is None:
        pytest.skip("the session needs .venv, curl and ps")
    folder = Path(tempfile.mkdtemp(prefix="bds-operating-"))
    folder.chmod(0o755)
    (folder / ".venv").symlink_to(ROOT / ".venv")
    try:
        yield folder
    finally:
        embedded.stop(folder / "data")
        shutil.rmtree(folder, ignore_errors=True)


def test_the_session_runs_as_printed(place: Path) -> None:
    commands = re.findall(r"^\$ (.*)$", SECTION, re.MULTILINE)
    assert len(commands) > 15
    port = unused_port()
    script = "\n".join(f"echo '--- {number}'\n{command}" for number, command in enumerate(commands)).replace("8081", str(port))
    environment = {**os.environ, "BDS_DATA_DIR": str(place / "data")}
    (place / "data").mkdir()
    ended = subprocess.run(["bash", "-c", script], cwd=place, env=environment, capture_output=True, text=True, timeout=300)
    said = dict(zip(commands, re.split(r"--- \d+\n", ended.stdout)[1:], strict=True))
    assert ended.returncode == 0, ended.stderr

    def answer(start: str) -> str:
        return next(text for command, text in said.items() if command.startswith(start))

    assert answer("curl -s --retry") == '{"status": "ok"}' and answer("curl -s -H") == '{"data":[],"hasMore":false}'
    assert answer("ps -o pid,comm").count("bds http") == 2
    assert "bds_database_up 1.0\n" in answer("curl -s $URL/metrics")
    died, back = answer("grep bds.processes").splitlines()[:2]
    assert "died: killed by SIGKILL; it is started again" in died and "is started again as process" in back
    assert answer("kill $PARENT") == "0\n"
    assert (place / "bds.dump").stat().st_size > 100_000 and "bds_reader" in (place / "roles.sql").read_text()
    assert not [line for line in ended.stderr.splitlines() if "error" in line.lower()], ended.stderr
