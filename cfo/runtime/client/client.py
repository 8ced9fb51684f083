"""The client: the API verbs for objects of any kind.

The cache serves reads that an informer covers; all other reads go to the API server. Writes go to the API server, and
the responses are stored in the cache, so clients read their own writes (docs/adr/0007-read-your-own-writes.md).
:meth:`Client.apply` sends no request if it would change nothing (docs/adr/0006-server-side-apply-only-on-change.md).

After a write whose outcome is unknown (no response, or a 5xx response) the next read of that object goes to the API
server, even if the cache covers it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

import orjson

from cfo.runtime.client.api_request import APIRequest
from cfo.runtime.client.apply import ApplyIntent
from cfo.runtime.client.errors import NotFound
from cfo.runtime.client.object_cache import ClientCache, NullCache
from cfo.runtime.client.preconditions import require_controller, require_whole
from cfo.runtime.client.reads import Reads
from cfo.runtime.client.recorded_requests import RecordedRequests
from cfo.runtime.client.request_body import (
    delete_options,
    encode_string_data,
    selector_params,
    set_controller_owner,
)
from cfo.runtime.client.request_target import RequestTarget, resolve_collection, resolve_object
from cfo.runtime.client.server_side_apply import ServerSideApply
from cfo.runtime.client.transport import Transport
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    ObjectKind,
    TypedObject,
    gvk_of,
    key_of,
    kind_of,
    name_of,
    namespace_of,
    to_object,
)

if TYPE_CHECKING:
    from cfo.runtime.client.discovery import RESTMapper  # imports this package's transport

__all__ = ["Client", "PatchType", "Propagation"]

T = TypeVar("T")
TypedT = TypeVar("TypedT", bound=TypedObject)


class PatchType(StrEnum):
    """The format of a patch, by its media type."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"


