"""Small plugins that complete objects: priorities and tolerations of pods, taints of nodes, default classes.

They run before the webhooks and after the managed fields are taken, so that what they set belongs to nobody. Each is
named as in kube-apiserver's ``--enable-admission-plugins``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from envtest.context import RequestContext
from envtest.errors import GroupResource, StatusError, forbidden
from envtest.objects import Object
from envtest.storage import Store

from .chain import Plugin
from .lifecycle import described_name

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
_PRIORITY_CLASSES: Final = GroupResource("scheduling.k8s.io", "priorityclasses")
_NOT_READY: Final = "node.kubernetes.io/not-ready"
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_TOLERATION_SECONDS: Final = 300
_SYSTEM_PRIORITIES: Final = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


def _concerns(ctx: RequestContext, resource: GroupResource, *operations: str) -> bool:
    return ctx.info.resource == resource and not ctx.subresource and ctx.operation in operations


def _refused(ctx: RequestContext, obj: Object, why: str) -> StatusError:
    return forbidden(ctx.info.resource, described_name(ctx, obj), why)


class Priority(Plugin):
    """Sets a pod's priority and preemption policy from its class; one PriorityClass at most is the default."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def admit(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Raises StatusError (403) for an unknown class, or a priority that is not the class's."""
        if _concerns(ctx, _PODS, "UPDATE") and old is not None:
            for field in ("priority", "preemptionPolicy"):
                spec, before = obj.setdefault("spec", {}), old.get("spec") or {}
                if spec.get(field) is None and before.get(field) is not None:
                    spec[field] = before[field]
        if not _concerns(ctx, _PODS, "CREATE"):
            return
        spec = obj.setdefault("spec", {})
        name, value, policy = self._class(ctx, obj, spec.get("priorityClassName") or "")
        if name:
            spec["priorityClassName"] = name
        if spec.get("priority") is not None and spec["priority"] != value:
            raise _refused(
                ctx,
                obj,
                f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
                f"priority admission controller computed {value} from the given PriorityClass name",
            )
        spec["priority"] = value
        if spec.get("preemptionPolicy") not in (None, policy):
            raise _refused(
                ctx,
                obj,
                f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec; "
                f"priority admission controller computed {policy} from the given PriorityClass name",
            )
        spec["preemptionPolicy"] = policy

    def _class(self, ctx: RequestContext, obj: Object, name: str) -> tuple[str, int, str]:
        if not name:
            defaults = [each.obj() for each in self._store.list(_PRIORITY_CLASSES)]
            defaults = [each for each in defaults if each.get("globalDefault")]
            if not defaults:
                return "", 0, "PreemptLowerPriority"
            lowest = min(defaults, key=lambda each: int(each["value"]))
            return lowest["metadata"]["name"], lowest["value"], lowest.get("preemptionPolicy", "PreemptLowerPriority")
        record = self._store.get(_PRIORITY_CLASSES, "", name)
        if record is not None:
            found = record.obj()
            return name, found["value"], found.get("preemptionPolicy", "PreemptLowerPriority")
        if name in _SYSTEM_PRIORITIES:
            return name, _SYSTEM_PRIORITIES[name], "PreemptLowerPriority"
        raise _refused(ctx, obj, f"no PriorityClass with name {name} was found")


class DefaultTolerationSeconds(Plugin):
    """Lets pods stay for five minutes on a node that is not ready or unreachable, unless they say otherwise."""

    def admit(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Adds the tolerations."""
        if not _concerns(ctx, _PODS, "CREATE", "UPDATE"):
            return
        spec = obj.setdefault("spec", {})
        tolerations = spec.get("tolerations") or []
        missing = [key for key in (_NOT_READY, _UNREACHABLE) if not any(_tolerates(each, key) for each in tolerations)]
        if missing:
            spec["tolerations"] = [
                *tolerations,
                *(
                    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATION_SECONDS}
                    for key in missing
                ),
            ]


def _tolerates(toleration: dict[str, Any], key: str) -> bool:
    return toleration.get("key", "") in (key, "") and toleration.get("effect", "") in ("NoExecute", "")


class TaintNodesByCondition(Plugin):
    """A new node is tainted as not ready until somebody knows better."""

    def admit(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Adds the taint."""
        if not _concerns(ctx, _NODES, "CREATE"):
            return
        spec = obj.setdefault("spec", {})
        taints = spec.get("taints") or []
        if not any(taint.get("key") == _NOT_READY and taint.get("effect") == "NoSchedule" for taint in taints):
            spec["taints"] = [*taints, {"key": _NOT_READY, "effect": "NoSchedule"}]


class StorageObjectInUseProtection(Plugin):
    """Claims and volumes get the finalizer which keeps them while they are used."""

    def admit(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Adds the finalizer."""
        for resource, finalizer in (
            (_CLAIMS, "kubernetes.io/pvc-protection"),
            (_VOLUMES, "kubernetes.io/pv-protection"),
        ):
            if _concerns(ctx, resource, "CREATE"):
                metadata = obj.setdefault("metadata", {})
                finalizers = metadata.get("finalizers") or []
                if finalizer not in finalizers:
                    metadata["finalizers"] = [*finalizers, finalizer]


class DefaultClass(Plugin):
    """An object that names no class gets the default one: the newest, where there are several."""

    def __init__(
        self,
        store: Store,
        resource: GroupResource,
        classes: GroupResource,
        *,
        field: str,
        is_default: str,
        instead: str,
    ) -> None:
        """``field`` of the spec names one of ``classes``; the annotation ``is_default`` marks the default class, the
        annotation ``instead`` names one in the old way.
        """
        self._store = store
        self._resource = resource
        self._classes = classes
        self._field = field
        self._is_default = is_default
        self._instead = instead

    @classmethod
    def storage(cls, store: Store) -> DefaultClass:
        """DefaultStorageClass, for claims."""
        return cls(
            store,
            _CLAIMS,
            _STORAGE_CLASSES,
            field="storageClassName",
            is_default="storageclass.kubernetes.io/is-default-class",
            instead="volume.beta.kubernetes.io/storage-class",
        )

    @classmethod
    def ingress(cls, store: Store) -> DefaultClass:
        """DefaultIngressClass, for ingresses."""
        return cls(
            store,
            _INGRESSES,
            _INGRESS_CLASSES,
            field="ingressClassName",
            is_default="ingressclass.kubernetes.io/is-default-class",
            instead="kubernetes.io/ingress.class",
        )

    def admit(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Sets the class."""
        if not _concerns(ctx, self._resource, "CREATE"):
            return
        annotations = obj.get("metadata", {}).get("annotations") or {}
        spec = obj.setdefault("spec", {})
        if spec.get(self._field) is not None or self._instead in annotations:
            return
        defaults = list(self._defaults())
        if defaults:
            newest = max(created for created, _ in defaults)
            spec[self._field] = min(name for created, name in defaults if created == newest)

    def _defaults(self) -> Iterator[tuple[str, str]]:
        """When the default classes were created, and their names."""
        marker = self._is_default.encode()
        for record in self._store.list(self._classes):
            if marker in record.data:
                metadata = record.obj()["metadata"]
                if metadata.get("annotations", {}).get(self._is_default) == "true":
                    yield metadata.get("creationTimestamp", ""), record.name
