"""XML of the same shape as an import document, and the XML schema that it is valid against."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from xml.sax.saxutils import quoteattr

from psycopg.sql import SQL, Composable, Composed, Literal

from app.database.catalog import Navigation
from app.export import content
from app.export.read import Reader
from app.export.request import ExportRequest
from app.export.row_formats import CONTROLS, PLAIN, Head, concatenated, escaped, lookup_of, text_of, with_children
from app.export.shape import ExportField, RecordShape
from app.mapper.exported import LOST, ROOT
from app.types import TYPES, named

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
OPTIONAL = ' minOccurs="0"'
QUOTES = {'"': "&quot;"}


class XmlRecords:
    """An element for each record, with an element for each field: <variant><code>A1</code></variant>."""

    copy = PLAIN
    has_lookups = True

    def record(
        self,
        shape: RecordShape,
        columns: Sequence[Composable],
        children: Sequence[tuple[Navigation, Composable]],
        head: Head | None = None,
    ) -> Composable:
        parts: list[Composable] = []
        for field, column in zip(shape.fields, columns, strict=True):
            if field.is_spare:
                parts += self.spare(field, column, shape.fields[0], columns[0])
                continue
            element, nil = self.element(field, column), Literal(f'<{field.name} xsi:nil="true"/>')
            parts.append(SQL("coalesce({}, {})").format(element, nil) if field.nullable else element)
        for step, records in children:
            start_tag, end_tag = Literal(f"<{step.name}>"), Literal(f"</{step.name}>")
            collection = SQL("{} || coalesce({}, '') || {}").format(start_tag, records, end_tag)
            parts.append(with_children(head, collection))
        start, end = Literal(f"<{shape.name}>"), Literal(f"</{shape.name}>")
        if head is None:
            return concatenated([start, *parts, end])
        name = SQL("coalesce({}, '')").format(self.element(*head.name))
        if head.operation is None:
            return concatenated([start, name, *parts, end])
        fields = SQL("case when {} = 'delete' then '' else {} end").format(head.operation, concatenated(parts))
        return concatenated([Literal(f'<{shape.name} operation="'), head.operation, Literal('">'), name, fields, end])

    def element(self, field: ExportField, column: Composable) -> Composed:
        """Return a value in the element of its field; null if it is null."""
        text = lookup_of(field, column) if field.lookup else text_of(field, column)
        text = escaped(text) if field.type == "text" else text
        return concatenated([Literal(f"<{field.name}>"), text, Literal(f"</{field.name}>")])

    def spare(self, id: ExportField, column: Composable, key: ExportField, name: Composable) -> Iterator[Composable]:
        """Yield the element of an id that stands beside a name which is null, or which no import can read."""
        if not is_spare_needed(key):
            return
        conditions = [SQL("{} is null").format(name)] if key.nullable else []
        conditions += [SQL("{} ~ {}").format(name, Literal(f"[{CONTROLS}{LOST}]"))] if key.type == "text" else []
        yield SQL("case when {} then {} else '' end").format(SQL(" or ").join(conditions), self.element(id, column))


def is_spare_needed(key: ExportField) -> bool:
    """Whether a record with this identifying field may need its id, too."""
    return key.nullable or key.type == "text"


async def write(export: ExportRequest, reader: Reader) -> AsyncGenerator[bytes, None]:
    """Yield the document: one collection, or several inside a root element."""
    collections = content.collections(export, XmlRecords())
    instance = "http://www.w3.org/2001/XMLSchema-instance"
    attributes = f' xmlns:xsi="{instance}" xsi:noNamespaceSchemaLocation={quoteattr(export.schema, QUOTES)}'
    is_single = _is_single([name for name, _ in collections])
    yield HEAD.encode() if is_single else f"{HEAD}<{ROOT}{attributes}>\n".encode()
    for name, statement in collections:
        yield f"<{name}{attributes}>\n".encode() if is_single else f"<{name}>\n".encode()
        async for block in reader.rows(statement):
            yield block
        yield f"</{name}>\n".encode()
    if not is_single:
        yield f"</{ROOT}>\n".encode()


def _is_single(names: Sequence[str]) -> bool:
    """Whether the collections of these names need no root element around them."""
    return len(names) == 1 and names[0] != ROOT


# The schema -----------------------------------------------------------------------------------------------------------------------


def schema(export: ExportRequest) -> bytes:
    """Return the XML schema of what `write` yields."""
    records, changed = content.records(export), export.since is not None
    lines = [f'{HEAD}<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" elementFormDefault="qualified">']
    lines += _simple_types()
    if _is_single([record.entity.name for record in records]):
        lines += _collection(export.entity.name, records[0], changed)
    else:
        lines += _complex(ROOT, (line for record in records for line in _collection(record.entity.name, record, changed)))
    return "\n".join([*lines, "</xs:schema>\n"]).encode()


def _simple_types() -> Iterator[str]:
    """Yield a type for each type with special values: those of XML Schema, or one of the special ones."""
    for type in TYPES.values():
        if not type.xsd_extra:
            continue
        words = "".join(f'<xs:enumeration value="{value}"/>' for value in type.xsd_extra)
        yield (
            f'<xs:simpleType name="{type.name}"><xs:union memberTypes="{type.xsd}">'
            f'<xs:simpleType><xs:restriction base="xs:string">{words}</xs:restriction></xs:simpleType></xs:union></xs:simpleType>'
        )


def _collection(name: str, record: RecordShape, changed: bool, occurs: str = "") -> Iterator[str]:
    """Yield a collection.  changed: records say their operation and name, and may lack everything else."""
    optional = OPTIONAL if changed else ""
    inside = [f'<xs:element name="id" type="{TYPES["text"].xsd}"{OPTIONAL}/>'] if changed else []
    for field in record.fields:
        if not field.is_spare or is_spare_needed(record.fields[0]):
            inside += _field(field, OPTIONAL if field.is_spare else optional)
    for child in record.children:
        inside += _collection(child.step.name, child.record, changed, optional)
    attribute = f'<xs:attribute name="operation" type="{TYPES["text"].xsd}"/>' if changed else ""
    yield from _complex(name, _complex(record.name, inside, f'{OPTIONAL} maxOccurs="unbounded"', attribute), occurs)


def _complex(name: str, inside: Iterable[str], occurs: str = "", attribute: str = "") -> Iterator[str]:
    yield f'<xs:element name="{name}"{occurs}><xs:complexType><xs:sequence>'
    yield from inside
    yield f"</xs:sequence>{attribute}</xs:complexType></xs:element>"


def _field(field: ExportField, occurs: str) -> Iterator[str]:
    type = TYPES["text"] if field.lookup else named(field.type)
    written = type.name if type.xsd_extra else type.xsd
    yield f'<xs:element name="{field.name}" type="{written}"{occurs}' + (' nillable="true"/>' if field.nullable else "/>")
