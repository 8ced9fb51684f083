"""Strategies of resource.k8s.io: claims of devices (dynamic resource allocation)."""

from __future__ import annotations

from envtest.builtins.strategy import BuiltinStrategy
from envtest.objects import Object

__all__ = ["DeviceClaimStrategy", "DeviceClaimTemplateStrategy"]


class DeviceClaimStrategy(BuiltinStrategy):
    """Strategy of resource.k8s.io ResourceClaim."""

    def set_defaults(self, obj: Object) -> None:
        """Set the defaults of the device requests: one device each."""
        _request_defaults(obj["spec"])


class DeviceClaimTemplateStrategy(BuiltinStrategy):
    """Strategy of resource.k8s.io ResourceClaimTemplate."""

    def set_defaults(self, obj: Object) -> None:
        """Set the defaults of ResourceClaims in the template."""
        _request_defaults(obj["spec"].get("spec") or {})


def _request_defaults(spec: Object) -> None:
    for request in (spec.get("devices") or {}).get("requests") or ():
        exactly = request.get("exactly")
        for device_request in [*([exactly] if exactly is not None else ()), *(request.get("firstAvailable") or ())]:
            if not device_request.get("allocationMode"):
                device_request["allocationMode"] = "ExactCount"
            if device_request["allocationMode"] == "ExactCount" and not device_request.get("count"):
                device_request["count"] = 1
