"""The validators of Flux objects while the configuration disables their controllers, and with fields of any type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import orjson
import pytest

from cfo.api.flux.models.minicluster import minicluster_crd
from cfo.api.flux.models.parts import Commands
from cfo.api.flux.models.queue import fluxjob_crd, fluxsetup_crd
from cfo.api.flux.names import COMMANDS, FLUX_JOB, FLUX_SETUP, MINICLUSTER, SUSPEND_ANNOTATION
from cfo.runtime.cache.entry import Entry, EntryDecoder
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.field import FieldErrors
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object
from cfo.runtime.webhook.admission import AdmissionRequest
from cfo.webhooks import flux
from test.support.config_map_webhooks import OPTIONS
from test.support.sweeps import sampled

VALID = {
    MINICLUSTER: {"containers": [{"image": "a"}]},
    FLUX_JOB: {"command": "true", "image": "a"},
    FLUX_SETUP: {},
}


@pytest.mark.parametrize("kind", VALID)
@pytest.mark.parametrize("is_served", [True, False])
async def test_creation_warns_while_the_configuration_disables_flux(
    kind: GVK, *, is_served: bool
) -> None:
    manager = Manager(ClientConfig(server="https://localhost"), ManagerOptions(webhook=OPTIONS))
    validators = flux.setup(manager, [], check_permissions=False, is_served=is_served)
    obj = {
        "apiVersion": "a/v1",
        "kind": kind.kind,
        "metadata": {"name": "a", "namespace": "b"},
        "spec": VALID[kind],
    }
    request = AdmissionRequest()
    await validators[kind].validate_create(obj, request)
    assert (
        any("its configuration disables them" in warning for warning in request.warnings)
        is not is_served
    )


def example(schema: Object) -> Any:
    """Return a value of the right type, with all fields of the schema."""
    kind = schema.get("type")
    if kind == "array":
        return [example(schema["items"])]
    if kind == "object":
        values = schema.get("additionalProperties")
        if isinstance(values, dict):
            return {"a": example(values)}
        return {name: example(field) for name, field in schema["properties"].items()}
    scalars = {"string": "a", "integer": 1, "boolean": True}
    return scalars.get(kind or "string", "1")


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each list or object in ``value`` with each of its indexes or keys."""
    if isinstance(value, dict):
        keys: list[Any] = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    else:
        return
    for key in keys:
        yield value, key
        yield from places(value[key])


OTHER_TYPES: tuple[Any, ...] = (None, "x", 7, 1.5, [None], {"a": None}, {"a": [1]})
QUEUE = {"kueue.x-k8s.io/queue-name": "team"}


@pytest.mark.parametrize(
    ("kind", "crd"),
    [(MINICLUSTER, minicluster_crd), (FLUX_JOB, fluxjob_crd), (FLUX_SETUP, fluxsetup_crd)],
)
@pytest.mark.sweep
async def test_field_of_another_type_is_an_error_and_not_an_exception(
    kind: GVK, crd: Callable[[], Object]
) -> None:
    """Any pod can call the webhook, with objects that no API server has validated.

    Each value is in one creation and one update of each field; each field has all updates.
    """
    manager = Manager(ClientConfig(server="https://localhost"), ManagerOptions(webhook=OPTIONS))
    validator = flux.setup(manager, [], check_permissions=False)[kind]
    schema = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    metadata = {"name": "a", "namespace": "b"}
    obj: Object = {"metadata": metadata, "spec": example(schema)}
    valid: Object = {"metadata": metadata, "spec": VALID[kind]}
    request = AdmissionRequest()
    obj["status"] = {"conditions": [{"type": "QuotaReserved", "status": "True"}]}
    changed = [(obj, "spec"), (obj, "status"), *places(obj["spec"]), *places(obj["status"])]
    for container, key in sampled(changed):
        before = container[key]
        for number, value in enumerate(OTHER_TYPES):
            container[key] = value
            other_queue = {**obj, "metadata": {**metadata, "labels": QUEUE}}
            updates = [(valid, obj), (obj, valid), (obj, other_queue)]
            old, new = updates[number % len(updates)]
            with suppress(FieldErrors):
                await validator.validate_create(obj, request)
            with suppress(FieldErrors):
                await validator.validate_update(old, new, request)
        container[key] = before


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("x", "spec: Invalid value: must be an object"),
        ({"containers": [None]}, "spec.containers[0]: Invalid value: must be an object"),
        (
            {"containers": [{"environment": {"A": 1}}]},
            "spec.containers[0].environment[A]: Invalid value: must be a string",
        ),
        ({"size": "1"}, "spec.size: Invalid value: must be an integer"),
    ],
)
async def test_error_names_the_field_and_the_type(spec: Any, message: str) -> None:
    manager = Manager(ClientConfig(server="https://localhost"), ManagerOptions(webhook=OPTIONS))
    validator = flux.setup(manager, [], check_permissions=False)[MINICLUSTER]
    obj = {"metadata": {"name": "a", "namespace": "b"}, "spec": spec}
    with pytest.raises(FieldErrors) as raised:
        await validator.validate_create(obj, AdmissionRequest())
    assert str(raised.value) == message


