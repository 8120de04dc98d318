"""The audit of administration: what is in it, that no secret is, its ids, and where its records stand."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from app.places import dump
from tests.conftest import Operator, not_divided, prepared

HASH = "$argon2id$v=19$m=19456,t=2,p=1$" + "A" * 22 + "$" + "A" * 43
OTHER_HASH = HASH.replace("$AAAA", "$BBBB")
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SECRET = re.compile(r"argon2|whsec_|[0-9a-f]{64}|p4ssword")  # hashes of passwords and keys, secrets of hooks
KEY_VALUES = {"name": "k", "actor": "postgres", "scopes": ["read"], "companies": ["acme"], "created_at": "TIME"}
HOOK_VALUES = {
    "url": "https://example.com/", "action": "webhook", "entity": "products", "disabled": False, "allow_in_change_set": False,
    "number": 1, "created_at": "TIME"
}  # fmt: skip
USER_VALUES = {"id": "ID", "companies": ["acme"], "is_administrator": False, "created_at": "TIME"}
MAPPER_VALUES = {"format": "csv", "text": "one", "actor": "postgres", "created_at": "TIME"}
CREATE_KEY = "select bds.create_key(sha256('x'), 'k', array['acme'], null, array['read'])"
CREATE_HOOK = "select bds.create_hook('acme', 'products', 'https://example.com/')"
CREATE_USER = f"select bds.create_user('a@example.com', '{HASH}', array['acme'])"
PUT_MAPPER = "select bds.put_mapper('acme', 'm', 'csv', 'one')"
REGISTER = "select bds.register('data.units')"
DROP_VIEWS = "select bds.drop_views('units')"
NOTE_PLACE = "select bds_operation.note_place"

# statements, the last of them an act -> its company, action, object and detail; names of companies beside acme are of their own
ACTS: dict[str, tuple[list[str], tuple[str, str, str, dict[str, Any]]]] = {
    "a key": ([CREATE_KEY], ("", "create", "key ID", {"new": KEY_VALUES, "hidden": ["hash"]})),
    "a key that is revoked": (
        [CREATE_KEY, "update bds.api_keys set revoked_at = '2026-01-01 00:00Z'"],
        ("", "revoke", "key ID", {"old": {"revoked_at": None}, "new": {"revoked_at": "2026-01-01T00:00:00+00:00"}}),
    ),
    "a key that a person updates": (
        [CREATE_KEY, "update bds.api_keys set hash = sha256('y'), scopes = '{read,hooks}', last_used_at = now()"],
        ("", "update", "key ID", {"old": {"scopes": ["read"]}, "new": {"scopes": ["read", "hooks"]}, "hidden": ["hash"]}),
    ),
    "a user": ([CREATE_USER], ("", "create", "user a@example.com", {"new": USER_VALUES, "hidden": ["password_hash"]})),
    "access of a user": (
        [CREATE_USER, "select bds.set_access('a@example.com', array['acme'], true)"],
        ("", "update", "user a@example.com", {"old": {"is_administrator": False}, "new": {"is_administrator": True}}),
    ),
    "a password": (
        [CREATE_USER, f"select bds.set_password('a@example.com', '{OTHER_HASH}')"],
        ("", "update", "user a@example.com", {"hidden": ["password_hash"]}),
    ),
    "a user that is deleted": (
        [CREATE_USER, "select bds.delete_user('a@example.com')"],
        ("", "delete", "user a@example.com", {"old": USER_VALUES}),
    ),
    "a login": (
        ["create role login_of_audit login", "select bds.grant_company('login_of_audit', 'acme')"],
        ("acme", "create", "login login_of_audit", {}),
    ),
    "a hook": ([CREATE_HOOK], ("acme", "create", "hook ID", {"new": HOOK_VALUES, "hidden": ["secret"]})),
    "a hook that is changed": (
        [CREATE_HOOK, "update bds.hooks set disabled = true, updated_at = now(), url = 'https://u:p4ssword@example.com/'"],
        ("acme", "update", "hook ID", {
            "old": {"disabled": False, "url": "https://example.com/"}, "new": {"disabled": True, "url": "https://example.com/"}
        }),
    ),
    "a secret of a hook": (
        [CREATE_HOOK, "select bds.rotate_hook('acme', id) from bds.hooks"],
        ("acme", "rotate", "hook ID", {
            "old": {"ends_at": None}, "new": {"ends_at": "TIME"}, "hidden": ["previous", "secret"]
        }),
    ),
    "a hook that is deleted": (
        [CREATE_HOOK, "select bds.delete_hook('acme', id), set_config('x.y', '', true) from bds.hooks"],
        ("acme", "delete", "hook ID", {"old": {"deleted_at": None}, "new": {"deleted_at": "TIME"}}),
    ),
    "a previous secret that signs for longer": (
        [CREATE_HOOK, "select bds.rotate_hook('acme', id) from bds.hooks", "update bds.hook_secrets set ends_at = '2100-01-01 00:00Z'"],
        ("acme", "update", "hook ID", {"old": {"ends_at": "TIME"}, "new": {"ends_at": "2100-01-01T00:00:00+00:00"}}),
    ),
    "a previous secret that has ended, and another id": (
        [CREATE_HOOK, "update bds.hook_secrets set previous = secret, ends_at = now()", "delete from bds.hook_states",
         "alter table bds.hook_secrets drop constraint hook_secrets_company_id_hook_id_fkey",
         "update bds.hook_secrets set previous = null, ends_at = null, hook_id = gen_random_uuid()"],
        ("acme", "update", "hook ID", {
            "old": {"ends_at": "TIME", "hook_id": "ID"}, "new": {"ends_at": None, "hook_id": "ID"}, "hidden": ["previous"]
        }),
    ),
    "a mapper": ([PUT_MAPPER], ("acme", "create", "mapper m", {"new": MAPPER_VALUES})),
    "a mapper that somebody else has written": (
        [PUT_MAPPER, "select bds.put_mapper('acme', 'm', 'csv', 'one', 'anna')"],
        ("acme", "update", "mapper m", {"old": {"actor": "postgres"}, "new": {"actor": "anna"}}),
    ),
    "a mapper that is replaced": (
        [PUT_MAPPER, "select bds.put_mapper('acme', 'm', 'csv', repeat('x', 10001))"],
        ("acme", "update", "mapper m", {
            "old": {"text": "one"}, "new": {"text": {"characters": 10001, "sha256": "SHA"}}
        }),
    ),
    "the retention of a company": (
        ["select bds.set_retention('5 days', 'acme')"],
        ("acme", "update", "company acme", {"old": {"log_retention": None}, "new": {"log_retention": "5 days"}}),
    ),
    "a retention that is equal to PostgreSQL": (
        ["select bds.set_retention('30 days', 'acme')", "select bds.set_retention('1 month', 'acme')"],
        ("acme", "update", "company acme", {"old": {"log_retention": "30 days"}, "new": {"log_retention": "1 mon"}}),
    ),
    "the retention of all": (
        ["update bds.settings set log_retention = '5 days', log_archive = true"],
        ("", "update", "settings", {
            "old": {"log_retention": None, "log_archive": False}, "new": {"log_retention": "5 days", "log_archive": True}
        }),
    ),
    "a place": (
        ["insert into bds.places (name, url, secret) values ('west', 'postgresql://u:p4ssword@h/d', gen_random_uuid())"],
        ("", "create", "place west", {
            "new": {"is_draining": False, "created_at": "TIME"}, "hidden": ["secret", "url"]
        }),
    ),
    "a company": (["select bds.create_company('beta')"], ("", "create", "company beta", {"new": {"created_at": "TIME"}})),
    "a company at another place": (
        ["insert into bds.places (name, url) values ('west', 'h')", "select bds.create_company('beta', null, 'west')"],
        ("", "create", "company beta", {"new": {"created_at": "TIME", "place": "west"}}),
    ),
    "a move": (
        [
            "insert into bds.places (name, url) values ('west', 'h')",
            f"{NOTE_PLACE}('acme', 'home', 'home', 'west', 'copying')", f"{NOTE_PLACE}('acme', 'home', 'home', 'west', 'departing')",
            f"{NOTE_PLACE}('acme', 'west', 'home', 'west', 'clearing')",
        ],
        ("", "move", "company acme", {"old": {"place": "home"}, "new": {"place": "west"}}),
    ),
    "an entity": (
        ["alter table data.units add column weight int", "select bds.register('data.units')"],
        ("", "register", "entity units", {"new": {"column weight": {"type": "integer", "since": "TIME", "ordinal": 7}}}),
    ),
    "an entity with another type": (
        [DROP_VIEWS, "alter table data.units alter column symbol type varchar(9)", REGISTER],
        ("", "register", "entity units", {
            "old": {"column symbol": {"type": "text", "since": "-infinity", "ordinal": 5}},
            "new": {
                "column symbol until TIME": {"type": "text", "since": "-infinity", "ordinal": 5},
                "column symbol": {"type": "character varying(9)", "since": "TIME", "ordinal": 5},
            },
        }),
    ),
    "an entity that is unregistered": (
        [DROP_VIEWS, "alter table data.units drop column symbol, drop column name", REGISTER, "select bds.unregister('units')"],
        ("", "unregister", "entity units", {"old": {
            "singular": "unit", "ordinal": 1, "table_name": "data.units",
            "column company_id": {"type": "text", "since": "-infinity", "ordinal": 1},
            "column id": {"type": "bigint", "since": "-infinity", "ordinal": 2},
            "column code": {"type": "text", "since": "-infinity", "ordinal": 3},
            "column name until TIME": {"type": "text", "since": "-infinity", "ordinal": 4, "is_lost": True},
            "column symbol until TIME": {"type": "text", "since": "-infinity", "ordinal": 5, "is_lost": True},
            "column updated_at": {"type": "timestamp with time zone", "since": "-infinity", "ordinal": 6},
        }}),
    ),
    "the past of a column": (
        ["update bds.column_history set since = '2001-01-01 00:00Z' where entity = 'units' and column_name = 'code'"],
        ("", "register", "entity units", {
            "old": {"column code": {"type": "text", "since": "-infinity", "ordinal": 3}},
            "new": {"column code": {"type": "text", "since": "2001-01-01T00:00:00+00:00", "ordinal": 3}},
        }),
    ),
    "an erasure": (
        ["select bds.erase('acme', 'units', 5, array['name'])"],
        ("acme", "erase", "row units/5", {"columns": ["name"], "records": 0}),
    ),
}  # fmt: skip
# statements of one transaction -> its acts, in their order
ORDERED: dict[str, tuple[list[str], list[str]]] = {
    "a mapper that is made twice": (
        [PUT_MAPPER, "select bds.delete_mapper('acme', 'm')", PUT_MAPPER, "select bds.delete_mapper('acme', 'm')"],
        ["create mapper m", "delete mapper m", "create mapper m", "delete mapper m"],
    ),
    "a user that is made twice": (
        [CREATE_USER, "select bds.delete_user('a@example.com')", CREATE_USER],
        ["create user a@example.com", "delete user a@example.com", "create user a@example.com"],
    ),
    "a mapper of the name that another one had": (
        [PUT_MAPPER, "update bds.mappers set name = 'n'",
         "insert into bds.mappers select company_id, 'm', format, text, actor, created_at, updated_at from bds.mappers"],
        ["create mapper m", "update mapper n", "create mapper m"],
    ),
    "an entity that is unregistered twice": (
        ["select bds.unregister('units')", REGISTER, "select bds.unregister('units')", REGISTER],
        ["unregister entity units", "register entity units"] * 2,
    ),
    "a type that changes twice": (
        [f"{DROP_VIEWS}; alter table data.units alter column symbol type varchar(9)", REGISTER,
         f"{DROP_VIEWS}; alter table data.units alter column symbol type varchar(8)", REGISTER],
        ["register entity units"] * 2,
    ),
    "a name that changes and comes back": (
        ["alter table data.units rename column symbol to sign", REGISTER,
         "alter table data.units rename column sign to symbol", REGISTER],
        ["register entity units"] * 2,
    ),
    "registrations of two people": (
        ["alter table data.units add column weight int", REGISTER, "set local bds.actor = 'anna'",
         "alter table data.units add column height int", REGISTER],
        ["register entity units"] * 2,
    ),
    "a company that a person deletes": (
        ["select bds.create_company('beta')", PUT_MAPPER.replace("acme", "beta"), "delete from bds.companies where id = 'beta'"],
        ["create company beta", "create mapper m", "delete company beta", "delete mapper m"],
    ),
}  # fmt: skip
# The columns of the state of the service: every other one is of administration.
STATE_COLUMNS = {
    "bds.api_keys": {"last_used_at"},
    "bds.column_history": set[str](),
    "bds.companies": set[str](),
    "bds.company_logins": set[str](),
    "bds.directory": {"phase", "changed_at"},
    "bds.entities": set[str](),
    "bds.hook_secrets": set[str](),
    "bds.hooks": {"since_id", "problem", "disabled_for", "catalog_version", "updated_at"},
    "bds.mappers": {"updated_at"},
    "bds.places": set[str](),
    "bds.settings": set[str](),
    "bds.users": {"last_login_at"},
}
A_ROW_OF_EACH = [
    CREATE_KEY, CREATE_USER, CREATE_HOOK, PUT_MAPPER, "create role login_of_audit login",
    "select bds.grant_company('login_of_audit', 'acme')", "insert into bds.places (name, url) values ('west', 'h')",
    "select bds_operation.note_place('acme', 'home', 'home', 'west', 'copying')",
]  # fmt: skip
FREED = ["select bds.create_company('beta')", "delete from bds.hook_secrets", "delete from bds.hook_states"]
# another value of each type
OTHERS = {
    "bigint": "7", "boolean": "not coalesce({0}, false)", "bytea": "sha256('other')", "integer": "7", "interval": "'77 days'", "name": "'other'",
    "numeric": "7.5", "regclass": "'pg_class'", "text": "'other'", "text[]": "'{{other}}'", "uuid": "gen_random_uuid()",
    "timestamp with time zone": "'2001-02-03 00:00Z'",
}  # fmt: skip
AUDITED = """
    select c.oid::regclass::text, c.oid from pg_class c
    where exists (select from pg_trigger t where t.tgrelid = c.oid and t.tgfoid = 'bds_log.audit'::regproc and t.tgparentid = 0)
    order by 1
