"""Server-side apply of a client, without requests that would change nothing.

See docs/adr/0006-server-side-apply-only-on-change.md; :mod:`cfo.runtime.client.apply` compares the objects.
"""

from __future__ import annotations

from contextlib import suppress

import orjson

from cfo.runtime.client.api_request import APIRequest
from cfo.runtime.client.apply import ApplyIntent, UnchangedApplies, is_applied
from cfo.runtime.client.object_cache import StoredObject
from cfo.runtime.client.preconditions import require_controller
from cfo.runtime.client.reads import Reads
from cfo.runtime.client.recorded_requests import RecordedRequests
from cfo.runtime.client.request_target import cache_key, resolve_object
from cfo.runtime.objects.unstructured import Object, gvk_of, key_of, resource_version_of

__all__ = ["ServerSideApply"]

_APPLY = "application/apply-patch+yaml"


class ServerSideApply:
    """Applies objects, and remembers applies that the server answered without a change."""

    def __init__(self, requests: RecordedRequests, reads: Reads) -> None:
        self._requests = requests
        self._reads = reads
        self._unchanged = UnchangedApplies()

    async def apply(self, intent: ApplyIntent, *, force: bool, dry_run: bool) -> Object:
        """Send ``intent`` unless that would change nothing; return the resulting object."""
        desired, subresource = dict(intent.desired), intent.subresource
        gvk = gvk_of(desired)
        stored = None
        if not dry_run and subresource in {"", "status"}:
            cached = cache_key(self._requests.mapper, gvk, key_of(desired))
            if not self._requests.cache.is_uncertain(gvk, cached):
                stored = self._requests.cache.stored(gvk, cached)
        current: Object = orjson.loads(stored.object) if stored is not None else {}
        if stored is not None and self._is_unchanged(intent, current, stored):
            return current
        target = await resolve_object(self._requests.mapper, gvk, key_of(desired), subresource)
        if not subresource:
            await require_controller(self._requests, self._reads, target, desired)
        request = APIRequest(
            "PATCH",
            target.path,
            params={"force": "true" if force else "false"},
            content_type=_APPLY,
            idempotent=not resource_version_of(desired),
            verb="apply",
            resource=target.label,
        )
        result = await self._requests.write(request, target, desired, field_manager=intent.manager, dry_run=dry_run)
        if stored is not None and resource_version_of(result) == stored.resource_version:
            with suppress(orjson.JSONEncodeError):  # nested too deeply
                self._unchanged.remember(intent, current, stored.managers)
        return result

    def _is_unchanged(self, intent: ApplyIntent, current: Object, stored: StoredObject) -> bool:
        managers = stored.managers
        try:
            return is_applied(intent, current, managers) or self._unchanged.contains(intent, current, managers)
        except (orjson.JSONEncodeError, RecursionError):  # nested too deeply to compare
            return False
