"""Accounts on the command line, and the rights of the database roles on them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from argon2 import PasswordHasher

from app.auth.keys import hash_key
from app.auth.passwords import Passwords, hash_password
from app.cli.accounts import read_expiry
from app.database.servers.directory import HOME
from app.errors import ServiceError
from app.places import administration
from tests.cli.test_commands import bds as apart
from tests.cli.test_commands import here
from tests.conftest import Operator
from tests.service.serving import wait_until

pytestmark = pytest.mark.processes


@pytest.fixture
def bds(database_url: str, operator: Operator) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command in this process, on a database with a company `acme`."""
    operator.company("acme")
    environment = {**os.environ, "BDS_DATABASE_URL": database_url}

    return partial(here, environment)


def password_matches(operator: Operator, email: str, password: str) -> bool:
    [(password_hash,)] = operator.rows("select password_hash from bds.users where email = %s", (email,))
    assert not PasswordHasher().check_needs_rehash(password_hash), "the second recommended option of RFC 9106"
    return Passwords()._compare(password, password_hash)


def test_a_password_is_read_from_standard_input_or_made_and_printed(database_url: str, operator: Operator) -> None:
    operator.company("acme")
    bds = partial(apart, {**os.environ, "BDS_DATABASE_URL": database_url})
    given = bds("user", "create", "Anna@Example.com", "--company", "acme", input="correct horse\n")
    assert (given.returncode, given.stdout, given.stderr) == (0, "", "")
    assert password_matches(operator, "anna@example.com", "correct horse")

    made = bds("user", "create", "bea@example.com", "--company", "acme")
    assert re.fullmatch(r"[A-Za-z0-9_-]{20}\n", made.stdout), "the password alone"
    assert password_matches(operator, "bea@example.com", made.stdout.strip())

    assert bds("user", "password", "anna@example.com", input="another horse\r\n").returncode == 0
    assert password_matches(operator, "anna@example.com", "another horse")
    listed = bds("user", "list").stdout
    assert [line.split()[:2] for line in listed.splitlines()[1:]] == [["anna@example.com", "acme"], ["bea@example.com", "acme"]]
    assert "argon2" not in listed
    assert bds("user", "delete", "BEA@example.com").returncode == 0
    assert operator.rows("select count(*) from bds.users") == [(1,)]


@pytest.mark.parametrize(
    ("arguments", "input", "named"),
    [
        (("create", "a@example.com", "--company", "nowhere"), "correct horse\n", "'nowhere'"),
        (("create", "a@example.com", "--company", "acme"), "short\n", "the password has 5 characters, expected 8 to 1,000"),
        (("create", "nobody", "--company", "acme"), "correct horse\n", "'nobody'"),
        (("create", "a b@example.com", "--company", "acme"), "correct horse\n", "'a b@example.com'"),
        (("create", "anna@example.com", "--company", "acme"), "correct horse\n", "'anna@example.com'"),
        (("password", "nobody@example.com"), "correct horse\n", "'nobody@example.com'"),
        (("delete", "nobody@example.com"), "", "'nobody@example.com'"),
    ],
)
def test_an_error_of_a_user_command_is_one_line_that_names_the_wrong_value(
    bds: Callable[..., Any], operator: Operator, arguments: tuple[str, ...], input: str, named: str
) -> None:
    operator.rows("select bds.create_user('anna@example.com', %s, '{acme}')", (hash_password("correct horse"),))
    ended = bds("user", *arguments, input=input)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert re.fullmatch(f"bds: .*{re.escape(named)}.*\n", ended.stderr)


def test_a_key_may_expire(bds: Callable[..., Any], operator: Operator) -> None:
    key = bds("key", "create", "--company", "acme", "--expires", "90d").stdout.strip()
    [(left,)] = operator.rows("select expires_at - created_at from bds.api_keys where hash = %s", (hash_key(key),))
    assert timedelta(days=89, hours=23) < left < timedelta(days=90, hours=1)
    wrong = bds("key", "create", "--company", "acme", "--expires", "yesterday")
    assert wrong.returncode == 2 and "'yesterday'" in wrong.stderr


