"""Mappers in the database: each session sees those of its company, and only the service's functions change them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.conftest import Operator

Connect = Callable[..., psycopg.Connection[Any]]


@pytest.fixture(scope="module")
def template(of_units: str) -> str:
    return of_units


def test_each_company_sees_its_own(operator: Operator, connect: Connect) -> None:
    for company in ("a", "b"):
        operator.company(company)
        operator.write(company, "select bds.put_mapper(%s, 'm', 'csv', %s)", (company, f"of {company}"))
    for role in ("bds_reader", "bds_writer"):
        assert connect(role, "a").execute("select text from bds.mappers").fetchall() == [("of a",)]
        assert connect(role).execute("select text from bds.mappers").fetchall() == []
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connect(role, "a").execute("update bds.mappers set text = ''")


def test_the_service_writes_for_the_company_that_it_has_named(operator: Operator, connect: Connect) -> None:
    for company in ("a", "b"):
        operator.company(company)
    service = connect("bds_service", "a")
    put = "select bds.put_mapper(%s, %s, 'csv', 'text', 'me')"
    assert [service.execute(put, ("a", "m")).fetchone() for _ in range(2)] == [(True,), (False,)]
    for statement in (put, "select bds.delete_mapper(%s, %s)"):
        with pytest.raises(psycopg.Error) as refused:
            service.execute(statement, ("b", "m"))
        assert refused.value.sqlstate == "BD001"
    for name in ("", "-m", "a/b", "x" * 64, None):
        with pytest.raises(psycopg.Error) as refused:
            service.execute(put, ("a", name))
        assert refused.value.sqlstate == "BD005"
    assert [service.execute("select bds.delete_mapper('a', 'm')").fetchone() for _ in range(2)] == [(True,), (False,)]
