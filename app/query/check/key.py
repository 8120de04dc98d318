"""Keys in paths, as conditions: on the row that a key names, and on the rows to which a navigation leads from it."""

from __future__ import annotations

from dataclasses import dataclass

from app.database.catalog import Catalog, Entity, Field, Navigation
from app.errors import QueryError
from app.query.check.checker import column
from app.query.check.odata import Aliases, ODataChecker, read_literal
from app.query.check.tree import INTEGERS, Comparison, Constant, Expression, Quantifier, RelatedRows
from app.query.check.types import unify
from app.query.parse import odata as parse_odata
from app.query.parse.nodes import Literal

NUMBER = 1  # the row number (tree.Column.row) of the key's row in a condition on rows behind it


@dataclass(frozen=True, slots=True)
class Origin:
    """The row at which a navigation begins: its entity, and the condition that identifies it under this row number."""

    entity: str
    condition: Expression
    number: int = NUMBER


@dataclass(frozen=True, slots=True)
class RowKey:
    """A unique field of an entity with a value: it identifies one row."""

    catalog: Catalog
    entity: Entity
    field: Field
    value: Constant

    def row(self) -> Expression:
        """The condition that a row is the key's row."""
        return self._equal(self.entity)

    def origin(self) -> Origin:
        """The key's row as the origin of a navigation."""
        return Origin(self.entity.name, self._equal(self.entity, row=NUMBER))

    def behind(self, step: Navigation) -> Expression:
        """The condition that the navigation leads from the key's row to a row."""
        target = self.catalog[step.target]
        back = target.navigations[step.partner]
        if step.many:
            return self._equal(target, path=(back,))
        id = column(self.value.at, self.catalog, target, (), target.fields["id"])
        return Quantifier(self.value.at, "bool", "any", RelatedRows(id, back, NUMBER), self._equal(self.entity, row=NUMBER))

    def _equal(self, start: Entity, path: tuple[Navigation, ...] = (), row: int = 0) -> Expression:
        at = self.value.at
        # as it is stored, which the key's index has: two times may be shown alike
        left, right = unify(at, column(at, self.catalog, start, path, self.field, row), self.value)
        return Comparison(at, "bool", "eq", left, right, True)


class KeyChecker(ODataChecker):
    """Checks the value of a key, which is compared with what is stored."""

    def constant(self, literal: Literal) -> Constant:
        return read_literal(literal)


def read_key(catalog: Catalog, entity: Entity, text: str, aliases: Aliases) -> RowKey:
    """Read the text between a key's parentheses: `12`, `id=12`, or any unique field, `code='A1'`.  Raises QueryError."""
    values = parse_odata.parse_key(text)
    if len(values) > 1:
        raise QueryError("expected one key", position=(values[1][0] or values[1][1]).at)
    name, literal = values[0]
    field = entity.fields.get(name.text if name else "id")
    if field is None or not (field.unique or field.name == "id"):
        known = ", ".join(dict.fromkeys(("id", *(each.name for each in entity.alternate_keys))))
        raise QueryError(f"expected a key of {entity.name}: {known}", position=(name or literal).at)
    value = KeyChecker(catalog, entity, aliases).check(literal)
    if not isinstance(value, Constant) or value.value is None:
        raise QueryError("expected a value", position=literal.at)
    if field.type in INTEGERS and value.type == "numeric":
        raise QueryError("expected a whole number", position=literal.at)
    key = RowKey(catalog, entity, field, value)
    key.row()  # raises QueryError if the value's type does not fit the field's
    return key
