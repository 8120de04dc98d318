"""The tables (WITH) of a statement of what differs between two versions, which the session has named.

"<entity>_ends" has the rows that differ, x the lines or records.  A copy has other ids, so a document calls each row by its unique
field as of the earlier end (@name).  A row that comes to have a unique value of another one is its heir ("<entity>_heirs"): it has
its name.  A row that was deleted and one that was created with its unique value are one update.  If one of the two exists at both
ends, it has moved ("<entity>_moved"): in a copy rows that refer to it would refer to another one, so they are records, too.

An import finds the row of a record by each unique value as of the earlier end.  So what a row has must come from one row, and what
it had go to one, itself included: otherwise no document follows.  Nor is one written if both of a pair exist at both ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from app.database.catalog import Catalog, Entity, Field
from app.export.row_formats import text_of
from app.export.shape import ExportField
from app.query.check.query import Query
from app.query.check.tree import Column
from app.query.sql.conditions import LiteralCompiler
from app.query.sql.difference import OPERATION, differs, source
from app.query.sql.parameters import COMPANY
from app.query.sql.past import past_rows

PASSED = 5  # unique values that an error names


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one entity.  nested: whether its children are inside of records; moved: entities that have moved rows."""

    query: Query
    company: str
    nested: bool = False
    moved: tuple[str, ...] = ()

    @property
    def entity(self) -> Entity:
        return self.query.entity

    @property
    def catalog(self) -> Catalog:
        return self.query.catalog

    def rows(self) -> list[Composed]:
        """The tables up to x, which has each row that differs: as of the later end, a deleted one as of the earlier one."""
        return [self.differing(), SQL("x as (select d.* from {} as d)").format(table_of(self.entity))]

    def document(self) -> list[Composed]:
        """The tables up to x, which has the records of a document.

        @lookup is @name as lines have it; @whole tells whether the record has the row's children.
        """
        selects, touched = [self.named_rows()], self.touched(self.entity)
        if self.entity.name in self.moved:
            selects.append(self.left_rows())
        heirs = [_heirs(each, each.identifying_field) for each in (self.entity, *self.others()) if each.identifying_field]
        tables = [self.differing(), *map(self.ends, self.others()), *heirs, *map(self.moved_rows, self.moved)]
        if touched:
            tables.append(SQL('"touched" as materialized ({})').format(SQL(" union ").join(touched)))
            selects.append(self.touched_rows())
        return [*tables, SQL("x as ({})").format(SQL(" union all ").join(selects))]

    def passed(self) -> Composed:
        """One row: unique values that have passed between rows so that no document follows, and the entities with moved rows."""
        entities = [self.entity, *(inside(self.catalog, self.entity) if self.nested else ())]
        unique = [each for each in entities if any(each.alternate_keys)]
        moved = [
            SQL("select {} where exists (select from {} as p where 'update' in (p.former_operation, p.operation))").format(
                Literal(each.name), _table_of_passed(each)
            )
            for each in unique
            if each.identifying_field
        ]
        none = SQL("select null::text where false")
        return SQL("with {} select array(select f.v from ({}) as f (v) limit {}) as values, array({}) as moved").format(
            SQL(", ").join([self.differing(), *map(self.ends, entities[1:]), *map(_passed, unique)]),
            SQL(" union all ").join([*map(_unfollowed, unique), none]),
            SQL(str(PASSED)),
            SQL(" union all ").join([*moved, none]),
        )

    # Rows that differ

    def differing(self) -> Composed:
        """The entity's rows that differ, as of the later end, deleted ones as of the earlier one, with the names that they had."""
        columns = [
            SQL('case when n."@there" then n.{name} else o.{name} end as {name}').format(name=Identifier(field.name))
            for field in self.entity.fields.values()
        ]
        columns += [SQL("o.{} as {}").format(Identifier(field.name), was(field)) for field in _kept(self.entity)]
        return SQL('{} as materialized (select d.company_id, d."@id", {} as {}, {} {})').format(
            *(table_of(self.entity), OPERATION, OPERATION_COLUMN, SQL(", ").join(columns)),
            source(self.entity, self.company, self.query.filter),
        )

    def ends(self, entity: Entity) -> Composed:
        """The rows of another entity that differ: their names and references at both ends."""
        columns = SQL("").join(
            SQL(", e.{}, e.{} as {}").format(Identifier(field.name), Identifier(f"@{field.ordinal}"), was(field))
            for field in _kept(entity)
        )
        return SQL('{} as materialized (select e."@id", e.{}{} from {} as e where e.company_id = {} and {})').format(
            *(table_of(entity), OPERATION_COLUMN, columns, _view_of_ends(entity), COMPANY, differs("e"))
        )

    def others(self) -> list[Entity]:
        """The other entities whose rows that differ are needed: children, and those with moved rows."""
        names = [each.name for each in inside(self.catalog, self.entity)] if self.nested else []
        return [self.catalog[name] for name in dict.fromkeys([*names, *self.moved]) if name != self.entity.name]

    # Records

    def named_rows(self) -> Composed:
        """SELECT the rows that differ: what a copy calls them."""
        key, table = self.entity.identifying_field, table_of(self.entity)
        name: Composable = SQL("case when d.{operation} <> 'create' then d.{id} end").format(**_COLUMNS)
        along, tables = Composed([SQL("false")]), Composed([table, SQL(" as d")])
        is_new: Composable = SQL("d.{} = 'create'").format(OPERATION_COLUMN)
        if self.touched(self.entity):  # a join, because a subquery in its place may be run for each row
            along += SQL(" or k.id is not null")
            tables += SQL(' left join "touched" as k on k.id = d."@id"')
        if key is not None:
            name = _NAME.format(operation=OPERATION_COLUMN, was=was(key))
            is_new = SQL("{} is null and (d.{} = 'create' or b.heir is not null)").format(name, OPERATION_COLUMN)
            along += SQL(" or a.row is not null")
            tables += _counterparts(self.entity)
            tables += SQL(" where d.{} <> 'delete' or b.heir is null").format(OPERATION_COLUMN)
        rows = SQL("(select d.*, {} as {}, {} as {}, {} as {} from {})").format(name, NAME, along, ALONG, is_new, NEW, tables)
        whole = SQL("d.{} or d.{}").format(NEW, ALONG)
        operation = SQL("case when d.{0} = 'delete' then 'delete' when d.{1} then 'create' else 'update' end").format(
            OPERATION_COLUMN, NEW
        )
        return self.selected(operation, SQL("d.{}").format(NAME), whole, rows)

    def left_rows(self) -> Composed:
        """SELECT deletes of what a copy calls a row that takes over what it calls another, unless a third row takes that over."""
        key = self.entity.identifying_field
        assert key is not None
        columns = SQL(", ").join(
            SQL("e.{} as {}").format(Identifier(f"@{field.ordinal}"), Identifier(field.name))
            for field in self.entity.fields.values()
        )
        rows = SQL(
            "(select d.company_id, {columns} from {table} as d{joins}"
            " join {view} as e on e.company_id = d.company_id and e.{id} = d.{id}"
            " where d.{operation} = 'update' and a.row is not null and b.heir is null)"
        ).format(
            columns=columns,
            table=table_of(self.entity),
            joins=_counterparts(self.entity),
            view=_view_of_ends(self.entity),
            id=ID,
            operation=OPERATION_COLUMN,
        )
        return self.selected(SQL("'delete'"), SQL("d.{}").format(Identifier(key.name)), SQL("false"), rows)

    def touched_rows(self) -> Composed:
        """SELECT the rows that do not differ, but whose children do, or which refer to moved rows."""
        key = self.entity.identifying_field or self.entity.fields["id"]
        condition = SQL(' where d.id in (select k.id from "touched" as k) and d.company_id = {}').format(COMPANY)
        condition += SQL(" and not exists (select from {} as o where o.{} = d.id)").format(table_of(self.entity), ID)
        if self.query.filter is not None:
            compiler = LiteralCompiler({}, aliases={(0, ()): "d"})
            condition += SQL(" and {}").format(compiler.compile(self.query.filter, loose=True))
        name = SQL("d.{}").format(Identifier(key.name))
        return self.selected(SQL("'update'"), name, SQL("true"), past_rows(self.entity.name)) + condition

    def selected(self, operation: Composable, name: Composable, whole: Composable, rows: Composable) -> Composed:
        """SELECT the columns of x from rows."""
        key = self.entity.identifying_field
        lookup = lookup_in(key, name, SQL("d.id")) if key else name
        lookup = SQL("case when {} <> 'create' then {} end").format(operation, lookup)
        fields = SQL(", ").join(SQL("d.{}").format(Identifier(name)) for name in self.entity.fields)
        return SQL("select d.company_id, {} as {}, {} as {}, {} as {}, ({}) as {}, {} from {} as d").format(
            *(operation, OPERATION_COLUMN, name, NAME, lookup, LOOKUP, whole, WHOLE, fields, rows)
        )

    # Rows that come along

    def touched(self, entity: Entity, above: tuple[str, ...] = ()) -> list[Composed]:
        """Selects of the ids of rows of which a child differs, or which refer to a moved row."""
        owner = entity.parent_navigation if above else None
        parts = [
            self.of_past(entity, "id", step.field, SQL("m.{} from {} as m").format(ID, _table_of_moved(step.target)))
            for step in entity.navigations.values()
            if not step.many and step.target in self.moved and step.name != owner
        ]
        for step in entity.nested(above) if self.nested else ():
            child = self.catalog[step.target]
            key, ends = child.fields[step.field], table_of(child)
            parts += [
                SQL("select e.{} as id from {} as e where e.{} <> 'delete'").format(Identifier(key.name), ends, OPERATION_COLUMN),
                SQL("select e.{} from {} as e where e.{} <> 'create'").format(was(key), ends, OPERATION_COLUMN),
            ]
            if found := self.touched(child, (*above, entity.name)):
                parts.append(self.of_past(child, key.name, "id", SQL("k.id from ({}) as k").format(SQL(" union ").join(found))))
        return parts

    def of_past(self, entity: Entity, column: str, field: str, ids: Composed) -> Composed:
        """SELECT a column of the rows as of the later end in which a field is one of ids."""
        return SQL("select v.{} as id from {} as v where v.company_id = {} and v.{} in (select {})").format(
            Identifier(column), past_rows(entity.name), COMPANY, Identifier(field), ids
        )

    def moved_rows(self, name: str) -> Composed:
        """The ids of the rows that exist at both ends and have taken over, or given, what a copy calls a row."""
        entity = self.catalog[name]
        return SQL(
            "{} as materialized (select d.{} from {} as d{} where d.{} = 'update' and (a.row is not null or b.heir is not null))"
        ).format(_table_of_moved(name), ID, table_of(entity), _counterparts(entity), OPERATION_COLUMN)


