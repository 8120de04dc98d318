"""Cycles of references, within one entity and through several."""

from __future__ import annotations

import pytest

from tests.feed.conftest import Feed, errors, with_tables

pytestmark = pytest.mark.slow


def test_a_cycle_within_one_entity(feed: Feed) -> None:
    categories = [
        {"code": "A", "name": "a", "parent": "code:B"},
        {"code": "B", "name": "b", "parent": "code:A"},
        {"code": "C", "name": "c", "parent": "code:C"},
    ]
    assert feed.good(categories=categories) == {"categories": {"created": 3}}
    assert feed.good(categories=categories) == {"categories": {"unchanged": 3}}
    assert len(feed.log()) == 3


def test_a_cycle_through_two_entities(staff: Feed) -> None:
    document = {
        "badges": [{"code": "X", "person": "code:ann"}],
        "people": [{"code": "ann", "team": "code:red"}, {"code": "bob", "team": "code:red"}],
        "teams": [{"code": "red", "lead": "code:ann"}, {"code": "blue", "lead": "code:bob"}],
    }
    created = {"teams": {"created": 2}, "people": {"created": 2}, "badges": {"created": 1}}
    assert staff.good(document) == created
    assert staff.good(document) == {name: {"unchanged": n["created"]} for name, n in created.items()}
    assert staff.ask('select t.code, p.code from api.teams t join api.people p on p.id = t."leadId" order by 1') == [
        ("blue", "bob"),
        ("red", "ann"),
    ]
    assert staff.good(teams=[{"code": "blue", "lead": "code:ann"}]) == {"teams": {"updated": 1}}


def test_a_deferred_reference_counts_as_a_change(staff: Feed) -> None:
    staff.good(teams=[{"code": "red"}, {"code": "blue"}])
    report = staff.good(
        {"teams": [{"code": "red", "lead": "code:cid"}, {"code": "blue"}], "people": [{"code": "cid", "team": "code:red"}]}
    )
    assert report == {"teams": {"updated": 1, "unchanged": 1}, "people": {"created": 1}}


def test_a_failed_record_of_a_cycle_fails_the_records_that_refer_to_it(staff: Feed) -> None:
    report = staff.send({
        "@atomic": False,
        "people": [{"code": "ann", "team": "code:red", "shoe": 7}, {"code": "bob", "team": "code:blue"}],
        "teams": [{"code": "red", "lead": "code:ann"}, {"code": "blue", "lead": "code:bob"}, {"code": "green", "lead": "code:none"}],
    })  # fmt: skip
    assert sorted(errors(report)) == [
        ("people[0].shoe", "unknown_field"), ("teams[0].lead", "lookup_not_found"), ("teams[2].lead", "lookup_not_found"),
    ]  # fmt: skip
    assert staff.rows("teams", "code") == [("blue",)] and staff.rows("people", "code") == [("bob",)]


GONE = {"people": [{"@operation": "delete", "code": "ann"}], "teams": [{"@operation": "delete", "code": "red"}]}


@pytest.fixture
def cycle(staff: Feed) -> Feed:
    """Ann is in team red, which she leads; so is bob."""
    staff.good(
        {
            "people": [{"code": "ann", "team": "code:red"}, {"code": "bob", "team": "code:red"}],
            "teams": [{"code": "red", "lead": "code:ann"}],
        }
    )
    return staff


def refuse(staff: Feed, event: str, condition: str) -> None:
    """Make a trigger refuse an event on people."""
    staff.operator.connection.execute(
        f"""
        create function data.refuse() returns trigger language plpgsql as $$ begin raise check_violation using message = 'secret'; end $$;
        create trigger refuse before {event} on data.people for each row when ({condition}) execute function data.refuse()
    """.encode()
    )


@pytest.mark.parametrize("atomic", ["batch", True, False])
def test_the_rows_of_a_cycle_are_deleted_together(cycle: Feed, atomic: str | bool) -> None:
    last = cycle.log()[-1][0]
    report = cycle.good({"@atomic": atomic, **GONE, "people": [*GONE["people"], {"@operation": "delete", "code": "bob"}]})
    assert report == {"people": {"deleted": 2}, "teams": {"deleted": 1}}
    assert sorted((entity, operation) for n, entity, operation, _ in cycle.log() if n > last) == [
        ("people", "delete"), ("people", "delete"), ("teams", "delete"),
    ]  # fmt: skip


def test_a_remaining_row_keeps_the_rows_that_it_refers_to(cycle: Feed) -> None:
    """Bob keeps the team, and the team keeps its lead."""
    report = cycle.send({"@atomic": False, **GONE})
    assert sorted(errors(report)) == [("people[0]", "in_use"), ("teams[0]", "in_use")]
    assert cycle.rows("people", "code") == [("ann",), ("bob",)]


