"""Settings, read once from the environment: each is a variable `BDS_*` with a default that runs."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, get_args, get_origin, get_type_hints

import msgspec
import psycopg
from msgspec import Meta
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from app import resources
from app.errors import did_you_mean, meant, nearest

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

DAY = 86_400  # seconds

Count = Annotated[int, Meta(ge=0, le=1 << 62)]
Amount = Annotated[float, Meta(ge=0, le=1_000_000_000)]  # seconds
AtLeastASecond = Annotated[float, Meta(ge=1, le=DAY)]
Limit = Annotated[float, Meta(gt=0, le=DAY)]  # seconds; 0 would be no limit
Days = Annotated[float, Meta(ge=0, le=100_000)]  # or fractions of days
Seconds = Annotated[int, Meta(ge=1, le=DAY)]
Key = NewType("Key", str)
Origin = Annotated[str, Meta(pattern=r"^https?://[a-z0-9._:\[\]-]+$")]
NO_SETTINGS = ("BDS_TEST_", "BDS_SERVICE_", "BDS_PORT")  # of tests; and what Kubernetes sets for a Service named bds
RENAMED = {"BDS_WEBHOOK_HISTORY": "it is called BDS_WEBHOOK_RETENTION, and 0 keeps deliveries for ever"}
EXAMPLE = "postgresql://user@host/database, or host=... dbname=..."
KEY_LENGTH = 32  # bytes, as many as the signatures made with it


def setting(name: str, default: Any, help: str, *, secret: bool = False) -> Any:
    """A dataclass field that is read from the environment variable `name`; a secret one never shows in a repr."""
    return field(default=default, metadata={"name": name, "help": help}, repr=not secret)


@dataclass(frozen=True, slots=True)
class Config:
    """The settings.  A value that does not fit its type is an error that names the variable."""

    database_url: str | None = setting("BDS_DATABASE_URL", None, "PostgreSQL to use; unset: the embedded one", secret=True)
    listen_database_url: str | None = setting("BDS_LISTEN_DATABASE_URL", None, "where LISTEN works, behind a pooler")
    read_database_url: str | None = setting(
        "BDS_READ_DATABASE_URL", None, "replicas that serve the reads, as URIs separated by spaces"
    )
    read_max_lag: Amount = setting("BDS_READ_MAX_LAG", 10.0, "seconds behind which a replica serves no reads")
    pooler: Literal["none", "session", "transaction"] = setting(
        "BDS_POOLER", "none", "the pooler in front of the databases: none, session or transaction"
    )
    prepared_statements: Literal["auto", "true", "false"] = setting(
        "BDS_PREPARED_STATEMENTS", "auto", "whether statements are prepared: true, false, auto (not behind a transaction pooler)"
    )
    key: str | None = setting(
        "BDS_KEY",
        None,
        "the API key of commands with --url",
        secret=True,
    )
    data_dir: Path = setting("BDS_DATA_DIR", resources.data_dir(), "files of the embedded PostgreSQL")
    secret: Key | None = setting(
        "BDS_SECRET", None, "signs tokens, 32 bytes or more; unset: made at random once and kept in the database", secret=True
    )
    trusted_proxies: tuple[Network, ...] = setting(
        "BDS_TRUSTED_PROXIES", (), "addresses and networks of reverse proxies, separated by commas"
    )
    odata_extended: bool = setting(
        "BDS_ODATA_EXTENDED", False, "whether OData serves options inside $expand, $batch, paging, aliases and filters in $apply"
    )
    cors_origins: tuple[Origin, ...] = setting(
        "BDS_CORS_ORIGINS", (), "origins whose pages may read OData, /c and /api in a browser, separated by commas"
    )
    pool_size: Annotated[int, Meta(ge=1, le=10_000)] = setting("BDS_POOL_SIZE", 16, "connections for reads, in each process")
    statement_timeout: Seconds = setting("BDS_STATEMENT_TIMEOUT", 30, "seconds that a read may take to its first row")
    spool_max: Count = setting("BDS_SPOOL_MAX", 4 << 30, "bytes of answers that wait in temporary files for slow readers")
    import_max: Annotated[int, Meta(ge=1, le=1 << 62)] = setting("BDS_IMPORT_MAX", 16 << 30, "bytes of one feed, decompressed")
    import_retention: Days = setting("BDS_IMPORT_RETENTION", 0.0, "days that reports of imports are kept; 0: for ever")
    webhook_window: Amount = setting("BDS_WEBHOOK_WINDOW", 5.0, "seconds that a hook collects changes, from the first one")
    webhook_timeout: Limit = setting("BDS_WEBHOOK_TIMEOUT", 120.0, "seconds that a receiver has to answer, more than 0")
    webhook_retry: tuple[Amount, ...] = setting(
        "BDS_WEBHOOK_RETRY", (60.0, 180.0, 540.0, 1620.0, 4860.0), "seconds after the 1st, 2nd, ... failure of a delivery"
    )
    webhook_penalty: Amount = setting("BDS_WEBHOOK_PENALTY", 3600.0, "seconds that a hook rests after a delivery's last failure")
    webhook_disable_after: Days = setting(
        "BDS_WEBHOOK_DISABLE_AFTER", 0.0, "days after which a hook that has only failed is disabled; 0: never"
    )
    webhook_allow_private: bool = setting("BDS_WEBHOOK_ALLOW_PRIVATE", False, "whether receivers may have private addresses")
    webhook_concurrency: Annotated[int, Meta(ge=1, le=100_000)] = setting(
        "BDS_WEBHOOK_CONCURRENCY", 2_000, "concurrent deliveries, in each worker"
    )
    webhook_lease: AtLeastASecond = setting(  # renewed three times in it
        "BDS_WEBHOOK_LEASE", 15.0, "seconds after which a dead worker's deliveries are taken over; 1 or more"
    )
    log_format: Literal["auto", "json", "text"] = setting(
        "BDS_LOG_FORMAT", "auto", "lines as json or text; auto: text on a terminal"
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "BDS_LOG_LEVEL", "info", "what is logged: debug, info (each request), warning or error"
    )
    metrics_token: str | None = setting(
        "BDS_METRICS_TOKEN", None, "a bearer token that gives access to /metrics from any address", secret=True
    )
    webhook_retention: Days = setting("BDS_WEBHOOK_RETENTION", 30.0, "days that ended deliveries are kept; 0: for ever")

    @property
    def prepares(self) -> bool:
        """Whether statements are prepared in the server."""
        return self.prepared_statements == "true" or (self.prepared_statements == "auto" and self.pooler != "transaction")

    @property
    def read_database_urls(self) -> list[str]:
        """The connection strings of the replicas; one of keywords (`host=...`) has spaces itself, so it stands alone."""
        text = (self.read_database_url or "").strip()
        return text.split() if text.startswith(("postgresql://", "postgres://")) else [text] if text else []

    @classmethod
    def load(cls, environ: Mapping[str, str] = os.environ) -> Config:
        """Read the settings from `environ`; an empty variable counts as unset.  Raises ValueError that names the variable."""
        types = get_type_hints(cls, include_extras=True)
        values: dict[str, Any] = {}
        for each in fields(cls):
            name = each.metadata["name"]
            if text := environ.get(name):
                values[each.name] = Path(text) if types[each.name] is Path else _read(name, text, types[each.name])
        config = cls(**values)
        for name, urls in (
            ("BDS_DATABASE_URL", [config.database_url]),
            ("BDS_LISTEN_DATABASE_URL", [config.listen_database_url]),
            ("BDS_READ_DATABASE_URL", config.read_database_urls),
        ):
            for url in urls:
                if url and (problem := _connection_problem(url)) is not None:
                    raise ValueError(f"{name}: expected a connection string such as {EXAMPLE}{problem}")
        return config


def seconds_kept(days: float) -> float | None:
    """The seconds of a retention in days; None for 0, which is for ever."""
    return days * DAY or None


def unknown_settings(environ: Mapping[str, str] = os.environ) -> list[str]:
    """A warning for each variable that looks like a setting and is none.

    Raises ValueError for one that was renamed, or is so near to a setting that nothing else can be meant.
    """
    known, warnings = [each.metadata["name"] for each in fields(Config)], list[str]()
    for name in sorted(environ):
        if name in known or not name.startswith("BDS_") or name.startswith(NO_SETTINGS) or not environ[name]:
            continue
        if name in RENAMED:
            raise ValueError(f"{name}: no such setting; {RENAMED[name]}")
        if near := did_you_mean(name, known):
            raise ValueError(f"{ascii(name)[1:-1]}: no such setting{near}")
        warnings.append(f"{ascii(name)[1:-1]}: no such setting; the nearest is {nearest(name, known)[0]}")
    return warnings


def read_networks(text: str) -> tuple[Network, ...]:
    """Addresses and networks separated by commas.  Raises ValueError."""
    return tuple(ipaddress.ip_network(part.strip(), strict=False) for part in text.split(",") if part.strip())


def _read(name: str, text: str, type: Any) -> Any:
    """The value that a variable's text stands for.  Raises ValueError."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name}: expected UTF-8") from None
    if type == Key | None:
        return _read_key(name, text)
    try:
        if type == tuple[Network, ...]:
            return read_networks(text)
        if get_origin(type) is tuple:
            return msgspec.convert([part.strip() for part in text.split(",")], type, strict=False)
        if type == str | None:
            return text
        word = text.strip().lower()
        if type is bool:
            return msgspec.convert({"yes": "true", "no": "false"}.get(word, word), type, strict=False)
        if get_args(type)[0] is int:
            word = word.replace("_", "")  # may group digits, as in Python
        return msgspec.convert(word, type, strict=False)
    except ValueError as error:  # ValidationError of msgspec, too
        reason = f": {error}" if type == tuple[Network, ...] else ""
        raise ValueError(f"{name}={text!r}: expected {_expected(type)}{reason}") from None


