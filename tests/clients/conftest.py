"""A running service with a few rows for the clients of others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.service.serving import Service, running


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url) as service:
        yield service


def rows(service: Service) -> None:
    """Two categories, three products, three variants."""
    service.operator.write(
        "demo",
        """
        insert into data.categories (company_id, id, code, name) values ('demo', 1, 'T', 'Tools'), ('demo', 2, 'F', 'Fixings');
        insert into data.products (company_id, id, code, name, price, category_id) values
            ('demo', 1, 'A', 'Hammer', 12.5, 1), ('demo', 2, 'B', 'Drill', 0.5, 1), ('demo', 3, 'C', 'Nail', 2.5, null);
        insert into data.product_variants (company_id, id, code, price, product_id) values
            ('demo', 1, 'A-1', 1, 1), ('demo', 2, 'A-2', 3, 1), ('demo', 3, 'B-1', 2, 2);
        """,
    )
