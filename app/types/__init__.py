"""The types of columns, each in one place: what a value of it is in every API, file and check.

TYPES has an entry for each type that a registered table may have; everything else asks it.

  __init__.py     the table
  exact_json.py   JSON with all digits of its numbers
  literals.py     from a language's notation to PostgreSQL's
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Literal, cast

from app.types import literals

Name = Literal[
    "text", "int2", "int4", "int8", "numeric", "float8", "bool", "date", "time", "timestamptz", "interval", "uuid", "bytea"
]
# Beyond them, in queries: a whole number of any size (the result of integer arithmetic), a timestamp without its zone (in UTC, for
# comparison with a date), and the type of null.
AnyName = Name | Literal["whole", "timestamp", "null"]
Kind = Literal["text", "integer", "decimal", "double", "bool", "date", "time", "timestamp", "duration", "uuid", "binary"]

# Conditions on values that PostgreSQL can hold and JSON, import documents and most files cannot.
ENDLESS = "not ({0} >= '0001-01-01' and {0} < '10000-01-01')"
NOT_FINITE = "{0} in ('NaN', 'Infinity', '-Infinity')"

PLAIN_TEXT = "{0}::text"

_BASE64 = r"translate(encode({0}, 'base64'), E'\n', '')"  # which PostgreSQL writes in lines of 76 characters
_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = "([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,12})?)?"
_EXCEL_BEGAN = "{0} >= '1900-03-01' and {0} <"  # Excel counts a 29 February 1900, which did not exist
_FIFTEEN_DIGITS = (  # a cast of another one to a double may be out of its range
    "case when abs({0}) < 1e15 and scale(trim_scale({0})) <= 15 then {0}::float8::numeric = {0} else false end"
)
LAST_TIME = "23:59:59.999999"  # as which OData shows 24:00, too: Edm.TimeOfDay does not have it
_BEFORE_MIDNIGHT = f"case when {{0}} = '24:00' then '{LAST_TIME}' else {{0}} end"
_WITHOUT_MONTHS = "extract(year from {0}) = 0 and extract(month from {0}) = 0"  # Edm.Duration has neither
_IN_DAYS = (  # days and hours of one sign beyond the range of days stay as they are
    "(case when abs(extract(day from {0})) > 2e9 and extract(hour from {0}) * extract(day from {0}) > 0"
    " then {0} else justify_hours({0}) end)::text"
)
# signs stand before single parts in PostgreSQL, before the whole in OData, which has neither months nor years
SHOWN_DURATION = (
    f"case when {_WITHOUT_MONTHS} then case when {{0}} < '0' then '-' || replace({_IN_DAYS}, '-', '') else {_IN_DAYS} end end"
)
_TO_THE_MILLISECOND = "date_trunc('milliseconds', {0}) = {0}"


@dataclass(frozen=True, slots=True)
class Cell:
    """A spreadsheet's number: its value, the condition that it is exact, how it is shown, and in how many characters at least.

    sample: a value with which a workbook is made to number its formats.
    """

    value: str
    exact: str
    picture: str = ""
    width: int = 0
    sample: date | time | float = 0.0


@dataclass(frozen=True, slots=True)
class ColumnType:
    """One type.  Templates are SQL with the column as {0}.

    name: PostgreSQL's internal one; kind: the family of types that are treated alike; edm: OData's name; label: what pages call it;
    schema: OpenAPI's (JSON Schema); limits: the least and the greatest integer; facets: of $metadata.

    literal: reads a literal in quotes, returns its own type (a number's narrowest one) and its value in PostgreSQL's notation, or
    raises ValueError with the expected form; form: the regular expression of texts that OData's cast reads; python: reads the text
    of a value, for templates.

    compared: what a value is in conditions, groups and the order of OData, where it is shown as another one or as null.

    json: a value in OData and /c, odata: in OData if it differs there; is_total: it is null for no value (else documents have the
    text, in quotes); text: in documents and files; shown: in files that people read; unimportable: a condition on values that no
    import accepts, and that documents leave out.

    xsd: the type of XML Schema; xsd_extra: texts of values that it does not have.

    parquet: the type of Parquet, and the JSON from which a value's bytes are made, null for a value that the type does not hold.

    excel: how a number of the type stands in a cell; None if its cells are not numbers.  Decimals with a scale have templates of
    their own in to_parquet.py and excel_cells.py.
    """

    name: Name
    kind: Kind
    edm: str
    label: str
    schema: Mapping[str, str]
    literal: Callable[[str], tuple[AnyName, str]]
    limits: tuple[int, int] | None = None
    facets: Mapping[str, str] | None = None
    form: str = ""
    python: Callable[[str], Any] | None = None
    compared: str | None = None
    json: str = "to_json({0})::text"
    odata: str | None = None
    is_total: bool = True
    text: str = PLAIN_TEXT
    shown: str = PLAIN_TEXT
    unimportable: str = ""
    xsd: str = "xs:string"
    xsd_extra: tuple[str, ...] = ()
    parquet: tuple[str, str] = ("STRING", "to_json({0}::text)::text")
    excel: Cell | None = None

    @property
    def is_number(self) -> bool:
        return self.kind in ("integer", "decimal", "double")


def _read(type: Name, reader: Callable[[str], str]) -> Callable[[str], tuple[AnyName, str]]:
    return lambda text: (type, reader(text))


def _integer(name: Name, edm: str, bits: int, xsd: str, schema: Mapping[str, str]) -> ColumnType:
    return ColumnType(
        *(name, "integer", edm, "number", schema, literals.whole),
        limits=(-(1 << bits - 1), (1 << bits - 1) - 1),
        form="[-+]?[0-9]+",
        json="{0}::text",
        xsd=xsd,
        parquet=(f"INT{bits}", "{0}::text"),
        excel=Cell("{0}", f"{{0}} > -{10**15} and {{0}} < {10**15}"),  # abs() of the least integer overflows
    )


def _utc(picture: str) -> str:
    """A timestamp as text; to_char writes neither infinity nor years before 1."""
    return f"case when {ENDLESS} then {{0}}::text else to_char({{0}} at time zone 'UTC', '{picture}') end"


_ALL = (
    ColumnType(
        *("text", "text", "Edm.String", "text", {"type": "string"}, _read("text", literals.storable)),
        text="{0}",
        shown="{0}",
        parquet=("STRING", "to_json({0})::text"),
    ),
    _integer("int2", "Edm.Int16", 16, "xs:short", {"type": "integer"}),
    _integer("int4", "Edm.Int32", 32, "xs:int", {"type": "integer"}),
    _integer("int8", "Edm.Int64", 64, "xs:long", {"type": "integer", "format": "int64"}),
    ColumnType(
        *("numeric", "decimal", "Edm.Decimal", "number", {"type": "number"}, literals.number),
        form="[-+]?[0-9]+([.][0-9]+)?([eE][-+]?[0-9]+)?",
        python=Decimal,
        unimportable=NOT_FINITE,
        xsd="xs:decimal",
        xsd_extra=("NaN", "Infinity", "-Infinity"),
        excel=Cell("{0}", _FIFTEEN_DIGITS, "#,##0.00########", 8, 1.5),
    ),
    ColumnType(
        *("float8", "double", "Edm.Double", "number", {"type": "number", "format": "double"}, literals.number),
        form="[-+]?[0-9]+([.][0-9]+)?([eE][-+]?[0-9]+)?",
        unimportable=NOT_FINITE,
        xsd="xs:double",
        xsd_extra=("NaN", "Infinity", "-Infinity"),
        parquet=("DOUBLE", "('x' || encode(float8send({0}), 'hex'))::bit(64)::int8::text"),
        # its cast to numeric keeps 15 digits, and rounds the greatest doubles up to a number that no double holds
        excel=Cell("{0}", "case when {0} > -1e308 and {0} < 1e308 then {0}::numeric::float8 = {0} else false end"),
    ),
    ColumnType(
        *("bool", "bool", "Edm.Boolean", "true or false", {"type": "boolean"}, _read("bool", literals.truth)),
        json="{0}::text",
        xsd="xs:boolean",
        parquet=("BOOLEAN", "{0}::text"),
    ),
    ColumnType(
        *("date", "date", "Edm.Date", "date", {"type": "string", "format": "date"}, literals.day_or_moment),
        form=_DAY,
        python=date.fromisoformat,
        unimportable=ENDLESS,
        xsd="xs:date",
        xsd_extra=("infinity", "-infinity"),
        parquet=("DATE", f"case when {ENDLESS} then null else ({{0}} - date '1970-01-01')::text end"),
        excel=Cell("({0} - date '1899-12-30')", f"{_EXCEL_BEGAN} '10000-01-01'", "yyyy-mm-dd", 11, date(2026, 1, 1)),
    ),
    ColumnType(
        *("time", "time", "Edm.TimeOfDay", "time", {"type": "string", "format": "time"}, _read("time", literals.clock)),
        facets={"Precision": "6"},
        form=f"{_CLOCK}|24:00(:00([.]0{{1,12}})?)?",
        python=time.fromisoformat,
        xsd="xs:time",
        xsd_extra=("24:00:00",),
        compared=_BEFORE_MIDNIGHT,
        odata=f"to_json({_BEFORE_MIDNIGHT})::text",
        parquet=("TIME", "case when {0} < '24:00' then (extract(epoch from {0}) * 1000000)::int8::text end"),
        excel=Cell(
            "round(extract(epoch from {0}) / 86400, 9)", f"{{0}} < '24:00' and {_TO_THE_MILLISECOND}", "hh:mm:ss", 9, time(1)
        ),
    ),
    ColumnType(
        *(
            "timestamptz",
            "timestamp",
            "Edm.DateTimeOffset",
            "time",
            {"type": "string", "format": "date-time"},
            _read("timestamptz", literals.timestamp),
        ),
        facets={"Precision": "6"},
        form=f"{_DAY}[Tt]{_CLOCK}([Zz]|[-+][0-9]{{2}}:[0-9]{{2}})",
        python=datetime.fromisoformat,
        json=r"""to_char({0} at time zone interval '0', '\"YYYY-MM-DD"T"HH24:MI:SS.US"Z"\"')""",
        is_total=False,  # an infinite one has none
        text=_utc('YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        shown=_utc("YYYY-MM-DD HH24:MI:SS"),
        unimportable=ENDLESS,
        xsd="xs:dateTime",
        xsd_extra=("infinity", "-infinity"),
        parquet=("TIMESTAMP", f"case when {ENDLESS} then null else (extract(epoch from {{0}}) * 1000000)::int8::text end"),
        excel=Cell(
            "round(extract(epoch from {0}) / 86400 + 25569, 9)",
            # a later moment would be rounded up to the year 10000, which Excel does not have
            f"{_EXCEL_BEGAN} '9999-12-31 23:59:59.9999' and {_TO_THE_MILLISECOND}",
            *("yyyy-mm-dd hh:mm:ss", 19, datetime(2026, 1, 1)),
        ),
    ),
    ColumnType(
        *("uuid", "uuid", "Edm.Guid", "UUID", {"type": "string", "format": "uuid"}, _read("uuid", literals.uuid)),
        form=literals.UUID_FORM,
    ),
    ColumnType(
        *(
            "interval",
            "duration",
            "Edm.Duration",
            "duration",
            {"type": "string", "format": "duration"},
            _read("interval", literals.duration),
        ),
        form=f"[-+]?{literals.DURATION_FORM}",
        compared=f"case when {_WITHOUT_MONTHS} then {{0}} end",
        odata=f"to_json({SHOWN_DURATION})::text",
    ),
    ColumnType(
        *("bytea", "binary", "Edm.Binary", "base64", {"type": "string", "format": "byte"}, _read("bytea", literals.binary)),
        json=f"""'"' || {_BASE64} || '"'""",
        odata=r"""'"' || translate(encode({0}, 'base64'), E'+/\n', '-_') || '"'""",
        text=_BASE64,
        shown=_BASE64,
        parquet=("STRING", f"to_json({_BASE64})::text"),
    ),
)

TYPES: dict[Name, ColumnType] = {each.name: each for each in _ALL}


def of_kind(*kinds: Kind) -> frozenset[Name]:
    """The names of the types of some kinds."""
    return frozenset(each.name for each in _ALL if each.kind in kinds)


INTEGERS = of_kind("integer")
NUMBERS = of_kind("integer", "decimal", "double")


def named(text: str) -> ColumnType:
    """The type of a name that the database gives."""
    return TYPES[cast(Name, text)]
