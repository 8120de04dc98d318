"""A query as one value: the checked options of a request for rows of one entity.

OData, /c and export each make a Query of their own options; the compiler (sql_select) reads nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from app.database.catalog import Catalog, Entity, Field, Navigation
from app.errors import QueryError
from app.query import parse_odata
from app.query.check_apply import GroupFilterChecker, GroupOrderChecker, Groups, check_apply
from app.query.check_key import Origin, RowKey, read_key
from app.query.check_odata import ODataChecker
from app.query.nodes import Path
from app.query.tree import Call, Column, Constant, Count, Expression, Junction, Membership, Order, Quantifier, walk

# The options that each kind of resource takes.
OPTIONS = "$filter $select $orderby $top $skip $count $search $format $expand $apply $compute $levels $deltatoken $skiptoken"
COLLECTION = frozenset(OPTIONS.split())
ROW = frozenset(("$select", "$expand", "$format", "$compute", "$levels"))
COUNT = frozenset(("$filter", "$search", "$format"))
VALUE = frozenset(("$format",))
REFERENCES = frozenset(("$filter", "$orderby", "$top", "$skip", "$count", "$search", "$format"))
EXPORT = frozenset(("$filter", "$select", "$orderby", "$expand", "$top", "$skip"))

UNSUPPORTED = frozenset(("$compute", "$levels", "$deltatoken", "$skiptoken"))

# A larger $top or $skip is cut to this, which exceeds the size of any collection.
LARGEST_PAGE = 10**15

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Query:
    """Conditions, fields, order and page over one entity.

    parts, entities and volatile are computed.
    """

    catalog: Catalog
    entity: Entity
    filter: Expression | None = None
    select: tuple[Field, ...] | None = None  # None: every field
    links: tuple[Navigation, ...] = ()  # navigations that $select names, which the context URL lists
    expand: tuple[Navigation, ...] = ()  # navigations whose rows come inside each row
    order: tuple[Order, ...] = ()  # without the id, which is always the last sort key
    top: int | None = None
    skip: int = 0
    count: bool = False  # whether to count the rows without the page
    search: bool = False  # whether a $search was given, which has no effect
    single: bool = False  # whether a key restricts the query to one row
    origin: Origin | None = None  # the row at which a navigation begins that leads to these rows
    nested: bool = False  # whether child collections come inside each row
    ids: bool = True  # whether an export has the ids of rows
    groups: Groups | None = None  # of the rows; order, page and count then apply to groups
    key: Constant | None = None  # the value of the key in the path
    parts: tuple[Expression, ...] = field(init=False)  # all expressions of the filter, the order, the groups and the origin
    entities: tuple[str, ...] = field(init=False)  # all that the query reads, its own first
    volatile: bool = field(init=False)  # whether the result depends on the time as well: now()

    def __post_init__(self) -> None:
        start = self.origin.condition if self.origin else None
        roots = (start, self.filter, *(order.key for order in self.order), *(self.groups.expressions if self.groups else ()))
        parts = tuple(part for root in roots if root for part in walk(root))
        targets = (step.target for part in parts for step in _steps(part))
        children = (child.target for child in self.entity.children) if self.nested else ()
        expanded = (step.target for step in self.expand)
        origin = (self.origin.entity,) if self.origin else ()
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "entities", tuple(dict.fromkeys((self.entity.name, *origin, *targets, *children, *expanded))))
        object.__setattr__(self, "volatile", any(isinstance(part, Call) and part.function.name == "now" for part in parts))

    @property
    def constants(self) -> tuple[Constant | Membership, ...]:
        """The parts that become parameters.  A constant that stands in several places, as a key can, is one parameter."""
        constants = [part for part in self.parts if isinstance(part, Membership) or (isinstance(part, Constant) and not part.null)]
        return tuple({constant.serial: constant for constant in constants}.values())

    @property
    def shape(self) -> Hashable:
        """Equal for queries that differ only in values: they are the same SQL."""
        return (
            *(self.catalog.version, self.entity.name, self.filter, self.order),
            *(self.select, self.expand, self.top is None, self.skip == 0, self.count, self.single, self.groups, self.origin),
            self.entities,
            self.ids,
        )


def parse_query(
    catalog: Catalog,
    entity: Entity,
    options: Sequence[tuple[str, str]],
    *,
    key: str | None = None,
    member: Navigation | Field | None = None,
    takes: frozenset[str] | None = None,
) -> Query:
    """Check OData's options: decoded pairs of name and value, in their order.  Options without $ are ignored.

    key: the text between the parentheses of a path to one row.
    member: the path's segment after the key: a navigation, whose rows are then queried, or a field, selected after the id.
    takes: the options that the path takes: COLLECTION, ROW (the default with a key), COUNT, VALUE, REFERENCES or EXPORT, whose
    $select takes references by name as well.

    Raises QueryError with the option as its target ("key" for the key) and the position in its value.
    """
    given = _given(options, takes or (ROW if key is not None else COLLECTION))
    if key is None:
        return _query(given, catalog, entity, references=takes is EXPORT)
    with about("key"):
        row = read_key(catalog, entity, key)
    if isinstance(member, Navigation):
        return _behind(row, member, _query(given, catalog, catalog[member.target]))
    query = replace(_query(given, catalog, entity), filter=row.row(), single=True, key=row.value)
    return replace(query, select=tuple(dict.fromkeys((entity.fields["id"], member)))) if member else query


def _behind(row: RowKey, step: Navigation, query: Query) -> Query:
    """The query restricted to the rows to which a navigation leads from a row."""
    condition = row.behind(step)
    if query.filter is not None:
        condition = Junction(condition.at, "bool", "and", (condition, query.filter))
    return replace(query, filter=condition, origin=row.origin(), single=not step.many, key=row.value)


def _query(given: dict[str, str], catalog: Catalog, entity: Entity, *, references: bool = False) -> Query:
    """The query of the options.  references: whether $select takes a reference by its name, as well as by its field's."""
    groups = _option(given, "$apply", lambda text: check_apply(catalog, entity, parse_odata.parse_apply(text)))
    _option(given, "$search", parse_odata.parse_search)
    query = Query(
        catalog,
        entity,
        top=_option(given, "$top", _page),
        skip=_option(given, "$skip", _page) or 0,
        count=_option(given, "$count", _truth) or False,
        search="$search" in given,
    )
    if groups is not None:
        return _group_query(given, query, groups)
    checker = ODataChecker(catalog, entity)
    select, links = _option(given, "$select", lambda text: _select(entity, text, references)) or (None, ())
    return replace(
        query,
        filter=_option(given, "$filter", lambda text: checker.condition(parse_odata.parse_filter(text))),
        select=select,
        links=links,
        expand=_option(given, "$expand", lambda text: _expand(entity, text)) or (),
        order=_option(given, "$orderby", lambda text: checker.order(parse_odata.parse_orderby(text))) or (),
    )


