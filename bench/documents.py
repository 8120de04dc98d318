"""The input: import documents of any size, and the same rows as files for COPY, which the floors read.

The same numbers give the same bytes.  In a changed document one row of so many differs.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

UNITS, CATEGORIES = 20, 500
VARIANTS_EVERY = 25  # one product of so many has variants
VARIANTS = ("S", "M", "L")
ITEMS = 20  # of an invoice
WORDS = ("white", "heart", "metal", "cream", "cupid", "flag", "retro", "wool", "spot", "red", "glass", "blue", "tin", "lace")

MAKER = Path(__file__).resolve().parents[2] / "shared" / "tools" / "make_feed.py"  # of the real data
ENTITIES = ("units", "categories", "products", "customers", "orders", "invoices")

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Document:
    """An import document and its rows: for each table a file in COPY's text format, and how many rows that has."""

    path: Path
    copies: dict[str, Path]
    rows: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.rows.values())


def write_basis(directory: Path) -> Path:
    """The units and categories that products refer to."""
    path = directory / "basis.json"
    units = [{"code": f"U{n}", "name": f"unit {n}"} for n in range(UNITS)]
    categories = [{"code": f"C{n}", "name": f"category {n}"} for n in range(CATEGORIES)]
    path.write_text(json.dumps({"units": units, "categories": categories}))
    return path


def write_products(directory: Path, rows: int, *, every: int = 0) -> Document:
    """rows products, some with variants; one in `every` is changed."""
    return _write(directory, f"products_{every}", "products", (product(n, every) for n in range(rows)), _product_lines)


def write_invoices(directory: Path, items: int, products: int, *, every: int = 0) -> Document:
    """Invoices with so many items together, of so many products; one item in `every` is changed."""
    return _write(
        directory, f"invoices_{every}", "invoices", (invoice(n, products, every) for n in range(items // ITEMS)), _invoice_lines
    )


def write_everything(path: Path, scale: int, entities: Collection[str] = ENTITIES, *, every: int = 0) -> None:
    """One document of so many times the real data; `entities` are left of it.

    Where the real data is not at hand, the basis with `scale` times 3,000 products and 50,000 items, about 5.4 MB each.
    """
    if MAKER.exists():
        options = ["--scale", str(scale), "--only", ",".join(entities), *(["--change", str(100 // every)] if every else [])]
        subprocess.run([sys.executable, MAKER, *options, "-o", path], check=True)
        return
    products, invoices = 3_000 * scale, 2_500 * scale
    with path.open("w", encoding="utf-8") as out:
        out.write(write_basis(path.parent).read_text()[:-1] if "units" in entities else "{")
        if "products" in entities:
            out.write("," if "units" in entities else "")
            _write_collection(out, "products", (product(n, every) for n in range(products)))
        if "invoices" in entities:
            out.write("," if "products" in entities else "")
            _write_collection(out, "invoices", (invoice(n, products, every) for n in range(invoices)))
        out.write("}")


def product(n: int, every: int = 0) -> Record:
    """The product number n; one in `every` is changed, it has another price."""
    name = " ".join(WORDS[(n // step) % len(WORDS)] for step in (1, 14, 196)).upper()
    price = (n * 37 % 9_000 + 100) / 100
    record: Record = {
        "code": f"P{n:07}",
        "name": name,
        "description": f"{name.capitalize()}. Stock code P{n:07}.",
        "price": price + (every > 0 and n % every == 0),
        "active": n % 10 != 0,
        "category": f"code:C{n % CATEGORIES}",
        "unit": f"code:U{n % UNITS}",
    }
    if n % VARIANTS_EVERY == 0:
        record["variants"] = [{"code": f"P{n:07}-{size}", "name": f"{name} {size}", "price": price} for size in VARIANTS]
    return record


def invoice(n: int, products: int, every: int = 0) -> Record:
    """The invoice number n, of ITEMS different products; one item in `every` is changed."""
    items = [item(n * ITEMS + i, (n * 131 + i) % products, every) for i in range(ITEMS)]
    return {
        "code": f"I{n:07}",
        "invoiceDate": f"2026-{n % 12 + 1:02}-{n % 28 + 1:02}",
        "status": "posted",
        "currency": "GBP",
        "total": n % 1_000 + 0.5,  # does not change with the items
        "items": items,
    }


def item(n: int, product_number: int, every: int = 0) -> Record:
    """The item number n of all invoices; a changed one has another quantity."""
    sold = product(product_number)
    return {
        "product": f"code:{sold['code']}",
        "quantity": n % 12 + 1 + (every > 0 and n % every == 0),
        "price": sold["price"],
        "description": sold["name"],
    }


def _product_lines(record: Record) -> Iterator[tuple[str, Iterable[Any]]]:
    fields = ("code", "name", "description", "price", "active", "category", "unit")
    yield "products", (record[name] for name in fields)
    for each in record.get("variants", ()):
        yield "product_variants", (each["code"], each["name"], each["price"], record["code"])


def _invoice_lines(record: Record) -> Iterator[tuple[str, Iterable[Any]]]:
    yield "invoices", (record[name] for name in ("code", "invoiceDate", "status", "currency", "total"))
    for each in record["items"]:
        yield "invoice_items", (record["code"], *(each[name] for name in ("product", "quantity", "price", "description")))


def _write(
    directory: Path,
    name: str,
    collection: str,
    records: Iterable[Record],
    lines: Callable[[Record], Iterator[tuple[str, Iterable[Any]]]],
) -> Document:
    """The document, and beside it a file for each table that `lines` names."""
    copies: dict[str, Path] = {}
    rows: dict[str, int] = {}
    with contextlib.ExitStack() as files:
        outs: dict[str, TextIO] = {}

        def copied() -> Iterator[Record]:
            for record in records:
                for table, values in lines(record):
                    if table not in outs:
                        copies[table] = directory / f"{name}.{table}.copy"
                        outs[table] = files.enter_context(copies[table].open("w", encoding="utf-8"))
                    outs[table].write("\t".join(str(value).removeprefix("code:") for value in values) + "\n")
                    rows[table] = rows.get(table, 0) + 1
                yield record

        path = directory / f"{name}.json"
        out = files.enter_context(path.open("w", encoding="utf-8"))
        out.write("{")
        _write_collection(out, collection, copied())
        out.write("}")
    return Document(path, copies, rows)


def _write_collection(out: TextIO, name: str, records: Iterable[Record]) -> None:
    out.write(f'"{name}":[')
    for number, record in enumerate(records):
        out.write((",\n" if number else "\n") + json.dumps(record, separators=(",", ":")))
    out.write("]")
