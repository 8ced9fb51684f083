"""How many modules a reader has to follow for one review: those whose functions run from the server to the response.

A module with a pass-through function, or one that is asked for the same fact from many places, makes this trail longer.
"""

from __future__ import annotations

import copy
import ssl
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple
from unittest.mock import AsyncMock, Mock

import aiohttp
import anyio
import anyio.lowlevel
import orjson
import pytest
from prometheus_client import CollectorRegistry

from cfo.config.kuberay import KubeRayConfiguration
from cfo.controllers.raycluster.environment import ClusterEnvironment
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.transport import Transport
from cfo.runtime.manager.manager import Manager
from cfo.runtime.objects.unstructured import NamespacedName, Object
from cfo.runtime.pki.rotation import StoredCertificates, ensure_certificates
from cfo.runtime.webhook.certificates.serving_certificate import ServingCertificate
from cfo.runtime.webhook.metrics import WebhookMetrics
from cfo.runtime.webhook.options import RotatedCertificates
from cfo.runtime.webhook.registration import Webhooks
from cfo.runtime.webhook.review import read_review
from cfo.runtime.webhook.server import WebhookServer
from cfo.webhooks.raycluster.defaulting import default
from cfo.webhooks.raycluster.injection_plan import Images, InjectionSettings
from cfo.webhooks.raycluster.webhook import RayClusterWebhook, setup
from hack.ways import REVIEW_WAY
from test.support.module_trace import ModuleTrace, compare_with_drawing
from test.support.ray_clusters import ray_cluster, worker

MAX_MODULES = 36
"""The maximum number from an open connection to the response; thirteen are the server half of the library."""

MAX_MODULES_OF_HANDLER = 25
"""The maximum number from the handler that the server calls to its response."""

MUTATE = "/mutate-ray-io-v1-raycluster"
VALIDATE = "/validate-ray-io-v1-raycluster"


class RunningServer(NamedTuple):
    """A server with the webhooks of RayClusters, and a client context that trusts it."""

    server: WebhookServer
    webhooks: Webhooks
    trust: ssl.SSLContext


@asynccontextmanager
async def running_server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunningServer]:
    """Run a server with the webhooks of RayClusters, which listens on a port."""
    config = KubeRayConfiguration.from_document(
        {"rayDashboardOAuthEnabled": True, "ingressDomain": "apps.test"}
    )
    manager = Manager(Transport(ClientConfig(server="https://127.0.0.1:6443", token="t")))
    monkeypatch.setattr(manager.mapper, "serves_group", AsyncMock(return_value=True))
    environment = ClusterEnvironment.detect(manager, config)
    webhook = RayClusterWebhook(
        version="v1",
        images=Images(),
        settings_of=lambda namespace: environment.profiles.settings(manager.client, namespace),
        has_oauth_server=environment.platform.has_oauth_server,
        ingress_domain=lambda: environment.domain.read(manager.client),
    )
    webhooks = Webhooks()
    setup(Mock(webhooks=webhooks), webhook)
    policy = RotatedCertificates(secret=NamespacedName("ns", "cert"))
    certificates, _ = ensure_certificates(
        StoredCertificates(), policy, ("127.0.0.1",), now=datetime.now(UTC)
    )
    serving = ServingCertificate()
    serving.serve(certificates.pair)
    server = WebhookServer(
        webhooks,
        serving,
        WebhookMetrics(CollectorRegistry()),
        bind_address="127.0.0.1:0",
        drain=0.0,
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(lambda *, task_status: server.run(task_status=task_status))
        while not server.listening:
            await anyio.lowlevel.checkpoint()
        trust = ssl.create_default_context(cadata=certificates.bundle.decode())
        yield RunningServer(server, webhooks, trust)
        server.stop()


def encoded(request: Object) -> bytes:
    """Return the body of a review."""
    return orjson.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {"uid": "1", "name": "rc", "namespace": "ns", **request},
        }
    )


async def trail(running: RunningServer, path: str, body: bytes) -> tuple[list[str], Any]:
    """Return the modules that a review enters on an open connection, and its response."""
    url = f"https://127.0.0.1:{running.server.port}{path}?timeout=10s"
    headers = {"Content-Type": "application/json"}
    connector = aiohttp.TCPConnector(ssl=running.trust)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        for _ in range(2):  # the first one opens the connection, and starts what is started lazily
            with ModuleTrace() as trace:
                async with session.post(url, data=body) as response:
                    content = await response.read()
    return trace.modules, orjson.loads(content)["response"]


async def handler_trail(webhooks: Webhooks, path: str, body: bytes) -> list[str]:
    """Return the modules that the handler of a review enters."""
    webhook = webhooks.get(path)
    assert webhook is not None
    review = read_review(body)
    with ModuleTrace() as trace:
        await webhook.handler.handle(review)
    return trace.modules


@pytest.mark.parametrize("path", [MUTATE, VALIDATE])
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
async def test_review_of_a_raycluster_enters_few_modules_and_builds_no_path(
    path: str, operation: str, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    new = ray_cluster(worker())
    new["metadata"]["namespace"] = "ns"
    settings = InjectionSettings(version="v1", oauth=True, mtls=True, ingress_domain="apps.test")
    stored = default(new, None, settings).cluster
    changed = copy.deepcopy(stored)
    changed["metadata"]["labels"] = {"changed": "true"}
    if operation == "UPDATE":
        request = {"object": changed, "oldObject": stored}
    elif path == MUTATE:
        request = {"object": new}
    else:
        request = {"object": stored}
    body = encoded({"operation": operation, **request})
    async with running_server(monkeypatch) as running:
        modules, response = await trail(running, path, body)
        handler_modules = await handler_trail(running.webhooks, path, body)
    assert response["allowed"], response
    assert len(modules) <= MAX_MODULES, " ".join(modules)
    assert len(handler_modules) <= MAX_MODULES_OF_HANDLER, " ".join(handler_modules)
    assert "cfo.runtime.objects.field" not in modules, "no field is wrong"
    if operation == "CREATE" and path == MUTATE:
        assert orjson.loads(b64decode(response["patch"]))
        compare_with_drawing(REVIEW_WAY, modules, pytestconfig)
