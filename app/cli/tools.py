"""The tools of `bds mcp`: each is one request to the HTTP interface, whose answer or error it passes on within bounds.

Numbers keep all their digits: an answer is JSON before and after its bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from app.cli.remote import Remote, segment
from app.errors import ServiceError, UnknownEntity
from app.query.check.moments import NOW, absolute

ROWS = 200  # in an answer; one more is asked for, so that the answer tells whether there are more
SIZE = 64_000  # bytes of an answer
OVERVIEW_SIZE = 4_000  # bytes of `describe` without an entity
SHRINK = 0.8  # by which the rows, and then the texts, of an answer that is too large become fewer and shorter

Given = Mapping[str, str]
Answer = dict[str, Any]

_decoder = msgspec.json.Decoder(float_hook=Decimal)
_encoder = msgspec.json.Encoder(decimal_format="number")


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool.  call: makes its answer; arguments: description by name; required: of the arguments, beside the company."""

    about: str
    call: Callable[[Remote, str, Given], Answer]
    arguments: Mapping[str, str]
    required: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()  # arguments that may be JSON objects

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        named = {"company": "the company's id; not needed if the server was started with --company", **self.arguments}
        types = {
            name: {"type": ["object", "string"]} if name in self.objects else {"type": ["string", "integer"]} for name in named
        }
        properties = {name: {**types[name], "description": about} for name, about in named.items()}
        return {"type": "object", "properties": properties, "required": list(self.required), "additionalProperties": False}

    def read(self, arguments: Mapping[str, Any]) -> Given:
        """The arguments as text, without those that are null or empty.  Raises ServiceError(malformed_request)."""
        given = {name: value for name, value in arguments.items() if value not in (None, "")}
        known = ("company", *self.arguments)
        for name, value in [*given.items()]:
            if name not in known:
                raise ServiceError("malformed_request", f"expected {', '.join(known)}, got {name}", target=name)
            if value == NOW and name in MOMENT:
                del given[name]
            elif isinstance(value, dict) and name in self.objects:
                given[name] = _encoder.encode(value).decode()
            elif isinstance(value, bool) or not isinstance(value, str | int | float) or not _is_text(str(value)):
                raise ServiceError("malformed_request", f"{name}: expected text or a number", target=name)
            else:
                given[name] = absolute(str(value)) if name in WORDS else str(value)
        for name in self.required:
            if name not in given:
                raise ServiceError("malformed_request", f"{name}: expected a value, got none", target=name)
        return given


