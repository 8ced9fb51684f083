"""The thread for large reviews: small reviews run inline, the smallest large one is next, cancelled ones leave."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from cfo.runtime.webhook.worker import MAX_INLINE, ReviewWorker

LARGE = MAX_INLINE + 1


@pytest.fixture
def worker() -> Iterator[ReviewWorker]:
    created = ReviewWorker()
    yield created
    created.close()


async def test_only_large_reviews_run_in_the_thread(worker: ReviewWorker) -> None:
    assert await worker.run(MAX_INLINE, threading.current_thread) is threading.main_thread()
    assert (await worker.run(LARGE, threading.current_thread)).name.startswith("admission")


async def test_exceptions_are_raised(worker: ReviewWorker) -> None:
    for size in (0, LARGE, LARGE):
        with pytest.raises(ValueError, match="invalid literal"):
            await worker.run(size, int, "x")


async def test_smallest_review_is_next_and_a_cancelled_one_is_not_run(worker: ReviewWorker) -> None:
    release = threading.Event()
    done: list[int] = []
    async with asyncio.timeout(20):
        first = asyncio.create_task(worker.run(LARGE, release.wait))
        await asyncio.sleep(0)
        others = [asyncio.create_task(worker.run(LARGE + size, done.append, size)) for size in (3, 1, 2)]
        await asyncio.sleep(0)
        others[2].cancel()
        release.set()
        await asyncio.gather(first, *others[:2])
    assert done == [1, 3]


async def test_thread_stays_taken_until_a_cancelled_review_ends(worker: ReviewWorker) -> None:
    entered, release = threading.Event(), threading.Event()
    done: list[str] = []

    def block() -> None:
        entered.set()
        release.wait()
        done.append("first")

    async with asyncio.timeout(20):
        first = asyncio.create_task(worker.run(LARGE, block))
        await asyncio.to_thread(entered.wait)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        second = asyncio.create_task(worker.run(LARGE, done.append, "second"))
        await asyncio.sleep(0.01)
        assert done == []
        release.set()
        await second
    assert done == ["first", "second"]
