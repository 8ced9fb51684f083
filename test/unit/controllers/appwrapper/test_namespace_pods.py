"""AppWrappers share lists of pods, which take a bounded part of the time, and what is read for each list."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any, cast

import anyio
import orjson
import pytest

from cfo.api.appwrapper.names import APPWRAPPER_LABEL
from cfo.api.pod_requests import requests_of_pod
from cfo.controllers.appwrapper import namespace_pods
from cfo.controllers.appwrapper.active_pods import ActivePods
from cfo.controllers.appwrapper.namespace_pods import (
    MAX_OWNERS,
    MAX_PODS,
    NamespacePods,
    listed_pod,
)
from cfo.controllers.appwrapper.owners import OwnerReads
from cfo.controllers.pod_lists import SUCCEEDED, PodMeta
from cfo.runtime import GVK, Client, NamespacedName, Object, Reader
from cfo.runtime.client.errors import ServiceUnavailable
from cfo.runtime.objects.kinds import JOB
from test.support.clocks import FakeClock

CROWDED = NamespacedName("crowded", "w")


def answer(pods: list[Object]) -> Any:
    return SimpleNamespace(body=orjson.dumps({"metadata": {}, "items": pods}))


class Server:
    """Answers lists of pods; each takes ``seconds``, and waits for ``gate`` if that is set.

    ``pods`` are the pods of the namespace ``crowded``, and ``objects`` all that exists there, by name. Pods that have
    succeeded have that phase.
    """

    def __init__(self, clock: FakeClock, seconds: float = 1.0) -> None:
        self.lists = 0
        self.selectors: list[str] = []
        self.gate: anyio.Event | None = None
        self.fails = False
        self.pods: list[Object] = []
        self.objects: dict[str, Object] = {}
        self.reads: list[str] = []
        self.error: Exception | None = None
        self.transport = self
        self._clock = clock
        self._seconds = seconds

    async def request(self, request: Any) -> Any:
        is_for_succeeded = request.params["fieldSelector"] == SUCCEEDED
        if "crowded" in request.path:
            found = [
                pod
                for pod in self.pods
                if (pod["status"]["phase"] == "Succeeded") is is_for_succeeded
            ]
            if not is_for_succeeded:
                self.lists += 1
                self.selectors.append(request.params["labelSelector"])
            return answer(found)
        self.lists += 1
        self.selectors.append(request.params["labelSelector"])
        number = self.lists
        if self.gate is not None:
            await self.gate.wait()
        self._clock.advance(self._seconds)
        if self.fails:
            raise ConnectionResetError("lost")
        owner = {"uid": "job", "controller": True}
        metadata = {"name": f"p{number}", "uid": "p", "ownerReferences": [owner]}
        return answer([{"metadata": metadata}])

    def cached(self, gvk: GVK, key: NamespacedName) -> None:
        return None

    async def get_metadata(self, gvk: GVK, key: NamespacedName) -> Object | None:
        return await self.get(gvk, key, live=True)

    async def get(self, gvk: GVK, key: NamespacedName, *, live: bool) -> Object | None:
        assert live
        self.reads.append(key.name)
        if self.error is not None:
            raise self.error
        return self.objects.get(key.name)

    def add_pod(self, name: str, owner: str, *, phase: str = "Running", label: str = "w") -> None:
        """Create a pod of a Job that belongs to the AppWrapper ``w`` if its name begins with ``own``."""
        controller = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner}
        requests = {"cpu": "1m"}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "namespace": "crowded",
                "name": name,
                "uid": f"uid-of-{name}",
                "resourceVersion": "1",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {APPWRAPPER_LABEL: label},
                "ownerReferences": [{**controller, "controller": True}],
            },
            "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]},
            "status": {"phase": phase},
        }
        self.pods.append(pod)
        self.objects[name] = pod
        if owner.startswith("own"):
            wrapper_owner = {
                "apiVersion": "workload.codeflare.dev/v1beta2",
                "kind": "AppWrapper",
                "name": "w",
                "uid": "u",
                "controller": True,
            }
            self.objects[owner] = {"metadata": {"uid": owner, "ownerReferences": [wrapper_owner]}}
            self.objects["w"] = {"metadata": {"uid": "u"}}


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
def pods(server: Server, clock: FakeClock) -> NamespacePods:
    client = cast("Client", server)
    return NamespacePods(client, clock, CrowdedReader(), OwnerReads(client, clock, ()))


async def test_many_appwrappers_share_few_lists(
    pods: NamespacePods, server: Server, clock: FakeClock
) -> None:
    assert await pods.read_for(wrapper(0), "u") is not None
    for number in range(1, 100):
        assert await pods.read_for(wrapper(number), "u") is None
    assert server.lists == 1
    assert pods.retry_after("ns") == pytest.approx(9)
    clock.advance(9)
    for number in range(1, 100):
        assert await pods.read_for(wrapper(number), "u") is not None
    assert server.lists == 2


async def test_list_that_began_before_the_question_does_not_answer_it(
    pods: NamespacePods, server: Server, clock: FakeClock
) -> None:
    server.gate = anyio.Event()
    answers = []

    async def ask() -> None:
        answers.append(await pods.read_for(wrapper(0), "u"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        assert await pods.read_for(wrapper(1), "u") is None
        server.gate.set()
    assert answers[0] is not None
    assert await pods.read_for(wrapper(1), "u") is None
    clock.advance(9)
    found = await pods.read_for(wrapper(1), "u")
    assert found is not None
    assert [each.pod.name for each in found.own_pods({"job": "c"})] == ["p2"]


async def test_recreated_appwrapper_gets_a_later_list(
    pods: NamespacePods, server: Server, clock: FakeClock
) -> None:
    """Otherwise the pods that it had created meanwhile would be missing in the list that releases its quota."""
    assert await pods.read_for(wrapper(0), "first") is not None
    assert await pods.read_for(wrapper(1), "old") is None
    clock.advance(9)
    assert await pods.read_for(wrapper(2), "other") is not None
    assert await pods.read_for(wrapper(1), "new") is None
    clock.advance(9)
    assert await pods.read_for(wrapper(1), "new") is not None
    assert server.lists == 3


async def test_other_namespace_does_not_wait(pods: NamespacePods) -> None:
    assert await pods.read_for(wrapper(0), "u") is not None
    assert await pods.read_for(wrapper(0, "other"), "u") is not None


async def test_failed_list_answers_nothing(
    pods: NamespacePods, server: Server, clock: FakeClock
) -> None:
    server.fails = True
    with pytest.raises(ConnectionResetError, match="lost"):
        await pods.read_for(wrapper(0), "u")
    server.fails = False
    assert await pods.read_for(wrapper(0), "u") is None
    clock.advance(9)
    assert await pods.read_for(wrapper(0), "u") is not None


async def test_controller_proves_from_which_component_a_pod_descends(pods: NamespacePods) -> None:
    found = await pods.read_for(wrapper(0), "u")
    assert found is not None
    (own,) = found.own_pods({"job": "component"})
    pod = listed_pod("ns", own.pod, own.ancestor)
    assert (pod.key, pod.ancestor) == (NamespacedName("ns", "p1"), "component")
    assert (pod.phase, pod.is_read) == ("Pending", False)
    assert found.own_pods({"other": "component"}) == []


@pytest.mark.parametrize("label", ["w", "other", ""])
async def test_owners_of_all_pods_are_read_before_quota_is_released(
    pods: NamespacePods, server: Server, label: str
) -> None:
    """Otherwise a tenant who changes the label in a component's template releases the quota of pods that run."""
    server.add_pod("own", "own-replicas", label=label)
    found = await pods.read_for(CROWDED, "u", releases=True)
    assert found is not None
    assert [each.pod.name for each in found.own_pods({"u": "u"})] == ["own"]
    assert server.selectors == [""]


