"""Which Workloads an event of an AppWrapper enqueues, and which ones are known to have no pods or some."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import orjson
import pytest

from cfo.api.appwrapper.names import (
    APPWRAPPER,
    APPWRAPPER_LABEL,
    APPWRAPPER_UID_LABEL,
    QUOTA_FINALIZER,
    workload_name,
)
from cfo.config.appwrapper import FaultToleranceConfiguration
from cfo.config.appwrapper_settings import FORCEFUL_DELETION, Settings
from cfo.controllers.appwrapper.namespace_pods import NamespacePods
from cfo.controllers.appwrapper.reservations import (
    ReservationReconciler,
    Reservations,
    _concerns,
    _excess_message,
    _grace_of,
)
from cfo.controllers.appwrapper.workload import controller_patch
from cfo.controllers.pod_lists import PodMeta
from cfo.runtime import Client, Entry, Event, NamespacedName, Object, key_of
from cfo.runtime.cache.entry import EntryDecoder
from cfo.runtime.cache.store import EventType
from cfo.runtime.objects.unstructured import merged, owner_reference, set_controller_owner
from test.support.decisions import list_objects, offline_manager
from test.support.kueue_queue import WORKLOAD

WRAPPER: Object = {
    "apiVersion": APPWRAPPER.api_version,
    "kind": APPWRAPPER.kind,
    "metadata": {"name": "w", "namespace": "ns", "uid": "wrapper-uid"},
    "status": {"conditions": [{"type": "QuotaReserved", "status": "True"}]},
}
ENTRY = EntryDecoder(APPWRAPPER).decode(orjson.dumps(WRAPPER))


def workload(name: str, namespace: str = "ns") -> Object:
    """Return a Workload of the AppWrapper, as its labels say, which is being deleted and holds quota."""
    return {
        "apiVersion": WORKLOAD.api_version,
        "kind": WORKLOAD.kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{namespace}-{name}",
            "labels": {APPWRAPPER_UID_LABEL: "wrapper-uid"},
            "annotations": {APPWRAPPER_LABEL: "w"},
            "finalizers": [QUOTA_FINALIZER],
            "deletionTimestamp": "2026-01-01T00:00:00Z",
        },
        "status": {"admission": {"clusterQueue": "cq"}},
    }


async def _get_wrapper(*_: object, **__: Any) -> Object:
    return WRAPPER


async def test_workload_with_the_uid_of_the_same_appwrapper_does_not_replace_the_one_that_waits() -> (
    None
):
    manager = offline_manager()
    client = cast("Client", SimpleNamespace(get=_get_wrapper))
    reservations = Reservations(client, manager.cache.informer(WORKLOAD))
    namespaces = NamespacePods(client, manager.clock, Mock(), Mock())
    reconciler = ReservationReconciler(
        manager, client, reservations, FaultToleranceConfiguration(), namespaces
    )
    real, decoy = NamespacedName("ns", "real"), NamespacedName("ns", "decoy")
    elsewhere = NamespacedName("attacker", "real")
    list_objects(
        reservations.workloads, [workload("real"), workload("decoy"), workload("real", "attacker")]
    )
    for request in (real, decoy, elsewhere, decoy):
        await reconciler.reconcile(request)
    assert list(reconciler.waiting(ENTRY)) == [real, decoy]
    list_objects(reservations.workloads, [workload("real")])
    for request in (decoy, elsewhere):
        await reconciler.reconcile(request)
    assert list(reconciler.waiting(ENTRY)) == [real]
    list_objects(reservations.workloads)
    await reconciler.reconcile(real)
    assert list(reconciler.waiting(ENTRY)) == []


@pytest.mark.parametrize("is_left_out", [False, True])
@pytest.mark.parametrize("wrapper_uid", ["wrapper-uid", "other"])
async def test_what_is_known_of_an_appwrapper_is_kept_also_if_its_workload_is_left_out(
    wrapper_uid: str, *, is_left_out: bool
) -> None:
    manager = offline_manager()
    obj = workload(workload_name(WRAPPER))
    obj["metadata"]["labels"][APPWRAPPER_UID_LABEL] = wrapper_uid
    get = AsyncMock(return_value=obj)
    workloads = manager.cache.informer(WORKLOAD)
    reservations = Reservations(cast("Client", SimpleNamespace(get=get)), workloads)
    if is_left_out:
        manager.cache.budget.max_bytes = 1
    list_objects(workloads, [obj])
    await reservations.keep_pods(key_of(WRAPPER), "wrapper-uid", ["pod-uid"])
    await reservations.release(WRAPPER)
    is_own = wrapper_uid == "wrapper-uid"
    assert list(reservations.known_uids(key_of(obj))) == (["pod-uid"] if is_own else [])
    assert reservations.is_released(key_of(obj)) is is_own
    assert get.await_count == (2 if is_left_out else 0)


def entry(*finalizers: str, is_deleting: bool, controller_uid: str = "wrapper-uid") -> Entry:
    """Return a Workload of an AppWrapper, which is its controller unless another uid is given."""
    obj = workload("w")
    obj["metadata"]["finalizers"] = list(finalizers)
    if not is_deleting:
        del obj["metadata"]["deletionTimestamp"]
    obj = set_controller_owner(obj, WRAPPER, block_owner_deletion=True)
    obj["metadata"]["ownerReferences"][0]["uid"] = controller_uid
    return EntryDecoder(WORKLOAD).decode(orjson.dumps(obj))


KEPT = entry(QUOTA_FINALIZER, is_deleting=False)
TAKEN_OVER = entry(QUOTA_FINALIZER, is_deleting=False, controller_uid="job-uid")
DELETING = entry(QUOTA_FINALIZER, is_deleting=True)
FREE = entry(is_deleting=True)


@pytest.mark.parametrize(
    ("old", "left_out", "is_unknown", "expected"),
    [
        (KEPT, KEPT, False, False),
        (KEPT, DELETING, False, True),
        (KEPT, TAKEN_OVER, False, True),
        (FREE, FREE, False, False),
        (DELETING, None, False, True),
        (FREE, None, False, False),
        (FREE, None, True, True),
    ],
    ids=[
        "left out",
        "left out while it is being deleted",
        "left out while another object is its controller",
        "left out without the finalizer",
        "deleted",
        "deleted without the finalizer",
        "its deletion was missed, so that only its name may be known",
    ],
)
def test_workload_that_is_left_out_is_reconciled_when_it_is_left(
    old: Entry, left_out: Entry | None, is_unknown: bool, expected: bool
) -> None:
    event = Event(
        EventType.DELETED, old.key, old, None, final_state_unknown=is_unknown, left_out=left_out
    )
    assert _concerns(event) is expected


OTHER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod-uid"}


@pytest.mark.parametrize("owners", [[], [OTHER], [{**OTHER, "controller": True}]])
def test_workload_that_has_lost_its_controller_gets_only_that_one_back(
    owners: list[Object],
) -> None:
    obj = workload(workload_name(WRAPPER))
    obj["metadata"]["ownerReferences"] = owners
    obj["metadata"]["labels"]["kueue.x-k8s.io/job-uid"] = "pod-uid"
    restored = merged(obj, controller_patch(obj))
    assert restored["metadata"]["ownerReferences"] == [owner_reference(WRAPPER)]
    assert restored["metadata"]["labels"] == {APPWRAPPER_UID_LABEL: "wrapper-uid"}
    assert controller_patch(restored) == {}


@pytest.mark.parametrize(
    "metadata",
    [
        {"name": "other"},
        {"labels": {}},
        {"labels": {APPWRAPPER_UID_LABEL: "other"}},
        {"annotations": {}},
        {"annotations": {APPWRAPPER_LABEL: "other"}},
        {"finalizers": []},
    ],
)
def test_controller_of_a_workload_that_another_client_created_is_not_changed(
    metadata: Object,
) -> None:
    obj = workload(workload_name(WRAPPER))
    obj["metadata"] = {**obj["metadata"], **metadata, "ownerReferences": [OTHER]}
    assert controller_patch(obj) == {}


@pytest.mark.parametrize(
    ("ready", "hours_with_quota", "minutes"),
    [
        ("True", 100, 24 * 60),
        ("False", 1, 23 * 60),
        ("False", 23.9, 10),
        ("False", 100, 10),
        (None, 20, 4 * 60),
    ],
)
def test_pods_that_are_not_ready_keep_a_reservation_up_to_the_ceiling(
    ready: str | None, hours_with_quota: float, minutes: float
) -> None:
    deleted = datetime(2026, 1, 1, tzinfo=UTC)
    since = (deleted - timedelta(hours=hours_with_quota)).isoformat()
    conditions = [{"type": "QuotaReserved", "status": "True", "lastTransitionTime": since}]
    if ready is not None:
        conditions.append({"type": "PodsReady", "status": ready, "lastTransitionTime": since})
    obj = workload("w")
    obj["status"]["conditions"] = conditions
    obj["metadata"]["annotations"][FORCEFUL_DELETION] = "24h"
    settings = Settings.of(obj, FaultToleranceConfiguration())
    assert _grace_of(obj, settings) == timedelta(minutes=minutes)


@pytest.mark.parametrize(
    ("active", "ending", "expected"), [(3, 3, 0), (4, 0, 4), (0, 6, 0), (0, 7, 4)]
)
def test_more_pods_than_admitted_shorten_a_reservation(
    active: int, ending: int, expected: int
) -> None:
    obj = workload("w")
    obj["spec"] = {"podSets": [{"count": 2}, {"count": 1}]}
    own = [PodMeta()] * active + [PodMeta(deletion_timestamp="2026-01-01T00:00:00Z")] * ending
    message = f"{expected} pods, but its queue admitted 3" if expected else ""
    assert _excess_message(obj, own) == message
