"""Reads of a client: from the cache if it covers the objects, otherwise from the API server, in pages."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator

import orjson

from cfo.runtime.client.api_request import APIRequest
from cfo.runtime.client.errors import Expired, NotFound
from cfo.runtime.client.recorded_requests import RecordedRequests
from cfo.runtime.client.request_body import selector_params
from cfo.runtime.client.request_target import RequestTarget, cache_key, resolve_collection, resolve_object
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object

__all__ = ["Reads"]

_PAGE_SIZE = 500
_PAGED_LIST_ATTEMPTS = 2


class Reads:
    """Reads objects of any kind as dicts."""

    def __init__(self, requests: RecordedRequests) -> None:
        self._requests = requests

    async def get(self, gvk: GVK, key: NamespacedName, *, live: bool) -> Object | None:
        """Return a copy of the object, or ``None`` if it does not exist (see :meth:`Client.get`)."""
        cached = cache_key(self._requests.mapper, gvk, key)
        is_covered = not live and self._requests.cache.covers(gvk, cached.namespace)
        if is_covered and not self._requests.cache.is_uncertain(gvk, cached):
            return self._requests.cache.get(gvk, cached)
        target = await resolve_object(self._requests.mapper, gvk, key)
        cached_uid = self._requests.cached_uid(target)
        try:
            body = await self._requests.send(APIRequest("GET", target.path, verb="get", resource=target.label))
        except NotFound:
            self._requests.record_not_found(target, cached_uid)
            return None
        obj: Object = orjson.loads(body)
        if self._requests.cache.is_uncertain(gvk, target.key):
            self._requests.record_response(target, obj, body)
        return obj

    async def get_subresource(self, gvk: GVK, key: NamespacedName, subresource: str) -> Object | None:
        """Return the API server's response for a subresource (``scale``, ``status``), or ``None``."""
        target = await resolve_object(self._requests.mapper, gvk, key, subresource)
        request = APIRequest("GET", target.path, verb="get", resource=target.label)
        try:
            obj: Object = orjson.loads(await self._requests.send(request))
        except NotFound:
            return None
        return obj

    async def list(
        self, gvk: GVK, namespace: str, label_selector: str, field_selector: str, *, live: bool
    ) -> builtins.list[Object]:
        """Return copies of the objects that match (see :meth:`Client.list`)."""
        if not live and not field_selector:
            cached = cache_key(self._requests.mapper, gvk, NamespacedName(namespace, "")).namespace
            if self._requests.cache.covers(gvk, cached, label_selector):
                for key in self._requests.cache.uncertain_keys(gvk, cached):
                    await self.get(gvk, key, live=False)
                return self._requests.cache.list(gvk, cached, label_selector)
        target = await resolve_collection(self._requests.mapper, gvk, namespace, all_namespaces=True)
        params = selector_params(label_selector, field_selector)
        for _ in range(_PAGED_LIST_ATTEMPTS):
            try:
                return [item async for item in self._pages(target, {**params, "limit": str(_PAGE_SIZE)})]
            except Expired:
                continue
        return [item async for item in self._pages(target, params)]

    async def _pages(self, target: RequestTarget, params: dict[str, str]) -> AsyncIterator[Object]:
        while True:
            request = APIRequest("GET", target.path, params=params, compress=True, verb="list", resource=target.label)
            page = orjson.loads(await self._requests.send(request))
            for item in page.get("items") or ():
                item.setdefault("apiVersion", target.gvk.api_version)
                item.setdefault("kind", target.gvk.kind)
                yield item
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            params = {**params, "continue": token}
