"""What triggers and rules of the owner do beside an import: values that they write, rows that they complete, names that they use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import prepared
from tests.feed.conftest import Feed, alone, counts, errors
from tests.feed.test_revert import revert
from tests.feed.test_revert_tables import ROW

pytestmark = pytest.mark.slow

CODE = f"{ROW}, code text not null, unique (company_id, code)"
TABLES = f"""
create table data.cats ({CODE}, x int);
create table data.tags ({CODE}, cat_id bigint, n int, note text, m int,
    foreign key (company_id, cat_id) references data.cats (company_id, id));
create function data.note_cat() returns trigger language plpgsql as $$ begin
    update data.tags t set note = 'cat ' || new.x where (t.company_id, t.cat_id) = (new.company_id, new.id); return null; end $$;
create trigger a_note after update on data.cats for each row execute function data.note_cat();
create table data.kinds ({CODE}, x int);
create table data.users ({CODE}, kind_code text, n int,
    foreign key (company_id, kind_code) references data.kinds (company_id, code) on update cascade);
create table data.wides ({CODE}, {", ".join(f"w{n} int" for n in range(130))}, cat_id bigint,
    foreign key (company_id, cat_id) references data.cats (company_id, id));
create function data.mark_wides() returns trigger language plpgsql as $$ begin
    update data.wides w set w3 = -1, w65 = -1, w127 = -1 where (w.company_id, w.cat_id) = (new.company_id, new.id); return null; end $$;
create trigger a_wide after update on data.cats for each row execute function data.mark_wides();
select bds.register('data.cats'), bds.register('data.tags'), bds.register('data.kinds'), bds.register('data.users'),
    bds.register('data.wides');

create table data.crews ({CODE}, name text, lead_id bigint, deputy_id bigint);
create table data.mates ({CODE}, crew_id bigint not null, foreign key (company_id, crew_id) references data.crews (company_id, id));
alter table data.crews add foreign key (company_id, lead_id) references data.mates (company_id, id),
    add foreign key (company_id, deputy_id) references data.mates (company_id, id);
create function data.shout() returns trigger language plpgsql as 'begin new.name := upper(new.name); return new; end';
create trigger a_shout before insert on data.crews for each row execute function data.shout();
select bds.register('data.crews'), bds.register('data.mates'), bds.register('data.crews');

create table data.names ({CODE}, name text check (name = upper(name)), slug text not null, constraint differ check (name <> slug));
create function data.complete() returns trigger language plpgsql as $$ begin
    new.name := upper(new.name); new.slug := coalesce(new.slug, lower(new.name)); return new; end $$;
create trigger a_complete before insert or update on data.names for each row execute function data.complete();
select bds.register('data.names');

create table data.oddities ({CODE}, first date check (isfinite(first)), last date, import text check (import <> ''),
    found int check (found > 0), company text, given text, is_valid int, d int check (d > 0), "row" int check ("row" > 0),
    check (first < last));
