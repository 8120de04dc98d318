"""The directives at the top of an import document: @atomic, @mode, <collection>@removeAll."""

from __future__ import annotations

from app.errors import ServiceError
from app.feed.document import Directive
from app.feed.rows import SWITCH, Rows

ATOMIC = {"batch": "batch", True: "true", False: "false", "true": "true", "false": "false"}  # value -> mode of the import


class Directives:
    """Collects what a document's directives ask for.  Raises ServiceError `invalid_directive`."""

    def __init__(self, rows: Rows) -> None:
        self.atomic = "batch"
        self.remove_all: list[str] = []  # collections that are given whole
        self._rows = rows
        self._collections: set[str] = set()  # found in the document
        self._removals: set[str] = set()  # collections with a @removeAll

    def note(self, collection: str) -> None:
        """Note that the document has a collection."""
        self._collections.add(collection)

    def add(self, directive: Directive) -> None:
        """Check and keep a directive; null means its default."""
        name, value = directive.name, directive.value
        if value is None:
            return
        if name == "@atomic":
            if not isinstance(value, (str, bool)) or value not in ATOMIC:
                raise _invalid(name, 'expected "batch", true or false')
            self.atomic = ATOMIC[value]
        elif name == "@mode":
            if value not in ("array", "merge"):
                raise _invalid(name, 'expected "array" or "merge"')
            if self._collections:
                raise _invalid(name, "expected before the first collection")
            self._rows.merge = value == "merge"
        elif name.endswith("@removeAll") and not name.startswith("@"):
            if not isinstance(value, (str, bool)) or value not in SWITCH:
                raise _invalid(name, "expected true or false")
            entity = name.removesuffix("@removeAll")
            self._rows.table(entity)
            self.remove_all = [*(each for each in self.remove_all if each != entity), *([entity] if SWITCH[value] else [])]
            self._removals.add(entity)
        else:
            raise _invalid(name, "no such directive, expected @atomic, @mode or <collection>@removeAll")

    def finish(self) -> None:
        """Check, at the end of the document, that every @removeAll has its collection."""
        for entity in sorted(self._removals - self._collections):
            raise _invalid(f"{entity}@removeAll", f"expected an array {entity} in the document")


def _invalid(name: str, reason: str) -> ServiceError:
    return ServiceError("invalid_directive", f"{name}: {reason}", target=name)