def test_a_reference_from_outside_keeps_a_cycle(cycle: Feed) -> None:
    cycle.good(badges=[{"code": "X", "person": "code:ann"}])
    document = {"@atomic": False, **GONE, "people": [*GONE["people"], {"@operation": "delete", "code": "bob"}]}
    report = cycle.send(document)
    assert sorted(errors(report)) == [("people[0]", "in_use"), ("teams[0]", "in_use")]
    assert cycle.rows("people", "code") == [("ann",)]
    assert cycle.good({**GONE, "badges": [{"@operation": "delete", "code": "X"}]}) == {
        "people": {"deleted": 1}, "teams": {"deleted": 1}, "badges": {"deleted": 1}}  # fmt: skip


def test_a_refused_delete_keeps_its_cycle(cycle: Feed) -> None:
    refuse(cycle, "delete", "old.code = 'ann'")
    cycle.good({"people": [{"code": "eve", "team": "code:blue"}], "teams": [{"code": "blue", "lead": "code:eve"}]})
    document = {
        "@atomic": False,
        "people": [{"@operation": "delete", "code": code} for code in ("ann", "bob", "eve")],
        "teams": [{"@operation": "delete", "code": code} for code in ("red", "blue")],
    }
    report = cycle.send(document)
    assert sorted(errors(report)) == [("people[0]", "invalid_value"), ("teams[0]", "in_use")]
    assert cycle.rows("people", "code") == [("ann",)] and cycle.rows("teams", "code") == [("red",)]


def test_the_rows_of_a_cycle_are_removed_together(cycle: Feed) -> None:
    assert cycle.good({"people": [], "people@removeAll": True, "teams": [], "teams@removeAll": True}) == {
        "people": {"deleted": 2}, "teams": {"deleted": 1}}  # fmt: skip


def test_a_refused_removal_is_reported(cycle: Feed) -> None:
    refuse(cycle, "delete", "old.code = 'ann'")
    report = cycle.send({"people": [{"code": "new"}], "people@removeAll": True, "teams": [], "teams@removeAll": True})
    assert [(e["path"], e["record"], e["code"]) for e in report["errors"]] == [
        ("teams@removeAll", "code:red", "in_use"), ("people@removeAll", "code:ann", "invalid_value"),
    ]  # fmt: skip
    assert cycle.rows("people", "code", order="code") == [("ann",), ("new",)] and report["state"] == "partial"


def test_a_refused_deferred_reference_fails_its_record(staff: Feed) -> None:
    staff.operator.connection.execute("""
        create function data.refuse() returns trigger language plpgsql as $$ begin raise check_violation using message = 'secret'; end $$;
        create trigger refuse before insert or update on data.teams for each row when (new.code = 'red' and new.lead_id is not null) execute function data.refuse()
    """)
    report = staff.send({
        "@atomic": False,
        "teams": [{"code": "red", "lead": "code:ann"}, {"code": "blue", "lead": "code:bob"}],
        "people": [{"code": "ann"}, {"code": "bob", "team": "code:blue"}],
    })  # fmt: skip
    assert errors(report) == [("teams[0]", "invalid_value")]
    assert staff.ask('select t.code, p.code from api.teams t left join api.people p on p.id = t."leadId"') == [("blue", "bob")]
    assert staff.rows("people", "code", order="code") == [("ann",), ("bob",)]


NEEDED_LAST = """
create table data.leads (
    company_id text collate "C" not null, id bigint not null generated by default as identity, code text collate "C" not null,
    squad_id bigint not null, updated_at timestamptz not null, primary key (company_id, id), unique (company_id, code)
);
create table data.squads (
    company_id text collate "C" not null, id bigint not null generated by default as identity, code text collate "C" not null,
    lead_id bigint, updated_at timestamptz not null, primary key (company_id, id), unique (company_id, code),
    foreign key (company_id, lead_id) references data.leads (company_id, id)
);
alter table data.leads add foreign key (company_id, squad_id) references data.squads (company_id, id);
select bds.register('data.leads');
select bds.register('data.squads');
select bds.register('data.leads');
"""


def test_a_cycle_is_written_beginning_with_its_required_reference(database_url: str) -> None:
    """In either order of registration."""
    for feed in with_tables(database_url, NEEDED_LAST):
        document = {"leads": [{"code": "l", "squad": "code:s"}], "squads": [{"code": "s", "lead": "code:l"}]}
        assert feed.good(**document) == {"leads": {"created": 1}, "squads": {"created": 1}}
        assert feed.good(**document) == {"leads": {"unchanged": 1}, "squads": {"unchanged": 1}}
        assert feed.ask("select count(*) from data.squads where lead_id is not null") == [(1,)]
