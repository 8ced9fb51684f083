"""The object or collection that a request addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cfo.runtime.objects.unstructured import GVK, NamespacedName

if TYPE_CHECKING:
    from cfo.runtime.client.discovery import Resource, RESTMapper  # imports this package's transport

__all__ = ["RequestTarget", "cache_key", "resolve_collection", "resolve_object"]


class RequestTarget(NamedTuple):
    """An object, a subresource of an object, or (with an empty name) a collection."""

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
        """The name of the resource in errors and metrics: ``pods`` or ``pods/status``."""
        name = str(self.resource.gvr)
        return f"{name}/{self.subresource}" if self.subresource else name


def cache_key(mapper: RESTMapper, gvk: GVK, key: NamespacedName) -> NamespacedName:
    """Return the key under which the cache stores the object: without a namespace if the kind is cluster-scoped.

    Makes no request; a kind that discovery has not reported yet counts as namespaced.
    """
    resource = mapper.cached(gvk)
    return key._replace(namespace="") if resource is not None and not resource.namespaced else key


async def resolve_collection(
    mapper: RESTMapper, gvk: GVK, namespace: str, *, all_namespaces: bool = False
) -> RequestTarget:
    """Resolve all objects of a kind in a namespace.

    ``all_namespaces`` allows an empty namespace, which then means every namespace. Raises :class:`ValueError` for a
    missing namespace, and all exceptions of :meth:`~cfo.runtime.client.discovery.RESTMapper.resource`.
    """
    resource = await mapper.resource(gvk)
    if not resource.namespaced:
        namespace = ""
    elif not namespace and not all_namespaces:
        raise ValueError(f"{gvk}: namespace is missing: the kind is namespaced")
    return RequestTarget(gvk, resource, NamespacedName(namespace, ""))


async def resolve_object(mapper: RESTMapper, gvk: GVK, key: NamespacedName, subresource: str = "") -> RequestTarget:
    """Resolve one object; raises :class:`ValueError` also for a name that no object can have."""
    # An empty name would result in the collection's path: deleting one object would delete all of them.
    if not key.name or key.name in {".", ".."} or "/" in key.name or "%" in key.name:
        raise ValueError(f"{gvk}: name {key.name!r}: must not be empty, '.' or '..', and must not contain '/' or '%'")
    target = await resolve_collection(mapper, gvk, key.namespace)
    return target._replace(key=target.key._replace(name=key.name), subresource=subresource)
