"""What fails a release: a ratio that drops by more than a tenth, or is measured no longer."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench import compare

RATIOS = {"old": [0.9, 1.0, 1.2], "new": [0.8, 0.91, 2.0]}


@pytest.fixture
def checkouts(tmp_path: Path) -> dict[str, Path]:
    """Two programs whose benchmarks print one ratio of each run after the other, and one that has none."""
    for name, values in RATIOS.items():
        python = tmp_path / name / ".venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(
            f"#!{sys.executable}\n"
            "import json, pathlib, sys\n"
            "assert sys.argv[1:5] == ['-m', 'bench', '--json', '--only'], sys.argv\n"
            "runs = pathlib.Path('runs'); n = len(runs.read_text()) if runs.exists() else 0; runs.write_text('x' * (n + 1))\n"
            f"print(json.dumps([{{'measure': 'read', 'ratio': {values}[n]}}, {{'measure': 'memory', 'ratio': None}}]))\n"
        )
        python.chmod(0o755)
    return {name: tmp_path / name for name in RATIOS}


def run(*arguments: object) -> int:
    with pytest.MonkeyPatch.context() as patched, pytest.raises(SystemExit) as ended:
        patched.setattr(sys, "argv", ["compare", *map(str, arguments)])
        compare.main()
    return int(ended.value.code or 0)


def test_medians_of_runs_in_turns_are_compared_and_kept(
    checkouts: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.json"
    options = ("--runs", 3, "--keep", kept, "--measured", "--only", "read")
    assert run(checkouts["old"], checkouts["new"], *options) == 0
    assert capsys.readouterr().out.split() == ["read", "1.00", "0.91"]
    assert json.loads(kept.read_text()) == {"read": 0.91}


@pytest.mark.parametrize(
    ("old", "new", "is_drop"),
    [(1.0, 0.9, False), (1.0, 0.89, True), (1.0, None, True), (None, 0.1, False), (0.5, 5.0, False)],
)
def test_what_drops(old: float | None, new: float | None, is_drop: bool) -> None:
    assert compare.Change("read", old, new).is_drop is is_drop
