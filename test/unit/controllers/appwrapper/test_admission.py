"""Unit tests of the validation gate's pure functions: registrations of the webhook, and digests."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.controllers.appwrapper.admission import (
    ValidatedCondition,
    content_digest,
    is_held,
    obstacle_of,
    registered_since,
    selected_since,
    settings_of,
    validates_creations,
    webhooks_of,
)
from cfo.controllers.appwrapper.transition import decide
from cfo.operator import webhook_configurations
from cfo.runtime.objects.unstructured import Object
from test.support.observations import observe, with_decided_status, wrapper

NAME_LABEL = "kubernetes.io/metadata.name"
OLM_LABEL = "olm.operatorgroup.uid/3f9a"
NOT_SYSTEM = {"key": NAME_LABEL, "operator": "NotIn", "values": ["kube-system"]}


def configuration(**changes: Any) -> Object:
    """Return the validating webhook configuration of the manifests, with changes to the webhook of AppWrappers."""
    (found,) = [
        item for item in webhook_configurations("ns") if item["kind"].startswith("Validating")
    ]
    (hook,) = [hook for hook in found["webhooks"] if "appwrapper" in hook["name"]]
    hook |= changes
    return found


def rule(**changes: Any) -> list[Object]:
    """Return the rules of the webhook of AppWrappers, with changes to the only one."""
    (hook,) = [hook for hook in configuration()["webhooks"] if "appwrapper" in hook["name"]]
    return [{**hook["rules"][0], **changes}]


def test_webhook_of_the_manifests_validates_creations() -> None:
    assert validates_creations(configuration())
    assert AppWrapperConfiguration().require_admission_webhook


@pytest.mark.parametrize(
    "changes",
    [
        {"namespaceSelector": {}, "objectSelector": {}, "matchConditions": []},
        {
            "rules": rule(
                operations=["*"], apiGroups=["*"], apiVersions=["*"], resources=["*"], scope="*"
            )
        },
        {"rules": [*rule(operations=["DELETE"]), *rule()]},
        {
            "clientConfig": {
                "url": "https://127.0.0.1:9443/validate-workload-codeflare-dev-v1beta2-appwrapper"
            }
        },
        {"namespaceSelector": {"matchExpressions": [NOT_SYSTEM]}},
        {"namespaceSelector": {"matchLabels": {NAME_LABEL: "ns"}}},
        {"namespaceSelector": {"matchLabels": {OLM_LABEL: ""}}},
        {
            "namespaceSelector": {
                "matchExpressions": [NOT_SYSTEM, {"key": OLM_LABEL, "operator": "Exists"}]
            }
        },
    ],
)
def test_equivalent_registrations_validate_creations(changes: dict[str, Any]) -> None:
    assert validates_creations(configuration(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"failurePolicy": "Ignore"},
        {"namespaceSelector": {"matchLabels": {"checked": "true"}}},
        {"namespaceSelector": {"matchLabels": {NAME_LABEL: "ns", "checked": "true"}}},
        {
            "namespaceSelector": {
                "matchExpressions": [{"key": OLM_LABEL, "operator": "DoesNotExist"}]
            }
        },
        {
            "namespaceSelector": {
                "matchExpressions": [{"key": OLM_LABEL, "operator": "NotIn", "values": ["x"]}]
            }
        },
        {
            "namespaceSelector": {
                "matchExpressions": [{"key": NAME_LABEL, "operator": "In", "values": ["?"]}]
            }
        },
        {"objectSelector": {"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]}},
        {
            "matchConditions": [
                {"name": "not-bob", "expression": "request.userInfo.username != 'bob'"}
            ]
        },
        {"rules": []},
        {"rules": rule(operations=["UPDATE", "DELETE"])},
        {"rules": rule(apiGroups=["ray.io"])},
        {"rules": rule(apiVersions=["v1"])},
        {"rules": rule(resources=["appwrappers/status"])},
        {"rules": rule(scope="Cluster")},
        {"clientConfig": {"service": {"namespace": "ns", "name": "other", "path": "/allow"}}},
        {"clientConfig": {}},
    ],
)
def test_narrowed_registrations_do_not_validate_creations(changes: dict[str, Any]) -> None:
    assert not validates_creations(configuration(**changes))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"failurePolicy": "Ignore"}, "its failurePolicy is not Fail"),
        (
            {"objectSelector": {"matchLabels": {"a": "b"}}},
            "its objectSelector can exclude objects",
        ),
        ({"matchConditions": [{"name": "a"}]}, "its matchConditions can exclude objects"),
        (
            {"namespaceSelector": {"matchLabels": {"a": "b"}}},
            "its namespaceSelector a=b depends on a label that can",
        ),
        (
            {"rules": []},
            "its rules do not match every CREATE of appwrappers.workload.codeflare.dev",
        ),
    ],
)
def test_obstacle_names_the_setting(changes: dict[str, Any], reason: str) -> None:
    (webhook,) = webhooks_of(configuration(**changes))
    assert obstacle_of(webhook).startswith(reason)
    assert settings_of(configuration(**changes)) != settings_of(configuration())
    assert settings_of(
        configuration(clientConfig=webhook["clientConfig"], timeoutSeconds=3)
    ) == settings_of(configuration())


def namespace(name: str, *entries: Object, **labels: str) -> Object:
    """Return a Namespace with these entries in its managedFields."""
    return {
        "metadata": {
            "name": name,
            "labels": {
                key.replace("__", "/").replace("_", "."): value for key, value in labels.items()
            },
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": list(entries),
        }
    }


def _labelled(time: str, *labels: str) -> Object:
    return {
        "time": time,
        "fieldsV1": {"f:metadata": {"f:labels": {f"f:{label}": {} for label in labels}}},
    }


@pytest.mark.parametrize(
    ("selector", "selected", "since"),
    [
        ({}, namespace("ns"), "2026-01-01"),
        ({"matchExpressions": [NOT_SYSTEM]}, namespace("ns"), "2026-01-01"),
        ({"matchExpressions": [NOT_SYSTEM]}, {"metadata": {"name": "ns"}}, "0001-01-01"),
        ({"matchExpressions": [NOT_SYSTEM]}, namespace("kube-system"), ""),
        ({"matchLabels": {NAME_LABEL: "other"}}, namespace("ns"), ""),
        (
            {"matchLabels": {NAME_LABEL: "other"}},
            namespace("ns", kubernetes_io__metadata_name="other"),
            "",
        ),
        ({"matchLabels": {OLM_LABEL: ""}}, namespace("ns"), ""),
        (
            {"matchLabels": {OLM_LABEL: ""}},
            namespace("ns", olm_operatorgroup_uid__3f9a=""),
            "2026-01-01",
        ),
        (
            {"matchLabels": {OLM_LABEL: ""}},
            namespace(
                "ns",
                _labelled("2026-02-01T00:00:00Z", "other", OLM_LABEL),
                _labelled("2026-03-01T00:00:00Z", "other"),
                {"time": "2026-04-01T00:00:00Z", "fieldsV1": {"f:spec": {}}},
                olm_operatorgroup_uid__3f9a="",
            ),
            "2026-02-01",
        ),
    ],
)
def test_namespace_is_selected_since_its_label_was_set(
    selector: Object, selected: Object, since: str
) -> None:
    (webhook,) = webhooks_of(configuration(namespaceSelector=selector))
    assert not obstacle_of(webhook)
    found = selected_since(webhook, selected)
    assert (str(found.date()) if found else "") == since


def _managed(time: str, manager: str, **owned: Any) -> Object:
    fields = {"f:webhooks": {'k:{"name":"vappwrapper.kb.io"}': {".": {}, "f:name": {}, **owned}}}
    return {"manager": manager, "operation": "Update", "time": time, "fieldsV1": fields}


def test_registration_begins_with_the_last_change_of_its_settings() -> None:
    obj = configuration()
    obj["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    assert registered_since(obj).isoformat() == "2026-01-01T00:00:00+00:00"
    obj["metadata"]["managedFields"] = [
        _managed("2026-01-02T00:00:00Z", "kubectl", **{"f:failurePolicy": {}}),
        _managed("2026-03-01T00:00:00Z", "cfo", **{"f:clientConfig": {"f:caBundle": {}}}),
        {
            "manager": "labels",
            "time": "2026-03-02T00:00:00Z",
            "fieldsV1": {"f:metadata": {"f:labels": {}}},
        },
    ]
    assert registered_since(obj).isoformat() == "2026-01-02T00:00:00+00:00"


def test_digest_covers_what_the_webhook_makes_immutable() -> None:
    obj = wrapper("Pod", "Job")
    digest = content_digest(obj)
    for change in (
        lambda spec: spec["components"][0]["template"]["spec"].update(serviceAccountName="admin"),
        lambda spec: spec["components"].pop(),
        lambda spec: spec["components"].reverse(),
        lambda spec: spec["components"][1].update(podSets=[{"path": "template.spec.template"}]),
    ):
        changed = copy.deepcopy(obj)
        change(changed["spec"])
        assert content_digest(changed) != digest
    queued = copy.deepcopy(obj)
    queued["spec"]["suspend"] = True
    queued["spec"]["components"][0]["podSetInfos"] = [
        {"nodeSelector": {"a": "b"}}
    ]  # set by queues on each admission
    assert content_digest(queued) == digest


@pytest.mark.parametrize("phase", ["", "Suspended", "Resuming", "Resetting"])
def test_components_are_not_created_without_validation(phase: str) -> None:
    held = ValidatedCondition(False, "CreatedWithoutValidation", "It was created ...")
    obj = wrapper("Pod", suspend=False, status={"phase": phase} if phase else None)
    decision = decide(observe(obj, validation=held, objects=[None]))
    assert not decision.create
    assert decision.events[0].reason == "NotValidated"
    stored = with_decided_status(obj, decision)
    assert is_held(stored)
    assert stored["status"]["phase"] in ("Suspended", "Failed")
    again = decide(observe(stored, objects=[None]))
    assert not again.create
    assert "NotValidated" not in [event.reason for event in again.events]
    accepted = decide(
        observe(
            stored, objects=[None], validation=ValidatedCondition(True, "NotRequired", "sha256:0")
        )
    )
    if stored["status"]["phase"] == "Suspended":
        assert accepted.status.phase == "Resuming"


def test_running_appwrappers_continue_without_the_webhook() -> None:
    status = {"phase": "Running", "conditions": [{"type": "ResourcesDeployed", "status": "True"}]}
    obj = wrapper("Pod", suspend=False, status=status)
    assert decide(observe(obj)).status.phase == "Running"
