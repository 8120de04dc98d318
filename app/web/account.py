"""One's own account: another password."""

from __future__ import annotations

from aiohttp import web

from app.auth.login import delete_cookie
from app.errors import ServiceError
from app.web.forms import Form, blank
from app.web.site import Visit, see_other
from app.web.view import address


async def show(visit: Visit) -> web.StreamResponse:
    return visit.render("account.html", form=blank())


async def change(visit: Visit) -> web.StreamResponse:
    """Replace the password, which ends every session: sign in with the new one."""
    form = await visit.form()
    if form["new"] != form["again"]:
        form.refuse("again", "This is not the same")
        return visit.render("account.html", form.status, form=form)
    try:
        await visit.site.login.replace_password(visit.request.remote, visit.identity.email or "", form["old"], form["new"])
    except ServiceError as error:
        return refused(visit, form, error)
    response = see_other(address("/login", said="new-password"))
    delete_cookie(response, visit.request)
    return response


def refused(visit: Visit, form: Form, error: ServiceError) -> web.Response:
    """The form with what is wrong in it; a wrong old password is no reason to sign in again."""
    if error.code == "unauthorized":
        form.refuse("old", "This is not your password", error.code)
    elif error.code == "malformed_request":
        form.refuse("new", error.message, error.code)
    elif error.code == "too_many_requests":
        form.refuse("", error.message, error.code)
    else:
        raise error
    return visit.render("account.html", error.status if error.status != 401 else 400, form=form)
