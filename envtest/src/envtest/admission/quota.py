"""ResourceQuota: limits on the total that a namespace uses.

Follows ``k8s.io/apiserver/pkg/admission/plugin/resourcequota`` and the evaluators of ``pkg/quota/v1``. Admission
compares with the *status* of a quota and adds to it; the controller (:mod:`envtest.controllers.quotas`) initializes the
status and subtracts deleted objects. Without the controller no limit is enforced, as on a real server.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from typing import Any, Final

from envtest.admission.namespace_lifecycle import rejection
from envtest.admission.resources import (
    Quantities,
    add,
    format_quantities,
    parse_quantities,
    pod_resources,
)
from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object
from envtest.registry.resource import RequestContext
from envtest.schema.quantity import Quantity, parse_quantity
from envtest.storage import Store

__all__ = ["QUOTAS", "QuotaAdmission", "object_usage", "quota_applies", "used_status"]

QUOTAS: Final = GroupResource("", "resourcequotas")
_PODS: Final = GroupResource("", "pods")
_SERVICES: Final = GroupResource("", "services")
_CLAIMS: Final = GroupResource("", "persistentvolumeclaims")
_ONE: Final = parse_quantity("1")
_COUNTED: Final = frozenset({"configmaps", "replicationcontrollers", "resourcequotas", "secrets"})
_NATIVE_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
_REQUIRED_RESOURCES: Final = (
    "cpu",
    "memory",
    "requests.cpu",
    "requests.memory",
    "limits.cpu",
    "limits.memory",
)
_CLASS_INFIX: Final = ".storageclass.storage.k8s.io/"
_CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
_DEVICE_CLAIMS: Final = GroupResource("resource.k8s.io", "resourceclaims")
_DEVICES: Final = ".deviceclass.resource.k8s.io/devices"
_MAX_DEVICES: Final = 32
"""The devices of a request for all that match: as many as one claim can get."""


def object_usage(resource: GroupResource, obj: Object) -> Quantities:
    """Return the usage of one object, under the resource names of ``spec.hard``."""
    used: Quantities = {f"count/{resource}": _ONE}
    if resource == _PODS:
        if (obj.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}:
            used |= {
                "pods": _ONE,
                **_compute(pod_resources(obj, "requests"), pod_resources(obj, "limits")),
            }
    elif resource == _SERVICES:
        used |= _service_usage(obj.get("spec") or {})
    elif resource == _CLAIMS:
        used |= _claim_usage(obj)
    elif resource == _DEVICE_CLAIMS:
        used |= _device_usage((obj.get("spec") or {}).get("devices") or {})
    elif not resource.group and resource.resource in _COUNTED:
        used[resource.resource] = _ONE
    return used


def _compute(requests: Quantities, limits: Quantities) -> Quantities:
    used: Quantities = {}
    for name, quantity in requests.items():
        if name in _NATIVE_RESOURCES or name.startswith("hugepages-"):
            used[name] = quantity
        used[f"requests.{name}"] = quantity
    for name, quantity in limits.items():
        if name in _NATIVE_RESOURCES:
            used[f"limits.{name}"] = quantity
    return used


def _service_usage(spec: Mapping[str, Any]) -> Quantities:
    used = {"services": _ONE}
    ports = spec.get("ports") or ()
    if spec.get("type") == "NodePort":
        used["services.nodeports"] = parse_quantity(str(len(ports)))
    elif spec.get("type") == "LoadBalancer":
        used["services.loadbalancers"] = _ONE
        if spec.get("allocateLoadBalancerNodePorts", True):
            used["services.nodeports"] = parse_quantity(str(len(ports)))
    return used


def _claim_usage(claim: Object) -> Quantities:
    spec = claim.get("spec") or {}
    used = {"persistentvolumeclaims": _ONE}
    storage = parse_quantities((spec.get("resources") or {}).get("requests")).get("storage")
    if storage is not None:
        allocated = parse_quantities((claim.get("status") or {}).get("allocatedResources")).get(
            "storage", storage
        )
        largest = max(storage, allocated, key=lambda quantity: quantity.value)
        used["requests.storage"] = largest._replace(value=Fraction(math.ceil(largest.value)))
    annotations = claim["metadata"].get("annotations") or {}
    name = annotations.get(_CLASS_ANNOTATION, spec.get("storageClassName"))
    if name:
        used |= {f"{name}{_CLASS_INFIX}{key}": value for key, value in list(used.items())}
    return used


def _device_usage(devices: Mapping[str, Any]) -> Quantities:
    """Return how many devices of each class a claim can get: of alternatives, the largest number counts."""
    used: Quantities = {}
    for request in devices.get("requests") or ():
        largest: dict[str, int] = {}
        for option in request.get("firstAvailable") or [request.get("exactly") or {}]:
            name = option.get("deviceClassName")
            if name:
                is_counted = option.get("allocationMode") == "ExactCount"
                count = option.get("count", 1) if is_counted else _MAX_DEVICES
                largest[name] = max(largest.get(name, 0), count)
        used = add(
            used,
            {f"{name}{_DEVICES}": parse_quantity(str(count)) for name, count in largest.items()},
        )
    return used


def quota_applies(quota: Object, resource: GroupResource, obj: Object) -> bool:
    """Report whether the quota's scopes match an object; pods and persistent volume claims have scopes."""
    spec = quota.get("spec") or {}
    scopes = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()]
    scopes += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    if resource == _PODS:
        return all(_scope_matches(scope, obj.get("spec") or {}) for scope in scopes)
    if resource == _CLAIMS and scopes:
        names = _volume_classes(obj)
        return all(
            each.get("scopeName") == "VolumeAttributesClass" and _selects(each, names)
            for each in scopes
        )
    return not scopes


