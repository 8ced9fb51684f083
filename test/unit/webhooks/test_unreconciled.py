"""Users are warned of objects that the operator validates, but does not reconcile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.config.model import OperatorConfiguration
from cfo.features import KINDS
from cfo.operator import new_manager, webhook_options
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.objects.unstructured import Object
from cfo.runtime.process.logged_stacks import LoggedStacks
from cfo.runtime.webhook.admission import AdmissionRequest, AdmissionResponse, Operation
from cfo.runtime.webhook.registration import Webhook
from cfo.runtime.webhook.review_handlers import respond

KINDS_WITH_A_PART = sorted(gvk.kind for kind in KINDS if not kind.shared for gvk in kind.gvks)
LABELS = {"team": "a"}


def validators(settings: Mapping[str, Any]) -> dict[str, Webhook]:
    """Return the validating webhooks of an operator by their resource's first kind."""
    document = {"appwrapper": {"enabled": True}, "flux": {"enabled": True}, **settings}
    config = OperatorConfiguration.from_document(document)
    options = webhook_options(config.webhook, "operators")
    manager = new_manager(ClientConfig(server="https://localhost"), config, "operators", options)
    return {hook.path: hook for hook in manager.webhooks if not hook.mutating}


async def review(
    settings: Mapping[str, Any], kind: str, request: AdmissionRequest
) -> AdmissionResponse:
    (gvk,) = (gvk for feature in KINDS for gvk in feature.gvks if gvk.kind == kind)
    path = f"/validate-{gvk.group.replace('.', '-')}-{gvk.version}-{kind.lower()}"
    request.kind = gvk
    response, _ = await respond(validators(settings)[path].handler, request, LoggedStacks())
    return response


def created(namespace: str, labels: Any = None) -> AdmissionRequest:
    return AdmissionRequest(namespace=namespace, object=labelled(namespace, labels))


def labelled(namespace: str, labels: Any = None) -> Object:
    return {"metadata": {"name": "x", "namespace": namespace, "labels": labels}}


def parts_of_warnings(response: AdmissionResponse) -> list[str]:
    return [text for text in response.warnings if "does not reconcile this" in text]


@pytest.mark.parametrize("kind", KINDS_WITH_A_PART)
async def test_new_object_in_another_namespace_is_warned_of(kind: str) -> None:
    settings = {"watchNamespaces": ["team-a"]}
    (warning,) = parts_of_warnings(await review(settings, kind, created("team-b")))
    assert warning == (
        f"the CodeFlare operator in namespace operators does not reconcile this {kind}, because watchNamespaces does "
        "not contain team-b; it waits unless another CodeFlare operator does"
    )
    assert parts_of_warnings(await review(settings, kind, created("team-a"))) == []


@pytest.mark.parametrize("kind", KINDS_WITH_A_PART)
async def test_new_object_with_other_labels_is_warned_of(kind: str) -> None:
    settings = {"labelSelector": "team=a"}
    (warning,) = parts_of_warnings(await review(settings, kind, created("ns")))
    assert "because its labels do not match labelSelector team=a;" in warning
    assert parts_of_warnings(await review(settings, kind, created("ns", LABELS))) == []


@pytest.mark.parametrize("labels", [["a"], {"team": ["a"]}, {"team": None}, "a"])
async def test_labels_of_a_wrong_type_do_not_match(labels: Any) -> None:
    response = await review({"labelSelector": "team=a"}, "FluxJob", created("ns", labels))
    assert len(parts_of_warnings(response)) == 1


@pytest.mark.parametrize(("before", "after", "warns"), [(LABELS, {}, True), ({}, {}, False)])
async def test_object_that_leaves_the_part_is_warned_of(
    before: Mapping[str, str], after: Mapping[str, str], *, warns: bool
) -> None:
    request = AdmissionRequest(
        operation=Operation.UPDATE,
        namespace="ns",
        object=labelled("ns", after),
        old_object=labelled("ns", before),
    )
    response = await review({"labelSelector": "team=a"}, "FluxJob", request)
    assert bool(parts_of_warnings(response)) is warns


@pytest.mark.parametrize("kind", KINDS_WITH_A_PART)
async def test_only_operator_warns_of_nothing(kind: str) -> None:
    assert parts_of_warnings(await review({}, kind, created("anywhere"))) == []


def conditions(**values: str) -> Object:
    """Return a status with these conditions."""
    return {"conditions": [{"type": kind, "status": value} for kind, value in values.items()]}


def controlled(kind: str) -> Object:
    """Return metadata with a controller of this kind."""
    return {"ownerReferences": [{"kind": kind, "controller": True, "name": "x", "uid": "x"}]}


