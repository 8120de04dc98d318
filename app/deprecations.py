"""What is deprecated, in one table, from which all signals are made: headers, OpenAPI, notices of SQL, warnings of commands.

docs/versions.md has the rule: at least one minor version and six months lie between the deprecation and the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from email.utils import format_datetime

LEAST = timedelta(days=183)  # from the deprecation to the end


@dataclass(frozen=True, slots=True)
class Deprecation:
    """One deprecated thing.

    what: a route as app/service/routes.py has it with its method (`GET /c/{companyId}/old`), a function (`bds.old`), which calls
    bds_impl.tell_deprecated with that name, a setting (`BDS_OLD`), or a command (`bds old`); version: the first one in which it is
    deprecated; since, until: its dates; instead: what to use.
    """

    what: str
    version: str
    since: date
    until: date
    instead: str

    def __post_init__(self) -> None:
        if self.until - self.since < LEAST:
            raise ValueError(f"{self.what}: expected {LEAST.days} days or more from {self.since} to its end, got {self.until}")

    @property
    def message(self) -> str:
        return f"{self.what} is deprecated since version {self.version} and ends on {self.until}: use {self.instead}"

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of RFC 9745 and RFC 8594."""
        return {
            "Deprecation": f"@{int(_midnight(self.since).timestamp())}",
            "Sunset": format_datetime(_midnight(self.until), usegmt=True),
        }


DEPRECATED: tuple[Deprecation, ...] = ()


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def find(what: str) -> Deprecation | None:
    """The deprecation of a route, function, setting or command; None if it is not deprecated."""
    return next((each for each in DEPRECATED if each.what == what), None)


def warnings(environ: Mapping[str, str], command: str) -> list[str]:
    """The messages for a command that runs with some settings."""
    return [each.message for each in DEPRECATED if each.what == f"bds {command}" or environ.get(each.what)]


def statement() -> str:
    """The function with which deprecated functions of SQL tell that they are: a part of the folder 05_impl of sql/."""
    rows = ",\n".join(f"        ({_literal(each.what)}, {_literal(each.message)})" for each in DEPRECATED)
    found = f"    select m.message into told from (values\n{rows}\n    ) m (what, message) where m.what = name;\n"
    return f"""\
create or replace function bds_impl.tell_deprecated(name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    told text;
begin
{found if DEPRECATED else ""}    if told is not null then
        raise notice using errcode = '01P01', message = told;
    end if;
end
$$;
comment on function bds_impl.tell_deprecated(text) is 'Raises a notice if the function of that name is deprecated';
"""


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
