"""An API server without HTTP, with some of its controllers, for tests that write objects and wait for results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from envtest.admission.plugin_names import enabled_plugins
from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object
from envtest.controllers import create_runner
from envtest.endpoints.options import DeleteOptions
from envtest.registry.resource import RequestContext
from envtest.server.assembly import SYSTEM, assemble, create_initial_objects
from envtest.storage import Change
from envtest.writes.create_update import copy_object, create_object, update_object
from envtest.writes.deletion import delete_object
from envtest.writes.server_core import Core

CONFIG_MAPS = GroupResource("", "configmaps")


class HeadlessPlane:
    """The core of an API server; by default the methods act on ConfigMaps in the namespace ``default``."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._changed = asyncio.Event()
        core.store.journal.append(self._observe)

    def _observe(self, resource: GroupResource, change: Change) -> None:
        self._changed.set()

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait until a condition holds; it is evaluated after each change. Raises TimeoutError after ten seconds."""
        async with asyncio.timeout(120):
            while not condition():
                self._changed.clear()
                await self._changed.wait()
                await asyncio.sleep(0)

    def _context(
        self, verb: str, resource: GroupResource, name: str = "", subresource: str = ""
    ) -> RequestContext:
        info = self.core.registry.any_version(*resource)
        assert info is not None
        return RequestContext(
            SYSTEM,
            verb,
            info,
            "default" if info.namespaced else "",
            name,
            subresource=subresource,
            operation={"create": "CREATE", "update": "UPDATE", "delete": "DELETE"}[verb],
            field_manager="test",
        )

    async def create(
        self, name: str, *owners: Object, resource: GroupResource = CONFIG_MAPS, **content: Any
    ) -> Object:
        ctx = self._context("create", resource)
        metadata: Object = {"name": name, **content.pop("metadata", {})}
        if ctx.info.namespaced:
            metadata.setdefault("namespace", "default")
            ctx.namespace = metadata["namespace"]
        if owners:
            metadata["ownerReferences"] = [reference(owner) for owner in owners]
        obj = {
            "apiVersion": ctx.info.api_version,
            "kind": ctx.info.kind,
            "metadata": metadata,
            **content,
        }
        ctx.info.strategy.decode(obj, ctx)
        return await create_object(self.core, ctx, obj)

    async def delete(
        self, obj: Object, policy: str | None = None, resource: GroupResource = CONFIG_MAPS
    ) -> None:
        ctx = self._context("delete", resource, obj["metadata"]["name"])
        ctx.namespace = obj["metadata"].get("namespace") or ""
        await delete_object(self.core, ctx, DeleteOptions(propagation=policy))

    async def edit(
        self,
        obj: Object,
        change: Callable[[Object], Any],
        resource: GroupResource = CONFIG_MAPS,
        subresource: str = "",
    ) -> None:
        ctx = self._context("update", resource, obj["metadata"]["name"], subresource)
        ctx.namespace = obj["metadata"].get("namespace") or ""

        async def transform(old: Object | None) -> Object:
            assert old is not None
            new = copy_object(old)
            change(new)
            ctx.info.strategy.default(new)
            return new

        await update_object(self.core, ctx, transform)

    def get(
        self, name: str, resource: GroupResource = CONFIG_MAPS, namespace: str = "default"
    ) -> Object | None:
        record = self.core.store.get(resource, namespace, name)
        return None if record is None else record.obj()

    def list(self, resource: GroupResource, namespace: str = "default") -> list[Object]:
        return [record.obj() for record in self.core.store.list(resource, namespace)]

    def names(self, resource: GroupResource, namespace: str = "default") -> set[str]:
        return {record.name for record in self.core.store.list(resource, namespace)}

    def owners(self, name: str) -> list[str]:
        obj = self.get(name)
        assert obj is not None
        return [owner["name"] for owner in obj["metadata"].get("ownerReferences") or ()]


def reference(owner: Object, **more: Any) -> Object:
    """Return an owner reference to ``owner``."""
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        **more,
    }


@asynccontextmanager
async def headless_plane(*controllers: str) -> AsyncIterator[HeadlessPlane]:
    """Run these controllers, and yield the plane."""
    api_server = assemble(
        admin_token="t",
        users={},
        audit_log=None,
        plugins=enabled_plugins(disable=["ServiceAccount"]),
    )
    await create_initial_objects(api_server)
    runner = create_runner(api_server.core, controllers, ca=b"PEM")
    api_server.core.clock.settlers.append(runner.settle)
    runner.start()
    try:
        yield HeadlessPlane(api_server.core)
    finally:
        await runner.stop()
