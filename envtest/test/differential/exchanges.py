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
from test.differential.sequences import Sequence
from test.differential.steps import CONTINUE, UID, VERSION, Step

__all__ = ["Answer", "Server"]

ESTABLISHED_SECONDS = 30.0
"""Seconds to wait until a CRD is served."""
ANSWER_SECONDS = 20.0
"""Seconds after which a server has no answer; the longest watch takes a second."""


_REPLACED = b"apiserver is shutting down"
"""The answer of kube-apiserver to a write while it replaces the storage of a CRD whose status it has just written."""


class Answer(msgspec.Struct, frozen=True, eq=True):
    """An answer in normal form; the body of a watch is the list of its events."""

    code: int
    warnings: list[str]
    body: Any


class Server:
    """A client of a control plane; use it as an asynchronous context manager."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    async def __aenter__(self) -> Self:
        context = ssl.create_default_context(cadata=self._plane.ca_pem.decode())
        self._session = aiohttp.ClientSession(
            self._plane.url,
            connector=aiohttp.TCPConnector(ssl=context),
            headers={"Authorization": f"Bearer {self._plane.token}", "User-Agent": "differential"},
            read_bufsize=1 << 24,
            timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def play(self, sequence: Sequence) -> list[Answer]:
        """Send all steps, and return the answers."""
        return await _Player(self._session).play(sequence)


class _Player:
    """Sends the steps of one sequence, and remembers what only the server knows of its objects."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._seen: dict[str, dict[str, Any]] = {}
        self._first = "1"
        self._continue = ""

    async def play(self, sequence: Sequence) -> list[Answer]:
        """Send all steps, and return the answers."""
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
        try:
            code, warnings, body = await self._send(step)
        except (
            aiohttp.ClientError,
            TimeoutError,
        ) as error:  # a server that closes the connection answers so, too
            return Answer(0, [], type(error).__name__)
        if step.query.get("watch") and isinstance(body, list):
            body = [event for event in body if event["type"] != "BOOKMARK" or _ends_initial(event)]
        self._remember(step, body)
        return Answer(code, [normalizer.body(text) for text in warnings], normalizer.body(body))

    def _remember(self, step: Step, body: Any) -> None:
        metadata = body.get("metadata") if isinstance(body, dict) else None
        if not isinstance(metadata, dict):
            return
        if metadata.get("continue"):
            self._continue = metadata["continue"]
        if "uid" not in metadata or "dryRun" in step.query:
            return
        path = step.target
        if step.method == "POST" and not path:
            path = f"{step.path}/{metadata.get('name')}"
        if path:
            self._seen[_without_version(path)] = metadata

    async def _send(self, step: Step) -> tuple[int, list[str], Any]:
        query = dict(step.query)
        if query.get("resourceVersion") == "$first":
            query["resourceVersion"] = self._first
        if query.get("continue") == CONTINUE:
            query["continue"] = self._continue
        data = step.raw
        if step.body is not None:
            body = self._filled(step.body, self._seen.get(_without_version(step.target), {}))
            data = json.dumps(body, separators=(",", ":"))
        headers = {"Accept": step.accept, "Content-Type": step.content_type, **step.headers}
        while True:
            async with self._session.request(
                step.method, step.path, params=query, data=data, headers=headers
            ) as response:
                raw = await response.read()
                warnings = response.headers.getall("Warning", [])
            if response.status != 503 or _REPLACED not in raw:
                return response.status, warnings, _decoded(raw, lines="watch" in query)
            await asyncio.sleep(0.05)

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


def _without_version(path: str) -> str:
    """Return the path of an object without the version of its API, so that all versions have the same."""
    parts = path.split("/")
    position = 2 if path.startswith("/api/") else 3
    return "/".join(parts[:position] + parts[position + 1 :])


def _version(obj: Any) -> str:
    return str(obj["metadata"].get("resourceVersion", "1"))


def _ends_initial(event: dict[str, Any]) -> bool:
    return "annotations" in event["object"].get("metadata", {})


def _decoded(raw: bytes, *, lines: bool) -> Any:
    """Return a body as JSON, the events of a watch as a list, and other texts as they are."""
    try:
        return json.loads(raw) if not lines else _events(raw)
    except ValueError:
        return raw.decode("utf-8", "replace")


def _events(raw: bytes) -> Any:
    """Return the events of a watch, or the status that is sent instead."""
    try:
        only = json.loads(raw)
    except ValueError:
        return [json.loads(line) for line in raw.splitlines()]
    return [only] if isinstance(only, dict) and "type" in only else only
