"""The pages of webhooks without JavaScript: create, change, disable, test, send again."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.service.serving import Service
from tests.web.visitor import Page, Visitor

URL = "http://127.0.0.1:1/hook?a=1&b=<2>".replace("<2>", "%3C2%3E")
HOSTILE = "name = '<script>alert(1)</script>'"


def create(anna: Visitor, **fields: str) -> Page:
    return anna.post("/hooks?company=demo", {"url": URL, "entity": "products", "filter": "", "columns": "", **fields})


def id_of(page: Page) -> str:
    assert page.status == 201, page.text
    return (
        page.one("//section[contains(@class, 'created')]//a[contains(@class, 'main')]/@href").partition("?")[0].rpartition("/")[2]
    )


def test_a_webhook_is_created_and_its_secret_shown_once(anna: Visitor, service: Service) -> None:
    page = create(anna, filter="price > 100", columns="price, name\ncategory", allowInChangeSet="true")
    hook_id, secret = id_of(page), page.one("//input[@id='secret']/@value")
    assert secret.startswith("whsec_")
    assert service.operator.rows("select secret from bds.hook_secrets where hook_id = %s", (hook_id,)) == [(secret,)]
    for path in ("/hooks?company=demo", f"/hooks/{hook_id}?company=demo"):
        shown = anna.get(path)
        assert secret.encode() not in shown.reply.body
        assert "price > 100" in shown.text and "price, name, category" in shown.text
    stored = json.loads(service.ask(f"/c/demo/hooks/{hook_id}").body)
    assert (stored["columns"], stored["allowInChangeSet"]) == (["price", "name", "category"], True)


def test_a_webhook_of_an_entity_that_is_gone_does_not_become_one_of_every_entity(anna: Visitor, service: Service) -> None:
    hook = id_of(create(anna, url=f"{URL}&gone"))
    service.operator.connection.execute("update bds.hooks set entity = 'gone' where id = %s", (hook,))
    page = anna.get(f"/hooks/{hook}?company=demo")
    assert page.typed("entity") == "gone"
    [form] = page.tree.xpath("//form[.//select[@id='entity']]")
    saved = anna.post(form.get("action"), {name: value or "" for name, value in form.fields.items() if name})
    assert saved.status == 400 and saved.problems[0].startswith("Entity: ") and saved.typed("entity") == "gone"
    assert service.operator.rows("select entity from bds.hooks where id = %s", (hook,)) == [("gone",)]


PROBLEMS: list[tuple[dict[str, str], str, str]] = [
    ({"url": ""}, "URL: Enter the URL", ""),
    ({"url": "ftp://x"}, "URL: ", "http or https"),
    ({"url": "https://user:secret@x/"}, "URL: ", "credentials"),
    ({"entity": "nothing"}, "Entity: ", "nothing"),
    ({"filter": "price >"}, "Condition: ", "character 8"),
    ({"filter": "prise = 1"}, "Condition: ", "prise"),
    ({"columns": "prise"}, "Columns: ", "prise"),
]


@pytest.mark.parametrize(("fields", "problem", "named"), PROBLEMS)
def test_a_problem_is_shown_at_its_field_and_typed_values_stay(
    anna: Visitor, fields: dict[str, str], problem: str, named: str
) -> None:
    page = create(anna, **{"columns": "price", "filter": "price > 1", **fields})
    assert page.status == 400
    assert (
        len(page.problems) == 1
        and page.problems[0].startswith(problem)
        and named in page.problems[0]
        and "url: " not in page.problems[0]
    )
    (field,) = fields
    assert page.one("//*[@aria-invalid='true']/@id") == field
    expected: dict[str, Any] = {"url": URL, "columns": "price", "filter": "price > 1", **fields}
    assert {name: page.typed(name) for name in expected if name != "entity"} == {n: v for n, v in expected.items() if n != "entity"}


def test_a_webhook_is_changed(anna: Visitor) -> None:
    hook_id = id_of(create(anna, filter=HOSTILE, columns="name"))
    page = anna.get(f"/hooks/{hook_id}?company=demo")
    assert HOSTILE in page.text and not page.tree.xpath("//main//script")
    assert (page.typed("url"), page.typed("filter"), page.typed("entity")) == (URL, HOSTILE, "products")
    saved = anna.post(f"/hooks/{hook_id}?company=demo", {"url": URL + "2", "entity": "", "filter": "", "columns": ""})
    page = anna.follow(saved)
    assert "Webhook saved." in page.text
    assert "every entity" in page.one("//dl/div[dt='Watches']/dd") and page.typed("url") == URL + "2"
    wrong = anna.post(f"/hooks/{hook_id}?company=demo", {"url": "x", "entity": "units"})
    assert wrong.status == 400 and wrong.typed("url") == "x" and wrong.tree.xpath("//details[@class='edit'][@open]")


def test_a_webhook_is_disabled_enabled_and_deleted(anna: Visitor, service: Service) -> None:
    hook_id = id_of(create(anna))
    for disabled, message in (("true", "Webhook disabled."), ("false", "Webhook enabled.")):
        page = anna.follow(anna.post(f"/hooks/{hook_id}/switch?company=demo", {"disabled": disabled}))
        assert message in page.text
        assert service.operator.rows("select disabled from bds.hooks where id = %s", (hook_id,)) == [(disabled == "true",)]
    assert "Webhook deleted." in anna.follow(anna.post(f"/hooks/{hook_id}/delete?company=demo")).text
    assert anna.get(f"/hooks/{hook_id}?company=demo").status == 404


def test_a_webhook_of_another_company_is_not_found(anna: Visitor) -> None:
    hook_id = id_of(create(anna))
    for answer in (anna.get(f"/hooks/{hook_id}?company=second"), anna.post(f"/hooks/{hook_id}/delete?company=second")):
        assert answer.status == 404
    assert anna.get(f"/hooks/{hook_id}?company=demo").status == 200


def test_a_finished_delivery_is_sent_again(anna: Visitor, service: Service) -> None:
    hook_id = id_of(create(anna))
    page = anna.follow(anna.post(f"/hooks/{hook_id}/test?company=demo"))
    assert "A sample change is on its way." in page.text and page.all("//tbody//td")[0] == "pending"
    assert not page.all("//button[.='Send again']")
    service.operator.connection.execute(
        "update bds.deliveries set state = 'failed', next_attempt_at = null, finished_at = now() where hook_id = %s", (hook_id,)
    )
    service.operator.connection.execute(
        "insert into bds.delivery_attempts select company_id, id, 1, now(), 500, 12, null, '<script>no</script>' from bds.deliveries where hook_id = %s",
        (hook_id,),
    )
    page = anna.get(f"/hooks/{hook_id}?company=demo")
    assert "<script>no</script>" in page.text and not page.tree.xpath("//main//script")
    (form,) = page.tree.xpath("//form[.//button[.='Send again']]")
    page = anna.follow(anna.post(form.get("action")))
    assert "The delivery will be sent now" in page.text and page.all("//tbody//td")[0] == "pending"
    delivery = anna.get(page.one("//tbody//th//a/@href"))
    for shown in (page, delivery):
        (again,) = shown.tree.xpath("//form[.//button[.='Send now']]")
        assert "The delivery will be sent now" in anna.follow(anna.post(again.get("action"))).text
    page = anna.follow(anna.post(f"/hooks/{hook_id}/switch?company=demo", {"disabled": "true"}))
    assert not page.all("//button[starts-with(., 'Send')]")
    assert anna.post(form.get("action")).status == 409


def test_a_rest_is_ended(anna: Visitor, service: Service) -> None:
    hook_id = id_of(create(anna))
    assert not anna.get(f"/hooks/{hook_id}?company=demo").all("//button[.='End the rest']")
    service.operator.connection.execute(
        "update bds.hook_states set failures = 6, rests_until = now() + interval '1 h' where hook_id = %s", (hook_id,)
    )
    (form,) = anna.get(f"/hooks/{hook_id}?company=demo").tree.xpath("//form[.//button[.='End the rest']]")
    page = anna.follow(anna.post(form.get("action")))
    assert "The rest has ended." in page.text and page.one("//p[@id='state']").strip() == "failing"
    assert anna.post(form.get("action")).status == 409


def test_changes_of_a_range_are_replayed(anna: Visitor, service: Service) -> None:
    hook_id = id_of(create(anna, entity="units"))
    service.operator.write("demo", "insert into data.units (code, name) values ('replayed', 'x')")
    path = f"/hooks/{hook_id}/replay?company=demo"
    page = anna.follow(anna.post(path, {"since": "-1h", "until": ""}))
    assert "The changes are on their way." in page.text and page.all("//tbody//td")[0] == "pending"
    for since, until in (("0", "0"), ("now", "now")):
        assert "No change of this range matches" in anna.follow(anna.post(path, {"since": since, "until": until})).text
    for fields, status, problem in (
        ({"since": "", "until": "1"}, 400, "After: Enter a time, a version or its name"),
        ({"since": "0", "until": "%"}, 400, "Up to: expected a version such as 17"),
        ({"since": "1", "until": "0"}, 400, "After: version 1 comes after version 0"),
        ({"since": "nobody", "until": ""}, 404, "After: no version is called 'nobody'"),
        ({"since": "0", "until": "99999999"}, 404, "Up to: version 99999999 is yet to come"),
    ):
        page = anna.post(path, fields)
        assert (page.status, len(page.problems)) == (status, 1) and page.problems[0].startswith(problem), page.problems
        assert (page.typed("since"), page.typed("until")) == (fields["since"], fields["until"])
    anna.post(f"/hooks/{hook_id}/switch?company=demo", {"disabled": "true"})
    assert anna.post(path, {"since": "0", "until": ""}).status == 409
    assert not anna.get(f"/hooks/{hook_id}?company=demo").all("//h2[.='Replay']")


def test_a_webhook_that_only_failed_is_named_on_the_overview(anna: Visitor, service: Service) -> None:
    hook_id = id_of(create(anna))
    assert "all attempts failed" not in anna.get("/?company=demo").text
    service.operator.connection.execute("update bds.hooks set disabled = true, disabled_for = 'failures' where id = %s", (hook_id,))
    assert "1 webhook is disabled because all attempts failed for too long." in anna.get("/?company=demo").text
    assert "all its attempts failed for too long" in anna.get(f"/hooks/{hook_id}?company=demo").text
    anna.follow(anna.post(f"/hooks/{hook_id}/switch?company=demo", {"disabled": "false"}))
    assert "all attempts failed" not in anna.get("/?company=demo").text


def attempted(service: Service, hook_id: str, **state: Any) -> str:
    """Queue a delivery of product 17 for the hook, and set its state; returns the delivery's id."""
    changes = [{"id": "5", "entity": "products", "operation": "update", "rowId": "17", "changeSetId": None}]
    [(delivery,)] = service.operator.rows(
        "insert into bds.deliveries (company_id, hook_id, change_count, body, state, next_attempt_at)"
        " values ('demo', %s, 1, %s, 'waiting', now()) returning id",
        (hook_id, json.dumps({"hookId": hook_id, "changes": changes, "note": "<b>&amp;</b>"})),
    )
    names = ", ".join(f"{name} = %s" for name in state)
    service.operator.rows(
        f"update bds.hook_states set {names} where hook_id = %s returning 1",
        (*state.values(), hook_id),
    )
    return str(delivery)


