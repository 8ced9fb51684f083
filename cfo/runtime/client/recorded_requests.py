"""The requests of a client: what they address, and what the cache learns from their responses.

The cache serves reads that it covers. After a write whose outcome is unknown (no response, or a 5xx response), the
object is marked as uncertain, and its next read goes to the API server.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

import msgspec
import orjson

from cfo.runtime.client.discovery import Resource, RESTMapper
from cfo.runtime.client.errors import (
    APIError,
    Conflict,
    Expired,
    Forbidden,
    NotFound,
    OwnerDeleted,
    TransportError,
    UnknownKind,
    UnknownSubresource,
)
from cfo.runtime.client.object_cache import CachedObjects, ClientCache
from cfo.runtime.client.pages import METADATA_LIST, listed_items, read_page
from cfo.runtime.client.transport import JSON, APIRequest, Transport
from cfo.runtime.objects.errors import TerminalError
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    controller_of,
    is_deleting,
    require_key,
    resource_version_of,
    uid_of,
)
from cfo.runtime.process.arguments import InvalidArgument
from cfo.runtime.process.large_objects import admit
from cfo.runtime.process.nested_json import (
    UNREADABLE,
    UnreadableObject,
    decode_object,
    readable_object,
)

T = TypeVar("T")

_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
"""The media types for only the metadata of an object."""

APPLY: Final = "application/apply-patch+yaml"
"""The media type of a server-side apply."""

_NOT_YAML: Final = re.compile(
    rb"\x7f"
    rb"|\xc2[\x80-\x9f]"  # the control characters from U+0080, among them the end of line U+0085
    rb"|\xe2\x80[\xa8\xa9]"  # the ends of lines U+2028 and U+2029
    rb"|\xef\xbf[\xbe\xbf]"  # U+FFFE and U+FFFF
)
"""The characters of JSON, in UTF-8, that YAML rejects, or takes for the ends of lines and replaces by spaces.