"""
# what the service notes for itself
STATE = {
    "last use of a key": [CREATE_KEY, "select bds_service.note_use(id) from bds.api_keys"],
    "a login": [CREATE_USER, f"select bds_service.begin_session(id, '{HASH}', '1 day', null, '192.0.2.1') from bds.users"],
    "the health of a hook": [
        CREATE_HOOK,
        "update bds.hooks set problem = null, catalog_version = 'x', since_id = 7, updated_at = now()",
        "update bds.hook_states set failures = 3, last_at = now(), failing_since = now()",
    ],
    "the previous secret of a hook that has ended": [
        CREATE_HOOK,
        "update bds.hook_secrets set previous = secret, ends_at = now() - interval '1 day'",
        "update bds.hook_secrets set previous = null, ends_at = null",
    ],
    "a mapper that is the same": [PUT_MAPPER, PUT_MAPPER],
    "a registration that changes nothing": [CREATE_KEY, "select bds.register('data.units')"],
}


@pytest.fixture(scope="module")
def template(server: str, of_products: str) -> Iterator[str]:
    yield from prepared(server, lambda operator: operator.company("acme"), of_products)


@pytest.fixture(scope="module")
def connection(module_database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A database whose tests undo what they do."""
    with psycopg.connect(module_database_url, autocommit=True) as connection:
        yield connection


