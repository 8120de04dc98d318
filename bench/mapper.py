"""What a mapper costs: the same products as a document, as CSV and as XML; and the memory that a large XML source takes."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO
from xml.sax.saxutils import escape, quoteattr

import psycopg

from app.database import connections
from app.feed.run import Import
from app.mapper.document import SourceConverter
from app.mapper.language.parse import read
from app.mapper.language.tree import Mapper
from bench.documents import product, write_basis
from bench.memory import peak
from bench.place import COMPANY, READ, Place, load, settle
from bench.table import Result, rate, say, timed

ROUNDS = 3
SIZE = 200 << 20  # bytes of the XML whose memory is measured
TARGET = 150  # MB
FIELDS = ("code", "name", "description", "price", "active", "category", "unit")
MAPPERS = {
    "csv": "type csv products = 'row' { code = 'code' name = 'name' description = 'description' price = 'price' active = 'active'"
    " category[code] = 'category' unit[code] = 'unit' }",
    "xml": "type xml products = '/catalog/product' { code = '@code' name = 'name' description = 'description' price = 'price'"
    " active = 'active' category[code] = 'category' unit[code] = 'unit' }",
}


def measure(place: Place, rows: int) -> Iterator[Result]:
    """Rows a second of a mapped import and of a plain one, new rows; then the peak of `bds import --mapper`, in MB."""
    say(f"mapper: writing {rows:,} products as json, csv and xml")
    basis, sources = write_basis(place.directory), {name: _write(place.directory, name, rows) for name in ("json", "csv", "xml")}
    times: dict[str, list[float]] = {name: [] for name in sources}
    for number in range(ROUNDS):
        for name, path in sources.items():
            with place.database(COMPANY) as url:
                say(f"mapper: round {number + 1} of {ROUNDS}, {name}")
                load(url, basis)
                settle(url)
                took, created = timed(_import, url, path, MAPPERS.get(name))
                if created != rows:
                    raise RuntimeError(f"{path.name}: expected {rows:,} products, got {created:,}")
                times[name].append(took)
    for name, target in (("csv", 0.5), ("xml", 0.3)):
        note = f"{rows:,} products, new; floor: the same as an import document; target {target}"
        yield rate(f"mapper, {name}", "rows/s", rows, times[name], times["json"], note)
    yield from _memory(place, basis)


def _memory(place: Place, basis: Path) -> Iterator[Result]:
    rows = SIZE * 1000 // (_write(place.directory, "xml", 1000).stat().st_size)
    path = _write(place.directory, "xml", rows)
    size = path.stat().st_size / 1e6
    say(f"mapper: importing {size:.0f} MB of XML")
    with place.database(COMPANY) as url:
        load(url, basis)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("select bds.put_mapper(%s, 'xml', 'xml', %s)", (COMPANY, MAPPERS["xml"]))
        took, most = timed(peak, url, path, "--mapper", "xml")
    path.unlink()
    yield Result("mapper, xml, memory", "MB", most, note=f"{size:.0f} MB in {took:.0f} s; target < {TARGET}")


def _import(url: str, path: Path, mapper: str | None) -> int:
    """Import a source; returns how many products were created."""
    with connections.connect(url, "bds_reader") as connection:
        catalog = connections.read_catalog(connection)
    checked = read(mapper, catalog) if mapper else None
    assert not mapper or isinstance(checked, Mapper)
    feed = Import(url, catalog, COMPANY, converter=SourceConverter(checked) if isinstance(checked, Mapper) else None)
    feed.begin()
    with path.open("rb") as file:
        while data := file.read(READ):
            feed.receive(data)
    created: int = feed.run()["entities"]["products"]["created"]
    return created


def _write(directory: Path, name: str, rows: int) -> Path:
    path = directory / f"mapped.{name}"
    with path.open("w", encoding="utf-8", newline="") as out:
        {"json": _write_json, "csv": _write_csv, "xml": _write_xml}[name](out, rows, _product)
    return path


def _product(n: int) -> dict[str, Any]:
    return {name: value for name, value in product(n).items() if name in FIELDS}


def _write_json(out: TextIO, rows: int, make: Callable[[int], dict[str, Any]]) -> None:
    out.write('{"products":[')
    for n in range(rows):
        out.write((",\n" if n else "\n") + json.dumps(make(n), separators=(",", ":")))
    out.write("]}")


def _write_csv(out: TextIO, rows: int, make: Callable[[int], dict[str, Any]]) -> None:
    writer = csv.writer(out)
    writer.writerow(FIELDS)
    writer.writerows([_plain(value) for value in make(n).values()] for n in range(rows))


def _write_xml(out: TextIO, rows: int, make: Callable[[int], dict[str, Any]]) -> None:
    out.write('<?xml version="1.0" encoding="UTF-8"?>\n<catalog>\n')
    for n in range(rows):
        record = {name: _plain(value) for name, value in make(n).items()}
        fields = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in record.items() if name != "code")
        out.write(f"<product code={quoteattr(record['code'])}>{fields}</product>\n")
    out.write("</catalog>\n")


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).removeprefix("code:")
