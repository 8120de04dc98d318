"""A browser without JavaScript: gets pages, sends forms, follows redirects, keeps the session cookie."""

from __future__ import annotations

import http.client
import secrets
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from lxml import html

from tests.auth.client import EMAIL, ask, sign_in
from tests.service.serving import PATIENCE, Reply, Service

FORM = "application/x-www-form-urlencoded"


def words(found: Any) -> str:
    """The text of a result of XPath, with spaces between the cells of a row."""
    if not hasattr(found, "text_content"):
        return str(found)
    return " ".join(" ".join(map(words, found)).split() if found.tag == "tr" else found.text_content().split())


@dataclass(frozen=True)
class Page:
    """An answer, and its content if it is a page."""

    reply: Reply

    @property
    def status(self) -> int:
        return self.reply.status

    @property
    def location(self) -> str | None:
        return self.reply.headers["Location"]

    @property
    def tree(self) -> Any:
        assert self.reply.headers["Content-Type"] == "text/html; charset=utf-8"
        return html.document_fromstring(self.reply.body.decode())

    @property
    def text(self) -> str:
        """The text of the page, with single spaces."""
        return " ".join(self.tree.text_content().split())

    def all(self, xpath: str) -> list[Any]:
        return [words(each) for each in self.tree.xpath(xpath)]

    def one(self, xpath: str) -> str:
        (found,) = self.all(xpath)
        return str(found)

    @property
    def problems(self) -> list[str]:
        """The messages in the list of the form's problems."""
        return self.all("//div[@role='alert']//li")

    def typed(self, name: str) -> str:
        """The value of a field."""
        (field,) = self.tree.xpath(f"//*[@id='{name}']")
        if field.tag == "textarea":
            return str(field.text_content()).removeprefix("\n")
        if field.tag == "select":
            return next(iter(field.xpath(".//option[@selected]/@value") or field.xpath(".//option[@selected]/text()")), "")
        return str(field.get("value"))


@dataclass(frozen=True)
class Visitor:
    """A browser with these headers; csrf: the token of its session."""

    service: Service
    headers: dict[str, str]
    csrf: str

    def get(self, path: str, **headers: str) -> Page:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return Page(ask(self.service, path, headers={"Accept": "text/html", **self.headers, **named}))

    def post(self, path: str, fields: dict[str, str | list[str]] | None = None, csrf: str | None = None) -> Page:
        """Send a form; csrf: a token in place of the session's."""
        given = {"csrf": self.csrf if csrf is None else csrf, **(fields or {})}
        return Page(ask(self.service, path, "POST", {**self.headers, "Content-Type": FORM}, urlencode(given, doseq=True)))

    def upload(self, path: str, fields: dict[str, str], name: str, content: bytes, csrf: str | None = None) -> Page:
        """Send a form with a file."""
        boundary = secrets.token_hex(8)
        given = {"csrf": self.csrf if csrf is None else csrf, **fields}
        parts = [f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n' for key, value in given.items()]
        parts.append(f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n')
        body = (
            "".join(parts).encode()
            + b"Content-Type: application/octet-stream\r\n\r\n"
            + content
            + f"\r\n--{boundary}--\r\n".encode()
        )
        headers = {**self.headers, "Content-Type": f"multipart/form-data; boundary={boundary}"}
        return Page(_send(self.service, path, headers, body))

    def follow(self, page: Page) -> Page:
        """Get the page that an answer redirects to."""
        assert page.status == 303, page.reply.body
        assert page.location is not None
        return self.get(page.location)


def visitor(service: Service, email: str = EMAIL) -> Visitor:
    """Log in; returns a browser with that session."""
    signed_in = sign_in(service, email)
    return Visitor(service, {"Cookie": f"session={signed_in.cookie}"}, signed_in.csrf)


def anonymous(service: Service) -> Visitor:
    """A browser without a session."""
    return Visitor(service, {}, "")


def _send(service: Service, path: str, headers: dict[str, str], body: bytes) -> Reply:
    connection = http.client.HTTPConnection(service.host, service.port, timeout=PATIENCE * 3)
    try:
        connection.request("POST", path, body=body, headers=headers)
        response = connection.getresponse()
        return Reply(response.status, response.headers, response.read())
    finally:
        connection.close()
