"""A stand-in for KubeRay on the embedded control plane: it makes the pods of RayClusters, so that there are some.

It follows the one part of KubeRay that everything else waits for: a head and the workers that a RayCluster asks for,
from its templates, owned by it and labelled as KubeRay does. It starts no Ray, scales nothing and replaces no pod.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from cfo.api.raycluster.cluster import is_suspended
from cfo.api.raycluster.kinds import POD, RAY_CLUSTER
from cfo.runtime.builder import Builder
from cfo.runtime.client.client import Client
from cfo.runtime.client.errors import AlreadyExists
from cfo.runtime.manager import Manager
from cfo.runtime.objects import Object, is_deleting, name_of, namespace_of, owner_reference
from cfo.runtime.reconcile import Request, Result

__all__ = ["pods_of", "setup"]


def setup(manager: Manager) -> None:
    """Adds the stand-in to ``manager``."""
    Builder(manager, "kuberay-stand-in").for_(RAY_CLUSTER).complete(
        _StandIn(manager.client.with_field_manager("cfo-demo"))
    )


class _StandIn:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def reconcile(self, request: Request) -> Result:
        cluster = await self._client.get(RAY_CLUSTER, request)
        if cluster is not None and not is_deleting(cluster) and not is_suspended(cluster):
            for pod in pods_of(cluster):
                with suppress(AlreadyExists):
                    await self._client.create(pod)
        return Result()


def pods_of(cluster: Mapping[str, Any]) -> Iterator[Object]:
    """The pods that a RayCluster asks for."""
    spec = cluster["spec"]
    yield _pod(cluster, "head", "headgroup", 0, spec["headGroupSpec"])
    for group in spec.get("workerGroupSpecs") or ():
        for number in range(int(group.get("replicas") or 0) * int(group.get("numOfHosts") or 1)):
            yield _pod(cluster, "worker", group["groupName"], number, group)


def _pod(cluster: Mapping[str, Any], node_type: str, group: str, number: int, spec: Mapping[str, Any]) -> Object:
    template = copy.deepcopy(spec["template"])
    metadata = template.get("metadata") or {}
    labels = {
        **(metadata.get("labels") or {}),
        "ray.io/cluster": name_of(cluster),
        "ray.io/group": group,
        "ray.io/is-ray-node": "yes",
        "ray.io/node-type": node_type,
    }
    name = f"{name_of(cluster)}-head" if node_type == "head" else f"{name_of(cluster)}-{group}-worker-{number}"
    return {
        "apiVersion": POD.api_version,
        "kind": POD.kind,
        "metadata": {
            **metadata,
            "name": name,
            "namespace": namespace_of(cluster),
            "labels": labels,
            "ownerReferences": [owner_reference(cluster, block_owner_deletion=True)],
        },
        "spec": template["spec"],
    }
