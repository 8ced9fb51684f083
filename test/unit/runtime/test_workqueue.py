"""The queue's contract, on a clock that stands still."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from cfo.runtime.clock import FakeClock
from cfo.runtime.metrics import Metrics
from cfo.runtime.ratelimit import BucketRateLimiter, ExponentialRateLimiter, MaxOfRateLimiter, default_rate_limiter
from cfo.runtime.workqueue import LOW_PRIORITY, QueueShutDown, WorkQueue


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def queue(clock: FakeClock) -> WorkQueue[str]:
    return WorkQueue(clock=clock, rate_limiter=ExponentialRateLimiter())


def ready(queue: WorkQueue[str]) -> Iterator[str]:
    """What can be taken without waiting; each item is done at once."""
    while len(queue):
        getting = queue.get()
        with pytest.raises(StopIteration) as taken:
            getting.send(None)
        item, _ = taken.value.value
        yield item
        queue.done(item)


async def waiting_for(queue: WorkQueue[str]) -> asyncio.Task[tuple[str, int]]:
    task = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not task.done()
    return task


def test_an_item_is_queued_once(queue: WorkQueue[str]) -> None:
    for item in ("a", "b", "a", "a"):
        queue.add(item)
    assert list(ready(queue)) == ["a", "b"]


async def test_an_item_in_work_is_not_handed_out_but_not_forgotten(queue: WorkQueue[str]) -> None:
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("b")
    assert await queue.get() == ("b", 0)
    second = await waiting_for(queue)
    queue.done("a")
    assert await second == ("a", 0)


async def test_one_readd_in_work_is_as_good_as_many(queue: WorkQueue[str]) -> None:
    queue.add("a")
    await queue.get()
    for _ in range(3):
        queue.add("a")
    queue.done("a")
    assert list(ready(queue)) == ["a"]


async def test_get_waits_and_is_served_in_turn(queue: WorkQueue[str]) -> None:
    first, second = await waiting_for(queue), await waiting_for(queue)
    queue.add("a")
    queue.add("b")
    assert (await first, await second) == (("a", 0), ("b", 0))


async def test_a_cancelled_getter_takes_nothing_with_it(queue: WorkQueue[str]) -> None:
    first, second = await waiting_for(queue), await waiting_for(queue)
    queue.add("a")
    first.cancel()
    assert await second == ("a", 0)
    assert first.cancelled() or first.done()


def test_later_items_come_in_their_time(queue: WorkQueue[str], clock: FakeClock) -> None:
    queue.add_after("late", 10)
    queue.add_after("soon", 1)
    queue.add("now")
    assert list(ready(queue)) == ["now"]
    assert queue.waiting == 2
    clock.advance(1)
    assert list(ready(queue)) == ["soon"]
    clock.advance(8.9)
    assert list(ready(queue)) == []
    clock.advance(0.2)
    assert list(ready(queue)) == ["late"]


def test_the_earliest_of_several_times_counts(queue: WorkQueue[str], clock: FakeClock) -> None:
    queue.add_after("a", 10)
    queue.add_after("a", 2)
    queue.add_after("a", 5)
    clock.advance(2)
    assert list(ready(queue)) == ["a"]
    clock.advance(10)
    assert list(ready(queue)) == []


def test_adding_now_what_was_to_come_later_makes_it_come_once(queue: WorkQueue[str], clock: FakeClock) -> None:
    queue.add_after("a", 10)
    queue.add("a")
    queue.add_after("a", 1)
    assert list(ready(queue)) == ["a"]
    clock.advance(10)
    assert list(ready(queue)) == []


def test_higher_priorities_go_first_and_equal_ones_in_order(queue: WorkQueue[str]) -> None:
    queue.add("list-1", priority=LOW_PRIORITY)
    queue.add("list-2", priority=LOW_PRIORITY)
    queue.add("change-1")
    queue.add("urgent", priority=10)
    queue.add("change-2")
    assert list(ready(queue)) == ["urgent", "change-1", "change-2", "list-1", "list-2"]


async def test_the_highest_of_several_priorities_counts(queue: WorkQueue[str]) -> None:
    queue.add("a", priority=LOW_PRIORITY)
    queue.add("b", priority=LOW_PRIORITY)
    queue.add("b")
    queue.add("b", priority=LOW_PRIORITY)
    assert await queue.get() == ("b", 0)
    assert await queue.get() == ("a", LOW_PRIORITY)
    assert len(queue) == 0


async def test_a_raised_priority_holds_for_an_item_in_work(queue: WorkQueue[str]) -> None:
    queue.add("a")
    await queue.get()
    queue.add("a", priority=LOW_PRIORITY)
    queue.add("a", priority=5)
    queue.add("b")
    queue.done("a")
    assert await queue.get() == ("a", 5)


def test_a_priority_is_raised_while_an_item_waits_for_its_time(queue: WorkQueue[str], clock: FakeClock) -> None:
    queue.add("other", priority=1)
    queue.add_after("a", 1, priority=LOW_PRIORITY)
    queue.add_after("a", 3, priority=7)
    clock.advance(1)
    assert list(ready(queue)) == ["a", "other"]


def test_failures_back_off_until_they_are_forgotten(queue: WorkQueue[str], clock: FakeClock) -> None:
    waits = []
    for _ in range(4):
        queue.add_rate_limited("a")
        began = clock.monotonic()
        while not len(queue):
            clock.advance(0.001)
        waits.append(clock.monotonic() - began)
        assert list(ready(queue)) == ["a"]
    assert waits == pytest.approx([0.005, 0.01, 0.02, 0.04], abs=0.0011)
    assert queue.num_requeues("a") == 4
    queue.forget("a")
    assert queue.num_requeues("a") == 0
    assert queue.backoff("a") == 0.005


def test_a_given_delay_shortens_a_backoff_and_never_lengthens_it(queue: WorkQueue[str], clock: FakeClock) -> None:
    for _ in range(20):
        queue.backoff("a")
    queue.add("a", rate_limited=True, after=1)
    clock.advance(1)
    assert list(ready(queue)) == ["a"]


async def test_after_the_shutdown_nothing_comes_and_nothing_goes(queue: WorkQueue[str], clock: FakeClock) -> None:
    getter = await waiting_for(queue)
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


async def test_a_shutdown_with_drain_waits_for_what_is_in_work(queue: WorkQueue[str]) -> None:
    queue.add("a")
    queue.add("left")
    await queue.get()
    draining = asyncio.create_task(queue.shut_down_with_drain())
    await asyncio.sleep(0)
    assert not draining.done()
    queue.done("a")
    await draining
    assert queue.processing == 0


async def test_done_of_what_is_not_in_work_is_harmless(queue: WorkQueue[str]) -> None:
    queue.add("a")
    queue.done("a")
    assert await queue.get() == ("a", 0)


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_happens_nothing_is_lost_and_nothing_runs_twice_at_once(seed: int) -> None:
    chance = random.Random(seed)
    clock, metrics = FakeClock(), Metrics()
    queue: WorkQueue[str] = WorkQueue(
        clock=clock, rate_limiter=ExponentialRateLimiter(0.5, 60), metrics=metrics.queue("q")
    )
    items, priorities = "abcdefgh", (LOW_PRIORITY, 0, 0, 5)
    owed: set[str] = set()
    working: list[str] = []

    async def take() -> None:
        item, _ = await queue.get()
        assert item not in working
        owed.discard(item)
        working.append(item)

    for _ in range(2000):
        match chance.randrange(6):
            case 0:
                owed.add(item := chance.choice(items))
                queue.add(item, priority=chance.choice(priorities))
            case 1:
                owed.add(item := chance.choice(items))
                queue.add_after(item, chance.choice((0, 1, 30)), priority=chance.choice(priorities))
            case 2:
                owed.add(item := chance.choice(items))
                queue.add_rate_limited(item, priority=chance.choice(priorities))
            case 3:
                clock.advance(chance.random() * 5)
            case 4 if len(queue) > sum(item in owed for item in working):
                await take()
            case 5 if working:
                queue.done(working.pop(chance.randrange(len(working))))
    for item in working:
        queue.done(item)
    working.clear()
    clock.advance(100)
    while len(queue):
        await take()
    assert owed == set()
    assert queue.waiting == 0
    assert clock.timers == 0
    depths = [metrics.queue("q").depth(priority)._value.get() for priority in priorities]
    assert depths == [0, 0, 0, 0]


async def test_metrics_tell_what_happens(clock: FakeClock) -> None:
    metrics = Metrics()
    queue: WorkQueue[str] = WorkQueue(clock=clock, rate_limiter=ExponentialRateLimiter(), metrics=metrics.queue("q"))

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"workqueue_{name}", {"name": "q", "controller": "q", **labels})

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


def test_an_exponential_limiter_doubles_for_each_item_up_to_its_maximum() -> None:
    limiter = ExponentialRateLimiter(0.005, 1000)
    assert [limiter.when("a") for _ in range(3)] == [0.005, 0.01, 0.02]
    assert limiter.when("b") == 0.005
    for _ in range(5000):
        last = limiter.when("a")
    assert last == 1000
    assert limiter.num_requeues("a") == 5003


def test_a_bucket_lets_a_burst_through_and_then_its_rate(clock: FakeClock) -> None:
    limiter = BucketRateLimiter(10, 3, clock)
    assert [limiter.when("x") for _ in range(5)] == pytest.approx([0, 0, 0, 0.1, 0.2])
    clock.advance(10)
    assert [limiter.when("x") for _ in range(4)] == pytest.approx([0, 0, 0, 0.1])


def test_a_bucket_gives_only_what_it_has(clock: FakeClock) -> None:
    limiter = BucketRateLimiter(1, 2, clock)
    assert [limiter.try_take() for _ in range(3)] == [True, True, False]
    clock.advance(1)
    assert [limiter.try_take() for _ in range(2)] == [True, False]


def test_of_several_limiters_the_longest_wait_counts(clock: FakeClock) -> None:
    limiter = MaxOfRateLimiter(ExponentialRateLimiter(1, 8), BucketRateLimiter(0.1, 1, clock))
    assert limiter.when("a") == 1
    assert limiter.when("a") == 10
    limiter.forget("a")
    assert limiter.num_requeues("a") == 0


def test_the_default_limiter_is_that_of_client_go(clock: FakeClock) -> None:
    limiter = default_rate_limiter(clock)
    assert limiter.when("a") == 0.005
    waits = [limiter.when(str(number)) for number in range(110)]
    assert waits[98] == 0.005
    assert waits[109] == pytest.approx(1.1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ExponentialRateLimiter(0, 1),
        lambda: ExponentialRateLimiter(2, 1),
        lambda: BucketRateLimiter(0, 1),
        lambda: BucketRateLimiter(1, 0),
    ],
)
def test_impossible_limits_are_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match="must be"):
        make()


def test_what_came_before_its_time_is_not_kept_until_then(queue: WorkQueue[str], clock: FakeClock) -> None:
    for number in range(1000):
        queue.add_after(f"later-{number % 10}", 3600.0 + number)
        queue.add_after(f"gone-{number}", 3600.0)
        queue.add(f"gone-{number}")
        assert list(ready(queue)) == [f"gone-{number}"]
    assert queue.waiting == 10
    assert len(queue._waiting) < 200
    clock.advance(3600.0 + 10)
    assert sorted(ready(queue)) == [f"later-{number}" for number in range(10)]
