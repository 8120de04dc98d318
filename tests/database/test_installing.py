"""What must be before the first migration: the encoding, the owner, the roles; and who may connect afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from app.database import migrate, roles
from tests.conftest import TEMPLATE

pytestmark = pytest.mark.slow

OWNER, APP, STRANGER = "installing_owner", "installing_app", "installing_stranger"


@pytest.fixture
def administrator(server: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server, autocommit=True) as connection:
        for login in (OWNER, APP, STRANGER):
            connection.execute(f"create role {login} login".encode())
        yield connection
        connection.execute("drop database if exists installing with (force)")
        for login in (OWNER, APP, STRANGER):
            connection.execute(f"drop owned by {login}; drop role {login}".encode())


def make(administrator: psycopg.Connection, owner: str = OWNER, encoding: str = "UTF8", locale: str = "C.UTF-8") -> str:
    """A new database; returns the connection string of the login OWNER."""
    statement = "create database installing owner {} template template0 encoding {} locale {}"
    administrator.execute(sql.SQL(statement).format(sql.Identifier(owner), encoding, locale))
    return make_conninfo(administrator.info.dsn, dbname="installing", user=OWNER)


def is_empty(administrator: psycopg.Connection) -> bool:
    """Whether nothing was written to the database."""
    with psycopg.connect(make_conninfo(administrator.info.dsn, dbname="installing")) as connection:
        found = connection.execute(
            "select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'public' or n.nspname ~ '^bds'"
        ).fetchone()
    return found == (0,)


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
@pytest.mark.parametrize("run", [migrate.migrate, migrate.plan, roles.statements])
def test_another_encoding_is_refused_before_the_first_statement(administrator: psycopg.Connection, encoding: str, run) -> None:
    url = make(administrator, encoding=encoding, locale="C")
    with pytest.raises(
        roles.MigrationError, match=f"has the encoding {encoding}, expected UTF8: .* create database .* encoding 'UTF8'"
    ):
        run(url)
    assert is_empty(administrator)


def test_who_does_not_own_the_database_is_told_so(administrator: psycopg.Connection) -> None:
    url = make(administrator, owner=STRANGER)
    with pytest.raises(
        roles.MigrationError, match=f'{OWNER} does not own .* {STRANGER}: .* alter database "installing" owner to "{OWNER}"'
    ):
        migrate.migrate(url)
    assert is_empty(administrator)
    administrator.execute(roles.statements(url).encode())
    assert administrator.execute("select datdba::regrole::text from pg_database where datname = 'installing'").fetchone() == (
        OWNER,
    )


@pytest.mark.parametrize("attribute", ["createrole", "nocreaterole"])
def test_an_owner_that_may_not_grant_the_roles_gets_them_from_an_administrator(
    administrator: psycopg.Connection, attribute: str
) -> None:
    """The roles belong to another service of the cluster, so CREATEROLE alone is not enough."""
    administrator.execute(f"alter role {OWNER} {attribute}".encode())
    url = make(administrator)
    for run in (migrate.migrate, migrate.plan):
        with pytest.raises(roles.MigrationError, match=rf"{OWNER} may not make .* bds_owner, .* `bds migrate --roles`"):
            run(url)
    assert is_empty(administrator)
    for _ in range(2):
        administrator.execute(roles.statements(url).encode())
    if attribute == "createrole":  # what follows is the same for both
        return
    migrate.migrate(url)
    with psycopg.connect(url, autocommit=True) as connection:  # what an operator does
        connection.execute("select bds.create_company('acme')")
        connection.execute(f"grant bds_reader, bds_writer to {APP}".encode())
        connection.execute(f"grant connect on database installing to {APP}".encode())
        assert connection.execute("select kind, object, mend from bds.problems").fetchall() == []
        with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
            psycopg.connect(make_conninfo(url, user=STRANGER))
        with psycopg.connect(make_conninfo(url, user=APP)) as app:
            app.execute("set role bds_reader; select set_config('bds.company', 'acme', false); select from api.products")

        administrator.execute(f"grant connect on database {TEMPLATE} to {APP}".encode())  # which has the service, too
        mend = f"revoke connect on database {TEMPLATE} from {APP}"
        problems = connection.execute("select kind, object, mend from bds.problems").fetchall()
        assert problems == [("shared login", APP, mend)]
        administrator.execute(mend.encode())
        assert connection.execute("select from bds.problems").fetchall() == []


def test_logins_that_were_let_in_by_public_are_let_in_by_name(administrator: psycopg.Connection) -> None:
    """A login of the other service of the cluster, and one without a role of the service, stay out."""
    url = make(administrator)
    administrator.execute(roles.statements(url).encode())
    administrator.execute(f"grant bds_reader to {APP}, {STRANGER}; grant connect on database {TEMPLATE} to {STRANGER}".encode())
    with psycopg.connect(url) as connection:
        assert connection.execute("select has_database_privilege('public', 'installing', 'connect')").fetchone() == (True,)
        roles.close(connection)
        found = connection.execute(
            "select l, has_database_privilege(l, 'installing', 'connect') from unnest(array['public', %s, %s, %s]) l",
            (OWNER, APP, STRANGER),
        ).fetchall()
        assert found == [("public", False), (OWNER, True), (APP, True), (STRANGER, False)]


def test_the_database_knows_the_roles_that_are_made(module_database_url: str) -> None:
    with psycopg.connect(module_database_url) as connection:
        assert connection.execute("select bds_impl.roles()").fetchone() == ([*roles.ROLES],)
        members = connection.execute("select m.role, m.member from bds_operation.memberships() m").fetchall()
    made = [(role, member) for role, members in roles.MEMBERS.items() for member in members]
    assert sorted(members) == sorted([*made, ("bds_analyst", "bds_owner")])