def test_an_expiry_is_a_date_a_time_or_a_number_of_days_or_hours() -> None:
    assert read_expiry("2999-01-31") == datetime(2999, 1, 31, tzinfo=UTC)
    assert read_expiry("2999-01-31T12:00+02:00") == datetime(2999, 1, 31, 10, tzinfo=UTC)
    assert timedelta(hours=11) < read_expiry("12h") - datetime.now(UTC) <= timedelta(hours=12)


@pytest.mark.parametrize("password", ["x" * 7, "x" * 1_001])
def test_a_password_has_eight_to_a_thousand_characters(password: str) -> None:
    with pytest.raises(ServiceError, match="expected 8 to 1,000"):
        hash_password(password)


def test_composed_and_decomposed_characters_make_the_same_password() -> None:
    assert Passwords()._compare("pass Zoe\u0308 word", hash_password("pass Zo\u00eb word"))


TABLES = ("users", "sessions", "secrets", "wrong_credentials", "wrong_logins", "login_networks")
FUNCTIONS = (
    "bds.create_user('a@b.c', '', '{acme}')",
    "bds.delete_user('a@b.c')",
    "bds.set_password('a@b.c', '')",
    "bds_service.password_of('a@b.c')",
    "bds_service.join_company('acme')",
    "bds_service.replace_password(gen_random_uuid(), '', '')",
    "bds_service.begin_session(gen_random_uuid(), '', '1 h')",
    "bds_service.session(gen_random_uuid(), gen_random_uuid())",
    "bds_service.end_session(gen_random_uuid())",
    "bds_service.keep_secret('tokens', 'x')",
    "bds_service.count_wrong('::1', 20)",
    "bds_service.begin_attempt('::1', 'a@b.c', 20, 100)",
    "bds_service.end_attempt('::1', 'a@b.c', now(), now(), true)",
    "bds_service.note_use(gen_random_uuid())",
)


@pytest.mark.parametrize("role", ["bds_reader", "bds_writer", "bds_worker", "bds_service"])
def test_no_role_of_the_service_reads_the_tables_of_accounts(role: str, connect: Callable[..., psycopg.Connection[Any]]) -> None:
    connection = connect(role)
    for table in TABLES:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(f"select * from bds.{table}".encode())


@pytest.mark.parametrize("role", ["bds_reader", "bds_writer", "bds_worker"])
def test_the_roles_for_business_data_may_call_no_function_of_accounts(
    role: str, connect: Callable[..., psycopg.Connection[Any]]
) -> None:
    connection = connect(role)
    for function in FUNCTIONS:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(f"select {function}".encode())


ADMINISTRATION = (
    "bds.create_company('new')",
    "bds_service.join_company('new')",
    "bds.create_user('a@b.c', '$argon2id$', '{acme}')",
    "bds.set_access('a@b.c', '{acme}', true)",
    "bds.delete_user('a@b.c')",
    "bds.delete_company('new')",
)


@pytest.mark.parametrize("kind", ["none", "of a user", "ended", "nonsense", "of an administrator"])
def test_the_service_administers_with_an_administrators_session_alone(
    connect: Callable[..., psycopg.Connection[Any]], operator: Operator, kind: str
) -> None:
    operator.company("acme")
    operator.rows(
        "select bds.create_user('boss@example.com', '$argon2id$1', '{}', true), bds.create_user('u@example.com', '$argon2id$1', '{acme}')"
    )
    email, lasts = {"of a user": ("u@example.com", "1 h"), "ended": ("boss@example.com", "-1 s")}.get(
        kind, ("boss@example.com", "1 h")
    )
    [(session,)] = operator.rows(
        "select bds_service.begin_session(id, '$argon2id$1', %s)::text from bds.users where email = %s", (lasts, email)
    )
    connection = connect("bds_service")
    connection.execute("select set_config('bds.session', %s, false)", ({"none": "", "nonsense": "x"}.get(kind, session),))
    for function in ADMINISTRATION:
        if kind == "of an administrator":
            connection.execute(f"select {function}".encode())
        else:
            with pytest.raises(psycopg.Error) as caught:
                connection.execute(f"select {function}".encode())
            assert caught.value.sqlstate == "BD001"
    assert operator.rows("select email from bds.users order by email") == [("boss@example.com",), ("u@example.com",)]


