"""RayClusters as the Go operator and this one leave them, and a KubeRay 1.7 that reacts to their migration."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from typing import Any

from msgspec.structs import replace

from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.names import (
    CLUSTER_LABEL,
    FINALIZER,
    NAMESPACE_LABEL,
    RAY_CLUSTER,
    VERSION_ANNOTATION,
    names_of,
)
from cfo.console.demo.raycluster_nodes import pods_of
from cfo.console.migrate.raycluster.planning import ObservedCluster, Options
from cfo.console.migrate.raycluster.steps import ObjectPlan
from cfo.console.migrate.raycluster.targets import KubeRay, Target
from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.errors import AlreadyExists
from cfo.runtime.client.transport import Transport
from cfo.runtime.controller.reconcile import Request, Result
from cfo.runtime.manager.builder import Builder
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.kinds import NETWORK_POLICY, POD
from cfo.runtime.objects.unstructured import (
    Object,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
)
from cfo.webhooks.raycluster.defaulting import default
from cfo.webhooks.raycluster.injection_plan import InjectionSettings
from cfo.webhooks.raycluster.mtls import mtls_additions
from cfo.webhooks.raycluster.proxies import proxy_additions
from test.support.raycluster_environment import Environment

NAMESPACE = "team-a"
SETTINGS = InjectionSettings(version="v1", oauth=True, mtls=True, ingress_domain="apps.test")
FIELDS = frozenset({"networkPolicy", "tlsOptions", "authOptions", "headGroupSpec.ingressOptions"})
KUBERAY = KubeRay(FIELDS, frozenset({"networkPolicy", "tlsOptions"}), cert_manager=True)
TO_KUBERAY = Options(Target.KUBERAY, KUBERAY, allow_downtime=True)


def user_cluster(name: str, *, groups: int = 1, **spec: Any) -> Object:
    """Return a RayCluster as a user writes it; ``spec`` adds to its spec."""
    metadata = {"name": name, "namespace": NAMESPACE}
    head = {
        "containers": [
            {"name": "ray-head", "image": "ray", "env": [{"name": "MINE", "value": "1"}]}
        ]
    }
    worker = {
        "containers": [{"name": "ray-worker", "image": "ray"}],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
    }
    workers = [
        {
            "groupName": f"w{number}",
            "replicas": 1,
            "minReplicas": 0,
            "maxReplicas": 3,
            "rayStartParams": {},
            "template": {"spec": deepcopy(worker)},
        }
        for number in range(groups)
    ]
    return {
        "apiVersion": RAY_CLUSTER.api_version,
        "kind": RAY_CLUSTER.kind,
        "metadata": metadata,
        "spec": {
            "rayVersion": "2.55.0",
            "headGroupSpec": {"rayStartParams": {}, "template": {"spec": head}},
            "workerGroupSpecs": workers,
            **spec,
        },
    }


def injected(
    cluster: Object,
    *,
    oauth: bool = True,
    mtls: bool = True,
    go: bool = False,
    old_names: bool = False,
) -> Object:
    """Return ``cluster`` with the entries and the finalizer of an operator; ``go`` means the Go operator."""
    settings = replace(SETTINGS, oauth=oauth, mtls=mtls)
    if old_names:  # the names of the injected entries depend on the annotation
        result = default(cluster, cluster, replace(settings, oauth=False, mtls=False)).cluster
        result = _injected_without_annotation(result, settings)
    else:
        result = deepcopy(default(cluster, None, settings).cluster)
    if go:
        _convert_to_go(result)
    if oauth or go:
        result["metadata"]["finalizers"] = [
            *(result["metadata"].get("finalizers") or ()),
            FINALIZER,
        ]
    return result


def _injected_without_annotation(cluster: Object, settings: InjectionSettings) -> Object:
    result = deepcopy(cluster)
    result["metadata"].get("annotations", {}).pop(VERSION_ANNOTATION, None)
    facts = RayClusterFacts(result)
    for group in facts.groups:
        if settings.oauth and group.is_head:
            proxy_additions(facts, "proxy").add_to(group.pod)
        if settings.mtls:
            mtls_additions(facts, "certificates", "apps.test", is_head=group.is_head).add_to(
                group.pod
            )
    return result


def _convert_to_go(cluster: Object) -> None:
    """Convert the injected entries to those of the Go operator, as its recordings have them."""
    spec = cluster["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        for container in pod["containers"]:
            container.setdefault("resources", {})
            if container["name"] == "oauth-proxy":
                container["args"] = [
                    word for word in container["args"] if not word.startswith("--openshift-sar")
                ]
        for container in pod.get("initContainers") or ():
            if container["name"] == "create-cert":
                container["resources"] = {}
                script = container["command"][2]
                script = script.replace(
                    "cp /home/ray/workspace/ca/ca.crt .", "cp /home/ray/workspace/ca/* ."
                )
                script = script.replace("/home/ray/workspace/ca-key/ca.key", "ca.key")
                container["command"] = [*container["command"][:2], script]
                container["volumeMounts"] = [
                    item for item in container["volumeMounts"] if item["name"] != "ca-key-vol"
                ]
        if "volumes" in pod:
            pod["volumes"] = [item for item in pod["volumes"] if item["name"] != "ca-key-vol"]
            for volume in pod["volumes"]:
                (volume.get("secret") or {}).pop("items", None)


def operator_objects(
    cluster: Object, *, oauth: bool = True, mtls: bool = True, exposed: bool = False
) -> Iterator[Object]:
    """Yield the objects that an operator creates for a stored RayCluster; ``exposed``: its Ingresses."""
    names = names_of(cluster)
    yield from _policies(cluster, mtls=mtls)
    if mtls:
        data = {"ca.crt": "Y2VydGlmaWNhdGU=", "ca.key": "cHJpdmF0ZQ=="}
        yield _owned(cluster, "v1", "Secret", names.ca_secret, data=data)
    if oauth:
        yield _owned(cluster, "v1", "ServiceAccount", names.proxy_service_account)
        port = {"name": "oauth-proxy", "port": 443, "protocol": "TCP", "targetPort": "oauth-proxy"}
        yield _owned(cluster, "v1", "Service", names.proxy_service, spec={"ports": [port]})
        yield _owned(
            cluster, "v1", "Secret", names.cookie_secret, data={"cookie_secret": "Y29va2ll"}
        )
        yield _binding(cluster)
        for name, service in (
            (names.dashboard, names.proxy_service),
            (names.client, f"{name_of(cluster)}-head-svc"),
        ):
            spec = {"to": {"kind": "Service", "name": service}}
            yield _owned(cluster, "route.openshift.io/v1", "Route", name, spec=spec)
    if exposed:
        for name in (names.dashboard, names.client):
            backend = {
                "service": {"name": f"{name_of(cluster)}-head-svc", "port": {"number": 8265}}
            }
            path = {"path": "/", "pathType": "Prefix", "backend": backend}
            host = f"{name}-{namespace_of(cluster)}.apps.test"
            rules = [{"host": host, "http": {"paths": [path]}}]
            yield _owned(cluster, "networking.k8s.io/v1", "Ingress", name, spec={"rules": rules})


def _owned(cluster: Object, api_version: str, kind: str, name: str, **fields: Any) -> Object:
    metadata = {
        "name": name,
        "namespace": namespace_of(cluster),
        "labels": {CLUSTER_LABEL: name_of(cluster)},
        "ownerReferences": [owner_reference(cluster)],
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def _policies(cluster: Object, *, mtls: bool) -> Iterator[Object]:
    """Yield the policies of both operators: the ports of the proxy and, with mTLS, of the client are open."""
    names = names_of(cluster)
    inside: Object = {
        "from": [{"podSelector": {"matchLabels": {"ray.io/cluster": name_of(cluster)}}}]
    }
    kuberay = {"podSelector": {"matchLabels": {"app.kubernetes.io/component": "kuberay-operator"}}}
    rules = [
        inside,
        {"from": [{"podSelector": {}}], "ports": _ports(10001, 8265)},
        {"from": [kuberay], "ports": _ports(8265, 10001)},
        {"from": [{"namespaceSelector": {}}], "ports": _ports(8080)},
        {"ports": _ports(8443, 10001) if mtls else _ports(8443)},
    ]
    for name, node_type, ingress in (
        (names.head_policy, "head", rules),
        (names.workers_policy, "worker", [inside]),
    ):
        selector = {"ray.io/cluster": name_of(cluster), "ray.io/node-type": node_type}
        spec = {
            "podSelector": {"matchLabels": selector},
            "ingress": ingress,
            "policyTypes": ["Ingress"],
        }
        yield _owned(cluster, "networking.k8s.io/v1", "NetworkPolicy", name, spec=spec)


def _ports(*numbers: int) -> list[Object]:
    return [{"protocol": "TCP", "port": number} for number in numbers]


def _binding(cluster: Object) -> Object:
    names, namespace = names_of(cluster), namespace_of(cluster)
    binding = _owned(
        cluster, "rbac.authorization.k8s.io/v1", "ClusterRoleBinding", names.cluster_role_binding
    )
    binding["metadata"] = {
        "name": names.cluster_role_binding,
        "labels": {CLUSTER_LABEL: name_of(cluster), NAMESPACE_LABEL: namespace},
    }
    role = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "system:auth-delegator",
    }
    subject = {
        "kind": "ServiceAccount",
        "name": names.proxy_service_account,
        "namespace": namespace,
    }
    return {**binding, "roleRef": role, "subjects": [subject]}


def kuberay_policies(cluster: Object) -> Iterator[Object]:
    """Yield the NetworkPolicies that KubeRay 1.7 creates for a RayCluster with ``networkPolicy``."""
    groups = [group["groupName"] for group in cluster["spec"].get("workerGroupSpecs") or ()]
    for suffix, node_type, group in (
        ("head", "head", "headgroup"),
        *((f"workers-{group}", "worker", group) for group in groups),
    ):
        selector = {"ray.io/cluster": name_of(cluster), "ray.io/node-type": node_type}
        if node_type == "worker":
            selector["ray.io/group"] = group
        yield {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {
                "name": f"{name_of(cluster)}-{suffix}",
                "namespace": namespace_of(cluster),
                "labels": {
                    "ray.io/cluster": name_of(cluster),
                    "ray.io/group": group,
                    "app.kubernetes.io/name": "kuberay",
                    "app.kubernetes.io/created-by": "kuberay-operator",
                },
                "ownerReferences": [owner_reference(cluster, block_owner_deletion=True)],
            },
            "spec": {
                "podSelector": {"matchLabels": selector},
                "policyTypes": ["Ingress"],
                "ingress": [],
            },
        }


class _KubeRay:
    """Creates and deletes pods, and NetworkPolicies under KubeRay's names, also where ours had the name."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._suspended: set[Request] = set()

    async def reconcile(self, request: Request) -> Result:
        cluster = await self._client.get(RAY_CLUSTER, request)
        if cluster is None or is_deleting(cluster):
            return Result()
        suspend = cluster["spec"].get("suspend")
        if suspend:
            self._suspended.add(request)
        elif suspend is False:
            self._suspended.discard(request)  # an unset field does not resume it
        for pod in pods_of(cluster):
            if request in self._suspended:
                await self._client.delete(
                    POD, request._replace(name=name_of(pod)), grace_period_seconds=0
                )
            else:
                with suppress(AlreadyExists):
                    await self._client.create(pod)
        await self._reconcile_policies(cluster)
        return Result()

    async def _reconcile_policies(self, cluster: Object) -> None:
        wanted = (
            list(kuberay_policies(cluster))
            if cluster["spec"].get("networkPolicy") is not None
            else []
        )
        for policy in wanted:
            current = await self._client.get(NETWORK_POLICY, key_of(policy), live=True)
            if current is None:
                await self._client.create(policy)
            elif labels_of(current) != labels_of(policy):
                current["metadata"]["labels"] = labels_of(policy)
                await self._client.update({**current, "spec": policy["spec"]})
        selector = (
            f"app.kubernetes.io/created-by=kuberay-operator,ray.io/cluster={name_of(cluster)}"
        )
        names = {name_of(policy) for policy in wanted}
        for policy in await self._client.list(
            NETWORK_POLICY, namespace=namespace_of(cluster), label_selector=selector, live=True
        ):
            if name_of(policy) not in names:
                await self._client.delete(NETWORK_POLICY, key_of(policy))


