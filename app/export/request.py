"""Reads a request for an export: the rows of a query, in a format.

Uses nothing but the parameters and the catalog.  A wrong parameter raises a ServiceError that tells what was expected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from app.database.catalog import Catalog, Entity, Field
from app.database.past import Moment, model_of
from app.database.servers.reads import require_generation
from app.errors import QueryError, ServiceError
from app.export.shape import line_shape, record_shape, steps_beside
from app.formats import CUSTOM, DOCUMENTS, EXPECTED, FORMATS, SCHEMA, Format, find, unknown
from app.query.check.moments import moment_of, read_moment
from app.query.check.options import EXPORT, parse_query
from app.query.check.query import Query
from app.query.check.tree import Column, Count, Quantifier, walk

PARAMETERS = ("format", "export", "companyId", "mapper", "ids", "since", "versions", "version", "at", "generation")
WHOLE = "diff"  # the name of a difference of all entities


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """An export of a company's rows.

    mapper: the name of the mapper that writes them, if the format leaves that to one; moment: as of which they are read, None for
    now; since: the earlier end of a difference, of which the moment is the later one; versions: not what differs, but all versions
    of rows that were valid in between; others: of a difference of all entities, the queries of the others; moved: the entities in
    which unique values have passed between rows; restriction: what a reader is told about which rows these are; schema: the URL of
    the schema that XML names; now: the time of the export.
    """

    company: str
    query: Query
    format: Format
    mapper: str | None = None
    moment: Moment | None = None
    since: Moment | None = None
    versions: bool = False
    others: tuple[Query, ...] = ()
    moved: tuple[str, ...] = ()
    restriction: str = ""
    schema: str = ""
    now: datetime = field(default_factory=partial(datetime.now, UTC))

    @property
    def entity(self) -> Entity:
        return self.query.entity

    @property
    def name(self) -> str:
        """The name of the file."""
        return WHOLE if self.others else self.entity.name

    @property
    def queries(self) -> tuple[Query, ...]:
        return (self.query, *self.others)

    @property
    def goes_by_id(self) -> bool:
        """Whether a difference has a line for each row; else it is a document, or follows one."""
        return _goes_by_id(self.format)

    @property
    def reads_all_rows(self) -> bool:
        return self.query.filter is None and self.query.top is None and not self.query.skip


def read_parameters(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the parameters by name.  Raises malformed_request for an unknown or repeated one; $options are not checked."""
    given: dict[str, str] = {}
    for name, value in pairs:
        if name not in PARAMETERS and not name.startswith("$"):
            expected = ", ".join((*PARAMETERS, *sorted(EXPORT)))
            raise ServiceError("malformed_request", f"no such parameter: {name}, expected one of {expected}", target=name)
        if name in given:
            raise ServiceError("malformed_request", f"{name} is given twice", target=name)
        given[name] = value
    return given


def check_export(given: dict[str, str]) -> None:
    """Raises malformed_request without export=true, which protects from exports by mistake."""
    if given.get("export") != "true":
        found = f", got {given['export']!r}" if "export" in given else ""
        raise ServiceError("malformed_request", f"expected export=true{found}", target="export")


def read_format(text: str | None) -> Format:
    """Return the format of a name.  Raises malformed_request."""
    format = find(text or "")
    if format is None:
        message = f"format is missing: {EXPECTED}" if text is None else unknown(text)
        raise ServiceError("malformed_request", message, target="format")
    return format


def read_request(catalog: Catalog, entity: Entity, company: str, given: dict[str, str]) -> ExportRequest:
    """Return the export that known parameters ask for.  Raises QueryError for a wrong option, ServiceError for the rest."""
    mapper = given.get("mapper")
    format = CUSTOM if mapper is not None and "format" not in given else read_format(given.get("format"))
    if format is CUSTOM and mapper is None:
        raise ServiceError("malformed_request", "format=custom needs a mapper: add mapper=<name>", target="mapper")
    if mapper == "":
        raise ServiceError("malformed_request", "expected the name of a mapper, got ''", target="mapper")
    since = read_moment(given["since"], "since") if "since" in given else None
    moment = moment_of(given)
    require_generation(given.get("generation"))
    if moment or since:
        catalog = model_of(catalog)
        entity = catalog[entity.name]
    versions = _read_boolean(given, "versions", "false")
    if versions:
        _check_versions(given, format)
    if since:
        _check_difference(given, format, by_id=versions or _goes_by_id(format))
    options = [(option, value) for option, value in given.items() if option.startswith("$")]
    query = replace(parse_query(catalog, entity, options, takes=EXPORT), ids=_read_boolean(given, "ids", "true"))
    if since:
        _check_own_fields(query, is_compared=not versions)
    elif mapper is None and format.is_flat and format.read_as:
        query = _with_identity(query)
    # line_shape raises if no flat table can hold the query
    shape = line_shape(query) if mapper is None and format.is_flat else record_shape(query)
    if not shape.fields:
        raise ServiceError("malformed_request", "ids=false leaves no field: expected another one in $select", target="ids")
    if format.has_lines_of_records and (strays := [step.name for step in steps_beside(query)]):
        raise QueryError(f"expected children: {format.name} has one record a line, got {', '.join(strays)}", target="$expand")
    return ExportRequest(company, query, format, mapper, moment, since, versions, restriction=_restriction(given))


