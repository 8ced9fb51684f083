"""Stand-ins for the pods of a RayCluster: KubeRay creates the pod, and the kubelet runs its init container."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cfo.api.raycluster.cluster import CERTIFICATE_CONTAINER, pod_labels
from cfo.api.raycluster.names import names_of
from cfo.runtime.objects.kinds import POD, SECRET, SERVICE_ACCOUNT
from cfo.runtime.objects.unstructured import (
    NamespacedName,
    Object,
    key_of,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
)
from cfo.webhooks.raycluster.defaulting import default
from cfo.webhooks.raycluster.injection_plan import InjectionSettings
from test.support.raycluster_environment import Environment, ray_cluster
from test.support.secrets import data_of

__all__ = ["RayNode", "create_ray_pod", "injected_ray_cluster", "pod_token"]


def injected_ray_cluster(settings: InjectionSettings, **fields: Any) -> Object:
    """Return a new RayCluster with a worker group, as the webhook stores it."""
    workers = {
        "groupName": "w",
        "template": {"spec": {"containers": [{"name": "ray-worker", "image": "ray"}]}},
    }
    return default(
        ray_cluster(version=None, workerGroupSpecs=[workers], **fields), None, settings
    ).cluster


async def create_ray_pod(
    env: Environment, cluster: Object, name: str, address: str, *, node_type: str, **changes: Any
) -> Object:
    """Create a pod as KubeRay does, with an address; ``changes`` replaces fields of its metadata."""
    spec = cluster["spec"]
    group = spec["headGroupSpec"] if node_type == "head" else spec["workerGroupSpecs"][0]
    metadata = {
        "name": name,
        "namespace": namespace_of(cluster),
        "labels": pod_labels(cluster, node_type),
        "ownerReferences": [owner_reference(cluster)],
        **changes,
    }
    pod = await env.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {**group["template"]["spec"]},
        }
    )
    if not address:
        return pod
    status = {"phase": "Pending", "podIP": address, "podIPs": [{"ip": address}]}
    return await env.patch(pod, {"status": status}, subresource="status")


async def pod_token(env: Environment, pod: Object, account: str = "") -> str:
    """Return a token of the pod's ServiceAccount that is bound to the pod, as the kubelet requests it."""
    reference = {"apiVersion": "v1", "kind": "Pod", "name": name_of(pod), "uid": uid_of(pod)}
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {},
        "spec": {"boundObjectRef": reference, "expirationSeconds": 3600},
    }
    key = NamespacedName(namespace_of(pod), account or pod["spec"]["serviceAccountName"])
    response = await env.client.create_subresource(SERVICE_ACCOUNT, key, "token", request)
    token: str = response["status"]["token"]
    return token


@dataclass(frozen=True, slots=True)
class RayNode:
    """The volumes of one pod, in ``directory``."""

    env: Environment
    cluster: Object
    pod: Object
    directory: Path

    @property
    def tls(self) -> Path:
        """The directory with the key and the certificate, which Ray's container mounts."""
        return self._path("server-cert")

    def _path(self, volume: str) -> Path:
        path = self.directory / name_of(self.pod) / volume
        path.mkdir(parents=True, exist_ok=True)
        return path

    async def run_init_container(self) -> tuple[int | None, str]:
        """Run the injected command with the volumes that the pod mounts; return its exit code and its output."""
        spec = (await self.env.get(POD, name_of(self.pod), namespace_of(self.pod)))["spec"]
        (container,) = [
            item for item in spec["initContainers"] if item["name"] == CERTIFICATE_CONTAINER
        ]
        shell, option, script = container["command"]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for mount in sorted(container["volumeMounts"], key=lambda mount: -len(mount["mountPath"])):
            path = self._path(mount["name"])
            for name, content in (await self._files(volumes[mount["name"]])).items():
                (path / name).write_bytes(content)
            script = script.replace(mount["mountPath"], str(path))
        server = urlsplit(self.env.plane.url)
        process = await asyncio.create_subprocess_exec(
            *(shell, option, script),
            env={
                "PATH": "/usr/bin:/bin",
                "KUBERNETES_SERVICE_HOST": str(server.hostname),
                "KUBERNETES_SERVICE_PORT": str(server.port),
                "MY_POD_IP": self.pod["status"]["podIP"],
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        return process.returncode, output.decode()

    async def _files(self, volume: Mapping[str, Any]) -> dict[str, bytes]:
        if "projected" in volume:
            token = await pod_token(self.env, self.pod)
            return {"token": token.encode(), "ca.crt": self.env.plane.ca_pem}
        if "secret" not in volume:
            return {}
        assert volume["secret"]["secretName"] == names_of(self.cluster).ca_secret
        secret = await self.env.get(
            SECRET, names_of(self.cluster).ca_secret, key_of(self.cluster).namespace
        )
        return {item["path"]: data_of(secret)[item["key"]] for item in volume["secret"]["items"]}
