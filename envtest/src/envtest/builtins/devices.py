"""Strategies of resource.k8s.io: devices and claims to them (dynamic resource allocation)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from envtest.apimachinery.field_errors import FieldError, Verbatim, forbidden, invalid
from envtest.apimachinery.name_rules import label_errors
from envtest.apimachinery.objects import Object
from envtest.builtins.device_rules import (
    claim_spec_errors,
    claim_status_errors,
    configuration_errors,
    selector_errors,
)
from envtest.builtins.device_status_rules import device_status_errors, without_deallocated
from envtest.builtins.go_rendering import internal
from envtest.builtins.resource_names import is_extended
from envtest.builtins.slice_rules import slice_errors
from envtest.builtins.strategy import BuiltinStrategy
from envtest.registry.resource import RequestContext

__all__ = [
    "DeviceClaimStrategy",
    "DeviceClaimTemplateStrategy",
    "DeviceClassStrategy",
    "DeviceSliceStrategy",
]

_TEMPLATE_METADATA: Final = frozenset({"labels", "annotations", "creationTimestamp"})


def _immutable_spec_errors(new: Object, old: Object | None) -> Iterator[FieldError]:
    if old is not None and new["spec"] != old["spec"]:
        yield invalid("spec", Verbatim(internal(new["spec"])), "field is immutable")


class DeviceClassStrategy(BuiltinStrategy):
    """Strategy of resource.k8s.io DeviceClass."""

    has_spec_generation = True

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the selectors, the configurations and the extended resource of the class."""
        spec = obj["spec"]
        yield from selector_errors(spec.get("selectors") or (), "spec.selectors")
        for position, configuration in enumerate(spec.get("config") or ()):
            yield from configuration_errors(configuration, f"spec.config[{position}]")
        name = spec.get("extendedResourceName")
        if name is not None and not is_extended(name):
            yield invalid(
                "spec.extendedResourceName", name, "must be a valid extended resource name"
            )


class DeviceClaimStrategy(BuiltinStrategy):
    """Strategy of resource.k8s.io ResourceClaim."""

    def set_defaults(self, obj: Object) -> None:
        """Set the defaults of the device requests: one device each."""
        _request_defaults(obj["spec"])

    def prepare_update(self, new: Object, old: Object, ctx: RequestContext) -> None:
        """See :meth:`Strategy.prepare_update`: what drivers report about a device ends with its allocation."""
        super().prepare_update(new, old, ctx)
        status = new.get("status") or {}
        if ctx.subresource == "status" and "devices" in status:
            kept = without_deallocated(status, old.get("status") or {})
            if kept is None:
                del status["devices"]
            else:
                status["devices"] = kept

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the requests, which are immutable, or of the status."""
        if ctx.subresource == "status":
            assert old is not None
            yield from claim_status_errors(obj, old)
            yield from device_status_errors(obj.get("status") or {})
        elif old is None:
            yield from claim_spec_errors(obj["spec"], "spec")
        else:
            yield from _immutable_spec_errors(obj, old)


class DeviceClaimTemplateStrategy(BuiltinStrategy):
    """Strategy of resource.k8s.io ResourceClaimTemplate."""

    def set_defaults(self, obj: Object) -> None:
        """Set the defaults of ResourceClaims in the template."""
        _request_defaults(obj["spec"].get("spec") or {})

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the template: its claims have labels and annotations, but no names."""
        if old is not None:
            yield from _immutable_spec_errors(obj, old)
        metadata = obj["spec"].get("metadata") or {}
        for name in metadata.keys() - _TEMPLATE_METADATA:
            if metadata[name]:
                yield forbidden(f"spec.metadata.{name}", "cannot be set")
        yield from label_errors(metadata.get("labels") or {}, "spec.metadata.labels")
        yield from claim_spec_errors(obj["spec"].get("spec") or {}, "spec.spec")


class DeviceSliceStrategy(BuiltinStrategy):
    """Strategy of resource.k8s.io ResourceSlice."""

    has_spec_generation = True

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the devices and of the nodes that have them."""
        old_spec = None if old is None else old["spec"]
        yield from slice_errors(obj["spec"], old_spec)

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """See :meth:`Strategy.prepare_create`: taints get the time at which they were added."""
        super().prepare_create(obj, ctx)
        _set_taint_times(obj, ctx.now)

    def prepare_update(self, new: Object, old: Object, ctx: RequestContext) -> None:
        """See :meth:`Strategy.prepare_update`: taints get the time at which they were added."""
        super().prepare_update(new, old, ctx)
        _set_taint_times(new, ctx.now)


def _set_taint_times(obj: Object, now: str) -> None:
    for device in obj["spec"].get("devices") or ():
        for taint in device.get("taints") or ():
            if taint.get("timeAdded") is None:
                taint["timeAdded"] = now


def _request_defaults(spec: Object) -> None:
    for request in (spec.get("devices") or {}).get("requests") or ():
        device_requests = list(request.get("firstAvailable") or ())
        if request.get("exactly") is not None:
            device_requests.append(request["exactly"])
        for device_request in device_requests:
            if not device_request.get("allocationMode"):
                device_request["allocationMode"] = "ExactCount"
            if device_request["allocationMode"] == "ExactCount" and not device_request.get("count"):
                device_request["count"] = 1
            for toleration in device_request.get("tolerations") or ():
                if not toleration.get("operator"):
                    toleration["operator"] = "Equal"
