"""The past over HTTP after columns were added, renamed, dropped and given another type: as it read then, under the names of now."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from urllib.parse import quote
from uuid import uuid4
from xml.etree import ElementTree

import pytest

from tests.conftest import place_shards
from tests.feed.test_revert_tables import TABLES
from tests.service.serving import Reply, Service, running, wait_until

pytestmark = pytest.mark.slow

EDM = "{http://docs.oasis-open.org/odata/ns/edm}"
AGAIN = "select bds.register('data.shops')"
# What happens to the shops, and what fields are called after it: None for a field that is dropped.
STEPS: tuple[tuple[str, dict[str, str | None]], ...] = (
    ("insert into data.shops (id, code, city, size, note) values (1, 'A', 'Ulm', '7', 'n'), (2, 'B', 'Bonn', '9', null)", {}),
    ("insert into data.seats (shop_id, number, guest) values (1, 1, 'anna'), (1, 2, 'ben'), (2, 1, null)", {}),
    ("update data.shops set city = 'Rom' where code = 'A'", {}),
    (f"alter table data.shops rename city to town; {AGAIN}", {"city": "town"}),
    ("update data.shops set town = null, note = 'closed' where code = 'B'", {}),
    (
        "alter table data.shops add city text, add unit_id bigint,"
        f" add foreign key (company_id, unit_id) references data.units (company_id, id); {AGAIN}",
        {},
    ),
    ("insert into data.units (id, code, name) values (5, 'u', 'Unit'); update data.shops set city = 'new', unit_id = 5 where id = 1", {}),
    ("insert into data.shops (id, code, town, city) values (3, 'C', 'Wien', 'x'); update data.seats set shop_id = 3 where number = 2", {}),
    ("select bds.drop_column('shops', 'note')", {"note": None}),
    ("delete from data.shops where code = 'B'", {}),
    (
        "select bds.drop_views('shops');"
        f" alter table data.shops alter size type int using size::int; {AGAIN}",
        {},
    ),
    ("update data.shops set size = size + 1, code = code || '2'; update data.seats set guest = 'carl'", {}),
)  # fmt: skip
READS = (
    "/api/odata/demo{at}/shops?$expand=seats&$orderby=id",
    "/api/odata/demo{at}/shops?$filter={city} ne 'Rom' and seats/any(s:s/guest ne 'ben')&$count=true&$orderby={city},id&$select=id,{city}",
    "/api/odata/demo{at}/shops?$apply=groupby(({city}),aggregate($count as n))&$orderby={city}",
    "/api/odata/demo{at}/shops(code='A')",
    "/api/odata/demo{at}/shops(1)/{city}",
    "/api/odata/demo{at}/seats?$expand=shop&$filter=shop/{city} eq 'Rom'&$orderby=id",
    "/c/demo/shops?sort=id{parameter}",
    "/c/demo/shops?filter={city} = 'Rom'{parameter}",
    "/c/demo/shops/code:A{parameter}",
    "/api/demo/shops?format=csv&export=true&$orderby=id{parameter}",
    "/api/demo/shops?format=json&ids=true&export=true&$orderby=id{parameter}",
)


class Snapshot:
    """What the service showed when a state was the present.  names: of its fields, as they are called now."""

    def __init__(self, service: Service) -> None:
        self.names: dict[str, str | None] = {name: name for name in fields(service)}
        self.city = "town" if "town" in self.names else "city"  # what is called town in the end
        [(self.version, self.time)] = service.operator.rows(
            "select last_id, bds_service.api_time(clock_timestamp()) from bds.clocks where company_id = 'demo'"
        )
        self.shown = {path: read(service, path, self.city) for path in READS}

    def now(self, value: Any) -> Any:
        """The value under the names of now, without dropped fields."""
        match value:
            case list():
                return [self.now(each) for each in value]
            case dict():
                return {self.names.get(k, k): self.now(v) for k, v in value.items() if self.names.get(k, k)}
        return value


def read(service: Service, path: str, city: str, moment: str = "") -> tuple[int, Any]:
    """Status and content: the parsed answer, without its context."""
    kind = "version" if moment.isdigit() else "at"
    parameter = f"{'&' if '?' in path else '?'}{kind}={moment}" if moment else ""
    path = path.format(at=f"@{moment}" if moment else "", parameter=parameter, city=city)
    reply: Reply = service.ask(quote(path, safe="/$?=&(),:@"))
    if "format=csv" in path:
        return reply.status, list(csv.DictReader(io.StringIO(reply.body.decode("utf-8-sig"))))
    if reply.status in (204, 404):
        return reply.status, None
    content = reply.json
    return reply.status, {key: value for key, value in content.items() if key != "@odata.context"}


def comparable(value: Any) -> Any:
    """Without fields that are null or, in CSV, empty, because one that did not exist then is null now; a size, which was text, as text."""
    match value:
        case list():
            return [comparable(each) for each in value]
        case dict():
            return {k: str(v) if k == "size" else comparable(v) for k, v in value.items() if v not in (None, "")}
    return value


@pytest.fixture
def service(database_url: str) -> Iterator[Service]:
    with running(database_url) as service:
        service.operator.connection.execute(TABLES.encode())
        place_shards(database_url)
        yield service


def fields(service: Service) -> set[str]:
    """The fields of a shop in the service's model; none until it has read the registry."""
    types = ElementTree.fromstring(service.odata("/$metadata").body).iter(f"{EDM}EntityType")
    return {field.attrib["Name"] for each in types if each.get("Name") == "shop" for field in each.iter(f"{EDM}Property")}


