"""Observes the state of an AppWrapper's components, pods and nodes."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import (
    Awaitable,
    Callable,
    Container,
    Iterable,
    Mapping,
    MutableMapping,
    Sequence,
)
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, TypeVar

import anyio
import msgspec
from msgspec import structs

from cfo.api.appwrapper.inference import INFERRED_KINDS
from cfo.api.appwrapper.kinds import known_kind
from cfo.api.appwrapper.names import DELETING_RESOURCES, RESOURCES_DEPLOYED, Phase
from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.config.appwrapper_settings import Settings
from cfo.controllers.appwrapper.active_pods import ActivePods, OwnPod
from cfo.controllers.appwrapper.admission import ValidationGate
from cfo.controllers.appwrapper.component_deletion import must_delete, own_pods_from
from cfo.controllers.appwrapper.component_informers import ComponentInformers
from cfo.controllers.appwrapper.components import (
    Component,
    ComponentObject,
    components_of,
    recorded_uids,
)
from cfo.controllers.appwrapper.decision import (
    Deletion,
    WrapperDecision,
    WrapperObservation,
)
from cfo.controllers.appwrapper.namespace_pods import listed_pod
from cfo.controllers.appwrapper.nodes import NodeHealth
from cfo.controllers.appwrapper.owners import (
    MAX_DEPTH,
    Owner,
    OwnerReads,
)
from cfo.controllers.appwrapper.pod_knowledge import PodKnowledge, knowledge_of_pods
from cfo.controllers.appwrapper.pods import (
    WRAPPERS,
    WrapperPod,
    pods_of,
)
from cfo.controllers.appwrapper.reservations import Reservations
from cfo.controllers.appwrapper.status import is_true
from cfo.controllers.appwrapper.unused_quota import QuotaUse, UnusedQuota, use_of_quota
from cfo.controllers.appwrapper.workload_decision import QueueState
from cfo.controllers.pod_lists import PodMeta
from cfo.runtime import (
    POD,
    Clock,
    Entry,
    Forbidden,
    NamespacedName,
    Object,
    Reader,
    UnknownKind,
    is_deleting,
    key_of,
    namespace_of,
    uid_of,
)

_CONCURRENT_READS: Final = 8
"""How many components of one AppWrapper are read from the API server at a time."""

_MAX_REMEMBERED: Final = 1000
"""How many former pods, and how many owners of these, are remembered for an AppWrapper."""

_KeyT = TypeVar("_KeyT")

PodReads = Callable[[str, Sequence[PodMeta]], Awaitable[Mapping[str, WrapperPod | None]]]
"""Reads pods of a namespace, such as :meth:`NamespacePods.read_pods`."""


class _KnownPods(msgspec.Struct):
    """The pods of the AppWrapper ``wrapper_uid`` and their owners.

    ``ancestors`` maps the uid of each pod to that of the component or AppWrapper from which it descends. ``owners``
    maps owners of pods to it; the value is empty if they lead to none. If components are being deleted, or must be,
    ``deletion_seen_at`` is when that was seen first, and ``forced_since`` has, by uid of a pod with a node, when its
    forced deletion was. ``others`` has, by uid, the objects that the AppWrapper controls, that were no components, and
    from which its pods descend. ``reads_owners_at`` is when owners are read again that could not be read,
    ``owners_unknown_since`` since when owners are not known, and ``unproven_since`` since when not enough is known to
    tell whether the AppWrapper is ready. All times are seconds of the monotonic clock.
    """

    wrapper_uid: str
    ancestors: dict[str, str] = {}
    owners: dict[Owner, str] = {}
    deletion_seen_at: float | None = None
    forced_since: dict[str, float] = {}
    others: dict[str, Deletion] = {}
    reads_owners_at: float | None = None
    owners_unknown_since: float | None = None
    unproven_since: float | None = None

    def by_uid(self) -> dict[str, str]:
        """Return the ancestors of pods and owners that have one, by uid."""
        found = {owner.uid: ancestor for owner, ancestor in self.owners.items() if ancestor}
        return found | self.ancestors

    def read_again_at(self, at: float) -> None:
        """Read the owners again at the time ``at``, or at an earlier one if another owner needs that."""
        known = self.reads_owners_at
        self.reads_owners_at = at if known is None else min(known, at)

    def add_other(self, other: Deletion) -> None:
        """Remember an object that the AppWrapper controls, up to a limit."""
        if len(self.others) < _MAX_REMEMBERED:
            self.others[other.uid] = other


class WrapperObserver(msgspec.Struct, frozen=True, eq=False):
    """Observes AppWrappers, and remembers the pods of AppWrappers whose components are being deleted.

    ``pods`` has the pods with an AppWrapper's label, and the indexes of :mod:`~cfo.controllers.appwrapper.pods`.
    ``gate`` determines whether an AppWrapper was validated. ``reservations`` keep what is known of the pods of an
    AppWrapper that was deleted before its Workload.
    """

    owners: OwnerReads
    clock: Clock
    config: AppWrapperConfiguration
    pods: Reader
    components: ComponentInformers
    nodes: NodeHealth
    gate: ValidationGate
    reservations: Reservations | None = None
    _ancestors: dict[NamespacedName, _KnownPods] = msgspec.field(default_factory=dict)
    _unused: dict[NamespacedName, UnusedQuota] = msgspec.field(default_factory=dict)

    async def observe(self, wrapper: Object, queue: QueueState) -> WrapperObservation:
        """Observe the current state of ``wrapper``, to which ``queue`` applies. Raises the errors of API requests."""
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
                            component,
                            key_of(wrapper),
                            uid_of(wrapper),
                            confirm_absence=confirm_absence,
                        )
                except UnknownKind:
                    unserved.add(component.index)
                except Forbidden:
                    # The operator may lack all permissions for the kind, and then its creation failed. An error here
                    # would keep the quota, and the other components, until an administrator grants them.
                    if component.is_created:
                        raise

            async with anyio.create_task_group() as tasks:
                for component in components:
                    if component.may_exist:
                        tasks.start_soon(read, component)
            pods = WRAPPERS.entries(self.pods, key_of(wrapper))
        elif _phase_of(wrapper) == Phase.RESUMING:
            self.components.forget(key_of(wrapper))
            pods = WRAPPERS.entries(self.pods, key_of(wrapper))
        else:
            self.forget(wrapper)
        known = self._known_before(wrapper)
        observation = WrapperObservation(
            wrapper=wrapper,
            components=components,
            objects=objects,
            pods=await pods_of(pods),
            settings=settings,
            now=self.clock.now(),
            monotonic=self.clock.monotonic(),
            unserved=frozenset(unserved),
            no_execute=self.nodes.no_execute(),
            is_queued=queue.is_queued,
            awaits_admission=queue.awaits_admission,
            workload=queue.workload,
            knowledge=knowledge_of_pods(is_cached=self.pods.is_complete(namespace_of(wrapper))),
            validation=None if is_deleting(wrapper) else await self.gate.validation_of(wrapper),
        )
        if known is not None:
            observation = structs.replace(
                observation,
                owners_unknown_since=_date_of(observation, known.owners_unknown_since),
                unproven_since=_date_of(observation, known.unproven_since),
            )
        observation = self._with_others(await self._with_ancestors(observation, pods))
        return self._with_unused_quota(observation)

    def _with_unused_quota(self, observation: WrapperObservation) -> WrapperObservation:
        """Return ``observation`` with the time until which quota is kept that no pod requests."""
        key = key_of(observation.wrapper)
        uid = uid_of(observation.wrapper)
        use = use_of_quota(observation)
        unused = self._unused.get(key)
        if unused is None or unused.wrapper_uid != uid:
            unused = UnusedQuota(uid)
        unused = unused.after(use, observation.monotonic)
        if unused == UnusedQuota(uid):
            self._unused.pop(key, None)
        else:
            self._unused[key] = unused
        unused_until = None
        if use is not QuotaUse.UNKNOWN:
            ends_at = unused.ends_at(observation.settings.unused_quota_limit)
            unused_until = _date_of(observation, ends_at)
        return structs.replace(observation, unused_until=unused_until)

    def _with_others(self, observation: WrapperObservation) -> WrapperObservation:
        """Return ``observation`` with the objects that the AppWrapper controls, as far as its pods led to them.

        Only those of kinds that create pods: users can create a pod with any owner, such as the Workload.
        """
        known = self._known_before(observation.wrapper)
        if known is None or not known.others:
            return observation
        components = _component_uids(observation)
        kinds = INFERRED_KINDS | {known_kind(component.gvk) for component in observation.components}
        others = [
            other
            for uid, other in known.others.items()
            if uid not in components and known_kind(other.gvk) in kinds
        ]
        return structs.replace(observation, others=others)

    def _known_before(self, wrapper: Object) -> _KnownPods | None:
        """Return what is known of the pods of ``wrapper``; ``None`` if nothing is."""
        known = self._ancestors.get(key_of(wrapper))
        return known if known is not None and known.wrapper_uid == uid_of(wrapper) else None

    def note_decision(self, observation: WrapperObservation, decision: WrapperDecision) -> None:
        """Remember since when not enough is known to tell whether an AppWrapper is ready."""
        if decision.is_unproven:
            known = self._known(observation.wrapper)
            if known.unproven_since is None:
                known.unproven_since = observation.monotonic
        elif decision.is_unproven is False and observation.unproven_since is not None:
            self._known(observation.wrapper).unproven_since = None

    def forget_other(self, wrapper: Object, other: Deletion) -> None:
        """Forget an object that was deleted."""
        self._known(wrapper).others.pop(other.uid, None)

    async def remember_owned_pods(self, observation: WrapperObservation) -> None:
        """Resolve the owners of the AppWrapper's pods, before a deletion breaks the chains of owners."""
        await self._ancestors_of(
            observation, WRAPPERS.entries(self.pods, key_of(observation.wrapper))
        )

    async def with_listed_pods(
        self, observation: WrapperObservation, listed: ActivePods, read_pods: PodReads
    ) -> WrapperObservation:
        """Return ``observation`` with the pods that descend from the AppWrapper and that it lacks.

        ``listed`` also has those that have lost the label, have that of another AppWrapper, or that the cache has no
        room for; they are read with ``read_pods``.
        """
        wrapper = observation.wrapper
        namespace, name = key_of(wrapper)
        known = self._known(wrapper)
        own = {uid: uid for uid in (uid_of(wrapper), *_component_uids(observation))}
        ancestors = known.by_uid() | own
        found = listed.own_pods(ancestors)
        _remember(known, found, namespace)
        pods = {pod.uid: pod for pod in observation.pods}
        absent = [each for each in found if each.pod.uid not in pods]
        read = await read_pods(namespace, [each.pod for each in absent])
        for each in absent:
            uid = each.pod.uid
            whole = read.get(uid)
            if whole is None and uid in read:
                continue  # it has been deleted meanwhile
            pods[uid] = listed_pod(
                namespace,
                each.pod,
                each.ancestor,
                has_succeeded=uid in listed.succeeded,
                whole=whole,
            )
        if not self.pods.is_complete(namespace):
            is_unknown = observation.reads_owners_at is not None or listed.has_unknown_owners(name)
            observation = self._with_known_owners(
                observation, is_listed=True, has_unknown_owners=is_unknown
            )
        return self._with_unused_quota(self._with_forced_since(observation, pods.values()))

    def forget(self, wrapper: Object) -> None:
        """Forget the objects and pods of ``wrapper``, which no longer exist."""
        self.components.forget(key_of(wrapper))
        self._ancestors.pop(key_of(wrapper), None)

    async def hand_over_pods(self, key: NamespacedName, wrapper_uid: str = "") -> None:
        """Forget the pods of an AppWrapper that no longer exists; its Workload keeps them while it exists.

        ``wrapper_uid`` is the uid of the AppWrapper that has the name now. Raises the errors of API requests.
        """
        if not wrapper_uid:
            self._unused.pop(key, None)
        known = self._ancestors.get(key)
        if known is None or known.wrapper_uid == wrapper_uid:
            return
        if self.reservations is not None:
            await self.reservations.keep_pods(key, known.wrapper_uid, known.by_uid())
        self._ancestors.pop(key, None)

    def _known(self, wrapper: Object) -> _KnownPods:
        """Return what is known of the pods of ``wrapper``, to be changed."""
        key = key_of(wrapper)
        known = self._ancestors.get(key)
        if known is None:
            known = _KnownPods(uid_of(wrapper))
            self._ancestors[key] = known
        return known

    def has_unwatched_objects(self, observation: WrapperObservation) -> bool:
        """Return whether no event will report the deletion of one of the components' objects."""
        return any(
            obj is not None and obj.owned and not self.components.is_watched(component, obj.uid)
            for component, obj in zip(observation.components, observation.objects, strict=True)
        )

    async def _with_ancestors(
        self, observation: WrapperObservation, pods: list[Entry]
    ) -> WrapperObservation:
        """Return ``observation`` with the ancestors of its pods, if a decision depends on them.

        A deletion does after some time, and so does whether a running AppWrapper has ended, whether it has more pods
        than admitted or uses its quota, and whether pods of one that has succeeded were created again: only its own
        pods count.
        """
        status = observation.status()
        if must_delete(observation.wrapper, status):
            known = self._known(observation.wrapper)
            if known.deletion_seen_at is None:
                known.deletion_seen_at = observation.monotonic
            seen_at = observation.date_of(known.deletion_seen_at)
            observation = structs.replace(observation, deletion_seen_at=seen_at)
        deadline = own_pods_from(observation, status)
        needs_owners = deadline is not None and observation.now >= deadline
        phase = status.phase
        if phase is Phase.SUCCEEDED:
            is_counted = any(pod.holds_resources for pod in observation.pods)
        else:
            is_counted = phase is Phase.RUNNING or observation.is_queued
        is_cached = observation.knowledge is PodKnowledge.CACHED
        if not pods or not (needs_owners or is_counted):
            return self._with_known_owners(observation) if is_cached else observation
        found = await self._ancestors_of(observation, pods)
        own = [replace(pod, ancestor=found.get(pod.uid, "")) for pod in observation.pods]
        reads_owners_at = _date_of(observation, self._known(observation.wrapper).reads_owners_at)
        observation = structs.replace(observation, reads_owners_at=reads_owners_at)
        if is_cached:
            observation = self._with_known_owners(
                observation, has_unknown_owners=reads_owners_at is not None
            )
        return self._with_forced_since(observation, own)

    def _with_known_owners(
        self,
        observation: WrapperObservation,
        *,
        is_listed: bool = False,
        has_unknown_owners: bool = False,
    ) -> WrapperObservation:
        """Return ``observation`` with what is known of its pods, which are cached or ``is_listed``.

        With a queue, owners that stay unknown for too long are those of others: users choose the owners of pods.
        """
        since: datetime | None = None
        if has_unknown_owners:
            known = self._known(observation.wrapper)
            if known.owners_unknown_since is None:
                known.owners_unknown_since = observation.monotonic
            since = observation.date_of(known.owners_unknown_since)
            limit = since + observation.settings.grace_period_ceiling
            has_unknown_owners = not observation.is_queued or observation.now < limit
        elif observation.owners_unknown_since is not None:
            self._known(observation.wrapper).owners_unknown_since = None
        knowledge = knowledge_of_pods(
            is_cached=not is_listed, is_listed=is_listed, has_unknown_owners=has_unknown_owners
        )
        return structs.replace(observation, knowledge=knowledge, owners_unknown_since=since)

    def _with_forced_since(
        self, observation: WrapperObservation, pods: Iterable[WrapperPod]
    ) -> WrapperObservation:
        """Return ``observation`` with ``pods``, and with the time since which they are being deleted by force."""
        known = self._known(observation.wrapper).forced_since
        marked: list[WrapperPod] = []
        for pod in pods:
            if observation.deletion_seen_at is None or not pod.forced or not pod.has_node:
                marked.append(pod)
                continue
            since = known.setdefault(pod.uid, observation.monotonic)
            marked.append(replace(pod, forced_since=observation.date_of(since)))
        return structs.replace(observation, pods=marked)

    async def _ancestors_of(
        self, observation: WrapperObservation, pods: list[Entry]
    ) -> dict[str, str]:
        """Return, by uid of a pod, the uid of the component or AppWrapper from which it descends."""
        wrapper = observation.wrapper
        components = _component_uids(observation)
        remembered = self._known(wrapper)
        remembered.reads_owners_at = None
        before = remembered.ancestors
        fresh: dict[Owner, str] = {}
        owners = ChainMap[Owner, str](fresh, remembered.owners)
        own = {uid: uid for uid in (uid_of(wrapper), *components)}
        found = {}
        for pod in pods:
            uid = pod.meta.uid
            if uid in components:
                ancestor = uid
            else:
                controller = pod.meta.controller
                ancestor = ""
                if controller is not None:
                    namespace = pod.key.namespace
                    ancestor = await self._ancestor_of(
                        Owner.of(controller), namespace, own, owners, remembered
                    )
                    if controller.uid == remembered.wrapper_uid:
                        remembered.add_other(Deletion(POD, pod.key, uid))
            if not ancestor and before.get(uid) in own:
                ancestor = before[uid]  # users can remove the controller of a running pod
            if ancestor:
                found[uid] = ancestor
        # Former pods and owners are kept, because pods may have lost their label and their controller; of others, none.
        remembered.ancestors = _last_of(before, own) | found
        remembered.owners = _last_of(remembered.owners, own) | fresh
        return found

    async def _ancestor_of(
        self,
        controller: Owner,
        namespace: str,
        own: Mapping[str, str],
        owners: MutableMapping[Owner, str],
        pods: _KnownPods,
    ) -> str:
        """Return which of the objects ``own`` (uids) a pod with this controller descends from; empty if none.

        Its owners are added to ``owners``, and read once: anyone can create pods with the label. One that the
        AppWrapper controls, and that is none of ``own``, is added to ``pods``.
        """
        owner = controller
        visited: list[Owner] = []
        ancestor = ""
        for _ in range(MAX_DEPTH):
            remembered = owners.get(owner)
            if owner.uid in own or remembered == "" or remembered in own:
                ancestor = own.get(owner.uid, remembered or "")
                break
            visited.append(owner)
            answer = await self.owners.read(namespace, owner)
            if answer.read_again_at is not None:
                pods.read_again_at(answer.read_again_at)
                return ""
            if answer.controller is None:
                break
            owner = answer.controller
        if visited and owner.uid == ancestor == pods.wrapper_uid:
            pods.add_other(_deletion_of(visited[-1], namespace))
        owners.update(dict.fromkeys([*visited, controller], ancestor))
        return ancestor


