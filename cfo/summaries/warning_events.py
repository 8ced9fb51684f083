"""Finds the Warning Events about an object, and about what was created for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from cfo.runtime import POD, Cache, Entry, Informer, NamespacedName
from cfo.runtime.objects import CORE_EVENT
from cfo.summaries.kind_view import MAX_EVENTS, PODS_OF_DEPLOYMENT

_MAX_BYTES: Final = 16 << 10
"""Events with more bytes are not cached: anyone can create Events."""
_INDEX: Final = "overview-involved-object"
_CLUSTER_EVENTS: Final = "default"
"""The namespace of Events about cluster-scoped objects."""


class CreatedObject(NamedTuple):
    """Where an object is that was created for another one; ``uid`` is empty if it is not known."""

    namespace: str
    kind: str
    name: str
    uid: str = ""


class InvolvedObject(msgspec.Struct, rename="camel"):
    """The object that an Event is about, as its author states it."""

    uid: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def key(self) -> NamespacedName:
        """Namespace and name."""
        return NamespacedName(self.namespace, self.name)


class _EventHead(msgspec.Struct, rename="camel"):
    involved_object: InvolvedObject | None = None


_event_head = msgspec.json.Decoder(_EventHead)


def warning_events(cache: Cache) -> Informer:
    """Return an informer of Warning Events that finds them by their involved objects."""
    informer = cache.informer(CORE_EVENT, field_selector="type=Warning", max_bytes=_MAX_BYTES)
    return informer.add_index(_INDEX, _index_values)


def involved_object(entry: Entry) -> InvolvedObject | None:
    """Return the object that an Event is about; ``None`` if there is none in its own namespace.

    Anyone can copy the name and the uid of an object of another namespace into an Event.
    """
    try:
        involved = _event_head.decode(entry.raw).involved_object
    except (msgspec.DecodeError, RecursionError):
        return None
    if involved is None or entry.key.namespace != (involved.namespace or _CLUSTER_EVENTS):
        return None
    return involved


def created_objects(involved: InvolvedObject) -> list[CreatedObject]:
    """Return what an Event is about, in each form in which that is looked for."""
    namespace = involved.namespace
    kind = involved.kind
    name = involved.name
    found = [
        CreatedObject(namespace, kind, name, involved.uid),
        CreatedObject(namespace, kind, name),
    ]
    if kind == POD.kind:
        found.append(CreatedObject(namespace, PODS_OF_DEPLOYMENT, _deployment_of(name)))
    return found


def _deployment_of(pod: str) -> str:
    """Return the name of the Deployment of a pod: without the hash of its ReplicaSet, and its own suffix."""
    return pod.rsplit("-", 2)[0]


def about_object(events: Informer, key: NamespacedName, uid: str) -> list[Entry]:
    """Return the last Warning Events about the object ``key`` with this uid; none without a uid."""
    if not uid:
        return []
    return _last_events(events, _uid_value(key.namespace, uid))


def about_created(events: Informer, created: CreatedObject) -> list[Entry]:
    """Return the last Warning Events about an object that was created for another one.

    If its uid is not known, they are about the object of its name that the newest of them is about.
    """
    if created.uid:
        return _last_events(events, _uid_value(created.namespace, created.uid))
    value = _name_value(created.namespace, created.kind, created.name)
    entries = _last_events(events, value)
    uids = {entry.key: _involved_uid(entry) for entry in entries}
    newest = max(entries, key=_time_of, default=None)
    if newest is None:
        return []
    return [entry for entry in entries if uids[entry.key] == uids[newest.key]]


def _involved_uid(entry: Entry) -> str:
    involved = involved_object(entry)
    return involved.uid if involved is not None else ""


def _time_of(entry: Entry) -> str:
    """Return when an Event was created; RFC 3339 times in UTC are compared as they are."""
    return entry.meta.creation_timestamp or ""


def _last_events(events: Informer, value: str) -> list[Entry]:
    return events.reader.entries(index=(_INDEX, value))[-MAX_EVENTS:]


def _index_values(entry: Entry) -> Iterator[str]:
    involved = involved_object(entry)
    if involved is None:
        return
    if involved.uid:
        yield _uid_value(involved.namespace, involved.uid)
    if involved.kind and involved.name:
        yield _name_value(involved.namespace, involved.kind, involved.name)
    if involved.kind == POD.kind:
        yield _name_value(involved.namespace, PODS_OF_DEPLOYMENT, _deployment_of(involved.name))


def _uid_value(namespace: str, uid: str) -> str:
    return f"{namespace}/{uid}"


def _name_value(namespace: str, kind: str, name: str) -> str:
    return f"{namespace}/{kind}/{name}"
