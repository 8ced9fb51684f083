"""The status of a pod on a node: a pure function of the pod, its behavior, and the seconds since the kubelet saw it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from envtest.apimachinery.objects import Object, find_condition, format_time
from envtest.simulation.model import Behavior, ImageProblem, Run
from envtest.simulation.timeline import Progress, progress

__all__ = ["PodState", "killed_statuses", "pod_state"]

_BACKOFF_AFTER: Final = 10.0
"""Seconds after which the reason of an image that cannot be pulled becomes ImagePullBackOff."""

_KILLED: Final = 137


class PodState(NamedTuple):
    """Changes of the status (``None`` removes a field), and the seconds until it changes, or ``None``."""

    status: dict[str, Any]
    next_change: float | None


class _Container(NamedTuple):
    """A container at one time: its status, when it is done, whether it succeeded, and when it changes."""

    status: dict[str, Any]
    is_running: bool
    is_done: bool
    exit_code: int
    done_at: float
    next_change: float | None


class _Clock(NamedTuple):
    """Converts offsets into timestamps."""

    begin: datetime

    def at(self, offset: float) -> str:
        return format_time(self.begin + timedelta(seconds=offset))


def _duration(seconds: float) -> str:
    """Format seconds as Go does: ``40s``, ``1m20s``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _terminated(ended: tuple[float, float, Run], clock: _Clock, identity: str) -> dict[str, Any]:
    start, end, run = ended
    reason = run.reason or ("Error" if run.exit_code else "Completed")
    state = {
        "exitCode": run.exit_code,
        "reason": reason,
        "startedAt": clock.at(start),
        "finishedAt": clock.at(end),
    }
    if run.message:
        state["message"] = run.message
    return {"terminated": {**state, "containerID": identity}}


def _identity(pod: Object, name: str, restarts: int) -> str:
    digest = hashlib.sha256(f"{pod['metadata']['uid']}/{name}/{restarts}".encode()).hexdigest()
    return f"envtest://{digest}"


def _base_status(container: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": container["name"],
        "image": container.get("image") or "",
        "imageID": "",
        "ready": False,
        "started": False,
        "restartCount": 0,
        "lastState": {},
    }


def _waiting(container: Mapping[str, Any], reason: str, message: str = "") -> dict[str, Any]:
    waiting = {"reason": reason, "message": message} if message else {"reason": reason}
    return {**_base_status(container), "state": {"waiting": waiting}}


def _pull_problem(
    container: Mapping[str, Any], problem: ImageProblem, elapsed: float
) -> dict[str, Any]:
    image = container.get("image") or ""
    message = problem.message or f'failed to pull and unpack image "{image}": not found'
    if problem.reason == "ErrImagePull" and elapsed >= _BACKOFF_AFTER:
        return _waiting(
            container,
            "ImagePullBackOff",
            f'Back-off pulling image "{image}": ErrImagePull: {message}',
        )
    return _waiting(container, problem.reason, message)


def _running_status(
    pod: Object, container: Mapping[str, Any], state: Progress, clock: _Clock, begin: float
) -> dict[str, Any]:
    """Return the status of a container that has started at least once; offsets of ``state`` count from ``begin``."""
    name = container["name"]
    image = container.get("image") or ""
    status = _base_status(container) | {
        "restartCount": state.restarts,
        "imageID": f"envtest://{image}",
    }
    identity = _identity(pod, name, state.restarts)
    if state.is_running:
        status["state"] = {"running": {"startedAt": clock.at(begin + state.started)}}
        status["started"] = True
        if state.ended is not None:
            previous = _identity(pod, name, state.restarts - 1)
            status["lastState"] = _terminated(_shift(state.ended, begin), clock, previous)
    else:
        assert state.ended is not None
        terminated = _terminated(_shift(state.ended, begin), clock, identity)
        if state.is_final or not state.backoff:
            status["state"] = terminated
        else:
            metadata = pod["metadata"]
            where = f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"
            message = f"back-off {_duration(state.backoff)} restarting failed container={name} pod={where}"
            status["state"] = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
            status["lastState"] = terminated
    return {**status, "containerID": identity}


def _shift(ended: tuple[float, float, Run], begin: float) -> tuple[float, float, Run]:
    return (ended[0] + begin, ended[1] + begin, ended[2])


