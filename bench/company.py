"""What it takes to dump, restore and delete a company; the floors are psql's \\copy of the same rows, out and in, and a delete.

The floors have neither checksums nor a snapshot, and keep every trigger and foreign key out of the way, as ours do.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from typing import Any, BinaryIO

import psycopg

from app.database.connections import connect
from app.places import dump
from bench.place import Place
from bench.table import Result, rate, say, timed

ROUNDS = 3
COMPANY = "bench"
PRODUCTS = """
    insert into data.products (code, name, description, barcode, price)
    select 'P' || n, 'Product ' || n, 'The description of product ' || n, 'B' || n, n %% 10000 / 100.0 from generate_series(1, %s) n
"""


def measure(place: Place, rows: int) -> Iterator[Result]:
    """Megabytes and rows of a second."""
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in ("dump", "restore", "delete")}
    with place.database(COMPANY) as url, connect(url, "bds_owner") as owner, connect(url) as superuser:
        say(f"company: {rows:,} products")
        with superuser.transaction():
            superuser.execute("select bds.set_context(%s, 'bench')", (COMPANY,))
            superuser.execute(PRODUCTS, (rows,))
        superuser.execute("vacuum analyze")
        for _ in range(ROUNDS):
            with tempfile.TemporaryFile() as ours, tempfile.TemporaryFile() as floor:
                times["dump"][0].append(timed(dump.dump, owner, COMPANY, ours, no_show)[0])
                size = ours.tell()
                times["dump"][1].append(timed(copy_out, superuser, floor)[0])
                times["delete"][0].append(timed(superuser.execute, "select bds.delete_company(%s)", (COMPANY,))[0])
                ours.seek(0)
                times["restore"][0].append(timed(dump.restore, owner, ours, True, no_show)[0])
                with superuser.transaction():
                    superuser.execute("set local session_replication_role = replica")
                    times["delete"][1].append(timed(empty, superuser)[0])
                    floor.seek(0)
                    times["restore"][1].append(timed(copy_in, superuser, floor)[0])
    note = f"{rows:,} products with as many changes, {size / 1e6:,.0f} MB; floor: COPY of both tables"
    for name, unit, amount in (("dump", "MB/s", size / 1e6), ("restore", "MB/s", size / 1e6), ("delete", "rows/s", 2 * rows)):
        yield rate(f"company, {name}", unit, amount, *times[name], note if name != "delete" else "floor: a delete of both tables")


def no_show(table: str, size: int) -> None:
    """Show no progress."""


def copy_out(connection: psycopg.Connection[Any], out: BinaryIO) -> None:
    """Write the two tables that have rows, one after the other, each with its length before it."""
    for table in ("data.products", "bds.change_log"):
        content = io.BytesIO()
        with connection.cursor().copy(f"copy (select * from {table} where company_id = '{COMPANY}') to stdout".encode()) as copy:
            for piece in copy:
                content.write(piece)
        out.write(len(content.getbuffer()).to_bytes(8, "big"))
        out.write(content.getbuffer())
    out.flush()


def copy_in(connection: psycopg.Connection[Any], source: BinaryIO) -> None:
    for table in ("data.products", "bds.change_log"):
        left = int.from_bytes(source.read(8), "big")
        with connection.cursor().copy(f"copy {table} from stdin".encode()) as copy:
            while left:
                piece = source.read(min(left, 1 << 20))
                left -= len(piece)
                copy.write(piece)


def empty(connection: psycopg.Connection[Any]) -> None:
    for table in ("data.products", "bds.change_log"):
        connection.execute(f"delete from {table} where company_id = '{COMPANY}'".encode())
