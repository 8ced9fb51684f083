"""A client that sends requests as the Go clients of the specs do: in protobuf, and watches with bookmarks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from envtest.api_client import APIClient, Response, Watch
from envtest.endpoints.protobuf_encoder import encode_body

PROTOBUF = "application/vnd.kubernetes.protobuf"


class SpecClient(APIClient):
    """Sends objects of built-in kinds in protobuf, and the others as JSON."""

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """See :meth:`APIClient.request`."""
        accepts = {"Accept": f"{PROTOBUF},application/json", **(headers or {})}
        if is_built_in(body) and content_type == "application/json":
            body, content_type = encode_body(body), PROTOBUF
        return await super().request(
            method, path, body, query=query, content_type=content_type, headers=accepts
        )

    async def strategic(
        self, path: str, body: Any, query: Mapping[str, str] | None = None
    ) -> Response:
        """PATCH ``path`` with a strategic merge patch."""
        kind = "application/strategic-merge-patch+json"
        return await self.request("PATCH", path, body, query=query, content_type=kind)

    async def json_patch(self, path: str, *operations: tuple[str, str, Any]) -> Response:
        """PATCH ``path`` with a JSON patch of (operation, path, value)."""
        body = [{"op": name, "path": where, "value": value} for name, where, value in operations]
        return await self.request("PATCH", path, body, content_type="application/json-patch+json")

    async def create(self, path: str, body: dict[str, Any], **query: str) -> dict[str, Any]:
        """Create an object and return it."""
        created = await self.post(path, body, query)
        assert created.code == 201, created.body
        result: dict[str, Any] = created.body
        return result

    async def read(self, path: str, **query: str) -> dict[str, Any]:
        """Return the object or list at ``path``."""
        response = await self.get(path, query)
        assert response.code == 200, response.body
        result: dict[str, Any] = response.body
        return result

    async def names(self, path: str, **query: str) -> list[str]:
        """Return the names of the objects in a list, sorted."""
        return sorted(
            item["metadata"]["name"] for item in (await self.read(path, **query))["items"]
        )

    async def update(
        self, path: str, change: Callable[[dict[str, Any]], object], where: str = ""
    ) -> dict[str, Any]:
        """Read an object, change it and write it to the subresource ``where``; again if there is a conflict."""
        while True:
            obj = await self.read(path)
            change(obj)
            response = await self.put(path + where, obj)
            if response.code != 409:
                assert response.code == 200, response.body
                result: dict[str, Any] = response.body
                return result

    async def eventually(
        self,
        path: str,
        condition: Callable[[Any], object],
        query: Mapping[str, str] | None = None,
        seconds: float = 30,
    ) -> Any:
        """Read ``path`` until ``condition`` of the response's body holds, and return the body."""
        body: Any = None
        try:
            async with asyncio.timeout(seconds):
                while True:
                    body = (await self.get(path, query)).body
                    if condition(body):
                        return body
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{path}: {body}") from None

    async def vanished(self, path: str) -> None:
        """Wait until ``path`` does not exist."""
        await self.eventually(path, lambda body: body.get("code") == 404)

    @asynccontextmanager
    async def watching(self, path: str, **query: str) -> AsyncIterator[Watch]:
        """Watch ``path`` with bookmarks, from the version of a list unless the query has one."""
        if "resourceVersion" not in query:
            query["resourceVersion"] = (await self.read(path))["metadata"]["resourceVersion"]
        async with self.watch(path, {"allowWatchBookmarks": "true", **query}) as watch:
            yield watch


def is_built_in(body: Any) -> bool:
    """Return whether ``body`` is an object that Go clients send in protobuf."""
    if not isinstance(body, dict) or not body.get("kind"):
        return False
    group = str(body.get("apiVersion")).rpartition("/")[0]
    return "." not in group or group.endswith(".k8s.io")


async def matching(
    watch: Watch, kind: str, condition: Callable[[dict[str, Any]], object]
) -> dict[str, Any]:
    """Read events until one of the type ``kind`` meets ``condition``, and return its object."""
    while True:
        event = await watch.event(30)
        obj: dict[str, Any] = event["object"]
        if event["type"] == kind and condition(obj):
            return obj
