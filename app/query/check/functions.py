"""The function table: argument types, result type and SQL of every function and arithmetic operator.

Each template is total: where PostgreSQL would raise an error, it gives null, because the planner may evaluate it on rows of another
company.  Arithmetic is numeric, which cannot overflow within the bounds that the checker enforces.
"""

from __future__ import annotations

from app.query.check.tree import INTEGERS, NUMBERS, Function, Type
from app.types import ENDLESS, SHOWN_DURATION, TYPES, Name

# White space by Unicode.
SPACES = (
    r"U&' \0009\000A\000B\000C\000D\0085\00A0\1680\2000\2001\2002\2003\2004\2005\2006\2007\2008\2009\200A\2028\2029\202F\205F\3000'"
)

# Unicode's simple case mapping, in a database of any locale; the result compares by code point.
CASE = '({} ({{0}} collate "pg_catalog"."pg_c_utf8") collate "C")'

# Nearer to zero a number becomes the double 0, from the other bound on it is out of their range.
LEAST_DOUBLE, BEYOND_DOUBLES = "5e-324", "1.797693134862315e308"

PARTS = {
    "year": "year",
    "month": "month",
    "day": "day",
    "quarter": "quarter",
    "week": "week",
    "dayofweek": "isodow",
}
CLOCK = {"hour": "extract(hour from {0})", "minute": "extract(minute from {0})", "second": "floor(extract(second from {0}))"}

LOCAL = "({0} at time zone 'UTC')"

# startOf... and endOf... are computed within these bounds, where their result is a valid timestamp.
FIRST_MOMENT = "4713-01-01 00:00:00+00 BC"
LAST_MOMENT = "294275-12-31 23:59:59+00"
DAYS = f"case when {{{{0}}}} between date '{FIRST_MOMENT}' and date '{LAST_MOMENT}' then {{}} end"
MOMENTS = (
    f"case when {{{{0}}}} between timestamptz '{FIRST_MOMENT}' and timestamptz '{LAST_MOMENT}' then ({{}} at time zone 'UTC') end"
)


def _text() -> list[Function]:
    return [
        Function("contains", ("text", "text"), "bool", "(strpos({0}, {1}) > 0)"),
        Function("startswith", ("text", "text"), "bool", "starts_with({0}, {1})"),
        Function("endswith", ("text", "text"), "bool", "starts_with(reverse({0}), reverse({1}))"),
        Function("tolower", ("text",), "text", CASE.format("lower")),
        Function("toupper", ("text",), "text", CASE.format("upper")),
        Function("concat", ("text", "text"), "text", "({0} || {1})", growing=True),
        Function("indexof", ("text", "text"), "int4", "(strpos({0}, {1}) - 1)"),
        Function("length", ("text",), "int4", "char_length({0})"),
        Function("trim", ("text",), "text", f"btrim({{0}}, {SPACES})"),
        Function("substring", ("text", "integer"), "text", f"substring({{0}} from {_position(1)})"),
        Function(
            "substring",
            ("text", "integer", "integer"),
            "text",
            f"substring({{0}} from {_position(1)} for {_length(2)})",
        ),
    ]


def _position(argument: int) -> str:
    """The first character for PostgreSQL's substring, which counts from 1, of an argument that counts from 0."""
    this = f"{{{argument}}}"
    return f"case when {this} < 0 then 1 when {this} > 2147483646 then 2147483647 else {this}::int4 + 1 end"


def _length(argument: int) -> str:
    this = f"{{{argument}}}"
    return f"case when {this} < 0 then 0 when {this} > 2147483647 then 2147483647 else {this}::int4 end"


def _arithmetic() -> list[Function]:
    whole, number = ("integer", "integer"), ("number", "number")
    functions = []
    for name, template in (("add", "({0} + {1})"), ("sub", "({0} - {1})"), ("mul", "({0} * {1})")):
        functions.append(Function(name, whole, "whole", template, growing=True))
        functions.append(Function(name, number, "numeric", template, growing=True))
    return [
        *functions,
        Function("div", whole, "whole", "div({0}, nullif({1}, 0))", partial=True, growing=True),
        Function("div", number, "numeric", "({0} / nullif({1}, 0))", partial=True, growing=True),
        Function("mod", whole, "whole", "mod({0}, nullif({1}, 0))", partial=True, growing=True),
        Function("mod", number, "numeric", "mod({0}, nullif({1}, 0))", partial=True, growing=True),
        Function("-", ("integer",), "whole", "(- {0})", growing=True),
        Function("-", ("number",), "numeric", "(- {0})", growing=True),
        Function("round", ("number",), "numeric", "round({0})"),
        Function("floor", ("number",), "numeric", "floor({0})"),
        Function("ceiling", ("number",), "numeric", "ceil({0})"),
    ]