def _group_query(given: dict[str, str], query: Query, groups: Groups) -> Query:
    """The query with its rows in groups, to which $filter and $orderby apply."""
    for name in ("$select", "$expand"):
        if name in given:
            raise QueryError(f"{name} cannot be given with $apply", target=name)
    filters = GroupFilterChecker(query.catalog, query.entity, groups)
    orders = GroupOrderChecker(query.catalog, query.entity, groups)
    rows, having = _option(given, "$filter", lambda text: filters.split(parse_odata.parse_filter(text))) or (None, None)
    order = _option(given, "$orderby", lambda text: orders.order(parse_odata.parse_orderby(text))) or ()
    return replace(query, filter=rows, order=order, groups=replace(groups, having=having))


@contextmanager
def about(target: str) -> Iterator[None]:
    """Set the target, an option or parameter, of a QueryError that is raised inside."""
    try:
        yield
    except QueryError as error:
        error.target = target
        raise


def _steps(part: Expression) -> tuple[Navigation, ...]:
    """The navigations of a column's path, or of a collection."""
    match part:
        case Column(path=path):
            return path
        case Quantifier(rows=rows) | Count(rows=rows):
            return (rows.navigation,)
    return ()


def _given(options: Sequence[tuple[str, str]], takes: frozenset[str]) -> dict[str, str]:
    """The options that begin with $.  Raises QueryError if one is repeated, unknown, not supported, or not one of `takes`."""
    given: dict[str, str] = {}
    for name, value in options:
        if not name.startswith("$"):
            continue
        if name not in COLLECTION:
            hint = f", expected {name.lower()}" if name.lower() in COLLECTION else ""
            raise QueryError(f"no such option: {name}{hint}", target=name)
        if name in given:
            raise QueryError(f"{name} is given twice", target=name)
        if name in UNSUPPORTED:
            raise QueryError(f"{name} is not supported", target=name, code="not_supported")
        if name not in takes:
            raise QueryError(f"{name} cannot be given here", target=name)
        given[name] = value
    return given


def _option(given: dict[str, str], name: str, read: Callable[[str], T]) -> T | None:
    """Read an option; None if it is not given."""
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


def _select(entity: Entity, text: str, references: bool) -> tuple[tuple[Field, ...] | None, tuple[Navigation, ...]]:
    """The fields, None for all, and the navigations.  references: whether a reference's name stands for its field."""
    items = parse_odata.parse_select(text)
    found = dict.fromkeys(_selected(entity, path, references) for path in items if path)
    fields = tuple(each for each in found if isinstance(each, Field))
    return None if None in items else fields, tuple(each for each in found if isinstance(each, Navigation))


def _selected(entity: Entity, path: Path, references: bool) -> Field | Navigation:
    first, *rest = path.names
    step = entity.navigations.get(first.text)
    if step and rest:
        raise QueryError(f"expected {first.text} alone: $select takes no path", position=rest[0].at)
    if step and not references:
        return step
    if step and not step.many:
        return entity.fields[step.field]
    if step:
        raise QueryError(f"{first.text} is a navigation property of many rows: expected a field", position=first.at)
    if first.text not in entity.fields:
        raise QueryError(f"{entity.name} has no field {first.text}", position=first.at)
    if rest:
        raise QueryError(f"{first.text} is not a navigation property: nothing can follow it", position=rest[0].at)
    return entity.fields[first.text]


def _expand(entity: Entity, text: str) -> tuple[Navigation, ...]:
    steps: dict[Navigation, None] = {}
    for path in parse_odata.parse_expand(text):
        steps |= dict.fromkeys([_expanded(entity, path)] if path else entity.navigations.values())
    return tuple(steps)


def _expanded(entity: Entity, path: Path) -> Navigation:
    first, *rest = path.names
    if first.text not in entity.navigations:
        what = "is a field: expected" if first.text in entity.fields else "is not"
        raise QueryError(f"{first.text} {what} a navigation property of {entity.name}", position=first.at)
    if rest:
        raise QueryError(f"expected {first.text} alone: $expand takes single navigation properties", position=rest[0].at)
    return entity.navigations[first.text]
