"""The pages of imports without JavaScript: upload of a file, list, report."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.feed import reports
from app.web import import_errors, imports
from app.web.view import duration
from tests.auth.client import ask
from tests.service.serving import Service
from tests.web.visitor import Page, Visitor

GOOD = {"units": [{"code": "PCE", "name": "piece"}, {"code": "KGM", "name": "kilogram"}]}
BAD = {
    "@atomic": False,
    "units": [
        {"code": "BOX", "name": "box"},
        {"code": "<b>x</b>", "name": None},
        {"code": "T", "nam": "<script>alert(1)</script>"},
    ],
}


def dump(document: object) -> bytes:
    return json.dumps(document).encode()


def report(anna: Visitor, answer: Page) -> Page:
    """Wait until the import has ended; return its report."""
    page = anna.follow(answer)
    while page.all("//*[@data-refresh]"):
        time.sleep(0.05)
        assert answer.location is not None
        page = anna.get(answer.location)
    return page


def test_a_file_is_imported_and_reported(anna: Visitor, service: Service) -> None:
    page = report(anna, anna.upload("/imports?company=demo", {}, "units.json", dump(GOOD)))
    assert "completed" in page.text and "All records were applied." in page.text
    assert "Fileunits.json" in page.one("//dl") and "Sent byuser anna@example.com" in page.one("//dl")
    assert page.all("//table[.//th='Entity']/tbody/tr") == ["units 2 0 0 0 0"]
    assert service.operator.rows("select distinct actor from bds.changes where company_id = 'demo'") == [("user anna@example.com",)]
    listed = anna.get("/imports?company=demo")
    assert [listed.all(f"//tbody/tr[1]/td[@data-label='{name}']") for name in ("File", "State", "Records", "Created")] == [
        ["units.jsonby user anna@example.com"],
        ["completed"],
        ["2"],
        ["2"],
    ]
    assert page.one("//a[.='View changes']/@href") in [f"/changes?company=demo&changeSet={import_id(page)}"]


def import_id(page: Page) -> str:
    return page.one("//dd[@class='code']")


def test_errors_are_listed_and_escaped(anna: Visitor) -> None:
    page = report(anna, anna.upload("/imports?company=demo", {}, "units.json", dump(BAD)))
    assert page.one("//h2[@id='errors-title']") == "3 errors"
    assert "Some records failed" in page.text
    rows = page.all("//table[.//th='Where']/tbody/tr")
    assert rows[0].startswith("units[1].name code:<b>x</b> ") and rows[0].endswith(" required")
    assert not page.tree.xpath("//table//b | //script[not(@src)]")


def test_a_record_with_a_long_code_is_cut_in_the_list_of_errors(anna: Visitor) -> None:
    code = "Y" * 500
    page = report(anna, anna.upload("/imports?company=demo", {}, "units.json", dump({"units": [{"code": code}]})))
    [shown] = page.all("//table[.//th='Where']/tbody/tr[td]/td[@data-label='Record']")
    assert shown.startswith("code:YYY") and shown.endswith("…") and len(shown) <= 101
    assert code in anna.get(page.one("//a[@id='errors-csv']/@href")).reply.body.decode()


def test_a_dry_run_writes_nothing(anna: Visitor, service: Service) -> None:
    page = report(
        anna, anna.upload("/imports?company=demo", {"dryRun": "true"}, "u.json", dump({"units": [{"code": "DRY", "name": "dry"}]}))
    )
    assert "This was a dry run: nothing was written." in page.text and "Results of the dry run" in page.text
    assert service.operator.rows("select count(*) from data.units where code = 'DRY'") == [(0,)]


def test_compressed_files_are_recognised_by_their_extension(anna: Visitor) -> None:
    page = report(anna, anna.upload("/imports?company=demo", {}, "u.json.GZ", gzip.compress(dump(GOOD))))
    assert page.all("//table[.//th='Entity']/tbody/tr") == ["units 0 0 0 2 0"]


def test_a_mapper_reads_other_files(anna: Visitor) -> None:
    text = "type csv\nunits = 'row' {\n    code = 'Code'\n    name = 'Name'\n}\n"
    assert anna.post("/mappers/_new?company=demo", {"do": "save", "name": "units", "text": text}).status == 303
    assert "Mapper units" in anna.get("/imports?company=demo").all("//select[@id='mapper']//option")
    assert anna.get("/imports?company=demo&mapper=units").typed("mapper") == "units"
    page = report(anna, anna.upload("/imports?company=demo", {"mapper": "units"}, "u.csv", b"Code;Name\nMTR;metre\nLTR;\n"))
    assert page.all("//table[.//th='Entity']/tbody/tr") == ["units 0 0 0 0 2"]
    assert page.all("//table[.//th='Where']/tbody/tr/td[2]")[0].startswith("line 3: ") or "line 3: " in page.text


@pytest.mark.parametrize(
    ("fields", "name", "content", "named"),
    [
        ({}, "", b"", "Choose a file"),
        ({"mapper": "none"}, "x.csv", b"a", "mapper: none"),
    ],
)
def test_a_problem_of_the_form_is_shown_in_it(anna: Visitor, fields: dict[str, str], name: str, content: bytes, named: str) -> None:
    page = anna.upload("/imports?company=demo", fields, name, content)
    assert page.status in (400, 404)
    assert named in page.text


def test_a_malformed_document_has_a_report_with_its_error(anna: Visitor) -> None:
    page = report(anna, anna.upload("/imports?company=demo", {}, "u.json", b'{"units": [{"code": }]}'))
    assert "failed" in page.text and "Nothing was written." in page.text
    assert "malformed_document" in page.text


def test_a_form_without_a_csrf_token_imports_nothing(anna: Visitor, service: Service) -> None:
    before = service.operator.rows("select count(*) from bds.imports")
    for csrf in ("", "wrong"):
        page = anna.upload("/imports?company=demo", {}, "u.json", dump(GOOD), csrf=csrf)
        assert page.status == 403 and "Nothing was changed" in page.text
    body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="u.json"\r\n\r\n' + dump(GOOD) + b"\r\n--b--\r\n"
    headers = {**anna.headers, "Content-Type": "multipart/form-data; boundary=b"}
    assert ask(service, "/imports?company=demo", "POST", headers, body.decode()).status == 403, (
        "the CSRF token must be the first field"
    )
    assert ask(
        service, "/imports?company=demo", "POST", {**headers, "Content-Type": "multipart/form-data"}, body.decode()
    ).status in (400, 403)
    assert service.operator.rows("select count(*) from bds.imports") == before


def test_errors_are_paged(anna: Visitor) -> None:
    page = report(
        anna,
        anna.upload(
            "/imports?company=demo", {}, "u.json", dump({"@atomic": False, "units": [{"code": f"E{n}"} for n in range(150)]})
        ),
    )
    assert page.one("//h2[@id='errors-title']") == "150 errors"
    assert len(page.all("//table[.//th='Where']/tbody/tr")) == 100
    second = anna.get(page.one("//a[@rel='next']/@href"))
    assert len(second.all("//table[.//th='Where']/tbody/tr")) == 50
    assert "Errors 101–150" in second.text and not second.all("//a[@rel='next']")


def test_an_import_that_has_ended_cannot_be_cancelled(anna: Visitor) -> None:
    page = report(anna, anna.upload("/imports?company=demo", {}, "u.json", dump(GOOD)))
    answer = anna.post(f"/imports/{import_id(page)}/cancel?company=demo")
    assert answer.status == 409 and answer.one("//p[@class='status-code']") == "409"


@pytest.mark.parametrize(("name", "content"), [
    ("units.csv", b"code,name\nPCE,Piece\nMTR,Metre\n"), ("units.csv.gz", gzip.compress(b"code,name\nPCE,Piece\nMTR,Metre\n", mtime=0)),
    ("units.xml", b"<units><unit><code>PCE</code><name>Piece</name></unit><unit><code>MTR</code><name>Metre</name></unit></units>"),
])  # fmt: skip
def test_a_file_as_an_export_writes_it_needs_no_mapper(anna: Visitor, service: Service, name: str, content: bytes) -> None:
    assert "XML, CSV, Excel or JSON Lines: units" in anna.get("/imports?company=demo").all(
        "//select[@id='mapper']/optgroup[1]/option"
    )
    page = report(anna, anna.upload("/imports?company=demo", {"mapper": "entity:units"}, name, content))
    assert "All records were applied." in page.text
    assert service.operator.rows("select name from data.units where code = 'PCE' and company_id = 'demo'") == [("Piece",)]


def test_the_name_of_a_file_chooses_what_reads_it(anna: Visitor) -> None:
    for name, content in (("units (2).csv", b"code,name\nPCE,by name\n"), ("units.ndjson", b'{"code": "PCE", "name": "by line"}')):
        page = report(anna, anna.upload("/imports?company=demo", {"mapper": ""}, name, content))
        assert "All records were applied." in page.text
    page = anna.upload("/imports?company=demo", {"mapper": ""}, "catalog.csv", b"code,name\nPCE,x\n")
    assert page.status == 400 and page.one("//*[@id='mapper-wrong']") == "choose the entity or the mapper of this CSV file"
    page = report(anna, anna.upload("/imports?company=demo", {"mapper": ""}, "notes.txt", b"code,name\nPCE,x\n"))
    assert "Excel (.xlsx) or JSON Lines (.jsonl), or a mapper that reads notes.txt" in page.text


def test_an_unknown_entity_of_a_file_is_a_problem_of_the_choice(anna: Visitor) -> None:
    page = anna.upload("/imports?company=demo", {"mapper": "entity:nothing"}, "x.csv", b"code\nA\n")
    assert page.status == 400 and page.all("//*[@id='mapper-wrong']")


def test_an_import_is_undone_after_a_look_at_what_that_does(anna: Visitor, service: Service) -> None:
    def units(**names: str) -> Page:
        document = {"units": [{"code": code, "name": name} for code, name in names.items()]}
        return report(anna, anna.upload("/imports?company=demo", {}, "units.json", dump(document)))

    def press(page: Page, label: str) -> Page:
        (form,) = [each for each in page.tree.xpath("//form") if label in " ".join(each.itertext())]
        fields = {each.get("name"): each.get("value") for each in form.xpath(".//input") if each.get("name") != "csrf"}
        return report(anna, anna.post(form.get("action"), fields))

    def stored() -> list[tuple[str, str]]:
        return service.operator.rows("select code, name from data.units where company_id = 'demo' and code ~ 'RV' order by 1")

    page = units(RV1="a", RV2="a")
    units(RV2="later")
    shown = press(page, "Undo")
    assert "This shows what it would do." in shown.text and "Some rows stay as they are" in shown.text
    assert shown.all("//table[.//th='Where']/tbody/tr")[0].endswith(" conflict")
    assert stored() == [("RV1", "a"), ("RV2", "later")]
    forced = press(shown, "later changes overwritten")
    assert "Everything would be undone" in forced.text and stored() == [("RV1", "a"), ("RV2", "later")]
    assert "Undo" in page.all("//form//button")
    revert = press(forced, "Undo now")
    assert (
        "This is an undo, later changes of its rows included." in revert.text
        and "Everything was undone" in revert.text
        and stored() == []
    )
    assert re.fullmatch(r"Undo of units\.json of \d{4}-\d\d-\d\d \d\d:\d\d UTC", revert.one("//h1"))
    again = report(anna, anna.post("/changes/revert?company=demo", {"changeSet": import_id(page), "force": "true"}))
    assert "There was nothing left to undo" in again.text and "Everything" not in again.text
    undone = anna.get(f"/imports/{import_id(page)}?company=demo")
    assert "This was undone." in undone.text and "Undo" not in undone.all("//form//button")
    assert undone.one("//p[starts-with(., 'This was undone')]/a/@href").startswith(f"/imports/{import_id(revert)}")
    assert "completed undone" in anna.get("/imports?company=demo").one(f"//tbody/tr[th/a/@id='i{import_id(page)}']")


def test_a_failed_batch_is_a_line_above_its_errors_and_no_error_itself(anna: Visitor) -> None:
    document = {"units": [*({"code": f"B{n}", "name": "x"} for n in range(3)), {"code": "B4"}]}
    page = report(anna, anna.upload("/imports?company=demo", {}, "units.json", dump(document)))
    assert page.one("//h2[@id='errors-title']") == "1 error"
    assert page.all("//ul[@class='tabs']//a") == ["all 1", "required 1"]
    rows = page.all("//table[.//th='Where']/tbody/tr")
    assert rows[0] == "The batch units[0..3] was not written, because of a record in it that failed"
    assert [row.split()[-1] for row in rows[1:]] == ["required"]
    assert [line[2] for line in csv.reader(io.StringIO(download(anna, page)))] == ["code", "batch_failed", "required"]
    assert anna.get("/imports?company=demo").one(f"//tbody/tr[th/a/@id='i{import_id(page)}']/td[@data-label='Errors']") == "1"


MANY = {"@atomic": False, "units": [*({"code": f"M{n}"} for n in range(105)), {"code": "=1+1", "name": "x", "nam": "y"}]}


def test_errors_are_counted_filtered_and_downloaded(anna: Visitor) -> None:
    page = report(anna, anna.upload("/imports?company=demo", {}, "units.json", dump(MANY)))
    found = page.all("//ul[@class='tabs']//a")
    assert found[:2] == ["all 106", "required 105"] and len(found) == 3
    other = anna.get(page.all("//ul[@class='tabs']//a/@href")[2])
    assert len(other.all("//table[.//th='Where']/tbody/tr")) == 1 and "Errors 1" not in other.text
    second = anna.get(anna.get(page.all("//ul[@class='tabs']//a/@href")[1]).one("//a[@rel='next']/@href"))
    assert len(second.all("//table[.//th='Where']/tbody/tr")) == 5, "pages keep the code"
    lines = list(csv.reader(io.StringIO(download(anna, page))))
    assert lines[0] == ["path", "record", "code", "message"] and len(lines) == 107
    assert lines[1][0].startswith("units[0]") and not [cell for line in lines for cell in line if cell.startswith("=")]
    assert len(list(csv.reader(io.StringIO(download(anna, other))))) == 2


def download(anna: Visitor, page: Page) -> str:
    file = anna.get(page.one("//a[@id='errors-csv']/@href"))
    assert file.status == 200 and file.reply.headers["Content-Type"].startswith("text/csv")
    return file.reply.body.decode("utf-8-sig")


def test_blocks_of_errors_follow_one_another(anna: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    page = report(anna, anna.upload("/imports?company=demo", {}, "units.json", dump(MANY)))
    whole = download(anna, page)
    monkeypatch.setattr(import_errors, "BLOCK", 53)
    assert download(anna, page) == whole


def test_another_companys_errors_are_not_found(anna: Visitor) -> None:
    page = report(anna, anna.upload("/imports?company=demo", {}, "units.json", dump(BAD)))
    assert anna.get(f"/imports/{import_id(page)}/errors.csv?company=second").status == 404
    assert anna.get(f"/imports/{import_id(page)}/errors.csv?company=third").status == 403


def test_the_page_of_a_running_import_tells_phase_and_time_left(anna: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    id, show = import_id(report(anna, anna.upload("/imports?company=demo", {}, "u.json", dump({"units": []})))), reports.show
    started = (datetime.now(UTC) - timedelta(minutes=1)).isoformat()
    progress = {"bytes": 9, "records": 4000, "done": 1000, "phase": "comparing", "waitingFor": None}

    async def running(*of: Any) -> dict[str, Any]:
        return {**await show(*of), "state": "running", "finishedAt": None, "startedAt": started, "progress": progress}

    monkeypatch.setattr(reports, "show", running)
    page = anna.get(f"/imports/{id}?company=demo")
    assert page.one("//label[@for='bar']") == "Comparing: 1,000 of 4,000 records done"
    assert re.search(r"So far\d+ min \d+ s, about \d+ min \d+ s left", " ".join(page.all("//dl/div")))


@pytest.mark.parametrize(("seconds", "done", "left"), [
    (1, 50, ""), (60, 0, ""), (60, 1, "about 1 h 39 min left"), (60, 50, "about 1 min 0 s left"), (60, 99, "a few seconds left"),
])  # fmt: skip
def test_the_time_left_follows_from_the_pace_so_far(seconds: float, done: int, left: str) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    report = {"finishedAt": None, "startedAt": now.isoformat(), "progress": {"records": 100, "done": done}}
    assert imports.time_left(report, now + timedelta(seconds=seconds)) == left


def test_the_list_tells_file_sender_and_duration(anna: Visitor) -> None:
    done = report(anna, anna.upload("/imports?company=demo", {}, "seen.json", dump(GOOD)))
    row = anna.get("/imports?company=demo").tree.xpath("//tbody/tr[1]")[0]
    cells = {cell.get("data-label"): " ".join(cell.text_content().split()) for cell in row.xpath("./td")}
    assert cells["File"] == "seen.jsonby user anna@example.com" and re.fullmatch(r"\d+\.\d s", cells["Took"])
    assert re.fullmatch(r"\d+\.\d s", done.one("//dt[.='Duration']/following-sibling::dd"))


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (59.4, "59 s"), (59.7, "1 min 0 s"), (185, "3 min 5 s"), (7_500, "2 h 5 min")],
)
def test_a_duration_is_said_in_the_units_that_matter(seconds: float, said: str) -> None:
    assert duration(timedelta(seconds=seconds)) == said