def _calendar() -> list[Function]:
    functions = []
    for name, part in PARTS.items():
        functions.append(Function(name, ("date",), "whole", f"extract({part} from {{0}})", partial=True))
        functions.append(Function(name, ("timestamptz",), "whole", f"extract({part} from {LOCAL})", partial=True))
    for name, template in CLOCK.items():
        functions.append(Function(name, ("time",), "whole", template))
        functions.append(Function(name, ("timestamptz",), "whole", template.format(LOCAL), partial=True))
    for unit in ("Year", "Month", "Day", "Hour"):
        part = unit.lower()
        first = f"date_trunc('{part}', {LOCAL})"
        last = f"({first} + interval '1 {part}' - interval '1 microsecond')"
        functions.append(Function(f"startOf{unit}", ("timestamptz",), "timestamptz", MOMENTS.format(first), partial=True))
        functions.append(Function(f"endOf{unit}", ("timestamptz",), "timestamptz", MOMENTS.format(last), partial=True))
        if unit != "Hour":
            day = f"date_trunc('{part}', {{0}}::timestamp)"
            last = f"({day} + interval '1 {part}' - interval '1 day')"
            functions.append(Function(f"startOf{unit}", ("date",), "date", DAYS.format(f"{day}::date"), partial=True))
            functions.append(Function(f"endOf{unit}", ("date",), "date", DAYS.format(f"{last}::date"), partial=True))
    return [
        *functions,
        Function("date", ("date",), "date", "{0}"),
        Function("date", ("timestamptz",), "date", f"{LOCAL}::date"),
        Function("time", ("timestamptz",), "time", f"{LOCAL}::time", partial=True),
        Function("now", (), "timestamptz", "now()"),
    ]


FUNCTIONS: dict[str, list[Function]] = {}
for _function in (*_text(), *_arithmetic(), *_calendar()):
    FUNCTIONS.setdefault(_function.name, []).append(_function)

# OData functions that the service does not support: the error differs from that of a misspelt name.
UNSUPPORTED = frozenset(
    (
        *("isof", "fractionalseconds", "totaloffsetminutes", "totalseconds", "mindatetime", "maxdatetime"),
        *("matchespattern", "case", "hassubset", "hassubsequence"),
    )
)

# Operators of the SQL-like filter.  The checker refuses a pattern that ends with an unfinished escape, an error in PostgreSQL.
PATTERNS = {
    "like": Function("LIKE", ("text", "text"), "bool", "({0} like {1})"),
    "ilike": Function("ILIKE", ("text", "text"), "bool", '({0} collate "pg_catalog"."pg_c_utf8" ilike {1})'),
}


def _aggregates() -> list[Function]:
    sums: list[tuple[str, Type]] = [
        ("int2", "int8"),
        ("int4", "int8"),
        ("int8", "whole"),
        ("whole", "whole"),
        ("number", "numeric"),
    ]
    ordered: tuple[Type, ...] = (
        *(each.name for each in TYPES.values() if each.kind not in ("text", "bool", "uuid", "binary")),
        "whole",
    )
    functions = [Function("sum", (type,), total, "sum({0})", partial=True) for type, total in sums]
    for name in ("avg", "average"):
        functions += [Function(name, (type,), "numeric", "avg({0})", partial=True) for type, _ in sums]
    for name, truth in (("min", "bool_and"), ("max", "bool_or")):
        functions += [Function(name, (type,), type, f"{name}({{0}})", partial=True) for type in ordered]
        functions.append(Function(name, ("text",), "text", f'{name}({{0}} collate "C")', partial=True))
        functions.append(Function(name, ("bool",), "bool", f"{truth}({{0}})", partial=True))
    return [
        *functions,
        Function("count", ("any",), "int8", "count({0})"),
        Function("countdistinct", ("any",), "int8", "count(distinct {0})"),
    ]


# Aggregate functions of $apply, over the values of a group that are not null.
AGGREGATES: dict[str, list[Function]] = {}
for _function in _aggregates():
    AGGREGATES.setdefault(_function.name, []).append(_function)
ROWS = Function("$count", (), "int8", "count(*)")
# OData's value of a column that shows some values as others, or as null (app/types)
SHOWN = {
    each.name: Function("shown", (each.name,), each.name, each.compared, partial=each.kind == "duration")
    for each in TYPES.values()
    if each.compared
}
PRESENT = Function("present", ("any",), "bool", "nullif({0} is not null, false)", partial=True)

