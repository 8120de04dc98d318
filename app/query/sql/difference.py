"""The statements of the difference of two versions, over the views past."<entity>_ends".

Such a view has the rows that changed in between, also those that do not differ, whose "@columns" are empty.  A row has both
ends: each field as of the later one under its name, as of the earlier one under the number of its column.  A condition is evaluated
for each end, so that a row which matches at one end alone comes or goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import LiteralString

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from app.database.catalog import Catalog, Entity, Field
from app.query.check.tree import Expression
from app.query.sql.conditions import LiteralCompiler
from app.query.sql.expressions import NOTHING
from app.query.sql.rows import NESTED, Writer

ORDERS = {"version": "@version", "rowId": "@id"}
# Of a transaction that reads a page in the order of versions: otherwise the planner may read and sort all that follows the page,
# for each page (100,000 changes: 11 s in place of 0.3 s).
IN_ORDER: LiteralString = "set local enable_sort = off; set local enable_bitmapscan = off"


@dataclass(frozen=True, slots=True)
class Difference:
    """What is asked of an entity.

    filter: a condition on the row's own fields; after, upto: the bounds of the records' values of the order.
    """

    entity: Entity
    filter: Expression | None = None
    order: str = "version"
    after: int | None = None
    upto: int | None = None
    limit: int | None = None


def records(catalog: Catalog, company: str, asked: Difference) -> Composed:
    """Rows of (key int8, record text): the value of the order, and the record of a row as JSON."""
    entity = asked.entity
    fields = tuple(entity.fields.values())
    key = Identifier("d", ORDERS[asked.order])
    bounds = [SQL(" and {} > {}").format(key, Literal(asked.after))] if asked.after is not None else []
    bounds += [SQL(" and {} <= {}").format(key, Literal(asked.upto))] if asked.upto is not None else []
    page = SQL(" limit {}").format(Literal(asked.limit)) if asked.limit is not None else NOTHING
    return SQL(
        'select {key}, \'{{"rowId":"\' || d."@id" || \'","operation":"\' || {operation} || \'","columns":\' || {columns}'
        " || ',\"old\":' || {old} || ',\"new\":' || {new} || ',\"version\":' || d.\"@version\" || '}}'"
        " {source}{bounds} order by {key}{page}"
    ).format(
        key=key,
        operation=OPERATION,
        columns=SQL('case when {both} then to_json(d."@columns")::text else {all} end').format(
            both=_BOTH, all=Literal("[" + ",".join(f'"{field.name}"' for field in fields) + "]")
        ),
        old=_side(catalog, entity, "o", fields),
        new=_side(catalog, entity, "n", fields),
        source=source(entity, company, asked.filter),
        bounds=Composed(bounds),
        page=page,
    )


def counts(entities: Iterable[Entity], company: str) -> Composed:
    """Rows of (entity, operation, count): how many rows of each entity differ."""
    return SQL(" union all ").join(
        SQL('select {}, d."@operation", count(*) from {} as d where d.company_id = {} and {} group by 2').format(
            Literal(entity.name), Identifier("past", f"{entity.name}_ends"), Literal(company), differs("d")
        )
        for entity in entities
    )


def source(entity: Entity, company: str, filter: Expression | None) -> Composed:
    """FROM the rows d that differ with their ends o and n, of which at least one matches; each has its fields and "@there"."""
    return SQL('{} where d.company_id = {} and {} and (o."@there" or n."@there")').format(
        changed(entity, filter), Literal(company), differs("d")
    )


def changed(entity: Entity, filter: Expression | None) -> Composed:
    """FROM the rows d that changed, with the ends o and n that match; each has its fields and "@there"."""
    return SQL("from {view} as d left join lateral {old} as o on true left join lateral {new} as n on true").format(
        view=Identifier("past", f"{entity.name}_ends"),
        old=_end(entity, filter, SQL("""d."@operation" <> 'create'"""), lambda field: f"@{field.ordinal}"),
        new=_end(entity, filter, SQL("""d."@operation" <> 'delete'"""), lambda field: field.name),
    )


def differs(alias: str) -> Composed:
    """The condition that a row of such a view differs between the two versions."""
    return SQL("{}.\"@columns\" <> '{{}}'").format(Identifier(alias))


_BOTH = SQL('o."@there" and n."@there"')
OPERATION = SQL("""case when o."@there" is null then 'create' when n."@there" is null then 'delete' else 'update' end""")


def _end(entity: Entity, filter: Expression | None, is_there: Composable, name: Callable[[Field], str]) -> Composed:
    columns = SQL(", ").join(
        SQL("d.{} as {}").format(Identifier(name(field)), Identifier(field.name)) for field in entity.fields.values()
    )
    condition = SQL(" and {}").format(LiteralCompiler({}).compile(filter, loose=True)) if filter else NOTHING
    return SQL('(select true as "@there", v.* from (select {}) as v where {}{})').format(columns, is_there, condition)


def _side(catalog: Catalog, entity: Entity, alias: str, fields: tuple[Field, ...]) -> Composed:
    """The JSON of an end: the whole row, of an update the fields that differ; null where there is no row."""
    writer = Writer(catalog, NESTED)
    changed = SQL(", ").join(
        SQL('case when {} = any (d."@columns") then {} || {} end').format(
            Literal(field.name), Literal(f'"{field.name}":'), writer.value(alias, field)
        )
        for field in fields
    )
    whole = SQL(" || ").join(
        SQL("{} || {}").format(Literal(f'{"," if n else "{"}"{field.name}":'), writer.value(alias, field))
        for n, field in enumerate(fields)
    )
    return SQL(
        "case when {both} then '{{' || concat_ws(',', {changed}) || '}}' when {there} then {whole} || '}}' else 'null' end"
    ).format(both=_BOTH, changed=changed, there=Identifier(alias, "@there"), whole=whole)
