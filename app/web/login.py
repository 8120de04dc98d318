"""Login and logout."""

from __future__ import annotations

import re
import secrets
from typing import Any

from aiohttp import web

from app.auth.login import delete_cookie, set_cookie
from app.auth.tokens import COOKIE, secrets_equal
from app.errors import ServiceError
from app.web.forms import Form, initial_form, read_form
from app.web.page import FLASH_MESSAGES, PageRequest, Site, check_parameters, see_other
from app.web.view import local_url, render

# Before the login there is no session to derive a CSRF token from, so the form has one in a cookie of its own.  Without it another
# site could log a person in as somebody else.
CSRF_COOKIE = "sign-in"
CSRF_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")
LOCAL_URL = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]{0,2000}")  # nothing that a browser could read as another host


async def show(site: Site, request: web.Request) -> web.StreamResponse:
    """The form; a user who is logged in is redirected."""
    check_parameters(request, ("next", "flash"))
    query = request.query
    if COOKIE in request.cookies:
        try:
            await site.gate.identify(request.headers, request.remote)
            return see_other(safe_url(query.get("next", "")))
        except ServiceError:
            pass
    flash = FLASH_MESSAGES.get(query.get("flash", ""))
    return form_page(request, initial_form(next=safe_url(query.get("next", ""))), flash=flash)


async def login(site: Site, request: web.Request) -> web.StreamResponse:
    """Begin a session, or show the form with its problems."""
    form = await read_form(request)
    token = request.cookies.get(CSRF_COOKIE, "")
    if not token or not secrets_equal(form["csrf"], token):
        form.add_problem("", "The form has expired, or your browser blocks cookies. Try again", "csrf_failed")
        return form_page(request, form, 403)
    for name, what in (("email", "your email address"), ("password", "your password")):
        if not form[name]:
            form.add_problem(name, f"Enter {what}")
    if form.problems:
        return form_page(request, form, 400)
    try:
        session = await site.login.begin_session(request.remote, form["email"], form["password"])
    except ServiceError as error:
        form.add_problem("", error.message, error.code)
        headers = {name: text for name, text in error.headers.items() if name == "Retry-After"}
        return form_page(request, form, error.status, headers)
    response = see_other(safe_url(form["next"]))
    set_cookie(response, request, session)
    response.del_cookie(CSRF_COOKIE, path="/login", httponly=True, samesite="Strict", secure=request.secure)
    return response


async def logout(page: PageRequest) -> web.StreamResponse:
    await page.site.login.end_session(page.identity)
    response = see_other(local_url("/login", flash="signed-out"))
    delete_cookie(response, page.request)
    return response


def form_page(
    request: web.Request, form: Form, status: int = 200, headers: dict[str, str] | None = None, flash: str | None = None
) -> web.Response:
    """The form, with its CSRF token in the form and in the cookie."""
    token = request.cookies.get(CSRF_COOKIE, "")
    if not CSRF_TOKEN.fullmatch(token):
        token = secrets.token_urlsafe(32)
    values: dict[str, Any] = {"page": None, "navigation": [], "flash": flash, "refresh": False, "form": form, "csrf": token}
    response = render("login.html", values, status, headers)
    response.set_cookie(CSRF_COOKIE, token, path="/login", httponly=True, samesite="Strict", secure=request.secure)
    return response


def safe_url(url: str) -> str:
    """Return the URL if it is a page of this service other than login and logout, else the overview."""
    return url if LOCAL_URL.fullmatch(url) and not url.startswith(("/login", "/logout")) else "/"
