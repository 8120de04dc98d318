"""Hooks: made (the secret shown once), changed, tested, their deliveries seen and sent again."""

from __future__ import annotations

import json
import re
from typing import Any

from aiohttp import web

from app.web.forms import Form, blank
from app.web.site import Visit
from app.webhooks import registration

PAGE = 50  # hooks
DELIVERIES = 20
MEMBERS = ("entity", "url", "filter", "columns")
MEANINGS = {
    "pending": "not sent yet",
    "waiting": "failed, will be tried again",
    "delivered": "the receiver has answered 2xx",
    "failed": "the receiver has refused it, or it was tried to the last",
    "cancelled": "the hook was disabled or deleted",
}


async def show(visit: Visit) -> web.StreamResponse:
    return await page(visit, blank())


async def create(visit: Visit) -> web.StreamResponse:
    """Make a hook; the answer is the only page that ever shows its secret."""
    form = await visit.form()
    hook = None
    if not form["url"].strip():
        form.refuse("url", "Enter the address that changes are sent to")
    else:
        with form.checked(*MEMBERS):
            hook = await registration.create(visit.database, visit.company, members(form))
    return await page(visit, blank() if hook else form, hook)


async def edit(visit: Visit) -> web.StreamResponse:
    """Change a hook's members."""
    form = await visit.form()
    with form.checked(*MEMBERS):
        await registration.update(visit.database, visit.company, visit.named["id"], members(form))
        return visit.see(f"/hooks/{visit.named['id']}", said="hook-saved")
    return await details(visit, form)


async def switch(visit: Visit) -> web.StreamResponse:
    """Enable or disable a hook."""
    form = await visit.form()
    disabled = form["disabled"] == "true"
    await registration.update(visit.database, visit.company, visit.named["id"], json.dumps({"disabled": disabled}).encode())
    return visit.see(f"/hooks/{visit.named['id']}", said="hook-disabled" if disabled else "hook-enabled")


async def delete(visit: Visit) -> web.StreamResponse:
    await visit.form()
    await registration.delete(visit.database, visit.company, visit.named["id"])
    return visit.see("/hooks", said="hook-deleted")


async def test(visit: Visit) -> web.StreamResponse:
    await visit.form()
    await registration.test(visit.database, visit.company, visit.named["id"])
    return visit.see(f"/hooks/{visit.named['id']}", said="test-sent")


async def retry(visit: Visit) -> web.StreamResponse:
    await visit.form()
    await registration.retry(visit.database, visit.company, visit.named["id"], visit.named["delivery"])
    return visit.see(f"/hooks/{visit.named['id']}", said="retried")


async def show_one(visit: Visit) -> web.StreamResponse:
    return await details(visit, None)


async def details(visit: Visit, form: Form | None) -> web.Response:
    """A hook with its deliveries; with `form`, what was typed into its own form and is wrong."""
    hook = await registration.show(visit.database, visit.company, visit.named["id"])
    offset = visit.offset()
    found = await registration.deliveries(visit.database, visit.company, hook["id"], (DELIVERIES, offset))
    return visit.render(
        "hook.html",
        form.status if form else 200,
        hook=hook,
        queue=await registration.queue(visit.database, visit.company, hook["id"]),
        deliveries=found["data"],
        more=found["hasMore"],
        offset=offset,
        page_size=DELIVERIES,
        meanings=MEANINGS,
        form=form or of(hook),
        entities=list(visit.database.catalog.entities),
        editing=form is not None,
        is_live=not offset and form is None,
    )


async def page(visit: Visit, form: Form, made: dict[str, Any] | None = None) -> web.Response:
    """The list, with the form; above it a hook that was just made."""
    offset = visit.offset()
    found = await registration.hooks(visit.database, visit.company, (PAGE, offset))
    return visit.render(
        "hooks.html",
        201 if made else form.status,
        hooks=found["data"],
        more=found["hasMore"],
        offset=offset,
        page_size=PAGE,
        made=made,
        form=form,
        entities=list(visit.database.catalog.entities),
    )


def members(form: Form) -> bytes:
    """The body that registers what was typed."""
    columns = [name for name in re.split(r"[\s,]+", form["columns"]) if name]
    return json.dumps(
        {
            "entity": form["entity"] or None,
            "url": form["url"].strip(),
            "action": "webhook",
            "filter": form["filter"].strip() or None,
            "columns": columns or None,
            "allowInChangeSet": form["allowInChangeSet"] == "true",
        }
    ).encode()


def of(hook: dict[str, Any]) -> Form:
    """The form that would make this hook."""
    return blank(
        entity=hook["entity"] or "",
        url=hook["url"],
        filter=hook["filter"] or "",
        columns=", ".join(hook["columns"] or ()),
        allowInChangeSet="true" if hook["allowInChangeSet"] else "",
    )
