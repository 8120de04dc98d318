"""What a superuser changes in logs and seals is named as a fault, or has another head."""

from __future__ import annotations

import psycopg
import pytest

from tests.conftest import Operator, not_divided
from tests.seals.sealing import CHANGE, INSERT, SEAL, verified

REHASH = """
    update bds.seals s set hash = bds_seals.seal_hash(s) where first_id = 5 and company_id = 'acme' and log = 'changes'
"""
FORGED = """
    update bds.seals s set content_hash = m.hash, sealed_hash = m.hash from bds.seals o cross join lateral bds_seals.measure(o) m
    where s.company_id = 'acme' and s.log = 'changes' and s.first_id = 5 and (o.company_id, o.log, o.first_id) = ('acme', 'changes', 5)
"""
RECHAINED = """
    update bds.seals s set previous = o.hash from bds.seals o
    where (s.company_id, s.log, s.first_id, o.company_id, o.log, o.first_id) = ('acme', 'changes', 9, 'acme', 'changes', 5);
    update bds.seals s set hash = bds_seals.seal_hash(s) where first_id = 9 and company_id = 'acme' and log = 'changes'
"""
ACT = "update bds.company_audit set {} where company_id = 'acme' and id = 2"
DELETE = "delete from bds.{} where company_id = 'acme' and {};"
GONE = DELETE.format("change_log", "id between 5 and 8")
FORGET = "update bds.change_months set first_id = 9 where company_id = 'acme';"  # then 1-8 are not kept
NEW_HASH = "update bds.seals set content_hash = 'x' where company_id = 'acme' and log = 'changes' and first_id = 5;"


def act(action: str, thing: str, detail: str, id: int | None = None) -> str:
    last = "(select coalesce(max(id), 0) + 1 from bds.company_audit where company_id = 'acme')"
    return (
        "insert into bds.company_audit (company_id, at, actor, db_user, action, object, detail, id)"
        f" values ('acme', clock_timestamp(), 'x', 'x', '{action}', '{thing}', '{detail}', {id or last});"
    )


def expiry(ids: str, thing: str = "changes") -> str:
    return act("expire", thing, f"{{{ids}}}")


