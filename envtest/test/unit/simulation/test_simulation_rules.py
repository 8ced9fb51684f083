"""The pure rules of scenarios: fit of pods on nodes, container runs, pod status, node failures."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from envtest.controllers import scheduler
from envtest.simulation.fit import (
    Demand,
    NodeInfo,
    Refusal,
    Usage,
    demand_of,
    node_info,
    refusal_of,
    tolerates,
)
from envtest.simulation.fit import unschedulable_message as message_of
from envtest.simulation.model import Behavior, Eviction, ImageProblem, NodeFailure, Run
from envtest.simulation.node_state import desired_taints, eviction_time, failure_at
from envtest.simulation.pod_status import pod_state
from envtest.simulation.timeline import progress

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GPU_TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def node(**changes: Any) -> NodeInfo:
    obj = {
        "metadata": {"name": "n", "labels": {"zone": "a", "cores": "8"}},
        "spec": changes.pop("spec", {}),
        "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "2", **changes}},
    }
    return node_info(obj)


def pod(containers: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
    spec = {"containers": containers or [{"name": "c", "image": "i"}], **spec}
    return {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": spec}


def requests(**quantities: str) -> list[dict[str, Any]]:
    return [{"name": "c", "resources": {"requests": quantities}}]


def affinity(
    operator: str, *values: str, key: str = "zone", kind: str = "matchExpressions"
) -> dict[str, Any]:
    term = {kind: [{"key": key, "operator": operator, "values": list(values)}]}
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
        }
    }


NOT_SELECTED = "node(s) didn't match Pod's node affinity/selector"


@pytest.mark.parametrize(
    ("spec", "node_spec", "reason", "is_final"),
    [
        ({}, {}, None, False),
        ({}, {"unschedulable": True}, "node(s) were unschedulable", True),
        ({"tolerations": [{"operator": "Exists"}]}, {"unschedulable": True}, None, False),
        ({}, {"taints": [GPU_TAINT]}, "node(s) had untolerated taint(s)", True),
        ({}, {"taints": [{"key": "x", "effect": "PreferNoSchedule"}]}, None, False),
        (
            {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
            {"taints": [GPU_TAINT]},
            None,
            False,
        ),
        ({"nodeSelector": {"zone": "a"}}, {}, None, False),
        ({"nodeSelector": {"zone": "b"}}, {}, NOT_SELECTED, True),
        ({"affinity": affinity("In", "a", "b")}, {}, None, False),
        ({"affinity": affinity("NotIn", "a")}, {}, NOT_SELECTED, True),
        ({"affinity": affinity("Exists", key="gone")}, {}, NOT_SELECTED, True),
        ({"affinity": affinity("Gt", "7", key="cores")}, {}, None, False),
        ({"affinity": affinity("Lt", "8", key="cores")}, {}, NOT_SELECTED, True),
        (
            {"affinity": affinity("In", "n", key="metadata.name", kind="matchFields")},
            {},
            None,
            False,
        ),
        ({"containers": requests(cpu="1500m")}, {}, "Insufficient cpu", False),
        ({"containers": requests(cpu="3")}, {}, "Insufficient cpu", True),
        (
            {"containers": requests(**{"nvidia.com/gpu": "1"})},
            {},
            "Insufficient nvidia.com/gpu",
            True,
        ),
        (
            {"containers": requests(cpu="1"), "overhead": {"cpu": "1"}},
            {},
            "Insufficient cpu",
            False,
        ),
    ],
)
def test_filters_of_the_scheduler(
    spec: dict[str, Any], node_spec: dict[str, Any], reason: str | None, is_final: bool
) -> None:
    usage = Usage()
    usage.change(demand_of(pod(requests(cpu="600m"))), 1)
    refusal = refusal_of(demand_of(pod(**spec)), node(spec=node_spec), usage)
    assert refusal == (None if reason is None else Refusal((reason,), is_final))


def test_pods_and_host_ports_are_counted() -> None:
    usage, taken = (
        Usage(),
        demand_of(pod([{"name": "c", "ports": [{"containerPort": 1, "hostPort": 80}]}])),
    )
    usage.change(taken, 1)
    refusal = refusal_of(taken, node(), usage)
    assert refusal is not None
    assert refusal.reasons == ("node(s) didn't have free ports for the requested pod ports",)
    usage.change(demand_of(pod()), 1)
    assert refusal_of(demand_of(pod()), node(), usage) == Refusal(
        ("Too many pods",), is_final=False
    )
    usage.change(taken, -1)
    assert refusal_of(taken, node(), usage) is None
    assert not usage.ports, "ports of deleted pods are not kept"


def test_ranking_tries_only_nodes_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def refuse(demand: Demand, info: NodeInfo, usage: Usage) -> Refusal | None:
        tried.append(info.name)
        return refusal_of(demand, info, usage)

    monkeypatch.setattr(scheduler, "refusal_of", refuse)
    nodes = {name: node()._replace(name=name) for name in ("a", "b", "c")}
    usage: dict[str, Usage] = {}
    demand = demand_of(pod(requests(cpu="1500m")))
    ranked = scheduler.Ranking(demand, nodes, usage)
    chosen = []
    while (best := ranked.best()) is not None:
        chosen.append(best.name)
        usage.setdefault(best.name, Usage()).change(demand, 1)
    assert chosen == ["a", "b", "c"]
    assert tried == ["a", "b", "c", "a", "b", "c"], (
        "each node once at first, and once after it was chosen"
    )


def test_message_of_an_unschedulable_pod() -> None:
    refusals = [
        Refusal(("Insufficient cpu", "Insufficient memory"), is_final=False),
        Refusal(("Insufficient cpu",), is_final=True),
        Refusal(("node(s) were unschedulable",), is_final=True),
    ]
    assert message_of(refusals, preempts=True) == (
        "0/3 nodes are available: 1 Insufficient memory, 1 node(s) were unschedulable, 2 Insufficient cpu. "
        "no new claims to deallocate, preemption: 0/3 nodes are available: "
        "1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling."
    )
    assert message_of(refusals[:1], preempts=False).endswith(
        "preemption: not eligible due to preemptionPolicy=Never."
    )
    assert message_of([], preempts=True) == "no nodes available to schedule pods"


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "no"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations(toleration: dict[str, Any], tolerated: bool) -> None:
    assert tolerates(toleration, GPU_TAINT) is tolerated


CRASH = (Run(1.0, 1),)


@pytest.mark.parametrize(
    ("runs", "elapsed", "running", "restarts", "backoff", "next_change"),
    [
        ((Run(),), 1e9, True, 0, 0, None),
        (CRASH, 0.5, True, 0, 0, 1),
        (CRASH, 1.5, True, 1, 0, 2),  # the first restart is immediate
        (CRASH, 2.5, False, 1, 10, 12),
        (CRASH, 12.5, True, 2, 0, 13),
        (CRASH, 14, False, 2, 20, 33),
        (CRASH, 33.5, True, 3, 0, 34),
        ((Run(1.0, 1), Run()), 5, True, 1, 0, None),
        ((Run(700.0, 1),), 701, True, 1, 0, 1400),  # a long run resets the back-off
        ((Run(700.0, 1),), 7e6, True, 10_000, 0, 7e6 + 700),
    ],
)
def test_runs_of_a_container(
    runs: tuple[Run, ...],
    elapsed: float,
    running: bool,
    restarts: int,
    backoff: float,
    next_change: float | None,
) -> None:
    state = progress(runs, lambda _: True, elapsed)
    assert (state.is_running, state.restarts, state.backoff, state.next_change) == (
        running,
        restarts,
        backoff,
        next_change,
    )


def test_years_of_crashes_are_computed_at_once() -> None:
    state = progress(CRASH, lambda _: True, 3e9)
    assert state.restarts > 9_000_000
    assert state.next_change is not None
    assert 0 < state.next_change - 3e9 <= 301


def test_a_container_that_ended_for_good() -> None:
    state = progress((Run(2.0, 3),), lambda _: False, 10)
    assert (state.is_running, state.is_final, state.next_change) == (False, True, None)
    assert state.ended == (0.0, 2.0, Run(2.0, 3))


def status_at(elapsed: float, behavior: Behavior | None = None, **spec: Any) -> dict[str, Any]:
    return pod_state(pod(**spec), behavior or Behavior(), elapsed=elapsed, begin=NOW).status


def conditions(status: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status["conditions"]}


def states(status: dict[str, Any], kind: str = "containerStatuses") -> list[str]:
    """The reason of each container that waits or ended, or ``running``."""
    found = []
    for each in status[kind]:
        ((name, state),) = each["state"].items()
        found.append(state.get("reason", name))
    return found


def test_init_containers_run_in_order() -> None:
    inits = [{"name": "a"}, {"name": "side", "restartPolicy": "Always"}, {"name": "b"}]
    behavior = Behavior(runs={"a": (Run(5.0),), "b": (Run(2.0),)})
    first = status_at(1, behavior, initContainers=inits)
    assert states(first, "initContainerStatuses") == [
        "running",
        "PodInitializing",
        "PodInitializing",
    ]
    assert (first["phase"], states(first), conditions(first)["Initialized"]) == (
        "Pending",
        ["PodInitializing"],
        "False",
    )
    second = status_at(6, behavior, initContainers=inits)
    assert states(second, "initContainerStatuses") == ["Completed", "running", "running"]
    last = status_at(8, behavior, initContainers=inits)
    assert (last["phase"], states(last), conditions(last)["Ready"]) == (
        "Running",
        ["running"],
        "True",
    )


@pytest.mark.parametrize(
    ("policy", "code", "phase", "state"),
    [
        ("Always", 0, "Running", "running"),
        ("OnFailure", 0, "Succeeded", "Completed"),
        ("OnFailure", 1, "Running", "running"),
        ("Never", 0, "Succeeded", "Completed"),
        ("Never", 1, "Failed", "Error"),
    ],
)
def test_restart_policies(policy: str, code: int, phase: str, state: str) -> None:
    behavior = Behavior(runs={"*": (Run(1.0, code), Run())})
    status = status_at(2, behavior, restartPolicy=policy)
    assert (status["phase"], states(status)) == (phase, [state])
    assert conditions(status)["Ready"] == ("True" if phase == "Running" else "False")


def test_a_failed_init_container_fails_a_pod_that_never_restarts() -> None:
    behavior = Behavior(runs={"a": (Run(1.0, 7),)})
    assert (
        status_at(2, behavior, initContainers=[{"name": "a"}], restartPolicy="Never")["phase"]
        == "Failed"
    )
    retried = status_at(3, behavior, initContainers=[{"name": "a"}])
    assert (retried["phase"], states(retried, "initContainerStatuses")) == (
        "Pending",
        ["CrashLoopBackOff"],
    )


def test_images_that_cannot_be_pulled() -> None:
    behavior = Behavior(image=ImageProblem("ErrImagePull", "denied", 60.0, ()))
    assert [states(status_at(seconds, behavior))[0] for seconds in (1, 11, 61)] == [
        "ErrImagePull",
        "ImagePullBackOff",
        "running",
    ]
    assert status_at(1, behavior)["phase"] == "Pending"


def test_crash_loops_and_out_of_memory() -> None:
    behavior = Behavior(runs={"*": (Run(1.0, 137, "OOMKilled"),)})
    container = status_at(5, behavior)["containerStatuses"][0]
    assert container["state"]["waiting"] == {
        "reason": "CrashLoopBackOff",
        "message": "back-off 10s restarting failed container=c pod=p_default(u)",
    }
    assert container["restartCount"] == 1
    ended = container["lastState"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)
    assert (ended["startedAt"], ended["finishedAt"]) == (
        "2026-01-01T00:00:01Z",
        "2026-01-01T00:00:02Z",
    )


def test_eviction_by_the_kubelet() -> None:
    behavior = Behavior(evict=Eviction(10.0, "low on memory"))
    assert status_at(9, behavior)["phase"] == "Running"
    status = status_at(10, behavior)
    assert (status["phase"], status["reason"], status["message"]) == (
        "Failed",
        "Evicted",
        "low on memory",
    )
    assert conditions(status)["DisruptionTarget"] == "True"


def test_readiness() -> None:
    delayed = Behavior(ready_after=5.0)
    assert [conditions(status_at(seconds, delayed))["Ready"] for seconds in (4, 5)] == [
        "False",
        "True",
    ]
    assert conditions(status_at(9, Behavior(ready=False)))["Ready"] == "False"
    gated = status_at(1, readinessGates=[{"conditionType": "g"}])
    assert (conditions(gated)["ContainersReady"], conditions(gated)["Ready"]) == ("True", "False")


def test_failures_of_a_node() -> None:
    failures = (NodeFailure(10.0, 20.0, lost=False), NodeFailure(25.0, None, lost=True))
    assert [failure_at(failures, seconds) for seconds in (0, 10, 25, 100)] == [
        ("True", 10.0),
        ("False", 15.0),
        ("Unknown", 5.0),
        ("Unknown", None),
    ]


def test_taints_of_a_node_that_is_cordoned_or_not_ready() -> None:
    obj: dict[str, Any] = {
        "spec": {
            "taints": [GPU_TAINT, {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    assert desired_taints(obj, "now") == [GPU_TAINT]
    obj["spec"]["unschedulable"] = True
    obj["status"]["conditions"][0]["status"] = "Unknown"
    assert [
        (each["key"].rpartition("/")[2], each["effect"]) for each in desired_taints(obj, "now")[1:]
    ] == [
        ("unreachable", "NoSchedule"),
        ("unreachable", "NoExecute"),
        ("unschedulable", "NoSchedule"),
    ]


def test_taints_for_pressure_and_without_evictions() -> None:
    eviction = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
    conditions = [{"type": "Ready", "status": "False"}, {"type": "DiskPressure", "status": "True"}]
    obj: dict[str, Any] = {
        "spec": {"taints": [eviction, GPU_TAINT]},
        "status": {"conditions": conditions},
    }
    assert desired_taints(obj, "now", evict=False) == [
        eviction,
        GPU_TAINT,
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule", "timeAdded": "now"},
        {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule", "timeAdded": "now"},
    ]


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ([], 0),
        ([{"operator": "Exists"}], None),
        ([{"operator": "Exists", "tolerationSeconds": 300}], 290),
        (
            [
                {"operator": "Exists", "tolerationSeconds": 300},
                {"key": "k", "operator": "Exists", "tolerationSeconds": 5},
            ],
            -5,
        ),
    ],
)
def test_time_at_which_a_taint_removes_a_pod(
    tolerations: list[dict[str, Any]], seconds: float | None
) -> None:
    taint = {
        "key": "k",
        "effect": "NoExecute",
        "timeAdded": (NOW - timedelta(seconds=10)).isoformat(),
    }
    due = eviction_time([taint], tolerations, NOW)
    assert due == (None if seconds is None else NOW + timedelta(seconds=seconds))
