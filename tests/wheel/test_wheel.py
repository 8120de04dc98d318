"""A wheel, installed into a fresh environment outside any checkout, migrates, imports and serves; its data lies in the user's data folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.service.serving import unused_port, wait_until

NAME = "business-data-service"
ROOT = Path(__file__).resolve().parents[2]
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input")

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make wheel` builds: the guide, then the package."""
    folder, copy = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("checkout")
    for name in ("app", "docs", "grammars", "guide", "sql"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (*ROOT.glob("*.md"), *(ROOT / name for name in (".gitignore", "LICENSE", "pyproject.toml"))):
        shutil.copy(path, copy)
    guide = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--config-file", str(copy / "guide" / "mkdocs.yml")]
    subprocess.run(guide, check=True, timeout=120)
    subprocess.run([sys.executable, *PIP, "wheel", "--no-deps", "--wheel-dir", str(folder), str(copy)], check=True, timeout=300)
    (path,) = folder.glob("*.whl")
    return path


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it, and a user with an empty home."""

    program: Path
    site_packages: Path
    data: Path
    environ: dict[str, str]

    def bds(self, *words: str, text: str | None = None) -> str:
        """Run a command in an empty folder; returns its standard output."""
        done = subprocess.run(
            [self.program, *words], input=text, capture_output=True, text=True, timeout=120, env=self.environ, cwd=self.data
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def needed(name: str, found: dict[str, Distribution]) -> None:
    """Collect what a distribution of this environment needs, and what those need; name: as in a requirement, of which extras count."""
    wanted = Requirement(name)
    distribution = Distribution.from_name(wanted.name)
    extras = ["", *wanted.extras]
    key = f"{canonicalize_name(wanted.name)}[{','.join(sorted(wanted.extras))}]"
    if key in found:
        return
    found[key] = distribution
    for each in distribution.requires or ():
        requirement = Requirement(each)
        if any(requirement.marker is None or requirement.marker.evaluate({"extra": extra}) for extra in extras):
            needed(f"{requirement.name}[{','.join(requirement.extras)}]" if requirement.extras else requirement.name, found)


def link(distribution: Distribution, site_packages: Path) -> None:
    """Link the files of a distribution into another environment."""
    for file in distribution.files or ():
        if ".." not in file.parts and file.suffix != ".pyc":  # programs are elsewhere
            (site_packages / file).parent.mkdir(parents=True, exist_ok=True)
            (site_packages / file).symlink_to(Path(str(distribution.locate_file(file))).resolve())


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """An environment that has the wheel, and of the packages of this one those alone that the wheel's metadata asks for."""
    home = tmp_path_factory.mktemp("home")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home / "venv")], check=True, timeout=120)
    python = home / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), *PIP[2:]]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", str(wheel)], check=True, timeout=570)
    (site_packages,) = (home / "venv" / "lib").glob("*/site-packages")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("BDS_", "PYTHON"))}
    environ |= {"XDG_DATA_HOME": str(home / "data"), "HOME": str(home)}
    (home / "data").mkdir()
    found: dict[str, Distribution] = {}
    for each in next(Distribution.discover(name=NAME, path=[str(site_packages)])).requires or ():
        requirement = Requirement(each)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            needed(f"{requirement.name}[{','.join(requirement.extras)}]", found)
    for distribution in {each.metadata["Name"]: each for each in found.values()}.values():
        link(distribution, site_packages)
    subprocess.run([*pip, "check"], check=True, timeout=120)  # versions, too
    made = Installed(python.with_name("bds"), site_packages, home / "data", environ)
    try:
        yield made
    finally:
        subprocess.run([made.program, "stop"], env=environ, check=False, capture_output=True, timeout=60)


def test_it_holds_what_the_program_reads(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    for folder, within in (("app", ""), ("sql", "app/"), ("grammars", "app/")):
        files = [path for path in (ROOT / folder).rglob("*") if path.is_file() and not {"__pycache__", "guide"} & set(path.parts)]
        assert {within + path.relative_to(ROOT).as_posix() for path in files} <= held
    assert "app/guide/index.html" in held
    assert {name.partition("/")[0] for name in held if ".dist-info" not in name} == {"app"}


def test_it_says_its_version(installed: Installed) -> None:
    assert version(NAME) in installed.bds("--version")


def test_it_names_the_command_that_installs_what_is_missing(installed: Installed) -> None:
    words, environ = [installed.program, "mcp", "--url", "http://127.0.0.1"], {**installed.environ, "BDS_KEY": "bds_k"}
    refused = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environ, cwd=installed.data)
    assert refused.returncode == 2 and "pip install 'business-data-service[mcp]'" in refused.stderr


def test_it_migrates_imports_and_serves(installed: Installed) -> None:
    installed.bds("migrate")
    installed.bds("company", "create", "acme")
    key = installed.bds("key", "create", "--company", "acme").strip()
    document = {"units": [{"code": "PC", "name": "Piece"}]}
    report = json.loads(installed.bds("import", "-", "--company", "acme", "--json", text=json.dumps(document)))
    assert report["entities"]["units"]["created"] == 1
    exported = json.loads(installed.bds("export", "units", "--company", "acme", "--format", "json"))
    assert [unit["code"] for unit in exported["units"]] == ["PC"]

    port = unused_port()
    with subprocess.Popen(
        [installed.program, "serve", "--port", str(port)], env=installed.environ, cwd=installed.data, stderr=subprocess.DEVNULL
    ) as serving:
        try:
            wait_until(lambda: get(port, "/readyz") is not None)
            units = get(port, "/c/acme/units", {"X-API-Key": key})
            assert units and json.loads(units)["data"][0]["name"] == "Piece"
            assert b"<form" in (get(port, "/login") or b"")
            assert b"Business Data Service" in (get(port, "/docs/guide/") or b"")
        finally:
            serving.terminate()


def get(port: int, path: str, headers: dict[str, str] | None = None) -> bytes | None:
    """The body of an answer; None while there is no service, or it is not ready."""
    try:
        return urllib.request.urlopen(
            urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers or {}), timeout=30
        ).read()
    except OSError:
        return None


def test_its_data_lies_in_the_users_data_folder(installed: Installed) -> None:
    before = files_below(installed.site_packages)
    url = installed.bds("dsn").strip()
    assert str(installed.data / "bds" / "postgres") in url
    assert (installed.data / "bds" / "postgres").is_dir()
    assert files_below(installed.site_packages) == before


def files_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}
