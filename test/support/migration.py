"""RayClusters as the Go operator and this one leave them, and a KubeRay 1.7 that reacts to their migration."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from dataclasses import replace
from typing import Any

from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.api.raycluster.naming import VERSION_ANNOTATION, names_of
from cfo.config import KubeRayConfiguration
from cfo.controllers.raycluster.oauth import FINALIZER
from cfo.controllers.raycluster.resources import (
    desired_client_ingress,
    desired_client_route,
    desired_cluster_role_binding,
    desired_dashboard_ingress,
    desired_dashboard_route,
    desired_head_policy,
    desired_proxy_service,
    desired_proxy_service_account,
    desired_secret,
    desired_workers_policy,
)
from cfo.demo.kuberay import pods_of
from cfo.runtime.builder import Builder
from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.errors import AlreadyExists
from cfo.runtime.client.transport import Transport
from cfo.runtime.kinds import NETWORK_POLICY, POD
from cfo.runtime.manager import Manager, ManagerOptions
from cfo.runtime.objects import Object, is_deleting, key_of, labels_of, name_of, namespace_of, owner_reference
from cfo.runtime.reconcile import Request, Result
from cfo.webhooks.raycluster.defaulting import default
from cfo.webhooks.raycluster.injection_settings import InjectionSettings
from cfo.webhooks.raycluster.mtls import mtls_additions
from cfo.webhooks.raycluster.oauth_proxy import proxy_additions
from cfo.webhooks.raycluster.pod_groups import pod_groups_of
from test.support.raycluster_environment import Environment

NAMESPACE = "team-a"
SETTINGS = InjectionSettings(version="v1", oauth=True, mtls=True, ingress_domain="apps.test")


def user_cluster(name: str, *, groups: int = 1, **spec: Any) -> Object:
    """Return a RayCluster as a user writes it; ``spec`` adds to its spec."""
    metadata = {"name": name, "namespace": NAMESPACE}
    head = {"containers": [{"name": "ray-head", "image": "ray", "env": [{"name": "MINE", "value": "1"}]}]}
    worker = {"containers": [{"name": "ray-worker", "image": "ray"}], "volumes": [{"name": "scratch", "emptyDir": {}}]}
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
    cluster: Object, *, oauth: bool = True, mtls: bool = True, go: bool = False, old_names: bool = False
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
        result["metadata"]["finalizers"] = [*(result["metadata"].get("finalizers") or ()), FINALIZER]
    return result


def _injected_without_annotation(cluster: Object, settings: InjectionSettings) -> Object:
    result = deepcopy(cluster)
    result["metadata"].get("annotations", {}).pop(VERSION_ANNOTATION, None)
    for group in pod_groups_of(result):
        if settings.oauth and group.is_head:
            proxy_additions(result, "proxy").add_to(group.pod)
        if settings.mtls:
            mtls_additions(result, "certificates", "apps.test", is_head=group.is_head).add_to(group.pod)
    return result


def _convert_to_go(cluster: Object) -> None:
    """Convert the injected entries to those of the Go operator, as its recordings have them."""
    spec = cluster["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        for container in pod["containers"]:
            container.setdefault("resources", {})
            if container["name"] == "oauth-proxy":
                container["args"] = [word for word in container["args"] if not word.startswith("--openshift-sar")]
        for container in pod.get("initContainers") or ():
            if container["name"] == "create-cert":
                container["resources"] = {}
                script = container["command"][2]
                script = script.replace("cp /home/ray/workspace/ca/ca.crt .", "cp /home/ray/workspace/ca/* .")
                script = script.replace("/home/ray/workspace/ca-key/ca.key", "ca.key")
                container["command"] = [*container["command"][:2], script]
                container["volumeMounts"] = [item for item in container["volumeMounts"] if item["name"] != "ca-key-vol"]
        if "volumes" in pod:
            pod["volumes"] = [item for item in pod["volumes"] if item["name"] != "ca-key-vol"]
            for volume in pod["volumes"]:
                (volume.get("secret") or {}).pop("items", None)


def operator_objects(
    cluster: Object, *, oauth: bool = True, mtls: bool = True, go: bool = False, exposed: bool = False
) -> Iterator[Object]:
    """Yield the objects that an operator creates for a stored RayCluster; ``exposed``: its Ingresses."""
    config = KubeRayConfiguration.model_validate({"mTLSEnabled": mtls, "ingressDomain": "apps.test"})
    names = names_of(cluster)
    objects = [desired_head_policy(cluster, config, ["ray-system"]), desired_workers_policy(cluster)]
    if go:
        for policy in objects:
            del policy["spec"]["policyTypes"]
    if mtls:
        objects.append(desired_secret(cluster, names.ca_secret, {"ca.crt": b"certificate", "ca.key": b"private"}))
    if oauth:
        objects += [
            desired_proxy_service_account(cluster),
            desired_proxy_service(cluster),
            desired_secret(cluster, names.cookie_secret, {"cookie_secret": b"cookie"}),
            desired_cluster_role_binding(cluster, names.cluster_role_binding),
            desired_dashboard_route(cluster),
            desired_client_route(cluster),
        ]
    if exposed:
        objects += [
            desired_dashboard_ingress(cluster, "apps.test", config.ingress),
            desired_client_ingress(cluster, "apps.test", config.ingress),
        ]
    for obj in objects:
        if namespace_of(obj):
            obj["metadata"]["ownerReferences"] = [owner_reference(cluster)]
        yield obj


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
            "spec": {"podSelector": {"matchLabels": selector}, "policyTypes": ["Ingress"], "ingress": []},
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
                await self._client.delete(POD, request._replace(name=name_of(pod)), grace_period_seconds=0)
            else:
                with suppress(AlreadyExists):
                    await self._client.create(pod)
        await self._reconcile_policies(cluster)
        return Result()

    async def _reconcile_policies(self, cluster: Object) -> None:
        wanted = list(kuberay_policies(cluster)) if cluster["spec"].get("networkPolicy") is not None else []
        for policy in wanted:
            current = await self._client.get(NETWORK_POLICY, key_of(policy), live=True)
            if current is None:
                await self._client.create(policy)
            elif labels_of(current) != labels_of(policy):
                current["metadata"]["labels"] = labels_of(policy)
                await self._client.update({**current, "spec": policy["spec"]})
        selector = f"app.kubernetes.io/created-by=kuberay-operator,ray.io/cluster={name_of(cluster)}"
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
