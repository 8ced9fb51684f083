"""Which resources the operator creates for a stack, for the check whether a user is allowed to create them.

Rendering decides with the same functions. What depends on the cluster or on time is left out: resources that the
cluster does not serve yet, and those that a suspended stack has later, are included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from cfo.api.gateway import HTTP_ROUTE
from cfo.api.inferencestack.kinds import (
    HORIZONTAL_POD_AUTOSCALER,
    PERSISTENT_VOLUME_CLAIM,
    POD_DISRUPTION_BUDGET,
    SCALED_OBJECT,
    SERVICE_MONITOR,
)
from cfo.api.inferencestack.resolution import ResolvedStack, is_enabled
from cfo.api.reading import mapping
from cfo.runtime import (
    CONFIG_MAP,
    DEPLOYMENT,
    GVK,
    INGRESS,
    NETWORK_POLICY,
    SERVICE,
    SERVICE_ACCOUNT,
    FieldError,
)
from cfo.runtime.objects import GVR, plural
from cfo.runtime.objects.field import Path, forbidden

_SPEC: Final = Path("spec")
_GATEWAY: Final = _SPEC.child("gateway")


def created_resources(stack: ResolvedStack, old: ResolvedStack | None = None) -> dict[GVR, Path]:
    """Return the resources of the objects of ``stack``, each with the field that makes the operator create it.

    Those of the objects of ``old`` are left out.
    """
    known = created_kinds(old) if old is not None else {}
    return {
        GVR(gvk.group, gvk.version, plural(gvk.kind)): path
        for gvk, path in created_kinds(stack).items()
        if gvk not in known
    }


def created_kinds(stack: ResolvedStack) -> dict[GVK, Path]:
    """Return the kinds of the objects of ``stack``, each with the field that makes the operator create it."""
    found = {CONFIG_MAP: _SPEC, DEPLOYMENT: _SPEC, **gateway_kinds(stack)}
    if stack.service_account.get("create"):
        found[SERVICE_ACCOUNT] = _SPEC.child("serviceAccount")
    for name, section in stack.applications.items():
        path = _SPEC.child("applications").key(name)
        if section.get("cache"):
            found.setdefault(PERSISTENT_VOLUME_CLAIM, path.child("cache"))
        kind = autoscaler_kind(section)
        if kind is not None:
            found.setdefault(kind, path.child("scaling"))
        if disruption_limits(section):
            found.setdefault(POD_DISRUPTION_BUDGET, path.child("podDisruptionBudget"))
    return found


def gateway_kinds(stack: ResolvedStack) -> dict[GVK, Path]:
    """Return the kinds of the gateway's objects except ConfigMap and Deployment, which applications have as well."""
    gateway = stack.gateway
    found = {SERVICE: _GATEWAY}
    if is_enabled(gateway.get("ingress")):
        found[INGRESS] = _GATEWAY.child("ingress")
    if gateway.get("httpRoute"):
        found[HTTP_ROUTE] = _GATEWAY.child("httpRoute")
    if gateway.get("exportPrometheusMetrics"):
        found[SERVICE_MONITOR] = _GATEWAY.child("exportPrometheusMetrics")
    if is_enabled(stack.spec.get("networkPolicy")):
        found[NETWORK_POLICY] = _SPEC.child("networkPolicy")
    if disruption_limits(gateway):
        found[POD_DISRUPTION_BUDGET] = _GATEWAY.child("podDisruptionBudget")
    return found


def autoscaler_kind(section: Mapping[str, Any]) -> GVK | None:
    """Return the kind of an application's autoscaler; ``None`` if its scaling is not enabled."""
    scaling: Mapping[str, Any] = section.get("scaling") or {}
    if not is_enabled(scaling):
        return None
    return HORIZONTAL_POD_AUTOSCALER if scaling.get("type") == "HPA" else SCALED_OBJECT


def disruption_limits(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits of a component's PodDisruptionBudget; empty if it has none."""
    budget: Mapping[str, Any] = section.get("podDisruptionBudget") or {}
    return {key: budget[key] for key in ("minAvailable", "maxUnavailable") if key in budget}


def cluster_trigger_errors(
    stack: ResolvedStack, old: ResolvedStack | None = None
) -> list[FieldError]:
    """Return an error for each trigger with a ClusterTriggerAuthentication that ``old`` does not have.

    KEDA reads the Secrets that a ClusterTriggerAuthentication names, in its own namespace, and sends them to the
    address in the trigger.
    """
    known: set[bytes] = set()
    if old is not None:
        known = {content for _, content in _cluster_triggers(old)}
    message = "must be TriggerAuthentication (inferenceStack.allowClusterTriggerAuthentication)"
    return [
        forbidden(path, message)
        for path, content in _cluster_triggers(stack)
        if content not in known
    ]


def _cluster_triggers(stack: ResolvedStack) -> Iterator[tuple[Path, bytes]]:
    """Yield path and content of each trigger that authenticates with another resource than a TriggerAuthentication."""
    for name, section in stack.applications.items():
        if autoscaler_kind(section) != SCALED_OBJECT:
            continue
        path = _SPEC.child("applications").key(name).child("scaling", "spec", "triggers")
        triggers = (section["scaling"].get("spec") or {}).get("triggers")
        if not isinstance(triggers, list):
            continue
        for index, trigger in enumerate(triggers):
            reference = mapping(mapping(trigger).get("authenticationRef"))
            kind = reference.get("kind")
            if kind not in (None, "", "TriggerAuthentication"):
                at = path.index(index).child("authenticationRef", "kind")
                yield at, orjson.dumps(trigger, option=orjson.OPT_SORT_KEYS)
