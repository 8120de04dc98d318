"""The locked versions fit pyproject.toml, and the licence of every package is listed and compatible with the GPL."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from app.extras import EXTRAS, NAME
from tests.distributions import needed

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKED = ("excel", "pdf", "docs")  # extras of a server
HOST = re.compile(r"https?://|--(?:extra-)?index-url|--find-links|--trusted-host")

COMPATIBLE = {
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "LGPL-3.0-only",
    "MIT",
    "MIT-0",
    "MIT-CMU",
    "MPL-2.0",
    "OFL-1.1",
    "PSF-2.0",
}
EXCEPTIONS = {"regex": "CNRI-Python"}  # which docs/licences.md explains


def locked() -> dict[str, tuple[Requirement, int]]:
    """The requirements of the lock file by name, with the number of their hashes."""
    entries = re.findall(r"^([a-z0-9].*?) \\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", lock_text(), re.MULTILINE)
    return {Requirement(text).name: (Requirement(text), hashes.count("--hash")) for text, hashes in entries}


@cache
def lock_text() -> str:
    return (ROOT / "requirements.lock").read_text()


def test_every_package_of_a_server_is_locked_with_hashes_in_a_version_that_pyproject_takes() -> None:
    entries = locked()
    assert set(entries) == set(re.findall(r"^([a-z0-9-]+)==", lock_text(), re.MULTILINE)), "an entry without hashes"
    wanted = [*PROJECT["dependencies"], *(each for extra in LOCKED for each in PROJECT["optional-dependencies"][extra])]
    for text in wanted:
        requirement = Requirement(text)
        entry, _ = entries[canonicalize_name(requirement.name)]
        (pin,) = entry.specifier
        assert pin.operator == "==" and requirement.specifier.contains(pin.version), text
    for extra, group in PROJECT["optional-dependencies"].items():
        own = {Requirement(each).name for each in group}
        assert extra in LOCKED or not own & set(entries), extra
    assert not HOST.search(lock_text())
    found: dict[str, Distribution] = {}
    needed(f"{NAME}[{','.join(LOCKED)}]", found)
    assert {key.partition("[")[0] for key in found} - {NAME} <= set(entries), "make lock"


def test_every_licence_is_listed_and_compatible_with_the_gpl() -> None:
    rows = re.findall(r"^\| ([a-z0-9-]+) \| (.+) \|$", (ROOT / "docs" / "licences.md").read_text(), re.MULTILINE)
    listed = {name: licence for name, licence in rows if name != "package"}
    assert list(listed) == sorted(listed)
    found: dict[str, Distribution] = {}
    needed(f"{NAME}[{','.join(EXTRAS)}]", found)
    installed = {key.partition("[")[0]: each for key, each in found.items()}
    del installed[NAME]
    assert set(listed) == {*installed, *locked()}
    for name, licence in listed.items():
        names = {each for each in re.split(r" AND | OR |[()]", licence) if each}
        assert names - COMPATIBLE <= {EXCEPTIONS.get(name)}, name
        said = installed[name].metadata.get("License-Expression") if name in installed else None
        assert said in (None, licence), name


@pytest.mark.parametrize("name", ["requirements.lock", "pyproject.toml", "Makefile", "deploy/Dockerfile"])
def test_no_file_names_the_host_of_a_registry(name: str) -> None:
    assert not re.search(r"pythonhosted|pypi\.org|/opt/pypi", (ROOT / name).read_text())
