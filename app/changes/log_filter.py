"""The filter of the change log: the filter of /c, except that an unknown entity or operation is an error.

Such a condition matches no change: a reader that waits for `entity = 'product'` would wait forever.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.errors import QueryError, hint
from app.query.check.tree import Expression
from app.query.check.where import WhereChecker
from app.query.parse.nodes import Literal, Operation, Path

OPERATIONS = ("create", "update", "delete")
EQUALITY = ("eq", "ne", "in")


class LogChecker(WhereChecker):
    """Checks the filter and the sort of the change log."""

    def operation(self, node: Operation) -> Expression:
        expression = super().operation(node)
        path, *values = node.operands
        if node.operator in EQUALITY and isinstance(path, Path):
            match self.path(path).field.name:
                case "entity":
                    _require("entity", values, tuple(self.catalog.entities))
                case "operation":
                    _require("operation", values, OPERATIONS)
        return expression


def _require(what: str, values: Sequence[object], known: tuple[str, ...]) -> None:
    for value in values:
        if isinstance(value, Literal) and value.kind == "text" and value.text not in known:
            message = f"no such {what}: {value.text!r}{hint(value.text, known)}"
            raise QueryError(message, position=value.at)
