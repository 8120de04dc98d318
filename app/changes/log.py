"""The change log under /c, as an entity with the SQL-like filter.

A reader that continues after the last id of a page misses no change: ids have no gaps.  The months that a page needs are looked up
first, so that its statement is planned for few partitions of the log.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Literal, LiteralString, NamedTuple

from app.changes.log_filter import LogChecker
from app.changes.parameters import split
from app.changes.rows import Answer, list_query, listed, listing
from app.database.catalog import Catalog, Entity, Field
from app.database.database import Database
from app.database.pool.session import Session, read_row_on
from app.database.servers.reads import require_generation
from app.errors import ServiceError
from app.query.check.query import Query
from app.query.check.tree import Column, Comparison, Constant, Expression, Junction, Membership, Not
from app.query.parse.nodes import Comparator
from app.query.sql.rows import RECORDS

# The month of a change, and the first month that begins after another one: ids and times rise together; and the first change kept.
MONTHS: LiteralString = """
    select (max(m.month) filter (where m.first_id <= %s))::text, (min(m.month) filter (where m.first_id > %s::numeric))::text,
        bds.first_change(%s)
    from bds.change_months m
    where m.company_id = %s
"""

# The same for the newest changes: the page begins at the last change, or at the filter's highest id, and ids have no gaps.
NEWEST: LiteralString = """
    select (max(m.month) filter (where m.first_id <= greatest(p.top - %s, %s::numeric)))::text,
        (min(m.month) filter (where m.first_id > %s::numeric))::text, bds.first_change(%s)
    from bds.change_months m
    cross join (select least(%s::numeric, max(last_id)) as top from bds.positions where company_id = %s) p
    where m.company_id = %s
"""
# The changes of a page by their kind, and the last change of the company; as of one snapshot.
OF_KIND: LiteralString = """
    select bds_service.find_changes(%s, %s::text[], %s::text[], %s, %s, %s, %s),
        (select coalesce(max(p.last_id), 0) from bds.positions p where p.company_id = %s)
"""
FIRST: LiteralString = """
    select f.id, max(extract(epoch from p.begun_at)::text), max(p.generation),
        -- what is before a gap, for a page without a lower bound
        f.id > 1 and %s and exists (select from bds.changes c where c.company_id = f.company_id and c.id < f.id)
    from (select p.company_id, bds.first_change(p.company_id) as id from (select %s::text as company_id) p offset 0) f
    left join bds.company_positions p on p.company_id = f.company_id
    group by f.company_id, f.id
