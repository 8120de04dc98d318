"""Statistics of tables while an import or a revert fills them: foreign keys of the rows that follow are planned by them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import prepared
from tests.feed.conftest import Feed, alone
from tests.feed.test_revert import revert
from tests.feed.test_revert_tables import TABLES

pytestmark = pytest.mark.slow

SHOPS = 1_500  # with as many seats more than a small import takes
# How many shops the planner expects when seats are about to be written.
NOTES = """
create table public.noted (shops real);
create function public.note() returns trigger language plpgsql security definer as $$
begin
    insert into public.noted select c.reltuples from pg_class c where c.oid = 'data.shops'::regclass;
    return null;
end
$$;
create trigger note before insert on data.seats for each statement execute function public.note();
"""
# of the table and its shards
QUIET = """
do $$ declare part regclass; begin
    for part in select c.oid from pg_class c where c.oid = 'data.shops'::regclass and c.relkind = 'r'
        union all select t.relid from pg_partition_tree('data.shops') t where t.isleaf
    loop
        execute format('alter table %s set (autovacuum_enabled = false)', part);
    end loop;
end $$;
"""


@pytest.fixture(scope="module")
def template(server: str, of_units: str) -> Iterator[str]:
    yield from prepared(server, TABLES + NOTES + QUIET, of_units)


@pytest.fixture
def shops(database_url: str) -> Iterator[Feed]:
    yield from alone(database_url)


def empty(feed: Feed) -> str:
    """Remove all shops, which the planner then knows; returns the change set."""
    removed = str(feed.send({"shops": [], "shops@removeAll": True})["importId"])
    feed.operator.connection.execute("analyze data.shops; truncate public.noted")
    assert feed.ask("select reltuples from pg_class where oid = 'data.shops'::regclass") == [(0,)]
    return removed


def test_children_are_written_when_the_planner_knows_of_their_parents(shops: Feed) -> None:
    document = {"shops": [{"code": f"S{n}", "seats": [{"number": 1}]} for n in range(SHOPS)]}
    shops.good(document)
    empty(shops)
    shops.good(document)
    assert shops.ask("select shops from public.noted") == [(SHOPS,)]
    removed = empty(shops)
    assert revert(shops, removed)["state"] == "completed"
    assert shops.ask("select shops from public.noted") == [(SHOPS,)]


def test_after_a_large_import_a_count_beyond_the_limit_is_exact(feed: Feed) -> None:
    def counted() -> tuple[int, bool]:
        (row,) = feed.ask(
            "select c.rows, c.is_estimate from bds_service.count_rows(%s, 100) c where c.entity = 'units'", feed.company
        )
        return row

    def units(count: int, name: str) -> dict[str, Any]:
        return {"units": [{"code": f"U{n}", "name": name} for n in range(count)]}

    feed.good(units(6_000, "a"), dry_run=True)
    assert counted() == (0, False)
    feed.good(units(6_000, "a"))
    assert counted() == (6_000, False)
    feed.good({"units": [{"code": "one", "name": "more"}, {"id": "code:U1", "@operation": "delete"}, {"code": "U2", "name": "b"}]})
    feed.operator.write(feed.company, "delete from data.units where code in ('U3', 'U4', 'U5')")
    assert counted() == (5_997, False), "what changed since is added"
    feed.good({"units@removeAll": True, **units(5_500, "c")})
    assert counted() == (5_500, False)
    feed.operator.connection.execute("update bds.imports set row_counts = null where company_id = %s", (feed.company,))
    assert counted()[1], "without such an import it is an estimate"
