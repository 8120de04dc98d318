"""JSON: an import document.  Importing it again changes nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from psycopg.sql import SQL, Composable, Literal

from app.database.catalog import Navigation
from app.export import content
from app.export.read import Reader
from app.export.request import ExportRequest
from app.export.row_formats import PLAIN, Head, concatenated, lookup_of, text_of, with_children
from app.export.shape import ExportField, RecordShape
from app.query.sql.parameters import Statement
from app.types import named
from app.wire.mending import LONGEST_NUMBER


class JsonRecords:
    """Objects of an import document, each with a comma before it."""

    copy = PLAIN
    has_lookups = True
    importable = True  # leave out values that no import accepts: the import then leaves them alone

    def record(
        self,
        shape: RecordShape,
        columns: Sequence[Composable],
        children: Sequence[tuple[Navigation, Composable]],
        head: Head | None = None,
    ) -> Composable:
        parts: list[Composable] = []
        for field, column in zip(shape.fields, columns, strict=True):
            if field.is_spare and not shape.fields[0].nullable:
                continue
            value = self.value(field, column)
            key = Literal(f'{"," if parts else ""}"{field.name}":')
            text = SQL("{} || {}").format(key, SQL("coalesce({}, 'null')").format(value) if field.nullable else value)
            if field.is_spare:
                text = SQL("case when {} is null then {} else '' end").format(columns[0], text)
            elif parts and self.importable and field.own is None and (condition := named(field.type).unimportable):
                text = SQL("case when {} then '' else {} end").format(SQL(condition).format(column), text)
            parts.append(text)
        for step, records in children:
            array = SQL("{} || coalesce(substr({}, 2), '') || ']'").format(Literal(f',"{step.name}":['), records)
            parts.append(with_children(head, array))
        return self.headed(parts, head) if head else concatenated([Literal(",{"), *parts, Literal("}")])

    def headed(self, parts: Sequence[Composable], head: Head) -> Composable:
        """Return the text of a record that begins with its operation and its name."""
        name = SQL("""'"id":' || {}""").format(self.value(*head.name))
        record = concatenated([SQL("coalesce({} || ',', '')").format(name), *parts, Literal("}")])
        if head.operation is None:
            return SQL("',{{' || {}").format(record)
        start = SQL("""',{{"@operation":"' || {} || '",'""").format(head.operation)
        return SQL("{} || case when {} = 'delete' then {} || '}}' else {} end").format(start, head.operation, name, record)

    def value(self, field: ExportField, column: Composable) -> Composable:
        """Return the JSON text of a value."""
        if field.lookup:
            return SQL("to_json({})::text").format(lookup_of(field, column))
        type = named(field.type)
        if type.kind == "decimal" and field.column.field.precision is None:  # it may be too long for readers of JSON
            quoted = SQL("""'"' || {0}::text || '"'""").format(column)
            return SQL("case when length({0}::text) > {1} then {2} else {3} end").format(
                column, Literal(LONGEST_NUMBER), quoted, SQL(type.json).format(column)
            )
        if type.is_total:
            return SQL(type.json).format(column)
        return SQL("""'"' || {} || '"'""").format(text_of(field, column))


async def write(export: ExportRequest, reader: Reader) -> AsyncGenerator[bytes, None]:
    """Yield the collection, one record on a line, then the expanded collections that are not its children."""
    for number, (name, statement) in enumerate(content.collections(export, JsonRecords())):
        # the exported entity's name may come twice: an import continues a repeated collection
        async for block in _collection(reader, ("," if number else "{") + f'"{name}":[', statement):
            yield block
    yield b"}\n"


async def _collection(reader: Reader, start: str, statement: Statement) -> AsyncGenerator[bytes, None]:
    """Yield an array that begins with `start`.  The first record loses the comma before it."""
    first = True
    async for block in reader.rows(statement):
        yield start.encode() + b"\n" + block[1:] if first else block
        first = False
    yield start.encode() + b"]" if first else b"]"
