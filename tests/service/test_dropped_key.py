"""A lookup of a table whose unique key its owner has dropped: several rows have one value."""

from __future__ import annotations

import json

from tests.service.serving import running


def test_a_read_by_a_value_of_several_rows_is_a_conflict(database_url: str) -> None:
    with running(database_url) as service:
        service.operator.connection.execute("alter table data.units drop constraint units_company_id_code_key")
        for _ in range(2):
            service.operator.write("demo", "insert into data.units (company_id, code, name) values ('demo', 'A', 'unit')")
        for path in ("/c/demo/units/code:A", "/c/demo/units/code:A/history", "/api/odata/demo/units(code='A')"):
            reply = service.ask(path)
            assert reply.status == 409, (path, reply.body)
            body = json.loads(reply.body)
            assert "not unique any more" in (body.get("detail") or body["error"]["message"])
        assert service.ask("/c/demo/units/1").status == 200
