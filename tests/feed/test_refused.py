"""Records that the database itself refuses: exactly these fail, however many there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.feed.conftest import Feed, counts, errors

pytestmark = pytest.mark.slow


@pytest.fixture
def strict(feed: Feed) -> Iterator[Feed]:
    """Triggers refuse rows with the name refused, and the delete of those with the name precious; they count their calls."""
    feed.operator.connection.execute("""
        create sequence data.tries; grant usage on sequence data.tries to bds_writer;
        create function data.refuse() returns trigger language plpgsql as $$
        begin
            perform nextval('data.tries');
            if tg_op <> 'DELETE' and new.name ~ 'refused' or tg_op = 'DELETE' and old.name ~ 'precious' then
                raise check_violation using message = 'secret';
            end if;
            return case when tg_op = 'DELETE' then old else new end;
        end $$;
        create trigger refuse before insert or update or delete on data.units for each row execute function data.refuse();
        create trigger refuse before insert or update or delete on data.product_variants for each row execute function data.refuse();
    """)
    yield feed
    feed.operator.connection.execute("drop function data.refuse cascade; drop sequence data.tries")


def tries(feed: Feed) -> int:
    """The number of rows that the triggers have seen since the last call."""
    [(n,)] = feed.operator.rows("select case when is_called then last_value else 0 end from data.tries")
    feed.operator.connection.execute("alter sequence data.tries restart")
    return int(n)


def units(count: int, refused: set[int], word: str = "refused") -> list[dict[str, Any]]:
    return [{"code": f"{n:05}", "name": word if n in refused else "n"} for n in range(count)]


@pytest.mark.parametrize("refused", [{0}, {511, 512}, set(range(0, 600, 7)), set(range(600))])
def test_exactly_the_refused_records_fail(strict: Feed, refused: set[int]) -> None:
    report = strict.send({"@atomic": False, "units": units(600, refused)})
    assert sorted(errors(report)) == sorted((f"units[{n}]", "invalid_value") for n in refused)
    assert {int(code) for (code,) in strict.rows("units", "code")} == set(range(600)) - refused
    assert "secret" not in str(report)


@pytest.mark.parametrize("refused", [{n * 100 for n in range(20)}, set(range(2000))])
def test_a_row_is_tried_only_a_few_times(strict: Feed, refused: set[int]) -> None:
    tries(strict)
    strict.send({"@atomic": False, "units": units(2000, refused)})
    assert tries(strict) < 8 * 2000


def test_only_the_refused_deletes_fail(strict: Feed) -> None:
    precious = {3, 4, 90, 199}
    strict.good(units=units(200, precious, "precious"))
    report = strict.send({"@atomic": False, "units": [{"@operation": "delete", "code": f"{n:05}"} for n in range(200)]})
    assert sorted(errors(report)) == sorted((f"units[{n}]", "invalid_value") for n in precious)
    assert counts(report) == {"units": {"deleted": 196, "failed": 4}}


def test_parent_and_child_are_deleted_although_another_delete_is_refused(strict: Feed) -> None:
    """Tried one by one, a parent is refused while its child exists; it must not fail for that."""
    strict.operator.connection.execute(
        "create trigger refuse before delete on data.categories for each row when (old.name = 'precious') execute function data.refuse()"
    )
    strict.good(
        categories=[{"code": "A", "name": "a"}, {"code": "B", "name": "b", "parent": "code:A"}, {"code": "P", "name": "precious"}]
    )
    report = strict.send({"@atomic": False, "categories": [{"@operation": "delete", "code": code} for code in "ABP"]})
    assert errors(report) == [("categories[2]", "invalid_value")]
    assert strict.rows("categories", "code") == [("P",)]


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        ("", None),
        ("on delete restrict", None),
        ("on delete cascade", []),
        ("on delete set null (category_id)", [(None,)]),
    ],
)
def test_a_table_that_is_not_an_entity_keeps_the_rows_that_it_refers_to_unless_its_key_says_what_becomes_of_its_own(
    strict: Feed, rule: str, left: list[Any] | None
) -> None:
    """left: what is left of the table if the row is deleted."""
    strict.good(categories=[{"code": "A", "name": "a"}, {"code": "B", "name": "b", "parent": "code:A"}, {"code": "C", "name": "c"}])
    strict.operator.connection.execute(
        f"""
        create table data.ledger (company_id text collate "C", category_id bigint,
            foreign key (company_id, category_id) references data.categories (company_id, id) {rule});
        insert into data.ledger select company_id, id from data.categories where code = 'C' and company_id = '{strict.company}'
        """.encode()
    )
    try:
        report = strict.send({"@atomic": False, "categories": [{"@operation": "delete", "code": code} for code in "ABC"]})
        assert errors(report) == ([("categories[2]", "in_use")] if left is None else [])
        assert strict.rows("categories", "code") == ([("C",)] if left is None else [])
        assert left is None or strict.operator.rows("select category_id from data.ledger") == left
    finally:
        strict.operator.connection.execute("drop table data.ledger")


@pytest.mark.parametrize("atomic", [False, "batch"])
def test_refused_removals_are_reported(strict: Feed, atomic: Any) -> None:
    strict.good(units=units(100, {7, 70}, "precious"))
    report = strict.send({"@atomic": atomic, "units": [{"code": "00000", "name": "new"}], "units@removeAll": True})
    assert [(e["path"], e["record"], e["code"]) for e in report["errors"]] == [
        ("units@removeAll", "code:00007", "invalid_value"), ("units@removeAll", "code:00070", "invalid_value"),
    ]  # fmt: skip
    assert report["state"] == "partial" and counts(report) == {"units": {"updated": 1, "deleted": 97, "failed": 2}}
    assert strict.rows("units", "code", order="code") == [("00000",), ("00007",), ("00070",)]


def test_a_refused_removal_undoes_an_import_that_is_all_or_nothing(strict: Feed) -> None:
    strict.good(units=units(3, {1}, "precious"))
    before = strict.stored()
    report = strict.send({"@atomic": True, "units": [{"code": "00000", "name": "new"}], "units@removeAll": True})
    assert (report["state"], strict.stored()) == ("failed", before)


def test_a_child_that_cannot_be_removed_fails_its_parent(strict: Feed) -> None:
    variants = [{"code": f"V{n}", "name": "precious" if n == 1 else "v"} for n in range(3)]
    strict.good(
        products=[{"code": "P", "name": "p", "variants": variants}, {"code": "Q", "name": "q", "variants": [{"code": "W"}]}]
    )
    report = strict.send(
        {"@atomic": False, "products": [{"code": "P", "name": "new", "variants": []}, {"code": "Q", "name": "new", "variants": []}]}
    )
    assert errors(report) == [("products[0]", "invalid_value")]
    assert strict.rows("productVariants", "code") == [("V0",), ("V1",), ("V2",)]
    assert strict.rows("products", "code", "name") == [("P", "p"), ("Q", "new")]


# Conditions -----------------------------------------------------------------------------------------------------------------------


def mass(count: int, refused: set[int]) -> list[dict[str, Any]]:
    return [
        {"@operation": "update", "@where": f"code = '{n:05}'", "name": "refused" if n in refused else "m"} for n in range(count)
    ]


def test_a_refused_mass_update_fails_alone_and_repeats_nothing(strict: Feed) -> None:
    strict.good(units=units(200, set()))
    tries(strict)
    report = strict.send({"@atomic": False, "units": [{"code": "new", "name": "new"}, *mass(200, {3, 150})]})
    assert errors(report) == [("units[4]", "invalid_value"), ("units[151]", "invalid_value")]
    assert counts(report) == {"units": {"created": 1, "updated": 198, "failed": 2}}
    assert tries(strict) <= 2 * 201, "all at once, then each by itself"


def test_a_refused_mass_update_fails_its_batch(strict: Feed) -> None:
    strict.good(units=units(20, set()))
    report = strict.send({"units": [{"code": "new", "name": "new"}, *mass(20, {3})]})
    assert [(e["path"], e["code"]) for e in report["errors"]] == [("units[1]", "batch_failed"), ("units[4]", "invalid_value")]
    assert counts(report) == {"units": {"created": 1, "failed": 20}}
    assert {name for (name,) in strict.rows("units", "name")} == {"n", "new"}


def test_a_refused_mass_update_undoes_an_import_that_is_all_or_nothing(strict: Feed) -> None:
    strict.good(units=units(3, set()))
    before = strict.stored()
    report = strict.send({"@atomic": True, "units": [{"code": "new", "name": "new"}, *mass(3, {1})]})
    assert (report["state"], errors(report), strict.stored()) == ("failed", [("units[2]", "invalid_value")], before)


def test_many_conditions_need_few_locks(feed: Feed) -> None:
    """Two temporary tables for each would need more locks than PostgreSQL has."""
    feed.good(units=units(150, set()))
    feed.operator.connection.execute("""
        create table data.held (locks bigint); grant insert on data.held to bds_writer;
        create function data.count_locks() returns trigger language plpgsql as $$
        begin insert into data.held select count(*) from pg_locks where pid = pg_backend_pid(); return null; end $$;
        create trigger count_locks after update on data.units for each statement execute function data.count_locks()
    """)
    try:
        assert feed.good(units=mass(150, set())) == {"units": {"updated": 150}}
        [(most,)] = feed.operator.rows("select max(locks) - min(locks) from data.held")
        assert most < 50
    finally:
        feed.operator.connection.execute("drop function data.count_locks cascade; drop table data.held")


# What waits for the commit -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def late(strict: Feed) -> Iterator[Feed]:
    """The same trigger on units, and the uniqueness of their symbols, checked at the commit."""
    strict.operator.connection.execute("""
        drop trigger refuse on data.units;
        create constraint trigger refuse after insert or update or delete on data.units deferrable initially deferred
            for each row execute function data.refuse();
        alter table data.units add constraint one_symbol unique (company_id, symbol) deferrable initially deferred;
    """)
    yield strict
    strict.operator.connection.execute("alter table data.units drop constraint one_symbol")


@pytest.mark.parametrize("count", [4, 2_000])  # small and large
@pytest.mark.parametrize(("atomic", "state"), [(False, "partial"), ("batch", "failed"), (True, "failed")])
def test_what_the_commit_would_refuse_fails_its_records_in_a_dry_run_too(late: Feed, atomic: Any, state: str, count: int) -> None:
    document = {"@atomic": atomic, "units": units(count, {1})}
    document["units"][2] |= {"symbol": "s"}
    document["units"][3] |= {"symbol": "s"}
    reports = [late.send(document, dry_run=True), late.send(document)]
    for report in reports:
        assert report["state"] == state
        assert errors(report) == [("units[1]", "invalid_value"), ("units[3]", "already_exists")], report["errors"]
    assert counts(reports[0]) == counts(reports[1])
    stored = [int(code) for (code,) in late.rows("units", "code", order="code")]
    assert stored == ([n for n in range(count) if n not in (1, 3)] if state == "partial" else [])


def test_deletes_and_mass_updates_that_the_commit_would_refuse_fail_their_records(late: Feed) -> None:
    late.good(units=[{"code": "A", "name": "precious"}, {"code": "B", "name": "b"}])
    deletes = [{"@operation": "delete", "code": "A"}, {"@operation": "delete", "code": "B"}]
    for name, kept in (("refused", 2), ("precious", 1)):
        update = [{"@operation": "update", "@where": "code = 'B'", "name": "refused"}] if name == "refused" else deletes
        report = late.send({"@atomic": False, "units": update})
        assert errors(report) == [("units[0]", "invalid_value")]
        assert len(late.rows("units", "code")) == kept


def test_what_is_right_at_the_end_may_be_wrong_before(late: Feed) -> None:
    late.good(units=[{"code": "A", "name": "a", "symbol": "x"}, {"code": "B", "name": "b", "symbol": "y"}])
    assert late.good(units=[{"code": "A", "symbol": "y"}, {"code": "B", "symbol": "x"}]) == {"units": {"updated": 2}}
    assert late.rows("units", "symbol", order="code") == [("y",), ("x",)]


def test_the_constraints_of_the_callers_transaction_stay_deferred(late: Feed) -> None:
    for refused, state in ((set(), "completed"), ({0}, "failed")):
        for is_dry in (True, False):
            with psycopg.connect(late.url) as session:
                session.execute("select bds.set_context(%s)", (late.company,))
                document = Jsonb({"units": units(2, refused)})
                row = session.execute(
                    "select bds.import_document(%s, %s, dry_run => %s)", (late.company, document, is_dry)
                ).fetchone()
                assert row and row[0]["state"] == state
                session.execute("insert into data.units (code, name, symbol) values ('Y', 'y', 'z'), ('Z', 'z', 'z')")
                session.execute("delete from data.units where code in ('Y', 'Z')")