def administrators(operator: Operator, *names: str) -> list[str]:
    """Sessions of new administrators."""
    created = [
        operator.rows("select bds.create_user(%s, '$argon2id$1', '{}', true)", (f"{name}@example.com",))[0] for name in names
    ]
    return [operator.rows("select bds_service.begin_session(%s, '$argon2id$1', '1 h')::text", user)[0][0] for user in created]


def waits(operator: Operator, connection: psycopg.Connection[Any]) -> bool:
    query = "select from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
    return bool(operator.rows(query, (connection.info.backend_pid,)))


REMOVALS = ("bds.set_access('{}@example.com', '{{acme}}', false)", "bds.delete_user('{}@example.com')")


@pytest.mark.parametrize("second", REMOVALS)
@pytest.mark.parametrize("first", REMOVALS)
def test_two_administrators_who_end_each_others_administration_at_once_leave_one(
    connect: Callable[..., psycopg.Connection[Any]], operator: Operator, first: str, second: str
) -> None:
    operator.company("acme")
    one, other = connect("bds_service"), connect("bds_service")
    for connection, session in zip((one, other), administrators(operator, "anna", "bert"), strict=True):
        connection.execute("select set_config('bds.session', %s, false)", (session,))
    with ThreadPoolExecutor(1) as pool:
        with one.transaction():
            one.execute(f"select {first.format('bert')}".encode())
            removing = pool.submit(other.execute, f"select {second.format('anna')}".encode())
            wait_until(lambda: waits(operator, other) or removing.done())
        with pytest.raises(psycopg.Error) as refused:
            removing.result()
    assert refused.value.sqlstate == "BD001"
    assert operator.rows("select email from bds.users where is_administrator") == [("anna@example.com",)]


def test_a_company_that_an_administrator_creates_is_added_to_those_that_they_have_then(
    connect: Callable[..., psycopg.Connection[Any]], database_url: str, operator: Operator
) -> None:
    operator.company("acme")
    [session], other = administrators(operator, "anna"), connect(None)
    with ThreadPoolExecutor(1) as pool:
        with other.transaction():
            other.execute("select bds.set_access('anna@example.com', '{acme}', true)")
            urls = {HOME: database_url}
            creating = pool.submit(administration.create_company, urls, "new", None, HOME, session=session, is_joined=True)
            wait_until(
                lambda: bool(
                    operator.rows("select from pg_stat_activity where query ~ 'join_company' and wait_event_type = 'Lock'")
                )
            )
        assert creating.result() == HOME
    assert operator.rows("select companies from bds.users") == [(["acme", "new"],)]
    administration.create_company(urls, "third", session=session, is_joined=True)
    assert operator.rows("select companies from bds.users") == [(["acme", "new", "third"],)]


def test_a_user_who_is_no_administrator_has_a_company(operator: Operator) -> None:
    operator.company("acme")
    for call in ("create_user('a@b.c', '$argon2id$', '{}')", "create_user('b@b.c', '$argon2id$', '{}', null)"):
        with pytest.raises(psycopg.Error):
            operator.rows(f"select bds.{call}")
    operator.rows("select bds.create_user('a@b.c', '$argon2id$', '{acme}')")
    with pytest.raises(psycopg.Error) as caught:
        operator.rows("select bds.set_access('a@b.c', '{}', false)")
    assert caught.value.sqlstate == "BD005"
    assert operator.rows("select bds.set_access('a@b.c', '{}', true)") == [(True,)]
    assert operator.rows("select bds.set_access('nobody@b.c', '{acme}', true)") == [(False,)]


def test_the_operator_sees_users_but_no_hash_and_no_secret(connect: Callable[..., psycopg.Connection[Any]]) -> None:
    connection = connect("bds_operator")
    connection.execute("select email, companies from bds.users")
    for query in (
        "select password_hash from bds.users",
        "select value from bds.secrets",
        "select bds_service.keep_secret('tokens', 'x')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(query.encode())
