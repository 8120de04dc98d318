"""What must be before the first migration: the encoding, the owner of the database, the roles, and who may connect.

The roles belong to the cluster, whose services share them: what a role may do in a database is granted there.  An owner with
CREATEROLE makes them.  Another one gets them from an administrator, who runs what `statements` returns, for each owner once.

Since every service of a cluster has the same roles, a login of one must not connect to the database of another.  So CONNECT belongs
to logins by name, not to PUBLIC.  A database in which bds_owner may create is one with the service; no other mark is in a catalog
that all databases share.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from app.database.pool.pools import parameters

ROLES = {
    "bds_owner": "owns every object; tables are registered by its members",
    "bds_operator": "the operator of the service: every row of every company",
    "bds_reader": "reads the views of the company that the session names",
    "bds_writer": "writes rows of that company, and begins imports",
    "bds_importer": "runs imports and owns staged rows; no session logs in as it",
    "bds_analyst": "reads schema my: the one company that the login is bound to",
    "bds_service": "accounts, hooks and mappers",
    "bds_worker": "delivers webhooks",
    "bds_dispatcher": "runs the functions of webhooks and reads hook secrets; no session logs in as it",
}
FOR_OWNERS = ("bds_owner", "bds_operator", "bds_reader", "bds_writer", "bds_service", "bds_worker")  # as which commands act
MEMBERS = {  # role -> its members
    "bds_operator": ("bds_owner",),
    "bds_reader": ("bds_owner", "bds_dispatcher", "bds_worker"),  # filters of hooks see what a reader of the company sees
    "bds_writer": ("bds_owner", "bds_importer"),  # imports write under the writer's row level security
    "bds_importer": ("bds_owner",),
    "bds_dispatcher": ("bds_owner",),
}
# bds.grant_company grants it to logins
ANALYST = "grant bds_analyst to bds_owner with admin true, inherit true, set true;"
# without the first, what the second says: nothing else depends on them
OPTIONAL = {
    "grant set on parameter session_replication_role to bds_owner": "bds.delete_company and restores of a company need it",
    "grant pg_read_all_stats to bds_owner": "bds.turns then lacks since when another session holds a turn, and its statement",
}
TRIES = 10  # while another database of the cluster grants the same at the same moment

SITUATION = """
    select d.datname, r.rolname, d.datdba::regrole::text, pg_has_role(d.datdba, 'usage'), r.rolsuper
    from pg_database d, pg_roles r where d.datname = current_database() and r.rolname = current_user
"""
MISSING = """
    with wanted (member, role, privilege) as (
        select current_user::text, r, p from unnest(%s::text[]) r, unnest(array['set', 'usage']) p
        union all select m, r, 'usage' from unnest(%s::text[], %s::text[]) u (m, r)
        union all values ('bds_owner', 'bds_analyst', 'usage with admin option')
    )
    select distinct case when to_regrole(w.role) is null then w.role else format('membership of %%s in %%s', w.member, w.role) end
    from wanted w
    where not coalesce(pg_has_role(to_regrole(w.member), to_regrole(w.role), w.privilege), false)
    order by 1
"""
# Logins of another service of the cluster stay out.
CLOSE = """
    do $$
    declare
        here  pg_database := (select d from pg_database d where d.datname = current_database());
        login name;
    begin
        if exists (
            select from aclexplode(coalesce(here.datacl, acldefault('d', here.datdba))) a
            where a.grantee = 0 and a.privilege_type = 'CONNECT'
        ) then
            execute format('revoke connect on database %I from public', here.datname);
        end if;
        for login in
            select r.rolname
            from pg_roles r
            where r.rolcanlogin and not r.rolsuper and not has_database_privilege(r.oid, here.oid, 'connect')
                and exists (select from unnest({roles}::name[]) s where pg_has_role(r.oid, s, 'member'))
                and not exists (
                    select from pg_database d cross join aclexplode(d.datacl) a
                    where d.oid <> here.oid and a.grantee = 'bds_owner'::regrole and a.privilege_type = 'CREATE'
                        and has_database_privilege(r.oid, d.oid, 'connect')
                )
        loop
            execute format('grant connect on database %I to %I', here.datname, login);
        end loop;
        if not has_database_privilege('bds_owner', here.oid, 'create') then
            execute format('grant create on database %I to bds_owner', here.datname);
        end if;
    end
    $$