def records(connection: psycopg.Connection[Any]) -> list[tuple[str, str, str, dict[str, Any]]]:
    """Company, action, object and detail of the records of this transaction."""
    found = connection.execute("select chain, action, object, detail from bds.audit_pending order by number").fetchall()
    return [(chain, action, UUID.sub("ID", object), _plain(detail)) for chain, action, object, detail in found]


def _plain(detail: dict[str, Any]) -> dict[str, Any]:
    text = re.sub(r'20[0-9]{2}-(?!01-01)[^"]*"', 'TIME"', json.dumps(detail))
    text = re.sub('"number": [0-9]+', '"number": 1', UUID.sub("ID", text))
    return json.loads(re.sub('"[0-9a-f]{64}"', '"SHA"', text))


@pytest.mark.parametrize("act", ACTS)
def test_an_act_of_administration_is_noted(connection: psycopg.Connection[Any], act: str) -> None:
    *before, last = ACTS[act][0]
    with connection.transaction(force_rollback=True):
        for statement in before:
            connection.execute(statement.encode())
        earlier = len(records(connection))
        connection.execute(last.encode())
        [found] = records(connection)[earlier:]
        assert found == ACTS[act][1]
        for (text,) in connection.execute("select detail::text from bds.audit_pending"):
            assert "SHA" in str(found) or not SECRET.search(text)


