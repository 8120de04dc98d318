"""Change sets: their counts are those of the log, whoever has counted, and whenever."""

from __future__ import annotations

import json
import random
import uuid
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.conftest import Operator

Sets = dict[str, tuple[Any, ...]]

FOUND = """
    select coalesce(change_set_id::text, 'changes from ' || first_id), kind, actor, first_id, last_id, first_at, last_at, entities
    from bds.change_sets where company_id = 'acme' order by last_id desc
"""
LOG = """
    select coalesce(change_set_id::text, transaction_id::text), change_set_id is null, id, entity, operation, actor, created_at
    from bds.changes where company_id = 'acme' order by id
"""
WORDS = {"create": "created", "update": "updated", "delete": "deleted"}


@pytest.fixture
def acme(operator: Operator) -> Iterator[Operator]:
    operator.company("acme")
    yield operator


def found(operator: Operator) -> list[tuple[Any, ...]]:
    return operator.rows(FOUND)


def of_the_log(operator: Operator) -> list[tuple[Any, ...]]:
    """What bds.change_sets should have, from each record of the log."""
    sets: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for key, *record in operator.rows(LOG):
        sets[key].append(tuple(record))
    imports = {str(id): reverts for id, reverts in operator.rows("select id, reverts from bds.imports where company_id = 'acme'")}
    expected = []
    for key, records in sets.items():
        counts: dict[str, dict[str, int]] = defaultdict(lambda: {"created": 0, "updated": 0, "deleted": 0})
        for _, _, entity, operation, *_ in records:
            counts[entity][WORDS[operation]] += 1
        alone, first, *_, first_at = records[0]
        *_, actor, last_at = records[-1]
        kind = "session" if key not in imports else "import" if imports[key] is None else "revert"
        name = f"changes from {first}" if alone else key
        expected.append((name, kind, actor, first, records[-1][1], first_at, last_at, dict(counts)))
    return sorted(expected, key=lambda each: -each[4])


def test_first(acme: Operator) -> None:
    acme.write("acme", "insert into data.units (code, name) values ('A', 'a'), ('B', 'b')", actor="ann")
    assert found(acme) == of_the_log(acme)
    acme.rows("select bds.import_document('acme', %s)", (json.dumps({"products": [{"code": "X", "name": "x"}]}),))
    assert found(acme) == of_the_log(acme)
    assert acme.rows("select count(*) from bds.counted_change_sets") == [(1,)]
    print(acme.rows("select * from bds.maintain()"))
    assert acme.rows("select count(*) from bds.counted_change_sets") == [(2,)]
    assert found(acme) == of_the_log(acme)