def cells(page: Page, url: str) -> list[str]:
    (row,) = page.tree.xpath(f"//tbody/tr[contains(normalize-space(th), '{url}')]")
    return [" ".join(cell.text_content().split()) for cell in row.xpath("td")]


def test_a_hooks_health_is_shown_in_the_list_and_on_its_page(anna: Visitor, service: Service) -> None:
    urls = {name: f"http://127.0.0.1:1/{name}" for name in ("fine", "failing", "resting", "off")}
    ids = {name: id_of(create(anna, url=url)) for name, url in urls.items()}
    now = datetime.now(UTC)
    attempted(service, ids["fine"], last_at=now, last_status=204)
    attempted(service, ids["failing"], last_at=now, last_status=None, failures=2)
    attempted(service, ids["resting"], last_at=now, last_status=503, failures=6, rests_until=now + timedelta(minutes=30, seconds=9))
    anna.post(f"/hooks/{ids['off']}/switch?company=demo", {"disabled": "true"})
    listed = {name: cells(anna.get("/hooks?company=demo"), url) for name, url in urls.items()}
    assert {name: row[0].split()[0] for name, row in listed.items()} == {
        "fine": "ok", "failing": "failing", "resting": "resting", "off": "disabled",
    }  # fmt: skip
    assert "2 failures" in listed["failing"][0] and listed["resting"][0].endswith("in 30 min")
    assert [listed[name][1].split()[0] for name in ids] == ["204", "no", "503", "none"]
    assert [listed[name][2] for name in ids] == ["1", "1", "1", "0"]
    resting = anna.get(f"/hooks/{ids['resting']}?company=demo")
    assert resting.one("//*[@id='state']") == "resting" and "resting" in resting.one("//*[@id='health']/p")
    assert "in 30 min" in resting.one("//tbody//td[@data-label='Next attempt']"), "the rest counts"
    assert "receives no changes of imports" in resting.text
    with_imports = anna.get(f"/hooks/{id_of(create(anna, allowInChangeSet='true'))}?company=demo")
    assert "receives no changes of imports" not in with_imports.text


