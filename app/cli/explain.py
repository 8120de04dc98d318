"""For the operator: the SQL that a request becomes, and PostgreSQL's plan for it.  Clients never see either."""

from __future__ import annotations

import re

from multidict import CIMultiDict
from psycopg.sql import SQL

from app.config import Config
from app.database.connections import connect, read_catalog, resolve
from app.errors import ServiceError
from app.odata.plan import TAKES
from app.odata.request import Kind, read_request
from app.query import sql_select
from app.query.query import parse_query

WIDEST = 100_000  # characters of a list that stays on one line: what writes a row as JSON is one
DEEPEST = 24  # spaces before a line


def explain(config: Config, path: str) -> str:
    """The statement of a GET of `/api/odata/...`, printed to be read, its parameters and its plan.  Raises ServiceError."""
    if not path.startswith("/api/odata/"):
        raise ServiceError("malformed_request", "expected a path such as /api/odata/demo/products?$top=5")
    with connect(resolve(config), "bds_reader") as connection:
        catalog = read_catalog(connection)
        asked = read_request(catalog, "GET", path, CIMultiDict())
        resource = asked.resource
        if resource.entity is None:
            raise ServiceError("malformed_request", f"{resource.kind.value} is made without SQL")
        query = parse_query(
            catalog, resource.entity, asked.options, key=resource.key, member=resource.member, takes=TAKES[resource.kind]
        )
        statement = sql_select.count(query, asked.company) if resource.kind is Kind.COUNT else sql_select.rows(query, asked.company)
        connection.execute("select set_config('bds.company', %s, false)", (asked.company,))
        plan = connection.execute(SQL("explain ") + statement.text, statement.parameters).fetchall()
    parameters = [f"  {name} = {value!r}" for name, value in statement.parameters.items()]
    return "\n".join([_pretty(statement), "", *parameters, "", *(line for (line,) in plan)])


def _pretty(statement: sql_select.Statement) -> str:
    """The text in lines, by PostgreSQL's own parser where pglast is installed."""
    text = statement.text.as_string()
    try:
        from pglast import prettify
    except ImportError:
        return text
    names = list(statement.parameters)
    numbered = re.sub(r"%\((\w+)\)s", lambda found: f"${names.index(found[1]) + 1}", text).replace("%%", "%")
    printed = prettify(numbered, compact_lists_margin=WIDEST)
    shallow = re.sub(rf"^ {{{DEEPEST},}}", " " * DEEPEST, printed, flags=re.MULTILINE)
    return re.sub(r"\$(\d+)", lambda found: f"%({names[int(found[1]) - 1]})s", shallow)
