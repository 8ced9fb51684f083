"""The webhook of InferenceStacks: which stacks it validates, and with which defaults."""

from __future__ import annotations

from itertools import chain
from typing import Any, cast
from unittest.mock import Mock

import orjson
import pytest

from cfo.config.model import InferenceStackConfiguration
from cfo.runtime import GVK, Entry
from cfo.runtime.cache import IndexFunction
from cfo.runtime.cache.entry import EntryDecoder
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects import LEASE, new_object
from cfo.runtime.objects.field import FieldErrors
from cfo.runtime.objects.unstructured import Object
from cfo.runtime.webhook.admission import AdmissionRequest
from cfo.webhooks.inferencestack import InferenceStackWebhook, OtherMajors, setup
from test.support.config_map_webhooks import OPTIONS
from test.support.inference_stacks import stack

INVALID: dict[str, Any] = {"applications": {"gateway": {}}}


def invalid(version: str) -> Object:
    return {**stack(version=version), "spec": INVALID}


def webhook(**settings: Any) -> InferenceStackWebhook:
    """Return the webhook of an operator of v2, which does not check permissions."""
    settings = {"operatorVersion": "v2", "userRBACAdmissionCheck": False, **settings}
    manager = Manager(ClientConfig(server="https://localhost"), ManagerOptions(webhook=OPTIONS))
    return setup(manager, InferenceStackConfiguration.from_document(settings))


async def create(obj: Object) -> list[str]:
    return await webhook().validate_create(obj, AdmissionRequest())


async def update(old: Object, obj: Object) -> list[str]:
    return await webhook().validate_update(old, obj, AdmissionRequest())


@pytest.mark.parametrize("version", ["v2", "", "2.13.0"])
async def test_own_and_unassigned_stacks_are_validated(version: str) -> None:
    with pytest.raises(FieldErrors, match="reserved"):
        await create(invalid(version))


@pytest.mark.parametrize("version", ["v1", "v3", "v12"])
async def test_stacks_of_other_operators_are_not_validated(version: str) -> None:
    assert await create(invalid(version)) == []
    assert await update(invalid("v2"), invalid(version)) == []


@pytest.mark.parametrize(
    ("version", "enabled", "is_warned"),
    [("v2", False, True), ("v2", True, False), ("", False, False)],
)
async def test_creation_of_an_own_stack_warns_while_stacks_are_disabled(
    version: str, *, enabled: bool, is_warned: bool
) -> None:
    request = AdmissionRequest()
    await webhook(enabled=enabled).validate_create(stack(version=version), request)
    assert (
        any("its configuration disables them" in warning for warning in request.warnings)
        is is_warned
    )


class Leases:
    """The informer of Leases: the holders by name and namespace."""

    has_synced = True

    def __init__(self, leases: dict[str, str]) -> None:
        self._entries = []
        for name, holder in leases.items():
            lease = new_object(LEASE, name, "ns", spec={"holderIdentity": holder})
            self._entries.append(EntryDecoder(LEASE).decode(orjson.dumps(lease)))
        self._index: IndexFunction = lambda entry: ()

    @property
    def reader(self) -> Leases:
        return self

    def informer(self, gvk: GVK, **selection: Any) -> Leases:
        return self

    def add_index(self, name: str, function: IndexFunction) -> Leases:
        self._index = function
        return self

    def entries(self, index: tuple[str, str]) -> list[Entry]:
        return [entry for entry in self._entries if index[1] in self._index(entry)]


@pytest.mark.parametrize(
    ("version", "is_warned"),
    [("v9", True), ("v3", True), ("v12", True), ("v1", False), ("v2", False)],
)
async def test_stack_of_a_version_that_no_operator_seems_to_have_causes_a_warning(
    version: str, *, is_warned: bool
) -> None:
    leases = Leases(
        {
            "inference-stack-operator-v1": "pod_1",
            "inference-stack-operator-v3": "",  # released
            "inference-stack-operator-v12": "pod_2",  # no operator can have it
        }
    )
    validator = webhook()
    request = AdmissionRequest()
    validators = (validator, OtherMajors(validator))

    async def warnings() -> list[str]:
        found = [await each.validate_create(stack(version=version), request) for each in validators]
        warnings = chain.from_iterable(found)
        return [warning for warning in warnings if "seems to run" in warning]

    assert await warnings() == [], "the Leases are not known yet"
    validator.running.read(cast("Manager", Mock(cache=leases)))
    found = await warnings()
    assert bool(found) is is_warned
    for warning in found:
        assert warning == (
            f"metadata.labels[operatorVersion]: no operator of version {version} seems to run, so the InferenceStack "
            "waits for one; this operator has version v2"
        )


@pytest.mark.parametrize(
    ("before", "after", "is_warned"),
    [
        ({"version": "v2"}, {"version": "v9"}, True),
        ({"version": "v1"}, {"version": "v9"}, True),
        ({"version": "v2"}, {"version": "v12"}, True),
        ({"version": "v9"}, {"version": "v9", "suspend": True}, True),
        ({"version": "v9"}, {"version": "v9"}, False),  # such as a change of its annotations
        ({"version": "v2"}, {"version": "v1"}, False),
    ],
)
async def test_update_of_a_stack_that_waits_for_an_operator_causes_a_warning(
    before: dict[str, Any], after: dict[str, Any], *, is_warned: bool
) -> None:
    validator = webhook()
    leases = Leases({"inference-stack-operator-v1": "pod_1"})
    validator.running.read(cast("Manager", Mock(cache=leases)))
    warnings = [
        warning
        for each in (validator, OtherMajors(validator))
        for warning in await each.validate_update(
            stack(**before), stack(**after), AdmissionRequest()
        )
    ]
    found = [warning for warning in warnings if "so the InferenceStack waits for one" in warning]
    assert bool(found) is is_warned
    assert len(set(found)) <= 1, "API servers pass on each warning once"


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


