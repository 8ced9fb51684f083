"""Facts about the Gateway API that the controllers of RayClusters and of InferenceStacks share.

Everything here is pure: GVK constants, references with the API server's defaults written out (lists of routes are
atomic for server-side apply, so a default inside them would look like a change), and the status of a route.

Sources: `Gateway API`_ 1.6. A route of one namespace attaches to a Gateway in another one if the listener's
``allowedRoutes`` admits that namespace; a ReferenceGrant is needed only if a route's ``backendRefs``, or a listener's
``certificateRefs``, name an object in another namespace. The routes here target Services in their own namespace.

.. _Gateway API: https://gateway-api.sigs.k8s.io/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from cfo.api.reading import MAX_MESSAGE, text
from cfo.runtime import GVK, Object, find_condition, namespace_of

GROUP: Final = "gateway.networking.k8s.io"
GATEWAY: Final = GVK(GROUP, "v1", "Gateway")
HTTP_ROUTE: Final = GVK(GROUP, "v1", "HTTPRoute")
TLS_ROUTES: Final = tuple(
    GVK(GROUP, version, "TLSRoute") for version in ("v1", "v1alpha3", "v1alpha2")
)
"""The versions of TLSRoute, the preferred one first: v1 since Gateway API 1.5, before only experimental ones."""
BACKEND_TLS_POLICIES: Final = tuple(
    GVK(GROUP, version, "BackendTLSPolicy") for version in ("v1", "v1alpha3")
)
"""The versions of BackendTLSPolicy, the preferred one first: v1 since Gateway API 1.4, before an experimental one."""
HTTPS_PORT: Final = 443
"""The port of a listener unless another one is configured."""

_ROUTE_CONDITIONS = ("Accepted", "ResolvedRefs")


def parent_reference(reference: Mapping[str, Any]) -> Object:
    """Return a reference from a route to its parent: a Gateway, unless ``reference`` has another kind."""
    return {"group": GROUP, "kind": "Gateway", **reference}


def backend_reference(reference: Mapping[str, Any]) -> Object:
    """Return a reference from a route to a backend: a Service, unless ``reference`` has another kind."""
    return {"group": "", "kind": "Service", "weight": 1, **reference}


def path_match(match: Mapping[str, Any] | None = None) -> Object:
    """Return the path of a match of an HTTPRoute: every path, unless ``match`` has another one."""
    return {"type": "PathPrefix", "value": "/", **(match or {})}


class RouteProblem(msgspec.Struct, frozen=True):
    """A condition of a route that is false: what its parent (a listener of a Gateway) does not accept, and why."""

    parent: str
    condition: str
    reason: str
    message: str


def route_problems(route: Mapping[str, Any]) -> Iterator[RouteProblem]:
    """Yield the problems that the parents of ``route`` report for its current generation."""
    for parent in _current_parents(route):
        for name in _ROUTE_CONDITIONS:
            condition = find_condition(parent.get("conditions"), name) or {}
            if _is_current(condition, route) and condition.get("status") == "False":
                yield RouteProblem(
                    parent=_name_of_parent(parent.get("parentRef") or {}),
                    condition=name,
                    reason=str(condition.get("reason") or "NotReady"),
                    message=text(condition.get("message"), MAX_MESSAGE),
                )


def is_accepted(route: Mapping[str, Any]) -> bool:
    """Return whether every parent in the spec of ``route`` accepted its current generation, and found its backends.

    A parent of which no controller reports a status has not accepted the route.
    """
    accepted = {
        _identity(parent.get("parentRef") or {}, route)
        for parent in _current_parents(route)
        if _is_true(parent, "Accepted", route) and _is_true(parent, "ResolvedRefs", route)
    }
    wanted = _wanted_parents(route)
    return bool(wanted) and wanted <= accepted


def _current_parents(route: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the status of each parent that is in the spec; a controller may leave that of an earlier parent."""
    wanted = _wanted_parents(route)
    for parent in (route.get("status") or {}).get("parents") or ():
        if _identity(parent.get("parentRef") or {}, route) in wanted:
            yield parent


def _wanted_parents(route: Mapping[str, Any]) -> set[tuple[Any, ...]]:
    references = (route.get("spec") or {}).get("parentRefs") or ()
    return {_identity(reference, route) for reference in references}


def _is_true(parent: Mapping[str, Any], name: str, route: Mapping[str, Any]) -> bool:
    condition = find_condition(parent.get("conditions"), name) or {}
    return _is_current(condition, route) and condition.get("status") == "True"


def _is_current(condition: Mapping[str, Any], route: Mapping[str, Any]) -> bool:
    if not condition:
        return False
    generation = (route.get("metadata") or {}).get("generation") or 0
    observed_generation = condition.get("observedGeneration") or 0
    return bool(observed_generation >= generation)


def _identity(reference: Mapping[str, Any], route: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what identifies a parent; a reference without a namespace means that of the route."""
    namespace = reference.get("namespace") or namespace_of(route)
    return (
        namespace,
        reference.get("name"),
        reference.get("sectionName"),
        reference.get("port"),
    )


def _name_of_parent(reference: Mapping[str, Any]) -> str:
    parts = (reference.get("namespace"), reference.get("name"))
    name = "/".join(str(part) for part in parts if part)
    gateway = f"{reference.get('kind') or 'Gateway'} {name}"
    section = reference.get("sectionName")
    if section:
        return f"{gateway}, listener {section}"
    return gateway
