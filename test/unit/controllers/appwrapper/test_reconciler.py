"""What happens if an object with the name of a component exists, and after an AppWrapper is deleted."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import msgspec
import orjson
import pytest

from cfo.api.appwrapper.names import Phase
from cfo.controllers.appwrapper.component_informers import ComponentInformers
from cfo.controllers.appwrapper.components import ComponentObject, specified_infos
from cfo.controllers.appwrapper.observer import WrapperObserver
from cfo.controllers.appwrapper.owners import OwnerReads
from cfo.controllers.appwrapper.pod_knowledge import PodKnowledge
from cfo.controllers.appwrapper.reconciler import AppWrapperReconciler, ComponentCreator
from cfo.runtime import (
    GVK,
    POD,
    AlreadyExists,
    APIError,
    Client,
    Forbidden,
    NamespacedName,
    Object,
    Result,
    UnknownKind,
    key_of,
    uid_of,
)
from cfo.runtime.cache.entry import Entry, EntryDecoder
from cfo.runtime.client.errors import ServiceUnavailable, Unauthorized
from cfo.runtime.client.name_checks import NameChecks
from cfo.runtime.client.object_cache import ClientCache
from test.support.clocks import FakeClock
from test.support.observations import CONFIG, observe, seconds_later, wrapper
from test.support.wrapper_steps import phase, running_wrapper, step

WRAPPER = wrapper("Pod")


async def _found(*_: object) -> Any:
    return SimpleNamespace(namespaced=True)


class TakenClient:
    """The API server of a cluster in which each object exists, with this metadata; ``None``: no longer when read."""

    mapper = SimpleNamespace(resource=_found)
    cache = ClientCache()

    def __init__(self, metadata: Object | None) -> None:
        self._metadata = metadata
        self.name_checks = NameChecks()

    def cached(self, gvk: object, key: object) -> None:
        """Return nothing: the cache is empty."""

    async def create(self, _: Object, **options: Any) -> Object:
        raise AlreadyExists(409, {"message": "already exists"})

    async def get(self, gvk: object, key: object, *, live: bool) -> Object | None:
        assert live
        return (
            {"apiVersion": "v1", "kind": "Pod", "metadata": self._metadata}
            if self._metadata is not None
            else None
        )


def owned_by(uid: str, name: str = "", **metadata: Any) -> Object:
    owner = {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "name": name or WRAPPER["metadata"]["name"],
        "uid": uid,
        "controller": True,
    }
    return {"name": "c", "uid": "x", "ownerReferences": [owner], **metadata}


class OwnersClient:
    """The API server, and a cache of it that is empty."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.live_reads = 0
        self.error: Exception | None = None
        self.refusals = 0
        """How many reads are refused before the others are answered."""

    def cached(self, gvk: object, key: object) -> None:
        """Return nothing: the cache is empty."""

    async def get_metadata(self, gvk: GVK, key: NamespacedName) -> Object | None:
        self.live_reads += 1
        if gvk.kind == "Nope":
            raise UnknownKind("not served")
        if self.error is not None:
            raise self.error
        if self.live_reads <= self.refusals:
            raise Forbidden(403, {"message": "forbidden"})
        return self.objects.get(key.name)


def observer_of(client: OwnersClient, clock: FakeClock, *own_kinds: GVK) -> WrapperObserver:
    """Return an observer that reads owners with ``client``; the operator reconciles ``own_kinds``."""
    owners = OwnerReads(cast("Any", client), clock, own_kinds)
    return WrapperObserver(owners, clock, *([cast("Any", client)] * 5))


