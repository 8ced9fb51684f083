"""ComponentStatuses: not stored, but composed for each request from the health of the control plane's parts.

As kube-apiserver does not find a scheduler or controller manager on its own host, both are unhealthy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from envtest.apimachinery.errors import plain_error
from envtest.apimachinery.label_selectors import parse_labels
from envtest.apimachinery.objects import Object
from envtest.endpoints.listing import list_options
from envtest.endpoints.negotiation import Output
from envtest.endpoints.request import Request, Response
from envtest.endpoints.response_transform import encoded_list, object_response
from envtest.registry.resource import RequestContext
from envtest.registry.selectors import parse_fields
from envtest.storage.record import encode
from envtest.writes.server_core import Core

__all__ = ["get_status", "list_statuses"]

_PORTS: Final = {"scheduler": 10259, "controller-manager": 10257, "etcd-0": 0}


def _status(name: str) -> Object:
    address = f"127.0.0.1:{_PORTS[name]}"
    refused = f'Get "https://{address}/healthz": dial tcp {address}: connect: connection refused'
    if _PORTS[name]:
        status = "False"
        message = refused
    else:
        status = "True"
        message = "ok"
    conditions = [{"type": "Healthy", "status": status, "message": message}]
    return {
        "apiVersion": "v1",
        "kind": "ComponentStatus",
        "metadata": {"name": name},
        "conditions": conditions,
    }


async def get_status(core: Core, request: Request, ctx: RequestContext, output: Output) -> Response:
    """Handle GET of one ComponentStatus."""
    if ctx.name not in _PORTS:
        raise plain_error(f"Component not found: {ctx.name}")
    return object_response(request, ctx.info, output, _status(ctx.name))


async def list_statuses(
    core: Core, request: Request, ctx: RequestContext, output: Output
) -> Response:
    """Handle GET of all ComponentStatuses; they have no labels, and one field."""
    options = list_options(request, watch=False)
    labels = parse_labels(options.labels)
    fields = parse_fields(options.fields)
    encoded: list[bytes] = []
    if labels.matches({}):
        encoded = [encode(_status(name)) for name in _PORTS if _has_name(name, fields)]
    return encoded_list(request, ctx.info, output, encoded, {})


def _has_name(name: str, fields: Iterable[tuple[str, str, str]]) -> bool:
    """Return whether ``name`` fulfills each term of a field selector about ``metadata.name``."""
    for field, operator, value in fields:
        must_equal = operator == "="
        if field == "metadata.name" and (name == value) != must_equal:
            return False
    return True
