"""Objects that the cache leaves out, because of the budget of their namespace, for controllers that read entries.

Controllers that read whole objects use :meth:`Client.get <cfo.runtime.Client.get>`, which does the same.
"""

from __future__ import annotations

from cfo.runtime import Channel, Client, Entry, Informer, NamespacedName, Reader


async def stored_or_live(client: Client, informer: Informer, key: NamespacedName) -> Entry | None:
    """Return the object; ``None`` if it does not exist, or is not in the selection of ``informer``.

    It is read from the API server only if the informer does not have it and leaves out objects of its namespace.
    Raises the errors of :meth:`Client.get <cfo.runtime.Client.get>`.
    """
    entry = informer.reader.entry(key)
    if entry is not None or not informer.reader.may_exist(key):
        return entry
    obj = await client.get(informer.gvk, key, live=True)
    if obj is None:
        return None
    return informer.selected_entry(obj)


def known_keys(reader: Reader, namespace: str = "") -> list[NamespacedName]:
    """Return the objects of a namespace (empty: of all), also those that are left out and known by name.

    It needs no request, so it is for events that tenants can cause.
    """
    return [entry.key for entry in reader.entries(namespace)] + reader.left_out_keys(namespace)


def all_keys(informer: Informer, namespace: str = "") -> list[NamespacedName]:
    """Return the same for the controllers of ``informer``, which get the other objects as events, after a new list.

    The list is needed only if a namespace has very many objects that are left out.
    """
    if not informer.reader.has_all_left_out_keys(namespace):
        informer.report_left_out()
    return known_keys(informer.reader, namespace)


def enqueue_all(informer: Informer, channel: Channel) -> None:
    """Enqueue all objects of ``informer``, as :func:`all_keys` returns them."""
    channel.enqueue(all_keys(informer))
