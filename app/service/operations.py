"""The operations of the OpenAPI description, one for each route; app/service/openapi.py generates the document from them.

tests/service/test_openapi.py fails for a route without an operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.formats import DOCUMENTS, FORMATS, READABLE, READABLE_LABELS, SCHEMA, not_installed
from app.service.schemas import ANYTHING, TEXT, TRUTH, UUID, WHEN, WHOLE, Schema, page, record, ref


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer.  schema: None for an empty body; headers: its important ones; or_problem: it may be an error, too."""

    about: str
    schema: Schema | None = None
    media_type: str = "application/json"
    headers: tuple[str, ...] = ()
    or_problem: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """One route.

    scope: that a key needs; "" for routes that need no credentials, any for those that every key opens, user or administrator for
    those that take no key.  query, headers: schema and description of each parameter, by name.  needed: parameters of the query
    that a request must have.  body: media types with their schemas.  answers: by status.
    """

    id: str
    tag: str
    summary: str
    scope: str
    answers: Mapping[int, Answer]
    query: Mapping[str, tuple[Schema, str]] = field(default_factory=dict)
    headers: Mapping[str, tuple[Schema, str]] = field(default_factory=dict)
    body: Mapping[str, Schema] | None = None
    needs_body: bool = True
    needed: tuple[str, ...] = ("export",)


KEY: Mapping[str, tuple[Schema, str]] = {
    "Idempotency-Key": (
        {"type": "string", "pattern": "^[!-~]{1,255}$"},
        "the same request with the same key is done once, and answered as the first time, for a day",
    )
}
LIMIT: Mapping[str, tuple[Schema, str]] = {
    "limit": ({"type": "integer", "minimum": 1, "default": 100}, "the number of items"),
    "offset": ({"type": "integer", "minimum": 0}, "items to leave out"),
}
GENERATION: Mapping[str, tuple[Schema, str]] = {"generation": (WHOLE, "of the versions that are given; 404 if there is none such")}
PAST: Mapping[str, tuple[Schema, str]] = {
    "version": (WHEN, "rows as of a change's id, a name or a time; fields that did not exist then are null"),
    "at": (TEXT, "rows as of a time, such as 2026-01-01 or 2026-01-01T00:00:00Z; not together with version"),
    **GENERATION,
}
LOOKUP_OF_THEN: Mapping[str, tuple[Schema, str]] = {
    "version": (WHEN, "the lookup in the path is that of the row as of a change's id, a name or a time"),
    "at": (TEXT, "the same as of a time, such as 2026-01-01 or 2026-01-01T00:00:00Z; not together with version"),
    **GENERATION,
}
SINCE: Mapping[str, tuple[Schema, str]] = {
    "since": (WHEN, "the earlier end of the difference: a change's id, a name or a time"),
    "version": (WHEN, "its later end; the last change if it is not given"),
    "at": (TEXT, "its later end as a time; not together with version"),
    **GENERATION,
}
ROWS: Mapping[str, tuple[Schema, str]] = {
    "filter": (TEXT, "a condition, such as `price >= 10 AND category = 'code:TOOLS'`"),
    "sort": (TEXT, "fields, separated by commas; `-name` for descending"),
    "limit": ({"type": "integer", "minimum": 1, "maximum": 10_000, "default": 1_000}, "the number of rows"),
    **PAST,
    "since": (WHEN, "what differs since a version, in records of another form (schema Difference); sort is then version or rowId"),
    "after": (WHOLE, "with since: the last record's value of the order"),
}
POSITION = {"X-BDS-Position": (TEXT, "the id of a change that the answer must not be behind")}
SEEN = {"If-None-Match": (TEXT, "the entity tag of an earlier answer; 304 if nothing has changed")}
MISSING = f"; not installed here: {', '.join(not_installed())}" if not_installed() else ""
EXPORT: Mapping[str, tuple[Schema, str]] = {
    "format": ({"type": "string", "enum": [*FORMATS, SCHEMA.name]}, f"the format{MISSING}"),
    "export": ({"type": "string", "const": "true"}, "must be true"),
    "$filter": (TEXT, "a condition of OData, or of /c"),
    "$select": (TEXT, "fields, separated by commas"),
    "$orderby": (TEXT, "fields, separated by commas, with asc or desc"),
    "$expand": (TEXT, "navigation properties, separated by commas"),
    "$top": (WHOLE, "the number of rows"),
    "$skip": (WHOLE, "rows to leave out"),
    "mapper": (TEXT, "a mapper to run in reverse, or a template"),
    "ids": (TRUTH, "false: without ids, for a restore into another company"),
    "since": (
        WHEN,
        "what differs since a version: a document that brings a copy from there to the later end, or lines with @operation",
    ),
    "versions": (
        TRUTH,
        "true, with since: every version of a row that was valid in between, as lines with @validFrom and @validTo",
    ),
    **PAST,
}
SOURCES: Mapping[str, Schema] = {
    "application/json": ref("ImportDocument"),
    **{each.read_as[0]: {"type": "string", **({"format": "binary"} if each.is_binary else {})} for each in READABLE},
}
COMPANY = {"companyId": (TEXT, "the company; not needed by a key of one company")}
FILE = Answer("The file", {"type": "string", "format": "binary"}, "application/octet-stream", ("Content-Disposition",))

