"""The verbs of the API over objects."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from cfo.runtime.client.cache import ClientCache
from cfo.runtime.client.transport import Transport
from cfo.runtime.discovery import RESTMapper
from cfo.runtime.objects import GVK, NamespacedName, Object

__all__ = ["Client", "PatchType"]


class PatchType(StrEnum):
    """How a patch is written."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"


class Client:
    """Reads and writes objects."""

    def __init__(
        self, transport: Transport, mapper: RESTMapper, *, field_manager: str, cache: ClientCache | None = None
    ) -> None: ...

    def with_field_manager(self, field_manager: str) -> Client: ...

    async def get(self, gvk: GVK, key: NamespacedName, *, live: bool = False) -> Object | None: ...

    async def get_subresource(self, gvk: GVK, key: NamespacedName, subresource: str) -> Object | None: ...

    async def list(
        self,
        gvk: GVK,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        live: bool = False,
    ) -> list[Object]: ...

    async def create(
        self, obj: Object, *, subresource: str = "", key: NamespacedName | None = None, dry_run: bool = False
    ) -> Object: ...

    async def update(self, obj: Object, *, subresource: str = "", dry_run: bool = False) -> Object: ...

    async def patch(
        self,
        gvk: GVK,
        key: NamespacedName,
        body: Any,
        patch_type: PatchType = PatchType.MERGE,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Object: ...

    async def apply(
        self,
        obj: Object,
        *,
        owner: Object | None = None,
        subresource: str = "",
        force: bool = True,
        field_manager: str | None = None,
        dry_run: bool = False,
    ) -> Object: ...

    async def delete(
        self,
        gvk: GVK,
        key: NamespacedName,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation_policy: str | None = None,
        grace_period_seconds: int | None = None,
    ) -> bool: ...

    async def delete_collection(
        self, gvk: GVK, *, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> None: ...
