"""Tests of how reviews in flight are divided among client addresses and namespaces."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack

import pytest

from cfo.runtime.webhook.shares import Shares
from cfo.runtime.webhook.worker import TooManyReviews

SERVER = "192.0.2.1"


class Reviews:
    """Reviews that end when the test says so."""

    def __init__(self, capacity: int) -> None:
        self.shares = Shares(capacity, "units")
        self.running: dict[tuple[str, str], list[ExitStack]] = {}

    def begin(self, address: str, namespace: str, amount: int = 1) -> str:
        """Begin a review; return the message if it is refused."""
        with ExitStack() as stack:
            try:
                stack.enter_context(self.shares.of_address(address, amount))
                stack.enter_context(self.shares.of_namespace(address, namespace, amount))
            except TooManyReviews as error:
                return str(error)
            self.running.setdefault((address, namespace), []).append(stack.pop_all())
        return ""

    def end(self, address: str, namespace: str) -> None:
        """End the oldest review."""
        self.running[address, namespace].pop(0).close()

    def number(self, address: str, namespace: str) -> int:
        return len(self.running.get((address, namespace), ()))

    def flood(self, clients: Iterable[tuple[str, str]]) -> None:
        """Let each of ``clients`` begin as many as it can, end one, and begin again."""
        clients = list(clients)
        for _ in range(20):
            waiting = clients
            while waiting:
                waiting = [client for client in waiting if not self.begin(*client)]
            for client in clients:
                if self.number(*client) > 1:
                    self.end(*client)


@pytest.mark.parametrize(
    ("number", "share"), [(1, 17), (2, 10), (3, 7), (5, 4), (8, 3), (12, 2), (24, 1)]
)
def test_namespaces_of_one_tenant_leave_room_for_another_one(number: int, share: int) -> None:
    """The 50 reviews of a webhook, all from one API server, which leaves room for another client, too."""
    reviews = Reviews(50)
    namespaces = [(SERVER, f"ns-{each}") for each in range(number)]
    reviews.flood(namespaces)
    held = [reviews.number(*each) for each in namespaces]
    assert max(held) <= share + 1
    assert min(held) >= 1
    assert reviews.begin(SERVER, "victim") == ""
    assert reviews.begin("192.0.2.2", "victim") == ""


@pytest.mark.parametrize("pods", [1, 2, 5, 20])
def test_pods_that_name_the_namespace_of_a_tenant_leave_room_for_it(pods: int) -> None:
    reviews = Reviews(50)
    reviews.flood((f"10.0.0.{pod}", "victim") for pod in range(pods))
    share = 50 // (pods + 2)
    assert max(reviews.number(f"10.0.0.{pod}", "victim") for pod in range(pods)) <= share + 1
    assert reviews.begin(SERVER, "victim") == ""


def test_one_pod_with_many_namespaces_has_the_share_of_one_client() -> None:
    reviews = Reviews(50)
    pod = [("10.0.0.1", f"ns-{each}") for each in range(100)]
    reviews.flood(pod)
    assert sum(reviews.number(*each) for each in pod) == 25
    assert (
        reviews.begin("10.0.0.1", "ns-200") == "25 units of one client, while others need the rest"
    )
    for _ in range(5):
        assert reviews.begin(SERVER, "victim") == ""


@pytest.mark.parametrize(
    ("amounts", "refused"),
    [
        ([7, 1], "7 units of one namespace, while others need the rest"),
        ([2, 3, 2], "5 units of one namespace, while others need the rest"),
        ([16], ""),
        ([17], "16 units"),
    ],
)
def test_shares_of_amounts(amounts: list[int], refused: str) -> None:
    reviews = Reviews(16)
    *first, last = amounts
    for amount in first:
        assert reviews.begin(SERVER, "a", amount) == ""
    assert reviews.begin(SERVER, "a", last) == refused


def test_ended_reviews_return_what_they_took() -> None:
    reviews = Reviews(5)
    for _ in range(3):
        reviews.begin(SERVER, "a")
        reviews.begin(SERVER, "b")
        for namespace in ("a", "b"):
            while reviews.number(SERVER, namespace):
                reviews.end(SERVER, namespace)
    assert reviews.shares.free == 5
    assert not reviews.shares._of_address
    assert not reviews.shares._of_namespace
