"""Names of rows of any entity: their code and name, read by one statement for a whole page; of deleted rows the last ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from psycopg.sql import SQL, Composable, Identifier, Literal

from app.database.catalog import Catalog, Entity
from app.web.page import PageRequest

Row = tuple[str, int]  # entity, id
DELETED = """
    select w.entity, w.id, d.old
    from unnest(%s::text[], %s::bigint[]) as w (entity, id)
    cross join lateral (
        select c.old
        from bds.changes c
        where c.company_id = %s and c.row_id = w.id and c.entity = w.entity and c.operation = 'delete'
        order by c.id desc
        limit 1
    ) d
"""


async def row_names(page: PageRequest, rows: Iterable[Row]) -> dict[Row, tuple[str, str]]:
    """(code, name) of the rows that have or had a code; "" without a name."""
    catalog = page.database.catalog
    wanted: dict[str, list[int]] = defaultdict(list)
    for name, id in set(rows):
        if name in catalog and catalog[name].identifying_field:
            wanted[name].append(id)
    parts = [_naming(catalog[name], SQL("r.id = any ({})").format(Literal(ids))) for name, ids in wanted.items()]
    found = {(entity, id): (code, name or "") for entity, id, code, name in await _read(page, parts)}
    deleted = [(name, id) for name, ids in wanted.items() for id in ids if (name, id) not in found]
    return found | await _last_names(page, deleted)


async def _last_names(page: PageRequest, rows: list[Row]) -> dict[Row, tuple[str, str]]:
    """(code, name) that deleted rows had at last, as far as the log still has them."""
    if not rows:
        return {}
    entities, ids = zip(*rows, strict=True)
    async with page.database.session(page.company) as connection:
        found = await (await connection.execute(DELETED, (list(entities), list(ids), page.company))).fetchall()
    names = {}
    for entity, id, old in found:
        code = page.database.catalog[entity].identifying_field
        if code and old.get(code.name):
            names[entity, id] = (str(old[code.name]), str(old.get("name") or ""))
    return names


async def rows_named(page: PageRequest, code: str, entity: str | None) -> list[Row]:
    """The rows with a code: of an entity, or of all."""
    catalog = page.database.catalog
    return [(name, id) for name, id, _, _ in await _read(page, [_with_code(each, code) for each in _coded(catalog, entity)])]


def _coded(catalog: Catalog, name: str | None) -> list[Entity]:
    chosen = [catalog[name]] if name else list(catalog.entities.values())
    return [entity for entity in chosen if entity.identifying_field and entity.identifying_field.type == "text"]


def _with_code(entity: Entity, code: str) -> Composable:
    assert entity.identifying_field is not None
    return _naming(entity, SQL("r.{} = {}").format(Identifier(entity.identifying_field.name), Literal(code)))


def _naming(entity: Entity, condition: Composable) -> Composable:
    code = entity.identifying_field
    assert code is not None
    name = SQL("r.name::text") if "name" in entity.fields else SQL("null")
    return SQL("select {}, r.id, r.{}::text, {} from {} as r where r.company_id = current_setting('bds.company') and {}").format(
        Literal(entity.name), Identifier(code.name), name, Identifier("api", entity.name), condition
    )


async def _read(page: PageRequest, parts: list[Composable]) -> list[tuple[str, int, str, str | None]]:
    if not parts:
        return []
    async with page.database.session(page.company) as connection:
        return await (await connection.execute(SQL(" union all ").join(parts))).fetchall()
