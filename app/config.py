"""Settings, read once from the environment: every one is `BDS_*` and has a default that runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent


def setting(name: str, default: Any, help: str) -> Any:
    """A dataclass field that is read from the environment variable `name`."""
    return field(default=default, metadata={"name": name, "help": help})


@dataclass(frozen=True, slots=True)
class Config:
    """What can be set.  A value that cannot be read as its default's type is an error that names the variable."""

    database_url: str | None = setting("BDS_DATABASE_URL", None, "PostgreSQL to use; unset: the embedded one")
    listen_database_url: str | None = setting("BDS_LISTEN_DATABASE_URL", None, "where LISTEN works, behind a pooler")
    read_database_url: str | None = setting("BDS_READ_DATABASE_URL", None, "a replica that serves the reads")
    data_dir: Path = setting("BDS_DATA_DIR", HERE / ".data", "files of the embedded PostgreSQL")
    pool_size: int = setting("BDS_POOL_SIZE", 16, "connections for reads, in each process")
    statement_timeout: int = setting("BDS_STATEMENT_TIMEOUT", 30, "seconds that a read may take to its first row")
    import_max: int = setting("BDS_IMPORT_MAX", 16 << 30, "bytes of one feed, decompressed")
    import_retention: int = setting("BDS_IMPORT_RETENTION", 0, "days that reports of imports are kept; 0: for ever")

    @classmethod
    def load(cls, environ: Mapping[str, str] = os.environ) -> Config:
        """The settings in `environ`.  Raises ValueError naming a variable that cannot be read."""
        values: dict[str, Any] = {}
        for each in fields(cls):
            text = environ.get(each.metadata["name"])
            if text:
                values[each.name] = _read(each.metadata["name"], text, each.default)
        return cls(**values)


def _read(name: str, text: str, default: Any) -> Any:
    if isinstance(default, bool):
        if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
            raise ValueError(f"{name}={text!r}: expected true or false")
        return text.lower() in ("true", "1", "yes")
    if isinstance(default, int):
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"{name}={text!r}: expected a whole number") from None
    return Path(text) if isinstance(default, Path) else text
