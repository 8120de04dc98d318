"""Commands on a terminal of a given width."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

from tests.cli.test_commands import BDS, ROOT

PERCENT = re.compile(r"[█·]{30} +(\d+)% ([^,\r]+),")


def on_terminal(environment: dict[str, str], columns: int, *arguments: str) -> tuple[int, str]:
    """Run a command with its output and errors on a terminal; (exit code, what it showed)."""
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [*BDS, *arguments], env=environment, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    shown = b""
    try:
        while block := os.read(main, 65_536):
            shown += block
    except OSError:  # EIO: nobody has the terminal open any more
        pass
    os.close(main)
    return process.wait(), shown.decode().replace("\r\n", "\n")


def bars(shown: str) -> list[tuple[int, str]]:
    """(percent, phase) of each bar that was shown."""
    return [(int(percent), phase) for percent, phase in PERCENT.findall(shown)]
