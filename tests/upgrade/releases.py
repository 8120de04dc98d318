"""The last release whose schema is not that of this tree, built from its commit with the versions of its own lock file."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RELEASES = {  # commits by version, the newest first
    "1.0.0": "6656840ff41393691e1c37383ae7111c6dfab255",
    "0.9.0": "5c6600dd5e1928a0815a3ef8c21ecea8180b4e02",
}


def release() -> str:
    """The commit that is upgraded from.  Skips the test in a tree without the commits of releases."""
    for version, commit in RELEASES.items():
        compared = git("diff", "--quiet", commit, "--", "sql")
        if compared.returncode > 1:
            pytest.skip(f"no commit {commit} of version {version} here: {compared.stderr.strip()}")
        if compared.returncode:
            return commit
    raise AssertionError("expected a release with another sql/ than this tree")


def migrations_since(commit: str) -> list[str]:
    """The migrations that were added after a release."""
    added = git("diff", "--name-only", "--diff-filter=A", commit, "--", "sql/migrations").stdout.split()
    return [Path(each).stem for each in added]


def git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)


def built(folder: Path, commit: str) -> Path:
    """The command `bds` of the release, installed in a folder."""
    archive = subprocess.run(["git", "-C", ROOT, "archive", commit], capture_output=True, check=True)
    source, environment = folder / "source", folder / "environment"
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(source, filter="data")
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    pip = [sys.executable, "-m", "pip", "--python", environment / "bin" / "python", "install", "--quiet"]
    if dict(locked(source)).items() <= installed().items():
        # what is here has the same versions: it is used in place of copies
        [site] = environment.glob("lib/python*/site-packages")
        (site / "here.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    else:
        run(*pip, "--require-hashes", "--requirement", source / "requirements.lock")
    run(*pip, "--no-deps", source)
    return environment / "bin" / "bds"


def locked(source: Path) -> Iterator[tuple[str, str]]:
    """Names and versions of a lock file."""
    for name, version in re.findall(r"^([\w.-]+)==([\w.+!]+)", (source / "requirements.lock").read_text(), re.MULTILINE):
        yield name.lower(), version


def installed() -> dict[str, str]:
    return {re.sub(r"[-_.]+", "-", each.name).lower(): each.version for each in metadata.distributions()}


def run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, (command, done.stderr)
