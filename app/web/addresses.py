"""Addresses of what the page of rows shows: the page itself, OData, /c, and the export form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from app.changes.rows import read_id
from app.database.catalog import Entity, Field
from app.query.check.moments import NAME, NOW, absolute
from app.query.check.print_odata import Unprintable, filter_text
from app.query.check.query import Query
from app.query.check.tree import Column
from app.query.parse import where as parse_where
from app.types import INTEGERS, named
from app.web.conditions import checked
from app.web.forms import Form
from app.web.groups import Groups
from app.web.page import PageRequest


@dataclass(frozen=True, slots=True)
class Addresses:
    """Paths that give the same rows, or groups; None where a language cannot say the condition, or has no groups."""

    rows: str | None  # of /c
    odata: str | None
    export: str | None


def of(
    page: PageRequest, entity: Entity, form: Form, query: Query | None, groups: Groups | None, *, is_odata: bool
) -> Addresses | None:
    """The addresses; None if the form has problems.  is_odata: whether the condition is written in OData's language."""
    if query is None or form.problems:
        return None
    found = search(entity, form["q"])
    if is_odata and found:
        found = filter_text(checked(query.catalog, entity, found))
    text = _joined(form["filter"], found)
    odata = text if is_odata else _printed(query)
    return Addresses(
        None if is_odata or groups else _rows(page, entity, form, text),
        None if odata is None else _odata(page, query, form, odata, groups),
        None if groups else _export(page, query, form, text if odata is None else odata),
    )


def _printed(query: Query) -> str | None:
    """The condition in OData's language; None if it cannot say it."""
    try:
        return filter_text(query.filter) if query.filter is not None else ""
    except Unprintable:
        return None


def _joined(*conditions: str) -> str:
    given = [text for text in conditions if text]
    return " and ".join(f"({text})" for text in given) if len(given) > 1 else "".join(given)


def _rows(page: PageRequest, entity: Entity, form: Form, filter: str) -> str:
    return f"/c/{page.company}/{entity.name}" + _query(("filter", filter), ("sort", form["sort"]), *as_of(form["asof"]).items())


def _odata(page: PageRequest, query: Query, form: Form, filter: str, groups: Groups | None) -> str:
    path = odata_path(page, query.entity, form["asof"])
    if groups:
        return path + _query(("$apply", groups.apply), ("$filter", filter), ("$orderby", groups.orderby))
    fields = ",".join(field_of(query.entity, name) for name in form.all("columns"))
    return path + _query(("$filter", filter), ("$orderby", _orderby(query)), ("$select", fields))


def odata_path(page: PageRequest, entity: Entity, asof: str) -> str:
    """The path of an entity set of OData, as of a moment, empty for the present."""
    past = f"@{quote(absolute(asof), safe=':')}" if asof else ""
    return f"/api/odata/{page.company}{past}/{entity.name}"


def _export(page: PageRequest, query: Query, form: Form, filter: str) -> str:
    given = [("filter", filter), ("orderby", _orderby(query)), ("asof", form["asof"])]
    pairs = [("company", page.company), ("entity", query.entity.name), *(("columns", each) for each in form.all("columns"))]
    return f"/export?{urlencode([*pairs, *(pair for pair in given if pair[1])])}"


def _query(*pairs: tuple[str, str]) -> str:
    # a $ in a value would be the shell's in the command that is copied
    text = "&".join(f"{name}={quote(value, safe=',/:()')}" for name, value in pairs if value)
    return f"?{text}" if text else ""


def link(page: PageRequest, entity: Entity, kept: dict[str, str], columns: Sequence[str]) -> str:
    """The URL of the page with other parameters."""
    pairs = [
        ("company", page.company),
        *((name, value) for name, value in kept.items() if value),
        *(("columns", each) for each in columns),
    ]
    return f"/data/{quote(entity.name)}?{urlencode(pairs)}"


def field_of(entity: Entity, name: str) -> str:
    """The field of a column: of a reference, the one that holds its id."""
    step = entity.navigations.get(name)
    return step.field if step and not step.many else name


def _orderby(query: Query) -> str:
    """The sort of a query of /c, whose keys are fields, as $orderby."""
    return ",".join(f"{each.key.field.name}{' desc' * each.descending}" for each in query.order if isinstance(each.key, Column))


def as_of(text: str) -> dict[str, str]:
    """The parameter of /c for a version, its name or a time; empty for the present."""
    moment = absolute(text)
    is_version = (moment.isascii() and moment.isdigit()) or NAME.fullmatch(moment)
    return {} if text in ("", NOW) else {"version": moment} if is_version else {"at": moment}


def search(entity: Entity, text: str) -> str:
    """The condition that a text occurs in a row's unique text fields, name or description, or is a unique number of it.

    For an entity without such fields: that it is its id.
    """
    if not text:
        return ""
    names = [
        field.name
        for field in entity.fields.values()
        if field.type == "text" and (field.unique or field.name in ("name", "description"))
    ]
    numbers = has_number(entity, text)
    if not names and not numbers:
        return "id is null" if read_id(text) is None else f"id = {text}"  # null: no row
    return " or ".join([*(f"{name} ilike {parse_where.quoted('%' + literal(text) + '%')}" for name in names), *numbers])


def has_number(entity: Entity, text: str) -> list[str]:
    """The conditions that a text is a row's value of a unique field of whole numbers, each of which has an index."""
    number = read_id(text)
    return [f"{field.name} = {number}" for field in entity.alternate_keys if number is not None and _fits(number, field)]


def _fits(number: int, field: Field) -> bool:
    limits = named(field.type).limits if field.type in INTEGERS else None
    return limits is not None and limits[0] <= number <= limits[1]


def literal(text: str) -> str:
    """A text as a part of a pattern of LIKE."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
