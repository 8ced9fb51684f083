"""What an overview remembers while no one reads it is bounded by the objects that exist."""

from __future__ import annotations

from typing import Any, cast

import anyio
import orjson
import pytest

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.flux.names import FLUX_JOB, MINICLUSTER
from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.api.kueue import WAITING
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.features import all_views
from cfo.runtime import (
    GVK,
    POD,
    Cache,
    ClientConfig,
    Clock,
    Entry,
    NamespacedName,
    RESTMapper,
    Transport,
    name_of,
)
from cfo.runtime.cache.entry import EntryDecoder
from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.selectors import MAX_BYTES, MAX_OBJECTS
from cfo.runtime.cache.store import Event, EventType
from cfo.runtime.objects.kinds import CORE_EVENT, NETWORK_POLICY
from cfo.runtime.process.clock import rfc3339
from cfo.summaries.changes import Identity
from cfo.summaries.kind_view import MAX_CHILDREN, related_kinds
from cfo.summaries.marks import Marks
from cfo.summaries.overview import _MAX_VALUES, Overview, _Decoder
from cfo.summaries.summary import Level
from test.support.clocks import FakeClock
from test.support.local_queues import LOCAL_QUEUE


def new_overview(clock: Clock | None = None) -> Overview:
    transport = Transport(ClientConfig(server="https://127.0.0.1:1"))
    cache = Cache(transport, RESTMapper(transport))
    return Overview(cache, all_views(), related=(), clock=clock)


def test_informers_have_limits_for_what_tenants_create() -> None:
    transport = Transport(ClientConfig(server="https://127.0.0.1:1"))
    cache = Cache(transport, RESTMapper(transport))
    views = all_views()
    Overview(cache, views, related=related_kinds(views))
    without = {
        informer.gvk for informer in cache.informers if informer.selection.max_objects > MAX_OBJECTS
    }
    assert without == {view.gvk for view in views}, "only the kinds that the page is about"


class StubInformer:
    """An informer that has synced."""

    has_synced = True
    is_not_served = False
    is_forbidden = False
    problem = ""


def warning_event(name: str, namespace: str = "ns", uid: str = "") -> Event:
    regarding = {"kind": "RayCluster", "name": name, "namespace": namespace, "uid": uid or name}
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}"}
    obj = {
        "metadata": metadata,
        "involvedObject": regarding,
        "type": "Warning",
        "reason": namespace,
    }
    entry = EntryDecoder(CORE_EVENT).decode(orjson.dumps(obj))
    return Event(EventType.ADDED, entry.key, None, entry)


def test_events_about_objects_that_do_not_exist_are_not_remembered() -> None:
    overview = new_overview()
    for number in range(100):
        overview._on_warning(warning_event(f"ghost-{number}"))
    assert not overview._marked


def test_event_in_another_namespace_is_not_shown_for_an_object() -> None:
    transport = Transport(ClientConfig(server="https://127.0.0.1:1"))
    cache = Cache(transport, RESTMapper(transport))
    overview = Overview(cache, all_views(), related=(CORE_EVENT,))
    key = NamespacedName("victim", "shop")
    cluster = {"metadata": {"namespace": "victim", "name": "shop", "uid": "1"}, "spec": {}}
    overview.informers_of[RAY_CLUSTER].objects.store.put(
        EntryDecoder(RAY_CLUSTER).decode(orjson.dumps(cluster))
    )
    (events,) = (informer for informer in cache.informers if informer.gvk == CORE_EVENT)
    for namespace in ("attacker", "victim", "zebra"):
        entry = warning_event("shop", namespace, uid="1").new
        assert entry is not None
        events.store.put(entry)
    overview._mark(RAY_CLUSTER, key)
    overview._update((RAY_CLUSTER, key))
    found = overview._summaries[RAY_CLUSTER, key]
    assert [warning.reason for warning in found.warnings] == ["victim"]


def test_no_index_finds_objects_of_other_namespaces_by_a_uid() -> None:
    transport = Transport(ClientConfig(server="https://127.0.0.1:1"))
    cache = Cache(transport, RESTMapper(transport))
    views = all_views()
    Overview(cache, views, related=related_kinds(views))
    owners = [
        {"apiVersion": view.gvk.api_version, "kind": view.gvk.kind, "name": "o", "uid": "u"}
        for view in views
    ]
    obj = {"metadata": {"namespace": "attacker", "name": "a", "ownerReferences": owners}}
    values = set()
    for informer in cache.informers:
        entry = EntryDecoder(informer.gvk).decode(orjson.dumps(obj))
        for index in informer.store._indexes.values():
            values |= set(index.function(entry))
    assert values == {"attacker/u"}


