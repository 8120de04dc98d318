"""Hooks, mappers and keys of several companies at the command line: plain results for scripts, errors in one line."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest

from app.cli.main import main
from tests.conftest import Operator

pytestmark = pytest.mark.slow

Bds = Callable[..., tuple[int, str, str]]
URL = "https://93.184.215.14/hook"
MAPPER = "type csv\nunits = 'row' {\n    code = 'Code'\n}\n"


@pytest.fixture(scope="module")
def template(of_products: str) -> str:
    return of_products


@pytest.fixture
def bds(database_url: str, operator: Operator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bds:
    """Runs a command; returns its exit code, standard output and standard error.  There are the companies acme and beta."""
    monkeypatch.setenv("BDS_DATABASE_URL", database_url)
    operator.company("acme")
    operator.company("beta")

    def run(*arguments: str, input: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(input.encode())))
        try:
            code = main(arguments)
        except SystemExit as end:
            code = int(str(end.code))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def created(bds: Bds, *options: str) -> tuple[str, str]:
    code, out, err = bds("hook", "create", URL, "--company", "acme", *options)
    assert code == 0, err
    hook, secret = out.split()
    return hook, secret


def test_a_hook_is_created_with_every_member(bds: Bds, operator: Operator) -> None:
    hook, secret = created(bds, "--entity", "products", "--filter", "price > 1", "--columns", "price, name", "--change-sets")
    assert operator.rows("select secret from bds.hook_secrets where hook_id = %s", (hook,)) == [(secret,)]
    stored = "select entity, url, filter, columns, allow_in_change_set, disabled from bds.hooks where id = %s"
    assert operator.rows(stored, (hook,)) == [("products", URL, "price > 1", ["price", "name"], True, False)]
    hook, _ = created(bds, "--disabled")
    assert operator.rows(stored, (hook,)) == [(None, URL, None, None, False, True)]


def test_a_hook_that_hears_nothing_of_imports_is_announced_so(bds: Bds) -> None:
    code, out, err = bds("hook", "create", URL, "--company", "acme")
    assert code == 0 and len(out.split()) == 2 and "receives no changes of imports; --change-sets includes them" in err
    assert bds("hook", "create", URL, "--company", "acme", "--change-sets")[2] == ""


def test_hooks_are_listed_with_their_health(bds: Bds, operator: Operator) -> None:
    first, secret = created(bds, "--entity", "products", "--filter", "price > 1")
    second, _ = created(bds, "--change-sets", "--disabled")
    operator.rows("update bds.hook_states set failures = 2, last_at = '2026-01-02 03:04Z' where hook_id = %s returning 1", (first,))
    code, out, _ = bds("hook", "list", "--company", "acme")
    lines = [re.split("  +", line.strip()) for line in out.splitlines()]
    assert code == 0 and lines[0][:3] == ["id", "state", "failures"]
    assert lines[1] == [first, "failing", "2", "2026-01-02 03:04", "no answer", "0", "products", URL, "price > 1"]
    assert lines[2][:4] == [second, "disabled", "0", "never"]
    code, out, _ = bds("hook", "list", "--company", "acme", "--json")
    assert [(hook["id"], hook["health"]["state"]) for hook in map(json.loads, out.splitlines())] == [
        (first, "failing"),
        (second, "disabled"),
    ]
    assert secret not in out
    assert len(bds("hook", "list", "--company", "beta")[1].splitlines()) == 1, "the header"


def test_a_hook_is_tested_rotated_switched_and_deleted(bds: Bds, operator: Operator) -> None:
    hook, first = created(bds)
    code, out, _ = bds("hook", "test", hook)
    assert code == 0
    assert operator.rows("select test, state from bds.deliveries where id = %s", (out.strip(),)) == [(True, "pending")]
    secrets = "select secret, previous from bds.hook_secrets"
    second = bds("hook", "rotate", hook)[1].strip()
    assert operator.rows(secrets) == [(second, first)]
    third = bds("hook", "rotate", hook, "--revoke")[1].strip()
    assert operator.rows(secrets) == [(third, None)] and len({first, second, third}) == 3
    for action, disabled in (("disable", True), ("enable", False)):
        assert bds("hook", action, hook) == (0, "", "")
        assert operator.rows("select disabled, url from bds.hooks") == [(disabled, URL)]
    assert bds("hook", "delete", hook) == (0, "", "")
    for action in ("test", "rotate", "enable", "delete"):
        assert bds("hook", action, hook) == (1, "", f"bds: no such hook: {hook}\n")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("hook", "create", "http://127.0.0.1/", "--company", "acme"), 1, "BDS_WEBHOOK_ALLOW_PRIVATE"),
        (("hook", "create", "ftp://x", "--company", "acme"), 1, "url: expected an http or https address"),
        (("hook", "create", URL, "--company", "acme", "--entity", "nope"), 1, "no such entity: nope"),
        (("hook", "create", URL, "--company", "acme", "--filter", "price >"), 1, "at character"),
        (("hook", "create", URL, "--company", "acme", "--columns", "price,nope"), 1, "no entity has a column nope"),
        (("hook", "create", URL, "--company", "nowhere"), 1, "no such company: 'nowhere'"),
        (("hook", "list", "--company", "nowhere"), 1, "no such company: 'nowhere'"),
        (("hook", "rotate", "7"), 2, "expected an id as `bds hook list` shows it, got '7'"),
        (("hook", "test", str(uuid4())), 1, "no such hook"),
        (("mapper", "list", "--company", "nowhere"), 1, "no such company: 'nowhere'"),
        (("mapper", "get", "m", "--company", "acme"), 1, "no such mapper: m"),
        (("mapper", "delete", "m", "--company", "acme"), 1, "no such mapper: m"),
        (("mapper", "put", "m", "/nowhere", "--company", "acme"), 1, "/nowhere: no such file"),
        (("key", "create", "--company", "acme", "--company", "nowhere"), 1, "no such company: 'nowhere'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(bds: Bds, arguments: tuple[str, ...], code: int, message: str) -> None:
    found, out, err = bds(*arguments)
    assert (found, out) == (code, "") and message in err.splitlines()[-1]


def test_a_mapper_is_stored_printed_listed_and_deleted(bds: Bds, operator: Operator, tmp_path: Path) -> None:
    file = tmp_path / "units.mapper"
    file.write_text(MAPPER, encoding="utf-8")
    assert bds("mapper", "put", "units", str(file), "--company", "acme") == (0, "", "")
    assert bds("mapper", "get", "units", "--company", "acme") == (0, MAPPER, "")
    assert bds("mapper", "put", "units", "-", "--company", "beta", input=MAPPER + "# ä\n")[0] == 0
    assert operator.rows("select company_id, format, text from bds.mappers order by 1") == [
        ("acme", "csv", MAPPER), ("beta", "csv", MAPPER + "# ä\n"),
    ]  # fmt: skip
    assert [line.split()[:2] for line in bds("mapper", "list", "--company", "acme")[1].splitlines()[1:]] == [["units", "csv"]]
    code, _, err = bds("mapper", "put", "units", "-", "--company", "acme", input="type csv\nnope")
    assert code == 1 and "line 2" in err
    assert bds("mapper", "get", "units", "--company", "acme")[1] == MAPPER, "a wrong one replaces nothing"
    assert bds("mapper", "delete", "units", "--company", "acme") == (0, "", "")
    assert bds("mapper", "list", "--company", "acme")[1].splitlines()[1:] == []


def test_a_key_opens_several_companies(bds: Bds, operator: Operator) -> None:
    key = bds("key", "create", "--company", "acme", "--company", "beta", "--company", "acme")[1].strip()
    stored = operator.rows("select companies from bds.api_keys where hash = %s", (hashlib.sha256(key.encode()).digest(),))
    assert stored == [(["acme", "beta"],)]
    assert "acme,beta" in bds("key", "list")[1]