def _remember(known: _KnownPods, listed: Iterable[OwnPod], namespace: str) -> None:
    """Remember listed pods, and their owners, because users can remove labels and controllers."""
    ancestors = dict(known.ancestors)
    owners = dict(known.owners)
    for each in listed:
        ancestors[each.pod.uid] = each.ancestor
        for owner in each.owners:
            owners[owner] = each.ancestor
        if each.child is not None and each.ancestor == known.wrapper_uid:
            known.add_other(_deletion_of(each.child, namespace))
    known.ancestors = _last_of(ancestors)
    known.owners = _last_of(owners)


def _deletion_of(owner: Owner, namespace: str) -> Deletion:
    return Deletion(owner.gvk, NamespacedName(namespace, owner.name), owner.uid)


def _last_of(ancestors: Mapping[_KeyT, str], own: Container[str] | None = None) -> dict[_KeyT, str]:
    """Return as many of ``ancestors``, or of those in ``own``, as are remembered: the last ones."""
    kept = [(key, uid) for key, uid in ancestors.items() if own is None or uid in own]
    return dict(kept[-_MAX_REMEMBERED:])


def _date_of(observation: WrapperObservation, at: float | None) -> datetime | None:
    """Return the date of a time that is remembered, if it is."""
    return observation.date_of(at) if at is not None else None


def _component_uids(observation: WrapperObservation) -> set[str]:
    """Return the uids of the objects of components, including those that were deleted."""
    found = recorded_uids(observation.wrapper)
    for obj in observation.objects:
        if obj is not None and obj.owned:
            found.add(obj.uid)
    return found


def _is_deployed(wrapper: Mapping[str, Any]) -> bool:
    """Return whether components may exist."""
    status = wrapper.get("status") or {}
    if not is_true(status.get("conditions"), RESOURCES_DEPLOYED):
        return False
    return is_deleting(wrapper) or _phase_of(wrapper) not in (
        Phase.EMPTY,
        Phase.SUSPENDED,
        Phase.RESUMING,
    )


def _phase_of(wrapper: Mapping[str, Any]) -> str:
    return (wrapper.get("status") or {}).get("phase") or ""
