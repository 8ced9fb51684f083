"""Labels that a user seems to have meant as that of a queue cause a warning, on every kind that has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from cfo.api.flux.names import FLUX_JOB, MINICLUSTER
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.config.kuberay import KubeRayConfiguration, ProfileTable
from cfo.config.model import InferenceStackConfiguration
from cfo.runtime.objects.unstructured import Object
from cfo.runtime.webhook import AdmissionRequest, Validator
from cfo.webhooks import queue_labels
from cfo.webhooks.access import AccessReviewer
from cfo.webhooks.appwrapper.webhook import AppWrapperWebhook
from cfo.webhooks.flux import FluxJobValidator, MiniClusterValidator
from cfo.webhooks.inferencestack import InferenceStackWebhook
from cfo.webhooks.queue_labels import queue_label_warnings
from cfo.webhooks.raycluster.injection_plan import Images
from cfo.webhooks.raycluster.webhook import RayClusterWebhook
from test.support.flux_environment import flux_job, mini_cluster
from test.support.inference_stacks import stack
from test.support.ray_clusters import ray_cluster

MISSPELLED = "kueue.x-k8s.io/queuename"


def ray_webhook() -> RayClusterWebhook:
    config = KubeRayConfiguration.from_document({"mTLSEnabled": False})
    return RayClusterWebhook(
        version="v1",
        images=Images(),
        settings_of=AsyncMock(return_value=ProfileTable(config).strictest()),
        has_oauth_server=AsyncMock(return_value=False),
        ingress_domain=AsyncMock(return_value="apps.test"),
    )


def stack_webhook() -> InferenceStackWebhook:
    config = InferenceStackConfiguration.from_document({"operatorVersion": "v2"})
    return InferenceStackWebhook(config, AccessReviewer(AsyncMock(), check_permissions=False))


def appwrapper_webhook() -> AppWrapperWebhook:
    client = AsyncMock()
    verbs = frozenset({"create", "delete", "get", "list", "patch", "update", "watch"})
    client.mapper.resource.return_value = Mock(namespaced=True, verbs=verbs)
    config = AppWrapperConfiguration.from_document({"userRBACAdmissionCheck": False})
    return AppWrapperWebhook(client, config)


def appwrapper() -> Object:
    pod = {"containers": [{"name": "a", "image": "a"}], "restartPolicy": "Never"}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"template": {"spec": pod}},
    }
    return {"metadata": {"name": "w"}, "spec": {"components": [{"template": job}]}}


KINDS: dict[str, tuple[Callable[[], Validator[Object]], Callable[[], Object], str]] = {
    "RayCluster": (ray_webhook, ray_cluster, ""),
    "AppWrapper": (appwrapper_webhook, appwrapper, ""),
    FLUX_JOB.kind: (lambda: FluxJobValidator(lambda job: ()), flux_job, ""),
    MINICLUSTER.kind: (MiniClusterValidator, mini_cluster, " in spec.jobLabels"),
    "InferenceStack": (stack_webhook, lambda: stack(version="v2"), ""),
}
"""The webhook of each kind, an object, and where its label is if not in the metadata."""


async def warnings_of(call: Any, *objects: Object) -> list[str]:
    """Return the warnings of a validator, which are returned or added to the request."""
    request = AdmissionRequest(namespace="ns")
    returned = await call(*objects, request) or []
    return [*returned, *request.warnings]


@pytest.mark.parametrize("kind", KINDS)
async def test_misspelled_label_of_a_queue_causes_a_warning_when_it_is_added(kind: str) -> None:
    webhook, build, where = KINDS[kind]
    validator = webhook()
    before, after = build(), build()
    labels = after["metadata"].setdefault("labels", {})
    labels[MISSPELLED] = "team"
    expected = (
        f"metadata.labels[{MISSPELLED}]: names no queue; did you mean the label "
        f"kueue.x-k8s.io/queue-name{where}?"
    )
    assert expected in await warnings_of(validator.validate_create, after)
    assert expected in await warnings_of(validator.validate_update, before, after)
    assert expected not in await warnings_of(validator.validate_create, before)
    assert expected not in await warnings_of(validator.validate_update, after, after)


async def test_misspelled_label_of_the_job_of_a_minicluster_causes_a_warning() -> None:
    (found,) = await warnings_of(
        MiniClusterValidator().validate_create,
        mini_cluster(jobLabels={MISSPELLED: "team"}),  # type: ignore[arg-type]
    )
    assert found.startswith(f"spec.jobLabels[{MISSPELLED}]: names no queue")


def labelled(*keys: str, place: str = "labels") -> Object:
    return {"metadata": {"name": "a", place: dict.fromkeys(keys, "team")}}


@pytest.mark.parametrize(
    "key",
    [
        "kueue.x-k8s.io/queue",
        "kueue.x-k8s.io/queue_name",
        "kueue.x-k8s.io/queueName",
        "kueue.x-k8s.io/local-queue",
        "kueue.x-k8s.io/local-queue-name",
        "kueue.x-k8s.io/queue-nmae",
        "kueue.x-k8s.io.queue-name",
        "kueue.k8s.io/queue-name",
        "kueue.sigs.k8s.io/queue",
        "kueue/queue-name",
        "keue.x-k8s.io/queue-name",
        "x-k8s.io/queue-name",
        "queue-name",
        "localQueue",
        "kueue",
    ],
)
def test_key_that_can_mean_a_queue_is_warned_of(key: str) -> None:
    (found,) = queue_label_warnings(labelled(key))
    assert found.startswith(f"metadata.labels[{key}]: names no queue; did you mean")


@pytest.mark.parametrize(
    "key",
    [
        QUEUE_NAME_LABEL,
        "kueue.x-k8s.io/priority-class",
        "kueue.x-k8s.io/pod-group-name",
        "kueue.x-k8s.io/managed",
        "kueue.x-k8s.io/prebuilt-workload-name",
        "volcano.sh/queue-name",
        "yunikorn.apache.org/queue",
        "scheduling.x-k8s.io/queue-name",
        "queue",
        "message-queue",
        "app",
    ],
)
def test_label_of_others_is_not_warned_of(key: str) -> None:
    assert queue_label_warnings(labelled(key)) == []


@pytest.mark.parametrize(
    ("key", "is_warned"),
    [("queue-name", False), ("kueue.x-k8s.io/local-queue-name", False), (MISSPELLED, True)],
)
def test_object_with_a_queue_is_warned_only_of_a_label_that_can_mean_nothing_else(
    key: str, *, is_warned: bool
) -> None:
    """An administrator's default queue adds the label."""
    assert bool(queue_label_warnings(labelled(QUEUE_NAME_LABEL, key))) is is_warned


