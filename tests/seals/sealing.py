"""A company with sealed records, and what is said of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from tests.conftest import Operator

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "verify_seals.py"
SEAL = "select done, problem from bds.maintain(seal_age => '0') where step = 'seal records'"
CHANGE = "update bds.change_log set {} where company_id = 'acme' and id = 6"
INSERT = (
    "insert into bds.change_log (row_id, transaction_id, row_hash, operation, company_id, entity, actor, db_user, created_at, id)"
    " select 1, '1', 1, 'create', 'acme', 'units', 'x', 'x', {}, {}"
)
ERASE = "select bds.erase('acme', 'customers', 1, '{email}');"
RANGES = "select first_id, last_id from bds.seals where company_id = 'acme' and log = 'changes' order by 1"
LOG = "select kind, first_id, last_id from bds.verify_log(%s, log => %s) order by first_id, kind, last_id"

spec = importlib.util.spec_from_file_location("verify_seals", SCRIPT)
assert spec and spec.loader
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)


def seal(operator: Operator) -> None:
    [(_, problem)] = operator.rows(SEAL)
    assert problem is None


def fill(operator: Operator) -> None:
    """acme has the sealed changes 1-4, 5-8 and 9-12, and two acts of administration."""
    for company in ("acme", "beta"):
        operator.company(company)
    values = "select n, 'C' || n, 'Name ' || n, 'é\"\\' || n || chr(10), null from generate_series(1, 4) n"
    operator.write("acme", f"insert into data.customers (id, code, name, email, phone) {values}", actor="änna\n5 x")
    operator.write("beta", f"insert into data.customers (id, code, name, email, phone) {values}")
    seal(operator)
    operator.write("acme", "update data.customers set email = id || '@a' where company_id = 'acme'")
    seal(operator)
    operator.write("acme", "update data.customers set email = null, phone = '5' where company_id = 'acme' and id <= 3")
    operator.write("acme", "delete from data.customers where company_id = 'acme' and id = 4")
    for name in ("one", "two"):
        operator.write("acme", f"select bds.put_mapper('acme', '{name}', 'csv', 'text')")
        seal(operator)


def verified(operator: Operator, company: str = "acme", log: str = "changes") -> list[tuple[Any, ...]]:
    """What bds.verify_log says, which is what the script says."""
    found = operator.rows(LOG, (company, log))
    with operator.connection.transaction():
        said = [row[:3] for row in script.verify(operator.connection, company, log)]
    assert sorted(said[:-1], key=lambda row: (row[1], row[0], row[2])) == found
    return found
