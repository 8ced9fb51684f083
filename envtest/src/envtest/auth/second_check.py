"""The second authorization of requests that do more than their verb says.

A PUT or PATCH that creates its object, and a GET that opens a connection to a pod, need the permission ``create`` as
well.
"""

from __future__ import annotations

from envtest.apimachinery.errors import forbidden
from envtest.auth.attributes import Attributes, forbidden_request
from envtest.auth.rbac import Authorizer
from envtest.registry.resource import RequestContext

__all__ = ["check_connect", "check_create"]


def _create(ctx: RequestContext) -> Attributes:
    info = ctx.info
    return Attributes(
        user=ctx.user,
        verb="create",
        group=info.group,
        version=info.version,
        resource=info.plural,
        subresource=ctx.subresource,
        namespace=ctx.namespace,
        name=ctx.name,
        is_resource_request=True,
    )


def check_create(authorizer: Authorizer, ctx: RequestContext) -> None:
    """Raise StatusError (403) if the user may not create the object that an update or patch creates."""
    attributes = _create(ctx)
    decision = authorizer.authorize(attributes)
    if not decision.allowed:
        raise forbidden_request(attributes, decision.reason)


def check_connect(authorizer: Authorizer, ctx: RequestContext) -> None:
    """Raise StatusError (403) if the user may not ``create`` the connection that a GET opens (a WebSocket)."""
    if ctx.verb == "create":
        return
    decision = authorizer.authorize(_create(ctx))
    if not decision.allowed:
        raise forbidden(ctx.info.resource, ctx.name, decision.reason)
