"""The pages of mappers without JavaScript: create, change, delete, preview, errors at their line."""

from __future__ import annotations

import json

import pytest

from tests.service.serving import Service
from tests.web.visitor import Page, Visitor

TEXT = "type csv\nunits = 'row' {\n    code = 'Code'\n    name = 'Name'\n}\n"
WRONG = TEXT.replace("name = 'Name'", "nane = 'Name' # <script>")


def save(anna: Visitor, stored: str | None, text: str, do: str = "save", **fields: str) -> Page:
    path = f"/mappers/{stored or '_new'}?company=demo"
    return anna.post(path, {"do": do, "text": text.replace("\n", "\r\n"), **fields})


def test_a_mapper_is_created_shown_changed_and_deleted(anna: Visitor, service: Service) -> None:
    page = anna.follow(save(anna, None, TEXT, name="units"))
    assert "Mapper saved." in page.text
    assert page.typed("text") == TEXT
    assert service.operator.rows("select text, actor from bds.mappers where name = 'units'") == [(TEXT, "user anna@example.com")]
    more = save(anna, "units", TEXT + "# more\n", seen=page.one("//input[@name='seen']/@value"))
    assert anna.follow(more).typed("text") == TEXT + "# more\n"
    assert "units" in anna.get("/mappers?company=demo").all("//tbody//th")
    assert "Mapper deleted." in anna.follow(anna.post("/mappers/units/delete?company=demo")).text
    assert anna.get("/mappers/units?company=demo").status == 404


def test_an_error_is_shown_at_its_line(anna: Visitor, service: Service) -> None:
    page = save(anna, None, WRONG, name="wrong")
    assert page.status == 400
    assert page.problems[0].startswith("Mapper: line 4, column 5: ")
    assert page.all("//ol[@class='lines']/li/@value") == ["2", "3", "4", "5", "6"]
    assert page.one("//li[@class='here']/code") == "nane = 'Name' # <script>"
    assert (page.one("//textarea[@id='text']/@data-line"), page.one("//textarea[@id='text']/@data-column")) == ("4", "5")
    assert page.typed("text") == WRONG and page.typed("name") == "wrong"
    assert not page.tree.xpath("//main//script")
    assert service.operator.rows("select count(*) from bds.mappers where name = 'wrong'") == [(0,)]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "Name: Enter a name"),
        ("a b", "Name: 'a b'"),
        ("_new", "Name: '_new'"),
        ("../x", "Name: '../x'"),
        ("taken", "Name: a mapper named taken already exists"),
    ],
)
def test_a_problem_of_the_name_is_shown_at_its_field(anna: Visitor, name: str, problem: str) -> None:
    save(anna, None, TEXT, name="taken")
    page = save(anna, None, TEXT, name=name)
    assert page.status in (400, 409)
    assert len(page.problems) == 1 and page.problems[0].startswith(problem)
    assert page.typed("text") == TEXT


def test_a_preview_shows_the_import_document_of_the_unsaved_mapper(anna: Visitor, service: Service) -> None:
    page = save(anna, None, TEXT, "preview", name="later", source="Code;Name\r\nPCE;<b>piece</b>\r\n")
    assert page.status == 200
    document = json.loads(page.tree.xpath("//pre[@class='document']")[0].text_content())
    assert document["units"] == [{"code": "PCE", "name": "<b>piece</b>"}]
    assert (page.typed("name"), page.typed("source").split()) == ("later", ["Code;Name", "PCE;<b>piece</b>"])
    assert service.operator.rows("select count(*) from bds.mappers where name = 'later'") == [(0,)]


