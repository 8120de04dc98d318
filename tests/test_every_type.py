"""Each type of column through every reader and every writer: one entity has a column of each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote, urlencode

import psycopg
import pytest

from app.database import connections
from app.formats import READABLE
from app.query.check.print_odata import Unprintable, filter_text
from app.query.check.where import WhereChecker
from app.query.parse.where import parse_filter
from tests.auth.client import ask, make_user
from tests.export.exported import UNREAD, send
from tests.feed.conftest import Feed
from tests.service.serving import Reply, Service, running, wait_until
from tests.web.visitor import Visitor, visitor
from tests.webhooks.conftest import DAY, Queue

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Sample:
    """A type with two values, the first below the second where it has an order.

    ddl: the column; stored: the values in SQL; odata, plain: in OData's and in other JSON; literal: the first in $filter; wrong: a text
    that is no value; schema: of OpenAPI.
    """

    ddl: str
    stored: tuple[str, str]
    odata: tuple[Any, Any]
    literal: str
    wrong: Any
    edm: str
    plain: tuple[Any, Any] = ()  # type: ignore[assignment]
    logged: tuple[Any, Any] = ()  # type: ignore[assignment]
    is_ordered: bool = True
    schema: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "plain", self.plain or self.odata)
        object.__setattr__(self, "logged", self.logged or self.plain)


SAMPLES = {
    "words": Sample("text", ("a b", "z"), ("a b", "z"), "'a b'", "\0", "Edm.String"),
    "short": Sample("varchar(4)", ("ab", "abcd"), ("ab", "abcd"), "'ab'", "abcde", "Edm.String", schema={"maxLength": 4}),
    "padded": Sample(
        "char(4)", ("ab", "abc"), ("ab", "abc"), "'ab'", "abcde", "Edm.String", logged=("ab  ", "abc "), schema={"maxLength": 4}
    ),
    "mood": Sample(
        "data.mood", ("sad", "very good"), ("sad", "very good"), "'sad'", "bad", "Edm.String", schema={"enum": ["very good", "sad", None]}
    ),
    "feeling": Sample(
        "data.feeling", ("sad", "very good"), ("sad", "very good"), "'sad'", "bad", "Edm.String", schema={"enum": ["very good", "sad", None]}
    ),
    "small": Sample("smallint", ("-3", "7"), (-3, 7), "-3", 40_000, "Edm.Int16"),
    "whole": Sample("int", ("-3", "7"), (-3, 7), "-3", 1.5, "Edm.Int32"),
    "long": Sample("bigint", ("-3", "9007199254740993"), (-3, 9007199254740993), "-3", "x", "Edm.Int64"),
    "amount": Sample("numeric(9, 2)", ("1.5", "1234.56"), (1.50, 1234.56), "1.5", "1e9", "Edm.Decimal"),
    "free": Sample("numeric", ("0.1", "1e20"), (0.1, 1e20), "0.1", "NaN", "Edm.Decimal"),
    "single": Sample("real", ("0.1", "2.5"), (0.1, 2.5), "0.1", "1e300", "Edm.Double"),
    "double": Sample("double precision", ("0.1", "1e300"), (0.1, 1e300), "0.1", "NaN", "Edm.Double"),
    "flag": Sample("boolean", ("false", "true"), (False, True), "false", "maybe", "Edm.Boolean"),
    "day": Sample("date", ("2026-01-02", "2026-12-31"), ("2026-01-02", "2026-12-31"), "2026-01-02", "tomorrow", "Edm.Date"),
    "clock": Sample(
        "time", ("08:15:30", "24:00"), ("08:15:30", "23:59:59.999999"), "08:15:30", "25:00", "Edm.TimeOfDay", plain=("08:15:30", "24:00:00")
    ),
    "at": Sample(
        "timestamptz", ("2026-01-02 03:04:05.000006+00", "2027-01-01 00:00+00"),
        ("2026-01-02T03:04:05.000006Z", "2027-01-01T00:00:00.000000Z"), "2026-01-02T03:04:05.000006Z", "now", "Edm.DateTimeOffset",
        logged=("2026-01-02T03:04:05.000006+00:00", "2027-01-01T00:00:00+00:00"),
    ),
    "span": Sample(
        "interval", ("1 day -1 hour", "30:00"), ("PT23H", "P1DT6H"), "duration'PT23H'", "1 day", "Edm.Duration",
        plain=("P1DT-1H", "PT30H"), logged=("1 day -01:00:00", "30:00:00"),
    ),
    "key": Sample(
        "uuid", ("0" * 8 + "-0000-0000-0000-" + "0" * 12, "f" * 8 + "-0000-0000-0000-" + "0" * 12),
        ("0" * 8 + "-0000-0000-0000-" + "0" * 12, "f" * 8 + "-0000-0000-0000-" + "0" * 12),
        "0" * 8 + "-0000-0000-0000-" + "0" * 12, "0", "Edm.Guid",
    ),
    "octets": Sample(
        "bytea", ("", r"\x00fbff"), ("", "APv_"), "binary''", "?", "Edm.Binary", plain=("", "APv/"), logged=(r"\x", r"\x00fbff"),
    ),
    "document": Sample(
        "jsonb", ('"text"', '{"a": [1, null]}'), ('"text"', '{"a": [1, null]}'), "'\"text\"'", "null", "Edm.String",
        logged=("text", {"a": [1, None]}), is_ordered=False,
    ),
    "level": Sample("data.level", ("1", "3"), (1, 3), "1", 9, "Edm.Int32"),
}  # fmt: skip


def in_where(value: Any) -> str:
    """A literal of the filter language of /c."""
    return json.dumps(value) if isinstance(value, (bool, int, float)) else "'" + value.replace("'", "''") + "'"


def in_lookup(value: Any) -> str:
    """A value after the kind of a lookup."""
    return json.dumps(value) if isinstance(value, bool) else str(value)


each_type = pytest.mark.parametrize("name", SAMPLES)


@dataclass(frozen=True)
class World:
    service: Service
    feed: Feed
    anna: Visitor
    queue: Queue

    def good(self, path: str) -> Any:
        reply = self.service.ask(path)
        assert reply.status == 200, reply.body
        return reply.json

    def found(self, filter: str, select: str = "code") -> list[Any]:
        rows = self.good(f"/api/odata/demo/samples?$filter={quote(filter)}&$select={select}&$orderby=code")["value"]
        return [row[select] for row in rows]

    def where(self, filter: str) -> list[Any]:
        return [row["code"] for row in self.good(f"/c/demo/samples?filter={quote(filter)}&sort=code")["data"]]

    def send(self, *records: dict[str, Any], **directives: Any) -> Any:
        reply = self.post("/api/demo/import", {**directives, "samples": list(records)})
        return reply.json

    def post(self, path: str, body: Any = None) -> Reply:
        return ask(self.service, path, "POST", {"Authorization": self.service.basic, "Content-Type": "application/json"}, body)

    def stored(self, name: str, code: str) -> Any:
        [(value,)] = self.feed.ask(f"select {name}::text from data.samples where code = %s", code)
        return value


def create_samples(connection: psycopg.Connection[Any]) -> None:
    """Register a table with a column of each type."""
    connection.execute(
        "create type data.mood as enum ('very good', 'sad'); create domain data.opinion as data.mood;"
        " create domain data.feeling as data.opinion check (value::text <> 'glad'); create domain data.natural as int check (value >= 0);"
        " create domain data.level as data.natural check (value < 9)"
    )
    columns = ", ".join(f"{name} {sample.ddl}" for name, sample in SAMPLES.items())
    statement = (
        'create table data.samples (company_id text collate "C" not null, id bigint not null generated by default as identity,'
        f' code text collate "C" not null, {columns}, updated_at timestamptz not null,'
        " primary key (company_id, id), unique (company_id, code))"
    )
    connection.execute(statement.encode())
    connection.execute("select bds.register('data.samples')")


@pytest.fixture(scope="module")
def world(module_database_url: str) -> Iterator[World]:
    with running(module_database_url) as service:
        operator = service.operator
        create_samples(operator.connection)
        for number in (0, 1):
            operator.write("demo", f"insert into data.samples (company_id, code) values ('demo', 'R{number}')")
        operator.write("demo", "insert into data.samples (company_id, code) values ('demo', 'empty')")
        for name, sample in SAMPLES.items():
            for number, value in enumerate(sample.stored):
                operator.write(
                    "demo", f"update data.samples set {name} = %s::text::{sample.ddl} where code = 'R{number}'", (value,)
                )
        make_user(service, "anna@example.com", "demo")
        with connections.connect(module_database_url) as connection:
            catalog = connections.read_catalog(connection)
        with psycopg.connect(module_database_url, autocommit=True) as worker:
            worker.execute("set role bds_worker")
            feed = Feed(module_database_url, catalog, "demo", operator)
            yield World(service, feed, visitor(service), Queue(module_database_url, operator, worker, "demo"))


@each_type
def test_odata_shows_filters_orders_and_groups_it(world: World, name: str) -> None:
    sample = SAMPLES[name]
    assert world.found("true", name) == [*sample.odata, None]
    assert world.found(f"{name} eq {sample.literal}") == ["R0"]
    assert world.found(f"{name} ne {sample.literal}") == ["R1", "empty"]
    assert world.found(f"{name} in ({sample.literal})") == ["R0"]
    assert world.found(f"{name} eq null") == ["empty"]
    if sample.is_ordered and name != "flag":
        assert world.found(f"{name} gt {sample.literal}") == ["R1"]
    rows = world.good(f"/api/odata/demo/samples?$orderby={name} desc,code&$select=code".replace(" ", "%20"))["value"]
    assert [row["code"] for row in rows] == ["R1", "R0", "empty"]
    grouped = world.good(f"/api/odata/demo/samples?$apply=groupby(({name}),aggregate($count%20as%20n))")["value"]
    assert len(grouped) == 3 and all({name: value, "n": 1} in grouped for value in (*sample.odata, None))
    value = world.good(f"/api/odata/demo/samples?$apply=aggregate({name}%20with%20countdistinct%20as%20n)")["value"]
    assert value[0]["n"] == 2
    assert world.good(f"/api/odata/demo/samples(code='R0')/{name}")["value"] == sample.odata[0]
    full = world.service.odata("/samples?$filter=code%20eq%20'R0'", Accept="application/json;odata.metadata=full").json["value"][0]
    assert full.get(f"{name}@odata.type", "#String") in (f"#{sample.edm.removeprefix('Edm.')}", "#String")


LONG = {
    "2000000000 days": "P2000000000D",
    "-2147483648 days": "P-2147483648D",
    "2562047788 hours 54.775807 s": "PT2562047788H54.775807S",
    "PT-2562047788H-54.775808S": "PT-2562047788H-54.775808S",
    "178956970 years 7 months": "P178956970Y7M",
}


def test_the_longest_durations_are_imported_as_they_are_exported(world: World) -> None:
    for number, text in enumerate(LONG):
        world.service.operator.write("demo", "insert into data.samples (code, span) values (%s, %s)", (f"L{number}", text))
    exported = world.service.ask("/api/demo/samples?export=true&format=jsonl&$select=code,span&$filter=startswith(code,'L')")
    records = [json.loads(line) for line in exported.body.splitlines()]
    assert [record["span"] for record in records] == list(LONG.values())
    report = world.send(*records)
    assert (report["state"], report["entities"]["samples"]["unchanged"]) == ("completed", len(LONG)), report["errors"]
    signed = [("-P2147483648D", "P-2147483648D"), ("-P-5DT+3H2.5S", "P5DT-3H-2.5S"), ("-PT2562047788H", "PT-2562047788H")]
    assert world.send(*({"code": f"L{n}", "span": text} for n, (text, _) in enumerate(signed)))["state"] == "completed"
    assert [world.where(f"code = 'L{n}' and span = '{text}'") for n, (_, text) in enumerate(signed)] == [["L0"], ["L1"], ["L2"]]
    for text in ("-P-2147483648D", "P2147483648D", "PT9999999999H", "-P-178956970Y-8M", "-PT-2562047788H-54.775808S"):
        [error, _] = world.send({"code": "L0", "span": text})["errors"]
        assert (error["code"], error["path"]) == ("invalid_value", "samples[0].span"), text
    world.send(*({"@operation": "delete", "code": f"L{number}"} for number in range(len(LONG))))


def test_odata_compares_groups_and_orders_what_it_shows(world: World) -> None:
    more = [{"code": f"S{n}", "span": span, "clock": "23:59:59.999999"} for n, span in enumerate(("P1M", "P2M", "P1D", "PT24H"))]
    assert world.send(*more)["state"] == "completed"
    assert world.found("span eq null") == ["S0", "S1", "empty"]
    assert world.found("span ne null and span lt duration'P60D' and startswith(code,'S')") == ["S2", "S3"]
    assert world.found("span in (duration'P30D',null)") == ["S0", "S1", "empty"]
    assert world.found("clock ge 23:59:59.999999") == ["R1", "S0", "S1", "S2", "S3"]
    ordered = world.good("/api/odata/demo/samples?$orderby=span%20desc,code&$select=code")["value"]
    assert [row["code"] for row in ordered] == ["R1", "S2", "S3", "R0", "S0", "S1", "empty"]
    for name, shown in {
        "span": {"P1DT6H": 1, "P1D": 2, "PT23H": 1, None: 3},
        "clock": {"08:15:30": 1, "23:59:59.999999": 5, None: 1},
    }.items():
        groups = world.good(f"/api/odata/demo/samples?$apply=groupby(({name}),aggregate($count%20as%20n))")["value"]
        assert {each[name]: each["n"] for each in groups} == shown and len(groups) == len(shown)
    value = world.good(
        "/api/odata/demo/samples?$apply=aggregate(clock%20with%20countdistinct%20as%20n,span%20with%20count%20as%20m)"
    )
    assert value["value"] == [{"n": 2, "m": 4}]
    assert world.where("span = 'P1M'") == ["S0"] and world.where("clock = '24:00:00'") == ["R1"]
    world.send(*({"@operation": "delete", "code": each["code"]} for each in more))


@each_type
def test_c_shows_and_filters_it(world: World, name: str) -> None:
    sample = SAMPLES[name]
    rows = world.good("/c/demo/samples?sort=code")["data"]
    assert [row[name] for row in rows] == [*sample.plain, None]
    condition = f"{name} = {in_where(sample.plain[0])}"
    assert world.where(condition) == ["R0"]
    checker = WhereChecker(world.feed.catalog, world.feed.catalog["samples"])
    checked = checker.condition(cast(Any, parse_filter(condition)))
    if name == "span":  # a month is thirty days in SQL, and null in OData
        with pytest.raises(Unprintable):
            filter_text(checked)
    else:
        assert world.found(filter_text(checked)) == ["R0"]
    assert world.where(f"{name} is null") == ["empty"]


@each_type
def test_the_log_has_it_and_the_past_shows_it(world: World, name: str) -> None:
    sample = SAMPLES[name]
    [(row,)] = world.feed.ask("select id from data.samples where code = 'R0'")
    changes = [each for each in world.good(f"/c/demo/samples/{row}/history?limit=100")["data"] if name in (each["new"] or {})]
    first = changes[-2]  # before it the row was created
    assert (first["old"][name], first["new"][name]) == (None, sample.plain[0])
    [(value,)] = world.feed.ask("select bds.row_at('demo', 'samples', %s, %s) -> %s", row, first["version"], name)
    assert value == sample.logged[0]
    before = int(first["version"]) - 1
    for version, expected in ((before, None), (first["version"], sample.plain[0])):
        found = world.good(f"/c/demo/samples?sort=code&version={version}")["data"]
        assert [each[name] for each in found if each["code"] == "R0"] == [expected]
    found = world.good(f"/api/odata/demo@{before}/samples?$filter=code%20eq%20'R0'&$select={name}")["value"]
    assert found == [{name: None}]
    assert world.feed.ask("select * from bds.compare_log('demo', 'samples')") == []


def test_a_delta_link_has_all_of_them_as_a_read_had(world: World, module_database_url: str) -> None:
    """Also of a row that changed after the end of the changes, which is rebuilt from the log."""
    columns, operator, path = ", ".join(SAMPLES), world.service.operator, "/samples?$filter=startswith(code,'D')"
    with running(module_database_url, company=None, odata_extended=True) as other:
        extended = Service(other.host, other.port, world.service.key, operator, other.stop)

        def read(link: str, prefer: str) -> Any:
            headers = {"Accept": "application/json;odata.metadata=full;IEEE754Compatible=true", "Prefer": prefer}
            reply = extended.ask("/api/odata/demo" + link.rpartition("/odata/demo")[2], **headers)
            assert reply.status == 200, reply.body
            return reply.json

        link = read(path, "odata.track-changes")["@odata.deltaLink"]
        for code in ("D0", "D1"):
            operator.write(
                "demo",
                f"insert into data.samples (company_id, code, {columns})"
                f" select company_id, '{code}', {columns} from data.samples where code = 'R{code[1]}'",
            )
        whole = read(path, "")["value"]
        first = read(link, "maxpagesize=1")
        operator.write("demo", f"update data.samples set ({columns}) = row({', '.join(['null'] * len(SAMPLES))}) where code = 'D1'")
        second = read(first["@odata.nextLink"], "")
        assert first["value"] + second["value"] == whole and len(whole) == 2
        operator.write("demo", "delete from data.samples where code in ('D0', 'D1')")
        assert len(read(second["@odata.deltaLink"], "")["value"]) == 2


@each_type
def test_an_import_sets_it_finds_by_it_and_is_undone(world: World, name: str) -> None:
    sample = SAMPLES[name]
    code = f"T-{name}"
    assert world.send({"code": code, name: sample.plain[0]})["state"] == "completed"
    stored = world.stored(name, code)
    assert stored == world.stored(name, "R0")
    again = world.send({"code": code, name: sample.plain[0]})["entities"]["samples"]
    assert again == {"created": 0, "updated": 0, "deleted": 0, "unchanged": 1, "failed": 0}
    changed = world.send({"code": code, name: sample.plain[1]})
    assert changed["entities"]["samples"]["updated"] == 1 and world.stored(name, code) == world.stored(name, "R1")
    undone = world.post(f"/api/demo/imports/{changed['importId']}/revert").json
    assert (undone["state"], world.stored(name, code)) == ("completed", stored)
    cleared = world.send({"code": code, name: None})
    assert world.stored(name, code) is None
    undone = world.post(f"/api/demo/imports/{cleared['importId']}/revert").json
    assert (undone["state"], world.stored(name, code)) == ("completed", stored)
    wrong = world.send({"code": code, name: sample.wrong})
    assert wrong["state"] == "failed", wrong
    assert [(each["path"], each["code"]) for each in wrong["errors"]][:1] == [(f"samples[0].{name}", "invalid_value")], wrong
    if name in ("mood", "feeling"):
        assert wrong["errors"][0]["message"] == "expected one of very good, sad, got 'bad'"
    condition = f"code = '{code}' and {name} = {in_where(sample.plain[0])}"
    mass = world.send({"@operation": "update", "@where": condition, name: sample.plain[1]})
    assert mass["entities"]["samples"]["updated"] == 1 and world.stored(name, code) == world.stored(name, "R1"), mass
    deleted = world.send({"@operation": "delete", "code": code})
    undone = world.post(f"/api/demo/imports/{deleted['importId']}/revert").json
    assert (undone["state"], world.stored(name, code)) == ("completed", world.stored(name, "R1"))
    world.send({"@operation": "delete", "code": code})


@pytest.mark.parametrize("format", ["json", *(each.name for each in READABLE)])
def test_every_format_that_is_read_brings_all_of_them_back(world: World, format: str) -> None:
    reply = world.service.ask(f"/api/demo/samples?export=true&format={format}")
    assert reply.status == 200, reply.body
    report = world.feed.send(reply.body) if format == "json" else send(world.feed, "samples", reply.body)
    assert (report["state"], report["entities"]["samples"]["unchanged"], report["errors"]) == ("completed", 3, [])


@pytest.mark.parametrize("format", UNREAD)
def test_the_other_formats_have_it(world: World, format: str) -> None:
    reply = world.service.ask(f"/api/demo/samples?export=true&format={format}")
    assert reply.status == 200 and reply.body


@each_type
def test_a_hook_filters_by_it(world: World, name: str) -> None:
    sample = SAMPLES[name]
    filter = f"{name} = {in_where(sample.plain[0])}"
    wanted = {"entity": "samples", "url": "https://example.com/", "filter": filter, "allowInChangeSet": True}
    hook = world.post("/c/demo/hooks", wanted).json["id"]
    world.queue.compile(hook)
    for number in (0, 1):
        world.send({"code": f"H-{name}-{number}", name: sample.plain[number]})
    world.send({"code": f"H-{name}-0", "words": "a b"}, {"@operation": "delete", "code": f"H-{name}-1"})
    world.send({"@operation": "delete", "code": f"H-{name}-0"})
    assert world.queue.rows(
        "select routed from bds_service.route_changes('demo', make_interval(secs => %s), 20000) r (routed, behind)", (DAY,)
    )
    matched = world.queue.rows("select operation::text from bds.hook_queue where hook_id = %s order by change_id", (hook,))
    changes = ["create", "delete"] if name == "words" else ["create", "update", "delete"]
    assert [operation for (operation,) in matched] == changes
    assert ask(world.service, f"/c/demo/hooks/{hook}", "DELETE", {"Authorization": world.service.basic}).status == 204


def test_pages_show_all_of_them(world: World) -> None:
    [(row,)] = world.feed.ask("select id from data.samples where code = 'R1'")
    for path in ("/data/samples", f"/data/samples/{row}", f"/changes/samples/{row}", "/changes", "/export?entity=samples"):
        page = world.anna.get(path)
        assert page.status == 200, page.reply.body
    text = world.anna.get(f"/data/samples/{row}").reply.body.decode()
    for name in ("mood", "span", "octets", "clock"):
        assert str(SAMPLES[name].plain[1]) in text.replace("&#43;", "+"), name


def test_pages_show_and_add_numbers_of_any_length(world: World) -> None:
    long, write = "1" + "0" * 5_000, world.service.operator.write
    try:
        for code, words, free in (("L1", "a", long), ("L2", "b", f"1{'0' * 40}.25"), ("L3", "c", "0.0000001")):
            write("demo", f"insert into data.samples (code, words, free) values ('{code}', '{words}', {free})")
        [(id,)] = world.feed.ask("select id from data.samples where code = 'L1'")
        for path in ("/data/samples?columns=free", f"/data/samples/{id}", f"/changes/samples/{id}"):
            page = world.anna.get(path)
            assert page.status == 200 and long in page.text.replace(",", ""), path
        groups = world.anna.get("/data/samples?" + urlencode({"filter": "code like 'L%'", "group": "words", "sum": "free"}))
        assert groups.one("//tfoot/tr/td[3]").strip("\u2007").replace(",", "") == f"1{'0' * 40}.2500001"
    finally:
        write("demo", "delete from data.samples where code like 'L%%'")


@each_type
@pytest.mark.parametrize("condition", ["code <> 'none'", "code ne 'none'"])
def test_a_page_of_rows_narrows_by_it_where_the_language_of_the_condition_has_such_a_test(
    world: World, name: str, condition: str
) -> None:
    shown = world.anna.get("/data/samples?" + urlencode({"filter": condition, "columns": ["code", name]}, doseq=True))
    assert shown.status == 200, shown.reply.body
    links = {code: shown.all(f"//tr[th='{code}']//a[@class='only']/@href") for code in ("R0", "R1", "empty")}
    missing = {"span": ["R0", "R1", "empty"], "clock": ["R1"]}.get(name, []) if " ne " in condition else []
    assert [code for code in links if not links[code]] == missing, "OData shows these values as other ones"
    for code, [link] in ((code, found) for code, found in links.items() if found):
        assert world.anna.get(link).all("//tbody/tr/th//text()") == [code]


@each_type
def test_metadata_and_openapi_describe_it(world: World, name: str) -> None:
    sample = SAMPLES[name]
    types = world.service.odata("/$metadata", Accept="application/json").json["bds"]["sample"]
    assert types[name].get("$Type", "Edm.String") == sample.edm
    if name in ("mood", "feeling"):
        assert types[name]["@Validation.AllowedValues"] == [{"Value": "very good"}, {"Value": "sad"}]
    openapi = world.good("/openapi.json")["components"]["schemas"]["Sample"]["properties"][name]
    assert openapi["type"][1] == "null" and all(openapi[key] == value for key, value in sample.schema.items())


@pytest.mark.parametrize("type", ["int[]", "int4range", "data.pair", "timestamp", "money", "data.list", "point", "xml", "inet"])
def test_any_other_type_is_refused_by_name_and_disturbs_nobody(world: World, type: str) -> None:
    connection = world.service.operator.connection
    with (
        pytest.raises(psycopg.Error, match=r"column data\.odd\.strange has the unsupported type") as caught,
        connection.transaction(),
    ):
        connection.execute("create type data.pair as (a int, b int); create domain data.list as int[]")
        connection.execute(
            'create table data.odd (company_id text collate "C" not null, id bigint not null generated by default as identity,'
            f" strange {type}, updated_at timestamptz not null, primary key (company_id, id))"
        )
        connection.execute("select bds.register('data.odd')")
    assert caught.value.sqlstate == "BD005"
    assert "jsonb" in (caught.value.diag.message_hint or "") and world.service.odata("/$metadata").status == 200


def test_a_cast_to_double_gives_what_a_double_gives(world: World) -> None:
    samples = [
        {"code": "D0", "long": 9007199254740993, "double": 9007199254740992, "amount": 0.1, "free": "1e-400", "words": "-0"},
        {"code": "D1", "long": 9007199254740991, "double": 0.30000000000000004, "amount": 0, "free": "1e400", "words": "1e-400"},
    ]
    assert world.send(*samples)["state"] == "completed"
    of = "startswith(code,'D') and "
    for filter, codes in (
        ("cast(long,Edm.Double) eq 9007199254740992", ["D0"]),
        ("cast(long,Edm.Double) eq double and long eq double", ["D0"]),
        ("double add 1 eq 9007199254740993", ["D0"]),
        ("cast(double,Edm.Double) eq 0.3 or cast(double,Edm.Decimal) eq 0.3", []),
        ("cast(double,Edm.Double) eq 0.30000000000000004", ["D1"]),
        ("cast(amount,Edm.Double) eq -0 or cast(amount,Edm.Double) eq -0.0", ["D1"]),
        ("cast(free,Edm.Double) eq -0", ["D0"]),
        ("cast(free,Edm.Double) eq null", ["D1"]),
        ("cast(words,Edm.Double) eq -0", ["D0"]),
        ("cast(words,Edm.Double) eq null", ["D1"]),
    ):
        assert world.found(of + filter) == codes, filter
    apply = "aggregate(cast(long,Edm.Double) with max as m)"
    options = {"Accept": "application/json;odata.metadata=full;IEEE754Compatible=true"}
    path = f"/samples?$apply={quote(apply)}&$filter=code%20eq%20'D0'"
    [row] = world.service.odata(path, **options).json["value"]
    assert (row["m"], row.get("m@odata.type", "#Double")) == (9007199254740992, "#Double")
    world.send(*({"@operation": "delete", "code": each["code"]} for each in samples))


def test_a_cast_to_an_integer_is_null_beyond_its_range(world: World) -> None:
    ends = {"E0": 2.0**63, "E1": -(2.0**63), "E2": 2.0**31, "E3": 2147483647.9, "E4": -32768.9, "E5": 32768}
    assert world.send(*({"code": code, "double": end} for code, end in ends.items()))["state"] == "completed"
    for type, codes in (("Int64", ["E0"]), ("Int32", ["E0", "E1", "E2"]), ("Int16", ["E0", "E1", "E2", "E3", "E5"])):
        assert world.found(f"cast(double,Edm.{type}) eq null and startswith(code,'E')", "code")[: len(codes)] == codes, type
    assert len(world.found("cast(cast(9223372036854775807,Edm.Double),Edm.Int64) eq null")) >= len(ends)
    assert world.found("cast(double,Edm.Int64) eq -9223372036854775808") == ["E1"]
    world.send(*({"@operation": "delete", "code": code} for code in ends))


def test_a_cast_to_text_is_what_odata_shows(world: World) -> None:
    spans = ("P1DT-1H", "P-1D", "PT30H", "P1M", "-PT90.5S", "P0D")
    assert world.send(*({"code": f"T{n}", "span": span} for n, span in enumerate(spans)))["state"] == "completed"
    shown = world.found("startswith(code,'T')", "span")
    assert shown == ["PT23H", "-P1D", "P1DT6H", None, "-PT1M30.5S", "PT0S"]
    for number, text in enumerate(shown):
        literal = f"'{text}'" if text else "null"
        assert world.found(f"cast(span,Edm.String) eq {literal} and startswith(code,'T')") == [f"T{number}"]
    assert world.found("startswith(cast(span,Edm.String),'-')") == ["T1", "T4"]
    world.send(*({"@operation": "delete", "code": f"T{number}"} for number in range(len(spans))))


def test_the_end_of_a_day_matches_the_last_time_as_which_it_is_shown(world: World) -> None:
    for filter in ("clock eq 24:00", "clock ge 24:00:00", "clock in (24:00)", "clock eq cast('24:00',Edm.TimeOfDay)"):
        assert world.found(filter) == ["R1"], filter
    apply = "groupby((clock),aggregate($count as n))"
    path = f"/api/odata/demo/samples?$apply={quote(apply)}&$filter=clock%20eq%2024:00"
    assert world.good(path)["value"] == [{"clock": "23:59:59.999999", "n": 1}]


def test_a_real_is_shown_alike_whatever_the_session_has_set(world: World) -> None:
    connection = world.service.operator.connection
    with connection.transaction(force_rollback=True):
        connection.execute("select bds.set_context('demo'); update data.samples set single = 0.12345679 where code = 'R1'")
        for role, digits in (("bds_reader", 1), ("bds_reader", -15), ("bds_writer", 0)):
            connection.execute(f"set local role {role}; set local extra_float_digits = {digits}".encode())
            assert connection.execute("select single = 0.12345679::float8 from api.samples where code = 'R1'").fetchone() == (
                True,
            ), digits


def test_a_view_over_it_is_not_in_the_way_when_the_table_is_registered_again(world: World) -> None:
    connection = world.service.operator.connection
    connection.execute("create view data.mine as select * from api.samples")
    connection.execute("select bds.register('data.samples')")
    connection.execute("drop view data.mine")
    assert connection.execute("select kind, object, detail from bds.problems").fetchall() == []


def test_values_that_are_equal_and_read_differently_are_logged_with_what_changes_beside_them(world: World) -> None:
    world.send({"code": "E", "span": "P1M", "free": "1.0", "document": "1.0", "words": "a"})
    world.send({"code": "E", "span": "P30D", "free": "1.00", "document": "1.00", "words": "b"})
    [(id, version)] = world.feed.ask(
        "select row_id, max(id) from bds.changes where entity = 'samples' and row_id = (select id from data.samples where code = 'E') group by 1"
    )
    old = world.feed.ask(
        "select old -> 'span', old -> 'free', old -> 'document' from bds.row_history('demo', 'samples', %s) where version = %s",
        id,
        version,
    )
    assert old == [("1 mon", 1.0, 1.0)]
    assert world.good(f"/c/demo/samples/{id}?version={version - 1}")["span"] == "P1M"
    world.send({"@operation": "delete", "code": "E"})


def test_null_clears_a_unique_value_of_any_type_and_names_of_keywords_are_fields(world: World) -> None:
    connection = world.service.operator.connection
    connection.execute(
        'create table data.numbers (company_id text collate "C" not null, id bigint not null generated by default as identity,'
        ' code text collate "C" not null, number int, span interval, share real, required int not null default 7, "by" int, begin text,'
        " updated_at timestamptz not null, primary key (company_id, id), unique (company_id, code), unique (company_id, number),"
        " unique (company_id, span), unique (company_id, share), unique (company_id, required))"
    )
    connection.execute("select bds.register('data.numbers')")
    wait_until(lambda: world.service.ask("/c/demo/numbers").status == 200)
    empty = {"number": None, "span": None, "share": None, "required": None, "by": 1}
    report = world.post(
        "/api/demo/import", {"numbers": [{"code": "a", "number": 1, "span": "PT1H", "share": 0.5, "required": 3}]}
    ).json
    assert report["state"] == "completed", report
    report = world.post("/api/demo/import", {"numbers": [{"code": "a", **empty}, {"code": "b", **empty, "required": 8}]}).json
    assert report["entities"]["numbers"] == {"created": 1, "updated": 1, "deleted": 0, "unchanged": 0, "failed": 0}, report
    assert world.feed.ask("select number, span, share, required from data.numbers order by code") == [
        (None, None, None, 7),
        (None, None, None, 8),
    ]
    mass = {"@operation": "update", "@where": "by = 1", "by": 2, "begin": "x"}
    report = world.post("/api/demo/import", {"numbers": [mass]}).json
    assert report["entities"]["numbers"]["updated"] == 2, report


def test_domains_that_are_not_null_are_required_have_defaults_and_can_be_altered(world: World) -> None:
    connection = world.service.operator.connection
    connection.execute(
        "create domain data.must as text not null; create domain data.given as data.must default 'd';"
        " create domain data.brief as varchar(9) check (length(value) < 4);"
        ' create table data.strict (company_id text collate "C" not null, id bigint not null generated by default as identity,'
        " code data.must, given data.given, brief data.brief, updated_at timestamptz not null, primary key (company_id, id),"
        " unique (company_id, code)); select bds.register('data.strict', singular => 'strictOne')"
    )
    wait_until(lambda: world.service.ask("/c/demo/strict").status == 200)
    types = world.service.odata("/$metadata", Accept="application/json").json["bds"]["strictOne"]
    assert [types[name].get("$Nullable", False) for name in ("code", "given", "brief")] == [False, False, True]
    for records, path, code in (
        ([{"brief": "a"}], "strict[0].code", "required"),
        ([{"code": None}], "strict[0].code", "required"),
        ([{"code": "x", "brief": "abcd"}], "strict[0].brief", "invalid_value"),
    ):
        report = world.post("/api/demo/import", {"strict": records}).json
        assert [(each["path"], each["code"]) for each in report["errors"]][:1] == [(path, code)], report
    assert "character varying(9) and the rules of data.brief" in report["errors"][0]["message"]
    for records in (
        [{"code": "x", "brief": "abc"}],
        [{"code": "x", "given": None}],
        [{"@operation": "update", "@where": "code = 'x'", "brief": "b"}],
    ):
        report = world.post("/api/demo/import", {"strict": records}).json
        assert report["state"] == "completed", report
    assert world.feed.ask("select code::text, given::text, brief::text from data.strict") == [("x", "d", "b")]
    report = world.post(f"/api/demo/imports/{report['importId']}/revert").json
    assert report["state"] == "completed", report
    # sessions of imports keep their temporary tables
    connection.execute("alter domain data.brief add check (value <> 'no'); alter domain data.must drop not null")


ENUMS = """
    create type data.shade as enum ('red', 'green', 'blue', 'grey');
    create domain data.tint as data.shade check (value::text <> 'grey');
    create table data.paints (
        company_id text collate "C" not null, id bigint not null generated by default as identity, shade data.shade, tint data.tint,
        base data.shade not null default 'grey', wash data.tint default 'blue', updated_at timestamptz not null,
        primary key (company_id, id), unique (company_id, shade), unique (company_id, tint), check (base <> wash::data.shade)
    );
    create table data.coats (
        company_id text collate "C" not null, id bigint not null generated by default as identity, paint_id bigint not null,
        layer int, shade data.shade, tint data.tint not null default 'red', updated_at timestamptz not null,
        primary key (company_id, id), foreign key (company_id, paint_id) references data.paints (company_id, id)
    );
    select bds.register('data.paints');
    select bds.register('data.coats', parent => 'paint', collection => 'coats')
