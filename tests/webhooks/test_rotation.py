"""Rotated secrets: two signatures for a day, verified by the library of Standard Webhooks."""

from __future__ import annotations

import json

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from tests.webhooks.conftest import Queue, working
from tests.webhooks.receiving import Received, Receiver


def secret_of(queue: Queue, hook: str) -> str:
    [(secret,)] = queue.operator.rows("select secret from bds.hook_secrets where hook_id = %s", (hook,))
    return str(secret)


def rotate(queue: Queue, hook: str, *, revoke: bool = False) -> str:
    [(secret,)] = queue.write("select bds.rotate_hook('acme', %s, %s)", (hook, revoke))
    return str(secret)


def is_signed(request: Received, secret: str) -> bool:
    try:
        verified = Webhook(secret).verify(request.body.decode(), {name.lower(): value for name, value in request.headers.items()})
    except WebhookVerificationError:
        return False
    assert verified == json.loads(request.body)
    return True


@pytest.mark.processes
@pytest.mark.slow
def test_for_a_day_both_secrets_verify_what_a_worker_sends(queue: Queue, receiver: Receiver) -> None:
    hook = queue.hook(url=receiver.url("/"))
    first = secret_of(queue, hook)
    with working(queue.url):

        def send(count: int) -> Received:
            queue.products(f"P{count}")
            return receiver.wait("/", count)[count - 1]

        def signers(request: Received, *secrets: str) -> tuple[int, list[bool]]:
            return len(request.headers["webhook-signature"].split(" ")), [is_signed(request, each) for each in secrets]

        assert signers(send(1), first) == (1, [True])
        second = rotate(queue, hook)
        assert signers(send(2), first, second) == (2, [True, True])
        third = rotate(queue, hook)
        assert signers(send(3), first, second, third) == (2, [False, True, True]), "the oldest is dropped"
        queue.operator.rows("update bds.hook_secrets set ends_at = now() returning 1")
        assert signers(send(4), second, third) == (1, [False, True]), "after a day"
        fourth = rotate(queue, hook, revoke=True)
        assert signers(send(5), third, fourth) == (1, [False, True]), "revoked"


def test_the_previous_secret_signs_for_a_day_and_is_then_deleted(queue: Queue) -> None:
    hook = queue.hook()
    first, second = secret_of(queue, hook), rotate(queue, hook)
    day = "select ends_at - now() between '23:59' and '24:00' from bds.hook_secrets"
    assert queue.operator.rows(day) == [(True,)]
    queue.send("A")
    assert queue.rows("select secrets from bds_service.claim_deliveries()") == [([second, first],)]
    queue.rows("select bds_service.forget_deliveries('1 day')")
    assert queue.operator.rows("select previous from bds.hook_secrets") == [(first,)]
    queue.operator.rows("update bds.hook_secrets set ends_at = now() - interval '1 s' returning 1")
    queue.rows("select bds_service.forget_deliveries('1 day')")
    assert queue.operator.rows("select secret, previous, ends_at from bds.hook_secrets") == [(second, None, None)]


def test_a_deleted_hook_has_no_secret_to_rotate(queue: Queue) -> None:
    hook = queue.hook()
    queue.write("select bds.delete_hook('acme', %s)", (hook,))
    with pytest.raises(Exception, match="no such hook"):
        rotate(queue, hook)
