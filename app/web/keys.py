"""API keys: create, list and revoke them; a key is shown once."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

from aiohttp import web

from app.auth import key_admin
from app.errors import ServiceError
from app.web.forms import Form, initial_form
from app.web.page import PageRequest

PAGE = 50  # keys
SCOPES = (
    ("read", "Read", "OData, rows, changes, export"),
    ("propose", "Propose", "dry runs of imports and reverts; writes nothing"),
    ("import", "Import", "imports and mappers"),
    ("hooks", "Webhooks", "webhooks and their deliveries"),
)
EXPIRIES = (("", "Never"), ("30d", "In 30 days"), ("90d", "In 90 days"), ("365d", "In a year"), ("date", "On a date"))
TENANT = "tenant:"  # before a tenant's id, in the choice of companies; a company's id has no colon
DAYS = re.compile(r"[1-9][0-9]{0,3}d")


async def show(page: PageRequest) -> web.StreamResponse:
    """The list with a form that offers the least."""
    return await list_page(page, initial_form(name="", scopes=["read"], companies=[page.company], expires="90d"))


async def create(page: PageRequest) -> web.StreamResponse:
    """Create a key; the answer is the only page that shows it."""
    form = await page.form()
    companies = [each for each in form.all("companies") if not each.startswith(TENANT)]
    tenants = [each.removeprefix(TENANT) for each in form.all("companies") if each.startswith(TENANT)]
    if len(tenants) > 1:
        form.add_problem("companies", "Choose one tenant, or companies one by one: a key is for one tenant at most")
    expires_at = read_expiry(form)
    if form.problems:
        return await list_page(page, form)
    key = None
    with form.collect_problems("name", "companies", "scopes"):
        key = await key_admin.create_key(
            *(page.database, page.identity, form["name"].strip(), companies, form.all("scopes")),
            tenant=tenants[0] if tenants else None,
            expires_at=expires_at,
        )
    return await list_page(page, form, key)


async def revoke(page: PageRequest) -> web.StreamResponse:
    await page.form()
    await key_admin.revoke_key(page.database, page.identity, page.path_variables["id"])
    page.site.gate.clear_cache()
    return page.redirect("/keys", flash="key-revoked")


def read_expiry(form: Form) -> datetime | None:
    """Return when the key expires: after a number of days, at the end of a day in UTC, or never."""
    choice = form["expires"]
    if choice == "date":
        try:
            day = date.fromisoformat(form["day"])
        except ValueError:
            form.add_problem("day", "Enter a date such as 2027-01-31")
            return None
        if day < datetime.now(UTC).date() or day.year > 9000:
            form.add_problem("day", "Enter today's date or a later one")
            return None
        return datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)
    if DAYS.fullmatch(choice):
        return datetime.now(UTC) + timedelta(days=int(choice[:-1]))
    if choice:
        message = f"expires: expected a number of days such as 90d, date, or nothing, got {choice!r}"
        raise ServiceError("malformed_request", message, target="expires")
    return None


async def list_page(page: PageRequest, form: Form, key: str | None = None) -> web.Response:
    """The list of keys with the form for a new one; with `key`, the key that was created instead of the form."""
    offset = page.offset()
    keys, more = await key_admin.list_keys(page.database, page.identity, (PAGE, offset))
    return page.render(
        "keys.html",
        201 if key else form.status,
        keys=keys,
        more=more,
        offset=offset,
        page_size=PAGE,
        key=key,
        form=form,
        tenants=await key_admin.whole_tenants(page.database, page.identity),
        scopes=SCOPES,
        expiries=EXPIRIES,
    )
