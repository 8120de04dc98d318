"""One read-only statement over the companies of all places: it runs at each place, and the parts become one result.

Whether that gives what one database with all companies would give is read from PostgreSQL's plan of the statement at home:

    rows                     joined by company_id alone, or grouped by it: the parts one after the other
    groups without it        count, sum, min, max, bool_and, bool_or: groups of the parts are merged
    order by, limit at last  the parts are merged in that order

Everything else is refused: an average of averages would be wrong, and nobody would see it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any

import psycopg

from app.database.connections import connect, one_value
from app.database.servers.directory import HOME
from app.errors import QueryError, ServiceError
from app.places.merge import MERGERS, TEXTS, Merge, Order, Row, refused

SORTS = {"Sort", "Incremental Sort", "Merge Append"}
GROUPS = {"Aggregate", "Group", "Unique"}
SCANS = {"Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Heap Scan", "Bitmap Index Scan", "Tid Scan", "Sample Scan"}
PLAIN = SCANS | SORTS | {"Append", "Result", "Hash", "Materialize", "Memoize", "Subquery Scan", "BitmapAnd", "BitmapOr"}
JOINS = {"Hash Join", "Merge Join", "Nested Loop"}
BY_COMPANY = re.compile(r"\bcompany_id\)?(::text)? = \(?(\w+\.)?company_id\b")
MERGED = re.compile(rf"({'|'.join(MERGERS)})\((?!DISTINCT)[^()]*(\([^()]*\)[^()]*)*\)")
LIMIT = re.compile(r"\blimit\s+(\d+)\s*;?\s*$", re.IGNORECASE)
SORTED = re.compile(r"\border\s+by\b", re.IGNORECASE)
EXPLAIN = "explain (verbose, format json) "
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|--[^\n]*|/\*.*?\*/|\$(\w*)\$.*?\$\1\$", re.DOTALL)
ONE_OF_EACH = re.compile(r"\bdistinct\s+on\s*\((?!\s*([\w.]+\s*,\s*)*(\w+\.)?company_id\s*[,)])", re.IGNORECASE)
ORDER = re.compile(r"(?P<key>.*?)(?: COLLATE (?P<collation>\S+))?(?P<down> DESC)?(?: NULLS (?P<nulls>FIRST|LAST))?")
# Of the plan that is read, not of those that run: one process, so that each group is made in one step; an order only by a sort; and
# joins that name all that they compare.
SETTINGS = """
    select set_config('enable_' || name, 'on', true) from unnest(array['seqscan', 'sort', 'hashagg', 'hashjoin']) name
    union all
    select set_config('enable_' || name, 'off', true) from unnest(array[
        'indexscan', 'indexonlyscan', 'bitmapscan', 'mergejoin', 'nestloop', 'partitionwise_aggregate', 'partitionwise_join'
    ]) name
    union all
    select set_config('max_parallel_workers_per_gather', '0', true)
"""
# accounts and the directory, which home alone has
OF_HOME = "select split_part(t.name, '.', 2) from bds.tables t where t.stands = 'home'"
OF_COMPANIES = """
    select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'company_id' and not a.attisdropped
    where c.relkind in ('r', 'p') and c.relname <> all (%s)
