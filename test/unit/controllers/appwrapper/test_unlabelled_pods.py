"""AppWrappers that end share lists of pods, which take a bounded part of the time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import anyio
import orjson
import pytest

from cfo.controllers.appwrapper.unlabelled_pods import UnlabelledPods, descendants
from cfo.runtime import Client, NamespacedName, Reader
from test.support.clocks import FakeClock


class Server:
    """Answers lists of pods; each takes ``seconds``, and waits for ``gate`` if that is set."""

    def __init__(self, clock: FakeClock, seconds: float = 1.0) -> None:
        self.lists = 0
        self.selectors: list[str] = []
        self.gate: anyio.Event | None = None
        self.fails = False
        self._clock = clock
        self._seconds = seconds

    async def request(self, request: Any) -> Any:
        self.lists += 1
        self.selectors.append(request.params["labelSelector"])
        number = self.lists
        if self.gate is not None:
            await self.gate.wait()
        self._clock.advance(self._seconds)
        if self.fails:
            raise ConnectionResetError("lost")
        owner = {"uid": "job", "controller": True}
        pods = [{"metadata": {"name": f"p{number}", "uid": "p", "ownerReferences": [owner]}}]
        return SimpleNamespace(body=orjson.dumps({"metadata": {}, "items": pods}))


class CrowdedReader(Reader):
    """A reader of labelled pods that has no room for those of the namespace ``crowded``."""

    def __init__(self) -> None:
        """Have no store."""

    def is_complete(self, namespace: str, /) -> bool:
        return namespace != "crowded"


def wrapper(number: int, namespace: str = "ns") -> NamespacedName:
    return NamespacedName(namespace, f"w{number}")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def server(clock: FakeClock) -> Server:
    return Server(clock)


@pytest.fixture
def pods(server: Server, clock: FakeClock) -> UnlabelledPods:
    client = cast("Client", SimpleNamespace(transport=server))
    return UnlabelledPods(client, clock, CrowdedReader())


async def test_many_appwrappers_share_few_lists(
    pods: UnlabelledPods, server: Server, clock: FakeClock
) -> None:
    assert await pods.read(wrapper(0), "u") is not None
    for number in range(1, 100):
        assert await pods.read(wrapper(number), "u") is None
    assert server.lists == 1
    assert pods.retry_after("ns") == pytest.approx(9)
    clock.advance(9)
    for number in range(1, 100):
        assert await pods.read(wrapper(number), "u") is not None
    assert server.lists == 2


async def test_list_that_began_before_the_question_does_not_answer_it(
    pods: UnlabelledPods, server: Server, clock: FakeClock
) -> None:
    server.gate = anyio.Event()
    answers = []

    async def ask() -> None:
        answers.append(await pods.read(wrapper(0), "u"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        assert await pods.read(wrapper(1), "u") is None
        server.gate.set()
    assert answers[0] is not None
    assert await pods.read(wrapper(1), "u") is None
    clock.advance(9)
    found = await pods.read(wrapper(1), "u")
    assert found is not None
    assert [pod.name for pod in found] == ["p2"]


async def test_recreated_appwrapper_gets_a_later_list(
    pods: UnlabelledPods, server: Server, clock: FakeClock
) -> None:
    """Otherwise the pods that it had created meanwhile would be missing in the list that releases its quota."""
    assert await pods.read(wrapper(0), "first") is not None
    assert await pods.read(wrapper(1), "old") is None
    clock.advance(9)
    assert await pods.read(wrapper(2), "other") is not None
    assert await pods.read(wrapper(1), "new") is None
    clock.advance(9)
    assert await pods.read(wrapper(1), "new") is not None
    assert server.lists == 3


async def test_other_namespace_does_not_wait(pods: UnlabelledPods) -> None:
    assert await pods.read(wrapper(0), "u") is not None
    assert await pods.read(wrapper(0, "other"), "u") is not None


async def test_failed_list_answers_nothing(
    pods: UnlabelledPods, server: Server, clock: FakeClock
) -> None:
    server.fails = True
    with pytest.raises(ConnectionResetError, match="lost"):
        await pods.read(wrapper(0), "u")
    server.fails = False
    assert await pods.read(wrapper(0), "u") is None
    clock.advance(9)
    assert await pods.read(wrapper(0), "u") is not None


async def test_controller_proves_from_which_component_a_pod_descends(pods: UnlabelledPods) -> None:
    found = await pods.read(wrapper(0), "u")
    assert found is not None
    (own,) = descendants(found, "ns", {"job": "component"})
    assert (own.key, own.ancestor, own.phase) == (
        NamespacedName("ns", "p1"),
        "component",
        "Pending",
    )
    assert descendants(found, "ns", {"other": "component"}) == []


async def test_labelled_pods_are_listed_too_if_the_cache_has_no_room_for_all(
    pods: UnlabelledPods, server: Server
) -> None:
    """Otherwise a tenant who fills the cache of a namespace releases the quota of pods that run."""
    await pods.read(wrapper(0), "u")
    await pods.read(wrapper(0, "crowded"), "u")
    assert server.selectors == ["!workload.codeflare.dev/appwrapper", ""]
