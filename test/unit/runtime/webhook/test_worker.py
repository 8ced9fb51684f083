"""The threads for large reviews: the smallest is next, and that of a cancelled one is abandoned."""

from __future__ import annotations

import asyncio
import threading

import pytest

from cfo.runtime.webhook.worker import MAX_INLINE, MAX_THREADS, ReviewWorker

LARGE = MAX_INLINE + 1


@pytest.fixture
async def worker() -> ReviewWorker:
    return ReviewWorker()


async def test_only_large_reviews_run_in_a_thread(worker: ReviewWorker) -> None:
    assert await worker.run(MAX_INLINE, threading.current_thread) is threading.main_thread()
    assert (await worker.run(LARGE, threading.current_thread)).name.startswith("admission")


async def test_exceptions_are_raised(worker: ReviewWorker) -> None:
    for size in (0, LARGE, LARGE):
        with pytest.raises(ValueError, match="invalid literal"):
            await worker.run(size, int, "x")


async def test_smallest_review_is_next_and_a_cancelled_one_is_not_run(worker: ReviewWorker) -> None:
    release = threading.Event()
    done: list[int] = []
    async with asyncio.timeout(120):
        first = asyncio.create_task(worker.run(LARGE, release.wait))
        await asyncio.sleep(0)
        others = [
            asyncio.create_task(worker.run(LARGE + size, done.append, size)) for size in (3, 1, 2)
        ]
        await asyncio.sleep(0)
        others[2].cancel()
        release.set()
        await asyncio.gather(first, *others[:2])
    assert done == [1, 3]


async def test_thread_of_a_cancelled_review_is_abandoned(worker: ReviewWorker) -> None:
    entered, release = threading.Event(), threading.Event()

    def block() -> None:
        entered.set()
        release.wait(120)

    async with asyncio.timeout(120):
        for number in range(MAX_THREADS):
            assert await worker.run(LARGE, sum, [number, 1]) == number + 1
            entered.clear()
            task = asyncio.create_task(worker.run(LARGE, block))
            await asyncio.to_thread(entered.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        waiting = asyncio.create_task(worker.run(LARGE, sum, [1, 1]))
        await asyncio.sleep(0.05)
        assert not waiting.done(), "another thread must not be started"
        release.set()
        assert await waiting == 2


async def test_exit_in_a_function_does_not_end_the_event_loop(worker: ReviewWorker) -> None:
    with pytest.raises(RuntimeError, match=r"the thread raised SystemExit\(3\)"):
        await worker.run(LARGE, exit, 3)