def read_whole(catalog: Catalog, company: str, given: dict[str, str]) -> ExportRequest:
    """Return the export of what differs in a company that known parameters ask for.  Raises QueryError, ServiceError."""
    if "since" not in given:
        raise QueryError("since is missing: expected a version, its name or a time", target="since")
    format = read_format(given.get("format"))
    if format not in (*DOCUMENTS, SCHEMA):
        expected = " or ".join(each.name for each in DOCUMENTS)
        raise ServiceError("malformed_request", f"a difference of all entities is {expected}, got {format.name}", target="format")
    if options := [name for name in given if name.startswith("$") or name in ("mapper", "ids")]:
        message = f"a difference of all entities takes no {options[0]}"
        raise ServiceError("malformed_request", message, target=options[0])
    for each in catalog.entities.values():
        if each.parent_navigation and not each.navigations[each.parent_navigation].required:
            message = f"rows of {each.name} may be without {each.parent_navigation}, so they stand in no document of all entities"
            raise ServiceError("not_supported", message)
    tops = (each for each in catalog.entities.values() if each.parent is None)
    first, *others = (read_request(catalog, each, company, given) for each in tops)
    return replace(first, others=tuple(each.query for each in others))


def _goes_by_id(format: Format) -> bool:
    return format.is_flat and not format.read_as


def _check_versions(given: dict[str, str], format: Format) -> None:
    """Raises malformed_request for versions=true where it cannot be."""
    if "since" not in given:
        raise ServiceError("malformed_request", "versions=true needs since: expected a version, its name or a time", target="since")
    if not format.is_flat:
        expected = ", ".join(each.name for each in FORMATS.values() if each.is_flat)
        message = f"versions=true is written as {expected}, got {format.name}"
        raise ServiceError("malformed_request", message, target="format")


def _check_difference(given: dict[str, str], format: Format, *, by_id: bool) -> None:
    """Raises malformed_request for an option that a difference does not take."""
    takes = ("$filter", "$select") if by_id else ("$filter",)
    refused = ("mapper", "ids", *(name for name in given if name.startswith("$") and name not in takes))
    if found := next((name for name in refused if name in given), None):
        expected = " and ".join(takes)
        message = f"with since, {format.name} takes {expected} alone: {found} cannot be given"
        raise ServiceError("malformed_request", message, target=found)


def _check_own_fields(query: Query, *, is_compared: bool) -> None:
    """Raises QueryError if the filter of a difference looks at other rows, or at updatedAt, which is not compared."""
    for part in walk(query.filter) if query.filter else ():
        if isinstance(part, Quantifier | Count) or (isinstance(part, Column) and part.path):
            message = f"with since, a filter takes properties of {query.entity.name} alone"
        elif is_compared and isinstance(part, Column) and part.field.name == "updatedAt":
            message = "updatedAt is not compared: a filter cannot name it"
        else:
            continue
        raise QueryError(message, target="$filter", position=part.at)


def _with_identity(query: Query) -> Query:
    """The query with the id in front where $select leaves out what names rows, and an import would create them again.

    A unique field without a default is left to $select: without it, an import refuses the rows.
    """
    id, key = query.entity.fields["id"], query.entity.identifying_field
    if query.select is None or any(step.many for step in query.steps):
        return query
    if not query.ids:
        return _with_value(query, query.select)
    is_safe = key is not None and not (key.has_default or key.generated)
    return query if is_safe or id in query.select or key in query.select else replace(query, select=(id, *query.select))


def _with_value(query: Query, select: tuple[Field, ...]) -> Query:
    """The query with updatedAt where lines could be null alone, which an import passes over."""
    values = [field for field in select if field.name != "id"]
    if not values or any(field.required for field in values):
        return query
    return replace(query, select=(*select, query.entity.fields["updatedAt"]))


def _restriction(given: dict[str, str]) -> str:
    """Which rows these are: the options that leave some out, and the time as of which they are read."""
    shown = {
        "since": "versions since" if given.get("versions") == "true" else "since",
        "at": "as of",
        "version": "as of version",
        "$filter": "filter:",
        "$top": "at most",
        "$skip": "without the first",
    }
    return " · ".join(f"{label} {given[name].strip()}" for name, label in shown.items() if given.get(name))


def _read_boolean(given: dict[str, str], name: str, default: str) -> bool:
    text = given.get(name, default)
    if text not in ("true", "false"):
        raise ServiceError("malformed_request", f"{name}: expected true or false, got {text!r}", target=name)
    return text == "true"
