"""Informers of the kinds of components: created on first use of a kind and queried for existing objects.

The informers cache the objects with the AppWrapper's label, and only their metadata, and the status of kinds that
report with it whether they failed or completed. If a decision depends on the absence of an object, a live read confirms
the absence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final

import anyio

from cfo.api.appwrapper.kinds import JOB_SET, MPI_JOBS, PYTORCH_JOB, RAY_JOB, TRAIN_JOB, known_kind
from cfo.api.appwrapper.names import APPWRAPPER, APPWRAPPER_LABEL
from cfo.api.reading import elements, items, mapping, path, text
from cfo.controllers.appwrapper.components import Component, ComponentObject
from cfo.controllers.cached_fields import field_reader
from cfo.runtime import (
    GVK,
    JOB,
    POD,
    Client,
    Controller,
    EnqueueRequestForOwner,
    Entry,
    Informer,
    LabelSelector,
    Manager,
    NamespacedName,
    Object,
    controller_of,
    find_condition,
    is_deleting,
    on_update,
    uid_of,
)
from cfo.runtime.controller import Kind
from cfo.runtime.process import UnreadableObject

_MAX_FAILURE_LENGTH: Final = 200
_MAX_FINALIZER: Final = 80
_MAX_FINALIZERS: Final = 3

_COLLECTOR_FINALIZERS: Final = ("foregroundDeletion", "orphan")
"""The finalizers of the garbage collector, which each deletion in the foreground adds and removes."""
"""Characters of the reason, and of the message, with which a component's own controller says why it has failed."""

_COMPLETED: Final[Mapping[GVK, str]] = {
    JOB: "Complete",
    JOB_SET: "Completed",
    TRAIN_JOB: "Complete",
    **dict.fromkeys((PYTORCH_JOB, *MPI_JOBS), "Succeeded"),
}
"""The condition with which an object of a kind reports completion; ``Failed`` reports failure.

RayClusters and RayServices are not included: they can leave their state ``failed`` again.
"""
_REPORTING: Final = frozenset({RAY_JOB, *_COMPLETED})

_BEGUN: Final[Mapping[GVK, str]] = {
    JOB: "startTime",
    JOB_SET: "replicatedJobsStatus",
    TRAIN_JOB: "jobsStatus",
}
"""Kinds whose controllers retry failed pods, and the field of the status that shows that they do so."""

_status_of: Final[Callable[[Entry], dict[str, Any]]] = field_reader("status", kind=dict, default={})

_SYNC_TIMEOUT: Final = 2.0
"""Seconds that a reconcile waits for the first list of a kind; until then, objects are read individually."""

_LIVE_READ_INTERVAL: Final = 2.0
"""Seconds for which the answer of an individual read of an existing object is used."""


class ComponentInformers:
    """The informers of all kinds of components, which feed one controller with their events."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._manager = manager
        self._client = client
        self._controller: Controller | None = None
        self._informers: dict[GVK, Informer] = {}
        self._late: set[GVK] = set()
        self._live: dict[
            NamespacedName, dict[tuple[GVK, NamespacedName], tuple[float, ComponentObject | None]]
        ] = {}
        """By AppWrapper, the components that were read individually, and when."""

    def attach(self, controller: Controller) -> None:
        """Feed ``controller`` with the events of components whose informers are created from now on."""
        self._controller = controller

    async def synced(self, gvk: GVK) -> Informer | None:
        """Return the informer of a kind of components, created if necessary; ``None`` while it has not synced.

        Waits up to 2 s for the first sync of a kind, once. Raises :class:`UnknownKind` when the kind is not served.
        """
        await self._manager.mapper.resource(gvk)
        informer = self._informers.get(gvk)
        if informer is None:
            informer = self._create(gvk)
            self._informers[gvk] = informer
        if not informer.has_synced and gvk not in self._late:
            with anyio.move_on_after(_SYNC_TIMEOUT):
                await informer.wait_for_sync()
        if informer.has_synced:
            self._late.discard(gvk)
            return informer
        self._late.add(gvk)
        return None

    def _create(self, gvk: GVK) -> Informer:
        is_reporting = gvk in _REPORTING
        fields: tuple[str, ...] = ()
        if is_reporting:
            fields = ("status",)
        informer = self._manager.cache.informer(
            gvk,
            label_selector=APPWRAPPER_LABEL,
            metadata_only=gvk != POD and not is_reporting,
            fields=fields,
        )
        if self._controller is not None:
            changed = on_update(
                lambda old, new: _relevant_state(old, gvk) != _relevant_state(new, gvk)
            )
            owner = EnqueueRequestForOwner(APPWRAPPER)
            self._controller.watch(
                Kind(informer, owner, changed, mapper=self._manager.mapper, optional=True)
            )
        return informer

    def is_watched(self, component: Component, uid: str) -> bool:
        """Return whether an event will report the deletion of the component's object with this uid."""
        informer = self._informers.get(component.gvk)
        entry = informer.reader.entry(component.key) if informer is not None else None
        return entry is not None and entry.meta.uid == uid

    async def get(
        self,
        component: Component,
        owner: NamespacedName,
        owner_uid: str,
        *,
        confirm_absence: bool,
    ) -> ComponentObject | None:
        """Return the object of ``component``, reduced to the state that its owner needs; ``None`` if it does not exist.

        With ``confirm_absence`` an object that is not in its informer is read from the API server: once, if it does not
        exist, because only the operator creates it, and then an informer has it; otherwise at most every 2 s. Call
        :meth:`forget` before objects are created. Raises :class:`UnknownKind` when the kind is not served, and the
        errors of API requests.
        """
        if not component.gvk.kind or not component.key.name:
            return None
        informer = await self.synced(component.gvk)
        answers = self._live.setdefault(owner, {})
        at, known = answers.get((component.gvk, component.key), (-math.inf, None))
        if informer is not None:
            entry = informer.reader.entry(component.key)
            if entry is not None:
                return _from_entry(entry, owner_uid, component.gvk)
            # One exists that is too large for the cache, or that was read because it lacks the label.
            may_exist = known is not None or informer.reader.may_exist(component.key)
            if not confirm_absence and _holds_all(informer) and not may_exist:
                return None
        is_final = known is None and informer is not None and _holds_all(informer)
        now = self._manager.clock.monotonic()
        if at > -math.inf and (is_final or now - at < _LIVE_READ_INTERVAL):
            return known
        obj = await self._read(component)
        found = _from_object(obj, owner_uid, component.gvk) if obj is not None else None
        answers[(component.gvk, component.key)] = (now, found)
        return found

    async def _read(self, component: Component) -> Object | None:
        """Read the object of ``component`` from the API server, or only its metadata if nothing else is needed."""
        gvk = component.gvk
        try:
            if gvk not in _REPORTING:
                return await self._client.get_metadata(gvk, component.key)
            return await self._client.get(gvk, component.key, live=True)
        except ValueError:  # not a valid name, so no such object can exist
            return None
        except UnreadableObject:
            return await self._client.get_metadata(gvk, component.key)

    def forget(self, owner: NamespacedName) -> None:
        """Forget the objects that were read individually for ``owner``."""
        self._live.pop(owner, None)


