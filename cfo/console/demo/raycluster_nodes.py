"""A fake KubeRay operator for the embedded control plane.

It implements the parts of KubeRay that the operator and AppWrappers depend on: it creates the head pod and the worker
pods of a RayCluster from its templates, with KubeRay's labels and owner references, and reports in the status how many
of them are ready. It deletes the pods of a suspended RayCluster or worker group, and those of workers that it no longer
has. Like KubeRay, it finds pods by their labels, also those of a RayCluster that was deleted without them. It lets Ray
require a token if the RayCluster does (``authOptions``), and ignores a RayCluster that another cluster runs
(``managedBy``), or whose name KubeRay does not accept. It does not start Ray, autoscale, or replace pods.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from cfo.api.pod_requests import add_to, format_amount, requests_of_spec
from cfo.api.quantity import canonical_quantity
from cfo.api.raycluster.cluster import (
    NODE_TYPE_LABEL,
    POD_CLUSTER_LABEL,
    is_suspended,
    requests_ray_token,
    requires_ray_token,
)
from cfo.api.raycluster.names import RAY_CLUSTER, ignored_name
from cfo.runtime import (
    POD,
    AlreadyExists,
    Builder,
    Client,
    Clock,
    Conditions,
    EnqueueRequestsFromMapFunc,
    Entry,
    Forbidden,
    Informer,
    Invalid,
    Manager,
    Object,
    Request,
    Result,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
    rfc3339,
    uid_of,
)
from cfo.runtime.objects import copied, parse_time
from cfo.summaries.conditions import conditions_of, is_true

_NO_ACCOUNT: Final = re.compile(r"serviceaccount \S+ not found")
_REPLICA_FAILURE: Final = "ReplicaFailure"
_RETRY_SECONDS: Final = 5.0
_NEW_SECONDS: Final = 5.0
"""How long after its creation a RayCluster may lack what the operator creates for it."""

_MAX_INT32: Final = 2**31 - 1
"""The largest number in the status, which is also the default of ``maxReplicas``."""

_MAX_PODS: Final = 1_000
"""The most pods of a RayCluster that are created: each takes memory and CPU of this machine."""

_BATCH: Final = 50
"""The most pods that one reconcile creates, so that other RayClusters do not wait."""

_FULL: Final = f"the simulation creates at most {_MAX_PODS} pods of a RayCluster"


def setup(manager: Manager) -> None:
    """Add the fake KubeRay controller to ``manager``."""
    pods = manager.cache.informer(POD, label_selector=POD_CLUSTER_LABEL)
    reconciler = _KubeRayReconciler(
        manager.client.with_field_manager("cfo-demo"), pods, manager.clock
    )
    handler = EnqueueRequestsFromMapFunc(_cluster_of)
    (
        Builder(manager, "fake-kuberay")
        .for_(RAY_CLUSTER)
        .watches(POD, handler, label_selector=POD_CLUSTER_LABEL)
        .complete(reconciler)
    )


def _cluster_of(pod: Entry) -> Iterator[Request]:
    yield Request(pod.key.namespace, pod.meta.labels[POD_CLUSTER_LABEL])


class _KubeRayReconciler:
    def __init__(self, client: Client, pods: Informer, clock: Clock) -> None:
        self._client = client
        self._pods = pods
        self._clock = clock

    async def reconcile(self, request: Request) -> Result:
        cluster = await self._client.get(RAY_CLUSTER, request)
        if cluster is None or not runs_here(cluster) or is_deleting(cluster):
            return Result()
        if ignored_name(name_of(cluster)):
            return Result()
        pods = self._pods.reader.list(namespace=request.namespace)
        own = [pod for pod in pods if is_ray_node(pod, cluster)]
        wanted = {} if is_suspended(cluster) else _nodes_of(cluster)
        for pod in own:
            if name_of(pod) not in wanted and not is_deleting(pod):
                await self._client.delete(POD, key_of(pod), uid=uid_of(pod))
        # A quota or Pod Security would refuse the creation of one that exists, before the API server says that it does.
        existing = set(map(name_of, own))
        missing = [node for name, node in wanted.items() if name not in existing]
        refused = await self._create_pods(cluster, missing[:_BATCH])
        if _NO_ACCOUNT.search(refused) and self._is_new(cluster):
            # the operator has not created the ServiceAccount of the proxies yet
            return Result(requeue_after=0.1)
        status = status_of(cluster, own)
        if wanted and not missing and status["desiredWorkerReplicas"] >= _MAX_PODS:
            refused = _FULL
        conditions = Conditions(cluster, now=self._clock.now())
        conditions.remove(_REPLICA_FAILURE)
        if refused:
            conditions.set(_REPLICA_FAILURE, True, "FailedCreatePods", refused)
        if conditions.as_list() or (cluster.get("status") or {}).get("conditions"):
            status["conditions"] = conditions.as_list()
        before = cluster.get("status") or {}
        if any(before.get(key) != value for key, value in status.items()):
            state = status["state"]
            if state is not None and state != before.get("state"):
                status["stateTransitionTimes"] = {state: rfc3339(self._clock.now())}
            # With the version that was read: an older list of conditions would replace those of others.
            patch = {"status": status}
            await self._client.patch_object(cluster, patch, unchanged=True, subresource="status")
        return Result(requeue_after=_RETRY_SECONDS if refused else 0.0)

    async def _create_pods(self, cluster: Object, nodes: Iterable[_Node]) -> str:
        """Create the pods of ``nodes``; return why the API server refuses one, or an empty string."""
        for node in nodes:
            try:
                await self._client.create(_pod(cluster, node))
            except (AlreadyExists, Forbidden, Invalid) as error:
                return error.message
        return ""

    def _is_new(self, cluster: Object) -> bool:
        created = parse_time(cluster["metadata"]["creationTimestamp"])
        return (self._clock.now() - created).total_seconds() < _NEW_SECONDS


def is_ray_node(pod: Mapping[str, Any], cluster: Mapping[str, Any]) -> bool:
    """Return whether KubeRay counts ``pod``, which can have another owner, as one of ``cluster``."""
    labels = labels_of(pod)
    return labels.get(POD_CLUSTER_LABEL) == name_of(cluster) and NODE_TYPE_LABEL in labels


def runs_here(cluster: Mapping[str, Any]) -> bool:
    """Return whether KubeRay in this cluster runs the RayCluster (``spec.managedBy``)."""
    return cluster["spec"].get("managedBy") in (None, "", "ray.io/kuberay-operator")


def status_of(cluster: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the status that KubeRay reports for a RayCluster with these pods.

    Its state is ``None`` (no state) until all pods are ready, and when pods have ended, which KubeRay would replace.
    """
    pods = list(pods)
    ready = [
        pod["metadata"]["labels"][NODE_TYPE_LABEL]
        for pod in pods
        if is_true(conditions_of(pod), "Ready")
    ]

    groups = list(_running_groups(cluster["spec"]))

    def total(field: str) -> int:
        found = sum(int(group.get(field) or 0) * _hosts_of(group) for group in groups)
        return min(found, _MAX_INT32)

    wanted = sum(_replicas_of(group) * _hosts_of(group) for group in groups)
    workers = ready.count("worker")
    status: dict[str, Any] = {
        "desiredWorkerReplicas": wanted,
        "minWorkerReplicas": total("minReplicas"),
        "maxWorkerReplicas": total("maxReplicas"),
        "availableWorkerReplicas": workers,
        "readyWorkerReplicas": workers,
        "observedGeneration": cluster["metadata"].get("generation"),
        **_desired_resources(cluster["spec"]),
    }
    status["state"] = None
    if is_suspended(cluster) and not pods:
        status["state"] = "suspended"
    elif not is_suspended(cluster) and "head" in ready and workers >= wanted:
        status["state"] = "ready"
    return status


