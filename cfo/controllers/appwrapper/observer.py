"""Observes the state of an AppWrapper's components, pods and nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

import anyio
import msgspec
from msgspec import structs

from cfo.api.appwrapper.names import DELETING_RESOURCES, RESOURCES_DEPLOYED, Phase
from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.controllers.appwrapper.admission import ValidationGate
from cfo.controllers.appwrapper.component_informers import ComponentInformers
from cfo.controllers.appwrapper.components import Component, ComponentObject, components_of, recorded_uids
from cfo.controllers.appwrapper.decision import Observation, force_deadline
from cfo.controllers.appwrapper.nodes import NodeHealth
from cfo.controllers.appwrapper.pods import WRAPPERS, pods_of
from cfo.controllers.appwrapper.settings import Settings
from cfo.controllers.appwrapper.status import is_true
from cfo.runtime import (
    GVK,
    APIError,
    Client,
    Clock,
    DiscoveryIncomplete,
    Entry,
    NamespacedName,
    Object,
    Reader,
    TransportError,
    UnknownKind,
    controller_of,
    is_deleting,
    key_of,
    uid_of,
)

_CONCURRENT_READS: Final = 8
"""How many components of one AppWrapper are read from the API server at a time."""

_MAX_KNOWN: Final = 10_000
"""How many owners of an AppWrapper's pods are remembered."""

_MAX_DEPTH: Final = 8
"""The maximum number of owners between a pod and its AppWrapper."""


