"""Tests of what a migration reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from cfo.api.raycluster.names import CREATED_BY_LABEL, KUBERAY, RAY_CLUSTER, ROUTE
from cfo.console.migrate.raycluster.children import needed_part
from cfo.console.migrate.raycluster.observation import Observer
from cfo.runtime.client.errors import UnknownKind
from cfo.runtime.objects.kinds import INGRESS, NETWORK_POLICY, POD, SECRET
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object

CLUSTER: Object = {
    "apiVersion": "ray.io/v1",
    "kind": "RayCluster",
    "metadata": {"name": "rc", "namespace": "ns", "uid": "u"},
    "spec": {"suspend": True},
}
OWNER = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "rc", "uid": "u"}


def child(gvk: GVK, name: str, **fields: Any) -> Object:
    metadata = {"name": name, "namespace": "ns", "uid": name, "ownerReferences": [OWNER]}
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata, **fields}


class ClientWithoutRoutes:
    """A client of a cluster with one RayCluster, which does not serve Routes."""

    def __init__(self) -> None:
        self.lists: Counter[GVK] = Counter()
        self.with_content: set[GVK] = set()

    async def select(
        self, gvk: GVK, select: Callable[[Object], Any], *, metadata_only: bool, **_: Any
    ) -> list[Any]:
        self.lists[gvk] += 1
        if not metadata_only:
            self.with_content.add(gvk)
        if gvk == ROUTE:
            raise UnknownKind("no matches")
        found = [select(obj) for obj in ([CLUSTER] if gvk == RAY_CLUSTER else [])]
        return [each for each in found if each is not None]

    async def list(self, *_: Any, **__: Any) -> list[Object]:
        return []

    async def get(self, gvk: GVK, key: NamespacedName, **_: Any) -> Object | None:
        return CLUSTER if gvk == RAY_CLUSTER and key.name == "rc" else None


async def test_unserved_kind_is_looked_up_once_for_all_clusters() -> None:
    client: Any = ClientWithoutRoutes()
    observer = Observer(client)
    assert await observer.keys("") == [NamespacedName("ns", "rc")]
    for _ in range(5):
        assert await observer.cluster(NamespacedName("ns", "rc")) is not None
    assert client.lists[ROUTE] == 1


async def test_only_metadata_is_listed_except_of_policies_and_ingresses() -> None:
    client: Any = ClientWithoutRoutes()
    observer = Observer(client)
    await observer.keys("")
    await observer.cluster(NamespacedName("ns", "rc"))
    assert {RAY_CLUSTER, POD, SECRET} < set(client.lists)
    assert client.with_content == {NETWORK_POLICY, INGRESS}


def test_objects_with_other_names_are_not_needed() -> None:
    for gvk in (SECRET, INGRESS, NETWORK_POLICY):
        assert needed_part(CLUSTER, child(gvk, "mine")) is None


def test_metadata_of_operators_objects_is_reduced() -> None:
    secret = child(SECRET, "ca-secret-rc", data={"ca.key": "eA=="})
    other = {**OWNER, "uid": "v"}
    secret["metadata"] |= {
        "resourceVersion": "1",
        "labels": {"large": "x", CREATED_BY_LABEL: KUBERAY},
        "annotations": {"large": "x"},
        "ownerReferences": [other, OWNER, {**OWNER, "controller": True}],
    }
    assert needed_part(CLUSTER, secret) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "ca-secret-rc",
            "namespace": "ns",
            "uid": "ca-secret-rc",
            "resourceVersion": "1",
            "ownerReferences": [{**OWNER, "controller": True}],
            "labels": {CREATED_BY_LABEL: KUBERAY},
        },
    }


def test_policies_of_the_operator_are_kept_as_they_are() -> None:
    policy = child(NETWORK_POLICY, "rc-head", spec={"ingress": [{}]})
    assert needed_part(CLUSTER, policy) == policy


@pytest.mark.parametrize(
    ("labels", "is_controller", "kept"), [(2, True, True), (11, True, False), (2, False, False)]
)
def test_policies_of_kuberay_are_reduced_to_their_selectors(
    labels: int, *, is_controller: bool, kept: bool
) -> None:
    selector = {f"l{number}": "v" for number in range(labels)}
    types = ["Egress", *["Ingress"] * 1_000]
    spec = {"podSelector": {"matchLabels": selector}, "policyTypes": types, "ingress": [{}]}
    policy = child(NETWORK_POLICY, "own", spec=spec)
    policy["metadata"]["labels"] = {CREATED_BY_LABEL: KUBERAY}
    policy["metadata"]["ownerReferences"] = [{**OWNER, "controller": is_controller}]
    found = needed_part(CLUSTER, policy)
    assert (found is not None) is kept
    assert found is None or found["spec"] == {
        "podSelector": {"matchLabels": selector},
        "policyTypes": ["Ingress"],
    }
