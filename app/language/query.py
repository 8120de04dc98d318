"""A query as one value: what OData's options, or the parameters of other interfaces, ask of one entity.

Everything that reads rows (OData, /c, export) compiles a Query; nobody else knows what the options looked like.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from app.catalog import Catalog, Entity, Field
from app.errors import QueryError
from app.language import odata
from app.language.cache import Cache
from app.language.check_odata import OData
from app.language.tree import Call, Column, Comparison, Constant, Expression, IsNull, Junction, Membership, Not, Order, Path
from app.language.unify import unify

# The options that each kind of path takes.
OPTIONS = "$filter $select $orderby $top $skip $count $search $format $expand $apply $compute $levels $deltatoken $skiptoken"
COLLECTION = frozenset(OPTIONS.split())
ROW = frozenset(("$select", "$expand", "$format", "$compute", "$levels"))
COUNT = frozenset(("$filter", "$search", "$format"))

UNSUPPORTED = frozenset(("$expand", "$apply", "$compute", "$levels", "$deltatoken", "$skiptoken"))

# Of $top and $skip; more is the same as this, for no collection is as long.
LARGEST_PAGE = 10**15

LONG = 2_000  # characters of options that are not worth keeping

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked: conditions, fields, order and page over one entity."""

    catalog: Catalog
    entity: Entity
    filter: Expression | None = None
    select: tuple[Field, ...] | None = None  # None: every field
    order: tuple[Order, ...] = ()  # the id follows by itself
    top: int | None = None
    skip: int = 0
    count: bool = False  # the total without page is asked for
    search: bool = False  # a $search was given, which has no effect
    single: bool = False  # restricted to one row by a key
    nested: bool = False  # child collections come with their rows
    parts: tuple[Expression, ...] = field(init=False)  # every node of the filter and the order
    entities: tuple[str, ...] = field(init=False)  # all that it reads, its own first
    volatile: bool = field(init=False)  # the answer depends on the time too: now()

    def __post_init__(self) -> None:
        parts = tuple(part for root in (self.filter, *(order.key for order in self.order)) if root for part in walk(root))
        ways = (step.target for part in parts if isinstance(part, Column) for step in part.way)
        children = (child.target for child in self.entity.children) if self.nested else ()
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "entities", tuple(dict.fromkeys((self.entity.name, *ways, *children))))
        object.__setattr__(self, "volatile", any(isinstance(part, Call) and part.function.name == "now" for part in parts))

    @property
    def shape(self) -> Hashable:
        """Equal for queries that differ in values only, hence are the same SQL."""
        return (
            *(self.catalog.version, self.entity.name, self.filter, self.order),
            *(self.select, self.top is None, self.skip == 0, self.count, self.single),
        )


def parse_query(
    catalog: Catalog,
    entity: Entity,
    options: Sequence[tuple[str, str]],
    *,
    key: str | None = None,
    takes: frozenset[str] | None = None,
) -> Query:
    """The query of OData's options, decoded, in their order; those without $ are ignored.

    `key` is the text between the parentheses of a path to one row; `takes` are the options that the path takes: COLLECTION, ROW
    (with a key), COUNT.  Raises QueryError with the option as its target ("key" for the key), and the position in its value.
    """
    takes = takes or (ROW if key is not None else COLLECTION)
    if sum(len(value) for _, value in options) > LONG:
        return _parse(catalog, entity, options, key, takes)
    given = (catalog.version, entity.name, tuple(options), key, takes)
    return _queries.get(given, lambda: _parse(catalog, entity, options, key, takes))


