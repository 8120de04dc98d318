"""Settings are converted to their types; an error names the variable, its value and what was expected."""

from __future__ import annotations

from dataclasses import fields

import pytest

from app.config import RENAMED, Config, seconds_kept, unknown_settings
from app.errors import MOST, distance


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
        *(
            ("BDS_CORS_ORIGINS", text)
            for text in ("x.example", "https://a.example/", "https://a.example,", "HTTPS://a.example", "null")
        ),
        ("BDS_WEBHOOK_ALLOW_PRIVATE", "maybe"),
        ("BDS_POOL_SIZE", "0"),
        ("BDS_POOL_SIZE", "some"),
        ("BDS_STATEMENT_TIMEOUT", "-1"),
        ("BDS_STATEMENT_TIMEOUT", "99999999999"),
        ("BDS_IMPORT_MAX", "-1"),
        ("BDS_WEBHOOK_CONCURRENCY", "0"),
    ],
)
def test_a_wrong_value_is_named(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{name}='{value}': expected"):
        Config.load({name: value})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("BDS_POOL_SIZE", "abc", "a whole number from 1 to 10,000"),
        ("BDS_WEBHOOK_WINDOW", "-1", "a number from 0 to 1,000,000,000"),
        ("BDS_WEBHOOK_WINDOW", "1e10", "a number from 0 to 1,000,000,000"),
        ("BDS_WEBHOOK_LEASE", "0", "a number from 1 to 86,400"),
        ("BDS_WEBHOOK_LEASE", "0.9", "a number from 1 to 86,400"),
        ("BDS_WEBHOOK_TIMEOUT", "0", "a number above 0 and up to 86,400"),
        ("BDS_WEBHOOK_RETENTION", "1e6", "a number from 0 to 100,000"),
        ("BDS_WEBHOOK_RETRY", "1;2", "numbers from 0 separated by commas"),
        ("BDS_WEBHOOK_ALLOW_PRIVATE", "maybe", "true or false"),
        ("BDS_CORS_ORIGINS", "*", "origins such as https://app.example.com, in lower case, separated by commas"),
        ("BDS_LOG_LEVEL", "loud", "debug, info, warning or error"),
        ("BDS_PREPARED_STATEMENTS", "yes", "auto, true or false"),
    ],
)
def test_an_error_has_what_was_expected(name: str, value: str, expected: str) -> None:
    with pytest.raises(ValueError) as refused:
        Config.load({name: value})
    assert str(refused.value) == f"{name}='{value}': expected {expected}"


@pytest.mark.parametrize("value", ["hush", "x" * 31, "č" * 15 + "x"])
def test_a_short_secret_is_refused_and_not_shown(value: str) -> None:
    with pytest.raises(ValueError) as refused:
        Config.load({"BDS_SECRET": value})
    assert str(refused.value).startswith(f"BDS_SECRET: expected 32 bytes or more, got {len(value.encode())};")
    assert value not in str(refused.value).removeprefix("BDS_SECRET")


@pytest.mark.parametrize("name", ["BDS_DATABASE_URL", "BDS_LISTEN_DATABASE_URL", "BDS_READ_DATABASE_URL"])
@pytest.mark.parametrize(
    ("value", "end"),
    [
        ("hush", ""),
        ("host=db password=so hush", ""),
        ("postgresql://u:so hush@db/x", ""),
        ("postgresql://u:hush@db/x?sslmod=require", ", did you mean sslmode=...?"),
        ("host=db dbnam=x password=hush", ", did you mean dbname=...?"),
    ],
)
def test_a_wrong_connection_string_names_its_setting_and_is_not_shown(name: str, value: str, end: str) -> None:
    with pytest.raises(ValueError) as refused:
        Config.load({name: value})
    expected = "expected a connection string such as postgresql://user@host/database, or host=... dbname=..."
    assert str(refused.value) == f"{name}: {expected}{end}"


def test_a_secret_of_32_bytes_is_taken_as_it_is() -> None:
    for value in ("x" * 32, "č" * 16):
        assert Config.load({"BDS_SECRET": value}).secret == value


def test_an_error_names_the_wrong_network() -> None:
    with pytest.raises(ValueError, match=r"BDS_TRUSTED_PROXIES='10.0.0.1,x': expected addresses or networks .*'x'"):
        Config.load({"BDS_TRUSTED_PROXIES": "10.0.0.1,x"})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("BDS_WEBHOOK_ALLOW_PRIVATE", "Yes", True),
        ("BDS_WEBHOOK_ALLOW_PRIVATE", "0", False),
        ("BDS_POOL_SIZE", " 8 ", 8),
        ("BDS_IMPORT_MAX", "1_000_000", 1_000_000),
        ("BDS_LOG_LEVEL", "WARNING", "warning"),
        ("BDS_METRICS_TOKEN", "null", "null"),
        ("BDS_DATABASE_URL", "", None),
    ],
)
def test_a_value_is_converted(name: str, value: str, expected: object) -> None:
    config = Config.load({name: value})
    assert getattr(config, next(each.name for each in fields(config) if each.metadata["name"] == name)) == expected


@pytest.mark.parametrize(("name", "near"), [
    ("BDS_WEBHOOK_WINDW", "BDS_WEBHOOK_WINDOW"), ("BDS_WEBHOOK_WIDNWO", "BDS_WEBHOOK_WINDOW"), ("BDS_SECRETS", "BDS_SECRET"),
    ("BDS_DATABASEURL", "BDS_DATABASE_URL"), ("BDS_POOL_SZ", "BDS_POOL_SIZE"),
])  # fmt: skip
def test_a_misspelt_setting_is_an_error_that_names_the_right_one(name: str, near: str) -> None:
    with pytest.raises(ValueError) as refused:
        unknown_settings({name: "1"})
    assert str(refused.value) == f"{name}: no such setting, did you mean {near}?"


def test_an_unknown_setting_is_a_warning_that_names_the_nearest() -> None:
    others = ("BDS_TEST_X", "BDS_SERVICE_HOST", "BDS_PORT", "BDS_PORT_8080_TCP", "OTHER", "BDS_DATABASE_URL")
    assert unknown_settings(dict.fromkeys(others, "1") | {"BDS_WEBHOOK_WINDW": ""}) == []
    assert unknown_settings({"BDS_WEBHOOK_RETENTION_DAYS": "1"}) == [
        "BDS_WEBHOOK_RETENTION_DAYS: no such setting; the nearest is BDS_WEBHOOK_RETENTION"
    ]


def test_a_renamed_setting_is_an_error_that_names_the_new_one() -> None:
    for name, reason in RENAMED.items():
        with pytest.raises(ValueError) as refused:
            unknown_settings({name: "0"})
        assert str(refused.value) == f"{name}: no such setting; {reason}"


@pytest.mark.parametrize("name", ["import", "webhook"])
def test_what_is_kept_is_kept_for_days_or_fractions_or_for_ever(name: str) -> None:
    for text, seconds in (("0", None), ("0.5", 43_200), ("30", 2_592_000)):
        config = Config.load({f"BDS_{name.upper()}_RETENTION": text})
        assert seconds_kept(getattr(config, f"{name}_retention")) == seconds


def test_no_two_settings_are_so_near_that_one_could_stand_for_the_other() -> None:
    names = [each.metadata["name"] for each in fields(Config)]
    assert min(distance(one, other) for one in names for other in names if one != other) > MOST
