"""The user's own account: change of password."""

from __future__ import annotations

from aiohttp import web

from app.auth.login import delete_cookie
from app.errors import ServiceError
from app.web.forms import Form, initial_form
from app.web.page import PageRequest, see_other
from app.web.view import local_url


async def show(page: PageRequest) -> web.StreamResponse:
    return page.render("account.html", form=initial_form())


async def change(page: PageRequest) -> web.StreamResponse:
    """Replace the password, which ends every session, and go on to the login."""
    form = await page.form()
    if form["new"] != form["again"]:
        form.add_problem("again", "The passwords do not match")
        return page.render("account.html", form.status, form=form)
    try:
        await page.site.login.replace_password(page.request.remote, page.identity.email or "", form["old"], form["new"])
    except ServiceError as error:
        return show_problem(page, form, error)
    response = see_other(local_url("/login", flash="new-password"))
    delete_cookie(response, page.request)
    return response


def show_problem(page: PageRequest, form: Form, error: ServiceError) -> web.Response:
    """The form with the error at its field.  A wrong current password is 400: 401 would lead to the login."""
    if error.code == "unauthorized":
        form.add_problem("old", "The current password is wrong", error.code)
    elif error.code == "malformed_request":
        form.add_problem("new", error.message, error.code)
    elif error.code == "too_many_requests":
        form.add_problem("", error.message, error.code)
    else:
        raise error
    return page.render("account.html", error.status if error.status != 401 else 400, form=form)
