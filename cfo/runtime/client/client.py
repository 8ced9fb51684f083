"""The verbs of the API over objects.

Reads are answered by the cache where an informer covers them, and by the API server otherwise; writes go to the
API server, and their answers into the cache, so that you read your own writes (decision 5 of the
architecture). :meth:`Client.apply` writes only what would change something (decision 3).

After a write whose outcome is unknown (no answer came, or the server failed while it worked) the next read of
that object goes to the API server, whatever the cache covers.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import AsyncIterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import orjson

from cfo.runtime.client.apply import Unchanged, is_applied
from cfo.runtime.client.cache import ClientCache, Stored
from cfo.runtime.client.errors import APIError, Expired, NotFound, TransportError, UnknownKind
from cfo.runtime.client.transport import JSON, Transport
from cfo.runtime.objects import (
    GVK,
    NamespacedName,
    Object,
    gvk_of,
    is_deleting,
    key_of,
    namespace_of,
    owner_reference,
    owner_references_of,
    resource_version_of,
    uid_of,
)

if TYPE_CHECKING:
    from cfo.runtime.discovery import Resource, RESTMapper  # it needs this package's transport

__all__ = ["Client", "PatchType", "Propagation"]

_APPLY = "application/apply-patch+yaml"
_PAGE = 500
_TORN_LISTS = 2


class PatchType(StrEnum):
    """How a patch is written, by its media type."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"


