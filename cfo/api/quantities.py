"""Quantities of pods as text: API servers accept fractions as numbers in pods, and not in CRDs with pod templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def with_text_quantities(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a pod with text in place of each quantity that is a number with a fraction.

    ``spec`` is not changed.
    """
    found = dict(spec)
    for field in ("containers", "initContainers"):
        if spec.get(field):
            found[field] = list(map(_with_text_resources, spec[field]))
    if spec.get("overhead"):
        found["overhead"] = _texts(spec["overhead"])
    if spec.get("volumes"):
        found["volumes"] = list(map(_volume, spec["volumes"]))
    return _with_text_resources(found)


def _with_text_resources(owner: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container, a pod or a volume claim with text in its ``resources``."""
    resources = dict(owner.get("resources") or {})
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