def _volume_classes(claim: Object) -> set[str]:
    """Return the VolumeAttributesClasses that a claim has, or is changed to."""
    spec = claim.get("spec") or {}
    status = claim.get("status") or {}
    modified = (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName")
    names = (
        spec.get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        modified,
    )
    return {name for name in names if name}


def _selects(scope: Mapping[str, Any], names: Collection[str]) -> bool:
    """Report whether a scope selects an object that refers to classes by these names."""
    values = scope.get("values") or ()
    match scope.get("operator"):
        case "Exists":
            return bool(names)
        case "DoesNotExist":
            return not names
        case "In":
            return any(name in values for name in names)
        case "NotIn":
            return not names or any(name not in values for name in names)
    return False


def _scope_matches(scope: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    match scope.get("scopeName"):
        case "Terminating":
            return pod.get("activeDeadlineSeconds") is not None
        case "NotTerminating":
            return pod.get("activeDeadlineSeconds") is None
        case "BestEffort":
            return _is_best_effort(pod)
        case "NotBestEffort":
            return not _is_best_effort(pod)
        case "PriorityClass":
            name = pod.get("priorityClassName")
            names = [name] if name else []
            return _selects(scope, names)
        case "CrossNamespacePodAffinity":
            return _crosses_namespaces(pod.get("affinity"))
    return False


def _is_best_effort(pod: Mapping[str, Any]) -> bool:
    containers = [*(pod.get("containers") or ()), *(pod.get("initContainers") or ())]
    for container in containers:
        resources = container.get("resources") or {}
        if _has_compute(resources.get("requests")) or _has_compute(resources.get("limits")):
            return False
    return True


def _has_compute(quantities: Mapping[str, str] | None) -> bool:
    return any(
        name in ("cpu", "memory") and quantity.value
        for name, quantity in parse_quantities(quantities).items()
    )


def _crosses_namespaces(affinity: Any) -> bool:
    if isinstance(affinity, Mapping):
        own = bool(affinity.get("namespaces")) or affinity.get("namespaceSelector") is not None
        return own or any(map(_crosses_namespaces, affinity.values()))
    return isinstance(affinity, list) and any(map(_crosses_namespaces, affinity))


def used_status(quota: Object, objects: Iterable[tuple[GroupResource, Object]]) -> dict[str, str]:
    """Compute ``status.used`` of a quota from all objects of its namespace."""
    hard = (quota.get("spec") or {}).get("hard") or {}
    used: Quantities = {
        name: Quantity(_ONE.value * 0, parse_quantity(text).family) for name, text in hard.items()
    }
    for resource, obj in objects:
        if quota_applies(quota, resource, obj):
            used = add(
                used,
                {
                    name: value
                    for name, value in object_usage(resource, obj).items()
                    if name in hard
                },
            )
    return format_quantities(used)


class QuotaAdmission:
    """The last validating step: a request that passes it is added to the quota's ``status.used``."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Check and charge the quotas. Raises StatusError (403) if one is exceeded or its status lacks the resource."""
        can_grow = ctx.operation == "UPDATE" and ctx.info.resource in (_SERVICES, _CLAIMS)
        if ctx.subresource and not (
            can_grow and ctx.subresource == "status" and ctx.info.resource == _CLAIMS
        ):
            return
        if not ctx.namespace or not (ctx.operation == "CREATE" or can_grow):
            return
        checked = [
            (record, self._charge(ctx, record.obj(), obj, old)) for record in self._quotas(ctx)
        ]
        for record, quota in checked:
            if quota is not None and not ctx.dry_run:
                self._store.update(QUOTAS, quota, record)

    def _quotas(self, ctx: RequestContext) -> list[Any]:
        return list(self._store.list(QUOTAS, ctx.namespace))

    def _charge(
        self, ctx: RequestContext, quota: Object, obj: Object, old: Object | None
    ) -> Object | None:
        """Return the quota with the request added to it, ``None`` when it limits none of the added resources."""
        status = quota.get("status") or {}
        hard = parse_quantities(status.get("hard"))
        used = parse_quantities(status.get("used"))
        if not hard or not quota_applies(quota, ctx.info.resource, obj):
            return None
        added = object_usage(ctx.info.resource, obj)
        if old is not None and quota_applies(quota, ctx.info.resource, old):
            before = object_usage(ctx.info.resource, old)
            added = {
                name: _subtract(quantity, before.get(name)) for name, quantity in added.items()
            }
            added = {name: quantity for name, quantity in added.items() if quantity.value > 0}
        name = quota["metadata"]["name"]
        if ctx.info.resource == _PODS:
            _require_explicit(ctx, name, hard, obj)
        delta = {key: quantity for key, quantity in added.items() if key in hard}
        unknown = sorted(key for key in delta if key not in used)
        if unknown:
            raise rejection(
                ctx, obj, f"status unknown for quota: {name}, resources: {','.join(unknown)}"
            )
        if not delta:
            return None
        total = add(used, delta)
        exceeded = sorted(key for key in delta if total[key].value > hard[key].value)
        if exceeded and not ctx.subresource:  # a status reports what has happened already
            requested = _listed(delta, exceeded)
            had = _listed(used, exceeded)
            limited = _listed(hard, exceeded)
            raise rejection(
                ctx,
                obj,
                f"exceeded quota: {name}, requested: {requested}, used: {had}, limited: {limited}",
            )
        quota["status"] = {**status, "used": format_quantities(total)}
        return quota


def _listed(quantities: Mapping[str, Quantity], names: list[str]) -> str:
    return ",".join(f"{name}={quantities[name]}" for name in names)


def _subtract(after: Quantity, before: Quantity | None) -> Quantity:
    return after if before is None else after._replace(value=after.value - before.value)


def _require_explicit(
    ctx: RequestContext, name: str, hard: Mapping[str, Quantity], pod: Object
) -> None:
    """Reject a pod unless each container sets every CPU and memory request or limit that the quota restricts."""
    required = [each for each in _REQUIRED_RESOURCES if each in hard]
    missing: dict[str, list[str]] = {}
    spec = pod.get("spec") or {}
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        resources = container.get("resources") or {}
        given = _compute(
            parse_quantities(resources.get("requests")), parse_quantities(resources.get("limits"))
        )
        for resource in required:
            if resource not in given:
                missing.setdefault(resource, []).append(container.get("name", ""))
    if missing:
        listed = "; ".join(
            f"{resource} for: {','.join(sorted(missing[resource]))}" for resource in sorted(missing)
        )
        raise rejection(ctx, pod, f"failed quota: {name}: must specify {listed}")
