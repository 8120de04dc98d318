"""The version of the program, and the folders of files that it reads.

`sql` and `grammars` lie beside the package in a checkout, inside it in a wheel.
"""

from __future__ import annotations

import os
import re
from functools import cache
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


@cache
def version() -> str:
    """The version of this program; 0 in a checkout that is not installed."""
    from importlib import metadata  # imported late: most commands do not need it

    try:
        return metadata.version("business-data-service")
    except metadata.PackageNotFoundError:
        return "0"


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version, in order; what follows them, as in 1.0.0rc1, is ignored."""
    return tuple(int(each) for each in re.findall(r"\d+", re.split(r"[^\d.]", version, maxsplit=1)[0]))
