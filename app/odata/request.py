"""Parses an OData request: the resource that its path names, its options as pairs of text, and the format of the answer.

The query options themselves are checked by app.query.  Every error is a ServiceError.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from urllib.parse import unquote

from multidict import MultiMapping

from app.database.catalog import Catalog, Entity, Field, Navigation
from app.database.past import Moment, model_of
from app.errors import QueryError, ServiceError, UnknownEntity
from app.query.check.moments import read_moment
from app.wire.answers import quality
from app.wire.urls import decode_path, decode_query

METHODS = ("GET", "HEAD")
BATCH_METHODS = ("POST",)
METADATA_LEVELS = ("minimal", "none", "full")
PAGE_SIZE = re.compile(r'(?:^|[,;])\s*(?:odata\.)?maxpagesize\s*=\s*"?([0-9]{1,9})"?\s*(?:$|[,;])', re.IGNORECASE)
TRACK_CHANGES = re.compile(r"(?:^|[,;])\s*(?:odata\.)?track-changes\s*(?:$|[,;])", re.IGNORECASE)
MEDIA_RANGE = re.compile(r'((?:"(?:[^"\\]|\\.)*"|[^,"])+)')


class Kind(Enum):
    """The kinds of resources that a path can name."""

    SERVICE = "the service document"
    METADATA = "$metadata"
    COLLECTION = "a collection"
    COUNT = "/$count"
    ROW = "one row"
    PROPERTY = "a property"
    VALUE = "/$value"
    REFERENCE = "the reference to one row"
    REFERENCES = "the references to rows"


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """The format parameters of JSON: the amount of control information, and whether Int64 and Decimal are strings."""

    metadata: str = "minimal"
    ieee754: bool = False
    is_xml: bool = False  # $metadata alone

    @property
    def content_type(self) -> str:
        if self.is_xml:
            return "application/xml"
        return f"application/json;odata.metadata={self.metadata}" + (";IEEE754Compatible=true" if self.ieee754 else "")


@dataclass(frozen=True, slots=True)
class Resource:
    """What a path names.

    entity: the entity set with which the path begins; None for a document.
    key: the text between the parentheses after it.  member: the navigation or field after the key.
    """

    kind: Kind
    entity: Entity | None = None
    key: str | None = None
    member: Navigation | Field | None = None


@dataclass(frozen=True, slots=True)
class ODataRequest:
    """A parsed OData request; its query options are still text."""

    company: str
    resource: Resource
    format: JsonFormat
    options: Sequence[tuple[str, str]]
    path: str  # with the query string, as the client sent it
    catalog: Catalog  # the model, or that of the past
    moment: Moment | None = None  # the past that the path names
    page: int | None = None  # the greatest number of rows that the client prefers
    tracks: bool = False  # whether the client prefers a link to what changes later
    newest: bool = False  # whether the client takes OData 4.01
    generation: str | None = None  # of the company, which the client knows


def read_request(catalog: Catalog, method: str, path: str, headers: MultiMapping[str], *, extended: bool = False) -> ODataRequest:
    """Parse a request of the raw `path`, which includes the query string, to anything but $batch.  Raises ServiceError."""
    root, *segments = decode_path(path)[2:]
    company, at, moment = root.partition("@")
    if method not in METHODS or is_batch(path):
        raise refused_method(path, extended=extended)
    check_version(headers)
    past = read_moment(moment) if at else None
    if past:
        catalog = model_of(catalog)
    if segments[-1:] == [""]:
        segments.pop()  # a slash at the end of the path
    resource = find_resource(catalog, segments)
    options = read_options(path)
    if resource.entity is None:
        check_options(resource.kind.value, options)
    format = negotiate(headers.getall("Accept", ()), resource.kind)
    prefer = headers.getall("Prefer", ())
    tracks, newest = TRACK_CHANGES.search(",".join(prefer)) is not None, takes_newest(headers)
    page, generation = read_page_size(prefer), read_generation(options)
    return ODataRequest(company, resource, format, options, path, catalog, past, page, tracks, newest, generation)


def read_generation(options: Sequence[tuple[str, str]]) -> str | None:
    """The generation that query options name.  Raises QueryError if there are two."""
    given = [value for name, value in options if name == "generation"]
    if len(given) > 1:
        raise QueryError("generation is given twice", target="generation")
    return given[0] if given else None


def read_page_size(prefer: Sequence[str]) -> int | None:
    """The preference maxpagesize, with or without the prefix of OData 4.0; None if it is missing, malformed or 0."""
    found = PAGE_SIZE.search(",".join(prefer))
    return (int(found[1]) or None) if found else None


def is_batch(path: str) -> bool:
    """Whether a raw path, with or without its query string, is that of $batch."""
    return unquote(path.partition("?")[0]).rstrip("/").split("/")[4:] == ["$batch"]


def check_method(method: str, path: str, *, extended: bool) -> None:
    """Raises refused_method for a method that no resource of the path has."""
    if method not in (BATCH_METHODS if extended and is_batch(path) else METHODS):
        raise refused_method(path, extended=extended)


def refused_method(path: str, *, extended: bool) -> ServiceError:
    """The error for a method that a path does not support.  At $batch that is every method unless the profile is extended."""
    if is_batch(path) and not extended:
        return ServiceError("not_supported", "$batch is not supported")
    methods = BATCH_METHODS if is_batch(path) else METHODS
    reason = "$batch takes only POST" if is_batch(path) else "this interface is read-only"
    allow = ", ".join(methods)
    return ServiceError("method_not_allowed", f"{reason}: expected {allow}", headers={"Allow": allow})


def error_content(error: ServiceError) -> dict[str, object]:
    """The JSON object of an error."""
    about: dict[str, object] = {"target": error.target} if error.target else {}
    if error.code == "gone" and error.more:  # firstId: OData has a member for what a service adds
        about["innererror"] = error.more
    return {"error": {"code": error.code, "message": error.message, **about}}


def read_options(path: str) -> list[tuple[str, str]]:
    """Decode the query string.  Raises ServiceError(malformed_request) with the option that cannot be decoded as its target."""
    try:
        return decode_query(path)
    except ServiceError as error:
        name = error.message.partition(":")[0]  # with which messages of decode_query begin
        raise ServiceError(error.code, error.message, target=name if name.startswith("$") else None) from None


def check_version(headers: MultiMapping[str]) -> None:
    """Check OData-MaxVersion.  Raises ServiceError unless the client accepts OData 4.0."""
    limit = headers.get("OData-MaxVersion")
    if limit is None:
        return
    if not re.fullmatch(r"\d{1,4}(\.\d{1,4})?", limit.strip()):
        raise ServiceError("malformed_request", "expected a version such as 4.0", target="OData-MaxVersion")
    if float(limit) < 4:
        raise ServiceError(
            "malformed_request", "expected 4.0 or higher: this service answers in OData 4.0", target="OData-MaxVersion"
        )


def takes_newest(headers: MultiMapping[str]) -> bool:
    """Whether a checked OData-MaxVersion allows 4.01; a client that sends none gets 4.0."""
    return float(headers.get("OData-MaxVersion", "4")) > 4


def find_resource(catalog: Catalog, segments: Sequence[str]) -> Resource:
    """Find the resource that a path names, by its decoded segments after the company.  Raises ServiceError."""
    if not segments:
        return Resource(Kind.SERVICE)
    first, rest = segments[0], list(segments[1:])
    if first == "$metadata" and not rest:
        return Resource(Kind.METADATA)
    if first in ("$all", "$entity") or first.startswith("$crossjoin"):
        raise ServiceError("not_supported", f"{first.partition('(')[0]} is not supported")
    name, parenthesis, key = first.partition("(")
    if name not in catalog or (parenthesis and not key.endswith(")")):
        raise UnknownEntity(first, catalog.entities, "entity set")
    entity = catalog[name]
    if not parenthesis:
        if rest == ["$count"]:
            return Resource(Kind.COUNT, entity)
        if rest == ["$ref"]:
            raise ServiceError("not_supported", "/$ref after an entity set is not supported")
        if rest:
            raise ServiceError("not_found", f"{name} has no resource {'/'.join(rest)}")
        return Resource(Kind.COLLECTION, entity)
    return _behind_row(catalog, entity, key[:-1], rest)


def _behind_row(catalog: Catalog, entity: Entity, key: str, rest: Sequence[str]) -> Resource:
    """Find the resource that the segments after a key name: the row itself, a navigation or a property, or a part of these."""
    match rest:
        case []:
            return Resource(Kind.ROW, entity, key)
        case ["$ref"]:
            raise ServiceError("not_supported", "/$ref after a key is not supported")
        case [name, *further] if name in entity.fields:
            kinds = {(): Kind.PROPERTY, ("$value",): Kind.VALUE}
            if tuple(further) in kinds:
                return Resource(kinds[tuple(further)], entity, key, entity.fields[name])
        case [name, *further] if name in entity.navigations:
            return _navigated(catalog, entity, key, entity.navigations[name], further)
        case [name, *_] if name.partition("(")[0] in entity.navigations and name.endswith(")"):
            raise ServiceError("not_supported", f"a key after {name.partition('(')[0]} is not supported")
    raise ServiceError("not_found", f"a row of {entity.name} has no resource {'/'.join(rest)}")


def _navigated(catalog: Catalog, entity: Entity, key: str, step: Navigation, rest: Sequence[str]) -> Resource:
    """Find the resource that a navigation after a key names, with the segments after it."""
    kinds = {(): Kind.ROW, ("$ref",): Kind.REFERENCE}
    if step.many:
        kinds = {(): Kind.COLLECTION, ("$ref",): Kind.REFERENCES, ("$count",): Kind.COUNT}
    if tuple(rest) in kinds:
        return Resource(kinds[tuple(rest)], entity, key, step)
    target = catalog[step.target]
    if not step.many and (rest[0] in target.fields or rest[0] in target.navigations):
        raise ServiceError("not_supported", f"a path of more than one step, {step.name}/{rest[0]}, is not supported")
    raise ServiceError("not_found", f"{step.name} of {entity.name} has no resource {'/'.join(rest)}")


def check_options(kind: str, options: Sequence[tuple[str, str]]) -> None:
    """Check the options of a document or of $batch, which take only $format.  Raises QueryError."""
    given = [name for name, _ in options if name.startswith("$")]
    for name in given:
        if name != "$format" or given.count(name) > 1:
            raise QueryError(f"{kind} does not take {name}" + (" twice" if name == "$format" else ""), target=name)


def negotiate(accept: Sequence[str], kind: Kind) -> JsonFormat:
    """Choose the best format that the Accept headers admit.  Raises ServiceError(not_acceptable)."""
    ranges = [piece.strip() for line in accept for piece in MEDIA_RANGE.findall(line) if piece.strip()]
    if kind is Kind.METADATA:
        xml, best = _quality(ranges or ["*/*"], "application/xml"), _best_json(ranges)
        if max(xml, best[0]) <= 0:
            raise ServiceError("not_acceptable", "only application/xml and application/json are available", target="Accept")
        # Power BI and Excel send one Accept for everything, and read $metadata as XML
        is_xml = xml >= best[0] or (xml > 0 and any("atom" in each for each in ranges))
        return JsonFormat(is_xml=True) if is_xml else best[1]
    if kind in (Kind.COUNT, Kind.VALUE) or not ranges:
        return JsonFormat()
    rank, format = _best_json(ranges)
    if rank <= 0:
        raise ServiceError("not_acceptable", "only application/json is available", target="Accept")
    return format


def _quality(ranges: Sequence[str], media: str) -> float:
    """The quality that media ranges give to a media type: the most exact range counts."""
    given = {each.partition(";")[0].strip().lower(): quality(each.partition(";")[2]) for each in ranges}
    return next((given[each] for each in (media, "application/*", "*/*") if each in given), 0.0)


def _best_json(ranges: Sequence[str]) -> tuple[float, JsonFormat]:
    """The format of JSON with the highest quality, and this quality."""
    exact: list[tuple[float, JsonFormat]] = []
    broader: dict[str, float] = {}
    for each in ranges:
        media, _, parameters = each.partition(";")
        media = media.strip().lower()
        if media == "application/json":
            wanted = _format(parameters)
            exact += [(quality(parameters), wanted)] if wanted else []
        elif media in ("*/*", "application/*"):
            broader[media] = quality(parameters)
    return max(exact, key=lambda pair: pair[0], default=(broader.get("application/*", broader.get("*/*", 0.0)), JsonFormat()))


def _format(parameters: str) -> JsonFormat | None:
    """The format of a media range's parameters; None if the service does not have it.  Unknown parameters are ignored."""
    values: dict[str, str] = {}
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        values[name.strip().lower().removeprefix("odata.")] = value.strip().strip('"').lower()
    metadata, ieee754 = values.get("metadata", "minimal"), values.get("ieee754compatible", "false")
    if metadata not in METADATA_LEVELS or ieee754 not in ("true", "false"):
        return None
    return JsonFormat(metadata, ieee754 == "true")
