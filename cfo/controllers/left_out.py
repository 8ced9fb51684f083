"""Objects that the cache leaves out, because of the budget of their namespace, for controllers that read entries.

Controllers that read whole objects use :meth:`Client.get <cfo.runtime.Client.get>`, which does the same.
"""

from __future__ import annotations

from cfo.runtime import Channel, Client, Entry, Informer, NamespacedName


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


def enqueue_all(informer: Informer, channel: Channel) -> None:
    """Enqueue the objects that ``informer`` has; those that it leaves out follow as events, after a new list."""
    channel.enqueue([entry.key for entry in informer.reader.entries()])
    informer.report_left_out()
