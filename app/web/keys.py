"""API keys: made and shown once, listed, revoked."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

from aiohttp import web

from app.auth import key_admin
from app.errors import ServiceError
from app.web.forms import Form, blank
from app.web.site import Visit

PAGE = 50  # keys
SCOPES = (
    ("read", "Read", "OData, rows, changes, export"),
    ("import", "Import", "feeds and mappers"),
    ("hooks", "Hooks", "webhooks and their deliveries"),
)
EXPIRIES = (("", "Never"), ("30d", "In 30 days"), ("90d", "In 90 days"), ("365d", "In a year"), ("date", "On a date"))
DAYS = re.compile(r"[1-9][0-9]{0,3}d")


async def show(visit: Visit) -> web.StreamResponse:
    scopes = [name for name, _, _ in SCOPES]
    return await page(visit, blank(scopes=scopes, companies=[visit.company], expires="90d"))


async def create(visit: Visit) -> web.StreamResponse:
    """Make a key; the answer is the only page that ever shows it."""
    form = await visit.form()
    tenant = next((each.removeprefix("tenant:") for each in form.all("companies") if each.startswith("tenant:")), None)
    expires_at = read_expiry(form)
    if form.problems:
        return await page(visit, form)
    key = None
    with form.checked("name", "companies", "scopes"):
        key = await key_admin.create_key(
            *(visit.database, visit.identity, form["name"].strip(), form.all("companies") if tenant is None else ()),
            form.all("scopes"),
            tenant=tenant,
            expires_at=expires_at,
        )
    return await page(visit, form, key)


async def revoke(visit: Visit) -> web.StreamResponse:
    await visit.form()
    await key_admin.revoke_key(visit.database, visit.identity, visit.named["id"])
    visit.site.gate.clear_cache()
    return visit.see("/keys", said="key-revoked")


def read_expiry(form: Form) -> datetime | None:
    """When the key is to end: in so many days, or with a day in UTC."""
    choice = form["expires"]
    if choice == "date":
        try:
            day = date.fromisoformat(form["day"])
        except ValueError:
            form.refuse("day", "Expected a date such as 2027-01-31")
            return None
        if day < datetime.now(UTC).date() or day.year > 9000:
            form.refuse("day", "Expected a day to come")
            return None
        return datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)
    if DAYS.fullmatch(choice):
        return datetime.now(UTC) + timedelta(days=int(choice[:-1]))
    if choice:
        raise ServiceError("malformed_request", "expires: expected days such as 90d, date, or nothing", target="expires")
    return None


async def page(visit: Visit, form: Form, key: str | None = None) -> web.Response:
    """The list, with the form; above it a key that was just made."""
    offset = visit.offset()
    keys, more = await key_admin.list_keys(visit.database, visit.identity, (PAGE, offset))
    return visit.render(
        "keys.html",
        201 if key else form.status,
        keys=keys,
        more=more,
        offset=offset,
        page_size=PAGE,
        key=key,
        form=form,
        tenants=await key_admin.whole_tenants(visit.database, visit.identity),
        scopes=SCOPES,
        expiries=EXPIRIES,
    )