def test_few_of_many_children_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anyone in the namespace can let objects belong to a RayCluster, and each change of one updates its summary."""
    transport = Transport(ClientConfig(server="https://127.0.0.1:1"))
    overview = Overview(
        Cache(transport, RESTMapper(transport)), all_views(), related=(NETWORK_POLICY,)
    )
    monkeypatch.setattr(Informer, "has_synced", True)
    cluster = EntryDecoder(RAY_CLUSTER).decode(
        b'{"metadata": {"namespace": "ns", "name": "shop", "uid": "1"}}'
    )
    overview.informers_of[RAY_CLUSTER].objects.store.put(cluster)
    policies = overview.informers_of[RAY_CLUSTER].children[NETWORK_POLICY]
    owner = {
        "apiVersion": RAY_CLUSTER.api_version,
        "kind": "RayCluster",
        "name": "shop",
        "uid": "1",
    }
    for number in range(1000):
        policy = {"metadata": {"namespace": "ns", "name": f"p{number}", "ownerReferences": [owner]}}
        policies.store.put(EntryDecoder(NETWORK_POLICY).decode(orjson.dumps(policy)))
    related = overview._related_to(RAY_CLUSTER, cluster, _Decoder())
    assert len(related.children[NETWORK_POLICY]) == MAX_CHILDREN
    ((_, names),) = overview.related_objects(RAY_CLUSTER, cluster.key)["Children"]
    assert len(names) < 1000


def test_objects_of_a_summary_are_decoded_up_to_a_number_of_values() -> None:
    def entry(name: str, number: int) -> Entry:
        obj = {"metadata": {"namespace": "ns", "name": name}, "spec": [{}] * number}
        return EntryDecoder(RAY_CLUSTER).decode(orjson.dumps(obj))

    decoder = _Decoder()
    large = entry("large", _MAX_VALUES)
    known = {"apiVersion": RAY_CLUSTER.api_version, "kind": RAY_CLUSTER.kind}
    assert decoder.object(large) == {**known, "metadata": {"namespace": "ns", "name": "large"}}
    half = [entry(str(number), _MAX_VALUES // 4) for number in range(3)]
    found = decoder.objects([large, *half, entry("small", 10)])
    assert [name_of(obj) for obj in found] == ["0", "small"]


def test_object_that_is_too_large_to_be_decoded_has_a_summary() -> None:
    """Without its kind, it would end the page for all users."""
    overview = new_overview()
    obj = {"metadata": {"namespace": "ns", "name": "one"}, "spec": [{}] * _MAX_VALUES}
    put(overview.informers_of[RAY_CLUSTER].objects, obj)
    identity = RAY_CLUSTER, NamespacedName("ns", "one")
    overview._update(identity)
    found = overview._summaries[identity]
    assert (found.gvk, found.key) == identity


START = rfc3339(FakeClock().now())
"""The time at which a clock of :class:`FakeClock` starts."""

HUNG: dict[str, Any] = {
    "metadata": {"namespace": "ns", "name": "p", "uid": "p", "labels": {"ray.io/cluster": "one"}},
    "status": {
        "phase": "Running",
        "containerStatuses": [
            {"name": "ray", "ready": False, "state": {"running": {"startedAt": START}}}
        ],
    },
}


@pytest.mark.parametrize(
    ("gvk", "obj", "seconds", "message"),
    [
        pytest.param(
            RAY_CLUSTER,
            {"metadata": {"creationTimestamp": START}},
            45,
            "KubeRay has not written a state since it was created",
            id="no-state",
        ),
        pytest.param(
            APPWRAPPER,
            {"metadata": {"deletionTimestamp": START, "finalizers": ["example.com/bucket"]}},
            300,
            "UTC, waiting for example.com/bucket",
            id="deletion",
        ),
        pytest.param(
            RAY_CLUSTER,
            {"status": {"state": "ready"}},
            300,
            "Pod p: container ray runs, but has not been ready for 5 minutes",
            id="hung-pod",
        ),
    ],
)
def test_object_is_summarized_again_when_it_has_lasted_too_long(
    gvk: GVK, obj: dict[str, Any], seconds: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Informer, "has_synced", True)
    transport = Transport(ClientConfig(server="https://127.0.0.1:1"))
    cache = Cache(transport, RESTMapper(transport))
    clock = FakeClock()
    overview = Overview(cache, all_views(), related=(POD,), clock=clock)
    metadata = {"namespace": "ns", "name": "one", "uid": "1", **obj.get("metadata", {})}
    put(overview.informers_of[gvk].objects, {**obj, "metadata": metadata})
    if message.startswith("Pod"):
        pods = overview.informers_of[gvk].pods
        assert pods is not None
        put(pods, HUNG)
    identity = (gvk, NamespacedName("ns", "one"))
    overview._marked.clear()
    overview._update(identity)
    assert overview._summaries[identity].problems == ()
    clock.advance(seconds - 1)
    assert not overview._marked
    clock.advance(3)
    assert list(overview._marked) == [identity]
    overview._update(identity)
    (problem,) = overview._summaries[identity].problems
    assert problem.message.endswith(message)
    assert (overview._overdue_at, overview._timer) == ({}, None)


class PassingClock(FakeClock):
    """A clock whose sleeps pass at once; ``sleeps`` records the requested seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeps: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.advance(seconds)


