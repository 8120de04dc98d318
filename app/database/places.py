"""Administration of places, for commands: adding one, choosing one, creating companies there, a statement or a file at each."""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg

from app.database import cluster, migrate
from app.database.connections import connect
from app.database.directory import HOME
from app.database.place import STATE, difference
from app.errors import ServiceError

SIZE: LiteralString = "select pg_database_size(current_database())"
COMPANIES: LiteralString = "select count(*) from bds.clocks where departed_at is null"

CREATE: LiteralString = "select bds.create_company(%s, %s, %s)"
DELETE: LiteralString = "select table_name, rows from bds.delete_company(%s)"
RESIDENTS: LiteralString = """
    select c.id
    from bds.companies c left join bds.directory d on d.company_id = c.id
    where coalesce(d.place, 'home') = %(name)s or d.source = %(name)s
    order by c.id
"""


def add(home_url: str, name: str, url: str) -> list[str]:
    """Make a database the place of a name: migrate it, note its name there, then at home; returns what the migration applied.

    Raises ServiceError if it is another place already, or has companies; psycopg.Error, MigrationError.
    """
    with connect(home_url, "bds_owner") as home:
        if home.execute("select 1 from bds.places where name = %s", (name,)).fetchone():
            raise ServiceError("conflict", f"there is a place {name!r} already")
        applied = migrate.migrate(url)
        with connect(url, "bds_owner") as place, place.transaction():
            called, companies = _row(place, f"select s.place, ({COMPANIES}) from bds.settings s for update")
            if called not in (HOME, name):
                raise ServiceError("conflict", f"this database is the place {called!r} already")
            if companies and called == HOME:
                raise ServiceError("conflict", f"expected a database without companies, this one has {companies}")
            place.execute("update bds.settings set place = %s", (name,))
        home.execute("insert into bds.places (name, url) values (%s, %s)", (name, url))
        home.execute("select pg_notify('bds_places', '')")
    return applied


def describe(urls: dict[str, str]) -> list[tuple[str, ...]]:
    """A line for each place: name, companies, size, state."""
    with connect(urls[HOME]) as home:
        expected = _row(home, STATE)
        draining = {name for (name,) in home.execute("select name from bds.places where is_draining")}
    return [_describe(name, url, expected, name in draining) for name, url in urls.items()]


def _describe(name: str, url: str, home: tuple[Any, ...], is_draining: bool) -> tuple[str, ...]:
    try:
        with connect(url) as place:
            problem = difference(name, _row(place, STATE), home)
            companies, size = _row(place, f"select ({COMPANIES}), ({SIZE})")
    except psycopg.Error as error:
        return name, "", "", f"does not answer: {type(error).__name__}"
    return name, f"{companies:,}", f"{size / 1e6:,.0f} MB", problem or ("draining" if is_draining else "serves")


def choose(urls: dict[str, str], company: str, *, but: str | None = None) -> str:
    """The place for a company: where Citus has its shard, else the one with the fewest bytes that answers and is not draining.

    but: not this one.  Raises ServiceError if there is none.
    """
    if len(urls) == 1:
        return HOME
    with connect(urls[HOME]) as home:
        if not but and (of_citus := cluster.place_of(home, company)):
            return of_citus
        rows = home.execute("select name from bds.places where not is_draining and name is distinct from %s", (but,)).fetchall()
    sizes = {}
    for (name,) in rows:
        try:
            with connect(urls[name]) as place:
                sizes[name] = _row(place, SIZE)[0]
        except psycopg.OperationalError:
            continue
    if not sizes:
        raise ServiceError("conflict", "no place can take a company: add one, or end the draining of one")
    return str(min(sizes, key=lambda name: sizes[name]))


def drain(urls: dict[str, str], name: str) -> list[str]:
    """Note that a place gets no further companies; returns those that it has, and that move from or to it."""
    if name not in urls:
        raise ServiceError("not_found", f"no such place: {name!r}")
    with connect(urls[HOME], "bds_owner") as home:
        home.execute("update bds.places set is_draining = true where name = %s", (name,))
        return [company for (company,) in home.execute(RESIDENTS, {"name": name})]


def create_company(urls: dict[str, str], company: str, tenant: str | None, place: str) -> None:
    """Create a company at a place.  Raises psycopg.Error; then repeating it is safe."""
    with connect(urls[HOME]) as home, home.transaction():
        home.execute(CREATE, (company, tenant, place))
        if place != HOME:
            with connect(urls[place]) as there:
                there.execute(CREATE, (company, tenant, None))


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


def delete_company(urls: dict[str, str], company: str) -> list[tuple[str, int]]:
    """Delete a company at its place and at home; returns the number of rows of each table.  Raises psycopg.Error."""
    with connect(urls[HOME], "bds_owner") as home:
        row = home.execute("select place, phase from bds.directory where company_id = %s", (company,)).fetchone()
        if row and row[1]:
            raise ServiceError(
                "conflict", f"{company} is being moved: expected bds company move {company} --resume or --abort first"
            )
        rows: list[tuple[str, int]] = []
        if row and row[0] != HOME:
            with connect(urls[row[0]]) as place:
                try:
                    rows = place.execute(DELETE, (company,)).fetchall()
                except psycopg.Error as error:
                    if error.sqlstate != "BD002":  # an earlier call did not get to home
                        raise
        rows += home.execute(DELETE, (company,)).fetchall()
        home.execute("select pg_notify('bds_places', %s)", (company,))
    return rows


def _row(connection: psycopg.Connection[Any], query: str) -> tuple[Any, ...]:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return tuple(row)
