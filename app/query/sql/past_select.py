"""The statements of a query of a past state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from psycopg.sql import SQL, Composable, Composed, Literal

from app.database.catalog import Entity
from app.query.check.query import Expansion, Query
from app.query.check.tree import Column, Comparison, Constant, Count, Expression, Junction, Quantifier, walk
from app.query.sql.expressions import NOTHING, Compiler
from app.query.sql.parameters import COMPANY, page_parameter
from app.query.sql.past import Joined, past_parts, past_rows
from app.query.sql.rows import Writer, view
from app.query.sql.select import ALL, Select, bounds, key_name, named, order_by, sort


def finds_few(query: Query) -> bool:
    """Whether the rows of a page are found by their ids or a unique value, and not counted."""
    if query.count or query.origin is not None:
        return False
    if (demanded := demanded_value(query)) is not None:
        return is_unique(query.entity, demanded[0]) and all(names_only(key.key) for key in query.keys) and names_only(query.filter)
    return not query.single and len(query.keys) == 1 and names_only(query.filter, "id")


def names_only(condition: Expression | None, field: str | None = None) -> bool:
    """Whether an expression is of no other rows' fields; if a field is given, of no other field."""
    return all(
        not isinstance(part, Quantifier | Count)
        and (not isinstance(part, Column) or (not part.path and field in (None, part.field.name)))
        for part in (walk(condition) if condition else ())
    )


def demanded_value(query: Query) -> tuple[str, Constant] | None:
    """A field, and the value that it has in all rows of the query; None if the filter demands none."""
    filter = query.filter
    for part in filter.operands if isinstance(filter, Junction) and filter.operator == "and" else [filter]:
        match part:
            case Comparison(operator="eq", left=Column(row=0) as column, right=Constant(null=False) as value) if (
                column.type == value.type
            ):
                if column.field.name == "updatedAt" and not column.path:  # no change logs it as an old value
                    continue
                if not column.path:
                    return column.field.name, value
                if len(column.path) == 1 and column.field.name == "id":
                    return column.path[0].field, value
    return None


def is_unique(entity: Entity, field: str) -> bool:
    """Whether a row is told by the value of a field."""
    return field in ("id", *(each.name for each in entity.alternate_keys))


