"""The client of the controllers: an ordinary API user whose requests use the normal request pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from envtest.apimachinery.errors import GroupResource, StatusError
from envtest.apimachinery.objects import Object
from envtest.apimachinery.user import User, service_account_groups, service_account_username
from envtest.endpoints.options import WriteOptions, delete_options_of
from envtest.registry.resource import RequestContext, ResourceInfo
from envtest.registry.storage_version import from_storage
from envtest.storage import Record
from envtest.writes.create_update import admit_mutating, copy_object, create_object, update_object
from envtest.writes.deletion import delete_object
from envtest.writes.server_core import Core

__all__ = ["LoopbackClient"]


class _NoChange(Exception):
    """Raised to end an update that would change nothing."""

    def __init__(self, obj: Object) -> None:
        super().__init__("unchanged")
        self.obj = obj


class LoopbackClient:
    """Reads the store and writes through the request pipeline, as a service account of ``kube-system``.

    ``account`` is the name of the service account, which has all permissions; ``manager`` is the field manager of its
    writes. Requests are let through after each write, because a controller that creates thousands of pods must not
    delay them, but not before it: what it writes can depend on what it has read.
    """

    def __init__(self, core: Core, account: str, manager: str = "kube-controller-manager") -> None:
        self.core = core
        username = service_account_username("kube-system", account)
        groups = (*service_account_groups("kube-system"), "system:authenticated", "system:masters")
        self._user = User(username, groups=groups)
        self._manager = manager
        self._infos: dict[GroupResource, ResourceInfo] = {}
        self._generation = -1

    def now(self) -> str:
        """Return the current time in the format of object timestamps."""
        return self.core.clock.timestamp()

    def info(self, resource: GroupResource) -> ResourceInfo | None:
        """Return the resource whose objects are in the table ``resource``, in the storage version if that is served."""
        registry = self.core.registry
        if self._generation != registry.generation:
            self._infos = {info.storage: info for info in registry.stored()}
            self._generation = registry.generation
        return self._infos.get(resource)

    def infos(self) -> list[ResourceInfo]:
        """Return one resource for each table whose objects are served."""
        self.info(GroupResource("", ""))
        return list(self._infos.values())

    def record(self, resource: GroupResource, namespace: str, name: str) -> Record | None:
        """Return the stored record of this name, if there is one."""
        return self.core.store.get(resource, namespace, name)

    def records(self, resource: GroupResource, namespace: str = "") -> Sequence[Record]:
        """Return the stored records of a namespace, or of all namespaces."""
        return self.core.store.list(resource, namespace)

    async def read(self, resource: GroupResource, namespace: str, name: str) -> Object | None:
        """Return the object of this name, in the version of :meth:`info`; ``None`` if it does not exist."""
        record = self.record(resource, namespace, name)
        info = self.info(resource)
        return None if record is None or info is None else await from_storage(info, record)

    def _context(
        self, info: ResourceInfo, verb: str, namespace: str, name: str, subresource: str = ""
    ) -> RequestContext:
        operation = {"create": "CREATE", "update": "UPDATE", "delete": "DELETE"}[verb]
        return RequestContext(
            self._user,
            verb,
            info,
            namespace,
            name,
            subresource=subresource,
            operation=operation,
            field_manager=self._manager,
            field_validation="Ignore",
            options=WriteOptions(f"{operation.capitalize()}Options").document(),
            moment=self.core.clock.now(),
        )

    async def create(self, resource: GroupResource, obj: Object) -> Object | None:
        """Create an object; return ``None`` if one of that name exists. Raises StatusError for other errors."""
        info = self._require_info(resource)
        metadata = obj["metadata"]
        obj.setdefault("apiVersion", info.api_version)
        obj.setdefault("kind", info.kind)
        ctx = self._context(
            info, "create", metadata.get("namespace") or "", metadata.get("name") or ""
        )
        info.strategy.decode(obj, ctx)
        try:
            return await create_object(self.core, ctx, obj)
        except StatusError as error:
            if error.reason == "AlreadyExists":
                return None
            raise
        finally:
            await asyncio.sleep(0)

    async def modify(
        self,
        resource: GroupResource,
        namespace: str,
        name: str,
        change: Callable[[Object], Any],
        *,
        uid: str = "",
        subresource: str = "",
    ) -> Object | None:
        """Apply ``change`` to the object in place and write it; write nothing if ``change`` returns ``False``.

        Returns ``None`` if the object does not exist, or if the object of this name has another uid than ``uid``.
        Raises StatusError if the API server rejects the write.
        """
        info = self._require_info(resource)
        ctx = self._context(info, "update", namespace, name, subresource)
        tracker = self.core.trackers.of(info, subresource)

        async def transform(old: Object | None) -> Object:
            if old is None:
                raise _NoChange({})
            new = copy_object(old)
            if (uid and new["metadata"].get("uid") != uid) or change(new) is False:
                raise _NoChange(old)
            info.strategy.default(new)
            await tracker.run_with_conversions(
                lambda: tracker.track(old, new, manager=self._manager, now=ctx.now)
            )
            return await admit_mutating(self.core, ctx, new, old)

        try:
            obj, _ = await update_object(self.core, ctx, transform)
        except _NoChange as unchanged:
            unchanged_obj = unchanged.obj
            return (
                unchanged_obj
                if unchanged_obj and (not uid or unchanged_obj["metadata"].get("uid") == uid)
                else None
            )
        except StatusError as error:
            if error.code == 404:
                return None
            raise
        finally:
            await asyncio.sleep(0)
        return obj

    async def delete(
        self,
        resource: GroupResource,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        propagation: str | None = None,
        grace_period: int | None = None,
    ) -> bool:
        """Request the deletion of an object; return whether there was one. Raises StatusError if it is rejected."""
        info = self._require_info(resource)
        ctx = self._context(info, "delete", namespace, name)
        document: Object = {}
        if grace_period is not None:
            document["gracePeriodSeconds"] = grace_period
        if uid:
            document["preconditions"] = {"uid": uid}
        if propagation is not None:
            document["propagationPolicy"] = propagation
        options = delete_options_of(document)
        ctx.options = options.document
        try:
            await delete_object(self.core, ctx, options)
        except StatusError as error:
            if error.code == 404 or (error.code == 409 and uid):
                return False
            raise
        finally:
            await asyncio.sleep(0)
        return True

    async def put(self, obj: Object) -> None:
        """Create an object, or replace the existing one with its name.

        Raises StatusError, and LookupError for an unknown kind.
        """
        info = self._info_of(obj)
        metadata = obj["metadata"]
        if await self.create(info.storage, copy_object(obj)) is not None:
            return
        desired = copy_object(obj)
        info.strategy.decode(
            desired,
            self._context(info, "update", metadata.get("namespace") or "", metadata["name"]),
        )

        def replace(live: Object) -> None:
            revision = live["metadata"]["resourceVersion"]
            live.clear()
            live.update(copy_object(desired))
            live["metadata"]["resourceVersion"] = revision

        await self.modify(info.storage, metadata.get("namespace") or "", metadata["name"], replace)

    async def remove(self, obj: Object) -> None:
        """Delete the object of this kind and name, if there is one. Raises the same errors as :meth:`put`."""
        info = self._info_of(obj)
        metadata = obj["metadata"]
        await self.delete(info.storage, metadata.get("namespace") or "", metadata["name"])

    def _info_of(self, obj: Object) -> ResourceInfo:
        return self.core.registry.of_object(str(obj.get("apiVersion") or ""), str(obj.get("kind")))

    def _require_info(self, resource: GroupResource) -> ResourceInfo:
        info = self.info(resource)
        if info is None:
            raise LookupError(f"{resource} is not served")
        return info
