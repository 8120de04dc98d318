"""Forms: their fields as the browser sends them, uploads, and problems of single fields."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from aiohttp import BodyPartReader, MultipartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from app.auth.gate import Identity
from app.auth.tokens import secrets_equal
from app.errors import ERRORS, ServiceError, of_database
from app.wire import bodies, urls

LONGEST_FIELD = 1 << 20  # bytes of a field other than the file
MOST_FIELDS = 20  # before the file
MULTIPART_ERRORS = (ValueError, RuntimeError, HttpProcessingError)  # that aiohttp raises for a malformed body


@dataclass(slots=True)
class Form:
    """The values of the fields and the problems found in them."""

    values: dict[str, list[str]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)  # field -> message; "" for the form as a whole
    code: str | None = None  # error code of the first problem

    def __getitem__(self, name: str) -> str:
        """The last value of a field; "" if it was not sent."""
        return self.values.get(name, [""])[-1]

    def all(self, name: str) -> list[str]:
        return self.values.get(name, [])

    def has(self, name: str, value: str) -> bool:
        return value in self.all(name)

    def add(self, name: str, value: str) -> None:
        self.values.setdefault(name, []).append(value)

    def problem(self, name: str) -> str | None:
        return self.problems.get(name)

    def add_problem(self, name: str, message: str, code: str = "malformed_request") -> None:
        """Add the problem of a field; only its first one is kept."""
        self.problems.setdefault(name, message)
        self.code = self.code or code

    @contextmanager
    def collect_problems(self, *names: str, targets: Mapping[str, str] | None = None) -> Iterator[None]:
        """Turn an error raised inside into the problem of the field that is its target, or else of the form as a whole.

        names: the fields; targets: the API's name of a field -> its name in the form.  Errors that a form cannot cause (about none
        of the fields, and with other statuses than 400, 409, 413, 415) pass.
        """
        try:
            yield
        except ServiceError as raised:
            error = raised
        except psycopg.Error as raised:
            if (known := of_database(raised)) is None:
                raise
            error = known
        else:
            return
        target = error.target or ""
        name = (targets or {}).get(target, target)
        if name not in names and error.status not in (400, 409, 413, 415):
            raise error
        if name in names:
            # the page shows the field's label in place of the API's name
            self.add_problem(name, error.message.removeprefix(f"{target}: "), error.code)
        else:
            self.add_problem("", error.message, error.code)

    @property
    def status(self) -> int:
        """The HTTP status of a page that shows the form."""
        return ERRORS[self.code][0] if self.code else 200


def initial_form(**values: str | list[str]) -> Form:
    """Return a form with these initial values."""
    return Form({name: value if isinstance(value, list) else [value] for name, value in values.items()})


async def read_form(request: web.Request) -> Form:
    """Read the fields of a form without files.  Raises ServiceError: malformed_request, too_large, request_timeout."""
    if request.content_type != "application/x-www-form-urlencoded":
        message = f"expected application/x-www-form-urlencoded, got {request.content_type}"
        raise ServiceError("unsupported_media_type", message)
    async with bodies.body_deadline():
        data = await request.read()
    try:
        body = data.decode("ascii")
    except UnicodeDecodeError:
        message = "expected a form with characters beyond ASCII percent-encoded"
        raise ServiceError("malformed_request", message) from None
    form = Form()
    for name, value in urls.decode_query("?" + body.replace("#", "%23")):
        form.add(name, value)
    return form


INCOMPLETE = "the form is incomplete: it ended before its closing boundary"


@dataclass(frozen=True, slots=True)
class Upload:
    """A form that ends with a file that has not been read yet."""

    form: Form
    parts: MultipartReader
    file: BodyPartReader | None

    @property
    def file_name(self) -> str:
        return (self.file.filename if self.file else None) or ""

    async def read(self, size: int) -> bytes:
        """Return the next bytes of the file; b"" after the last, when the form's closing boundary has arrived too.

        Raises ServiceError(malformed_request) if the form ends otherwise.
        """
        assert self.file is not None
        try:
            data = bytes(await self.file.read_chunk(size))
        except ValueError:
            raise ServiceError("malformed_request", INCOMPLETE) from None
        if not data:
            await self._check_end()
        return data

    async def _check_end(self) -> None:
        if self.file is None or not self.file.at_eof():
            raise ServiceError("malformed_request", INCOMPLETE)
        try:
            part = await self.parts.next()
        except MULTIPART_ERRORS:
            raise ServiceError("malformed_request", INCOMPLETE) from None
        if part is not None:  # aiohttp returns a part without headers if the closing boundary was cut off
            after = "expected the file to be the last part of the form, got another part after it"
            raise ServiceError("malformed_request", after if part.headers else INCOMPLETE)


async def read_upload(request: web.Request, identity: Identity) -> Upload:
    """Read the fields of a form whose last field is a file, up to the file.

    The CSRF token must be the first field and is checked before any other is read.
    Raises ServiceError: csrf_failed, malformed_request, too_large, request_timeout.
    """
    if request.content_type != "multipart/form-data":
        raise ServiceError("malformed_request", f"expected multipart/form-data, got {request.content_type}")
    try:
        reader = await request.multipart()
    except ValueError:
        raise ServiceError("malformed_request", "expected multipart/form-data with a boundary") from None
    form = Form()
    first = True
    async for part in _parts(reader):
        if part.name != "csrf" and first and identity.csrf is not None:
            raise _csrf_failed()
        if part.filename is not None:
            return Upload(form, reader, part)
        form.add(part.name or "", await _text(part))
        if first and identity.csrf is not None and not secrets_equal(form["csrf"], identity.csrf):
            raise _csrf_failed()
        first = False
        if sum(map(len, form.values.values())) > MOST_FIELDS:
            raise ServiceError("malformed_request", f"expected at most {MOST_FIELDS} fields before the file")
    if first and identity.csrf is not None:
        raise _csrf_failed()
    return Upload(form, reader, None)


async def _parts(reader: MultipartReader) -> AsyncIterator[BodyPartReader]:
    while True:
        try:
            async with bodies.body_deadline():
                part: Any = await reader.next()
        except MULTIPART_ERRORS:
            raise ServiceError("malformed_request", "malformed multipart body") from None
        if part is None:
            return
        if not isinstance(part, BodyPartReader):
            raise ServiceError("malformed_request", "expected fields and a file, got a multipart body within a part")
        yield part


async def _text(part: BodyPartReader) -> str:
    data = bytearray()
    async with bodies.body_deadline():
        while chunk := await part.read_chunk():
            data += chunk
            if len(data) > LONGEST_FIELD:
                raise ServiceError("too_large", f"{part.name}: expected at most {LONGEST_FIELD:,} bytes")
    if not part.at_eof():
        raise ServiceError("malformed_request", INCOMPLETE)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ServiceError("malformed_request", f"{part.name}: expected UTF-8") from None
    if "\0" in text:
        raise ServiceError("malformed_request", f"{part.name}: the character U+0000 is not allowed")
    return text


def _csrf_failed() -> ServiceError:
    return ServiceError("csrf_failed", "the form was not sent by a page of this session")
