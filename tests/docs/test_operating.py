"""The operator's session runs as it is printed: a service of several processes, one of them killed, a backup and its restore."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.docs.checkout import Checkout, checkout
from tests.docs.documents import chapter, examples
from tests.service.serving import unused_port

pytestmark = pytest.mark.processes


@pytest.fixture
def here() -> Iterator[Checkout]:
    if shutil.which("curl") is None or shutil.which("ps") is None:
        pytest.skip("the session needs curl and ps")
    with checkout() as here:
        yield here


def test_the_session_runs_as_printed(here: Checkout) -> None:
    servers = chapter("docs/operate.md", "Standbys and recovery")  # test_recovering.py has them
    session = "".join(each.text for each in examples("docs/operate.md") if each.kind == "console" and each.title not in servers)
    commands = re.findall(r"^\$ (.*)$", session, re.MULTILINE)
    assert len(commands) > 15
    port = unused_port()
    script = "\n".join(f"echo '--- {number}'\n{command}" for number, command in enumerate(commands)).replace("8081", str(port))
    (here.folder / "data").mkdir()
    words, environment = ["bash", "-c", script], dict(here.environment)
    ended = subprocess.run(words, cwd=here.folder, env=environment, capture_output=True, text=True, timeout=300)
    printed = dict(zip(commands, re.split(r"--- \d+\n", ended.stdout)[1:], strict=True))
    assert ended.returncode == 0, ended.stderr

    def answer(start: str) -> str:
        return next(text for command, text in printed.items() if command.startswith(start))

    assert answer("curl -s --retry") == '{"status": "ok"}' and answer("curl -s -H") == '{"data":[],"hasMore":false}'
    assert answer("ps -o pid,comm").count("bds http") == 2
    assert "bds_database_up 1.0\n" in answer("curl -s $URL/metrics")
    died, back = answer("grep bds.processes").splitlines()[:2]
    assert '"level": "error"' in died and "SIGKILL" in died and "http 1 is process" in back
    assert answer("kill $PARENT") == "0\n"
    assert (here.folder / "bds.dump").stat().st_size > 100_000
    assert "bds_reader" in (here.folder / "roles.sql").read_text()
    assert not [line for line in ended.stderr.splitlines() if "error" in line.lower()], ended.stderr
