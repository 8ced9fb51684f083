"""The client: the API verbs for objects of any kind.

The cache serves reads that an informer covers; all other reads go to the API server. Writes go to the API server, and
the responses are stored in the cache, so clients read their own writes (docs/adr/0007-read-your-own-writes.md).
:meth:`Client.apply` sends no request if it would change nothing (docs/adr/0006-server-side-apply-only-on-change.md).

After a write whose outcome is unknown (no response, or a 5xx response) the next read of that object goes to the API
server, even if the cache covers it.
"""

from __future__ import annotations

import builtins
import copy
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from typing import Any, Self, TypedDict, TypeVar, Unpack, overload

import msgspec
import orjson

from cfo.runtime.client.apply import ApplyIntent, UnchangedApplies, encode_string_data, is_applied
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.errors import NotFound
from cfo.runtime.client.name_checks import NameChecks
from cfo.runtime.client.object_cache import ClientCache, StoredObject
from cfo.runtime.client.overwrites import Overwrites
from cfo.runtime.client.recorded_requests import (
    APPLY,
    RecordedRequests,
    RequestTarget,
    cache_key,
    decoded,
    decoded_metadata,
    selector_params,
)
from cfo.runtime.client.transport import APIRequest, Transport
from cfo.runtime.objects.foreign_models import ForeignModel, model_to_wire
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    ObjectKind,
    TypedObject,
    TypedT,
    gvk_of,
    key_of,
    kind_of,
    name_of,
    namespace_of,
    require_gvk,
    require_key,
    require_kind,
    require_namespace,
    resource_version_of,
    split_kind,
    to_object,
    uid_of,
)
from cfo.runtime.process.arguments import (
    require_field_manager,
    require_plain_function,
    require_type,
)

T = TypeVar("T")


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


class CachedState(msgspec.Struct, frozen=True, eq=False):
    """A decoded object, and its state in the cache, which an apply compares.

    ``stored`` is ``None`` if the object was read from the API server, or if the cache has only its metadata
    (``is_partial``).
    """

    object: Object
    stored: StoredObject | None = None
    is_partial: bool = False


class _ApplyOptions(TypedDict, total=False):
    """The options of :meth:`Client.apply`, for its overloads."""

    subresource: str
    force: bool
    field_manager: str | None
    version: str
    cached: CachedState | None
    dry_run: bool


