"""Webhooks: create, change, enable, test and delete them, rotate their secrets; see their deliveries and send them again."""

from __future__ import annotations

import re
from typing import Any

from aiohttp import web

from app.query.check.moments import NOW, absolute, start
from app.types import exact_json
from app.web.forms import Form, initial_form
from app.web.page import PageRequest
from app.web.row_names import row_names
from app.webhooks import registration
from app.webhooks import replay as replays

PAGE = 50  # hooks
DELIVERIES = 20  # on the page of a hook
FIELDS = ("entity", "url", "filter", "columns")
# Of the newest deliveries, how many ended within a day; and of the answers in that time the milliseconds of the median, and of the
# slowest but 5 %.
DAY = """
    with newest as (
        select d.id, d.state, d.finished_at from bds.deliveries d
        where d.company_id = %(company)s and d.hook_id = %(hook)s order by d.number desc limit %(newest)s
    )
    select s.delivered, s.failed, a.half, a.most
    from (
        select count(*) filter (where n.state = 'delivered') as delivered, count(*) filter (where n.state = 'failed') as failed
        from newest n where n.finished_at > now() - interval '1 day'
    ) s
    cross join (
        select percentile_disc(0.5) within group (order by a.duration_ms) as half,
            percentile_disc(0.95) within group (order by a.duration_ms) as most
        from newest n
        cross join lateral (
            select a.duration_ms from bds.delivery_attempts a
            where a.company_id = %(company)s and a.delivery_id = n.id and a.at > now() - interval '1 day' and a.status is not null
            offset 0
        ) a
    ) a
"""
NEWEST = 5_000  # deliveries that are looked at, which bounds the time
ENDS = ("since", "until")
STATE_HINTS = {
    "pending": "not sent yet",
    "waiting": "failed; will be tried again",
    "delivered": "the receiver answered 2xx",
    "failed": "the receiver refused it, or all attempts failed",
    "cancelled": "the webhook was disabled or deleted",
}


async def show(page: PageRequest) -> web.StreamResponse:
    return await list_page(page, initial_form())


async def create(page: PageRequest) -> web.StreamResponse:
    """Create a hook; the answer is the only page that shows its secret."""
    form = await page.form()
    hook = None
    if not form["url"].strip():
        form.add_problem("url", "Enter the URL that changes are sent to")
    else:
        with form.collect_problems(*FIELDS):
            hook = await registration.create(page.database, page.company, registration_body(form))
    return await list_page(page, initial_form() if hook else form, hook)


async def edit(page: PageRequest) -> web.StreamResponse:
    """Change a hook, or show its form with the problems."""
    form = await page.form()
    hook_id = page.path_variables["id"]
    with form.collect_problems(*FIELDS):
        await registration.update(page.database, page.company, hook_id, registration_body(form))
        return page.redirect(f"/hooks/{hook_id}", flash="hook-saved")
    return await hook_page(page, form)


async def switch(page: PageRequest) -> web.StreamResponse:
    """Enable or disable a hook."""
    form = await page.form()
    hook_id, disabled = page.path_variables["id"], form["disabled"] == "true"
    await registration.update(page.database, page.company, hook_id, exact_json.dumps({"disabled": disabled}).encode())
    return page.redirect(f"/hooks/{hook_id}", flash="hook-disabled" if disabled else "hook-enabled")


async def delete(page: PageRequest) -> web.StreamResponse:
    await page.form()
    await registration.delete(page.database, page.company, page.path_variables["id"])
    return page.redirect("/hooks", flash="hook-deleted")


async def test(page: PageRequest) -> web.StreamResponse:
    await page.form()
    hook_id = page.path_variables["id"]
    await registration.test(page.database, page.company, hook_id)
    return page.redirect(f"/hooks/{hook_id}", flash="test-sent")


async def rotate(page: PageRequest) -> web.StreamResponse:
    """Give a hook a new secret; the answer is the only page that shows it."""
    form = await page.form()
    revoke = form["revoke"] == "true"
    made = await registration.rotate(page.database, page.company, page.path_variables["id"], revoke=revoke)
    return await hook_page(page, None, {**made, "revoked": revoke})


async def retry(page: PageRequest) -> web.StreamResponse:
    await page.form()
    hook_id = page.path_variables["id"]
    await registration.retry(page.database, page.company, hook_id, page.path_variables["deliveryId"])
    return page.redirect(f"/hooks/{hook_id}", flash="retried")


async def end_rest(page: PageRequest) -> web.StreamResponse:
    await page.form()
    hook_id = page.path_variables["id"]
    await registration.end_rest(page.database, page.company, hook_id)
    return page.redirect(f"/hooks/{hook_id}", flash="rest-ended")


