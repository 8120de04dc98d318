"""Turns a record of an import document into the values of the source's paths, and checks them by evaluating the mapper."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, DecimalException
from typing import Any

from app.database.catalog import Field
from app.errors import ServiceError
from app.mapper.language.expressions import INVALID, Evaluator, Getter, record_of
from app.mapper.language.functions import ABSENT
from app.mapper.language.problems import InvalidValue
from app.mapper.language.tree import NUMERIC, Block, Mapper, Rule, SourcePath
from app.mapper.reverse.solve import Solution, Solver

Record = Mapping[str, Any]  # a record of an import document: references are lookups, children nested


@dataclass(frozen=True, slots=True)
class ReverseBlock:
    """A block and its nested blocks in reverse: records in, values of the paths out."""

    block: Block
    children: tuple[ReverseBlock, ...]
    rules: tuple[Rule, ...]  # plain paths first, because the first solution of a path wins
    members: tuple[tuple[str, Getter], ...]  # evaluate the mapper on a solution
    solver: Solver
    keeps_types: bool  # JSON: numbers and booleans do not become text
    omits_empty: bool  # XML: an empty text would be read as null, but a missing element leaves the field unchanged

    @classmethod
    def of(cls, mapper: Mapper, block: Block) -> ReverseBlock:
        keeps_types = mapper.format == "json"
        return cls(
            block,
            tuple(cls.of(mapper, child) for child in block.children),
            tuple(sorted(block.rules, key=lambda rule: not isinstance(rule.expression, SourcePath))),
            Evaluator(mapper, lambda path: lambda solution: solution.get(path, ABSENT)).members(block.rules),
            Solver(mapper, keeps_types),
            keeps_types,
            mapper.format == "xml",
        )

    def lookups(self, prefix: str = "") -> dict[str, str]:
        """The lookup kinds that references must have: {"category": "code", "items.product": "barcode"}."""
        kinds = {prefix + rule.name: rule.kind for rule in self.rules if rule.kind is not None}
        for child in self.children:
            kinds |= child.lookups(f"{prefix}{child.block.name}.")
        return kinds

    def values(self, record: Record) -> Solution:
        """Return the values of the paths.  Raises ServiceError if the mapper would not read the same record from them."""
        solution: Solution = {}
        for rule in self.rules:
            value = _value(rule, record)
            if value is not ABSENT and not (self.omits_empty and value == ""):
                with contextlib.suppress(InvalidValue, ValueError):  # the check below reports the error
                    self.solver.solve(rule.expression, self._typed(rule, value), solution)
        self._check(record, solution)
        return solution

    @staticmethod
    def _typed(rule: Rule, value: Any) -> Any:
        if value is None or rule.field is None or rule.name == "id" or rule.kind is not None:
            return value
        if rule.field.type in NUMERIC:
            return Decimal(str(value))
        if rule.field.type == "date":
            return date.fromisoformat(value)
        return value if isinstance(value, (str, bool)) else str(value)

    def _check(self, record: Record, solution: Solution) -> None:
        """Raises ServiceError if the mapper reads another record from the solution."""
        seen = solution if self.keeps_types else {path: value or None for path, value in solution.items()}
        again = record_of(self.members, seen)
        for rule in self.rules:
            expected, got = _value(rule, record), again.get(rule.name, ABSENT)
            if expected is ABSENT or got is ABSENT:
                continue
            if rule.kind is not None:
                got = got.removeprefix(rule.kind + ":") if isinstance(got, str) else got
            if not _same(rule.field, expected, got):
                reason = got[INVALID] if isinstance(got, dict) else f"the mapper would read it back as {got!r}"
                message = f"{self.describe(record)}: {rule.name} {expected!r} cannot be written: {reason}"
                raise ServiceError("invalid_mapper", message)

    def describe(self, record: Record) -> str:
        """The entity and the record's code or id, for messages."""
        name = next((f"{each} {record[each]}" for each in ("code", "id") if record.get(each) is not None), "a record")
        return f"{self.block.entity.name}, {name}"


def _value(rule: Rule, record: Record) -> Any:
    """The record's value for a rule, without the kind of a lookup; ABSENT if missing.  Raises ServiceError for another kind."""
    if rule.name == "id":
        return _identity(rule, record)
    value = record.get(rule.name, ABSENT)
    if rule.kind is None or value is None or value is ABSENT:
        return value
    kind, colon, text = str(value).partition(":")
    if not colon or kind != rule.kind:
        raise ServiceError("invalid_mapper", f"{rule.name}: expected a lookup {rule.kind}:..., got {value!r}")
    return text


def _identity(rule: Rule, record: Record) -> Any:
    own = record.get("id")
    if rule.kind is None:
        if own is not None:
            return str(own)
        code = record.get("code")
        return ABSENT if code is None else f"code:{code}"
    if rule.kind in record:
        return record[rule.kind]
    kind, colon, text = str(own).partition(":") if own is not None else ("", "", "")
    if colon:
        return text if kind == rule.kind else ABSENT
    return str(own) if own is not None and rule.kind == "id" else ABSENT


def _same(field: Field | None, expected: Any, got: Any) -> bool:
    """Whether the value read back equals the record's.  An empty text may become null."""
    if expected is None or got is None:
        return bool(expected is got or (got is None and expected == ""))
    if isinstance(got, dict):
        return False
    if field is not None and field.type in NUMERIC:
        return _rounded(field, expected) == _rounded(field, got)
    if field is not None and field.type == "timestamptz":
        return bool(_moment(expected) == _moment(got))
    if isinstance(expected, bool) or isinstance(got, bool):
        return str(expected).lower() == str(got).lower()
    return str(expected) == str(got)


def _rounded(field: Field, value: Any) -> Decimal | None:
    try:
        number = Decimal(str(value))
        return number.quantize(Decimal(1).scaleb(-field.scale)) if field.scale is not None else number
    except DecimalException:
        return None


def _moment(value: Any) -> Any:
    try:
        return datetime.fromisoformat(str(value))
    except ValueError:
        return value
