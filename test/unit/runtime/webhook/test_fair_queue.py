"""Which of the reviews that wait is next."""

from __future__ import annotations

import asyncio
from collections import Counter

from cfo.runtime.webhook.fair_queue import FairQueue, WaitingReview


def review(address: str, namespace: str, weight: int) -> WaitingReview:
    turn = asyncio.get_running_loop().create_future()
    return WaitingReview(address, namespace, weight, turn)


def order(queue: FairQueue) -> list[tuple[str, int]]:
    """Return the namespaces and weights of all reviews in their order."""
    reviews = [queue.pop() for _ in range(len(queue))]
    return [(each.namespace, each.weight) for each in reviews]


async def test_smallest_review_of_a_namespace_is_next_and_equal_ones_keep_their_order() -> None:
    queue = FairQueue()
    reviews = [review("a", "ns", weight) for weight in (3, 1, 2, 1)]
    for each in reviews:
        queue.add(each)
    assert [queue.pop() for _ in reviews] == [reviews[1], reviews[3], reviews[2], reviews[0]]


async def test_namespaces_share_the_work_equally() -> None:
    queue = FairQueue()
    for _ in range(12):
        queue.add(review("a", "small", 1))
    for _ in range(3):
        queue.add(review("a", "large", 4))
    begun = [queue.pop().namespace for _ in range(10)]
    assert Counter(begun) == {"small": 8, "large": 2}
    assert begun[0] == "small"


async def test_namespaces_that_one_address_names_share_its_turns() -> None:
    queue = FairQueue()
    for number in range(20):
        queue.add(review("pod", f"ns-{number}", 1))
    for _ in range(4):
        queue.add(review("api-server", "ns", 1))
    begun = [queue.pop().address for _ in range(8)]
    assert Counter(begun) == {"pod": 4, "api-server": 4}


async def test_namespace_without_waiting_reviews_saves_no_turns_up() -> None:
    queue = FairQueue()
    queue.add(review("a", "late", 1))
    queue.pop()
    for _ in range(10):
        queue.add(review("a", "busy", 1))
    for _ in range(6):
        queue.pop()
    for _ in range(4):
        queue.add(review("a", "late", 1))
    assert Counter(namespace for namespace, _ in order(queue)[:4]) == {"late": 2, "busy": 2}


async def test_removed_review_does_not_begin_and_leaves_no_share() -> None:
    queue = FairQueue()
    kept, removed = review("a", "ns", 2), review("a", "ns", 1)
    single = review("b", "other", 1)
    for each in (kept, removed, single):
        queue.add(each)
    queue.discard(removed)
    queue.discard(single)
    assert len(queue) == 1
    assert queue.pop() is kept
    queue.discard(kept)
    assert len(queue) == 0