# Conversions that the checker inserts.  BOUNDED makes null of a numeric too large for arithmetic.
NUMERIC = Function("numeric", ("number",), "numeric", "{0}::text::numeric")  # of a double; the cast itself keeps 15 digits
DOUBLE = Function("double", ("integer",), "float8", "{0}::float8")
WHOLE = Function("numeric", ("integer",), "whole", "{0}::numeric")
BOUNDED = Function("numeric", ("number",), "numeric", "case when abs({0}) < 1e308::numeric then {0} end", partial=True)
WITHOUT_ZONE = Function("local", ("timestamptz",), "timestamp", LOCAL)

# What PostgreSQL reads in place of a text in OData's notation: without digits beyond microseconds, which it would round, and a
# duration with its sign before each part, not before the whole: a sign that is there already is turned.
_CUT = "regexp_replace({0}, '(?<=[.][0-9]{{6}})[0-9]+', '')"
_TURNED = "translate(regexp_replace(translate(substr({0}, 2), '-+', '~'), '(?<=[PYMWDTH])(?=[0-9])', '-', 'g'), '~', '')"
REWRITTEN: dict[Name, str] = {
    "time": _CUT,
    "timestamptz": _CUT,
    "interval": f"(case when starts_with({{0}}, '-') then {_TURNED} else ltrim({{0}}, '+') end)",
}
LIMITED: dict[Name, str] = {"numeric": "abs({0}) < 1e308::numeric", "timestamptz": f"not ({ENDLESS})"}

EDM: dict[str, Name] = {each.edm: each.name for each in TYPES.values()}  # targets of casts by OData's names


def cast(source: Type, target: Name) -> Function | None:
    """Return the cast function, which gives null for a value that cannot be cast; None if no value of `source` can be cast."""
    template = _cast(source, target)
    return Function("cast", ("any",), target, template, partial=True) if template else None


def _cast(source: Type, target: Name) -> str | None:
    match source, target:
        case _, _ if source == target:
            return "{0}"
        case ("bytea", _) | (_, "bytea"):
            return None
        case "timestamptz", "text":
            return f'to_char({LOCAL}, \'YYYY-MM-DD"T"HH24:MI:SS.US"Z"\')'
        case "interval", "text":
            return f'({SHOWN_DURATION} collate "C")'
        case _, "text":
            return '({0}::text collate "C")'
        case "text", "bool":
            return "case {0} when 'true' then true when 'false' then false end"
        case "text", _:
            return _read(target)
        case "float8", "numeric":
            return NUMERIC.template
        case _, "numeric" if source in NUMBERS:
            return "{0}::numeric"
        case (("numeric" | "whole"), "float8"):
            return f"case when abs({{0}}) < {LEAST_DOUBLE} then 0 when abs({{0}}) < {BEYOND_DOUBLES} then {{0}}::float8 end"
        case _, "float8" if source in NUMBERS:
            return DOUBLE.template
        case _, _ if target in INTEGERS and source in NUMBERS:
            low, high = TYPES[target].limits or (0, 0)
            # the last bound is one beyond: a double is 2^63 or far below it, never the greatest integer
            return f"case when trunc({{0}}) >= {low} and trunc({{0}}) < {high + 1} then trunc({{0}})::{target} end"
        case "timestamptz", "date" | "time":
            return f"{LOCAL}::{target}"
        case "date", "timestamptz":
            return "case when {0} < date '294276-01-01' then ({0}::timestamp at time zone 'UTC') end"
    return None


def _read(target: Name) -> str:
    """Read a text in OData's notation of the type: its value is that of the literal, as OData shows it.

    It is null for other texts, for numbers too large for arithmetic, and for moments outside the years 1 to 9999.  PostgreSQL also
    accepts other forms, such as 'now', 'Jan 5 2026' and ' 0x1F '.
    """
    type, text = TYPES[target], REWRITTEN.get(target, "{0}")
    form = type.form.replace("{", "{{").replace("}", "}}")
    valid = f"{{0}} collate \"C\" ~ '^({form})$' and pg_input_is_valid({text}, '{target}')"
    value = f"{text}::{target}"
    if target in LIMITED:
        return f"case when not ({valid}) then null when {LIMITED[target].replace('{0}', value)} then {value} end"
    return f"case when {valid} then {(type.compared or '{0}').replace('{0}', value)} end"


def accepts(parameter: str, type: Type) -> bool:
    """Whether a parameter accepts an argument of this type.  Every parameter accepts null."""
    match parameter:
        case "any":
            return True
        case "number":
            return type in NUMBERS or type == "null"
        case "integer":
            return type in INTEGERS or type == "null"
    return type in (parameter, "null")
