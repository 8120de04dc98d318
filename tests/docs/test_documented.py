"""docs/reference.md has every setting, error code, command and route; nothing else is named that does not exist."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import fields

import pytest
from prometheus_client.metrics import MetricWrapperBase

from app import metrics
from app.cli import main, parser
from app.cli.command import Command
from app.cli.parser import COMMANDS
from app.config import RENAMED, Config
from app.errors import ERRORS, SQLSTATES
from app.formats import FORMATS, READABLE
from app.service.operations import OPERATIONS
from app.service.routes import ROUTES
from app.wire.cors import EXPOSED, REQUEST_HEADERS
from tests.docs.documents import ROOT, documents, lines_of, read

REFERENCE = "docs/reference.md"
SETTINGS = {each.metadata["name"] for each in fields(Config)}
FILES = (*documents(), "deploy/bds.env", "deploy/bds.service", "deploy/nginx.conf", "deploy/Dockerfile")


def rows(title: str, document: str = REFERENCE) -> list[list[str]]:
    """The cells of the tables under a heading of a document, without their heads."""
    lines = [line for under, kind, line in lines_of(document) if under == title and not kind and line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").replace("\\|", "\0").split(" | ")] for line in lines]


def test_the_table_of_settings_has_a_row_for_each() -> None:
    names = [row[0].strip("`") for row in rows("Settings")]
    assert len(names) == len(set(names)) and set(names) == SETTINGS
    assert all(len(row) == 3 and all(row) for row in rows("Settings"))


def test_the_table_of_error_codes_has_a_row_for_each() -> None:
    assert {row[0].strip("`"): int(row[1]) for row in rows("Error codes")} == {code: status for code, (status, _) in ERRORS.items()}


def test_the_list_of_formats_has_an_item_for_each() -> None:
    lines = [
        line for under, kind, line in lines_of("docs/export.md") if under == "Formats" and not kind and line.startswith("- **`")
    ]
    assert {re.findall(r"`(\w+)`", line)[0] for line in lines} == set(FORMATS)
    for line in lines:
        format = FORMATS[re.findall(r"`(\w+)`", line)[0]]
        assert all(f"(or `{alias}`)" in line for alias in format.aliases)
    text = read("docs/feed.md")
    assert all(each.read_as[0] in text for each in READABLE)


@pytest.mark.parametrize("code", SQLSTATES)
def test_an_sqlstate_is_documented(code: str) -> None:
    assert f"`{code}`" in read("docs/sql.md")


def test_what_the_database_raises_has_an_error_code() -> None:
    raised = {
        word
        for path in (ROOT / "sql").rglob("*.sql")
        for word in path.read_text().replace("'", " ").split()
        if word[:2] == "BD" and word[2:].isdigit()
    }
    assert raised <= set(SQLSTATES)
    assert set(SQLSTATES.values()) <= set(ERRORS)


RECORD_ERRORS = {
    "unknown_field", "invalid_value", "required", "lookup_not_found", "lookup_ambiguous", "already_exists", "not_found",
    "duplicate_record", "in_use", "invalid_directive", "batch_failed", "conflict",
    "unknown_entity", "cancelled", "aborted", "busy",
}  # fmt: skip


def test_the_error_codes_of_records_are_documented_and_raised() -> None:
    feed = read("docs/feed.md").partition("### Error codes of records")[2]
    shown = {code for cell in re.findall(r"^\| (`.*?) \|", feed, re.MULTILINE) for code in re.findall(r"`(\w+)`", cell)}
    assert shown == RECORD_ERRORS
    sources = [*(ROOT / "sql" / "50_feed").glob("*.sql"), *(ROOT / "app" / "feed").glob("*.py")]
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    assert {code for code in RECORD_ERRORS if not re.search(rf"['\"]{code}['\"]", text)} == set()


@pytest.mark.parametrize(("method", "path"), [(method, path) for method, path, _ in ROUTES])
def test_a_route_is_documented(method: str, path: str) -> None:
    if path.startswith("/api/odata"):
        method, path = "GET", "/api/odata/{companyId}"
    shown = re.sub(r":\(.*?\)\[.*?\]\+\}", "}", path)
    assert f"`{method} {shown}`" in "".join(row[0] for row in rows("HTTP routes"))


def test_no_route_is_documented_that_does_not_exist() -> None:
    exist = {f"{method} {re.sub(r':.*?}$', '}', path)}" for method, path, _ in ROUTES} | {"GET /api/odata/{companyId}", "GET /"}
    shown = {route for row in rows("HTTP routes") for route in re.findall(r"`([A-Z]+ \S+)`", row[0])}
    assert shown <= exist


def commands_of(parser: argparse.ArgumentParser, path: str = "") -> Iterator[str]:
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in inner:
        for name, each in action.choices.items():
            yield from commands_of(each, f"{path} {name}".strip())
    if not inner:
        yield path


@pytest.mark.parametrize("command", list(commands_of(parser.parser())))
def test_a_command_is_documented_and_helps(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert re.search(rf"`bds {command}\b", "".join(row[0] for row in rows("Commands")))
    with pytest.raises(SystemExit) as ended:
        main.main([*command.split(), "--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert "usage: bds" in printed
    assert f"bds {command}" in printed.partition("example:\n")[2], "how it is used"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_options_of_a_command_are_documented(command: Command) -> None:
    [row] = [
        row for row in rows("Commands") if re.search(rf"`bds {command.name} (?!list|show|revert)|`bds {command.name}`", row[0])
    ]
    options = {flag for each in command.arguments for flag in each.flags if flag.startswith("--")} - {"--url", "--key-file"}
    assert {option for option in options if not re.search(rf"{option}\b", " ".join(row))} == set()


@pytest.mark.parametrize("route", OPERATIONS, ids=" ".join)
def test_the_parameters_of_a_route_are_documented(route: tuple[str, str]) -> None:
    [row] = [row for row in rows("HTTP routes") if f"`{' '.join(route)}`" in row[0]]
    names = {name for name in OPERATIONS[route].query if not name.startswith("$")} - {"limit", "offset", "generation"}
    assert {name for name in names if not re.search(rf"`{name}\b", row[1])} == set()


def test_headers_of_other_origins_are_documented() -> None:
    lines = {line for under, kind, line in lines_of("docs/odata.md") if under == "Pages of other origins"}
    text = " ".join(lines)
    for name in (*EXPOSED.split(", "), *REQUEST_HEADERS):
        assert f"`{name}`" in text or (name.startswith("OData-") and "`OData-...`" in text)


def test_the_overview_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.main(["--help"])
    printed = capsys.readouterr().out
    for command in commands_of(parser.parser()):
        assert re.search(rf"^    {command.partition(' ')[0]}( |$)", printed, re.MULTILINE)
    assert "Exit codes" in printed and "BDS_DATABASE_URL" in printed


def test_the_table_of_metrics_has_a_row_for_each() -> None:
    found = [each for each in (*vars(metrics).values(), *metrics.pool_counters.values()) if isinstance(each, MetricWrapperBase)]
    measured = {f"{each._name}{'_total' * (each._type == 'counter')}": set(each._labelnames) for each in found}
    backlog = metrics.Backlog(1, 1.0, 1, 1, 1, {"untidy": 1})
    for family in metrics.DatabaseCollector(True, {"west": True}, backlog).collect():
        measured[family.name] = set(family.samples[0].labels)
    assert len(measured) == 38
    table = rows("Metrics", "docs/operate.md")
    assert len(table) == len(measured)
    assert {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[1])) for row in table} == measured
    assert all(len(row) == 3 and row[2] for row in table)


@pytest.mark.parametrize("path", FILES)
def test_a_metric_that_is_named_exists(path: str) -> None:
    named = set(re.findall(r"`(bds_[a-z_]+_(?:total|seconds|bytes|readers|deliveries|hooks|up|progress))`", read(path)))
    assert named <= {row[0].strip("`") for row in rows("Metrics", "docs/operate.md")}


@pytest.mark.parametrize("path", FILES)
def test_a_setting_that_is_named_exists(path: str) -> None:
    named = set(re.findall(r"\bBDS_[A-Z_]*[A-Z]\b", (ROOT / path).read_text(encoding="utf-8")))
    named = {name for name in named if not name.startswith("BDS_TEST_")}
    assert named <= SETTINGS | {"BDS_PORT"} | (set(RENAMED) if path == "CHANGELOG.md" else set())  # BDS_PORT is named as no setting


@pytest.mark.parametrize("document", documents())
def test_a_make_target_that_is_named_exists(document: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"(?:`|\$ )make ([a-z-]+)", read(document))) <= targets


def test_a_setting_that_cannot_be_read_is_named() -> None:
    with pytest.raises(ValueError, match=r"BDS_POOL_SIZE='many': expected a whole number"):
        Config.load({"BDS_POOL_SIZE": "many"})
