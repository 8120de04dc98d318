"""Rows of past states, and the rows related to them.

An entity's rows as of the session's version are a view of schema `past`, a union of parts of which no index finds a rebuilt row by
a value, and into which no join reaches.  So rows that are related to others are joined to them, which reads the view once and not
once for each row.  Rows whose ids are known, and pages in the order of ids, are read from E_present and E_deleted, which rebuild
each row by itself; E_replaced has the values that later changes replaced: it tells the ids of rows that may have had a value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from app.database.catalog import Navigation
from app.query.sql.parameters import COMPANY

FEW = 10_000  # rows that are rebuilt by themselves


def past_rows(
    entity: str, name: str = "id", values: Composable | None = None, parent: str | None = None, *, is_unique: bool = False
) -> Composable:
    """The rows as of the version: with values, an array, only those that have one of them in the field `name`, and maybe others.

    parent: the entity to whose rows this field refers, if these rows are its children; is_unique: whether a row is told by a value.
    """
    if values is None:
        return Identifier("past", entity)
    if name == "id":
        return _by_id(entity, values)
    if is_unique:
        return SQL("(with found as materialized (select {ids} as ids) select v.* from {rows} as v)").format(
            ids=_possible(entity, name, values, parent), rows=_by_id(entity, SQL("(select f.ids from found as f)::int8[]"))
        )
    return SQL(
        "(with found as materialized (select {ids} as ids)"
        " select v.* from {by_id} as v where cardinality((select f.ids from found as f)) < {few}"
        " union all select v.* from {all} as v where cardinality((select f.ids from found as f)) >= {few}"
        " and v.{key} = any({values}))"
    ).format(
        ids=_possible(entity, name, values, parent, SQL(f" limit {FEW}")),
        by_id=_by_id(entity, SQL("(select f.ids from found as f)::int8[]")),
        all=Identifier("past", entity),
        few=SQL(str(FEW)),
        key=Identifier(name),
        values=values,
    )


def past_parts(entity: str, *, by_id: bool = False) -> list[Composable]:
    """Tables that together are the rows as of the version.

    by_id: each is read in the order of ids without waiting for others, and how much has changed since makes no difference.
    """
    wholes = [Identifier("past", f"{entity}_{part}") for part in ("unchanged", "changed")]
    rows = [Identifier("past", f"{entity}_{part}") for part in ("present", "deleted")]
    if by_id:
        return [*rows]
    deep = SQL("(select past.is_deep({}))").format(Literal(entity))
    return [
        SQL("(select v.* from {} as v where {}{})").format(part, SQL("" if part in rows else "not "), deep)
        for part in (*wholes, *rows)
    ]


def _by_id(entity: str, values: Composable) -> Composed:
    return SQL("({})").format(
        SQL(" union all ").join(
            SQL("select v.* from {} as v where v.id = any({})").format(part, values) for part in past_parts(entity, by_id=True)
        )
    )


def _possible(entity: str, name: str, values: Composable, parent: str | None, limit: Composable | None = None) -> Composed:
    """The ids, as an array, of rows that may have one of the values in the field `name`; only some if there is a limit.

    Such a row has the value now, or a later change has replaced it.  Since a child got its parent, a change of it is also logged
    for the parent, in the same transaction; the version may lie between the two.
    """
    condition = (
        " and (current_setting('bds.version_is_whole') <> 'true' or not exists (select from bds.entities as e"
        " where e.name = {} and e.parent_since <= current_setting('bds.version_time')::timestamptz)"
        " or exists (select from {} as p where p.id = any({})))"
    )
    return SQL(
        "array(select n.id from {present} as n where n.company_id = {company} and n.{key} = any({values})"
        " union all select o.id from past.ranges_with({company}, {entity},"
        " current_setting('bds.version')::int8, {field}) as r cross join lateral (select w.* from {replaced} as w"
        ' where w."@id" >= r.first_id and w."@id" <= r.last_id offset 0) as o'
        " where o.{key} = any({values}){condition}{limit})"
    ).format(
        entity=Literal(entity),
        field=Literal(name),
        present=Identifier("api", entity),
        replaced=Identifier("past", f"{entity}_replaced"),
        condition=SQL(condition if parent else "").format(
            *([Literal(entity), Identifier("past", f"{parent}_replaced"), values] if parent else ())
        ),
        company=COMPANY,
        key=Identifier(name),
        values=values,
        limit=limit or SQL(""),
    )


@dataclass(slots=True)
class Joined:
    """The joins of related rows to the rows of a table.

    alias: of the table.  entity: of its rows.  rows: FROM and what follows of the same rows if they are few: then only what is
    related to them is read.
    """

    alias: str
    entity: str
    rows: Composed | None = None
    joins: list[Composed] = field(default_factory=list)

    def add(
        self,
        step: Navigation,
        alias: str,
        source: Callable[[Composable, Composable], Composed],
        columns: Callable[[Joined], Sequence[Composable]],
    ) -> list[Composed]:
        """Join the rows to which a navigation leads.  Returns the columns of the join, null for a row without related rows.

        source: FROM a table with this alias, with joins, WHERE.  columns: what each related row becomes, or if the navigation leads
        to many rows, what all of them become; the rows that are inside of related ones are joined to these.
        """
        key, own = (step.field, "id") if step.many else ("id", step.field)
        if self.rows is None:
            table, inside = past_rows(step.target), Joined(alias, step.target)
        else:
            values = SQL("array(select {}.{} {})").format(Identifier(self.alias), Identifier(own), self.rows)
            table = past_rows(step.target, key, values, self.entity if step.child else None)
            inside = Joined(alias, step.target, source(table, SQL("")))
        outputs = columns(inside)
        this = Identifier(f"x{len(self.joins)}")
        self.joins.append(
            SQL(" left join (select {}.{} as key, {} {}{}) as {this} on {this}.key = {}.{}").format(
                *(Identifier(alias), Identifier(key)),
                SQL(", ").join(SQL("{} as {}").format(value, Identifier(f"c{n}")) for n, value in enumerate(outputs)),
                source(table, Composed(inside.joins)),
                SQL(" group by 1" if step.many else ""),
                *(Identifier(self.alias), Identifier(own)),
                this=this,
            )
        )
        return [SQL("{}.{}").format(this, Identifier(f"c{n}")) for n in range(len(outputs))]
