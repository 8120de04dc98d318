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
from app.export.read import Reader, open_reader
from app.export.request import WHOLE, ExportRequest, read_parameters, read_request, read_whole
from app.formats import SCHEMA

Show = Callable[[int, int, int], None]  # rows so far, rows in all, bytes so far


def run(url: str, config: Config, company: str, entity: str, given: Mapping[str, str], out: BinaryIO, show: Show) -> None:
    """Write an export.  given: parameters of a request.  Raises ServiceError, psycopg.Error, OSError."""
    try:
        asyncio.run(_run(url, config, company, entity, given, out, show))
    except TimeoutError as error:
        if error.errno is not None:  # of a file
            raise
        raise ServiceError("busy", "the database did not answer in time: BDS_STATEMENT_TIMEOUT gives it longer") from None


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
        total = await _count(request, reader, config.statement_timeout)
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


async def _count(export: ExportRequest, reader: Reader, timeout: float) -> int:
    """The number of rows, for the progress alone: 0 if it takes longer than `timeout` seconds."""
    total, patient = 0, replace(reader, timeout=None)
    try:
        async with reader.connection.transaction(), asyncio.timeout(timeout):  # the export goes on in the transaction around it
            for query in export.queries:
                (count,) = await patient.one(content.count(replace(export, query=query, others=())))
                total += count
    except TimeoutError:
        return 0
    return total