ID, OPERATION_COLUMN = Identifier("@id"), Identifier("@operation")
NAME, LOOKUP, WHOLE, ALONG, NEW = (Identifier(name) for name in ("@name", "@lookup", "@whole", "@along", "@new"))
_COLUMNS = {"id": ID, "operation": OPERATION_COLUMN}

# of a row d what a copy calls it, null for one that it does not have; a and b: _counterparts
_NAME = SQL(
    "case when a.row is not null then a.former"
    " when d.{operation} = 'delete' or (d.{operation} = 'update' and b.heir is null) then d.{was} end"
)


def _counterparts(entity: Entity) -> Composed:
    """Joins to rows d of the row a of which they are the heir, and of their heir b."""
    return SQL(' left join {heirs} as a on a.heir = d."@id" left join {heirs} as b on b.row = d."@id"').format(
        heirs=table_of_heirs(entity)
    )


def _heirs(entity: Entity, key: Field) -> Composed:
    """The pairs of a row and the one that now has a unique value of it, with the name that it had."""
    pairs = [
        SQL("select a.{id} as row, b.{id} as heir, a.{} as former from {}").format(was(key), _pairs(entity, field), id=ID)
        for field in entity.alternate_keys
    ]
    return SQL("{} as materialized ({})").format(table_of_heirs(entity), SQL(" union ").join(pairs))


