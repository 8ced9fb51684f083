"""What the API server serves: kinds, and the resources that they are addressed by.

A :class:`RESTMapper` reads the aggregated discovery documents (KEP-3352; two requests for everything, answered with 304
while nothing changed), or the documents of each group and version where a server has no aggregated ones. It asks
when it must: at the first lookup, after :meth:`~RESTMapper.invalidate` (a CRD came or went), and
when a lookup finds nothing, because what is missing may have been added a moment ago.

**What is not known is not "no".** An aggregated API whose server is down stays listed, marked ``Stale``; a discovery
that fails says nothing at all. Both raise :class:`DiscoveryIncomplete`: wait and ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import quote

import anyio
import orjson
import structlog

from cfo.runtime.client.errors import APIError, NotFound, TransportError, UnknownKind
from cfo.runtime.client.transport import JSON, Transport
from cfo.runtime.clock import Clock, SystemClock
from cfo.runtime.objects import GVK, GVR
from cfo.runtime.ratelimit import BucketRateLimiter

__all__ = ["DiscoveryIncomplete", "RESTMapper", "Resource"]

_AGGREGATED = ",".join(
    f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList" for version in ("v2", "v2beta1")
)
_ACCEPT = f"{_AGGREGATED},{JSON}"
_LOADS_PER_SECOND = 10.0
_LOADS_AT_ONCE = 5

_log = structlog.get_logger("cfo.discovery")


class DiscoveryIncomplete(Exception):
    """Part of the API did not answer discovery: what it serves is unknown now; ask again later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource as discovery describes it."""

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
        """The URL path, quoted, of the collection, of an object or of its subresource.

        ``namespace`` does not count for a cluster-scoped resource.
        """
        path = f"/apis/{self.gvk.group}/{self.gvk.version}" if self.gvk.group else f"/api/{self.gvk.version}"
        if namespace and self.namespaced:
            path += f"/namespaces/{quote(namespace, safe='')}"
        path += f"/{self.plural}"
        if name:
            path += f"/{quote(name, safe=':')}"
        return f"{path}/{subresource}" if subresource else path


class _Version:
    """What is known of one version of a group; ``resources`` (by plural) is ``None`` until it has been asked for."""

    __slots__ = ("kinds", "resources", "stale")

    def __init__(self) -> None:
        self.resources: dict[str, Resource] | None = None
        self.kinds: dict[str, Resource] = {}
        self.stale = False

    def learn(self, resources: Iterable[Resource], *, stale: bool = False) -> Self:
        self.resources = {resource.plural: resource for resource in resources}
        self.kinds = {}
        for resource in self.resources.values():
            self.kinds.setdefault(resource.gvk.kind, resource)
        self.stale = stale
        return self


class _Document:
    """A root document: ``/api`` for the core group, ``/apis`` for all others.

    ``etag`` makes asking for it again cheap; ``begun`` and ``loaded`` number its readings.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.etag = ""
        self.groups: dict[str, dict[str, _Version]] = {}
        self.lock = anyio.Lock()
        self.begun = 0
        self.loaded = 0
        self.outdated = True

    def version(self, group: str, version: str) -> _Version | None:
        """What is known of a version of a group, or ``None``."""
        return self.groups.get(group, {}).get(version)


