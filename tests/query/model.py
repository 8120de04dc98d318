"""A hand-made catalog of nine entities, for tests without a database."""

from __future__ import annotations

from typing import Any

from app.database.catalog import Catalog, Entity, Field, Navigation
from app.query.sql.parameters import Statement
from app.types import Name as Type

TABLES: dict[str, tuple[str, str]] = {
    "units": ("unit", "code!* name* symbol"),
    "categories": ("category", "code!* name* parent>categories:children"),
    "products": (
        "product",
        "code!* name* description barcode! price:numeric active:bool* weight:float8 launched:date"
        " category>categories:products unit>units:products",
    ),
    "productVariants": ("productVariant", "code!* name barcode! price:numeric product>products:variants^*"),
    "customers": ("customer", "code!* name* email! country city active:bool*"),
    "orders": ("order", "code!* orderDate:date* status* total:numeric customer>customers:orders"),
    "orderItems": ("orderItem", "description quantity:numeric* order>orders:items^* product>products:orderItems"),
    "invoices": ("invoice", "code!* invoiceDate:date* dueDate:date token:uuid opens:time total:numeric order>orders:invoices"),
    "invoiceItems": ("invoiceItem", "quantity:numeric* invoice>invoices:items^* product>products:invoiceItems"),
}


def catalog() -> Catalog:
    """Make the catalog of TABLES.

    A field is `name:type`, with the marks ! unique and * required.  `name>target:inverse` is a reference, with ^ to a parent.
    """
    fields: dict[str, dict[str, Field]] = {}
    navigations: dict[str, dict[str, Navigation]] = {name: {} for name in TABLES}
    for entity, (_, text) in TABLES.items():
        own = [_field("id", "int8", "*")]
        for word in text.split():
            plain = word.rstrip("!*^")
            marks = word[len(plain) :]
            if ">" not in plain:
                name, _, type = plain.partition(":")
                own.append(_field(name, type or "text", marks))  # type: ignore[arg-type]
                continue
            name, _, rest = plain.partition(">")
            target, _, inverse = rest.partition(":")
            own.append(_field(f"{name}Id", "int8", marks, name))
            child, required = "^" in marks, "*" in marks
            navigations[entity][name] = Navigation(name, False, target, f"{name}Id", inverse, False, required)
            navigations[target][inverse] = Navigation(inverse, True, entity, f"{name}Id", name, child, False)
        fields[entity] = {field.name: field for field in (*own, _field("updatedAt", "timestamptz", "*"))}
    return Catalog({name: _entity(name, fields[name], navigations[name]) for name in TABLES}, "1")


def _field(name: str, type: Type, marks: str, reference: str | None = None) -> Field:
    numeric = type == "numeric"
    return Field(
        name=name,
        column=name,
        type=type,
        precision=19 if numeric else None,
        scale=4 if numeric else None,
        max_length=None,
        required="*" in marks,
        has_default=False,
        generated=False,
        unique="!" in marks,
        reference=reference,
        description=None,
    )


def _entity(name: str, fields: dict[str, Field], navigations: dict[str, Navigation]) -> Entity:
    return Entity(
        name=name,
        singular=TABLES[name][0],
        table=f"data.{name}",
        parent=None,
        parent_navigation=None,
        collection=None,
        fields=fields,
        navigations=navigations,
        description=None,
    )


def condition(statement: Statement) -> tuple[str, list[Any]]:
    """The condition of a count beyond the company, which is $1, and the values of $2, $3 ..."""
    text = statement.text.decode().split(' where "t".company_id = $1::text and ', 1)[1].split(') as "count"')[0]
    return text.replace('"t".', "").replace('"', ""), list(statement.values[1:])
