"""Pod templates as CRDs accept them, such as that of Kueue's Workloads: API servers accept more in pods.

In pods, quantities can be numbers with a fraction, and some lists can have several items with the same key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from cfo.api.reading import elements

_CONTAINER_LISTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "env": {"name": None},
    "ports": {"containerPort": None, "protocol": "TCP"},
}
"""The lists of a container in which an API server accepts several items with the same key in pods.

For each, the fields of the key, with their defaults.
"""

_POD_LISTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "hostAliases": {"ip": None},
    "imagePullSecrets": {"name": ""},
}
"""The same for the lists of a pod."""


_RESOURCE_LISTS: Final[Mapping[str, Mapping[str, Any]]] = {"claims": {"name": None}}
"""The same for the resources of a container or pod: it can use several requests of one claim."""


def for_custom_resource(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a pod as CRDs accept it.

    Numbers with a fraction become text, and of several items with the same key, the last one is kept, which is the one
    that a container gets. ``spec`` is not changed.
    """
    found = _with_unique_items(spec, _POD_LISTS)
    for field in ("containers", "initContainers"):
        if spec.get(field):
            found[field] = [_container(container) for container in spec[field]]
    if spec.get("overhead"):
        found["overhead"] = _texts(spec["overhead"])
    if spec.get("volumes"):
        found["volumes"] = list(map(_volume, spec["volumes"]))
    return _with_text_resources(found)


def _container(container: Mapping[str, Any]) -> dict[str, Any]:
    return _with_text_resources(_with_unique_items(container, _CONTAINER_LISTS))


def _with_unique_items(
    owner: Mapping[str, Any], lists: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return a pod or container whose ``lists`` have one item for each key."""
    found = dict(owner)
    for field, key_fields in lists.items():
        items = elements(found.get(field))
        if items and all(isinstance(item, dict) for item in items):
            found[field] = _unique_items(items, key_fields)
    return found


def _unique_items(
    items: Iterable[Mapping[str, Any]], key_fields: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """Return the last item for each key."""
    by_key: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for item in items:
        key = tuple(str(item.get(field) or default) for field, default in key_fields.items())
        by_key[key] = item
    return list(by_key.values())


def _with_text_resources(owner: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container, a pod or a volume claim with text in its ``resources``."""
    resources = _with_unique_items(owner.get("resources") or {}, _RESOURCE_LISTS)
    for field in ("requests", "limits"):
        if resources.get(field):
            resources[field] = _texts(resources[field])
    return {**owner, "resources": resources} if resources else dict(owner)


def _volume(volume: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(volume)
    if (found.get("emptyDir") or {}).get("sizeLimit") is not None:
        found["emptyDir"] = {
            **found["emptyDir"],
            "sizeLimit": _text(found["emptyDir"]["sizeLimit"]),
        }
    template = (found.get("ephemeral") or {}).get("volumeClaimTemplate") or {}
    if template.get("spec"):
        claim = {**template, "spec": _with_text_resources(template["spec"])}
        found["ephemeral"] = {**found["ephemeral"], "volumeClaimTemplate": claim}
    return found


def _texts(quantities: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _text(quantity) for name, quantity in quantities.items()}


def _text(quantity: Any) -> Any:
    return str(quantity) if isinstance(quantity, float) else quantity
