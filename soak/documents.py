"""Random import documents, and what each makes of the rows."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from soak.ledger import Ledger, Rows

CODES = 40
LARGE = 1_200  # records, more than a small import has


@dataclass
class Document:
    """An import document and what it makes of the rows."""

    body: dict[str, Any]
    rows: Rows


@dataclass
class Maker:
    """Makes documents whose rows have codes that begin with a name."""

    ledger: Ledger
    name: str
    company: str
    rng: random.Random

    def key(self, entity: str, number: int) -> tuple[str, str, str]:
        return self.company, entity, f"{self.name}-{number}"

    def document(self, most: int = 15) -> Document:
        rows: Rows = {}
        units = self.rng.sample(range(CODES), self.rng.randint(1, most))
        body = {"units": [self._unit(rows, number) for number in units]}
        body["products"] = [
            self._product(rows, number, units) for number in self.rng.sample(range(CODES), self.rng.randint(0, most))
        ]
        body["orders"] = [self._order(rows, number) for number in self.rng.sample(range(CODES), self.rng.randint(0, 3))]
        return Document({name: records for name, records in body.items() if records}, rows)

    def _unit(self, rows: Rows, number: int) -> dict[str, Any]:
        fields = {"name": f"u{self.rng.getrandbits(30)}", "symbol": self.rng.choice([None, "l", '"'])}
        rows[self.key("units", number)] = fields
        return {"code": f"{self.name}-{number}", **fields}

    def _product(self, rows: Rows, number: int, units: list[int]) -> dict[str, Any]:
        key = self.key("products", number)
        if self.ledger.rows.get(key) and self.rng.random() < 0.3:
            rows[key] = None
            return {"id": f"code:{key[2]}", "@operation": "delete"}
        unit = f"{self.name}-{self.rng.choice(units)}"
        fields = {"name": f"p{self.rng.getrandbits(30)}", "price": self.rng.randint(0, 99), "unit": unit}
        rows[key] = fields
        return {"code": key[2]} | fields | {"unit": f"code:{unit}"}

    def _order(self, rows: Rows, number: int) -> dict[str, Any]:
        key = self.key("orders", number)
        items = [self.rng.randint(1, 1000) for _ in range(self.rng.randint(0, 5))]
        rows[key] = {"items": tuple(sorted(items))}
        return {"code": key[2], "orderDate": "2026-01-02", "items": [{"quantity": each} for each in items]}

    def with_error(self, *, atomic: bool) -> Document:
        """One record of it fails."""
        document = self.document()
        wrong = {"code": f"{self.name}-bad", "name": None}
        document.body = {"@atomic": atomic, **document.body, "units": [wrong, *document.body["units"]]}
        return document

    def large(self) -> Document:
        """More records than one statement imports."""
        document = self.document()
        for number in range(CODES, CODES + LARGE):
            fields = {"name": f"u{self.rng.getrandbits(3)}"}
            document.rows[self.key("units", number)] = fields
            document.body["units"].append({"code": f"{self.name}-{number}", **fields})
        return document

    def lines(self) -> tuple[bytes, Rows]:
        """Lines of CSV for the mapper."""
        lines, rows = ["key,title"], Rows()
        for number in self.rng.sample(range(CODES), 5):
            key, name = self.key("units", number), f"m{self.rng.getrandbits(30)}"
            rows[key] = (self.ledger.rows.get(key) or {"symbol": None}) | {"name": name}
            lines.append(f"{key[2]},{name}")
        return "\n".join(lines).encode(), rows
