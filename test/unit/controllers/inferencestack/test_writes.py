"""Which objects of a stack are adopted, and what is reported about the others."""

from __future__ import annotations

from typing import Any, cast

from cfo.api.inferencestack.names import HELM_RELEASE_NAME, MANAGED_BY, MANAGED_BY_LABEL
from cfo.controllers.inferencestack.children import StackInformers
from cfo.controllers.inferencestack.writes import StackWrites
from cfo.runtime import Client, Object, owner_reference
from cfo.runtime.client import NAME_CONFLICT_RETRY_SECONDS, NameTaken

STACK: Object = {
    "apiVersion": "doublewordai.co/v1alpha1",
    "kind": "InferenceStack",
    "metadata": {"name": "s", "namespace": "ns", "uid": "u"},
}
HELM = {
    "manager": "helm",
    "operation": "Update",
    "fieldsV1": {"f:metadata": {"f:annotations": {f"f:{HELM_RELEASE_NAME}": {}}}},
}


class PatchingClient:
    """Records patches."""

    def __init__(self) -> None:
        self.patches: list[Any] = []

    async def patch(self, _gvk: object, _key: object, patch: Object, *, subresource: str) -> Object:
        assert subresource == ""
        self.patches.append(patch["metadata"])
        return patch


def stack_writes() -> tuple[StackWrites, PatchingClient]:
    client = PatchingClient()
    return StackWrites(cast("Client", client), cast("StackInformers", None), STACK), client


def obj(**metadata: Any) -> Object:
    identity = {"name": "a", "namespace": "ns", "uid": "x", "resourceVersion": "7"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": identity | metadata}


async def test_fields_of_helm_are_taken_over_from_the_object_that_was_checked() -> None:
    writes, client = stack_writes()
    await writes.adopt(obj(managedFields=[HELM]))
    (patch,) = client.patches
    assert (patch["uid"], patch["resourceVersion"]) == ("x", "7")
    assert [entry["operation"] for entry in patch["managedFields"]] == ["Apply"]


async def test_other_objects_are_adopted_without_a_request() -> None:
    writes, client = stack_writes()
    assert await writes.adopt(obj()) == obj()
    assert await writes.adopt(obj(managedFields=[HELM], deletionTimestamp="now")) is None
    assert not client.patches


def test_taken_name_and_lasting_failure_are_in_the_status() -> None:
    writes, _ = stack_writes()
    writes.report_failure("later", is_lasting=False)
    assert writes.is_disturbed
    assert writes.retry_after == 0.0
    writes.report_failure("refused", is_lasting=True)
    writes.report_taken(NameTaken(obj(), STACK), "")
    assert writes.failures == [
        "refused",
        "ConfigMap a already exists and does not belong to this InferenceStack",
    ]
    assert writes.retry_after == NAME_CONFLICT_RETRY_SECONDS


def test_ownership_is_by_controller() -> None:
    writes, _ = stack_writes()
    assert writes.owned(obj())["metadata"]["ownerReferences"] == [owner_reference(STACK)]
    assert writes.owns(writes.owned(obj()))
    assert not writes.owns(obj(labels={MANAGED_BY_LABEL: MANAGED_BY}))
