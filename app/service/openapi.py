"""Generates the OpenAPI 3.1 description: routes from app/service/operations.py, rows from the catalog."""

from __future__ import annotations

import re
from collections.abc import Iterator
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec

from app import deprecations
from app.database.catalog import Catalog, Entity, Field
from app.service.operations import (
    EXPORT,
    FILE,
    LIMIT,
    LOOKUP_OF_THEN,
    OPERATIONS,
    PAST,
    POSITION,
    ROWS,
    SEEN,
    UNWRITABLE,
    Answer,
    Operation,
)
from app.service.schemas import SCHEMAS, TEXT, Schema, array, nullable, page, record, ref
from app.types import named

SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key, or a token of `POST /auth/login`"},
    "basic": {"type": "http", "scheme": "basic", "description": "User `api`, password: an API key"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "session": {"type": "apiKey", "in": "cookie", "name": "session", "description": "Changes need the header `X-CSRF-Token`, too"},
}
PROPOSALS = (
    " The scope `import` includes it. A key without `import` sends dry runs alone (else 403), of at most 10 MB (else 413) and 10 s"
    " of the company's turn (else 503), and sees the reports of what it began."
)
PATH_PARAMETER = re.compile(r"{(\w+)}")


_made: dict[str, bytes] = {}  # the description of the newest catalog, by its version


def describe(catalog: Catalog) -> bytes:
    """The description as JSON."""
    if catalog.version not in _made:
        _made.clear()
        _made[catalog.version] = msgspec.json.encode(_describe(catalog))
    return _made[catalog.version]


def _describe(catalog: Catalog) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for entity in catalog.entities.values():
        for (method, path), operation in _of_entity(entity):
            route = path.replace(f"}}/{entity.name}", "}/{entity}")
            paths.setdefault(path, {})[method.lower()] = _noted(_operation(catalog, path, operation), method, route)
    for (method, path), operation in OPERATIONS.items():
        paths.setdefault(path, {})[method.lower()] = _noted(_operation(catalog, path, operation), method, path)
    schemas = {**SCHEMAS, "ImportDocument": _document(catalog)}
    for entity in catalog.entities.values():
        schemas[_name(entity)] = _row(catalog, entity)
        schemas[_name(entity) + "Record"] = _record(catalog, entity)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Business Data Service",
            "version": version("business-data-service"),
            "description": "Everything outside OData, which describes itself at `/api/odata/{companyId}/$metadata`.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": SCHEMES,
            "responses": {
                "problem": {"description": "An error", "content": {"application/problem+json": {"schema": ref("Problem")}}}
            },
        },
    }


def _of_entity(entity: Entity) -> Iterator[tuple[tuple[str, str], Operation]]:
    """The operations of an entity's routes."""
    many = entity.name[0].upper() + entity.name[1:]
    about = entity.description or entity.name
    yield (
        ("GET", f"/c/{{companyId}}/{entity.name}"),
        Operation(
            f"list{many}",
            "Rows",
            f"Rows: {about}",
            "read",
            # anyOf: an empty page is one of either
            {200: Answer("A page; with since, of differences", {"anyOf": [page(ref(_name(entity))), ref("DifferencePage")]})},
            query=ROWS,
            headers={**POSITION, **SEEN},
        ),
    )
    yield from _of_row(entity, _name(entity))
    yield (
        ("GET", f"/api/{{companyId}}/{entity.name}"),
        Operation(
            f"export{many}", "Export", f"Export {entity.name}", "read", {200: FILE, 422: UNWRITABLE}, query=EXPORT, headers=POSITION
        ),
    )


def _of_row(entity: Entity, one: str) -> Iterator[tuple[tuple[str, str], Operation]]:
    """The operations of the routes of one row.  one: the name of its schema."""
    yield (
        ("GET", f"/c/{{companyId}}/{entity.name}/{{id}}"),
        Operation(
            f"get{one}",
            "Rows",
            f"One row of {entity.name}, by its id or a lookup such as `code:X`",
            "read",
            {200: Answer("The row", ref(one))},
            query=PAST,
            headers={**POSITION, **SEEN},
        ),
    )
    yield (
        ("GET", f"/c/{{companyId}}/{entity.name}/{{id}}/history"),
        Operation(
            f"history{one}",
            "Rows",
            f"The changes of a row of {entity.name} with old and new values, newest first",
            "read",
            {200: Answer("A page", page(ref("Version")))},
            query={**LIMIT, **LOOKUP_OF_THEN},
            headers=POSITION,
        ),
    )


