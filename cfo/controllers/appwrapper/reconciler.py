"""Carries out what :mod:`.transition` decides: looks, asks it, writes.

One step at a time: the status is written at most once in a reconcile, and what it then says is where the next one
starts. Whatever else is written can be written twice without harm: an object that was created is found again by its
name and owner, and deletions name the uid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import structlog

from cfo.api.appwrapper import APPWRAPPER, Phase
from cfo.config import AppWrapperConfiguration
from cfo.controllers.appwrapper.component_informers import ComponentKinds
from cfo.controllers.appwrapper.components import Component, Seen, components_of, desired, recorded_uids
from cfo.controllers.appwrapper.decision import Decision, Deletion, LabelledPod, View
from cfo.controllers.appwrapper.deletion import force_deadline
from cfo.controllers.appwrapper.injection import InjectionError
from cfo.controllers.appwrapper.metrics import PhaseMetrics
from cfo.controllers.appwrapper.names import CONTROLLER_NAME, DELETING_RESOURCES, FINALIZER, RESOURCES_DEPLOYED
from cfo.controllers.appwrapper.nodes import NodeHealth
from cfo.controllers.appwrapper.pod_owners import Lineage
from cfo.controllers.appwrapper.pods import pod_of
from cfo.controllers.appwrapper.settings import Settings
from cfo.controllers.appwrapper.status import is_true
from cfo.controllers.appwrapper.transition import Creation, after_creation, decide
from cfo.runtime.cache.entry import Entry
from cfo.runtime.cache.informer import Informer
from cfo.runtime.client.client import Client, Propagation
from cfo.runtime.client.errors import AlreadyExists, APIError, BadRequest, Conflict, Invalid, UnknownKind
from cfo.runtime.clock import Clock
from cfo.runtime.discovery import DiscoveryIncomplete
from cfo.runtime.events import EventRecorder
from cfo.runtime.objects import (
    Object,
    controller_of,
    has_finalizer,
    is_deleting,
    key_of,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
)
from cfo.runtime.reconcile import CRUD, READ, Request, Result, Rule, TerminalError

__all__ = ["POD_INDEX", "AppWrapperReconciler", "is_managed_here", "pod_index"]

_log = structlog.get_logger("cfo.controllers.appwrapper")

POD_INDEX: Final = "appwrapper"
"""The index of pods by their AppWrapper; see :func:`pod_index`."""

_UNFOLLOWED_RETRY: Final = timedelta(seconds=2)
"""When to look again at an object whose end no watch tells of, since it lacks a label."""

_FATAL: Final = (Invalid, BadRequest)


def pod_index(namespace: str, wrapper: str) -> str:
    """The value under which :data:`POD_INDEX` has the pods of an AppWrapper."""
    return f"{namespace}/{wrapper}"


def is_managed_here(wrapper: Mapping[str, Any]) -> bool:
    """Whether ``spec.managedBy`` leaves the AppWrapper to this controller."""
    return ((wrapper.get("spec") or {}).get("managedBy") or CONTROLLER_NAME) == CONTROLLER_NAME


class AppWrapperReconciler:
    """Takes AppWrappers through their life.

    ``pods`` holds the pods with an AppWrapper's label, with the index :data:`POD_INDEX`. ``awaits_admission`` says of
    an AppWrapper that is not suspended whether it must wait all the same.
    """

    rules: Final = (
        Rule("workload.codeflare.dev", "appwrappers", ("get", "list", "patch", "update", "watch")),
        Rule("workload.codeflare.dev", "appwrappers/status", ("get", "patch", "update")),
        Rule("workload.codeflare.dev", "appwrappers/finalizers", ("update",)),
        Rule("", ("pods", "services"), CRUD),
        Rule("", "nodes", READ),
        Rule("apps", ("deployments", "statefulsets"), CRUD),
        Rule("apps", "replicasets", ("get",)),
        Rule("batch", "jobs", CRUD),
        Rule("jobset.x-k8s.io", "jobsets", CRUD),
        Rule("scheduling.sigs.k8s.io", "podgroups", CRUD),
        Rule("scheduling.x-k8s.io", "podgroups", CRUD),
        Rule("kubeflow.org", "pytorchjobs", CRUD),
        Rule("ray.io", ("rayclusters", "rayjobs"), CRUD),
    )

    def __init__(
        self,
        client: Client,
        events: EventRecorder,
        clock: Clock,
        config: AppWrapperConfiguration,
        *,
        kinds: ComponentKinds,
        pods: Informer,
        nodes: NodeHealth,
        metrics: PhaseMetrics,
        awaits_admission: Callable[[Object], bool] = lambda _: False,
    ) -> None:
        self._client = client
        self._events = events
        self._clock = clock
        self._config = config
        self._kinds = kinds
        self._pods = pods.reader
        self._nodes = nodes
        self._metrics = metrics
        self._awaits_admission = awaits_admission
        self._lineage = Lineage(client)

    async def reconcile(self, request: Request) -> Result:
        """Takes one step."""
        wrapper = await self._client.get(APPWRAPPER, request)
        if wrapper is None or not is_managed_here(wrapper):
            return Result()
        phase = (wrapper.get("status") or {}).get("phase") or ""
        if phase not in {known.value for known in Phase}:
            raise TerminalError(f"status.phase: {phase!r}: is no phase that this version knows")
        view = await self._look(wrapper)
        decision = decide(view)
        if decision.create:
            decision = after_creation(view, await self._create(view))
        await self._carry_out(view, decision)
        if decision.deadline is None:
            return Result()
        return Result(requeue_after=max((decision.deadline - self._clock.now()).total_seconds(), 0.001))

    # Looking.

    async def _look(self, wrapper: Object) -> View:
        components = components_of(wrapper)
        seen: list[Seen | None] = [None] * len(components)
        unserved: set[int] = set()
        pods: list[Entry] = []
        settings = Settings.of(wrapper, self._config.fault_tolerance)
        if _has_components(wrapper):
            conditions = (wrapper.get("status") or {}).get("conditions")
            surely = not is_true(conditions, DELETING_RESOURCES)
            for component in components:
                try:
                    seen[component.index] = await self._see(wrapper, component, surely=surely)
                except UnknownKind:
                    unserved.add(component.index)
            index = pod_index(namespace_of(wrapper), name_of(wrapper))
            pods = self._pods.entries(index=(POD_INDEX, index))
        view = View(
            wrapper=wrapper,
            components=components,
            seen=seen,
            pods=[LabelledPod(entry.key, entry.meta.uid, pod_of(entry)) for entry in pods],
            settings=settings,
            now=self._clock.now(),
            unserved=frozenset(unserved),
            no_execute=self._nodes.no_execute(),
            awaits_admission=self._awaits_admission(wrapper),
        )
        return await self._with_lineage(view, pods)

    async def _see(self, wrapper: Object, component: Component, *, surely: bool) -> Seen | None:
        return await self._kinds.see(component, uid_of(wrapper), surely=surely) if component.may_exist else None

    async def _with_lineage(self, view: View, pods: list[Entry]) -> View:
        """``view``, with what is known of whose its pods are, once that matters."""
        deadline = force_deadline(view)
        if not pods or deadline is None or view.now < deadline:
            return view
        ours = await self._descendants(view, pods)
        marked = [LabelledPod(pod.key, pod.uid, pod.pod, ours=pod.uid in ours) for pod in view.pods]
        return replace(view, pods=marked)

    async def _descendants(self, view: View, pods: list[Entry]) -> set[str]:
        root = uid_of(view.wrapper)
        relatives = recorded_uids(view.wrapper) | {seen.uid for seen in view.seen if seen is not None and seen.ours}
        ours = {pod.meta.uid for pod in pods if pod.meta.uid in relatives}  # a Pod may be a component
        return ours | await self._lineage.descendants(root, relatives, pods)

    # Creating.

    async def _create(self, view: View) -> list[Creation]:
        """Creates what is missing, in order, up to the first that is refused."""
        creations: list[Creation] = []
        for component in view.components:
            if component.deployed != "True":
                creations.append(await self._create_one(view.wrapper, component))
                if creations[-1].error:
                    break
        return creations

    async def _create_one(self, wrapper: Object, component: Component) -> Creation:
        try:
            obj = desired(wrapper, component, self._config)
            if not (await self._client.mapper.resource(component.gvk)).namespaced:
                problem = f"{component.label} is cluster-scoped, so it cannot belong to an AppWrapper"
                return Creation(component, error=problem, fatal=True)
            await self._kinds.follow(component.gvk)
            return Creation(component, uid=uid_of(await self._client.create(obj)))
        except AlreadyExists as error:
            return await self._claim(wrapper, component, error)
        except UnknownKind:
            gvk = component.gvk
            problem = f'no matches for kind "{gvk.kind}" in version "{gvk.api_version}"'
            return Creation(component, error=problem, fatal=True)
        except (InjectionError, ValueError) as error:
            return Creation(component, error=str(error), fatal=True)
        except APIError as error:
            return Creation(component, error=error.message, fatal=isinstance(error, _FATAL))
        except DiscoveryIncomplete as error:
            return Creation(component, error=str(error))

    async def _claim(self, wrapper: Object, component: Component, error: AlreadyExists) -> Creation:
        """The object that has the name already: ours from an earlier attempt, or somebody else's, which it stays."""
        there = await self._client.get(component.gvk, component.key, live=True)
        if there is None:
            return Creation(component, error=error.message)
        owner = controller_of(there) or {}
        if owner.get("uid") == uid_of(wrapper):
            if is_deleting(there):
                return Creation(component, error=f"resource {component.key.name} is being deleted")
            return Creation(component, uid=uid_of(there))
        # a predecessor's is about to be collected
        same = (owner.get("kind"), owner.get("name")) == (APPWRAPPER.kind, name_of(wrapper))
        problem = f"resource {component.key.name} exists, but is not controlled by appwrapper"
        return Creation(component, error=problem, fatal=not same)

    # Writing.

    async def _carry_out(self, view: View, decision: Decision) -> None:
        wrapper = view.wrapper
        if decision.add_finalizer:
            wrapper = await self._set_finalizer(wrapper, present=True)
        if decision.deletions:
            # before the deletion begins, for in its course the chain of owners breaks
            await self._remember(view)
        wrapper = await self._write_status(wrapper, view, decision)
        for notice in decision.notices:
            self._events.event(wrapper, notice.type, notice.reason, notice.message)
        if decision.status.is_true(DELETING_RESOURCES):
            self._look_for_unfollowed(view, decision)
        await self._delete(decision)
        if decision.remove_finalizer and has_finalizer(wrapper, FINALIZER):
            await self._set_finalizer(wrapper, present=False)
        if not decision.status.is_true(DELETING_RESOURCES):
            self._lineage.forget(uid_of(wrapper))

    async def _remember(self, view: View) -> None:
        index = pod_index(namespace_of(view.wrapper), name_of(view.wrapper))
        await self._descendants(view, self._pods.entries(index=(POD_INDEX, index)))

    async def _write_status(self, wrapper: Object, view: View, decision: Decision) -> Object:
        """Applies the status, if it is another one; returns the AppWrapper as it then is."""
        status, before = decision.status.as_object(), view.status()
        if status == before.as_object():
            return wrapper
        written = await self._client.apply(
            {
                "apiVersion": APPWRAPPER.api_version,
                "kind": APPWRAPPER.kind,
                "metadata": {
                    "namespace": namespace_of(wrapper),
                    "name": name_of(wrapper),
                    "uid": uid_of(wrapper),
                },
                "status": status,
            },
            subresource="status",
        )
        phase = decision.status.phase
        if phase is not before.phase:
            self._metrics.entered(namespace_of(wrapper), phase.value)
            _log.info("entered a phase", phase=phase.value, before=before.phase.value)
        return written

    def _look_for_unfollowed(self, view: View, decision: Decision) -> None:
        for component, seen in zip(view.components, view.seen, strict=True):
            if seen is not None and seen.ours and not self._kinds.is_followed(component, seen.uid):
                decision.look_again(view.now + _UNFOLLOWED_RETRY)

    async def _delete(self, decision: Decision) -> None:
        """Deletes all that is to go; what cannot be deleted stops none of the others."""
        failures: list[Exception] = []
        for deletion in decision.deletions:
            try:
                await self._delete_one(deletion)
            except (Conflict, UnknownKind):
                continue  # another object has the name, or there are none of the kind any more
            except Exception as error:  # noqa: BLE001 - raised below
                failures.append(error)
        if len(failures) == 1:
            raise failures[0]
        if failures:
            raise ExceptionGroup("some objects cannot be deleted", failures)

    async def _delete_one(self, deletion: Deletion) -> None:
        await self._client.delete(
            deletion.gvk,
            deletion.key,
            uid=deletion.uid,
            propagation_policy=Propagation.BACKGROUND,
            grace_period_seconds=0 if deletion.force else None,
        )

    async def _set_finalizer(self, wrapper: Object, *, present: bool) -> Object:
        finalizers = [item for item in wrapper["metadata"].get("finalizers") or () if item != FINALIZER]
        metadata = {
            "resourceVersion": resource_version_of(wrapper),
            "finalizers": [*finalizers, FINALIZER] if present else finalizers or None,
        }
        return await self._client.patch(APPWRAPPER, key_of(wrapper), {"metadata": metadata})


def _has_components(wrapper: Mapping[str, Any]) -> bool:
    """Whether components may exist, and what became of them matters."""
    status = wrapper.get("status") or {}
    if not is_true(status.get("conditions"), RESOURCES_DEPLOYED):
        return False
    return is_deleting(wrapper) or status.get("phase") not in (Phase.EMPTY, Phase.SUSPENDED, Phase.RESUMING)
