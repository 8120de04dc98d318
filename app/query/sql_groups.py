"""A group as JSON that PostgreSQL writes: objects inside objects for paths, then the aggregates.

The names of fields are text of the statement, aliases are parameters: no text of a client is part of a statement.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from app.database.catalog import Entity
from app.query.check_apply import Groups, Member
from app.query.sql_rows import EDM_TYPES, NAMESPACE, Writer
from app.query.tree import Result

Parts = list[str | Composable]  # of a text: what it says, or SQL that gives it


@dataclass(frozen=True, slots=True)
class GroupWriter:
    """Writes groups of an entity's rows.  `table` is what their results are columns of."""

    writer: Writer
    entity: Entity
    table: str

    def row(self, groups: Groups) -> Composed:
        """The text of a JSON object.  The parameters a0, a1 ... are the aliases of the aggregates."""
        members = [self.shown(each) for each in groups.members]
        for number, aggregate in enumerate(groups.aggregates):
            members.append(self.value(SQL(f"%(a{number})s::text"), aggregate.result))
        if self.writer.style.base:  # a group is of the rows' type and has no address
            members.insert(0, [f'"@odata.type":"#{NAMESPACE}.{self.entity.singular}","@odata.id":null'])
        return _text(_object(members))

    def shown(self, member: Member) -> Parts:
        """The name and the value of a field, or of an object of fields."""
        if not member.members:
            assert member.result is not None  # no object, hence a value
            return self.value(member.name, member.result)
        inside = _object([self.shown(each) for each in member.members])
        if member.result is not None:
            present = Identifier(self.table, member.result.field.name)
            inside = [SQL("case when {} is not null then {} else 'null' end").format(present, _text(inside))]
        return [f'"{member.name}":', *inside]

    def value(self, name: str | Composable, result: Result) -> Parts:
        """The name and the value of a result, in full metadata its type before it."""
        kind = EDM_TYPES.get(result.field.type) if self.writer.style.base else None
        typed = ['"', name, f'@odata.type":"#{kind}",'] if kind else []
        return [*typed, '"', name, '":', self.writer.value(self.table, result.field)]


def _object(members: Iterable[Parts]) -> Parts:
    parts: Parts = []
    for member in members:
        parts += ["," if parts else "{", *member]
    return [*parts, "}"]


def _text(parts: Parts) -> Composed:
    """The parts joined; texts beside each other are one."""
    joined: list[str | Composable] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return SQL(" || ").join(Literal(part) if isinstance(part, str) else part for part in joined)
