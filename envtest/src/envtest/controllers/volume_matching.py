"""Which volume a claim gets, and the phases of both: the rules of the volume binder, as pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from envtest.apimachinery.label_selectors import matches_label_selector
from envtest.apimachinery.objects import Object, annotations_of, labels_of
from envtest.schema.quantity import parse_quantity

__all__ = [
    "BIND_COMPLETED",
    "BOUND_BY",
    "PROVISIONED_BY",
    "best_volume",
    "class_of",
    "is_bound_to",
    "volume_phase",
]

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY: Final = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"

_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"


def class_of(obj: Object) -> str:
    """Return the name of the storage class of a claim or a volume, or an empty string."""
    name: str = annotations_of(obj).get(_BETA_CLASS) or obj["spec"].get("storageClassName") or ""
    return name


def _size(quantities: Mapping[str, str] | None) -> Any:
    return parse_quantity((quantities or {}).get("storage", "0")).value


def is_bound_to(volume: Object, claim: Object) -> bool:
    """Return whether the claim reference of a volume names this claim; one without a uid is a reservation."""
    reference = volume["spec"].get("claimRef") or {}
    metadata = claim["metadata"]
    names = (reference.get("namespace"), reference.get("name"))
    return names == (metadata["namespace"], metadata["name"]) and reference.get("uid") in (
        None,
        "",
        metadata["uid"],
    )


def _fits(volume: Object, claim: Object) -> bool:
    spec = volume["spec"]
    wanted = claim["spec"]
    requested = _size((wanted.get("resources") or {}).get("requests"))
    return (
        not volume["metadata"].get("deletionTimestamp")
        and _size(spec.get("capacity")) >= requested
        and (spec.get("volumeMode") or "Filesystem") == (wanted.get("volumeMode") or "Filesystem")
        and {*(wanted.get("accessModes") or ())} <= {*(spec.get("accessModes") or ())}
        and (spec.get("volumeAttributesClassName") or "")
        == (wanted.get("volumeAttributesClassName") or "")
    )


def best_volume(claim: Object, volumes: Iterable[Object]) -> Object | None:
    """Return the volume for a claim: one that is reserved for it, or the smallest that fits."""
    selector = claim["spec"].get("selector")
    candidates = []
    for volume in volumes:
        if not _fits(volume, claim):
            continue
        if volume["spec"].get("claimRef"):
            if is_bound_to(volume, claim):
                return volume
            continue
        if (volume.get("status") or {}).get("phase") not in ("Available", "Pending", None):
            continue
        if class_of(volume) != class_of(claim):
            continue
        if selector is not None and not matches_label_selector(selector, labels_of(volume)):
            continue
        candidates.append(volume)
    return min(
        candidates,
        key=lambda each: (_size(each["spec"].get("capacity")), each["metadata"]["name"]),
        default=None,
    )


def volume_phase(volume: Object, claim: Object | None) -> str:
    """Return the phase of a volume whose claim reference names ``claim``, or a claim that does not exist."""
    reference = volume["spec"].get("claimRef")
    if not reference:
        return "Available"
    if claim is None or (reference.get("uid") and reference["uid"] != claim["metadata"]["uid"]):
        return "Released" if reference.get("uid") else "Available"
    is_mutual = claim["spec"].get("volumeName") == volume["metadata"]["name"] and reference.get(
        "uid"
    )
    return "Bound" if is_mutual else "Available"
