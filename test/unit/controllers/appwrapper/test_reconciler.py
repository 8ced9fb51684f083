"""What happens if an object with the name of a component exists, and after an AppWrapper is deleted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import orjson
import pytest

from cfo.controllers.appwrapper.component_informers import ComponentInformers
from cfo.controllers.appwrapper.components import specified_infos
from cfo.controllers.appwrapper.observer import WrapperObserver
from cfo.controllers.appwrapper.reconciler import AppWrapperReconciler, ComponentCreator
from cfo.runtime import (
    POD,
    AlreadyExists,
    Client,
    Forbidden,
    NamespacedName,
    Object,
    Result,
    key_of,
    uid_of,
)
from cfo.runtime.cache.entry import EntryDecoder
from cfo.runtime.client.name_checks import NameChecks
from cfo.runtime.client.object_cache import ClientCache
from test.support.clocks import FakeClock
from test.support.observations import CONFIG, observe, wrapper

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
        self.refusals = 0
        """How many reads are refused before the others are answered."""

    def cached(self, gvk: object, key: object) -> None:
        """Return nothing: the cache is empty."""

    async def get_metadata(self, gvk: object, key: NamespacedName) -> Object | None:
        self.live_reads += 1
        if self.live_reads <= self.refusals:
            raise Forbidden(403, {"message": "forbidden"})
        return self.objects.get(key.name)


async def test_owner_of_a_pod_is_read_once_although_the_cache_lags() -> None:
    client, owner = (
        OwnersClient(),
        {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "j", "uid": "c-0"},
    )
    client.objects["c"] = {
        "metadata": {"uid": "owner", "ownerReferences": [{**owner, "controller": True}]}
    }
    observer = WrapperObserver(cast("Any", client), FakeClock(), *([cast("Any", client)] * 5))
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
            ("own", {"name": "c", "uid": "owner"}),
            ("foreign", {"name": "d", "uid": "other"}),
        )
    ]
    for _ in range(3):
        assert await observer._ancestors_of(observe(WRAPPER), pods) == {"own": "c-0"}
        assert client.live_reads == 2
    assert await observer._ancestors_of(observe(WRAPPER), []) == {}
    await observer.hand_over_pods(key_of(WRAPPER), uid_of(WRAPPER))
    assert observer._ancestors
    await observer.hand_over_pods(key_of(WRAPPER), "successor")
    assert not observer._ancestors


@pytest.mark.parametrize(("refusals", "reads"), [(2, 3), (9, 3)])
async def test_owner_that_the_api_server_refuses_to_show_is_read_again(
    refusals: int, reads: int
) -> None:
    client = OwnersClient()
    client.refusals = refusals
    owner = {"apiVersion": "v1", "kind": "AppWrapper", "name": "w", "uid": uid_of(WRAPPER)}
    client.objects["c"] = {
        "metadata": {"uid": "set", "ownerReferences": [{**owner, "controller": True}]}
    }
    clock = FakeClock()
    observer = WrapperObserver(cast("Any", client), clock, *([cast("Any", client)] * 5))
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "c", "uid": "set"}
    metadata = {"name": "p", "uid": "p", "ownerReferences": [{**reference, "controller": True}]}
    pod = EntryDecoder(POD).decode(orjson.dumps({"metadata": metadata}))
    found: dict[str, str] = {}
    for _ in range(4):
        for _ in range(2):
            found = await observer._ancestors_of(observe(WRAPPER), [pod])
        clock.advance(30)
    assert client.live_reads == reads
    assert found == ({"p": uid_of(WRAPPER)} if refusals < reads else {})


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
