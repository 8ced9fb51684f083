"""Who is measured: this operator, the Go one where ``CFO_BENCH_GO`` names its binary, and one written with kopf."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from cfo.config.model import KubeRayConfiguration, WebhookConfiguration
from cfo.operator import CONFIG_MAP_NAME, WEBHOOK_SECRET_NAME, webhook_configurations
from cfo.runtime.kinds import CONFIG_MAP, SECRET
from cfo.runtime.objects import NamespacedName, gvk_of, key_of
from test.bench.peers.children import templates
from test.bench.stage import Measured, Plane, free_port, started

__all__ = ["NAMESPACE", "VANILLA", "operator"]

NAMESPACE = "default"
VANILLA: dict[str, Any] = {"rayDashboardOAuthEnabled": False, "ingressDomain": "apps.example.test", "mTLSEnabled": True}
"""Ingresses and certificates for every cluster, as in the recorded figures."""

GO_CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")
"""Where the Go operator looks for its webhooks' certificate; a kubelet mounts the Secret there."""
GO_WEBHOOK_PORT = 9443


@asynccontextmanager
async def operator(
    plane: Plane, subject: str = "cfo", *, appwrappers: bool = True, **kuberay: Any
) -> AsyncIterator[tuple[Measured, float]]:
    """The operator of ``subject``, ready, and the seconds from exec until it was.

    It runs as its Deployment runs it: webhooks behind a Service, one replica of an election.
    """
    health, webhook = free_port(), GO_WEBHOOK_PORT if subject == "go" else free_port()
    document = {
        "kuberay": {**VANILLA, **kuberay},
        "appwrapper": {"enabled": appwrappers},
        "metrics": {"bindAddress": f"127.0.0.1:{free_port()}"},
        "health": {"bindAddress": f"127.0.0.1:{health}"},
    }
    path = "/readyz"
    match subject:
        case "cfo":
            command = [sys.executable, "-m", "cfo", "run", "--log-format", "json"]
            document["webhook"] = {"enabled": True, "bindAddress": f"127.0.0.1:{webhook}"}
            document["leaderElection"] = {"leaderElect": True}
        case "go":
            command = [os.environ["CFO_BENCH_GO"]]
        case "kopf":
            manifests = plane.folder / "children.json"
            manifests.write_bytes(templates(KubeRayConfiguration.model_validate(document["kuberay"])))
            command = [sys.executable, "-m", "test.bench.peers.kopf_operator", str(health), str(manifests)]
            path = "/healthz"
        case _:
            raise ValueError(f"no operator {subject!r}")
    metadata = {"name": CONFIG_MAP_NAME, "namespace": NAMESPACE}
    data = {"config.yaml": yaml.safe_dump(document)}
    await plane.client.apply({"apiVersion": "v1", "kind": CONFIG_MAP.kind, "metadata": metadata, "data": data})
    if subject != "kopf":
        await announce(plane, webhook)
    environment = {"KUBECONFIG": str(plane.kubeconfig), "NAMESPACE": NAMESPACE}
    async with started(command, plane.folder / f"{subject}.log", **environment) as process:
        if subject == "go":
            await mount_certificate(plane)
        ready = await process.listening(health, path)
        yield process, ready


async def announce(plane: Plane, port: int) -> None:
    """What the manifests bring for the webhooks: their Service, their configurations, the Secret; once."""
    service = {"type": "ExternalName", "externalName": "localhost"}
    metadata = {"name": WebhookConfiguration().service_name, "namespace": NAMESPACE}
    await plane.client.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service})
    for configuration in webhook_configurations(NAMESPACE):
        gvk, key = gvk_of(configuration), key_of(configuration)
        found = await plane.client.get(gvk, key)
        wanted = found or configuration
        for webhook in wanted["webhooks"]:
            webhook["clientConfig"]["service"]["port"] = port
        await (plane.client.update(wanted) if found else plane.client.create(wanted))
    secret = NamespacedName(NAMESPACE, WEBHOOK_SECRET_NAME)
    if await plane.client.get(SECRET, secret) is None:
        metadata = {"name": secret.name, "namespace": secret.namespace}
        await plane.client.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})


async def mount_certificate(plane: Plane) -> None:
    """Does what a kubelet does: the Secret's data become files."""
    data: dict[str, str] = {}
    while not {"tls.crt", "tls.key"} <= data.keys():
        await asyncio.sleep(0.05)
        found = await plane.client.get(SECRET, NamespacedName(NAMESPACE, WEBHOOK_SECRET_NAME))
        data = (found or {}).get("data") or {}
    GO_CERTIFICATES.mkdir(parents=True, exist_ok=True)
    for name, value in data.items():
        (GO_CERTIFICATES / name).write_bytes(base64.b64decode(value))