def _is_text(value: str) -> bool:
    """Whether it can be sent: JSON may escape half of a character."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def run(service: Remote, company: str | None, name: str, arguments: Mapping[str, Any]) -> str:
    """The answer of a tool as JSON.  company: where the arguments name none.  Raises ServiceError, OSError."""
    if name not in TOOLS:
        raise ServiceError("not_found", f"no such tool: {name}")
    given = TOOLS[name].read(arguments)
    where = given.get("company", company)
    if where is None:
        raise ServiceError("malformed_request", "company: expected the id of a company", target="company")
    if given.get("since") == NOW:
        given = {**given, "since": service.last_version(where)}
    answer = TOOLS[name].call(service, segment(where), given)
    if name == "describe" and "entity" not in given:
        return _fit_overview(answer)
    return fit(answer)


def problem(error: ServiceError | OSError) -> str:
    """An error as the service told it, as JSON."""
    if isinstance(error, OSError):
        return _encoder.encode({"detail": f"{error.filename}: {error.strerror}" if error.filename else str(error)}).decode()
    told = {"status": error.status, "code": error.code, "detail": error.message, "target": error.target, **error.more}
    return fit({name: value for name, value in told.items() if value is not None})


# Bounds ---------------------------------------------------------------------------------------------------------------------------


def fit(answer: Answer, size: int = SIZE) -> str:
    """An answer as JSON of at most `size` bytes; with `truncated` if lists or, of a single large row, texts had to be cut."""
    for rows, inner, length in _bounds():
        cut = _cut(answer, rows, inner, length)
        if cut != answer:
            has_more = {"hasMore": True} if len(cut.get("data", ())) < len(answer.get("data", ())) else {}
            cut = {"truncated": True, **cut, **has_more}
        text = _encoder.encode(cut)
        if len(text) <= size:
            return text.decode()
    return _encoder.encode({"truncated": True}).decode()


def _bounds() -> Iterator[tuple[int, int, int | None]]:
    """Fewer and fewer rows, then fewer members of lists in a row and shorter texts: (rows, members, characters or None)."""
    rows = ROWS
    while rows > 1:
        yield rows, ROWS, None
        rows = int(rows * SHRINK)
    length = SIZE
    while length:
        yield 1, min(ROWS, length // 100), length
        length = int(length * SHRINK)


def _cut(value: Any, rows: int, inner: int, length: int | None) -> Any:
    """A value with at most `rows` members in its outer lists, `inner` in those inside of them, and texts of `length` characters."""
    if isinstance(value, list):
        return [_cut(each, inner, inner, length) for each in value[:rows]]
    if isinstance(value, dict):
        return {name: _cut(each, rows, inner, length) for name, each in value.items()}
    return f"{value[:length]}…" if isinstance(value, str) and length is not None and len(value) > length else value


def _fit_overview(answer: Answer) -> str:
    """The overview, of many entities without their fields and descriptions."""
    for kept in (("name", "description", "fields"), ("name", "description"), ("name",)):
        entities = [{name: each[name] for name in kept if name in each} for each in answer["entities"]]
        text = _encoder.encode({**answer, "entities": entities, **({} if "fields" in kept else {"truncated": True})})
        if len(text) <= OVERVIEW_SIZE and len(entities) <= ROWS:
            return text.decode()
    return fit({**answer, "entities": entities, "truncated": True}, OVERVIEW_SIZE)


# Tools ----------------------------------------------------------------------------------------------------------------------------


def _ask(service: Remote, path: str, query: Given, headers: Given | None = None) -> Any:
    sent = f"{path}?{urlencode(query, quote_via=quote)}" if query else path
    return _read_json(service, service.read(sent, headers={"Accept": "application/json", **(headers or {})}))


def _read_json(service: Remote, content: bytes) -> Any:
    """The JSON of an answer.  Raises ServiceError if something else than a service has answered."""
    try:
        return _decoder.decode(content)
    except msgspec.DecodeError:
        raise ServiceError("internal", f"{service.url} did not answer in JSON: expected the address of a service") from None


def _query(given: Given, *names: str, rows: str | None = None) -> dict[str, str]:
    """The parameters among the arguments.  rows: the one that bounds the rows, which is lowered to what an answer has."""
    query = {name: given[name] for name in names if name in given}
    if rows is not None:
        asked = given.get(rows, str(ROWS + 1))
        query[rows] = str(ROWS + 1) if asked.isascii() and asked.isdigit() and (len(asked) > 4 or int(asked) > ROWS) else asked
    return query


def _describe(service: Remote, company: str, given: Given) -> Answer:
    model = _ask(service, f"/api/odata/{company}/$metadata", {}, service.basic)
    namespace, _, container = model["$EntityContainer"].rpartition(".")
    types = model[namespace]
    sets = {name: each for name, each in types[container].items() if isinstance(each, dict) and "$Type" in each}
    of = {name: types[each["$Type"].rpartition(".")[2]] for name, each in sets.items()}
    if "entity" in given:
        name = given["entity"]
        if name not in sets:
            raise UnknownEntity(name, sets)
        return {"entity": name, "navigation": sets[name].get("$NavigationPropertyBinding", {}), "type": of[name]}
    entities = [
        {
            "name": name,
            **({"description": each["@Core.Description"]} if "@Core.Description" in each else {}),
            "fields": [field for field, about in of[name].items() if field[0] not in "$@" and about.get("$Kind") is None],
        }
        for name, each in sets.items()
    ]
    return {"entities": entities, "hint": "describe with entity tells types, references and children"}


def _read(service: Remote, company: str, given: Given) -> Answer:
    path = f"/c/{company}/{segment(given['entity'])}"
    if "id" in given:
        names = (name for name in given if name not in ("company", "entity", "id"))
        return {"row": _ask(service, f"{path}/{segment(given['id'])}", _query(given, *names))}
    answer: Answer = _ask(service, path, _query(given, "filter", "sort", *MOMENT, rows="limit"))
    return answer


def _history(service: Remote, company: str, given: Given) -> Answer:
    path = f"/c/{company}/{segment(given['entity'])}/{segment(given['id'])}/history"
    answer: Answer = _ask(service, path, _query(given, "offset", *MOMENT, rows="limit"))
    return answer


def _difference(service: Remote, company: str, given: Given) -> Answer:
    rest = ("since", "filter", "sort", "after", *MOMENT)
    if "entity" not in given:
        counts: Answer = _ask(service, f"/c/{company}/diff", _query(given, *rest, "limit"))
        return counts
    answer: Answer = _ask(service, f"/c/{company}/{segment(given['entity'])}", _query(given, *rest, rows="limit"))
    return answer


def _aggregate(service: Remote, company: str, given: Given) -> Answer:
    where = f"{company}@{segment(given['version'])}" if "version" in given else company
    query = {f"${name}": value for name, value in _query(given, "apply", "filter", "orderby", "skip", rows="top").items()}
    answer: Answer = _ask(service, f"/api/odata/{where}/{segment(given['entity'])}", query, service.basic)
    return answer


def _try_import(service: Remote, company: str, given: Given) -> Answer:
    """The report of a dry run.  A report with the status 422 is an answer, too."""
    headers = {"Content-Type": "application/json"}
    path = f"/api/{company}/import?dryRun=true"
    report: Answer = _read_json(service, service.read(path, "POST", headers, given["document"].encode(), answers=(422,)))
    return report


ENTITY = {"entity": "an entity, such as products"}
WHEN = "a change's id, the name of a version, a time such as 2026-01-31 or 2026-01-31T08:00:00Z, or yesterday, today, -7d, -12h"
MOMENT = {"version": f"as of {WHEN}", "at": "as of a time; not together with version"}
NAMED = {name: f"when the lookup in id named the row ({about}); later changes are listed, too" for name, about in MOMENT.items()}
WORDS = ("since", "version", "at")  # arguments that take yesterday and so on, as the command line does
LIMIT = {"limit": f"the number of rows, at most {ROWS}"}
ROW = {"id": "the row's id, or a lookup such as code:A1"}
FILTER = {
    "filter": "a condition over the entity's own fields, with = <> < <= > >= LIKE ILIKE IN BETWEEN IS NULL AND OR NOT, such as"
    " price >= 10 AND category = 'code:TOOLS' AND updatedAt > '2026-01-31'; no functions"
}

TOOLS: dict[str, Tool] = {
    "describe": Tool(
        "List the company's entities with their fields; with entity, all of one: types, references, children, unique fields"
        " (OData CSDL). Ask this first.",
        _describe,
        {"entity": "an entity, of which everything is told"},
    ),
    "read": Tool(
        "Read rows with their children, or with id one row, as they are or as they were. For the next page, filter by"
        " id > the last id.",
        _read,
        {**ENTITY, **ROW, **FILTER, "sort": "fields, separated by commas; -price for descending; default id", **LIMIT, **MOMENT},
        ("entity",),
    ),
    "history": Tool(
        "Who changed a row and when, with old and new values, the latest first; also of a deleted row, by its id.",
        _history,
        {**ENTITY, **ROW, **LIMIT, "offset": "changes to leave out", **NAMED},
        ("entity", "id"),
    ),
    "difference": Tool(
        "What differs between two moments: without entity how many rows of each were created, updated and deleted; with it"
        " each row that differs, with old and new values.",
        _difference,
        {
            "since": f"the earlier end: {WHEN}",
            "version": "the later end, the same; now if it is not given",
            "at": "the later end as a time; not together with version",
            **ENTITY,
            **FILTER,
            "sort": "version (default) or rowId",
            **LIMIT,
            "after": "for the next page: the last record's value of the order; version is then that of the first answer",
        },
        ("since",),
    ),
    "aggregate": Tool(
        "Count, sum and group rows by OData's $apply: groupby((category/name),aggregate(price with average as mean,$count as n))"
        " or aggregate(quantity mul price with sum as amount).",
        _aggregate,
        {
            **ENTITY,
            "apply": "the value of $apply: groupby((...)), groupby((...),aggregate(...)) or aggregate(...) with sum, average, min,"
            " max, countdistinct; paths such as customer/country",
            "filter": "OData's $filter, such as orderDate ge 2026-01-01 and status ne 'draft'; aliases restrict the groups",
            "orderby": "OData's $orderby, such as amount desc",
            "top": f"the number of groups, at most {ROWS}",
            "skip": "groups to leave out",
            "version": f"as of {WHEN}",
        },
        ("entity", "apply"),
    ),
    "try_import": Tool(
        "Try an import document, such as {products: [{code: A1, price: 12.5}]}: everything is checked and reported as an import"
        " would do it, and nothing is written. Records are matched by their unique fields or by id; references are lookups"
        " (category: code:TOOLS); @operation is upsert (default), create, update or delete.",
        _try_import,
        {"document": "the import document, as an object or, to keep every digit, as JSON text"},
        ("document",),
        ("document",),
    ),
}
