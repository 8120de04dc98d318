"""Settings are read as their defaults' types; what cannot be read is named."""

from __future__ import annotations

import pytest

from app.config import Config


def test_numbers_and_lists_of_numbers() -> None:
    config = Config.load({"BDS_WEBHOOK_WINDOW": "0.5", "BDS_WEBHOOK_RETRY": "1, 2.5,3", "BDS_WEBHOOK_ALLOW_PRIVATE": "true"})
    assert (config.webhook_window, config.webhook_retry, config.webhook_allow_private) == (0.5, (1.0, 2.5, 3.0), True)
    assert Config.load({}).webhook_retry == (60, 180, 540, 1620, 4860)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BDS_WEBHOOK_WINDOW", "soon"),
        ("BDS_WEBHOOK_WINDOW", "-1"),
        ("BDS_WEBHOOK_WINDOW", "1,2"),
        ("BDS_WEBHOOK_WINDOW", "nan"),
        ("BDS_WEBHOOK_TIMEOUT", "inf"),
        ("BDS_WEBHOOK_RETRY", "1,,2"),
        ("BDS_WEBHOOK_RETRY", "60;180"),
        ("BDS_WEBHOOK_ALLOW_PRIVATE", "maybe"),
        ("BDS_POOL_SIZE", "0"),
        ("BDS_POOL_SIZE", "some"),
        ("BDS_STATEMENT_TIMEOUT", "-1"),
        ("BDS_STATEMENT_TIMEOUT", "99999999999"),
        ("BDS_IMPORT_MAX", "-1"),
        ("BDS_WEBHOOK_CONCURRENCY", "0"),
    ],
)
def test_what_cannot_be_read_is_named(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{name}='{value}': expected"):
        Config.load({name: value})
