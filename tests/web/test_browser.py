"""The pages in a real Chromium: whole tasks of a user, by mouse and by keyboard, and accessibility."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests import chromium as browsers
from tests.auth.client import EMAIL, PASSWORD, ask, bearer, make_user
from tests.service.serving import Service, wait_until
from tests.web.visitor import Visitor, visitor
from tests.webhooks.conftest import working
from tests.webhooks.receiving import receiving

pytestmark = pytest.mark.processes

PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
ONE_LINE = 50  # pixels
PATIENCE = 60_000  # milliseconds


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """One browser for all tests of this module."""
    with browsers.for_tests() as browser:
        yield browser


@pytest.fixture(scope="module")
def base(service: Service) -> str:
    return f"http://{service.host}:{service.port}"


@pytest.fixture(scope="module")
def session(chromium: Any, base: str) -> Any:
    """The storage state of a browser after a login."""
    page = chromium.new_context(base_url=base).new_page()
    page.goto("/login")
    page.fill("#email", EMAIL)
    page.fill("#password", PASSWORD)
    page.click("button.main")
    page.wait_for_url("**/")
    return page.context.storage_state()


@pytest.fixture
def page(chromium: Any, base: str, session: Any) -> Iterator[Any]:
    """A page after a login; the test fails if a script raises or the Content-Security-Policy blocks something."""
    context = chromium.new_context(base_url=base, storage_state=session, viewport=DESK, accept_downloads=True)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda message: troubles.append(message.text) if "Content Security Policy" in message.text else None)
    yield page
    context.close()
    assert not troubles


def test_login_by_keyboard_alone(chromium: Any, base: str) -> None:
    context = chromium.new_context(base_url=base)
    page = context.new_page()
    page.goto("/changes?company=demo")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    assert page.evaluate("document.activeElement.getBoundingClientRect().top") >= 0, "and it is visible"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type(EMAIL)
    page.keyboard.press("Tab")
    page.keyboard.type("not it")
    page.keyboard.press("Enter")
    page.wait_for_selector("[role=alert]")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "alert", "screen readers announce the problem first"
    assert page.input_value("#email") == EMAIL
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url("**/changes?company=demo")
    page.wait_for_selector("text=No changes yet")
    context.close()


def test_a_key_is_created_copied_and_revoked(page: Any, base: str, service: Service) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=base)
    page.goto("/keys?company=demo")
    assert not page.is_visible("#day")
    page.select_option("#expires", "date")
    assert page.is_visible("#day"), "the date is shown only if it counts"
    page.select_option("#expires", "30d")
    page.fill("#name", "browser")
    assert not page.is_checked("input[value=hooks]")
    page.click("button:has-text('Create key')")
    key = page.input_value("#new-key")
    page.click("button:has-text('Copy')")
    page.wait_for_selector("button:has-text('Copied')")
    assert page.evaluate("navigator.clipboard.readText()") == key
    assert ask(service, "/c/demo/products", headers=bearer(key)).status == 200
    assert ask(service, "/c/demo/hooks", headers=bearer(key)).status == 403
    page.reload()
    assert key not in page.content() and page.locator("tbody tr:has-text('browser')").count() == 1, (
        "a reload does not create a second one"
    )
    row = page.locator("tbody tr:has-text('browser')")
    assert not row.locator("button").is_visible()
    row.locator("summary").click()
    page.keyboard.press("Escape")
    assert not row.locator("button").is_visible()
    row.locator("summary").click()
    row.locator("button").click()
    page.wait_for_selector("text=API key revoked.")
    assert "flash=" not in page.url
    assert page.locator("tbody tr:has-text('browser')").inner_text().startswith("browser")
    assert ask(service, "/c/demo/products", headers=bearer(key)).status == 401


def test_an_import_shows_its_progress_and_errors(page: Any, tmp_path: Path) -> None:
    records = [{"code": f"R{n}", "name": "x" * 50} for n in range(30_000)] + [{"code": "R1", "price": "dear"}]
    document = tmp_path / "feed.json"
    document.write_text(json.dumps({"@atomic": False, "products": records, "units": [{"code": "<i>U</i>"}]}))
    page.goto("/imports?company=demo")
    page.set_input_files("#file", document)
    page.click("button.main")
    page.wait_for_url("**/imports/*-*")
    assert page.locator("progress, .badge.partial").first.is_visible()
    page.wait_for_selector(".badge.partial", timeout=60_000)
    assert "partial" in page.inner_text("[data-announce]") or page.locator("[data-announce]").count() == 1
    counts = page.inner_text("tr:has(th:text-is('products'))").split()
    assert counts[:2] == ["products", "30,000"] and counts[-1] == "1"
    errors = page.inner_text("section[aria-labelledby=errors-title]")
    assert "products[30000]" in errors.replace("\u200b", "") and "duplicate_record" in errors and "<i>U</i>" in errors
    page.click("a:text-is('View changes')")
    page.wait_for_selector("text=Older")


def test_a_file_is_dropped_imported_in_a_dry_run_and_refused(page: Any) -> None:
    page.goto("/imports?company=demo")
    dropped = "(text) => { const data = new DataTransfer(); data.items.add(new File([text], 'units.json')); return data; }"
    transfer = page.evaluate_handle(dropped, '{"units": [{"code": "DROP", "name": "dropped"}]}')
    page.dispatch_event("[data-drop]", "drop", {"dataTransfer": transfer})
    assert page.evaluate("document.getElementById('file').files[0].name") == "units.json"
    page.check("input[name=dryRun]")
    page.click("button.main")
    page.wait_for_url("**/imports/*-*")
    page.wait_for_selector("text=This was a dry run: nothing was written.")
    assert "File\nunits.json" in page.inner_text(".facts")
    page.goto("/imports?company=demo")
    page.evaluate("document.querySelector('#mapper').append(new Option('gone', 'gone', true, true))")
    page.dispatch_event("[data-drop]", "drop", {"dataTransfer": page.evaluate_handle(dropped, "a;b")})
    page.click("button.main")
    page.wait_for_selector("[data-upload-error]:has-text('mapper: gone')")
    assert page.is_enabled("button.main")


def test_a_webhooks_secret_is_shown_once_and_a_delivery_is_sent_again(page: Any, module_database_url: str) -> None:
    with receiving() as receiver, working(module_database_url):
        receiver.answers["/ok"] = [404, 200]
        create_and_retry(page, receiver.url())
        assert len(receiver.of("/ok")) == 2


def create_and_retry(page: Any, url: str) -> None:
    page.goto("/hooks?company=second")
    page.fill("#url", url)
    page.fill("#filter", "prise > 1")
    page.select_option("#entity", "products")
    page.click("button:has-text('Create webhook')")
    page.wait_for_selector("#filter-wrong")
    assert page.get_attribute("#filter", "aria-describedby") == "filter-hint filter-wrong"
    page.fill("#filter", "")
    page.click("button:has-text('Create webhook')")
    secret = page.input_value("#secret")
    assert secret.startswith("whsec_")
    page.click("text=Go to the webhook")
    assert secret not in page.content()
    assert page.inner_text("#state") == "ok"
    page.click("button:has-text('Test')")
    page.wait_for_selector("tbody .badge.failed")
    page.wait_for_selector("#state .badge.failing")
    assert "404" in page.inner_text("#health")
    page.click("tbody summary")
    assert "404" in page.inner_text(".attempts")
    page.click("text=Send again")
    page.wait_for_selector("tbody .badge.delivered")
    page.wait_for_selector("#state .badge.ok")
    rotate_and_show(page, secret)


def rotate_and_show(page: Any, secret: str) -> None:
    """The secret is rotated after a confirmation, and shown once; a delivery shows its rows and body."""
    assert not page.is_visible("text=Create new secret")
    page.click("summary:has-text('New secret')")
    page.click("button:has-text('Create new secret')")
    second = page.input_value("#secret")
    assert second.startswith("whsec_") and second != secret
    page.reload()
    assert second not in page.content(), "a reload neither shows it nor makes another one"
    page.click("tbody a.sub")
    page.wait_for_selector("h1:has-text('Delivery')")
    assert "a sample, not a row" in page.inner_text("tbody")
    assert '"rowId": "0"' in page.inner_text("pre.document")


def test_a_page_shows_that_its_session_has_ended_and_keeps_typed_text(chromium: Any, base: str, service: Service) -> None:
    make_user(service, "dora@example.com", "demo")
    dora = visitor(service, "dora@example.com")
    dora.post("/hooks?company=demo", {"url": "http://127.0.0.1:1/", "entity": ""})
    hook = json.loads(ask(service, "/c/demo/hooks", headers=dora.headers).body)["data"][0]["id"]
    dora.post(f"/hooks/{hook}/test?company=demo")
    context = chromium.new_context(base_url=base)
    context.add_cookies([{"name": "session", "value": dora.headers["Cookie"].partition("=")[2], "url": base}])
    page = context.new_page()
    page.goto(f"/hooks/{hook}?company=demo")
    page.click("summary:has-text('Edit')")
    page.fill("#filter", "half a thought")
    dora.post("/logout")
    page.wait_for_selector("text=Your session has ended")
    assert page.input_value("#filter") == "half a thought"
    context.close()


def write(page: Any, text: str) -> None:
    """Replace what is in the editor."""
    page.evaluate("text => document.querySelector('.CodeMirror').CodeMirror.setValue(text)", text)


def written(page: Any) -> list[str]:
    return str(page.evaluate("document.querySelector('.CodeMirror').CodeMirror.getValue()")).split("\n")


def test_an_error_of_a_mapper_is_shown_at_its_line(page: Any) -> None:
    page.goto("/mappers/_new?company=demo")
    write(page, "type csv\nunits = 'row' { code = 'Code' nane = 'Name' }\n")
    page.click("text=Save")
    page.wait_for_selector(".problems >> text=There are 2 problems")
    page.fill("#name", "browser")
    page.wait_for_selector(".problems >> text=There is a problem")
    write(page, "type csv\nunits = 'row' {\n    code = 'Code'\n    nane = 'Name'\n}\n")
    page.click("text=Save")
    page.wait_for_selector("[role=alert] >> text=units has no field nane")
    wrong = page.locator(".CodeMirror-code > div", has=page.locator(".problem-line"))
    assert wrong.locator(".CodeMirror-linenumber").inner_text() == "4"
    assert wrong.locator(".line-problem").inner_text().startswith("units has no field nane, expected one of")
    assert wrong.locator(".problem-mark").inner_text() == "nane"
    assert not page.is_visible("#text-wrong")
    write(page, "\n".join(written(page)).replace("nane", "name"))
    page.wait_for_selector("text=No errors.")
    assert not page.locator(".line-problem, .problems, #text-wrong, [aria-invalid=true]").count()
    page.click("text=Save")
    page.wait_for_selector("text=Mapper saved.")
    assert written(page)[3] == "    name = 'Name'"


def test_the_preview_of_a_mapper_follows_what_is_typed(page: Any) -> None:
    page.goto("/mappers/_new?company=demo")
    write(page, "type csv\nunits = 'row' { code = 'Code' }\n")
    page.fill("#source", "Code;Name\nPCE;piece\n")
    page.wait_for_selector("pre.document")
    assert json.loads(page.inner_text("pre.document")) == {"units": [{"code": "PCE"}]}
    write(page, "type csv\nunits = 'row' { code = 'Code' name = upper('Name') }\n")
    page.wait_for_selector("pre.document >> text=PIECE")
    write(page, "type csv\nunits = 'row' { code = }\n")
    page.wait_for_selector("text=Error in line 2.")
    assert "PIECE" in page.inner_text("#result.old"), "the last preview stays, paler"
    assert page.url.endswith("/mappers/_new?company=demo")


def test_the_editor_completes_and_inserts_words_by_keyboard_alone(page: Any) -> None:
    page.goto("/mappers/_new?company=demo")
    write(page, "type csv\nproducts = 'row' {\n    variants = 'line' {\n    }\n}\n")
    page.evaluate("document.querySelector('.CodeMirror').CodeMirror.setCursor({line: 2, ch: 99})")
    page.focus(".CodeMirror textarea")
    page.keyboard.press("Enter")
    page.keyboard.type("ba")
    page.wait_for_selector(".CodeMirror-hint-active")
    assert page.locator(".CodeMirror-hint").all_inner_texts() == ["barcode\ntext, unique"], "fields of productVariants"
    page.keyboard.press("Enter")
    page.keyboard.type("x")
    assert written(page)[3] == "        barcode = 'x'"
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Save", "the Tab key leaves the editor"
    page.focus("[data-entity=productVariants] [data-word=price]")
    page.keyboard.press("Enter")
    assert written(page)[3:5] == ["        barcode = 'x'", "        price = ''"]


def test_a_request_is_tried_on_the_page_of_the_description(page: Any) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto("/docs?company=demo")
    assert "invert" in page.evaluate("getComputedStyle(document.querySelector('.swagger')).filter"), "it is dark in the dark theme"
    page.locator(".opblock-summary", has_text="Register a hook").click()
    page.click("text=Try it out")
    page.fill("textarea.body-param__text", '{"entity": "units", "url": "http://127.0.0.1:9/x", "action": "webhook"}')
    page.click("button.execute")
    page.wait_for_selector(".live-responses-table")
    assert page.inner_text(".live-responses-table tbody .response-col_status").startswith("201"), (
        "company and CSRF token are filled in"
    )


def test_an_export_is_downloaded(page: Any, service: Service) -> None:
    service.operator.write("second", "insert into data.units (company_id, code, name) values ('second', 'EX', 'exported')")
    page.goto("/export?company=second&entity=units")
    page.check("input[name=columns][value=code]")
    page.check("input[name=columns][value=name]")
    page.fill("#filter", "code eq 'EX'")
    with page.expect_download() as download:
        page.click("button:has-text('Download')")
    assert download.value.suggested_filename == "units.csv"
    assert Path(download.value.path()).read_text(encoding="utf-8-sig").split() == ["code,name", "EX,exported"]


def test_the_export_form_follows_entity_and_company(page: Any) -> None:
    page.goto("/export?company=second&entity=units")
    page.check("input[name=columns][value=symbol]")
    page.fill("#top", "3")
    page.focus("#entity")
    page.select_option("#entity", "products")
    page.wait_for_selector("input[name=columns][value=price]")
    assert page.inner_text("#columns [role=status]") == "products has no symbol: this column is no longer selected."
    assert page.evaluate("document.activeElement.id") == "entity"
    assert page.input_value("#top") == "3"
    page.check("input[name=columns][value=price]")
    page.select_option("#switch-company", "demo")
    page.wait_for_selector("nav a[href='/data?company=demo']")
    assert "company=demo" in page.url and page.is_checked("input[name=columns][value=price]")
    assert page.input_value("#entity") == "products" and page.input_value("#top") == "3"


def test_a_rows_history_shows_values_side_by_side(page: Any, service: Service) -> None:
    service.operator.write("second", "insert into data.units (company_id, id, code, name) values ('second', 4711, 'H', 'before')")
    service.operator.write("second", "update data.units set name = 'after' where code = 'H'", actor="ben")
    page.goto("/changes?company=second&entity=units&row=H")
    page.click("text=units H >> nth=0")
    row = page.locator("section.version >> nth=0").locator("tbody tr")
    assert row.inner_text().split() == ["name", "before", "after"]
    before, after = (row.locator("td").nth(n).bounding_box() for n in (0, 1))
    assert before["y"] == after["y"] and before["x"] < after["x"]


def test_local_time_stands_beside_utc(chromium: Any, base: str, session: Any, service: Service) -> None:
    service.operator.write("second", "insert into data.units (company_id, code, name) values ('second', 'T', 'time')")
    at = service.operator.rows("select max(created_at) from bds.changes where company_id = 'second'")[0][0]
    context = chromium.new_context(base_url=base, storage_state=session, timezone_id="Asia/Kolkata")
    page = context.new_page()
    page.goto("/changes?company=second&view=single")
    first = page.locator("tbody time").first
    local = at.astimezone(ZoneInfo("Asia/Kolkata"))
    assert first.inner_text().startswith(f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}")
    assert f"{local:%H:%M} local, " in first.inner_text()
    assert first.get_attribute("title").endswith(" UTC")
    page.wait_for_selector("[data-is=live]")
    service.operator.write("second", "update data.units set name = 'later' where code = 'T'")
    page.wait_for_selector("tbody tr:first-child .badge.update")
    assert " local, " in page.locator("tbody time").first.inner_text(), "also where a row has come since"
    context.close()


def test_a_condition_is_completed_by_keyboard_alone(page: Any, service: Service) -> None:
    service.operator.write("second", "insert into data.categories (company_id, code, name) values ('second', 'K1', 'c')")
    page.goto("/data/categories?company=second")
    page.focus("#filter")
    page.keyboard.type("na")
    options = page.locator("#filter-words [role=option]")
    assert options.all_inner_texts() == ["name\ntext"]
    assert page.get_attribute("#filter", "aria-expanded") == "true"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.input_value("#filter") == "name "
    assert "ilike" in options.all_inner_texts() and "<" not in options.all_inner_texts()
    page.keyboard.type("= 'c and ")
    assert not options.first.is_visible(), "not within a text"
    page.keyboard.type("d' o")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    page.keyboard.type("par")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.type("= ")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert page.input_value("#filter") == "name = 'c and d' or parent = 'code:"
    page.keyboard.type("x' or code = 'K1'")
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    page.wait_for_selector("tbody th >> text=K1")
    assert page.locator("tbody tr").count() == 1


def test_a_working_day_on_the_data_pages(page: Any, service: Service) -> None:
    """The key / searches, 20 rows stand in the window, a reference opens in place, a picked time is one of the browser's zone."""
    write = service.operator.write
    write("second", "insert into data.categories (code, name) values ('DAY', 'Days'), ('UP', 'Above')")
    write("second", "update data.categories set parent_id = (select id from data.categories where code = 'UP') where code = 'DAY'")
    many = "select 'DAY' || n, 'Day ' || n, (select id from data.categories where code = 'DAY') from generate_series(1, 30) n"
    write("second", f"insert into data.products (code, name, category_id) {many}")
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto("/changes?company=second")
    page.keyboard.press("/")
    page.keyboard.type("DAY1")
    page.keyboard.press("Enter")
    page.wait_for_selector("section[aria-labelledby=in-products] a:text-is('DAY1')")
    page.goto("/data/products?company=second&q=DAY")
    seen = "[...document.querySelectorAll('tbody tr')].filter((row) => row.getBoundingClientRect().bottom <= innerHeight).length"
    assert page.evaluate(seen) >= 20
    page.evaluate("document.querySelector('.grid-box').scrollTo(0, 400)")
    assert page.evaluate(
        "document.elementFromPoint(60, document.querySelector('.grid-box').getBoundingClientRect().top + 12).closest('thead') !== null"
    )
    page.click("tbody tr:nth-child(3) a.ref")
    page.click("tr.peek a.ref:text-is('UP')")
    page.wait_for_selector("tr.peek >> text=Above")
    assert page.url.endswith("q=DAY") and page.locator("tr.peek").count() == 1
    page.click("tr.peek [role=status] > a")
    page.wait_for_selector("h1:has-text('UP')")
    page.click("#moment summary")
    page.fill("#day", "2026-01-31T14:30")
    assert re.fullmatch(r"2026-01-31T14:30[+-]\d\d:\d\d", page.input_value("#asof"))
    page.keyboard.press("Escape")
    assert not page.is_visible("#asof") and page.evaluate("document.activeElement.tagName") == "SUMMARY"


