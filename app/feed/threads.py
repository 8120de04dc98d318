"""The threads that work for imports, so that other requests go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

_threads = ThreadPoolExecutor(32, thread_name_prefix="import")
_ends = ThreadPoolExecutor(4, thread_name_prefix="import end")  # for the ends of imports, which must not wait for running ones


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(_threads, work, *arguments)


async def at_the_end(work: Callable[..., T], *arguments: Any) -> T:
    """Run work that ends an import.  It is done even if the current task is cancelled meanwhile."""
    return await asyncio.shield(asyncio.get_running_loop().run_in_executor(_ends, work, *arguments))
