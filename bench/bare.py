"""The floor of small answers: the best SQL that one writes by hand for each, through a bare aiohttp and psycopg handler.

No routes but these, no names looked up, no credentials, no entity tags, no log: one prepared statement for one answer, by a process
like the service's own, with as many connections, as the same role and company.

`python -m bench.bare CONNECTION_STRING` prints its port.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import psycopg
import uvloop
from aiohttp import web
from psycopg_pool import AsyncConnectionPool

from bench.place import COMPANY

CONNECTIONS = 16
HEADERS = {"Content-Type": "application/json"}

TIME = "'\"' || to_char({}.\"updatedAt\" at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') || '\"'"
PRODUCT = f"""
    '{{"id":' || p.id || ',"code":' || to_json(p.code) || ',"name":' || to_json(p.name)
    || ',"description":' || coalesce(to_json(p.description)::text, 'null')
    || ',"barcode":' || coalesce(to_json(p.barcode)::text, 'null') || ',"price":' || coalesce(p.price::text, 'null')
    || ',"active":' || p.active || ',"categoryId":' || coalesce(p."categoryId"::text, 'null')
    || ',"unitId":' || coalesce(p."unitId"::text, 'null') || ',"updatedAt":' || {TIME.format("p")} || '}}'
"""
ITEM = f"""
    '{{"id":' || i.id || ',"description":' || coalesce(to_json(i.description)::text, 'null') || ',"quantity":' || i.quantity
    || ',"price":' || coalesce(i.price::text, 'null') || ',"invoiceId":' || i."invoiceId"
    || ',"productId":' || coalesce(i."productId"::text, 'null') || ',"updatedAt":' || {TIME.format("i")} || '}}'
"""

# path -> statement of one text; each %s is a value of the query, in its order
ANSWERS = {
    "/key": f"select {PRODUCT} from api.products p where p.company_id = '{COMPANY}' and p.id = %s::int8",
    "/page": f"""
        select '[' || string_agg(r.row, ',') || ']' from (
            select {PRODUCT} as row from api.products p
            where p.company_id = '{COMPANY}' and p.price > %s::int8 and p.name like %s::text
            order by p.price desc nulls last, p.id limit 50) r
    """,
    "/any": f"""
        select '[' || string_agg(r.row, ',') || ']' from (
            select '{{"id":' || v.id || ',"code":' || to_json(v.code) || ',"items":[' || (
                select string_agg({ITEM}, ',' order by i.id) from api."invoiceItems" i
                where i.company_id = '{COMPANY}' and i."invoiceId" = v.id) || ']}}' as row
            from api.invoices v
            where v.company_id = '{COMPANY}' and exists (
                select from api."invoiceItems" i
                where i.company_id = '{COMPANY}' and i."invoiceId" = v.id and i.quantity > %s::int8)
            order by v.id limit 20) r
    """,
    "/groups": f"""
        select '[' || string_agg('{{"category":{{"name":' || to_json(g.name) || '}},"amount":' || g.amount || '}}', ',') || ']' from (
            select c.name, sum(i.quantity * i.price) as amount
            from api."invoiceItems" i
            left join api.products p on p.company_id = '{COMPANY}' and p.id = i."productId"
            left join api.categories c on c.company_id = '{COMPANY}' and c.id = p."categoryId"
            where i.company_id = '{COMPANY}' group by c.name order by c.name) g
    """,
}


async def serve(url: str) -> None:
    """Serve the answers until the process is ended."""
    async with AsyncConnectionPool[psycopg.AsyncConnection[Any]](
        url, min_size=CONNECTIONS, max_size=CONNECTIONS, configure=configure, kwargs={"autocommit": True, "prepare_threshold": 0}
    ) as pool:
        app = web.Application()
        for path, statement in ANSWERS.items():
            app.router.add_get(path, handler(pool, statement))
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()


def handler(pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]], statement: str) -> Any:
    query = statement.encode()

    async def answer(request: web.Request) -> web.Response:
        async with pool.connection() as connection:
            cursor = await connection.execute(query, tuple(request.query.values()))
            row = await cursor.fetchone()
        assert row is not None
        return web.Response(body=row[0].encode(), headers=HEADERS)

    return answer


async def configure(connection: psycopg.AsyncConnection[Any]) -> None:
    settings = {
        "role": "bds_reader",
        "timezone": "UTC",
        "jit": "off",
        "bds.company": COMPANY,
        "plan_cache_mode": "force_generic_plan",
    }
    for name, value in settings.items():
        await connection.execute("select set_config(%s, %s, false)", (name, value), prepare=False)


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