async def test_owners_of_pods_without_the_label_are_not_read_for_other_reasons(
    pods: NamespacePods, server: Server
) -> None:
    server.add_pod("notebook", "own-replicas", label="")
    assert await pods.read_for(CROWDED, "u") is not None
    assert server.reads == []


async def list_crowded(pods: NamespacePods, clock: FakeClock) -> ActivePods:
    """Return the next list of the crowded namespace."""
    clock.advance(300)
    found = await pods.read_for(CROWDED, "u")
    assert found is not None
    return found


def own_pods(found: ActivePods) -> list[PodMeta]:
    return [each.pod for each in found.own_pods({"u": "u", "own": "own"})]


async def test_crowded_namespace_is_listed_every_30_seconds(
    pods: NamespacePods, clock: FakeClock
) -> None:
    assert await pods.read_for(CROWDED, "u") is not None
    assert pods.retry_after("crowded") == pytest.approx(30)
    clock.advance(29)
    assert await pods.read_for(CROWDED, "u") is None


async def test_workload_that_waits_is_answered_every_10_seconds(
    pods: NamespacePods, server: Server, clock: FakeClock
) -> None:
    server._seconds = 0.0
    pods.add_workload("ns")
    first = pods.ask("ns")
    assert await pods.read("ns", first) is not None
    assert await pods.read("ns", first) is not None, "the same list again"
    second = pods.ask("ns")
    assert await pods.read("ns", second) is None
    assert pods.retry_after("ns", second) == pytest.approx(10)
    clock.advance(10)
    assert await pods.read("ns", second) is not None
    assert server.lists == 2
    assert server.selectors == ["", ""]


