"""The least that PostgreSQL needs to take in the same rows: COPY into an unlogged, typed table, then one statement.

A bare floor writes into tables like the real ones, with their indexes, without their triggers and foreign keys; a real floor writes
into the real tables, in a database of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from bench.documents import Document
from bench.place import COMPANY, READ

Write = Callable[[str, Document, str], int]  # connection string, document, schema -> rows written

TEXT = 'text collate "C"'


@dataclass(frozen=True, slots=True)
class Table:
    """A table: the columns of its file, the query that looks references up in `schema`, and what identifies a row."""

    name: str
    staged: dict[str, str]
    columns: tuple[str, ...]
    query: str
    key: tuple[str, ...]


TABLES = (
    Table(
        "products",
        {
            "code": TEXT, "name": TEXT, "description": TEXT, "price": "numeric(19, 4)", "active": "boolean",
            "category": TEXT, "unit": TEXT,
        },
        ("code", "name", "description", "price", "active", "category_id", "unit_id"),
        """
        select s.code, s.name, s.description, s.price, s.active, c.id as category_id, u.id as unit_id
        from staged_products s
        left join data.categories c on c.company_id = '{company}' and c.code = s.category
        left join data.units u on u.company_id = '{company}' and u.code = s.unit
        """,
        ("code",),
    ),
    Table(
        "product_variants",
        {"code": TEXT, "name": TEXT, "price": "numeric(19, 4)", "product": TEXT},
        ("code", "name", "price", "product_id"),
        """
        select s.code, s.name, s.price, p.id as product_id
        from staged_product_variants s
        left join {schema}.products p on p.company_id = '{company}' and p.code = s.product
        """,
        ("code",),
    ),
    Table(
        "invoices",
        {"code": TEXT, "invoice_date": "date", "status": TEXT, "currency": TEXT, "total": "numeric(19, 4)"},
        ("code", "invoice_date", "status", "currency", "total"),
        "select s.* from staged_invoices s",
        ("code",),
    ),
    Table(
        "invoice_items",
        {"invoice": TEXT, "product": TEXT, "quantity": "numeric(19, 6)", "price": "numeric(19, 4)", "description": TEXT},
        ("quantity", "price", "description", "invoice_id", "product_id"),
        """
        select s.quantity, s.price, s.description, i.id as invoice_id, p.id as product_id
        from staged_invoice_items s
        left join {schema}.invoices i on i.company_id = '{company}' and i.code = s.invoice
        left join {schema}.products p on p.company_id = '{company}' and p.code = s.product
        """,
        ("invoice_id", "product_id"),
    ),
)  # fmt: skip


def prepare(url: str) -> None:
    """Make the bare tables."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create schema floor")
        for table in TABLES:
            connection.execute(f"create table floor.{table.name} (like data.{table.name} including all)".encode())


def insert(url: str, document: Document, schema: str) -> int:
    """Take in the rows of a document as new ones; returns how many."""
    return _write(url, document, schema, _insert)


def merge(url: str, document: Document, schema: str) -> int:
    """Take in the rows of a document that differ from those that are there; returns how many."""
    return _write(url, document, schema, _merge)


def _write(url: str, document: Document, schema: str, compose: Callable[[Table, str], str]) -> int:
    tables = [table for table in TABLES if table.name in document.copies]
    with psycopg.connect(url) as connection:
        connection.execute("select bds.set_context(%s)", (COMPANY,))
        for table in tables:
            _stage(connection, table, document.copies[table.name])
        written = sum(connection.execute(compose(table, schema).encode()).rowcount for table in tables)
        for table in tables:
            connection.execute(f"drop table staged_{table.name}".encode())
    return written


def _stage(connection: psycopg.Connection[Any], table: Table, path: Path) -> None:
    columns = ", ".join(f"{name} {type}" for name, type in table.staged.items())
    connection.execute(f"create unlogged table staged_{table.name} ({columns})".encode())
    with connection.cursor().copy(f"copy staged_{table.name} from stdin".encode()) as copy, path.open("rb") as file:
        while data := file.read(READ):
            copy.write(data)


def _insert(table: Table, schema: str) -> str:
    columns = ", ".join(table.columns)
    return f"""
        insert into {schema}.{table.name} (company_id, {columns}, updated_at)
        select '{COMPANY}', r.*, clock_timestamp() from ({table.query.format(schema=schema, company=COMPANY)}) r
    """


def _merge(table: Table, schema: str) -> str:
    others = [name for name in table.columns if name not in table.key]
    return f"""
        merge into {schema}.{table.name} t
        using ({table.query.format(schema=schema, company=COMPANY)}) s
        on t.company_id = '{COMPANY}' and {" and ".join(f"t.{name} = s.{name}" for name in table.key)}
        when matched and ({", ".join(f"t.{n}" for n in others)}) is distinct from ({", ".join(f"s.{n}" for n in others)}) then
            update set {", ".join(f"{n} = s.{n}" for n in others)}, updated_at = clock_timestamp()
        when not matched then
            insert (company_id, {", ".join(table.columns)}, updated_at)
            values ('{COMPANY}', {", ".join(f"s.{n}" for n in table.columns)}, clock_timestamp())
    """
