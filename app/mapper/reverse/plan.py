"""Turns a record of an import document into the values of the source's paths.

The values are a proposal: proof.py has the mapper read what was written, and compares.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from app.errors import ServiceError
from app.mapper.language.functions import ABSENT
from app.mapper.language.problems import InvalidValue
from app.mapper.language.tree import Block, Mapper, Rule, SourcePath, paths_in
from app.mapper.reverse.solve import Solution, Solver
from app.types import named

LONGEST_SHOWN = 80  # characters of a value in a message

Record = Mapping[str, Any]  # a record of an import document: references are lookups, children nested


@dataclass(frozen=True, slots=True)
class ReverseBlock:
    """A block and its nested blocks in reverse: records in, values of the paths out."""

    block: Block
    children: tuple[ReverseBlock, ...]
    rules: tuple[Rule, ...]  # those with the fewest unknowns first, because the first solution of a path wins
    solver: Solver

    @classmethod
    def of(cls, mapper: Mapper, block: Block) -> ReverseBlock:
        children = tuple(cls.of(mapper, child) for child in block.children)
        return cls(block, children, tuple(sorted(block.rules, key=_unknowns)), Solver(mapper))

    def lookups(self, prefix: str = "") -> dict[str, str]:
        """The lookup kinds that references must have: {"category": "code", "items.product": "barcode"}."""
        kinds = {prefix + rule.name: rule.kind for rule in self.rules if rule.kind is not None}
        for child in self.children:
            kinds |= child.lookups(f"{prefix}{child.block.name}.")
        return kinds

    def values(self, record: Record) -> Solution:
        """Return the values of the paths, as far as they are found."""
        solution: Solution = {}
        for rule in self.rules:
            value = self.value(rule, record)
            if value is not ABSENT:
                with contextlib.suppress(InvalidValue, ValueError):  # the proof reports that the value does not come back
                    self.solver.solve(rule.expression, self._typed(rule, value), solution)
        return solution

    def value(self, rule: Rule, record: Record) -> Any:
        """The record's value for a rule, without the kind of a lookup; ABSENT if missing.  Raises ServiceError for another kind."""
        if rule.name == "id":
            return self._identity(rule, record)
        value = record.get(rule.name, ABSENT)
        if rule.kind is None or value is None or value is ABSENT:
            return value
        kind, colon, text = str(value).partition(":")
        if not colon or kind != rule.kind:
            raise self.unwritable(record, rule.name, value, f"expected a lookup {rule.kind}:...")
        return text

    def _identity(self, rule: Rule, record: Record) -> Any:
        own = record.get("id")
        if rule.kind is None:
            if own is not None:
                return str(own)
            code = record.get("code")
            return ABSENT if code is None else f"code:{code}"
        if rule.kind in record:
            return record[rule.kind]
        kind, colon, text = str(own).partition(":") if own is not None else ("", "", "")
        if colon and kind == rule.kind:
            return text
        if own is not None and not colon and rule.kind == "id":
            return str(own)
        raise self.unwritable(record, "id", own, f"expected a {rule.kind}, which the mapper writes")

    @staticmethod
    def _typed(rule: Rule, value: Any) -> Any:
        if value is None or rule.field is None or rule.name == "id" or rule.kind is not None:
            return value
        if named(rule.field.type).is_number:
            return Decimal(str(value))
        if rule.field.type == "date":
            return date.fromisoformat(value)
        return value if isinstance(value, (str, bool)) else str(value)

    def unwritable(self, record: Record, field: str, value: Any, reason: str) -> ServiceError:
        """Return the error for a value that cannot be written."""
        message = f"{self.describe(record)}: {field} {shortened(value)} cannot be written: {reason}"
        return ServiceError("unwritable", message, target=field)

    def field_of(self, path: str) -> str:
        """The first field that is read from a path, for messages."""
        return next((rule.name for rule in self.rules if any(each.text == path for each in paths_in(rule.expression))), path)

    def describe(self, record: Record) -> str:
        """The entity and the record's code or id, for messages."""
        name = next((f"{each} {record[each]}" for each in ("code", "id") if record.get(each) is not None), "a record")
        return f"{self.block.entity.name}, {name}"


def shortened(value: Any) -> str:
    """A value as messages show it."""
    shown = "null" if value is None else str(value) if isinstance(value, Decimal) else repr(value)
    return shown if len(shown) <= LONGEST_SHOWN else shown[: LONGEST_SHOWN - 4] + "..." + shown[-1]


def _unknowns(rule: Rule) -> int:
    """How many paths a rule must be solved for; 0 for a plain path."""
    return 0 if isinstance(rule.expression, SourcePath) else len({path.text for path in paths_in(rule.expression)})
