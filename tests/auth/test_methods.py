"""Every kind of credentials on every kind of path."""

from __future__ import annotations

import time
from collections.abc import Callable

import jwt
import psycopg
import pytest

from app.auth.keys import hash_key, make_key
from tests.auth.client import SignedIn, ask, basic, bearer, fresh_address, make_user, sign_in
from tests.service.serving import Service

pytestmark = pytest.mark.slow

# kind of path -> method, path, status if the request is allowed
PATHS = {
    "odata": ("GET", "/api/odata/demo/products", 200),
    "read": ("GET", "/c/demo/products", 200),
    "export": ("GET", "/api/products?format=json&export=true&companyId=demo", 200),
    "imports": ("GET", "/api/demo/imports", 200),
    "change": ("DELETE", "/api/demo/mappers/none", 404),
    "create": ("POST", "/c/demo/hooks", 415),
    "public": ("GET", "/healthz", 200),
}
OUTSIDE = {"odata": 401}
REFUSED = dict.fromkeys(PATHS, 401) | {"public": 200}
NO_CHANGE = {"odata": 401, "change": 403, "create": 403}


def forged(service: Service, **differences: object) -> str:
    """A token like that of a login except for `differences`; signed with our own secret unless `key` is one of them."""
    (secret,) = service.operator.rows("select value from bds.secrets where name = 'tokens'")[0]
    claims = jwt.decode(sign_in(service).token, options={"verify_signature": False})
    key, algorithm = str(differences.pop("key", secret)), str(differences.pop("algorithm", "HS256"))
    claims |= differences
    return jwt.encode({name: value for name, value in claims.items() if value is not None}, key, algorithm)


def user_id(service: Service, email: str) -> str:
    """The id of a user of the company `other`, who is made if needed."""
    query = "select user_id::text from bds_service.password_of(%s)"
    if not service.operator.rows(query, (email,)):
        make_user(service, email, "other")
    return str(service.operator.rows(query, (email,))[0][0])


def ended(service: Service) -> SignedIn:
    signed_in = sign_in(service)
    assert ask(service, "/auth/logout", "POST", signed_in.browser).status == 204
    return signed_in


def key(service: Service, statement: str) -> str:
    """A key to which an operator's statement was applied."""
    made = service.operator.key("demo")
    service.operator.rows(statement, (hash_key(made),))
    return made


EXPIRED = "update bds.api_keys set expires_at = clock_timestamp() - interval '1 s' where hash = %s returning 1"
REVOKED = "select bds.revoke_key(id) from bds.api_keys where hash = %s"

# credentials, how they are made, kinds of path with another status than in PATHS
CREDENTIALS: list[tuple[str, Callable[[Service], dict[str, str]], dict[str, int]]] = [
    ("none", lambda s: {}, REFUSED),
    ("Basic, key", lambda s: basic("api", s.key), {}),
    ("Basic, key of another user", lambda s: basic("anna", s.key), REFUSED),
    ("Basic, wrong key", lambda s: basic("api", make_key()), REFUSED),
    ("Basic, a token", lambda s: basic("api", sign_in(s).token), REFUSED),
    ("Basic, expired key", lambda s: basic("api", key(s, EXPIRED)), REFUSED),
    ("Basic, revoked key", lambda s: basic("api", key(s, REVOKED)), REFUSED),
    ("Basic, garbled", lambda s: {"Authorization": "Basic %%%"}, REFUSED),
    ("Bearer, key", lambda s: bearer(s.key), OUTSIDE),
    ("Bearer, wrong key", lambda s: bearer(make_key()), REFUSED),
    ("Bearer, nothing", lambda s: bearer(""), REFUSED),
    ("Bearer, token", lambda s: bearer(sign_in(s).token), OUTSIDE),
    ("Bearer, the cookie", lambda s: bearer(sign_in(s).cookie), REFUSED),
    ("Bearer, token after logout", lambda s: bearer(ended(s).token), REFUSED),
    ("Bearer, expired token", lambda s: bearer(forged(s, exp=int(time.time()) - 1)), REFUSED),
    ("Bearer, token without expiry", lambda s: bearer(forged(s, exp=None)), REFUSED),
    ("Bearer, token without session", lambda s: bearer(forged(s, sid=None)), REFUSED),
    ("Bearer, token of a session that never was", lambda s: bearer(forged(s, sid="0e1b5c9e-9f53-4c9c-8a55-0b9f7c1b2a3d")), REFUSED),
    ("Bearer, token with a malformed session", lambda s: bearer(forged(s, sid="'; drop table")), REFUSED),
    ("Bearer, token without user", lambda s: bearer(forged(s, sub=None)), REFUSED),
    ("Bearer, token of another user than its session", lambda s: bearer(forged(s, sub=user_id(s, "other@example.com"))), REFUSED),
    ("Bearer, token of a user that never was", lambda s: bearer(forged(s, sub="0e1b5c9e-9f53-4c9c-8a55-0b9f7c1b2a3d")), REFUSED),
    ("Bearer, token with a malformed user", lambda s: bearer(forged(s, sub="anna@example.com")), REFUSED),
    ("Bearer, token that lasts longer than a login", lambda s: bearer(forged(s, exp=int(time.time()) + 2 * 3600)), REFUSED),
    ("Bearer, token that was issued without a time", lambda s: bearer(forged(s, iat=None)), REFUSED),
    ("Bearer, token that is not valid yet", lambda s: bearer(forged(s, nbf=int(time.time()) + 600)), REFUSED),
    ("Bearer, token with another secret", lambda s: bearer(forged(s, key="x" * 64)), REFUSED),
    ("Bearer, unsigned token", lambda s: bearer(forged(s, key="", algorithm="none")), REFUSED),
    ("Bearer, token by another algorithm", lambda s: bearer(forged(s, algorithm="HS512")), REFUSED),
    ("Bearer, garbled", lambda s: bearer("a.b.c"), REFUSED),
    ("Digest", lambda s: {"Authorization": f"Digest {s.key}"}, REFUSED),
    ("X-API-Key", lambda s: {"X-API-Key": s.key}, OUTSIDE),
    ("X-API-Key, wrong key", lambda s: {"X-API-Key": make_key()}, REFUSED),
    ("X-API-Key, token", lambda s: {"X-API-Key": sign_in(s).token}, REFUSED),
    ("X-API-Key beside a wrong Authorization", lambda s: {"X-API-Key": s.key, **bearer(make_key())}, REFUSED),
    ("cookie", lambda s: sign_in(s).cookies, NO_CHANGE),
    ("cookie, with CSRF token", lambda s: sign_in(s).browser, OUTSIDE),
    ("cookie, with another login's CSRF token", lambda s: {**sign_in(s).cookies, "X-CSRF-Token": sign_in(s).csrf}, NO_CHANGE),
    ("cookie, with an empty CSRF token", lambda s: {**sign_in(s).cookies, "X-CSRF-Token": ""}, NO_CHANGE),
    ("cookie, the token", lambda s: {"Cookie": f"session={sign_in(s).token}"}, REFUSED),
    ("cookie, a key", lambda s: {"Cookie": f"session={s.key}"}, REFUSED),
    ("cookie, garbled", lambda s: {"Cookie": "session=%00;;=;session"}, REFUSED),
    (
        "cookie of another user than its session",
        lambda s: {"Cookie": f"session={forged(s, aud='cookie', sub=user_id(s, 'other@example.com'))}"},
        REFUSED,
    ),
    ("cookie after logout", lambda s: ended(s).browser, REFUSED),
    ("cookie beside a wrong Authorization", lambda s: {**sign_in(s).browser, **bearer(make_key())}, REFUSED),
    ("cookie beside a wrong X-API-Key", lambda s: {**sign_in(s).browser, "X-API-Key": make_key()}, REFUSED),
]


