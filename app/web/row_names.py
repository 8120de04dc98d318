"""Names of rows of any entity: their code and name where they still exist, read by one statement for a whole page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from psycopg.sql import SQL, Composable, Identifier, Literal

from app.database.catalog import Catalog, Entity
from app.web.page import PageRequest

Row = tuple[str, int]  # entity, id


async def row_names(page: PageRequest, rows: Iterable[Row]) -> dict[Row, tuple[str, str]]:
    """(code, name) of the rows that exist and have a code; "" without a name."""
    catalog = page.database.catalog
    wanted: dict[str, list[int]] = defaultdict(list)
    for name, id in set(rows):
        if name in catalog and catalog[name].identifying_field:
            wanted[name].append(id)
    parts = [_naming(catalog[name], SQL("r.id = any ({})").format(Literal(ids))) for name, ids in wanted.items()]
    return {(entity, id): (code, name or "") for entity, id, code, name in await _read(page, parts)}


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