class Client:
    """Reads and writes objects of any kind.

    Objects of a GVK are dicts; objects of a :class:`~cfo.runtime.TypedObject` class are instances of the class.
    A read of an object that does not fit the class raises :class:`~cfo.runtime.objects.InvalidResource`.
    Writes also accept generated models, such as ``V1Deployment`` of kubernetes-asyncio, and return dicts for them.

    ``field_manager`` is the field manager of all writes. Without a ``cache`` every read is a request. All methods that
    make requests raise :class:`~cfo.runtime.client.errors.APIError`,
    :class:`~cfo.runtime.client.errors.TransportError`, :class:`~cfo.runtime.client.errors.UnknownKind` if the kind is
    not served, :class:`~cfo.runtime.DiscoveryIncomplete` if it is unknown whether the kind is served, and
    :class:`ValueError` for a missing or invalid name or namespace.
    """

    def __init__(
        self,
        transport: Transport,
        mapper: RESTMapper,
        *,
        field_manager: str,
        cache: ClientCache | None = None,
    ) -> None:
        require_field_manager("field_manager", field_manager)
        self.transport = transport
        self.mapper = mapper
        self.field_manager = field_manager
        self._cache = cache or ClientCache()
        self._requests = RecordedRequests(transport, mapper, self._cache)
        self._unchanged = UnchangedApplies()
        self.name_checks = NameChecks()
        """When :func:`~cfo.runtime.client.reconcile_children` checks names again that other owners' objects have."""
        self.overwrites = Overwrites()
        """Which children another client overwrites again and again."""

    def with_field_manager(self, field_manager: str) -> Self:
        """Return a client that writes as another field manager and shares everything else with this one."""
        require_field_manager("field_manager", field_manager)
        other = copy.copy(self)
        other.field_manager = field_manager
        return other

    @property
    def cache(self) -> ClientCache:
        """The cache that serves reads; it holds nothing if the client has none."""
        return self._cache

    # Reads.

    async def get(
        self, kind: ObjectKind[T], key: NamespacedName, *, live: bool = False
    ) -> T | None:
        """Return a copy of the object, or ``None`` if it does not exist.

        ``live`` reads from the API server even if the cache covers the object. Raises
        :class:`~cfo.runtime.process.UnreadableObject` for one that is nested too deeply, as fields without a schema
        can be.
        """
        gvk = require_kind("get", kind)
        obj = await self._requests.get(gvk, key, live=live)
        return kind.decode(obj) if obj is not None else None

    def cached(self, gvk: GVK, key: NamespacedName) -> CachedState | None:
        """Return the state of an object in the cache, without a request; ``None`` does not mean that there is none.

        An informer with a selector is sufficient. If only metadata is cached, the state is partial.
        """
        require_gvk("cached", gvk)
        require_key("cached", key)
        stored = self._cache.stored(gvk, cache_key(self.mapper, gvk, key), partial=True)
        if stored is None:
            return None
        obj = decoded(stored.object)
        if stored.is_partial:
            return CachedState(obj, is_partial=True)
        return CachedState(obj, stored)

    async def get_metadata(self, kind: ObjectKind[Any], key: NamespacedName) -> Object | None:
        """Return only apiVersion, kind and metadata of the object, or ``None`` if it does not exist.

        They are read from the API server, which sends nothing else, so the rest can be of any size and depth.
        """
        gvk = require_kind("get_metadata", kind)
        return await self._requests.get_metadata(gvk, key)

    async def get_subresource(
        self, kind: ObjectKind[Any], key: NamespacedName, subresource: str
    ) -> Object | None:
        """Return the API server's response for a subresource (``scale``, ``status``), or ``None``."""
        gvk = require_kind("get_subresource", kind)
        return await self._requests.get_subresource(gvk, key, subresource)

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
        gvk = require_kind("list", kind)
        _require_selection("list", namespace, label_selector, field_selector)
        found = await self._requests.list(gvk, namespace, label_selector, field_selector, live=live)
        return [kind.decode(obj) for obj in found]

    async def select(
        self,
        gvk: GVK,
        select: Callable[[Object], T | None],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
    ) -> builtins.list[T]:
        """Return what ``select`` returns for each object that matches in the API server, without ``None``.

        For kinds whose objects are large and of which little is needed: one of them is decoded at a time. With
        ``metadata_only``, the API server sends only the metadata. An empty ``namespace`` means all namespaces.
        """
        gvk = require_kind("select", gvk)
        require_plain_function("select: select", select, "a function of an object")
        _require_selection("select", namespace, label_selector, field_selector)
        params = selector_params(label_selector, field_selector)
        return await self._requests.select(
            gvk, select, namespace, params, metadata_only=metadata_only
        )

    # Writes.

    @overload
    async def create(
        self,
        obj: Object,
        *,
        dry_run: bool = False,
        on_warning: Callable[[str], object] | None = None,
    ) -> Object: ...
    @overload
    async def create(
        self,
        obj: TypedT,
        *,
        dry_run: bool = False,
        on_warning: Callable[[str], object] | None = None,
    ) -> TypedT: ...
    @overload
    async def create(
        self,
        obj: ForeignModel,
        *,
        dry_run: bool = False,
        on_warning: Callable[[str], object] | None = None,
    ) -> Object: ...
    async def create(
        self,
        obj: Object | TypedObject | ForeignModel,
        *,
        dry_run: bool = False,
        on_warning: Callable[[str], object] | None = None,
    ) -> Object | TypedObject:
        """Create an object and return it as persisted; ``metadata.generateName`` may replace the name.

        ``on_warning`` is called with each warning of the API server, such as ``unknown field "spec.x"`` about a field
        that it drops.

        Raises :class:`~cfo.runtime.client.errors.AlreadyExists` if an object of this name exists, and
        :class:`~cfo.runtime.client.errors.OwnerDeleted` if another client deleted the object and its controller.
        """
        kind, wire = split_kind(obj)
        collection = await self._requests.resolve_collection(gvk_of(wire), namespace_of(wire))
        target = collection._replace(key=collection.key._replace(name=name_of(wire)))
        await self._requests.require_controller(target, wire)
        request = APIRequest(
            "POST",
            collection.path,
            verb="create",
            resource=collection.label,
            on_warning=on_warning,
        )
        persisted = await self._write(request, target, wire, dry_run=dry_run)
        created: Object | TypedObject = kind.decode(persisted)
        return created

    async def create_subresource(
        self,
        kind: ObjectKind[Any],
        key: NamespacedName,
        subresource: str,
        body: Object,
        *,
        dry_run: bool = False,
    ) -> Object:
        """Post ``body`` to a subresource (an Eviction, a TokenRequest, a Binding); return the response."""
        gvk = require_kind("create_subresource", kind)
        target = await self._requests.resolve_object(gvk, key, subresource)
        request = APIRequest("POST", target.path, verb="create", resource=target.label)
        return await self._write(request, target, body, dry_run=dry_run)

    @overload
    async def update(
        self, obj: Object, *, subresource: str = "", dry_run: bool = False
    ) -> Object: ...
    @overload
    async def update(
        self, obj: TypedT, *, subresource: str = "", dry_run: bool = False
    ) -> TypedT: ...
    @overload
    async def update(
        self, obj: ForeignModel, *, subresource: str = "", dry_run: bool = False
    ) -> Object: ...
    async def update(
        self,
        obj: Object | TypedObject | ForeignModel,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Object | TypedObject:
        """Replace an object by ``obj`` and return it as persisted; ``obj`` keeps its old resourceVersion.

        If ``metadata.resourceVersion`` is set, a concurrent change by another client is not overwritten, but raises
        :class:`~cfo.runtime.client.errors.Conflict`.
        """
        kind, wire = split_kind(obj)
        target = await self._requests.resolve_object(gvk_of(wire), key_of(wire), subresource)
        request = APIRequest("PUT", target.path, verb="update", resource=target.label)
        persisted = await self._write(request, target, wire, dry_run=dry_run)
        updated: Object | TypedObject = kind.decode(persisted)
        return updated

    async def patch(
        self,
        kind: ObjectKind[T],
        key: NamespacedName,
        body: Mapping[str, Any] | Sequence[Any] | ForeignModel,
        patch_type: PatchType = PatchType.MERGE,
        *,
        subresource: str = "",
        uid: str | None = None,
        resource_version: str | None = None,
        dry_run: bool = False,
    ) -> T:
        """Patch an object and return it as persisted.

        ``uid`` and ``resource_version`` are preconditions, as in :meth:`delete`. If they do not hold, a JSON patch
        raises :class:`~cfo.runtime.client.errors.Invalid`. A merge patch raises
        :class:`~cfo.runtime.client.errors.Conflict` if the resourceVersion differs, and
        :class:`~cfo.runtime.client.errors.Invalid` if only the uid differs (``Conflict`` with a ``subresource``, which
        is compared through the resourceVersion, because API servers ignore the uid in the status of a custom resource).
        Set ``resource_version`` for a patch that replaces what another client may have changed, for example a list.
        """
        if not isinstance(body, Mapping | Sequence):
            body = model_to_wire(body)
        _check_patch(body, patch_type)
        body = _with_preconditions(body, uid=uid, resource_version=resource_version)
        gvk = require_kind("patch", kind)
        target = await self._requests.resolve_object(gvk, key, subresource)
        request = APIRequest(
            "PATCH", target.path, content_type=patch_type.value, verb="patch", resource=target.label
        )
        params = {"fieldManager": self.field_manager, **_dry_run_params(dry_run)}
        return kind.decode(await self._requests.patch(request, target, body, params=params))

    async def patch_metadata(
        self, gvk: GVK, key: NamespacedName, metadata: Mapping[str, Any], *, uid: str
    ) -> Object:
        """Send a merge patch to the metadata of an object; return apiVersion, kind and metadata as persisted.

        For objects of which nothing else is needed: the rest of the response, which can be large, is not decoded.
        ``uid`` is a precondition, as in :meth:`patch`.
        """
        gvk = require_kind("patch_metadata", gvk)
        require_type("patch_metadata: metadata", metadata, Mapping, "a dict")
        body = _with_preconditions({"metadata": metadata}, uid=uid, resource_version=None)
        target = await self._requests.resolve_object(gvk, key)
        request = APIRequest(
            "PATCH",
            target.path,
            content_type=PatchType.MERGE.value,
            verb="patch",
            resource=target.label,
        )
        params = {"fieldManager": self.field_manager}
        response = await self._requests.write_undecoded(request, target, body, params=params)
        return decoded_metadata(response)

    @overload
    async def patch_object(
        self,
        obj: Object,
        patch: Mapping[str, Any],
        *,
        unchanged: bool = False,
        subresource: str = "",
    ) -> Object: ...
    @overload
    async def patch_object(
        self,
        obj: TypedT,
        patch: Mapping[str, Any],
        *,
        unchanged: bool = False,
        subresource: str = "",
    ) -> TypedT: ...
    async def patch_object(
        self,
        obj: Object | TypedObject,
        patch: Mapping[str, Any],
        *,
        unchanged: bool = False,
        subresource: str = "",
    ) -> Object | TypedObject:
        """Send a merge patch to ``obj``, unless it was deleted or recreated; return it as persisted.

        With ``unchanged``, any change of ``obj`` since it was read raises
        :class:`~cfo.runtime.client.errors.Conflict`: for a patch that replaces what another client may have changed,
        for example a list.
        """
        persisted: Object | TypedObject = await self.patch(
            kind_of(obj),
            key_of(obj),
            patch,
            subresource=subresource,
            uid=uid_of(obj),
            resource_version=resource_version_of(obj) if unchanged else None,
        )
        return persisted

    @overload
    async def apply(self, obj: Object, **options: Unpack[_ApplyOptions]) -> Object: ...
    @overload
    async def apply(self, obj: TypedT, **options: Unpack[_ApplyOptions]) -> TypedT: ...
    @overload
    async def apply(self, obj: ForeignModel, **options: Unpack[_ApplyOptions]) -> Object: ...
    async def apply(
        self,
        obj: Object | TypedObject | ForeignModel,
        *,
        subresource: str = "",
        force: bool = True,
        field_manager: str | None = None,
        version: str = "",
        cached: CachedState | None = None,
        dry_run: bool = False,
    ) -> Object | TypedObject:
        """Apply ``obj`` (server-side apply) unless that would change nothing; return the resulting object.

        ``obj`` contains all fields that we want to own, and no others. ``force`` takes over fields that other managers
        own; without it such a field raises a :class:`~cfo.runtime.client.errors.Conflict` whose causes name it. An
        object that another client created is changed, too, unless ``metadata.uid`` is set; a ``subresource`` then
        reaches no other object, either. Write the objects of an owner with
        :func:`~cfo.runtime.client.reconcile_children`, which leaves those of other owners unchanged. ``version`` is
        the resourceVersion that the object must still have if a request is sent; unlike ``metadata.resourceVersion``,
        it is not compared with the cache. ``cached`` is the result of :meth:`cached`, if the caller has just read it. A
        Secret's ``stringData`` is applied as ``data``, which is the field that the server persists. Raises
        :class:`~cfo.runtime.client.errors.OwnerDeleted` if another client deleted the object and its controller.

        The event handlers and predicates of all informers of this kind run synchronously inside this call: a response
        that changes the cached object is stored and delivered to them before ``apply`` returns. The same applies to all
        other writes.
        """
        kind, wire = split_kind(obj)
        desired = encode_string_data(wire)
        gvk = gvk_of(desired)
        intent = ApplyIntent(desired, field_manager or self.field_manager, subresource)
        key = cache_key(self.mapper, gvk, key_of(desired))
        stored = self._stored(gvk, key, cached)

        # A dry run must reach the server; only the object and its status have managedFields that the cache can compare;
        # and after a write with unknown outcome, the cached state may be outdated.
        is_comparable = (
            not dry_run and subresource in {"", "status"} and not self._cache.is_uncertain(gvk, key)
        )
        compared: StoredObject | None = None
        current: Object = {}
        if stored is not None and is_comparable:
            compared = stored
            current = _decode_stored(stored, cached)
            if self._is_unchanged(intent, current, stored):
                unchanged: Object | TypedObject = kind.decode(current)
                return unchanged

        if version:
            desired = {**desired, "metadata": {**desired["metadata"], "resourceVersion": version}}
        target = await self._requests.resolve_object(gvk, key_of(desired), subresource)
        if not subresource:  # a subresource never recreates its object
            await self._requests.require_controller(target, desired)
        request = APIRequest(
            "PATCH",
            target.path,
            content_type=APPLY,
            # With a resourceVersion, a second attempt would conflict with the first one.
            idempotent=not resource_version_of(desired),
            verb="apply",
            resource=target.label,
        )
        params = {
            "fieldManager": intent.manager,
            "force": "true" if force else "false",
            **_dry_run_params(dry_run),
        }
        uid = stored.uid if stored is not None else None
        result = await self._requests.patch(request, target, desired, params=params, cached_uid=uid)
        if compared is not None and resource_version_of(result) == compared.resource_version:
            # The request changed nothing, so the same one is not sent again.
            with suppress(orjson.JSONEncodeError):  # nested too deeply
                self._unchanged.remember(intent, current, compared.managers)
        applied: Object | TypedObject = kind.decode(result)
        return applied

    def would_apply(self, obj: Object | TypedObject, cached: CachedState) -> bool:
        """Return whether :meth:`apply` would send a request for ``obj``, without one; ``cached`` is its state."""
        desired = encode_string_data(to_object(obj))
        gvk = gvk_of(desired)
        key = cache_key(self.mapper, gvk, key_of(desired))
        stored = self._stored(gvk, key, cached)
        if stored is None or self._cache.is_uncertain(gvk, key):
            return True
        intent = ApplyIntent(desired, self.field_manager, "")
        return not self._is_unchanged(intent, _decode_stored(stored, cached), stored)

    def _stored(
        self, gvk: GVK, key: NamespacedName, cached: CachedState | None
    ) -> StoredObject | None:
        """Return the object to compare an apply with: that of ``cached``, or that in the cache."""
        if cached is not None and cached.stored is not None:
            return cached.stored
        return self._cache.stored(gvk, key)

    def _is_unchanged(self, intent: ApplyIntent, current: Object, stored: StoredObject) -> bool:
        """Return whether an apply would change nothing in ``current``, the decoded object of ``stored``."""
        managers = stored.managers
        try:
            if is_applied(intent, current, managers):
                return True
            return self._unchanged.contains(intent, current, managers)
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
        gvk = require_kind("delete", kind)
        target = await self._requests.resolve_object(gvk, key)
        options: Object = {}
        preconditions = _preconditions(uid=uid, resource_version=resource_version)
        if preconditions:
            options["preconditions"] = preconditions
        if propagation_policy is not None:
            options["propagationPolicy"] = propagation_policy
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        if dry_run:
            options["dryRun"] = ["All"]
        body: bytes | None = None
        if options:
            body = orjson.dumps({"apiVersion": "v1", "kind": "DeleteOptions", **options})

        cached_uid = self._requests.cached_uid(target)
        request = APIRequest(
            "DELETE",
            target.path,
            body=body,
            # Without a uid, a second DELETE might delete an object that was created after the first one.
            idempotent=uid is not None,
            verb="delete",
            resource=target.label,
        )
        try:
            if dry_run:
                await self._requests.send(request)
                return True
            response = await self._requests.send_write(request, target)
        except NotFound:
            self._requests.record_not_found(target, cached_uid)
            return False
        self._requests.record_delete(target, response, uid or cached_uid)
        return True

    async def _write(
        self, request: APIRequest, target: RequestTarget, body: Any, *, dry_run: bool
    ) -> Object:
        """Send a write to ``target``, and return the object or subresource in the response."""
        params = {"fieldManager": self.field_manager, **_dry_run_params(dry_run)}
        return await self._requests.write(request, target, body, params=params)


def _require_selection(
    name: str, namespace: object, label_selector: object, field_selector: object
) -> None:
    """Raise :class:`TypeError` for an argument of the wrong type, which the function ``name`` got."""
    require_namespace(name, namespace)
    require_type(f"{name}: label_selector", label_selector, str, "a string, such as app=web")
    require_type(
        f"{name}: field_selector", field_selector, str, "a string, such as spec.nodeName=a"
    )


def _decode_stored(stored: StoredObject, cached: CachedState | None) -> Object:
    """Return the decoded object of ``stored``, which ``cached`` has already if it is the same state."""
    if cached is not None and cached.stored is stored:
        return cached.object
    return decoded(stored.object)


def _check_patch(body: object, patch_type: PatchType) -> None:
    """Raise :class:`TypeError` unless the body of a patch is what its type needs: a dict, or a list of operations."""
    require_type("patch: patch_type", patch_type, PatchType, "a PatchType, such as PatchType.JSON")
    allowed = "a list of operations" if patch_type is PatchType.JSON else "a dict"
    is_allowed = isinstance(body, Mapping)
    if patch_type is PatchType.JSON:
        is_allowed = isinstance(body, Sequence) and not isinstance(body, str | bytes)
    if not is_allowed:
        # Not its value, which can be that of a Secret.
        raise TypeError(
            f"patch: body: a value of type {type(body).__name__}: must be {allowed} for PatchType.{patch_type.name}"
        )


def _with_preconditions(
    body: Mapping[str, Any] | Sequence[Any], *, uid: str | None, resource_version: str | None
) -> Mapping[str, Any] | Sequence[Any]:
    """Return a patch that the API server rejects unless the object has this uid and resourceVersion."""
    preconditions = _preconditions(uid=uid, resource_version=resource_version)
    if not preconditions:
        return body
    if isinstance(body, Mapping):
        metadata = body.get("metadata") or {}
        return {**body, "metadata": {**metadata, **preconditions}}
    tests = [
        {"op": "test", "path": f"/metadata/{name}", "value": value}
        for name, value in preconditions.items()
    ]
    return [*tests, *body]


def _preconditions(*, uid: str | None, resource_version: str | None) -> dict[str, str]:
    """Return the preconditions that are set, by the names of the fields in the metadata."""
    preconditions: dict[str, str] = {}
    if uid:
        preconditions["uid"] = uid
    if resource_version:
        preconditions["resourceVersion"] = resource_version
    return preconditions


def _dry_run_params(dry_run: bool) -> dict[str, str]:
    """Return the query parameter that makes a request a dry run; empty if ``dry_run`` is false."""
    return {"dryRun": "All"} if dry_run else {}


@asynccontextmanager
async def connect(config: ClientConfig, *, field_manager: str) -> AsyncIterator[Client]:
    """Return an async context manager with a client that has no cache: each read is a request.

    It is for programs and tests that run no manager. ``field_manager`` is the field manager of its writes. Entering it
    sends no request. Operators use the client of their :class:`~cfo.runtime.manager.manager.Manager` instead, which
    reads from informers.
    """
    async with Transport(config) as transport:
        yield Client(transport, RESTMapper(transport), field_manager=field_manager)