"""


class MigrationError(Exception):
    """The database and `sql/` do not fit together, or a file failed: the message says which."""


def require_encoding(connection: psycopg.Connection[Any]) -> None:
    """Raises MigrationError unless the database has the encoding UTF8; the locale may be any."""
    if (encoding := connection.info.parameter_status("server_encoding")) != "UTF8":
        name = sql.Identifier(connection.info.dbname).as_string()
        mend = "an encoding cannot be changed, so make another database: create database ... template template0 encoding 'UTF8'"
        raise MigrationError(f"database {name} has the encoding {encoding}, expected UTF8: {mend} locale 'C.UTF-8'")


def ensure(connection: psycopg.Connection[Any]) -> None:
    """Make the roles, and grant them to the owner, if anything is missing.

    Raises MigrationError, with nothing written, if the session may not do that or does not own the database.
    """
    database, user, owner, owns, _ = _situation(connection)
    if not owns:
        mend = sql.SQL("alter database {} owner to {}").format(sql.Identifier(database), sql.Identifier(user)).as_string()
        raise MigrationError(f"{user} does not own database {database}, which belongs to {owner}: migrate as its owner, or {mend}")
    for left in reversed(range(TRIES)):
        if not (missing := _missing(connection)):
            return
        try:
            with connection.transaction():
                connection.execute(_text(connection, by_owner=True).encode())
        except psycopg.errors.InsufficientPrivilege as error:
            what = f"{', '.join(missing)}; {error.diag.message_primary}"
            raise MigrationError(
                f"{user} may not make the roles of the service (missing: {what}): "
                "an administrator runs what `bds migrate --roles` prints, then repeat this command"
            ) from error
        except (psycopg.errors.UniqueViolation, psycopg.errors.InternalError_):  # another database of the cluster did it first
            if not left:
                raise


def close(connection: psycopg.Connection[Any]) -> None:
    """Take CONNECT from PUBLIC, and grant it to the service's logins but those of another service in the cluster."""
    connection.execute(sql.SQL(CLOSE).format(roles=list(ROLES)))


def statements(url: str) -> str:
    """The statements with which an administrator makes the roles and grants them to the login of `url`, any number of times."""
    with psycopg.connect(url, autocommit=True, **parameters(url)) as connection:
        require_encoding(connection)
        return f"begin;\n{_text(connection, by_owner=False)}\ncommit;\n"


def _situation(connection: psycopg.Connection[Any]) -> tuple[Any, ...]:
    row = connection.execute(SITUATION.encode()).fetchone()
    assert row is not None
    return tuple(row)


def _missing(connection: psycopg.Connection[Any]) -> list[str]:
    """What the session lacks: roles, and memberships of roles and of its own."""
    pairs = [(member, role) for role, members in MEMBERS.items() for member in members]
    rows = connection.execute(MISSING.encode(), (list(FOR_OWNERS), *map(list, zip(*pairs, strict=True)))).fetchall()
    return [what for (what,) in rows]


def _text(connection: psycopg.Connection[Any], *, by_owner: bool) -> str:
    """The statements; by_owner: for the session itself, which has the right to grant the roles that it makes."""
    database, user, _, owns, is_superuser = _situation(connection)
    owner, place = sql.Identifier(user).as_string(), sql.Identifier(database).as_string()
    options = "inherit true, set true" if by_owner else "admin true, inherit true, set true"
    lines = [f"-- The roles of the service, for {owner}, the owner of database {place}; may be run again."]
    for role, purpose in ROLES.items():
        lines += [
            f"-- {role}: {purpose}",
            f"do $$ begin create role {role} nologin; exception when duplicate_object or unique_violation then null; end $$;",
        ]
    lines += [f"grant {role} to {', '.join(members)};" for role, members in MEMBERS.items()] + [ANALYST]
    if not is_superuser:
        lines.append(f"grant {', '.join(FOR_OWNERS)} to {owner} with {options};")
    if not owns:
        lines.append(f"alter database {place} owner to {owner};")
    for statement, without in OPTIONAL.items():
        lines += [
            f"do $$ begin {statement};",
            "exception when insufficient_privilege or unique_violation or internal_error then",
            f"    raise notice 'not granted: %; {without}', sqlerrm; end $$;",
        ]
    return "\n".join(lines)