@pytest.mark.parametrize("state", STATE)
def test_state_of_the_service_is_not_noted(connection: psycopg.Connection[Any], state: str) -> None:
    first, *others = STATE[state]
    with connection.transaction(force_rollback=True):
        connection.execute(first.encode())
        earlier = records(connection)
        for statement in others:
            connection.execute(statement.encode())
        noted = 1 if state.startswith("the previous") else 0  # a person who gives a hook a previous secret is noted
        assert len(records(connection)) == len(earlier) + noted
        if state == "a login":
            assert connection.execute("select count(*) from bds.sessions").fetchone() == (1,)


@pytest.mark.parametrize("case", ORDERED)
@not_divided("a table is registered again")
def test_acts_of_one_transaction_stand_in_their_order(connection: psycopg.Connection[Any], case: str) -> None:
    statements, expected = ORDERED[case]
    query = "select company_id, action || ' ' || object from bds.audit where at > %s and id is not null order by company_id, id"
    with connection.transaction(force_rollback=True):
        [began] = connection.execute("select clock_timestamp()").fetchone() or ()
        for statement in statements:
            connection.execute(statement.encode())
        connection.execute("set constraints all immediate")  # as the commit does
        assert [act for _, act in connection.execute(query.encode(), (began,))] == expected


@not_divided("constraints belong to the parent table")
def test_each_column_of_an_audited_table_is_noted_but_those_of_the_state_of_the_service(
    connection: psycopg.Connection[Any],
) -> None:
    assert [name for name, _ in connection.execute(AUDITED.encode())] == list(STATE_COLUMNS)
    columns = """
        select attname::text, format_type(atttypid, null), attidentity <> '' from pg_attribute
        where attrelid = %s::regclass and attnum > 0 and not attisdropped
    """
    with connection.transaction(force_rollback=True):
        for statement in A_ROW_OF_EACH:
            connection.execute(statement.encode())
        for table, state in STATE_COLUMNS.items():
            for column, type_name, is_identity in connection.execute(columns.encode(), (table,)).fetchall():
                told = noted_of(connection, table, column, OTHERS[type_name].format(column), is_identity)
                assert bool(told) == (column not in state), (table, column)
                assert table == "bds.column_history" or all(column in text for text in told), (table, column)