Source: sections 5.1 and 5.4 of the specification of YAML 1.1.
"""

_PAGE_SIZE = 500
_PAGED_LIST_ATTEMPTS = 2

_CONFLICTS = 5
"""How often a patch of a subresource is sent if other clients change the object meanwhile."""

_MAX_NAME = 1024
"""Longer than the name of any object; a URL with a much longer one is not accepted."""

_MAX_SHOWN = 200
"""The maximum length of a name in an error."""


class EncodingError(TerminalError, ValueError):
    """Raised for an object that cannot be written as JSON: it is nested too deeply (over 254 levels), or not JSON.

    A retry cannot help, so a reconcile that raises it is logged once, and repeated only when something changes.
    """


class InvalidName(TerminalError, ValueError):
    """Raised for a name that no object can have.

    A retry cannot help: owner references can contain such names, because the API server does not validate them.
    """


class RequestTarget(NamedTuple):
    """An object, a subresource of an object, or (with an empty name) a collection."""

    gvk: GVK
    resource: Resource
    key: NamespacedName
    subresource: str = ""

    @property
    def path(self) -> str:
        """The URL path."""
        return self.resource.path(self.key.namespace, self.key.name, self.subresource)

    @property
    def label(self) -> str:
        """The name of the resource in errors and metrics: ``pods`` or ``pods/status``."""
        name = str(self.resource.gvr)
        if self.subresource:
            name = f"{name}/{self.subresource}"
        return name


def cache_key(mapper: RESTMapper, gvk: GVK, key: NamespacedName) -> NamespacedName:
    """Return the key under which the cache stores the object: without a namespace if the kind is cluster-scoped.

    Makes no request; a kind that discovery has not reported yet counts as namespaced.
    """
    resource = mapper.cached(gvk)
    if resource is not None and not resource.namespaced:
        return key._replace(namespace="")
    return key


def selector_params(label_selector: str, field_selector: str) -> dict[str, str]:
    """Return the query parameters for the selectors that are not empty."""
    selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: value for name, value in selectors.items() if value}


class RecordedRequests:
    """Sends requests, and records in ``cache`` which state of the objects the responses report."""

    def __init__(self, transport: Transport, mapper: RESTMapper, cache: ClientCache) -> None:
        self.transport = transport
        self.mapper = mapper
        self.cache = cache

    # What a request addresses.

    async def resolve_collection(
        self, gvk: GVK, namespace: str, *, all_namespaces: bool = False
    ) -> RequestTarget:
        """Resolve all objects of a kind in a namespace.

        ``all_namespaces`` allows an empty namespace, which then means every namespace. Raises :class:`ValueError` for a
        missing namespace, and all exceptions of :meth:`~cfo.runtime.client.discovery.RESTMapper.resource`.
        """
        resource = await self.mapper.resource(gvk)
        if not resource.namespaced:
            namespace = ""
        elif not namespace and not all_namespaces:
            # Without a namespace, the path would be that of all namespaces.
            raise InvalidArgument(f"{gvk}: namespace is missing: the kind is namespaced")
        return RequestTarget(gvk, resource, NamespacedName(namespace, ""))

    async def resolve_object(
        self, gvk: GVK, key: NamespacedName, subresource: str = ""
    ) -> RequestTarget:
        """Resolve one object; raises also :class:`InvalidName`.

        Raises :class:`TypeError` for a key that is not a :class:`NamespacedName`.
        """
        require_key(gvk, key)
        # An empty name would result in the collection's path: deleting one object would delete all of them.
        if not key.name or key.name in {".", ".."} or "/" in key.name or "%" in key.name:
            shown = repr(key.name)[:_MAX_SHOWN]
            raise InvalidName(
                f"{gvk}: name {shown}: must not be empty, '.' or '..', and must not contain '/' or '%'"
            )
        if len(key.name) > _MAX_NAME:
            raise InvalidName(
                f"{gvk}: name {key.name[:_MAX_SHOWN]!r}: must not be longer than {_MAX_NAME}"
            )
        target = await self.resolve_collection(gvk, key.namespace)
        return target._replace(key=target.key._replace(name=key.name), subresource=subresource)

    # Reads.

    async def get(self, gvk: GVK, key: NamespacedName, *, live: bool) -> Object | None:
        """Return a copy of the object, or ``None`` if it does not exist (see :meth:`Client.get`)."""
        require_key(gvk, key)
        cached = cache_key(self.mapper, gvk, key)
        namespace = cached.namespace
        reader = self.cache.covering_reader(gvk, namespace) if not live else None
        if reader is not None and not self.cache.is_uncertain(gvk, cached):
            found = reader.get(cached)
            if found is not None or reader.is_complete(namespace):
                return found
        target = await self.resolve_object(gvk, key)
        cached_uid = self.cached_uid(target)
        request = APIRequest("GET", target.path, verb="get", resource=target.label)
        try:
            body = await self.send(request)
        except NotFound:
            self.record_not_found(target, cached_uid)
            return None
        # Only an answer to an open question is stored: the watch delivers the result of any other live read.
        if self.cache.is_uncertain(gvk, target.key):
            self.record_response(target, body)
        obj = decoded(body)
        if reader is not None and not reader.selects(obj):
            return None  # the cache is limited by labels, and may be incomplete
        return obj

    async def get_metadata(self, gvk: GVK, key: NamespacedName) -> Object | None:
        """Return the metadata of the object, or ``None`` if it does not exist (see :meth:`Client.get_metadata`)."""
        require_key(gvk, key)
        target = await self.resolve_object(gvk, key)
        cached_uid = self.cached_uid(target)
        request = APIRequest(
            "GET", target.path, accept=_METADATA, verb="get", resource=target.label
        )
        try:
            obj = decoded(await self.send(request))
        except NotFound:
            self.record_not_found(target, cached_uid)
            return None
        return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": obj["metadata"]}

    async def get_subresource(
        self, gvk: GVK, key: NamespacedName, subresource: str
    ) -> Object | None:
        """Return the API server's response for a subresource (``scale``, ``status``), or ``None``."""
        target = await self.resolve_object(gvk, key, subresource)
        request = APIRequest("GET", target.path, verb="get", resource=target.label)
        try:
            return decoded(await self.send(request))
        except NotFound:
            return None

    async def list(
        self, gvk: GVK, namespace: str, label_selector: str, field_selector: str, *, live: bool
    ) -> builtins.list[Object]:
        """Return copies of the objects that match (see :meth:`Client.list`)."""
        reader: CachedObjects | None = None
        # The cache cannot evaluate field selectors, because it decodes only the metadata of an object.
        if not live and not field_selector:
            cached = cache_key(self.mapper, gvk, NamespacedName(namespace, "")).namespace
            reader = self.cache.covering_reader(gvk, cached, label_selector)
            if reader is not None and reader.is_complete(cached):
                for key in self.cache.uncertain_keys(gvk, cached):
                    await self.get(gvk, key, live=False)
                return reader.list(cached, label_selector)
        target = await self.resolve_collection(gvk, namespace, all_namespaces=True)
        params = selector_params(label_selector, field_selector)
        paged = {**params, "limit": str(_PAGE_SIZE)}
        for _ in range(_PAGED_LIST_ATTEMPTS):
            try:
                return [item async for item in self._pages(target, paged, reader)]
            except Expired:
                continue
        # Pages of a large collection may expire each time before the last one is read; one page cannot expire.
        return [item async for item in self._pages(target, params, reader)]

    async def select(
        self,
        gvk: GVK,
        select: Callable[[Object], T | None],
        namespace: str,
        params: Mapping[str, str],
        *,
        metadata_only: bool,
    ) -> builtins.list[T]:
        """Return what ``select`` returns for each object (see :meth:`Client.select`)."""
        target = await self.resolve_collection(gvk, namespace, all_namespaces=True)
        request = APIRequest(
            "GET",
            target.path,
            params=params,
            accept=METADATA_LIST if metadata_only else JSON,
            compress=True,
            verb="list",
            resource=target.label,
        )
        found: builtins.list[T] = []
        try:
            async for item in listed_items(self.transport, request, _PAGE_SIZE):
                decode = partial(_listed_object, gvk, metadata_only=metadata_only)
                selected = select(await decode_object(decode, item))
                if selected is not None:
                    found.append(selected)
        except NotFound as error:
            self._raise_unknown(error)
        return found

    async def _pages(
        self, target: RequestTarget, params: dict[str, str], reader: CachedObjects | None
    ) -> AsyncIterator[Object]:
        """Yield the objects of all pages; those of an incomplete cache (``reader``) only as far as it selects them."""
        while True:
            request = APIRequest(
                "GET", target.path, params=params, compress=True, verb="list", resource=target.label
            )
            page = await read_page(await self._send(request))
            for item in page.items:
                decode = partial(_listed_object, target.gvk, metadata_only=False)
                obj = await decode_object(decode, bytes(item))
                if reader is None or reader.selects(obj):
                    yield obj
            if not page.position:
                return
            params = {**params, "continue": page.position}

    # Writes.

    async def require_controller(self, target: RequestTarget, obj: Object) -> None:
        """If another client deleted ``obj``, raise :class:`OwnerDeleted` unless its controller still exists.

        When the cache of an owner lags, its objects that the garbage collector deletes look like objects that must be
        repaired. So the controller is read from the API server, and its state is stored in the cache.
        """
        controller = controller_of(obj)
        if controller is None:
            return
        # Without a known deletion, the object is new, or the cache has it: no reason for a request.
        if self.cache.controller_of_deleted(target.gvk, target.key) != controller["uid"]:
            return
        gvk = GVK.parse(controller["apiVersion"], controller["kind"])
        key = cache_key(self.mapper, gvk, NamespacedName(target.key.namespace, controller["name"]))
        stored = self.cache.stored(gvk, key)
        try:
            found = await self.get(gvk, key, live=True)
        except Forbidden:
            return  # the check is a precaution; an operator without this permission must still work
        except UnknownKind:
            found = None
        if found is None or uid_of(found) != controller["uid"]:
            state = "was deleted"
        elif not is_deleting(found):
            return
        elif stored is None or is_deleting(orjson.loads(stored.object)):
            # The reconciler knows of the deletion, and may need the object: for a finalizer, for example.
            return
        else:
            state = "is being deleted"
        if found is not None:
            self.cache.record_write(gvk, orjson.dumps(found))
        raise OwnerDeleted(
            f"{target.label} {target.key}: not recreated, because {gvk.kind} {key} {state}"
        )

    async def patch(
        self,
        request: APIRequest,
        changed: RequestTarget,
        body: Any,
        *,
        params: Mapping[str, str],
        cached_uid: str | None = None,
    ) -> Object:
        """Send a patch as :meth:`write` does; one of a subresource reaches no other object than that of its uid.

        API servers compare the uid of a patch with the stored one, except in the status of a custom resource: the
        strategy of custom resources replaces the metadata before. They do compare the resourceVersion, so the patch
        gets that of the object with this uid. If a newer state of it was stored meanwhile, the patch is repeated.
        """
        metadata = (body.get("metadata") or {}) if isinstance(body, Mapping) else {}
        uid = metadata.get("uid")
        if not changed.subresource or not uid or metadata.get("resourceVersion"):
            return await self.write(request, changed, body, params=params, cached_uid=cached_uid)
        stored = self.cache.stored(changed.gvk, changed.key)
        if stored is not None and stored.uid == uid:
            version = stored.resource_version
        else:
            version = await self._live_version(request, changed, uid)
        conflicts = 0
        while True:
            versioned = {**body, "metadata": {**metadata, "resourceVersion": version}}
            try:
                return await self.write(request, changed, versioned, params=params, cached_uid=uid)
            except Conflict as error:
                conflicts += 1
                if error.causes or conflicts == _CONFLICTS:
                    raise  # with causes, another field manager owns a field
                live = await self._live_version(request, changed, uid)
                # After a restore of the database, the state is older than the one that the patch is based on.
                if live == version or _is_older(live, version):
                    raise
                version = live

    async def _live_version(self, request: APIRequest, target: RequestTarget, uid: str) -> str:
        """Return the resourceVersion of the stored object.

        Raises :class:`NotFound` if it does not exist, and :class:`Conflict` if it has another uid than ``uid``.
        """
        obj = await self.get(target.gvk, target.key, live=True)
        if obj is None:
            message = f"{target.key} does not exist"
            raise NotFound(404, message=message, verb=request.verb, resource=request.resource)
        if uid_of(obj) != uid:
            message = f"{target.key} was recreated: its uid is {uid_of(obj)}, not {uid}"
            raise Conflict(409, message=message, verb=request.verb, resource=request.resource)
        return resource_version_of(obj)

    async def write(
        self,
        request: APIRequest,
        changed: RequestTarget,
        body: Any,
        *,
        params: Mapping[str, str],
        cached_uid: str | None = None,
    ) -> Object:
        """Send an object or a patch; return the object in the response. See :meth:`write_undecoded`."""
        response = await self.write_undecoded(
            request, changed, body, params=params, cached_uid=cached_uid
        )
        return decoded(response)

    async def write_undecoded(
        self,
        request: APIRequest,
        changed: RequestTarget,
        body: Any,
        *,
        params: Mapping[str, str],
        cached_uid: str | None = None,
    ) -> bytes:
        """Send an object or a patch; return the response.

        ``params`` are query parameters; with ``dryRun`` nothing is recorded. ``cached_uid`` is the uid of the cached
        object (``None``: it is looked up). Raises :class:`EncodingError` for a body that is not JSON, and
        :class:`UnknownSubresource` if the kind has no such subresource.
        """
        try:
            encoded = orjson.dumps(body)
        except orjson.JSONEncodeError as error:
            raise EncodingError(
                f"cannot encode the object for {request.verb} of {request.resource}: {error}"
            ) from error
        if request.content_type == APPLY:
            encoded = _escape_for_yaml(encoded)
        request = replace(request, params=params, body=encoded)
        if "dryRun" in params:
            return await self.send(request)
        uid_before = self.cached_uid(changed) if cached_uid is None else cached_uid
        try:
            response = await self.send_write(request, changed)
        except NotFound as error:
            # A create, and other requests of a subresource, can miss another object: a namespace, for example.
            details = error.details
            is_object_missing = (
                request.method in {"PATCH", "PUT"}
                and details.get("name") == changed.key.name
                and details.get("kind") == changed.resource.gvr.resource
            )
            if is_object_missing and changed.subresource:
                # The API server gives the same response if the subresource is missing.
                self.cache.mark_uncertain(changed.gvk, changed.key)
                self._require_subresource(changed)
            elif is_object_missing:
                self.record_not_found(changed, uid_before)
            raise
        self.record_response(changed, response)
        return response

    def _require_subresource(self, target: RequestTarget) -> None:
        """Raise :class:`UnknownSubresource` if discovery does not list the subresource of ``target``."""
        if target.subresource in target.resource.subresources:
            return
        self.mapper.invalidate()
        name = target.subresource
        hint = ""
        if name in ("status", "scale"):
            hint = f"; a CRD declares it in subresources.{name} of the version"
        raise UnknownSubresource(
            f"{target.resource.gvr} {target.key}: the API server serves no subresource {name}{hint}"
        )

    async def send(self, request: APIRequest) -> bytes:
        """Send a request for one object; return the object in the response."""
        return await readable_object(await self._send(request))

    async def _send(self, request: APIRequest) -> bytes:
        """Send a request; return the body of the response."""
        try:
            response = await self.transport.request(request)
        except NotFound as error:
            if error.details.get("name"):
                raise
            self._raise_unknown(error)
        return response.body

    def _raise_unknown(self, error: NotFound) -> NoReturn:
        """Raise :class:`UnknownKind` for a 404 of the resource, not of an object: the kind is no longer served."""
        self.mapper.invalidate()
        raise UnknownKind(str(error)) from error

    async def send_write(self, request: APIRequest, changed: RequestTarget) -> bytes:
        """Send a write of ``changed``; if its outcome is unknown, mark the object as uncertain."""
        try:
            return await self.send(request)
        except (TransportError, APIError) as error:
            # The API server may have stored the write before it failed to respond, or responded with a 5xx.
            is_unknown = isinstance(error, APIError) and error.code >= 500
            if isinstance(error, TransportError):
                is_unknown = error.outcome_unknown
            # The object of a create with generateName has no name yet, so it cannot be read.
            if is_unknown and changed.key.name:
                self.cache.mark_uncertain(changed.gvk, changed.key)
            raise

    # Recording.

    def cached_uid(self, target: RequestTarget) -> str:
        """Return the uid of the cached object, uncertain or not, or the empty string."""
        stored = self.cache.stored(target.gvk, target.key)
        return stored.uid if stored is not None else ""

    def record_response(self, target: RequestTarget, body: bytes) -> None:
        """Record the response to a request, if it is the object of that kind.

        The response of a subresource can have another kind, such as Scale or Eviction.
        """
        written = _written.decode(body)
        if written.kind != target.gvk.kind:
            return
        if written.was_removed:
            metadata = written.metadata
            key = NamespacedName(metadata.namespace, metadata.name)
            self.cache.record_deletion(target.gvk, key, metadata.uid)
        else:
            self.cache.record_write(target.gvk, body)

    def record_delete(self, target: RequestTarget, body: bytes, expected_uid: str) -> None:
        """Record the response to a DELETE: the object, or a Status, which need not contain the uid."""
        try:
            response = _written.decode(body)
        except UNREADABLE:
            return  # it is nested too deeply, so no cache has it
        if response.metadata.deletion_timestamp is not None:
            # Finalizers or a grace period delay the deletion.
            self.record_response(target, body)
            return
        deleted_uid = response.metadata.uid
        if response.kind == "Status":
            details = orjson.loads(body).get("details") or {}
            deleted_uid = details.get("uid") or expected_uid
        if deleted_uid:
            self.cache.record_deletion(target.gvk, target.key, deleted_uid)

    def record_not_found(self, target: RequestTarget, uid_before: str) -> None:
        """Record that the object was not found; ``uid_before`` was the cached uid before the request.

        An object that was stored in the meantime came from a watch and may be newer, so it is kept.
        """
        if uid_before or not self.cached_uid(target):
            self.cache.record_deletion(target.gvk, target.key, uid_before)


