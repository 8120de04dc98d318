"""Administration of places, for commands: adding one, choosing one, creating companies there, a statement or a file at each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString

import psycopg

from app.database.caller import settings
from app.database.connections import connect, one_row, one_value
from app.database.servers.directory import HOME
from app.database.servers.place import STATE, difference
from app.errors import ServiceError
from app.places import cluster
from app.places.cluster import ADD, BECOME, migrate_for

SIZE: LiteralString = "select pg_database_size(current_database())"
COMPANIES: LiteralString = "select count(*) from bds.residents"

CREATE: LiteralString = "select bds.create_company(%s, %s, %s)"
JOIN: LiteralString = "select bds_service.join_company(%s)"
DELETE: LiteralString = "select table_name, rows from bds.delete_company(%s)"
SETTLED: LiteralString = """
    select min(c.id)
    from bds.companies c left join bds.directory d on d.company_id = c.id
    where coalesce(d.place, 'home') = %s and d.phase is null
"""
SETTING: LiteralString = "select set_config(%s, %s, false)"
LAST_GENERATION: LiteralString = "select bds_service.last_generation(%s)"
RESIDENTS: LiteralString = """
    select c.id
    from bds.companies c left join bds.directory d on d.company_id = c.id
    where coalesce(d.place, 'home') = %(name)s or d.source = %(name)s or d.target = %(name)s
    order by c.id
