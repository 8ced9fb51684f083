"""Strategies of API groups with one or two kinds, such as Lease, PodDisruptionBudget and HorizontalPodAutoscaler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envtest.builtins.strategy import BuiltinStrategy, PathSegmentNameStrategy
from envtest.builtins.string_validation import (
    is_ip,
    label_selector_errors,
    nonnegative,
    percent_above_100_errors,
    percent_or_int_errors,
)
from envtest.context import RequestContext
from envtest.field_errors import FieldError, forbidden, invalid, not_supported, required
from envtest.objects import Object
from envtest.schema.shaping import copy_json

__all__ = [
    "APIServiceStrategy",
    "AutoscalerStrategy",
    "CertificateRequestStrategy",
    "DisruptionBudgetStrategy",
    "EndpointSliceStrategy",
    "GenerationStrategy",
    "LeaseStrategy",
    "PriorityClassStrategy",
]


class GenerationStrategy(BuiltinStrategy):
    """Strategy of kinds that count generations and have no other rules."""

    has_spec_generation = True


class LeaseStrategy(BuiltinStrategy):
    """Strategy of coordination.k8s.io/v1 Lease."""

    allow_create_on_update = True

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the duration, the number of transitions and the preferred holder."""
        spec = obj["spec"]
        duration = spec.get("leaseDurationSeconds")
        if duration is not None and duration <= 0:
            yield invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
        yield from nonnegative("spec.leaseTransitions", spec.get("leaseTransitions"))
        strategy, preferred = spec.get("strategy"), spec.get("preferredHolder")
        if preferred and not strategy:
            yield forbidden("spec.preferredHolder", "may only be specified if `strategy` is specified")


class DisruptionBudgetStrategy(BuiltinStrategy):
    """Strategy of policy/v1 PodDisruptionBudget."""

    allow_unconditional_update = False
    has_spec_generation = True

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the bounds and the selector or, of an update of the status, of its counts."""
        if ctx.subresource == "status":
            for name in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
                yield from nonnegative(f"status.{name}", obj["status"].get(name))
            return
        spec = obj["spec"]
        if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
            text = "minAvailable and maxUnavailable cannot be both set"
            yield invalid("spec", {**spec}, text)
        for name in ("minAvailable", "maxUnavailable"):
            if spec.get(name) is not None:
                yield from percent_or_int_errors(f"spec.{name}", spec[name])
                yield from percent_above_100_errors(f"spec.{name}", spec[name])
        yield from label_selector_errors(spec.get("selector"), "spec.selector")
        policy = spec.get("unhealthyPodEvictionPolicy")
        if policy is not None and policy not in ("AlwaysAllow", "IfHealthyBudget"):
            yield not_supported("spec.unhealthyPodEvictionPolicy", policy, ("AlwaysAllow", "IfHealthyBudget"))


class AutoscalerStrategy(BuiltinStrategy):
    """Strategy of autoscaling HorizontalPodAutoscaler, v1 and v2."""

    def set_defaults(self, obj: Object) -> None:
        """Set the defaults: at minimum one replica, and 80 % CPU utilization if no metric is given."""
        spec = obj["spec"]
        if spec.get("minReplicas") is None:
            spec["minReplicas"] = 1
        if self.resource.version == "v2" and not spec.get("metrics"):
            target = {"type": "Utilization", "averageUtilization": 80}
            spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
        behavior = spec.get("behavior")
        if behavior is not None:
            spec["behavior"] = _behavior_defaults(behavior)

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the bounds, the scale target and the metrics."""
        if ctx.subresource == "status":
            return
        spec = obj["spec"]
        minimum, maximum = spec.get("minReplicas"), spec.get("maxReplicas") or 0
        if minimum is not None and minimum < 1:
            yield invalid("spec.minReplicas", minimum, "must be greater than or equal to 1")
        if maximum < 1:
            yield invalid("spec.maxReplicas", maximum, "must be greater than 0")
        if minimum is not None and maximum < minimum:
            yield invalid("spec.maxReplicas", maximum, "must be greater than or equal to `minReplicas`")
        target = spec.get("scaleTargetRef") or {}
        for name in ("kind", "name"):
            if not target.get(name):
                yield required(f"spec.scaleTargetRef.{name}")
        for position, metric in enumerate(spec.get("metrics") or ()):
            yield from _metric_errors(metric, f"spec.metrics[{position}]")


_METRICS = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}


def _metric_errors(metric: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    kind = metric.get("type") or ""
    if not kind:
        yield required(f"{path}.type", "must specify a metric source type")
    if kind not in _METRICS:
        yield not_supported(f"{path}.type", kind, tuple(_METRICS))
        return
    expected = _METRICS[kind]
    if metric.get(expected) is None:
        yield required(f"{path}.{expected}", "must populate information for the given metric source")
    for other in _METRICS.values():
        if other != expected and metric.get(other) is not None:
            yield forbidden(f"{path}.{other}", "must populate the given metric source only")
    if expected in ("resource", "containerResource") and metric.get(expected) is not None:
        if not metric[expected].get("name"):
            yield required(f"{path}.{expected}.name", "must specify a resource name")
        if expected == "containerResource" and not metric[expected].get("container"):
            yield required(f"{path}.{expected}.container", "must specify a container")


def _behavior_defaults(behavior: Mapping[str, Any]) -> Object:
    up = {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15},
        ],
    }
    down = {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}
    return {
        "scaleUp": {**up, **(behavior.get("scaleUp") or {})},
        "scaleDown": {**down, **(behavior.get("scaleDown") or {})},
    }