TAMPERED: dict[str, tuple[str, list[tuple[str, int, int]]]] = {  # of the changes of acme
    "a value": (CHANGE.format("""old = old || '{"email": "x"}'"""), [("altered", 5, 8)]),
    "a column of a value": (CHANGE.format("old = old - 'email'"), [("altered", 5, 8)]),
    "digits of a number": (
        """update bds.change_log set old = old || '{"id": 4.0}' where company_id = 'acme' and id = 12""", [("altered", 9, 12)]
    ),
    "an actor": (CHANGE.format("actor = 'nobody'"), [("altered", 5, 8)]),
    "a login": (CHANGE.format("db_user = 'nobody'"), [("altered", 5, 8)]),
    "a time": (CHANGE.format("created_at = created_at + interval '1 microsecond'"), [("altered", 5, 8)]),
    "the time of before": (CHANGE.format("last_updated_at = 'infinity'"), [("altered", 5, 8)]),
    "a change set": (CHANGE.format("change_set_id = gen_random_uuid()"), [("altered", 5, 8)]),
    "a transaction": (CHANGE.format("transaction_id = '1'"), [("altered", 5, 8)]),
    "a row": (CHANGE.format("row_id = 7"), [("altered", 5, 8)]),
    "an entity": (CHANGE.format("entity = 'units'"), [("altered", 5, 8)]),
    "collections": (CHANGE.format("collections = '{orders}'"), [("altered", 5, 8)]),
    "the hash of a row": (CHANGE.format("row_hash = 5"), [("altered", 5, 8)]),
    "an operation": (
        "update bds.change_log set operation = 'create', old = null where company_id = 'acme' and id = 12 and row_hash is not null;"
        + "update bds.change_log set operation = 'create', old = null, collections = null where company_id = 'acme' and id = 9",
        [("altered", 9, 12)],
    ),
    "two records that change places": (
        "update bds.change_log set id = 100 where company_id = 'acme' and id = 6;"
        "update bds.change_log set id = 6 where company_id = 'acme' and id = 7;"
        "update bds.change_log set id = 7 where company_id = 'acme' and id = 100",
        [("altered", 5, 8)],
    ),
    "a record that is removed": ("delete from bds.change_log where company_id = 'acme' and id = 6", [("missing", 5, 8)]),
    "a range that is removed": ("delete from bds.change_log where company_id = 'acme' and id < 5", [("missing", 1, 4)]),
    "a record of another company": (
        "update bds.change_log set company_id = 'gone' where company_id = 'acme' and id = 6", [("missing", 5, 8)]
    ),
    "a seal that is removed": (
        "delete from bds.seals where company_id = 'acme' and first_id = 5 and log = 'changes'",
        [("missing", 5, 8), ("chain", 9, 12)],
    ),
    "the first seal": (
        "delete from bds.seals where company_id = 'acme' and first_id = 1 and log = 'changes'", [("missing", 1, 4), ("chain", 5, 8)]
    ),
    "content that is hashed anew": (
        CHANGE.format("actor = 'x'") + ";" + FORGED.replace("sealed_hash = m.hash", "key = s.key"), [("altered", 5, 8)]
    ),
    "a seal that is replaced": (CHANGE.format("actor = 'x'") + ";" + FORGED + ";" + REHASH, [("chain", 9, 12)]),
    "a sealed hash that is replaced": (CHANGE.format("actor = 'x'") + ";" + FORGED, [("chain", 5, 8)]),
    "a generation": ("update bds.seals set generation = 2 where company_id = 'acme' and first_id = 5", [("chain", 5, 8)]),
    "a key": ("update bds.seals set key = 'x' where company_id = 'acme' and first_id = 5", [("altered", 5, 8)]),
    "a range": (
        "update bds.seals set last_id = 7 where company_id = 'acme' and first_id = 5",
        [("altered", 5, 7), ("chain", 5, 7), ("missing", 8, 8)],
    ),
    "an erasure that is not in the audit": (
        "select bds.erase('acme', 'customers', 1, '{email}'); delete from bds.company_audit where action = 'erase';"
        "delete from bds.audit_pending",
        [("altered", 1, 4), ("altered", 5, 8), ("altered", 9, 12)],
    ),
    "a record with an id that is taken": (
        "select bds_change_log.make_month('2020-01-01Z');" + INSERT.format("timestamptz '2020-01-02'", 6), [("added", 5, 8)]
    ),
    "records beyond the clock": (f"{INSERT.format('now()', 13)}; {INSERT.format('now()', 20)}", [("added", 13, 20)]),
    "the clock": ("update bds.clocks set last_id = 20 where company_id = 'acme'", [("missing", 13, 20)]),
    "the clock, back": ("update bds.clocks set last_id = 10 where company_id = 'acme'", [("added", 11, 12)]),
    "the clock, to its end": (
        "update bds.clocks set last_id = 4611686018427387903 where company_id = 'acme'", [("missing", 13, 4611686018427387903)]
    ),
    "the last seal": (DELETE.format("seals", "log = 'changes' and first_id = 9"), [("chain", 9, 12), ("unsealed", 9, 12)]),
    "every seal": (DELETE.format("seals", "log = 'changes'"), [("chain", 1, 12), ("unsealed", 1, 12)]),
    "every seal and record": (
        DELETE.format("seals", "true") + DELETE.format("change_log", "true"), [("chain", 1, 12), ("missing", 1, 12)]
    ),
    "every seal and record, and the clock": (
        DELETE.format("seals", "true") + DELETE.format("change_log", "true")
        + "update bds.clocks set last_id = 0 where company_id = 'acme'",
        [("chain", 1, 12), ("missing", 1, 12)],
    ),
    "how far it is sealed": (
        "update bds.seal_positions set sealed_id = 20 where company_id = 'acme' and log = 'changes'",
        [("chain", 13, 20), ("missing", 13, 20)],
    ),
    "a range that hardly ends": (
        "update bds.seals set last_id = 9223372036854775806 where company_id = 'acme' and log = 'changes' and first_id = 9",
        [("chain", 9, 9223372036854775806)],
    ),
    "ranges that overlap": (
        "update bds.seals set last_id = 9 where company_id = 'acme' and log = 'changes' and first_id = 5",
        [("altered", 5, 9), ("chain", 5, 9), ("chain", 9, 12)],
    ),
    "an expiry of what is kept": (GONE + expiry('"first_id": 5, "last_id": 8'), [("missing", 5, 8)]),
    "an expiry of something else": (GONE + FORGET + expiry('"first_id": 5, "last_id": 8', "other"), [("missing", 5, 8)]),
    **{
        f"an expiry of {ids}": (GONE + FORGET + expiry(ids), [("missing", 5, 8)])
        for ids in (
            "", '"first_id": 5', '"last_id": 8', '"first_id": 8, "last_id": 5', '"first_id": "5", "last_id": "8"',
            '"first_id": 5, "last_id": 8.5', '"first_id": -5, "last_id": 8', '"first_id": 5, "last_id": 9223372036854775807',
            '"first_id": null, "last_id": null', '"first_id": [5], "last_id": {}', '"first_id": 5, "last_id": 7',
            '"first_id": 5, "last_id": 8, "archived": true', '"first_id": 5, "last_id": 8, "archived": true, "month": 2020',
        )
    },
    "an expiry into an archive that never was": (
        GONE + expiry('"first_id": 5, "last_id": 8, "archived": true, "month": "2019-01-01T00:00:00+00:00"'), [("missing", 5, 8)]
    ),
    "what is kept, and an expiry in parts": (
        GONE + FORGET + expiry('"first_id": 5, "last_id": 6') + expiry('"first_id": 7, "last_id": 8'), [("expired", 5, 8)]
    ),
    **{
        f"an act that is noted with {detail}": (NEW_HASH + act(action, "changes", detail), [("altered", 5, 8)])
        for action, detail in (
            ("erase", '{"seals": 5}'), ("erase", '{"seals": [5, null, [], {"first_id": [5]}, {"first_id": 5}]}'), ("erase", "[]"),
            ("erase", '{"seals": {"first_id": 5}}'), ("erase", '["seals"]'), ("expire", '{"seals": [{"first_id": 5}]}'),
            ("erase", '{"seals": [{"first_id": true, "before": "x", "after": null}]}'),
        )
    },
    **{
        f"an act that is noted with {detail[:30]}": (act(action, "changes", detail), said)
        for action, detail, said in (
            ("erase", '{"caller": 1e5000, "seals": [{"first_id": 1e5000}, {"first_id": -1e-5000}]}', []),
            ("erase", '{"seals": [{"first_id": 5.00000000000000000000001}]}', []),
            ("erase", '{"seals": [{"first_id": 5.0, "before": "x"}]}', [("altered", 5, 8)]),
            ("erase", f'{{"caller": {"[" * 2000}{"]" * 2000}}}', []),
            ("expire", '{"first_id": 1e5000, "last_id": 1e5001}', []),
            ("expire", '{"first_id": 1.0, "last_id": 1.5e0, "month": [1e5000]}', []),
        )
    },
    "an act of a far time": (act("erase", "changes", "{}").replace("clock_timestamp()", "'20000-01-01'"), []),
    "an erasure that is noted as an expiry": (
        "select bds.erase('acme', 'customers', 1, '{email}'); set constraints all immediate;"
        "update bds.company_audit set action = 'expire' where action = 'erase'",
        [("altered", 1, 4), ("altered", 5, 8), ("altered", 9, 12)],
    ),
}  # fmt: skip
AUDIT_TAMPERED: dict[str, tuple[str, list[tuple[str, int, int]]]] = {
    "an actor": (ACT.format("actor = 'x'"), [("altered", 2, 2)]),
    "a detail": (ACT.format("detail = '{}'"), [("altered", 2, 2)]),
    "a time": (ACT.format("at = at - interval '1 s'"), [("altered", 2, 2)]),
    "an action": (ACT.format("action = 'delete'"), [("altered", 2, 2)]),
    "a record that is removed": (DELETE.format("company_audit", "id = 2"), [("missing", 2, 2)]),
    "a content hash": (
        "update bds.seals set content_hash = 'x', sealed_hash = 'x' where company_id = 'acme' and log = 'audit' and first_id = 2",
        [("altered", 2, 2), ("chain", 2, 2)],
    ),
    "the last seal": (DELETE.format("seals", "log = 'audit' and first_id = 2"), [("chain", 2, 2), ("unsealed", 2, 2)]),
    "every seal": (DELETE.format("seals", "true"), [("chain", 1, 2), ("unsealed", 1, 2)]),
    "every record": (DELETE.format("company_audit", "true"), [("missing", 1, 1), ("missing", 2, 2)]),
    "every record and seal": (
        DELETE.format("company_audit", "true") + DELETE.format("seals", "true"), [("chain", 1, 2), ("missing", 1, 2)]
    ),
    "nothing, with a number and a depth that Python does not read": (
        act("erase", "changes", '{"caller": 1e5000}') + act("erase", "changes", f'{{"caller": {"[" * 2000}{"]" * 2000}}}'),
        [("unsealed", 3, 4)],
    ),
    "what expired changes do not excuse": (
        DELETE.format("company_audit", "id = 1") + FORGET + expiry('"first_id": 1, "last_id": 8'),
        [("missing", 1, 1), ("unsealed", 3, 3)],
    ),
    "a record that was not sealed yet": (act("x", "x", "{}", 4), [("missing", 3, 3), ("unsealed", 4, 4)]),
    "the last id that there is": (
        act("x", "x", "{}", 9223372036854775806),
        [("missing", 3, 9223372036854775805), ("unsealed", 9223372036854775806, 9223372036854775806)],
    ),
}  # fmt: skip


