"""Entry point of the `bds` command.  Modules are imported late, so that Ctrl-C during the import ends it without a traceback."""

from __future__ import annotations

import sys


def main() -> int:
    """Run one command; returns its exit code."""
    try:
        from app.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        sys.stderr.write("bds: interrupted\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
