"""Elements of the shape of an import document, and the schema that they are valid against."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator
from xml.sax.saxutils import quoteattr

from app.export import statements
from app.export.forms import Xml, element
from app.export.read import Reader
from app.export.request import Asked
from app.export.shape import Member, Record, plan_record, plan_related

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
ROOT = "document"  # around the collections where there is more than one
TYPES = {
    "bool": "xs:boolean",
    "int2": "xs:short",
    "int4": "xs:int",
    "int8": "xs:long",
    "numeric": "xs:decimal",
    "float8": "xs:double",
    "date": "xs:date",
    "time": "xs:time",
    "timestamptz": "xs:dateTime",
}
# What a column of the type may hold beyond the schema's type, in PostgreSQL's words.
ODD = {
    "numeric": ("NaN", "Infinity", "-Infinity"),
    "float8": ("NaN", "Infinity", "-Infinity"),
    "date": ("infinity", "-infinity"),
    "timestamptz": ("infinity", "-infinity"),
    "time": ("24:00:00",),
}


async def write(asked: Asked, reader: Reader, schema: str) -> AsyncGenerator[bytes, None]:
    """The document.  schema: the URL of its schema."""
    query, company, form = asked.query, asked.company, Xml()
    queries = [(asked.entity.name, statements.records(query, company, form, plan_record(query)))]
    queries += [(each.record.entity.name, statements.related(query, company, form, each)) for each in plan_related(query)]
    about = f' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:noNamespaceSchemaLocation={quoteattr(schema, QUOTES)}>\n'
    start = HEAD if len(queries) == 1 else f"{HEAD}<{ROOT}{about}"
    for name, statement in queries:
        yield f"{start}<{name}{about if len(queries) == 1 else '>'}{'' if len(queries) == 1 else LINE}".encode()
        start = ""
        async for block in reader.rows(statement):
            yield block
        yield f"</{name}>\n".encode()
    if len(queries) > 1:
        yield f"</{ROOT}>\n".encode()


QUOTES = {'"': "&quot;"}
LINE = "\n"


# The schema -----------------------------------------------------------------------------------------------------------------------


def schema(asked: Asked) -> bytes:
    """The XML schema of what `write` gives."""
    query = asked.query
    collections = [(query.entity.name, plan_record(query))]
    collections += [(each.record.entity.name, each.record) for each in plan_related(query)]
    lines = [f'{HEAD}<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" elementFormDefault="qualified">']
    lines += _odd_types()
    if len(collections) == 1:
        lines += _collection(*collections[0], element(query.entity, None), "")
    else:
        inside = (line for name, record in collections for line in _collection(name, record, element(record.entity, None), ""))
        lines += _complex(ROOT, inside)
    return "\n".join([*lines, "</xs:schema>\n"]).encode()


def _odd_types() -> Iterator[str]:
    """For each type that PostgreSQL has more values of than XML: both."""
    for type, values in ODD.items():
        words = "".join(f'<xs:enumeration value="{value}"/>' for value in values)
        yield (
            f'<xs:simpleType name="{type}"><xs:union memberTypes="{TYPES[type]}">'
            f'<xs:simpleType><xs:restriction base="xs:string">{words}</xs:restriction></xs:simpleType></xs:union></xs:simpleType>'
        )


def _collection(name: str, record: Record, each: str, occurs: str) -> Iterator[str]:
    inside = [line for member in record.members for line in _member(member)]
    for child in record.children:
        inside += _collection(child.step.name, child.record, element(child.record.entity, child.step), "")
    yield from _complex(name, _complex(each, inside, ' minOccurs="0" maxOccurs="unbounded"'), occurs)


def _complex(name: str, inside: Iterable[str], occurs: str = "") -> Iterator[str]:
    yield f'<xs:element name="{name}"{occurs}><xs:complexType><xs:sequence>'
    yield from inside
    yield "</xs:sequence></xs:complexType></xs:element>"


def _member(member: Member) -> Iterator[str]:
    type = "xs:string" if member.lookup else member.type if member.type in ODD else TYPES.get(member.type, "xs:string")
    yield f'<xs:element name="{member.name}" type="{type}"' + (' nillable="true"/>' if member.nullable else "/>")
