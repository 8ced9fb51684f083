"""The subresource ``finalize`` of namespaces.

DELETE marks a namespace, the namespace controller empties it, and ``finalize`` removes its finalizer, which deletes it.
"""

from __future__ import annotations

from envtest.create_update import copy_object, update_object
from envtest.decoder import decode_object
from envtest.errors import not_found
from envtest.handlers.write import check_name
from envtest.http import Request, Response
from envtest.negotiation import Output
from envtest.objects import Object
from envtest.options import begin_write
from envtest.resource import RequestContext
from envtest.response_transform import object_response
from envtest.server_core import Core

__all__ = ["finalize"]


async def finalize(core: Core, request: Request, ctx: RequestContext, output: Output) -> Response:
    """Handle PUT of ``namespaces/NAME/finalize``, which changes only ``spec.finalizers``."""
    begin_write(request, ctx, "UPDATE")
    body = await decode_object(request, ctx)
    check_name(body, ctx.name)
    tracker = core.trackers.of(ctx.info, ctx.subresource)

    async def set_finalizers(old: Object | None) -> Object:
        if old is None:
            raise not_found(ctx.info.resource, ctx.name)
        before = copy_object(old)
        finalizers = (body.get("spec") or {}).get("finalizers")
        if finalizers:
            old["spec"] = {**(old.get("spec") or {}), "finalizers": finalizers}
        else:
            old.setdefault("spec", {}).pop("finalizers", None)
        old["metadata"]["resourceVersion"] = (
            body["metadata"].get("resourceVersion") or old["metadata"]["resourceVersion"]
        )
        tracker.track(before, old, manager=ctx.field_manager, now=ctx.now)
        return await core.admission.mutate(ctx, old, before)

    obj, _ = await update_object(core, ctx, set_finalizers)
    return object_response(request, ctx.info, output, obj)
