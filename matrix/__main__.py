"""Run the matrix: a table on standard output, what was not run and why; exit 1 if a cell failed."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from typing import Any

import psycopg

from matrix import cells, servers
from matrix.work import NotRun, Wrong


def main() -> None:
    options = parser().parse_args()
    quick = options.quick or options.seconds is not None
    deadline = time.monotonic() + (options.seconds or 1e9)
    sources, missing = servers.find(["npm17"] if quick else sorted(servers.NPM_VERSIONS))
    rows, skipped, given = list[tuple[str, str, str, str]](), [f"server {each}" for each in missing], dict[str, Any]()
    for cell, source in cells.chosen(sources, quick=quick):
        if options.only not in cell.name:
            continue
        name = source.name if source else cell.source
        began = time.monotonic()
        try:
            if source is None:
                raise NotRun(f"the server {cell.source} is missing")
            if began > deadline:
                raise NotRun(f"{options.seconds} s are over")
            with servers.cluster(source) as server:
                result = judge(cell.run(server), given)
        except NotRun as reason:
            skipped.append(f"{cell.name}, {name}: {reason}")
            continue
        except (Wrong, OSError, psycopg.Error, TimeoutError) as error:
            result = f"FAILED: {error}"
        except Exception:
            result = f"FAILED: {traceback.format_exc()}"
        rows.append((cell.name, name, result, f"{time.monotonic() - began:.1f}"))
        print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    print(table(rows))
    print("".join(f"not run: {each}\n" for each in skipped), end="")
    failed = sum(row[2].startswith("FAILED") for row in rows)
    print(f"{len(rows) - failed} passed, {failed} failed, {len(skipped)} skipped")
    sys.exit(min(failed, 125))


def judge(result: Any, given: dict[str, Any]) -> str:
    """Compare what a cell gave with the first one."""
    if result is None or result == given.setdefault("first", result):
        return "ok"
    pairs = zip(given["first"], result, strict=False)
    first, other = next(((a, b) for a, b in pairs if a != b), (len(given["first"]), len(result)))
    return f"FAILED: expected what the first cell gave, {first!r}, got {other!r}"


def table(rows: list[tuple[str, str, str, str]]) -> str:
    lines = [("cell", "server", "result", "seconds"), *((a, b, c.splitlines()[0][:160], d) for a, b, c, d in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m matrix", description=__doc__)
    made.add_argument(
        "--quick", action="store_true", help="a Turkish database, and an owner without superuser, of 17 if npm is there"
    )
    made.add_argument("--only", metavar="WORD", default="", help="cells with this word in their name")
    made.add_argument("--seconds", type=float, help="like --quick, and begin no cell after so many seconds")
    return made


if __name__ == "__main__":
    main()
