"""Admission handlers behind the webhook server of the manager."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cfo.runtime.webhook import (
    AdmissionRequest,
    AdmissionResponse,
    Operation,
    Webhook,
    Webhooks,
    json_patch,
)
from cfo_handlers.bodies import Body, Patch
from cfo_handlers.causes import ObjectCause, matches
from cfo_handlers.declarations import WebhookHandler
from cfo_handlers.diffs import compute_diff
from cfo_handlers.environment import Environment
from cfo_handlers.errors import AdmissionError
from cfo_handlers.execution import call_handler
from cfo_handlers.filters import Token
from cfo_handlers.patching import patched
from cfo_handlers.resource_selectors import Resource

_NOT_IN_PATH = re.compile(r"[^a-zA-Z0-9\-]+")
_TIMEOUT_SECONDS = 30


def register_webhooks(
    environment: Environment, resources: list[Resource], webhooks: Webhooks, domain: str
) -> int:
    """Register a webhook for each admission handler and each resource; return their number.

    ``domain``: the end of their names, a domain name of at least two parts.
    """
    count = 0
    for handler in environment.registry.of_type(WebhookHandler):
        for resource in handler.selector.select(resources):
            webhooks.add(_webhook(environment, handler, resource, domain))
            count += 1
    return count


def _webhook(
    environment: Environment, handler: WebhookHandler, resource: Resource, domain: str
) -> Webhook:
    word = _NOT_IN_PATH.sub("-", handler.id.replace("_", "-")).strip("-").lower()
    action = "mutate" if handler.mutating else "validate"
    operations = sorted(handler.selected_operations)
    return Webhook(
        name=f"{word}.{resource.plural}.{domain}",
        path=f"/{action}/{word}/{_NOT_IN_PATH.sub('-', str(resource))}",
        handler=_AdmissionHandler(environment, handler, resource),
        mutating=handler.mutating,
        groups=(resource.group,),
        versions=(resource.version,),
        resources=_resources_with_subresource(resource, handler.subresource),
        operations=tuple(Operation(operation) for operation in operations),
        failure_policy="Ignore" if handler.ignore_failures else "Fail",
        side_effects="NoneOnDryRun" if handler.side_effects else "None",
        timeout_seconds=_TIMEOUT_SECONDS,
        object_selector=_object_selector(handler),
    )


def _resources_with_subresource(resource: Resource, subresource: str | None) -> tuple[str, ...]:
    """Return the resources of a webhook's rule: those of the objects, or of a subresource; ``*`` means both."""
    if not subresource:
        return (resource.plural,)
    if subresource == "*":
        return (resource.plural, f"{resource.plural}/*")
    return (f"{resource.plural}/{subresource}",)


def _object_selector(handler: WebhookHandler) -> dict[str, Any]:
    expressions: list[dict[str, Any]] = []
    for key, value in (handler.labels or {}).items():
        if value is Token.PRESENT:
            expressions.append({"key": key, "operator": "Exists"})
        elif value is Token.ABSENT:
            expressions.append({"key": key, "operator": "DoesNotExist"})
        elif not callable(value):
            expressions.append({"key": key, "operator": "In", "values": [str(value)]})
    return {"matchExpressions": expressions} if expressions else {}


@dataclass(frozen=True)
class _AdmissionHandler:
    """Answers the requests of one webhook."""

    environment: Environment
    handler: WebhookHandler
    resource: Resource

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Call the handler if its filters match."""
        environment = self.environment
        handler = self.handler
        old = None if request.old_object is None else Body(request.old_object)
        new = None if request.object is None else Body(request.object)
        obj = request.object
        if obj is None:
            obj = request.old_object or {}
        cause = ObjectCause(
            environment,
            self.resource,
            Body(obj),
            environment.memo,
            old=old,
            new=new,
            diff=await request.compute(compute_diff, request.old_object, request.object),
            operation=str(request.operation),
            subresource=request.sub_resource or None,
            dryrun=request.dry_run,
            userinfo={
                "username": request.user_info.username,
                "uid": request.user_info.uid,
                "groups": list(request.user_info.groups),
            },
            headers={},
            sslpeer={},
            warnings=[],
        )
        if not matches(handler, cause):
            return AdmissionResponse(allowed=True)
        outcome = await call_handler(handler, cause)
        request.warn(*map(str, cause.specific["warnings"]))
        error = outcome.exception
        if error is not None:
            code = 500
            if isinstance(error, AdmissionError) and error.code:
                code = error.code
            return AdmissionResponse(allowed=False, code=code, message=str(error) or repr(error))
        if not handler.mutating or not cause.patch:
            return AdmissionResponse(allowed=True)
        patch = await request.compute(patch_operations, obj, cause.patch)
        return AdmissionResponse(allowed=True, patch=patch)


def patch_operations(obj: dict[str, Any], patch: Patch) -> Sequence[dict[str, Any]]:
    """Return the JSON patch of what a patch changes in an object."""
    return json_patch(obj, patched(obj, patch))