def _is_older(version: str, other: str) -> bool:
    """Compare resourceVersions, which are decimal numbers without leading zeros (KEP-5504): the shorter is smaller."""
    return (len(version), version) < (len(other), other)


def decoded(response: bytes) -> Object:
    """Return the JSON of a response.

    Raises :class:`~cfo.runtime.process.large_objects.RoomTaken`, and :class:`.UnreadableObject` for an object that is
    nested too deeply.
    """
    admit(response)
    try:
        obj: Object = orjson.loads(response)
    except orjson.JSONDecodeError as error:
        raise UnreadableObject(str(error)) from None
    return obj


def decoded_metadata(response: bytes) -> Object:
    """Return apiVersion, kind and metadata of the object in a response."""
    parts = _metadata_only.decode(response)
    return {
        name: orjson.loads(memoryview(part)) for name, part in msgspec.structs.asdict(parts).items()
    }


def _listed_object(gvk: GVK, item: bytes, *, metadata_only: bool) -> Object:
    """Return an object of a list, or only its metadata, with its kind, which API servers leave out there."""
    if metadata_only:
        metadata = decoded(bytes(_listed_metadata.decode(item).metadata))
        return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata}
    obj = decoded(item)
    obj.setdefault("apiVersion", gvk.api_version)
    obj.setdefault("kind", gvk.kind)
    return obj


