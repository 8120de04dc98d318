"""Entry point of the `bds` command.  Modules are imported late, so that Ctrl-C during the import ends it without a traceback."""

from __future__ import annotations

import gc
import sys


def main() -> int:
    """Run one command; returns its exit code."""
    try:
        gc.disable()  # the objects that imports make live as long as the process; collections take a fifth of their time
        from app.cli.main import main as run

        gc.freeze()
        gc.enable()
        return run()
    except KeyboardInterrupt:
        sys.stderr.write("bds: interrupted\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
