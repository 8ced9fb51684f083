"""The operators that benchmarks measure: cfo, the Go operator, and one written with kopf.

The binary of the Go operator is named by ``CFO_BENCH_GO``; without that variable its cases are skipped. With
``CFO_BENCH_CFO``, the path of an installed ``cfo``, that one is measured instead of this repository's.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from cfo.config.endpoints import WebhookConfiguration
from cfo.config.kuberay import KubeRayConfiguration
from cfo.operator import WEBHOOK_SECRET_NAME, webhook_configurations
from cfo.runtime.objects.kinds import CONFIG_MAP, SECRET
from cfo.runtime.objects.unstructured import NamespacedName, gvk_of, key_of
from cfo.version import CONFIG_MAP_NAME
from test.bench.api_server import APIServer
from test.bench.harness import Sample
from test.bench.peers.child_templates import render_templates
from test.bench.processes import MeasuredProcess, free_port, start_process

FLUX = {"flux": {"enabled": True}}
"""The section of the configuration with which the Flux controllers run."""
NAMESPACE = "default"
"""The namespace of the operator."""
KUBERAY_CONFIGURATION: dict[str, Any] = {
    "rayDashboardOAuthEnabled": False,
    "ingressDomain": "apps.example.test",
    "mTLSEnabled": True,
}
"""Ingresses and certificates for every cluster, as in the recorded figures of the Go operator."""

GO_CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")
"""The directory of the Go operator's webhook certificate; in a cluster the kubelet mounts the Secret there."""
GO_WEBHOOK_PORT = 9443


@asynccontextmanager
async def run_operator(
    server: APIServer,
    subject: str = "cfo",
    sections: Mapping[str, Any] | None = None,
    **kuberay: Any,
) -> AsyncIterator[tuple[MeasuredProcess, float]]:
    """Run the operator ``subject``; yield its process when it is ready, and the seconds from exec until then.

    It runs as in its Deployment: with webhooks behind a Service, and as one replica with leader election. ``kuberay``
    overrides options of the section ``kuberay`` of its configuration, ``sections`` adds sections.
    """
    health_port, webhook_port = free_port(), GO_WEBHOOK_PORT if subject == "go" else free_port()
    configuration = {
        "kuberay": {**KUBERAY_CONFIGURATION, **kuberay},
        "appwrapper": {"enabled": True},
        "metrics": {"bindAddress": f"127.0.0.1:{free_port()}"},
        "health": {"bindAddress": f"127.0.0.1:{health_port}"},
    }
    configuration |= sections or {}
    ready_path = "/readyz"
    match subject:
        case "cfo":
            installed = os.environ.get("CFO_BENCH_CFO")
            command = [
                *([installed] if installed else [sys.executable, "-m", "cfo"]),
                "run",
                "--log-format",
                "json",
            ]
            configuration["webhook"] = {"enabled": True, "bindAddress": f"127.0.0.1:{webhook_port}"}
            configuration["leaderElection"] = {"leaderElect": True}
            configuration["appwrapper"]["requireAdmissionWebhook"] = False  # as the Go operator
        case "go":
            command = [os.environ["CFO_BENCH_GO"]]
        case "kopf":
            templates = server.folder / "children.json"
            templates.write_bytes(
                render_templates(KubeRayConfiguration.from_document(configuration["kuberay"]))
            )
            command = [
                sys.executable,
                "-m",
                "test.bench.peers.kopf_operator",
                str(health_port),
                str(templates),
            ]
            ready_path = "/healthz"
        case _:
            raise ValueError(f"unknown operator {subject!r}")
    metadata = {"name": CONFIG_MAP_NAME, "namespace": NAMESPACE}
    data = {"config.yaml": yaml.safe_dump(configuration)}
    await server.client.apply(
        {"apiVersion": "v1", "kind": CONFIG_MAP.kind, "metadata": metadata, "data": data}
    )
    if subject != "kopf":
        await install_webhooks(server, webhook_port)
    environment = {"KUBECONFIG": str(server.kubeconfig), "NAMESPACE": NAMESPACE}
    if "CFO_BENCH_CFO" in os.environ:
        environment["PYTHONPATH"] = ""  # the installed program must not import this repository
    async with start_process(command, server.folder / f"{subject}.log", **environment) as process:
        if subject == "go":
            await write_go_certificate(server)
        ready = await process.wait_until_ready(health_port, ready_path)
        yield process, ready


async def measure_start(
    server: APIServer,
    subject: str,
    sections: Mapping[str, Any] | None = None,
    **kuberay: Any,
) -> Sample:
    """Measure an operator from exec until it is idle; the arguments are those of :func:`run_operator`."""
    position = server.audit_position()
    async with run_operator(server, subject, sections, **kuberay) as (process, ready):
        idle = await process.wait_until_idle()
        requests = server.requests_since(position)
        values = {
            "ready s": ready,
            "until idle s": idle,
            "cpu s": process.cpu(),
            **process.memory(),
            "requests": requests.total,
            "writes": requests.writes,
        }
        return Sample(values, requests.by_resource)


async def install_webhooks(server: APIServer, port: int) -> None:
    """Create the objects of the webhooks in the manifests: the Service, the webhook configurations and the Secret.

    For a restarted operator only the port of the existing webhook configurations is changed.
    """
    service = {"type": "ExternalName", "externalName": "localhost"}
    metadata = {"name": WebhookConfiguration().service_name, "namespace": NAMESPACE}
    await server.client.apply(
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service}
    )
    for configuration in webhook_configurations(NAMESPACE):
        gvk, key = gvk_of(configuration), key_of(configuration)
        existing = await server.client.get(gvk, key)
        desired = existing or configuration
        for webhook in desired["webhooks"]:
            webhook["clientConfig"]["service"]["port"] = port
        await (server.client.update(desired) if existing else server.client.create(desired))
    secret = NamespacedName(NAMESPACE, WEBHOOK_SECRET_NAME)
    if await server.client.get(SECRET, secret) is None:
        metadata = {"name": secret.name, "namespace": secret.namespace}
        await server.client.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})


async def write_go_certificate(server: APIServer) -> None:
    """Wait for the webhook certificate in the Secret, and write it to files as the kubelet does."""
    data: dict[str, str] = {}
    while not {"tls.crt", "tls.key"} <= data.keys():
        await asyncio.sleep(0.05)
        secret = await server.client.get(SECRET, NamespacedName(NAMESPACE, WEBHOOK_SECRET_NAME))
        data = (secret or {}).get("data") or {}
    GO_CERTIFICATES.mkdir(parents=True, exist_ok=True)
    for name, value in data.items():
        (GO_CERTIFICATES / name).write_bytes(base64.b64decode(value))