def noted_of(connection: psycopg.Connection[Any], table: str, column: str, value: str, is_identity: bool) -> list[str]:
    """The details of the records of a change of a column in one row, to a value that constraints may forbid."""
    constraints = "select conname from pg_constraint where conrelid = %s::regclass and contype in ('c', 'f', 'p', 'u')"
    with connection.transaction(force_rollback=True):
        for (name,) in connection.execute(constraints.encode(), (table,)).fetchall():
            connection.execute(f"alter table {table} drop constraint if exists {name} cascade".encode())
        if is_identity:
            connection.execute(f"alter table {table} alter column {column} drop identity".encode())
        connection.execute("delete from bds.audit_pending")
        one = f"update {table} set {column} = {value} where ctid = (select ctid from {table} limit 1)"
        assert connection.execute(one.encode()).rowcount == 1
        return [text for (text,) in connection.execute("select detail::text from bds.audit_pending")]


def test_an_audited_table_is_not_truncated(connection: psycopg.Connection[Any]) -> None:
    for table in STATE_COLUMNS:
        with pytest.raises(psycopg.Error, match=f"{table} cannot be truncated: the audit would miss its rows") as refused:
            connection.execute(f"truncate {table} cascade".encode())
        assert refused.value.sqlstate == "BD004"


@not_divided("the row goes to another partition")
@pytest.mark.parametrize("made", ["hook", "mapper", "login"])
def test_what_goes_from_one_company_to_another_is_told_to_both(connection: psycopg.Connection[Any], made: str) -> None:
    table = {"hook": "hooks", "mapper": "mappers", "login": "company_logins"}[made]
    with connection.transaction(force_rollback=True):
        for statement in [*A_ROW_OF_EACH, *FREED]:
            connection.execute(statement.encode())
        earlier = len(records(connection))
        connection.execute(f"update bds.{table} set company_id = 'beta'".encode())
        detail = {"old": {"company_id": "acme"}, "new": {"company_id": "beta"}}
        found = sorted(records(connection)[earlier:], key=str)
        assert [(chain, action, told) for chain, action, _, told in found] == [
            ("acme", "update", detail),
            ("beta", "update", detail),
        ]


