"""Strategies of flowcontrol.apiserver.k8s.io: API priority and fairness, which have defaults and few rules here."""

from __future__ import annotations

from envtest.builtins.strategy import GenerationStrategy
from envtest.objects import Object

__all__ = ["FlowSchemaStrategy", "PriorityLevelStrategy"]


class FlowSchemaStrategy(GenerationStrategy):
    """Strategy of flowcontrol.apiserver.k8s.io FlowSchema."""

    def set_defaults(self, obj: Object) -> None:
        """Set ``matchingPrecedence`` to 1000."""
        if not obj["spec"].get("matchingPrecedence"):
            obj["spec"]["matchingPrecedence"] = 1000


class PriorityLevelStrategy(GenerationStrategy):
    """Strategy of flowcontrol.apiserver.k8s.io PriorityLevelConfiguration."""

    def set_defaults(self, obj: Object) -> None:
        """Set the concurrency shares and the queue parameters."""
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
