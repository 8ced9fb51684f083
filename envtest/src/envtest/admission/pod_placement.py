"""Plugins that complete pods from RuntimeClasses and Nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from envtest.admission.chain import StorePlugin
from envtest.admission.namespace_lifecycle import rejection
from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object
from envtest.registry.resource import RequestContext
from envtest.schema.quantity import parse_quantity

__all__ = ["PodTopologyLabels", "RuntimeClass"]

_PODS: Final = GroupResource("", "pods")
_NODES: Final = GroupResource("", "nodes")
_RUNTIME_CLASSES: Final = GroupResource("node.k8s.io", "runtimeclasses")
_TOPOLOGY_LABELS: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


class RuntimeClass(StorePlugin):
    """Adds the overhead, node selector and tolerations of a pod's RuntimeClass, which must exist."""

    resources = (_PODS,)

    def admit(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Complete a new pod. Raises StatusError (403) for an unknown class or a conflict with the pod."""
        if ctx.subresource or ctx.operation != "CREATE":
            return
        spec = obj.setdefault("spec", {})
        runtime_class = self._class_of(ctx, obj)
        if runtime_class is None:
            return
        fixed = (runtime_class.get("overhead") or {}).get("podFixed")
        if fixed:
            if spec.get("overhead") and not _equal(spec["overhead"], fixed):
                raise rejection(
                    ctx,
                    obj,
                    "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
                )
            spec["overhead"] = dict(fixed)
        scheduling = runtime_class.get("scheduling") or {}
        selector = spec.get("nodeSelector") or {}
        for name, value in (scheduling.get("nodeSelector") or {}).items():
            if selector.get(name, value) != value:
                raise rejection(
                    ctx,
                    obj,
                    f"conflict: runtimeClass.scheduling.nodeSelector[{name}] = {value}; "
                    f"pod.spec.nodeSelector[{name}] = {selector[name]}",
                )
            selector = {**selector, name: value}
            spec["nodeSelector"] = selector
        tolerations = spec.get("tolerations") or []
        wanted = scheduling.get("tolerations") or ()
        missing = [each for each in wanted if not _is_covered(each, tolerations)]
        if missing:
            spec["tolerations"] = [*tolerations, *missing]

    def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Check that a pod without a RuntimeClass has no overhead. Raises StatusError (403)."""
        if ctx.subresource or ctx.operation != "CREATE":
            return
        overhead = (obj.get("spec") or {}).get("overhead")
        sent = ctx.sent.get("spec") or {}
        # decoding has dropped an empty map, which is an overhead in kube-apiserver
        if not overhead and not (isinstance(sent, dict) and sent.get("overhead") == {}):
            return
        fixed = ((self._class_of(ctx, obj) or {}).get("overhead") or {}).get("podFixed")
        if not fixed:
            why = (
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
            )
            raise rejection(ctx, obj, why)

    def _class_of(self, ctx: RequestContext, obj: Object) -> Object | None:
        name = (obj.get("spec") or {}).get("runtimeClassName")
        if not name:
            return None
        record = self._store.get(_RUNTIME_CLASSES, "", name)
        if record is None:
            raise rejection(ctx, obj, f'pod rejected: RuntimeClass "{name}" not found')
        return record.obj()


def _equal(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    if one.keys() != other.keys():
        return False
    return all(parse_quantity(one[name]).value == parse_quantity(other[name]).value for name in one)


def _is_covered(toleration: Mapping[str, Any], tolerations: Iterable[Mapping[str, Any]]) -> bool:
    return any(_covers(present, toleration) for present in tolerations)


def _covers(present: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether a toleration tolerates all taints that ``other`` tolerates, for at least as long."""
    if not present.get("key") and present.get("operator") == "Exists":
        same_key = True
    else:
        same_key = (present.get("key") or "") == (other.get("key") or "")
    if present.get("operator") == "Exists":
        same_value = True
    else:
        same_operator = (other.get("operator") or "Equal") == (present.get("operator") or "Equal")
        same_text = (present.get("value") or "") == (other.get("value") or "")
        same_value = same_operator and same_text
    same_effect = not present.get("effect") or present["effect"] == other.get("effect")
    seconds = present.get("tolerationSeconds")
    wanted = other.get("tolerationSeconds")
    return (
        same_key
        and same_value
        and same_effect
        and (seconds is None or (wanted is not None and seconds >= wanted))
    )


class PodTopologyLabels(StorePlugin):
    """Copies the zone and region labels of the node to a pod that is assigned to it, on creation or by a Binding."""

    resources = (_PODS,)

    def admit(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Add the labels that the pod or Binding does not have; a node that does not exist has none."""
        if ctx.operation != "CREATE" or ctx.subresource not in ("", "binding"):
            return
        if ctx.subresource:
            part = "target"
            field = "name"
        else:
            part = "spec"
            field = "nodeName"
        name = (obj.get(part) or {}).get(field)
        record = self._store.get(_NODES, "", name) if name else None
        if record is None:
            return
        labels = record.obj()["metadata"].get("labels") or {}
        found = {name: labels[name] for name in _TOPOLOGY_LABELS if name in labels}
        if found:
            metadata = obj.setdefault("metadata", {})
            metadata["labels"] = {**found, **(metadata.get("labels") or {})}
