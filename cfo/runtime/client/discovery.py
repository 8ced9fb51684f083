"""Discovery: the kinds that the API server serves, and their resources.

A :class:`RESTMapper` reads the aggregated discovery documents (KEP-3352; two requests for everything, with a 304
response if nothing changed), which every API server has since Kubernetes 1.27. It makes requests only when necessary:
at the first lookup, after :meth:`~RESTMapper.invalidate` (a CRD was created or deleted), and when a lookup finds
nothing, because the kind may have just been added.

**"Unknown" and "not served" are different.** An aggregated API whose server is down is still listed, with freshness
``Stale``; a failed discovery request gives no information. Both raise :class:`DiscoveryIncomplete`, after which the
caller should retry later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote

import anyio
import orjson
import structlog

from cfo.runtime.client.errors import APIError, TransportError, UnknownKind
from cfo.runtime.client.ratelimit import BucketRateLimiter
from cfo.runtime.client.transport import APIRequest, Transport
from cfo.runtime.objects.unstructured import GVK, GVR
from cfo.runtime.process.clock import Clock, SystemClock

_ACCEPT = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
)
_READS_PER_SECOND = 10.0
_READ_BURST = 5

_log = structlog.get_logger(__name__)


class DiscoveryIncomplete(Exception):
    """Raised if discovery of a part of the API failed: it is unknown which kinds that part serves; retry later."""


class DiscoveryPosition(NamedTuple):
    """The numbers of the last reads of both root documents that had begun at a point in time."""

    core: int
    others: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource, as described by discovery."""

    gvk: GVK
    plural: str
    singular: str = ""
    namespaced: bool
    verbs: frozenset[str] = frozenset()
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()

    @property
    def gvr(self) -> GVR:
        """Group, version and plural."""
        return GVR(self.gvk.group, self.gvk.version, self.plural)

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the percent-encoded URL path of the collection, an object or its subresource.

        ``namespace`` is ignored for a cluster-scoped resource.
        """
        path = f"/api/{self.gvk.version}"
        if self.gvk.group:
            path = f"/apis/{self.gvk.group}/{self.gvk.version}"
        if namespace and self.namespaced:
            path += f"/namespaces/{quote(namespace, safe='')}"
        path += f"/{self.plural}"
        if name:
            path += f"/{quote(name, safe=':')}"
        if subresource:
            path += f"/{subresource}"
        return path


class _Version:
    """The resources of one version of a group; ``stale``: its API server does not respond."""

    __slots__ = ("kinds", "resources", "stale")

    def __init__(self, resources: Iterable[Resource], *, stale: bool) -> None:
        self.resources = list(resources)
        self.kinds: dict[str, Resource] = {}
        for resource in self.resources:
            self.kinds.setdefault(resource.gvk.kind, resource)
        self.stale = stale


class _Document:
    """A root document: ``/api`` for the core group, ``/apis`` for all others.

    ``etag`` makes repeated reads cheap; ``reads_begun`` and ``reads_completed`` are the numbers of the last reads.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.etag = ""
        self.groups: dict[str, dict[str, _Version]] = {}
        self.lock = anyio.Lock()
        self.reads_begun = 0
        self.reads_completed = 0
        self.outdated = True

    def version(self, group: str, version: str) -> _Version | None:
        """Return a version of a group, or ``None`` if it is not listed."""
        return self.groups.get(group, {}).get(version)


