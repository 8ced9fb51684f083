"""What a request is about: a kind and a key, and the resource and path that they are found under."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cfo.runtime.objects import GVK, NamespacedName

if TYPE_CHECKING:
    from cfo.runtime.discovery import Resource, RESTMapper  # it needs this package's transport

__all__ = ["Target", "cached_key", "collection", "single"]


class Target(NamedTuple):
    """An object, its subresource, or (without a name) a collection."""

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
        """The resource as errors name it."""
        name = str(self.resource.gvr)
        return f"{name}/{self.subresource}" if self.subresource else name


def cached_key(mapper: RESTMapper, gvk: GVK, key: NamespacedName) -> NamespacedName:
    """The key as the cache knows it: without a namespace when the kind is known to have none."""
    resource = mapper.cached(gvk)
    return key._replace(namespace="") if resource is not None and not resource.namespaced else key


async def collection(mapper: RESTMapper, gvk: GVK, namespace: str, *, across: bool = False) -> Target:
    """All objects of a kind in a namespace; ``across`` allows an empty one, which means every namespace.

    Raises :class:`ValueError` for a namespace that is missing, and as
    :meth:`~cfo.runtime.discovery.RESTMapper.resource` does.
    """
    resource = await mapper.resource(gvk)
    if not resource.namespaced:
        namespace = ""
    elif not namespace and not across:
        raise ValueError(f"{gvk}: namespace is missing: the kind is namespaced")
    return Target(gvk, resource, NamespacedName(namespace, ""))


async def single(mapper: RESTMapper, gvk: GVK, key: NamespacedName, subresource: str = "") -> Target:
    """One object; raises :class:`ValueError` also for a name that no object can have."""
    # An empty name would be the path of the whole collection: a DELETE of one object would become one of all.
    if not key.name or key.name in {".", ".."} or "/" in key.name or "%" in key.name:
        raise ValueError(f"{gvk}: name {key.name!r}: must not be empty, '.' or '..', nor hold '/' or '%'")
    target = await collection(mapper, gvk, key.namespace)
    return target._replace(key=target.key._replace(name=key.name), subresource=subresource)