async def test_pauses_are_a_multiple_of_the_time_that_summaries_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Users can change large objects all the time."""
    monkeypatch.setattr(Informer, "has_synced", True)
    transport = Transport(ClientConfig(server="https://127.0.0.1:1"))
    cache = Cache(transport, RESTMapper(transport))
    clock = PassingClock()
    overview = Overview(cache, all_views(), related=(), clock=clock, pause_share=4.0)
    put(overview.informers_of[APPWRAPPER].objects, {"metadata": {"namespace": "ns", "name": "w"}})
    identity = (APPWRAPPER, NamespacedName("ns", "w"))

    def read_slowly(_: Identity) -> None:
        clock.advance(0.5)

    monkeypatch.setattr(overview, "_update", read_slowly)
    clock.advance(1)
    for _ in range(3):
        overview._mark(*identity)
        await overview.refresh()
    assert clock.sleeps == [0.0, 2.0, 2.0]


async def test_objects_that_change_all_the_time_do_not_delay_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Informer, "has_synced", True)
    overview = new_overview()
    identities = [(APPWRAPPER, NamespacedName("ns", name)) for name in ("busy", "other")]
    for _, key in identities:
        obj = {"metadata": {"namespace": key.namespace, "name": key.name}}
        put(overview.informers_of[APPWRAPPER].objects, obj)
    computed: list[Identity] = []

    def change_again(identity: Identity) -> None:
        computed.append(identity)
        overview._mark(*identities[0])

    monkeypatch.setattr(overview, "_update", change_again)
    overview._marked.clear()
    for identity in identities:
        overview._mark(*identity)
    await overview.snapshot()
    assert computed == identities
    assert list(overview._marked) == identities[:1]


async def test_other_tasks_run_between_the_parts_of_one_delivery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Informer, "has_synced", True)
    clock = PassingClock()
    overview = new_overview(clock)
    for number in range(50):
        obj = {"metadata": {"namespace": "ns", "name": f"w{number:02}"}}
        put(overview.informers_of[APPWRAPPER].objects, obj)
    update = overview._update

    def update_slowly(identity: Identity) -> None:
        clock.advance(0.003)
        update(identity)

    monkeypatch.setattr(overview, "_update", update_slowly)
    with overview.subscribe() as changes:
        assert len(await changes.next()) == 50
    assert len(clock.sleeps) == 25


def test_namespaces_take_turns() -> None:
    marks = Marks()
    for namespace, name in (("busy", "a"), ("busy", "b"), ("busy", "c"), ("other", "d")):
        marks.add((APPWRAPPER, NamespacedName(namespace, name)))
    marks.add((APPWRAPPER, NamespacedName("busy", "a")))
    marks.discard((APPWRAPPER, NamespacedName("busy", "b")))
    marks.discard((APPWRAPPER, NamespacedName("none", "b")))
    assert len(marks) == 3
    assert [name for _, (_, name) in marks] == ["a", "c", "d"]
    taken = [marks.take() for _ in range(4)]
    assert [each and each[1].name for each in taken] == ["a", "d", "c", None]
    assert not marks


def created_component(uid: str) -> dict[str, Any]:
    """Return the status of a component whose Job has this uid; it does not exist if that is empty."""
    condition = {
        "type": "ResourcesDeployed",
        "reason": "ComponentCreatedSuccessfully" if uid else "ComponentCreationErrored",
        "message": f"Job job, uid {uid}",
    }
    return {"kind": "Job", "name": "job", "conditions": [condition]}


def refusal_of_pods(name: str, uid: str, created: str) -> dict[str, Any]:
    """Return an Event about the Job ``job`` with this uid."""
    return {
        "metadata": {"namespace": "ns", "name": name, "uid": name, "creationTimestamp": created},
        "involvedObject": {"kind": "Job", "namespace": "ns", "name": "job", "uid": uid},
        "reason": "FailedCreate",
        "message": f"no quota for {uid}",
    }


@pytest.mark.parametrize(
    ("gvk", "status"),
    [
        (
            APPWRAPPER,
            {
                "phase": "Running",
                "componentStatus": [created_component("bb")],
                "conditions": [{"type": "PodsReady", "status": "False"}],
            },
        ),
        (MINICLUSTER, {}),
    ],
)
def test_job_of_the_same_name_that_was_deleted_lends_no_problem(
    gvk: GVK, status: dict[str, Any]
) -> None:
    transport = Transport(ClientConfig(server="https://127.0.0.1:1"))
    cache = Cache(transport, RESTMapper(transport))
    overview = Overview(cache, all_views(), related=(CORE_EVENT,))
    metadata = {"namespace": "ns", "name": "job", "uid": "1"}
    metadata["creationTimestamp"] = "2026-06-01T00:00:00Z"
    obj = {"metadata": metadata, "status": status}
    store = overview.informers_of[gvk].objects.store
    store.put(EntryDecoder(gvk).decode(orjson.dumps(obj)))
    (events,) = (informer for informer in cache.informers if informer.gvk == CORE_EVENT)
    for event in (
        refusal_of_pods("a", "bb", "2026-06-01T00:00:20Z"),
        refusal_of_pods("b", "aa", "2026-06-01T00:00:10Z"),
    ):
        events.store.put(EntryDecoder(CORE_EVENT).decode(orjson.dumps(event)))
    identity = (gvk, NamespacedName("ns", "job"))
    overview._marked.add(identity)
    overview._update(identity)
    overview._update(identity)
    found = [problem.message for problem in overview._summaries[identity].problems]
    assert [each for each in found if "quota" in each] == ["Job job: FailedCreate: no quota for bb"]


def test_events_about_the_job_of_an_appwrapper_are_shown_for_it_in_its_namespace_only() -> None:
    transport = Transport(ClientConfig(server="https://127.0.0.1:1"))
    cache = Cache(transport, RESTMapper(transport))
    overview = Overview(cache, all_views(), related=(CORE_EVENT,))
    identity = (APPWRAPPER, NamespacedName("ns", "aw"))
    wrapper = {
        "metadata": {"namespace": "ns", "name": "aw", "uid": "1"},
        "status": {
            "phase": "Running",
            "componentStatus": [created_component("2"), created_component("")],
            "conditions": [{"type": "PodsReady", "status": "False"}],
        },
    }
    store = overview.informers_of[APPWRAPPER].objects.store
    stored = EntryDecoder(APPWRAPPER).decode(orjson.dumps(wrapper))
    store.put(stored)
    overview._update(identity)
    (events,) = (informer for informer in cache.informers if informer.gvk == CORE_EVENT)
    for namespace in ("ns", "attacker"):
        obj = {
            "metadata": {"namespace": namespace, "name": "e", "uid": namespace},
            "involvedObject": {"kind": "Job", "namespace": namespace, "name": "job", "uid": "2"},
            "reason": "FailedCreate",
            "message": f"no quota in {namespace}",
        }
        entry = EntryDecoder(CORE_EVENT).decode(orjson.dumps(obj))
        events.store.put(entry)
        overview._on_warning(Event(EventType.ADDED, entry.key, None, entry))
    assert list(overview._marked) == [identity]
    overview._update(identity)
    (problem,) = overview._summaries[identity].problems
    assert problem.message == "Job job: FailedCreate: no quota in ns"
    store.remove(stored)
    overview._update(identity)
    assert (overview._created._dependents, overview._created._keys) == ({}, {})


def test_events_with_fields_of_other_types_are_ignored() -> None:
    overview = new_overview()
    for regarding in ('"x"', "[]", "7", '{"kind": 7}', "null"):
        raw = f'{{"metadata": {{"name": "e"}}, "involvedObject": {regarding}}}'
        entry = EntryDecoder(CORE_EVENT).decode(raw.encode())
        overview._on_warning(Event(EventType.ADDED, entry.key, None, entry))
    assert not overview._marked


async def test_interruption_ends_when_objects_are_received_again() -> None:
    overview = new_overview()
    informer = StubInformer()
    overview._sync_states = cast("Any", {informer: (True, False, False)})
    for known, problem in (("", "watch pods: refused"), ("watch pods: refused", "")):
        found: list[str] = []

        async def wait(known: str = known, found: list[str] = found) -> None:
            found.append(await overview.next_interruption(known))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert not found
            informer.problem = problem
            overview._on_state()
        assert found == [problem]


def test_objects_that_are_left_out_are_counted() -> None:
    transport = Transport(ClientConfig(server="https://127.0.0.1:1"))
    cache = Cache(transport, RESTMapper(transport))
    overview = Overview(cache, all_views(), related=())
    (informer,) = (each for each in cache.informers if each.gvk == RAY_CLUSTER)
    calls: list[None] = []
    overview.add_left_out_handler(lambda: calls.append(None))
    informer._feeds.open([""])
    feed = informer._feeds[""]

    def observe(event: EventType, name: str, version: int, *, size: int = MAX_BYTES) -> None:
        metadata = {"namespace": "ns", "name": name, "uid": name, "resourceVersion": str(version)}
        raw = orjson.dumps({"metadata": metadata, "spec": {"x": "x" * size}})
        feed.observe(event, EntryDecoder(RAY_CLUSTER).decode(raw))

    assert overview.left_out() == {}
    observe(EventType.ADDED, "a", 1)
    observe(EventType.ADDED, "b", 2)
    assert len(calls) == 2
    assert "too large: 2 in namespace ns; kubectl get" in overview.left_out()[RAY_CLUSTER]
    observe(EventType.DELETED, "a", 3)
    assert len(calls) == 3
    assert "too large: 1 in namespace ns;" in overview.left_out()[RAY_CLUSTER]
    observe(EventType.UPDATED, "b", 4, size=1)
    assert overview.left_out() == {}


def queue_world(*objects: tuple[GVK, dict[str, Any]]) -> Overview:
    """Return an overview of ``objects``, in which LocalQueues can be read."""
    transport = Transport(ClientConfig(server="https://127.0.0.1:1"))
    cache = Cache(transport, RESTMapper(transport))
    views = all_views()
    overview = Overview(cache, views, related=related_kinds(views))
    for gvk, obj in objects:
        (informer,) = (each for each in cache.informers if each.gvk == gvk)
        put(informer, obj)
    return overview


def put(informer: Informer, obj: dict[str, Any]) -> None:
    """Let an informer receive a new object."""
    entry = EntryDecoder(informer.gvk).decode(orjson.dumps(obj))
    informer.store.deliver(informer.store.put(entry))


def queue_problems(overview: Overview, gvk: GVK) -> list[str]:
    overview._update((gvk, NamespacedName("ns", "one")))
    found = overview._summaries[gvk, NamespacedName("ns", "one")]
    return [problem.message for problem in found.problems]


def local_queue_object(namespace: str) -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": "team", "uid": f"queue in {namespace}"}}


QUEUED: dict[str, Any] = {
    "metadata": {
        "namespace": "ns",
        "name": "one",
        "uid": "1",
        "labels": {"kueue.x-k8s.io/queue-name": "team"},
    },
    "spec": {"suspend": True},
    "status": {"state": "suspended"},
}
TAKEN = {
    "metadata": {"namespace": "ns", "name": "taken", "uid": "taken"},
    "involvedObject": {"kind": "RayCluster", "name": "one", "namespace": "ns", "uid": "1"},
    "type": "Warning",
    "reason": "NameConflict",
    "message": "Service rc exists",
}
OUTDATED = {
    "metadata": {"namespace": "ns", "name": "e", "uid": "e"},
    "involvedObject": {"kind": "RayCluster", "name": "one", "namespace": "ns", "uid": "1"},
    "type": "Warning",
    "reason": "Inadmissible",
    "message": "LocalQueue team doesn't exist",
}


def test_queue_that_does_not_exist_is_a_problem_until_it_is_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    overview = queue_world(
        (RAY_CLUSTER, QUEUED), (CORE_EVENT, OUTDATED), (LOCAL_QUEUE, local_queue_object("other"))
    )
    assert queue_problems(overview, RAY_CLUSTER) == ["Inadmissible: LocalQueue team doesn't exist"]
    monkeypatch.setattr(Informer, "has_synced", True)
    assert queue_problems(overview, RAY_CLUSTER) == ["LocalQueue team doesn't exist"]
    (problem,) = overview._summaries[RAY_CLUSTER, NamespacedName("ns", "one")].problems
    assert (
        "kubectl label raycluster.ray.io one -n ns --overwrite kueue.x-k8s.io/queue-name=QUEUE;"
        in problem.remedy
    )
    overview._marked.clear()
    put(overview._queues[0], local_queue_object("ns"))
    assert list(overview._marked) == [(RAY_CLUSTER, NamespacedName("ns", "one"))]
    assert queue_problems(overview, RAY_CLUSTER) == [], "also without the Event about it"


def test_queue_is_a_problem_while_no_version_of_kueue_is_served() -> None:
    running = {**QUEUED, "spec": {}, "status": {"state": "ready"}}
    for cluster, problem in (
        (QUEUED, ["LocalQueue team: Kueue is not installed, so nothing admits the object"]),
        (running, []),
    ):
        overview = queue_world((RAY_CLUSTER, cluster))
        assert queue_problems(overview, RAY_CLUSTER) == [], "that is not known yet"
        for informer in overview._queues:
            assert queue_problems(overview, RAY_CLUSTER) == [], "one version may be served"
            informer._is_not_served = True
        overview._marked.clear()
        overview._on_state()
        assert list(overview._marked) == [(RAY_CLUSTER, NamespacedName("ns", "one"))]
        assert queue_problems(overview, RAY_CLUSTER) == problem
        overview._queues[1]._is_not_served = False
        assert queue_problems(overview, RAY_CLUSTER) == []


def test_problem_of_a_queue_does_not_hide_behind_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    overview = queue_world((RAY_CLUSTER, QUEUED), (CORE_EVENT, TAKEN))
    monkeypatch.setattr(Informer, "has_synced", True)
    assert queue_problems(overview, RAY_CLUSTER) == [
        "LocalQueue team doesn't exist",
        "NameConflict: Service rc exists",
    ]


@pytest.mark.parametrize("gvk", INFERENCE_STACKS)
def test_queue_of_a_degraded_stack_is_a_problem_as_well(
    gvk: GVK, monkeypatch: pytest.MonkeyPatch
) -> None:
    conditions = [
        {"type": "Degraded", "status": "True", "reason": "InvalidSpec", "message": "x: unknown"},
        {"type": "QuotaReserved", "status": "False", "reason": WAITING, "message": ""},
    ]
    overview = queue_world((gvk, {**QUEUED, "spec": {}, "status": {"conditions": conditions}}))
    monkeypatch.setattr(Informer, "has_synced", True)
    found = queue_problems(overview, gvk)
    assert found[0] == "LocalQueue team doesn't exist"
    assert any("x: unknown" in message for message in found)
    key = NamespacedName("ns", "one")
    assert overview._summaries[gvk, key].level is Level.WARNING


def test_object_that_does_not_wait_needs_no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    running = {**QUEUED, "spec": {}, "status": {"state": "ready"}}
    overview = queue_world((RAY_CLUSTER, running))
    monkeypatch.setattr(Informer, "has_synced", True)
    assert "LocalQueue team doesn't exist" not in queue_problems(overview, RAY_CLUSTER)


def test_queue_of_a_job_is_that_of_its_minicluster(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = {"type": "QuotaReserved", "status": "False", "reason": "WaitingForKueue"}
    job = {
        "metadata": {"namespace": "ns", "name": "one", "uid": "1"},
        "spec": {},
        "status": {"conditions": [waits]},
    }
    owner = {
        "apiVersion": FLUX_JOB.api_version,
        "kind": "FluxJob",
        "name": "one",
        "uid": "1",
        "controller": True,
    }
    cluster = {
        "metadata": {"namespace": "ns", "name": "one", "uid": "2", "ownerReferences": [owner]},
        "spec": {"jobLabels": {"kueue.x-k8s.io/queue-name": "team"}},
    }
    overview = queue_world((FLUX_JOB, job), (MINICLUSTER, cluster))
    monkeypatch.setattr(Informer, "has_synced", True)
    assert queue_problems(overview, FLUX_JOB) == ["LocalQueue team doesn't exist"]
