"""Subresources and resources that are no plain objects: which handler each has.

The key is (group, plural, subresource), or (group, plural, verb) for a resource that is not stored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from cfo.envtest.body import decode_object
from cfo.envtest.context import RequestContext
from cfo.envtest.core import Core
from cfo.envtest.handlers.write import manager_name
from cfo.envtest.http import Call, Reply
from cfo.envtest.negotiation import Output
from cfo.envtest.options import write_options
from cfo.envtest.output import object_reply

__all__ = ["SUBRESOURCES"]

Handler = Callable[[Core, Call, RequestContext, Output], Awaitable["Reply | web.StreamResponse"]]


async def review(core: Core, call: Call, ctx: RequestContext, output: Output) -> Reply:
    """POST of a review: answered, not stored."""
    options = write_options(call, "CreateOptions")
    ctx.operation = "CREATE"
    ctx.dry_run, ctx.field_validation = options.dry_run, options.field_validation
    ctx.field_manager, ctx.options = manager_name(call, options.field_manager), options.document()
    obj = await decode_object(call, ctx)
    obj.setdefault("metadata", {})
    ctx.info.strategy.default(obj)
    core.trackers.of(ctx.info).track(None, obj, manager=ctx.field_manager, now=ctx.now)
    return object_reply(call, ctx.info, output, core.reviews.answer(ctx, obj), 201)


SUBRESOURCES: dict[tuple[str, str, str], Handler] = {
    ("authorization.k8s.io", name, "create"): review
    for name in (
        "subjectaccessreviews",
        "selfsubjectaccessreviews",
        "localsubjectaccessreviews",
        "selfsubjectrulesreviews",
    )
} | {("authentication.k8s.io", name, "create"): review for name in ("selfsubjectreviews", "tokenreviews")}
