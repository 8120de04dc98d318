"""A function names its search_path where a caller may have another one, and nowhere else: with one it is not inlined.

Entered from outside are security definer and trigger functions, those of the schemas that sessions may use, and internals that the
program, a view, a policy or a file of sql/ calls.  They name the path.  All others run under the path of what calls them.  A
SQL-standard body has its names bound when it is made, and needs a path only to print some.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = """
    select p.oid::regprocedure::text, p.proname::text, s.name::text, coalesce(pg_get_function_sqlbody(p.oid), p.prosrc), p.prosqlbody is not null,
        p.prosecdef or p.prorettype = 'trigger'::regtype or s.name in ('bds', 'bds_service') or exists (
            select from pg_depend d
            where (d.refclassid, d.refobjid) = ('pg_proc'::regclass, p.oid) and d.classid not in ('pg_proc'::regclass, 'pg_type'::regclass)
        ),
        exists (select from unnest(p.proconfig) c where c ^@ 'search_path=')
    from pg_proc p
    join bds_impl.schemas() s on s.schema = p.pronamespace
    join pg_language l on l.oid = p.prolang
    where l.lanname in ('plpgsql', 'sql')
"""
CALL = re.compile(r"(?<![\w.])(\w+\.\w+)\(")
PRINTS = re.compile(r"::reg(?:class|procedure|type)\)?::text|pg_get_")
# PostgreSQL takes these into the statements of the service that call them; they run with the caller's rights
INLINED = {"delivery_json", "hook_json"}


@dataclass(frozen=True, slots=True)
class Function:
    signature: str
    name: str
    schema: str
    body: str
    is_bound: bool  # has a SQL-standard body
    is_entered: bool
    has_path: bool

    @property
    def needs_path(self) -> bool:
        """Whether it does, if it can be called under any path."""
        return self.name not in INLINED and (not self.is_bound or PRINTS.search(self.body) is not None)


def statements() -> str:
    """What sql/ runs itself, without the functions that it makes, comments, and text."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "sql").rglob("*.sql"))]
    made = re.compile(r"^create (?:or replace )?function .*?(?=^comment on )", re.MULTILINE | re.DOTALL)
    words = re.compile(r"\$sql\$.*?\$sql\$|'(?:[^']|'')*'|--[^\n]*|^comment on [^;]*;", re.MULTILINE | re.DOTALL)
    return "\n".join(words.sub("", words.sub("", made.sub("", text))) for text in texts)


def wrong(functions: list[Function], outside: str) -> tuple[list[str], list[str]]:
    """The functions that lack a search_path, and those that need none; outside: the text that calls functions from outside."""
    named: dict[str, list[Function]] = {}
    for each in functions:
        named.setdefault(f"{each.schema}.{each.name}", []).append(each)
    waiting = [each for each in functions if each.is_entered] + [
        each for name in set(CALL.findall(outside)) for each in named.get(name, ())
    ]
    exposed: set[Function] = set()
    while waiting:
        if (this := waiting.pop()) not in exposed:
            exposed.add(this)
            if not this.has_path:
                waiting += [each for name in set(CALL.findall(this.body)) for each in named.get(name, ())]
    lacking = [each.signature for each in exposed if each.needs_path and not each.has_path]
    needless = [each.signature for each in functions if each.has_path and not (each in exposed and each.needs_path)]
    return sorted(lacking), sorted(needless)


@pytest.fixture(scope="module")
def connection(module_database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(module_database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def outside() -> str:
    return statements() + "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "app").rglob("*.py")))


def found(connection: psycopg.Connection[Any], outside: str) -> tuple[list[str], list[str]]:
    return wrong([Function(*row) for row in connection.execute(FUNCTIONS.encode())], outside)


def test_a_search_path_stands_where_a_caller_may_have_another_one_and_nowhere_else(
    connection: psycopg.Connection[Any], outside: str
) -> None:
    assert found(connection, outside) == ([], [])


def test_a_path_that_lacks_or_is_needless_is_found(connection: psycopg.Connection[Any], outside: str) -> None:
    with connection.transaction(force_rollback=True):
        connection.execute("""
            alter function bds.set_context reset search_path;
            alter function bds_impl.checked_actor set search_path = pg_catalog;
            create function bds_impl.inner_one() returns text language plpgsql as $$ begin return bds_impl.inner_two(); end $$;
            create function bds_impl.inner_two() returns text language plpgsql as $$ begin return 1; end $$;
            create function bds_impl.inner_three() returns text language plpgsql as $$ begin return 1; end $$;
            create view bds.some_view as select bds_impl.inner_one();
        """)
        assert found(connection, outside) == (
            ["bds.set_context(text,text,anycompatible)", "bds_impl.inner_one()", "bds_impl.inner_two()"],
            ["bds_impl.checked_actor(text)"],
        )