def _pairs(entity: Entity, field: Field) -> Composed:
    """FROM pairs of a row a and a row b that now has its unique value, WHERE they are two."""
    return SQL(
        "{d} as a join {d} as b on b.{key} = a.{was} and a.{operation} <> 'create' and b.{operation} <> 'delete'"
        " where a.{id} <> b.{id}"
    ).format(d=table_of(entity), key=Identifier(field.name), was=was(field), **_COLUMNS)


def _passed(entity: Entity) -> Composed:
    """The unique values that have passed from a row to its heir: what both keep, and whether they have further heirs or rows."""
    pairs = [
        SQL(
            "select {value} as value, a.{id} as row, b.{id} as heir, a.{operation} as former_operation, b.{operation} as operation,"
            " {kept} as kept, {also} as also from {pairs}"
        ).format(
            value=_text_of_value(field, "b"),
            kept=_kept_value(entity, "a"),
            also=_kept_value(entity, "b"),
            pairs=_pairs(entity, field),
            **_COLUMNS,
        )
        for field in entity.alternate_keys
    ]
    return SQL(
        "{} as materialized (select p.*, min(p.heir) over (partition by p.row) <> max(p.heir) over (partition by p.row)"
        " or min(p.row) over (partition by p.heir) <> max(p.row) over (partition by p.heir) as is_split from ({}) as p)"
    ).format(_table_of_passed(entity), SQL(" union all ").join(pairs))