class Propagation(StrEnum):
    """What happens to the dependents of a deleted object."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


class _Target(NamedTuple):
    """What a request is about."""

    gvk: GVK
    resource: Resource
    key: NamespacedName
    subresource: str

    @property
    def path(self) -> str:
        return self.resource.path(self.key.namespace, self.key.name, self.subresource)

    @property
    def label(self) -> str:
        """The resource as errors name it."""
        name = str(self.resource.gvr)
        return f"{name}/{self.subresource}" if self.subresource else name


class Client:
    """Reads and writes objects of any kind.

    ``field_manager`` owns the fields that are written. Without a ``cache`` every read is a request. All
    methods that ask the API server raise :class:`~cfo.runtime.client.errors.APIError`,
    :class:`~cfo.runtime.client.errors.TransportError`, and
    :class:`~cfo.runtime.client.errors.UnknownKind` or :class:`~cfo.runtime.discovery.DiscoveryIncomplete`
    where the kind is not served, or not known to be; :class:`ValueError` for a name or namespace that is
    missing, or that is none.
    """

    def __init__(
        self, transport: Transport, mapper: RESTMapper, *, field_manager: str, cache: ClientCache | None = None
    ) -> None:
        self.transport = transport
        self.mapper = mapper
        self.field_manager = field_manager
        self.cache = cache
        self._unchanged = Unchanged()

    def with_field_manager(self, field_manager: str) -> Self:
        """A client which writes as another field manager, and shares everything else with this one."""
        other = copy.copy(self)
        other.field_manager = field_manager
        return other

    # Reads.

    async def get(self, gvk: GVK, key: NamespacedName, *, live: bool = False) -> Object | None:
        """The object, owned by the caller, or ``None`` where there is none.

        ``live`` asks the API server even where the cache could answer.
        """
        cached = self._cached_key(gvk, key)
        if not live and self._covers(gvk, cached.namespace) and not self._is_uncertain(gvk, cached):
            assert self.cache is not None
            return self.cache.get(gvk, cached)
        target = await self._target(gvk, key)
        before = self._stored(gvk, target.key)
        try:
            body = await self._ask("GET", target, verb="get")
        except NotFound:
            self._settle_missing(target, before)
            return None
        obj: Object = orjson.loads(body)
        if self._is_uncertain(gvk, target.key):
            self._learn(target, obj, body)
        return obj

    async def get_subresource(self, gvk: GVK, key: NamespacedName, subresource: str) -> Object | None:
        """What the API server answers for a subresource (``scale``, ``status``), or ``None``."""
        target = await self._target(gvk, key, subresource)
        try:
            obj: Object = orjson.loads(await self._ask("GET", target, verb="get"))
        except NotFound:
            return None
        return obj

    async def list(
        self,
        gvk: GVK,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        live: bool = False,
    ) -> list[Object]:
        """The objects that match, owned by the caller; an empty ``namespace`` means all of them.

        The API server is asked in pages of 500, anew when the pages expire on the way.
        """
        cached = self._cached_key(gvk, NamespacedName(namespace, ""))
        if not live and not field_selector and self._covers(gvk, cached.namespace):
            assert self.cache is not None
            return self.cache.list(gvk, cached.namespace, label_selector)
        target = await self._collection(gvk, namespace)
        params = _selectors(label_selector, field_selector)
        for torn in range(_TORN_LISTS + 1):
            limit = {"limit": str(_PAGE)} if torn < _TORN_LISTS else {}
            try:
                return [item async for item in self._pages(target, {**params, **limit})]
            except Expired:
                if not limit:
                    raise
        raise AssertionError("a list without a limit is answered or fails")

    async def _pages(self, target: _Target, params: dict[str, str]) -> AsyncIterator[Object]:
        while True:
            page = orjson.loads(await self._ask("GET", target, verb="list", params=params, compress=True))
            for item in page.get("items") or ():
                item.setdefault("apiVersion", target.gvk.api_version)
                item.setdefault("kind", target.gvk.kind)
                yield item
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            params = {**params, "continue": token}

    # Writes.

    async def create(
        self,
        obj: Object,
        *,
        subresource: str = "",
        key: NamespacedName | None = None,
        gvk: GVK | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Creates an object, and returns it as persisted; ``metadata.generateName`` may stand for its name.

        With ``subresource`` it is posted there (an Eviction, a TokenRequest, a Binding): ``key`` and ``gvk`` say
        which object of which kind it is about, unless they are its own. Raises
        :class:`~cfo.runtime.client.errors.AlreadyExists` when the name is taken.
        """
        if subresource:
            target = await self._target(gvk or gvk_of(obj), key or key_of(obj), subresource)
        else:
            target = await self._collection(gvk_of(obj), namespace_of(obj), required=True)
            target = target._replace(key=NamespacedName(target.key.namespace, key_of(obj).name))
        path = target.path if subresource else target._replace(key=target.key._replace(name="")).path
        return await self._write(
            "POST", target, path=path, verb="create", body=obj, params=self._params(dry_run=dry_run), dry_run=dry_run
        )

    async def update(
        self, obj: Object, *, subresource: str = "", gvk: GVK | None = None, dry_run: bool = False
    ) -> Object:
        """Replaces an object by ``obj``, and returns it as persisted.

        Its ``metadata.resourceVersion`` makes sure that nobody else's change is lost
        (:class:`~cfo.runtime.client.errors.Conflict`). ``gvk``: the kind of the object where ``obj`` is the
        subresource's own kind (a Scale).
        """
        target = await self._target(gvk or gvk_of(obj), key_of(obj), subresource)
        return await self._write(
            "PUT", target, verb="update", body=obj, params=self._params(dry_run=dry_run), dry_run=dry_run
        )

    async def patch(
        self,
        gvk: GVK,
        key: NamespacedName,
        body: Mapping[str, Any] | Sequence[Any],
        patch_type: PatchType = PatchType.MERGE,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Changes parts of an object, and returns it as persisted."""
        target = await self._target(gvk, key, subresource)
        return await self._write(
            "PATCH",
            target,
            verb="patch",
            body=body,
            content_type=patch_type.value,
            params=self._params(dry_run=dry_run),
            dry_run=dry_run,
        )

    async def apply(
        self,
        obj: Object,
        *,
        owner: Object | None = None,
        subresource: str = "",
        force: bool = True,
        field_manager: str | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Applies ``obj`` (server-side apply), unless that would change nothing; returns the object as it then is.

        ``obj`` says all that we want to own, and nothing else. ``owner`` becomes its controller.
        ``force`` takes fields that others own; without it such a field is a
        :class:`~cfo.runtime.client.errors.Conflict` whose causes name it. What must not be taken from others carries
        its ``metadata.uid``. A Secret's ``stringData`` is applied as ``data``, which is what the server keeps.
        """
        manager = field_manager or self.field_manager
        desired = _with_data(obj)
        if owner is not None:
            desired = _with_owner(desired, owner)
        gvk = gvk_of(desired)
        apply = {"desired": desired, "manager": manager, "subresource": subresource}
        key = self._cached_key(gvk, key_of(desired))
        comparable = not dry_run and subresource in {"", "status"} and not self._is_uncertain(gvk, key)
        stored = self._stored(gvk, key) if comparable else None
        current: Object = orjson.loads(stored.object) if stored is not None else {}
        if stored is not None and (
            is_applied(desired, current, stored.managers, manager, subresource)
            or self._unchanged.holds(apply, current, stored.managers)
        ):
            return current
        target = await self._target(gvk, key_of(desired), subresource)
        answer = await self._write(
            "PATCH",
            target,
            verb="apply",
            body=desired,
            content_type=_APPLY,
            params=self._params(dry_run=dry_run, manager=manager) | {"force": "true" if force else "false"},
            retry_lost=not resource_version_of(desired),
            dry_run=dry_run,
        )
        if stored is not None and resource_version_of(answer) == stored.resource_version:
            self._unchanged.remember(apply, current, stored.managers)
        return answer

    async def delete(
        self,
        gvk: GVK,
        key: NamespacedName,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation_policy: Propagation | str | None = None,
        grace_period_seconds: int | None = None,
    ) -> bool:
        """Asks for an object's deletion; False when it was gone already.

        ``uid`` and ``resource_version`` are preconditions: where they do not hold it is a
        :class:`~cfo.runtime.client.errors.Conflict`.
        """
        target = await self._target(gvk, key)
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        options = {
            "preconditions": {name: value for name, value in preconditions.items() if value} or None,
            "propagationPolicy": propagation_policy and str(propagation_policy),
            "gracePeriodSeconds": grace_period_seconds,
        }
        before = self._stored(gvk, target.key)
        try:
            body = await self._change(
                "DELETE", target, verb="delete", body=_delete_options(options), retry_lost=uid is not None
            )
        except NotFound:
            self._settle_missing(target, before)
            return False
        answer = orjson.loads(body)
        if answer.get("kind") == "Status":
            told = (answer.get("details") or {}).get("uid")
            self._settle_gone(target, told or uid or (before.uid if before else ""))
        elif is_deleting(answer):
            self._learn(target, answer, body)
        else:
            self._settle_gone(target, uid_of(answer))
        return True

    async def delete_collection(
        self,
        gvk: GVK,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        propagation_policy: Propagation | str | None = None,
    ) -> None:
        """Asks for the deletion of all that match; of a namespaced kind in one namespace."""
        target = await self._collection(gvk, namespace, required=True)
        body = _delete_options({"propagationPolicy": propagation_policy and str(propagation_policy)})
        answer = orjson.loads(
            await self._change(
                "DELETE", target, verb="deletecollection", body=body, params=_selectors(label_selector, field_selector)
            )
        )
        for item in answer.get("items") or ():
            item.update(apiVersion=gvk.api_version, kind=gvk.kind)
            of_item = target._replace(key=key_of(item))
            if is_deleting(item):
                self._learn(of_item, item, orjson.dumps(item))
            else:
                self._settle_gone(of_item, uid_of(item))

    # Targets.

    def _cached_key(self, gvk: GVK, key: NamespacedName) -> NamespacedName:
        """The key as the cache knows it: without a namespace when the kind is known to have none."""
        resource = self.mapper.cached(gvk)
        return key._replace(namespace="") if resource is not None and not resource.namespaced else key

    async def _target(self, gvk: GVK, key: NamespacedName, subresource: str = "") -> _Target:
        target = await self._collection(gvk, key.namespace, required=True)
        # An empty name would ask for, or delete, the whole collection.
        if not key.name or key.name in {".", ".."} or "/" in key.name or "%" in key.name:
            raise ValueError(f"{gvk}: name {key.name!r}: must not be empty, '.' or '..', nor hold '/' or '%'")
        return target._replace(key=NamespacedName(target.key.namespace, key.name), subresource=subresource)

    async def _collection(self, gvk: GVK, namespace: str, *, required: bool = False) -> _Target:
        resource = await self.mapper.resource(gvk)
        if not resource.namespaced:
            namespace = ""
        elif required and not namespace:
            raise ValueError(f"{gvk}: namespace is missing: the kind is namespaced")
        return _Target(gvk, resource, NamespacedName(namespace, ""), "")

    def _params(self, *, dry_run: bool, manager: str = "") -> dict[str, str]:
        params = {"fieldManager": manager or self.field_manager}
        return params | {"dryRun": "All"} if dry_run else params

    # Requests.

    async def _ask(
        self,
        method: str,
        target: _Target,
        *,
        verb: str,
        path: str = "",
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        compress: bool = False,
        retry_lost: bool | None = None,
    ) -> bytes:
        try:
            response = await self.transport.request(
                method,
                path or target.path,
                params=params,
                body=body,
                content_type=content_type,
                compress=compress,
                retry_lost=retry_lost,
                verb=verb,
                resource=target.label,
            )
        except NotFound as error:
            if error.details.get("name"):
                raise
            # Not an object is missing but its resource: the kind is not served any more.
            self.mapper.invalidate()
            raise UnknownKind(str(error)) from error
        return response.body

    async def _change(self, method: str, target: _Target, **how: Any) -> bytes:
        """A request that changes something, which may have happened even when no answer says so."""
        try:
            return await self._ask(method, target, **how)
        except TransportError as error:
            if error.outcome_unknown:
                self._doubt(target)
            raise
        except APIError as error:
            if error.code >= 500:
                self._doubt(target)
            raise

    async def _write(
        self, method: str, target: _Target, *, body: Any, params: Mapping[str, str], dry_run: bool, **how: Any
    ) -> Object:
        request = self._ask if dry_run else self._change
        answer = await request(method, target, params=params, body=orjson.dumps(body), **how)
        obj: Object = orjson.loads(answer)
        if not dry_run and obj.get("kind") == target.gvk.kind:
            self._learn(target, obj, answer)
        return obj

    # What the cache knows, and what it learns.

    def _covers(self, gvk: GVK, namespace: str) -> bool:
        return self.cache is not None and self.cache.covers(gvk, namespace)

    def _is_uncertain(self, gvk: GVK, key: NamespacedName) -> bool:
        return self.cache is not None and self.cache.is_uncertain(gvk, key)

    def _stored(self, gvk: GVK, key: NamespacedName) -> Stored | None:
        return self.cache.stored(gvk, key) if self.cache is not None else None

    def _doubt(self, target: _Target) -> None:
        if self.cache is not None and target.key.name:
            self.cache.uncertain(target.gvk, target.key)

    def _learn(self, target: _Target, obj: Object, body: bytes) -> None:
        if self.cache is None:
            return
        if _is_gone(obj):
            self.cache.deleted(target.gvk, key_of(obj), uid_of(obj))
        else:
            self.cache.wrote(target.gvk, body)

    def _settle_gone(self, target: _Target, uid: str) -> None:
        if self.cache is not None and uid:
            self.cache.deleted(target.gvk, target.key, uid)

    def _settle_missing(self, target: _Target, before: Stored | None) -> None:
        """Takes in that an object was not found, of which ``before`` was stored when we asked.

        What was stored since came from a watch, which may know of a later object: that one stays.
        """
        if self.cache is None:
            return
        now = self.cache.stored(target.gvk, target.key)
        if before is not None and (now is None or now.uid == before.uid):
            self.cache.deleted(target.gvk, target.key, before.uid)
        elif now is None:
            self.cache.deleted(target.gvk, target.key, "")


def _is_gone(obj: Object) -> bool:
    """Whether an answer shows an object that was removed by this very write: nothing holds it any more.

    Removing the last finalizer of an object that is being deleted is answered with the object.
    """
    metadata = obj.get("metadata") or {}
    if not is_deleting(obj) or metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds"):
        return False
    return not (obj.get("kind") == "Namespace" and (obj.get("spec") or {}).get("finalizers"))


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: value for name, value in selectors.items() if value}