@dataclass(slots=True, kw_only=True)
class PastSelect(Select):
    """Composes the statements of a query of a past state.

    A page is taken from the pages of the parts of the past, so that an index that serves the order serves that of the first one; in
    the order of ids it is read row by row.  What is related to its rows is joined to them.

    is_page: whether the rows are few.  joined: what is related to the rows that are written at the moment.
    """

    is_page: bool
    joined: Joined | None = None

    @property
    def writer(self) -> Writer:
        return Writer(self.query.catalog, self.style, self.joined)

    def written(self, columns: Mapping[str, Callable[[], Composed]]) -> tuple[Composed, Composable]:
        rows = SQL("from {} as {}").format(self.page_name, self.this) if self.is_page else None
        self.joined = Joined(self.expressions.alias(()), self.query.entity.name, rows)
        return named(columns), Composed(self.joined.joins)

    def key_values(self) -> list[Composed]:
        return [SQL("{}.{}").format(self.this, key_name(n)) for n in range(len(self.keys()))]

    def matching(self, roots: Iterable[Expression], table: Composable | None = None, more: Composable = NOTHING) -> Composed:
        return Select.matching(self, roots, table or self.found(), more)

    def found(self) -> Composable | None:
        """The rows that have the value that a field has in all rows of the query; None if the filter demands none."""
        if (demanded := demanded_value(self.query)) is None:
            return None
        name, value = demanded
        values = SQL("array[{}]").format(self.expressions.compile(value))
        return past_rows(self.query.entity.name, name, values, is_unique=is_unique(self.query.entity, name))

    def ordered(
        self, columns: Mapping[str, Callable[[], Composed]], limit: Composable | None = None, skip: Composable | None = None
    ) -> Composed:
        keys = self.keys()
        order = order_by([sort(key_name(n), key) for n, key in enumerate(keys)])
        both = None if limit is None else SQL("{} + {}").format(limit, skip) if skip else limit
        parts, views = list[Composed](), self.expressions.views
        for table in self.tables():
            self.expressions.views = views
            part: list[Composable] = [SQL("(select {} {}").format(self.picked(), self.following(table))]
            part += [order_by([sort(self.expressions.compile(key.key), key) for key in keys]), *bounds(both, None)]
            parts.append(SQL(" ").join(part) + SQL(")"))
        rows, page = SQL(" union all ").join(parts), SQL(" ").join([order, *bounds(limit, skip)])
        output, joins = self.written(columns)
        if not self.is_page:
            return SQL("select {} from ({}) as {}{} {}").format(output, rows, self.this, joins, page)
        rows = self.fetched(SQL("select * from ({}) as r {}").format(rows, page))
        return SQL("with {name} as materialized ({}) select {} from {name} as {}{} {}").format(
            *(rows, output, self.this, joins, order), name=self.page_name
        )

    def tables(self) -> list[Composable]:
        """Tables with all rows that the query may give."""
        if found := self.found():
            return [found]
        return past_parts(self.query.entity.name, by_id=self.is_by_id)

    @property
    def is_by_id(self) -> bool:
        return self.is_page and len(self.keys()) == 1 and names_only(self.query.filter, "id")

    def count(self) -> Composed:
        if self.query.filter is not None:
            return Select.count(self)
        # the rows of now, less those that came since, and those that went
        return SQL("select past.number_of({}, (select count(*) from {} as n where n.company_id = {}))").format(
            Literal(self.query.entity.name), view(self.query.entity.name), COMPANY
        )

    def picked(self, column: SQL = ALL) -> Composed:
        return Select.picked(self, SQL("id") if self.is_page and not self.is_by_id else column)

    def fetched(self, rows: Composed) -> Composed:
        if self.is_by_id:
            return rows
        # rows of a page are rebuilt when they are picked, not when they are sorted
        return SQL("with p as materialized ({}) select v.*{} from p join {} as v on v.id = p.id").format(
            rows,
            Composed([SQL(", p.{}").format(key_name(n)) for n in range(len(self.keys()))]),
            past_rows(self.query.entity.name, "id", SQL("array(select p.id from p)")),
        )

    def expanded(self, expansion: Expansion) -> Iterator[tuple[str, Composable]]:
        step, inner = expansion.step, expansion.query
        path = (*self.path, step.name)
        compiler = Compiler(self.expressions.constants, past=True, aliases={(0, ()): f"e{len(path)}"})
        rows = PastSelect(inner, self.style, compiler, page_parameter("top", path), path, is_page=self.is_page)
        assert self.joined is not None
        text, number = self.joined.add(step, f"e{len(path)}", rows.joinable, rows.together if step.many else rows.alone)
        if inner.count:
            quoted = """'"' || coalesce({}, 0)::text || '"'""" if self.style.numbers_as_strings else "coalesce({}, 0)::text"
            yield f"{step.name}@odata.count", SQL(quoted).format(number)
        yield step.name, SQL("'[' || coalesce({}, '') || ']'" if step.many else "coalesce({}, 'null')").format(text)

    def joinable(self, table: Composable, joins: Composable) -> Composed:
        """FROM a table, with joins, WHERE the filter is true."""
        return self.matching([key.key for key in self.query.order], table, joins)

    def alone(self, inside: Joined) -> list[Composable]:
        """A row as JSON, and its number."""
        self.joined = inside
        return [self.json(), SQL("1")]

    def together(self, inside: Joined) -> list[Composable]:
        """The joined rows of a page of a group of rows, and the number of rows of the group."""
        self.joined = inside
        parts = {"row": self.json(), "order": self.order(self.keys())}
        if self.query.top is None and not self.query.skip:
            return [SQL("string_agg({row}, ',' order by {order})").format(**parts), SQL("count(*)")]
        skip = page_parameter("skip", self.path) if self.query.skip else SQL("0")
        last = _subscript(SQL("{} + {}").format(skip, self.top)) if self.query.top is not None else NOTHING
        page = SQL("array_to_string((array_agg({row} order by {order}))[{first}:{last}], ',')")
        return [page.format(first=_subscript(SQL("{} + 1").format(skip)), last=last, **parts), SQL("count(*)")]


def _subscript(number: Composable) -> Composed:
    """A number of a row as a subscript of an array, which is an integer: no array has more elements."""
    return SQL("least({}, 2147483647)::int4").format(number)