def test_companies_and_users_are_managed_by_keyboard_alone(page: Any, service: Service) -> None:
    service.operator.rows("select bds.set_access('anna@example.com', '{demo,second}', true)")
    page.goto("/companies?company=second")
    page.focus("#id")
    page.keyboard.type("keyed")
    press(page, "Tab", "Tab", "Tab", "Enter")
    page.wait_for_selector("text=Company created.")
    page.focus("nav a:has-text('Users')")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('Users')")
    page.focus("#email")
    page.keyboard.type("keyed@example.com")
    press(page, "Tab")
    assert page.evaluate("document.activeElement.value") == "keyed", "the company of the page is chosen, and first"
    press(page, "Shift+Tab", "Enter")
    page.wait_for_selector("h2:has-text('User created')")
    assert page.evaluate("document.activeElement.id") == "created-title", "screen readers announce it"
    page.goto("/companies?company=second")
    page.focus("summary[aria-label='Delete keyed']")
    press(page, "Enter", "Tab")
    assert page.evaluate("document.activeElement.id") == "confirm-keyed"
    page.keyboard.type("keyed")
    press(page, "Enter")
    page.wait_for_selector("text=Company deleted.")
    assert not service.operator.rows("select email from bds.users where email = 'keyed@example.com'"), "it had no other company"


