"""The SQL of an OData request and PostgreSQL's plan for it, for the operator; clients never see either."""

from __future__ import annotations

import re

import psycopg
from multidict import CIMultiDict

from app.config import Config
from app.database.connections import connect, read_catalog, resolve_company
from app.database.past import NAME_VERSION, parameters, past_of
from app.errors import ServiceError
from app.odata.plan import TAKES
from app.odata.request import Kind, read_request
from app.query import sql_statements
from app.query.options import parse_query

WIDEST = 100_000  # characters of a list that stays on one line, such as the expression that writes a row as JSON
DEEPEST = 24  # spaces before a line


def explain(config: Config, path: str) -> str:
    """Return the statement of a GET of `/api/odata/...`, pretty-printed, with its parameters and plan.  Raises ServiceError."""
    if not path.startswith("/api/odata/"):
        raise ServiceError("malformed_request", "expected a path such as /api/odata/demo/products?$top=5")
    company = path.split("/")[3]
    with connect(resolve_company(config, company), "bds_reader") as connection:
        catalog = read_catalog(connection)
        request = read_request(catalog, "GET", path, CIMultiDict())
        resource, company = request.resource, request.company
        if resource.entity is None:
            raise ServiceError("malformed_request", f"{resource.kind.value} needs no SQL")
        query = parse_query(
            *(request.catalog, resource.entity, request.options),
            key=resource.key,
            member=resource.member,
            takes=TAKES[resource.kind],
            extended=config.odata_extended,
        )
        statement = sql_statements.count(query, company) if resource.kind is Kind.COUNT else sql_statements.rows(query, company)
        connection.execute("select set_config('bds.company', %s, false)", (company,))
        if request.moment:
            row = connection.execute(NAME_VERSION, parameters(company, request.moment, local=False)).fetchone()
            past_of(row, request.moment)
        plan = psycopg.RawCursor(connection).execute(b"explain " + statement.text, statement.values).fetchall()
    given = [f"  ${number} = {value!r}" for number, value in enumerate(statement.values, 1)]
    return "\n".join([_pretty(statement.text.decode()), "", *given, "", *(line for (line,) in plan)])


def _pretty(text: str) -> str:
    """The text pretty-printed by pglast if that is installed."""
    try:
        from pglast import prettify
    except ImportError:
        return text
    printed = prettify(text, compact_lists_margin=WIDEST)
    return re.sub(rf"^ {{{DEEPEST},}}", " " * DEEPEST, printed, flags=re.MULTILINE)