class RESTMapper:
    """Finds the resource of a kind in the API server's discovery.

    However many lookups miss, the documents are read ten times a second at most: lookups share a reading, and wait
    for it instead of answering from old knowledge.
    """

    def __init__(self, transport: Transport, *, clock: Clock | None = None) -> None:
        self._transport = transport
        self._clock = clock or SystemClock()
        self._bucket = BucketRateLimiter(_LOADS_PER_SECOND, _LOADS_AT_ONCE, self._clock)
        self._core = _Document("/api")
        self._others = _Document("/apis")

    def invalidate(self) -> None:
        """What was learned may have changed: the next lookup asks anew."""
        self._core.outdated = self._others.outdated = True

    def cached(self, gvk: GVK) -> Resource | None:
        """The resource as last learned, without asking."""
        known = self._document(gvk.group).version(gvk.group, gvk.version)
        return known.kinds.get(gvk.kind) if known is not None else None

    async def resource(self, gvk: GVK) -> Resource:
        """The resource that objects of this kind are found under.

        Raises :class:`~cfo.runtime.client.errors.UnknownKind` when it is not served,
        :class:`DiscoveryIncomplete` when the server of its group does not answer, and what requests raise.
        """
        found = await self._look_up(gvk.group, gvk.version, lambda known: known.kinds.get(gvk.kind))
        if found is None:
            raise UnknownKind(f"the API server serves no {gvk.kind} in {gvk.api_version}")
        return found

    async def resource_for(self, gvr: GVR) -> Resource:
        """The resource of this name; raises as :meth:`resource` does."""
        found = await self._look_up(gvr.group, gvr.version, lambda known: (known.resources or {}).get(gvr.resource))
        if found is None:
            raise UnknownKind(f"the API server serves no {gvr} in version {gvr.version}")
        return found

    async def serves_group(self, group: str) -> bool:
        """Whether any version of the group is served.

        Raises :class:`DiscoveryIncomplete` when that cannot be known now: discovery failed, or the group
        is that of an aggregated API which does not answer. (Another group's API being down is no reason: the
        kube-aggregator lists every registered group, reachable or not.)
        """
        document = self._document(group)
        begun = document.begun
        try:
            await self._ensure_loaded(document)
            if await self._answers(group) or (await self._under_way(document) and await self._answers(group)):
                return True
            await self._load(document, begun)
            return await self._answers(group)
        except (APIError, TransportError) as error:
            raise DiscoveryIncomplete(f"whether {group} is served is not known: {error}") from error

    async def _answers(self, group: str) -> bool:
        versions = self._document(group).groups.get(group, {})
        for name, version in versions.items():
            await self._complete(group, name, version)
        if not versions:
            return False
        if all(version.stale for version in versions.values()):
            raise DiscoveryIncomplete(f"{group} is registered, but its API server does not answer")
        return True

    async def _look_up(self, group: str, version: str, find: Callable[[_Version], Resource | None]) -> Resource | None:
        document = self._document(group)
        begun = document.begun
        await self._ensure_loaded(document)
        found = await self._find(document, group, version, find)
        if found is None and await self._under_way(document):
            found = await self._find(document, group, version, find)
        if found is None:
            await self._load(document, begun)
            found = await self._find(document, group, version, find)
        known = document.version(group, version)
        if found is None and known is not None and known.stale:
            raise DiscoveryIncomplete(f"{group}/{version} is registered, but its API server does not answer")
        return found

    async def _find(
        self, document: _Document, group: str, version: str, find: Callable[[_Version], Resource | None]
    ) -> Resource | None:
        known = document.version(group, version)
        if known is None:
            return None
        await self._complete(group, version, known)
        return find(known)

    def _document(self, group: str) -> _Document:
        return self._others if group else self._core

    async def _ensure_loaded(self, document: _Document) -> None:
        if not document.outdated:
            return
        try:
            await self._load(document, document.begun)
        except (APIError, TransportError) as error:
            if not document.loaded:
                raise
            _log.warning("discovery failed; what was known before still counts", error=str(error))

    async def _under_way(self, document: _Document) -> bool:
        """Waits for the end of a reading, if there is one: it began too early to say no, but it may say yes."""
        if not document.lock.locked():
            return False
        async with document.lock:
            return True

    async def _load(self, document: _Document, begun: int) -> None:
        """Reads a root document, unless a reading that began after the one numbered ``begun`` has ended."""
        async with document.lock:
            if document.loaded > begun and not document.outdated:
                return
            if (wait := self._bucket.when(None)) > 0:
                await self._clock.sleep(wait)
            document.begun += 1
            document.outdated = False
            try:
                await self._read(document)
            except BaseException:
                document.outdated = True
                raise
            document.loaded = document.begun

    async def _read(self, document: _Document) -> None:
        headers = {"If-None-Match": document.etag} if document.etag else {}
        answer = await self._transport.request(
            "GET", document.path, accept=_ACCEPT, headers=headers, compress=True, verb="discover"
        )
        if answer.code == 304:
            return
        content = orjson.loads(answer.body)
        if content.get("kind") == "APIGroupDiscoveryList":
            document.groups = dict(_aggregated_group(item) for item in content.get("items") or ())
            document.etag = answer.headers.get("ETag", "")
        elif content.get("kind") == "APIVersions":
            document.groups = {"": {version: _Version() for version in content.get("versions") or ()}}
        else:
            document.groups = {
                group["name"]: {version["version"]: _Version() for version in group.get("versions") or ()}
                for group in content.get("groups") or ()
            }

    async def _complete(self, group: str, version: str, known: _Version) -> None:
        """Asks for the resources of a version whose root document did not hold them."""
        if known.resources is not None:
            return
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            answer = await self._transport.request("GET", path, compress=True, verb="discover")
        except NotFound:
            known.learn(())
        except (APIError, TransportError) as error:
            _log.warning("an API does not answer discovery", path=path, error=str(error))
            known.stale = True
        else:
            known.learn(_listed_resources(group, version, orjson.loads(answer.body)))


def _aggregated_group(item: Mapping[str, Any]) -> tuple[str, dict[str, _Version]]:
    group = (item.get("metadata") or {}).get("name") or ""
    return group, {
        version["version"]: _Version().learn(
            _aggregated_resources(group, version), stale=version.get("freshness") == "Stale"
        )
        for version in item.get("versions") or ()
    }


def _aggregated_resources(group: str, version: Mapping[str, Any]) -> Iterator[Resource]:
    for item in version.get("resources") or ():
        kind = item.get("responseKind") or {}
        if not kind.get("kind"):
            continue  # a parent that is not served itself and only holds subresources
        yield Resource(
            gvk=GVK(group, version["version"], kind["kind"]),
            plural=item["resource"],
            singular=item.get("singularResource") or "",
            namespaced=item.get("scope") == "Namespaced",
            verbs=frozenset(item.get("verbs") or ()),
            short_names=tuple(item.get("shortNames") or ()),
            categories=tuple(item.get("categories") or ()),
            subresources=frozenset(sub["subresource"] for sub in item.get("subresources") or ()),
        )


def _listed_resources(group: str, version: str, content: Mapping[str, Any]) -> Iterator[Resource]:
    """The resources of an APIResourceList, in which ``pods/log`` stands beside ``pods``."""
    items = content.get("resources") or ()
    subresources: dict[str, set[str]] = {}
    for item in items:
        parent, _, subresource = item["name"].partition("/")
        if subresource:
            subresources.setdefault(parent, set()).add(subresource)
    for item in items:
        if "/" not in item["name"]:
            yield Resource(
                gvk=GVK(group, version, item["kind"]),
                plural=item["name"],
                singular=item.get("singularName") or "",
                namespaced=bool(item.get("namespaced")),
                verbs=frozenset(item.get("verbs") or ()),
                short_names=tuple(item.get("shortNames") or ()),
                categories=tuple(item.get("categories") or ()),
                subresources=frozenset(subresources.get(item["name"], ())),
            )