UNWRITABLE = Answer("A value cannot be written in that format")
REPORT = Answer("The report", ref("ImportReport"), headers=("Location",))
REUSED = "; or an error: the Idempotency-Key belongs to another request"
FAILED = Answer(f"The report; nothing was written{REUSED}", ref("ImportReport"), or_problem=True)
NOT_UNDONE = Answer(f"The report; nothing was undone{REUSED}", ref("ImportReport"), or_problem=True)
HOOK = Answer("The hook", ref("Hook"))
NOTHING = Answer("Done")

# by method and path as in ROUTES
OPERATIONS: Mapping[tuple[str, str], Operation] = {
    ("GET", "/c/{companyId}"): Operation(
        "getIndex",
        "Changes",
        "The entities of the company, with links",
        "read",
        {200: Answer("The index", ref("Index"))},
        headers=SEEN,
    ),
    ("GET", "/c/{companyId}/changes"): Operation(
        "listChanges",
        "Changes",
        "The change log, by id",
        "read",
        {200: Answer("A page", page(ref("Change"))), 410: Answer("Dropped by retention")},
        query={**{name: ROWS[name] for name in ("filter", "sort", "limit")}, **GENERATION},
        headers={**POSITION, **SEEN},
    ),
    ("GET", "/c/{companyId}/changes/stream"): Operation(
        "streamChanges",
        "Changes",
        "Changes as server-sent events, as they commit",
        "read",
        {200: Answer("One event for each change", TEXT, "text/event-stream"), 410: Answer("Dropped by retention")},
        query={"after": (TEXT, "the id of the last event seen"), "filter": ROWS["filter"], **GENERATION},
        headers={"Last-Event-ID": (TEXT, "the id of the last event seen")},
    ),
    ("GET", "/c/{companyId}/changesets"): Operation(
        "listChangeSets",
        "Changes",
        "What imports, reverts, sessions and transactions have changed, the latest first",
        "read",
        {200: Answer("A page", page(ref("ChangeSet"))), 410: Answer("Another generation")},
        query={"limit": LIMIT["limit"], "before": (WHOLE, "change sets whose lastId is less"), **GENERATION},
        headers={**POSITION, **SEEN},
    ),
    ("GET", "/c/{companyId}/audit"): Operation(
        "listAudit",
        "Administration",
        "Who has changed keys, users, access, hooks, mappers, retention, places and registrations; for administrators",
        "administrator",
        {200: Answer("A page", page(ref("AuditRecord"))), 403: Answer("Not a session or token of an administrator")},
        query={"limit": LIMIT["limit"], "before": (TEXT, "records whose `at` is earlier")},
        headers=SEEN,
    ),
    ("GET", "/c/{companyId}/diff"): Operation(
        "countDifferences",
        "Changes",
        "How many rows of each entity differ between two versions",
        "read",
        {200: Answer("The counts", ref("DifferenceCounts")), 410: Answer("Dropped by retention")},
        query=SINCE,
        needed=("since",),
        headers={**POSITION, **SEEN},
    ),
    ("GET", "/c/{companyId}/hooks"): Operation(
        "listHooks", "Webhooks", "List hooks", "hooks", {200: Answer("A page", page(ref("Hook")))}, query=LIMIT
    ),
    ("POST", "/c/{companyId}/hooks"): Operation(
        "createHook",
        "Webhooks",
        "Register a hook",
        "hooks",
        {201: Answer("The hook with its secret, which is shown once", ref("Hook"), headers=("Location",))},
        body={"application/json": ref("NewHook")},
    ),
    ("GET", "/c/{companyId}/hooks/{id}"): Operation("getHook", "Webhooks", "One hook", "hooks", {200: HOOK}),
    ("PATCH", "/c/{companyId}/hooks/{id}"): Operation(
        "updateHook",
        "Webhooks",
        "Change some members of a hook",
        "hooks",
        {200: HOOK},
        body={"application/json": ref("HookMembers")},
    ),
    ("DELETE", "/c/{companyId}/hooks/{id}"): Operation("deleteHook", "Webhooks", "Delete a hook", "hooks", {204: NOTHING}),
    ("POST", "/c/{companyId}/hooks/{id}/test"): Operation(
        "testHook", "Webhooks", "Send a made-up change", "hooks", {202: Answer("Queued", record(deliveryId=UUID))}
    ),
    ("POST", "/c/{companyId}/hooks/{id}/secret"): Operation(
        "rotateHookSecret",
        "Webhooks",
        "Create a new secret; the previous one signs for a day, too",
        "hooks",
        {200: Answer("The new secret", record(secret=TEXT))},
        query={"revoke": (TRUTH, "true: the old secret ends at once")},
    ),
    ("DELETE", "/c/{companyId}/hooks/{id}/rest"): Operation(
        "endHookRest", "Webhooks", "End the rest of a hook; 409 if it does not rest", "hooks", {204: NOTHING}
    ),
    ("POST", "/c/{companyId}/hooks/{id}/replay"): Operation(
        "replayHook",
        "Webhooks",
        "Send the changes between two versions that match the hook, in new deliveries",
        "hooks",
        {
            202: Answer("Queued", record(changes=WHOLE, deliveries=WHOLE)),
            422: Answer("More than 100,000 changes match: `version` is the one up to which they fit"),
        },
        body={"application/json": ref("Replay")},
    ),
    ("GET", "/c/{companyId}/hooks/{id}/deliveries"): Operation(
        "listDeliveries",
        "Webhooks",
        "List deliveries with their attempts",
        "hooks",
        {200: Answer("A page", page(ref("Delivery")))},
        query=LIMIT,
    ),
    ("GET", "/c/{companyId}/hooks/{id}/deliveries/{deliveryId}"): Operation(
        "getDelivery",
        "Webhooks",
        "One delivery with its body",
        "hooks",
        {200: Answer("The delivery", ref("Delivery"))},
    ),
    ("POST", "/c/{companyId}/hooks/{id}/deliveries/{deliveryId}/retry"): Operation(
        "retryDelivery", "Webhooks", "Send a delivery again", "hooks", {202: Answer("Queued", record(deliveryId=UUID))}
    ),
    ("POST", "/api/{companyId}/import"): Operation(
        "import",
        "Import",
        "Import a document of desired values",
        "propose",
        {
            200: REPORT,
            202: Answer("Received; see Location", ref("ImportReport"), headers=("Location",)),
            409: Answer("The first request with the key is being received, or the import was cancelled", headers=("Retry-After",)),
            422: FAILED,
        },
        query={
            "dryRun": (TRUTH, "true: everything is reported and rolled back"),
            "entity": (TEXT, f"the entity of a file ({READABLE_LABELS}) as an export wrote it"),
            "mapper": (TEXT, "the mapper that reads the source"),
        },
        headers={
            "Prefer": (TEXT, "`respond-async`: answer as soon as the body is in"),
            **KEY,
            "Content-Disposition": (TEXT, '`attachment; filename="feed.json"`: the name of the file, for the report'),
        },
        body=SOURCES,
    ),
    ("GET", "/api/{companyId}/imports"): Operation(
        "listImports", "Import", "List imports", "propose", {200: Answer("A page", page(ref("ImportReport")))}, query=LIMIT
    ),
    ("GET", "/api/{companyId}/imports/{id}"): Operation(
        "getImport", "Import", "The report of an import", "propose", {200: Answer("The report", ref("ImportReport"))}
    ),
    ("DELETE", "/api/{companyId}/imports/{id}"): Operation(
        "cancelImport", "Import", "Cancel an import", "import", {204: NOTHING, 409: Answer("It has ended")}
    ),
    ("POST", "/api/{companyId}/imports/{id}/revert"): Operation(
        "revertImport",
        "Import",
        "Undo an import or another change set, as an import of its own",
        "propose",
        {
            200: REPORT,
            202: Answer("The report so far, with Prefer: respond-async", ref("ImportReport")),
            409: Answer("It is an import under way"),
            410: Answer("Its changes are no longer kept in the log"),
            422: NOT_UNDONE,
        },
        query={
            "dryRun": (TRUTH, "true: everything is reported and rolled back"),
            "force": (TRUTH, "true: rows that were changed later are undone, too"),
        },
        headers={"Prefer": (TEXT, "`respond-async`: answer at once"), **KEY},
    ),
    ("GET", "/api/{companyId}/imports/{id}/errors"): Operation(
        "listImportErrors",
        "Import",
        "All errors of an import, in the order of the document",
        "propose",
        {200: Answer("A page", page(ref("RecordError")))},
        query=LIMIT,
    ),
    ("POST", "/api/{companyId}/revert"): Operation(
        "revert",
        "Import",
        "Undo changes, as an import of its own: back to a version, a range, a change set; of entities, rows or an actor",
        "propose",
        {
            200: REPORT,
            202: Answer("The report so far, with Prefer: respond-async", ref("ImportReport")),
            409: Answer("The change set is an import under way"),
            410: Answer("The changes are no longer kept in the log"),
            422: NOT_UNDONE,
        },
        headers={"Prefer": (TEXT, "`respond-async`: answer at once"), **KEY},
        body={"application/json": ref("RevertSelection")},
    ),
    ("GET", "/api/{companyId}/versions"): Operation(
        "listVersions",
        "Versions",
        "List the names of versions",
        "read",
        {200: Answer("A page", page(ref("NamedVersion")))},
        query=LIMIT,
    ),
    ("GET", "/api/{companyId}/versions/{name}"): Operation(
        "getVersion", "Versions", "The version of a name", "read", {200: Answer("The version", ref("NamedVersion"))}
    ),
    ("PUT", "/api/{companyId}/versions/{name}"): Operation(
        "putVersion",
        "Versions",
        "Give a version a name, or move the name to it",
        "import",
        {
            200: Answer("Moved", ref("NamedVersion")),
            201: Answer("Created", ref("NamedVersion"), headers=("Location",)),
            410: Answer("The version is no longer kept"),
        },
        body={"application/json": ref("VersionSelection")},
        needs_body=False,
    ),
    ("DELETE", "/api/{companyId}/versions/{name}"): Operation(
        "deleteVersion", "Versions", "Take a name from its version", "import", {204: NOTHING}
    ),
    ("GET", "/api/{companyId}/mappers"): Operation(
        "listMappers", "Mappers", "List mappers", "import", {200: Answer("A page", page(ref("Mapper")))}, query=LIMIT
    ),
    ("GET", "/api/{companyId}/mappers/{name}"): Operation(
        "getMapper", "Mappers", "The text of a mapper", "import", {200: Answer("The text", TEXT, "text/plain")}
    ),
    ("PUT", "/api/{companyId}/mappers/{name}"): Operation(
        "putMapper",
        "Mappers",
        "Store a mapper",
        "import",
        {201: Answer("Created"), 204: Answer("Replaced")},
        body={"text/plain": TEXT},
    ),
    ("DELETE", "/api/{companyId}/mappers/{name}"): Operation(
        "deleteMapper", "Mappers", "Delete a mapper", "import", {204: NOTHING}
    ),
    ("POST", "/api/{companyId}/mappers/{name}/preview"): Operation(
        "previewMapper",
        "Mappers",
        "The first records of a source as an import document",
        "import",
        {200: Answer("The document", ANYTHING)},
        query={"limit": ({"type": "integer", "minimum": 1, "default": 10}, "records of each collection")},
        body=SOURCES,
    ),
    ("GET", "/api/{companyId}/diff"): Operation(
        "exportDifference",
        "Export",
        "Export what differs between two versions in all entities, as an import document",
        "read",
        {200: FILE, 410: Answer("Dropped by retention"), 422: UNWRITABLE},
        query={
            "format": ({"type": "string", "enum": [*(each.name for each in DOCUMENTS), SCHEMA.name]}, "the format"),
            "export": EXPORT["export"],
            **SINCE,
        },
        needed=("export", "since"),
        headers=POSITION,
    ),
    ("GET", "/api/{entity}"): Operation(
        "exportEntity",
        "Export",
        "Export an entity of the key's company",
        "read",
        {200: FILE, 422: UNWRITABLE},
        query={**EXPORT, **COMPANY},
        headers=POSITION,
    ),
    ("POST", "/auth/login"): Operation(
        "login",
        "Accounts",
        "Begin a session",
        "",
        {200: Answer("A token, and the cookie `session`", ref("Session"))},
        body={"application/json": record(email=TEXT, password=TEXT)},
    ),
    ("POST", "/auth/logout"): Operation("logout", "Accounts", "End the session and its token", "user", {204: NOTHING}),
    ("POST", "/auth/password"): Operation(
        "changePassword",
        "Accounts",
        "Change the password; ends all sessions and tokens of the user",
        "user",
        {204: NOTHING},
        body={"application/json": record(password=TEXT, newPassword=TEXT)},
    ),
    ("GET", "/openapi.json"): Operation(
        "getDescription", "Operation", "This description", "any", {200: Answer("OpenAPI 3.1", ANYTHING)}, headers=SEEN
    ),
    ("GET", "/healthz"): Operation(
        "getHealth", "Operation", "Whether the process is alive", "", {200: Answer("It is alive", record(status=TEXT))}
    ),
    ("GET", "/readyz"): Operation(
        "getReadiness", "Operation", "Whether the database answers", "", {200: Answer("It answers", record(status=TEXT))}
    ),
    ("GET", "/metrics"): Operation(
        "getMetrics", "Operation", "Measurements for Prometheus", "", {200: Answer("The measurements", TEXT, "text/plain")}
    ),
}
