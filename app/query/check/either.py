"""A condition in the language of /c or in OData's, whichever the text is written in.

Both accept texts such as `code in ('A','B')`, which mean the same in both.  They differ only where a null meets `not`:
`not (barcode in ('X'))` is true of a row without a barcode in OData, and unknown in /c.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from app.database.catalog import Catalog, Entity
from app.errors import QueryError
from app.query.check.checker import Checker
from app.query.check.odata import ODataChecker
from app.query.check.print_odata import Unprintable, filter_text
from app.query.check.tree import Expression, Not, walk
from app.query.check.where import WhereChecker
from app.query.parse import odata as parse_odata
from app.query.parse import where as parse_where
from app.query.parse.nodes import Node

DIFFERS = "rows without a value match in OData and not in /c: expected `x not in (...)`, or `not (...) or x eq null`"
EVIDENT = re.compile(r"\s(?:eq|ne|gt|ge|lt|le)\s|\b(?:contains|startswith|endswith|any|all)\(")  # what only OData has


@dataclass(frozen=True, slots=True)
class Reading:
    """A condition and its language."""

    node: Node
    checker: type[WhereChecker] | type[ODataChecker]

    @property
    def is_odata(self) -> bool:
        """Whether OData alone accepts the text."""
        return self.checker is ODataChecker

    def condition(self, catalog: Catalog, entity: Entity) -> Expression:
        """The condition over another model, such as that of the past.  Raises QueryError."""
        checker: Checker = self.checker(catalog, entity)
        return checker.condition(self.node)


def read(catalog: Catalog, entity: Entity, text: str) -> Reading | None:
    """Read a condition; None if it is empty.

    Raises QueryError: that of /c if neither language accepts the text, and what OData says, too, if it is evidently OData's.
    """
    if not text.strip():
        return None
    try:
        where = _where(text)
        condition = where.condition(catalog, entity)
    except QueryError as error:
        try:
            odata = _odata(text)
            odata.condition(catalog, entity)
        except QueryError as other:
            raise (error.with_sentence(f"in OData: {other.message}") if EVIDENT.search(text) else error) from None
        return odata
    _require_one_meaning(catalog, entity, text, condition)
    return where


def odata_or_where(checker: ODataChecker, text: str) -> Expression:
    """Read a condition of OData, or else of /c.  Raises QueryError: that of OData if neither language accepts the text."""
    try:
        return checker.condition(parse_odata.parse_filter(text))
    except QueryError:
        try:
            if node := parse_where.parse_filter(text):
                return WhereChecker(checker.catalog, checker.entity).condition(node)
        except QueryError:
            pass
        raise


def _where(text: str) -> Reading:
    node = parse_where.parse_filter(text)
    assert node is not None
    return Reading(node, WhereChecker)


def _odata(text: str) -> Reading:
    return Reading(parse_odata.parse_filter(text), ODataChecker)


def _require_one_meaning(catalog: Catalog, entity: Entity, text: str, condition: Expression) -> None:
    """Raises QueryError if OData accepts the text too, and matches other rows."""
    negation = next((part for part in walk(condition) if isinstance(part, Not)), None)
    if negation is None:
        return
    try:
        other = _odata(text).condition(catalog, entity)
        is_same = filter_text(other) == filter_text(condition)
    except QueryError:
        return
    except Unprintable:
        is_same = False
    if not is_same:
        raise QueryError(DIFFERS, position=negation.at)