def _desired_resources(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return what all pods of a RayCluster request together, as the fields of its status."""
    total: dict[str, int] = {}
    add_to(total, requests_of_spec(spec["headGroupSpec"]["template"]["spec"]))
    for group in _running_groups(spec):
        requests = requests_of_spec(group["template"]["spec"])
        count = _replicas_of(group) * _hosts_of(group)
        add_to(total, {name: count * amount for name, amount in requests.items()})
    gpus = sum(amount for name, amount in total.items() if name.endswith("gpu"))
    kibibytes = format_amount(total.get("memory", 0) >> 10)
    return {
        "desiredCPU": format_amount(total.get("cpu", 0)),
        "desiredMemory": canonical_quantity(f"{kibibytes}Ki"),
        "desiredGPU": format_amount(gpus),
        "desiredTPU": format_amount(total.get("google.com/tpu", 0)),
    }


class _Node(NamedTuple):
    """A Ray node, whose pod is created from the template in ``spec``, the spec of its group."""

    node_type: str
    group: str
    spec: Mapping[str, Any]
    name: str


def pods_of(cluster: Mapping[str, Any]) -> Iterator[Object]:
    """Yield the head pod and the worker pods of a RayCluster, at most as many as are created."""
    for node in _nodes_of(cluster).values():
        yield _pod(cluster, node)


def _nodes_of(cluster: Mapping[str, Any]) -> dict[str, _Node]:
    """Return the Ray nodes of a RayCluster by the names of their pods, at most :data:`_MAX_PODS`."""
    return {node.name: node for node in islice(_all_nodes(cluster), _MAX_PODS)}


def _all_nodes(cluster: Mapping[str, Any]) -> Iterator[_Node]:
    spec = cluster["spec"]
    name = name_of(cluster)
    yield _Node("head", "headgroup", spec["headGroupSpec"], f"{name}-head")
    for group in _running_groups(spec):
        group_name = group["groupName"]
        for number in range(_replicas_of(group) * _hosts_of(group)):
            yield _Node("worker", group_name, group, f"{name}-{group_name}-worker-{number}")


def _running_groups(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the worker groups that are not suspended: KubeRay counts the pods of no others."""
    for group in spec.get("workerGroupSpecs") or ():
        if group.get("suspend") is not True:
            yield group


def _replicas_of(group: Mapping[str, Any]) -> int:
    """Return the replicas of a worker group, which KubeRay keeps between its limits."""
    replicas = max(int(group.get("replicas") or 0), int(group.get("minReplicas") or 0))
    limit = group.get("maxReplicas")
    return replicas if limit is None else min(replicas, int(limit))


def _hosts_of(group: Mapping[str, Any]) -> int:
    return int(group.get("numOfHosts") or 1)


def _pod(cluster: Mapping[str, Any], node: _Node) -> Object:
    template = copied(node.spec["template"])
    metadata = template.get("metadata") or {}
    labels = {
        **(metadata.get("labels") or {}),
        POD_CLUSTER_LABEL: name_of(cluster),
        "ray.io/group": node.group,
        "ray.io/is-ray-node": "yes",
        NODE_TYPE_LABEL: node.node_type,
    }
    if requests_ray_token(cluster) and not requires_ray_token(template["spec"]):
        template["spec"]["containers"][0].setdefault("env", []).append(
            {"name": "RAY_AUTH_MODE", "value": "token"}
        )
    return {
        "apiVersion": POD.api_version,
        "kind": POD.kind,
        "metadata": {
            **metadata,
            "name": node.name,
            "namespace": namespace_of(cluster),
            "labels": labels,
            "ownerReferences": [owner_reference(cluster, block_owner_deletion=True)],
        },
        "spec": template["spec"],
    }
