"""Keys: the one row that a path names, and the rows to which a navigation leads from there, as conditions."""

from __future__ import annotations

from dataclasses import dataclass

from app.database.catalog import Catalog, Entity, Field, Navigation
from app.errors import QueryError
from app.query import parse_odata
from app.query.check import column
from app.query.check_odata import OData
from app.query.tree import INTEGERS, Comparison, Constant, Expression, Quantifier, Related
from app.query.types import unify

NUMBER = 1  # of the row, where the condition is about others


@dataclass(frozen=True, slots=True)
class Origin:
    """The row from which a navigation leads, by the condition that it is the row of this number."""

    entity: str
    condition: Expression
    number: int = NUMBER


@dataclass(frozen=True, slots=True)
class Key:
    """The value of a field that tells one row from all others."""

    catalog: Catalog
    entity: Entity
    field: Field
    value: Constant

    def row(self) -> Expression:
        """That a row is this one."""
        return self._equal(self.entity)

    def origin(self) -> Origin:
        return Origin(self.entity.name, self._equal(self.entity, row=NUMBER))

    def behind(self, step: Navigation) -> Expression:
        """That a row is one of those, or the one, to which the navigation leads from this row."""
        target = self.catalog[step.target]
        back = target.navigations[step.partner]
        if step.many:
            return self._equal(target, way=(back,))
        id = column(self.value.at, self.catalog, target, (), target.fields["id"])
        return Quantifier(self.value.at, "bool", "any", Related(id, back, NUMBER), self._equal(self.entity, row=NUMBER))

    def _equal(self, start: Entity, way: tuple[Navigation, ...] = (), row: int = 0) -> Expression:
        at = self.value.at
        left, right = unify(at, column(at, self.catalog, start, way, self.field, row), self.value)
        return Comparison(at, "bool", "eq", left, right, True)


def read_key(catalog: Catalog, entity: Entity, text: str) -> Key:
    """The key between parentheses: `12`, `id=12`, or any field that is unique, `code='A1'`.  Raises QueryError."""
    values = parse_odata.parse_key(text)
    if len(values) > 1:
        raise QueryError("expected one key", position=(values[1][0] or values[1][1]).at)
    name, literal = values[0]
    field = entity.fields.get(name.text if name else "id")
    if field is None or not (field.unique or field.name == "id"):
        known = ", ".join(dict.fromkeys(("id", *(each.name for each in entity.alternate_keys))))
        raise QueryError(f"expected a key of {entity.name}: {known}", position=(name or literal).at)
    value = OData(catalog, entity).check(literal)
    if not isinstance(value, Constant) or value.value is None:
        raise QueryError("expected a value", position=literal.at)
    if field.type in INTEGERS and value.type == "numeric":
        raise QueryError("expected a whole number", position=literal.at)
    key = Key(catalog, entity, field, value)
    key.row()  # raises where the types differ
    return key