def test_no_seal_ends_with_an_id_after_which_none_can_be_computed(shared_operator: Operator) -> None:
    """Else the verification of every company would end with an error at this one."""
    with pytest.raises(psycopg.errors.CheckViolation), shared_operator.connection.transaction():
        shared_operator.connection.execute("update bds.seals set last_id = 9223372036854775807 where company_id = 'acme'")


CASES = [("changes", each) for each in TAMPERED] + [("audit", each) for each in AUDIT_TAMPERED]


@pytest.mark.parametrize(
    ("log", "what"),
    [pytest.param(*case, marks=[not_divided("the log has a key there")] if "taken" in case[1] else []) for case in CASES],
)
def test_what_a_superuser_changes_is_named_by_its_range(shared_operator: Operator, log: str, what: str) -> None:
    statements, said = (TAMPERED if log == "changes" else AUDIT_TAMPERED)[what]
    with shared_operator.connection.transaction(force_rollback=True):
        shared_operator.connection.execute(statements.encode())
        assert verified(shared_operator, log=log) == said


def test_a_company_of_which_no_month_is_known_is_verified(operator: Operator) -> None:
    operator.company("empty")
    assert verified(operator, "empty") == []
    operator.connection.execute("delete from bds.change_months where company_id = 'acme'")
    assert verified(operator) == []
    operator.connection.execute("delete from bds.change_log where company_id = 'acme' and id < 5")
    assert verified(operator) == [("missing", 1, 4)]


def test_seals_that_are_gone_are_not_made_again(operator: Operator) -> None:
    operator.connection.execute("delete from bds.seals where company_id = 'acme' and first_id = 9")
    assert verified(operator) == [("chain", 9, 12), ("unsealed", 9, 12)]
    operator.write("acme", "insert into data.units (code, name) values ('a', 'A')")
    assert operator.rows(SEAL) == [(0, "seals of changes of acme up to 12 are gone")]
    assert verified(operator) == [("chain", 9, 12), ("unsealed", 9, 13)]


def test_a_chain_that_is_made_anew_has_another_head(operator: Operator) -> None:
    [(head,)] = operator.rows("select hash from bds.log_head('acme')")
    for statement in (CHANGE.format("actor = 'x'"), FORGED, REHASH, *RECHAINED.split(";")):
        operator.connection.execute(statement.encode())
    assert verified(operator) == [], "nothing in the database tells"
    assert operator.rows("select hash = %s from bds.log_head('acme')", (head,)) == [(False,)]
