"""Deletes objects that their tenant has filled up to the 1.5 MiB that etcd accepts."""

from __future__ import annotations

from cfo.runtime import GVK, Client, NamespacedName, Propagation


async def delete_full_object(
    client: Client, gvk: GVK, key: NamespacedName, uid: str, *, grace_period_seconds: int | None
) -> None:
    """Delete an object to which nothing can be added: neither a deletionTimestamp nor a finalizer.

    It loses its finalizers, because one without them is deleted without a change. ``grace_period_seconds`` is 0 for a
    pod, and otherwise ``None``. Raises the errors of both requests, such as
    :class:`~cfo.runtime.client.errors.NotFound`.
    """
    await client.patch_metadata(gvk, key, {"finalizers": None}, uid=uid)
    await client.delete(
        gvk,
        key,
        uid=uid,
        propagation_policy=Propagation.BACKGROUND,
        grace_period_seconds=grace_period_seconds,
    )
