"""The computing of reviews: small ones in the event loop, large ones in a thread, the smallest first."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest

from cfo.runtime.webhook.worker import (
    MAX_INLINE,
    MAX_ITERATION,
    MAX_THREADS,
    MAX_WAITING,
    ReviewWorker,
    TooManyReviews,
)

LARGE = MAX_INLINE + 1
CLIENT = ("10.0.0.1", "ns")


@pytest.fixture
async def worker() -> ReviewWorker:
    return ReviewWorker()


async def test_only_large_reviews_run_in_a_thread(worker: ReviewWorker) -> None:
    assert await worker.run(CLIENT, MAX_INLINE, threading.current_thread) is threading.main_thread()
    assert (await worker.run(CLIENT, LARGE, threading.current_thread)).name.startswith("admission")


async def test_exceptions_are_raised(worker: ReviewWorker) -> None:
    for size in (0, LARGE, LARGE):
        with pytest.raises(ValueError, match="invalid literal"):
            await worker.run(CLIENT, size, int, "x")


async def test_smallest_review_is_next_and_a_cancelled_one_is_not_run(worker: ReviewWorker) -> None:
    release = threading.Event()
    done: list[int] = []
    async with asyncio.timeout(120):
        first = asyncio.create_task(worker.run(CLIENT, LARGE, release.wait))
        await asyncio.sleep(0)
        others = [
            asyncio.create_task(worker.run(CLIENT, LARGE + size, done.append, size))
            for size in (3, 1, 2)
        ]
        await asyncio.sleep(0)
        others[2].cancel()
        release.set()
        await asyncio.gather(first, *others[:2])
    assert done == [1, 3]


async def test_many_small_reviews_of_other_namespaces_do_not_delay_a_large_one(
    worker: ReviewWorker,
) -> None:
    """Each small review that has ended is followed by another one, as in a tenant's many connections."""
    release = threading.Event()
    done: list[str] = []
    victim = ("10.0.0.1", "victim")

    async def send(namespace: str) -> None:
        while "large" not in done and len(done) < 500:
            await worker.run(("10.0.0.1", namespace), LARGE, done.append, namespace)

    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        first = tasks.create_task(worker.run(CLIENT, LARGE, release.wait))
        await asyncio.sleep(0)
        for number in range(40):
            tasks.create_task(send(f"attacker-{number % 2}"))
        await asyncio.sleep(0)
        tasks.create_task(worker.run(victim, 4 * LARGE, done.append, "large"))
        tasks.create_task(worker.run(victim, LARGE, done.append, "small"))
        await asyncio.sleep(0)
        release.set()
        await first
    # of each attacker, one before the small one, and then as many as it has bytes in the large one
    assert done.index("small") <= 2
    assert done.index("large") <= 3 * 5


async def test_review_that_is_cancelled_before_its_turn_stops_no_others(
    worker: ReviewWorker,
) -> None:
    """The previous review can end before the cancelled task runs again."""
    release = threading.Event()
    async with asyncio.timeout(20):
        first = asyncio.create_task(worker.run(CLIENT, LARGE, release.wait))
        await asyncio.sleep(0)
        waiting = [
            asyncio.create_task(worker.run(CLIENT, LARGE, abs, 1)),
            asyncio.create_task(worker.run_next(LARGE, abs, 1)),
        ]
        await asyncio.sleep(0)
        for task in (first, *waiting):
            task.cancel()
        await asyncio.gather(first, *waiting, return_exceptions=True)
        assert await worker.run(CLIENT, LARGE, abs, -2) == 2
    release.set()


async def test_thread_of_a_cancelled_review_is_abandoned(worker: ReviewWorker) -> None:
    entered, release = threading.Event(), threading.Event()

    def block() -> None:
        entered.set()
        release.wait(120)

    async with asyncio.timeout(120):
        for number in range(MAX_THREADS):
            assert await worker.run(CLIENT, LARGE, sum, [number, 1]) == number + 1
            entered.clear()
            task = asyncio.create_task(worker.run(CLIENT, LARGE, block))
            await asyncio.to_thread(entered.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        waiting = asyncio.create_task(worker.run(CLIENT, LARGE, sum, [1, 1]))
        await asyncio.sleep(0.05)
        assert not waiting.done(), "another thread must not be started"
        release.set()
        assert await waiting == 2


async def test_exit_in_a_function_does_not_end_the_event_loop(worker: ReviewWorker) -> None:
    with pytest.raises(RuntimeError, match=r"the thread raised SystemExit\(3\)"):
        await worker.run(CLIENT, LARGE, exit, 3)


async def test_other_tasks_run_between_many_small_reviews(worker: ReviewWorker) -> None:
    """At most some reviews compute in one iteration of the event loop, in the order in which they arrived."""
    iterations = 0
    done: list[tuple[int, int]] = []

    async def count_iterations() -> None:
        nonlocal iterations
        while True:
            iterations += 1
            await asyncio.sleep(0)

    def compute(number: int) -> None:
        done.append((iterations, number))

    async with asyncio.timeout(120):
        counting = asyncio.create_task(count_iterations())
        async with asyncio.TaskGroup() as tasks:
            for number in range(24):
                tasks.create_task(worker.run(CLIENT, MAX_INLINE, compute, number))
        counting.cancel()
    assert [number for _, number in done] == list(range(24))
    computed = Counter(iteration for iteration, _ in done)
    assert set(computed.values()) == {MAX_ITERATION // MAX_INLINE}


async def test_functions_of_one_small_review_run_without_an_interruption(
    worker: ReviewWorker,
) -> None:
    is_interrupted = False

    def interrupt() -> None:
        nonlocal is_interrupted
        is_interrupted = True

    asyncio.get_running_loop().call_soon(interrupt)
    for number in range(MAX_ITERATION // MAX_INLINE):
        assert await worker.run(CLIENT, MAX_INLINE, abs, number) == number
    assert not is_interrupted


async def test_review_that_holds_a_result_is_next(worker: ReviewWorker) -> None:
    release = threading.Event()
    done: list[str] = []
    async with asyncio.timeout(120):
        first = asyncio.create_task(worker.run(CLIENT, LARGE, release.wait))
        await asyncio.sleep(0)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(worker.run(CLIENT, LARGE, done.append, "waiting"))
            tasks.create_task(worker.run_next(LARGE + 1, done.append, "next"))
            await asyncio.sleep(0)
            release.set()
        await first
    assert done == ["next", "waiting"]


async def test_waiting_reviews_are_limited_and_cancelled_ones_are_not_counted(
    worker: ReviewWorker,
) -> None:
    release = threading.Event()
    async with asyncio.timeout(120):
        first = asyncio.create_task(worker.run(CLIENT, LARGE, release.wait))
        await asyncio.sleep(0)
        waiting = [
            asyncio.create_task(worker.run(CLIENT, LARGE, abs, 1)) for _ in range(MAX_WAITING)
        ]
        await asyncio.sleep(0)
        with pytest.raises(TooManyReviews, match="50 reviews that wait"):
            await worker.run(CLIENT, LARGE, abs, 1)
        assert await worker.run(CLIENT, MAX_INLINE, abs, -1) == 1, "small reviews do not wait"
        waiting.pop().cancel()
        await asyncio.sleep(0)
        waiting.append(asyncio.create_task(worker.run(CLIENT, LARGE, abs, 1)))
        release.set()
        assert await asyncio.gather(*waiting) == [1] * MAX_WAITING
        await first
