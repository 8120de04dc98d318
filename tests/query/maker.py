"""Draws random well-typed OData expressions over the fields and values of the samples."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from hypothesis import strategies as st

from tests.chance import examples
from tests.query import oracle, samples
from tests.query.oracle import Sample

BOUNDED = examples(250)
DEEP = 3  # of an expression

POOLS = {
    "text": samples.TEXTS,
    "whole": (*samples.NUMBERS, *samples.LARGE, 2**63, -(2**64), 10, 60),
    "bool": (True, False),
    "day": samples.DAYS,
    "clock": samples.CLOCKS,
    "moment": samples.MOMENTS,
}
DECIMALS = (
    "0.0",
    "1.0",
    "-1.0",
    "0.5",
    "-2.5",
    "0.0001",
    "2e0",
    "25e-1",
    "1e20",
    "9999999999999999999.9999",
    "123456789.987654321",
)
ORDERED = tuple(samples.FIELDS)
NUMBERS = ("whole", "decimal")
MEETS = {"whole": NUMBERS, "decimal": NUMBERS, "day": ("day", "moment"), "moment": ("moment", "day")}  # comparable types


def written(type: str, value: object) -> str:
    """The literal of a value."""
    if type == "text":
        return "'" + str(value).replace("'", "''") + "'"
    if type == "bool":
        return str(value).lower()
    return f"{value.isoformat()}Z" if type == "moment" else value.isoformat() if type in ("day", "clock") else str(value)  # type: ignore[attr-defined]


@dataclass
class Maker:
    """Draws expressions.  variables: of the enclosing lambdas; '' is the row itself."""

    draw: st.DrawFn
    variables: tuple[str, ...] = ("",)

    def choose(self, *choices: str) -> str:
        return self.draw(st.sampled_from(choices))

    def start(self) -> tuple[str, int]:
        """A variable, and the number of parents to go up from its row."""
        return self.choose(*self.variables), self.draw(st.sampled_from((0, 0, 0, 1, 1, 2)))

    def literal(self, type: str) -> Sample:
        if type == "decimal":
            text = self.choose(*DECIMALS)
            return oracle.constant(text, Fraction(text))
        value = self.draw(st.sampled_from(POOLS[type]))
        return oracle.constant(written(type, value), value)

    def leaf(self, type: str) -> Sample:
        if self.choose("literal", "field", "field") == "literal":
            return self.literal(type)
        return oracle.path(*self.start(), self.choose(*samples.FIELDS[type]))

    def make(self, type: str, depth: int = DEEP) -> Sample:
        """An expression of a type."""
        if depth == 0 or self.draw(st.integers(0, 3)) == 0:
            return self.leaf(type)
        made: Sample = getattr(self, type)(depth - 1)
        return made

    def text(self, depth: int) -> Sample:
        match self.choose("tolower", "toupper", "trim", "concat", "substring", "cast"):
            case "concat":
                return oracle.call("concat", self.make("text", depth), self.make("text", depth))
            case "substring":
                numbers = [self.make("whole", depth) for _ in range(self.draw(st.integers(1, 2)))]
                return oracle.call("substring", self.make("text", depth), *numbers)
            case "cast":
                return oracle.casting(self.make("whole", depth), "String", str)
            case name:
                return oracle.call(name, self.make("text", depth))

    def whole(self, depth: int) -> Sample:
        match self.choose("length", "indexof", "part", "part", "clock", "count", "cast", "add", "sub", "mul", "div", "mod", "-"):
            case "length":
                return oracle.call("length", self.make("text", depth))
            case "indexof":
                return oracle.call("indexof", self.make("text", depth), self.make("text", depth))
            case "part":
                name = self.choose("year", "month", "day", "quarter", "week", "dayofweek")
                return oracle.call(name, self.make(self.choose("day", "moment"), depth))
            case "clock":
                return oracle.call(self.choose("hour", "minute", "second"), self.make(self.choose("clock", "moment"), depth))
            case "count":
                return oracle.size(*self.start())
            case "cast":
                return oracle.casting(self.make("text", depth), "Int64", oracle.to_whole)
            case operator:
                return self.arithmetic(operator, "whole", "whole", depth)

    def decimal(self, depth: int) -> Sample:
        match self.choose("round", "floor", "ceiling", "cast", "add", "sub", "mul", "div", "mod", "-"):
            case ("round" | "floor" | "ceiling") as name:
                return oracle.call(name, self.make(self.choose(*NUMBERS), depth))
            case "cast":
                return oracle.casting(self.make("text", depth), "Decimal", oracle.to_decimal)
            case operator:
                types = self.draw(st.sampled_from([("decimal", "decimal"), ("whole", "decimal"), ("decimal", "whole")]))
                return self.arithmetic(operator, *types, depth)

    def arithmetic(self, operator: str, left: str, right: str, depth: int) -> Sample:
        if operator == "-":
            return oracle.minus(self.make(left, depth))
        first, second = self.make(left, depth), self.make(right, depth)
        if operator in ("div", "mod") and second.level == oracle.PRIMARY and second.text[-1].isdigit() and not float(second.text):
            second = oracle.constant("3" if right == "whole" else "3.0", Fraction(3))  # a literal zero as divisor is an error
        if operator == "div":
            of = oracle.whole_quotient if (left, right) == ("whole", "whole") else oracle.quotient
            return oracle.binary("div", first, second, lambda a, b: None if None in (a, b) else of(a, b))
        return oracle.binary(operator, first, second)

    def bool(self, depth: int) -> Sample:
        match self.choose(*["compare"] * 4, "null", "in", "contains", "startswith", "endswith", "any", "all", "and", "or", "not"):
            case "compare":
                type = self.choose(*ORDERED)
                sides = self.make(type, depth), self.make(self.choose(*MEETS.get(type, (type,))), depth)
                return oracle.binary(self.choose("eq", "ne", "gt", "ge", "lt", "le"), *sides)
            case "null":
                return self.null(depth)
            case "in":
                type = self.choose(*ORDERED)
                values = [self.literal(type) for _ in range(self.draw(st.integers(1, 4)))]
                nulls = [oracle.constant("null", None)] * self.draw(st.integers(0, 1))
                return oracle.membership(self.make(type, depth), values + nulls)
            case ("contains" | "startswith" | "endswith") as name:
                return oracle.call(name, self.make("text", depth), self.make("text", depth))
            case ("any" | "all") as quantifier:
                start, name = self.start(), f"v{len(self.variables)}"
                inner = Maker(self.draw, (*self.variables, name))
                return oracle.quantified(*start, quantifier, name, inner.make("bool", depth))
            case "not":
                return oracle.negation(self.make("bool", depth))
            case operator:
                return oracle.binary(operator, self.make("bool", depth), self.make("bool", depth))

    def null(self, depth: int) -> Sample:
        """A comparison with null."""
        if self.choose("reference", "value") == "reference":
            return oracle.parentless(*self.start())
        sides = self.make(self.choose(*ORDERED), depth), oracle.constant("null", None)
        operator = self.choose("eq", "ne", "gt", "le")
        return oracle.binary(operator, *(sides if self.choose("left", "right") == "left" else sides[::-1]))

    def day(self, depth: int) -> Sample:
        match self.choose("date", "cast", "boundary"):
            case "date":
                return oracle.call("date", self.make(self.choose("day", "moment"), depth))
            case "cast":
                return oracle.casting(self.make("moment", depth), "Date", lambda when: when.date())
            case _:
                return oracle.call(self.choose("startOf", "endOf") + self.choose("Year", "Month", "Day"), self.make("day", depth))

    def clock(self, depth: int) -> Sample:
        return oracle.call("time", self.make("moment", depth))

    def moment(self, depth: int) -> Sample:
        unit = self.choose("Year", "Month", "Day", "Hour")
        return oracle.call(self.choose("startOf", "endOf") + unit, self.make("moment", depth))
