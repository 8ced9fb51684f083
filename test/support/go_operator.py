"""A fake Go operator, from its recordings: the objects that it leaves, and the requests of its reconciles."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from cfo.api.raycluster.names import FIELD_MANAGER
from cfo.runtime.client.client import Client
from cfo.runtime.objects.unstructured import Object, name_of
from test.support.go_certificates import go_certificate_authority
from test.support.raycluster_recordings import without_server_fields
from test.support.recordings import RAYCLUSTER_RECORDINGS, load_raycluster, observations

__all__ = [
    "assert_go_operator_can_continue",
    "find_ray_cluster",
    "go_apply_request",
    "is_applied_by_go_operator",
    "recorded_lifecycles",
    "recorded_scenarios",
    "recreate",
]

USER_FIELD_MANAGER = "golden-recorder"
"""The field manager of the user in the recordings."""


def recorded_scenarios(configuration: str) -> list[str]:
    """Return the names of all scenarios that are recorded with a configuration."""
    return sorted(path.stem for path in (RAYCLUSTER_RECORDINGS / configuration).glob("*.yaml"))


def recorded_lifecycles(
    configuration: str, scenarios: Iterable[str]
) -> Iterator[tuple[str, list[tuple[str, list[Object]]]]]:
    """Yield those of the scenarios that observe a RayCluster and its objects: name, and their titles and objects."""
    for case in scenarios:
        found = [
            (title, objects)
            for title, objects in observations(load_raycluster(f"{configuration}/{case}"))
            if any(obj["kind"] == "RayCluster" for obj in objects)
        ]
        if found:
            yield case, found


def find_ray_cluster(objects: list[Object]) -> Object:
    """Return the only RayCluster among the objects."""
    (cluster,) = [obj for obj in objects if obj["kind"] == "RayCluster"]
    return cluster


def is_applied_by_go_operator(obj: Object) -> bool:
    """Report whether the Go operator applied the object. (It updates the RayCluster instead.)"""
    return obj["kind"] != "RayCluster" and _managed_fields_entry(obj, FIELD_MANAGER) is not None


def go_apply_request(obj: Object, cluster: Object) -> Object:
    """Return the object that the Go operator applied: the fields that it owns, with the existing ``cluster`` as owner.

    Recordings only describe the content of Secrets; the result contains data that matches the description.
    """
    request = _part_owned_by(FIELD_MANAGER, obj)
    for reference in obj["metadata"].get("ownerReferences", ()):
        request["metadata"]["ownerReferences"] = [{**reference, "uid": cluster["metadata"]["uid"]}]
    return request


async def recreate(client: Client, recorded: list[Object]) -> list[Object]:
    """Create the recorded objects with their field managers: first the user's part, then the Go operator's."""
    cluster = await client.create(without_server_fields(find_ray_cluster(recorded)))
    created = [cluster]
    operator, user = (
        client.with_field_manager(FIELD_MANAGER),
        client.with_field_manager(USER_FIELD_MANAGER),
    )
    for obj in recorded:
        if obj["kind"] == "RayCluster":
            continue
        current = None
        if _managed_fields_entry(obj, USER_FIELD_MANAGER) is not None:
            current = await user.create(_part_owned_by(USER_FIELD_MANAGER, obj))
        if is_applied_by_go_operator(obj):
            current = await operator.apply(go_apply_request(obj, cluster))
        assert current is not None, f"no known field manager created {obj['kind']} {name_of(obj)}"
        created.append(current)
    return created


def _managed_fields_entry(obj: Object, manager: str) -> dict[str, Any] | None:
    return next(
        (
            entry
            for entry in obj["metadata"].get("managedFields", ())
            if entry["manager"] == manager
        ),
        None,
    )


def _part_owned_by(manager: str, obj: Object) -> Object:
    """Return the fields of a recorded object that a manager owns, in a form that can be applied."""
    entry = _managed_fields_entry(obj, manager)
    assert entry is not None
    fields = entry["fieldsV1"]
    part = project(obj, fields)
    if obj["kind"] == "Secret":
        data = secret_data(obj["data"])
        for name, decode in (("data", False), ("stringData", True)):
            owned = [key[2:] for key in fields.get(f"f:{name}", ()) if key != "."]
            if owned:
                part[name] = {
                    key: b64decode(data[key]).decode() if decode else data[key] for key in owned
                }
    metadata = {**part.get("metadata", {}), "name": name_of(obj)}
    if "namespace" in obj["metadata"]:
        metadata["namespace"] = obj["metadata"]["namespace"]
    return {**part, "apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata}


def project(obj: Any, fields: dict[str, Any]) -> Any:
    """Return the part of ``obj`` that ``fieldsV1`` of a managedFields entry selects."""
    children = {key: value for key, value in fields.items() if key != "."}
    if not children or obj is None:
        return obj
    if isinstance(obj, list):
        kept = []
        for key, value in children.items():
            selector = json.loads(key[2:])
            for item in obj:
                if key.startswith("v:") and item == selector:
                    kept.append(item)
                elif key.startswith("k:") and all(
                    item.get(name, selector[name]) == selector[name] for name in selector
                ):
                    kept.append(project(item, value))
        return kept
    return {
        key[2:]: project(obj[key[2:]], value) for key, value in children.items() if key[2:] in obj
    }


def secret_data(described: dict[str, Any]) -> dict[str, str]:
    """Return data of a Secret that matches its description in a recording."""
    key, certificate = _certificate_authority()

    def content(description: dict[str, Any]) -> bytes:
        if "certificate" in description:
            return certificate
        if "privateKey" in description:
            return key
        if "text" in description:
            return str(description["text"]).encode()
        return (
            b64encode(bytes(range(description["base64OfBytes"]))) if description["bytes"] else b""
        )

    return {
        name: b64encode(content(description)).decode() for name, description in described.items()
    }


_PHASES = {
    *("", "Suspended", "Resuming", "Running", "Resetting"),
    *("Suspending", "Succeeded", "Failed", "Terminating"),
}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")
_STATUS_FIELDS = {"phase", "resettingCount", "conditions", "componentStatus"}
_COMPONENT_FIELDS = {"name", "kind", "apiVersion", "podSets", "conditions"}
_CONDITION_FIELDS = {
    "type",
    "status",
    "reason",
    "message",
    "lastTransitionTime",
    "observedGeneration",
}


def assert_go_operator_can_continue(wrapper: Object) -> None:
    """Assert that the Go operator's AppWrapper controller (v1.1.2) can continue from this state.

    It accesses each component's status by index, and some conditions without checking that they exist: it crashes where
    they do not. It deletes the components whose condition ``ResourcesDeployed`` is not ``False``, by the names in their
    status.
    """
    status = wrapper.get("status") or {}
    phase = status.get("phase", "")
    details = f"{name_of(wrapper)}: {status}"
    assert phase in _PHASES, details
    assert set(status) <= _STATUS_FIELDS, details
    assert 0 <= status.get("resettingCount", 0) < 1 << 31, details
    components = status.get("componentStatus", [])
    conditions = _conditions(status, details)
    if phase and (phase != "Failed" or conditions):
        assert len(components) == len(wrapper["spec"]["components"]), details
    for kind, phases in (
        ("ResourcesDeployed", {"Resuming", "Running", "Succeeded"}),
        ("Unhealthy", {"Resetting"}),
    ):
        assert phase not in phases or kind in conditions, details
    deployed_statuses = []
    for component in components:
        assert set(component) <= _COMPONENT_FIELDS, details
        assert component["podSets"] is not None, details
        deployed = _conditions(component, details).get("ResourcesDeployed", "False")
        deployed_statuses.append(deployed)
        assert deployed == "False" or all(
            component[part] for part in ("name", "kind", "apiVersion")
        ), details
    assert phase != "Running" or set(deployed_statuses) <= {"True"}, details
    assert conditions.get("ResourcesDeployed") == "True" or set(deployed_statuses) <= {"False"}, (
        f"components would be left behind: {details}"
    )


def _conditions(status: dict[str, Any], details: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in status.get("conditions", ()):
        assert set(item) <= _CONDITION_FIELDS, details
        assert item["reason"], details
        assert _TIME.fullmatch(item["lastTransitionTime"]), details
        found[item["type"]] = item["status"]
    return found


@cache
def _certificate_authority() -> tuple[bytes, bytes]:
    """Return key and certificate, as PEM, of a CA as the Go operator creates it; valid since yesterday."""
    data = go_certificate_authority(begin=datetime.now(UTC) - timedelta(days=1)).data()
    return data["ca.key"], data["ca.crt"]
