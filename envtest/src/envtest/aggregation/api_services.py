"""The APIServices that name a Service, their condition ``Available``, and the requests that are relayed to them.

Follows ``remote_available_controller.go`` and ``handler_proxy.go`` of kube-aggregator. A server is examined when its
APIService, its Service or the endpoints change, when a request has not reached it, and repeatedly while it is not
available.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import orjson

from envtest.admission.webhook_client import CallFailed, WebhookClient, read_bounded
from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.field_errors import go_quote
from envtest.apimachinery.objects import set_condition
from envtest.apimachinery.user import User
from envtest.endpoints.request import Request, Response
from envtest.http_server.received import Received
from envtest.http_server.relay import relay_response, relayed_headers
from envtest.http_server.request_head import origin_form
from envtest.http_server.responses import SentResponse
from envtest.storage import Change, Store
from envtest.storage.record import DELETED

__all__ = ["API_SERVICES", "APIServices", "Remote"]

API_SERVICES: Final = GroupResource("apiregistration.k8s.io", "apiservices")
CHECK_SECONDS: Final = 6.0
MAX_RETRY_SECONDS: Final = 30.0
_SERVICES: Final = GroupResource("", "services")
_SLICES: Final = GroupResource("discovery.k8s.io", "endpointslices")
_SERVICE_NAME: Final = "kubernetes.io/service-name"
_HAS_SERVICE: Final = b'"service":{'
Track = Callable[..., Any]


@dataclass
class Remote:
    """An APIService of another server; ``resources`` are those that it listed when it was last available."""

    name: str
    spec: Mapping[str, Any]
    available: bool = False
    resources: list[dict[str, Any]] = field(default_factory=list)

    @property
    def group(self) -> str:
        """The API group."""
        return str(self.spec["group"])

    @property
    def version(self) -> str:
        """The version of the group."""
        return str(self.spec["version"])

    @property
    def service(self) -> Mapping[str, Any]:
        """The reference to the Service."""
        service: Mapping[str, Any] = self.spec["service"]
        return service


class APIServices:
    """Follows the store. ``track`` records the managers of changed fields, ``now`` returns the time of conditions."""

    def __init__(
        self,
        store: Store,
        client: WebhookClient,
        track: Callable[[], Track],
        now: Callable[[], str],
    ) -> None:
        self._store = store
        self._client = client
        self._track = track
        self._now = now
        self._remotes: dict[tuple[str, str], Remote] = {}
        self._checks: dict[str, asyncio.Task[None]] = {}
        self.generation = 0
        """Incremented when discovery changes."""
        store.followers.append(self._follow)

    def fork(
        self,
        store: Store,
        client: WebhookClient,
        track: Callable[[], Track],
        now: Callable[[], str],
    ) -> APIServices:
        """Return the same APIServices for a copy of the cluster."""
        copied = APIServices(store, client, track, now)
        copied._remotes = {key: copy.copy(remote) for key, remote in self._remotes.items()}
        return copied

    def close(self) -> None:
        """End the checks."""
        for task in self._checks.values():
            task.cancel()
        self._checks.clear()

    def find(self, group: str, version: str) -> Remote | None:
        """Return the other server that serves a group in this version."""
        return self._remotes.get((group, version))

    def remotes(self, group: str = "") -> Iterator[Remote]:
        """Iterate over the APIServices of other servers, in one group or in all."""
        return (remote for remote in self._remotes.values() if group in ("", remote.group))

    def _follow(self, resource: GroupResource, change: Change) -> None:
        if resource == API_SERVICES:
            self._changed(change)
        elif self._remotes and resource in (_SERVICES, _SLICES):
            record = change.record
            name = (
                record.name if resource == _SERVICES else (record.labels or {}).get(_SERVICE_NAME)
            )
            for remote in self._remotes.values():
                if (remote.service["namespace"], remote.service["name"]) == (
                    record.namespace,
                    name,
                ):
                    self._check_soon(remote)

    def _changed(self, change: Change) -> None:
        name = change.record.name
        known = next((remote for remote in self._remotes.values() if remote.name == name), None)
        # by far the most: those of this server
        if known is None and _HAS_SERVICE not in change.record.data:
            return
        spec = change.record.obj()["spec"]
        # a write of the status
        if known is not None and change.type != DELETED and known.spec == spec:
            return
        self.generation += 1
        if known is not None:
            del self._remotes[known.group, known.version]
            check = self._checks.pop(name, None)
            if check:
                check.cancel()
        if change.type != DELETED and spec.get("service"):
            remote = Remote(name, spec)
            self._remotes[spec["group"], spec["version"]] = remote
            self._check_soon(remote)

    def _check_soon(self, remote: Remote) -> None:
        check = self._checks.get(remote.name)
        if check:
            check.cancel()
        self._checks[remote.name] = asyncio.get_running_loop().create_task(self._check(remote))

    async def _check(self, remote: Remote) -> None:
        """Examine the server until it is available."""
        pause = 0.1
        while self._remotes.get((remote.group, remote.version)) is remote:
            reason, message = await self._examine(remote)
            self._set_available(remote, reason, message)
            if remote.available:
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_RETRY_SECONDS)

    async def _examine(self, remote: Remote) -> tuple[str, str]:
        """Return the reason and the message of the condition; the reason ``Passed`` means that it is true."""
        service = remote.service
        namespace = service["namespace"]
        name = service["name"]
        port = service.get("port") or 443
        shown = f"service/{name} in {go_quote(namespace)}"
        try:
            self._client.endpoints.resolve(namespace, name, port)
        except CallFailed:
            record = self._store.get(_SERVICES, namespace, name)
            if record is None:
                return "ServiceNotFound", f"{shown} is not present"
            ports = [
                each for each in record.obj()["spec"].get("ports") or () if each["port"] == port
            ]
            if not ports:
                return "ServicePortError", f"{shown} is not listening on port {port}"
            port_name = go_quote(ports[0].get("name") or "")
            return (
                "MissingEndpoints",
                f"endpoints for {shown} have no addresses with port name {port_name}",
            )
        path = f"/apis/{remote.group}/{remote.version}"
        url = f"https://{name}.{namespace}.svc:{port}{path}"
        failed = "FailedDiscoveryCheck", f"failing or missing response from {url}: "
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                async with self._client.relay(
                    remote.spec, "GET", path, [("Accept", "application/json")]
                ) as response:
                    content = await read_bounded(response)
        except TimeoutError:
            return failed[0], f"{failed[1]}context deadline exceeded"
        except CallFailed as error:
            return failed[0], f"{failed[1]}{error}"
        if not 200 <= response.status < 300:
            return failed[0], f"{failed[1]}bad status from {url}: {response.status}"
        resources = _listed_resources(content)
        if remote.resources != resources:
            remote.resources = resources
            self.generation += 1
        return "Passed", "all checks passed"

    def _set_available(self, remote: Remote, reason: str, message: str) -> None:
        available = reason == "Passed"
        if remote.available != available:
            remote.available = available
            self.generation += 1
        record = self._store.get(API_SERVICES, "", remote.name)
        if record is None:
            return
        before = record.obj()
        after = record.obj()
        condition = {
            "type": "Available",
            "status": "True" if available else "False",
            "reason": reason,
            "message": message,
        }
        set_condition(
            after.setdefault("status", {}).setdefault("conditions", []), condition, now=self._now()
        )
        if after != before:
            self._track()(before, after, manager="kube-apiserver", now=self._now())
            self._store.update(API_SERVICES, after, record)

    async def page(self, request: Request) -> Response | SentResponse | None:
        """Relay a request for the discovery document of another server; ``None`` for other paths."""
        parts = request.path.split("/")
        if not self._remotes or len(parts) < 4 or parts[1] != "apis":
            return None
        return await self.relay(request, parts[2], parts[3])

    async def relay(
        self, request: Request, group: str, version: str
    ) -> Response | SentResponse | None:
        """Relay a request to the server that serves a group in this version; ``None`` if no other server does."""
        remote = self._remotes.get((group, version))
        if remote is None:
            return None
        if not remote.available:
            return _unavailable("service unavailable")
        if not isinstance(request.raw, Received):
            return _unavailable("envtest relays no upgraded connections")
        headers = [*relayed_headers(request.headers.items()), *identity_headers(request.user)]
        opened = self._client.relay(
            remote.spec,
            request.method,
            origin_form(request.raw.rel_url),
            headers,
            await request.body() or None,
        )
        try:
            return await relay_response(opened, request.raw.connection, CallFailed)
        except CallFailed as error:
            self._check_soon(remote)
            return _unavailable(f"error trying to reach service: {error}")


def _listed_resources(content: bytes) -> list[dict[str, Any]]:
    """Return the resources of a discovery document; none of a document that cannot be read."""
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError:
        return []
    resources = document.get("resources") if isinstance(document, dict) else None
    return (
        [each for each in resources if isinstance(each, dict)]
        if isinstance(resources, list)
        else []
    )


def identity_headers(user: User) -> list[tuple[str, str]]:
    """Return the headers that name a user of this server to another one."""
    headers = [("X-Remote-User", user.name), *(("X-Remote-Group", group) for group in user.groups)]
    if user.uid:
        headers.append(("X-Remote-Uid", user.uid))
    for name, values in user.extra.items():
        headers += [(f"X-Remote-Extra-{quote(name.lower(), safe='')}", value) for value in values]
    return headers


def _unavailable(text: str) -> Response:
    """Return the response of a server that cannot be reached: text, as kube-aggregator sends it."""
    return Response(
        f"{text}\n".encode(),
        503,
        "text/plain; charset=utf-8",
        {"X-Content-Type-Options": "nosniff"},
    )
