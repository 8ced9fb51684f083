"""POST, PUT and DELETE of resources."""

from __future__ import annotations

from envtest.apimachinery.errors import GroupResource, StatusError, bad_request, forbidden
from envtest.apimachinery.objects import Object
from envtest.endpoints.decoder import decode_object
from envtest.endpoints.listing import list_options, list_page
from envtest.endpoints.negotiation import Output
from envtest.endpoints.options import DeleteOptions, begin_write, delete_options
from envtest.endpoints.request import Request, Response
from envtest.endpoints.response_transform import encode_as, list_response, object_response
from envtest.registry.object_metadata import check_namespace
from envtest.registry.resource import RequestContext
from envtest.registry.selectors import selector_for
from envtest.writes.create_update import (
    admit_mutating,
    copy_object,
    create_object,
    dedupe_owners,
    update_object,
)
from envtest.writes.deletion import delete_object
from envtest.writes.server_core import Core

__all__ = ["check_name", "create", "delete", "delete_collection", "update"]


_JOBS = GroupResource("batch", "jobs")


def check_name(obj: Object, name: str) -> None:
    """Check that the object's name equals the name in the URL. Raises StatusError (400) if it does not."""
    object_name = obj["metadata"].get("name") or ""
    if not object_name:
        raise bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )
    if object_name != name:
        raise bad_request(
            f"the name of the object ({object_name}) does not match the name on the URL ({name})"
        )


async def create(core: Core, request: Request, ctx: RequestContext, output: Output) -> Response:
    """Handle POST of an object."""
    begin_write(request, ctx, "CREATE")
    obj = await decode_object(request, ctx)
    check_namespace(obj, ctx)
    if ctx.info.terminating:
        message = "create not allowed while custom resource definition is terminating"
        raise forbidden(ctx.info.resource, obj["metadata"].get("name") or "", message)
    return object_response(request, ctx.info, output, await create_object(core, ctx, obj), 201)


async def update(core: Core, request: Request, ctx: RequestContext, output: Output) -> Response:
    """Handle PUT of an object or of its status."""
    begin_write(request, ctx, "UPDATE")
    body = await decode_object(request, ctx)
    check_namespace(body, ctx)
    check_name(body, ctx.name)
    tracker = core.trackers.of(ctx.info, ctx.subresource)

    async def replace(old: Object | None) -> Object:
        new = copy_object(body)
        ctx.info.strategy.default(new)
        dedupe_owners(new, ctx)
        await tracker.run_with_conversions(
            lambda: tracker.track(old, new, manager=ctx.field_manager, now=ctx.now, sent=ctx.sent)
        )
        return await admit_mutating(core, ctx, new, old)

    obj, created = await update_object(core, ctx, replace, uid=body["metadata"].get("uid") or "")
    code = 201 if created else 200
    return object_response(request, ctx.info, output, obj, code)


async def delete(core: Core, request: Request, ctx: RequestContext, output: Output) -> Response:
    """Handle DELETE of an object."""
    options = await delete_options(request)
    ctx.operation = "DELETE"
    ctx.dry_run = options.dry_run
    ctx.options = options.document
    _warn_about_orphans(ctx, options)
    return await _delete_response(core, request, ctx, output, options)


def _warn_about_orphans(ctx: RequestContext, options: DeleteOptions) -> None:
    if (
        ctx.info.resource == _JOBS
        and options.propagation is None
        and options.orphan_dependents is None
    ):
        ctx.warn(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove "
            "them or set propagationPolicy=Orphan to suppress this warning"
        )


async def _delete_response(
    core: Core, request: Request, ctx: RequestContext, output: Output, options: DeleteOptions
) -> Response:
    deleted = await delete_object(core, ctx, options)
    if deleted.marked or ctx.info.strategy.returns_deleted_object:
        code = 202 if not deleted.removed and options.orphan_dependents is False else 200
        return object_response(request, ctx.info, output, deleted.obj, code)
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {
            "name": ctx.name,
            **({"group": ctx.info.group} if ctx.info.group else {}),
            "kind": ctx.info.plural,
            "uid": deleted.obj["metadata"].get("uid", ""),
        },
    }
    return Response(encode_as(status, output), 200, output.content_type)


async def delete_collection(
    core: Core, request: Request, ctx: RequestContext, output: Output
) -> Response:
    """Handle DELETE of a collection: delete the selected objects one by one, and return them as a list."""
    selection = list_options(request, watch=False)
    options = await delete_options(request)
    ctx.operation = "DELETE"
    ctx.dry_run = options.dry_run
    ctx.options = options.document
    selector = selector_for(
        ctx.info, selection.labels, selection.fields, core.shard_selector(selection.shards)
    )
    _warn_about_orphans(ctx, options)
    page = await list_page(
        core.store,
        ctx.info,
        ctx.namespace,
        selection,
        selector,
        core.clock.time(),
        in_pages=True,
    )
    response = await list_response(request, ctx.info, output, page)
    namespace = ctx.namespace
    for record in page.records:
        ctx.name = record.name
        ctx.namespace = record.namespace
        try:
            await delete_object(core, ctx, options)
        except StatusError as error:
            if error.code != 404:  # 404: another request deleted it meanwhile
                raise
    ctx.name = ""
    ctx.namespace = namespace
    return response
