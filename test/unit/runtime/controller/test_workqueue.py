"""The work queue and its rate limiters, tested with a fake clock."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from operator import itemgetter

import pytest

from cfo.runtime.client.ratelimit import (
    MAX_BUCKETS,
    BucketRateLimiter,
    BucketRateLimiters,
    DefaultRateLimiter,
    ExponentialRateLimiter,
)
from cfo.runtime.controller.metrics import Metrics
from cfo.runtime.controller.workqueue import LOW_PRIORITY, QueueShutDown, WorkQueue
from test.support.clocks import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def queue(clock: FakeClock) -> WorkQueue[str]:
    return WorkQueue(clock=clock, rate_limiter=ExponentialRateLimiter())


def take_ready(queue: WorkQueue[str]) -> Iterator[str]:
    """Yield the items that can be taken without waiting; each is marked as done immediately."""
    while len(queue):
        coroutine = queue.get()
        with pytest.raises(StopIteration) as stop:
            coroutine.send(None)
        item, _ = stop.value.value
        yield item
        queue.done(item)


async def start_get(queue: WorkQueue[str]) -> asyncio.Task[tuple[str, int]]:
    task = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not task.done()
    return task


def test_duplicate_items_are_queued_once(queue: WorkQueue[str]) -> None:
    for item in ("a", "b", "a", "a"):
        queue.add(item)
    assert list(take_ready(queue)) == ["a", "b"]


async def test_item_added_during_processing_is_returned_again_after_done(
    queue: WorkQueue[str],
) -> None:
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("b")
    assert await queue.get() == ("b", 0)
    second = await start_get(queue)
    queue.done("a")
    assert await second == ("a", 0)


async def test_several_adds_during_processing_requeue_the_item_once(queue: WorkQueue[str]) -> None:
    queue.add("a")
    await queue.get()
    for _ in range(3):
        queue.add("a")
    queue.done("a")
    assert list(take_ready(queue)) == ["a"]


async def test_waiting_getters_are_served_in_order(queue: WorkQueue[str]) -> None:
    first, second = await start_get(queue), await start_get(queue)
    queue.add("a")
    queue.add("b")
    assert (await first, await second) == (("a", 0), ("b", 0))


async def test_cancelled_get_loses_no_item(queue: WorkQueue[str]) -> None:
    first, second = await start_get(queue), await start_get(queue)
    queue.add("a")
    first.cancel()
    assert await second == ("a", 0)
    assert first.cancelled() or first.done()


def test_delayed_items_become_ready_after_their_delay(
    queue: WorkQueue[str], clock: FakeClock
) -> None:
    queue.add_after("late", 10)
    queue.add_after("soon", 1)
    queue.add("now")
    assert list(take_ready(queue)) == ["now"]
    assert queue.waiting == 2
    clock.advance(1)
    assert list(take_ready(queue)) == ["soon"]
    clock.advance(8.9)
    assert list(take_ready(queue)) == []
    clock.advance(0.2)
    assert list(take_ready(queue)) == ["late"]


def test_shortest_of_several_delays_is_used(queue: WorkQueue[str], clock: FakeClock) -> None:
    queue.add_after("a", 10)
    queue.add_after("a", 2)
    queue.add_after("a", 5)
    clock.advance(2)
    assert list(take_ready(queue)) == ["a"]
    clock.advance(10)
    assert list(take_ready(queue)) == []


def test_immediate_add_replaces_delayed_add(queue: WorkQueue[str], clock: FakeClock) -> None:
    queue.add_after("a", 10)
    queue.add("a")
    queue.add_after("a", 1)
    assert list(take_ready(queue)) == ["a"]
    clock.advance(10)
    assert list(take_ready(queue)) == []


def test_items_are_ordered_by_priority_and_then_by_insertion(queue: WorkQueue[str]) -> None:
    queue.add("list-1", priority=LOW_PRIORITY)
    queue.add("list-2", priority=LOW_PRIORITY)
    queue.add("change-1")
    queue.add("urgent", priority=10)
    queue.add("change-2")
    assert list(take_ready(queue)) == ["urgent", "change-1", "change-2", "list-1", "list-2"]


async def test_shares_take_turns() -> None:
    queue: WorkQueue[str] = WorkQueue(clock=FakeClock(), share_of=itemgetter(0))
    for number in range(1000):
        queue.add(f"attacker-{number}")
    for item in ("victim-0", "other-0", "victim-1"):
        queue.add(item)
    first = list(take_ready(queue))
    assert first[:3] == ["attacker-0", "victim-0", "other-0"]
    assert first[3:6] == ["attacker-1", "victim-1", "attacker-2"]
    assert first[6:] == [f"attacker-{number}" for number in range(3, 1000)]


async def test_busy_share_keeps_its_turn_but_not_more() -> None:
    """An item that changes while it is processed waits for one item of each other share."""
    queue: WorkQueue[str] = WorkQueue(clock=FakeClock(), share_of=itemgetter(0))
    queue.add("attacker")
    taken = []
    for item in ("victim-0", "victim-1"):
        queue.add(item)
    for _ in range(5):
        item, _ = await queue.get()
        queue.add("attacker")
        queue.done(item)
        taken.append(item)
    assert taken == ["attacker", "victim-0", "attacker", "victim-1", "attacker"]


async def test_share_gets_only_some_workers_while_others_wait() -> None:
    queue: WorkQueue[str] = WorkQueue(clock=FakeClock(), share_of=itemgetter(0), max_share=2)
    for number in range(6):
        queue.add(f"attacker-{number}")
    assert [(await queue.get())[0] for _ in range(4)] == [
        f"attacker-{number}" for number in range(4)
    ]
    queue.add("victim-0", priority=LOW_PRIORITY)
    queue.add("victim-1", priority=LOW_PRIORITY)
    queue.add("other", priority=LOW_PRIORITY)
    assert [(await queue.get())[0] for _ in range(3)] == ["victim-0", "other", "victim-1"]
    assert [(await queue.get())[0] for _ in range(2)] == ["attacker-4", "attacker-5"], (
        "no other waits"
    )


async def test_share_with_free_workers_precedes_shares_without() -> None:
    queue: WorkQueue[str] = WorkQueue(clock=FakeClock(), share_of=itemgetter(0), max_share=1)
    for item in ("a0", "b0", "c0", "a1", "b1"):
        queue.add(item)
    assert [(await queue.get())[0] for _ in range(2)] == ["a0", "b0"]
    assert (await queue.get())[0] == "c0"
    queue.done("b0")
    assert (await queue.get())[0] == "b1"


async def test_first_item_precedes_all_others_and_keeps_its_priority(clock: FakeClock) -> None:
    queue: WorkQueue[str] = WorkQueue(clock=clock, share_of=itemgetter(0), max_share=1)
    queue.add("attacker-running")
    await queue.get()
    queue.add("victim", priority=10)
    queue.add("attacker-ready", priority=LOW_PRIORITY)
    queue.add_after("attacker-delayed", 60, priority=LOW_PRIORITY)
    queue.add("attacker-running", priority=LOW_PRIORITY, first=True)
    for item in ("attacker-ready", "attacker-delayed", "attacker-new"):
        queue.add(item, priority=LOW_PRIORITY, first=True)
    queue.add("attacker-new")  # an event of it
    taken = [await queue.get() for _ in range(4)]
    assert taken == [
        ("attacker-ready", LOW_PRIORITY),
        ("attacker-delayed", LOW_PRIORITY),
        ("attacker-new", 0),
        ("victim", 10),
    ]
    queue.add("victim-2")
    queue.done("attacker-running")
    assert await queue.get() == ("attacker-running", LOW_PRIORITY)


async def test_many_priorities_are_handed_out_in_order(queue: WorkQueue[str]) -> None:
    for turn in range(3):
        for priority in random.Random(1).sample(range(100), 100):
            queue.add(str(priority), priority=priority)
        left = list(range(100))
        # every 16th item is one of the lowest priority
        numbers = range(100 * turn, 100 * turn + 100)
        expected = [left.pop(0 if number % 16 == 15 else -1) for number in numbers]
        assert list(take_ready(queue)) == list(map(str, expected))


@pytest.mark.parametrize("attackers", [1, 2])
async def test_low_priority_is_served_while_other_items_keep_coming(attackers: int) -> None:
    queue: WorkQueue[str] = WorkQueue(share_of=lambda item: item[0], max_share=1)
    for number in range(3):
        queue.add(f"v{number}", priority=LOW_PRIORITY)
    for number in range(10 * attackers):
        queue.add(f"{number % attackers}-{number}")
    taken = []
    for _ in range(50):
        running = [(await queue.get())[0] for _ in range(2)]
        taken += running
        for item in running:
            queue.done(item)
            if item[0] != "v":
                queue.add(item)
    assert [item for item in taken if item[0] == "v"] == ["v0", "v1", "v2"]


async def test_highest_of_several_priorities_is_used(queue: WorkQueue[str]) -> None:
    queue.add("a", priority=LOW_PRIORITY)
    queue.add("b", priority=LOW_PRIORITY)
    queue.add("b")
    queue.add("b", priority=LOW_PRIORITY)
    assert await queue.get() == ("b", 0)
    assert await queue.get() == ("a", LOW_PRIORITY)
    assert len(queue) == 0


async def test_priority_can_be_raised_during_processing(queue: WorkQueue[str]) -> None:
    queue.add("a")
    await queue.get()
    queue.add("a", priority=LOW_PRIORITY)
    queue.add("a", priority=5)
    queue.add("b")
    queue.done("a")
    assert await queue.get() == ("a", 5)


def test_priority_of_delayed_item_can_be_raised(queue: WorkQueue[str], clock: FakeClock) -> None:
    queue.add("other", priority=1)
    queue.add_after("a", 1, priority=LOW_PRIORITY)
    queue.add_after("a", 3, priority=7)
    clock.advance(1)
    assert list(take_ready(queue)) == ["a", "other"]


def test_rate_limited_item_backs_off_until_it_is_forgotten(
    queue: WorkQueue[str], clock: FakeClock
) -> None:
    waits = []
    for _ in range(4):
        queue.add_after("a", queue.backoff("a"))
        start = clock.monotonic()
        while not len(queue):
            clock.advance(0.001)
        waits.append(clock.monotonic() - start)
        assert list(take_ready(queue)) == ["a"]
    assert waits == pytest.approx([0.005, 0.01, 0.02, 0.04], abs=0.0011)
    assert queue.num_requeues("a") == 4
    queue.forget("a")
    assert queue.num_requeues("a") == 0
    assert queue.backoff("a") == 0.005


async def test_shut_down_queue_accepts_no_items_and_get_raises(
    queue: WorkQueue[str], clock: FakeClock
) -> None:
    getter = await start_get(queue)
    queue.add_after("late", 1)
    queue.shut_down()
    queue.add("a")
    clock.advance(1)
    with pytest.raises(QueueShutDown):
        await getter
    with pytest.raises(QueueShutDown):
        await queue.get()
    assert len(queue) == 0
    assert clock.timers == 0


async def test_done_is_ignored_for_items_not_in_progress(queue: WorkQueue[str]) -> None:
    queue.add("a")
    queue.done("a")
    assert await queue.get() == ("a", 0)


@pytest.mark.parametrize("seed", range(20))
async def test_random_operations_lose_no_item_and_process_none_twice_concurrently(
    seed: int,
) -> None:
    rng = random.Random(seed)
    clock, metrics = FakeClock(), Metrics()
    queue: WorkQueue[str] = WorkQueue(
        clock=clock,
        rate_limiter=ExponentialRateLimiter(0.5, 60),
        metrics=metrics.queue("q"),
        share_of=lambda item: item in "abc",
        max_share=seed % 4,
    )
    items, priorities = "abcdefgh", (LOW_PRIORITY, 0, 0, 5)
    pending: set[str] = set()
    in_progress: list[str] = []

    async def take() -> None:
        item, _ = await queue.get()
        assert item not in in_progress
        pending.discard(item)
        in_progress.append(item)

    for _ in range(2000):
        match rng.randrange(6):
            case 0:
                pending.add(item := rng.choice(items))
                queue.add(item, priority=rng.choice(priorities))
            case 1:
                pending.add(item := rng.choice(items))
                queue.add_after(item, rng.choice((0, 1, 30)), priority=rng.choice(priorities))
            case 2:
                pending.add(item := rng.choice(items))
                queue.add_after(item, queue.backoff(item), priority=rng.choice(priorities))
            case 3:
                clock.advance(rng.random() * 5)
            case 4 if len(queue) > sum(item in pending for item in in_progress):
                await take()
            case 5 if in_progress:
                queue.done(in_progress.pop(rng.randrange(len(in_progress))))
    for item in in_progress:
        queue.done(item)
    in_progress.clear()
    clock.advance(100)
    while len(queue):
        await take()
    assert pending == set()
    assert queue.waiting == 0
    assert clock.timers == 0
    depths = [metrics.queue("q").depth[priority]._value.get() for priority in priorities]
    assert depths == [0, 0, 0, 0]


async def test_metrics_follow_queue_operations(clock: FakeClock) -> None:
    metrics = Metrics()
    queue: WorkQueue[str] = WorkQueue(
        clock=clock, rate_limiter=ExponentialRateLimiter(), metrics=metrics.queue("q")
    )

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(
            f"workqueue_{name}", {"name": "q", "controller": "q", **labels}
        )

    queue.add("a")
    queue.add("a")
    queue.add("b", priority=LOW_PRIORITY)
    queue.add_after("c", 60)
    assert value("adds_total") == 2
    assert value("retries_total") == 1
    assert value("depth", priority="0") == 1
    assert value("depth", priority="-100") == 1
    queue.add("b")
    assert value("depth", priority="0") == 2
    assert value("depth", priority="-100") == 0

    clock.advance(3)
    await queue.get()
    await queue.get()
    assert value("depth", priority="0") == 0
    assert value("queue_duration_seconds_sum") == 6
    assert value("queue_duration_seconds_count") == 2
    clock.advance(2)
    assert value("unfinished_work_seconds") == 4
    queue.done("a")
    clock.advance(1)
    assert value("longest_running_processor_seconds") == 3
    assert value("work_duration_seconds_sum") == 2
    queue.done("b")
    assert value("unfinished_work_seconds") == 0
    assert value("longest_running_processor_seconds") == 0


def test_exponential_limiter_doubles_delay_of_each_item_up_to_maximum() -> None:
    limiter = ExponentialRateLimiter(0.005, 1000)
    assert [limiter.when("a") for _ in range(3)] == [0.005, 0.01, 0.02]
    assert limiter.when("b") == 0.005
    for _ in range(5000):
        last = limiter.when("a")
    assert last == 1000
    assert limiter.num_requeues("a") == 5003


def test_bucket_limiter_allows_burst_and_then_its_rate(clock: FakeClock) -> None:
    limiter = BucketRateLimiter(10, 3, clock)
    assert [limiter.when() for _ in range(5)] == pytest.approx([0, 0, 0, 0.1, 0.2])
    clock.advance(10)
    assert [limiter.when() for _ in range(4)] == pytest.approx([0, 0, 0, 0.1])


def test_bucket_limiter_try_take_fails_when_bucket_is_empty(clock: FakeClock) -> None:
    limiter = BucketRateLimiter(1, 2, clock)
    assert [limiter.try_take() for _ in range(3)] == [True, True, False]
    clock.advance(1)
    assert [limiter.try_take() for _ in range(2)] == [True, False]


def test_each_key_has_its_own_bucket(clock: FakeClock) -> None:
    limiters = BucketRateLimiters(1, 2, clock)
    assert [limiters.try_take("a") for _ in range(3)] == [True, True, False]
    assert limiters.try_take("b")
    for number in range(MAX_BUCKETS):
        limiters.try_take(number)
    assert len(limiters._buckets) == MAX_BUCKETS


def test_default_limiter_matches_client_go(clock: FakeClock) -> None:
    limiter = DefaultRateLimiter(clock)
    assert limiter.when("a") == 0.005
    waits = [limiter.when(str(number)) for number in range(110)]
    assert waits[98] == 0.005
    assert waits[109] == pytest.approx(1.1)
    limiter.forget("a")
    assert limiter.num_requeues("a") == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: ExponentialRateLimiter(0, 1),
        lambda: ExponentialRateLimiter(2, 1),
        lambda: BucketRateLimiter(0, 1),
        lambda: BucketRateLimiter(1, 0),
    ],
)
def test_invalid_limits_are_rejected(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match="must be"):
        make()


def test_immediate_add_releases_memory_of_delayed_add(
    queue: WorkQueue[str], clock: FakeClock
) -> None:
    for number in range(1000):
        queue.add_after(f"later-{number % 10}", 3600.0 + number)
        queue.add_after(f"early-{number}", 3600.0)
        queue.add(f"early-{number}")
        assert list(take_ready(queue)) == [f"early-{number}"]
    assert queue.waiting == 10
    assert len(queue._waiting) < 200
    clock.advance(3600.0 + 10)
    assert sorted(take_ready(queue)) == [f"later-{number}" for number in range(10)]
