"""The requests of a client, whose responses are recorded in the cache.

After a write whose outcome is unknown (no response, or a 5xx response), the object is marked as uncertain.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from cfo.runtime.client.api_request import APIRequest
from cfo.runtime.client.errors import APIError, NotFound, TransportError, UnknownKind
from cfo.runtime.client.object_cache import ClientCache
from cfo.runtime.client.request_body import encode_body
from cfo.runtime.client.request_target import RequestTarget
from cfo.runtime.client.transport import Transport
from cfo.runtime.objects.unstructured import Object, is_deleting, key_of, uid_of

if TYPE_CHECKING:
    from cfo.runtime.client.discovery import RESTMapper  # imports this package's transport

__all__ = ["RecordedRequests"]


class RecordedRequests:
    """Sends requests, and records in ``cache`` which state of the objects the responses report."""

    def __init__(self, transport: Transport, mapper: RESTMapper, cache: ClientCache) -> None:
        self.transport = transport
        self.mapper = mapper
        self.cache = cache

    async def send(self, request: APIRequest) -> bytes:
        """Send a request; return the body of the response."""
        try:
            response = await self.transport.request(request)
        except NotFound as error:
            if error.details.get("name"):
                raise
            # The 404 is for the resource, not for the object: the kind is no longer served.
            self.mapper.invalidate()
            raise UnknownKind(str(error)) from error
        return response.body

    async def send_write(self, request: APIRequest, changed: RequestTarget) -> bytes:
        """Send a write of ``changed``; if its outcome is unknown, mark the object as uncertain."""
        try:
            return await self.send(request)
        except TransportError as error:
            if error.outcome_unknown:
                self._mark_uncertain(changed)
            raise
        except APIError as error:
            if error.code >= 500:
                self._mark_uncertain(changed)
            raise

    async def write(
        self, request: APIRequest, changed: RequestTarget, body: Any, *, field_manager: str, dry_run: bool
    ) -> Object:
        """Send an object or a patch; return the object in the response."""
        params = {"fieldManager": field_manager, **request.params}
        request = replace(request, params=params, body=encode_body(body, request.verb, request.resource))
        if dry_run:
            persisted: Object = orjson.loads(await self.send(replace(request, params={**params, "dryRun": "All"})))
            return persisted
        cached_uid = self.cached_uid(changed)
        try:
            response = await self.send_write(request, changed)
        except NotFound as error:
            # A create, and other requests of a subresource, can miss another object: a namespace, for example.
            is_missing = request.method in {"PATCH", "PUT"} and error.details.get("name") == changed.key.name
            if is_missing and error.details.get("kind") == changed.resource.gvr.resource:
                self.record_not_found(changed, cached_uid)
            raise
        obj: Object = orjson.loads(response)
        if obj.get("kind") == changed.gvk.kind:
            self.record_response(changed, obj, response)
        return obj

    # Recording.

    def cached_uid(self, target: RequestTarget) -> str:
        """Return the uid of the cached object, uncertain or not, or the empty string."""
        stored = self.cache.stored(target.gvk, target.key)
        return stored.uid if stored is not None else ""

    def _mark_uncertain(self, target: RequestTarget) -> None:
        if target.key.name:
            self.cache.mark_uncertain(target.gvk, target.key)

    def record_response(self, target: RequestTarget, obj: Object, body: bytes) -> None:
        """Record the response to a write: ``obj``, whose JSON is ``body``."""
        if _was_removed(obj):
            self.cache.record_deletion(target.gvk, key_of(obj), uid_of(obj))
        else:
            self.cache.record_write(target.gvk, body)

    def record_deleted_object(self, target: RequestTarget, obj: Object, body: bytes) -> None:
        """Record the object in the response to a DELETE: its new or, without a deletionTimestamp, its final state."""
        if is_deleting(obj):
            self.record_response(target, obj, body)
        elif uid_of(obj):
            self.cache.record_deletion(target.gvk, target.key, uid_of(obj))

    def record_not_found(self, target: RequestTarget, uid_before: str) -> None:
        """Record that the object was not found; ``uid_before`` was the cached uid before the request.

        An object that was stored in the meantime came from a watch and may be newer, so it is kept.
        """
        if uid_before or not self.cached_uid(target):
            self.cache.record_deletion(target.gvk, target.key, uid_before)


def _was_removed(obj: Object) -> bool:
    """Return whether the write that returned this object removed it, because nothing blocks its deletion any longer.

    The response to removing the last finalizer of an object that is being deleted contains the object.
    """
    metadata = obj.get("metadata") or {}
    if not is_deleting(obj) or metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds"):
        return False
    return not (obj.get("kind") == "Namespace" and (obj.get("spec") or {}).get("finalizers"))