AHEAD = "insert into {} ({}id, at, actor, db_user, action, object, detail) values ({}%s, %s, 'a', 'a', 'a', 'a', '{{}}')"
CHAINS = {
    "bds.server_audit": (AHEAD.format("bds.server_audit", "", ""), CREATE_KEY),
    "bds.company_audit": (AHEAD.format("bds.company_audit", "company_id, ", "'acme', "), PUT_MAPPER),
}


@pytest.mark.parametrize("table", CHAINS)
def test_a_record_that_no_other_can_follow_is_refused(connection: psycopg.Connection[Any], table: str) -> None:
    for values in ((1000, "infinity"), (1000, "-infinity"), (2**63 - 1, "2001-01-01"), (0, "2001-01-01")):
        with pytest.raises(psycopg.errors.CheckViolation):
            connection.execute(CHAINS[table][0].encode(), values)


@pytest.mark.parametrize("table", CHAINS)
def test_a_record_follows_the_last_id_and_the_latest_time(connection: psycopg.Connection[Any], table: str) -> None:
    ahead, act = CHAINS[table]
    with connection.transaction(force_rollback=True):
        connection.execute("set local statement_timeout = '60s'; set local timezone = 'UTC'")
        connection.execute(ahead.encode(), (1000, "2200-01-01 00:00:00.000001Z"))
        connection.execute(ahead.encode(), (1001, "2200-01-01 00:00:00Z"))
        connection.execute(act.encode())
        connection.execute("set constraints all immediate")
        found = connection.execute(f"select at::text from {table} where id = 1002".encode()).fetchall()
        assert found == [("2200-01-01 00:00:00.000002+00",)]


@pytest.mark.parametrize("table", CHAINS)
def test_numbering_ends_after_a_record_that_no_other_can_follow(connection: psycopg.Connection[Any], table: str) -> None:
    ahead, act = CHAINS[table]
    with connection.transaction(force_rollback=True):
        connection.execute("set local statement_timeout = '60s'")
        connection.execute(f"alter table {table} drop constraint times_are_finite".encode())
        connection.execute(ahead.encode(), (1000, "infinity"))
        connection.execute(act.encode())
        with pytest.raises(psycopg.errors.DataCorrupted, match="no record can follow"):
            connection.execute("set constraints all immediate")


def test_a_record_names_the_actor_the_login_and_the_caller(connection: psycopg.Connection[Any]) -> None:
    with connection.transaction(force_rollback=True):
        caller = {"user": "a@example.com", "address": "192.0.2.1", "requestId": "r1"}
        connection.execute("select bds.set_context('acme', 'user a@example.com')")
        connection.execute("select set_config('bds.caller', %s, true)", (json.dumps(caller),))
        connection.execute(PUT_MAPPER.encode())
        connection.execute("select set_config('bds.caller', 'no {json', true)")
        connection.execute(CREATE_HOOK.encode())
        query = "select id, actor, db_user = session_user, detail -> 'caller' from bds.audit where id is null order by at"
        assert connection.execute(query.encode()).fetchall() == [
            (None, "user a@example.com", True, caller), (None, "user a@example.com", True, None)
        ]  # fmt: skip


@pytest.mark.parametrize(
    "caller", ["1e5000", "[" * 999 + "]" * 999, '"x"', "null", '{"user": {"a": "b"}}', '{"user": 1e5000}', '{"user": ["x"]}']
)
def test_a_caller_that_is_not_an_object_of_texts_is_not_recorded(connection: psycopg.Connection[Any], caller: str) -> None:
    with connection.transaction(force_rollback=True):
        connection.execute("select bds.set_context('acme')")
        connection.execute("select set_config('bds.caller', %s, true)", (caller,))
        connection.execute(PUT_MAPPER.encode())
        assert connection.execute("select detail ? 'caller' from bds.audit where id is null").fetchall() == [(False,)]