"""


def test_enums_and_domains_over_them_are_keys_defaults_and_lines_and_their_types_can_be_dropped(world: World) -> None:
    connection = world.service.operator.connection
    connection.execute(ENUMS.encode())
    wait_until(lambda: world.service.ask("/c/demo/paints").status == 200)

    def send(*paints: Any, **more: Any) -> Any:
        return world.post("/api/demo/import", {"paints": list(paints), **more}).json

    lines = [{"layer": 1, "shade": "red"}, {"layer": 2, "shade": "red", "tint": "blue"}, {"layer": 3, "shade": "green"}]
    red, green = {"shade": "red", "tint": "green", "coats": lines}, {"shade": "green", "tint": "red", "base": "red"}
    assert send(red, green)["state"] == "completed"
    rows = "select base::text, wash::text from data.paints where shade = 'red'"
    assert world.feed.ask(rows) == [("grey", "blue")]
    assert send(red, green)["entities"]["paints"]["unchanged"] == 2
    lines[1]["shade"], lines[2]["tint"] = "grey", "green"
    counts = send(red)["entities"]["coats"]
    assert (counts["created"], counts["updated"], counts["unchanged"], counts["deleted"]) == (0, 2, 1, 0)
    counts = send(coats=[{"paint": "tint:red", "layer": 9}, {"paint": "shade:red", "layer": 9}])["entities"]["coats"]
    assert counts["created"] == 2
    assert send({"id": "tint:green", "base": "red", "wash": None})["state"] == "completed"
    assert world.feed.ask(rows) == [("red", None)]
    for wrong, code in (
        ({"base": "blue"}, "invalid_value"),
        ({"tint": "grey"}, "invalid_value"),
        ({"base": "black"}, "invalid_value"),
    ):
        assert [each["code"] for each in send({"shade": "green", **wrong})["errors"]][:1] == [code], wrong
    [(before,)] = world.feed.ask("select max(id) from bds.changes")
    mass = {"@operation": "update", "@where": "shade = 'red'", "tint": "blue", "shade": "grey"}
    assert send(mass)["entities"]["paints"]["updated"] == 1
    for now, then in (("green", {"shade": "red", "tint": "green"}), ("grey", {"shade": "green", "tint": "red"})):
        assert send({"id": f"shade:{now}", **then})["entities"]["paints"]["updated"] == 1
    undone = world.post("/api/demo/revert", {"to": before, "entities": ["paints"]}).json  # unique values wait for each other
    assert (undone["state"], undone["entities"]["paints"]["updated"]) == ("completed", 2), undone["errors"]
    keys = "select shade::text, tint::text from data.paints order by id"
    assert world.feed.ask(keys) == [("red", "green"), ("green", "red")]
    # sessions of imports keep their temporary tables
    changes = "alter shade type text using shade::text, alter tint type text using tint::text"
    connection.execute(
        f"select bds.drop_views('paints'), bds.drop_views('coats'); alter table data.paints drop constraint paints_check,"
        f" alter base drop default, alter wash drop default, {changes}, alter base type text, alter wash type text;"
        f" alter table data.coats alter tint drop default, {changes}; select bds.register('data.paints');"
        " select bds.register('data.coats', parent => 'paint', collection => 'coats'); drop type data.tint; drop type data.shade".encode()
    )
    assert send({"shade": "red", "base": "black"})["entities"]["paints"]["updated"] == 1


def test_a_unique_value_of_any_type_is_a_key_in_paths(world: World) -> None:
    connection = world.service.operator.connection
    names = [name for name in SAMPLES if name != "document"]
    connection.execute(
        'create table data.keyed (company_id text collate "C" not null, id bigint not null generated by default as identity,'
        f" {', '.join(f'{name} {SAMPLES[name].ddl}' for name in names)}, updated_at timestamptz not null, primary key (company_id, id),"
        f" {', '.join(f'unique (company_id, {name})' for name in names)})".encode()
    )
    connection.execute("select bds.register('data.keyed')")
    wait_until(lambda: world.service.ask("/c/demo/keyed").status == 200)
    values = ", ".join(f"%s::text::{SAMPLES[name].ddl}" for name in names)
    for number in (0, 1):
        given = tuple(SAMPLES[name].stored[number] for name in names)
        world.service.operator.write("demo", f"insert into data.keyed ({', '.join(names)}) values ({values})", given)
    world.service.operator.write("demo", "insert into data.keyed (clock, words) values ('23:59:59.999999', '{a}/%%b')")
    for name in names:
        reply = world.service.odata(f"/keyed({name}={quote(SAMPLES[name].literal, safe='')})")
        assert (reply.status, reply.json.get("id")) == (200, 1), (name, reply.body)
        reply = world.service.ask(f"/c/demo/keyed/{name}:{quote(in_lookup(SAMPLES[name].plain[0]), safe='')}")
        assert (reply.status, reply.json.get("id")) == (200, "1"), (name, reply.body)
    assert world.service.odata("/keyed(clock=23:59:59.999999)").json["id"] == 3
    assert world.service.odata("/keyed(clock=24:00)").json["id"] == 2
    for path in ("", "/history"):
        assert world.service.ask(f"/c/demo/keyed/words:{quote('{a}/%b', safe='')}{path}").status == 200


@pytest.mark.parametrize("type", ["text", "int", "numeric", "char(3)"])
def test_a_column_becomes_jsonb_and_its_past_is_readable(world: World, type: str) -> None:
    connection = world.service.operator.connection
    with connection.transaction(force_rollback=True):
        connection.execute(
            'create table data.becoming (company_id text collate "C" not null, id bigint not null generated by default as identity,'
            f" value {type}, updated_at timestamptz not null, primary key (company_id, id))"
        )
        connection.execute("select bds.register('data.becoming')")
        connection.execute("select bds.drop_views('becoming')")
        connection.execute(
            "alter table data.becoming drop constraint if exists value_is_finite, alter value type jsonb using to_jsonb(value)"
        )
        connection.execute("select bds.register('data.becoming')")
        assert connection.execute('select value from past."becoming_changed"').fetchall() == []