async def test_owners_of_listed_pods_are_read_in_turns(
    pods: NamespacePods, server: Server, clock: FakeClock
) -> None:
    """A user who creates more pods than are read at a time must not hide that own pods run."""
    for number in range(MAX_OWNERS + 10):
        server.add_pod(f"decoy-{number}", f"other-{number}")
    server.add_pod("p", "own")
    found = await list_crowded(pods, clock)
    assert len(server.reads) == MAX_OWNERS
    assert found.has_unknown_owners("w")
    assert not found.has_unknown_owners("v")
    found = await list_crowded(pods, clock)
    assert not found.has_unknown_owners("w")
    (own,) = found.own_pods({"u": "u"})
    assert (own.pod.name, own.ancestor) == ("p", "u")
    assert own.child is not None
    assert own.child[0] == JOB


async def test_owners_of_the_oldest_pods_are_read_first(
    pods: NamespacePods, server: Server, clock: FakeClock
) -> None:
    for number in range(MAX_OWNERS):
        server.add_pod(f"decoy-{number}", f"other-{number}")
        server.pods[-1]["metadata"]["creationTimestamp"] = "2026-01-01T00:00:01Z"
    server.add_pod("p", "own")
    found = await list_crowded(pods, clock)
    assert len(found.own_pods({"u": "u"})) == 1


async def test_pod_with_a_wrong_reference_hides_no_pods_of_the_same_owner(
    pods: NamespacePods, server: Server, clock: FakeClock
) -> None:
    server.add_pod("older", "own")
    server.pods[-1]["metadata"]["ownerReferences"][0]["name"] = "another"
    server.add_pod("p", "own")
    found = await list_crowded(pods, clock)
    assert [own.pod.name for own in found.own_pods({"u": "u"})] == ["p"]


async def test_owners_of_all_appwrappers_of_a_namespace_are_read_once(
    pods: NamespacePods, server: Server, clock: FakeClock
) -> None:
    for number in range(3):
        server.add_pod(f"p-{number}", f"own-{number}", label=f"w{number}")
    for number in range(3):
        clock.advance(300)
        assert await pods.read_for(wrapper(number, "crowded"), f"u{number}") is not None
    assert sorted(server.reads) == sorted(["w", "w", "w", "own-0", "own-1", "own-2"])


async def test_owners_that_cannot_be_read_now_are_not_known(
    pods: NamespacePods, server: Server, clock: FakeClock
) -> None:
    server.add_pod("p", "own")
    server.error = ServiceUnavailable(503)
    assert (await list_crowded(pods, clock)).has_unknown_owners("w")
    server.error = None
    assert not (await list_crowded(pods, clock)).has_unknown_owners("w")


async def test_pods_that_the_cache_lacks_are_read_once_for_each_version(
    pods: NamespacePods, server: Server, clock: FakeClock
) -> None:
    server.add_pod("p", "own")
    server.add_pod("q", "own", phase="Succeeded")
    server.reads.clear()
    found = await list_crowded(pods, clock)
    assert found.succeeded == {"uid-of-q"}
    read = await pods.read_pods("crowded", own_pods(found))
    assert {uid: pod and pod.phase for uid, pod in read.items()} == {
        "uid-of-p": "Running",
        "uid-of-q": "Succeeded",
    }
    server.reads.clear()
    found = await list_crowded(pods, clock)
    assert await pods.read_pods("crowded", own_pods(found)) == read
    assert server.reads == []
    server.objects["p"]["metadata"]["resourceVersion"] = "2"
    await pods.read_pods("crowded", own_pods(await list_crowded(pods, clock)))
    assert server.reads == ["p"]
    server.objects["p"]["metadata"]["resourceVersion"] = "3"
    found = await list_crowded(pods, clock)
    del server.objects["p"]
    assert (await pods.read_pods("crowded", own_pods(found)))["uid-of-p"] is None


