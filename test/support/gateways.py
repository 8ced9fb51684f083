"""Gateway API for tests: CRDs that accept any spec, and what the controller of a Gateway reports about a route."""

from __future__ import annotations

from typing import Any

from cfo.api.gateway import GROUP
from cfo.runtime.objects.unstructured import Object
from test.support.raycluster_environment import Environment, crd

HTTP_ROUTE_CRD = crd(GROUP, "v1", "HTTPRoute", "httproutes")
TLS_ROUTE_CRD = crd(GROUP, "v1", "TLSRoute", "tlsroutes")
BACKEND_TLS_POLICY_CRD = crd(GROUP, "v1", "BackendTLSPolicy", "backendtlspolicies")
GATEWAY_CRDS = (HTTP_ROUTE_CRD, TLS_ROUTE_CRD, BACKEND_TLS_POLICY_CRD)

GATEWAY_SETTINGS: dict[str, Any] = {
    "name": "shared",
    "namespace": "gateways",
    "dashboardListener": "https",
    "clientListener": "ray-client",
}


def old_tls_route_crd() -> Object:
    """Return the CRD of TLSRoutes before Gateway API 1.5."""
    return crd(GROUP, "v1alpha2", "TLSRoute", "tlsroutes")


def condition(
    kind: str, status: bool, generation: int, *, reason: str = "", message: str = ""
) -> dict[str, Any]:
    """Return a condition of a route."""
    return {
        "type": kind,
        "status": str(status),
        "reason": reason or kind,
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


async def report(
    env: Environment,
    route: Object,
    *,
    accepted: bool = True,
    resolved: bool = True,
    generation: int | None = None,
    message: str = "",
) -> Object:
    """Write the status of ``route`` as its Gateway's controller does, for ``generation`` (default: the current one)."""
    observed = route["metadata"]["generation"] if generation is None else generation
    (reference,) = route["spec"]["parentRefs"]
    conditions = [
        condition(
            "Accepted",
            accepted,
            observed,
            reason="" if accepted else "NotAllowedByListeners",
            message=message,
        ),
        condition(
            "ResolvedRefs",
            resolved,
            observed,
            reason="" if resolved else "BackendNotFound",
            message=message,
        ),
    ]
    parent = {
        "parentRef": reference,
        "controllerName": "example.com/gateway",
        "conditions": conditions,
    }
    return await env.patch(route, {"status": {"parents": [parent]}}, subresource="status")
