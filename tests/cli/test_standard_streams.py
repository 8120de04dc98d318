"""Commands whose standard streams are closed, full, or pipes without a reader: one error line, and no change without its result."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.auth.passwords import Passwords
from tests.conftest import Operator

pytestmark = pytest.mark.processes

BDS = f"{sys.executable} -m app.cli"
ROOT = Path(__file__).resolve().parents[2]
FULL, CLOSED, NO_READER = ">/dev/full", ">&-", "| true"
MESSAGES = {
    FULL: "bds: standard output: no space left on device\n",
    CLOSED: "bds: standard output: it is closed\n",
    NO_READER: "bds: standard output: broken pipe\n",
}
KEYS = "select (select count(*) from bds.api_keys where revoked_at is null), (select count(*) from bds.users)"


@pytest.fixture(scope="module")
def template(of_products: str) -> str:
    return of_products


@pytest.fixture
def company(operator: Operator) -> str:
    return operator.company("acme")


def shell(url: str, command: str, input: str | None = "") -> subprocess.CompletedProcess[str]:
    """Run `bds` in a shell with redirections; the exit code is that of `bds`, also in a pipe."""
    script = f'set -o pipefail; bds() {{ {BDS} "$@"; }}; {command}'
    environment = {**os.environ, "BDS_DATABASE_URL": url}
    return subprocess.run(
        ["bash", "-c", script], env=environment, cwd=ROOT, input=input, capture_output=True, text=True, timeout=120
    )


PRINTING = [
    "key list",
    "user list",
    "dsn",
    "explain '/api/odata/acme/units?$top=1'",
    "export units --company acme --format json",
    "export units --company acme --format excel",
    "key create --company acme",
    "user create anna@example.com --company acme",
    "audit acme --json",
    "diff acme --since now --json",
    "doctor --json",
    "company dump acme",
]


@pytest.mark.parametrize("where", [FULL, CLOSED])
def test_a_result_that_cannot_be_written_is_an_error_and_undoes_the_command(
    database_url: str, operator: Operator, company: str, where: str
) -> None:
    before = operator.rows(KEYS)
    for command in PRINTING:
        ended = shell(database_url, f"bds {command} {where}")
        assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", MESSAGES[where]), command
        assert operator.rows(KEYS) == before, command


@pytest.mark.parametrize("where", [FULL, CLOSED])
def test_a_password_that_cannot_be_printed_is_not_changed(database_url: str, operator: Operator, company: str, where: str) -> None:
    assert shell(database_url, "bds user create anna@example.com --company acme").returncode == 0
    before = operator.rows("select password_hash from bds.users")
    ended = shell(database_url, f"bds user password anna@example.com {where}")
    assert (ended.returncode, ended.stderr) == (1, MESSAGES[where])
    assert operator.rows("select password_hash from bds.users") == before
    assert shell(database_url, f"bds user password anna@example.com {where}", "another password\n").returncode == 0, (
        "nothing is printed"
    )


def test_an_export_ends_with_one_line_if_its_reader_ends(database_url: str, operator: Operator, company: str) -> None:
    operator.write(
        "acme",
        "insert into data.units (company_id, code, name) select 'acme', g, repeat('x', 100) from generate_series(1, 20000) g",
    )
    ended = shell(database_url, f"bds export units --company acme --format csv {NO_READER}")
    assert (ended.returncode, ended.stderr) == (1, MESSAGES[NO_READER])


def test_an_import_does_not_start_without_standard_output(database_url: str, operator: Operator, company: str) -> None:
    document = '{"units": [{"code": "A", "name": "a"}]}'
    ended = shell(database_url, "bds import - --company acme >&-", document)
    assert (ended.returncode, ended.stderr) == (1, MESSAGES[CLOSED])
    assert operator.rows("select count(*) from bds.imports") == [(0,)]


@pytest.mark.parametrize("option", ["", "--json"])
def test_an_import_whose_report_cannot_be_written_writes_its_outcome_to_standard_error(
    database_url: str, operator: Operator, company: str, option: str
) -> None:
    ended = shell(database_url, f"bds import - --company acme {option} >/dev/full", '{"units": [{"code": "A", "name": "a"}]}')
    [(number,)] = operator.rows("select id from bds.imports where state = 'completed'")
    message = f"bds: completed, import {number}; its report could not be written\n{MESSAGES[FULL]}"
    assert (ended.returncode, ended.stderr) == (1, message)


def test_an_import_from_a_closed_standard_input_is_refused(database_url: str, operator: Operator, company: str) -> None:
    ended = shell(database_url, "bds import - --company acme <&-")
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", "bds: standard input: it is closed\n")
    assert operator.rows("select count(*) from bds.imports") == [(0,)]


def test_a_mapper_and_sql_are_utf_8_in_every_locale(database_url: str, operator: Operator, company: str, tmp_path: Path) -> None:
    text = "type json\n# €ä\nunits = '$.u[*]' {\n code = 'c'\n}\n"
    locale = "LC_ALL=C PYTHONIOENCODING=ascii PYTHONUTF8=0 PYTHONCOERCECLOCALE=0"
    put = shell(database_url, f"{locale} bds mapper put m - --company acme", text)
    assert (put.returncode, put.stderr) == (0, "")
    got = shell(database_url, f"{locale} bds mapper get m --company acme")
    assert (got.returncode, got.stdout) == (0, text)
    (tmp_path / "a.sql").write_text("create table data.of_file as select '€' as text", encoding="utf-8")
    ended = shell(
        database_url, f"{locale} bds sql {tmp_path}/a.sql; {locale} bds sql -", "create table data.of_input as select '€' as text"
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert operator.rows("select text from data.of_file union all select text from data.of_input") == [("€",), ("€",)]


def test_sql_that_cannot_be_read_is_an_error(database_url: str, tmp_path: Path) -> None:
    ended = shell(database_url, "bds sql - <&-")
    assert (ended.returncode, ended.stderr) == (1, "bds: standard input: it is closed\n")
    (tmp_path / "latin.sql").write_bytes(b"select '\xe4'")
    for command in (f"bds sql {tmp_path}/latin.sql", f"bds sql - <{tmp_path}/latin.sql"):
        ended = shell(database_url, command)
        assert (ended.returncode, ended.stderr.endswith(": expected UTF-8\n")) == (1, True), ended.stderr


def test_with_a_closed_standard_input_a_password_is_generated(database_url: str, company: str) -> None:
    ended = shell(database_url, "bds user create anna@example.com --company acme <&-")
    assert (ended.returncode, ended.stderr) == (0, "") and len(ended.stdout.strip()) == 20


def test_a_password_that_is_not_utf_8_is_refused(database_url: str, operator: Operator, company: str) -> None:
    for locale in ("C.UTF-8", "C"):
        ended = shell(
            database_url, rf"printf 'caf\xe9 caf\xe9\n' | LC_ALL={locale} bds user create anna@example.com --company acme"
        )
        assert (ended.returncode, ended.stderr) == (1, "bds: password on standard input: expected UTF-8\n")


def test_a_password_is_utf_8_in_every_locale(database_url: str, operator: Operator, company: str) -> None:
    ended = shell(database_url, "PYTHONIOENCODING=latin-1 bds user create anna@example.com --company acme", "grüße ganz €\n")
    assert (ended.returncode, ended.stderr) == (0, "")
    [(hash,)] = operator.rows("select password_hash from bds.users")
    assert asyncio.run(Passwords().verify("grüße ganz €", hash))


@pytest.mark.parametrize("where", ["2>&-", "2>/dev/full"])
def test_messages_that_cannot_be_written_change_nothing_else(
    database_url: str, operator: Operator, company: str, where: str
) -> None:
    made = shell(database_url, f"bds key create --company acme {where}")
    assert made.returncode == 0 and made.stdout.startswith("bds_") and made.stdout.count("\n") == 1
    refused = shell(database_url, f"bds key create --company nowhere {where}")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert shell(database_url, f"bds frobnicate {where}").returncode == 2


@pytest.mark.parametrize("where", [FULL, CLOSED])
def test_help_that_cannot_be_written_is_an_error(database_url: str, where: str) -> None:
    for command in ("", "key create"):
        ended = shell(database_url, f"bds {command} --help {where}")
        assert (ended.returncode, ended.stderr) == (1, MESSAGES[where])


def test_commands_without_a_result_need_no_standard_output(database_url: str, operator: Operator) -> None:
    for command in ("company create other", "migrate"):
        ended = shell(database_url, f"bds {command} <&- >&-")
        assert (ended.returncode, ended.stderr) == (0, "")
    assert operator.rows("select id from bds.companies") == [("other",)]


@pytest.mark.parametrize("option", ["", "--json"])
def test_characters_that_standard_output_cannot_encode_are_escaped(
    database_url: str, operator: Operator, company: str, option: str
) -> None:
    document = '{"@atomic": false, "products": [{"code": "\u00c41", "price": "abc"}, {"code": "B", "name": "b"}]}'
    ended = shell(database_url, f"PYTHONIOENCODING=ascii bds import - --company acme {option}", document)
    assert ended.returncode == 3, ended.stderr
    if option:
        assert "code:\u00c41" in {each["record"] for each in json.loads(ended.stdout)["errors"]}
    else:
        assert "\\xc41" in ended.stdout
    assert operator.rows("select code from data.products") == [("B",)]
