"""The bds command as an operator runs it: results on standard output, messages on standard error, exit codes."""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from app import logs
from app.cli.main import main
from app.formats import FORMATS
from tests.conftest import Operator

pytestmark = pytest.mark.processes

BDS = [sys.executable, "-m", "app.cli"]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def template(of_products: str) -> str:
    return of_products


@pytest.fixture
def environment(database_url: str) -> dict[str, str]:
    return {**os.environ, "BDS_DATABASE_URL": database_url}


def bds(environment: dict[str, str], *arguments: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*BDS, *arguments], env=environment, cwd=ROOT, input=input, capture_output=True, text=True, timeout=120)


def here(environment: dict[str, str], *arguments: str, input: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command in this process, with its own environment and streams: it takes a tenth of the time."""
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", errors) for errors in ("strict", "backslashreplace")]
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ.keys() - environment.keys():
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setattr(logs.LogHandler, "active", None)
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(input.encode())))
        patch.setattr(sys, "stdout", streams[0])
        patch.setattr(sys, "stderr", streams[1])
        try:
            code = main(arguments)
        except SystemExit as ended:
            assert isinstance(ended.code, int)
            code = ended.code
    for stream in streams:
        stream.flush()
    out, error = (stream.buffer.getvalue().decode() for stream in streams)  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(arguments, code, out, error)


def test_a_company_and_its_keys(environment: dict[str, str]) -> None:
    assert bds(environment, "company", "create", "acme", "--tenant", "t1").returncode == 0
    again = bds(environment, "company", "create", "acme")
    assert (again.returncode, again.stdout, again.stderr) == (1, "", "bds: company 'acme' already exists\n")

    made = bds(environment, "key", "create", "--company", "acme", "--scope", "read")
    assert re.fullmatch(r"bds_[A-Za-z0-9_-]{43}\n", made.stdout), "only the key"
    listed = bds(environment, "key", "list").stdout
    assert made.stdout.strip() not in listed
    key_id, *rest = listed.splitlines()[1].split()
    assert rest[1:3] == ["acme", "read"] and rest[-1] == "valid"
    assert bds(environment, "key", "revoke", key_id).returncode == 0
    assert "revoked" in bds(environment, "key", "list").stdout
    again = bds(environment, "key", "revoke", key_id)
    assert (again.returncode, f"key {key_id} was revoked at 2" in again.stderr) == (1, True)


def test_the_first_administrator_needs_no_company(environment: dict[str, str], operator: Operator) -> None:
    made = here(environment, "user", "create", "first@example.com", "--administrator", input="a long password\n")
    assert (made.returncode, made.stderr) == (0, "")
    found = "select companies, is_administrator from bds.users where email = 'first@example.com'"
    assert operator.rows(found) == [([], True)]
    assert here(environment, "user", "delete", "first@example.com").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("key", "create", "--company", "nowhere"), 1, "no such company: 'nowhere'"),
        (("version", "list", "nowhere"), 1, "no such company: 'nowhere'"),
        (("audit", "nowhere"), 1, "no such company: 'nowhere'"),
        (("key", "create", "--company", "acme", "--scope", "write"), 2, "expected some of read,import,hooks,propose, got 'write'"),
        (
            ("key", "create", "--company", "acme", "--expires", "9999-12-31T23:59-12:00"),
            2,
            "expected a time before the year 10000",
        ),
        (("company", "create", "Acme"), 1, "expected 1 to 63 characters of a-z 0-9 - _"),
        (("company", "create", "products"), 1, "'products' is taken"),
        (("import", "none.json", "--company", "acme"), 1, "none.json: no such file or directory"),
        (("import", "-", "--company", "nowhere"), 1, "no such company: 'nowhere'"),
        (("frobnicate",), 2, "invalid choice: 'frobnicate' (choose from"),
        (("imprt", "x.json"), 2, "invalid choice: 'imprt', did you mean 'import'?"),
        (("company", "lsit"), 2, "invalid choice: 'lsit', did you mean 'list'?"),
        (("import", "x.json", "--company", "demo", "--dryrun"), 2, "unrecognized arguments: --dryrun, did you mean --dry-run?"),
        (("export", "units", "--compny", "x", "--format", "csv"), 2, "unrecognized arguments: --compny, did you mean --company?"),
        (("user", "access", "--comp", "x"), 2, "unrecognized arguments: --comp, did you mean --company?"),
        (("company", "create", "x", "--ten", "t"), 2, "unrecognized arguments: --ten, did you mean --tenant?"),
        (("export", "units", "--company", "x", "--o=y"), 2, "unrecognized arguments: --o, did you mean --output or --orderby?"),
        (("--vers",), 2, "unrecognized arguments: --vers, did you mean --version?"),
        (("import", "list", "--company", "acme", "--limit", "0"), 2, "expected a whole number from 1 to 10,000, got '0'"),
        (("company", "list", "--frobnicate"), 2, "unrecognized arguments: --frobnicate\n"),
        (("stop",), 1, "stops the embedded server only"),
        (("key", "revoke", "xyz"), 2, "argument ID: expected an id as the list shows it, got 'xyz'"),
        (
            ("key", "revoke", "00000000-0000-0000-0000-000000000000"),
            1,
            "no key has the id 00000000-0000-0000-0000-000000000000",
        ),
        (("user", "create", "anna@example.com"), 1, "expected --company ID, or --administrator"),
        (("user", "access", "anna@example.com"), 1, "expected --company ID, or --administrator"),
        (("import", "-", "--company", "acme", "--mapper", ""), 2, "argument --mapper: expected a name, got an empty one"),
        (("export", "units", "--company", "acme", "--format", "csv", "--versions"), 2, "--versions: expected --since"),
        (("export", "diff", "--company", "acme", "--format", "json"), 2, "diff: expected --since"),
        (("export", "units", "--company", "acme", "--format", "csv", "--version", "1", "--at", "2026-01-01"), 2, "got both"),
        (("revert", "acme", "--to", "1", "--actor", "anna"), 2, "--actor: expected no actor with --to alone"),
        (("revert", "acme", "--to", "1", "--change-set", "00000000-0000-0000-0000-000000000000"), 2, "--change-set: expected it"),
        (("query", "selec 1"), 1, 'bds: syntax error at or near "selec" (at character 1)\n'),
        (("query", "select nothing"), 1, 'bds: column "nothing" does not exist (at character 8)\n'),
    ],
)
def test_errors_are_one_line(module_database_url: str, arguments: tuple[str, ...], code: int, message: str) -> None:
    ended = here({**os.environ, "BDS_DATABASE_URL": module_database_url}, *arguments, input="{}")
    assert ended.returncode == code
    assert message in ended.stderr and "Traceback" not in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize(
    "command",
    ["company list", "company create acme", "key create --company acme", "user list", "export units --company acme --format csv",
     "revert acme --to 1", "follow acme", "query 'select 1'", "doctor"],
)  # fmt: skip
def test_before_the_first_migration_a_command_names_it(empty_url: str, command: str) -> None:
    ended = here({**os.environ, "BDS_DATABASE_URL": empty_url}, *shlex.split(command))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert re.fullmatch(r"bds: the schema is older than this program, which is version \S+: run bds migrate\n", ended.stderr)


@pytest.fixture(scope="module")
def empty_url(module_database_url: str) -> Iterator[str]:
    with psycopg.connect(module_database_url, autocommit=True) as connection:
        connection.execute("create database not_migrated")
        yield make_conninfo(module_database_url, dbname="not_migrated")
        connection.execute("drop database not_migrated with (force)")


def test_a_wrong_connection_string_is_one_line() -> None:
    ended = here({**os.environ, "BDS_DATABASE_URL": "nope"}, "company", "list")
    assert ended.returncode == 1 and ended.stderr.startswith("bds: BDS_DATABASE_URL: expected a connection string such as ")
    assert "nope" not in ended.stderr


def test_a_deleted_user_leaves_keys_and_perhaps_no_administrator(environment: dict[str, str]) -> None:
    for name in ("one", "two"):
        here(environment, "user", "create", f"{name}@example.com", "--administrator")
    told = [here(environment, "user", "delete", f"{name}@example.com").stderr.splitlines() for name in ("one", "two")]
    assert [len(each) for each in told] == [1, 2]
    assert told[0] == ["one@example.com can no longer sign in; API keys that this user created stay valid: bds key list"]
    assert told[1][1].startswith("there is no administrator any more: bds user create EMAIL --administrator")


def test_an_undo_of_a_misspelt_entity_names_the_right_one(environment: dict[str, str], operator: Operator) -> None:
    operator.company("acme")
    for words in (("--entity", "prodcts"), ("--row", "prodcts/code:A")):
        ended = here(environment, "revert", "acme", "--to", "0", *words)
        assert (ended.returncode, ended.stderr) == (1, "bds: no such entity: 'prodcts', did you mean products?\n")


def test_a_scope_that_is_given_twice_is_kept_once(environment: dict[str, str], operator: Operator) -> None:
    operator.company("acme")
    assert here(environment, "key", "create", "--company", "acme", "--scope", "read,import,read").returncode == 0
    assert operator.rows("select scopes from bds.api_keys where name = 'cli'") == [(["read", "import"],)]


def test_without_a_command_it_prints_the_help_whatever_the_settings() -> None:
    printed = here({**os.environ, "BDS_POOL_SIZE": "none"})
    assert (printed.returncode, printed.stderr) == (0, "")
    assert printed.stdout.startswith("usage: bds ") and "Exit codes" in printed.stdout


def test_version_is_the_version_of_the_package() -> None:
    printed = here(dict(os.environ), "--version")
    assert (printed.returncode, printed.stdout, printed.stderr) == (0, f"bds {version('business-data-service')}\n", "")


def test_dsn_prints_the_database_in_use(environment: dict[str, str]) -> None:
    assert here(environment, "dsn").stdout == environment["BDS_DATABASE_URL"] + "\n"


def test_migrating_again_does_nothing(environment: dict[str, str]) -> None:
    ended = here(environment, "migrate")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_the_statements_that_make_the_roles_are_the_only_output(environment: dict[str, str], operator: Operator) -> None:
    ended = here(environment, "migrate", "--roles")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("begin;\n") and ended.stdout.endswith("commit;\n")
    operator.connection.execute(ended.stdout.encode())
    both = here(environment, "migrate", "--roles", "--plan")
    assert both.returncode == 2 and "expected it without --plan" in both.stderr


def test_serve_serves_until_sigterm(environment: dict[str, str], operator: Operator) -> None:
    operator.company("acme")
    key = operator.key("acme")
    server = subprocess.Popen([*BDS, "serve", "--port", "0"], env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    base = next(found[1] for line in server.stderr if (found := re.search(r"serving on (http://127.0.0.1:\d+)", line)))
    authorization = "Basic " + b64encode(f"api:{key}".encode()).decode()
    request = urllib.request.Request(f"{base}/api/odata/acme/products/$count", headers={"Authorization": authorization})
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.read() == b"0"
    server.send_signal(signal.SIGTERM)
    rest = server.communicate(timeout=30)[1]
    assert server.returncode == 0, rest
    assert key not in rest


@pytest.mark.parametrize("name", ["", "evil\x1b[31m", "two\nlines", "x" * 101])
def test_names_of_keys_must_be_printable(environment: dict[str, str], name: str) -> None:
    here(environment, "company", "create", "acme")
    refused = here(environment, "key", "create", "--company", "acme", "--name", name)
    assert (refused.returncode, refused.stdout) == (1, "") and "expected a name of 1 to 100 printable characters" in refused.stderr


def test_a_report_escapes_control_characters(environment: dict[str, str]) -> None:
    here(environment, "company", "create", "acme")
    reported = here(
        environment, "import", "-", "--company", "acme", input='{"units": [{"code": "A\\u001b[31m", "na\\u001b[2Jme": 1}]}'
    )
    assert "\x1b" not in reported.stdout and "A\\x1b[31m" in reported.stdout and "na\\x1b[2Jme" in reported.stdout


def test_an_unknown_setting_is_told_before_a_command_runs(environment: dict[str, str]) -> None:
    odd = here({**environment, "BDS_WEBHOOK_RETENTION_DAYS": "1"}, "company", "list")
    assert (odd.returncode, odd.stderr) == (
        0,
        "bds: BDS_WEBHOOK_RETENTION_DAYS: no such setting; the nearest is BDS_WEBHOOK_RETENTION\n",
    )
    wrong = here({**environment, "BDS_SECRT": "1"}, "company", "list")
    assert (wrong.returncode, wrong.stdout) == (
        1,
        "",
    ) and wrong.stderr == "bds: BDS_SECRT: no such setting, did you mean BDS_SECRET?\n"


@pytest.mark.parametrize("port", ["99999", "-1", "http"])
def test_a_wrong_port_is_wrong_usage(environment: dict[str, str], port: str) -> None:
    refused = here(environment, "serve", f"--port={port}")
    assert refused.returncode == 2 and "expected a port from 0 to 65535" in refused.stderr


NAMES = ", ".join(FORMATS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--format", "nope"), f"argument --format: expected one of {NAMES}, xsd, got 'nope'"),
        (("--format", ""), f"argument --format: expected one of {NAMES}, xsd, got ''"),
        (("--format", "csv", "--top", "abc"), "argument --top: expected a whole number from 0, got 'abc'"),
        (("--format", "csv", "--top", "-1"), "argument --top: expected a whole number from 0, got '-1'"),
        (("--format", "csv", "--skip", "1.5"), "argument --skip: expected a whole number from 0, got '1.5'"),
        (("--format", "csv", "--mapper", ""), "argument --mapper: expected a name, got an empty one"),
        (("--format", "custom"), "--format custom: expected --mapper"),
        ((), f"expected --mapper, or --format: one of {NAMES}"),
    ],
)
def test_wrong_options_of_an_export_are_reported_before_connecting(options: tuple[str, ...], message: str) -> None:
    nowhere = {**os.environ, "BDS_DATABASE_URL": "host=127.0.0.1 port=1"}
    refused = here(nowhere, "export", "products", "--company", "acme", *options)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.endswith(f"error: {message}\n") and "--format F" in refused.stderr


def test_a_format_may_be_upper_case(environment: dict[str, str], operator: Operator) -> None:
    operator.company("acme")
    exported = here(environment, "export", "units", "--company", "acme", "--format", "CSV", "--top", "5")
    assert (exported.returncode, exported.stderr) == (0, "") and "id,code" in exported.stdout


NOT_UTF_8 = "caf\udce9"  # as Python represents an argument with the byte E9


@pytest.mark.parametrize(
    "arguments",
    [
        ("company", "create", NOT_UTF_8),
        ("company", "create", "acme", "--tenant", NOT_UTF_8),
        ("key", "create", "--company", NOT_UTF_8),
        ("key", "create", "--company", "acme", "--name", NOT_UTF_8),
        ("key", "create", "--company", "acme", "--scope", NOT_UTF_8),
        ("key", "create", "--company", "acme", "--expires", NOT_UTF_8),
        ("key", "revoke", NOT_UTF_8),
        ("user", "create", NOT_UTF_8, "--company", "acme"),
        ("user", "create", "anna@example.com", "--company", "acme", "--company", NOT_UTF_8),
        ("user", "password", NOT_UTF_8),
        ("user", "delete", NOT_UTF_8),
        ("explain", f"/api/odata/acme/units?$filter=code eq '{NOT_UTF_8}'"),
        ("import", "none.json", "--company", NOT_UTF_8),
        ("import", "none.json", "--company", "acme", "--mapper", NOT_UTF_8),
        ("export", NOT_UTF_8, "--company", "acme", "--format", "json"),
        ("export", "units", "--company", NOT_UTF_8, "--format", "json"),
        ("export", "units", "--company", "acme", "--format", "json", "--filter", NOT_UTF_8),
        ("export", "units", "--company", "acme", "--format", NOT_UTF_8),
        ("serve", "--host", NOT_UTF_8),
        (NOT_UTF_8,),
    ],
)
def test_an_argument_that_is_not_utf_8_is_wrong_usage(environment: dict[str, str], arguments: tuple[str, ...]) -> None:
    refused = here(environment, *arguments)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "Traceback" not in refused.stderr and "codec" not in refused.stderr
    assert refused.stderr.splitlines()[-1].startswith("bds") and "caf\\udce9" in refused.stderr


def test_names_of_files_need_not_be_utf_8(environment: dict[str, str], operator: Operator, tmp_path: Path) -> None:
    operator.company("acme")
    file = f"{tmp_path}/{NOT_UTF_8}.json"
    exported = bds(environment, "export", "units", "--company", "acme", "--format", "json", "--output", file)
    assert (exported.returncode, exported.stderr) == (0, "")
    assert bds(environment, "import", file, "--company", "acme").returncode == 0
    missing = bds(environment, "import", file + "x", "--company", "acme")
    assert missing.returncode == 1 and missing.stderr.endswith("\\udce9.jsonx: no such file or directory\n")
    refused = bds(environment, "key", "create", "--company", NOT_UTF_8)
    assert (refused.returncode, refused.stdout) == (2, "") and "caf\\udce9" in refused.stderr


@pytest.mark.parametrize("name", ["BDS_DATABASE_URL", "BDS_SECRET", "BDS_TRUSTED_PROXIES", "BDS_LOG_LEVEL", "BDS_POOL_SIZE"])
def test_a_setting_that_is_not_utf_8_is_named(environment: dict[str, str], name: str) -> None:
    refused = here({**environment, name: NOT_UTF_8}, "key", "list")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == f"bds: {name}: expected UTF-8\n"


def test_an_interrupt_during_imports_writes_one_line() -> None:
    program = """if True:
        import os, signal, sys
        signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore SIGINT
        class Interrupted:
            def find_spec(self, name, path, target=None):
                if name == "psycopg":
                    os.kill(os.getpid(), signal.SIGINT)
        from app.cli.__main__ import main
        sys.meta_path.insert(0, Interrupted())
        sys.exit(main())
    """
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", "bds: interrupted\n")


VALUES = """
    select 12345678901234567890.1200 as n, timestamptz '2026-01-02 03:04:05+02' as at, '\\xff00'::bytea as b, time '24:00' as t,
        interval '1 day 2 hours' as i, '{"x": 1.50}'::jsonb as j, true as yes, null as nothing, 'a' as a
"""


def test_a_query_writes_values_as_http_does(environment: dict[str, str]) -> None:
    assert here(environment, "query", VALUES, "--json").stdout == (
        '{"n": 12345678901234567890.1200, "at": "2026-01-02T01:04:05.000000Z", "b": "/wA=", "t": "24:00:00", "i": "P1DT2H", '
        '"j": {"x": 1.50}, "yes": true, "nothing": null, "a": "a"}\n'
    )
    shown = re.split("  +", here(environment, "query", VALUES).stdout.splitlines()[1].strip())
    values = ["12345678901234567890.1200", "2026-01-02T01:04:05.000000Z", "/wA=", "24:00:00", "P1DT2H", '{"x": 1.50}', "true", "a"]
    assert shown == values


def test_a_query_names_each_member_once(environment: dict[str, str]) -> None:
    refused = here(environment, "query", "select 1, count(*), 2 from data.units", "--json")
    assert (refused.returncode, refused.stdout, "got ?column? twice: name them with `as`" in refused.stderr) == (2, "", True)
    assert here(environment, "query", "select 1, 2").returncode == 0
