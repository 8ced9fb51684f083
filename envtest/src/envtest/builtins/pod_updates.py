"""Validation of updates of pods, which may change little."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envtest.apimachinery.field_errors import FieldError, forbidden, invalid, key, required
from envtest.apimachinery.objects import Object
from envtest.builtins.go_rendering import internal_term, internal_terms, pod_spec_difference
from envtest.schema.shaping import copy_json

__all__ = ["APP_ARMOR", "MIRROR", "annotation_change_errors", "pod_change_errors"]

APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
"""The prefix of the annotations with the AppArmor profiles of containers."""
MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a pod that mirrors a static pod of its node."""
_MUTABLE_FIELDS = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
    "previously negative)"
)


def annotation_change_errors(new: Object, old: Object) -> Iterator[FieldError]:
    """Yield the errors of changes to annotations that are immutable."""
    after = new.get("annotations") or {}
    before = old.get("annotations") or {}
    for name in sorted(after.keys() | before.keys()):
        if after.get(name) == before.get(name) or not name.startswith((APP_ARMOR, MIRROR)):
            continue
        verb = "remove or update" if name in before else "add"
        if name.startswith(APP_ARMOR):
            yield forbidden(
                key("metadata.annotations", name), f"may not {verb} AppArmor annotations"
            )
        elif name == MIRROR:
            yield forbidden(
                key("metadata.annotations", name), f"may not {verb} mirror pod annotation"
            )


def pod_change_errors(new: Object, old: Object) -> Iterator[FieldError]:
    """Yield the errors of an update, which may only change images and the deadline, and add tolerations."""
    if len(new.get("containers") or ()) != len(old.get("containers") or ()):
        yield forbidden("spec.containers", "pod updates may not add or remove containers")
        return
    if len(new.get("initContainers") or ()) != len(old.get("initContainers") or ()):
        yield forbidden("spec.initContainers", "pod updates may not add or remove containers")
        return
    for name in ("containers", "initContainers"):
        for position, container in enumerate(new.get(name) or ()):
            path = f"spec.{name}[{position}].image"
            image = container.get("image") or ""
            if not image:
                yield required(path)
            elif image != image.strip():
                yield invalid(path, image, "must not have leading or trailing whitespace")
    before = old.get("activeDeadlineSeconds")
    after = new.get("activeDeadlineSeconds")
    if after is not None:
        if not 0 <= after <= 2**31 - 1:
            yield invalid(
                "spec.activeDeadlineSeconds", after, "must be between 0 and 2147483647, inclusive"
            )
            return
        if before is not None and after > before:
            text = "must be less than or equal to previous value"
            yield invalid("spec.activeDeadlineSeconds", after, text)
            return
    elif before is not None:
        yield invalid(
            "spec.activeDeadlineSeconds",
            None,
            "must not update from a positive integer to nil value",
        )
    for toleration in old.get("tolerations") or ():
        kept = any(_same_toleration(toleration, each) for each in new.get("tolerations") or ())
        if not kept:
            text = "existing toleration can not be modified except its tolerationSeconds"
            yield forbidden("spec.tolerations", text)
            break
    had_gates = {gate.get("name") for gate in old.get("schedulingGates") or ()}
    for position, gate in enumerate(new.get("schedulingGates") or ()):
        if gate.get("name") not in had_gates:
            text = f"only deletion is allowed, but found new scheduling gate '{gate.get('name') or ''}'"
            yield forbidden(f"spec.schedulingGates[{position}].name", text)
    restored = copy_json(new)
    if had_gates:
        yield from _gated_change_errors(restored, old)
    for name in ("containers", "initContainers"):
        for container, previous in zip(restored.get(name) or (), old.get(name) or (), strict=True):
            container["image"] = previous.get("image")
    for name in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        if name in old:
            restored[name] = old[name]
        else:
            restored.pop(name, None)
    if (
        old.get("terminationGracePeriodSeconds", 0) < 0
        and new.get("terminationGracePeriodSeconds") == 1
    ):
        restored["terminationGracePeriodSeconds"] = old["terminationGracePeriodSeconds"]
    if restored != old:
        yield forbidden(
            "spec",
            f"pod updates may not change fields other than {_MUTABLE_FIELDS}\n{pod_spec_difference(old, restored)}",
        )


def _gated_change_errors(new: Object, old: Object) -> Iterator[FieldError]:
    """Yield the errors of the scheduling fields that a pod with scheduling gates may narrow; set them as in ``old``."""
    selector = old.get("nodeSelector") or {}
    if any((new.get("nodeSelector") or {}).get(key) != value for key, value in selector.items()):
        text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield invalid("spec.nodeSelector", new.get("nodeSelector"), text)
    _restore(new, old, "nodeSelector")
    node_affinity = (old.get("affinity") or {}).get("nodeAffinity")
    affinity = new.get("affinity")
    if (affinity or {}).get("nodeAffinity") == node_affinity:
        return
    yield from _node_affinity_errors(
        (affinity or {}).get("nodeAffinity") or {}, node_affinity or {}
    )
    if affinity is None:
        new["affinity"] = {"nodeAffinity": node_affinity}
        return
    _restore(affinity, old.get("affinity") or {}, "nodeAffinity")
    if "affinity" not in old and not affinity:
        del new["affinity"]


def _restore(new: Object, old: Mapping[str, Any], name: str) -> None:
    if name in old:
        new[name] = old[name]
    else:
        new.pop(name, None)


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _node_affinity_errors(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield the errors of a changed node affinity: expressions may be added to required terms; the rest may change."""
    before = (old.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []
    after = (new.get(_REQUIRED) or {}).get("nodeSelectorTerms")
    path = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
    if before and len(before) != len(after or ()):
        yield invalid(
            path,
            internal_terms(after),
            "no additions/deletions to non-empty NodeSelectorTerms list are allowed",
        )
        return
    for position, (term, earlier) in enumerate(zip(after or (), before, strict=False)):
        if not _only_adds(term, earlier):
            text = "only additions are allowed (no mutations or deletions)"
            yield invalid(f"{path}[{position}]", internal_term(term), text)


def _only_adds(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    parts = [
        (new.get(name) or [], old.get(name) or []) for name in ("matchExpressions", "matchFields")
    ]
    # an empty term matches nothing; an expression would widen it
    if not any(old_part for _, old_part in parts):
        return not any(new_part for new_part, _ in parts)
    return all(new_part[: len(old_part)] == old_part for new_part, old_part in parts)


def _same_toleration(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return all(a.get(name) == b.get(name) for name in ("key", "operator", "value", "effect"))