class RESTMapper:
    """Finds the resource of a kind in the API server's discovery.

    The documents are read at most ten times a second, regardless of the number of failed lookups: concurrent lookups
    share a read and wait for it instead of returning an outdated result.
    """

    def __init__(self, transport: Transport, *, clock: Clock | None = None) -> None:
        self._transport = transport
        self._clock = clock or SystemClock()
        self._bucket = BucketRateLimiter(_READS_PER_SECOND, _READ_BURST, self._clock)
        self._core = _Document("/api")
        self._others = _Document("/apis")

    def adopt(self, other: RESTMapper) -> None:
        """Start with what another mapper of the same API server has read."""
        self._core = other._core
        self._others = other._others

    def invalidate(self, *, groups_only: bool = False) -> None:
        """Mark the cached discovery as outdated: the next lookup reads it again.

        ``groups_only``: only that of named groups, because CRDs and APIServices cannot add a kind to the core group.
        """
        self._core.outdated = self._core.outdated or not groups_only
        self._others.outdated = True

    def position(self) -> DiscoveryPosition:
        """Return the current position in the sequence of reads, for several lookups that share a read."""
        return DiscoveryPosition(self._core.reads_begun, self._others.reads_begun)

    def cached(self, gvk: GVK) -> Resource | None:
        """Return the resource from the last discovery, without a request."""
        known = self._document(gvk.group).version(gvk.group, gvk.version)
        if known is None:
            return None
        return known.kinds.get(gvk.kind)

    async def resource(self, gvk: GVK, *, since: DiscoveryPosition | None = None) -> Resource:
        """Return the resource of a kind.

        A read that began after ``since``, by default the beginning of the call, proves that a kind is not served.

        Raises :class:`~cfo.runtime.client.errors.UnknownKind` if the kind is not served, :class:`DiscoveryIncomplete`
        if the server of its group does not respond or the response is no discovery, and the errors of requests.
        """
        document = self._document(gvk.group)
        if since is None:
            begun = document.reads_begun
        elif gvk.group:
            begun = since.others
        else:
            begun = since.core
        await self._ensure_read(document)
        found = self.cached(gvk)
        if found is None and await self._wait_for_read(document):
            found = self.cached(gvk)
        if found is None:
            await self._read_since(document, begun)
            found = self.cached(gvk)
        if found is not None:
            return found
        known = document.version(gvk.group, gvk.version)
        if known is not None and known.stale:
            raise DiscoveryIncomplete(
                f"{gvk.api_version} is registered, but its API server does not respond"
            )
        message = f'no matches for kind "{gvk.kind}" in version "{gvk.api_version}"'
        served = self._versions_of(gvk)
        if served:
            message += f"; the API server has it in {', '.join(served)}"
        elif known is not None:
            for resource in known.resources:
                if gvk.kind.lower() in (resource.plural, resource.singular):
                    message += f'; the kind of {resource.plural} is "{resource.gvk.kind}"'
        raise UnknownKind(message)

    def _versions_of(self, gvk: GVK) -> list[str]:
        """Return the ``apiVersion`` values in which the last discovery has the kind."""
        versions = self._document(gvk.group).groups.get(gvk.group, {})
        return [
            gvk._replace(version=name).api_version
            for name, version in versions.items()
            if gvk.kind in version.kinds
        ]

    async def resources(self) -> list[list[Resource]]:
        """Return all resources that are served: one list for each version, the preferred version of a group first.

        The discovery is read again after :meth:`invalidate`. APIs whose server does not respond are left out. Raises
        the errors of requests, and :class:`DiscoveryIncomplete` if the response is no discovery.
        """
        found: list[list[Resource]] = []
        for document in (self._core, self._others):
            await self._ensure_read(document)
            await self._wait_for_read(document)  # another task's read, which may be the first one
            for versions in document.groups.values():
                found += [version.resources for version in versions.values()]
        return found

    async def serves_group(self, group: str) -> bool:
        """Return whether any version of the group is served.

        Raises :class:`DiscoveryIncomplete` if that is unknown: discovery failed, or the group is an aggregated API that
        does not respond. Other groups whose APIs are down do not matter, because kube-aggregator lists every registered
        group, reachable or not.
        """
        document = self._document(group)
        begun = document.reads_begun
        try:
            await self._ensure_read(document)
            if self._is_served(group):
                return True
            if await self._wait_for_read(document) and self._is_served(group):
                return True
            await self._read_since(document, begun)
            return self._is_served(group)
        except (APIError, TransportError) as error:
            raise DiscoveryIncomplete(
                f"cannot determine whether group {group} is served: {error}"
            ) from error

    def _is_served(self, group: str) -> bool:
        versions = self._document(group).groups.get(group, {})
        if not versions:
            return False  # kube-aggregator lists every registered group, reachable or not
        if all(version.stale for version in versions.values()):
            raise DiscoveryIncomplete(f"{group} is registered, but its API server does not respond")
        return True

    def _document(self, group: str) -> _Document:
        return self._others if group else self._core

    async def _ensure_read(self, document: _Document) -> None:
        if not document.outdated:
            return  # a CRD that was added since is found after a lookup fails
        try:
            await self._read_since(document, document.reads_begun)
        except (APIError, TransportError, DiscoveryIncomplete) as error:
            if not document.reads_completed:
                raise
            _log.warning("Discovery failed, using the previous result", error=str(error))

    async def _wait_for_read(self, document: _Document) -> bool:
        """Wait for a read in progress; return false if there is none.

        Such a read started too early to prove that a kind is not served, but it may still find the kind.
        """
        if not document.lock.locked():
            return False  # nothing is being read, so that a second lookup would find the same
        async with document.lock:
            return True

    async def _read_since(self, document: _Document, begun: int) -> None:
        """Read a root document, unless a read that began after read number ``begun`` has completed."""
        async with document.lock:
            if document.reads_completed > begun and not document.outdated:
                return  # another lookup has read it while this one waited for the lock
            delay = self._bucket.when()
            if delay > 0:
                await self._clock.sleep(delay)
            document.reads_begun += 1
            document.outdated = False
            try:
                await self._read(document)
            except BaseException:
                document.outdated = True
                raise
            document.reads_completed = document.reads_begun

    async def _read(self, document: _Document) -> None:
        headers = {"If-None-Match": document.etag} if document.etag else {}
        request = APIRequest(
            "GET", document.path, accept=_ACCEPT, headers=headers, compress=True, verb="discover"
        )
        response = await self._transport.request(request)
        if response.code == 304:
            return  # unchanged, by its ETag
        try:
            content = orjson.loads(response.body)
            if content["kind"] != "APIGroupDiscoveryList":
                raise ValueError(content["kind"])  # noqa: TRY301 - as for a document without a kind
            items = content.get("items") or ()
            document.groups = dict(map(_group, items))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            # The response can be the page of a proxy, for example.
            problem = "the response is not an aggregated discovery document"
            raise DiscoveryIncomplete(f"get {document.path}: {problem}") from error
        document.etag = response.headers.get("ETag", "")


def _group(item: Mapping[str, Any]) -> tuple[str, dict[str, _Version]]:
    """Return the name of a group and its versions."""
    metadata = item.get("metadata") or {}
    name = metadata.get("name") or ""
    versions: dict[str, _Version] = {}
    for version in item.get("versions") or ():
        is_stale = version.get("freshness") == "Stale"
        versions[version["version"]] = _Version(_resources(name, version), stale=is_stale)
    return name, versions


def _resources(group: str, version: Mapping[str, Any]) -> Iterator[Resource]:
    for item in version.get("resources") or ():
        kind = item.get("responseKind") or {}
        if not kind.get("kind"):
            continue  # a parent resource that is not served itself and only has subresources
        subresources = item.get("subresources") or ()
        yield Resource(
            gvk=GVK(group, version["version"], kind["kind"]),
            plural=item["resource"],
            singular=item.get("singularResource") or "",
            namespaced=item.get("scope") == "Namespaced",
            verbs=frozenset(item.get("verbs") or ()),
            short_names=tuple(item.get("shortNames") or ()),
            categories=tuple(item.get("categories") or ()),
            subresources=frozenset(each["subresource"] for each in subresources),
        )
