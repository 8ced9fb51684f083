"""A small asynchronous HTTP client for tests that check API server responses.

It sends each request once and returns the response: no retries, no cache, no types.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

import aiohttp

from envtest.configuration.arguments import checked_query, checked_seconds, checked_string

__all__ = ["TIMEOUT_SECONDS", "APIClient", "Address", "Response", "Watch"]

Query: TypeAlias = Mapping[str, str | int | Sequence[str]]
"""The parameters of a request."""

TIMEOUT_SECONDS = 10.0
"""Seconds to wait for a watch event or a condition before a test fails."""

_ADDRESS = ("url", "ca_pem", "token")
_MAX_STATUS = 2000
"""How many characters of the status of an object a timeout shows."""


class Response(NamedTuple):
    """A response: status code, body (decoded when it is JSON; bytes when it is protobuf) and headers."""

    code: int
    body: Any
    headers: Mapping[str, str]

    def __repr__(self) -> str:
        """Return the code and the body, or the reason and message of an error: pytest shows only 240 characters."""
        body = self.body
        if isinstance(body, dict) and body.get("kind") == "Status" and body.get("message"):
            return f"Response(code={self.code}, reason={body.get('reason')!r}, message={body['message']!r})"
        return f"Response(code={self.code}, body={body!r})"


class Watch:
    """An open watch, event by event."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._last: dict[str, Any] | None = None

    async def event(self, timeout: float = TIMEOUT_SECONDS) -> dict[str, Any]:
        """Return the next event.

        Raises TimeoutError, with the status of the last object, if there is none within ``timeout`` seconds; TypeError
        or ValueError for a ``timeout`` that is not a number of seconds.
        """
        __tracebackhide__ = True  # pytest shows the line of the test
        checked_seconds("timeout", timeout)
        try:
            line = await asyncio.wait_for(self._response.content.readline(), timeout)
        except TimeoutError:
            raise TimeoutError(f"no event within {timeout:g} s; {self._last_state()}") from None
        assert line, "the server closed the watch"
        event: dict[str, Any] = json.loads(line)
        self._last = event
        return event

    def _last_state(self) -> str:
        if self._last is None:
            return "there was none before"
        return f"the last one was {self._last['type']} {_state_of(self._last['object'])}"

    async def summary(self, count: int) -> list[tuple[str, str]]:
        """Return type and name of the next ``count`` events. Raises TimeoutError, TypeError."""
        if not isinstance(count, int):
            raise TypeError(f"count: {count!r}: must be the number of events")
        events = [await self.event() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]

    async def ended(self) -> bool:
        """Wait for the server to close the watch; return false if another event arrives first."""
        return await asyncio.wait_for(self._response.content.readline(), TIMEOUT_SECONDS) == b""


def _state_of(obj: Mapping[str, Any]) -> str:
    """Return kind, name, status and deletion of an object, the names in a list, or the message of a Status."""
    if obj.get("kind") == "Status":
        return f"Status with message {obj.get('message')!r}"[:_MAX_STATUS]
    items = obj.get("items")
    if isinstance(items, list):
        names = ", ".join(str(item["metadata"].get("name")) for item in items)
        count = "1 item" if len(items) == 1 else f"{len(items)} items"
        return f"{obj.get('kind')} with {count}: {names}"[:_MAX_STATUS]
    name = (obj.get("metadata") or {}).get("name")
    status = json.dumps(obj.get("status"))[:_MAX_STATUS]  # JSON in ASCII is printable
    return f"{obj.get('kind')} {name!r} with status {status}{_deletion_of(obj)}"


def _deletion_of(obj: Mapping[str, Any]) -> str:
    """Return that an object is being deleted, and which finalizers it waits for; otherwise an empty string."""
    metadata = obj.get("metadata") or {}
    if not metadata.get("deletionTimestamp"):
        return ""
    finalizers = json.dumps(metadata.get("finalizers") or [])[:_MAX_STATUS]
    waiting = f" and waits for its finalizers {finalizers}" if metadata.get("finalizers") else ""
    return f", which is being deleted{waiting}"


