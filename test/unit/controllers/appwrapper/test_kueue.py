"""Which Workloads are deleted whose AppWrapper the cache does not have, and how often the AppWrapper is read."""

from __future__ import annotations

from typing import Any, cast

import orjson
import pytest

from cfo.api.appwrapper.names import APPWRAPPER, FIELD_MANAGER, QUOTA_RESERVED, workload_name
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.controllers.appwrapper.kueue import KueueReconciler
from cfo.runtime import GVK, Client, NamespacedName, Object
from cfo.runtime.cache.budget import NAMESPACE_BYTES
from cfo.runtime.cache.entry import EntryDecoder
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.transport import Transport
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.unstructured import set_controller_owner
from test.support.decisions import list_objects
from test.support.kueue_queue import WORKLOAD

REQUEST = NamespacedName("ns", "w")
QUEUED = {QUEUE_NAME_LABEL: "lq"}


class RecordingClient:
    """Has an AppWrapper that the cache does not have, and its Workload, and records requests."""

    def __init__(self, wrapper: Object | None, workload: Object | None = None) -> None:
        self.wrapper = wrapper
        self.workload = workload
        self.reads = 0
        self.workload_reads = 0
        self.deleted: list[NamespacedName] = []

    async def get(self, gvk: GVK, *_: object, live: bool = False) -> Object | None:
        """Return an object only from the API server."""
        if not live:
            return None
        if gvk == WORKLOAD:
            self.workload_reads += 1
            return self.workload
        self.reads += 1
        return self.wrapper

    async def delete(self, _: object, key: NamespacedName, **__: Any) -> bool:
        """Record the deletion."""
        self.deleted.append(key)
        return True


def left_wrapper(uid: str = "uid", *conditions: str, **labels: str) -> Object:
    """Return a suspended AppWrapper."""
    return {
        "apiVersion": APPWRAPPER.api_version,
        "kind": APPWRAPPER.kind,
        "metadata": {"name": "w", "namespace": "ns", "uid": uid, "labels": labels},
        "spec": {"suspend": True, "components": []},
        "status": {"conditions": [{"type": kind, "status": "True"} for kind in conditions]},
    }


def workload_of(wrapper: Object, **metadata: Any) -> Object:
    """Return the Workload of an AppWrapper."""
    named = {"name": workload_name(wrapper), "namespace": "ns", "uid": "workload-uid", **metadata}
    workload = {
        "apiVersion": WORKLOAD.api_version,
        "kind": WORKLOAD.kind,
        "metadata": named,
        "spec": {},
    }
    return set_controller_owner(workload, wrapper, block_owner_deletion=True)


def reconciler_of(
    client: RecordingClient,
    *workloads: Object,
    selector: str = "part=a",
    max_bytes: int = NAMESPACE_BYTES,
) -> KueueReconciler:
    """Return a reconciler, as after a start, of an operator whose cache has no AppWrapper.

    It leaves out Workloads that exceed the budget ``max_bytes`` of their namespace.
    """
    transport = Transport(ClientConfig(server="https://127.0.0.1:6443", token="t"))
    selectors = {APPWRAPPER: selector} if selector else {}
    manager = Manager(
        transport, ManagerOptions(field_managers=[FIELD_MANAGER], selectors=selectors)
    )
    manager.cache.budget.max_bytes = max_bytes
    reconciler = KueueReconciler(manager, WORKLOAD)
    reconciler._client = cast("Client", client)
    list_objects(manager.cache.informer(APPWRAPPER))
    list_objects(manager.cache.informer(WORKLOAD), workloads)
    return reconciler


@pytest.mark.parametrize(
    ("wrapper", "is_deleted"),
    [
        (left_wrapper(), True),
        (left_wrapper(part="b"), True),
        (left_wrapper("uid", part="b", **QUEUED), False),
        (left_wrapper("uid", QUOTA_RESERVED, part="b"), False),
        (left_wrapper("other"), False),
        (None, False),
    ],
    ids=[
        "in no part",
        "in another part, without a queue",
        "in a queue of another operator",
        "with quota of another operator",
        "created again",
        "deleted",
    ],
)
async def test_workload_of_an_appwrapper_that_left_is_deleted_after_one_read(
    wrapper: Object | None, is_deleted: bool
) -> None:
    workload = workload_of(left_wrapper())
    client = RecordingClient(wrapper)
    await reconciler_of(client, workload).reconcile(REQUEST)
    expected = [NamespacedName("ns", workload["metadata"]["name"])] if is_deleted else []
    assert client.deleted == expected
    assert (client.reads, client.workload_reads) == (1, 0)


async def test_workload_of_an_appwrapper_that_left_is_deleted_although_the_cache_leaves_it_out() -> (
    None
):
    wrapper = left_wrapper()
    workload = workload_of(wrapper)
    client = RecordingClient(wrapper, workload)
    await reconciler_of(client, workload, max_bytes=1).reconcile(REQUEST)
    assert client.deleted == [NamespacedName("ns", workload["metadata"]["name"])]
    assert (client.reads, client.workload_reads) == (1, 1)


@pytest.mark.parametrize("is_left_out", [False, True])
@pytest.mark.parametrize("owner_uid", ["uid", "other"])
async def test_workload_is_read_only_if_the_cache_leaves_it_out(
    owner_uid: str, *, is_left_out: bool
) -> None:
    wrapper = left_wrapper()
    owner = left_wrapper(owner_uid)
    workload = workload_of(owner, name=workload_name(wrapper))
    client = RecordingClient(wrapper, workload)
    max_bytes = 1 if is_left_out else NAMESPACE_BYTES
    state = await reconciler_of(client, workload, max_bytes=max_bytes).read_state(wrapper)
    assert state.is_queued is (owner_uid == "uid")
    assert (state.workload is not None) is (owner_uid == "uid")
    assert client.workload_reads == int(is_left_out)


async def test_workload_that_does_not_exist_is_not_read_while_the_cache_is_complete() -> None:
    client = RecordingClient(None)
    state = await reconciler_of(client).read_state(left_wrapper("uid", **QUEUED))
    assert state.is_queued
    assert state.awaits_admission
    assert client.workload_reads == 0


@pytest.mark.parametrize(
    ("workloads", "selector"),
    [
        ([], "part=a"),
        ([workload_of(left_wrapper(), deletionTimestamp="2026-01-01T00:00:00Z")], "part=a"),
        ([workload_of(left_wrapper())], ""),
    ],
    ids=["no Workload", "being deleted", "all AppWrappers are in the cache"],
)
async def test_appwrapper_that_holds_no_workload_is_not_read(
    workloads: list[Object], selector: str
) -> None:
    client = RecordingClient(left_wrapper())
    await reconciler_of(client, *workloads, selector=selector).reconcile(REQUEST)
    assert (client.reads, client.deleted) == (0, [])


def test_updates_of_the_workloads_of_other_operators_are_ignored() -> None:
    reconciler = reconciler_of(RecordingClient(None))
    entry = EntryDecoder(WORKLOAD).decode(
        orjson.dumps(workload_of(left_wrapper(), resourceVersion="1"))
    )
    assert not reconciler.may_follow(entry)
