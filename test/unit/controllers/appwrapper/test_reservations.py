"""Which Workloads an event of an AppWrapper enqueues: those that wait for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import orjson

from cfo.api.appwrapper.names import (
    APPWRAPPER,
    APPWRAPPER_LABEL,
    APPWRAPPER_UID_LABEL,
    QUOTA_FINALIZER,
)
from cfo.config.appwrapper import FaultToleranceConfiguration
from cfo.controllers.appwrapper.reservations import ReservationReconciler, Reservations
from cfo.runtime import Client, NamespacedName, Object
from cfo.runtime.cache.entry import EntryDecoder
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
    reservations = Reservations(manager.cache.informer(WORKLOAD))
    client = cast("Client", SimpleNamespace(get=_get_wrapper))
    reconciler = ReservationReconciler(manager, client, reservations, FaultToleranceConfiguration())
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
