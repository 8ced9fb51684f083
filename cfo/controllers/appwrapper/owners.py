"""Reads the owners of pods by uid, from the cache or else from the API server."""

from __future__ import annotations

from cfo.runtime import GVK, Client, NamespacedName, Object, uid_of

MAX_DEPTH = 8
"""The maximum number of owners between a pod and its AppWrapper."""


async def read_owner(client: Client, gvk: GVK, key: NamespacedName, uid: str) -> Object | None:
    """Return the object with this uid, at least its metadata; ``None`` if it does not exist.

    Raises :class:`~cfo.runtime.client.errors.UnknownKind` if the kind is not served, :class:`ValueError` for a name
    that is not valid, and the errors of API requests.
    """
    cached = client.cached(gvk, key)
    if cached is not None and uid_of(cached.object) == uid:
        return cached.object
    # The cache may lag. The rest of an object can be of any size and depth.
    obj = await client.get_metadata(gvk, key)
    return obj if obj is not None and uid_of(obj) == uid else None
