"""The history of one row: its change records, newest first, with old and new values in the format of /c."""

from __future__ import annotations

import json
from typing import LiteralString

from app.changes.rows import named_id, reading, row_key
from app.database.catalog import Catalog, Entity
from app.database.database import Database
from app.database.past import Moment, model_of
from app.database.pool.session import Session
from app.errors import ServiceError
from app.query.check.query import Query
from app.query.sql.statements import page
from app.types import named

# A value in the format of /c: ids are text, times are UTC with a Z.
VALUES: LiteralString = """
    select k.key as name, coalesce(array_position(%(names)s::text[], k.key), 10000) as n,
        case
            when k.text is null then k.value
            when k.key = any (%(ids)s::text[]) then to_jsonb(k.text)
            when k.key = any (%(jsonb)s::text[]) then to_jsonb(k.value::text)
            when k.key = any (%(bpchar)s::text[]) then to_jsonb(k.text::bpchar::text)
            when k.key = any (%(binary)s::text[]) and pg_input_is_valid(k.text, 'bytea')
                then to_jsonb(translate(encode(k.text::bytea, 'base64'), E'\n', ''))
            when k.key = any (%(duration)s::text[]) and pg_input_is_valid(k.text, 'interval') then to_jsonb(k.text::interval::text)
            when k.key = any (%(timestamp)s::text[]) and pg_input_is_valid(k.text, 'timestamptz')
                then case when isfinite(k.text::timestamptz) then to_jsonb(bds_service.api_time(k.text::timestamptz)) end
            else k.value
        end as value
"""
# An update has the fields that it changed, under their present names; a create or delete has the whole row.
HISTORY: LiteralString = f"""
    select json_build_object(
        'version', h.version, 'operation', h.operation, 'at', bds_service.api_time(h.at), 'actor', h.actor, 'user', c.db_user,
        'changeSetId', h.change_set_id,
        'old', case when h.operation <> 'create' then (
            select coalesce(json_object_agg(f.name, f.value order by f.n, f.name), '{{}}')
            from ({VALUES} from (select e.key, e.value, e.value #>> '{{}}' as text from jsonb_each(h.old) e) k) f
        ) end,
        'new', case when h.operation <> 'delete' then (
            select coalesce(json_object_agg(f.name, f.value order by f.n, f.name), '{{}}')
            from ({VALUES} from (
                select e.key, h."row" -> e.key as value, h."row" ->> e.key as text
                from jsonb_object_keys(case h.operation when 'create' then h."row" else h.old end) e (key)
            ) k) f
        ) end
    )::text
    from (
        select v.* from bds.row_history(%(company)s, %(entity)s, %(id)s) v
        order by v.version desc
        limit %(limit)s + 1 offset %(offset)s
    ) h
    join bds.changes c on c.company_id = %(company)s and c.id = h.version
    order by h.version desc
"""


async def read_history(
    database: Database, company: str, entity: Entity, id: str, moment: Moment | None, limit: int, offset: int
) -> tuple[bytes, int]:
    """Read `{"data": [versions], "hasMore": bool}` of a row, by its id, also if it was deleted, or by a lookup, as of a moment.

    Returns it and the number of versions.

    Raises QueryError, or ServiceError: not_found if the row does not exist and the log has no change of it; those of the moment.
    """
    catalog = model_of(database.catalog) if moment else database.catalog
    async with reading(database, company, moment) as connection:
        found = await _find(connection, catalog, company, catalog[entity.name], id)
        number = named_id(id) if found is None else found
        none: tuple[list[str], bool] = ([], False)
        versions, more = none if number is None else await read_versions(connection, company, entity, number, limit, offset)
    if not versions and found is None and not offset:
        hint = "" if moment or number is not None else "; version or at resolve the lookup as of then"
        raise ServiceError("not_found", f"no such row{hint}")
    return f'{{"data":[{",".join(versions)}],"hasMore":{str(more).lower()}}}'.encode(), len(versions)


async def read_versions(
    connection: Session, company: str, entity: Entity, id: int, limit: int, offset: int
) -> tuple[list[str], bool]:
    """Versions of a row, newest first, each as JSON, and whether there are more; none if the log has no change of it."""
    fields = entity.fields.values()
    parameters = {
        **{"company": company, "entity": entity.name, "id": id, "limit": limit, "offset": offset},
        "names": list(entity.fields),
        "ids": [field.name for field in fields if field.name == "id" or field.reference],
        **{stored: [field.name for field in fields if field.stored == stored] for stored in ("bpchar", "jsonb")},
        **{
            kind: [field.name for field in fields if named(field.type).kind == kind] for kind in ("timestamp", "duration", "binary")
        },
    }
    rows = await (await connection.execute(HISTORY, parameters)).fetchall()
    return [text for (text,) in rows[:limit]], len(rows) > limit


async def _find(connection: Session, catalog: Catalog, company: str, entity: Entity, text: str) -> int | None:
    """The id of the row with an id or a lookup; None if there is no such row."""
    key = row_key(catalog, entity, text)
    if key is None:
        return None
    query = Query(catalog, entity, filter=key, single=True, select=(entity.fields["id"],))
    statement = page(query, company)
    row = await (await connection.raw.execute(statement.text, statement.values)).fetchone()
    return int(json.loads(row[0])["id"]) if row and row[0] else None
