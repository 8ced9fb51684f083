"""Reviews run in the event loop only if what they compute is small, whatever the size of their body."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from unittest.mock import AsyncMock

import orjson
import pytest

from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.config.kuberay import KubeRayConfiguration, ProfileTable
from cfo.config.model import InferenceStackConfiguration
from cfo.runtime.objects.unstructured import Object
from cfo.runtime.webhook.admission import AdmissionRequest
from cfo.runtime.webhook.review import read_review
from cfo.runtime.webhook.worker import MAX_INLINE, ReviewWorker
from cfo.webhooks.access import AccessReviewer
from cfo.webhooks.appwrapper.webhook import AppWrapperWebhook
from cfo.webhooks.inferencestack import InferenceStackWebhook, OtherMajors
from cfo.webhooks.raycluster.injection_plan import Images
from cfo.webhooks.raycluster.webhook import RayClusterWebhook
from test.support.inference_stacks import stack
from test.support.ray_clusters import ray_cluster, worker

T = TypeVar("T")

Call = Callable[[Object, AdmissionRequest], Awaitable[object]]


@dataclass
class ObservedWorker(ReviewWorker):
    """A worker that records in which threads functions run."""

    threads: set[threading.Thread] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    async def run(
        self,
        client: tuple[str, str],
        weight: int,
        function: Callable[..., T],
        *args: Any,
        **kwargs: Any,
    ) -> T:
        def observed() -> T:
            self.threads.add(threading.current_thread())
            return function(*args, **kwargs)

        return await super().run(client, weight, observed)

    @property
    def uses_event_loop(self) -> bool:
        return threading.main_thread() in self.threads


def ray_webhook(*, mtls: bool = True) -> RayClusterWebhook:
    config = KubeRayConfiguration.from_document({"mTLSEnabled": mtls})
    return RayClusterWebhook(
        version="v1",
        images=Images(),
        settings_of=AsyncMock(return_value=ProfileTable(config).strictest()),
        has_oauth_server=AsyncMock(return_value=False),
        ingress_domain=AsyncMock(return_value="apps.test"),
    )


def stack_webhook() -> InferenceStackWebhook:
    reviewer = AccessReviewer(AsyncMock(), check_permissions=False)
    config = InferenceStackConfiguration.from_document({"operatorVersion": "v2"})
    return InferenceStackWebhook(config, reviewer)


def create_request(obj: Object) -> tuple[AdmissionRequest, ObservedWorker]:
    """Return the request for the creation of ``obj``, as the server reads it, and its worker."""
    request = {"uid": "1", "operation": "CREATE", "namespace": "ns", "object": obj}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    body = orjson.dumps(review)
    assert len(body) <= MAX_INLINE
    read = read_review(body)
    read.worker = observed = ObservedWorker()
    return read, observed


async def runs_in_event_loop(call: Call, obj: Object) -> bool:
    """Return whether ``call`` computes in the event loop for the creation of ``obj``."""
    request, observed = create_request(obj)
    await call(obj, request)
    assert observed.threads
    return observed.uses_event_loop


def groups(count: int) -> Object:
    """Return a RayCluster with a number of worker groups."""
    return ray_cluster(*[worker(f"w{number}") for number in range(count)])


def templated(applications: int, variables: int) -> Object:
    """Return a stack with a number of applications, and of variables in their template."""
    env = [{"name": f"V{number}", "value": "x"} for number in range(variables)]
    sections: dict[str, Any] = {f"a{number}": {} for number in range(applications)}
    return stack(sections, version="v2", applicationTemplate={"env": env})


@pytest.mark.parametrize(
    ("count", "mtls", "is_inline"), [(2, True, True), (100, True, False), (100, False, True)]
)
async def test_raycluster_is_computed_in_a_thread_by_what_is_injected(
    *, count: int, mtls: bool, is_inline: bool
) -> None:
    webhook = ray_webhook(mtls=mtls)
    cluster = groups(count)
    assert await runs_in_event_loop(webhook.default, cluster) is is_inline
    assert await runs_in_event_loop(webhook.submission_errors, cluster) is is_inline

    async def update(new: Object, request: AdmissionRequest) -> None:
        await webhook.validate_update(cluster, new, request)

    assert await runs_in_event_loop(update, cluster) is is_inline


@pytest.mark.parametrize(
    ("applications", "variables", "is_inline"),
    [(3, 20, True), (1, 200, True), (100, 0, False), (50, 50, False)],
)
async def test_stack_is_computed_in_a_thread_by_the_size_of_the_template_in_each_application(
    *, applications: int, variables: int, is_inline: bool
) -> None:
    webhook = stack_webhook()
    obj = templated(applications, variables)
    for call in (webhook.validate_create, webhook.submission_errors):
        assert await runs_in_event_loop(call, obj) is is_inline
    old = {**obj, "spec": {}}

    async def update(new: Object, request: AdmissionRequest) -> None:
        await webhook.validate_update(old, new, request)

    async def reduce(new: Object, request: AdmissionRequest) -> None:
        await webhook.validate_update(new, old, request)

    assert await runs_in_event_loop(update, obj) is is_inline
    assert await runs_in_event_loop(reduce, obj) is is_inline
    other = {**obj, "metadata": {"name": "s", "labels": {"operatorVersion": "v9"}}}
    assert await runs_in_event_loop(OtherMajors(webhook).validate_create, other) is is_inline


@pytest.mark.parametrize("is_large", [False, True])
async def test_appwrapper_is_computed_in_a_thread_if_its_components_are_large(
    monkeypatch: pytest.MonkeyPatch, *, is_large: bool
) -> None:
    """A component is validated as if its user created it."""
    webhook = AppWrapperWebhook(
        AsyncMock(),
        AppWrapperConfiguration(),
        {RAY_CLUSTER: ray_webhook().submission_errors}
        | dict.fromkeys(INFERENCE_STACKS, stack_webhook().submission_errors),
    )
    template = templated(100, 100) if is_large else groups(2)
    obj = {"metadata": {"name": "w"}, "spec": {"components": [{"template": template}]}}
    assert await runs_in_event_loop(webhook._embedded_errors, obj) is not is_large


async def test_body_of_many_small_values_is_large() -> None:
    """Reading a value takes some time also if it has only two bytes."""
    request, _ = create_request({"a": [{}] * 4000})
    assert request.weight > MAX_INLINE
    request, _ = create_request({"a": "x" * 12_000})
    assert request.weight == request.size <= MAX_INLINE