def test_the_deliveries_and_the_latency_of_the_last_day_are_a_line(anna: Visitor, service: Service) -> None:
    hook_id = id_of(create(anna))
    assert anna.get(f"/hooks/{hook_id}?company=demo").one("//p[@class='day']") == "Last 24 hours: 0 deliveries."
    for state, hours, status, duration in (
        ("delivered", 25, 204, 9_999), ("delivered", 23, 204, 40), ("delivered", 2, 200, 80), ("failed", 1, 404, 1_200), ("failed", 1, None, 9_000), ("waiting", 0, 503, 60),
    ):  # fmt: skip
        delivery = attempted(service, hook_id, failures=0)
        service.operator.connection.execute(
            "update bds.deliveries set state = %s, next_attempt_at = case when %s = 'waiting' then now() end, finished_at = case when"
            " %s <> 'waiting' then now() - %s * interval '1 h' end where id = %s", (state, state, state, hours, delivery),
        )  # fmt: skip
        service.operator.connection.execute(
            "insert into bds.delivery_attempts values ('demo', %s, 1, now() - %s * interval '1 h', %s, %s, %s)",
            (delivery, hours, status, duration, None if status else "timeout"),
        )
    assert anna.get(f"/hooks/{hook_id}?company=demo").one("//p[@class='day']") == (
        "Last 24 hours: 4 deliveries, 2 failed; answers within 60 ms at the median, 1,200 ms for 95 %."
    )