create table data.gens ({CODE}, n int, constraint large check (n < 100));
create function data.whole(r data.gens) returns boolean language sql as 'select r.n > 0';
alter table data.gens add constraint whole check (data.whole(gens.*)), add constraint there check (gens is not null);
select bds.register('data.oddities'), bds.register('data.gens');
"""


@pytest.fixture(scope="module")
def template(server: str, of_units: str) -> Iterator[str]:
    yield from prepared(server, TABLES, of_units)


@pytest.fixture
def owned(database_url: str) -> Iterator[Feed]:
    yield from alone(database_url)


class TestFieldsThatARecordLacks:
    def test_they_keep_what_a_trigger_has_written_in_the_same_import(self, owned: Feed) -> None:
        tags = [{"code": code, "cat": "code:A", "n": 1, "note": "mine", "m": 1} for code in "tuv"]
        owned.good(cats=[{"code": "A", "x": 1}], tags=tags)
        tags = [{"code": "t", "n": 2}, {"code": "u", "note": "given", "m": 2}, {"code": "v", "n": 1}]
        report = owned.send(cats=[{"code": "A", "x": 2}], tags=tags)
        assert counts(report) == {"cats": {"updated": 1}, "tags": {"updated": 2, "unchanged": 1}}
        assert owned.rows("tags", "code", "n", "note", "m") == [("t", 2, "cat 2", 1), ("u", 1, "given", 2), ("v", 1, "cat 2", 1)]
        assert revert(owned, report["importId"])["state"] == "completed"
        assert owned.rows("tags", "n", "note", "m") == [(1, "mine", 1)] * 3

    def test_null_clears_a_field_that_a_trigger_has_written(self, owned: Feed) -> None:
        owned.good(cats=[{"code": "A", "x": 1}], tags=[{"code": "t", "cat": "code:A", "n": 1, "note": "mine"}])
        owned.good(cats=[{"code": "A", "x": 2}], tags=[{"code": "t", "cat": None, "note": None}])
        assert owned.rows("tags", "catId", "n", "note") == [(None, 1, None)]

    def test_a_key_that_has_cascaded_is_not_written_back(self, owned: Feed) -> None:
        owned.good(kinds=[{"code": "A"}], users=[{"code": "u", "kindCode": "A", "n": 0}])
        owned.good(kinds=[{"id": "code:A", "code": "X"}], users=[{"id": "code:u", "n": 1}])
        assert owned.rows("users", "code", "kindCode", "n") == [("u", "X", 1)]

    def test_an_undo_leaves_them_alone_too(self, owned: Feed) -> None:
        owned.good(cats=[{"code": "A", "x": 1}], tags=[{"code": code, "cat": "code:A", "n": 1, "note": "mine"} for code in "tu"])
        owned.operator.connection.execute("alter table data.cats disable trigger a_note")
        report = owned.send(cats=[{"code": "A", "x": 2}], tags=[{"code": "t", "n": 2}, {"code": "u", "note": "new"}])
        owned.operator.connection.execute("alter table data.cats enable trigger a_note")
        assert revert(owned, report["importId"])["state"] == "completed"
        assert owned.rows("tags", "code", "n", "note") == [("t", 1, "cat 1"), ("u", 1, "mine")]

    def test_of_many_columns_each_has_its_bit(self, owned: Feed) -> None:
        values = {f"w{n}": n for n in range(130)}
        owned.good(cats=[{"code": "A", "x": 1}], wides=[{"code": "W", "cat": "code:A", **values}])
        for k in range(130):
            owned.good(cats=[{"code": "A", "x": k + 2}], wides=[{"code": "W", f"w{k}": k + 1000}])
            values |= {"w3": -1, "w65": -1, "w127": -1} | {f"w{k}": k + 1000}
            assert owned.rows("wides", *values) == [tuple(values.values())], k

    def test_a_reference_that_waits_is_written_alone(self, owned: Feed) -> None:
        crews = [{"code": "C", "name": "abc", "lead": "code:M"}, {"code": "D", "name": "def"}]
        owned.good(crews=crews, mates=[{"code": "M", "crew": "code:C"}])
        assert owned.rows("crews", "code", "name", "leadId", "deputyId") == [("C", "ABC", 1, None), ("D", "DEF", None, None)]
        owned.good(crews=[{"code": "C", "name": "x", "deputy": "code:N"}], mates=[{"code": "N", "crew": "code:D"}])
        assert owned.rows("crews", "code", "name", "leadId", "deputyId") == [("C", "x", 1, 2), ("D", "DEF", None, None)]


class TestTriggersThatCompleteRows:
    def test_rules_are_those_of_the_row_that_is_written(self, owned: Feed) -> None:
        owned.good(names=[{"code": "A", "name": "abc"}])
        assert owned.rows("names", "name", "slug") == [("ABC", "abc")]
        owned.good(names=[{"code": "A", "name": "abd", "slug": None}])
        owned.good(names=[{"@operation": "update", "@where": "code = 'A'", "name": "abe"}])
        assert owned.rows("names", "name", "slug") == [("ABE", "abd")]

    def test_what_the_database_refuses_is_told_as_without_a_trigger(self, owned: Feed) -> None:
        owned.good(names=[{"code": "A", "name": "a"}])
        records: list[dict[str, Any]] = [
            {"code": "B"},
            {"code": "C", "name": "x", "slug": "X"},
            {"name": "y"},
            {"code": "A", "slug": "A"},
        ]
        records += [{"code": f"g{n}", "name": "g"} for n in range(20)]
        said = []
        for trigger in ("enable", "disable"):
            owned.operator.connection.execute(f"alter table data.names {trigger} trigger a_complete")
            report = owned.send({"@atomic": False, "names": records})
            said.append({error["path"]: (error["code"], error["message"]) for error in report["errors"]})
        assert said[0] == {
            "names[0].slug": ("required", "slug is required"),
            "names[1]": ("invalid_value", "it breaks the rule differ"),
            "names[2].code": ("required", "code is required"),
            "names[3]": ("invalid_value", "it breaks the rule differ"),
        }
        assert said[0].items() <= (said[1] | {"names[1]": said[0]["names[1]"]}).items()

    def test_a_condition_whose_rows_are_refused_says_so(self, owned: Feed) -> None:
        owned.good(names=[{"code": "A", "name": "a"}])
        where = {"@operation": "update", "@where": "code = 'A'"}
        report = owned.send({"@atomic": False, "names": [{**where, "slug": "A"}, {**where, "name": None, "slug": None}]})
        assert errors(report) == [("names[0]", "invalid_value"), ("names[1].slug", "required")]


class TestRules:
    def test_their_columns_may_be_called_as_anything_of_an_import(self, owned: Feed) -> None:
        good = {"first": "2024-01-01", "last": "2024-01-02", "import": "x", "found": 1, "company": "c", "given": "g", "isValid": 1}
        owned.good(oddities=[{"code": "A", **good, "d": 1, "row": 1}])
        records = [{"code": "A", "first": "2025-01-01"}, {"code": "B", "import": "", "found": 0}, {"code": "C", "d": -1, "row": -1}]
        report = owned.send({"@atomic": False, "oddities": records})
        paths = [path for path, _ in errors(report)]
        assert paths == ["oddities[0]", "oddities[1].found", "oddities[1].import", "oddities[2].d", "oddities[2].row"]
        report = owned.send(oddities=[{"code": "A", "first": "2023-01-01"}])
        assert revert(owned, report["importId"])["state"] == "completed"

    def test_one_over_the_whole_row_is_left_to_the_writing(self, owned: Feed) -> None:
        owned.good(gens=[{"code": "A", "n": 1}])
        report = owned.send({"@atomic": False, "gens": [{"code": "B", "n": -1}, {"code": "C", "n": 2}, {"code": "D", "n": 200}]})
        assert [(e["path"], e["message"]) for e in report["errors"]] == [
            ("gens[0]", "it breaks the rule whole"),
            ("gens[2].n", "it breaks the rule large"),
        ]
        report = owned.send(gens=[{"id": "code:A", "code": "C"}, {"id": "code:C", "code": "A"}])
        assert revert(owned, report["importId"])["state"] == "completed"

    def test_an_undo_of_a_row_that_a_policy_hides_says_what_is_known(self, owned: Feed) -> None:
        owned.good(gens=[{"code": "A", "n": 1}])
        report = owned.send(gens=[{"code": "A", "n": 3}])
        owned.operator.connection.execute("create policy hide on data.gens as restrictive using (n <> 3)")
        [error] = revert(owned, report["importId"])["errors"]
        assert error["message"] == "the row cannot be found, though no change has deleted it: a policy of its table may hide it"


class TestADroppedKey:
    @pytest.mark.parametrize("identity", [{"code": "A"}, {"id": "code:A"}])
    @pytest.mark.parametrize("change", [{"x": 7}, {"@operation": "delete"}])
    def test_a_record_that_matches_several_rows_fails(self, owned: Feed, identity: dict[str, Any], change: dict[str, Any]) -> None:
        copies(owned)
        tags = [{"code": "t", "cat": "code:A"}, {"code": "u", "cat": "code:B"}]
        report = owned.send({"@atomic": False, "cats": [{**identity, **change}, {"code": "B", "x": 3}], "tags": tags})
        assert errors(report) == [("cats[0]", "lookup_ambiguous"), ("tags[0].cat", "lookup_ambiguous")]
        assert counts(report) == {"cats": {"updated": 1, "failed": 1}, "tags": {"created": 1, "failed": 1}}
        assert owned.rows("cats", "code", "x") == [("A", 1), ("B", 3), ("A", 2)]

    def test_one_that_names_its_row_by_id_does_not(self, owned: Feed) -> None:
        copies(owned)
        owned.good(cats=[{"id": "1", "x": 7}], tags=[{"code": "t", "cat": "1"}])
        assert owned.rows("cats", "code", "x") == [("A", 7), ("B", 1), ("A", 2)]


def copies(owned: Feed) -> None:
    """Two rows with the code A, after the unique key was dropped."""
    owned.good(cats=[{"code": "A", "x": 1}, {"code": "B", "x": 1}])
    owned.operator.connection.execute("alter table data.cats drop constraint cats_company_id_code_key")
    owned.write("insert into data.cats (company_id, code, x) values (%s, 'A', 2)", owned.company)
