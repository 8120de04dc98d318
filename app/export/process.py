"""Runs work in a child process: long work does not delay other requests, and no failure outlives the process.

The process gets no environment, so nothing that it runs can read a setting.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator

from app.errors import ServiceError

READ = 64 << 10  # bytes


class CpuLimitExceeded(Exception):
    """The system ended the process because it used too much CPU time."""


async def pipe_through(module: str, feed: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Run `python -m module`, write `feed` to its standard input and yield its standard output.

    A process reports a failure as a JSON object {"message", "target", ...} on standard error, which is raised as a ServiceError.
    Raises CpuLimitExceeded, and what `feed` raises: then the process is killed before it can take the end of its input for the
    regular end.
    """
    command = (sys.executable, "-I", "-m", module)
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env={"LANG": "C.UTF-8"})
    feeding = asyncio.create_task(_feed(process, feed))
    assert process.stdout is not None and process.stderr is not None
    try:
        while data := await process.stdout.read(READ):
            yield data
        report = await process.stderr.read()
        code = await process.wait()
        await feeding
        if code:
            raise failure(code, report)
    finally:
        feeding.cancel()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.gather(feeding, process.wait(), return_exceptions=True)


async def _feed(process: Process, feed: AsyncGenerator[bytes, None]) -> None:
    assert process.stdin is not None
    try:
        async with contextlib.aclosing(feed):
            async for block in feed:
                process.stdin.write(block)
                await process.stdin.drain()
        process.stdin.close()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the process has ended, and its exit code tells why
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        raise


def failure(code: int, report: bytes) -> Exception:
    """Return the exception for a process that ended with an exit code and wrote `report` to standard error."""
    if code == -signal.SIGXCPU:
        return CpuLimitExceeded()
    with contextlib.suppress(ValueError):
        error = json.loads(report.splitlines()[-1] if report else b"")
        if isinstance(error, dict) and "message" in error:
            return ServiceError("malformed_request", **error)
    return RuntimeError(f"the process ended with {code}: {report.decode(errors='replace')[-2000:]}")
