"""`bds export`: exports into a file or a pipe, without a server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import BinaryIO

from app.config import Config
from app.database import connections
from app.database.servers import reads
from app.errors import ServiceError, hint
from app.export import content, to_xml
from app.export.output import find_output, write
from app.export.read import open_reader
from app.export.request import WHOLE, read_parameters, read_request, read_whole
from app.formats import SCHEMA

Show = Callable[[int, int, int], None]  # rows so far, rows in all, bytes so far


def run(url: str, config: Config, company: str, entity: str, given: Mapping[str, str], out: BinaryIO, show: Show) -> None:
    """Write an export.  given: parameters of a request.  Raises ServiceError, psycopg.Error, OSError."""
    asyncio.run(_run(url, config, company, entity, given, out, show))


async def _run(url: str, config: Config, company: str, entity: str, given: Mapping[str, str], out: BinaryIO, show: Show) -> None:
    is_home = url == connections.resolve(config)  # of which alone there are replicas
    source = await reads.choose_url(config, url) if is_home else url
    async with connections.snapshot(source, company) as (connection, catalog):
        if entity not in catalog and entity != WHOLE:
            raise ServiceError("not_found", f"no such entity: {entity}{hint(entity, catalog.entities)}")
        parameters = read_parameters(list(given.items()))
        is_whole = entity == WHOLE
        request = (
            read_whole(catalog, company, parameters) if is_whole else read_request(catalog, catalog[entity], company, parameters)
        )
        file = await find_output(connection, request)
        if request.format is SCHEMA:
            out.write(to_xml.schema(request))
            return
        request = replace(request, schema=f"{entity}.{SCHEMA.extension}")
        request, reader = await open_reader(connection, request, config.statement_timeout)
        (total,) = await reader.one(content.count(request))
        rows = written = 0

        def on_rows(count: int) -> None:
            nonlocal rows
            rows += count
            show(rows, total, written)

        reader.on_rows = on_rows
        async with contextlib.aclosing(write(request, reader, file)) as blocks:
            async for block in blocks:
                await asyncio.to_thread(out.write, block)
                written += len(block)
                show(rows, total, written)