async def test_pods_are_read_in_turns(
    pods: NamespacePods, server: Server, clock: FakeClock
) -> None:
    for number in range(MAX_PODS + 10):
        server.add_pod(f"p-{number}", "own")
    found = await list_crowded(pods, clock)
    server.reads.clear()
    assert len(await pods.read_pods("crowded", own_pods(found))) == MAX_PODS
    assert len(await pods.read_pods("crowded", own_pods(found))) == MAX_PODS
    assert len(server.reads) == MAX_PODS
    for pod in server.pods:
        pod["metadata"]["resourceVersion"] = "2"
    found = await list_crowded(pods, clock)
    server.reads.clear()
    read = await pods.read_pods("crowded", own_pods(found))
    assert len(read) == MAX_PODS + 10, "also those that have changed all the time"
    assert server.reads[:10] == [f"p-{number}" for number in range(MAX_PODS, MAX_PODS + 10)]


async def test_appwrappers_that_wait_share_what_may_be_read(
    pods: NamespacePods, server: Server, clock: FakeClock
) -> None:
    for number in range(MAX_PODS):
        server.add_pod(f"p-{number}", "own")
    found = await list_crowded(pods, clock)
    assert await pods.read_for(wrapper(1, "crowded"), "other") is None
    assert len(await pods.read_pods("crowded", own_pods(found))) == MAX_PODS // 2


async def test_some_pods_of_each_appwrapper_are_kept(
    pods: NamespacePods, server: Server, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One can prove that its quota is requested, however many pods the others of the namespace have."""
    monkeypatch.setattr(namespace_pods, "_MAX_KEPT", 1000)
    for number in range(1010):
        server.add_pod(f"p-{number}", "own")
    for number in range(10):
        server.add_pod(f"q-{number}", "own-2")
    for _ in range(6):
        found = await list_crowded(pods, clock)
        first = await pods.read_pods("crowded", own_pods(found)[:1010])
    assert len(first) == 1000
    found = await list_crowded(pods, clock)
    assert len(await pods.read_pods("crowded", own_pods(found)[1010:])) == 8
    server.pods[0]["metadata"]["resourceVersion"] = "2"
    found = await list_crowded(pods, clock)
    server.reads.clear()
    await pods.read_pods("crowded", own_pods(found)[:1010])
    assert server.reads == ["p-0"], "also if no more are kept"


async def test_release_needs_a_list_that_began_after_it(
    pods: NamespacePods, server: Server, clock: FakeClock
) -> None:
    await list_crowded(pods, clock)
    assert await pods.read_for(CROWDED, "u") is None
    clock.advance(300)
    assert await pods.read_for(wrapper(1, "crowded"), "other") is not None
    assert await pods.read_for(CROWDED, "u", releases=True) is None
    clock.advance(300)
    assert await pods.read_for(CROWDED, "u") is not None, "the later list is for both"


async def test_large_pod_is_kept_in_a_small_form(
    pods: NamespacePods, server: Server, clock: FakeClock
) -> None:
    server.add_pod("p", "own")
    resources = {f"example.com/{number:03}": "1" for number in range(500)}
    container = {"name": "c", "resources": {"requests": {**resources, "cpu": "3", "memory": "1Gi"}}}
    server.objects["p"]["spec"]["containers"] = [container] * 500
    ended = {"name": "c", "state": {"terminated": {"exitCode": 1, "reason": "x" * 1000}}}
    server.objects["p"]["status"]["containerStatuses"] = [ended] * 500
    found = await list_crowded(pods, clock)
    read = (await pods.read_pods("crowded", own_pods(found)))["uid-of-p"]
    assert read is not None
    assert requests_of_pod(read.shape)["cpu"] == 1_500_000
    assert len(pickle.dumps(read)) < 10_000
