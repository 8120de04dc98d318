"""Pipes rows through a child (app/child.py): long work does not delay other requests, and no failure outlives the process."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator

from app.child import ENVIRONMENT, command, failure

READ = 64 << 10  # bytes
UNKNOWN = -1  # the errno of uvloop where it can make no pipe, for lack of descriptors


async def pipe_through(module: str, feed: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Run `python -m module`, write `feed` to its standard input and yield its standard output.

    A process reports a failure as a JSON object {"message", "target", ...} on standard error, which is raised as a ServiceError.
    Raises CpuLimitExceeded, and what `feed` raises: then the process is killed before it can take the end of its input for the
    regular end.
    """
    process = await _start(module)
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


async def _start(module: str) -> Process:
    try:
        return await asyncio.create_subprocess_exec(*command(module), stdin=PIPE, stdout=PIPE, stderr=PIPE, env=ENVIRONMENT)
    except OSError as error:
        if error.errno != UNKNOWN:
            raise
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE)) from error


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