def _parse(catalog: Catalog, entity: Entity, options: Sequence[tuple[str, str]], key: str | None, takes: frozenset[str]) -> Query:
    given = _given(options, takes)
    checker = OData(catalog, entity)
    with about("key"):
        condition = _key(checker, key) if key is not None else None
    filter = _option(given, "$filter", lambda text: checker.condition(odata.parse_filter(text)))
    _option(given, "$search", odata.parse_search)
    return Query(
        catalog,
        entity,
        filter=condition or filter,
        select=_option(given, "$select", lambda text: _select(entity, text)),
        order=_option(given, "$orderby", lambda text: checker.order(odata.parse_orderby(text))) or (),
        top=_option(given, "$top", _page),
        skip=_option(given, "$skip", _page) or 0,
        count=_option(given, "$count", _truth) or False,
        search="$search" in given,
        single=key is not None,
    )


_queries: Cache[Query] = Cache(1_000)


@contextmanager
def about(target: str) -> Iterator[None]:
    """Names the option or parameter that a QueryError raised here is about."""
    try:
        yield
    except QueryError as error:
        error.target = target
        raise


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and everything in it."""
    yield expression
    match expression:
        case Call(arguments=parts) | Junction(operands=parts):
            pass
        case Comparison(left=left, right=right):
            parts = (left, right)
        case Not(operand=part) | IsNull(operand=part) | Membership(operand=part):
            parts = (part,)
        case _:
            parts = ()
    for part in parts:
        yield from walk(part)


def _given(options: Sequence[tuple[str, str]], takes: frozenset[str]) -> dict[str, str]:
    """The options that begin with $, each once, known, supported and of this path."""
    given: dict[str, str] = {}
    for name, value in options:
        if not name.startswith("$"):
            continue
        if name not in COLLECTION:
            hint = f": it is written {name.lower()}" if name.lower() in COLLECTION else ""
            raise QueryError(f"there is no option {name}{hint}", target=name)
        if name in given:
            raise QueryError(f"{name} is given twice", target=name)
        if name in UNSUPPORTED:
            raise QueryError(f"{name} is not supported", target=name, code="not_supported")
        if name not in takes:
            raise QueryError(f"{name} cannot be given here", target=name)
        given[name] = value
    return given


def _option(given: dict[str, str], name: str, read: Callable[[str], T]) -> T | None:
    """What `read` makes of the option; None if it is not given."""
    if name not in given:
        return None
    with about(name):
        return read(given[name])


def _page(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise QueryError("expected a whole number from 0", position=1)
    return min(int(text[-16:]) if not text[:-16].strip("0") else LARGEST_PAGE, LARGEST_PAGE)


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise QueryError("expected true or false", position=1)
    return text == "true"


def _select(entity: Entity, text: str) -> tuple[Field, ...] | None:
    items = odata.parse_select(text)
    fields = tuple(dict.fromkeys(_selected(entity, path) for path in items if path))
    return None if None in items else fields


def _selected(entity: Entity, path: Path) -> Field:
    first, *rest = path.names
    if first.text in entity.navigations:
        raise QueryError(f"{first.text} is a navigation property; expected a field", position=first.at)
    if first.text not in entity.fields:
        raise QueryError(f"{entity.name} has no field {first.text}", position=first.at)
    if rest:
        raise QueryError(f"{first.text} is no navigation property: nothing follows it", position=rest[0].at)
    return entity.fields[first.text]


def _key(checker: OData, text: str) -> Expression:
    """The row of a key: `12`, `id=12`, or any field that is unique, `code='A1'`."""
    values = odata.parse_key(text)
    if len(values) > 1:
        raise QueryError("expected one key", position=(values[1][0] or values[1][1]).at)
    name, literal = values[0]
    entity = checker.entity
    field = entity.fields.get(name.text if name else "id")
    if field is None or not (field.unique or field.name == "id"):
        at = (name or literal).at
        known = ", ".join(dict.fromkeys(("id", *(each.name for each in entity.alternate_keys))))
        raise QueryError(f"expected a key of {entity.name}: {known}", position=at)
    value = checker.check(literal)
    if isinstance(value, Constant) and value.value is None:
        raise QueryError("expected a value", position=literal.at)
    left, right = unify(literal.at, Column(literal.at, field.type, (), field), value)
    return Comparison(literal.at, "bool", "eq", left, right, True)
