"""The handlers of subresources, and of resources that are not stored.

Keys are (group, plural, subresource), or (group, plural, verb) for a resource that is not stored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache

from envtest.apimachinery.errors import not_found
from envtest.apimachinery.objects import Object
from envtest.apply.manager import Tracker
from envtest.apply.schema_types import ObjectType
from envtest.auth.token_request import request_token
from envtest.endpoints.decoder import decode_object, decode_typed
from envtest.endpoints.negotiation import Output
from envtest.endpoints.options import begin_write
from envtest.endpoints.request import Request, Response
from envtest.endpoints.response_transform import encode_as, object_response
from envtest.handlers.component_statuses import get_status, list_statuses
from envtest.handlers.connections import connect, proxy, read_log
from envtest.handlers.pods import bind, evict
from envtest.handlers.scale import scale
from envtest.handlers.write import check_name
from envtest.http_server.responses import SentResponse
from envtest.registry.object_metadata import check_namespace, wipe_for_create
from envtest.registry.resource import RequestContext
from envtest.writes.create_update import copy_object, dedupe_owners, update_object
from envtest.writes.server_core import Core

__all__ = ["SUBRESOURCES"]

_REQUEST_TYPE = "io.k8s.api.authentication.v1.TokenRequest"

Handler = Callable[[Core, Request, RequestContext, Output], Awaitable["Response | SentResponse"]]


async def review(core: Core, request: Request, ctx: RequestContext, output: Output) -> Response:
    """Handle POST of a review: return the result without storing it."""
    begin_write(request, ctx, "CREATE")
    obj = await decode_object(request, ctx)
    check_namespace(obj, ctx)
    wipe_for_create(obj["metadata"])
    ctx.info.strategy.default(obj)
    dedupe_owners(obj, ctx)
    core.trackers.of(ctx.info).track(None, obj, manager=ctx.field_manager, now=ctx.now)
    obj = await core.admission.mutate(ctx, obj, None)
    await core.admission.validate(ctx, obj, None)
    return object_response(request, ctx.info, output, core.reviews.complete(ctx, obj), 201)


@cache
def _token_tracker() -> Tracker:
    kind = ObjectType.builtin(_REQUEST_TYPE)
    return Tracker(kind, "authentication.k8s.io/v1", "TokenRequest", subresource="token")


async def token(core: Core, request: Request, ctx: RequestContext, output: Output) -> Response:
    """Handle POST of a TokenRequest for a service account."""
    begin_write(request, ctx, "CREATE")
    obj = await decode_typed(request, ctx, _REQUEST_TYPE, group="authentication.k8s.io")
    check_namespace(obj, ctx)
    given = {name: value for name, value in (obj.get("spec") or {}).items() if value is not None}
    obj["spec"] = {"expirationSeconds": 3600, **given}
    _token_tracker().track(None, obj, manager=ctx.field_manager, now=ctx.now)
    obj = await core.admission.mutate(ctx, obj, None)
    await core.admission.validate(ctx, obj, None)
    return Response(
        encode_as(request_token(core.store, core.tokens, ctx, obj), output),
        201,
        output.content_type,
    )


_REVIEWS = (
    ("authorization.k8s.io", "subjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
)


async def finalize(core: Core, request: Request, ctx: RequestContext, output: Output) -> Response:
    """Handle PUT of ``namespaces/NAME/finalize``, which changes all but the status.

    DELETE marks a namespace, the namespace controller empties it, and ``finalize`` removes its finalizer, which
    deletes it.
    """
    begin_write(request, ctx, "UPDATE")
    body = await decode_object(request, ctx)
    check_name(body, ctx.name)
    tracker = core.trackers.of(ctx.info, ctx.subresource)

    async def set_finalizers(old: Object | None) -> Object:
        if old is None:
            raise not_found(ctx.info.resource, ctx.name)
        before = copy_object(old)
        new = copy_object(body)
        new["status"] = before.get("status") or {}
        metadata = new["metadata"]
        metadata["resourceVersion"] = (
            metadata.get("resourceVersion") or old["metadata"]["resourceVersion"]
        )
        ctx.info.strategy.default(new)
        tracker.track(before, new, manager=ctx.field_manager, now=ctx.now)
        return await core.admission.mutate(ctx, new, before)

    uid = body["metadata"].get("uid") or ""
    obj, _ = await update_object(core, ctx, set_finalizers, uid=uid)
    return object_response(request, ctx.info, output, obj)


SUBRESOURCES: dict[tuple[str, str, str], Handler] = {
    **{(group, plural, "create"): review for group, plural in _REVIEWS},
    ("", "componentstatuses", "get"): get_status,
    ("", "componentstatuses", "list"): list_statuses,
    ("*", "*", "scale"): scale,
    ("", "serviceaccounts", "token"): token,
    ("", "pods", "binding"): bind,
    ("", "pods", "eviction"): evict,
    ("", "pods", "log"): read_log,
    ("", "bindings", "create"): bind,
    **{("", "pods", name): connect for name in ("attach", "exec", "portforward")},
    **{("", plural, "proxy"): proxy for plural in ("nodes", "pods", "services")},
    ("", "namespaces", "finalize"): finalize,
}
