"""One attempt: signed as Standard Webhooks requires, to public addresses only, whatever the receiver does."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import time
from uuid import UUID, uuid4

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from app.webhooks import addresses, send
from app.webhooks.send import Delivery, Outcome, Sender, describe
from tests.webhooks.receiving import Receiver

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
BODY = json.dumps({"changes": [{"rowId": "1"}], "text": "ä ☃"}, ensure_ascii=False).encode()


def attempt(url: str, *, timeout: float = 5.0, allow_private: bool = True, id: UUID | None = None) -> Outcome:
    return attempts([url], timeout=timeout, allow_private=allow_private, id=id)[0]


def attempts(urls: list[str], *, timeout: float = 5.0, allow_private: bool = True, id: UUID | None = None) -> list[Outcome]:
    """One after the other, over the same connections."""

    async def main() -> list[Outcome]:
        async with Sender.open(timeout, allow_private) as sender:
            return [await sender.send(Delivery("acme", uuid4(), id or uuid4(), uuid4(), url, (SECRET,), BODY)) for url in urls]

    return asyncio.run(main())


def test_the_signature_follows_standard_webhooks(receiver: Receiver) -> None:
    id = uuid4()
    outcome = attempt(receiver.url(), id=id)
    assert (outcome.status, outcome.error, outcome.reply) == (200, None, "thanks")
    [request] = receiver.requests
    headers = {name.lower(): value for name, value in request.headers.items()}
    assert request.body == BODY
    assert headers["webhook-id"] == str(id)
    assert headers["content-type"] == "application/json"
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
    assert Webhook(SECRET).verify(request.body.decode(), headers)["text"] == "ä ☃"
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(request.body.decode() + " ", headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(request.body.decode(), {**headers, "webhook-id": str(uuid4())})


@pytest.mark.parametrize(
    ("answer", "status", "error", "reply"),
    [
        (204, 204, None, ""),
        (299, 299, None, "thanks"),
        (404, 404, None, "no"),
        (503, 503, None, "no"),
        ("redirect", 307, None, ""),
        ("slow", 200, None, "late"),
        pytest.param("hang", None, "timeout: no answer in time", None, marks=pytest.mark.slow),
        ("reset", None, "connection_failed: ", None),
        ("empty", None, "connection_failed: ", None),
        ("garbage", None, "bad_answer: ", None),
        ("headers", None, "bad_answer: ", None),
        ("endless", 200, None, "x" * 1024),
        ("trickle", 200, None, ""),
        ("lies", 200, None, "\ufffd\ufffd not gzip"),
    ],
)  # fmt: skip
def test_every_behaviour_of_a_receiver_has_an_outcome(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, answer: object, status: int | None, error: str | None, reply: str | None
) -> None:
    monkeypatch.setattr(send, "REPLY_SECONDS", 0.1)
    receiver.answers["/"] = [answer]
    bad, good = attempts([receiver.url("/"), receiver.url("/good")], timeout=3 if answer == "hang" else 20)
    assert (bad.status, bad.reply) == (status, reply)
    assert (bad.error or "").startswith(error or "") and bool(bad.error) == bool(error)
    assert len(bad.error or "") <= 300
    assert (good.status, len(receiver.of("/elsewhere"))) == (200, 0), (
        "the next attempt is not disturbed, redirects are not followed"
    )


def test_a_closed_port_is_a_failed_connection(receiver: Receiver) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        outcome = attempt(f"http://127.0.0.1:{port}/")
    assert (outcome.status, outcome.error) == (None, f"connection_failed: 127.0.0.1 port {port}: Connection refused")


def test_an_unknown_host_name_is_not_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(addresses.socket, "getaddrinfo", unknown)
    assert attempt("http://nowhere.example/").error == "name_not_resolved: nowhere.example port 80: Name or service not known"


def test_tls_to_a_port_without_tls_fails(receiver: Receiver) -> None:
    outcome = attempt(receiver.url().replace("http:", "https:"), timeout=2)
    assert outcome.status is None and str(outcome.error).split(":")[0] in ("tls_failed", "connection_failed", "timeout")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "169.254.169.254", "[64:ff9b::7f00:1]"]
)
def test_an_address_that_is_not_public_is_refused(receiver: Receiver, host: str) -> None:
    outcome = attempt(receiver.url(host=host), allow_private=False)
    assert outcome.status is None and str(outcome.error).startswith("address_refused: ")
    assert receiver.requests == []


def test_the_address_that_was_checked_is_the_one_connected_to(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that answers with a public address first, and with a private one later, does not lead to the private one."""
    asked: list[str] = []

    def rebinding(host: str, port: int, **_: object) -> list[object]:
        asked.append(host)
        address = "203.0.113.9" if len(asked) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(addresses, "is_public", lambda address: address == "203.0.113.9")  # public, but not reachable
    monkeypatch.setattr(addresses.socket, "getaddrinfo", rebinding)
    first, second = attempts([receiver.url(host="rebinding.example")] * 2, timeout=0.5, allow_private=False)
    assert (first.status, second.status) == (None, None)
    assert str(second.error).startswith("address_refused: ")
    assert receiver.requests == []


def test_proxies_of_the_environment_are_not_used(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    monkeypatch.delenv("no_proxy", raising=False)
    assert attempt(receiver.url()).status == 200


def test_the_reply_is_kept_up_to_a_kilobyte_and_the_connection_reused(receiver: Receiver) -> None:
    outcomes = attempts([receiver.url()] * 3)
    assert [outcome.reply for outcome in outcomes] == ["thanks"] * 3
    assert all(outcome.duration >= 0 for outcome in outcomes)


def test_a_reused_connection_that_the_receiver_has_closed_is_not_a_failure(receiver: Receiver) -> None:
    receiver.answers["/tired"] = ["tired"]
    outcomes = attempts([receiver.url("/tired")] * 4)
    assert [(outcome.status, outcome.error) for outcome in outcomes] == [(200, None)] * 4
    assert len(receiver.of("/tired")) == 7, "each but the first began on the connection of the one before"


def test_a_new_connection_that_is_closed_is_one_failure(receiver: Receiver) -> None:
    receiver.answers["/"] = ["reset"]
    outcome = attempt(receiver.url("/"))
    assert str(outcome.error).startswith("connection_failed: ") and len(receiver.of("/")) == 1


@pytest.mark.parametrize("path", ["/a%2Fb/%7e?sig=a%2Bb%3D&p=%2Ftriggers", "/?", "/a/../b//c", "/?x=%41+y"])
def test_a_url_is_sent_as_registered(receiver: Receiver, path: str) -> None:
    assert attempt(receiver.url(path)).status == 200
    [request] = receiver.requests
    assert request.path == path.removesuffix("?")


def test_an_error_is_described_in_text_that_postgresql_stores() -> None:
    assert describe(OSError("\0 \udcff " + "x" * 400)).startswith("connection_failed: \ufffd ? x")
