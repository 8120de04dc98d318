"""What fails with a failed record: its batch, nothing else, or everything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from app.errors import ServiceError
from tests.feed.conftest import Feed, counts

pytestmark = pytest.mark.slow

BAD = {"code": "bad"}  # a unit without name


def units(*codes: str) -> list[dict[str, str]]:
    return [{"code": code, "name": code} for code in codes]


@pytest.mark.parametrize("top", [{}, {"@atomic": "batch"}, {"@atomic": None}])
def test_a_batch_fails_whole(feed: Feed, top: dict[str, Any]) -> None:
    report = feed.send(
        {
            **top,
            "units": [*units("A"), BAD, *units("B")],
            "customers": units("C"),
            "products": [{"code": "P", "name": "p", "unit": "code:A"}, {"code": "Q", "name": "q"}],
        }
    )
    assert (report["state"], report["atomic"], report["errorCount"]) == ("partial", "batch", 4)
    assert [(e["path"], e["code"]) for e in report["errors"]] == [
        ("units[0]", "batch_failed"), ("units[1].name", "required"), ("products[0].unit", "lookup_not_found"), ("products[0]", "batch_failed"),
    ]  # fmt: skip
    assert counts(report) == {"units": {"failed": 3}, "customers": {"created": 1}, "products": {"failed": 2}}
    assert feed.rows("customers", "code") == [("C",)] and not feed.rows("units", "id") and not feed.rows("products", "id")


def test_a_batch_is_ten_thousand_records(feed: Feed) -> None:
    codes = [f"{n:05}" for n in range(20_001)]
    document = {"units": [*units(*codes[:10_500]), BAD, *units(*codes[10_501:])]}
    report = feed.send(document)
    assert [(e["path"], e["code"]) for e in report["errors"]] == [
        ("units[10000]", "batch_failed"),
        ("units[10500].name", "required"),
    ]
    assert counts(report) == {"units": {"created": 10_001, "failed": 10_000}}
    assert feed.ask("select min(code), max(code), count(*) filter (where code < '10000') from api.units") == [
        ("00000", "20000", 10_000)
    ]


def test_false_omits_only_the_failed_records(feed: Feed) -> None:
    report = feed.send({"@atomic": False, "units": [*units("A"), BAD, *units("B")]})
    assert (report["state"], report["atomic"], report["errorCount"]) == ("partial", False, 1)
    assert counts(report) == {"units": {"created": 2, "failed": 1}}
    assert feed.rows("units", "code") == [("A",), ("B",)]


def test_true_is_all_or_nothing(feed: Feed) -> None:
    report = feed.send({"units": [*units("A"), BAD], "customers": units("C"), "@atomic": True})
    assert (report["state"], report["atomic"], report["errorCount"]) == ("failed", True, 1)
    assert [each["created"] for each in report["entities"].values()] == [0, 0]
    assert not feed.log()
    assert feed.good({"@atomic": True, "units": units("A"), "customers": units("C")}) == {
        "units": {"created": 1},
        "customers": {"created": 1},
    }


@pytest.mark.parametrize("mode", ["batch", True, False])
def test_an_import_is_failed_if_every_record_fails(feed: Feed, mode: str | bool) -> None:
    report = feed.send({"@atomic": mode, "units": [BAD, {"code": 7, "nothing": 1}]})
    assert report["state"] == "failed" and not feed.log()
    assert report["progress"]["records"] == report["progress"]["done"] == 2


@pytest.mark.parametrize("mode", ["batch", True, False])
def test_a_dry_run_reports_the_same_and_writes_nothing(feed: Feed, mode: str | bool) -> None:
    feed.good(products=[{"code": "P", "name": "p", "variants": units("A", "B")}])
    before, log = feed.stored(), feed.log()
    document = {
        "@atomic": mode,
        "units": [*units("A"), BAD],
        "products": [{"code": "P", "name": "new", "variants": units("B", "C")}],
    }
    tried = feed.send(document, dry_run=True)
    assert (feed.stored(), feed.log()) == (before, log)
    assert tried["dryRun"] is True and tried["state"] == ("failed" if mode is True else "partial")
    done = feed.send(document)
    assert [tried[k] for k in ("entities", "errors", "errorCount", "state")] == [
        done[k] for k in ("entities", "errors", "errorCount", "state")
    ]


@pytest.mark.parametrize(
    "document", [b"{}", b' {"units": []} ', b'{"units": null, "@atomic": true}', b'{"products@removeAll": false, "products": []}']
)
def test_an_empty_document_is_not_a_failure(feed: Feed, document: bytes) -> None:
    report = feed.send(document)
    assert (report["state"], report["errors"], report["progress"]["records"]) == ("completed", [], 0)
    assert not feed.log()


@pytest.mark.parametrize(("document", "code"), [
    ({"@atomic": "yes"}, "invalid_directive"), ({"@atomic": "TRUE"}, "invalid_directive"), ({"@atomic": 1}, "invalid_directive"),
    ({"@mode": "none"}, "invalid_directive"), ({"units": [], "@mode": "merge"}, "invalid_directive"), ({"@nothing": 1}, "invalid_directive"),
    ({"units@removeAll": True}, "invalid_directive"), ({"units": [], "units@removeAll": "yes"}, "invalid_directive"), ({"@operation": "delete"}, "invalid_directive"),
    ({"units": units("A"), "planets": []}, "unknown_entity"), ({"units": [*units("A"), "B"]}, "invalid_document"), ({"units": [[]]}, "invalid_document"),
    ({"units": units("A"), "@atomic": [True]}, "invalid_directive"),
])  # fmt: skip
def test_an_invalid_document_writes_nothing(feed: Feed, document: dict[str, Any], code: str) -> None:
    with pytest.raises(ServiceError) as refused:
        feed.send(document)
    assert refused.value.code == code
    assert not feed.log()
    assert feed.ask("select state, finished_at is not null from bds.imports where company_id = %s", feed.company) == [
        ("failed", True)
    ]


@pytest.fixture
def refusing(feed: Feed) -> Iterator[Feed]:
    """A trigger refuses units with a name of 'refused', and the delete of those with 'precious'."""
    feed.operator.connection.execute(
        "create function staging.refuse() returns trigger language plpgsql as $$ begin raise check_violation using message = 'secret'; end $$;"
        "create trigger refuse before insert or update on data.units for each row when (new.name ~ 'refused') execute function staging.refuse();"
        "create trigger refuse_delete before delete on data.units for each row when (old.name ~ 'precious') execute function staging.refuse()"
    )
    yield feed
    feed.operator.connection.execute("drop function staging.refuse cascade")


def test_an_error_of_a_trigger_fails_only_the_records_that_cause_it(refusing: Feed) -> None:
    names = ["refused" if n in (7, 8, 300) else f"n{n}" for n in range(500)]
    document = {
        "units": [{"code": f"{n:03}", "name": name} for n, name in enumerate(names)],
        "products": [{"code": "P", "name": "p", "unit": "code:007"}, {"code": "Q", "name": "q", "unit": "code:006"}],
    }
    report = refusing.send({"@atomic": False, **document})
    assert [(e["path"], e["code"]) for e in report["errors"]] == [
        ("units[7]", "invalid_value"), ("units[8]", "invalid_value"), ("units[300]", "invalid_value"), ("products[0].unit", "lookup_not_found"),
    ]  # fmt: skip
    assert report["state"] == "partial" and "secret" not in str(report)
    assert counts(report) == {"units": {"created": 497, "failed": 3}, "products": {"created": 1, "failed": 1}}
    assert [n for n, *_ in refusing.log()] == list(range(1, 499))  # rolled back attempts leave no gap


@pytest.mark.parametrize(("atomic", "state", "failed"), [("batch", "failed", 3), (True, "failed", 1), (False, "partial", 1)])
def test_an_error_of_a_trigger_fails_as_much_as_the_mode_says(refusing: Feed, atomic: Any, state: str, failed: int) -> None:
    report = refusing.send({"@atomic": atomic, "units": [*units("A"), {"code": "B", "name": "refused"}, *units("C")]})
    assert (report["state"], report["entities"]["units"]["failed"]) == (state, failed)
    assert ("units[1]", "invalid_value") in [(e["path"], e["code"]) for e in report["errors"]]
    assert len(refusing.rows("units", "id")) == 3 - failed if atomic is not True else not refusing.rows("units", "id")


def test_refused_mass_updates_and_deletes_fail_one_by_one(refusing: Feed) -> None:
    refusing.good(units=[*units("A", "B"), {"code": "C", "name": "precious"}])
    report = refusing.send({"@atomic": False, "units": [
        {"@operation": "update", "@where": "code = 'A'", "name": "refused"}, {"@operation": "update", "@where": "code = 'B'", "name": "new"},
        {"@operation": "delete", "code": "C"},
    ]})  # fmt: skip
    assert [(e["path"], e["code"]) for e in report["errors"]] == [("units[0]", "invalid_value"), ("units[2]", "invalid_value")]
    assert refusing.rows("units", "code", "name", order="code") == [("A", "A"), ("B", "new"), ("C", "precious")]


def test_a_value_too_long_for_its_index_fails_its_record(feed: Feed) -> None:
    noise = "".join(chr(0x4E00 + n * 7919 % 20_000) for n in range(4_000))
    report = feed.send({"@atomic": False, "units": [{"code": noise, "name": "n"}, *units("A")]})
    assert [(e["path"], e["code"]) for e in report["errors"]] == [("units[0]", "invalid_value")]
    assert feed.rows("units", "code") == [("A",)]


def test_the_errors_of_a_mass_update_are_kept_when_another_is_refused(refusing: Feed) -> None:
    refusing.good(units=units("A", "B"))
    report = refusing.send({"@atomic": False, "units": [
        {"@operation": "update", "@where": "code = 'A'", "name": "refused"}, {"@operation": "update", "@where": "code in ('A', 'B')", "code": "Z"},
        {"code": "C", "name": "c"},
    ]})  # fmt: skip
    assert sorted((e["path"], e["code"]) for e in report["errors"]) == [
        ("units[0]", "invalid_value"),
        ("units[1].code", "duplicate_record"),
    ]
    assert refusing.rows("units", "code", "name", order="code") == [("A", "A"), ("B", "B"), ("C", "c")]
