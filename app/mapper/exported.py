"""Files that an export wrote, read without a stored mapper: one is made from the catalog, and the changes of the export are undone.

What an export changes, and how each is read:
  null              CSV, Excel: an empty cell; XML: xsi:nil
  an empty text     CSV: "" in quotes; Excel: a cell that holds only '; XML: an element without content
  'text             CSV, Excel: the ' keeps a spreadsheet from running the text as a formula; it is removed
  infinity, NaN     no import accepts them: the stored value is left alone
  U+FFFD            XML, Excel: stands for what the format cannot hold: the stored value is left alone
JSON Lines change nothing: each line is a record as an import document has it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any, cast

from app.database.catalog import Catalog, Entity, Field
from app.errors import ServiceError, hint
from app.formats import JSONL, XML, Format
from app.mapper.language.functions import ABSENT, to_text
from app.mapper.language.tree import Block, Mapper, Rule, SourceFormat, SourcePath
from app.types import named

ROOT = "document"  # of XML with several collections, and around a single one of that name
LOST = "\ufffd"  # stands for a character that XML does not hold
EMPTY = "\0\0"  # a quoted empty cell of CSV; no stored text holds U+0000
# A spreadsheet reads a text with such a beginning as a formula, also after white space and characters without width.  An export
# puts ' before it, and before another '.  The regular expressions of Python and PostgreSQL both read this, and differ in \s.
BLANK = "\x01-\x20\x7f-\xa0\xad\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u2064\u3000\ufeff"
FORMULA = f"(?:[\t\n\r']|[{BLANK}]*[=+@＝＋－＠-])"
PREFIX = re.compile(f"'(?={FORMULA})")
Restore = Callable[[Any], Any]


def exported_mapper(catalog: Catalog, entity: str, format: Format) -> Mapper:
    """Return the mapper that reads an entity's export.  Raises ServiceError if there is no such entity."""
    if entity not in catalog:
        message = f"no such entity: {entity}{hint(entity, catalog.entities)}"
        raise ServiceError("malformed_request", message, target="entity")
    if format is XML:
        # an export with $expand has several collections, inside <document>
        top = "" if entity != ROOT else f"/{ROOT}"
        blocks = [_records(catalog, catalog[entity], f"{top}/{entity}/{catalog[entity].singular}")]
        blocks += [
            _records(catalog, each, f"/{ROOT}/{each.name}/{each.singular}")
            for each in catalog.entities.values()
            if not (top and each.name == entity)
        ]
        return Mapper("xml", tuple(blocks), "", is_exported=True)
    if format is JSONL:  # its records are those of an import document
        return Mapper("jsonl", (_records(catalog, catalog[entity], "row"),), "", is_exported=True)
    operation = Rule(1, "@operation", None, SourcePath(1, "@operation"), None)  # a column of exports of what changed
    fields = (*_rules(catalog, catalog[entity], with_lookups=True), operation)
    block = Block(1, entity, catalog[entity], SourcePath(1, "row"), fields, (), None, None)
    return Mapper(cast(SourceFormat, format.name), (block,), "", quote='"', is_exported=True)


def _records(catalog: Catalog, entity: Entity, path: str, above: tuple[str, ...] = ()) -> Block:
    """The block of records with their children inside, as shapes of exports have them."""
    inside = entity.nested(above)
    children = [_records(catalog, catalog[step.target], f"{step.name}/{step.singular}", (*above, entity.name)) for step in inside]
    rules = tuple(_rules(catalog, entity, with_lookups=False))
    name = path.partition("/")[0] if above else entity.name
    return Block(1, name, entity, SourcePath(1, path), rules, tuple(children), None, None)


def _rules(catalog: Catalog, entity: Entity, *, with_lookups: bool) -> Iterator[Rule]:
    """A rule for each column of an export, and for ids of references.  with_lookups: a reference is a code alone."""
    for field in entity.fields.values():
        step = entity.navigations.get(field.reference) if field.reference else None
        if step is not None:
            key = catalog[step.target].identifying_field
            kind = (key.name if key else "id") if with_lookups else None
            yield Rule(1, step.name, kind, SourcePath(1, step.name), None)
        yield Rule(1, field.name, None, SourcePath(1, field.name), field)


def restorer(mapper: Mapper, column: str) -> Restore | None:
    """Return what undoes an export's changes of a column's values; None if the source is not an export."""
    if not mapper.is_exported:
        return None
    rule = next(each for each in mapper.blocks[0].rules if each.name == column)
    specials = specials_of(rule.field)
    is_excel = mapper.format == "excel"

    def restore(value: Any) -> Any:
        if not isinstance(value, str):
            return to_text(value) if isinstance(value, date) else value
        if value == EMPTY or (is_excel and value == "'"):
            return ""
        if value in specials:
            return ABSENT
        return ABSENT if is_excel and LOST in value else value[1:] if PREFIX.match(value) else value

    return restore


def restored_element(rule: Rule, text: str) -> Any:
    """Return the value of an element of XML."""
    if LOST in text or text in specials_of(rule.field):
        return ABSENT
    return text


def specials_of(field: Field | None) -> tuple[str, ...]:
    """The texts that an export writes for values of a field that no import accepts: infinity, NaN."""
    type = named(field.type) if field is not None else None
    return type.xsd_extra if type and type.unimportable else ()
