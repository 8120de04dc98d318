"""The statements of a query of present rows, part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from app.database.catalog import Navigation
from app.query.check.query import Expansion, Query
from app.query.check.tree import Expression, Order
from app.query.sql.delta import state
from app.query.sql.expressions import BY_CODE_POINT, NOTHING, Compiler
from app.query.sql.parameters import ABSENT, COMPANY, LIMIT, PAGE, SKIP, TOP, page_parameter
from app.query.sql.rows import Style, Writer

ALL = SQL("*")


@dataclass(slots=True)
class Select:
    """Composes the statements of a query.

    top: the limit of the page; path: the navigations of the expansions inside of which it stands.
    """

    query: Query
    style: Style
    expressions: Compiler
    top: Composable
    path: tuple[str, ...] = ()

    # Statements

    def rows(self) -> Composed:
        """The rows of the page as JSON, in order."""
        query = self.query
        limit = None if query.top is None else self.top
        return self.ordered({"row": self.json}, limit, page_parameter("skip", self.path) if query.skip else None)

    def ordered(
        self, columns: Mapping[str, Callable[[], Composed]], limit: Composable | None = None, skip: Composable | None = None
    ) -> Composed:
        """The columns of the rows of a page, in order."""
        parts = [SQL("select {} {}").format(named(columns), self.following())]
        if keys := self.keys():
            parts.append(SQL("order by {}").format(self.order(keys)))
        parts += bounds(limit, skip)
        return SQL(" ").join(parts)

    def following(self, table: Composable | None = None) -> Composed:
        """The source of the rows of a page, which may begin after a row of the one before.

        table: some of the rows, in place of the view.
        """
        source = self.source(self.query.order, table)
        if self.query.after is None:
            return source
        return SQL("{} and {}").format(source, self.expressions.compile(self.query.after, loose=True))

    def page(self) -> Composed:
        """The joined rows, the count if the query asks for it, the position, and the number of rows unless there is one."""
        total = self.count() if self.query.count else SQL("null::int8")
        if self.query.single:
            return SQL('select ({}) as body, ({}) as "count", ({}) as "position"').format(self.rows(), total, self.position())
        return SQL(
            'select l.body, ({}) as "count", ({}) as "position", l.rows from'
            " (select string_agg(r.row, ',') as body, count(*) as rows from ({}) as r) as l"
        ).format(total, self.position(), self.rows())

    def paged(self) -> Composed:
        """The joined rows of a page that the service cuts, the count, the position, how many, and the last one's sort keys."""

        def keys() -> Composed:
            texts = [SQL("{}::text").format(value) for value in self.key_values()]
            return SQL("json_build_array({})::text").format(SQL(", ").join(texts))

        rows = self.ordered({"row": self.json, "keys": keys}, LIMIT, SKIP if self.query.skip else None)
        return SQL(
            'select l.body, ({total}) as "count", ({position}) as "position", l.rows, l.keys from'
            " (select string_agg(n.row, ',') filter (where n.number <= {page}) as body, least(count(*), {page}) as rows,"
            " case when count(*) > {page} then max(n.keys) filter (where n.number = {page}) end as keys"
            " from (select r.row, r.keys, row_number() over () as number from ({rows}) as r) as n) as l"
        ).format(total=self.count() if self.query.count else SQL("null::int8"), position=self.position(), page=PAGE, rows=rows)

    def total(self) -> Composed:
        return SQL('select ({}) as "count", ({}) as "position"').format(self.count(), self.position())

    def listing(self, ties: bool) -> Composed:
        listed = self.complete() if ties else self.cut()
        return SQL('select l.body, l.more, ({}) as "position", l.rows from ({}) as l').format(self.position(), listed)

    def cut(self) -> Composed:
        """A page of exactly `top` rows; a further row is read to tell whether more follow."""
        return SQL(
            "select string_agg(n.row, ',') filter (where n.number <= {top}) as body, count(*) > {top} as more,"
            " least(count(*), {top}) as rows"
            " from (select r.row, row_number() over () as number from"
            " ({rows}) as r) as n"
        ).format(top=TOP, rows=self.ordered({"row": self.json}, SQL("{} + 1").format(TOP)))

    def complete(self) -> Composed:
        """A page that ends where the first sort key changes."""
        keys = self.keys()
        source, first = self.source(self.query.order), self.expressions.compile(keys[0].key)
        rows = SQL("select {} {} order by {first} fetch first ({}) rows with ties").format(self.picked(), source, TOP, first=first)
        output, joins = self.written({"row": self.json})
        return SQL(
            "with {page} as materialized ({rows}) select (select string_agg(r.row, ',' order by {order}) from"
            " (select {output}, {columns} from {page} as {this}{joins}) as r) as body,"
            " exists (select {source} and {first} > (select max(r.{key}) from {page} as r)) as more,"
            " (select count(*) from {page} as r) as rows"
        ).format(
            page=self.page_name,
            rows=self.fetched(rows),
            this=self.this,
            output=output,
            columns=SQL(", ").join(SQL("{}.{}").format(self.this, key_name(n)) for n in range(len(keys))),
            joins=joins,
            order=SQL(", ").join(sort(SQL("r.{}").format(key_name(n)), key) for n, key in enumerate(keys)),
            source=source,
            first=first,
            key=key_name(0),
        )

    # Parts of statements

    def count(self) -> Composed:
        return SQL("select count(*) {}").format(self.source(()))

    def position(self) -> Composed:
        """The greatest position of the entities that the query reads; for the change log, the last change of the company.

        It begins with the company's generation and the time at which that began: one of before had the same positions.
        Null if the row at which a navigation begins is missing, which cannot be told from an empty result otherwise.
        """
        if self.query.tracks:
            return state(self.query.entity.name, COMPANY)
        if "changes" in self.query.entities:
            return SQL("select coalesce(max(p.last_id), {}::int8) from bds.company_positions as p where p.company_id = {}").format(
                ABSENT, COMPANY
            )
        last = (SQL("(p.positions ->> {})::int8").format(Literal(entity)) for entity in self.query.entities)
        data = SQL("greatest(0, {})").format(SQL(", ").join(last))
        if self.expressions.past:
            data = SQL(
                "current_setting('bds.version') || '.' ||"
                " coalesce((select max(e.number) from bds.erasures as e where e.company_id = p.company_id), 0)"
            ).format()
        text = SQL(
            "select coalesce(max(p.generation || '.' || extract(epoch from p.begun_at) || '.' || {}), {})"
            " from bds.company_positions as p where p.company_id = {}"
        ).format(data, ABSENT, COMPANY)
        origin = self.query.origin
        if origin is None:
            return text
        source = self.expressions.source(origin.entity, [origin.condition], origin.number)
        condition = self.expressions.compile(origin.condition, loose=True)
        return SQL("select case when exists (select {} and {}) then ({}) end").format(source, condition, text)

    def keys(self) -> tuple[Order, ...]:
        """The sort keys."""
        return () if self.query.single else self.query.keys

    def key_values(self) -> list[Composed]:
        """The sort keys of a row of a page."""
        return [self.expressions.compile(key.key) for key in self.keys()]

    def order(self, keys: Iterable[Order]) -> Composed:
        return SQL(", ").join(sort(self.expressions.compile(key.key), key) for key in keys)

    def json(self) -> Composed:
        """A row as JSON."""
        query = self.query
        fields = query.select if query.select is not None else tuple(query.entity.fields.values())
        inside = (member for expansion in query.expand for member in self.expanded(expansion))
        return self.writer.row(query.entity, self.expressions.alias(()), fields, inside)

    @property
    def writer(self) -> Writer:
        return Writer(self.query.catalog, self.style)

    @property
    def this(self) -> Identifier:
        """The alias of the rows."""
        return Identifier(self.expressions.alias(()))

    @property
    def page_name(self) -> Identifier:
        """The name under which a page is read twice."""
        return Identifier(f"{self.expressions.alias(())}_page")

    def picked(self, column: SQL = ALL) -> Composed:
        """A column of a row, or all, and its sort keys."""
        columns = [SQL(", {} as {}").format(self.expressions.compile(key.key), key_name(n)) for n, key in enumerate(self.keys())]
        return SQL("{}.{}{}").format(self.this, column, Composed(columns))

    def fetched(self, rows: Composed) -> Composed:
        """The rows of a page, from a query that has picked them."""
        return rows

    def written(self, columns: Mapping[str, Callable[[], Composed]]) -> tuple[Composed, Composable]:
        """The columns of the rows of a page, and joins that they need."""
        return named(columns), NOTHING

    def expanded(self, expansion: Expansion) -> Iterator[tuple[str, Composable]]:
        """Yield the members of an expansion: its rows, before them their number if it asks for it."""
        path = (*self.path, expansion.step.name)
        compiler = Compiler(self.expressions.constants, self.expressions.past, aliases={(0, ()): f"e{len(path)}"})
        rows = RelatedSelect(
            *(expansion.query, self.style, compiler, page_parameter("top", path), path),
            step=expansion.step,
            parent=self.expressions.alias(()),
        )
        if expansion.query.count:
            quoted = """'"' || ({})::text || '"'""" if self.style.numbers_as_strings else "({})::text"
            yield f"{expansion.step.name}@odata.count", SQL(quoted).format(rows.count())
        yield expansion.step.name, rows.inside()

    def source(self, order: Iterable[Order], table: Composable | None = None) -> Composed:
        """FROM the entity's view or a table, with the joins that the filter and the order need, WHERE the filter is true."""
        return self.matching((key.key for key in order), table)

    def matching(self, roots: Iterable[Expression], table: Composable | None = None, more: Composable = NOTHING) -> Composed:
        """FROM the entity's view, with the joins that the filter and the expressions need, WHERE the filter is true.

        table: some of the rows, in place of the view.  more: further joins.
        """
        filter = self.query.filter
        roots = [*roots] if filter is None else [filter, *roots]
        source = self.expressions.source(self.query.entity.name, roots, table=table, more=more)
        if filter is None:
            return source
        return SQL("{} and {}").format(source, self.expressions.compile(filter, loose=True))


