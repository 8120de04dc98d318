"""Signing in and out."""

from __future__ import annotations

import re
import secrets
from typing import Any

from aiohttp import web

from app.auth.login import delete_cookie, set_cookie
from app.auth.tokens import COOKIE, secrets_equal
from app.errors import ServiceError
from app.web.forms import Form, blank, read_form
from app.web.site import SAID, Site, Visit, see_other
from app.web.view import address, render

# A form of signing in is proved ours by a cookie of its own, for there is no session yet: another site could sign somebody in as
# somebody else.
PROOF = "sign-in"
PROOF_FORM = re.compile(r"[A-Za-z0-9_-]{43}")
LOCAL = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]{0,2000}")  # a path of ours: no other host, nothing that a browser reads as one


async def show(site: Site, request: web.Request) -> web.StreamResponse:
    """The form; whoever has signed in already goes on."""
    query = request.query
    if COOKIE in request.cookies:
        try:
            await site.gate.identify(request.headers, request.remote)
            return see_other(local(query.get("next", "")))
        except ServiceError:
            pass
    return page(request, blank(next=local(query.get("next", ""))), said=SAID.get(query.get("said", "")))


async def sign_in(site: Site, request: web.Request) -> web.StreamResponse:
    """Begin a session, or say what is wrong."""
    form = await read_form(request)
    proof = request.cookies.get(PROOF, "")
    if not proof or not secrets_equal(form["csrf"], proof):
        form.refuse("", "This form was open for too long, or cookies are switched off. Try again", "csrf_failed")
        return page(request, form, 403)
    for name, what in (("email", "your email address"), ("password", "your password")):
        if not form[name]:
            form.refuse(name, f"Enter {what}")
    if form.problems:
        return page(request, form, 400)
    try:
        signed_in = await site.login.begin_session(request.remote, form["email"], form["password"])
    except ServiceError as error:
        form.refuse("", error.message, error.code)
        return page(request, form, error.status, {name: text for name, text in error.headers.items() if name == "Retry-After"})
    response = see_other(local(form["next"]))
    set_cookie(response, request, signed_in)
    response.del_cookie(PROOF, path="/login", httponly=True, samesite="Strict", secure=request.secure)
    return response


async def sign_out(visit: Visit) -> web.StreamResponse:
    await visit.site.login.end_session(visit.identity)
    response = see_other(address("/login", said="signed-out"))
    delete_cookie(response, visit.request)
    return response


def page(
    request: web.Request, form: Form, status: int = 200, headers: dict[str, str] | None = None, said: str | None = None
) -> web.Response:
    """The form, with a proof that it is ours."""
    proof = request.cookies.get(PROOF, "")
    if not PROOF_FORM.fullmatch(proof):
        proof = secrets.token_urlsafe(32)
    values: dict[str, Any] = {"visit": None, "pages": [], "said": said, "refresh": False, "form": form, "csrf": proof}
    response = render("login.html", values, status, headers)
    response.set_cookie(PROOF, proof, path="/login", httponly=True, samesite="Strict", secure=request.secure)
    return response


def local(url: str) -> str:
    """Where to go on to, if that is a page of ours; else the overview."""
    return url if LOCAL.fullmatch(url) and not url.startswith(("/login", "/logout")) else "/"