class Propagation(StrEnum):
    """The deletion propagation policy: how the dependents of a deleted object are handled."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


class Client:
    """Reads and writes objects of any kind.

    Objects of a GVK are dicts; objects of a :class:`~cfo.runtime.TypedObject` class are instances of the class.
    A read of an object that does not fit the class raises :class:`~cfo.runtime.objects.InvalidResource`.

    ``field_manager`` is the field manager of all writes. Without a ``cache`` every read is a request. All methods that
    make requests raise :class:`~cfo.runtime.client.errors.APIError`,
    :class:`~cfo.runtime.client.errors.TransportError`, :class:`~cfo.runtime.client.errors.UnknownKind` if the kind is
    not served, :class:`~cfo.runtime.DiscoveryIncomplete` if it is unknown whether the kind is served, and
    :class:`ValueError` for a missing or invalid name or namespace.
    """

    def __init__(
        self, transport: Transport, mapper: RESTMapper, *, field_manager: str, cache: ClientCache | None = None
    ) -> None:
        self.transport = transport
        self.mapper = mapper
        self.field_manager = field_manager
        self._cache = cache if cache is not None else NullCache()
        self._requests = RecordedRequests(transport, mapper, self._cache)
        self._reads = Reads(self._requests)
        self._server_side_apply = ServerSideApply(self._requests, self._reads)

    def with_field_manager(self, field_manager: str) -> Self:
        """Return a client that writes as another field manager and shares everything else with this one."""
        other = copy.copy(self)
        other.field_manager = field_manager
        return other

    @property
    def cache(self) -> ClientCache:
        """The cache that serves reads; it holds nothing if the client has none."""
        return self._cache

    # Reads.

    async def get(self, kind: ObjectKind[T], key: NamespacedName, *, live: bool = False) -> T | None:
        """Return a copy of the object, or ``None`` if it does not exist.

        ``live`` reads from the API server even if the cache covers the object.
        """
        obj = await self._reads.get(kind.gvk, key, live=live)
        return kind.decode(obj) if obj is not None else None

    async def get_subresource(self, kind: ObjectKind[Any], key: NamespacedName, subresource: str) -> Object | None:
        """Return the API server's response for a subresource (``scale``, ``status``), or ``None``."""
        return await self._reads.get_subresource(kind.gvk, key, subresource)

    async def list(
        self,
        kind: ObjectKind[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        live: bool = False,
    ) -> list[T]:
        """Return copies of the objects that match; an empty ``namespace`` means all namespaces.

        The cache also answers if an informer has a label selector whose requirements are all in ``label_selector``.
        Requests to the API server are in pages of 500; the list is restarted if the continue token expires.
        """
        found = await self._reads.list(kind.gvk, namespace, label_selector, field_selector, live=live)
        return [kind.decode(obj) for obj in found]

    # Writes.

    @overload
    async def create(
        self,
        obj: Object,
        *,
        subresource: str = "",
        key: NamespacedName | None = None,
        gvk: GVK | None = None,
        dry_run: bool = False,
    ) -> Object: ...
    @overload
    async def create(self, obj: TypedT, *, dry_run: bool = False) -> TypedT: ...
    async def create(
        self,
        obj: Object | TypedObject,
        *,
        subresource: str = "",
        key: NamespacedName | None = None,
        gvk: GVK | None = None,
        dry_run: bool = False,
    ) -> Object | TypedObject:
        """Create an object and return it as persisted; ``metadata.generateName`` may replace the name.

        With ``subresource`` the object is posted to that subresource (an Eviction, a TokenRequest, a Binding). ``key``
        and ``gvk`` then identify the parent object, if they differ from the key and kind of ``obj``. Raises
        :class:`~cfo.runtime.client.errors.AlreadyExists` if an object of this name exists, and
        :class:`~cfo.runtime.client.errors.OwnerDeleted` if another client deleted the object and its controller.
        """
        kind, obj = kind_of(obj), to_object(obj)
        if subresource:
            target = changed = await resolve_object(self.mapper, gvk or gvk_of(obj), key or key_of(obj), subresource)
        else:
            target = await resolve_collection(self.mapper, gvk_of(obj), namespace_of(obj))
            changed = target._replace(key=target.key._replace(name=name_of(obj)))
            await require_controller(self._requests, self._reads, changed, obj)
        request = APIRequest("POST", target.path, verb="create", resource=target.label)
        created: Object | TypedObject = kind.decode(await self._write(request, changed, obj, dry_run=dry_run))
        return created

    @overload
    async def update(
        self, obj: Object, *, subresource: str = "", gvk: GVK | None = None, dry_run: bool = False
    ) -> Object: ...
    @overload
    async def update(self, obj: TypedT, *, subresource: str = "", dry_run: bool = False) -> TypedT: ...
    async def update(
        self, obj: Object | TypedObject, *, subresource: str = "", gvk: GVK | None = None, dry_run: bool = False
    ) -> Object | TypedObject:
        """Replace an object by ``obj`` and return it as persisted.

        If ``metadata.resourceVersion`` is set, a concurrent change by another client is not overwritten, but raises
        :class:`~cfo.runtime.client.errors.Conflict`. ``gvk``: the kind of the object if ``obj`` has the kind of the
        subresource (a Scale).

        If the kind has a transform (``ManagerOptions.transforms``), the object is first read from the API server.
        Raises :class:`~cfo.runtime.client.partial_objects.PartialObjectError` if ``obj`` lacks fields that the
        transform removes: read the object with ``live=True``, or use :meth:`patch` or :meth:`apply`.
        """
        kind, obj = kind_of(obj), to_object(obj)
        target = await resolve_object(self.mapper, gvk or gvk_of(obj), key_of(obj), subresource)
        await require_whole(self._requests, self._reads, target, obj, subresource)
        request = APIRequest("PUT", target.path, verb="update", resource=target.label)
        updated: Object | TypedObject = kind.decode(await self._write(request, target, obj, dry_run=dry_run))
        return updated

    async def patch(
        self,
        kind: ObjectKind[T],
        key: NamespacedName,
        body: Mapping[str, Any] | Sequence[Any],
        patch_type: PatchType = PatchType.MERGE,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> T:
        """Patch an object and return it as persisted."""
        target = await resolve_object(self.mapper, kind.gvk, key, subresource)
        request = APIRequest("PATCH", target.path, content_type=patch_type.value, verb="patch", resource=target.label)
        return kind.decode(await self._write(request, target, body, dry_run=dry_run))

    @overload
    async def apply(
        self,
        obj: Object,
        *,
        owner: Object | TypedObject | None = None,
        subresource: str = "",
        force: bool = True,
        field_manager: str | None = None,
        dry_run: bool = False,
    ) -> Object: ...
    @overload
    async def apply(
        self,
        obj: TypedT,
        *,
        owner: Object | TypedObject | None = None,
        subresource: str = "",
        force: bool = True,
        field_manager: str | None = None,
        dry_run: bool = False,
    ) -> TypedT: ...
    async def apply(
        self,
        obj: Object | TypedObject,
        *,
        owner: Object | TypedObject | None = None,
        subresource: str = "",
        force: bool = True,
        field_manager: str | None = None,
        dry_run: bool = False,
    ) -> Object | TypedObject:
        """Apply ``obj`` (server-side apply) unless that would change nothing; return the resulting object.

        ``obj`` contains all fields that we want to own, and no others. ``owner`` becomes its controller. ``force``
        takes over fields that other managers own; without it such a field raises a
        :class:`~cfo.runtime.client.errors.Conflict` whose causes name it. To avoid taking over an object that another
        client created, set its ``metadata.uid``. A Secret's ``stringData`` is applied as ``data``, which is the field
        that the server persists. Raises :class:`~cfo.runtime.client.errors.OwnerDeleted` if another client deleted the
        object and its controller.

        The event handlers and predicates of all informers of this kind run synchronously inside this call: a response
        that changes the cached object is stored and delivered to them before ``apply`` returns. The same applies to all
        other writes.
        """
        desired = encode_string_data(to_object(obj))
        if owner is not None:
            desired = set_controller_owner(desired, to_object(owner))
        intent = ApplyIntent(desired, field_manager or self.field_manager, subresource)
        result = await self._server_side_apply.apply(intent, force=force, dry_run=dry_run)
        applied: Object | TypedObject = kind_of(obj).decode(result)
        return applied

    async def delete(
        self,
        kind: ObjectKind[Any],
        key: NamespacedName,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation_policy: Propagation | str | None = None,
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
    ) -> bool:
        """Request the deletion of an object; return false if it does not exist.

        ``uid`` and ``resource_version`` are preconditions; if they do not hold,
        :class:`~cfo.runtime.client.errors.Conflict` is raised.
        """
        gvk = kind.gvk
        target = await resolve_object(self.mapper, gvk, key)
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        options = {
            "preconditions": {name: value for name, value in preconditions.items() if value} or None,
            "propagationPolicy": propagation_policy,
            "gracePeriodSeconds": grace_period_seconds,
            "dryRun": ["All"] if dry_run else None,
        }
        cached_uid = self._requests.cached_uid(target)
        request = APIRequest(
            "DELETE",
            target.path,
            body=delete_options(options),
            idempotent=uid is not None,  # without a uid, a second DELETE might delete an object created after the first
            verb="delete",
            resource=target.label,
        )
        try:
            body = await (self._requests.send(request) if dry_run else self._requests.send_write(request, target))
        except NotFound:
            self._requests.record_not_found(target, cached_uid)
            return False
        if dry_run:
            return True
        response = orjson.loads(body)
        if response.get("kind") == "Status":
            deleted_uid = (response.get("details") or {}).get("uid") or uid or cached_uid
            if deleted_uid:
                self._cache.record_deletion(gvk, target.key, deleted_uid)
        else:
            self._requests.record_deleted_object(target, response, body)
        return True

    async def delete_collection(
        self,
        kind: ObjectKind[Any],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        propagation_policy: Propagation | str | None = None,
    ) -> None:
        """Request the deletion of all matching objects; for a namespaced kind, in one namespace."""
        gvk = kind.gvk
        target = await resolve_collection(self.mapper, gvk, namespace)
        request = APIRequest(
            "DELETE",
            target.path,
            params=selector_params(label_selector, field_selector),
            body=delete_options({"propagationPolicy": propagation_policy}),
            verb="deletecollection",
            resource=target.label,
        )
        body = await self._requests.send_write(request, target)
        for item in orjson.loads(body).get("items") or ():
            item.update(apiVersion=gvk.api_version, kind=gvk.kind)
            self._requests.record_deleted_object(target._replace(key=key_of(item)), item, orjson.dumps(item))

    async def _write(self, request: APIRequest, changed: RequestTarget, body: Any, *, dry_run: bool) -> Object:
        return await self._requests.write(request, changed, body, field_manager=self.field_manager, dry_run=dry_run)