class Address(Protocol):
    """A control plane, or anything else with its URL, CA and token."""

    @property
    def url(self) -> str:
        """The base URL."""

    @property
    def ca_pem(self) -> bytes:
        """The certificate of the CA."""

    @property
    def token(self) -> str:
        """The token of the user."""


@runtime_checkable
class _ControlPlane(Protocol):
    """A control plane, in this thread or in its own, whose controllers are known."""

    @property
    def running_controllers(self) -> Collection[str]:
        """The names of the controllers whose work is done."""


class APIClient:
    """Sends requests to ``plane`` as user ``admin``; use it as an asynchronous context manager.

    Raises TypeError if ``plane`` has no URL, CA and token.
    """

    def __init__(self, plane: Address) -> None:
        # without reading them: the URL of a control plane that does not run is an error of its own
        if any(inspect.getattr_static(plane, name, None) is None for name in _ADDRESS):
            raise TypeError(
                f"plane: {plane!r}: must be a control plane, or an object with {', '.join(_ADDRESS)}"
            )
        self._plane = plane
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        context = ssl.create_default_context(cadata=self._plane.ca_pem.decode())
        self._session = aiohttp.ClientSession(
            self._plane.url, connector=aiohttp.TCPConnector(ssl=context), read_bufsize=1 << 24
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open_session().close()

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError(
                "the client is not open: use `async with APIClient(plane) as client`"
            )
        return self._session

    def _headers(self, content_type: str, headers: Mapping[str, str] | None) -> dict[str, str]:
        own = {} if headers is None else headers
        if not isinstance(own, Mapping):
            raise TypeError(
                f"headers: of type {type(own).__name__}: must be a mapping of names to strings"
            )
        for name, value in own.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise TypeError(
                    f"headers: {name!r}: the name and the value of a header must be strings"
                )
        base = {
            "Authorization": f"Bearer {self._plane.token}",
            "User-Agent": "test/1",
            "Accept": "application/json",
        }
        if content_type:
            base["Content-Type"] = content_type
        return base | dict(own)

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Query | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Send one request; ``body`` is sent as JSON unless it is bytes. ``headers`` override the default ones.

        Raises TypeError or ValueError for an argument that cannot be sent: ``path`` begins with one slash, the values
        of ``query`` are strings, integers, or lists of them, and text is bytes; ValueError for the events of a watch.
        """
        session = self._open_session()
        checked_string("method", method)
        if not isinstance(content_type, str):
            raise TypeError(f"content_type: {content_type!r}: must be a string")
        parameters = checked_query(query)
        if isinstance(body, str):
            raise TypeError("body: must be an object, or bytes to send as they are: text.encode()")
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if data is None:
            content_type = ""
        sent = self._headers(content_type, headers)
        async with session.request(
            method, _checked_path(path), data=data, params=parameters, headers=sent
        ) as response:
            raw = await response.read()
            if response.content_type == "application/vnd.kubernetes.protobuf":
                return Response(response.status, raw, response.headers)
            is_json = response.content_type == "application/json"
            content = _document(path, raw) if is_json and raw else raw.decode()
            return Response(response.status, content, response.headers)

    async def get(self, path: str, query: Query | None = None, **more: Any) -> Response:
        """GET ``path``."""
        return await self.request("GET", path, query=query, **more)

    async def post(self, path: str, body: Any, query: Query | None = None, **more: Any) -> Response:
        """POST ``body`` to ``path``."""
        return await self.request("POST", path, body, query=query, **more)

    async def put(self, path: str, body: Any, query: Query | None = None, **more: Any) -> Response:
        """PUT ``body`` to ``path``."""
        return await self.request("PUT", path, body, query=query, **more)

    async def delete(
        self, path: str, body: Any = None, query: Query | None = None, **more: Any
    ) -> Response:
        """DELETE ``path``."""
        return await self.request("DELETE", path, body, query=query, **more)

    async def merge(self, path: str, body: Any, query: Query | None = None) -> Response:
        """PATCH ``path`` with a JSON merge patch."""
        return await self.request(
            "PATCH", path, body, query=query, content_type="application/merge-patch+json"
        )

    async def apply(
        self, path: str, body: Any, manager: str, query: Query | None = None
    ) -> Response:
        """PATCH ``path`` with a server-side apply patch."""
        parameters = {"fieldManager": _checked_manager(manager), **checked_query(query)}
        return await self.request(
            "PATCH", path, body, query=parameters, content_type="application/apply-patch+yaml"
        )

    @asynccontextmanager
    async def watch(
        self,
        path: str,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Watch]:
        """Open a watch on ``path`` until the block ends.

        Raises AssertionError, with the path and the response, if the API server refuses it; TypeError or ValueError as
        :meth:`request`.
        """
        session = self._open_session()
        parameters = {"watch": "true", **checked_query(query)}
        async with session.get(
            _checked_path(path),
            params=parameters,
            headers=self._headers("", headers),
            timeout=aiohttp.ClientTimeout(total=None),  # a watch has no end
        ) as response:
            if response.status != 200:
                text = (await response.text())[:_MAX_STATUS]
                hint = await self._hint(path, response.status)
                raise AssertionError(
                    f"{path}: watch refused with {response.status}: {text!r}{hint}"
                )
            yield Watch(response)

    async def until(
        self,
        path: str,
        code: int = 200,
        *,
        condition: Callable[[Any], object] | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> Response:
        """Repeat a GET every 20 ms until the response has status ``code`` and its body fulfils ``condition``.

        A LookupError of ``condition`` means that the body does not fulfil it: fields are missing until they are
        written. Raises TimeoutError, with the path, the last response and this error, if this takes more than
        ``timeout`` seconds; TypeError or ValueError for a wrong argument: a ``condition`` must be a function, but not a
        coroutine function, because the coroutine that it returns is always true.
        """
        __tracebackhide__ = True  # pytest shows the line of the test
        checked_seconds("timeout", timeout)
        if not isinstance(code, int) or isinstance(code, bool):
            raise TypeError(f"code: {code!r}: must be a status code; pass condition= by name")
        if condition is not None and not callable(condition):
            raise TypeError(f"condition: {condition!r}: must be a function that takes the body")
        if inspect.iscoroutinefunction(condition):
            raise TypeError("condition: must not be a coroutine function")
        last: Response | None = None
        error: LookupError | None = None
        try:
            async with asyncio.timeout(timeout):
                while True:
                    last = await self.get(path)
                    if last.code == code:
                        is_fulfilled, error = _evaluate(condition, last.body)
                        if is_fulfilled:
                            return last
                    await asyncio.sleep(0.02)
        except TimeoutError:
            wanted = f"no response {code}"
            if condition is not None:
                wanted += " that fulfils the condition"
            message = f"{path}: {wanted} within {timeout:g} s; {_described(last)}"
            if error is not None:
                message += f"; the condition raised {type(error).__name__}: {error}"
            if last is not None:
                message += await self._hint(path, last.code)
                if condition is not None:
                    message += self._controllers_hint(last.body)
            raise TimeoutError(message) from error

    async def _hint(self, path: str, code: int) -> str:
        """Return why a request got 404, if its path has no namespace or its resource is not served; otherwise empty."""
        if code != 404:
            return ""
        from envtest.builtins.api_paths import served_elsewhere

        found = (
            served_elsewhere(path)
            or await self._missing_namespace(path)
            or await self._missing_resource(path)
        )
        return f"; {found}" if found else ""

    async def _missing_namespace(self, path: str) -> str:
        """Return that ``path`` names an object of a namespaced resource without its namespace; otherwise empty."""
        parts = path.partition("?")[0].strip("/").split("/")
        root = parts[:2] if parts[0] == "api" else parts[:3]
        rest = parts[len(root) :]
        if parts[0] not in ("api", "apis") or len(rest) < 2 or rest[0] == "namespaces":
            return ""
        version = "/" + "/".join(root)
        listed = await self.get(version)
        if listed.code != 200:
            return ""
        namespaced = {each["name"] for each in listed.body["resources"] if each["namespaced"]}
        if rest[0] not in namespaced:
            return ""
        return f"{rest[0]} have a namespace: {version}/namespaces/NAMESPACE/{'/'.join(rest)}"

    async def _missing_resource(self, path: str) -> str:
        """Return what is not served: the group and version in ``path``, or its resource; empty if both are."""
        match path.partition("?")[0].strip("/").split("/"):
            case ["apis", group, version, "namespaces", _, resource, *_]:
                pass
            case ["apis", group, version, resource, *_]:
                pass
            case _:
                return ""
        listed = await self.get(f"/apis/{group}/{version}")
        if listed.code == 404:
            in_group = await self.get(f"/apis/{group}")
            if in_group.code == 200:
                served = ", ".join(found["version"] for found in in_group.body["versions"])
                return f"{group}/{version} is not served, only {served}: use that, or serve it in the CRD"
            elsewhere = await self._other_groups(resource)
            if elsewhere:
                return f"{group}/{version} is not served; {resource} are in {', '.join(elsewhere)}"
            return f"{group}/{version} is not served: install the CRD of {resource}"
        if listed.code != 200:
            return ""
        names = [found["name"] for found in listed.body["resources"] if "/" not in found["name"]]
        if resource in names:
            return ""
        return f"{group}/{version} serves no {resource}, only {', '.join(names)}"

    async def _other_groups(self, resource: str) -> list[str]:
        """Return the groups, with their preferred versions, of custom resources that have this plural."""
        found = []
        for group in (await self.get("/apis")).body["groups"]:
            preferred = group["preferredVersion"]["groupVersion"]
            # As the documentation of CRDs requires, other groups than these belong to Kubernetes.
            if "." not in group["name"] or group["name"].endswith(".k8s.io"):
                continue
            listed = await self.get(f"/apis/{preferred}")
            if listed.code == 200 and resource in (
                each["name"] for each in listed.body["resources"]
            ):
                found.append(preferred)
        return found

    def _controllers_hint(self, body: Any) -> str:
        """Return which controllers would write the status of an object, if the control plane does not run them."""
        from envtest.configuration.controller_names import missing_controllers

        if not isinstance(body, dict) or not isinstance(self._plane, _ControlPlane):
            return ""
        names = missing_controllers(
            str(body.get("apiVersion")), str(body.get("kind")), self._plane.running_controllers
        )
        if not names:
            return ""
        wanted = ", ".join(names)
        return f"; the control plane runs without the controllers that write this status: {wanted}"


def _document(path: str, content: bytes) -> Any:
    """Return the JSON document of a response. Raises ValueError if it is not one, but the events of a watch."""
    try:
        return json.loads(content)
    except ValueError:
        raise ValueError(
            f"{path}: the response is not one JSON document; for a watch, use "
            "`async with client.watch(path) as watch`"
        ) from None


def _checked_path(path: str) -> str:
    """Return the path of a request. Raises TypeError; ValueError for a URL, whose server would get the token."""
    if not isinstance(path, str):
        raise TypeError(f"path: {path!r}: must be a string")
    if not path.startswith("/") or path.startswith("//"):
        raise ValueError(f"path: {path!r}: must begin with one slash, such as /api/v1/namespaces")
    return path


def _checked_manager(manager: str) -> str:
    """Return the name of a field manager; an empty one is for the API server to refuse. Raises TypeError."""
    if not isinstance(manager, str):
        raise TypeError(f"manager: {manager!r}: must be a string")
    return manager


def _evaluate(
    condition: Callable[[Any], object] | None, body: Any
) -> tuple[bool, LookupError | None]:
    """Return whether ``body`` fulfils the condition, and the error if a field that it reads is missing."""
    if condition is None:
        return True, None
    try:
        return bool(condition(body)), None
    except LookupError as error:
        return False, error


def _described(response: Response | None) -> str:
    if response is None:
        return "there was no response"
    if isinstance(response.body, dict):
        return f"the last one was {response.code}: {_state_of(response.body)}"
    return f"the last one was {response.code}: {response.body!r}"[:_MAX_STATUS]
