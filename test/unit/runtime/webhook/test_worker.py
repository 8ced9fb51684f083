"""The thread for large reviews: the smallest is next, and a cancelled one is interrupted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from cfo.runtime.webhook import worker as worker_module
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
    assert done == ["second"], "the first function must be interrupted"


class Loop:
    """A function that computes until ``release``; with ``catches`` it ignores the first interruptions."""

    def __init__(self, catches: int = 0) -> None:
        self.entered, self.release = threading.Event(), threading.Event()
        self.interruptions = 0
        self._catches = catches

    def __call__(self) -> None:
        while True:
            try:
                self.entered.set()
                while not self.release.is_set():
                    pass
            except BaseException:
                self.interruptions += 1
                if self.interruptions > self._catches:
                    raise
            else:
                return


async def start_and_cancel(worker: ReviewWorker, function: Loop) -> None:
    task = asyncio.create_task(worker.run(LARGE, function))
    await asyncio.to_thread(function.entered.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("catches", [0, 2])
async def test_endless_function_is_interrupted_and_the_same_thread_continues(
    worker: ReviewWorker, catches: int
) -> None:
    thread = await worker.run(LARGE, threading.current_thread)
    endless = Loop(catches)
    async with asyncio.timeout(20):
        await start_and_cancel(worker, endless)
        assert await worker.run(LARGE, threading.current_thread) is thread
    assert endless.interruptions == catches + 1
    for number in range(100):  # no interruption is left for later functions
        assert await worker.run(LARGE, sum, [number, number]) == 2 * number


async def test_interruption_at_the_end_of_a_function_affects_no_other(worker: ReviewWorker) -> None:
    async with asyncio.timeout(60):
        for number in range(100):
            ending = Loop()
            task = asyncio.create_task(worker.run(LARGE, ending))
            await asyncio.to_thread(ending.entered.wait)
            ending.release.set()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await worker.run(LARGE, sum, [number, 1]) == number + 1


async def test_function_that_cannot_be_interrupted_is_abandoned(
    worker: ReviewWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "ABANDON_AFTER", 0.05)
    monkeypatch.setattr(worker_module, "MAX_ABANDONED", 2)
    entered, releases = threading.Event(), [threading.Event() for _ in range(2)]

    def block(release: threading.Event) -> None:
        entered.set()
        release.wait()

    with capture_logs() as logs:
        async with asyncio.timeout(20):
            for number, release in enumerate(releases):
                entered.clear()
                task = asyncio.create_task(worker.run(LARGE, block, release))
                await asyncio.to_thread(entered.wait)
                task.cancel()
                waiting = asyncio.create_task(worker.run(LARGE, threading.current_thread))
                if number == 0:
                    assert (await waiting).is_alive()
                else:
                    while len(logs) < 2:  # noqa: ASYNC110 (the worker has no event)
                        await asyncio.sleep(0.01)
                    assert not waiting.done(), "a third thread must not be started"
                    release.set()
                    assert (await waiting).is_alive()
            releases[0].set()
    assert [line["abandoned"] for line in logs] == [1, 2]


async def test_exit_in_a_function_does_not_end_the_event_loop(worker: ReviewWorker) -> None:
    with pytest.raises(RuntimeError, match=r"the review raised SystemExit\(3\)"):
        await worker.run(LARGE, exit, 3)
