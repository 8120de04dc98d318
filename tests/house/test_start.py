"""What a service imports before it serves: heavy packages wait until they are needed, and so do the compiled grammars."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from app.extras import EXTRAS, NAME

ROOT = Path(__file__).resolve().parents[2]

# packages that some requests need, from 5 to 100 ms of CPU each
HEAVY = {
    *(module for extra in EXTRAS.values() for module in extra.modules),
    "ijson",
    "jinja2",
    "jsonpath_rfc9535",
    "lxml",
    "openpyxl",
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


def test_an_extra_brings_the_packages_that_the_table_names() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    packages = packages_distributions()
    for name, extra in EXTRAS.items():
        assert {packages[module][0].lower() for module in extra.modules} == {Requirement(each).name for each in groups[name]}
    assert groups["all"] == [f"{NAME}[{','.join(EXTRAS)}]"]
    assert groups.keys() == {*EXTRAS, "all", "dev"}
