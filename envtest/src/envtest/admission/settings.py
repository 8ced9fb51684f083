"""Small plugins that set fields: priorities and tolerations of pods, taints of nodes, finalizers, default classes.

They run before the webhooks and after managed fields are computed, so that no field manager owns the fields that they
set. Each has its name in kube-apiserver's ``--enable-admission-plugins``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from envtest.admission.chain import Plugin, StorePlugin
from envtest.admission.namespace_lifecycle import rejection
from envtest.apimachinery.errors import GroupResource, forbidden
from envtest.apimachinery.objects import Object
from envtest.builtins.system_priorities import SYSTEM_PRIORITIES
from envtest.registry.resource import RequestContext
from envtest.storage import Store

__all__ = [
    "DefaultClass",
    "DefaultTolerationSeconds",
    "Priority",
    "StorageObjectInUseProtection",
    "TaintNodesByCondition",
]

_PODS: Final = GroupResource("", "pods")
_NODES: Final = GroupResource("", "nodes")
_CLAIMS: Final = GroupResource("", "persistentvolumeclaims")
_VOLUMES: Final = GroupResource("", "persistentvolumes")
_INGRESSES: Final = GroupResource("networking.k8s.io", "ingresses")
_INGRESS_CLASSES: Final = GroupResource("networking.k8s.io", "ingressclasses")
_STORAGE_CLASSES: Final = GroupResource("storage.k8s.io", "storageclasses")
_ATTRIBUTES_CLASSES: Final = GroupResource("storage.k8s.io", "volumeattributesclasses")
_PRIORITY_CLASSES: Final = GroupResource("scheduling.k8s.io", "priorityclasses")
_NOT_READY: Final = "node.kubernetes.io/not-ready"
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_TOLERATION_SECONDS: Final = 300
_FINALIZERS: Final = {
    _CLAIMS: "kubernetes.io/pvc-protection",
    _VOLUMES: "kubernetes.io/pv-protection",
    _ATTRIBUTES_CLASSES: "kubernetes.io/vac-protection",
}


class Priority(StorePlugin):
    """Sets a pod's priority and preemption policy from its PriorityClass, or from the global default class."""

    resources = (_PODS, _PRIORITY_CLASSES)

    def admit(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Set the fields; protect the system's classes.

        Raises StatusError (403) for an unknown class, or a priority or policy that differs from the class's.
        """
        if ctx.info.resource == _PRIORITY_CLASSES:
            if ctx.operation == "DELETE" and ctx.name in SYSTEM_PRIORITIES:
                raise forbidden(
                    _PRIORITY_CLASSES,
                    ctx.name,
                    "this is a system priority class and cannot be deleted",
                )
            if ctx.operation in ("CREATE", "UPDATE") and obj.get("globalDefault"):
                self._check_other_defaults(ctx, obj)
            return
        if ctx.subresource:
            return
        if ctx.operation == "UPDATE" and old is not None:
            for field in ("priority", "preemptionPolicy"):
                spec = obj.setdefault("spec", {})
                before = old.get("spec") or {}
                if spec.get(field) is None and before.get(field) is not None:
                    spec[field] = before[field]
        if ctx.operation != "CREATE":
            return
        spec = obj.setdefault("spec", {})
        name, value, policy = self._class(ctx, obj, spec.get("priorityClassName") or "")
        if name:
            spec["priorityClassName"] = name
        if spec.get("priority") is not None and spec["priority"] != value:
            raise rejection(
                ctx,
                obj,
                f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
                f"priority admission controller computed {value} from the given PriorityClass name",
            )
        spec["priority"] = value
        if spec.get("preemptionPolicy") not in (None, policy):
            raise rejection(
                ctx,
                obj,
                f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec; "
                f"priority admission controller computed {policy} from the given PriorityClass name",
            )
        spec["preemptionPolicy"] = policy

    def _check_other_defaults(self, ctx: RequestContext, obj: Object) -> None:
        """Raise StatusError (403) if another class is the default already."""
        for record in self._store.list(_PRIORITY_CLASSES):
            is_itself = ctx.operation == "UPDATE" and record.name == ctx.name
            if not is_itself and record.obj().get("globalDefault"):
                raise rejection(
                    ctx,
                    obj,
                    f"PriorityClass {record.name} is already marked as default. Only one default can exist",
                )

    def _class(self, ctx: RequestContext, obj: Object, name: str) -> tuple[str, int, str]:
        if not name:
            defaults = [each.obj() for each in self._store.list(_PRIORITY_CLASSES)]
            defaults = [each for each in defaults if each.get("globalDefault")]
            if not defaults:
                return "", 0, "PreemptLowerPriority"
            lowest = min(defaults, key=lambda each: int(each["value"]))
            return (
                lowest["metadata"]["name"],
                lowest["value"],
                lowest.get("preemptionPolicy", "PreemptLowerPriority"),
            )
        record = self._store.get(_PRIORITY_CLASSES, "", name)
        if record is not None:
            found = record.obj()
            return name, found["value"], found.get("preemptionPolicy", "PreemptLowerPriority")
        if name in SYSTEM_PRIORITIES:
            return name, SYSTEM_PRIORITIES[name][0], "PreemptLowerPriority"
        raise rejection(ctx, obj, f"no PriorityClass with name {name} was found")


class DefaultTolerationSeconds(Plugin):
    """Tolerates nodes that are not ready or unreachable for five minutes, unless the pod sets its own toleration."""

    resources = (_PODS,)

    def admit(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Add the tolerations."""
        if ctx.subresource or ctx.operation not in ("CREATE", "UPDATE"):
            return
        spec = obj.setdefault("spec", {})
        tolerations = spec.get("tolerations") or []
        missing = []
        for key in (_NOT_READY, _UNREACHABLE):
            if _is_tolerated(key, tolerations):
                continue
            missing.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _TOLERATION_SECONDS,
                }
            )
        if missing:
            spec["tolerations"] = [*tolerations, *missing]


