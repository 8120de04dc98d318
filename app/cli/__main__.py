"""Where the `bds` command begins: interrupted while its modules are read, it ends as it does later."""

from __future__ import annotations

import sys


def main() -> int:
    """Run one command; returns its exit code."""
    try:
        from app.cli import commands

        return commands.main()
    except KeyboardInterrupt:
        sys.stderr.write("bds: interrupted\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