class _Simulation:
    """Computes the containers of one pod at one time."""

    def __init__(self, pod: Object, behavior: Behavior, elapsed: float, begin: datetime) -> None:
        self.pod = pod
        self.behavior = behavior
        self.elapsed = elapsed
        self.clock = _Clock(begin)
        self.policy = pod["spec"].get("restartPolicy") or "Always"
        self.changes: list[float] = []

    def container(
        self,
        container: Mapping[str, Any],
        begin: float,
        runs: Sequence[Run],
        restarts_after: Callable[[int], bool],
    ) -> _Container:
        """Return a container that may start at the offset ``begin``."""
        problem = self.behavior.image
        if problem is not None and (
            not problem.containers or container["name"] in problem.containers
        ):
            until = None if problem.seconds is None else begin + problem.seconds
            if until is None or self.elapsed < until:
                self.changes += [
                    each for each in (until, begin + _BACKOFF_AFTER) if each is not None
                ]
                status = _pull_problem(container, problem, self.elapsed - begin)
                return _Container(
                    status,
                    is_running=False,
                    is_done=False,
                    exit_code=0,
                    done_at=0.0,
                    next_change=until,
                )
            begin = until
        state = progress(runs, restarts_after, self.elapsed - begin)
        status = _running_status(self.pod, container, state, self.clock, begin)
        if state.is_running:
            ready_at = begin + state.started + (self.behavior.ready_after or 0.0)
            status["ready"] = self.elapsed >= ready_at and self.behavior.ready is not False
            self.changes.append(ready_at)
        next_change = None if state.next_change is None else begin + state.next_change
        if next_change is not None:
            self.changes.append(next_change)
        code = state.ended[2].exit_code if state.ended is not None else 0
        done_at = begin + state.ended[1] if state.ended is not None else 0.0
        return _Container(status, state.is_running, state.is_final, code, done_at, next_change)

    def runs(self, name: str, default: Run, *, wildcard: bool) -> tuple[Run, ...]:
        runs = self.behavior.runs or {}
        return runs.get(name) or (runs.get("*") if wildcard else None) or (default,)

    def next_change(self) -> float | None:
        """Return the seconds until the first change."""
        later = [each - self.elapsed for each in self.changes if each > self.elapsed]
        return min(later, default=None)


def pod_state(pod: Object, behavior: Behavior, *, elapsed: float, begin: datetime) -> PodState:
    """Return the status ``elapsed`` seconds after ``begin``, when the kubelet saw the pod first."""
    sim = _Simulation(pod, behavior, elapsed, begin)
    spec = pod["spec"]
    inits = spec.get("initContainers") or ()
    containers = spec.get("containers") or ()
    start = behavior.start_after or 0.0
    if behavior.evict is not None:
        if elapsed >= behavior.evict.after:
            return PodState(_evicted(sim), None)
        sim.changes.append(behavior.evict.after)
    if elapsed < start:
        sim.changes.append(start)
        reason = "PodInitializing" if inits else "ContainerCreating"
        statuses = {
            "containerStatuses": [_waiting(each, reason) for each in containers],
            "initContainerStatuses": [_waiting(each, reason) for each in inits] or None,
        }
        incomplete = [each["name"] for each in inits]
        return PodState(
            {"phase": "Pending", **statuses, **_conditions(sim, [], incomplete)}, sim.next_change()
        )
    done, begins, failed = _run_inits(sim, inits, start)
    statuses = {"initContainerStatuses": [each.status for each in done] or None}
    incomplete = [each.status["name"] for each in done if not _is_initialized(each)]
    if begins is None:
        waiting = [_waiting(each, "PodInitializing") for each in containers]
        phase = "Failed" if failed else "Pending"
        conditions = _conditions(sim, waiting, incomplete, phase=phase)
        return PodState(
            {"phase": phase, "containerStatuses": waiting, **statuses, **conditions},
            sim.next_change(),
        )
    running = [
        sim.container(
            each, begins, sim.runs(each["name"], Run(), wildcard=True), _restarts_after(sim.policy)
        )
        for each in containers
    ]
    phase = _phase(running)
    if phase in ("Succeeded", "Failed"):
        end = max(each.done_at for each in running)
        for each in done:
            if each.is_running:  # sidecars are stopped last
                each.status.update(_stopped(sim, each.status, end))
        sim.changes.clear()
    own = [each.status for each in running]
    sidecars = [each.status for each in done if each.is_running]
    conditions = _conditions(sim, [*own, *sidecars], incomplete, phase=phase)
    return PodState(
        {"phase": phase, "containerStatuses": own, **statuses, **conditions}, sim.next_change()
    )


def _restarts_after(policy: str) -> Callable[[int], bool]:
    return {"Always": lambda _: True, "OnFailure": bool}.get(policy, lambda _: False)


def _run_inits(
    sim: _Simulation, inits: Sequence[Mapping[str, Any]], start: float
) -> tuple[list[_Container], float | None, bool]:
    """Run init containers in order; return them, when the others start (``None``: not yet), and whether one failed."""
    done: list[_Container] = []
    cursor: float | None = start
    failed = False
    for init in inits:
        if cursor is None:
            status = _waiting(init, "PodInitializing")
            done.append(
                _Container(
                    status,
                    is_running=False,
                    is_done=False,
                    exit_code=0,
                    done_at=0.0,
                    next_change=None,
                )
            )
            continue
        if init.get("restartPolicy") == "Always":
            sidecar = sim.container(
                init, cursor, sim.runs(init["name"], Run(), wildcard=False), lambda _: True
            )
            done.append(sidecar)
            cursor = cursor if sidecar.is_running else None
            continue
        runs = sim.runs(init["name"], Run(0.0), wildcard=False)
        each = sim.container(init, cursor, runs, lambda code: code != 0 and sim.policy != "Never")
        succeeded = each.is_done and not each.exit_code
        each.status["ready"] = succeeded
        failed = failed or (each.is_done and bool(each.exit_code))
        done.append(each)
        cursor = each.done_at if succeeded else None
    return done, cursor, failed