@asynccontextmanager
async def run_kuberay(env: Environment) -> AsyncIterator[None]:
    """Run a KubeRay 1.7 with both feature gates until the end of the block."""
    async with Transport(ClientConfig.for_control_plane(env.plane)) as transport:
        manager = Manager(transport, ManagerOptions(field_manager="kuberay"))
        Builder(manager, "kuberay").for_(RAY_CLUSTER).complete(_KubeRay(manager.client))
        env.manager = manager
        async with manager:
            await manager.started()
            await env.wait_until_idle()
            yield


def observed(
    cluster: Object, *more: Object, has_pods: bool = True, **objects: bool
) -> ObservedCluster:
    """Return a stored RayCluster with the operator's objects and ``more`` objects."""
    stored = deepcopy(cluster)
    stored["metadata"] |= {"uid": f"uid-{name_of(cluster)}", "resourceVersion": "1"}
    found = [*operator_objects(stored, **objects), *more]
    for number, obj in enumerate(found):
        obj["metadata"].setdefault("uid", f"uid-{number}")
    bindings = [obj for obj in found if obj["kind"] == "ClusterRoleBinding"]
    return ObservedCluster(
        stored, [obj for obj in found if obj not in bindings], bindings, has_pods
    )


def result_of(plan: ObjectPlan) -> Object:
    """Return the RayCluster after all steps."""
    result = plan.object
    for step in plan.steps:
        if step.object is plan.object and step.change is not None:
            result = step.change(result)
    return result