@pytest.mark.parametrize(("text", "source"), [
    ("type csv @encoding = 'windows-1252' units = 'row' { code = 'c' }", "c\nStück €\n"),
    ("type csv @encoding = 'utf-16' units = 'row' { code = 'c' }", "\ufeffc\nStück €\n"),
    ("type csv @skip = '1' units = 'row' { code = 'c' }", "x\nc\nStück €\n"),
    *(
        ("type xml units = '/r/u' { code = 'c' }", f"{declaration}<r><u><c>Stück €</c></u></r>")
        for declaration in ("", '<?xml version="1.0" encoding="ISO-8859-1"?>\n', "<?xml version='1.0' encoding = 'UTF-16' standalone='yes' ?>", "\ufeff")
    ),
    ("type json units = '$' { code = 'c' }", '[{"c": "Stück €"}]'),
])  # fmt: skip
def test_a_preview_shows_the_characters_of_the_source_whatever_encoding_is_declared(anna: Visitor, text: str, source: str) -> None:
    page = save(anna, None, text, "preview", source=source.replace("\n", "\r\n"))
    document = json.loads(page.tree.xpath("//pre[@class='document']")[0].text_content())
    assert document["units"] == [{"code": "Stück €"}]


def test_a_problem_of_a_preview_is_shown_at_its_field(anna: Visitor) -> None:
    assert save(anna, None, TEXT, "preview").problems == ["Source: Paste the first lines of a file to preview the import"]
    assert save(anna, None, WRONG, "preview", source="x").problems[0].startswith("Mapper: line 4")
    assert (
        save(anna, None, "type template text/plain\n{{ rows }}", "preview", source="x")
        .problems[0]
        .startswith("Mapper: a template does not read a source")
    )
    broken = save(anna, None, "type json\nunits = '$.u' {\n    code = 'c'\n    name = 'n'\n}\n", "preview", source="{")
    assert broken.status == 400 and broken.problems[0].startswith("Source: ")


def test_a_check_needs_neither_name_nor_source(anna: Visitor) -> None:
    assert save(anna, None, TEXT, "check").problems == []
    assert save(anna, None, WRONG, "check").problems[0].startswith("Mapper: line 4")
    assert save(anna, None, "type template text/plain\n{{ rows }}", "check").problems == []
    page = save(anna, None, TEXT, "check", source="Code;Name\r\nPCE;piece\r\n")
    assert json.loads(page.tree.xpath("//pre[@class='document']")[0].text_content())["units"] == [{"code": "PCE", "name": "piece"}]


def test_every_word_that_the_editor_inserts_is_of_the_language(anna: Visitor) -> None:
    page = anna.get("/mappers/_new?company=demo")
    for listed in page.tree.xpath("//details[@data-entity]"):
        words = listed.xpath(".//*[@data-insert]")
        lines = [each.get("data-insert").replace("'|'", "null") for each in words if not each.get("data-child")]
        block = f"type json\n{listed.get('data-entity')} = '$.a' {{\n" + "\n".join(lines) + "\n}\n"
        assert save(anna, None, block, "check").problems == []
    for each in page.tree.xpath("//*[@data-functions]//code"):
        problems = save(anna, None, f"type json\nunits = '$.a' {{ symbol = {each.text_content()} }}", "check").problems
        assert problems == []
    for each in page.tree.xpath("//*[@data-settings]//code"):
        texts = [f"type {kind}\n{each.get('data-insert').replace('|', '')}\nunits = '{path}' {{ code = '{'1' if 'header' in each.text_content() else 'a'}' }}"
                 for kind, path in (("csv", "row"), ("excel", "row"), ("xml", "/a/b"))]  # fmt: skip
        assert any(not save(anna, None, text, "check").problems for text in texts), each.text_content()


def test_a_mapper_changed_by_somebody_else_is_not_overwritten_unseen(anna: Visitor, service: Service) -> None:
    opened = anna.follow(save(anna, None, TEXT, name="shared"))
    seen = opened.one("//input[@name='seen']/@value")
    assert save(anna, "shared", TEXT + "# theirs\n", seen=seen).status == 303
    refused = save(anna, "shared", TEXT + "# mine\n", seen=seen)
    assert refused.status == 409 and "this mapper was changed" in refused.problems[0]
    assert refused.typed("text") == TEXT + "# mine\n"
    assert service.operator.rows("select text from bds.mappers where name = 'shared'") == [(TEXT + "# theirs\n",)]
    assert save(anna, "shared", TEXT + "# mine\n", seen=refused.one("//input[@name='seen']/@value")).status == 303


def test_a_mapper_of_another_company_is_not_found(anna: Visitor) -> None:
    save(anna, None, TEXT, name="mine")
    assert anna.get("/mappers/mine?company=second").status == 404
