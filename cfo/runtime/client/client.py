"""The client: the API verbs for objects of any kind.

The cache serves reads that an informer covers; all other reads go to the API server. Writes go to the API server, and
the responses are stored in the cache, so clients read their own writes (docs/adr/0007-read-your-own-writes.md).
:meth:`Client.apply` sends no request if it would change nothing (docs/adr/0006-server-side-apply-only-on-change.md).

After a write whose outcome is unknown (no response, or a 5xx response) the next read of that object goes to the API
server, even if the cache covers it.

When the cache of an owner lags, its objects that the garbage collector deletes look like objects that must be repaired.
Therefore an object that another client deleted is recreated only after its controller was read from the API server.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

import orjson

from cfo.runtime.client.api_request import APIRequest
from cfo.runtime.client.apply import ApplyIntent, UnchangedApplies, is_applied
from cfo.runtime.client.errors import APIError, Expired, Forbidden, NotFound, OwnerDeleted, TransportError, UnknownKind
from cfo.runtime.client.object_cache import ClientCache, NullCache, StoredObject
from cfo.runtime.client.partial_objects import PartialObjectError, removed_field
from cfo.runtime.client.request_body import (
    delete_options,
    encode_body,
    encode_string_data,
    selector_params,
    set_controller_owner,
)
from cfo.runtime.client.request_target import RequestTarget, cache_key, resolve_collection, resolve_object
from cfo.runtime.client.transport import Transport
from cfo.runtime.objects import (
    GVK,
    NamespacedName,
    Object,
    ObjectKind,
    TypedObject,
    controller_of,
    gvk_of,
    is_deleting,
    key_of,
    kind_of,
    name_of,
    namespace_of,
    resource_version_of,
    to_object,
    uid_of,
)

if TYPE_CHECKING:
    from cfo.runtime.discovery import RESTMapper  # imports this package's transport

__all__ = ["Client", "PatchType", "Propagation"]

T = TypeVar("T")
TypedT = TypeVar("TypedT", bound=TypedObject)

_APPLY = "application/apply-patch+yaml"
_PAGE_SIZE = 500
_PAGED_LIST_ATTEMPTS = 2


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

    Objects of a GVK are dicts; objects of a :class:`~cfo.runtime.objects.TypedObject` class are instances of the class.
    A read of an object that does not fit the class raises :class:`~cfo.runtime.resource.errors.InvalidResource`.

    ``field_manager`` is the field manager of all writes. Without a ``cache`` every read is a request. All methods that
    make requests raise :class:`~cfo.runtime.client.errors.APIError`,
    :class:`~cfo.runtime.client.errors.TransportError`, :class:`~cfo.runtime.client.errors.UnknownKind` if the kind is
    not served, :class:`~cfo.runtime.discovery.DiscoveryIncomplete` if it is unknown whether the kind is served, and
    :class:`ValueError` for a missing or invalid name or namespace.
    """

    def __init__(
        self, transport: Transport, mapper: RESTMapper, *, field_manager: str, cache: ClientCache | None = None
    ) -> None:
        self.transport = transport
        self.mapper = mapper
        self.field_manager = field_manager
        self._cache = cache if cache is not None else NullCache()
        self._unchanged = UnchangedApplies()

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
        obj = await self._get(kind.gvk, key, live=live)
        return kind.decode(obj) if obj is not None else None

    async def _get(self, gvk: GVK, key: NamespacedName, *, live: bool) -> Object | None:
        cached = cache_key(self.mapper, gvk, key)
        is_covered = not live and self._cache.covers(gvk, cached.namespace, name=cached.name)
        if is_covered and not self._cache.is_uncertain(gvk, cached):
            return self._cache.get(gvk, cached)
        target = await resolve_object(self.mapper, gvk, key)
        cached_uid = self._cached_uid(target)
        try:
            body = await self._send(APIRequest("GET", target.path, verb="get", resource=target.label))
        except NotFound:
            self._record_not_found(target, cached_uid)
            return None
        obj: Object = orjson.loads(body)
        if self._cache.is_uncertain(gvk, target.key):
            self._record_response(target, obj, body)
        return obj

    async def get_subresource(self, kind: ObjectKind[Any], key: NamespacedName, subresource: str) -> Object | None:
        """Return the API server's response for a subresource (``scale``, ``status``), or ``None``."""
        target = await resolve_object(self.mapper, kind.gvk, key, subresource)
        request = APIRequest("GET", target.path, verb="get", resource=target.label)
        try:
            obj: Object = orjson.loads(await self._send(request))
        except NotFound:
            return None
        return obj

    async def _list(
        self, gvk: GVK, namespace: str, label_selector: str, field_selector: str, *, live: bool
    ) -> list[Object]:
        if not live and not field_selector:
            cached = cache_key(self.mapper, gvk, NamespacedName(namespace, "")).namespace
            if self._cache.covers(gvk, cached, label_selector):
                for key in self._cache.uncertain_keys(gvk, cached):
                    await self._get(gvk, key, live=False)
                return self._cache.list(gvk, cached, label_selector)
        target = await resolve_collection(self.mapper, gvk, namespace, all_namespaces=True)
        params = selector_params(label_selector, field_selector)
        for _ in range(_PAGED_LIST_ATTEMPTS):
            try:
                return [item async for item in self._pages(target, {**params, "limit": str(_PAGE_SIZE)})]
            except Expired:
                continue
        return [item async for item in self._pages(target, params)]

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
        found = await self._list(kind.gvk, namespace, label_selector, field_selector, live=live)
        return [kind.decode(obj) for obj in found]

    async def _pages(self, target: RequestTarget, params: dict[str, str]) -> AsyncIterator[Object]:
        while True:
            request = APIRequest("GET", target.path, params=params, compress=True, verb="list", resource=target.label)
            page = orjson.loads(await self._send(request))
            for item in page.get("items") or ():
                item.setdefault("apiVersion", target.gvk.api_version)
                item.setdefault("kind", target.gvk.kind)
                yield item
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            params = {**params, "continue": token}

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
            await self._require_controller(changed, obj)
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
        await self._require_whole(target, obj, subresource)
        request = APIRequest("PUT", target.path, verb="update", resource=target.label)
        updated: Object | TypedObject = kind.decode(await self._write(request, target, obj, dry_run=dry_run))
        return updated

    async def _require_whole(self, target: RequestTarget, obj: Object, subresource: str) -> None:
        """Raise :class:`PartialObjectError` if ``obj`` comes from a cache that removes some of its fields."""
        transform = self._cache.transform_of(target.gvk)
        if transform is None or gvk_of(obj) != target.gvk:
            return
        whole = await self._get(target.gvk, target.key, live=True)
        version = resource_version_of(obj)
        if whole is None or (version and version != resource_version_of(whole)):
            return  # the API server responds with NotFound or Conflict
        whole["metadata"].pop("managedFields", None)  # the cache never contains it, and the server keeps it
        try:
            transformed: Any = transform(copy.deepcopy(whole))
        except Exception:  # noqa: BLE001 - user code; the cache keeps such an object whole
            return
        if not isinstance(transformed, dict):
            return
        if subresource:  # only the field of that name is written
            whole, transformed = (
                {subresource: each[subresource]} if subresource in each else {} for each in (whole, transformed)
            )
        missing = removed_field(whole, transformed, obj)
        if missing:
            raise PartialObjectError(
                f"{target.gvk} {target.key}: {missing} is missing because a transform removes it from the cache; "
                "read the object with live=True, or use patch or apply"
            )

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
        result = await self._apply(intent, force=force, dry_run=dry_run)
        applied: Object | TypedObject = kind_of(obj).decode(result)
        return applied

    async def _apply(self, intent: ApplyIntent, *, force: bool, dry_run: bool) -> Object:
        desired, subresource = dict(intent.desired), intent.subresource
        gvk = gvk_of(desired)
        stored = None
        if not dry_run and subresource in {"", "status"}:
            cached = cache_key(self.mapper, gvk, key_of(desired))
            if not self._cache.is_uncertain(gvk, cached):
                stored = self._cache.stored(gvk, cached)
        current: Object = orjson.loads(stored.object) if stored is not None else {}
        if stored is not None and self._is_unchanged(intent, current, stored):
            return current
        target = await resolve_object(self.mapper, gvk, key_of(desired), subresource)
        if not subresource:
            await self._require_controller(target, desired)
        request = APIRequest(
            "PATCH",
            target.path,
            params={"fieldManager": intent.manager, "force": "true" if force else "false"},
            content_type=_APPLY,
            idempotent=not resource_version_of(desired),
            verb="apply",
            resource=target.label,
        )
        result = await self._write(request, target, desired, dry_run=dry_run)
        if stored is not None and resource_version_of(result) == stored.resource_version:
            with suppress(orjson.JSONEncodeError):  # nested too deeply
                self._unchanged.remember(intent, current, stored.managers, exact=not stored.is_whole)
        return result

    def _is_unchanged(self, intent: ApplyIntent, current: Object, stored: StoredObject) -> bool:
        managers = stored.managers
        try:
            return is_applied(intent, current, managers) or self._unchanged.contains(
                intent, current, managers, exact=not stored.is_whole
            )
        except (orjson.JSONEncodeError, RecursionError):  # nested too deeply to compare
            return False

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
        cached_uid = self._cached_uid(target)
        request = APIRequest(
            "DELETE",
            target.path,
            body=delete_options(options),
            idempotent=uid is not None,  # without a uid, a second DELETE might delete an object created after the first
            verb="delete",
            resource=target.label,
        )
        try:
            body = await (self._send(request) if dry_run else self._send_write(request, target))
        except NotFound:
            self._record_not_found(target, cached_uid)
            return False
        if dry_run:
            return True
        response = orjson.loads(body)
        if response.get("kind") == "Status":
            deleted_uid = (response.get("details") or {}).get("uid") or uid or cached_uid
            if deleted_uid:
                self._cache.record_deletion(gvk, target.key, deleted_uid)
        else:
            self._record_deleted_object(target, response, body)
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
        body = await self._send_write(request, target)
        for item in orjson.loads(body).get("items") or ():
            item.update(apiVersion=gvk.api_version, kind=gvk.kind)
            self._record_deleted_object(target._replace(key=key_of(item)), item, orjson.dumps(item))

    async def _require_controller(self, target: RequestTarget, obj: Object) -> None:
        """If another client deleted ``obj``, raise :class:`OwnerDeleted` unless its controller still exists.

        The controller is read from the API server, and its state is stored in the cache. If reading it is forbidden, it
        counts as existing, and so does a controller that is being deleted if the cache contains this already.
        """
        controller = controller_of(obj)
        if controller is None or self._cache.controller_of_deleted(target.gvk, target.key) != controller["uid"]:
            return
        gvk = GVK.parse(controller["apiVersion"], controller["kind"])
        key = cache_key(self.mapper, gvk, NamespacedName(target.key.namespace, controller["name"]))
        stored = self._cache.stored(gvk, key)
        try:
            found = await self.get(gvk, key, live=True)
        except Forbidden:
            return
        except UnknownKind:
            found = None
        if found is None or uid_of(found) != controller["uid"]:
            state = "was deleted"
        elif is_deleting(found) and stored is not None and not is_deleting(orjson.loads(stored.object)):
            state = "is being deleted"
        else:
            return
        if found is not None:
            self._cache.record_write(gvk, orjson.dumps(found))
        raise OwnerDeleted(f"{target.label} {target.key}: not recreated, because {gvk.kind} {key} {state}")

    # Requests.

    async def _send(self, request: APIRequest) -> bytes:
        try:
            response = await self.transport.request(request)
        except NotFound as error:
            if error.details.get("name"):
                raise
            # The 404 is for the resource, not for the object: the kind is no longer served.
            self.mapper.invalidate()
            raise UnknownKind(str(error)) from error
        return response.body

    async def _send_write(self, request: APIRequest, changed: RequestTarget) -> bytes:
        """Send a write of ``changed``; if its outcome is unknown, mark the object as uncertain."""
        try:
            return await self._send(request)
        except TransportError as error:
            if error.outcome_unknown:
                self._mark_uncertain(changed)
            raise
        except APIError as error:
            if error.code >= 500:
                self._mark_uncertain(changed)
            raise

    async def _write(self, request: APIRequest, changed: RequestTarget, body: Any, *, dry_run: bool) -> Object:
        """Send an object or a patch; return the object in the response."""
        params = {"fieldManager": self.field_manager, **request.params}
        request = replace(request, params=params, body=encode_body(body, request.verb, request.resource))
        if dry_run:
            persisted: Object = orjson.loads(await self._send(replace(request, params={**params, "dryRun": "All"})))
            return persisted
        cached_uid = self._cached_uid(changed)
        try:
            response = await self._send_write(request, changed)
        except NotFound as error:
            # A create, and other requests of a subresource, can miss another object: a namespace, for example.
            is_missing = request.method in {"PATCH", "PUT"} and error.details.get("name") == changed.key.name
            if is_missing and error.details.get("kind") == changed.resource.gvr.resource:
                self._record_not_found(changed, cached_uid)
            raise
        obj: Object = orjson.loads(response)
        if obj.get("kind") == changed.gvk.kind:
            self._record_response(changed, obj, response)
        return obj

    # The cache.

    def _cached_uid(self, target: RequestTarget) -> str:
        """Return the uid of the cached object, uncertain or not, or the empty string."""
        stored = self._cache.stored(target.gvk, target.key)
        return stored.uid if stored is not None else ""

    def _mark_uncertain(self, target: RequestTarget) -> None:
        if target.key.name:
            self._cache.mark_uncertain(target.gvk, target.key)

    def _record_response(self, target: RequestTarget, obj: Object, body: bytes) -> None:
        """Record the response to a write: ``obj``, whose JSON is ``body``."""
        if _was_removed(obj):
            self._cache.record_deletion(target.gvk, key_of(obj), uid_of(obj))
        else:
            self._cache.record_write(target.gvk, body)

    def _record_deleted_object(self, target: RequestTarget, obj: Object, body: bytes) -> None:
        """Record the object in the response to a DELETE: its new or, without a deletionTimestamp, its final state."""
        if is_deleting(obj):
            self._record_response(target, obj, body)
        elif uid_of(obj):
            self._cache.record_deletion(target.gvk, target.key, uid_of(obj))

    def _record_not_found(self, target: RequestTarget, uid_before: str) -> None:
        """Record that the object was not found; ``uid_before`` was the cached uid before the request.

        An object that was stored in the meantime came from a watch and may be newer, so it is kept.
        """
        if uid_before or not self._cached_uid(target):
            self._cache.record_deletion(target.gvk, target.key, uid_before)


def _was_removed(obj: Object) -> bool:
    """Return whether the write that returned this object removed it, because nothing blocks its deletion any longer.

    The response to removing the last finalizer of an object that is being deleted contains the object.
    """
    metadata = obj.get("metadata") or {}
    if not is_deleting(obj) or metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds"):
        return False
    return not (obj.get("kind") == "Namespace" and (obj.get("spec") or {}).get("finalizers"))