@dataclass(slots=True, kw_only=True)
class RelatedSelect(Select):
    """Composes a subquery of the rows to which a navigation leads from the row of the alias `parent`."""

    step: Navigation
    parent: str

    def inside(self) -> Composed:
        """The JSON text of the row or null, or of an array of the rows."""
        if not self.step.many:
            return SQL("coalesce(({}), 'null')").format(self.rows())
        return SQL("coalesce((select '[' || string_agg(r.row, ',') || ']' from ({}) as r), '[]')").format(self.rows())

    def matching(self, roots: Iterable[Expression], table: Composable | None = None, more: Composable = NOTHING) -> Composed:
        key, id = (self.step.field, "id") if self.step.many else ("id", self.step.field)
        link = SQL(" and {} = {}").format(Identifier(self.expressions.alias(()), key), Identifier(self.parent, id))
        return Select.matching(self, roots, table, more) + link


def key_name(number: int) -> Identifier:
    """The name of a sort key as a column; no field has such a name."""
    return Identifier(f"@{number}")


def named(columns: Mapping[str, Callable[[], Composed]]) -> Composed:
    return SQL(", ").join(SQL("{} as {}").format(compile(), Identifier(name)) for name, compile in columns.items())


def order_by(keys: Sequence[Composable]) -> Composable:
    return SQL("order by {}").format(SQL(", ").join(keys)) if keys else NOTHING


def bounds(limit: Composable | None, skip: Composable | None) -> list[Composed]:
    parts = ((SQL("limit {}"), limit), (SQL("offset {}"), skip))
    return [text.format(value) for text, value in parts if value is not None]


def sort(key: Composable, order: Order) -> Composed:
    """A sort key: nulls first, or in descending order last.

    Only a nullable key has the clause, so that a plain index serves the others.
    """
    text = BY_CODE_POINT if order.key.type == "text" else SQL("")
    if order.descending:
        return SQL("{}{} desc{}").format(key, text, SQL(" nulls last" if order.key.nullable else ""))
    return SQL("{}{}{}").format(key, text, SQL(" nulls first" if order.key.nullable else ""))
