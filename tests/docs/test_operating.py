"""The operator's session runs as it is printed: a service of several processes, one of them killed, a backup and its restore."""

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
from tests.docs.documents import Checkout, examples
from tests.service.serving import unused_port

pytestmark = pytest.mark.slow


@pytest.fixture
def checkout() -> Iterator[Checkout]:
    """A folder like a checkout, with a PostgreSQL of its own."""
    if shutil.which("curl") is None or shutil.which("ps") is None:
        pytest.skip("the session needs curl and ps")
    folder = Path(tempfile.mkdtemp(prefix="bds-operating-"))
    folder.chmod(0o755)
    try:
        yield Checkout(folder, {**os.environ, "BDS_DATA_DIR": str(folder / "data")})
    finally:
        embedded.stop(folder / "data")
        shutil.rmtree(folder, ignore_errors=True)


def test_the_session_runs_as_printed(checkout: Checkout) -> None:
    session = "".join(each.text for each in examples("docs/operate.md") if each.kind == "console")
    commands = re.findall(r"^\$ (.*)$", session, re.MULTILINE)
    assert len(commands) > 15
    port = unused_port()
    script = "\n".join(f"echo '--- {number}'\n{command}" for number, command in enumerate(commands)).replace("8081", str(port))
    (checkout.folder / "data").mkdir()
    words, environment = ["bash", "-c", script], dict(checkout.environment)
    ended = subprocess.run(words, cwd=checkout.folder, env=environment, capture_output=True, text=True, timeout=300)
    printed = dict(zip(commands, re.split(r"--- \d+\n", ended.stdout)[1:], strict=True))
    assert ended.returncode == 0, ended.stderr

    def answer(start: str) -> str:
        return next(text for command, text in printed.items() if command.startswith(start))

    assert answer("curl -s --retry") == '{"status": "ok"}' and answer("curl -s -H") == '{"data":[],"hasMore":false}'
    assert answer("ps -o pid,comm").count("bds http") == 2
    assert "bds_database_up 1.0\n" in answer("curl -s $URL/metrics")
    died, back = answer("grep bds.processes").splitlines()[:2]
    assert '"level": "error"' in died and "SIGKILL" in died and '"level": "warning"' in back and "http 1" in back
    assert answer("kill $PARENT") == "0\n"
    assert (checkout.folder / "bds.dump").stat().st_size > 100_000
    assert "bds_reader" in (checkout.folder / "roles.sql").read_text()
    assert not [line for line in ended.stderr.splitlines() if "error" in line.lower()], ended.stderr
