"""Settings, read once from the environment: every one is `BDS_*` and has a default that runs."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from app import resources

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

Pooler = Literal["none", "session", "transaction"]
Prepared = Literal["auto", "true", "false"]
LogFormat = Literal["auto", "json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]
CHOICES: dict[str, tuple[str, ...]] = {
    "pooler": get_args(Pooler),
    "prepared_statements": get_args(Prepared),
    "log_format": get_args(LogFormat),
    "log_level": get_args(LogLevel),
}


DAY = 86_400  # seconds


def setting(name: str, default: Any, help: str, *, secret: bool = False, least: int = 0, most: int = 1 << 62) -> Any:
    """A dataclass field that is read from the environment variable `name`.

    secret: it never shows; least, most: bounds of a whole number.
    """
    return field(default=default, metadata={"name": name, "help": help, "least": least, "most": most}, repr=not secret)


@dataclass(frozen=True, slots=True)
class Config:
    """What can be set.  A value that cannot be read as its default's type is an error that names the variable."""

    database_url: str | None = setting("BDS_DATABASE_URL", None, "PostgreSQL to use; unset: the embedded one", secret=True)
    listen_database_url: str | None = setting("BDS_LISTEN_DATABASE_URL", None, "where LISTEN works, behind a pooler")
    read_database_url: str | None = setting("BDS_READ_DATABASE_URL", None, "a replica that serves the reads")
    pooler: Pooler = setting("BDS_POOLER", "none", "what stands before the databases: none, session or transaction")
    prepared_statements: Prepared = setting(
        "BDS_PREPARED_STATEMENTS", "auto", "whether statements are prepared: true, false, auto (not behind a transaction pooler)"
    )
    data_dir: Path = setting("BDS_DATA_DIR", resources.data_dir(), "files of the embedded PostgreSQL")
    secret: str | None = setting("BDS_SECRET", None, "signs tokens; unset: made at random once, kept in the database", secret=True)
    trusted_proxies: tuple[Network, ...] = setting(
        "BDS_TRUSTED_PROXIES", (), "addresses and networks of reverse proxies, with commas between them"
    )
    pool_size: int = setting("BDS_POOL_SIZE", 16, "connections for reads, in each process", least=1, most=10_000)
    statement_timeout: int = setting(
        "BDS_STATEMENT_TIMEOUT", 30, "seconds that a read may take to its first row", least=1, most=DAY
    )
    import_max: int = setting("BDS_IMPORT_MAX", 16 << 30, "bytes of one feed, decompressed", least=1)
    import_retention: int = setting("BDS_IMPORT_RETENTION", 0, "days that reports of imports are kept; 0: for ever")
    webhook_window: float = setting("BDS_WEBHOOK_WINDOW", 5.0, "seconds that changes are collected, from the first one")
    webhook_timeout: float = setting("BDS_WEBHOOK_TIMEOUT", 120.0, "seconds that a receiver has to answer")
    webhook_retry: tuple[float, ...] = setting(
        "BDS_WEBHOOK_RETRY", (60.0, 180.0, 540.0, 1620.0, 4860.0), "seconds after the 1st, 2nd, ... failure of a delivery"
    )
    webhook_penalty: float = setting("BDS_WEBHOOK_PENALTY", 3600.0, "seconds that a hook rests after a delivery's last failure")
    webhook_allow_private: bool = setting("BDS_WEBHOOK_ALLOW_PRIVATE", False, "whether receivers may have private addresses")
    webhook_concurrency: int = setting(
        "BDS_WEBHOOK_CONCURRENCY", 2_000, "deliveries under way at once, in each worker", least=1, most=100_000
    )
    webhook_lease: float = setting("BDS_WEBHOOK_LEASE", 15.0, "seconds after which a dead worker's deliveries are taken over")
    log_format: LogFormat = setting("BDS_LOG_FORMAT", "auto", "lines as json or text; auto: text on a terminal")
    log_level: LogLevel = setting("BDS_LOG_LEVEL", "info", "what is logged: debug, info (each request), warning or error")
    metrics_token: str | None = setting("BDS_METRICS_TOKEN", None, "who has it may read /metrics from anywhere", secret=True)
    webhook_history: float = setting("BDS_WEBHOOK_HISTORY", 30.0, "days that ended deliveries are kept")

    @property
    def prepares(self) -> bool:
        """Whether statements are prepared in the server."""
        return self.prepared_statements == "true" or (self.prepared_statements == "auto" and self.pooler != "transaction")

    @classmethod
    def load(cls, environ: Mapping[str, str] = os.environ) -> Config:
        """The settings in `environ`.  Raises ValueError naming a variable that cannot be read."""
        values: dict[str, Any] = {}
        for each in fields(cls):
            text = environ.get(each.metadata["name"])
            if text and not isinstance(each.default, Path) and not _is_utf8(text):
                raise ValueError(f"{each.metadata['name']}: expected UTF-8")
            if text:
                values[each.name] = _read_as(each.name)(each.metadata["name"], text, each.default)
        return cls(**values)


BOUNDS = {each.metadata["name"]: (each.metadata["least"], each.metadata["most"]) for each in fields(Config)}


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_as(field: str) -> Callable[[str, str, Any], Any]:
    """What reads a setting's text."""
    if field == "trusted_proxies":
        return _networks
    return partial(_choice, CHOICES[field]) if field in CHOICES else _read


def _choice(choices: tuple[str, ...], name: str, text: str, _default: Any) -> str:
    chosen = text.strip().lower()
    if chosen not in choices:
        raise ValueError(f"{name}={text!r}: expected {', '.join(choices[:-1])} or {choices[-1]}")
    return chosen


def _read(name: str, text: str, default: Any) -> Any:
    if isinstance(default, bool):
        if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
            raise ValueError(f"{name}={text!r}: expected true or false")
        return text.lower() in ("true", "1", "yes")
    if isinstance(default, int):
        least, most = BOUNDS[name]
        try:
            number = int(text)
        except ValueError:
            number = None
        if number is None or not least <= number <= most:
            raise ValueError(f"{name}={text!r}: expected a whole number from {least:,} to {most:,}")
        return number
    if isinstance(default, (float, tuple)):
        return _numbers(name, text, default)
    return Path(text) if isinstance(default, Path) else text


def _networks(name: str, text: str, _default: Any) -> tuple[Network, ...]:
    try:
        return read_networks(text)
    except ValueError as error:
        raise ValueError(f"{name}={text!r}: expected addresses or networks with commas between them: {error}") from None


def _numbers(name: str, text: str, default: float | tuple[float, ...]) -> float | tuple[float, ...]:
    """A number, or several with commas between them; none is negative."""
    expected = "a number from 0" if isinstance(default, float) else "numbers from 0 with commas between them"
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{name}={text!r}: expected {expected}") from None
    if not all(0 <= number < 1e9 for number in numbers) or (isinstance(default, float) and len(numbers) != 1):
        raise ValueError(f"{name}={text!r}: expected {expected}")
    return numbers[0] if isinstance(default, float) else numbers


def read_networks(text: str) -> tuple[Network, ...]:
    """Addresses and networks separated by commas.  Raises ValueError."""
    return tuple(ipaddress.ip_network(part.strip(), strict=False) for part in text.split(",") if part.strip())
