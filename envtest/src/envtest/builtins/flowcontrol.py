"""Priority and fairness of requests, and claims of devices: kinds with defaults and few rules here."""

from __future__ import annotations

from envtest.builtins.cluster import VersionedStrategy
from envtest.builtins.strategy import BuiltinStrategy
from envtest.objects import Object

__all__ = [
    "DeviceClaimStrategy",
    "DeviceClaimTemplateStrategy",
    "FlowSchemaStrategy",
    "PriorityLevelStrategy",
]


class FlowSchemaStrategy(VersionedStrategy):
    """flowcontrol.apiserver.k8s.io FlowSchema."""

    def set_defaults(self, obj: Object) -> None:
        """It matches late."""
        if not obj["spec"].get("matchingPrecedence"):
            obj["spec"]["matchingPrecedence"] = 1000


class PriorityLevelStrategy(VersionedStrategy):
    """flowcontrol.apiserver.k8s.io PriorityLevelConfiguration."""

    def set_defaults(self, obj: Object) -> None:
        """Shares and queues."""
        exempt, limited = obj["spec"].get("exempt"), obj["spec"].get("limited")
        for part, shares in ((exempt, 0), (limited, 30)):
            if part is not None:
                if part.get("nominalConcurrencyShares") is None:
                    part["nominalConcurrencyShares"] = shares
                if part.get("lendablePercent") is None:
                    part["lendablePercent"] = 0
        queuing = ((limited or {}).get("limitResponse") or {}).get("queuing")
        if queuing is not None:
            for name, value in (("queues", 64), ("handSize", 8), ("queueLengthLimit", 50)):
                if not queuing.get(name):
                    queuing[name] = value


class DeviceClaimStrategy(BuiltinStrategy):
    """resource.k8s.io ResourceClaim."""

    def set_defaults(self, obj: Object) -> None:
        """One device for each request."""
        _request_defaults(obj["spec"])


class DeviceClaimTemplateStrategy(BuiltinStrategy):
    """resource.k8s.io ResourceClaimTemplate."""

    def set_defaults(self, obj: Object) -> None:
        """Those of the claims that are made from it."""
        _request_defaults(obj["spec"].get("spec") or {})


def _request_defaults(spec: Object) -> None:
    for request in (spec.get("devices") or {}).get("requests") or ():
        exactly = request.get("exactly")
        for wanted in [*([exactly] if exactly is not None else ()), *(request.get("firstAvailable") or ())]:
            if not wanted.get("allocationMode"):
                wanted["allocationMode"] = "ExactCount"
            if wanted["allocationMode"] == "ExactCount" and not wanted.get("count"):
                wanted["count"] = 1
