"""Reads the options of OData: decoded pairs of name and value become one checked Query.

The extended profile adds options inside $expand, parameter aliases, and filters before a grouping in $apply; without it they are
refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from app.database.catalog import Catalog, Entity, Field, Navigation
from app.errors import QueryError, about
from app.query.check.apply import GroupFilterChecker, GroupOrderChecker, Groups, check_apply
from app.query.check.delta import MAX_PAGE, read_delta
from app.query.check.delta import OPTIONS as TRACKED
from app.query.check.either import odata_or_where
from app.query.check.key import RowKey, read_key
from app.query.check.odata import Aliases, ODataChecker
from app.query.check.paging import paged
from app.query.check.query import Expansion, Query
from app.query.check.tree import Expression, Junction
from app.query.parse import odata as parse_odata
from app.query.parse.expand import Expanding, read_expansions
from app.query.parse.nodes import Path

# The options that each kind of resource takes.
OPTIONS = "$filter $select $orderby $top $skip $count $search $format $expand $apply $compute $levels $deltatoken $skiptoken"
COLLECTION = frozenset(OPTIONS.split())
ROW = frozenset(("$select", "$expand", "$format", "$compute", "$levels"))
COUNT = frozenset(("$filter", "$search", "$format"))
VALUE = frozenset(("$format",))
REFERENCES = frozenset(("$filter", "$orderby", "$top", "$skip", "$count", "$search", "$format"))
EXPORT = frozenset(("$filter", "$select", "$orderby", "$expand", "$top", "$skip"))
INSIDE_MANY = frozenset(("$filter", "$select", "$orderby", "$top", "$skip", "$count", "$expand"))  # of $expand
INSIDE_ONE = frozenset(("$select", "$expand"))

UNSUPPORTED = frozenset(("$compute", "$levels", "$deltatoken", "$skiptoken"))
UNSUPPORTED_INSIDE = UNSUPPORTED | {"$search", "$apply"}

# A larger $top or $skip is cut to this, which exceeds the size of any collection.
LARGEST_PAGE = 10**15

MAX_LEVELS = 5  # of $expand
MAX_EXPANSIONS = 100  # in all: each is a subquery to plan

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Option:
    """The text of an option.  target: of errors, None inside of another option; offset: characters before it in that one."""

    text: str
    target: str | None
    offset: int = 0


Given = Mapping[str, Option]


def parse_query(
    catalog: Catalog,
    entity: Entity,
    options: Sequence[tuple[str, str]],
    *,
    key: str | None = None,
    member: Navigation | Field | None = None,
    takes: frozenset[str] | None = None,
    extended: bool = False,
    page: int | None = None,
    tracks: bool | None = None,
) -> Query:
    """Check OData's options: decoded pairs of name and value, in their order.  Options without $ are ignored.

    key: the text between the parentheses of a path to one row.
    member: the path's segment after the key: a navigation, whose rows are then queried, or a field, selected after the id.
    takes: the options that the path takes: COLLECTION, ROW (the default with a key), COUNT, VALUE, REFERENCES or EXPORT, whose
    $select takes references by name as well, and whose $filter takes the language of /c as well.
    page: the greatest number of rows that the client wants in an answer.
    tracks: whether the client wants a link to what changes later; None: the path has none.

    Raises QueryError with the option as its target ("key" for the key) and the position in its value.
    """
    takes = takes or (ROW if key is not None else COLLECTION)
    given = _given(options, takes, UNSUPPORTED - {"$skiptoken", "$deltatoken"} if extended else UNSUPPORTED)
    if "$deltatoken" in given and (key is not None or tracks is None):
        raise QueryError("$deltatoken cannot be given here", target="$deltatoken")
    reader = _Reader(catalog, Aliases(_aliases(options) if extended else None), extended, references=takes is EXPORT)
    if key is None:
        query = reader.whole(entity, given)
        if "$deltatoken" in given:
            return _delta(query, given, page)
        return _tracked(_paged(query, given, page), given, tracks) if extended and takes is COLLECTION else query
    with about("key"):
        row = read_key(catalog, entity, key, reader.aliases)
    if isinstance(member, Navigation):
        query = _behind(row, member, reader.whole(catalog[member.target], given))
        return _paged(query, given, page) if extended and takes is COLLECTION else query
    query = replace(reader.whole(entity, given), filter=row.row(), single=True, key=row.value)
    return replace(query, select=tuple(dict.fromkeys((entity.fields["id"], member)))) if member else query


def _behind(row: RowKey, step: Navigation, query: Query) -> Query:
    """The query restricted to the rows to which a navigation leads from a row."""
    condition = _both(row.behind(step), query.filter)
    return replace(query, filter=condition, origin=row.origin(), single=not step.many, key=row.value)


def _paged(query: Query, given: Given, page: int | None) -> Query:
    """The query in pages, if the client wants them.  Groups have none: there are few of them."""
    token = given.get("$skiptoken")
    if query.groups is None:
        return paged(query, page, token.text if token else None)
    if token:
        raise QueryError("$skiptoken cannot be given with $apply", target="$skiptoken")
    return query


def _tracked(query: Query, given: Given, tracks: bool | None) -> Query:
    """The query that ends with a link to later changes, if the client wants it and such changes can be told."""
    wanted = query.mark is not None if "$skiptoken" in given else bool(tracks)
    if tracks is None or not wanted or not given.keys() <= TRACKED | {"$skiptoken"} or not query.is_own:
        return query
    return replace(query, tracks=True)


def _delta(query: Query, given: Given, page: int | None) -> Query:
    """The query of what changed since a delta link was made."""
    for name in given.keys() - TRACKED - {"$deltatoken"}:
        raise QueryError(f"{name} cannot be given with $deltatoken", target=name)
    if not query.is_own:
        raise QueryError("expected the $select and $filter of the @odata.deltaLink: fields of the row alone", target="$deltatoken")
    delta = read_delta(given["$deltatoken"].text)
    size = page or delta.size
    return replace(query, delta=delta, page=min(size, MAX_PAGE) if size else None)


def _both(first: Expression | None, second: Expression | None) -> Expression | None:
    """The condition that both are true; None if neither is given."""
    if first is None or second is None:
        return first or second
    return Junction(first.at, "bool", "and", (first, second))


@dataclass(slots=True)
class _Reader:
    """Reads the options of one request.

    references: whether $select takes a reference by its name as well, and $filter the language of /c, as exports do.
    joined: the joins that all conditions of the request need so far.
    """

    catalog: Catalog
    aliases: Aliases
    extended: bool
    references: bool
    joined: list[object] = field(default_factory=list)
    expansions: int = 0

    def whole(self, entity: Entity, given: Given) -> Query:
        """The query of a request, with the aliases in it that have no value."""
        query = self.query(entity, given)
        return replace(query, unset=tuple(sorted(self.aliases.unset)))

    def query(self, entity: Entity, given: Given, level: int = 0) -> Query:
        """The query of the options over rows of the entity.  level: of $expand, 0 outside."""
        apply = _option(given, "$apply", lambda text: parse_odata.parse_apply(text, filters=self.extended)) or None
        _option(given, "$search", parse_odata.parse_search)
        query = Query(
            self.catalog,
            entity,
            top=_option(given, "$top", _page),
            skip=_option(given, "$skip", _page) or 0,
            count=_option(given, "$count", _truth) or False,
            search="$search" in given,
        )
        checker = ODataChecker(self.catalog, entity, self.aliases, self.joined)
        if apply is not None:
            with about("$apply"):
                for node in apply.filters:
                    query = replace(query, filter=_both(query.filter, checker.condition(node)))
                groups = check_apply(checker, apply.grouping) if apply.grouping else None
            if groups is not None:
                return self.group_query(query, given, groups, checker)
        select, links = _option(given, "$select", lambda text: _select(entity, text, self.references)) or (None, ())
        return replace(
            query,
            filter=_both(query.filter, _option(given, "$filter", lambda text: self.filter(checker, text))),
            select=select,
            links=links,
            expand=_option(given, "$expand", lambda text: self.expand(entity, text, level)) or (),
            order=_option(given, "$orderby", lambda text: checker.order(parse_odata.parse_orderby(text))) or (),
        )

    def filter(self, checker: ODataChecker, text: str) -> Expression:
        """A condition; in an export that of /c too."""
        return odata_or_where(checker, text) if self.references else checker.condition(parse_odata.parse_filter(text))

    def group_query(self, query: Query, given: Given, groups: Groups, checker: ODataChecker) -> Query:
        """The query with its rows in groups, to which $filter and $orderby apply."""
        for name in ("$select", "$expand"):
            if name in given:
                raise QueryError(f"{name} cannot be given with $apply", target=name)
        filters, orders = GroupFilterChecker(checker, groups), GroupOrderChecker(checker, groups)
        rows, having = _option(given, "$filter", lambda text: filters.split(parse_odata.parse_filter(text))) or (None, None)
        order = _option(given, "$orderby", lambda text: orders.order(parse_odata.parse_orderby(text))) or ()
        return replace(query, filter=_both(query.filter, rows), order=order, groups=replace(groups, having=having))

    def expand(self, entity: Entity, text: str, level: int) -> tuple[Expansion, ...]:
        """The expansions of an $expand, which stands inside of `level` others."""
        if level == MAX_LEVELS:
            raise QueryError(f"nested too deeply: at most {MAX_LEVELS} levels of $expand", position=1)
        found: dict[Navigation, Expansion] = {}
        for item in read_expansions(text, options=self.extended):
            for step in [_expanded(entity, item.path)] if item.path else entity.navigations.values():
                if step in found and (item.options or found[step] != Expansion(step, self.all_of(step))):
                    raise QueryError(f"{step.name} is expanded twice", position=item.at)
                found[step] = self.expansion(step, item, level)
        self.expansions += len(found)
        if self.expansions > MAX_EXPANSIONS:
            raise QueryError(f"at most {MAX_EXPANSIONS} expansions", position=1)
        return tuple(found.values())

    def all_of(self, step: Navigation) -> Query:
        return Query(self.catalog, self.catalog[step.target], single=not step.many)

    def expansion(self, step: Navigation, item: Expanding, level: int) -> Expansion:
        """An expansion with its own options."""
        given: dict[str, Option] = {}
        for name, value, at, offset in item.options:
            _check_inside(name, step, given, at)
            given[name] = Option(value, None, offset)
        query = self.query(self.catalog[step.target], given, level + 1)
        return Expansion(step, replace(query, single=not step.many))


def _given(
    options: Sequence[tuple[str, str]], takes: frozenset[str], unsupported: frozenset[str] = UNSUPPORTED
) -> dict[str, Option]:
    """The options that begin with $.  Raises QueryError if one is repeated, unknown, not supported, or not one of `takes`."""
    given: dict[str, Option] = {}
    for name, value in options:
        if not name.startswith("$"):
            continue
        if name not in COLLECTION:
            hint = f", expected {name.lower()}" if name.lower() in COLLECTION else ""
            raise QueryError(f"no such option: {name}{hint}", target=name)
        if name in given:
            raise QueryError(f"{name} is given twice", target=name)
        if name in unsupported:
            raise QueryError(f"{name} is not supported", target=name, code="not_supported")
        if name not in takes:
            raise QueryError(f"{name} cannot be given here", target=name)
        given[name] = Option(value, name)
    return given


def _aliases(options: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The values of parameter aliases, by their names with @.  Raises QueryError if one is repeated."""
    values: dict[str, str] = {}
    for name, value in options:
        if name.startswith("@"):
            if name in values:
                raise QueryError(f"{name} is given twice", target=name)
            values[name] = value
    return values


def _check_inside(name: str, step: Navigation, given: Given, at: int) -> None:
    """Raises QueryError unless an option may stand inside an expansion of the navigation."""
    takes = INSIDE_MANY if step.many else INSIDE_ONE
    if name in given:
        raise QueryError(f"{name} is given twice", position=at)
    if name in UNSUPPORTED_INSIDE:
        raise QueryError(f"{name} inside $expand is not supported", position=at, code="not_supported")
    if name not in takes:
        raise QueryError(f"expected one of {', '.join(sorted(takes))}, got {name}", position=at)


def _option(given: Given, name: str, read: Callable[[str], T]) -> T | None:
    """Read an option; None if it is not given."""
    option = given.get(name)
    if option is None:
        return None
    with about(option.target, option.offset):
        return read(option.text)


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


def _expanded(entity: Entity, path: Path) -> Navigation:
    first, *rest = path.names
    if first.text not in entity.navigations:
        what = "is a field: expected" if first.text in entity.fields else "is not"
        raise QueryError(f"{first.text} {what} a navigation property of {entity.name}", position=first.at)
    if rest:
        raise QueryError(f"expected {first.text} alone: $expand takes single navigation properties", position=rest[0].at)
    return entity.navigations[first.text]
