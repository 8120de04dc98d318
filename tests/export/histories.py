"""Random histories of a company, and what two companies have in common if one is a copy of the other."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from typing import Any

import psycopg

from app.database.catalog import Catalog, Entity
from tests.conftest import Operator

CODES = [f"K{n}" for n in range(4)]  # few, so that they are used again
TOPS = {
    "units": "",
    "categories": "parent_id",
    "products": "category_id",
    "customers": "",
    "orders": "customer_id",
    "invoices": "order_id",
}
TARGETS = {"parent_id": "categories", "category_id": "categories", "customer_id": "customers", "order_id": "orders"}
SECOND = {"customers": "email", "products": "barcode", "product_variants": "barcode"}  # unique as well, but names no row
MORE = {"orders": "order_date", "invoices": "invoice_date"}


class History:
    """Writes at random into a company.  Ids are those of the rows, as a person in psql would name them."""

    def __init__(self, operator: Operator, company: str, seed: int, fresh: float = 0.7) -> None:
        self._operator, self._company = operator, company
        self._chance, self._fresh, self._made = random.Random(seed), fresh, 0

    def run(self, steps: int) -> None:
        kinds = [self.create] * 4 + [self.change, self.delete, self.child, self.replace] * 2 + [self.rename, self.hand_over]
        kinds += [self.identify]
        for _ in range(steps):
            # some cannot be done in this state
            with suppress(psycopg.errors.UniqueViolation, psycopg.errors.ForeignKeyViolation):
                self._chance.choice(kinds)()

    def create(self) -> None:
        table = self._chance.choice(list(TOPS))
        self._insert(table, *self._row_of(table, self._code()))

    def _row_of(self, table: str, code: str) -> tuple[list[str], list[Any]]:
        names: list[str] = ["code"]
        values: list[Any] = [code]
        if table in ("units", "categories", "products", "customers"):
            names, values = [*names, "name"], [*values, self._word()]
        if table in MORE:
            names, values = [*names, MORE[table]], [*values, "2026-01-01"]
        if reference := TOPS[table]:
            names, values = [*names, reference], [*values, self._row(TARGETS[reference])]
        if table in SECOND and self._chance.random() < 0.5:
            names, values = [*names, SECOND[table]], [*values, self._code()]
        return names, values

    def change(self) -> None:
        table = self._chance.choice(list(TOPS))
        if table in ("orders", "invoices"):
            self._set(table, "note", self._chance.choice([None, "", self._word()]))
        else:
            self._set(table, "name", self._word())
        if (reference := TOPS[table]) and self._chance.random() < 0.5:
            self._set(table, reference, self._row(TARGETS[reference]))

    def rename(self) -> None:
        table = self._chance.choice([*TOPS, "product_variants"])
        self._set(table, "code", self._code())

    def identify(self) -> None:
        """A row gets or loses its second unique value, or a new one takes it over from a row that goes."""
        table = self._chance.choice(list(SECOND))
        old = self._row(table)
        if old is None or self._chance.random() < 0.5:
            self._set(table, SECOND[table], self._chance.choice([None, self._code()]))
            return
        [(value,)] = self._rows(f"select {SECOND[table]} from data.{table} where id = %s", old)
        self._write(f"delete from data.{table} where id = %s", old)
        names, values = ["code", "name", SECOND[table]], [self._fresh_code(), self._word(), value]
        if table == "product_variants":
            names, values = [*names, "product_id"], [*values, self._row("products")]
        self._insert(table, names, values)

    def delete(self) -> None:
        table = self._chance.choice([*TOPS, "product_variants", "order_items", "invoice_items"])
        self._write(f"delete from data.{table} where id = %s", self._row(table))

    def child(self) -> None:
        table, parent, owner = self._chance.choice(
            [
                ("product_variants", "product_id", "products"),
                ("order_items", "order_id", "orders"),
                ("invoice_items", "invoice_id", "invoices"),
            ]
        )
        home, kind = self._row(owner), self._chance.randrange(4)
        if home is None:
            return
        if kind == 0:
            self._set(table, parent, home)  # it moves
        elif kind == 1:
            self._set(table, "price", self._chance.randrange(4))
        elif table == "product_variants":
            self._insert(table, ["code", parent], [self._code(), home])
        else:
            names = ["description", "quantity", "product_id", parent]
            self._insert(
                table, names, [self._chance.choice([None, "a", "b"]), self._chance.randrange(3), self._row("products"), home]
            )

    def replace(self) -> None:
        """A row goes, another one gets what referred to it, perhaps under its unique value."""
        table, user, reference = self._chance.choice(
            [("categories", "products", "category_id"), ("customers", "orders", "customer_id"), ("orders", "invoices", "order_id")]
        )
        old = self._row(table)
        if old is None:
            return
        [(code,)] = self._rows(f"select code from data.{table} where id = %s", old)
        more = ["order_date"] if table == "orders" else ["name"]
        self._insert(table, ["code", *more], [self._code(), "2026-02-02" if table == "orders" else self._word()])
        [(new,)] = self._rows(f"select max(id) from data.{table} where company_id = %s", self._company)
        self._write(f"update data.{user} set {reference} = %s where {reference} = %s", new, old)
        if table == "categories":
            self._write("update data.categories set parent_id = null where parent_id = %s", old)
        self._write(f"delete from data.{table} where id = %s", old)
        if self._chance.random() < 0.5:
            self._write(f"update data.{table} set code = %s where id = %s", code, new)

    def hand_over(self) -> None:
        """A unique value gets from one row to another: its row goes or is renamed, the other one is new or was there."""
        table = self._chance.choice([*TOPS, "product_variants"])
        old, way = self._row(table), self._chance.randrange(16)
        if old is None:
            return
        [(code,)] = self._rows(f"select code from data.{table} where id = %s", old)
        if way % 2:
            self._write(f"delete from data.{table} where id = %s", old)
        else:
            self._write(f"update data.{table} set code = %s where id = %s", self._fresh_code(), old)
        if way in (0, 1, 3, 5):  # 0: both rows stay
            self._set(table, "code", code)
        elif table != "product_variants":
            self._insert(table, *self._row_of(table, code))

    def _code(self) -> str:
        return self._fresh_code() if self._chance.random() < self._fresh else self._chance.choice(CODES)

    def _fresh_code(self) -> str:
        self._made += 1
        return f"F{self._made}"

    def _word(self) -> str:
        return self._chance.choice(["x", "y", "=z", "a, b", "ü"])

    def _row(self, table: str) -> int | None:
        rows = self._rows(f"select id from data.{table} where company_id = %s order by id", self._company)
        return self._chance.choice(rows)[0] if rows else None

    def _set(self, table: str, name: str, value: Any) -> None:
        self._write(f"update data.{table} set {name} = %s where id = %s", value, self._row(table))

    def _insert(self, table: str, names: list[str], values: list[Any]) -> None:
        marks = ", ".join(["%s"] * len(names))
        self._write(f"insert into data.{table} ({', '.join(names)}) values ({marks})", *values)

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._operator.rows(query, values)

    def _write(self, statement: str, *values: Any) -> None:
        self._operator.write(self._company, statement, values)


def content(operator: Operator, catalog: Catalog, company: str) -> dict[str, Counter[tuple[Any, ...]]]:
    """The rows of each entity without ids and times, a reference being the code to which it leads."""

    def column(entity: Entity, name: str) -> str:
        reference = entity.fields[name].reference
        if reference is None:
            return f't."{name}"'
        return f'(select r.code from api."{entity.navigations[reference].target}" r where r.id = t."{name}")'

    found = {}
    with operator.connection.transaction():
        operator.connection.execute("select set_config('bds.company', %s, true)", (company,))
        for entity in catalog.entities.values():
            columns = ", ".join(column(entity, name) for name in entity.fields if name not in ("id", "updatedAt"))
            found[entity.name] = Counter(
                operator.rows(f'select {columns} from api."{entity.name}" t where t.company_id = %s', (company,))
            )
    return found
