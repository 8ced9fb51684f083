"""Sends the steps of a sequence to one server, and returns its answers in normal form."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any, Self

import aiohttp
import msgspec

from envtest import ControlPlane
from test.differential.normal_form import Normalizer
from test.differential.sequences import UID, VERSION, Sequence, Step

__all__ = ["Answer", "Server"]

ESTABLISHED_SECONDS = 30.0
"""Seconds to wait until a CRD is served."""


class Answer(msgspec.Struct, frozen=True, eq=True):
    """An answer in normal form; the body of a watch is the list of its events."""

    code: int
    warnings: list[str]
    body: Any


class Server:
    """A client of a control plane; use it as an asynchronous context manager."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._seen: dict[str, dict[str, Any]] = {}
        self._first = "1"

    async def __aenter__(self) -> Self:
        context = ssl.create_default_context(cadata=self._plane.ca_pem.decode())
        self._session = aiohttp.ClientSession(
            self._plane.url,
            connector=aiohttp.TCPConnector(ssl=context),
            headers={"Authorization": f"Bearer {self._plane.token}", "User-Agent": "differential"},
            read_bufsize=1 << 24,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def play(self, sequence: Sequence) -> list[Answer]:
        """Send all steps, and return the answers."""
        self._seen = {}
        normalizer = Normalizer()
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": sequence.namespace},
        }
        _, _, created = await self._send(Step("POST", "/api/v1/namespaces", body=namespace))
        self._first = _version(created)
        for obj in sequence.setup:
            await self._install(obj)
        answers = [await self._answer(step, normalizer) for step in sequence.steps]
        for path in sequence.cleanup:
            await self._remove(path)
        return answers

    async def _install(self, crd: dict[str, Any]) -> None:
        """Create a CRD, and wait until its resource is served."""
        root = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        code, _, body = await self._send(Step("POST", root, body=crd))
        if code != 201:
            raise RuntimeError(f"CRD rejected: {body}")
        spec = crd["spec"]
        collection = (
            f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        )
        async with asyncio.timeout(ESTABLISHED_SECONDS):
            code, _, listed = await self._send(Step("GET", collection))
            while code != 200:
                await asyncio.sleep(0.05)
                code, _, listed = await self._send(Step("GET", collection))
        self._first = _version(listed)  # a watch from before the CRD is too old

    async def _remove(self, path: str) -> None:
        """Delete an object, also if it has finalizers."""
        code, _, _ = await self._send(Step("DELETE", path, {"gracePeriodSeconds": "0"}))
        if code == 404:
            return
        body = {"metadata": {"finalizers": None}}
        await self._send(Step("PATCH", path, {}, "application/merge-patch+json", body=body))

    async def _answer(self, step: Step, normalizer: Normalizer) -> Answer:
        code, warnings, body = await self._send(step)
        if step.query.get("watch") and code == 200:
            body = [event for event in body if event["type"] != "BOOKMARK" or _ends_initial(event)]
        self._remember(step, body)
        return Answer(code, [normalizer.body(text) for text in warnings], normalizer.body(body))

    def _remember(self, step: Step, body: Any) -> None:
        metadata = body.get("metadata") if isinstance(body, dict) else None
        if not isinstance(metadata, dict) or "uid" not in metadata or "dryRun" in step.query:
            return
        path = step.target
        if step.method == "POST" and not path:
            path = f"{step.path}/{metadata.get('name')}"
        if path:
            self._seen[path] = metadata

    async def _send(self, step: Step) -> tuple[int, list[str], Any]:
        query = dict(step.query)
        if query.get("resourceVersion") == "$first":
            query["resourceVersion"] = self._first
        data = None
        if step.body is not None:
            body = self._filled(step.body, self._seen.get(step.target, {}))
            data = json.dumps(body, separators=(",", ":"))
        headers = {"Accept": step.accept, "Content-Type": step.content_type}
        async with self._session.request(
            step.method, step.path, params=query, data=data, headers=headers
        ) as response:
            raw = await response.read()
            warnings = response.headers.getall("Warning", [])
        return response.status, warnings, _decoded(raw, lines="watch" in query)

    def _filled(self, value: Any, metadata: dict[str, Any]) -> Any:
        if value == VERSION:
            return metadata.get("resourceVersion", "1")
        if value == UID:
            return metadata.get("uid", "absent")
        if isinstance(value, dict):
            return {key: self._filled(child, metadata) for key, child in value.items()}
        if isinstance(value, list):
            return [self._filled(child, metadata) for child in value]
        return value


def _version(obj: Any) -> str:
    return str(obj["metadata"].get("resourceVersion", "1"))


def _ends_initial(event: dict[str, Any]) -> bool:
    return "annotations" in event["object"].get("metadata", {})


def _decoded(raw: bytes, *, lines: bool) -> Any:
    try:
        if lines:
            events = [json.loads(line) for line in raw.splitlines()]
            if events and "type" not in events[0]:
                return events[0]
            return events
        return json.loads(raw)
    except ValueError:
        return raw.decode("utf-8", "replace")