def _unfollowed(entity: Entity) -> Composed:
    """SELECT the unique values that have passed so that no document follows."""
    condition = SQL("true")  # a row that is named by its number has no heir
    if entity.identifying_field:
        condition = SQL(
            "p.is_split or p.kept is not null or p.also is not null or p.former_operation = 'update' and p.operation = 'update'"
        )
    return SQL(
        "select {} || p.value || ' from row ' || p.row || ' to row ' || p.heir"
        " || coalesce(', but row ' || p.row || ' keeps ' || p.kept, ', but row ' || p.heir || ' keeps ' || p.also, '')"
        " from {} as p where {}"
    ).format(Literal(f"{entity.name} "), _table_of_passed(entity), condition)


def _kept_value(entity: Entity, row: str) -> Composed:
    """A unique value that a row has at both ends, or null."""
    cases = [
        SQL("when {row}.{} = {row}.{} then {}").format(
            Identifier(field.name), was(field), _text_of_value(field, row), row=Identifier(row)
        )
        for field in entity.alternate_keys
    ]
    return SQL("case when {}.{} <> 'update' then null {} end").format(Identifier(row), OPERATION_COLUMN, SQL(" ").join(cases))


def _text_of_value(field: Field, row: str) -> Composed:
    """The field and its value, as a lookup is written."""
    value = text_of(own_field(field), SQL("{}.{}").format(Identifier(row), Identifier(field.name)))
    return SQL("{} || {}").format(Literal(f"{field.name}:"), value)


def inside(catalog: Catalog, entity: Entity) -> list[Entity]:
    """The entities of the child collections in records of an entity, at any depth."""
    found: dict[str, Entity] = {}
    waiting = [entity]
    while waiting:
        for step in waiting.pop().children:
            if step.target not in found:
                found[step.target] = catalog[step.target]
                waiting.append(found[step.target])
    return [each for name, each in found.items() if name != entity.name]


def lookup_in(key: Field, name: Composable, id: Composable) -> Composed:
    """The text of a lookup of a row: by its name, or by its id where it had none."""
    return SQL("coalesce({} || {}, 'id:' || {})").format(Literal(f"{key.name}:"), text_of(own_field(key), name), id)


def own_field(field: Field) -> ExportField:
    return ExportField(field.name, Column(0, field.type, (), field))


def table_of(entity: Entity) -> Identifier:
    """The name of the table of an entity's rows that differ."""
    return Identifier(f"{entity.name}_ends")


def was(field: Field) -> Identifier:
    """The column with a field's value as of the earlier end."""
    return Identifier(f"@was{field.ordinal}")


def table_of_heirs(entity: Entity) -> Identifier:
    """The name of the table of an entity's heirs."""
    return Identifier(f"{entity.name}_heirs"[-60:])


def _table_of_passed(entity: Entity) -> Identifier:
    return Identifier(f"{entity.name}_passed"[-60:])


def _table_of_moved(entity: str) -> Identifier:
    return Identifier(f"{entity}_moved"[-60:])


def _view_of_ends(entity: Entity) -> Identifier:
    return Identifier("past", f"{entity.name}_ends")


def _kept(entity: Entity) -> Iterator[Field]:
    """The fields whose values at both ends are needed: those that name rows, and references."""
    return (field for field in entity.fields.values() if field.unique or field.reference)
