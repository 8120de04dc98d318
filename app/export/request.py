"""What an export asks for: the rows of a query, in a format.

Nothing is read here but parameters and the catalog; whatever is wrong raises a ServiceError that says what was expected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.database.catalog import Catalog, Entity
from app.errors import ServiceError
from app.export.shape import plan_lines
from app.query.query import EXPORT, Query, parse_query

FORMATS = ("json", "xml", "csv", "excel", "pdf", "html", "custom")
FLAT = ("csv", "excel", "pdf", "html")
SCHEMA = "xsd"  # of the xml of the same query
PARAMETERS = ("format", "export", "companyId", "mapper")


@dataclass(frozen=True, slots=True)
class Asked:
    """An export of a company's rows."""

    company: str
    query: Query
    format: str
    mapper: str | None = None  # the name of the mapper to run

    @property
    def entity(self) -> Entity:
        return self.query.entity

    @property
    def whole(self) -> bool:
        """Whether every row is asked for."""
        return self.query.filter is None and self.query.top is None


def read_parameters(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The parameters, each given once and known; OData's options are among them.  Raises malformed_request."""
    given: dict[str, str] = {}
    for name, value in pairs:
        if name not in PARAMETERS and not name.startswith("$"):
            expected = ", ".join((*PARAMETERS, *sorted(EXPORT)))
            raise ServiceError("malformed_request", f"there is no parameter {name}: expected some of {expected}", target=name)
        if name in given:
            raise ServiceError("malformed_request", f"{name} is given twice", target=name)
        given[name] = value
    return given


def check_export(given: dict[str, str]) -> None:
    """Raises unless an export is asked for."""
    if given.get("export") != "true":
        raise ServiceError("malformed_request", "expected export=true", target="export")


def read_format(text: str | None) -> str:
    """A format by its name in any case."""
    name = (text or "").lower()
    if name not in (*FORMATS, SCHEMA):
        found = "none is given" if text is None else f"found {text!r}"
        raise ServiceError("malformed_request", f"expected one of {', '.join(FORMATS)}; {found}", target="format")
    return name


def read_request(catalog: Catalog, entity: Entity, company: str, given: dict[str, str]) -> Asked:
    """An export of the entity, of parameters that are known.  Raises QueryError about an option, ServiceError about the rest."""
    format, mapper = given.get("format"), given.get("mapper")
    name = read_format(format) if format is not None or mapper is None else "custom"
    if name == "custom" and mapper is None:
        raise ServiceError("malformed_request", "format=custom expects a mapper: mapper=<name>", target="mapper")
    if mapper == "":
        raise ServiceError("malformed_request", "expected the name of a mapper", target="mapper")
    options = [(name, value) for name, value in given.items() if name.startswith("$")]
    asked = Asked(company, parse_query(catalog, entity, options, takes=EXPORT), name, mapper)
    if name in FLAT and mapper is None:
        plan_lines(asked.query)  # is there such a table?
    return asked
