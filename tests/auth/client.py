"""An HTTP client that can log in and send from any loopback address."""

from __future__ import annotations

import base64
import http.client
import json
from dataclasses import dataclass
from itertools import count
from typing import Any

from app.auth.passwords import hash_password
from tests.service.serving import PATIENCE, Reply, Service

PASSWORD = "correct horse battery"
HASH = hash_password(PASSWORD)
EMAIL = "anna@example.com"
_addresses = count(2)


def fresh_address() -> str:
    """Return a loopback address that has sent no wrong credentials yet."""
    number = next(_addresses)
    return f"127.1.{number >> 8}.{number & 255}"


def ask(
    service: Service,
    path: str,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    body: Any = None,
    source: str = "127.0.0.1",
) -> Reply:
    """Send one request; a body that is not a string is sent as JSON."""
    sent = dict(headers or {})
    if body is not None and not isinstance(body, str):
        body = json.dumps(body)
        sent.setdefault("Content-Type", "application/json")
    connection = http.client.HTTPConnection(service.host, service.port, timeout=PATIENCE * 3, source_address=(source, 0))
    try:
        connection.request(method, path, body=body, headers=sent)
        response = connection.getresponse()
        return Reply(response.status, response.headers, response.read())
    finally:
        connection.close()


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


@dataclass(frozen=True)
class SignedIn:
    """The credentials of a login."""

    token: str
    csrf: str
    cookie: str

    @property
    def cookies(self) -> dict[str, str]:
        return {"Cookie": f"other=1; session={self.cookie}"}

    @property
    def browser(self) -> dict[str, str]:
        return {**self.cookies, "X-CSRF-Token": self.csrf}


def make_user(service: Service, email: str = EMAIL, *companies: str) -> str:
    service.operator.rows("select bds.create_user(%s, %s, %s)", (email, HASH, list(companies or ("demo",))))
    return email


def login(service: Service, email: str = EMAIL, password: str = PASSWORD, source: str = "127.0.0.1") -> Reply:
    return ask(service, "/auth/login", "POST", body={"email": email, "password": password}, source=source)


def sign_in(service: Service, email: str = EMAIL) -> SignedIn:
    reply = login(service, email)
    assert reply.status == 200, reply.body
    cookie = reply.headers["Set-Cookie"].partition(";")[0].partition("=")[2]
    return SignedIn(reply.json["token"], reply.json["csrf"], cookie)
