"""Reconciles InferenceStacks: observes what exists, renders what must exist, writes the difference, and reports.

A stack that leaves the label selector (its label is removed or names another major version) is not deleted: nothing of
it is changed. A stack that is being deleted is left to the garbage collector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

import orjson
import structlog
from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import checkpoint

from cfo.api.gateway import HTTP_ROUTE, route_problems
from cfo.api.inferencestack.created_resources import cluster_trigger_errors
from cfo.api.inferencestack.kinds import SCALED_OBJECT
from cfo.api.inferencestack.names import (
    APPLICATION_PREFIX,
    GATEWAY,
    HELM_FINALIZERS,
    PAUSE_ANNOTATION,
    is_retained,
    names_of,
)
from cfo.api.inferencestack.profiles import Profile, newest_profile, pinned_profile
from cfo.api.inferencestack.queue import queue_of
from cfo.api.inferencestack.validation.stack import validate
from cfo.controllers.inferencestack.children import StackInformers
from cfo.controllers.inferencestack.hosts import CLAIMANTS
from cfo.controllers.inferencestack.ownership import (
    StackObservation,
    application_names,
    observe,
    without_pods,
)
from cfo.controllers.inferencestack.pods import UNKNOWN_PODS, PodInformers, component_pods
from cfo.controllers.inferencestack.profile_choice import choose_profile, render_with
from cfo.controllers.inferencestack.rendering.stack import unserved_kinds
from cfo.controllers.inferencestack.status import (
    ComponentState,
    StackOutcome,
    component_state,
    stack_status,
)
from cfo.controllers.inferencestack.writes import Written, stack_children, written_of
from cfo.controllers.left_out import stored_or_live
from cfo.runtime import (
    DEPLOYMENT,
    GVK,
    READ,
    Client,
    Clock,
    EventRecorder,
    EventType,
    FieldErrors,
    Informer,
    Object,
    Reader,
    Request,
    Result,
    Rule,
    annotations_of,
    find_condition,
    gvk_of,
    has_finalizer,
    key_of,
    name_of,
    namespace_of,
    rfc3339,
    set_finalizer,
)
from cfo.runtime.client import (
    NAME_CONFLICT_RETRY_SECONDS,
    ObjectID,
    Outcome,
    apply_status,
    reconcile_children,
)
from cfo.version import __version__

T = TypeVar("T")

_log = structlog.get_logger("cfo.controllers.inferencestack")

_LARGE_BYTES: Final = 128 << 10
"""The estimated size of a stack's rendered objects above which the stack is validated and rendered in a thread."""

_APPLICATION_BYTES: Final = 4 << 10
"""The size of an application's objects, in addition to what the stack contains for it."""

_MAX_CREATED: Final = 50
"""The maximum number of objects that one reconcile creates; the next one continues."""

_MAX_DELETED: Final = 50
"""The maximum number of objects that one reconcile deletes: users can add objects that the stack controls."""

_NEXT_BATCH_SECONDS: Final = 0.05

_REPORTED: Final[Mapping[str, EventType]] = {
    "Ready": "Normal",
    "Degraded": "Warning",
    "Evicted": "Normal",
}
"""The conditions whose start is reported as an Event, and its type."""

_OWNED: Final = (*READ, "create", "delete", "patch")
"""The verbs for the objects of stacks."""


