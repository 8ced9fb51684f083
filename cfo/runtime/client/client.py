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
from typing import TYPE_CHECKING, Any, Self

import orjson

from cfo.runtime.client.apply import Unchanged, is_applied
from cfo.runtime.client.cache import ClientCache
from cfo.runtime.client.errors import APIError, Expired, NotFound, TransportError, UnknownKind
from cfo.runtime.client.knowledge import Knowledge
from cfo.runtime.client.request_target import Target, cached_key, collection, single
from cfo.runtime.client.transport import Transport
from cfo.runtime.objects import (
    GVK,
    NamespacedName,
    Object,
    gvk_of,
    is_deleting,
    key_of,
    name_of,
    namespace_of,
    owner_reference,
    owner_references_of,
    resource_version_of,
    uid_of,
)

if TYPE_CHECKING:
    from cfo.runtime.discovery import RESTMapper  # it needs this package's transport

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
        self._known = Knowledge(cache)
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
        if not live:
            known, obj = self._known.get(gvk, cached_key(self.mapper, gvk, key))
            if known:
                return obj
        target = await single(self.mapper, gvk, key)
        uid_before = self._known.stored_uid(target)
        try:
            body = await self._ask("GET", target, verb="get")
        except NotFound:
            self._known.missing(target, uid_before)
            return None
        found: Object = orjson.loads(body)
        self._known.settle(target, found, body)
        return found

    async def get_subresource(self, gvk: GVK, key: NamespacedName, subresource: str) -> Object | None:
        """What the API server answers for a subresource (``scale``, ``status``), or ``None``."""
        target = await single(self.mapper, gvk, key, subresource)
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
        if not live and not field_selector:
            within = cached_key(self.mapper, gvk, NamespacedName(namespace, "")).namespace
            if self._known.covers(gvk, within):
                for key in self._known.doubted(gvk, within):
                    await self.get(gvk, key)
                return self._known.list(gvk, within, label_selector)
        target = await collection(self.mapper, gvk, namespace, across=True)
        params = _selectors(label_selector, field_selector)
        for torn in range(_TORN_LISTS + 1):
            limit = {"limit": str(_PAGE)} if torn < _TORN_LISTS else {}
            try:
                return [item async for item in self._pages(target, {**params, **limit})]
            except Expired:
                if not limit:
                    raise
        raise AssertionError("a list without a limit is answered or fails")

    async def _pages(self, target: Target, params: dict[str, str]) -> AsyncIterator[Object]:
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
            target = await single(self.mapper, gvk or gvk_of(obj), key or key_of(obj), subresource)
            return await self._write("POST", target, verb="create", body=obj, dry_run=dry_run)
        target = await collection(self.mapper, gvk_of(obj), namespace_of(obj))
        about = target._replace(key=target.key._replace(name=name_of(obj)))
        return await self._write("POST", target, about=about, verb="create", body=obj, dry_run=dry_run)

    async def update(
        self, obj: Object, *, subresource: str = "", gvk: GVK | None = None, dry_run: bool = False
    ) -> Object:
        """Replaces an object by ``obj``, and returns it as persisted.

        Its ``metadata.resourceVersion`` makes sure that nobody else's change is lost
        (:class:`~cfo.runtime.client.errors.Conflict`). ``gvk``: the kind of the object where ``obj`` is the
        subresource's own kind (a Scale).
        """
        target = await single(self.mapper, gvk or gvk_of(obj), key_of(obj), subresource)
        return await self._write("PUT", target, verb="update", body=obj, dry_run=dry_run)

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
        target = await single(self.mapper, gvk, key, subresource)
        return await self._write(
            "PATCH", target, verb="patch", body=body, content_type=patch_type.value, dry_run=dry_run
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
        comparable = not dry_run and subresource in {"", "status"}
        stored = self._known.stored(gvk, cached_key(self.mapper, gvk, key_of(desired))) if comparable else None
        current: Object = orjson.loads(stored.object) if stored is not None else {}
        if stored is not None and (
            is_applied(desired, current, stored.managers, manager, subresource)
            or self._unchanged.holds(apply, current, stored.managers)
        ):
            return current
        answer = await self._write(
            "PATCH",
            await single(self.mapper, gvk, key_of(desired), subresource),
            verb="apply",
            body=desired,
            content_type=_APPLY,
            params={"fieldManager": manager, "force": "true" if force else "false"},
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
        target = await single(self.mapper, gvk, key)
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        options = {
            "preconditions": {name: value for name, value in preconditions.items() if value} or None,
            "propagationPolicy": propagation_policy,
            "gracePeriodSeconds": grace_period_seconds,
        }
        uid_before = self._known.stored_uid(target)
        try:
            # Without a uid a second DELETE might hit what was created after the first.
            body = await self._change(
                "DELETE", target, verb="delete", body=_delete_options(options), retry_lost=uid is not None
            )
        except NotFound:
            self._known.missing(target, uid_before)
            return False
        answer = orjson.loads(body)
        if answer.get("kind") == "Status":
            told = (answer.get("details") or {}).get("uid")
            self._known.deleted(target, told or uid or uid_before)
        else:
            self._deletion_answered(target, answer, body)
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
        target = await collection(self.mapper, gvk, namespace)
        body = await self._change(
            "DELETE",
            target,
            verb="deletecollection",
            body=_delete_options({"propagationPolicy": propagation_policy}),
            params=_selectors(label_selector, field_selector),
        )
        for item in orjson.loads(body).get("items") or ():
            item.update(apiVersion=gvk.api_version, kind=gvk.kind)
            self._deletion_answered(target._replace(key=key_of(item)), item, orjson.dumps(item))

    def _deletion_answered(self, target: Target, obj: Object, body: bytes) -> None:
        """Takes in the object that a DELETE was answered with: as it is now, or, not marked as deleted, as it was."""
        if is_deleting(obj):
            self._known.wrote(target, obj, body)
        else:
            self._known.deleted(target, uid_of(obj))

    # Requests.

    async def _ask(self, method: str, target: Target, **how: Any) -> bytes:
        try:
            response = await self.transport.request(method, target.path, resource=target.label, **how)
        except NotFound as error:
            if error.details.get("name"):
                raise
            # Not an object is missing but its resource: the kind is not served any more.
            self.mapper.invalidate()
            raise UnknownKind(str(error)) from error
        return response.body

    async def _change(self, method: str, target: Target, *, about: Target | None = None, **how: Any) -> bytes:
        """A request that changes something, which may have happened even when no answer says so.

        ``about`` is the object it changes, where that is not the target.
        """
        try:
            return await self._ask(method, target, **how)
        except TransportError as error:
            if error.outcome_unknown:
                self._known.doubt(about or target)
            raise
        except APIError as error:
            if error.code >= 500:
                self._known.doubt(about or target)
            raise

    async def _write(
        self,
        method: str,
        target: Target,
        *,
        body: Any,
        dry_run: bool,
        about: Target | None = None,
        params: Mapping[str, str] | None = None,
        **how: Any,
    ) -> Object:
        """Sends an object or a patch; returns the object that the answer holds."""
        params = {"fieldManager": self.field_manager, **(params or {})}
        content = orjson.dumps(body)
        if dry_run:
            dry: Object = orjson.loads(
                await self._ask(method, target, params={**params, "dryRun": "All"}, body=content, **how)
            )
            return dry
        answer = await self._change(method, target, about=about, params=params, body=content, **how)
        obj: Object = orjson.loads(answer)
        if obj.get("kind") == target.gvk.kind:
            self._known.wrote(about or target, obj, answer)
        return obj


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
