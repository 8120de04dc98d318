"""`bds query` has to tell of every table whose rows it has: those of companies, of home alone, or of each place."""

from __future__ import annotations

from app.places.everywhere import OF_COMPANIES, OF_HOME
from tests.conftest import Operator

# the registry, which is the same everywhere; what a place has for itself
OF_EACH_PLACE = {
    *("column_history", "entities", "fields", "generated", "linkage_weights", "navigations"),
    *("log_comparisons", "problem_counts", "settings"),
}
TABLES = """
    select c.relname from pg_class c
    where c.relnamespace = 'bds'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
"""
NOT_DUMPED = "select t.table_name::regclass::text from bds_operation.company_tables() t where not t.is_dumped and starts_with(t.name, 'bds.')"


def test_a_new_table_is_of_companies_of_home_or_of_each_place(operator: Operator) -> None:
    tables = {name for (name,) in operator.rows(TABLES)}
    of_companies = {name for (name,) in operator.rows(OF_COMPANIES.replace("%s", f"'{{{','.join(OF_HOME)}}}'"))}
    assert tables >= OF_HOME | OF_EACH_PLACE, "a table that is gone"
    assert tables - of_companies - OF_HOME == OF_EACH_PLACE


def test_a_table_with_companies_that_moves_with_none_is_of_home(operator: Operator) -> None:
    """Findings about the log are of the place where it was compared."""
    assert {name.removeprefix("bds.") for (name,) in operator.rows(NOT_DUMPED)} - OF_HOME == {"log_findings"}