"""


class Months(NamedTuple):
    """The bounds of a page of the log: a month, and the month after the last one; None: no bound.  first: the first change kept."""

    since: str | None
    until: str | None
    first: int


# The change log as an entity.
CHANGES = Entity(
    name="changes",
    singular="change",
    table="bds.changes",
    parent=None,
    parent_navigation=None,
    collection=None,
    fields={
        field.name: field
        for field in (
            Field.computed("id", "int8"),
            Field.computed("entity", "text"),
            Field.computed("rowId", "int8", reference="row"),
            Field.computed("operation", "text"),
            Field.computed("changeSetId", "uuid", required=False),
            Field.computed("createdAt", "timestamptz"),
        )
    },
    navigations={},
    description=None,
)
LAST = 2**63 - 1
OPPOSITES: dict[Comparator, Comparator] = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}
ID_COLUMN = Column(0, "int8", (), CHANGES.fields["id"])


def log_query(catalog: Catalog, params: Sequence[tuple[str, str]]) -> Query:
    """Check filter, sort and limit of the log.  Raises QueryError, also for any other parameter."""
    query = list_query(catalog, CHANGES, params, LogChecker)
    return replace(query, filter=_without_not(query.filter)) if query.filter else query


async def read_changes(database: Database, company: str, params: Sequence[tuple[str, str]]) -> Answer:
    """Read `{"data": [change records], "hasMore": bool}` by filter, sort and limit.

    Raises QueryError, or ServiceError(gone) if the filter begins at a change that is no longer kept.
    """
    given, rest = split(params, ("generation",))
    require_generation(given.get("generation"))
    return await _read(database, company, log_query(database.catalog, rest))


async def _read(database: Database, company: str, asked: Query) -> Answer:
    lowest, kind = _lowest(asked.filter), _kind(asked)
    async with database.session(company) as connection:
        query, position = await _found(connection, company, asked, kind) if kind else (asked, None)
        months = await _months_of_page(connection, company, query, lowest if kind is None else _lowest(query.filter))
        query = between(query, months.since, months.until)
        statement = listing(query, company, RECORDS)
        answer = listed(await read_row_on(connection, statement.text, statement.values))
        if position is not None:
            answer = answer._replace(position=position)
        # Read again after the page: a month may have gone before the page was read, as one may have come back after it.
        row = await (await connection.execute(FIRST, (lowest is None, company))).fetchone()
    assert row is not None
    first, begun, generation, has_earlier = row
    if lowest is not None:
        require_change_kept(lowest, max(first, months.first), "filter")
    elif has_earlier:
        kept = Comparison(0, "bool", "ge", ID_COLUMN, Constant(0, "int8", str(first)), False)
        return await _read(database, company, _restricted(asked, kept))
    return answer._replace(first=first, begun=begun or "", generation=generation)


class Kind(NamedTuple):
    """Entities and operations, None for any, which with bounds of the id are all that a page demands."""

    entities: list[str] | None
    operations: list[str] | None


def _kind(query: Query) -> Kind | None:
    """The kind of the changes of a page in the order of ids; None if the log is read for it as well without, or must be."""
    if query.order and query.order[0].key != ID_COLUMN:
        return None
    sets: dict[str, set[str]] = {}
    for part in _parts(query.filter):
        match part:
            case Comparison(operator="lt" | "le" | "gt" | "ge" | "eq", left=Column(field=Field(name="id")), right=Constant()):
                continue
            case Comparison(
                operator="eq", left=Column(field=Field(name="entity" | "operation" as name)), right=Constant(value=str(value))
            ):
                values = {value}
            case Membership(operand=Column(field=Field(name="entity" | "operation" as name)), values=given):
                values = set(given)
            case _:
                return None
        sets[name] = sets.get(name, values) & values
    kind = Kind(*(sorted(sets[name]) if name in sets else None for name in ("entity", "operation")))
    # one entity's changes have an index
    return kind if kind.operations is not None or len(kind.entities or ()) > 1 else None


async def _found(connection: Session, company: str, query: Query, kind: Kind) -> tuple[Query, int]:
    """The query of a page, restricted to the changes that are on it and the next one; and the company's last change."""
    lowest, highest = _lowest(query.filter), _highest(query.filter)
    after = 0 if lowest is None else min(max(lowest - 1, 0), LAST - 1)
    before = LAST if highest is None else min(max(highest + 1, after), LAST)  # no range ends before it begins
    is_newest_first = bool(query.order and query.order[0].descending)
    values = (company, kind.entities, kind.operations, after, before, is_newest_first, (query.top or 0) + 1, company)
    row = await (await connection.execute(OF_KIND, values)).fetchone()
    assert row is not None
    ids, position = row
    found = Membership(0, "bool", ID_COLUMN, "int8", tuple(map(str, ids or [0])), False)
    return _restricted(query, found), position


def _restricted(query: Query, *conditions: Expression) -> Query:
    """The query with further conditions."""
    return replace(query, filter=Junction(0, "bool", "and", (*_parts(query.filter), *conditions)))


def _parts(condition: Expression | None) -> tuple[Expression, ...]:
    """The conditions that are joined by `and`."""
    if isinstance(condition, Junction) and condition.operator == "and":
        return tuple(condition.operands)
    return (condition,) if condition else ()


def _without_not(condition: Expression, *, is_negated: bool = False) -> Expression:
    """The same condition, without `not` around comparisons with the id, from which the bounds of a page are read."""
    match condition:
        case Not(operand=operand):
            return _without_not(operand, is_negated=not is_negated)
        case Junction(operator=operator, operands=operands):
            joined = operator if not is_negated else "or" if operator == "and" else "and"
            return replace(
                condition, operator=joined, operands=tuple(_without_not(each, is_negated=is_negated) for each in operands)
            )
        case Comparison(operator=operator, left=Column(field=Field(name="id"))) if is_negated and operator in OPPOSITES:
            return replace(condition, operator=OPPOSITES[operator])
    return Not(condition.at, "bool", condition) if is_negated else condition


