"""Plain HTTP requests to a control plane, for tests of what is on the wire."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Self

import aiohttp

from cfo.envtest import ControlPlane

PATIENCE = 10.0


class Answer(NamedTuple):
    code: int
    body: Any
    headers: Mapping[str, str]


class Watch:
    """An open watch, event by event."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def event(self) -> dict[str, Any]:
        line = await asyncio.wait_for(self._response.content.readline(), PATIENCE)
        assert line, "the watch ended"
        event: dict[str, Any] = json.loads(line)
        return event

    async def summary(self, count: int) -> list[tuple[str, str]]:
        """Type and name of the next events."""
        events = [await self.event() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]

    async def ended(self) -> bool:
        return await asyncio.wait_for(self._response.content.readline(), PATIENCE) == b""


class Api:
    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        context = ssl.create_default_context(cadata=self._plane.ca_pem.decode())
        self._session = aiohttp.ClientSession(
            self._plane.url, connector=aiohttp.TCPConnector(ssl=context), read_bufsize=1 << 24
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    def _headers(self, content_type: str, headers: Mapping[str, str] | None) -> dict[str, str]:
        base = {"Authorization": f"Bearer {self._plane.token}", "User-Agent": "test/1", "Accept": "application/json"}
        if content_type:
            base["Content-Type"] = content_type
        return base | dict(headers or {})

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        assert self._session is not None
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = self._headers(content_type if data is not None else "", headers)
        async with self._session.request(method, path, data=data, params=query, headers=sent) as response:
            raw = await response.read()
            is_json = response.content_type == "application/json"
            return Answer(response.status, json.loads(raw) if is_json and raw else raw.decode(), response.headers)

    async def get(self, path: str, query: Mapping[str, str] | None = None, **more: Any) -> Answer:
        return await self.request("GET", path, query=query, **more)

    async def post(self, path: str, body: Any, query: Mapping[str, str] | None = None, **more: Any) -> Answer:
        return await self.request("POST", path, body, query=query, **more)

    async def put(self, path: str, body: Any, query: Mapping[str, str] | None = None, **more: Any) -> Answer:
        return await self.request("PUT", path, body, query=query, **more)

    async def delete(self, path: str, body: Any = None, query: Mapping[str, str] | None = None, **more: Any) -> Answer:
        return await self.request("DELETE", path, body, query=query, **more)

    async def merge(self, path: str, body: Any, query: Mapping[str, str] | None = None) -> Answer:
        return await self.request("PATCH", path, body, query=query, content_type="application/merge-patch+json")

    async def apply(self, path: str, body: Any, manager: str, query: Mapping[str, str] | None = None) -> Answer:
        parameters = {"fieldManager": manager, **(query or {})}
        return await self.request("PATCH", path, body, query=parameters, content_type="application/apply-patch+yaml")

    @asynccontextmanager
    async def watch(
        self, path: str, query: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[Watch]:
        assert self._session is not None
        parameters = {"watch": "true", **(query or {})}
        async with self._session.get(path, params=parameters, headers=self._headers("", headers)) as response:
            assert response.status == 200, await response.text()
            yield Watch(response)

    async def until(self, path: str, code: int) -> Answer:
        """Waits until a GET answers with ``code``; on a watch where that tells, by asking again where none can."""
        async with asyncio.timeout(PATIENCE):
            while True:
                answer = await self.get(path)
                if answer.code == code:
                    return answer
                await asyncio.sleep(0.02)


CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    obj: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}
    if data is not None:
        obj["data"] = data
    return obj
