"""API keys: where they are accepted, what they allow, how soon they end."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from app.auth.gate import CACHE_SECONDS, Gate, Identity
from app.auth.keys import KEY, basic_key, hash_key, key_or_token, make_key
from app.config import Config
from app.database.database import Database
from app.errors import ServiceError
from tests.conftest import Operator
from tests.service.serving import ANSWER


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


HEADERS = [
    # headers, the key on OData, the key elsewhere
    ({}, None, None),
    ({"Authorization": basic("api", "k")}, "k", "k"),
    ({"Authorization": basic("api", "k").replace("Basic", "bASIC")}, "k", "k"),
    ({"Authorization": basic("api", "k:with:colons")}, "k:with:colons", "k:with:colons"),
    ({"Authorization": basic("API", "k")}, None, None),
    ({"Authorization": basic("", "k")}, None, None),
    ({"Authorization": "Basic"}, None, None),
    ({"Authorization": "Basic !!!"}, None, None),
    ({"Authorization": "Basic Ä"}, None, None),
    ({"Authorization": "Basic " + base64.b64encode(b"api:\xff").decode()}, None, None),
    ({"Authorization": "Bearer k"}, None, "k"),
    ({"X-API-Key": "k"}, None, "k"),
    ({"X-API-Key": "k", "Authorization": "Bearer other"}, None, "other"),
    ({"X-API-Key": "k", "Authorization": "Digest other"}, None, None),
]


@pytest.mark.parametrize(("headers", "odata", "elsewhere"), HEADERS)
def test_keys_are_read_from_headers(headers: dict[str, str], odata: str | None, elsewhere: str | None) -> None:
    assert (basic_key(headers), key_or_token(headers)) == (odata, elsewhere)


def test_a_key_is_256_random_bits_behind_a_prefix() -> None:
    key = make_key()
    assert KEY.fullmatch(key)
    assert len(base64.urlsafe_b64decode(key.removeprefix("bds_") + "=")) == 32
    assert key != make_key()
    assert len(hash_key(key)) == 32


def test_an_identity_has_its_scopes_in_its_companies_only() -> None:
    identity = Identity("id", None, frozenset({"acme"}), frozenset({"read"}))
    assert identity.may("read", "acme")
    assert not identity.may("import", "acme")
    assert not identity.may("read", "other")
    with pytest.raises(ServiceError, match="no import access") as refused:
        identity.require("import", "acme")
    assert refused.value.code == "forbidden"


@asynccontextmanager
async def gate(url: str) -> AsyncIterator[Gate]:
    database = await Database.open(Config(database_url=url))
    try:
        yield Gate(database)
    finally:
        await database.close()


async def identify(gate: Gate, key: str) -> Identity | None:
    try:
        return await gate.identify({"Authorization": f"Bearer {key}"})
    except ServiceError as error:
        assert (error.code, "WWW-Authenticate" in error.headers) == ("unauthorized", True)
        return None


def test_a_key_is_for_its_companies_or_all_of_its_tenant(operator: Operator, database_url: str) -> None:
    for company, tenant in (("acme", None), ("north", "group"), ("south", "group")):
        operator.company(company, tenant)
    one, whole = operator.key("acme", scopes=("read",)), operator.key(tenant="group")

    async def check() -> None:
        async with gate(database_url) as opened:
            first, second = await identify(opened, one), await identify(opened, whole)
            assert first and (first.tenant, first.companies, first.scopes) == (None, {"acme"}, {"read"})
            assert second and (second.tenant, second.companies) == ("group", {"north", "south"})
            assert second.scopes == {"read", "import", "hooks"}

    asyncio.run(check())


def test_unknown_revoked_and_expired_keys_are_refused(operator: Operator, database_url: str) -> None:
    operator.company("acme")
    expired, known = operator.key("acme"), operator.key("acme")
    operator.rows(
        "update bds.api_keys set expires_at = clock_timestamp() - interval '1 s' where hash = %s returning 1", (hash_key(expired),)
    )

    async def check() -> None:
        async with gate(database_url) as opened:
            assert await identify(opened, make_key()) is None
            assert await identify(opened, "not a key") is None
            assert await identify(opened, expired) is None
            identity = await identify(opened, known)
            assert identity and await identify(opened, known) is identity
            operator.rows("select bds.revoke_key(%s)", (identity.key_id,))
            async with asyncio.timeout(CACHE_SECONDS / 2):
                while await identify(opened, known):
                    await asyncio.sleep(0)

    asyncio.run(check())


def test_keys_of_a_deleted_company_are_not_keys_of_a_new_one_of_its_name(operator: Operator, database_url: str) -> None:
    def create(tenant: str) -> None:
        operator.company("acme", tenant=tenant)

    create("ours")
    only, all_of_tenant = operator.key("acme"), operator.key(tenant="ours")

    async def check() -> None:
        async with gate(database_url) as opened:
            for key in (only, all_of_tenant):
                identity = await identify(opened, key)
                assert identity and identity.may("read", "acme")
            with operator.connection.transaction():
                operator.delete_company("acme")
                create("theirs")
            async with asyncio.timeout(CACHE_SECONDS / 2):
                for key in (only, all_of_tenant):
                    while (found := await identify(opened, key)) and found.may("read", "acme"):
                        await asyncio.sleep(0)

    asyncio.run(check())


def test_cached_basic_credentials_count_only_as_they_were_sent(operator: Operator, database_url: str) -> None:
    operator.company("acme")
    key = operator.key("acme")
    right = {"Authorization": basic("api", key)}

    async def check() -> None:
        async with gate(database_url) as opened:
            identity = await opened.identify(right, basic_only=True)
            assert await opened.identify(right, basic_only=True) is identity
            assert await opened.identify(right) is identity
            for wrong in (key, basic("api", key).partition(" ")[2], basic("apj", key), f"Authorization: {right['Authorization']}"):
                with pytest.raises(ServiceError) as refused:
                    await opened.identify({"Authorization": wrong})
                assert refused.value.code == "unauthorized"
            with pytest.raises(ServiceError):
                await opened.identify({"Authorization": f"Bearer {key}"}, basic_only=True)
            operator.rows("select bds.revoke_key(%s)", (identity.key_id,))
            async with asyncio.timeout(CACHE_SECONDS / 2):
                with pytest.raises(ServiceError):
                    while True:
                        await opened.identify(right)
                        await asyncio.sleep(0)

    asyncio.run(check())


def test_a_lookup_is_not_cached_if_a_revocation_arrives_meanwhile(operator: Operator, database_url: str) -> None:
    operator.company("acme")
    key = operator.key("acme")

    async def check() -> None:
        async with gate(database_url) as opened:
            asking = asyncio.create_task(identify(opened, key))
            await asyncio.sleep(0)
            opened.clear_cache()
            assert await asking
            assert not opened._cache

    asyncio.run(check())


def test_requests_that_come_while_their_key_is_looked_up_share_the_lookup(
    operator: Operator, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.company("acme")
    key = operator.key("acme")

    async def check() -> None:
        async with gate(database_url) as opened:
            query, lookups = opened._query_key, list[bytes]()

            async def counting(connection: Any, key_hash: bytes) -> Any:
                lookups.append(key_hash)
                return await query(connection, key_hash)

            monkeypatch.setattr(opened, "_query_key", counting)
            asking = [asyncio.create_task(identify(opened, key)) for _ in range(50)]
            await asyncio.sleep(0)
            asking.pop(0).cancel()  # the first one's client leaves
            identities = await asyncio.gather(*asking)
            assert identities[0] and all(each is identities[0] for each in identities)
            assert len(lookups) == 1
            # one that comes after a revocation has a lookup of its own, even if another one still runs
            opened.clear_cache()
            early = asyncio.create_task(identify(opened, key))
            await asyncio.sleep(0)
            operator.rows("select bds.revoke_key(id) from bds.api_keys")
            opened.clear_cache()
            assert await identify(opened, key) is None
            await early
            assert len(lookups) == 3 and not opened._lookups

    asyncio.run(check())


def test_an_error_of_a_shared_lookup_reaches_all(operator: Operator, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    operator.company("acme")
    key = operator.key("acme")

    async def check() -> None:
        async with gate(database_url) as opened:
            with monkeypatch.context() as patched:
                patched.setattr(opened, "_query_key", fail)
                answers = await asyncio.gather(*(identify(opened, key) for _ in range(5)), return_exceptions=True)
            assert [type(each) for each in answers] == [psycopg.OperationalError] * 5
            assert await identify(opened, key)

    async def fail(*_: object) -> None:
        raise psycopg.OperationalError

    asyncio.run(check())


def test_the_cache_is_not_used_without_notifications_of_revocations(operator: Operator, database_url: str) -> None:
    operator.company("acme")
    key = operator.key("acme")

    async def check() -> None:
        async with gate(database_url) as opened:
            identity = await identify(opened, key)
            operator.rows("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'bds listen'")
            async with asyncio.timeout(5):
                while opened._database.listening:
                    await asyncio.sleep(0.01)
            assert await identify(opened, key) is not identity

    asyncio.run(check())


def test_a_key_is_not_cached_beyond_its_expiry(operator: Operator, database_url: str) -> None:
    operator.company("acme")
    key = operator.key("acme")

    def expire(left: str) -> None:
        operator.rows("update bds.api_keys set expires_at = clock_timestamp() + %s::interval returning 1", (left,))

    async def check() -> None:
        async with gate(database_url) as opened:
            expire("1 hour")
            assert await identify(opened, key)
            assert opened._cache[hash_key(key)][0] > time.monotonic() + CACHE_SECONDS / 2
            opened.clear_cache()
            expire("0.3 s")
            before = time.monotonic()
            assert await identify(opened, key)
            assert opened._cache[hash_key(key)][0] < before + 0.3 + (time.monotonic() - before)

    asyncio.run(check())


def test_the_last_use_of_a_key_is_recorded_to_the_minute(operator: Operator, database_url: str) -> None:
    operator.company("acme")
    key = operator.key("acme")
    last_used = "select last_used_at from bds.api_keys"
    assert operator.rows(last_used) == [(None,)]

    async def check() -> None:
        async with gate(database_url) as opened:
            for _ in range(2):
                assert await identify(opened, key)
                opened.clear_cache()
            first = operator.rows(last_used)
            assert operator.rows(
                "select last_used_at between clock_timestamp() - interval '1 minute' and clock_timestamp() from bds.api_keys"
            )
            assert await identify(opened, key)
            assert operator.rows(last_used) == first
            operator.rows("update bds.api_keys set last_used_at = last_used_at - interval '1 minute' returning 1")
            opened.clear_cache()
            assert await identify(opened, key)
            assert operator.rows("select last_used_at >= %s from bds.api_keys", first[0]) == [(True,)]
            operator.rows("update bds.api_keys set last_used_at = last_used_at - interval '1 minute' returning 1")
            with psycopg.connect(database_url) as other:  # deletes a company, which takes long
                other.execute("update bds.api_keys set companies = companies")
                opened.clear_cache()
                async with asyncio.timeout(ANSWER):
                    assert await identify(opened, key), "it waits for nobody"

    asyncio.run(check())
