"""What the API server serves: kinds, and the resources that they are addressed by."""

from __future__ import annotations

from dataclasses import dataclass

from cfo.runtime.client.transport import Transport
from cfo.runtime.objects import GVK, GVR

__all__ = ["DiscoveryIncomplete", "RESTMapper", "Resource"]


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
        """The URL path of the collection, an object or its subresource."""
        root = f"/apis/{self.gvk.group}/{self.gvk.version}" if self.gvk.group else f"/api/{self.gvk.version}"
        if namespace and self.namespaced:
            root += f"/namespaces/{namespace}"
        root += f"/{self.plural}"
        if name:
            root += f"/{name}"
        return f"{root}/{subresource}" if subresource else root


class RESTMapper:
    """Finds the resource of a kind, from the API server's discovery."""

    def __init__(self, transport: Transport) -> None: ...

    async def resource(self, gvk: GVK) -> Resource: ...

    def cached(self, gvk: GVK) -> Resource | None: ...

    async def resource_for(self, gvr: GVR) -> Resource: ...

    async def serves_group(self, group: str) -> bool: ...

    def invalidate(self) -> None: ...
