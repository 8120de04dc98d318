"""The statements of a query with $apply.  The JSON text of a group has nested objects for paths, then the aggregates.

Names of fields come from the catalog and are part of the text; aliases come from the client and are parameters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from app.database.catalog import Entity
from app.query.check.apply import GroupMember, Groups
from app.query.check.tree import Order, Result
from app.query.sql.expressions import GROUP
from app.query.sql.parameters import alias
from app.query.sql.rows import EDM_TYPES, NAMESPACE, Writer
from app.query.sql.select import Select

Parts = list[str | Composable]  # of a text: literal text, or SQL whose value is text


@dataclass(frozen=True, slots=True)
class GroupWriter:
    """Writes groups of an entity's rows.  table: alias of the table whose columns are the groups' results."""

    writer: Writer
    entity: Entity
    table: str

    def row(self, groups: Groups) -> Composed:
        """The JSON object of a group."""
        members = [self.member(each) for each in groups.members]
        for number, aggregate in enumerate(groups.aggregates):
            members.append(self.value(alias(number), aggregate.result))
        if self.writer.style.base:  # a group has the type of its rows, but no URL
            members.insert(0, [f'"@odata.type":"#{NAMESPACE}.{self.entity.singular}","@odata.id":null'])
        return _text(_object(members))

    def member(self, member: GroupMember) -> Parts:
        """The name and the value of a field, or of an object of fields."""
        if not member.members:
            assert member.result is not None  # every value has one
            return self.value(member.name, member.result)
        inside = _object([self.member(each) for each in member.members])
        if member.result is not None:
            present = Identifier(self.table, member.result.field.name)
            inside = [SQL("case when {} is not null then {} else 'null' end").format(present, _text(inside))]
        return [f'"{member.name}":', *inside]

    def value(self, name: str | Composable, result: Result) -> Parts:
        """The name and the value of a result; with full metadata, its type before them."""
        kind = EDM_TYPES.get(result.field.type) if self.writer.style.base else None
        typed = ['"', name, f'@odata.type":"#{kind}",'] if kind else []
        return [*typed, '"', name, '":', self.writer.value(self.table, result.field)]


def _object(members: Iterable[Parts]) -> Parts:
    parts: Parts = []
    for member in members:
        parts += ["," if parts else "{", *member]
    return [*parts, "}"]


def _text(parts: Parts) -> Composed:
    """The concatenation of the parts; neighbouring literal texts become one."""
    joined: list[str | Composable] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return SQL(" || ").join(Literal(part) if isinstance(part, str) else part for part in joined)


class GroupSelect(Select):
    """Composes the statements of a query with $apply: the rest of a statement reads from the table of groups as from a view."""

    def keys(self) -> tuple[Order, ...]:
        """The sort keys of the query, then the group keys that are not among them."""
        given = {order.key for order in self.query.order}
        return (*self.query.order, *(Order(key.result, False) for key in self.groups.keys if key.result not in given))

    def json(self) -> Composed:
        return GroupWriter(Writer(self.query.catalog, self.style), self.query.entity, GROUP).row(self.groups)

    def source(self, order: Iterable[Order], table: Composable | None = None) -> Composed:
        columns = list(self.groups.columns)
        table = SQL("select {} {}").format(
            SQL(", ").join(
                SQL("{} as {}").format(self.expressions.compile(value), Identifier(result.field.name)) for value, result in columns
            ),
            self.matching(value for value, _ in columns),
        )
        if self.groups.keys:
            table += SQL(" group by ") + SQL(", ").join(SQL(str(n)) for n in range(1, len(self.groups.keys) + 1))
        source = SQL("from ({}) as {}").format(table, Identifier(GROUP))
        if self.groups.having is None:
            return source
        return SQL("{} where {}").format(source, self.expressions.compile(self.groups.having, loose=True))

    @property
    def groups(self) -> Groups:
        assert self.query.groups is not None
        return self.query.groups