def _holds_all(informer: Informer) -> bool:
    """Return whether the informer caches all components of its kind; the operator's own selector may exclude some."""
    return informer.selection.label_selector == LabelSelector.of(APPWRAPPER_LABEL)


def _relevant_state(entry: Entry, gvk: GVK) -> tuple[Any, ...]:
    """Return the state whose change requires a reconcile of the owner."""
    return (
        entry.meta.uid,
        entry.meta.is_deleting,
        entry.meta.controller,
        _result(gvk, _status_of(entry))[:2],  # that it retries matters only if a pod has failed
    )


def _result(gvk: GVK, status: object) -> tuple[bool, bool, bool]:
    """Return whether an object of kind ``gvk`` has failed, has completed, and retries, according to its status."""
    gvk = known_kind(gvk)
    known = mapping(status) if gvk in _REPORTING else {}
    if gvk == RAY_JOB:  # old versions of KubeRay complete the deployment of a job that failed
        deployment = known.get("jobDeploymentStatus")
        failed = deployment == "Failed" or (
            deployment == "Complete" and known.get("jobStatus") == "FAILED"
        )
        return failed, deployment == "Complete" and not failed, False
    conditions = [
        item.get("type") for item in items(known.get("conditions")) if item.get("status") == "True"
    ]
    failed = "Failed" in conditions
    completed = _COMPLETED.get(gvk) in conditions
    has_begun = gvk in _BEGUN and bool(known.get(_BEGUN[gvk]))
    return failed, completed, has_begun and not failed and not completed


def _failure(gvk: GVK, status: object) -> str:
    """Return why an object has failed, as its status says: reason and message, printable and limited."""
    known = mapping(status)
    if known_kind(gvk) != RAY_JOB:
        known = find_condition(items(known.get("conditions")), "Failed") or {}
    parts = [text(known.get(field), _MAX_FAILURE_LENGTH) for field in ("reason", "message")]
    return ": ".join(filter(None, parts))


def _object(
    uid: str,
    *,
    is_owned: bool,
    deleting: bool,
    finalizers: Iterable[object],
    gvk: GVK,
    status: object,
) -> ComponentObject:
    failed, completed, retries = _result(gvk, status)
    failure = _failure(gvk, status) if failed else ""
    others = (
        text(name, _MAX_FINALIZER) for name in finalizers if name not in _COLLECTOR_FINALIZERS
    )
    shown = tuple(islice(others, _MAX_FINALIZERS))
    return ComponentObject(uid, is_owned, deleting, failed, completed, retries, failure, shown)


def _from_entry(entry: Entry, owner_uid: str, gvk: GVK) -> ComponentObject:
    owner = entry.meta.controller
    is_owned = owner is not None and owner.uid == owner_uid
    return _object(
        entry.meta.uid,
        is_owned=is_owned,
        deleting=entry.meta.is_deleting,
        finalizers=entry.meta.finalizers,
        gvk=gvk,
        status=_status_of(entry),
    )


def _from_object(obj: Mapping[str, Any], owner_uid: str, gvk: GVK) -> ComponentObject:
    is_owned = (controller_of(obj) or {}).get("uid") == owner_uid
    return _object(
        uid_of(obj),
        is_owned=is_owned,
        deleting=is_deleting(obj),
        finalizers=elements(path(obj, "metadata", "finalizers")),
        gvk=gvk,
        status=obj.get("status"),
    )
