"""The area and company that a path names."""

from __future__ import annotations

import pytest

from app.errors import ServiceError
from app.wire.target import SLUG, Target, read_target

PATHS = [
    # raw path, area, company
    ("/api/odata", "odata", ""),
    ("/api/odata/", "odata", ""),
    ("/api/odata/acme", "odata", "acme"),
    ("/api/odata/acme/products(1)", "odata", "acme"),
    ("/api/%6Fdata/%61cme/products", "odata", "acme"),
    ("/api/odata/acme%2F..%2Fbeta/products", "odata", "acme/../beta"),
    ("/api/odatax/acme", "export", "odatax"),
    ("/api/products", "export", ""),
    ("/api/acme/products", "export", "acme"),
    ("/api/acme/import", "import", "acme"),
    ("/api/acme/imports/1/errors", "import", "acme"),
    ("/api/acme/mappers/m", "mappers", "acme"),
    ("/c/acme/products", "changes", "acme"),
    ("/c/acme/changes", "changes", "acme"),
    ("/c/acme/changes/stream", "stream", "acme"),
    ("/c/acme/hooks", "hooks", "acme"),
    ("/c/acme/hooks/1/deliveries", "hooks", "acme"),
    ("/c/acme/products/hooks", "changes", "acme"),
    ("/c/acme", "changes", "acme"),
    ("/auth/login", "auth", ""),
    ("/healthz", "operation", ""),
    ("/readyz", "operation", ""),
    ("/metrics", "operation", ""),
    ("/", "pages", ""),
    ("/hooks/1", "pages", ""),
    ("", "pages", ""),
    ("*", "pages", ""),
    ("//api/odata/acme", "pages", ""),
]


@pytest.mark.parametrize(("path", "area", "company"), PATHS)
def test_a_path(path: str, area: str, company: str) -> None:
    target = read_target(path)
    assert (target.area, target.company, target.shown_company) == (area, company, company if SLUG.fullmatch(company) else None)
    assert target.is_odata == (area == "odata")


@pytest.mark.parametrize("segment", ["%zz", "%ff", "%00"])
def test_a_company_that_cannot_be_decoded_is_refused_and_not_shown(segment: str) -> None:
    target = read_target(f"/api/odata/{segment}/products")
    assert target == Target("odata", segment)
    assert target.shown_company is None
    with pytest.raises(ServiceError) as refused:
        _ = target.company
    assert refused.value.code == "malformed_request"
