"""The schemas of the OpenAPI description that do not depend on the catalog, and functions to compose schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
TRUTH: Schema = {"type": "boolean"}
WHEN: Schema = {"type": ["integer", "string"]}  # a version: an id, a name or a time
TIME: Schema = {"type": "string", "format": "date-time"}
UUID: Schema = {"type": "string", "format": "uuid"}
OPERATION: Schema = {"type": "string", "enum": ["create", "update", "delete"]}
ANYTHING: Schema = {"type": "object", "additionalProperties": True}


def nullable(schema: Schema) -> Schema:
    """The schema, or null."""
    return (
        {**schema, "type": [schema["type"], "null"]}
        if isinstance(schema.get("type"), str)
        else {"oneOf": [schema, {"type": "null"}]}
    )


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def record(optional: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    """An object whose members are all required but the optional ones."""
    return {"type": "object", "properties": properties, "required": [name for name in properties if name not in optional]}


def page(items: Schema) -> Schema:
    """A list as every route sends it."""
    return record(data=array(items), hasMore=TRUTH)


HOOK_MEMBERS: Mapping[str, Schema] = {
    "entity": nullable(TEXT),
    "url": {"type": "string", "format": "uri"},
    "action": {"type": "string", "const": "webhook"},
    "filter": nullable(TEXT),
    "columns": nullable(array(TEXT)),
    "allowInChangeSet": TRUTH,
    "disabled": TRUTH,
}
OPERATION_COUNTS: Schema = {"type": "object", "additionalProperties": record(created=WHOLE, updated=WHOLE, deleted=WHOLE)}

# by name, beside those of the entities
SCHEMAS: Mapping[str, Schema] = {
    "Problem": {
        "type": "object",
        "description": "An error (RFC 9457)",
        "properties": {
            "type": TEXT,
            "title": TEXT,
            "status": WHOLE,
            "detail": TEXT,
            "code": TEXT,
            "target": TEXT,
            "position": WHOLE,
        },
        "required": ["type", "title", "status", "detail", "code"],
        "additionalProperties": True,
    },
    "Change": record(
        id=WHOLE,
        entity=TEXT,
        rowId=TEXT,
        operation=OPERATION,
        changeSetId=nullable(UUID),
        createdAt=TIME,
    ),
    "Version": record(
        version=WHOLE,
        operation=OPERATION,
        at=TIME,
        actor=TEXT,
        user=TEXT,
        changeSetId=nullable(UUID),
        old=nullable(ANYTHING),
        new=nullable(ANYTHING),
    ),
    "HookHealth": record(
        state={"type": "string", "enum": ["ok", "failing", "resting", "disabled"]},
        reason={"type": ["string", "null"], "enum": ["failures", None]},
        failures=WHOLE,
        lastStatus=nullable(WHOLE),
        lastAt=nullable(TIME),
        queued=WHOLE,
        restsUntil=nullable(TIME),
    ),
    "NewHook": record(("action", "filter", "columns", "allowInChangeSet", "disabled"), **HOOK_MEMBERS),
    "HookMembers": record(tuple(HOOK_MEMBERS), **HOOK_MEMBERS),
    "Replay": record(("until", "generation"), since=WHEN, until=WHEN, generation=WHOLE),
    "Hook": record(
        ("secret", "problem"),
        id=UUID,
        entity=nullable(TEXT),
        url=TEXT,
        action=TEXT,
        filter=nullable(TEXT),
        columns=nullable(array(TEXT)),
        allowInChangeSet=TRUTH,
        disabled=TRUTH,
        problem=TEXT,
        createdAt=TIME,
        updatedAt=TIME,
        secret=TEXT,
        health=ref("HookHealth"),
        notices=array(TEXT),
    ),
    "Attempt": record(
        at=TIME, status=nullable(WHOLE), durationMs=nullable({"type": "number"}), error=nullable(TEXT), reply=nullable(TEXT)
    ),
    "Delivery": {
        **record(
            ("body",),
            id=UUID,
            hookId=UUID,
            state={"type": "string", "enum": ["pending", "waiting", "delivered", "failed", "cancelled"]},
            changeSetId=nullable(UUID),
            changes=WHOLE,
            createdAt=TIME,
            nextAttemptAt=nullable(TIME),
            finishedAt=nullable(TIME),
            attempts=array(ref("Attempt")),
            body=ANYTHING,
        ),
        "additionalProperties": True,
    },
    "RecordError": record(path=TEXT, record=nullable(TEXT), code=TEXT, message=TEXT),
    "Counts": record(created=WHOLE, updated=WHOLE, deleted=WHOLE, unchanged=WHOLE, failed=WHOLE),
    "ImportReport": {
        "type": "object",
        "properties": {
            "importId": UUID,
            "changeSetId": UUID,
            "state": {"type": "string", "enum": ["receiving", "running", "completed", "partial", "failed", "cancelled"]},
            "atomic": {"type": ["string", "boolean"]},
            "dryRun": TRUTH,
            "reverts": UUID,
            "undoes": ANYTHING,
            "force": TRUTH,
            "notices": array(TEXT),
            "rows": array(
                record(row=TEXT, operation=OPERATION, columns=array(TEXT), old=nullable(ANYTHING), new=nullable(ANYTHING))
            ),
            "actor": TEXT,
            "file": nullable(TEXT),
            "mapper": nullable(TEXT),
            "startedAt": TIME,
            "finishedAt": nullable(TIME),
            "position": nullable(TEXT),
            "progress": ANYTHING,
            "entities": {"type": "object", "additionalProperties": ref("Counts")},
            "errorCount": WHOLE,
            "errors": array(ref("RecordError")),
        },
        # a list of imports has no errors
        "required": ["importId", "changeSetId", "state", "startedAt", "finishedAt", "progress", "entities", "errorCount"],
        "additionalProperties": True,
    },
    "Mapper": record(name=TEXT, type=TEXT, createdAt=TIME, updatedAt=TIME),
    "Session": record(token=TEXT, expiresAt=TIME, csrf=TEXT),
    "ChangeSet": record(
        changeSetId=nullable(UUID),
        kind={"type": "string", "enum": ["import", "revert", "session"]},
        actor=TEXT,
        firstId=WHOLE,
        lastId=WHOLE,
        firstAt=TIME,
        lastAt=TIME,
        entities=nullable(OPERATION_COUNTS),
    ),
    "AuditRecord": record(
        companyId=TEXT,
        id=WHOLE,
        at=TIME,
        actor=TEXT,
        user=TEXT,
        action=TEXT,
        object=TEXT,
        detail={"type": "object"},
    ),
    "Difference": record(
        rowId=TEXT,
        operation=OPERATION,
        columns=array(TEXT),
        old=nullable(ANYTHING),
        new=nullable(ANYTHING),
        version=WHOLE,
    ),
    "DifferencePage": record(data=array(ref("Difference")), hasMore=TRUTH, since=WHOLE, version=WHOLE, generation=WHOLE),
    "DifferenceCounts": record(
        since=WHOLE,
        version=WHOLE,
        generation=WHOLE,
        entities=OPERATION_COUNTS,
        notices=array(TEXT),
    ),
    "RevertSelection": record(
        ("changeSet", "to", "from", "entities", "rows", "actor", "dryRun", "force", "generation"),
        **{
            "changeSet": UUID,
            "to": {"type": ["integer", "string"]},
            "from": {"type": ["integer", "string"]},
            "entities": {**array(TEXT), "minItems": 1},
            "rows": {**array(TEXT), "minItems": 1},
            "actor": TEXT,
            "dryRun": TRUTH,
            "force": TRUTH,
            "generation": WHOLE,
        },
    ),
    "VersionSelection": record(("version", "at", "generation"), version=WHEN, at=TEXT, generation=WHOLE),
    "NamedVersion": record(name=TEXT, version=WHOLE, at=nullable(TIME), createdAt=TIME, actor=TEXT),
    "Index": record(
        version=WHOLE,
        generation=WHOLE,
        position=TEXT,
        head=nullable(record(version=WHOLE, hash=TEXT, sealedAt=TIME)),
        entities=array(record(name=TEXT, url=TEXT)),
        links={"type": "object", "additionalProperties": TEXT},
    ),
}
