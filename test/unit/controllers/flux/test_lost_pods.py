"""Lost pods of a namespace share lists, at least 5 seconds apart, which take a tenth of the time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from cfo.controllers.flux.lost_pods import LostPodsReconciler
from cfo.runtime import Channel, Client, Request
from test.support.clocks import FakeClock
from test.support.flux_queue import SETUP, Queue

NAMESPACE = Request("", "ns")
ACTIVE = "status.phase!=Succeeded,status.phase!=Failed"


class Server:
    """Answers lists with the names in ``active``, one a page; each page takes ``seconds``."""

    def __init__(self, clock: FakeClock) -> None:
        self.active: list[str] = []
        self.lists: list[str] = []
        self.pages = 0
        self.seconds = 0.0
        self.fails = False
        self._clock = clock

    async def request(self, request: Any) -> Any:
        params = request.params
        assert "PartialObjectMetadataList" in request.accept
        assert params["labelSelector"] == ""
        self._clock.advance(self.seconds)
        self.pages += 1
        at = int(params.get("continue") or 0)
        if not at:
            self.lists.append(params["fieldSelector"])
        if self.fails:
            raise ConnectionResetError("reset")
        names = self.active
        following = ""
        if at + 1 < len(names):
            following = str(at + 1)
        items = [{"metadata": {"name": name, "uid": name}} for name in names[at : at + 1]]
        return SimpleNamespace(
            body=orjson.dumps({"metadata": {"continue": following}, "items": items})
        )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def server(clock: FakeClock) -> Server:
    return Server(clock)


@pytest.fixture
def queue() -> Queue:
    return Queue(max_size=1000)


class Enqueued(Channel):
    """A channel of which the requests are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Request] = []

    def enqueue(self, requests: Any, *, priority: int = 0, reason: str = "") -> None:
        self.requests += requests


@pytest.fixture
def setups() -> Enqueued:
    return Enqueued()


@pytest.fixture
def reconciler(
    server: Server, clock: FakeClock, queue: Queue, setups: Enqueued
) -> LostPodsReconciler:
    client = cast("Client", SimpleNamespace(transport=server))
    return LostPodsReconciler(client, clock, queue.ledger, setups)


def lose(queue: Queue, *names: str) -> None:
    """Let pods run, each of a MiniCluster of its own, and leave the cache."""
    for name in names:
        queue.put_pod(name, name, uid=name)
        queue.lose(name)


async def reconcile_later(reconciler: LostPodsReconciler, clock: FakeClock) -> float | None:
    """Reconcile, and once more when the first result says so; return after how many seconds it is due again."""
    result = await reconciler.reconcile(NAMESPACE)
    clock.advance(result.requeue_after or 0.0)
    result = await reconciler.reconcile(NAMESPACE)
    return result.requeue_after


async def test_one_list_settles_hundreds_of_lost_pods(
    reconciler: LostPodsReconciler,
    server: Server,
    clock: FakeClock,
    queue: Queue,
    setups: Enqueued,
) -> None:
    lose(queue, *(f"pod-{number}" for number in range(400)))
    assert queue.decide().pods == 400
    server.active = ["pod-3", "other", "pod-7"]
    began = clock.monotonic()
    assert await reconcile_later(reconciler, clock) == pytest.approx(30)
    assert clock.monotonic() - began == pytest.approx(1)
    assert (server.lists, server.pages) == ([ACTIVE], 3)
    assert queue.decide().pods == 2
    assert set(setups.requests) == {SETUP}


@pytest.mark.parametrize(("active", "due"), [("first", 30.0), ("other", 5.0)])
async def test_pods_that_are_lost_after_a_list_are_settled_after_a_short_pause(
    reconciler: LostPodsReconciler,
    server: Server,
    clock: FakeClock,
    queue: Queue,
    active: str,
    due: float,
) -> None:
    """Each waited for 30 seconds while one lost pod was active, so churning pods held quota that none used."""
    lose(queue, "first")
    server.active = [active]
    assert await reconcile_later(reconciler, clock) == pytest.approx(due)
    held = queue.decide().pods
    for number in range(1, 5):
        clock.advance(1)
        lose(queue, f"later-{number}")
        result = await reconciler.reconcile(NAMESPACE)
        assert result.requeue_after == pytest.approx(5 - number)
    assert (len(server.lists), queue.decide().pods) == (1, held + 4)
    clock.advance(1)
    await reconciler.reconcile(NAMESPACE)
    assert (len(server.lists), queue.decide().pods) == (2, held)
    server.active = []
    clock.advance(30)
    await reconciler.reconcile(NAMESPACE)
    assert queue.decide().pods == 0


async def test_lists_take_a_tenth_of_the_time(
    reconciler: LostPodsReconciler, server: Server, clock: FakeClock, queue: Queue
) -> None:
    lose(queue, "pod")
    server.active = ["pod"]
    server.seconds = 10
    assert await reconcile_later(reconciler, clock) == pytest.approx(90)


async def test_failed_list_releases_nothing_and_is_repeated_after_the_pause(
    reconciler: LostPodsReconciler, server: Server, clock: FakeClock, queue: Queue
) -> None:
    lose(queue, "pod")
    server.fails = True
    with pytest.raises(ConnectionResetError):
        await reconcile_later(reconciler, clock)
    server.fails = False
    assert queue.decide().pods == 1
    result = await reconciler.reconcile(NAMESPACE)
    assert result.requeue_after == pytest.approx(5)
    clock.advance(5)
    await reconciler.reconcile(NAMESPACE)
    assert (len(server.lists), queue.decide().pods) == (2, 0)