def _is_tolerated(key: str, tolerations: Iterable[dict[str, Any]]) -> bool:
    return any(_tolerates(each, key) for each in tolerations)


def _tolerates(toleration: dict[str, Any], key: str) -> bool:
    return toleration.get("key", "") in (key, "") and toleration.get("effect", "") in (
        "NoExecute",
        "",
    )


class TaintNodesByCondition(Plugin):
    """Adds the not-ready taint to a new node; it stays until a node controller removes it."""

    resources = (_NODES,)

    def admit(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Add the taint."""
        if ctx.subresource or ctx.operation != "CREATE":
            return
        spec = obj.setdefault("spec", {})
        taints = spec.get("taints") or []
        if not any(
            taint.get("key") == _NOT_READY and taint.get("effect") == "NoSchedule"
            for taint in taints
        ):
            spec["taints"] = [*taints, {"key": _NOT_READY, "effect": "NoSchedule"}]


class StorageObjectInUseProtection(Plugin):
    """Adds the finalizer that keeps claims and volumes from deletion while they are in use."""

    resources = tuple(_FINALIZERS)

    def admit(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Add the finalizer."""
        if ctx.subresource or ctx.operation != "CREATE":
            return
        finalizer = _FINALIZERS[ctx.info.resource]
        metadata = obj.setdefault("metadata", {})
        finalizers = metadata.get("finalizers") or []
        if finalizer not in finalizers:
            metadata["finalizers"] = [*finalizers, finalizer]


class DefaultClass(Plugin):
    """Sets the default class on objects that name none; with several default classes, the newest one."""

    def __init__(
        self,
        store: Store,
        resource: GroupResource,
        classes: GroupResource,
        *,
        field: str,
        default_annotation: str,
        legacy_annotation: str,
    ) -> None:
        """``field`` in the spec of ``resource`` names one of ``classes``.

        The annotation ``default_annotation`` marks the default class; the annotation ``legacy_annotation`` names the
        class of an object in the way that predates the field.
        """
        self._store = store
        self.resources = (resource,)
        self._classes = classes
        self._field = field
        self._default_annotation = default_annotation
        self._legacy_annotation = legacy_annotation

    @classmethod
    def storage(cls, store: Store) -> DefaultClass:
        """Return the DefaultStorageClass plugin, for persistent volume claims."""
        return cls(
            store,
            _CLAIMS,
            _STORAGE_CLASSES,
            field="storageClassName",
            default_annotation="storageclass.kubernetes.io/is-default-class",
            legacy_annotation="volume.beta.kubernetes.io/storage-class",
        )

    @classmethod
    def ingress(cls, store: Store) -> DefaultClass:
        """Return the DefaultIngressClass plugin, for ingresses."""
        return cls(
            store,
            _INGRESSES,
            _INGRESS_CLASSES,
            field="ingressClassName",
            default_annotation="ingressclass.kubernetes.io/is-default-class",
            legacy_annotation="kubernetes.io/ingress.class",
        )

    def admit(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Set the class."""
        if ctx.subresource or ctx.operation != "CREATE":
            return
        annotations = obj.get("metadata", {}).get("annotations") or {}
        spec = obj.setdefault("spec", {})
        if spec.get(self._field) is not None or self._legacy_annotation in annotations:
            return
        defaults = list(self._defaults())
        if defaults:
            newest = max(created for created, _ in defaults)
            spec[self._field] = min(name for created, name in defaults if created == newest)

    def _defaults(self) -> Iterator[tuple[str, str]]:
        """Yield creation timestamp and name of each default class."""
        marker = self._default_annotation.encode()
        for record in self._store.list(self._classes):
            if marker in record.data:
                metadata = record.obj()["metadata"]
                if metadata.get("annotations", {}).get(self._default_annotation) == "true":
                    yield metadata.get("creationTimestamp", ""), record.name
