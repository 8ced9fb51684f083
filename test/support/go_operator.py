"""The Go operator as its recordings show it: what it left behind, and what it sends when it reconciles a cluster."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from cfo.api.raycluster.naming import FIELD_MANAGER
from cfo.runtime.client.client import Client
from cfo.runtime.objects import Object, name_of
from test.support.go_certificates import go_authority
from test.support.raycluster_recordings import as_persisted
from test.support.recordings import RAYCLUSTER, load, observations

__all__ = ["applied", "assert_continuable", "cluster_of", "is_applied", "lives", "recreate"]

PLAYER = "golden-recorder"
"""The user whom the recordings show beside the operator."""


def lives(configuration: str) -> Iterator[tuple[str, list[tuple[str, list[Object]]]]]:
    """Each scenario in which the operator left a cluster with all its objects: its name, and title and objects of each
    such moment."""
    for case in sorted(path.stem for path in (RAYCLUSTER / configuration).glob("*.yaml")):
        found = [
            (title, objects)
            for title, objects in observations(load(f"{configuration}/{case}"))
            if any(obj["kind"] == "RayCluster" for obj in objects)
        ]
        if found:
            yield case, found


def cluster_of(objects: list[Object]) -> Object:
    """The RayCluster among them."""
    (cluster,) = [obj for obj in objects if obj["kind"] == "RayCluster"]
    return cluster


def is_applied(obj: Object) -> bool:
    """Whether the operator applied it (the RayCluster is updated)."""
    return obj["kind"] != "RayCluster" and _entry(obj, FIELD_MANAGER) is not None


def applied(obj: Object, cluster: Object) -> Object:
    """What the operator sent: the fields that it owns, with ``cluster`` (as it is now) for an owner.

    Of Secrets, whose content is only described, something that the description fits.
    """
    sent = _owned_by(FIELD_MANAGER, obj)
    for reference in obj["metadata"].get("ownerReferences", ()):
        sent["metadata"]["ownerReferences"] = [{**reference, "uid": cluster["metadata"]["uid"]}]
    return sent


async def recreate(client: Client, recorded: list[Object]) -> list[Object]:
    """Makes what there was, with the field managers that made it: first what others had, then the operator's part."""
    cluster = await client.create(as_persisted(cluster_of(recorded)))
    made = [cluster]
    operator, player = client.with_field_manager(FIELD_MANAGER), client.with_field_manager(PLAYER)
    for obj in recorded:
        if obj["kind"] == "RayCluster":
            continue
        now = None
        if _entry(obj, PLAYER) is not None:
            now = await player.create(_owned_by(PLAYER, obj))
        if is_applied(obj):
            now = await operator.apply(applied(obj, cluster))
        assert now is not None, f"nobody made {obj['kind']} {name_of(obj)}"
        made.append(now)
    return made


def _entry(obj: Object, manager: str) -> dict[str, Any] | None:
    return next((entry for entry in obj["metadata"].get("managedFields", ()) if entry["manager"] == manager), None)


def _owned_by(manager: str, obj: Object) -> Object:
    """The part of a recorded object that a manager owns, as it can be sent."""
    entry = _entry(obj, manager)
    assert entry is not None
    fields = entry["fieldsV1"]
    part = projected(obj, fields)
    if obj["kind"] == "Secret":
        data = secret_data(obj["data"])
        for name, decode in (("data", False), ("stringData", True)):
            owned = [key[2:] for key in fields.get(f"f:{name}", ()) if key != "."]
            if owned:
                part[name] = {key: b64decode(data[key]).decode() if decode else data[key] for key in owned}
    metadata = {**part.get("metadata", {}), "name": name_of(obj)}
    if "namespace" in obj["metadata"]:
        metadata["namespace"] = obj["metadata"]["namespace"]
    return {**part, "apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata}


def projected(obj: Any, fields: dict[str, Any]) -> Any:
    """The part of ``obj`` that a managedFields entry names: what its manager has applied."""
    children = {key: value for key, value in fields.items() if key != "."}
    if not children or obj is None:
        return obj
    if isinstance(obj, list):
        kept = []
        for key, value in children.items():
            wanted = json.loads(key[2:])
            for item in obj:
                if key.startswith("v:") and item == wanted:
                    kept.append(item)
                elif key.startswith("k:") and all(item.get(name, wanted[name]) == wanted[name] for name in wanted):
                    kept.append(projected(item, value))
        return kept
    return {key[2:]: projected(obj[key[2:]], value) for key, value in children.items() if key[2:] in obj}


def secret_data(described: dict[str, Any]) -> dict[str, str]:
    """Data that a description fits."""
    key, certificate = _authority()

    def content(description: dict[str, Any]) -> bytes:
        if "certificate" in description:
            return certificate
        if "privateKey" in description:
            return key
        if "text" in description:
            return str(description["text"]).encode()
        return b64encode(bytes(range(description["base64OfBytes"]))) if description["bytes"] else b""

    return {name: b64encode(content(description)).decode() for name, description in described.items()}


_PHASES = {
    *("", "Suspended", "Resuming", "Running", "Resetting"),
    *("Suspending", "Succeeded", "Failed", "Terminating"),
}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")
_STATUS = {"phase", "resettingCount", "conditions", "componentStatus"}
_COMPONENT = {"name", "kind", "apiVersion", "podSets", "conditions"}
_CONDITION = {"type", "status", "reason", "message", "lastTransitionTime", "observedGeneration"}


def assert_continuable(wrapper: Object) -> None:
    """That the Go operator's AppWrapper controller (v1.1.2) can go on from this state.

    It looks up each component's status by its index, and some conditions without asking whether they are there: where
    they are not, it crashes. What it is to delete it knows by name from conditions that are not false.
    """
    status = wrapper.get("status") or {}
    phase = status.get("phase", "")
    said = f"{name_of(wrapper)}: {status}"
    assert phase in _PHASES, said
    assert set(status) <= _STATUS, said
    assert 0 <= status.get("resettingCount", 0) < 1 << 31, said
    components = status.get("componentStatus", [])
    conditions = _conditions(status, said)
    if phase and (phase != "Failed" or conditions):
        assert len(components) == len(wrapper["spec"]["components"]), said
    for kind, phases in (("ResourcesDeployed", {"Resuming", "Running", "Succeeded"}), ("Unhealthy", {"Resetting"})):
        assert phase not in phases or kind in conditions, said
    exist = []
    for component in components:
        assert set(component) <= _COMPONENT, said
        assert component["podSets"] is not None, said
        deployed = _conditions(component, said).get("ResourcesDeployed", "False")
        exist.append(deployed)
        assert deployed == "False" or all(component[part] for part in ("name", "kind", "apiVersion")), said
    assert phase != "Running" or set(exist) <= {"True"}, said
    assert conditions.get("ResourcesDeployed") == "True" or set(exist) <= {"False"}, f"left behind: {said}"


def _conditions(status: dict[str, Any], said: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in status.get("conditions", ()):
        assert set(item) <= _CONDITION, said
        assert item["reason"], said
        assert _TIME.fullmatch(item["lastTransitionTime"]), said
        found[item["type"]] = item["status"]
    return found


@cache
def _authority() -> tuple[bytes, bytes]:
    """Key and certificate, as PEM, of an authority as the operator makes it, since yesterday."""
    data = go_authority(begin=datetime.now(UTC) - timedelta(days=1)).data()
    return data["ca.key"], data["ca.crt"]
