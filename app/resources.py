"""Folders of files that the program reads: `sql` and `grammars` lie beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
CHECKOUT = PACKAGE.parent if (PACKAGE.parent / "sql").is_dir() and (PACKAGE.parent / "pyproject.toml").is_file() else None


def folder(name: str) -> Path:
    """The folder `name` of the program's own files."""
    return (CHECKOUT or PACKAGE) / name


def data_dir() -> Path:
    """The default folder of the embedded server: `.data` in a checkout, else in the user's data folder (XDG)."""
    if CHECKOUT:
        return CHECKOUT / ".data"
    base = os.environ.get("XDG_DATA_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "share") / "bds"
