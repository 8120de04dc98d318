"""The statement of the changes of a collection since a version, over the view past."<entity>_ends" (app/query/sql/difference.py).

A row that matches at the later end is whole; one that a client may have and that does not match is removed.  A client may have:

- a row that matched at the earlier end;
- a row that changed while the pages of the first answer were read: it may have matched in between;
- a row with erased values, or of an entity whose columns were altered, whose match at the earlier end nobody can tell.
"""

from __future__ import annotations

from psycopg.sql import SQL, Composable, Composed, Literal

from app.database.catalog import Entity
from app.query.check.delta import MAX_PAGE, Delta
from app.query.check.query import Query
from app.query.sql.difference import changed
from app.query.sql.parameters import COMPANY, Statement, render
from app.query.sql.rows import NAMESPACE, Style, Writer


def state(entity: str, company: Composable) -> Composed:
    """The company's generation, when that began, the entity's registration, and the last change, with spaces between them.

    Each bds.register writes the row of its entity, whose xmin then differs.
    """
    return SQL(
        "select concat_ws(' ', coalesce(max(p.generation)::text, {absent}), max(extract(epoch from p.begun_at)),"
        " coalesce((select e.xmin::text from bds.entities as e where e.name = {}), '0'),"
        " coalesce((select max(q.last_id) from bds.positions as q where q.company_id = {company}), 0))"
        " from bds.company_positions as p where p.company_id = {company}"
    ).format(Literal(entity), company=company, absent=SQL("bds_service.refuse_absent({})").format(company))


def changes(query: Query, company: str, style: Style, between: tuple[int, int], *, newest: bool) -> Statement:
    """Rows of (version int8, row text) in the order of versions, up to one more than a page.

    between: two versions; the rows' are after the one, up to the other.  newest: in the form of OData 4.01.
    """
    entity, delta, writer = query.entity, query.delta, Writer(query.catalog, style)
    assert delta is not None
    fields = query.select if query.select is not None else tuple(entity.fields.values())
    text = SQL(
        'select d."@version", case when n."@there" then {row} else {removed} end {changed}'
        ' cross join lateral (select d."@id" as id) as r'
        ' where d.company_id = {company} and (n."@there" or o."@there" or {unsure}) and d."@version" > {after}'
        ' and d."@version" <= {upto} order by d."@version" limit {limit}'
    ).format(
        row=writer.row(entity, "n", fields),
        removed=_removed(writer, entity, newest=newest),
        changed=changed(entity, query.filter),
        company=COMPANY,
        unsure=_unsure(entity, delta),
        after=Literal(between[0]),
        upto=Literal(between[1]),
        limit=Literal(page_size(query) + 1),
    )
    rendered = render(text)
    values = {"company": company, "base": style.base or ""}
    return Statement(rendered, tuple(values[str(name)] for name in rendered.names), prepare=False)


def page_size(query: Query) -> int:
    return query.page or MAX_PAGE


def _unsure(entity: Entity, delta: Delta) -> Composed:
    """The condition that a client may have a row although it did not match at the earlier end."""
    name = Literal(entity.name)
    condition = SQL(
        "(select past.is_altered({name})) or exists (select from bds.erasures as e where e.company_id = {company}"
        ' and e.entity = {name} and e.row_id = d."@id")'
    ).format(name=name, company=COMPANY)
    if delta.read > delta.since:
        # not EXISTS, for which the planner may read and hash all changes of the range for each page (100,000: 0.25 s)
        condition += SQL(
            " or (select true from bds.changes as c where c.company_id = {company} and c.entity = {name}"
            ' and c.row_id = d."@id" and c.id > {since} and c.id <= {read}'
            " and c.created_at >= current_setting('bds.since_time')::timestamptz limit 1)"
        ).format(name=name, company=COMPANY, since=Literal(delta.since), read=Literal(delta.read))
    return condition


def _removed(writer: Writer, entity: Entity, *, newest: bool) -> Composed:
    """The JSON of a row that is not in the collection any more."""
    parts = {
        "reason": SQL("""case when d."@operation" in ('create', 'update') then 'changed' else 'deleted' end"""),
        "link": writer.link(entity, "r"),
        "id": writer.value("r", entity.fields["id"]),
    }
    if not newest:
        start = Literal(f'{{"@odata.context":"#{entity.name}/$deletedEntity","id":')
        return SQL("""{start} || {link} || ',"reason":"' || {reason} || '"}}'""").format(start=start, **parts)
    type = f'"@odata.type":"#{NAMESPACE}.{entity.singular}",' if writer.style.base else ""
    return SQL("""'{{"@removed":{{"reason":"' || {reason} || {middle} || {link} || ',"id":' || {id} || '}}'""").format(
        middle=Literal(f'"}},{type}"@odata.id":'), **parts
    )


def identified(style: Style, query: Query) -> Style:
    """The style in which a client of a delta can tell rows apart, also if it has not selected their ids."""
    has_id = query.select is None or query.entity.fields["id"] in query.select
    return style if has_id or style.base else Style(numbers_as_strings=style.numbers_as_strings, identified=True)
