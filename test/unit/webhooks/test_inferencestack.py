"""The webhook of InferenceStacks: which stacks it validates, and with which defaults."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.config import InferenceStackConfiguration
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.field import FieldErrors
from cfo.runtime.objects.unstructured import Object
from cfo.runtime.webhook.admission import AdmissionRequest
from cfo.webhooks.inferencestack import InferenceStackWebhook, setup
from test.support.config_map_webhooks import OPTIONS
from test.support.inference_stacks import stack

INVALID: dict[str, Any] = {"applications": {"gateway": {}}}


def invalid(version: str) -> Object:
    return {**stack(version=version), "spec": INVALID}


async def create(obj: Object) -> list[str]:
    return await InferenceStackWebhook("v2").validate_create(obj, AdmissionRequest())


async def update(old: Object, obj: Object) -> list[str]:
    return await InferenceStackWebhook("v2").validate_update(old, obj, AdmissionRequest())


@pytest.mark.parametrize("version", ["v2", "", "2.13.0"])
async def test_own_and_unassigned_stacks_are_validated(version: str) -> None:
    with pytest.raises(FieldErrors, match="reserved"):
        await create(invalid(version))


@pytest.mark.parametrize("version", ["v1", "v3", "v12"])
async def test_stacks_of_other_operators_are_not_validated(version: str) -> None:
    assert await create(invalid(version)) == []
    assert await update(invalid("v2"), invalid(version)) == []


async def test_stack_that_moves_to_this_operator_is_validated() -> None:
    with pytest.raises(FieldErrors, match="reserved"):
        await update({**stack(version="v1")}, invalid("v2"))


async def test_finalizers_of_an_invalid_stack_can_be_removed() -> None:
    deleted = invalid("v2")
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert await update(stack(), deleted) == []


async def test_pinned_profile_determines_the_defaults() -> None:
    obj = stack({"a": {"engine": "external", "resources": {"limits": {"memory": 1}}}})
    assert await create(obj) == []
    pinned = {**obj, "status": {"profile": "v2.1"}}
    with pytest.raises(FieldErrors, match=r"externalEngineImage\.repository: Required value"):
        await update({**pinned, "spec": {}}, pinned)


def test_webhooks_select_all_but_the_stacks_of_other_versions() -> None:
    manager = Manager(ClientConfig(server="https://localhost"), ManagerOptions(webhook=OPTIONS))
    setup(manager, InferenceStackConfiguration(operator_version="v2"))
    found = {hook.name: hook for hook in manager.webhooks}
    assert found.keys() == {"vinferencestack.models.takeoff.co", "vinferencestack.doublewordai.co"}
    for hook in found.values():
        (expression,) = hook.object_selector["matchExpressions"]
        assert (expression["key"], expression["operator"]) == ("operatorVersion", "NotIn")
        assert "v1" in expression["values"]
        assert "v2" not in expression["values"]
        assert not hook.mutating