"""
ENUMS = "select array_agg(oid::int8) from pg_type where typtype = 'e' and oid = any(%s::oid[])"
# at the beginning, and after it
MOVING = "select company_id from bds.directory where phase is not null limit 1"
MOVED = "select company_id from bds.directory where phase is not null or changed_at > %s limit 1"

Node = dict[str, Any]


def query(urls: dict[str, str], statement: str) -> tuple[list[str], list[Row]]:
    """Run a statement over all companies; returns the names of its columns, and its rows.

    Raises ServiceError(not_supported) if the parts could not be merged, (conflict) while a company moves, (place_unavailable);
    psycopg.Error.
    """
    with connect(urls[HOME]) as home:
        merge = plan(home, statement, is_alone=len(urls) == 1)
        if merge.is_of_home:
            return _read([HOME], urls, merge)
        began = one_value(home, "select clock_timestamp()")
        _require_settled(home.execute(MOVING).fetchone())
        found = _read(urls, urls, merge)
        _require_settled(home.execute(MOVED, (began,)).fetchone())  # a move may have copied rows of a part before another one ran
    return found


def _require_settled(moving: Row | None) -> None:
    if moving:
        raise ServiceError("conflict", f"{moving[0]} is being moved, so its rows are at two places: try again later")


def _read(places: Iterable[str], urls: dict[str, str], merge: Merge) -> tuple[list[str], list[Row]]:
    names: list[str] = []
    parts: list[list[Row]] = []
    for name in places:
        try:
            with connect(urls[name]) as place, _reading(place):
                cursor = _run(place, merge.statement)
                names = [column.name for column in cursor.description or ()]
                parts.append(cursor.fetchall())
        except psycopg.OperationalError as error:
            raise ServiceError("place_unavailable", f"the place {name} does not answer, so its companies lack: {error}") from error
    return names, merge.of(parts)


def plan(home: psycopg.Connection[Any], statement: str, *, is_alone: bool = False) -> Merge:
    """How the parts of a statement are merged.  is_alone: home has all companies.

    Raises ServiceError(not_supported) that says why they cannot be.
    """
    with _reading(home):
        home.execute(SETTINGS)
        top = _explain(home, statement)
        of_home = {name for (name,) in home.execute(OF_HOME)}
        companies = {name for (name,) in home.execute(OF_COMPANIES, (list(of_home),))}
        relations = {node["Relation Name"] for node in _nodes(top) if "Relation Name" in node}
        if not is_alone:
            _require_known(top)
        if is_alone or not any(_is_of(name, companies) for name in relations):
            return Merge(statement, is_of_home=True)
        if found := sorted(relations & of_home):
            raise refused(f"{found[0]} is at home alone")
        bare, limit = statement.rstrip("; \n\t"), None
        if top["Node Type"] == "Limit" and (given := LIMIT.search(statement)):
            bare, limit = statement[: given.start()], int(given[1])
            top = _explain(home, bare)
        merge = _merge(top, statement, bare, limit)
        if merge.order or merge.keys is not None:
            _require_comparable(home, merge, bare, len(top["Output"]))
    return merge


def _require_known(top: Node) -> None:
    """Raise ServiceError if rows come from a function that may read those of one place, as the view bds.turns does."""
    for node in _nodes(top):
        if node["Node Type"] == "Function Scan" and node.get("Schema") != "pg_catalog":
            raise refused(f"the function {node.get('Schema')}.{node.get('Function Name')} reads one place")


def _explain(home: psycopg.Connection[Any], statement: str) -> Node:
    try:
        row = _run(home, EXPLAIN + statement).fetchone()
    except psycopg.Error as error:
        if not error.diag.statement_position:
            raise
        at = int(error.diag.statement_position) - len(EXPLAIN)  # a place in the text that was written
        raise QueryError(error.diag.message_primary or "malformed", position=max(at, 1), beside=error.diag.message_hint) from None
    assert row is not None
    top: Node = row[0][0]["Plan"]
    return top


def _run(connection: psycopg.Connection[Any], statement: str) -> psycopg.Cursor[Row]:
    """Run one statement; a text with several, of which one could end the transaction, is an error."""
    return connection.execute(statement.encode(), prepare=True)


def _merge(top: Node, statement: str, bare: str, limit: int | None) -> Merge:
    """bare: the statement without its limit."""
    if "Output" not in top:
        raise refused("expected a select")
    if top["Node Type"] == "Limit":
        raise refused("a limit is merged only as `limit N` at the end")
    merge, node, output = Merge(statement, limit=limit), top, top["Output"]
    if node["Node Type"] in SORTS:
        merge.order = [_order(key, output) for key in node["Sort Key"]]
        node = node if node["Node Type"] == "Merge Append" else _only(node)
    elif node["Node Type"] in GROUPS and _is_ordered(bare):  # groups are made in the order of a sort below
        sort = _only(node).get("Sort Key", ())
        merge.order = [_order(key, output) for key in takewhile(lambda key: _columns(_parts(key)["key"], output), sort)]
    if node["Node Type"] in GROUPS and not _is_by_company(node):
        _require_mergeable(node, bare)
        grouped = output if node["Node Type"] == "Unique" else node.get("Group Key", [])
        merge.keys = [_find(key, output, "grouped") for key in grouped]
        merge.how = {n: _how(each) for n, each in enumerate(output) if n not in merge.keys}
        merge.statement = bare  # a part of a group may be the last one where the whole is the first
        node = _only(node)
    for each in _nodes(node):
        _require_apart(each)
    if not merge.order and merge.keys != []:
        if limit is not None and not _is_ordered(bare):
            raise refused("a limit without an order would take any rows")
        if _is_ordered(bare):
            raise refused("its plan does not tell the order")
    return merge


def _require_mergeable(node: Node, statement: str) -> None:
    """Raise ServiceError unless groups of a step of the plan can be merged by their keys."""
    if "Filter" in node:
        raise refused("having is judged where only a part of a group is")
    if "Grouping Sets" in node:
        raise refused("grouping sets have groups of several kinds")
    if node["Node Type"] == "Unique" and ONE_OF_EACH.search(QUOTED.sub(" ", statement)):
        raise refused("distinct on takes one row of each place")


def _is_ordered(statement: str) -> bool:
    """Whether the result has an order, not only what is in parentheses; true if the text alone does not tell."""
    text, shorter = "", QUOTED.sub(" ", statement)
    while text != shorter:
        text, shorter = shorter, re.sub(r"\([^()]*\)", " ", shorter)
    return SORTED.search(text if text.strip() and "\\" not in statement else statement) is not None


def _require_apart(node: Node) -> None:
    """Raise ServiceError unless a step of the plan never brings rows of two companies together."""
    kind = node["Node Type"]
    if node.get("Parent Relationship") in ("InitPlan", "SubPlan") and not _is_by_company(node):
        raise refused("a subquery sees the companies of one place")
    if kind in JOINS and not BY_COMPANY.search(node.get("Hash Cond", "")):
        raise refused("a join without company_id = company_id")
    if kind not in PLAIN | JOINS and not _is_by_company(node):
        raise refused(f"the step {kind} sees the companies of one place")


def _is_by_company(node: Node) -> bool:
    """Whether each of its groups is of one company."""
    return any(re.fullmatch(r"(\w+\.)?company_id", key) for key in node.get("Group Key", ()))


def _require_comparable(home: psycopg.Connection[Any], merge: Merge, bare: str, width: int) -> None:
    """Raise ServiceError unless what the merge compares is in the result, and Python compares it as PostgreSQL does."""
    columns = _run(home, f"select * from ({bare}\n) as x limit 0").description or []
    if len(columns) != width:  # the plan has columns that the result has not
        raise refused("what is grouped or ordered by has to be selected")
    names = [f"c{n}" for n in range(width)]
    asked = [f"pg_collation_for(x.{n})" if c.type_code in TEXTS else "null" for n, c in zip(names, columns, strict=True)]
    # the join keeps the statement from running, and the collations of its columns
    source = f"(select) as o left join ({bare}\n) as x ({', '.join(names)}) on false"
    [(found,)] = _run(home, f"select array[{', '.join(asked)}]::text[] from {source}").fetchall()
    [(enums,)] = home.execute(ENUMS.encode(), ([column.type_code for column in columns],)).fetchall()
    merge.require_comparable(columns, enums or (), found)


def _how(expression: str) -> str:
    call = MERGED.fullmatch(expression) or MERGED.fullmatch(expression[1:-1])  # in parentheses above a sort
    if call is None:
        raise refused(f"{expression} of all places does not follow from that of each")
    return call[1]


def _order(key: str, output: list[str]) -> Order:
    found = _parts(key)
    column = _find(found["key"], output, "ordered")
    down = bool(found["down"])
    return Order(column, down, found["nulls"] == "FIRST" if found["nulls"] else down, found["collation"] or "")


def _parts(key: str) -> re.Match[str]:
    found = ORDER.fullmatch(key)
    assert found is not None  # each part may be empty
    return found


def _find(expression: str, output: list[str], what: str) -> int:
    """The column of the result that an expression of the plan is.  Raises ServiceError(not_supported)."""
    found = _columns(expression, output)
    if len(found) != 1:
        raise refused(f"what is {what} by has to be selected once: {expression}")
    return found[0]


def _columns(expression: str, output: list[str]) -> list[int]:
    wanted, known = expression.strip("()"), [each.strip("()") for each in output]
    if wanted not in known:  # a plan names the table in some steps only
        wanted, known = _unqualified(wanted), [_unqualified(each) for each in known]
    return [n for n, each in enumerate(known) if each == wanted]


def _unqualified(expression: str) -> str:
    return re.sub(r"\b\w+\.(?=\w)", "", expression)


def _is_of(relation: str, companies: set[str]) -> bool:
    return relation in companies or re.sub(r"_\d{4}_?\d{2}$", "", relation) in companies


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


def _only(node: Node) -> Node:
    child: Node = node["Plans"][0]
    if len(node["Plans"]) > 1:
        raise refused("a subquery sees the companies of one place")
    return child


@contextlib.contextmanager
def _reading(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """A transaction that reads, as the operator."""
    connection.execute("begin isolation level repeatable read, read only")
    connection.execute("set local role bds_operator")
    try:
        yield
    finally:
        connection.execute("rollback")
