"""How many modules a reader has to follow for one review: those whose functions run between its bytes and the response.

A module with a pass-through function, or one that is asked for the same fact from many places, makes this trail longer.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any
from unittest.mock import AsyncMock

import orjson
import pytest

from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.config.kuberay import KubeRayConfiguration
from cfo.controllers.raycluster.environment import Environment
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.transport import Transport
from cfo.runtime.manager.manager import Manager
from cfo.runtime.webhook.review import read_review, write_review
from cfo.runtime.webhook.review_handlers import DefaultingHandler, respond
from cfo.runtime.webhook.worker import ReviewWorker
from cfo.webhooks.raycluster.injection_plan import Images
from cfo.webhooks.raycluster.webhook import RayClusterWebhook
from test.support.ray_clusters import ray_cluster, worker

MAX_MODULES = 20


@contextmanager
def entered_modules() -> Iterator[set[str]]:
    """Collect the modules of ``cfo`` whose functions this thread enters."""
    modules: set[str] = set()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        name = str(frame.f_globals.get("__name__", ""))
        if event == "call" and name.startswith("cfo."):
            modules.add(name)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield modules
    finally:
        sys.setprofile(before)


async def test_mutating_review_of_a_raycluster_enters_few_modules_and_builds_no_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = KubeRayConfiguration.of(
        {"rayDashboardOAuthEnabled": True, "ingressDomain": "apps.test"}
    )
    manager = Manager(Transport(ClientConfig(server="https://127.0.0.1:6443", token="t")))
    monkeypatch.setattr(manager.mapper, "serves_group", AsyncMock(return_value=True))
    environment = Environment.detect(manager, config)
    webhook = RayClusterWebhook(
        version="v1",
        images=Images(),
        settings_of=lambda namespace: environment.profiles.settings(manager.client, namespace),
        has_oauth_server=environment.platform.has_oauth_server,
        ingress_domain=lambda: environment.domain.read(manager.client),
    )
    handler, reviews = DefaultingHandler(webhook, RAY_CLUSTER), ReviewWorker()
    request = {
        "uid": "1",
        "operation": "CREATE",
        "name": "rc",
        "namespace": "ns",
        "object": ray_cluster(worker()),
    }
    body = orjson.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    )
    with entered_modules() as modules:
        review = await reviews.run(len(body), read_review, body)
        review.size, review.worker = len(body), reviews
        response, failed = await respond(handler, review)
        answer = orjson.loads(write_review(review.uid, response))["response"]
    assert not failed
    assert answer["allowed"]
    assert answer["patch"]
    assert len(modules) <= MAX_MODULES, sorted(modules)
    assert "cfo.runtime.objects.field" not in modules, "no field is wrong"