def require_change_kept(lowest: int, first: int, target: str) -> None:
    """Raises ServiceError(gone) if a reader that begins at change `lowest` needs changes before `first`, which are not kept."""
    if lowest < first and first > 1:
        message = f"changes before {first} are no longer kept; continue with id >= {first}"
        raise ServiceError("gone", message, target=target, firstId=first)


def between(query: Query, since: str | None, until: str | None) -> Query:
    """The query, restricted to changes from `since` on and before `until`, both months; None: no bound."""
    created = Column(0, "timestamptz", (), CHANGES.fields["createdAt"])
    bounds: tuple[tuple[Literal["ge", "lt"], str | None], ...] = (("ge", since), ("lt", until))
    parts = [Comparison(0, "bool", how, created, Constant(0, "timestamptz", month), False) for how, month in bounds if month]
    return _restricted(query, *parts) if parts else query


async def find_months(connection: Session, company: str, lowest: int, beyond: int | None) -> Months:
    """The month of change `lowest`, and the first one that begins after change `beyond`."""
    return await _read_months(connection, MONTHS, lowest, beyond, company, company)


async def _months_of_page(connection: Session, company: str, query: Query, lowest: int | None) -> Months:
    """The bounds of the page: the month of its first change, and the month after its last one."""
    limit, is_run = query.top or 0, _is_run(query)
    if is_run and query.order and query.order[0].descending:
        highest = _highest(query.filter)
        return await _read_months(connection, NEWEST, limit, lowest, highest, company, highest, company, company)
    if lowest is None:
        return Months(None, None, 1)
    return await find_months(connection, company, lowest, max(lowest, 1) + limit if is_run else None)


async def _read_months(connection: Session, query: LiteralString, *values: int | str | None) -> Months:
    row = await (await connection.execute(query, values)).fetchone()
    assert row is not None
    return Months(*row)


def _is_run(query: Query) -> bool:
    """Whether the ids of the page follow one another without a gap: only comparisons with the id filter it, and it is the order."""
    if query.order and query.order[0].key != ID_COLUMN:
        return False
    return all(isinstance(part, Comparison) and part.operator != "ne" and part.left == ID_COLUMN for part in _parts(query.filter))


def _highest(condition: Expression | None) -> int | None:
    """The highest change id for which comparisons with the id, joined by `and`, can be true; None if they set no bound."""
    match condition:
        case Junction(operator="and", operands=parts):
            return min((bound for bound in map(_highest, parts) if bound is not None), default=None)
        case Comparison(operator="lt", left=Column(field=Field(name="id")), right=Constant(value=str(value))):
            return math.ceil(Decimal(value)) - 1
        case Comparison(operator="le" | "eq", left=Column(field=Field(name="id")), right=Constant(value=str(value))):
            return math.floor(Decimal(value))
    return None


def _lowest(condition: Expression | None) -> int | None:
    """The lowest change id for which the condition can be true, by its comparisons with the id; None if they set no bound."""
    match condition:
        case Junction(operator="and", operands=parts):
            return max((bound for bound in map(_lowest, parts) if bound is not None), default=None)
        case Junction(operator="or", operands=parts):
            bounds = [_lowest(part) for part in parts]
            return None if None in bounds else min(bound for bound in bounds if bound is not None)
        case Comparison(operator="gt", left=Column(field=Field(name="id")), right=Constant(value=str(value))):
            return math.floor(Decimal(value)) + 1
        case Comparison(operator="ge" | "eq", left=Column(field=Field(name="id")), right=Constant(value=str(value))):
            return math.ceil(Decimal(value))
        case Membership(operand=Column(field=Field(name="id")), values=values):
            return min(math.ceil(Decimal(value)) for value in values)
    return None