async def test_types_of_too_many_values_are_not_checked() -> None:
    manager = Manager(ClientConfig(server="https://localhost"), ManagerOptions(webhook=OPTIONS))
    validator = flux.setup(manager, [], check_permissions=False)[MINICLUSTER]
    obj = {"metadata": {"name": "a", "namespace": "b"}, "spec": {"containers": [None] * 20_000}}
    with pytest.raises(FieldErrors, match=r"spec: .*must have at most 10000 values"):
        await validator.validate_create(obj, AdmissionRequest())


@pytest.mark.parametrize("kind", VALID)
async def test_update_of_an_object_that_was_too_large_reads_no_field(kind: GVK) -> None:
    manager = Manager(ClientConfig(server="https://localhost"), ManagerOptions(webhook=OPTIONS))
    validator = flux.setup(manager, [], check_permissions=False)[kind]
    fields = (
        "containers",
        "flux",
        "jobLabels",
        "kueue",
        "mini-cluster",
        "pod",
        "services",
        "template",
    )
    large = {**dict.fromkeys(fields, 7), "other": [None] * 20_000}
    larger = {**dict.fromkeys(fields, "x"), "other": [None] * 30_000}
    metadata: Object = {"name": "a", "namespace": "b"}
    status = {"conditions": [{"type": "QuotaReserved", "status": "True"}]}
    obj: Object = {"metadata": metadata, "spec": large, "status": status}
    request = AdmissionRequest()
    assert await validator.validate_update(obj, {**obj, "spec": larger}, request) == []
    other_queue = {**obj, "metadata": {**metadata, "labels": QUEUE}}
    assert await validator.validate_update(obj, other_queue, request) == []
    await validator.validate_update(obj, {**obj, "spec": VALID[kind]}, request)
    with pytest.raises(FieldErrors, match="at most 10000 values"):
        await validator.validate_update({**obj, "spec": VALID[kind]}, obj, request)


def test_each_field_of_commands_has_a_type() -> None:
    assert set(Commands.model_json_schema(by_alias=True)["properties"]) == set(COMMANDS)


def minicluster(labels: dict[str, str] | None = None, **spec: Any) -> Object:
    return {
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "metadata": {"name": "a", "namespace": "b", "labels": labels or {}},
        "spec": {"containers": [{"image": "a"}], "size": 1, **spec},
    }


@pytest.mark.parametrize(
    ("labels", "spec", "warned"),
    [
        ({}, {"jobLabels": QUEUE}, False),
        (QUEUE, {"jobLabels": QUEUE}, False),
        (QUEUE, {}, True),
        (QUEUE, {"jobLabels": {"kueue.x-k8s.io/queue-name": "other"}}, True),
    ],
)
async def test_queue_label_that_kueue_does_not_read_causes_a_warning(
    labels: dict[str, str], spec: Object, *, warned: bool
) -> None:
    """Kueue reads the label of the Job, which is in ``jobLabels``."""
    validator = flux.MiniClusterValidator()
    obj = minicluster(labels, **spec)
    unlabelled = minicluster({}, **spec)
    for found in (
        await validator.validate_create(obj, AdmissionRequest()),
        await validator.validate_update(unlabelled, obj, AdmissionRequest()),
    ):
        assert any("has no effect; Kueue admits the Job" in text for text in found) is warned


@pytest.mark.parametrize(
    ("condition", "change", "paths"),
    [
        ("JobRunning", {"containers": [{"image": "b"}], "tasks": 2}, "spec.containers, spec.tasks"),
        ("JobFinished", {"tasks": 2}, "spec.tasks"),
        ("JobRunning", {"size": 2, "suspend": True, "interactive": False}, ""),
        ("JobWaitingForResources", {"tasks": 2}, ""),
        ("", {"tasks": 2}, ""),
    ],
)
async def test_change_that_a_started_job_does_not_follow_causes_a_warning(
    condition: str, change: Object, paths: str
) -> None:
    old, new = minicluster(), minicluster(**change)
    if condition:
        old["status"] = {"conditions": [{"type": condition, "status": "True"}]}
    found = await flux.MiniClusterValidator().validate_update(old, new, AdmissionRequest())
    assert len(found) == bool(paths)
    assert not paths or found[0].startswith(f"{paths}: the Job of the MiniCluster has started")


OF_FLUX_JOB: Object = {"kind": "FluxJob", "name": "a", "uid": "u", "controller": True}


