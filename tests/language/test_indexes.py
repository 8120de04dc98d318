"""Conditions in forms that an index can serve: PostgreSQL's plan has them as conditions of the index, not as a filter."""

from __future__ import annotations

import pytest

from app.language import sql
from tests.language.conftest import Company

FORMS = [
    # entity, $filter, what the index is searched by
    ("products", "id eq 3", "(id = '3'::bigint)"),
    ("products", "id in (1,3)", "(id = ANY ("),
    ("products", "code eq 'A'", "(code = 'A'::text)"),
    ("products", "code in ('A','B')", "(code = ANY ("),
    ("products", "code gt 'A' and code le 'C'", "(code > 'A'::text) AND (code <= 'C'::text)"),
    ("products", "startswith(code,'A%_')", "(code >= 'A%_'::text) AND (code < 'A%`'::text)"),
    ("products", "category/id eq 2", "(category_id = '2'::bigint)"),
    ("products", "category eq null", "(category_id IS NULL)"),
]


@pytest.mark.parametrize(("entity", "filter", "searched"), FORMS, ids=[form[1] for form in FORMS])
def test_an_index_serves(acme: Company, entity: str, filter: str, searched: str) -> None:
    statement = sql.count(acme.query(entity, filter=filter), "acme")
    with acme.connection.transaction(force_rollback=True):
        acme.connection.execute("set local enable_seqscan = off")
        acme.connection.execute("set local enable_bitmapscan = off")
        plan = acme.connection.execute(b"explain (costs off) " + statement.text.as_string().encode(), statement.parameters)
        conditions = [line for (line,) in plan if "Index Cond" in line]
    assert any(searched in line for line in conditions), conditions