def _is_initialized(container: _Container) -> bool:
    return container.is_running if not container.is_done else not container.exit_code


def _phase(containers: Sequence[_Container]) -> str:
    if containers and all(each.is_done for each in containers):
        return "Failed" if any(each.exit_code for each in containers) else "Succeeded"
    started = any("containerID" in each.status for each in containers)
    return "Running" if started else "Pending"


def _stopped(sim: _Simulation, status: Mapping[str, Any], end: float) -> dict[str, Any]:
    started = status["state"]["running"]["startedAt"]
    state = {
        "exitCode": 0,
        "reason": "Completed",
        "startedAt": started,
        "finishedAt": sim.clock.at(end),
    }
    return {"state": {"terminated": state}, "ready": False, "started": False}


def _conditions(
    sim: _Simulation,
    statuses: Sequence[Mapping[str, Any]],
    incomplete: list[str],
    *,
    phase: str = "Pending",
) -> dict[str, Any]:
    """Return the conditions that the kubelet writes."""
    started = _is_sandboxed(sim)
    conditions: list[dict[str, Any]] = [{"type": "PodScheduled", "status": "True"}]
    conditions.append(
        {"type": "PodReadyToStartContainers", "status": "True" if started else "False"}
    )
    initialized: dict[str, Any] = {
        "type": "Initialized",
        "status": "False" if incomplete else "True",
    }
    if incomplete:
        shown = f"containers with incomplete status: [{' '.join(incomplete)}]"
        initialized |= {"reason": "ContainersNotInitialized", "message": shown}
    elif phase == "Succeeded":
        initialized["reason"] = "PodCompleted"
    conditions.append(initialized)
    unready = [each["name"] for each in statuses if not each["ready"]]
    names = (
        unready if statuses else [each["name"] for each in sim.pod["spec"].get("containers") or ()]
    )
    problem: dict[str, Any] = {}
    if phase in ("Succeeded", "Failed"):
        problem = {"reason": "PodCompleted" if phase == "Succeeded" else "PodFailed"}
    elif names:
        shown = f"containers with unready status: [{' '.join(names)}]"
        problem = {"reason": "ContainersNotReady", "message": shown}
    conditions.append(
        {"type": "ContainersReady", "status": "False" if problem else "True", **problem}
    )
    gate = _closed_gate(sim.pod)
    if not problem and gate:
        text = f'corresponding condition of pod readiness gate "{gate}" does not exist.'
        problem = {"reason": "ReadinessGatesNotReady", "message": text}
    conditions.append({"type": "Ready", "status": "False" if problem else "True", **problem})
    return {"conditions": conditions}


def _is_sandboxed(sim: _Simulation) -> bool:
    """Return whether the sandbox of the pod was created."""
    return sim.elapsed >= (sim.behavior.start_after or 0.0)


def _closed_gate(pod: Object) -> str:
    """Return the first readiness gate whose condition is not true, or an empty string."""
    conditions = (pod.get("status") or {}).get("conditions")
    for gate in pod["spec"].get("readinessGates") or ():
        kind: str = gate.get("conditionType", "")
        if (find_condition(conditions, kind) or {}).get("status") != "True":
            return kind
    return ""


def killed_statuses(statuses: Sequence[Object], end: str) -> list[dict[str, Any]]:
    """Return the statuses of the containers of a pod that the kubelet ended: those that have not ended are killed."""
    found = []
    for each in statuses:
        state = each.get("state") or {}
        if "terminated" in state:
            found.append(each)
            continue
        running = state.get("running") or {}
        ended = {"exitCode": _KILLED, "reason": "Error", "finishedAt": end}
        ended["startedAt"] = running.get("startedAt") or end
        found.append({**each, "ready": False, "started": False, "state": {"terminated": ended}})
    return found


def _evicted(sim: _Simulation) -> dict[str, Any]:
    eviction = sim.behavior.evict
    assert eviction is not None
    before = (sim.pod.get("status") or {}).get("containerStatuses") or ()
    statuses = killed_statuses(before, sim.clock.at(eviction.after))
    target = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    unready = {"status": "False", "reason": "PodFailed"}
    conditions = [
        {"type": "PodScheduled", "status": "True"},
        {**target, "message": eviction.message},
        {"type": "ContainersReady", **unready},
        {"type": "Ready", **unready},
    ]
    changes: dict[str, Any] = {"phase": "Failed", "reason": "Evicted", "message": eviction.message}
    return {**changes, "containerStatuses": statuses, "conditions": conditions}