@dataclass(frozen=True, eq=False)
class InferenceStackReconciler:
    """Reconciles the stacks of one API group and one major version."""

    rules = (
        Rule("models.takeoff.co", "inferencestacks", ("get", "list", "patch", "watch")),
        Rule("models.takeoff.co", "inferencestacks/status", ("get", "patch")),
        Rule("models.takeoff.co", "inferencestacks/finalizers", ("update",)),
        Rule("doublewordai.co", "inferencestacks", ("get", "list", "patch", "watch")),
        Rule("doublewordai.co", "inferencestacks/status", ("get", "patch")),
        Rule("doublewordai.co", "inferencestacks/finalizers", ("update",)),
        Rule("", ("serviceaccounts", "configmaps", "services", "persistentvolumeclaims"), _OWNED),
        Rule("", "pods", READ),
        Rule("apps", "deployments", _OWNED),
        Rule("networking.k8s.io", ("ingresses", "networkpolicies"), _OWNED),
        Rule("policy", "poddisruptionbudgets", _OWNED),
        Rule("autoscaling", "horizontalpodautoscalers", _OWNED),
        Rule("keda.sh", "scaledobjects", _OWNED),
        Rule("gateway.networking.k8s.io", "httproutes", _OWNED),
        Rule("monitoring.coreos.com", "servicemonitors", _OWNED),
    )

    kind: GVK
    stacks: Informer
    pods: PodInformers
    children: StackInformers
    client: Client
    events: EventRecorder
    clock: Clock
    operator_version: str
    allow_cluster_triggers: bool
    _thread: CapacityLimiter = field(default_factory=partial(CapacityLimiter, 1), init=False)
    """One thread, because several would together take most of the time from the event loop."""

    async def reconcile(self, request: Request) -> Result:
        """Reconcile one stack. Raises the errors of writes that failed; lasting ones are in the status."""
        self.children.hosts.forget(
            self.kind, request
        )  # recorded again before the objects are written
        entry = await stored_or_live(self.client, self.stacks, request)
        if entry is None or entry.meta.is_deleting:
            self.pods.release(self.kind, request)
            if entry is not None:
                await self._remove_helm_finalizers(entry.object())
            return Result()
        stack = entry.object()
        # the template is rendered once for each application
        weight = (len(entry.raw) + _APPLICATION_BYTES) * (len(application_names(stack)) + 1)
        is_large = weight > _LARGE_BYTES
        profile = pinned_profile(stack) or newest_profile(self.operator_version)
        validation = await self._compute(partial(validate, stack, profile), in_thread=is_large)
        errors = list(validation.errors)
        if not (self.allow_cluster_triggers or validation.stack is None):
            errors += cluster_trigger_errors(
                validation.stack
            )  # the webhook may have been absent, or have allowed it
        if errors:
            await self._report_errors(stack, FieldErrors(errors))
            return Result()
        existing = await observe(self.client, self.children, stack)

        def is_ready(name: str) -> bool:
            return component_state(existing.deployments.get(name)).is_ready

        def render() -> tuple[list[Object], Profile]:
            current, target = choose_profile(stack, self.operator_version, existing.deployments)
            return render_with(
                stack, current, target, existing.facts, existing.deployments, is_ready
            )

        desired, profile = await self._compute(render, in_thread=is_large)
        paused = annotations_of(stack).get(PAUSE_ANNOTATION) == "true"
        written = Written() if paused else await self._write(stack, desired, existing)
        if written.is_limited:
            return Result(requeue_after=_NEXT_BATCH_SECONDS)
        if written.is_disturbed:
            written.raise_errors()  # the status stays until the retry
        pods = await self.pods.reader(self.kind, stack)
        outcome = self._outcome(stack, profile, existing.deployments, desired, pods)
        outcome = replace(
            outcome,
            failures=written.failures,
            failure_reason=written.failure_reason,
            paused=paused,
        )
        stored = await self._write_status(stack, outcome)
        written.raise_errors()
        if not paused and not written.failures:
            await self._remove_helm_finalizers(stored)
        retry_after = written.retry_after
        if (
            existing.has_uncached
        ):  # changes of an object that is too large for the cache cause no event
            retry_after = min(
                retry_after or NAME_CONFLICT_RETRY_SECONDS, NAME_CONFLICT_RETRY_SECONDS
            )
        return Result(requeue_after=retry_after)

    async def _write(
        self, stack: Object, desired: Sequence[Object], existing: StackObservation
    ) -> Written:
        """Write the objects of a stack whose hosts are free, and delete those that are no longer wanted."""
        conflicts = []
        free = []
        for obj in desired:
            conflict = ""
            if gvk_of(obj) in CLAIMANTS:
                conflict = await self.children.hosts.conflict(obj, stack)
            if conflict:
                conflicts.append(conflict)
            else:
                free.append(obj)
            await (
                checkpoint()
            )  # the events of the stack's objects are handled before they are written
        results = await reconcile_children(
            self.client,
            stack,
            stack_children(stack, free, existing.uncached),
            prune=self._unwanted(stack, desired),
            max_created=_MAX_CREATED,
            max_deleted=_MAX_DELETED,
            keep=without_pods,
        )
        for result in results:
            gvk = result.child.gvk
            if result.outcome is Outcome.UNSERVED:
                self.children.set_unserved(gvk)
            elif gvk == DEPLOYMENT and result.is_done and result.obj is not None:
                name = result.child.key.name
                existing.deployments.store(name, result.obj, orjson.dumps(result.obj))
        return written_of(results, conflicts)

    def _unwanted(self, stack: Object, desired: Iterable[Object]) -> Iterator[ObjectID]:
        """Yield the objects that the stack controls and that are not ``desired``, except retained ones."""
        wanted = {(gvk_of(obj), key_of(obj)) for obj in desired}
        for gvk, entry in list(self.children.of(stack)):
            # Many objects can wait for finalizers, so they are not decoded.
            if (gvk, entry.key) in wanted or entry.meta.is_deleting:
                continue
            known = {"kind": gvk.kind, "metadata": {"annotations": entry.annotations}}
            if not is_retained(known):
                yield gvk, entry.key

    def _outcome(
        self,
        stack: Object,
        profile: Profile,
        deployments: Mapping[str, Object],
        desired: list[Object],
        pods: Reader | None,
    ) -> StackOutcome:
        names = names_of(stack)
        suspended = bool((stack.get("spec") or {}).get("suspend"))

        def state(name: str, component: str) -> ComponentState:
            found = UNKNOWN_PODS
            if pods is not None:
                found = component_pods(pods, key_of(stack), component)
            return component_state(deployments.get(name), found, suspended=suspended)

        return StackOutcome(
            profile=profile,
            operator=self._operator,
            unserved=unserved_kinds(stack, profile, self.children.served),
            problems=dict(self._problems(desired)),
            gateway=state(names.gateway, GATEWAY),
            applications={
                name: state(names.application(name), f"{APPLICATION_PREFIX}{name}")
                for name in application_names(stack)
            },
            queue=queue_of(stack),
        )

    @property
    def _operator(self) -> dict[str, str]:
        return {"version": __version__, "major": self.operator_version}

    def _problems(self, desired: Iterable[Object]) -> Iterator[tuple[str, tuple[str, str]]]:
        """Yield the problems that autoscalers and routes report, by the type of the stack's condition."""
        for obj in desired:
            entry = self.children.get(obj) if gvk_of(obj) in (SCALED_OBJECT, HTTP_ROUTE) else None
            if entry is None:
                continue  # not written yet, or of another kind
            at = f"{gvk_of(obj).kind} {name_of(obj)}"
            if gvk_of(obj) == HTTP_ROUTE:
                for problem in islice(route_problems(entry.object()), 1):
                    yield "RoutesReady", (problem.reason, f"{at}: {problem.message}")
                continue
            ready = (
                find_condition((entry.object().get("status") or {}).get("conditions"), "Ready")
                or {}
            )
            if ready.get("status") == "False":
                yield (
                    "ScalingReady",
                    (str(ready.get("reason") or "NotReady"), f"{at}: {ready.get('message') or ''}"),
                )

    async def _compute(self, function: Callable[[], T], *, in_thread: bool) -> T:
        return await to_thread.run_sync(function, limiter=self._thread) if in_thread else function()

    async def _report_errors(self, stack: Object, errors: FieldErrors) -> None:
        messages = [str(error) for error in errors.errors]
        known = find_condition((stack.get("status") or {}).get("conditions"), "Ready") or {}
        is_known = known.get("reason") == "InvalidSpec" and known.get(
            "observedGeneration"
        ) == _generation(stack)
        if not is_known:
            self.events.event(stack, "Warning", "InvalidSpec", "; ".join(messages))
        await self._write_status(stack, StackOutcome(operator=self._operator, errors=messages))

    async def _write_status(self, stack: Object, outcome: StackOutcome) -> Object:
        """Write the status if it changed; return the stack as stored."""
        status = stack_status(stack, outcome, rfc3339(self.clock.now()))
        before: Mapping[str, Any] = stack.get("status") or {}
        self._record_transitions(stack, before, status)
        if "manifest" in (before.get("deployedRelease") or {}):
            # the original stored all rendered objects there, and its field manager still owns them
            patch = {"status": {"deployedRelease": {"manifest": None}}}
            await self.client.patch_object(stack, patch, subresource="status")
        return await apply_status(self.client, stack, status)

    def _record_transitions(
        self, stack: Object, before: Mapping[str, Any], status: Mapping[str, Any]
    ) -> None:
        """Record an Event when the stack becomes ready or degraded, or loses quota."""
        for kind, event_type in _REPORTED.items():
            new = find_condition(status["conditions"], kind) or {}
            old = find_condition(before.get("conditions"), kind) or {}
            if (
                new.get("status") == "True"
                and old.get("status") != "True"
                and new.get("reason") != "InvalidSpec"
            ):
                self.events.event(stack, event_type, kind, new.get("message") or kind)

    async def _remove_helm_finalizers(self, stack: Object) -> None:
        """Remove the finalizers of the original operator: what they wait for never happens without it."""
        present = [name for name in HELM_FINALIZERS if has_finalizer(stack, name)]
        if not present:
            return
        left: Object | None = stack
        for name in present:
            if left is not None:
                left = await set_finalizer(self.client, left, name, present=False)
        _log.info(
            "Removed finalizer of the Helm operator",
            namespace=namespace_of(stack),
            name=name_of(stack),
        )


def _generation(stack: Object) -> int:
    return int(stack["metadata"].get("generation") or 0)
