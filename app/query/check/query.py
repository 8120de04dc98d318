"""A query as one value: the checked options of a request for rows of one entity.

OData, /c and export each make a Query of their own options; the compiler (sql_statements) reads nothing else.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from app.database.catalog import Catalog, Entity, Field, Navigation
from app.query.check.apply import Groups
from app.query.check.delta import Delta
from app.query.check.key import Origin
from app.query.check.tree import Call, Column, Constant, Count, Expression, Membership, Order, Quantifier, walk


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
    expand: tuple[Expansion, ...] = ()  # navigations whose rows come inside each row
    order: tuple[Order, ...] = ()  # without the id, which is always the last sort key
    top: int | None = None
    skip: int = 0
    count: bool = False  # whether to count the rows without the page
    search: bool = False  # whether a $search was given, which has no effect
    unset: tuple[str, ...] = ()  # parameter aliases without a value, for which null stands
    single: bool = False  # whether a key restricts the query to one row
    origin: Origin | None = None  # the row at which a navigation begins that leads to these rows
    nested: bool = False  # whether child collections come inside each row
    ids: bool = True  # whether an export has the ids of rows
    groups: Groups | None = None  # of the rows; order, page and count then apply to groups
    key: Constant | None = None  # the value of the key in the path
    page: int | None = None  # rows of an answer that tells where the next one begins
    after: Expression | None = None  # a condition on the rows of the page, which are counted without it
    tracks: bool = False  # whether the answer ends with a link to what changes later
    mark: Delta | None = None  # the state of the first page, if this is a later one of a query that tracks
    delta: Delta | None = None  # what the client has, if it asks for what changed since
    parts: tuple[Expression, ...] = field(
        init=False
    )  # all expressions: of the filter, the order, the groups, the origin, and inside
    entities: tuple[str, ...] = field(init=False)  # all that the query reads, its own first
    volatile: bool = field(init=False)  # whether the result depends on the time as well: now()

    def __post_init__(self) -> None:
        start = self.origin.condition if self.origin else None
        orders = (order.key for order in self.order)
        roots = (start, self.filter, self.after, *orders, *(self.groups.expressions if self.groups else ()))
        inside = tuple(each.query for each in self.expand)
        own = tuple(part for root in roots if root for part in walk(root))
        parts = (*own, *(part for query in inside for part in query.parts))
        targets = (step.target for part in own for step in _steps(part))
        children = (child.target for child in self.entity.children) if self.nested else ()
        expanded = (entity for query in inside for entity in query.entities)
        origin = (self.origin.entity,) if self.origin else ()
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "entities", tuple(dict.fromkeys((self.entity.name, *origin, *targets, *children, *expanded))))
        object.__setattr__(self, "volatile", any(isinstance(part, Call) and part.function.name == "now" for part in parts))

    @property
    def is_own(self) -> bool:
        """Whether the rows depend on nothing but their own fields."""
        others = any(isinstance(part, Quantifier | Count) or (isinstance(part, Column) and part.path) for part in self.parts)
        return not (others or self.links or self.volatile or self.origin or self.groups)

    @property
    def steps(self) -> tuple[Navigation, ...]:
        return tuple(each.step for each in self.expand)

    @property
    def expansions(self) -> Iterator[tuple[tuple[str, ...], Expansion]]:
        """Yield all expansions, also those inside others, each with the names of the navigations that lead to it."""
        for each in self.expand:
            yield (each.step.name,), each
            yield from (((each.step.name, *path), inside) for path, inside in each.query.expansions)

    @property
    def has_long_rows(self) -> bool:
        """Whether rows hold collections other than children: those can be of any length."""
        return any(each.step.many and not each.step.child for _, each in self.expansions)

    @property
    def keys(self) -> tuple[Order, ...]:
        """The sort keys, up to the id, which is added to break ties."""
        id = self.entity.fields["id"]
        keys = (*self.order, Order(Column(0, id.type, (), id), False))
        last = next(
            n for n, key in enumerate(keys) if isinstance(key.key, Column) and key.key.field.name == "id" and not key.key.path
        )
        return keys[: last + 1]

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
            *((each.step, each.query.shape) for each in self.expand),
            *(self.select, self.top is None, self.skip == 0, self.count, self.single, self.groups, self.origin),
            self.entities,
            self.ids,
            self.page is None,
            self.after,
            self.tracks,
        )


def _steps(part: Expression) -> tuple[Navigation, ...]:
    """The navigations of a column's path, or of a collection."""
    match part:
        case Column(path=path):
            return path
        case Quantifier(rows=rows) | Count(rows=rows):
            return (rows.navigation,)
    return ()


@dataclass(frozen=True, slots=True)
class Expansion:
    """A navigation whose rows come inside each row, with the query that chooses among these rows."""

    step: Navigation
    query: Query
