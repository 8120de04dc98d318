"""The service runs as a plain login with membership in the service's roles only, as the README recommends."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.auth.client import ask, bearer, make_user, sign_in
from tests.conftest import Operator
from tests.service.serving import running

LOGIN = "bds_login_of_a_test"


@pytest.fixture
def plain_url(database_url: str, operator: Operator) -> Iterator[str]:
    operator.connection.execute(f"create role {LOGIN} login".encode())
    operator.connection.execute(f"grant bds_reader, bds_writer, bds_service, bds_worker to {LOGIN}".encode())
    yield make_conninfo(database_url, user=LOGIN)
    operator.connection.execute(f"drop role {LOGIN}".encode())


def test_a_login_that_is_not_a_superuser_serves_everything(database_url: str, plain_url: str) -> None:
    with running(plain_url, operator_url=database_url) as service:
        document = {"units": [{"code": "PCE", "name": "piece"}], "products": [{"code": "A", "name": "a", "unit": "code:PCE"}]}
        report = ask(service, "/api/demo/import", "POST", bearer(service.key), document)
        assert (report.status, report.json["state"]) == (200, "completed"), report.body
        make_user(service)
        assert ask(service, "/c/demo/products", headers=sign_in(service).cookies).json["data"][0]["code"] == "A"
        assert service.odata("/products/$count").body == b"1"
        assert (
            ask(
                service,
                "/api/demo/mappers/m",
                "PUT",
                {**bearer(service.key), "Content-Type": "text/plain"},
                "type json\nunits = '$.u[*]' {\n code = 'c'\n}\n",
            ).status
            == 201
        )
        hook = {"entity": "units", "url": "https://example.com/", "action": "webhook"}
        assert ask(service, "/c/demo/hooks", "POST", bearer(service.key), hook).status == 201
        assert ask(service, "/metrics").status == 200


def test_that_login_has_no_operator_rights(plain_url: str) -> None:
    with psycopg.connect(plain_url, autocommit=True) as connection:
        for statement in (
            "select bds.create_company('mine')",
            "set role bds_operator",
            "set role bds_owner",
            "select * from bds.secrets",
        ):
            with pytest.raises(psycopg.Error) as refused:
                connection.execute(statement.encode())
            assert refused.value.sqlstate in ("42501", "BD001"), statement
