"""Users are warned of objects that the operator validates, but does not reconcile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cfo.config.model import OperatorConfiguration
from cfo.features import KINDS
from cfo.operator import new_manager, webhook_options
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.objects.unstructured import Object
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
    response, _ = await respond(validators(settings)[path].handler, request)
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
