"""ResourceQuota: limits on the total that a namespace uses.

Follows ``k8s.io/apiserver/pkg/admission/plugin/resourcequota`` and the evaluators of ``pkg/quota/v1``. Admission
compares with the *status* of a quota and adds to it; the controller (:mod:`envtest.controllers.quotas`) initializes the
status and subtracts deleted objects. Without the controller no limit is enforced, as on a real server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from envtest.admission.namespace_lifecycle import rejection
from envtest.admission.resources import Quantities, add, format_quantities, parse_quantities, pod_resources
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
_REQUIRED_RESOURCES: Final = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
_CLASS_INFIX: Final = ".storageclass.storage.k8s.io/"


def object_usage(resource: GroupResource, obj: Object) -> Quantities:
    """Return the usage of one object, under the resource names of ``spec.hard``."""
    used: Quantities = {f"count/{resource}": _ONE}
    if resource == _PODS:
        if (obj.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}:
            used |= {"pods": _ONE, **_compute(pod_resources(obj, "requests"), pod_resources(obj, "limits"))}
    elif resource == _SERVICES:
        used |= _service_usage(obj.get("spec") or {})
    elif resource == _CLAIMS:
        used |= _claim_usage(obj.get("spec") or {})
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


def _claim_usage(spec: Mapping[str, Any]) -> Quantities:
    used = {"persistentvolumeclaims": _ONE}
    storage = parse_quantities((spec.get("resources") or {}).get("requests")).get("storage")
    if storage is not None:
        used["requests.storage"] = storage
    name = spec.get("storageClassName")
    if name:
        used |= {f"{name}{_CLASS_INFIX}{key}": value for key, value in list(used.items())}
    return used


def quota_applies(quota: Object, resource: GroupResource, obj: Object) -> bool:
    """Report whether the quota's scopes match an object; a quota with scopes only applies to pods."""
    spec = quota.get("spec") or {}
    scopes = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()]
    scopes += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return not scopes or (resource == _PODS and all(_scope_matches(scope, obj.get("spec") or {}) for scope in scopes))


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
            name, values = pod.get("priorityClassName") or "", scope.get("values") or ()
            return {
                "In": name in values,
                "NotIn": name not in values,
                "Exists": bool(name),
                "DoesNotExist": not name,
            }.get(scope.get("operator", ""), False)
        case "CrossNamespacePodAffinity":
            return _crosses_namespaces(pod.get("affinity"))
    return False


def _is_best_effort(pod: Mapping[str, Any]) -> bool:
    containers = [*(pod.get("containers") or ()), *(pod.get("initContainers") or ())]
    resources = [each.get("resources") or {} for each in containers]
    return not any(
        name in ("cpu", "memory") and quantity.value
        for each in resources
        for field in ("requests", "limits")
        for name, quantity in parse_quantities(each.get(field)).items()
    )


def _crosses_namespaces(affinity: Any) -> bool:
    if isinstance(affinity, Mapping):
        own = bool(affinity.get("namespaces")) or affinity.get("namespaceSelector") is not None
        return own or any(map(_crosses_namespaces, affinity.values()))
    return isinstance(affinity, list) and any(map(_crosses_namespaces, affinity))


def used_status(quota: Object, objects: Iterable[tuple[GroupResource, Object]]) -> dict[str, str]:
    """Compute ``status.used`` of a quota from all objects of its namespace."""
    hard = (quota.get("spec") or {}).get("hard") or {}
    used: Quantities = {name: Quantity(_ONE.value * 0, parse_quantity(text).family) for name, text in hard.items()}
    for resource, obj in objects:
        if quota_applies(quota, resource, obj):
            used = add(used, {name: value for name, value in object_usage(resource, obj).items() if name in hard})
    return format_quantities(used)


class QuotaAdmission:
    """The last validating step: a request that passes it is added to the quota's ``status.used``."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Check and charge the quotas. Raises StatusError (403) if one is exceeded or its status lacks the resource."""
        can_grow = ctx.operation == "UPDATE" and ctx.info.resource in (_SERVICES, _CLAIMS)
        if ctx.subresource or not ctx.namespace or not (ctx.operation == "CREATE" or can_grow):
            return
        added = object_usage(ctx.info.resource, obj)
        if old is not None:
            before = object_usage(ctx.info.resource, old)
            names = added.keys() | before.keys()
            added = {name: _subtract(added.get(name), before.get(name)) for name in names}
            added = {name: quantity for name, quantity in added.items() if quantity.value}
        checked = [(record, self._charge(ctx, record.obj(), obj, added)) for record in self._quotas(ctx)]
        for record, quota in checked:
            if quota is not None and not ctx.dry_run:
                self._store.update(QUOTAS, quota, record)

    def _quotas(self, ctx: RequestContext) -> list[Any]:
        return list(self._store.list(QUOTAS, ctx.namespace))

    def _charge(self, ctx: RequestContext, quota: Object, obj: Object, added: Quantities) -> Object | None:
        """Return the quota with the request added to it, ``None`` when it limits none of the added resources."""
        status = quota.get("status") or {}
        hard, used = parse_quantities(status.get("hard")), parse_quantities(status.get("used"))
        if not quota_applies(quota, ctx.info.resource, obj):
            return None
        name = quota["metadata"]["name"]
        if ctx.info.resource == _PODS:
            _require_explicit(ctx, name, hard, obj)
        delta = {key: quantity for key, quantity in added.items() if key in hard}
        unknown = sorted(key for key in delta if key not in used)
        if unknown:
            raise rejection(ctx, obj, f"status unknown for quota: {name}, resources: {','.join(unknown)}")
        if not delta:
            return None
        total = add(used, delta)
        exceeded = sorted(key for key in delta if total[key].value > hard[key].value and delta[key].value > 0)
        if exceeded:
            requested, had, limited = (
                ",".join(f"{key}={each[key]}" for key in exceeded) for each in (delta, used, hard)
            )
            raise rejection(
                ctx, obj, f"exceeded quota: {name}, requested: {requested}, used: {had}, limited: {limited}"
            )
        quota["status"] = {**status, "used": format_quantities(total)}
        return quota


def _subtract(after: Quantity | None, before: Quantity | None) -> Quantity:
    left, right = after or Quantity(_ONE.value * 0, "decimal"), before or Quantity(_ONE.value * 0, "decimal")
    return Quantity(left.value - right.value, (after or right).family)


def _require_explicit(ctx: RequestContext, name: str, hard: Mapping[str, Quantity], pod: Object) -> None:
    """Reject a pod unless each container sets every CPU and memory request or limit that the quota restricts."""
    required = [each for each in _REQUIRED_RESOURCES if each in hard]
    missing: dict[str, list[str]] = {}
    spec = pod.get("spec") or {}
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        resources = container.get("resources") or {}
        given = _compute(parse_quantities(resources.get("requests")), parse_quantities(resources.get("limits")))
        for resource in required:
            if resource not in given:
                missing.setdefault(resource, []).append(container.get("name", ""))
    if missing:
        listed = "; ".join(f"{resource} for: {','.join(sorted(missing[resource]))}" for resource in sorted(missing))
        raise rejection(ctx, pod, f"failed quota: {name}: must specify {listed}")
