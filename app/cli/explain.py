"""The SQL of an OData request and PostgreSQL's plan for it, for the operator; clients never see either."""

from __future__ import annotations

import re
from urllib.parse import unquote

import psycopg
from multidict import CIMultiDict

from app.config import Config
from app.database.connections import resolve_company, snapshot
from app.database.past import open_past
from app.errors import ServiceError
from app.odata.plan import make_plan
from app.odata.response import DECLARE

WIDEST = 100_000  # characters of a list that stays on one line, such as the expression that writes a row as JSON
DEEPEST = 24  # spaces before a line


async def explain(config: Config, path: str) -> str:
    """Return the statement of a GET of `/api/odata/...`, pretty-printed, with its parameters and plan.  Raises ServiceError."""
    if not path.startswith("/api/odata/"):
        raise ServiceError("malformed_request", "expected a path such as /api/odata/demo/products?$top=5")
    company = unquote(re.split("[/@?]", path)[3])
    async with snapshot(resolve_company(config, company), company) as (connection, catalog):
        plan = make_plan(catalog, "GET", path, CIMultiDict(), "http://localhost", extended=config.odata_extended)
        if plan.is_document:
            raise ServiceError("malformed_request", f"{plan.kind.value} needs no SQL")
        if plan.request.moment:
            await open_past(connection, company, plan.request.moment)
        statement, text = plan.statement, plan.statement.text
        found = await psycopg.AsyncRawCursor(connection).execute(
            b"explain " + (DECLARE + text if plan.is_stream else text), statement.values, prepare=False
        )
        lines = await found.fetchall()
    given = [f"  ${number} = {value!r}" for number, value in enumerate(statement.values, 1)]
    return "\n".join([_pretty(text.decode()), "", *given, "", *(line for (line,) in lines)])


def _pretty(text: str) -> str:
    """The text pretty-printed by pglast if that is installed."""
    try:
        from pglast import prettify
    except ImportError:
        return text
    printed = prettify(text, compact_lists_margin=WIDEST)
    return re.sub(rf"^ {{{DEEPEST},}}", " " * DEEPEST, printed, flags=re.MULTILINE)
