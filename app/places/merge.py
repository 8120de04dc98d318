"""How the parts of a statement, the rows of each place, become one result: rows of equal groups are merged, and all put in order.

Python does it, so only values are compared that Python compares as PostgreSQL does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from operator import add
from typing import Any, NamedTuple

from psycopg import Column, postgres

from app.errors import ServiceError


def _oids(names: str) -> set[int]:
    return {postgres.types[name].oid for name in names.split()}


SUMMED = _oids("int8 numeric float4 float8")  # types of sums
COMPARED = SUMMED | _oids("int2 int4 oid bool date time timestamp timestamptz uuid")
TEXTS = _oids("text varchar name")  # compared by their collation
EQUALLED = COMPARED | _oids("bytea")  # and enums, whose order is not that of their names
CODE_POINTS = {'"C"', '"POSIX"', "ucs_basic", "pg_c_utf8"}  # collations that order by code point, as Python does
EXACT = Context(prec=150_000, traps=[])  # more digits than numeric has

Row = tuple[Any, ...]


class Order(NamedTuple):
    """One key of the order: a column of the result.  collation: empty for that of its type."""

    column: int
    is_down: bool
    nulls_first: bool
    collation: str


def _rank(value: Any) -> tuple[bool, Any]:
    """The value in an order that has NaN above all numbers."""
    is_nan = value != value
    return is_nan, 0 if is_nan else value


def _sum(one: Any, other: Any) -> Any:
    return EXACT.add(one, other) if isinstance(one, Decimal) else one + other


MERGERS: dict[str, Callable[[Any, Any], Any]] = {
    "count": add,
    "sum": _sum,
    "min": lambda one, other: min(one, other, key=_rank),
    "max": lambda one, other: max(one, other, key=_rank),
    "bool_and": lambda one, other: one and other,
    "bool_or": lambda one, other: one or other,
}


@dataclass
class Merge:
    """How rows of the parts become one result.

    statement: what each place runs; is_of_home: home alone runs it, and its rows are the result; keys: columns of groups, None if
    rows are not grouped anew; how: a merger by column.
    """

    statement: str
    is_of_home: bool = False
    keys: list[int] | None = None
    how: dict[int, str] = field(default_factory=dict)
    order: list[Order] = field(default_factory=list)
    limit: int | None = None

    def require_comparable(self, columns: Sequence[Column], enums: Collection[int], collations: Sequence[str | None]) -> None:
        """Raise ServiceError(not_supported) for a column that Python compares otherwise than PostgreSQL.

        columns: those of the result; enums: OIDs of types; collations: of each column, None where its type has none.
        """
        for n, _, _, collation in self.order:
            self._require(columns[n], COMPARED, collation or (collations[n] if columns[n].type_display == "name" else None))
        for n in self.keys or ():
            is_default = collations[n] == '"default"'  # under which equal texts have equal bytes, too
            self._require(columns[n], {*EQUALLED, *enums}, '"C"' if is_default else collations[n])
        for n, how in self.how.items():
            if how in ("min", "max"):
                self._require(columns[n], COMPARED, collations[n])
            elif how == "sum" and columns[n].type_code not in SUMMED:
                raise refused(f"{columns[n].name} is a sum of {columns[n].type_display}")

    @staticmethod
    def _require(column: Column, types: Collection[int], collation: str | None) -> None:
        if column.type_code not in types and not (column.type_code in TEXTS and collation in CODE_POINTS):
            mend = f'{column.name}::text collate "C"'
            raise refused(f"only PostgreSQL compares {column.name}, {column.type_display}, as it does there: select {mend}")

    def of(self, parts: Sequence[list[Row]]) -> list[Row]:
        rows = [row for part in parts for row in part]
        if self.keys is not None:
            rows = self._grouped(rows, self.keys)
        for column, is_down, nulls_first, _ in reversed(self.order):
            present = [row for row in rows if row[column] is not None]
            present.sort(key=lambda row: _rank(row[column]), reverse=is_down)
            absent = [row for row in rows if row[column] is None]
            rows = absent + present if nulls_first else present + absent
        return rows if self.limit is None else rows[: self.limit]

    def _grouped(self, rows: list[Row], keys: list[int]) -> list[Row]:
        groups: dict[tuple[Any, ...], list[Any]] = {}
        for row in rows:
            key = tuple(row[column] if row[column] is None else _rank(row[column]) for column in keys)
            group = groups.get(key)
            if group is None:
                groups[key] = list(row)
                continue
            for column, how in self.how.items():
                if group[column] is None or row[column] is None:
                    group[column] = row[column] if group[column] is None else group[column]
                else:
                    group[column] = MERGERS[how](group[column], row[column])
        return [tuple(group) for group in groups.values()]


def refused(why: str) -> ServiceError:
    return ServiceError("not_supported", f"the statement cannot be merged over places: {why}; ask one place with psql")