def _delete_options(options: Mapping[str, Any]) -> bytes | None:
    given = {name: value for name, value in options.items() if value is not None}
    return orjson.dumps({"apiVersion": "v1", "kind": "DeleteOptions", **given}) if given else None


def _with_data(obj: Object) -> Object:
    """A Secret with its ``stringData`` in ``data``; anything else as it is."""
    strings = obj.get("stringData")
    if not strings or obj.get("kind") != "Secret" or obj.get("apiVersion") != "v1":
        return obj
    encoded = {name: base64.b64encode(value.encode()).decode() for name, value in strings.items()}
    rest = {name: value for name, value in obj.items() if name != "stringData"}
    return {**rest, "data": {**(obj.get("data") or {}), **encoded}}


def _with_owner(obj: Object, owner: Object) -> Object:
    """The object with ``owner`` as its controller; raises :class:`ValueError` where that cannot be."""
    if namespace_of(owner) and namespace_of(owner) != namespace_of(obj):
        raise ValueError(
            f"{gvk_of(obj)} {key_of(obj)}: its owner {key_of(owner)} is in another namespace; "
            "the garbage collector would delete it"
        )
    reference = owner_reference(owner)
    others = [other for other in owner_references_of(obj) if other.get("uid") != reference["uid"]]
    return {**obj, "metadata": {**(obj.get("metadata") or {}), "ownerReferences": [*others, reference]}}