class PriorityClassStrategy(BuiltinStrategy):
    """Strategy of scheduling.k8s.io/v1 PriorityClass."""

    has_spec_generation = False

    def set_defaults(self, obj: Object) -> None:
        """Set the default preemption policy, which is to preempt."""
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """Set the generation to 1. It never changes, because all fields that it would count are immutable."""
        super().prepare_create(obj, ctx)
        obj["metadata"]["generation"] = 1

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the value, which is limited for users and immutable, and of the name."""
        name, value = obj["metadata"].get("name") or "", obj.get("value") or 0
        if name.startswith("system-"):
            if old is None and name not in ("system-node-critical", "system-cluster-critical"):
                text = "priority class names with 'system-' prefix are reserved for system use only. error: " + name
                yield forbidden("metadata.name", text)
        elif value > 1_000_000_000:
            text = "maximum allowed value of a user defined priority is 1000000000"
            yield forbidden("value", text)
        if old is not None:
            if value != (old.get("value") or 0):
                yield forbidden("value", "may not be changed in an update.")
            if obj.get("preemptionPolicy") != old.get("preemptionPolicy"):
                yield invalid("preemptionPolicy", obj.get("preemptionPolicy"), "field is immutable")


class EndpointSliceStrategy(BuiltinStrategy):
    """Strategy of discovery.k8s.io/v1 EndpointSlice."""

    has_spec_generation = True

    def set_defaults(self, obj: Object) -> None:
        """Set the defaults of the ports: an empty name, and TCP."""
        for port in obj.get("ports") or ():
            if port.get("name") is None:
                port["name"] = ""
            if port.get("protocol") is None:
                port["protocol"] = "TCP"

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the address type, which is immutable, and of addresses that do not match it."""
        kind = obj.get("addressType") or ""
        if not kind:
            yield required("addressType")
        elif kind not in ("FQDN", "IPv4", "IPv6"):
            yield not_supported("addressType", kind, ("FQDN", "IPv4", "IPv6"))
        for position, endpoint in enumerate(obj.get("endpoints") or ()):
            path = f"endpoints[{position}].addresses"
            if not endpoint.get("addresses"):
                yield required(path, "must contain at least 1 address")
            for number, address in enumerate(endpoint.get("addresses") or ()):
                if kind in ("IPv4", "IPv6") and not (is_ip(address) and (":" in address) == (kind == "IPv6")):
                    yield invalid(f"{path}[{number}]", address, f"must be an {kind} address")
        if old is not None and kind != old.get("addressType"):
            yield invalid("addressType", kind, "field is immutable")


class APIServiceStrategy(BuiltinStrategy):
    """Strategy of apiregistration.k8s.io/v1 APIService."""

    def set_defaults(self, obj: Object) -> None:
        """Set the default port of the service, 443."""
        service = obj["spec"].get("service")
        if service is not None:
            service.setdefault("port", 443)

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the name, which is made of version and group, and of the priorities."""
        spec = obj["spec"]
        expected = f"{spec.get('version') or ''}.{spec.get('group') or ''}"
        if obj["metadata"].get("name") != expected:
            yield invalid("metadata.name", obj["metadata"].get("name"), 'must be `spec.version+"."+spec.group`')
        for name in ("groupPriorityMinimum", "versionPriority"):
            if not spec.get(name):
                limit = 20000 if name == "groupPriorityMinimum" else 1000
                yield invalid(f"spec.{name}", spec.get(name) or 0, f"must be positive and less than {limit}")


class CertificateRequestStrategy(PathSegmentNameStrategy):
    """Strategy of certificates.k8s.io/v1 CertificateSigningRequest."""

    allow_create_on_update = True

    def set_defaults(self, obj: Object) -> None:
        """Set no defaults: the v1 API has none."""

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """Fill in the requesting user from the authenticated user, replacing any values that the client sent."""
        super().prepare_create(obj, ctx)
        spec = obj["spec"]
        for name in ("username", "uid", "groups", "extra"):
            spec.pop(name, None)
        spec["username"] = ctx.user.name
        if ctx.user.uid:
            spec["uid"] = ctx.user.uid
        groups = list(ctx.user.groups)
        spec["groups"] = groups if "system:authenticated" in groups else [*groups, "system:authenticated"]
        if ctx.user.extra:
            spec["extra"] = {name: list(values) for name, values in ctx.user.extra.items()}

    def prepare_update(self, new: Object, old: Object, ctx: RequestContext) -> None:
        """Restore the spec, which is immutable; approval conditions are changed through their own subresource."""
        super().prepare_update(new, old, ctx)
        new["spec"] = copy_json(old["spec"])

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the request, the usages and the signer name."""
        spec = obj["spec"]
        if not spec.get("request"):
            yield invalid("spec.request", None, "PEM block type must be CERTIFICATE REQUEST")
        if not spec.get("usages"):
            yield required("spec.usages")
        signer = spec.get("signerName") or ""
        if not signer:
            yield required("spec.signerName")
        elif "/" not in signer:
            yield invalid(
                "spec.signerName",
                signer,
                "must be a fully qualified domain and path of the form 'example.com/signer-name'",
            )