@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_unlabelled_stacks_need_no_image_that_another_major_version_has(version: str) -> None:
    obj = stack({"a": {"engine": "external"}}, version="")
    assert await webhook(operatorVersion=version).validate_create(obj, AdmissionRequest()), (
        "a warning about the label"
    )
    obj["status"] = {"profile": "v0.2"}
    assert await webhook(operatorVersion=version).validate_update(obj, obj, AdmissionRequest())
    with pytest.raises(FieldErrors, match="reserved"):
        await webhook(operatorVersion=version).validate_create(invalid(""), AdmissionRequest())
    labelled = stack({"a": {"engine": "external"}}, version="v1")
    with pytest.raises(FieldErrors, match=r"externalEngineImage\.repository: Required value"):
        await webhook(operatorVersion="v1").validate_create(labelled, AdmissionRequest())


def triggered(
    kind: str | None, address: str = "https://example.com", version: str = "v2", **scaling: Any
) -> Object:
    """Return a stack whose application has a trigger of KEDA with this kind of authentication."""
    reference = {"name": "shared"} if kind is None else {"name": "shared", "kind": kind}
    trigger = {"type": "metrics-api", "metadata": {"url": address}, "authenticationRef": reference}
    section = {
        "readerConfig": {"modelName": "org/model"},
        "scaling": {"enabled": True, "spec": {"triggers": [trigger]}, **scaling},
    }
    return stack({"a": {**section, "resources": {"limits": {"memory": "1Gi"}}}}, version=version)


async def test_cluster_trigger_authentications_need_a_setting() -> None:
    cluster, changed = (
        triggered("ClusterTriggerAuthentication"),
        triggered("ClusterTriggerAuthentication", "https://e"),
    )
    for allowed in (triggered(None), triggered("TriggerAuthentication"), triggered("")):
        assert await create(allowed) == []
    unused = triggered("ClusterTriggerAuthentication", enabled=False)
    other = triggered("ClusterTriggerAuthentication", version="v1")
    assert await create(unused) == []
    assert await update(cluster, cluster) == [], "a stack from before this rule can be changed"
    for old in (None, triggered(None), unused, other, changed):
        with pytest.raises(
            FieldErrors,
            match=r"triggers\[0\].authenticationRef.kind: Forbidden: must be TriggerAuth",
        ):
            await (create(cluster) if old is None else update(old, cluster))
    for odd in ("clustertriggerauthentication", "Other"):
        with pytest.raises(FieldErrors, match=r"authenticationRef\.kind"):
            await create(triggered(odd))
    template = triggered("ClusterTriggerAuthentication")["spec"]["applications"]["a"]
    with pytest.raises(FieldErrors, match=r"authenticationRef\.kind"):
        await create(stack({"a": {}}, applicationTemplate=template))
    allowing = webhook(allowClusterTriggerAuthentication=True)
    assert await allowing.validate_create(cluster, AdmissionRequest()) == []


def test_webhooks_select_all_but_the_stacks_of_other_versions() -> None:
    manager = Manager(ClientConfig(server="https://localhost"), ManagerOptions(webhook=OPTIONS))
    setup(manager, InferenceStackConfiguration(operator_version="v2"))
    found = {hook.name: hook for hook in manager.webhooks}
    groups = ("models.takeoff.co", "doublewordai.co")
    others = [found.pop(f"vinferencestack-others.{group}") for group in groups]
    for hook in others:
        (expression,) = hook.object_selector["matchExpressions"]
        assert (expression["operator"], hook.failure_policy) == ("In", "Ignore")
        assert {"v1", "v2", "v3"}.intersection(expression["values"]) == {"v1", "v3"}
    assert found.keys() == {f"vinferencestack.{group}" for group in groups}
    for hook in found.values():
        (expression,) = hook.object_selector["matchExpressions"]
        assert (expression["key"], expression["operator"]) == ("operatorVersion", "NotIn")
        assert "v1" in expression["values"]
        assert "v2" not in expression["values"]
        assert not hook.mutating


async def test_queue_of_a_stack_that_runs_is_not_changed_by_a_label() -> None:
    def queued(queue: str) -> Object:
        obj = stack({"a": {}})
        obj["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = queue
        obj["status"] = {"conditions": [{"type": "Deployed", "status": "True"}]}
        return obj

    with pytest.raises(FieldErrors, match=r"queue-name\]: Forbidden: immutable while the stack"):
        await update(queued("team"), queued("other"))
    await update(queued("team"), queued("team"))


@pytest.mark.parametrize("value", [1.5, "x", [1], {"conditions": 7}, {"conditions": [None]}])
@pytest.mark.parametrize("field", ["status", "spec"])
async def test_old_object_of_an_update_can_have_fields_of_any_type(field: str, value: Any) -> None:
    """Any pod can call the webhook, with objects that no API server has validated."""
    obj = stack({"a": {}})
    await update({**obj, field: value}, obj)


async def test_stack_in_an_appwrapper_cannot_have_a_queue() -> None:
    obj = stack({"a": {}})
    request = AdmissionRequest()
    assert await webhook().submission_errors(obj, request) == []
    obj["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "team"
    (error,) = await webhook().submission_errors(obj, request)
    assert "the AppWrapper has the queue" in str(error)