@pytest.mark.parametrize(
    ("condition", "change", "owners", "warning"),
    [
        ("JobRunning", {"maxSize": 4}, [], "so a maximum above it has no effect until you delete"),
        ("JobRunning", {"maxSize": 4}, [OF_FLUX_JOB], "has no effect; create a new FluxJob with"),
        ("JobRunning", {"tasks": 2}, [OF_FLUX_JOB], "has no effect; create a new FluxJob with"),
        ("JobRunning", {"maxSize": 3}, [], ""),
        ("JobWaitingForResources", {"maxSize": 4}, [], ""),
        ("JobFinished", {"size": 2}, [], "spec.size: the MiniCluster has ended, so the change"),
    ],
)
async def test_size_that_a_started_job_cannot_have_causes_a_warning(
    condition: str, change: Object, owners: list[Object], warning: str
) -> None:
    old = minicluster()
    old["status"] = {
        "conditions": [{"type": condition, "status": "True"}],
        "maximumSize": 3,
    }
    new = minicluster(**change)
    new["metadata"]["ownerReferences"] = owners
    found = await flux.MiniClusterValidator().validate_update(old, new, AdmissionRequest())
    assert len(found) == bool(warning)
    assert warning in "".join(found)


@pytest.mark.parametrize(
    ("condition", "change", "is_stuck"),
    [
        ("JobWaitingForResources", {}, True),
        ("JobWaitingForResources", {"suspend": True}, False),
        ("JobWaitingForResources", {"suspend": False}, False),
        ("JobWaitingForResources", {"jobLabels": {"kueue.x-k8s.io/queue-name": "b"}}, False),
        ("", {}, False),
    ],
)
async def test_removed_queue_label_after_which_nothing_starts_the_job_causes_a_warning(
    condition: str, change: Object, *, is_stuck: bool
) -> None:
    old, new = minicluster(jobLabels=QUEUE), minicluster(**change)
    if condition:
        old["status"] = {"conditions": [{"type": condition, "status": "True"}]}
    found = await flux.MiniClusterValidator().validate_update(old, new, AdmissionRequest())
    assert (
        any("nothing resumes it: set spec.suspend to false" in text for text in found) is is_stuck
    )


def entry_of_job(*conditions: str, uid: str = "job") -> Entry:
    """Return a FluxJob; the ``conditions`` are true."""
    metadata = {"name": "a", "namespace": "b", "uid": uid, "resourceVersion": "1"}
    met = [{"type": kind, "status": "True"} for kind in conditions]
    obj = {"metadata": metadata, "status": {"conditions": met}}
    return EntryDecoder(FLUX_JOB).decode(orjson.dumps(obj))


def owned_minicluster(**spec: Any) -> Object:
    """Return a MiniCluster that the FluxJob of :func:`entry_of_job` controls."""
    obj = minicluster(**spec)
    owner = {"kind": "FluxJob", "name": "a", "uid": "job", "controller": True}
    obj["metadata"]["ownerReferences"] = [owner]
    return obj


@pytest.mark.parametrize("by_annotation", [False, True])
@pytest.mark.parametrize(
    ("job", "is_refused"),
    [
        (entry_of_job(), True),
        (entry_of_job("QuotaReserved", "Evicted"), True),
        (entry_of_job("QuotaReserved"), False),
        (entry_of_job(uid="of an earlier one"), False),
        (None, False),
    ],
)
async def test_only_controllers_resume_the_minicluster_of_a_job_without_quota(
    job: Entry | None, *, is_refused: bool, by_annotation: bool
) -> None:
    """Its pods would take the quota of others."""
    validator = flux.MiniClusterValidator(job_of={NamespacedName("b", "a"): job}.get)
    resumed = owned_minicluster()
    suspended = owned_minicluster(suspend=True)
    if by_annotation:  # the CRD of the Go operator has no such field
        suspended = owned_minicluster()
        suspended["metadata"]["annotations"] = {SUSPEND_ANNOTATION: "true"}
    request = AdmissionRequest(name="a", namespace="b")
    message = "spec.suspend: Forbidden: must be true while FluxJob a"
    for call in (
        lambda: validator.validate_update(suspended, resumed, request),
        lambda: validator.validate_create(resumed, request),
    ):
        if is_refused:
            with pytest.raises(FieldErrors, match=message):
                await call()
        else:
            await call()
    await validator.validate_create(suspended, request)
    await validator.validate_update(resumed, suspended, request)
    await validator.validate_update(resumed, owned_minicluster(tasks=2), request)
    await validator.validate_create(owned_minicluster(jobLabels=QUEUE), request)
    await validator.validate_update(suspended, minicluster(), request)
    controller = AdmissionRequest(name="a", namespace="b", is_from_controller=True)
    await validator.validate_update(suspended, resumed, controller)
