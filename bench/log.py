"""What the change log costs: the same writes into registered tables, of which some have their triggers switched off."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import psycopg

from bench import commits
from bench.place import COMPANY, Place, settle
from bench.table import Result, rate, say, timed

ROUNDS = 3
ROWS = 100_000
LOGGED, PLAIN, STAMPED, ORDERED, AUDITED = "bench_logged", "bench_plain", "bench_stamped", "bench_ordered", "bench_audited"
# What is left on of each table: all; nothing; updatedAt; updatedAt in the order of commits, which reads by it need with or without a log;
# a generic audit trigger instead.
TABLES = {LOGGED: None, PLAIN: (), STAMPED: ("bds_2_stamp",), ORDERED: ("bds_1_lock", "bds_2_stamp"), AUDITED: ("audit",)}
# The tables that are copied: with few columns the log's own columns and indexes weigh most, with many what is logged of a row.
NARROW, WIDE = "units", "products"
INSERT = {
    NARROW: "insert into data.{} (company_id, code, name, updated_at)"
    " select '{}', 'code ' || n, 'name ' || n, clock_timestamp() from generate_series(1, {}) n",
    WIDE: "insert into data.{} (company_id, code, name, description, barcode, price, category_id, unit_id, updated_at)"
    " select '{}', 'code ' || n, 'name ' || n, 'A product, number ' || n || ', with a description of some length', 'barcode ' || n,"
    " n / 100.0, n % 97, n % 13, clock_timestamp() from generate_series(1, {}) n",
}
BULK = {
    "update": "update data.{} set name = name || '.' where company_id = '{}'",
    "delete": "delete from data.{} where company_id = '{}'",
}
# what most databases have: each row's old and new state as JSON, by one trigger for every table
AUDIT = """
    create table public.audit (
        id bigint primary key generated always as identity, at timestamptz not null default clock_timestamp(),
        db_user text not null default session_user, table_name text not null, operation text not null, old jsonb, new jsonb
    );
    create function public.audit() returns trigger language plpgsql security definer as $$
    begin
        insert into public.audit (table_name, operation, old, new) values (
            tg_table_name, tg_op,
            case when tg_op <> 'INSERT' then to_jsonb(old) end, case when tg_op <> 'DELETE' then to_jsonb(new) end
        );
        return null;
    end
    $$;
    create trigger audit after insert or update or delete on data.bench_audited for each row execute function public.audit();
"""


def measure(place: Place) -> Iterator[Result]:
    """Rows a second, commits a second, and the time from a commit to its notification."""
    with place.database(COMPANY) as url:
        make_tables(url, WIDE)
        yield from _bulk(url, WIDE)
    with place.database(COMPANY) as url:
        make_tables(url, NARROW)
        yield from _bulk(url, NARROW)
        yield from commits.measure(url, place.directory)


def make_tables(url: str, like: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for table in TABLES:
            connection.execute(f"create table data.{table} (like data.{like} including all)".encode())
            connection.execute("select bds.register(%s)", (f"data.{table}",))
        connection.execute(AUDIT)
        for table, triggers in TABLES.items():
            if triggers is not None:
                connection.execute(f"alter table data.{table} disable trigger user".encode())
            for trigger in triggers or ():
                connection.execute(f"alter table data.{table} enable trigger {trigger}".encode())


def _bulk(url: str, like: str) -> Iterator[Result]:
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    bulk = {"insert": INSERT[like], **BULK}
    for number in range(ROUNDS):
        say(f"log: {ROWS:,} rows like {like}, round {number + 1} of {ROUNDS}")
        for table, declared in ((LOGGED, True), (LOGGED, False), (PLAIN, True), (ORDERED, True), (AUDITED, True)):
            for operation, statement in bulk.items():
                settle(url)
                name = table if declared else "undeclared"
                times[operation, name].append(_write(url, statement.format(table, COMPANY, ROWS), declared))
        settle(url, vacuum=True)
    for operation in bulk:
        ours = times[operation, LOGGED]
        for floor, what, target in (
            (PLAIN, "triggers off", "" if operation == "delete" else "; target >= 0.5"),
            (ORDERED, "turn and stamp alone", ""),
            (AUDITED, "a generic audit trigger", "; target >= 1.5"),
            ("undeclared", "no company named", "; target <= 1.5"),
        ):
            note = f"{ROWS:,} rows in a statement; floor: {what}{target}"
            yield rate(f"log, {operation} {like} ({what})", "rows/s", ROWS, ours, times[operation, floor], note)
    note = f"{ROWS:,} rows; floor: insert, triggers off; target >= 1"
    yield rate(f"log, delete {like} (insert, triggers off)", "rows/s", ROWS, times["delete", LOGGED], times["insert", PLAIN], note)


def _write(url: str, statement: str, declared: bool) -> float:
    with psycopg.connect(url) as connection:
        return timed(_commit, connection, statement, declared)[0]


def _commit(connection: psycopg.Connection[Any], statement: str, declared: bool) -> None:
    if declared:
        connection.execute("select bds.set_context(%s)", (COMPANY,))
    connection.execute(statement.encode())
    connection.commit()
