"""Turns decoded records into lines for COPY into the staging tables.

A line holds text only; the database checks and converts it.  The columns of a record's members are looked up once for each shape
(shapes.py).  Errors in the structure of a record (a member that is not a field, an object in place of text) are noted here, with
the same codes as the errors that the database finds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.database.catalog import Catalog, Entity, Navigation
from app.errors import QueryError, ServiceError, hint
from app.feed.shapes import ABSENT, DELIMITER, NULL, Shape, Unwritable, refuse, remember, shape_of
from app.mapper.language.expressions import CODE, INVALID
from app.query.sql.conditions import sql_condition
from app.wire.decoding import continue_arrays, has_control_escapes
from app.wire.mending import LONGEST_WHOLE_NUMBER, REFUSED_NUMBER, number_message

COPY_OPTIONS = "(delimiter e'\\x02', null e'\\x03')"

_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r"})
_ALL_ESCAPES = _ESCAPES | str.maketrans({DELIMITER: "\\" + DELIMITER, ABSENT: "\\" + ABSENT})
_ERROR_ESCAPES = _ALL_ESCAPES | str.maketrans({"\0": "\N{REPLACEMENT CHARACTER}"})

# slots of members that are not columns
IGNORED = -1  # accepted, without effect
UNKNOWN = -2
CHILD = -3
REMOVE_ALL = -4
OPERATION = -5
WHERE = -6
DIRECTIVE = -7
DIRECTIVES = {"@operation": OPERATION, "@where": WHERE}
SWITCH = {True: True, False: False, "true": True, "false": False}  # what a directive takes for yes and no

WIDEST_SHAPE = 200  # members; entities have a few dozen fields, so wider shapes are not worth keeping


@dataclass(slots=True)
class Table:
    """The lines of one entity that are not copied yet."""

    columns: tuple[str, ...]  # names of the staging columns
    slots: dict[str, int]  # member of a record -> column
    booleans: frozenset[int]  # columns that take true and false
    children: dict[str, Navigation]
    fixed: frozenset[str]  # members without effect: fields that the database sets
    blocks: list[str] = field(default_factory=list)  # lines
    count: int = 0  # rows so far, the ordinal of the next one
    positions: int = 0  # records of the top-level collection so far
    shapes: dict[tuple[str, ...], Shape | None] = field(default_factory=dict)  # by the names of a record's members


class Rows:
    """Collects the lines of all entities; `size` is about the bytes that are not copied yet."""

    def __init__(self, catalog: Catalog, merge: bool = False) -> None:
        self.merge = merge  # child arrays add to the stored children instead of replacing them
        self.tables: dict[str, Table] = {}
        self.errors: list[str] = []
        self.records = 0
        self.size = 0
        self._catalog = catalog

    def table(self, entity: str) -> Table:
        """The table of an entity.  Raises ServiceError `unknown_entity`."""
        table = self.tables.get(entity)
        if table is None:
            if entity not in self._catalog:
                message = f"no such entity: {entity!r}{hint(entity, self._catalog.entities)}"
                raise ServiceError("unknown_entity", message, target=entity)
            table = self.tables[entity] = _table(self._catalog[entity])
        return table

    def add(self, entity: str, records: Sequence[Any], block: bytes) -> None:
        """Add top-level records, decoded from a block.  Raises ServiceError `invalid_document` if one is not an object."""
        table = self.table(entity)
        records = continue_arrays(block, records, self._catalog.collections_of(entity))
        for at, record in enumerate(records, table.positions):
            if type(record) is not dict:
                raise ServiceError("invalid_document", f"{entity}[{at}]: expected an object, got {_kind(record)}")
        self._lines(entity, table, enumerate(records, table.positions), ABSENT, has_control_escapes(block))
        table.positions += len(records)
        self.records += len(records)

    def take(self) -> Iterable[tuple[str, Table, bytes]]:
        """Remove and yield all lines: (entity, table, COPY data)."""
        for entity, table in self.tables.items():
            if table.blocks:
                data = "\n".join(table.blocks).encode() + b"\n"
                table.blocks.clear()
                yield entity, table, data
        self.size = 0

    def take_errors(self) -> bytes:
        """Remove and return the noted errors as COPY data."""
        data = "".join(self.errors).encode()
        self.errors.clear()
        return data

    def _lines(
        self, entity: str, table: Table, records: Iterable[tuple[int, dict[str, Any]]], parent: str, has_control_escapes: bool
    ) -> None:
        """Add the lines of (position, record) pairs, where the position counts the records of one parent."""
        lines: list[str] = []
        shapes, ordinal = table.shapes, table.count
        for position, record in records:
            shape = shapes.get(names := tuple(record)) or self._shape(table, names)
            own_position = ABSENT if position == ordinal else str(position)
            try:
                if has_control_escapes:
                    raise Unwritable
                line = shape.write(str(ordinal), parent, own_position, record.values())
                ordinal += 1
            except Unwritable:
                table.count = ordinal + 1
                row = self._row(entity, table, shape, record, ordinal, has_control_escapes)
                row[0], row[1], row[2] = str(ordinal), parent, own_position
                line = DELIMITER.join(row)
                ordinal = table.count  # its children may be rows of this table
            lines.append(line)
        table.count = ordinal
        block = "\n".join(lines)
        if not has_control_escapes and ("\\" in block or "\r" in block or block.count("\n") >= len(lines)):
            block = "\n".join([line.translate(_ESCAPES) for line in lines])
        if lines:
            table.blocks.append(block)
            self.size += len(block)

    def _shape(self, table: Table, names: tuple[str, ...]) -> Shape:
        """The shape of records with these members; its function is generated for the second one."""
        members = [(_slot(table, name), name) for name in names]
        if len(names) > WIDEST_SHAPE:
            return Shape(members, refuse)
        if names not in table.shapes:
            remember(table.shapes, names, None)
            return Shape(members, refuse)
        return remember(table.shapes, names, shape_of(members, len(table.columns), table.booleans, table.slots["id"]))

    def _row(
        self, entity: str, table: Table, shape: Shape, record: dict[str, Any], ordinal: int, has_control_escapes: bool
    ) -> list[str]:
        """The columns of a record from the fourth on, member by member; its children become lines of their own."""
        row = [ABSENT] * len(table.columns)
        flags: dict[str, bool] | None = None
        for (slot, member), value in zip(shape.members, record.values(), strict=True):
            if slot >= 0:
                if type(value) is str:
                    row[slot] = value
                elif value is None:
                    row[slot] = NULL
                elif type(value) is int:
                    row[slot] = str(value)
                else:
                    row[slot] = self._other_value(entity, ordinal, table, slot, member, value)
            elif slot == CHILD:
                if record.get("@operation") != "delete":  # which uses only the identity
                    self._children(entity, ordinal, table.children[member], value, has_control_escapes)
                    flags = {member: not self.merge} | (flags or {})
            elif slot == REMOVE_ALL:
                flags = (flags or {}) | self._remove_all(entity, ordinal, record, member, value)
            elif slot != IGNORED and (slot == UNKNOWN or value is not None):
                self._other_member(entity, ordinal, table, row, slot, member, value)
        if row[3] is NULL:
            row[3] = ABSENT  # an id that is null names nothing
        for collection, remove in (flags or {}).items():
            row[table.slots[collection + "@present"]] = "t" if remove else "f"
        return self._sanitize(row, table, entity, ordinal) if has_control_escapes else row

    def _sanitize(self, row: list[str], table: Table, entity: str, ordinal: int) -> list[str]:
        """Escape the control characters that have a meaning in COPY data, and refuse NUL, which PostgreSQL does not store."""
        clean = row[:3]
        for slot, value in enumerate(row[3:], 3):
            if "\0" in value and slot == table.slots["id"]:
                self.error(entity, ordinal, "id", "invalid_value", _unstorable(value))
                value = value.translate(_ERROR_ESCAPES)  # still an identity: the record is not taken for a new one
            elif "\0" in value:
                self.error(entity, ordinal, table.columns[slot], "invalid_value", _unstorable(value))
                value = ABSENT
            elif value is not ABSENT and value is not NULL:
                value = (NULL + value if value.startswith(NULL) else value).translate(_ALL_ESCAPES)
            clean.append(value)
        return clean

    def _children(self, entity: str, ordinal: int, navigation: Navigation, value: Any, has_control_escapes: bool) -> None:
        items = value if isinstance(value, list) else [] if value is None else [value]
        records = [(position, item) for position, item in enumerate(items) if type(item) is dict]
        self._lines(navigation.target, self.table(navigation.target), records, str(ordinal), has_control_escapes)
        if len(records) < len(items):
            for position, item in enumerate(items):
                if type(item) is not dict:
                    reason = f"expected an object, got {_kind(item)}"
                    self.error(entity, ordinal, f"{navigation.name}[{position}]", "invalid_value", reason)

    def _remove_all(self, entity: str, ordinal: int, record: dict[str, Any], member: str, value: Any) -> dict[str, bool]:
        collection = member.partition("@")[0]
        if value is None:
            return {}
        if not isinstance(value, (str, bool)) or value not in SWITCH:
            self.error(entity, ordinal, member, "invalid_directive", f"expected true or false, got {_kind(value)}")
        elif collection not in record:
            self.error(entity, ordinal, member, "invalid_directive", f"expected an array {collection} in the same record")
        else:
            return {collection: SWITCH[value]}
        return {}

    def _other_value(self, entity: str, ordinal: int, table: Table, slot: int, member: str, value: Any) -> str:
        """The text of a value that is neither text, a whole number nor null; notes an error unless it is a boolean's."""
        if isinstance(value, bool) and slot in table.booleans:
            return "true" if value else "false"
        message = value.get(INVALID) if isinstance(value, dict) else None  # from a mapper
        self.error(entity, ordinal, member, "invalid_value", message or f"expected a single value, got {_kind(value)}")
        return ABSENT

    def _other_member(self, entity: str, ordinal: int, table: Table, row: list[str], slot: int, member: str, value: Any) -> None:
        """Take a member that is neither a field nor an array: a directive, or an error."""
        if slot == UNKNOWN:
            self.error(entity, ordinal, member, "unknown_field", f"{entity} has no field {member}")
        elif slot == DIRECTIVE:
            self.error(entity, ordinal, member, "invalid_directive", f"no such directive: {member}")
        elif slot == WHERE:
            row[table.slots[member]], row[table.slots["@lookups"]] = self._condition(entity, ordinal, value)
        elif isinstance(value, str):
            row[table.slots[member]] = value
        elif isinstance(value, dict) and INVALID in value:  # from a mapper
            self.error(entity, ordinal, member, "invalid_directive", value[INVALID])
        else:
            self.error(entity, ordinal, member, "invalid_directive", f"expected text, got {_kind(value)}")

    def _condition(self, entity: str, ordinal: int, text: Any) -> tuple[str, str]:
        """The condition of a @where in SQL, and the lookups in it as JSON; notes an error if it is not one."""
        try:
            if isinstance(text, str):
                condition = sql_condition(self._catalog, self._catalog[entity], text)
                lookups = [[each.entity, each.field, each.value] for each in condition.lookups]
                return condition.sql, json.dumps(lookups, ensure_ascii=False) if lookups else ABSENT
            given = text if isinstance(text, dict) else {}  # from a mapper
            problem, code = given.get(INVALID, f"expected text, got {_kind(text)}"), given.get(CODE, "invalid_directive")
        except QueryError as error:
            problem, code = str(error), "invalid_directive"
        self.error(entity, ordinal, "@where", code, problem)
        return "false", ABSENT

    def error(self, entity: str, ordinal: int, name: str | None, code: str, message: str) -> None:
        """Note an error of a row; without a name it is about the whole row."""
        values = (entity, str(ordinal), ABSENT if name is None else name, code, message)
        line = DELIMITER.join(v if v is ABSENT else v.translate(_ERROR_ESCAPES) for v in values)
        self.errors.append(f"{line}{DELIMITER}t\n")  # kept, whatever the comparison finds
        self.size += len(line)


