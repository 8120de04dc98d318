"""The file of what slow readers have not taken: its pages, its bound, its end; and the slots of streams."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import stat
from pathlib import Path

import pytest
from aiohttp import web

from app import metrics
from app.errors import ServiceError
from app.wire.spool import PAGE, Spool
from app.wire.streams import Body, Streams


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def spooled() -> float | None:
    return metrics.PROCESS.get_sample_value("bds_spooled_bytes")


def unnamed(directory: Path) -> list[os.stat_result]:
    """The files without a name that this process has open in a directory."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(link.readlink()).startswith(f"{directory}/"):
                found.append(link.stat())
    return found


def content(page: int) -> bytes:
    return f"{page:08}".encode() * (PAGE // 8)


def test_the_file_is_made_for_the_first_page_nameless_and_for_its_owner_only(directory: Path) -> None:
    async def run() -> None:
        spool = Spool(2 * PAGE)
        assert spool.take(1) == [0] and not unnamed(directory)
        await spool.write([0], content(1))
        (file,) = unnamed(directory)
        assert (stat.S_IMODE(file.st_mode), file.st_nlink, file.st_size) == (0o600, 0, PAGE)
        assert not list(directory.iterdir())
        spool.give([0])

    asyncio.run(run())


def test_no_more_pages_than_the_limit_are_given() -> None:
    spool = Spool(3 * PAGE + PAGE // 2)
    before = spooled()
    assert spool.take(2) == [0, 1]
    assert spool.take(2) == [2] and spool.take(1) == []
    assert spooled() == (before or 0) + 3 * PAGE
    spool.give([1])
    assert spool.take(2) == [1]
    spool.give([0, 1, 2])
    assert spooled() == before
    assert Spool(0).take(1) == []


def test_free_pages_at_the_end_are_returned_to_the_file_system(directory: Path) -> None:
    async def run() -> list[int]:
        spool = Spool(10 * PAGE)
        await spool.write(spool.take(6), b"".join(map(content, range(6))))
        sizes = []
        for pages in ([4], [5], [0, 1], [3], [2]):
            spool.give(pages)
            await spool.write([], b"")  # after what was to be done before
            sizes.append(unnamed(directory)[0].st_size // PAGE)
        assert spool.take(2) == [0, 1]
        spool.give([0, 1])
        return sizes

    assert asyncio.run(run()) == [6, 4, 4, 3, 0]


def test_every_owner_reads_what_it_wrote_while_others_are_cancelled() -> None:
    async def own(spool: Spool, random_: random.Random) -> None:
        for _ in range(20):
            pages = spool.take(random_.randint(1, 5))
            given, numbers = set[int](), [random_.randint(0, 10**8 - 1) for _ in pages]
            try:
                await spool.write(pages, b"".join(map(content, numbers)))
                await asyncio.sleep(0)
                for page, number in zip(pages, numbers, strict=True):
                    assert await spool.read(page) == content(number)
                    spool.give([page])
                    given.add(page)
            finally:
                spool.give([page for page in pages if page not in given])

    async def run() -> None:
        spool, random_, before = Spool(40 * PAGE), random.Random(1), spooled()
        tasks = {asyncio.create_task(own(spool, random.Random(seed))): seed for seed in range(40)}
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            if random_.random() < 0.002:
                random_.choice([task for task, seed in tasks.items() if seed < 20]).cancel()
        for task, seed in tasks.items():
            assert not (task.cancelled() and seed >= 20) and (task.cancelled() or task.exception() is None), task
        assert any(task.cancelled() for task in tasks)
        assert spooled() == before and spool.take(40) == list(range(40))
        spool.give(range(40))

    asyncio.run(run())


def test_a_file_that_cannot_be_written_is_tried_again_later(
    directory: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")

    async def run() -> None:
        spool = Spool(10 * PAGE)
        for _ in range(2):
            pages = spool.take(1)
            with pytest.raises(FileNotFoundError):
                await spool.write(pages, content(1))
            spool.give(pages)
            assert spool.take(1) == []
            monkeypatch.setattr(spool, "_retry", 0.0)  # a second later
        monkeypatch.setattr("tempfile.tempdir", str(directory))
        assert spool.take(1) == [0]
        await spool.write([0], content(1))
        spool.give([0])

    asyncio.run(run())
    assert len([record for record in caplog.records if "the spool cannot be written" in record.getMessage()]) == 1


# Slots ----------------------------------------------------------------------------------------------------------------------------


def test_a_slot_that_is_not_given_back_in_time_is_a_timeout_and_a_queue_that_moves_is_not() -> None:
    async def hold(streams: Streams, order: list[int], number: int) -> None:
        async with streams.slot():
            order.append(number)
            await asyncio.sleep(0)

    async def run() -> None:
        streams, order = Streams(1, 0.01, 60, 0), list[int]()
        async with streams.slot():
            with pytest.raises(TimeoutError):
                await hold(streams, order, 0)
        assert not order
        streams = Streams(1, 60, 60, 0)
        async with streams.slot():
            tasks = [asyncio.create_task(hold(streams, order, number)) for number in range(5)]
            await asyncio.sleep(0)
            tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert order == [0, 1, 3, 4]
        async with asyncio.timeout(60), streams.slot():
            pass

    asyncio.run(run())


def test_while_a_stream_waits_for_space_whoever_finds_no_slot_is_refused_at_once() -> None:
    async def hold(streams: Streams) -> None:
        async with streams.slot():
            pass

    async def run() -> None:
        streams, changed = Streams(1, 60, 60, 0), asyncio.Event()
        async with streams.slot():
            early = asyncio.create_task(hold(streams))  # waits already
            await asyncio.sleep(0)
            space = asyncio.create_task(streams.wait_for_space(changed))
            for refused in (early, hold(streams)):
                with pytest.raises(ServiceError) as error:
                    await refused
                assert (error.value.code, error.value.headers) == ("busy", {"Retry-After": "5"})
            changed.set()
            await space
        await hold(streams)
        assert not streams.spool.is_full

    asyncio.run(run())


def test_one_body_spools_at_a_time() -> None:
    async def run() -> None:
        streams, changed = Streams(1, 60, 60, 0), asyncio.Event()
        one, two = (Body(None, web.StreamResponse(), streams) for _ in range(2))
        assert streams.takes_turn(one) and streams.takes_turn(one) and not streams.takes_turn(two)
        waiting = asyncio.create_task(streams.wait_for_turn(changed))
        await asyncio.sleep(0)
        streams.give_turn(two)
        assert not changed.is_set()
        streams.give_turn(one)
        await waiting
        assert streams.takes_turn(two)

    asyncio.run(run())