def _connection_problem(url: str) -> str | None:
    """What ends the message about a connection string that libpq cannot read; None for one that it can.

    Nothing of the string is shown, which may have a password anywhere.
    """
    try:
        conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        known = [each.keyword.decode() for each in Conninfo.get_defaults()]
        word = re.search('"([^"]*)"', str(error))
        near = meant(word[1], known) if word else None
        return f", did you mean {near}=...?" if near else ""
    return None


def _read_key(name: str, text: str) -> str:
    """The text of a key.  Raises ValueError, which does not show it."""
    if (length := len(text.encode())) < KEY_LENGTH:
        raise ValueError(f"{name}: expected {KEY_LENGTH} bytes or more, got {length}; `openssl rand -hex 32` prints a good one")
    return text


def _expected(type: Any) -> str:
    """What a variable of a type must hold, in words."""
    if type == tuple[Network, ...]:
        return "addresses or networks separated by commas"
    if type == tuple[Origin, ...]:
        return "origins such as https://app.example.com, in lower case, separated by commas"
    if get_origin(type) is tuple:
        return "numbers from 0 separated by commas"
    if get_origin(type) is Literal:
        *choices, last = get_args(type)
        return f"{', '.join(choices)} or {last}"
    if type is bool:
        return "true or false"
    number, bounds = get_args(type)[0], type.__metadata__[0]
    if number is float:
        least = f"above {bounds.gt} and up" if bounds.ge is None else f"from {bounds.ge}"
        return f"a number {least} to {bounds.le:,}"
    return f"a whole number from {bounds.ge:,} to {bounds.le:,}"
