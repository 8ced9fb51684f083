"""A model of a cluster with one AppWrapper in a queue: Kueue, the controllers of components, kubelets and nodes.

The operator is represented by its pure functions. A schedule is a list of actions with a parameter; each action is
possible in each state, so that any part of a schedule is a schedule. After each action the operator reconciles until
nothing changes, and :class:`QuotaWorld` checks:

* A RayCluster never has more pods than the queue was asked for; other components only for the time that an excess is
  tolerated.
* Whatever the phase is, pods without quota end within minutes, although they may take a day: those beyond the number
  that the queue was asked for, as many of which may be ending, and all after the quota is released.
* When quota is released, no pod holds resources, and no controller has a pod to create. What is created later is
  deleted at once.
* An AppWrapper is not reset because of a Job that its own controller retries.

:meth:`QuotaWorld.finish` lets everything end well, and checks that the AppWrapper is not stuck.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from cfo.api.appwrapper.names import FINALIZER, PODS_READY, QUOTA_RESERVED, UNHEALTHY, Phase
from cfo.api.appwrapper.podsets import replicas_of
from cfo.api.appwrapper.quota import pods_with_quota
from cfo.config.appwrapper_settings import FORCEFUL_DELETION, Settings
from cfo.controllers.appwrapper.components import ComponentObject, components_of
from cfo.controllers.appwrapper.creation import Creation, after_creation
from cfo.controllers.appwrapper.decision import Deletion, WrapperObservation
from cfo.controllers.appwrapper.pods import Termination, WrapperPod
from cfo.controllers.appwrapper.transition import decide
from cfo.controllers.appwrapper.workload import completion, has_queue
from cfo.runtime import rfc3339
from cfo.runtime.objects.unstructured import NamespacedName, Object, find_condition
from test.support.observations import CONFIG, NOW, UID

POD_TEMPLATE: Final[Object] = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
TOLERATED: Final = timedelta(minutes=1)
FORCED: Final = timedelta(minutes=4)
"""A minute until a reset, another one until pods are deleted by force, and two because :meth:`advance` passes both."""

MAX_BACKOFF_SECONDS: Final = 600
BACKOFF_LIMIT: Final = 5
RAY_MAXIMUM: Final = 4

TEMPLATES: Final[Sequence[Object]] = (
    {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {"parallelism": 2, "completions": 3, "template": POD_TEMPLATE},
    },
    {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "spec": {
            "mpiReplicaSpecs": {
                "Launcher": {"template": POD_TEMPLATE},
                "Worker": {"replicas": 2, "template": POD_TEMPLATE},
            }
        },
    },
    {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "spec": {
            "enableInTreeAutoscaling": True,
            "headGroupSpec": {"template": POD_TEMPLATE},
            "workerGroupSpecs": [
                {
                    "replicas": 1,
                    "minReplicas": 0,
                    "maxReplicas": RAY_MAXIMUM,
                    "template": POD_TEMPLATE,
                }
            ],
        },
    },
    {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {"replicas": 2, "template": POD_TEMPLATE},
    },
    {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {"replicas": 0, "template": POD_TEMPLATE},
    },
)
"""The kinds of components, by the number in a schedule."""

SERVICES: Final = ("RayCluster", "Deployment")


class PropertyViolated(AssertionError):
    """A schedule leads to a state that must not exist; the message describes it."""


@dataclass
class WorldPod:
    """A pod. ``role`` distinguishes the launcher of an MPIJob. ``is_stuck``: its node is dead."""

    uid: str
    owner: str
    role: str = ""
    phase: str = "Pending"
    deleted_at: datetime | None = None
    ended_at: datetime | None = None
    is_stuck: bool = False

    @property
    def holds_resources(self) -> bool:
        """Whether the pod uses resources of a node, or waits for them."""
        return self.phase in ("Pending", "Running")


@dataclass
class WorldObject:
    """The object of a component, as its controller sees it. ``scale``: its number of pods, if that can change."""

    uid: str
    kind: str
    index: int
    scale: int = 0
    failures: int = 0
    result: str = ""
    is_deleting: bool = False
    retry_at: datetime | None = None


@dataclass
class QuotaWorld:
    """The state of the model. ``kinds`` are the indexes of its components in :data:`TEMPLATES`."""

    kinds: Sequence[int]
    now: datetime = NOW
    objects: dict[int, WorldObject] = field(default_factory=dict)
    pods: dict[str, WorldPod] = field(default_factory=dict)
    is_reserved: bool = False
    deadline: datetime | None = None
    excess_since: datetime | None = None
    unadmitted_since: datetime | None = None
    _numbers: int = 0

    def __post_init__(self) -> None:
        components: list[Object] = []
        for number, kind in enumerate(self.kinds):
            template = copy.deepcopy(TEMPLATES[kind])
            template["metadata"] = {"name": f"c{number}"}
            components.append({"template": template})
        self.admitted = [_asked_for(component) for component in components]
        self.wrapper: Object = {
            "apiVersion": "workload.codeflare.dev/v1beta2",
            "kind": "AppWrapper",
            "metadata": {
                "namespace": "ns",
                "name": "w",
                "uid": UID,
                "finalizers": [FINALIZER],
                "labels": {"kueue.x-k8s.io/queue-name": "q"},
                "annotations": {FORCEFUL_DELETION: "24h"},
            },
            "spec": {"suspend": True, "components": components},
        }
        self.reconcile()

    # --- Actions ---

    def act(self, action: int, parameter: int) -> None:
        """Perform an action, and let the operator react."""
        actions = (
            self.admit,
            self.preempt,
            self.run_controllers,
            self.start_pods,
            self.succeed_pod,
            self.fail_pod,
            self.scale,
            self.break_node,
            self.terminate_pods,
            self.advance,
        )
        actions[action % len(actions)](parameter)
        self._check_unadmitted()
        self.reconcile()

    def admit(self, _: int) -> None:
        """Let Kueue admit the AppWrapper."""
        if self.phase in ("", "Suspended") and not self.is_reserved:
            self.is_reserved = True
            self.wrapper["spec"]["suspend"] = False

    def preempt(self, _: int) -> None:
        """Let Kueue evict the AppWrapper; it keeps the quota until the AppWrapper reports its release."""
        if self.is_reserved:
            self.wrapper["spec"]["suspend"] = True

    def start_pods(self, _: int) -> None:
        """Let kubelets start all pods."""
        for pod in self.pods.values():
            if pod.phase == "Pending" and not pod.is_stuck:
                pod.phase = "Running"

    def succeed_pod(self, parameter: int) -> None:
        """Let a running pod succeed."""
        pod = self._pod(parameter, "Running")
        if pod is not None and pod.role != "worker":
            self._end(pod, "Succeeded")

    def fail_pod(self, parameter: int) -> None:
        """Let a running pod fail, or all of them."""
        pod = self._pod(parameter, "Running")
        while pod is not None:
            self._end(pod, "Failed")
            pod = self._pod(parameter, "Running") if parameter % 2 else None

    def scale(self, parameter: int) -> None:
        """Let an autoscaler or a user change the number of pods: Ray's autoscaler within its limits, others freely."""
        scalable = [obj for obj in self.objects.values() if obj.kind in SERVICES]
        if scalable:
            obj = scalable[parameter % len(scalable)]
            limit = RAY_MAXIMUM if obj.kind == "RayCluster" else 8
            obj.scale = parameter // len(scalable) % (limit + 1)

    def break_node(self, parameter: int) -> None:
        """Let the node of a running pod die; the pod is deleted, but does not terminate."""
        pod = self._pod(parameter, "Running")
        if pod is not None:
            pod.is_stuck = True
            pod.deleted_at = pod.deleted_at or self.now

    def terminate_pods(self, _: int) -> None:
        """Let kubelets confirm deletions, and the garbage collector delete what the deleted objects own."""
        for obj in list(self.objects.values()):
            if obj.is_deleting:
                self._collect(obj)
        for pod in list(self.pods.values()):
            if pod.deleted_at is not None and not (pod.is_stuck and pod.holds_resources):
                del self.pods[pod.uid]
        for index, obj in list(self.objects.items()):
            if obj.is_deleting and not self._pods_of(obj):
                del self.objects[index]

    def advance(self, parameter: int) -> None:
        """Let time pass: up to a minute, or until the operator or a controller acts by itself."""
        if parameter % 3 == 0:
            self.now = self._next_time()
        else:
            self.now += timedelta(seconds=parameter % 60)

    def _next_time(self) -> datetime:
        retries = [obj.retry_at for obj in self.objects.values()]
        times = [at for at in (self.deadline, *retries) if at is not None and at > self.now]
        return min(times, default=self.now + timedelta(seconds=1))

    # --- Controllers of components ---

    def run_controllers(self, parameter: int) -> None:
        """Let the controller of each component do its next step, and perhaps let kubelets start its pods."""
        for obj in list(self.objects.values()):
            if not obj.is_deleting:
                self._run_controller(obj)
        if parameter % 2:
            self.start_pods(parameter)

    def _run_controller(self, obj: WorldObject) -> None:
        ended = [pod for pod in self._pods_of(obj) if pod.ended_at is not None]
        if obj.kind in SERVICES:
            for pod in ended:
                del self.pods[pod.uid]  # such a controller replaces each pod that ended
            active = self._active(obj)
            for pod in active[obj.scale + _heads(obj) :]:
                pod.deleted_at = self.now
        elif not obj.result:
            self._count(obj, ended)
        for role in self._missing(obj):
            self._numbers += 1
            uid = f"pod-{self._numbers}"
            self.pods[uid] = WorldPod(uid, obj.uid, role)

    def _count(self, obj: WorldObject, ended: Sequence[WorldPod]) -> None:
        """Let a Job or MPIJob count its ended pods, and report its result once none of them terminates."""
        failures = len([pod for pod in ended if pod.phase == "Failed" and pod.role != "worker"])
        succeeded = self._succeeded(obj)
        if failures > obj.failures:
            delay = min(10 * 2 ** (failures - 1), MAX_BACKOFF_SECONDS)
            obj.retry_at = self.now + timedelta(seconds=delay)
        obj.failures = failures
        needed = 3 if obj.kind == "Job" else 1
        is_over = succeeded >= needed or failures > BACKOFF_LIMIT
        if not is_over:
            return
        if obj.kind == "Job":
            active = [pod for pod in self._pods_of(obj) if pod.holds_resources]
            for pod in active:
                pod.deleted_at = pod.deleted_at or self.now
            if active:
                return
        obj.result = "Complete" if succeeded >= needed else "Failed"

    def _succeeded(self, obj: WorldObject) -> int:
        return len([pod for pod in self._pods_of(obj) if pod.phase == "Succeeded"])

    def _missing(self, obj: WorldObject) -> list[str]:
        """Return the roles of the pods that the controller of ``obj`` would create now."""
        if obj.is_deleting or obj.result:
            return []
        active = self._active(obj)
        if obj.kind in SERVICES:
            return [""] * (obj.scale + _heads(obj) - len(active))
        if obj.failures > BACKOFF_LIMIT:
            return []
        is_waiting = obj.retry_at is not None and self.now < obj.retry_at
        if obj.kind == "Job":
            wanted = min(2, 3 - self._succeeded(obj))
            return [] if is_waiting else [""] * (wanted - len(active))
        workers = [pod for pod in self._pods_of(obj) if pod.role == "worker"]
        missing = ["worker"] * (2 - len(workers))
        has_launcher = any(pod.role == "launcher" for pod in active)
        if not has_launcher and not is_waiting and not self._succeeded(obj):
            missing.append("launcher")
        return missing

    def _pods_of(self, obj: WorldObject) -> list[WorldPod]:
        return [pod for pod in self.pods.values() if pod.owner == obj.uid]

    def _active(self, obj: WorldObject) -> list[WorldPod]:
        return [pod for pod in self._pods_of(obj) if pod.holds_resources and pod.deleted_at is None]

    def _collect(self, obj: WorldObject) -> None:
        for pod in self._pods_of(obj):
            pod.deleted_at = pod.deleted_at or self.now

    def _pod(self, parameter: int, phase: str) -> WorldPod | None:
        found = [pod for pod in self.pods.values() if pod.phase == phase and not pod.is_stuck]
        return found[parameter % len(found)] if found else None

    def _end(self, pod: WorldPod, phase: str) -> None:
        pod.phase = phase
        pod.ended_at = self.now

    # --- The operator ---

    @property
    def phase(self) -> str:
        """The phase of the AppWrapper."""
        return str((self.wrapper.get("status") or {}).get("phase") or "")

    def condition(self, kind: str) -> dict[str, Any]:
        """Return a condition of the AppWrapper; empty if it does not exist."""
        status = self.wrapper.get("status") or {}
        return dict(find_condition(status.get("conditions"), kind) or {})

    def observation(self) -> WrapperObservation:
        """Return what the operator observes."""
        components = components_of(self.wrapper)
        objects: list[ComponentObject | None] = []
        for component in components:
            obj = self.objects.get(component.index)
            objects.append(None if obj is None else _observed(obj))
        return WrapperObservation(
            wrapper=self.wrapper,
            components=components,
            objects=objects,
            pods=[_observed_pod(pod) for pod in self.pods.values()],
            settings=Settings.of(self.wrapper, CONFIG.fault_tolerance),
            now=self.now,
            is_queued=has_queue(self.wrapper),
        )

    def reconcile(self) -> None:
        """Let the operator take steps until nothing changes, and check the state after each of them."""
        for _ in range(30):
            before = self.phase
            observation = self.observation()
            decision = decide(observation)
            if decision.create:
                creations: list[Creation] = []
                for component in observation.components:
                    if component.deployed != "True":
                        creations.append(Creation(component, uid=self._create(component.index)))
                decision = after_creation(observation, creations)
            status = decision.status.as_object()
            is_same = status == (self.wrapper.get("status") or {})
            self.wrapper["status"] = status
            self._check_reset(before)
            for deletion in decision.deletions:
                self._delete(deletion)
            self.deadline = decision.deadline
            self._release_quota()
            if is_same and not decision.deletions:
                break
        else:
            raise PropertyViolated("the operator does not come to rest")
        self._check()

    def _create(self, index: int) -> str:
        if index not in self.objects:
            self._numbers += 1
            kind = TEMPLATES[self.kinds[index]]["kind"]
            scale = self._initial_scale(index)
            self.objects[index] = WorldObject(f"object-{self._numbers}", kind, index, scale)
        return self.objects[index].uid

    def _initial_scale(self, index: int) -> int:
        template = TEMPLATES[self.kinds[index]]
        if template["kind"] == "RayCluster":
            return 1
        return int(template["spec"].get("replicas", 0))

    def _delete(self, deletion: Deletion) -> None:
        if deletion.force:
            self.pods.pop(deletion.uid, None)
        elif deletion.uid in self.pods:
            pod = self.pods[deletion.uid]
            pod.deleted_at = pod.deleted_at or self.now
        for obj in self.objects.values():
            if obj.uid == deletion.uid:
                obj.is_deleting = True

    def _release_quota(self) -> None:
        """Let Kueue release the quota, as its integration of AppWrappers does."""
        is_suspended = self.wrapper["spec"]["suspend"]
        has_stopped = is_suspended and self.condition(QUOTA_RESERVED).get("status") != "True"
        if not self.is_reserved or not (has_stopped or completion(self.wrapper)):
            return
        self.is_reserved = False
        holding = [pod.uid for pod in self.pods.values() if pod.holds_resources]
        if holding:
            raise PropertyViolated(f"quota is released while {holding} hold resources")
        for obj in self.objects.values():
            if self._missing(obj):
                raise PropertyViolated(f"quota is released while {obj.kind} creates pods")

    # --- Properties ---

    def _check_reset(self, before: str) -> None:
        """Check that no Job that is retried by its own controller causes a reset."""
        if before != Phase.RUNNING or self.phase not in (Phase.RESETTING, Phase.FAILED):
            return
        reason = self.condition(UNHEALTHY).get("reason")
        failed = [pod for pod in self.pods.values() if pod.phase == "Failed"]
        retried = {obj.uid for obj in self.objects.values() if obj.kind == "Job" and not obj.result}
        if reason == "FoundFailedPods" and all(pod.owner in retried for pod in failed):
            raise PropertyViolated("reset while the controllers of all failed pods retry")
        if reason != "InsufficientPodsReady":
            return
        is_running = all(
            pod.phase == "Running" for pod in self.pods.values() if pod.holds_resources
        )
        last = max((pod.ended_at for pod in failed if pod.ended_at is not None), default=NOW)
        is_recent = self.now - last < timedelta(seconds=MAX_BACKOFF_SECONDS)
        waiting = [obj.uid for obj in self.objects.values() if self._waits_for_retry(obj)]
        incomplete = [obj.uid for obj in self.objects.values() if self._missing(obj)]
        if waiting and is_recent and is_running and not incomplete:
            raise PropertyViolated("reset while a Job waits for its next retry")

    def _waits_for_retry(self, obj: WorldObject) -> bool:
        return obj.kind == "Job" and obj.retry_at is not None and self.now < obj.retry_at

    def _check(self) -> None:
        self._check_unadmitted()
        if not self.is_reserved:
            self._check_released()
            return
        has_excess = False
        for obj in self.objects.values():
            number = len(self._active(obj))
            if number <= self.admitted[obj.index] or obj.is_deleting:
                continue
            if obj.kind != "Deployment":
                raise PropertyViolated(
                    f"{number} pods of {obj.kind} on a quota for {self.admitted[obj.index]}"
                )
            has_excess = True
        if not has_excess:
            self.excess_since = None
            return
        self.excess_since = self.excess_since or self.now
        if self.now - self.excess_since > TOLERATED and self.phase == Phase.RUNNING:
            raise PropertyViolated("more pods than were admitted are tolerated forever")

    def _check_unadmitted(self) -> None:
        """Check that no pods have run without quota for too long."""
        if not any(map(self._has_unadmitted_pods, self.objects.values())):
            self.unadmitted_since = None
            return
        self.unadmitted_since = self.unadmitted_since or self.now
        if self.now - self.unadmitted_since > FORCED:
            raise PropertyViolated(f"pods run without quota for minutes while {self.phase}")

    def _has_unadmitted_pods(self, obj: WorldObject) -> bool:
        active = len(self._active(obj))
        ending = len([pod for pod in self._pods_of(obj) if pod.holds_resources]) - active
        if not self.is_reserved:
            return active + ending > 0
        admitted = self.admitted[obj.index]
        return active + max(0, ending - admitted) > admitted

    def _check_released(self) -> None:
        for obj in self.objects.values():
            holding = [pod.uid for pod in self._pods_of(obj) if pod.holds_resources]
            if holding and not obj.is_deleting:
                raise PropertyViolated(f"{holding} run without quota")

    def finish(self) -> None:
        """Let each pod run and succeed, and check that the AppWrapper ends or runs well."""
        for _ in range(60):
            for obj in self.objects.values():
                obj.scale = self._initial_scale(obj.index)
            for step in (self.run_controllers, self.start_pods, self.terminate_pods):
                step(0)
                self.reconcile()
            for pod in list(self.pods.values()):
                is_task = not self._is_service(pod) and pod.role != "worker"
                if is_task and pod.phase == "Running" and not pod.is_stuck:
                    self._end(pod, "Succeeded")
            self.reconcile()
            if self._is_settled():
                return
            self.now = self._next_time()
            self.reconcile()
        raise PropertyViolated(f"the AppWrapper is stuck in the phase {self.phase}")

    def _is_service(self, pod: WorldPod) -> bool:
        return any(obj.uid == pod.owner and obj.kind in SERVICES for obj in self.objects.values())

    def _is_settled(self) -> bool:
        if not self.is_reserved:
            return not any(pod.holds_resources for pod in self.pods.values())
        has_service = any(obj.kind in SERVICES for obj in self.objects.values())
        is_ready = self.condition(PODS_READY).get("status") == "True"
        return self.phase == Phase.RUNNING and has_service and is_ready


def _asked_for(component: Object) -> int:
    """Return how many pods of a component Kueue is asked for."""
    return sum(replicas_of(group.pod_set) for group in pods_with_quota(component))


def _heads(obj: WorldObject) -> int:
    return 1 if obj.kind == "RayCluster" else 0


def _observed(obj: WorldObject) -> ComponentObject:
    is_job = obj.kind == "Job"
    return ComponentObject(
        uid=obj.uid,
        deleting=obj.is_deleting,
        failed=obj.result == "Failed",
        completed=obj.result == "Complete",
        retries=is_job and not obj.result and obj.failures <= BACKOFF_LIMIT,
    )


def _observed_pod(pod: WorldPod) -> WrapperPod:
    ends: tuple[Termination, ...] = ()
    if pod.ended_at is not None:
        code = 1 if pod.phase == "Failed" else 0
        ends = (Termination("main", code, at=rfc3339(pod.ended_at)),)
    return WrapperPod(
        phase=pod.phase,
        deleting=pod.deleted_at is not None,
        end_requested_for=rfc3339(pod.deleted_at) if pod.deleted_at is not None else "",
        terminated=ends,
        key=NamespacedName("ns", pod.uid),
        uid=pod.uid,
        ancestor=pod.owner,
    )
