"""The floor of small answers: the best SQL that one writes by hand for each, through a bare protocol and libpq.

No routes but these, no names looked up, no credentials, no entity tags, no log: a request line is split, one prepared statement runs on
one of the standing connections, and its text is written to the socket.  The process, the number of connections, the role and the
company are like the service's own.

`python -m bench.bare CONNECTION_STRING` prints its port.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import Any
from urllib.parse import parse_qsl

import psycopg
import uvloop
from psycopg import pq

from bench.place import COMPANY

CONNECTIONS = 16
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"

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

# path -> statement of one text; $1, $2 ... are the values of the query, in their order
ANSWERS = {
    "/key": f"select {PRODUCT} from api.products p where p.company_id = '{COMPANY}' and p.id = $1::int8",
    "/page": f"""
        select '[' || string_agg(r.row, ',') || ']' from (
            select {PRODUCT} as row from api.products p
            where p.company_id = '{COMPANY}' and p.price > $1::int8 and p.name like $2::text
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
                where i.company_id = '{COMPANY}' and i."invoiceId" = v.id and i.quantity > $1::int8)
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


class Backend:
    """A connection on which every answer's statement is prepared."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection
        self.pq = connection.pgconn
        self.asked: Client | None = None

    def readable(self, server: Server) -> None:
        self.pq.consume_input()
        text = b""
        while not self.pq.is_busy():
            result = self.pq.get_result()
            if result is None:
                asked, self.asked = self.asked, None
                assert asked is not None
                server.free(self)
                if not asked.transport.is_closing():
                    asked.transport.write(HEAD % (len(text), text))
                return
            if result.status != pq.ExecStatus.TUPLES_OK:
                raise RuntimeError(result.get_error_message())
            text = result.get_value(0, 0) or b""


class Server:
    """The standing connections, and the requests that wait for one."""

    def __init__(self) -> None:
        self._idle: list[Backend] = []
        self._waiting: deque[tuple[Client, bytes, list[bytes | None]]] = deque()

    async def connect(self, url: str) -> None:
        for _ in range(CONNECTIONS):
            connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
            await configure(connection)
            for path, statement in ANSWERS.items():
                assert connection.pgconn.prepare(path.encode(), statement.encode()).status == pq.ExecStatus.COMMAND_OK
            backend = Backend(connection)
            asyncio.get_running_loop().add_reader(connection.pgconn.socket, backend.readable, self)
            self._idle.append(backend)

    def ask(self, client: Client, name: bytes, values: list[bytes | None]) -> None:
        if not self._idle:
            self._waiting.append((client, name, values))
            return
        backend = self._idle.pop()
        backend.asked = client
        backend.pq.send_query_prepared(name, values)
        backend.pq.flush()

    def free(self, backend: Backend) -> None:
        self._idle.append(backend)
        if self._waiting:
            self.ask(*self._waiting.popleft())


class Client(asyncio.Protocol):
    """One client's connection, which sends a request after the answer to the one before."""

    transport: Any

    def __init__(self, server: Server) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        path, _, query = data.split(b" ", 2)[1].partition(b"?")
        self._server.ask(self, path, [value for _, value in parse_qsl(query)])


async def serve(url: str) -> None:
    """Serve the answers until the process is ended."""
    server = Server()
    await server.connect(url)
    listening = await asyncio.get_running_loop().create_server(lambda: Client(server), "127.0.0.1", 0)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await listening.serve_forever()


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
