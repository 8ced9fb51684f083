"""The kinds of components: followed from when one first appears, and asked about what exists.

What is followed are the objects with the AppWrapper's label, and of them the metadata; whole objects only of kinds
whose status says that they failed or are done. An answer of "there is none" on which much depends is asked for live.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import anyio
import msgspec

from cfo.api.appwrapper import APPWRAPPER
from cfo.controllers.appwrapper.components import Component, Seen
from cfo.controllers.appwrapper.names import APPWRAPPER_LABEL
from cfo.runtime.cache.entry import Entry
from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.selectors import LabelSelector
from cfo.runtime.client.client import Client
from cfo.runtime.controller import Controller
from cfo.runtime.handler import EnqueueRequestForOwner
from cfo.runtime.kinds import POD
from cfo.runtime.manager import Manager
from cfo.runtime.objects import GVK, controller_of, find_condition, is_deleting, uid_of
from cfo.runtime.predicate import on_update
from cfo.runtime.source import Kind

__all__ = ["ComponentKinds"]

_ENDS: Final[Mapping[GVK, tuple[str, str]]] = {
    GVK("batch", "v1", "Job"): ("Failed", "Complete"),
    GVK("kubeflow.org", "v1", "PyTorchJob"): ("Failed", "Succeeded"),
}
"""The conditions by which an object of a kind says that it failed, or is done. (RayClusters and RayJobs are not here:
``failed`` is a state that they leave again.)"""

_SYNC_PATIENCE: Final = 2.0
"""Seconds that a reconcile waits for the first list of a kind; until it comes, objects are asked for one by one."""


class _Condition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct, gc=False):
    conditions: tuple[_Condition, ...] | None = None


class _Object(msgspec.Struct, gc=False):
    status: _Status | None = None


_decoder = msgspec.json.Decoder(_Object)


class ComponentKinds:
    """What ``controller`` hears of components, and what the API server and the informers know of them."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._manager = manager
        self._client = client
        self._controller: Controller | None = None
        self._informers: dict[GVK, Informer] = {}
        self._late: set[GVK] = set()

    def attach(self, controller: Controller) -> None:
        """Makes ``controller`` the one that hears of components."""
        self._controller = controller

    async def follow(self, gvk: GVK) -> Informer | None:
        """The informer of a kind of components, which is made if need be; ``None`` when it is not to be trusted (yet).

        Raises :class:`UnknownKind` when the kind is not served.
        """
        await self._manager.mapper.resource(gvk)
        informer = self._informers.get(gvk)
        if informer is None:
            informer = self._informers[gvk] = self._begin(gvk)
        if not informer.has_synced and gvk not in self._late:
            with anyio.move_on_after(_SYNC_PATIENCE):
                await informer.wait_for_sync()
        if informer.has_synced:
            self._late.discard(gvk)
            return informer
        self._late.add(gvk)
        return None

    def _begin(self, gvk: GVK) -> Informer:
        informer = self._manager.cache.informer(
            gvk, label_selector=APPWRAPPER_LABEL, metadata_only=gvk != POD and gvk not in _ENDS
        )
        if self._controller is not None:
            ends = _ENDS.get(gvk)
            changed = on_update(lambda old, new: _facts(old, ends) != _facts(new, ends))
            owner = EnqueueRequestForOwner(APPWRAPPER)
            self._controller.watch(Kind(informer, owner, changed, mapper=self._manager.mapper, optional=True))
        return informer

    def is_followed(self, component: Component, uid: str) -> bool:
        """Whether an event will tell when the object of this uid goes."""
        informer = self._informers.get(component.gvk)
        entry = informer.reader.entry(component.key) if informer is not None else None
        return entry is not None and entry.meta.uid == uid

    async def see(self, component: Component, owner_uid: str, *, surely: bool) -> Seen | None:
        """The object of ``component``, as far as it matters to its owner; ``None``: there is none.

        ``surely``: do not take an informer's word for its absence. Raises :class:`UnknownKind` when the kind is not
        served, and what requests raise.
        """
        if not component.gvk.kind or not component.key.name:
            return None
        informer = await self.follow(component.gvk)
        if informer is not None:
            entry = informer.reader.entry(component.key)
            if entry is not None:
                return _seen_entry(entry, owner_uid, _ENDS.get(component.gvk))
            if not surely and _holds_all(informer):
                return None
        try:
            obj = await self._client.get(component.gvk, component.key, live=True)
        except ValueError:  # no object can have such a name
            return None
        return _seen_object(obj, owner_uid, _ENDS.get(component.gvk)) if obj is not None else None


def _holds_all(informer: Informer) -> bool:
    """Whether the informer knows all components of its kind: the operator's own selector may leave some out."""
    return informer.selection.label_selector == LabelSelector.of(APPWRAPPER_LABEL)


def _facts(entry: Entry, ends: tuple[str, str] | None) -> tuple[Any, ...]:
    """What a change of makes an event worth a look."""
    return (
        entry.meta.uid,
        entry.meta.is_deleting,
        entry.meta.controller,
        _true_conditions(entry) & set(ends) if ends is not None else None,
    )


def _true_conditions(entry: Entry) -> set[str]:
    status = _decoder.decode(entry.raw).status
    return {item.type for item in (status.conditions if status is not None else None) or () if item.status == "True"}


def _seen_entry(entry: Entry, owner_uid: str, ends: tuple[str, str] | None) -> Seen:
    conditions = _true_conditions(entry) if ends is not None else set()
    meta = entry.meta
    return Seen(
        uid=meta.uid,
        ours=meta.controller is not None and meta.controller.uid == owner_uid,
        deleting=meta.is_deleting,
        failed=ends is not None and ends[0] in conditions,
        completed=ends is not None and ends[1] in conditions,
    )


def _seen_object(obj: Mapping[str, Any], owner_uid: str, ends: tuple[str, str] | None) -> Seen:
    conditions = (obj.get("status") or {}).get("conditions")

    def holds(kind: str) -> bool:
        return (find_condition(conditions, kind) or {}).get("status") == "True"

    return Seen(
        uid=uid_of(obj),
        ours=(controller_of(obj) or {}).get("uid") == owner_uid,
        deleting=is_deleting(obj),
        failed=ends is not None and holds(ends[0]),
        completed=ends is not None and holds(ends[1]),
    )