def test_ids_follow_the_commits_without_gaps_and_an_open_transaction_keeps_nobody_waiting(
    operator: Operator, connect: Callable[..., psycopg.Connection[Any]]
) -> None:
    slow, fast = connect(), connect()
    [(last,)] = operator.rows("select max(id) from bds.audit where company_id = ''")
    with slow.transaction():
        slow.execute(PUT_MAPPER.encode())
        slow.execute(CREATE_KEY.encode())
        fast.execute("set lock_timeout = '5s'")
        fast.execute("select bds.set_retention('5 days')")
        fast.execute("select bds.put_mapper('acme', 'fast', 'csv', 'one')")
        with pytest.raises(psycopg.errors.DivisionByZero), fast.transaction():
            fast.execute("select bds.put_mapper('acme', 'fast', 'csv', 'two')")
            fast.execute("select 1 / 0")
    found = operator.rows(
        "select id - case company_id when '' then %s else 0 end, company_id, action || ' ' || split_part(object, ' ', 1)"
        " from bds.audit where company_id <> '' or id > %s order by company_id, id",
        (last, last),
    )
    assert found == [
        (1, "", "update settings"), (2, "", "create key"), (1, "acme", "create mapper"), (2, "acme", "create mapper")
    ]  # fmt: skip
    assert operator.rows("select count(*) from bds.audit_pending") == [(0,)]
    assert operator.rows(
        "select bool_and(at > before) from (select at, lag(at) over (partition by company_id order by id) as before from bds.audit) a"
    ) == [(True,)]


def test_two_commits_at_once_take_turns_and_neither_deadlocks(
    operator: Operator, connect: Callable[..., psycopg.Connection[Any]]
) -> None:
    one, other = connect(), connect()
    with one.transaction():
        one.execute(PUT_MAPPER.encode())
        one.execute("select bds.set_retention('5 days')")
        one.execute("set constraints all immediate")  # as the commit begins
        with other.transaction():
            other.execute("set local lock_timeout = '50ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable), other.transaction():
                other.execute(CREATE_KEY.encode())
                other.execute("set constraints all immediate")
    other.execute(CREATE_KEY.encode())
    [(ids, number)] = operator.rows("select max(id), count(*) from bds.audit where company_id = ''")
    assert ids == number


@not_divided("a dump restores into one of the same kind")
def test_dumps_restores_and_deletions_stay_and_the_companys_records_go_with_it(operator: Operator) -> None:
    operator.key("acme")
    operator.connection.execute(PUT_MAPPER.encode())
    out = io.BytesIO()
    operator.connection.execute("set role bds_owner")
    dump.dump(operator.connection, "acme", out, lambda *_: None)
    operator.connection.execute("reset role")
    whole = "select * from bds.company_audit"
    before = operator.rows(whole)
    assert [row[1] for row in before] == [1]
    operator.delete_company("acme")
    assert operator.rows(whole) == []
    operator.connection.execute("set role bds_owner")
    dump.restore(operator.connection, io.BytesIO(out.getvalue()), True, lambda *_: None)
    operator.connection.execute("reset role")
    assert operator.rows(whole) == before
    found = operator.rows("select action, object, detail from bds.audit where company_id = '' order by id desc limit 4")
    [(key,)] = operator.rows("select id::text from bds.api_keys")
    assert [(action, object) for action, object, _ in reversed(found)] == [
        ("dump", "company acme"), ("delete", f"key {key}"), ("delete", "company acme"), ("restore", "company acme")
    ]  # fmt: skip
    restored: Any = found[0][2]
    assert restored["keys"] == [key] and restored["hooks"] is True
    operator.connection.execute(PUT_MAPPER.replace("'m'", "'n'").encode())
    assert operator.rows("select max(id) from bds.company_audit") == [(2,)]


def test_the_service_reads_it_for_an_administrators_session_alone(
    connect: Callable[..., psycopg.Connection[Any]], operator: Operator
) -> None:
    operator.company("beta")
    operator.connection.execute(PUT_MAPPER.encode())
    operator.connection.execute(CREATE_USER.encode())
    service = connect("bds_service")
    query = b"select company_id, action, object from bds_service.audit('acme', null, 3)"
    for session in ("", "00000000-0000-0000-0000-000000000000"):
        service.execute("select set_config('bds.session', %s, false)", (session,))
        with pytest.raises(psycopg.Error, match="only the operator and administrators") as refused:
            service.execute(query)
        assert refused.value.sqlstate == "BD001"
    operator.connection.execute("update bds.users set is_administrator = true")
    [(session,)] = operator.rows(f"select bds_service.begin_session(id, '{HASH}', '1 day')::text from bds.users")
    service.execute("select set_config('bds.session', %s, false)", (session,))
    assert service.execute(query).fetchall() == [
        ("", "update", "user a@example.com"), ("", "create", "user a@example.com"), ("acme", "create", "mapper m")
    ]  # fmt: skip
    others = operator.rows("select object from bds_service.audit('acme', null, 100)")
    assert ("company acme",) in others and ("company beta",) not in others