def test_annotation_with_the_name_of_the_label_is_warned_of() -> None:
    (found,) = queue_label_warnings(labelled(QUEUE_NAME_LABEL, place="annotations"))
    assert found == (
        f"metadata.annotations[{QUEUE_NAME_LABEL}]: an annotation names no queue; use the label"
    )
    with_label = labelled(QUEUE_NAME_LABEL)
    with_label["metadata"]["annotations"] = {QUEUE_NAME_LABEL: "team"}
    assert queue_label_warnings(with_label) == []


@pytest.mark.parametrize("labels", [None, 7, "x", [1], {"a": 1}, {MISSPELLED: [1]}])
def test_labels_of_any_type_are_read(labels: Any) -> None:
    assert len(queue_label_warnings({"metadata": {"labels": labels}})) <= 1


def test_numbers_of_warnings_and_of_compared_keys_are_limited() -> None:
    many = labelled(*(f"kueue.x-k8s.io/queue-name{number}" for number in range(9)))
    assert len(queue_label_warnings(many)) == 3
    others = [f"label-{number}" for number in range(100)]
    assert queue_label_warnings(labelled(*others, MISSPELLED)) == []
    assert queue_label_warnings(labelled("kueue" * 100_000)) == []


def test_few_keys_are_compared_letter_by_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each comparison takes 0.2 ms, and a review of 14 kB can have 600 such keys."""
    compared: list[str] = []

    def is_similar(key: str) -> bool:
        compared.append(key)
        return False

    monkeypatch.setattr(queue_labels, "_is_similar", is_similar)
    names = [f"ueueksnam.{number}" for number in range(100)]
    many = labelled(*names)
    many["metadata"]["annotations"] = dict.fromkeys(names, "a")
    assert queue_label_warnings(many, many) == []
    assert len(compared) == 20


def test_warning_shows_no_control_characters() -> None:
    (found,) = queue_label_warnings(labelled("kueue.x-k8s.io/queue\x1bname"))
    assert found.isprintable()
