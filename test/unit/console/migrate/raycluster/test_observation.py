"""Tests of what a migration reads."""

from __future__ import annotations

from collections import Counter
from typing import Any

from cfo.api.raycluster.names import RAY_CLUSTER, ROUTE
from cfo.console.migrate.raycluster.observation import Observer
from cfo.runtime.client.errors import UnknownKind
from cfo.runtime.objects.kinds import SECRET
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object

CLUSTER: Object = {
    "apiVersion": "ray.io/v1",
    "kind": "RayCluster",
    "metadata": {"name": "rc", "namespace": "ns", "uid": "u"},
    "spec": {},
}


class ClientWithoutRoutes:
    """A client of a cluster with one RayCluster, which does not serve Routes."""

    def __init__(self) -> None:
        self.lists: Counter[GVK] = Counter()
        self.secrets: list[Object] = []

    async def list(self, gvk: GVK, **_: Any) -> list[Object]:
        self.lists[gvk] += 1
        if gvk == ROUTE:
            raise UnknownKind("no matches")
        if gvk == SECRET:
            return self.secrets
        return [CLUSTER] if gvk == RAY_CLUSTER else []

    async def get(self, gvk: GVK, key: NamespacedName, **_: Any) -> Object | None:
        return CLUSTER if gvk == RAY_CLUSTER and key.name == "rc" else None


async def test_unserved_kind_is_looked_up_once_for_all_clusters() -> None:
    client: Any = ClientWithoutRoutes()
    observer = Observer(client)
    assert await observer.keys("") == [NamespacedName("ns", "rc")]
    for _ in range(5):
        assert await observer.cluster(NamespacedName("ns", "rc")) is not None
    assert client.lists[ROUTE] == 1


async def test_content_of_secrets_is_dropped() -> None:
    client: Any = ClientWithoutRoutes()
    client.secrets = [
        {"kind": "Secret", "metadata": {"name": "s", "uid": "s"}, "data": {"ca.key": "eA=="}}
    ]
    observed = await Observer(client).cluster(NamespacedName("ns", "rc"))
    assert observed is not None
    assert observed.children == ({"kind": "Secret", "metadata": {"name": "s", "uid": "s"}},)
