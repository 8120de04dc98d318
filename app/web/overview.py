"""The overview: the user's companies, row counts, changes over time; for users of every company also the number of problems."""

from __future__ import annotations

from datetime import UTC, datetime

from aiohttp import web

from app.errors import ServiceError
from app.web.chart import SPANS, bounds, draw
from app.web.data import count_rows
from app.web.page import PageRequest

PAGE = 50  # companies
COMPANIES = """
    select c.id, coalesce(d.place, 'home'), r.last_id, nullif(r.last_updated_at, '-infinity')
    from bds.companies c
    left join bds.residents r on r.company_id = c.id
    left join bds.directory d on d.company_id = c.id
    where c.id = any (%s)
    order by c.id
    limit %s offset %s
"""
# Problems concern the whole database, so only users of all of its companies see their number.
PROBLEMS = """
    select coalesce(sum(n.value::int), 0)::int
    from bds.problem_counts c cross join jsonb_each_text(c.counts) n
    where not exists (select from bds.companies k where k.id <> all (%s))
"""
DISABLED = "select count(*)::int from bds.hooks h where h.company_id = %s and h.disabled_for is not null and h.deleted_at is null"
CHANGES = "select c.changes from bds_service.count_changes(%s, %s) c order by c.since"


async def show(page: PageRequest) -> web.StreamResponse:
    """The overview, at the same cost for companies of any size: large row counts are estimates."""
    span = SPANS.get(page.query.get("span", "month"))
    if span is None:
        raise ServiceError("malformed_request", f"span: expected one of {', '.join(SPANS)}", target="span")
    offset, company, steps = page.offset(), page.company, bounds(span, datetime.now(UTC))
    async with page.database.service() as connection:
        cursor = await connection.execute(COMPANIES, (page.companies, PAGE + 1, offset))
        companies = await cursor.fetchall()
        problems = await (await connection.execute(PROBLEMS, (page.companies,))).fetchone() if page.may("account") else None
    async with page.database.session(company) as connection:
        counted = await (await connection.execute(CHANGES, (company, steps))).fetchall()
    if page.may("hooks"):
        async with page.database.registration(company) as connection:
            disabled = await (await connection.execute(DISABLED, (company,))).fetchone()
    else:
        disabled = None
    return page.render(
        "overview.html",
        disabled_hooks=disabled[0] if disabled else 0,
        problems=problems[0] if problems else 0,
        companies=companies[:PAGE],
        more=len(companies) > PAGE,
        offset=offset,
        page_size=PAGE,
        rows=await count_rows(page),
        spans=SPANS.values(),
        chart=draw(span, steps[:-1], [count for (count,) in counted]),
    )
