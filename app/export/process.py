"""Work in a process of its own: what takes long does not keep other requests waiting, and what goes wrong ends with the process.

The process gets no environment, so that nothing it runs can read a setting.
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


async def piped(module: str, feed: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """What `python -m module` writes of what it is fed.

    A process that fails says why in a JSON object {"message", "target", ...} on standard error.  Raises ServiceError with that, and
    what `feed` raises; then nothing more is given, and the process is ended before it can take the end of its input for a good one.
    """
    command = (sys.executable, "-I", "-m", module)
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env={"LANG": "C.UTF-8"})
    feeding = asyncio.create_task(_feed(process, feed))
    assert process.stdout is not None and process.stderr is not None
    try:
        while data := await process.stdout.read(READ):
            yield data
        reason = await process.stderr.read()
        code = await process.wait()
        await feeding
        if code:
            raise failure(code, reason)
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
        pass  # it has ended, and its exit code says why
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        raise


def failure(code: int, reason: bytes) -> Exception:
    """What a process has failed of."""
    if code == -signal.SIGXCPU:
        return ServiceError("malformed_request", "it takes more time than it may", target="mapper")
    with contextlib.suppress(ValueError):
        told = json.loads(reason.splitlines()[-1] if reason else b"")
        if isinstance(told, dict) and "message" in told:
            return ServiceError("malformed_request", **told)
    return RuntimeError(f"the process ended with {code}: {reason.decode(errors='replace')[-2000:]}")
