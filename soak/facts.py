"""What the database has of one company, read in one snapshot."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

FIELDS = """select e.name, e.table_name::text, f.name, f.column_name from bds.entities e join bds.fields f on f.entity = e.name
    order by e.ordinal, f.ordinal"""
LOG = """select id, entity, row_id, operation::text, created_at, transaction_id::text::bigint, change_set_id::text, columns, old
    from bds.changes where company_id = %s order by id"""
DELIVERIES = """select hook_id::text, id::text, state, change_set_id::text, body,
    (select count(*) from bds.delivery_attempts a where a.company_id = d.company_id and a.delivery_id = d.id)
    from bds.deliveries d where company_id = %s and not test order by number"""
IMPORTS = "select id::text, state, dry_run, reverts::text, entities from bds.imports where company_id = %s"


@dataclass(frozen=True, slots=True)
class Record:
    id: int
    entity: str
    row_id: int
    operation: str
    created_at: datetime
    transaction: int
    change_set: str | None
    columns: list[str] | None
    old: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Delivery:
    hook: str
    id: str
    state: str
    change_set: str | None
    body: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Import:
    id: str
    state: str
    dry_run: bool
    reverts: str | None
    entities: dict[str, dict[str, int]]


@dataclass(slots=True)
class Facts:
    company: str
    last_id: int
    log: list[Record]
    rows: dict[str, dict[int, dict[str, Any]]]  # by entity and id, under the API's names
    deliveries: list[Delivery]
    queued: int
    imports: list[Import]


def read(connection: psycopg.Connection[Any], company: str) -> Facts:
    """Read what there is.  The settings are those with which the log stores old values."""
    with connection.transaction():
        connection.execute("set local timezone = 'UTC'; set local extra_float_digits = 1")
        names: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
        for entity, table, name, column in connection.execute(FIELDS):
            names[entity, table].append((name, column))
        rows: dict[str, dict[int, dict[str, Any]]] = {}
        for (entity, table), fields in names.items():
            members = ", ".join(f"'{name}' : t.{column}" for name, column in fields)
            query = f"select t.id, json_object({members} returning json)::jsonb from {table} t where t.company_id = %s"
            rows[entity] = dict(connection.execute(query.encode(), (company,)).fetchall())
        [(last_id,)] = connection.execute("select last_id from bds.clocks where company_id = %s", (company,)).fetchall()
        [(queued,)] = connection.execute("select count(*) from bds.hook_queue where company_id = %s", (company,)).fetchall()
        return Facts(
            company,
            last_id,
            [Record(*row) for row in connection.execute(LOG, (company,))],
            rows,
            [Delivery(*row) for row in connection.execute(DELIVERIES, (company,))],
            queued,
            [Import(*row) for row in connection.execute(IMPORTS, (company,))],
        )
