"""A wheel, installed into a fresh environment outside any checkout, migrates, imports and serves; its data lies in the user's data folder.

The base is tried alone at first, over a database of the run, then with the extras.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import Distribution, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from app.extras import EXTRAS
from tests.conftest import Operator
from tests.distributions import needed
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

    def run(self, *words: str, text: str | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a command in an empty folder."""
        return subprocess.run(
            [self.program, *words],
            input=text,
            capture_output=True,
            text=True,
            timeout=120,
            env=self.environ | environ,
            cwd=self.data,
        )

    def bds(self, *words: str, text: str | None = None) -> str:
        """Run a command; returns its standard output."""
        done = self.run(*words, text=text)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def link(self, *extras: str) -> None:
        """Link what the wheel's metadata asks for with some extras, '' for the base."""
        found: dict[str, Distribution] = {}
        for each in next(Distribution.discover(name=NAME, path=[str(self.site_packages)])).requires or ():
            requirement = Requirement(each)
            if any(requirement.marker is None or requirement.marker.evaluate({"extra": extra}) for extra in extras):
                needed(f"{requirement.name}[{','.join(requirement.extras)}]", found)
        for distribution in {each.metadata["Name"]: each for each in found.values()}.values():
            link(distribution, self.site_packages)

    @contextmanager
    def serving(self, **environ: str) -> Iterator[int]:
        """Serve until the block ends; gives the port."""
        port = unused_port()
        with subprocess.Popen(
            [self.program, "serve", "--port", str(port)], env=self.environ | environ, cwd=self.data, stderr=subprocess.DEVNULL
        ) as process:
            try:
                wait_until(lambda: get(port, "/readyz") is not None)
                yield port
            finally:
                process.terminate()


def link(distribution: Distribution, site_packages: Path) -> None:
    """Link the files of a distribution into another environment."""
    for file in distribution.files or ():
        if ".." not in file.parts and file.suffix != ".pyc" and not (site_packages / file).exists():  # programs are elsewhere
            (site_packages / file).parent.mkdir(parents=True, exist_ok=True)
            (site_packages / file).symlink_to(Path(str(distribution.locate_file(file))).resolve())


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
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
    made = Installed(python.with_name("bds"), site_packages, home / "data", environ)
    made.link("")
    subprocess.run([*pip, "check"], check=True, timeout=120)  # versions, too
    return made


@pytest.fixture(scope="module")
def installed(base: Installed) -> Iterator[Installed]:
    """The same environment with all extras: tests of the base come before the first one that uses it."""
    base.link(*EXTRAS)
    try:
        yield base
    finally:
        base.run("stop")


def test_it_holds_what_the_program_reads(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    for folder, within in (("app", ""), ("sql", "app/"), ("grammars", "app/")):
        files = [path for path in (ROOT / folder).rglob("*") if path.is_file() and not {"__pycache__", "guide"} & set(path.parts)]
        assert {within + path.relative_to(ROOT).as_posix() for path in files} <= held
    assert "app/guide/index.html" in held
    assert {name.partition("/")[0] for name in held if ".dist-info" not in name} == {"app"}


def test_the_base_says_its_version(base: Installed) -> None:
    assert version(NAME) in base.bds("--version")


def test_the_base_serves_and_commands_name_what_installs_the_rest(base: Installed, database_url: str, operator: Operator) -> None:
    operator.company("acme")
    key = operator.key("acme")
    at = {"BDS_DATABASE_URL": database_url}
    for extra, environ, words in (
        ("embedded", {}, ["migrate"]),
        ("mcp", {"BDS_KEY": key}, ["mcp", "--url", "http://127.0.0.1"]),
        ("excel", at, ["export", "units", "--company", "acme", "--format", "excel", "--output", "x"]),
        ("pdf", at, ["export", "units", "--company", "acme", "--format", "pdf", "--output", "x"]),
    ):
        refused = base.run(*words, **environ)
        assert refused.returncode == 2 and EXTRAS[extra].command in refused.stderr, (words, refused.stderr)
    assert list(base.data.iterdir()) == []
    assert "not installed: excel, pdf" in " ".join(base.run("export", "--help").stdout.split())
    with base.serving(**at) as port:
        for path, status, text in (
            ("/api/acme/units?export=true&format=csv", 200, "code"),
            ("/api/acme/units?export=true&format=excel", 501, EXTRAS["excel"].command),
            ("/api/acme/units?export=true&format=pdf", 501, EXTRAS["pdf"].command),
            ("/openapi.json", 200, "not installed here: excel, pdf"),
        ):
            reply = ask(port, path, {"X-API-Key": key})
            assert reply.status == status and text in reply.body.decode(), (path, reply)
            assert status == 200 or json.loads(reply.body)["code"] == "not_installed"


def test_it_migrates_imports_and_serves(installed: Installed) -> None:
    installed.bds("migrate")
    installed.bds("company", "create", "acme")
    key = installed.bds("key", "create", "--company", "acme").strip()
    document = {"units": [{"code": "PC", "name": "Piece"}]}
    report = json.loads(installed.bds("import", "-", "--company", "acme", "--json", text=json.dumps(document)))
    assert report["entities"]["units"]["created"] == 1
    exported = json.loads(installed.bds("export", "units", "--company", "acme", "--format", "json"))
    assert [unit["code"] for unit in exported["units"]] == ["PC"]

    with installed.serving() as port:
        units = get(port, "/c/acme/units", {"X-API-Key": key})
        assert units and json.loads(units)["data"][0]["name"] == "Piece"
        assert b"<form" in (get(port, "/login") or b"")
        assert b"Business Data Service" in (get(port, "/docs/guide/") or b"")
        workbook = get(port, "/api/acme/units?export=true&format=excel", {"X-API-Key": key})
        assert workbook and workbook.startswith(b"PK")


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes


def ask(port: int, path: str, headers: dict[str, str] | None = None) -> Answer:
    """An answer, whatever its status."""
    try:
        with urllib.request.urlopen(
            urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers or {}), timeout=30
        ) as reply:
            return Answer(reply.status, reply.read())
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.read())


def get(port: int, path: str, headers: dict[str, str] | None = None) -> bytes | None:
    """The body of an answer; None while there is no service, or it is not ready."""
    try:
        answer = ask(port, path, headers)
    except OSError:
        return None
    return answer.body if answer.status == 200 else None


def test_its_data_lies_in_the_users_data_folder(installed: Installed) -> None:
    before = files_below(installed.site_packages)
    url = installed.bds("dsn").strip()
    assert str(installed.data / "bds" / "postgres") in url
    assert (installed.data / "bds" / "postgres").is_dir()
    assert files_below(installed.site_packages) == before


def files_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}