async def test_owner_of_a_pod_is_read_once_although_the_cache_lags() -> None:
    client, owner = (
        OwnersClient(),
        {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "j", "uid": "c-0"},
    )
    client.objects["c"] = {
        "metadata": {"uid": "owner", "ownerReferences": [{**owner, "controller": True}]}
    }
    observer = observer_of(client, FakeClock())
    reference = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "controller": True}
    pods = [
        EntryDecoder(POD).decode(
            orjson.dumps(
                {
                    "metadata": {
                        "name": name,
                        "uid": name,
                        "ownerReferences": [{**reference, **known}],
                    }
                }
            )
        )
        for name, known in (
            ("misnamed", {"name": "e", "uid": "owner"}),  # users choose each field of a reference
            ("of no kind", {"kind": "Nope", "name": "c", "uid": "owner"}),
            ("own", {"name": "c", "uid": "owner"}),
            ("foreign", {"name": "d", "uid": "other"}),
        )
    ]
    for _ in range(3):
        assert await observer._ancestors_of(observe(WRAPPER), pods) == {"own": "c-0"}
        assert client.live_reads == 4
    assert await observer._ancestors_of(observe(WRAPPER), pods[::-1]) == {"own": "c-0"}
    assert client.live_reads == 4
    assert await observer._ancestors_of(observe(WRAPPER), []) == {}
    await observer.hand_over_pods(key_of(WRAPPER), uid_of(WRAPPER))
    assert observer._ancestors
    await observer.hand_over_pods(key_of(WRAPPER), "successor")
    assert not observer._ancestors


async def test_owner_that_the_api_server_refuses_to_show_is_read_until_it_is_known() -> None:
    client = OwnersClient()
    client.refusals = 9
    owner = {"apiVersion": "v1", "kind": "AppWrapper", "name": "w", "uid": uid_of(WRAPPER)}
    client.objects["c"] = {
        "metadata": {"uid": "set", "ownerReferences": [{**owner, "controller": True}]}
    }
    clock = FakeClock()
    observer = observer_of(client, clock)
    found = [await ancestors_of_each_30_seconds(observer, clock, ["set"]) for _ in range(10)]
    assert found == [{}] * 9 + [{"pod-0": uid_of(WRAPPER)}]
    assert client.live_reads == 10


async def test_kind_that_the_api_server_refuses_to_show_is_that_of_no_appwrapper() -> None:
    client = OwnersClient()
    client.refusals = 9
    clock = FakeClock()
    observer = observer_of(client, clock)
    uids: list[str] = []
    for second in range(0, 150, 30):
        uids += [f"{second}-a", f"{second}-b"]
        assert await ancestors_of_each_30_seconds(observer, clock, uids, "CronJob") == {}
        is_awaited = observer._known(WRAPPER).reads_owners_at is not None
        assert is_awaited == (second < 90), "also of owners that appear later"
    assert client.live_reads == 5, "one for each 30 seconds, whatever the number of owners"


@pytest.mark.parametrize(
    ("error", "kind", "is_awaited"),
    [
        (Unauthorized(401), "ReplicaSet", True),
        (ServiceUnavailable(503), "CronJob", True),
        (APIError(405), "CronJob", False),
        (UnknownKind("not served"), "ReplicaSet", True),
        (UnknownKind("not served"), "CronJob", False),
        (UnknownKind("not served"), "MiniCluster", True),
    ],
)
async def test_owner_is_read_again_unless_the_answer_is_about_it(
    error: Exception, kind: str, *, is_awaited: bool
) -> None:
    client = OwnersClient()
    client.error = error
    observer = observer_of(client, FakeClock(), GVK("apps", "v1", "MiniCluster"))
    owners = ["a", "b", "c"]
    assert await ancestors_of_each_30_seconds(observer, FakeClock(), owners, kind) == {}
    assert client.live_reads == (3 if getattr(error, "code", 0) == 405 else 1), "for all owners"
    assert (observer._known(WRAPPER).reads_owners_at is not None) == is_awaited


async def ancestors_of_each_30_seconds(
    observer: WrapperObserver, clock: FakeClock, owners: Sequence[str], kind: str = "ReplicaSet"
) -> dict[str, str]:
    """Return the ancestors of pods with these owners (uids), and let 30 seconds pass."""
    pods: list[Entry] = []
    for number, uid in enumerate(owners):
        reference = {"apiVersion": "apps/v1", "kind": kind, "name": "c", "uid": uid}
        owner = {**reference, "controller": True}
        metadata = {"name": "p", "uid": f"pod-{number}", "ownerReferences": [owner]}
        pods.append(EntryDecoder(POD).decode(orjson.dumps({"metadata": metadata})))
    for _ in range(2):
        found = await observer._ancestors_of(observe(WRAPPER), pods)
    clock.advance(30)
    return found


