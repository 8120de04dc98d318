"""Compare the ratios of two programs, measured in turns on one machine: python -m bench.compare OLD [NEW] [--measured --only past].

OLD and NEW are checkouts in which `make install` has run; NEW is this one if left out.  Prints a line for each ratio, and exits with
1 if one has dropped by more than a tenth.  --keep writes the medians of NEW to a file, as bench/history has them of each release.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.table import say

RUNS = 5
MOST = 0.1  # of a ratio, that it may drop

Ratios = Mapping[str, float]  # by measure


@dataclass(frozen=True, slots=True)
class Change:
    """Medians of a ratio, None where it was not measured."""

    measure: str
    old: float | None
    new: float | None

    @property
    def is_drop(self) -> bool:
        """Whether it has dropped too far; also where it is measured no longer."""
        return self.old is not None and (self.new is None or self.new < self.old * (1 - MOST))


def main() -> None:
    options = parser().parse_args()
    runs: dict[Path, list[Ratios]] = {options.old: [], options.new: []}
    for number in range(options.runs):
        for checkout, found in runs.items():
            say(f"run {number + 1} of {options.runs}: {checkout}")
            found.append(ratios(checkout, options.measured))
    new = medians(runs[options.new])
    changes = compare(medians(runs[options.old]), new)
    for each in changes:
        print(f"{each.measure:60} {shown(each.old)} {shown(each.new)}{'  dropped' if each.is_drop else ''}")
    if options.keep:
        options.keep.write_text(json.dumps(new, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    sys.exit(any(each.is_drop for each in changes))


def parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    each = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__.partition("\n")[0])
    each.add_argument("old", type=Path, metavar="OLD")
    each.add_argument("new", type=Path, metavar="NEW", nargs="?", default=Path.cwd())
    each.add_argument("--runs", type=int, default=RUNS, help="of each program (%(default)s)")
    each.add_argument("--keep", type=Path, metavar="FILE", help="write the medians of NEW")
    each.add_argument("--measured", nargs=argparse.REMAINDER, default=[], help="options of python -m bench, at the end")
    return each


def ratios(checkout: Path, options: Sequence[str]) -> Ratios:
    """One run of the benchmarks of a checkout.  Raises CalledProcessError."""
    command: list[str | Path] = [checkout.resolve() / ".venv" / "bin" / "python", "-m", "bench", "--json", *options]
    found = json.loads(subprocess.run(command, cwd=checkout, stdout=subprocess.PIPE, check=True).stdout)
    return {each["measure"]: each["ratio"] for each in found if each["ratio"]}


def medians(runs: Iterable[Ratios]) -> Ratios:
    """Of each ratio over all runs that have it."""
    values: dict[str, list[float]] = {}
    for run in runs:
        for measure, ratio in run.items():
            values.setdefault(measure, []).append(ratio)
    return {measure: median(each) for measure, each in values.items()}


def compare(old: Ratios, new: Ratios) -> list[Change]:
    """Each measure of either, in the order of the old ones."""
    return [Change(measure, old.get(measure), new.get(measure)) for measure in {**old, **new}]


def shown(ratio: float | None) -> str:
    return "     -" if ratio is None else f"{ratio:6.2f}"


if __name__ == "__main__":
    main()