def test_every_state_reads_as_it_did_under_the_names_of_now(service: Service) -> None:
    snapshots: list[Snapshot] = []
    tags: list[str] = []
    for statement, names in STEPS:
        service.operator.write("demo", statement)
        registered = {name for (name,) in service.operator.rows("select name from bds.fields where entity = 'shops'")}
        wait_until(lambda expected=registered: fields(service) == expected)  # type: ignore[misc]
        for snapshot in snapshots:
            snapshot.names = {then: now and names.get(now, now) for then, now in snapshot.names.items()}
        snapshots.append(Snapshot(service))
        tags.append(service.ask("/api/odata/demo@1/shops").headers["ETag"])
    assert [tag != before for before, tag in pairwise(tags)] == ["alter" in step or "drop" in step for step, _ in STEPS[1:]], (
        "the tag of a past state changes with the model alone"
    )
    assert all(200 in {snapshot.shown[path][0] for snapshot in snapshots} for path in READS)
    for snapshot in snapshots:
        for moment in (str(snapshot.version), snapshot.time):
            for path in READS:
                status, shown = snapshot.shown[path]
                found = read(service, path, "town", moment)
                assert found[0] == status, (moment, path)
                assert comparable(found[1]) == comparable(snapshot.now(shown)), (moment, path)


# A column's type, two values, its next type with the conversion, and what the values read as afterwards: as the views showed them if
# they are of the present type, else as null.
CONVERSIONS: tuple[tuple[str, tuple[str | None, str | None], str, tuple[Any, Any]], ...] = (
    ("jsonb", ('"a b"', '{"a": [1, null]}'), "text", ('"a b"', '{"a": [1, null]}')),
    ("jsonb", ("1.50", None), "varchar(9)", ("1.50", None)),
    ("char(4)", ("ab", "abcd"), "text", ("ab", "abcd")),
    ("text", ("7", "ten"), "int using 0", (7, None)),
    ("text", ("2026-01-02", "9"), "date using null", ("2026-01-02", None)),
    ("text", ("x", '{"a": 1}'), "jsonb using to_jsonb({0})", ('"x"', '"{\\"a\\": 1}"')),
    ("text", ("ab", "abcdef"), "char(4) using left({0}, 4)", ("ab", "abcdef")),
    ("numeric(9, 2)", ("1.5", "0"), "text", ("1.50", "0.00")),
    ("boolean", ("true", "false"), "text", ("true", "false")),
    ("int", ("1", "2"), "char(4)", ("1", "2")),
    ("real", ("0.1", "-2.5"), "numeric", (0.1, -2.5)),
    ("timestamptz", ("2026-01-02 03:04Z", "2027-01-01 00:00Z"), "date using {0} at time zone 'UTC'", ("2026-01-02", "2027-01-01")),
)


def test_old_values_read_the_same_at_every_door_as_the_present_type_has_them(service: Service, database_url: str) -> None:
    operator, names = service.operator, [f"c{n}" for n in range(len(CONVERSIONS))]
    columns = ", ".join(f"{name} {type}" for name, (type, *_) in zip(names, CONVERSIONS, strict=True))
    operator.connection.execute(
        f'create table data.becoming (company_id text collate "C" not null, id bigint not null generated by default as identity, {columns},'
        " updated_at timestamptz not null, primary key (company_id, id)); select bds.register('data.becoming')".encode()
    )
    place_shards(database_url)
    for n in (0, 1):
        values = ", ".join(f"%s::text::{type}" for type, *_ in CONVERSIONS)
        given = tuple(values[n] for _, values, *_ in CONVERSIONS)
        operator.write("demo", f"insert into data.becoming (id, {', '.join(names)}) values ({n + 1}, {values})", given)
    change_set = str(uuid4())
    operator.write("demo", "delete from data.becoming where id = 1", change_set=change_set)
    operator.write("demo", f"update data.becoming set {', '.join(f'{name} = null' for name in names)}")
    alterations = ", ".join(
        f"drop constraint if exists {name}_is_finite, alter {name} type {next.format(name)}"
        for name, (*_, next, _) in zip(names, CONVERSIONS, strict=True)
    )
    operator.connection.execute(
        f"select bds.drop_views('becoming'); alter table data.becoming {alterations}; select bds.register('data.becoming')".encode()
    )
    wait_until(lambda: b'Name="c3" Type="Edm.Int32"' in service.odata("/$metadata").body)
    for n in (0, 1):
        expected = {name: values[n] for name, (*_, values) in zip(names, CONVERSIONS, strict=True)}
        shown = service.ask(f"/c/demo/becoming/{n + 1}?version=2").json
        assert {name: shown[name] for name in names} == expected
        shown = service.ask(f"/api/odata/demo@2/becoming({n + 1})").json
        assert {name: shown[name] for name in names} == expected
        history = service.ask(f"/c/demo/becoming/{n + 1}/history").json["data"][-1]["new"]
        states = operator.rows(
            f"select bds.row_at('demo', 'becoming', {n + 1}, 2), (select r from bds.rows_at('demo', 'becoming', 2) r where (r ->> 'id')::int = {n + 1}),"
            f" (select h.row from bds.row_history('demo', 'becoming', {n + 1}) h where h.operation = 'create')"
        )
        for state in (history, *states[0]):
            found = {name: state[name] for name in names}
            assert {
                name: json.dumps(value) if name == "c5" and state is not history else value for name, value in found.items()
            } == expected
    [(report,)] = operator.rows("select bds.revert('demo', %s)", (change_set,))
    assert report["state"] == "completed", report
    shown = service.ask("/c/demo/becoming/1").json
    assert {name: shown[name] for name in names} == {name: values[0] for name, (*_, values) in zip(names, CONVERSIONS, strict=True)}