def _table(entity: Entity) -> Table:
    fields = [f for f in entity.fields.values() if f.name not in ("id", "updatedAt") and not f.generated]
    children = {n.name: n for n in entity.children}
    names = [f.reference or f.name for f in fields]
    columns = (
        "@ordinal",
        "@parent",
        "@position",
        "@id",
        "@operation",
        "@where",
        "@lookups",
        *names,
        *(f"{name}@present" for name in children),
    )
    slots = {name: slot for slot, name in enumerate(columns) if slot > 2}
    slots["id"] = slots.pop("@id")
    for each in fields:
        if each.reference:
            slots[each.name] = slots[each.reference]  # categoryId beside category
    return Table(
        columns,
        slots,
        frozenset(slots[f.name] for f in fields if f.type == "bool"),
        children,
        frozenset({"updatedAt"} | {f.name for f in entity.fields.values() if f.generated}),
    )


def _slot(table: Table, member: str) -> int:
    collection, at, directive = member.partition("@")
    if at:
        return REMOVE_ALL if directive == "removeAll" and collection in table.children else DIRECTIVES.get(member, DIRECTIVE)
    if member in table.children:
        return CHILD
    if member in table.fixed:
        return IGNORED
    return table.slots.get(member, UNKNOWN)


def _unstorable(text: str) -> str:
    """Why PostgreSQL does not store a text with U+0000, which also stands for what app/wire/mending.py has replaced."""
    if text == REFUSED_NUMBER:
        return number_message(LONGEST_WHOLE_NUMBER)
    return "text cannot hold the character U+0000, or half of a surrogate pair"


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return {dict: "an object", list: "an array", str: "text", bool: "true or false"}.get(type(value), "a number")