class Observer(msgspec.Struct, frozen=True, eq=False):
    """Observes AppWrappers, and remembers the pods of AppWrappers whose components are being deleted.

    ``pods`` has the pods with an AppWrapper's label, and the indexes of :mod:`~cfo.controllers.appwrapper.pods`.
    ``gate`` determines whether an AppWrapper was validated. ``awaits_admission`` returns whether an AppWrapper that is
    not suspended must still wait for its queue.
    """

    client: Client
    clock: Clock
    config: AppWrapperConfiguration
    pods: Reader
    components: ComponentInformers
    nodes: NodeHealth
    gate: ValidationGate
    awaits_admission: Callable[[Object], bool]
    _ancestors: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    """By uid of an AppWrapper: the owners of its pods, each with the component or AppWrapper from which it descends."""

    async def observe(self, wrapper: Object) -> Observation:
        """Observe the current state of ``wrapper``. Raises the errors of API requests."""
        components = components_of(wrapper)
        objects: list[ComponentObject | None] = [None] * len(components)
        unserved: set[int] = set()
        pods: list[Entry] = []
        settings = Settings.of(wrapper, self.config.fault_tolerance)
        if _is_deployed(wrapper):
            conditions = (wrapper.get("status") or {}).get("conditions")
            confirm_absence = not is_true(conditions, DELETING_RESOURCES)
            limiter = anyio.CapacityLimiter(_CONCURRENT_READS)

            async def read(component: Component) -> None:
                try:
                    async with limiter:
                        objects[component.index] = await self.components.get(
                            component, uid_of(wrapper), confirm_absence=confirm_absence
                        )
                except UnknownKind:
                    unserved.add(component.index)

            async with anyio.create_task_group() as tasks:
                for component in components:
                    if component.may_exist:
                        tasks.start_soon(read, component)
            pods = WRAPPERS.entries(self.pods, key_of(wrapper))
        else:
            self.forget(wrapper)
        observation = Observation(
            wrapper=wrapper,
            components=components,
            objects=objects,
            pods=await pods_of(pods),
            settings=settings,
            now=self.clock.now(),
            unserved=frozenset(unserved),
            no_execute=self.nodes.no_execute(),
            awaits_admission=self.awaits_admission(wrapper),
            validation=None if is_deleting(wrapper) else await self.gate.validation_of(wrapper),
        )
        return await self._with_ancestors(observation, pods)

    async def remember_owned_pods(self, observation: Observation) -> None:
        """Resolve the owners of the AppWrapper's pods, before a deletion breaks the chains of owners."""
        await self._ancestors_of(observation, WRAPPERS.entries(self.pods, key_of(observation.wrapper)))

    def forget(self, wrapper: Object) -> None:
        """Forget the objects and pods of ``wrapper``, which no longer exist."""
        self.components.forget(uid_of(wrapper))
        self._ancestors.pop(uid_of(wrapper), None)

    def has_unwatched_objects(self, observation: Observation) -> bool:
        """Return whether no event will report the deletion of one of the components' objects."""
        return any(
            obj is not None and obj.owned and not self.components.is_watched(component, obj.uid)
            for component, obj in zip(observation.components, observation.objects, strict=True)
        )

    async def _with_ancestors(self, observation: Observation, pods: list[Entry]) -> Observation:
        """Return ``observation`` with the ancestors of its pods, if a decision depends on them.

        A forceful deletion does, and a component that has completed while others run: its pods no longer count.
        """
        deadline = force_deadline(observation)
        forces = deadline is not None and observation.now >= deadline
        is_running = observation.status().phase is Phase.RUNNING
        has_completed = is_running and any(obj is not None and obj.completed for obj in observation.objects)
        if not pods or not (forces or has_completed):
            return observation
        found = await self._ancestors_of(observation, pods)
        return structs.replace(
            observation, pods=[replace(pod, ancestor=found.get(pod.uid, "")) for pod in observation.pods]
        )

    async def _ancestors_of(self, observation: Observation, pods: list[Entry]) -> dict[str, str]:
        """Return, by uid of a pod, the uid of the component or AppWrapper from which it descends."""
        wrapper = observation.wrapper
        components = recorded_uids(wrapper) | {obj.uid for obj in observation.objects if obj is not None and obj.owned}
        known = self._ancestors.setdefault(uid_of(wrapper), {})
        if len(known) > _MAX_KNOWN:
            known.clear()
        own = {uid: uid for uid in (uid_of(wrapper), *components)}
        found = {}
        for pod in pods:
            uid = pod.meta.uid
            if ancestor := uid if uid in components else await self._ancestor_of(pod, own, known):
                found[uid] = ancestor
        return found

    async def _ancestor_of(self, pod: Entry, own: Mapping[str, str], known: dict[str, str]) -> str:
        """Return which of the objects ``own`` (uids) a pod descends from, and remember its owners; empty if none."""
        controller = pod.meta.controller
        if controller is None:
            return ""
        visited: list[str] = []
        gvk = GVK.parse(controller.api_version, controller.kind)
        name, uid = controller.name, controller.uid
        ancestor = ""
        for _ in range(_MAX_DEPTH):
            if uid in own or uid in known:
                ancestor = own.get(uid) or known[uid]
                break
            visited.append(uid)
            try:
                obj = await self.client.get(gvk, NamespacedName(pod.key.namespace, name))
            except (APIError, TransportError, DiscoveryIncomplete) as error:
                if not isinstance(error, APIError) or error.code >= HTTPStatus.TOO_MANY_REQUESTS:
                    return ""  # only until the next attempt
                break
            except (UnknownKind, ValueError):
                break
            owner = controller_of(obj) if obj is not None and uid_of(obj) == uid else None
            if owner is None:
                break
            gvk = GVK.parse(owner.get("apiVersion") or "", owner.get("kind") or "")
            name, uid = owner.get("name") or "", owner.get("uid") or ""
        known.update(dict.fromkeys(visited, ancestor))  # anyone can create pods with the label: one read for each owner
        return ancestor


def _is_deployed(wrapper: Mapping[str, Any]) -> bool:
    """Return whether components may exist."""
    status = wrapper.get("status") or {}
    if not is_true(status.get("conditions"), RESOURCES_DEPLOYED):
        return False
    return is_deleting(wrapper) or status.get("phase") not in (Phase.EMPTY, Phase.SUSPENDED, Phase.RESUMING)