"""


def add(home_url: str, name: str, url: str) -> list[str]:
    """Make a database the place of a name: migrate it, note its name there, then at home; returns what the migration applied.

    Raises ServiceError if it is another place already, has companies or altered tables; psycopg.Error, MigrationError.
    """
    with connect(home_url, "bds_owner") as home:
        if home.execute("select 1 from bds.places where name = %s", (name,)).fetchone():
            raise ServiceError("conflict", f"there is a place {name!r} already")
        applied = migrate_for(name, url)
        with connect(url, "bds_owner") as place, place.transaction():
            called, companies = one_row(place, f"select s.place, ({COMPANIES}) from bds.settings s for update")
            if called not in (HOME, name):
                raise ServiceError("conflict", f"this database is the place {called!r} already")
            if companies and called == HOME:
                raise ServiceError("conflict", f"expected a database without companies, this one has {companies}")
            secret = one_value(place, BECOME, name)
        home.execute(ADD, (name, url, secret))
    return applied


def describe(urls: dict[str, str]) -> list[tuple[str, ...]]:
    """A line for each place: name, companies, size, state."""
    with connect(urls[HOME]) as home:
        expected = one_row(home, STATE)
        draining = {name for (name,) in home.execute("select name from bds.places where is_draining")}
    return [_describe(name, url, expected, name in draining) for name, url in urls.items()]


def _describe(name: str, url: str, home: tuple[Any, ...], is_draining: bool) -> tuple[str, ...]:
    try:
        with connect(url) as place:
            problem = difference(name, one_row(place, STATE), home)
            companies, size = one_row(place, f"select ({COMPANIES}), ({SIZE})")
    except psycopg.Error as error:
        return name, "", "", f"does not answer: {type(error).__name__}"
    return name, f"{companies:,}", f"{size / 1e6:,.0f} MB", problem or ("draining" if is_draining else "serves")


def choose(urls: dict[str, str], company: str, *, but: Sequence[str] = ()) -> str:
    """The place for a company: where Citus has its shard, else the one with the fewest bytes that answers and is not draining.

    but: not one of these.  Raises ServiceError if there is none.
    """
    if len(urls) == 1 and HOME not in but:
        return HOME
    with connect(urls[HOME]) as home:
        if (of_citus := cluster.place_of(home, company)) and of_citus not in but:
            return of_citus
        rows = home.execute("select name from bds.places where not is_draining and name <> all (%s)", (list(but),)).fetchall()
    sizes = {}
    for (name,) in rows:
        try:
            with connect(urls[name]) as place:
                sizes[name] = one_value(place, SIZE)
        except psycopg.OperationalError:
            continue
    if not sizes:
        names = f" but {' and '.join(but)}" if but else ""
        raise ServiceError(
            "conflict",
            f"no place{names} can take {company}: add one, let one get companies again with bds place drain NAME --end, or name one"
            " with --to",
        )
    return str(min(sizes, key=lambda name: sizes[name]))


def set_draining(urls: dict[str, str], name: str, is_draining: bool) -> None:
    """Note whether a place gets no further companies.  Raises ServiceError if there is no such place."""
    if name not in urls:
        raise ServiceError("not_found", f"no such place: {name!r}")
    with connect(urls[HOME], "bds_owner") as home:
        home.execute("update bds.places set is_draining = %s where name = %s", (is_draining, name))


def require_target(urls: dict[str, str], name: str) -> None:
    """Raises ServiceError if a company lives at a place and no other place but home could take it."""
    with connect(urls[HOME]) as home:
        company = one_value(home, SETTLED, name)
    if company is not None:
        choose(urls, company, but=others_than(name))


def others_than(name: str) -> tuple[str, ...]:
    """What a company that leaves a place may not go to: home is left alone unless it is named, for it has the accounts of all."""
    return (name,) if name == HOME else (name, HOME)


def find_residents(urls: dict[str, str], name: str) -> list[str]:
    """The companies that a place has, and those that move from or to it."""
    with connect(urls[HOME]) as home:
        return [company for (company,) in home.execute(RESIDENTS, {"name": name})]


def create_company(
    urls: dict[str, str],
    company: str,
    tenant: str | None = None,
    place: str | None = None,
    *,
    session: str | None = None,
    is_joined: bool = False,
) -> str:
    """Create a company at a place (by default the one that `choose` gives), which is returned.

    session: of an administrator, for whom the service acts; None: the login is the operator.  is_joined: whether the administrator
    gets access to it.  Raises ServiceError, psycopg.Error; then repeating it is safe.
    """
    if place is None:
        place = choose(urls, company)
    elif len(urls) > 1:
        cluster.require_placement(urls[HOME], company, place)
    with _act(urls[HOME], session) as home, home.transaction():
        home.execute(CREATE, (company, tenant, place))
        if is_joined:
            home.execute(JOIN, (company,))
        if place != HOME:
            with _at(urls, place, session) as there:
                if problem := difference(place, one_row(there, STATE), one_row(home, STATE)):
                    raise ServiceError("conflict", f"the place {place} {problem}", target="place")
                _tell_generation(home, there, company)
                there.execute(CREATE, (company, tenant, None))
    return place


def delete_company(urls: dict[str, str], company: str, *, session: str | None = None) -> list[tuple[str, int]]:
    """Delete a company at home and at its place; returns the number of rows of each table.

    session: as for create_company.  Raises ServiceError, psycopg.Error; then repeating it is safe.
    """
    with _act(urls[HOME], session) as home, home.transaction():
        home.execute("set local idle_in_transaction_session_timeout = 0")  # while the place deletes
        place = home.execute("select place from bds.directory where company_id = %s", (company,)).fetchone() or (HOME,)
        if place[0] == HOME:
            rows = home.execute(DELETE, (company,)).fetchall()
        else:
            with _at(urls, place[0], session) as there:
                _tell_generation(there, home, company)
                rows = home.execute(DELETE, (company,)).fetchall()
                release = one_value(home, "select current_setting('bds.release')")
                there.execute(SETTING, ("bds.release", release))
                try:
                    rows = there.execute(DELETE, (company,)).fetchall() + rows
                except psycopg.Error as error:
                    if error.sqlstate != "BD002":  # an earlier call did not get to home
                        raise
        home.execute("select pg_notify('bds_places', %s)", (company,))
    return rows


def _tell_generation(known: psycopg.Connection[Any], told: psycopg.Connection[Any], company: str) -> None:
    """Tell a server, which creates or deletes a company, of the last generation that another one knows of it.

    So home knows those of companies that were deleted elsewhere, and the place of a new one begins after them.
    """
    told.execute(SETTING, ("bds.generation", str(one_value(known, LAST_GENERATION, company) or "")))


def _act(url: str, session: str | None) -> psycopg.Connection[Any]:
    """A connection as the operator, or as the service for an administrator's session."""
    connection = connect(url, "bds_service" if session else None)
    connection.execute(SETTING, ("bds.session", session or ""))
    for name, value in zip(("bds.actor", "bds.caller"), settings(), strict=True):
        connection.execute(SETTING, (name, value))
    return connection


def _at(urls: dict[str, str], place: str, session: str | None) -> psycopg.Connection[Any]:
    """The same at a place that has to answer.  Raises ServiceError(conflict)."""
    try:
        return _act(urls[place], session)
    except (KeyError, psycopg.OperationalError) as error:
        raise ServiceError("conflict", f"the place {place} does not answer", target="place") from error


def run_file(urls: dict[str, str], text: str) -> None:
    """Run statements at every place, home last, each in one transaction as bds_owner.  Raises ServiceError that names the place."""
    for name in [*(name for name in urls if name != HOME), HOME]:
        with connect(urls[name], "bds_owner") as place, place.transaction():
            try:
                place.execute(text.encode())
            except psycopg.Error as error:
                raise ServiceError("conflict", f"{name}: {error.diag.message_primary or error}") from error
    if cluster.is_coordinator(urls[HOME]):  # tables that are new, columns of others
        for _ in cluster.arrange(urls[HOME]):
            pass
