"""Reports what a Gateway says about the routes of a RayCluster, as Events on the RayCluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cfo.api.gateway import RouteProblem, is_accepted, route_problems
from cfo.controllers.raycluster.children import Children
from cfo.runtime import GVK, NamespacedName, gvk_of, key_of, name_of

__all__ = ["RouteEvents"]

_ACCEPTED = "accepted"
_PENDING = "pending"

_State = str | tuple[RouteProblem, ...]


class RouteEvents:
    """Records one Event for each change of a route's state.

    A route that is already accepted when the operator starts causes none. The state is kept in memory, because a route
    has no place for it; after a restart, a problem that persists is reported again.
    """

    def __init__(self) -> None:
        self._reported: dict[NamespacedName, dict[GVK, _State]] = {}

    def forget(self, cluster: NamespacedName) -> None:
        """Forget a cluster that no longer exists."""
        self._reported.pop(cluster, None)

    def report(self, children: Children, route: Mapping[str, Any], *, gateway: str) -> None:
        """Record the state of ``route`` on its cluster, unless it was the last one that was recorded.

        ``gateway``: what the route waits for, for the message.
        """
        states = self._reported.setdefault(key_of(children.cluster), {})
        gvk, state = gvk_of(route), _state_of(route)
        previous = states.get(gvk)
        if state == previous:
            return
        states[gvk] = state
        title = f"{gvk.kind} {name_of(route)}"
        if isinstance(state, tuple):
            for problem in state:
                children.record_warning(
                    "RouteNotAccepted",
                    f"{title}: {problem.parent} reports {problem.condition}: False ({problem.reason}): "
                    f"{problem.message}",
                )
        elif state == _PENDING and previous is None:
            children.record_normal("RoutePending", f"{title} waits until {gateway} accepts it")
        elif state == _ACCEPTED and previous is not None:
            children.record_normal("RouteAccepted", f"{title} is accepted by {gateway}")


def _state_of(route: Mapping[str, Any]) -> _State:
    if is_accepted(route):
        return _ACCEPTED
    return tuple(route_problems(route)) or _PENDING
