"""What is typed into forms: fields as the browser sends them, and what is wrong with one of them."""

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
from app.errors import ERRORS, SQLSTATES, ServiceError
from app.wire import bodies, urls

LONGEST_FIELD = 1 << 20  # bytes of one field that is no file
MOST_FIELDS = 20  # before the file
NOT_PARTS = (ValueError, RuntimeError, HttpProcessingError)  # what the library raises of parts that are none


@dataclass(slots=True)
class Form:
    """Fields with their values, and the problems that were found in them: field -> message ("": of none in particular)."""

    values: dict[str, list[str]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    code: str | None = None  # of the first problem

    def __getitem__(self, name: str) -> str:
        """The value of a field; "" if it was not sent."""
        return self.values.get(name, [""])[-1]

    def all(self, name: str) -> list[str]:
        return self.values.get(name, [])

    def has(self, name: str, value: str) -> bool:
        return value in self.all(name)

    def add(self, name: str, value: str) -> None:
        self.values.setdefault(name, []).append(value)

    def problem(self, name: str) -> str | None:
        return self.problems.get(name)

    def refuse(self, name: str, message: str, code: str = "malformed_request") -> None:
        """Note what is wrong with a field."""
        self.problems.setdefault(name, message)
        self.code = self.code or code

    @contextmanager
    def checked(self, *names: str, targets: Mapping[str, str] | None = None) -> Iterator[None]:
        """Note what is raised inside as the problem of its target, if that is one of the fields, else of none.

        targets: fields by the names that the API gives them.  What is no fault of the form is raised on.
        """
        try:
            yield
        except ServiceError as error:
            told = error
        except psycopg.Error as error:
            if error.sqlstate not in SQLSTATES:
                raise
            told = ServiceError(SQLSTATES[error.sqlstate], error.diag.message_primary or "")
        else:
            return
        if told.status not in (400, 409, 413, 415):
            raise told
        name = (targets or {}).get(told.target or "", told.target or "")
        self.refuse(name if name in names else "", told.message, told.code)

    @property
    def status(self) -> int:
        """Of a page that shows the form again."""
        return ERRORS[self.code][0] if self.code else 200


def blank(**values: str | list[str]) -> Form:
    """A form before anything is typed."""
    return Form({name: value if isinstance(value, list) else [value] for name, value in values.items()})


async def read_form(request: web.Request) -> Form:
    """The fields of a form that holds no file.  Raises malformed_request, too_large, request_timeout."""
    if request.content_type != "application/x-www-form-urlencoded":
        raise ServiceError("unsupported_media_type", f"expected a form, got {request.content_type}")
    async with bodies.body_in_time():
        data = await request.read()
    try:
        body = data.decode("ascii")
    except UnicodeDecodeError:
        raise ServiceError(
            "malformed_request", "expected a form in which other characters than ASCII are percent-encoded"
        ) from None
    form = Form()
    for name, value in urls.decode_query("?" + body.replace("#", "%23")):
        form.add(name, value)
    return form


INCOMPLETE = "the form is not complete: it ended before its closing boundary"


@dataclass(frozen=True, slots=True)
class Upload:
    """A form that ends with a file, which has not been read yet."""

    form: Form
    parts: MultipartReader
    file: BodyPartReader | None

    @property
    def file_name(self) -> str:
        return (self.file.filename if self.file else None) or ""

    async def read(self, size: int) -> bytes:
        """The next bytes of the file, b"" once the form has ended after it as a form ends.  Raises malformed_request."""
        assert self.file is not None
        try:
            data = bytes(await self.file.read_chunk(size))
        except ValueError:
            raise ServiceError("malformed_request", INCOMPLETE) from None
        if not data:
            await self._end()
        return data

    async def _end(self) -> None:
        if self.file is None or not self.file.at_eof():
            raise ServiceError("malformed_request", INCOMPLETE)
        try:
            part = await self.parts.next()
        except NOT_PARTS:
            raise ServiceError("malformed_request", INCOMPLETE) from None
        if part is not None:  # one without headers has not come: the form was cut off in its closing boundary
            after = "expected the file at the form's end, found another part after it"
            raise ServiceError("malformed_request", after if part.headers else INCOMPLETE)


async def read_upload(request: web.Request, identity: Identity) -> Upload:
    """A form whose last field is a file: the fields before it.

    The first of them says that a page of ours sent it, before anything else is looked at.  Raises csrf_failed, malformed_request.
    """
    if request.content_type != "multipart/form-data":
        raise ServiceError("malformed_request", "expected a form in parts")
    try:
        reader = await request.multipart()
    except ValueError:
        raise ServiceError("malformed_request", "expected a form in parts") from None
    form = Form()
    first = True
    async for part in _parts(reader):
        if part.name != "csrf" and first and identity.csrf is not None:
            raise _not_ours()
        if part.filename is not None:
            return Upload(form, reader, part)
        form.add(part.name or "", await _text(part))
        if first and identity.csrf is not None and not secrets_equal(form["csrf"], identity.csrf):
            raise _not_ours()
        first = False
        if sum(map(len, form.values.values())) > MOST_FIELDS:
            raise ServiceError("malformed_request", f"expected at most {MOST_FIELDS} fields before the file")
    if first and identity.csrf is not None:
        raise _not_ours()
    return Upload(form, reader, None)


async def _parts(reader: MultipartReader) -> AsyncIterator[BodyPartReader]:
    while True:
        try:
            async with bodies.body_in_time():
                part: Any = await reader.next()
        except NOT_PARTS:
            raise ServiceError("malformed_request", "the parts of the form cannot be told from each other") from None
        if part is None:
            return
        if not isinstance(part, BodyPartReader):
            raise ServiceError("malformed_request", "expected fields and a file, found parts within a part")
        yield part


async def _text(part: BodyPartReader) -> str:
    data = bytearray()
    async with bodies.body_in_time():
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


def _not_ours() -> ServiceError:
    return ServiceError("csrf_failed", "the form did not come from a page of this session")
