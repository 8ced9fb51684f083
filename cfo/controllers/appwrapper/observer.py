"""Observes the state of an AppWrapper's components, pods and nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
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
    _descendants: dict[str, set[str]] = msgspec.field(default_factory=dict)
    """By uid of an AppWrapper: owners of its pods that are known to descend from it."""

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
            self.components.forget(uid_of(wrapper))
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
        return await self._with_owned_pods(observation, pods)

    async def remember_owned_pods(self, observation: Observation) -> None:
        """Resolve the owners of the AppWrapper's pods, before a deletion breaks the chains of owners."""
        await self._owned_pods(observation, WRAPPERS.entries(self.pods, key_of(observation.wrapper)))

    def forget(self, wrapper: Object) -> None:
        """Forget the objects and pods of ``wrapper``, which no longer exist."""
        self.components.forget(uid_of(wrapper))
        self.forget_owned_pods(wrapper)

    def forget_owned_pods(self, wrapper: Object) -> None:
        """Forget the pods of ``wrapper``, because nothing is being deleted."""
        self._descendants.pop(uid_of(wrapper), None)

    def has_unwatched_objects(self, observation: Observation) -> bool:
        """Return whether no event will report the deletion of one of the components' objects."""
        return any(
            obj is not None and obj.owned and not self.components.is_watched(component, obj.uid)
            for component, obj in zip(observation.components, observation.objects, strict=True)
        )

    async def _with_owned_pods(self, observation: Observation, pods: list[Entry]) -> Observation:
        """Return ``observation`` with the ownership of its pods, if a forceful deletion depends on it."""
        deadline = force_deadline(observation)
        if not pods or deadline is None or observation.now < deadline:
            return observation
        owned = await self._owned_pods(observation, pods)
        return structs.replace(observation, pods=[replace(pod, owned=pod.uid in owned) for pod in observation.pods])

    async def _owned_pods(self, observation: Observation, pods: list[Entry]) -> set[str]:
        wrapper = observation.wrapper
        components = recorded_uids(wrapper) | {obj.uid for obj in observation.objects if obj is not None and obj.owned}
        component_pods = {pod.meta.uid for pod in pods if pod.meta.uid in components}
        known = self._descendants.setdefault(uid_of(wrapper), set())
        ancestors = {uid_of(wrapper), *components}
        return component_pods | {pod.meta.uid for pod in pods if await self._descends(pod, ancestors, known)}

    async def _descends(self, pod: Entry, ancestors: Collection[str], known: set[str]) -> bool:
        """Return whether a pod descends from one of the objects ``ancestors`` (uids), and remember its owners."""
        controller = pod.meta.controller
        if controller is None:
            return False
        visited: list[str] = []
        gvk = GVK.parse(controller.api_version, controller.kind)
        name, uid = controller.name, controller.uid
        for _ in range(_MAX_DEPTH):
            if uid in ancestors or uid in known:
                known.update(visited)
                return True
            visited.append(uid)
            owner = await self._controller_of(gvk, NamespacedName(pod.key.namespace, name), uid)
            if owner is None:
                return False
            gvk = GVK.parse(owner.get("apiVersion") or "", owner.get("kind") or "")
            name, uid = owner.get("name") or "", owner.get("uid") or ""
        return False

    async def _controller_of(self, gvk: GVK, key: NamespacedName, uid: str) -> dict[str, Any] | None:
        try:
            obj = await self.client.get(gvk, key)
        except (APIError, TransportError, UnknownKind, DiscoveryIncomplete, ValueError):
            return None  # an unresolvable owner is treated as foreign
        return controller_of(obj) if obj is not None and uid_of(obj) == uid else None


def _is_deployed(wrapper: Mapping[str, Any]) -> bool:
    """Return whether components may exist."""
    status = wrapper.get("status") or {}
    if not is_true(status.get("conditions"), RESOURCES_DEPLOYED):
        return False
    return is_deleting(wrapper) or status.get("phase") not in (Phase.EMPTY, Phase.SUSPENDED, Phase.RESUMING)