class _ListedMetadata(msgspec.Struct):
    metadata: msgspec.Raw


_listed_metadata = msgspec.json.Decoder(_ListedMetadata)


class _MetadataOnly(msgspec.Struct):
    apiVersion: msgspec.Raw  # noqa: N815 (the name of the field)
    kind: msgspec.Raw
    metadata: msgspec.Raw


_metadata_only = msgspec.json.Decoder(_MetadataOnly)


class _WrittenMetadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    finalizers: list[str] | None = None


class _NamespaceSpec(msgspec.Struct):
    finalizers: list[str] | None = None


class _Written(msgspec.Struct):
    """What the cache must know of the object in a response, of which the rest is not decoded."""

    kind: str = ""
    metadata: _WrittenMetadata = msgspec.field(default_factory=_WrittenMetadata)
    spec: msgspec.Raw = msgspec.Raw(b"{}")

    @property
    def was_removed(self) -> bool:
        """Whether the write that returned this object removed it, because nothing blocks its deletion any longer.

        The response to removing the last finalizer of an object that is being deleted contains the object.
        """
        metadata = self.metadata
        if metadata.deletion_timestamp is None or metadata.finalizers:
            return False
        if metadata.deletion_grace_period_seconds:
            return False  # a pod in its grace period has no finalizer, and still exists
        if self.kind == "Namespace":
            # A Namespace has finalizers in its spec, too; the namespace controller removes them.
            return not msgspec.json.decode(self.spec, type=_NamespaceSpec).finalizers
        return True


_written = msgspec.json.Decoder(_Written)


def _escape_for_yaml(body: bytes) -> bytes:
    """Return JSON so that it has the same content if it is read as YAML, as API servers read an apply."""
    if body.isascii() and b"\x7f" not in body:
        return body
    return _NOT_YAML.sub(_escaped, body)


def _escaped(match: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % ord(match[0].decode())