def _operation(catalog: Catalog, path: str, operation: Operation) -> dict[str, Any]:
    """The operation object of OpenAPI."""
    schemas = {"entity": {"type": "string", "enum": list(catalog.entities)}}
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": schemas.get(name, TEXT)} for name in PATH_PARAMETER.findall(path)
    ]
    for where, given in (("query", operation.query), ("header", operation.headers)):
        parameters += [
            {
                "name": name,
                "in": where,
                "required": where == "query" and name in operation.needed,
                "schema": schema,
                "description": about,
            }
            for name, (schema, about) in given.items()
        ]
    found: dict[str, Any] = {
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "parameters": parameters,
        "responses": {str(status): _answer(status, answer) for status, answer in operation.answers.items()},
        "security": [{name: []} for name in SCHEMES] if operation.scope else [],
    }
    found["responses"]["default"] = {"$ref": "#/components/responses/problem"}
    if operation.scope not in ("", "any", "user", "administrator"):
        found["description"] = f"An API key needs the scope `{operation.scope}`.{PROPOSALS if operation.scope == 'propose' else ''}"
    if operation.body:
        content = {media_type: {"schema": schema} for media_type, schema in operation.body.items()}
        found["requestBody"] = {"required": operation.needs_body, "content": content}
    return found


def _noted(described: dict[str, Any], method: str, route: str) -> dict[str, Any]:
    """An operation object, with a note if its route is deprecated."""
    if found := deprecations.find(f"{method} {route}"):
        about = f"{described.get('description', '')} {found.message}."
        return {**described, "deprecated": True, "description": about.strip()}
    return described


def _answer(status: int, answer: Answer) -> dict[str, Any]:
    if status >= HTTPStatus.BAD_REQUEST and answer.schema is None:
        return {"description": answer.about, "content": {"application/problem+json": {"schema": ref("Problem")}}}
    found: dict[str, Any] = {"description": answer.about}
    if answer.schema is not None:
        problem = {"application/problem+json": {"schema": ref("Problem")}} if answer.or_problem else {}
        found["content"] = {answer.media_type: {"schema": answer.schema}, **problem}
    if answer.headers:
        found["headers"] = {name: {"schema": TEXT} for name in answer.headers}
    return found


def _name(entity: Entity) -> str:
    """The name of an entity's schema."""
    return entity.singular[0].upper() + entity.singular[1:]


def _row(catalog: Catalog, entity: Entity) -> Schema:
    """A row as /c sends it: all fields, ids as text, children inside."""
    properties = {name: _described(field, _value(field)) for name, field in entity.fields.items()}
    for child in entity.children:
        properties[child.name] = array(ref(_name(catalog[child.target])))
    return {**record(**properties), **_about(entity.description)}


def _value(field: Field) -> Schema:
    schema = TEXT if field.name == "id" or field.reference else dict(named(field.type).schema)
    if field.max_length is not None:
        schema = {**schema, "maxLength": field.max_length}
    if field.allowed is not None:
        schema = {**schema, "enum": [*field.allowed, *([] if field.required else [None])]}
    return schema if field.required else nullable(schema)


def _record(catalog: Catalog, entity: Entity) -> Schema:
    """A record of an import: any of the fields and directives; numbers may be text, text may be a number."""
    lenient = {"type": ["string", "number", "boolean", "null"]}
    properties: dict[str, Schema] = {name: _described(field, lenient) for name, field in entity.fields.items()}
    for step in entity.navigations.values():
        if not step.many:
            properties[step.name] = {**lenient, "description": f"A lookup in {step.target}, such as `code:X`, or an id"}
    for child in entity.children:
        properties[child.name] = array(ref(_name(catalog[child.target]) + "Record"))
        properties[f"{child.name}@removeAll"] = {"type": "boolean"}
    properties["@operation"] = {"type": "string", "enum": ["upsert", "create", "update", "delete"]}
    properties["@where"] = TEXT
    return {"type": "object", "properties": properties}


def _document(catalog: Catalog) -> Schema:
    """An import document."""
    properties: dict[str, Schema] = {
        "@atomic": {"type": ["string", "boolean"], "description": "`batch` (default), true or false"},
        "@mode": {"type": "string", "enum": ["array", "merge"]},
    }
    for entity in catalog.entities.values():
        if entity.parent is None:
            properties[entity.name] = array(ref(_name(entity) + "Record"))
            properties[f"{entity.name}@removeAll"] = {"type": "boolean"}
    return {"type": "object", "properties": properties, "description": "The desired values, by entity"}


def _described(field: Field, schema: Schema) -> Schema:
    return {**schema, **_about(field.description)}


def _about(description: str | None) -> Schema:
    return {"description": description} if description else {}