@pytest.mark.parametrize(
    ("metadata", "error", "fatal"),
    [
        (owned_by(uid_of(WRAPPER)), "", False),
        (owned_by(uid_of(WRAPPER), deletionTimestamp="now"), "is being deleted", False),
        (
            owned_by("predecessor"),
            "not controlled by appwrapper: Pod pod-0 belongs to AppWrapper w",
            False,
        ),
        (owned_by("other", "other"), "by appwrapper: Pod pod-0 belongs to AppWrapper other", True),
        ({"name": "c"}, "is not controlled by appwrapper: Pod pod-0 has no controller", True),
        (None, "already exists", False),
    ],
)
async def test_existing_object_is_used_only_if_the_appwrapper_created_it(
    metadata: Object | None, error: str, fatal: bool
) -> None:
    informers = cast("ComponentInformers", SimpleNamespace(synced=_found))
    creator = ComponentCreator(
        cast("Client", TakenClient(metadata)),
        CONFIG,
        informers,
        lambda wrapper, _: specified_infos(wrapper),
    )
    (creation,) = await creator.create_missing(observe(WRAPPER))
    assert creation.error.endswith(error)
    assert bool(creation.error) is bool(error)
    assert creation.fatal is fatal
    assert creation.uid == ("" if error else "x")


async def test_nothing_is_kept_of_a_deleted_appwrapper() -> None:
    """A user who removes the finalizer deletes it before the reconciler sees its end."""
    client = AsyncMock()
    client.get.return_value = None
    observer, namespaces, refused = Mock(), Mock(), Mock()
    observer.hand_over_pods = AsyncMock()
    reconciler = AppWrapperReconciler(
        client=client,
        events=Mock(),
        observer=observer,
        creator=Mock(),
        metrics=Mock(),
        namespaces=namespaces,
        refused=refused,
        read_queue=AsyncMock(),
    )
    key = NamespacedName("ns", "w")
    assert await reconciler.reconcile(key) == Result()
    for forget in (
        observer.hand_over_pods,
        observer.components.forget,
        namespaces.forget,
        refused.forget,
    ):
        forget.assert_called_once_with(key)


@pytest.mark.parametrize("is_queued", [False, True])
async def test_owners_that_stay_unknown_are_those_of_others_after_the_ceiling(
    *, is_queued: bool
) -> None:
    observer = observer_of(OwnersClient(), FakeClock())
    day = 24 * 3600
    begin = observe(WRAPPER, now=seconds_later(0))
    begin = msgspec.structs.replace(begin, is_queued=is_queued)
    for second, has_unknown_owners, expected in [
        (0, True, PodKnowledge.OWNERS_UNKNOWN),
        (day - 1, True, PodKnowledge.OWNERS_UNKNOWN),
        (day, True, PodKnowledge.CACHED if is_queued else PodKnowledge.OWNERS_UNKNOWN),
        (day + 30, False, PodKnowledge.CACHED),
        (day + 60, True, PodKnowledge.OWNERS_UNKNOWN),
    ]:
        known = observer._known_before(WRAPPER)
        since = known.owners_unknown_since if known is not None else None
        observation = msgspec.structs.replace(
            begin,
            now=seconds_later(second),
            monotonic=second,
            owners_unknown_since=seconds_later(since) if since is not None else None,
        )
        found = observer._with_known_owners(observation, has_unknown_owners=has_unknown_owners)
        assert found.knowledge is expected


def test_appwrapper_has_not_succeeded_while_owners_of_pods_are_unknown() -> None:
    """Pods of it that run may be among them: they need its quota."""
    objects = [ComponentObject(uid="c-0", completed=True)]
    unknown = PodKnowledge.OWNERS_UNKNOWN
    kept, _ = step(running_wrapper("Job"), objects=objects, pods=[], knowledge=unknown)
    assert phase(kept) == Phase.RUNNING
    ended, _ = step(running_wrapper("Job"), objects=objects, pods=[])
    assert phase(ended) == Phase.SUCCEEDED
