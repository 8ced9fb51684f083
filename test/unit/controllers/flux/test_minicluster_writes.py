"""What one reconcile of a MiniCluster writes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from cfo.controllers.flux.minicluster.writes import NEXT_BATCH_SECONDS, MiniClusterWrites
from cfo.runtime import (
    SERVICE,
    Client,
    EventRecorder,
    NamespacedName,
    key_of,
    owner_reference,
)
from cfo.runtime.client.client import CachedState
from cfo.runtime.client.name_checks import NameChecks
from test.support.flux_environment import mini_cluster

CLUSTER = mini_cluster("a")
CLUSTER["metadata"]["uid"] = "u"


class PlantedServices:
    """A client whose cache has a Service of the MiniCluster for each name, until it is deleted."""

    def __init__(self) -> None:
        self.deleted: list[NamespacedName] = []
        self.name_checks = NameChecks()

    def cached(self, _: Any, key: NamespacedName) -> CachedState | None:
        if key in self.deleted:
            return None
        metadata = {
            "namespace": key.namespace,
            "name": key.name,
            "uid": key.name,
            "ownerReferences": [owner_reference(CLUSTER)],
        }
        return CachedState({"apiVersion": "v1", "kind": "Service", "metadata": metadata})

    async def delete(self, _: Any, key: NamespacedName, **options: Any) -> None:
        self.deleted.append(key)


async def test_one_reconcile_deletes_a_limited_number_of_services() -> None:
    client = PlantedServices()
    namespace = key_of(CLUSTER).namespace
    planted = [(SERVICE, NamespacedName(namespace, f"s{number}")) for number in range(60)]
    seen = []
    for _ in range(2):
        events = cast("EventRecorder", SimpleNamespace(event=lambda *args: None))
        writes = MiniClusterWrites(cast("Client", client), events, CLUSTER)
        await writes.write([], prune=planted)
        seen.append((len(client.deleted), writes.retry_after))
    assert seen == [(50, NEXT_BATCH_SECONDS), (60, 0.0)]