async def replay(page: PageRequest) -> web.StreamResponse:
    """Send the changes of a range, or show its form with the problems."""
    form = await page.form()
    hook_id = page.path_variables["id"]
    since, until = (form[name].strip() for name in ENDS)
    ends = {"since": start(since)} | ({} if until in ("", NOW) else {"until": absolute(until)})
    if not ends["since"]:
        form.add_problem("since", "Enter a time, a version or its name")
    else:
        with form.collect_problems(*ENDS):
            sent = await replays.replay(page.database, page.company, hook_id, exact_json.dumps(ends).encode())
            return page.redirect(f"/hooks/{hook_id}", flash="replayed" if sent["changes"] else "nothing-replayed")
    return await hook_page(page, None, replay=form)


async def show_hook(page: PageRequest) -> web.StreamResponse:
    return await hook_page(page, None)


async def show_delivery(page: PageRequest) -> web.StreamResponse:
    """A delivery with the rows that it is about, and the body that is sent."""
    named = page.path_variables
    hook = await registration.show(page.database, page.company, named["id"])
    delivery = await registration.delivery(page.database, page.company, named["id"], named["deliveryId"])
    return page.render(
        "delivery.html",
        hook=hook,
        delivery=delivery,
        body=exact_json.dumps(delivery["body"], indent=2, ensure_ascii=False),
        state_hints=STATE_HINTS,
        entities=page.database.catalog.entities,
        names=await row_names(page, ((each["entity"], int(each["rowId"])) for each in delivery["body"]["changes"])),
        is_live=delivery["finishedAt"] is None,
    )


async def hook_page(
    page: PageRequest, form: Form | None, rotated: dict[str, Any] | None = None, replay: Form | None = None
) -> web.Response:
    """A hook with its deliveries; with `form` or `replay`, the rejected input and its problems; with `rotated`, its new secret."""
    id, offset = page.path_variables["id"], page.offset()
    found = await registration.deliveries(page.database, page.company, id, (DELIVERIES, offset))
    hook = await registration.show(page.database, page.company, id)  # after the deliveries: its health includes their attempts
    return page.render(
        "hook.html",
        (form or replay or initial_form()).status,
        hook=hook,
        day=await last_day(page, hook["id"]),
        newest=NEWEST,
        deliveries=found["data"],
        more=found["hasMore"],
        offset=offset,
        page_size=DELIVERIES,
        state_hints=STATE_HINTS,
        form=form or form_of(hook),
        entities=list(page.database.catalog.entities),
        editing=form is not None,
        rotated=rotated,
        replay=replay or initial_form(),
        is_live=not offset and form is None and rotated is None and replay is None,
    )


async def last_day(page: PageRequest, hook_id: str) -> dict[str, Any]:
    """How many deliveries of a hook ended within a day, and how fast its receiver has answered."""
    given = {"company": page.company, "hook": hook_id, "newest": NEWEST}
    async with page.database.registration(page.company) as connection:
        row = await (await connection.execute(DAY, given)).fetchone()
    assert row is not None
    return dict(zip(("delivered", "failed", "half", "most"), row, strict=True))


async def list_page(page: PageRequest, form: Form, created: dict[str, Any] | None = None) -> web.Response:
    """The list of hooks with the form for a new one; with `created`, that hook and its secret above the list."""
    offset = page.offset()
    found = await registration.hooks(page.database, page.company, (PAGE, offset))
    return page.render(
        "hooks.html",
        201 if created else form.status,
        hooks=found["data"],
        more=found["hasMore"],
        offset=offset,
        page_size=PAGE,
        created=created,
        form=form,
        entities=list(page.database.catalog.entities),
    )


def registration_body(form: Form) -> bytes:
    """Return the body that the API expects for the hook in the form."""
    columns = [name for name in re.split(r"[\s,]+", form["columns"]) if name]
    return exact_json.dumps(
        {
            "entity": form["entity"] or None,
            "url": form["url"].strip(),
            "action": "webhook",
            "filter": form["filter"].strip() or None,
            "columns": columns or None,
            "allowInChangeSet": form["allowInChangeSet"] == "true",
        }
    ).encode()


def form_of(hook: dict[str, Any]) -> Form:
    """Return the form with the values of a stored hook."""
    return initial_form(
        entity=hook["entity"] or "",
        url=hook["url"],
        filter=hook["filter"] or "",
        columns=", ".join(hook["columns"] or ()),
        allowInChangeSet="true" if hook["allowInChangeSet"] else "",
    )