RESERVED = conditions(QuotaReserved="True")
RELEASED = conditions(QuotaReserved="False")
QUEUED = {"labels": {**LABELS, QUEUE_NAME_LABEL: "lq"}}
SUSPENDED = {"suspend": True}


@pytest.mark.parametrize(
    ("kind", "old", "is_allowed"),
    [
        ("AppWrapper", {"spec": SUSPENDED}, True),
        ("AppWrapper", {"spec": SUSPENDED, "status": RELEASED}, True),
        ("AppWrapper", {"spec": SUSPENDED, "status": RESERVED}, False),
        ("AppWrapper", {"spec": SUSPENDED, "metadata": QUEUED}, False),
        ("AppWrapper", {"spec": {}, "status": RESERVED}, False),
        ("AppWrapper", {"spec": {}}, False),
        ("AppWrapper", {"spec": "text", "status": ["text"]}, False),
        ("FluxJob", {}, True),
        ("FluxJob", {"status": RELEASED}, True),
        ("FluxJob", {"status": RESERVED}, False),
        ("FluxJob", {"status": "text"}, True),
        ("MiniCluster", {}, True),
        ("MiniCluster", {"status": conditions(JobWaitingForResources="True")}, True),
        ("MiniCluster", {"status": conditions(JobMiniClusterReady="True")}, False),
        ("MiniCluster", {"metadata": controlled("FluxJob")}, False),
        ("MiniCluster", {"metadata": controlled("Other")}, True),
        ("MiniCluster", {"metadata": {"ownerReferences": ["text"]}, "status": "text"}, True),
        ("FluxSetup", {"status": conditions(Active="True")}, True),
        ("RayCluster", {"status": {"state": "ready"}}, True),
    ],
)
async def test_object_with_quota_does_not_leave_the_part(
    kind: str, old: Object, *, is_allowed: bool
) -> None:
    """No operator would follow its Workload, or preempt it, afterwards."""
    before = labelled("ns", LABELS)
    before = {**before, **old, "metadata": {**before["metadata"], **old.get("metadata", {})}}
    for labels in ({}, {"team": "b"}):
        assert await is_changeable(kind, before, labels) is is_allowed
    assert await is_changeable(kind, before, {**LABELS, "other": "label"})


@pytest.mark.parametrize("part", [{}, {"team": "b"}], ids=["no part", "another part"])
async def test_appwrapper_gets_no_queue_together_with_another_part(part: Object) -> None:
    """Its Workload of the queue before may still exist, and would seem to be that of the other operator."""
    before = {**labelled("ns", LABELS), "spec": SUSPENDED}
    assert await is_changeable("AppWrapper", before, part)
    assert not await is_changeable("AppWrapper", before, {**part, QUEUE_NAME_LABEL: "lq"})


async def is_changeable(kind: str, before: Object, labels: Mapping[str, str]) -> bool:
    """Return whether the labels of the object that decide who reconciles it may change to ``labels``."""
    after = {**before, "metadata": {**before["metadata"], "labels": labels}}
    request = AdmissionRequest(
        operation=Operation.UPDATE, namespace="ns", object=after, old_object=before
    )
    response = await review({"labelSelector": "team=a,!left"}, kind, request)
    is_refused = f"metadata.labels[team]: Forbidden: immutable while the {kind}" in response.message
    remedy = (
        f"to change these labels, delete the {kind}, and create it again with the change"
        in response.warnings
    )
    assert remedy is is_refused
    return not is_refused


@pytest.mark.parametrize(
    ("selector", "before", "after", "is_refused"),
    [
        ("team=a", {"team": "b"}, {"team": "a"}, False),
        ("team=a", {"team": "b"}, {}, True),
        ("team=a", {"team": "b"}, {"team": "b", "other": "label"}, False),
        ("team!=b", {"team": "b"}, {}, False),
        ("team!=b", {}, {"team": "b"}, True),
        ("team notin (b,c)", {"team": "b"}, {"team": "c"}, True),
        ("!team", {"team": "b"}, {"team": "c"}, True),
        ("", {"team": "b"}, {}, False),
    ],
)
async def test_first_operator_protects_the_parts_of_others(
    selector: str, before: Mapping[str, str], after: Mapping[str, str], *, is_refused: bool
) -> None:
    request = AdmissionRequest(
        operation=Operation.UPDATE,
        namespace="ns",
        object={**labelled("ns", after), "status": RESERVED},
        old_object={**labelled("ns", before), "status": RESERVED},
    )
    response = await review({"labelSelector": selector}, "FluxJob", request)
    assert ("metadata.labels[team]: Forbidden" in response.message) is is_refused