def test_a_delivery_shows_its_rows_and_its_body(anna: Visitor, service: Service) -> None:
    hook_id = id_of(create(anna))
    service.operator.write("demo", "insert into data.products (company_id, id, code, name) values ('demo', 17, 'A17', 'Claw')")
    delivery = attempted(service, hook_id, failures=1)
    page = anna.get(f"/hooks/{hook_id}?company=demo")
    assert f"/hooks/{hook_id}/deliveries/{delivery}?company=demo" in page.all("//tbody//a/@href")
    page = anna.get(f"/hooks/{hook_id}/deliveries/{delivery}?company=demo")
    assert page.one("//tbody//a/@href") == "/changes/products/17?company=demo#v5"
    assert page.one("//tbody//th") == "products A17 Claw"
    (body,) = page.tree.xpath("//pre[@class='document']")
    assert json.loads(body.text_content())["note"] == "<b>&amp;</b>" and not page.tree.xpath("//pre/b")
    assert anna.get(f"/hooks/{hook_id}/deliveries/{hook_id}?company=demo").status == 404
    assert anna.get(f"/hooks/{hook_id}/deliveries/{delivery}?company=second").status == 404


def test_a_secret_is_rotated_and_shown_once(anna: Visitor, service: Service) -> None:
    hook_id = id_of(create(anna))

    def stored() -> tuple[Any, ...]:
        return service.operator.rows("select secret, previous from bds.hook_secrets where hook_id = %s", (hook_id,))[0]

    first = stored()[0]
    page = anna.post(f"/hooks/{hook_id}/secret?company=demo")
    second = page.one("//input[@id='secret']/@value")
    assert stored() == (second, first) and "for a day" in page.text
    page = anna.post(f"/hooks/{hook_id}/secret?company=demo", {"revoke": "true"})
    assert stored() == (page.one("//input[@id='secret']/@value"), None) and "no longer used" in page.text
    assert stored()[0].encode() not in anna.get(f"/hooks/{hook_id}?company=demo").reply.body