def press(page: Any, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


PAGES = [
    "/", "/data", "/data/units", "/data/units?filter=id%20%3E", "/data/units?asof=1", "/data?q=a", "/data/products?group=category&sum=price", "/data/units/code:AXE?asof=1", "/data/units/4712", "/connect", "/changes", "/changes?view=single", "/changes?filter=id%20%3E", "/changes/units/4712", "/diff", "/diff?since=nope", "/diff?since=1", "/diff/units?since=1", "/imports", "/imports/{import}", "/imports/{import}?code=required", "/imports/{undone}", "/imports/{dry}", "/mappers", "/mappers/axe", "/mappers/_new", "/docs", "/export", "/export?entity=units&columns=code&columns=price",
    "/export?do=url&entity=units&format=csv&filter=x", "/hooks", "/hooks/{hook}", "/hooks/{hook}/deliveries/{delivery}", "/keys", "/imports/none", "/account", "/companies", "/users", "/users/{user}", "/audit", "/login",
]  # fmt: skip


# themes, sizes and options of axe; None: only the width
THEMES: list[tuple[str, Any, dict[str, Any] | None]] = [
    ("light", DESK, {}),
    ("dark", DESK, {"runOnly": ["color-contrast"]}),
    ("light", PHONE, None),
]
SWAGGER = {("/docs", "heading-order"), ("/docs", "nested-interactive")}  # of its elements, which are not ours


@pytest.fixture(scope="module")
def furnished(service: Service, anna: Visitor) -> dict[str, str]:
    """Fill every page of company second; returns the ids for PAGES."""
    service.operator.write("second", "insert into data.units (company_id, id, code, name) values ('second', 4712, 'AXE', 'x')")
    service.operator.write("second", "update data.units set name = 'y' where code = 'AXE'")
    anna.post(
        "/mappers/_new?company=second", {"do": "save", "name": "axe", "text": "type csv\nunits = 'row' {\n    code = 'Code'\n}\n"}
    )
    imported = anna.upload("/imports?company=second", {}, "u.json", b'{"units": [{"code": "Q"}, {"nope": 1}]}').location or ""
    anna.post("/hooks?company=second", {"url": "http://127.0.0.1:1/", "entity": "", "filter": "", "columns": ""})
    hook = json.loads(ask(service, "/c/second/hooks", headers=anna.headers).body)["data"][0]["id"]
    anna.post(f"/hooks/{hook}/test?company=second")
    resting = "update bds.hook_states set failures = 6, last_at = now(), last_status = 503, rests_until = now() + interval '1 h'"
    [(delivery,)] = service.operator.rows(f"with s as ({resting}) select id::text from bds.deliveries where hook_id = %s", (hook,))
    service.operator.rows("select bds.set_access('anna@example.com', '{demo,second}', true)")
    [(user,)] = service.operator.rows("select id::text from bds.users where email = 'anna@example.com'")
    fill_with_long_names(service, anna)
    return {
        "undone": undo(anna),
        "dry": dry_run(anna),
        "user": user,
        "import": re.findall(r"/imports/([0-9a-f-]{36})", imported)[0],
        "hook": hook,
        "delivery": delivery,
    }


def dry_run(anna: Visitor) -> str:
    """Name a version and look at the way back to the first one; returns the id of the report."""
    anna.post("/diff?company=second", {"do": "name", "name": "n" * 63})
    report = anna.post("/changes/revert?company=second", {"to": "1", "dryRun": "true"}).location or ""
    wait_until(lambda: "nothing was written" in anna.get(report).text)
    return re.findall(r"/imports/([0-9a-f-]{36})", report)[0]


def fill_with_long_names(service: Service, anna: Visitor) -> None:
    """Names as long as they may be, many companies, a webhook that rests after attempts with long errors."""
    long, companies = "n" * 63, [service.operator.company(f"axe-{n}") for n in range(12)]
    companies.append(service.operator.company("c" * 63, "t" * 63))
    everywhere = ["demo", "second", *companies]
    service.operator.rows("select bds.set_access('anna@example.com', %s, true)", (everywhere,))
    make_user(service, f"{'e' * 60}@{'d' * 60}.example.com", *everywhere)
    text = "type csv\nunits = 'row' {\n    code = 'A column with a long name that goes beyond the width of a phone'\n}\n"
    anna.post("/mappers/_new?company=second", {"do": "save", "name": long, "text": text})
    anna.post("/hooks?company=second", {"url": f"http://127.0.0.1:1/{long}/{long}", "entity": "", "filter": "", "columns": ""})
    service.operator.rows(
        "insert into bds.delivery_attempts (company_id, delivery_id, n, at, duration_ms, error)"
        " select company_id, id, 99, now(), 3, 'connection_failed: ' || repeat('n', 200) from bds.deliveries"
        " where company_id = 'second' returning n"
    )


def undo(anna: Visitor) -> str:
    """Import and undo; returns the id of the import."""
    imported = (
        anna.upload("/imports?company=second", {}, f"{'f' * 90}.json", b'{"units": [{"code": "Z", "name": "z"}]}').location or ""
    )
    id = re.findall(r"/imports/([0-9a-f-]{36})", imported)[0]
    wait_until(lambda: "Undo" in anna.get(f"/imports/{id}?company=second").text)
    anna.post("/changes/revert?company=second", {"changeSet": id})
    wait_until(lambda: "This was undone" in anna.get(f"/imports/{id}?company=second").text)
    return id


def test_pages_are_accessible_and_do_not_scroll_sideways(chromium: Any, base: str, session: Any, furnished: dict[str, str]) -> None:
    """axe-core finds no violations but in Swagger UI's structure (in the dark theme only contrast is checked); none scrolls sideways."""
    axe = pytest.importorskip("axe_playwright_python", reason="no axe-core: make install")
    script = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    found: list[tuple[str, str, str, object]] = []
    for state, paths in ((session, [path for path in PAGES if path != "/login"]), (None, ["/login"])):
        context = chromium.new_context(base_url=base, storage_state=state, viewport=DESK, color_scheme="light")
        page = context.new_page()
        for path in paths:
            url = path.format(**furnished)
            page.goto(url + ("&" if "?" in url else "?") + "company=second")
            page.evaluate(script)
            page.evaluate("document.querySelectorAll('details.pop').forEach((each) => { each.open = true; })")
            for theme, size, rules in THEMES:  # of a page that is loaded once
                page.set_viewport_size(size)
                page.emulate_media(color_scheme=theme)
                options = json.dumps({"resultTypes": ["violations"], **(rules or {})})
                wrong = [] if rules is None else page.evaluate(f"axe.run(document, {options})")["violations"]
                found += [
                    (path, theme, each["id"], [node["html"] for node in each["nodes"][:2]])
                    for each in wrong
                    if (path, each["id"]) not in SWAGGER
                ]
                height = page.evaluate("document.querySelector('header.top')?.offsetHeight ?? 0")
                if size == PHONE and height > ONE_LINE:
                    found.append((path, f"{theme} {size['width']}", "the header has more than one line", height))
                width = page.evaluate("document.documentElement.scrollWidth")
                if width > size["width"]:
                    found.append((path, f"{theme} {size['width']}", "scrolls sideways", width))
        context.close()
    assert not found


def test_a_phone_has_the_pages_and_the_account_in_a_menu(page: Any) -> None:
    page.set_viewport_size(PHONE)
    page.goto("/?company=second")
    assert not page.is_visible("nav >> text=Imports") and not page.is_visible("text=Sign out")
    page.click("button:has-text('Menu')")
    page.click("nav >> text=Imports")
    page.wait_for_url("**/imports?company=second")
    page.click("button:has-text('Menu')")
    assert page.is_visible("#menu >> text=Sign out")
    page.click("#menu >> text=Account")
    page.wait_for_url("**/account?company=second")


@pytest.mark.parametrize(("name", "content"), [
    ("units.csv", b"code,name\nCSV,from csv\n"), ("units.jsonl", b'{"code": "JSONL", "name": "from jsonl"}\n'), ("units.XML", b"<units><unit><code>XML</code><name>from xml</name></unit></units>"),
])  # fmt: skip
def test_the_name_of_a_file_as_exported_chooses_what_reads_it(page: Any, name: str, content: bytes) -> None:
    page.goto("/imports?company=demo")
    page.set_input_files("#file", {"name": f"planets{name[5:]}", "mimeType": "", "buffer": content})
    page.click("button.main")
    page.wait_for_selector("[data-upload-error]:has-text('Choose the entity or the mapper')")
    page.set_input_files("#file", {"name": name, "mimeType": "", "buffer": content})
    assert page.input_value("#mapper") == "entity:units"
    page.click("button.main")
    page.wait_for_url("**/imports/*-*")
    page.get_by_text("All records were applied.").wait_for(timeout=PATIENCE)


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_long_words_break_in_every_table(page: Any, service: Service, anna: Visitor, size: Any) -> None:
    long = f"{size['width']}-{'x' * 300}"
    service.operator.write(
        "second", f"insert into data.products (code, name, description) values ('{long[:60]}', '{long}', 'some words')"
    )
    service.operator.write("second", f"insert into data.customers (code, name, city) values ('{long[:60]}', '{long}', 'Wien')")
    [(id,)] = service.operator.rows(f"select id from data.products where code = '{long[:60]}'")
    document = json.dumps({"units": [{"code": "LONG", long: 1}, {"code": long * 9}]}).encode()
    report = anna.upload("/imports?company=second", {}, f"{long[:200]}.json", document).location or ""
    wait_until(lambda: anna.get(report).all("//*[@id='errors-title']"))
    page.set_viewport_size(size)
    names = [
        "/data/products",
        f"/data/products/{id}",
        "/data/customers",
        f"/changes/products/{id}",
        "/changes",
        "/changes?view=single",
    ]
    wide = []
    for path in [
        *names,
        "/data",
        "/imports",
        report,
        "/export?entity=products&columns=code&columns=name",
        "/hooks",
        "/mappers",
        "/keys",
    ]:
        page.goto(path + ("" if "company=" in path else ("&" if "?" in path else "?") + "company=second"))
        wide += [
            (path, *found)
            for found in page.evaluate(
                "[document.documentElement, ...document.querySelectorAll('.scroll')]"
                ".filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => [each.className, each.scrollWidth])"
            )
        ]
    assert not wide


def test_a_form_of_an_ended_session_asks_for_the_login_in_place(page: Any) -> None:
    page.goto("/mappers/_new?company=second")
    page.fill("#name", "kept")
    page.context.clear_cookies()
    page.click("button:has-text('Save')")
    page.wait_for_selector("dialog input[type=password]")
    assert "nothing has been sent" in page.inner_text("dialog")
    page.fill("dialog #email", EMAIL)
    page.fill("dialog #password", "wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog [role=alert]")
    page.click("dialog button:has-text('Cancel')")
    page.wait_for_selector("dialog", state="detached")
    assert page.input_value("#name") == "kept" and "company=second" in page.url
    page.click("button:has-text('Save')")
    page.wait_for_selector("dialog input[type=password]")
    page.fill("dialog #email", EMAIL)
    page.fill("dialog #password", PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Mapper saved.")
    assert "company=second" in page.url and page.inner_text("h1").endswith("kept")


def test_a_login_in_place_that_the_service_does_not_answer_can_be_tried_again(page: Any) -> None:
    page.goto("/mappers/_new?company=second")
    page.fill("#name", "again")
    page.context.clear_cookies()
    page.click("button:has-text('Save')")
    page.fill("dialog #email", EMAIL)
    page.fill("dialog #password", PASSWORD)
    answers = [lambda route: route.abort(), lambda route: route.fulfill(status=503, body="no service")]
    for answer in answers:
        page.route("**/login", answer)
        page.keyboard.press("Enter")
        page.wait_for_selector("dialog [role=status]:has-text('The service does not answer')")
        page.unroute("**/login")
        assert page.input_value("dialog #email") == EMAIL and page.input_value("#name") == "again"
        page.evaluate("document.querySelector('dialog [role=status]').textContent = ''")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Mapper saved.")


def test_a_file_of_an_ended_session_is_sent_after_the_login_in_place(page: Any, tmp_path: Path) -> None:
    document = tmp_path / "again.json"
    document.write_text('{"units": [{"code": "AGAIN", "name": "again"}]}')
    page.goto("/imports?company=second")
    page.set_input_files("#file", document)
    page.context.clear_cookies()
    page.click("button.main")
    page.fill("dialog #email", EMAIL)
    page.fill("dialog #password", PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url("**/imports/*-*")
    page.wait_for_selector("text=All records were applied.")