@pytest.mark.parametrize(("make", "differs"), [each[1:] for each in CREDENTIALS], ids=[each[0] for each in CREDENTIALS])
def test_credentials_are_accepted_only_where_they_count(
    service: Service, make: Callable[[Service], dict[str, str]], differs: dict[str, int]
) -> None:
    headers, source = make(service), fresh_address()
    answers = {kind: ask(service, path, method, headers, source=source) for kind, (method, path, _) in PATHS.items()}
    expected = {kind: differs.get(kind, status) for kind, (_, _, status) in PATHS.items()}
    assert {kind: answer.status for kind, answer in answers.items()} == expected
    for kind, answer in answers.items():
        if answer.status == 401:
            scheme = "Basic realm=" if kind == "odata" else "Bearer realm="
            assert answer.headers["WWW-Authenticate"].startswith(scheme), kind
        if answer.status == 403:
            assert answer.json["code"] == "csrf_failed"


WIDER = {"companies": ["demo", "other"], "company": "other", "tenant": "other", "role": "administrator", "scopes": ["read"]}
ACCESS: dict[str, Callable[[Service], dict[str, str]]] = {
    "token": lambda s: bearer(sign_in(s).token),
    "cookie": lambda s: sign_in(s).browser,
    "token with claims of its own": lambda s: bearer(forged(s, **WIDER)),
}


@pytest.mark.parametrize("make", ACCESS.values(), ids=ACCESS)
def test_a_user_has_access_to_their_companies_only(service: Service, make: Callable[[Service], dict[str, str]]) -> None:
    headers = make(service)
    for path in ("/c/other/products", "/c/none/products", "/api/other/imports", "/c/other/hooks"):
        assert ask(service, path, headers=headers).status == 403


def test_a_form_may_send_the_csrf_token_as_a_field(service: Service) -> None:
    signed_in = sign_in(service)
    headers = {**signed_in.cookies, "Content-Type": "application/x-www-form-urlencoded"}
    assert ask(service, "/auth/logout", "POST", headers, body="csrf=wrong").status == 403
    assert ask(service, "/auth/logout", "POST", headers, body=f"csrf={signed_in.csrf}").status == 204
    assert ask(service, "/c/demo/products", headers=signed_in.cookies).status == 401


@pytest.mark.parametrize("email", ["anna@example.com", f"{'a' * 64}@{'b' * 130}"])
def test_changes_of_a_user_are_logged_under_their_email_address(service: Service, email: str) -> None:
    headers = sign_in(service, email if "anna" in email else make_user(service, email)).browser
    document = {"units": [{"code": email[-30:], "name": "piece"}]}
    assert ask(service, "/api/demo/import", "POST", headers, body=document).status == 200
    query = "select actor from bds.changes where entity = 'units' order by id desc limit 1"
    assert service.operator.rows(query) == [(f"user {email}",)]


def test_an_email_address_fits_into_an_actor(service: Service) -> None:
    with pytest.raises(psycopg.Error) as caught:
        make_user(service, f"{'a' * 64}@{'b' * 131}")
    assert (caught.value.sqlstate, caught.value.diag.message_primary) == (
        "BD005", "expected an email address of at most 195 characters, got 196",
    )  # fmt: skip
