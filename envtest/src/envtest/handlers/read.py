"""GET of objects and lists."""

from __future__ import annotations

from dataclasses import replace

from envtest.apimachinery.errors import (
    GroupResource,
    StatusError,
    bad_request,
    not_found,
    rv_too_large,
)
from envtest.endpoints.listing import list_options, list_page, parse_revision
from envtest.endpoints.negotiation import Output
from envtest.endpoints.request import Request, Response
from envtest.endpoints.response_transform import list_response, makes_internal, object_response
from envtest.registry.resource import RequestContext
from envtest.registry.selectors import selector_for
from envtest.registry.storage_version import encode_internal, encode_records
from envtest.writes.server_core import Core

__all__ = ["get_object", "list_objects", "requested_revision"]


def _stale_revision(request: Request, core: Core) -> int | None:
    """Return the revision that a stale watch cache (an injected fault) shows to reads with resourceVersion 0."""
    if (
        request.faults is None
        or request.faults.stale_revision is None
        or request.parameter("resourceVersion") != "0"
    ):
        return None
    return min(request.faults.stale_revision, core.store.revision)


def requested_revision(request: Request, ctx: RequestContext) -> int:
    """Return the resourceVersion of a GET. Raises StatusError: 500, and 400 for events, which have no watch cache."""
    try:
        return parse_revision(request.parameter("resourceVersion"))
    except StatusError as error:
        if ctx.info.storage != _EVENTS:
            raise
        raise bad_request(f"invalid resource version: {error.message}") from None


_EVENTS = GroupResource("", "events")


async def get_object(core: Core, request: Request, ctx: RequestContext, output: Output) -> Response:
    """Handle GET of one object, also of its status and other subresources that return the whole object."""
    revision = requested_revision(request, ctx)
    if revision > core.store.revision:
        raise rv_too_large(revision, core.store.revision)
    record = core.store.get(ctx.info.storage, ctx.namespace, ctx.name)
    stale = _stale_revision(request, core)
    if stale is not None:  # an injected fault: reads from a cache that lags behind
        old_records = core.store.list(ctx.info.storage, ctx.namespace, revision=stale)
        record = next((each for each in old_records if each.name == ctx.name), None)
    if record is None:
        raise not_found(ctx.info.resource, ctx.name)
    encode_items = encode_internal if makes_internal(request, output) else encode_records
    data = (await encode_items(ctx.info, [record]))[0]
    return object_response(request, ctx.info, output, data)


async def list_objects(
    core: Core, request: Request, ctx: RequestContext, output: Output
) -> Response:
    """Handle GET of a collection, in one namespace or in all."""
    options = list_options(request, watch=False)
    selector = selector_for(
        ctx.info, options.labels, options.fields, core.shard_selector(options.shards)
    )
    stale = _stale_revision(request, core)
    if stale is not None:
        options = replace(options, resource_version=str(stale), match="Exact")
    page = await list_page(
        core.store, ctx.info, ctx.namespace, options, selector, core.clock.time()
    )
    return await list_response(request, ctx.info, output, page)
