"""Summaries of each kind: state, level, readiness, facts and problems, as tables of cases."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.flux.names import FLUX_JOB, FLUX_SETUP, MINICLUSTER
from cfo.api.gateway import TLS_ROUTES
from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.api.kueue import WORKLOADS
from cfo.api.raycluster.certificates import RENEWAL_ANNOTATION
from cfo.api.raycluster.conditions import EXPOSED, LASTING_REASONS
from cfo.api.raycluster.names import RAY_CLUSTER, ROUTE
from cfo.api.reading import milliseconds
from cfo.console.summary_text import essence
from cfo.runtime import GVK, INGRESS, NETWORK_POLICY, POD, SECRET, NamespacedName, Object
from cfo.summaries import kind_view as summaries
from cfo.summaries.kind_view import Related, related_objects
from cfo.summaries.problems import pod_problems
from cfo.summaries.raycluster import LASTING_REMEDIES
from cfo.summaries.summary import Level, Summary
from test.support.summaries import VIEWS

NOW = datetime(2026, 6, 1, tzinfo=UTC)

HEAD = {"containers": [{"name": "ray"}]}
TLS_HEAD = {
    "initContainers": [{"name": "create-cert"}],
    "containers": [{"name": "ray", "env": [{"name": "RAY_USE_TLS", "value": "1"}]}],
}


def summarize(gvk: GVK, one: Object, objects: Related | None = None) -> Summary:
    return summaries.summarize(VIEWS[gvk], one, objects)


def obj(gvk: GVK, *, spec: Any = None, status: Any = None, **metadata: Any) -> Object:
    return {
        "apiVersion": gvk.api_version,
        "kind": gvk.kind,
        "metadata": {"name": "x", "namespace": "n", "uid": "u", **metadata},
        "spec": spec or {},
        "status": status or {},
    }


def cluster(state: str = "ready", *, pod: Any = None, **spec: Any) -> Object:
    status = {"state": state, "desiredWorkerReplicas": 3, "readyWorkerReplicas": 2}
    return obj(
        RAY_CLUSTER,
        spec={"headGroupSpec": {"template": {"spec": pod or HEAD}}, **spec},
        status=status,
    )


def condition(kind: str, status: str, reason: str = "Reason", message: str = "message") -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": message}


APPLICATIONS = {"applications": {"chat": {}}}
"""The spec of an InferenceStack with one application."""

READY_FOR_USE = [
    condition("JobMiniClusterReady", "True"),
    condition("PodsReady", "True", "BrokersReady"),
]
"""The conditions of a FluxJob without a command whose brokers are ready."""


def waits_for(reason: str) -> list[Object]:
    return [
        condition("JobWaitingForResources", "True"),
        condition("QuotaReserved", "False", reason),
    ]


def messages(summary: Summary) -> list[str]:
    return [problem.message for problem in summary.problems]


def related(**fields: Any) -> Related:
    return Related(now=NOW, **fields)


@pytest.mark.parametrize(
    ("ray_cluster", "level"),
    [
        (cluster(), Level.OK),
        (cluster(""), Level.PROGRESSING),
        (cluster("failed"), Level.FAILED),
        (cluster("suspended", suspend=True), Level.WAITING),
        (cluster("", suspend=True), Level.WAITING),
        (cluster("ready", suspend=True), Level.PROGRESSING),
        (cluster("suspended"), Level.PROGRESSING),
    ],
)
def test_level_of_a_raycluster_follows_its_state(ray_cluster: Object, level: Level) -> None:
    summary = summarize(RAY_CLUSTER, ray_cluster)
    assert (summary.state, summary.level, summary.ready) == (
        ray_cluster["status"]["state"],
        level,
        "2/3",
    )


@pytest.mark.parametrize("state", ["ready", ""])
def test_raycluster_without_running_pods_has_a_problem(state: str) -> None:
    ended = related(pods=[pod("Succeeded"), pod("Failed")])
    summary = summarize(RAY_CLUSTER, cluster(state), ended)
    assert summary.level is Level.WARNING
    assert messages(summary) == ["All pods have ended, so no Ray node runs"]
    one_runs = related(pods=[pod("Succeeded"), pod("Running")])
    assert messages(summarize(RAY_CLUSTER, cluster(state), one_runs)) == []
    deleted = cluster(state)
    deleted["metadata"]["deletionTimestamp"] = "2026-06-01T00:00:00Z"
    assert messages(summarize(RAY_CLUSTER, deleted, ended)) == []


def test_facts_name_address_authentication_certificates_and_policies() -> None:
    ingress = {
        "metadata": {"name": "ray-dashboard-x"},
        "spec": {"rules": [{"host": "d.test"}], "tls": [{}]},
    }
    client = {"metadata": {"name": "rayclient-x"}, "spec": {"rules": [{"host": "c.test"}]}}
    secret = {
        "metadata": {
            "name": "ca-secret-x",
            "annotations": {RENEWAL_ANNOTATION: "2030-01-01T00:00:00Z"},
        }
    }
    children = {INGRESS: [client, ingress], SECRET: [secret], NETWORK_POLICY: [{}, {}]}
    summary = summarize(RAY_CLUSTER, cluster(pod=TLS_HEAD), related(children=children))
    assert dict(summary.facts) == {
        "dashboard": "https://d.test",
        "ray client": "ray://c.test",
        "authentication": "none",
        "mTLS": "by the operator",
        "CA expires": "2033-05-01 (renewed from 2030-01-01)",
        "network policies": "2 by the operator",
    }
    assert (summary.level, summary.problems) == (Level.OK, ())


def test_what_cannot_be_read_is_neither_a_fact_nor_a_problem() -> None:
    summary = summarize(RAY_CLUSTER, cluster(pod=TLS_HEAD), related())
    assert dict(summary.facts) == {"authentication": "none", "mTLS": "by the operator"}
    assert summary.level is Level.OK


def test_missing_protection_of_a_running_cluster_is_a_problem() -> None:
    children = {INGRESS: [], NETWORK_POLICY: [], SECRET: []}
    summary = summarize(RAY_CLUSTER, cluster(pod=TLS_HEAD), related(children=children))
    assert messages(summary) == [
        "No NetworkPolicy protects the RayCluster",
        "The Secret ca-secret-x with the CA is missing, so new pods cannot start",
    ]
    assert all("watchNamespaces and labelSelector" in item.remedy for item in summary.problems)
    assert (summary.level, summary.fact("dashboard")) == (Level.WARNING, "not exposed")


@pytest.mark.parametrize(("created", "is_missed"), [("23:59:50", False), ("23:59:00", True)])
def test_ca_of_a_new_cluster_is_not_missed_yet(created: str, *, is_missed: bool) -> None:
    new = cluster(pod=TLS_HEAD)
    new["metadata"]["creationTimestamp"] = f"2026-05-31T{created}Z"
    found = messages(summarize(RAY_CLUSTER, new, related(children={SECRET: []})))
    assert any("with the CA is missing" in message for message in found) is is_missed


def test_other_actors_are_named_and_their_parts_are_not_missed() -> None:
    ray_cluster = cluster(managedBy="kueue.x-k8s.io/multikueue")
    summary = summarize(
        RAY_CLUSTER, ray_cluster, related(children={ROUTE: [], NETWORK_POLICY: [], SECRET: []})
    )
    names = ("dashboard", "authentication", "mTLS", "network policies")
    assert [summary.fact(name) for name in names] == [
        "by MultiKueue",
        "MultiKueue",
        "by MultiKueue",
        "by MultiKueue",
    ]
    assert summary.problems == ()


def event(reason: str, last: str, message: str = "why", count: int = 1) -> Object:
    return {
        "type": "Warning",
        "reason": reason,
        "message": message,
        "lastTimestamp": last,
        "count": count,
    }


@pytest.mark.parametrize(
    ("state", "reason", "last", "is_problem"),
    [
        ("", "CertificateRequestDenied", "2026-01-01T00:00:00Z", True),
        ("ready", "CertificateRequestDenied", "2026-01-01T00:00:00Z", False),
        ("ready", "CertificateRequestDenied", "2026-01-03T00:00:00Z", True),
        ("ready", "IngressDomainMissing", "2026-01-01T00:00:00Z", True),
        ("ready", "HostTooLong", "2026-01-01T00:00:00Z", True),
        ("", "RayClientNotExposed", "2026-01-01T00:00:00Z", True),
        ("ready", "RayClientNotExposed", "2026-01-03T00:00:00Z", False),
    ],
)
def test_warning_events_are_problems_until_they_are_resolved(
    state: str, reason: str, last: str, is_problem: bool
) -> None:
    ray_cluster = cluster(state)
    ray_cluster["status"]["stateTransitionTimes"] = {"ready": "2026-01-02T00:00:00Z"}
    summary = summarize(
        RAY_CLUSTER, ray_cluster, related(events=[event(reason, last)], children={INGRESS: []})
    )
    assert [warning.reason for warning in summary.warnings] == [reason]
    assert messages(summary) == ([f"{reason}: why"] if is_problem else [])


@pytest.mark.parametrize("reason", sorted(LASTING_REASONS))
@pytest.mark.parametrize("last", ["", "2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z"])
def test_condition_shows_whether_a_lasting_warning_is_resolved(reason: str, last: str) -> None:
    events = [event(reason, last)] if last else []
    ray_cluster = cluster()
    ray_cluster["status"]["stateTransitionTimes"] = {"ready": "2026-01-02T00:00:00Z"}
    ray_cluster["status"]["conditions"] = [condition(EXPOSED, "True", reason, "why")]
    found = summarize(RAY_CLUSTER, ray_cluster, related(events=events, children={INGRESS: []}))
    assert found.level is Level.WARNING
    assert messages(found) == [f"{reason}: why"]
    assert found.problems[0].remedy == LASTING_REMEDIES[reason]

    ray_cluster["status"]["conditions"] = [condition(EXPOSED, "True", "Exposed", "Dashboard: a")]
    found = summarize(RAY_CLUSTER, ray_cluster, related(events=events, children={INGRESS: []}))
    assert found.level is Level.OK
    assert messages(found) == []


@pytest.mark.parametrize("has_condition", [False, True])
def test_missing_role_is_a_problem_also_of_a_raycluster_that_is_being_deleted(
    has_condition: bool,
) -> None:
    ray_cluster = cluster()
    ray_cluster["metadata"]["deletionTimestamp"] = "2026-06-01T00:00:00Z"
    conditions = [condition(EXPOSED, "False", "OAuthUnavailable", "why")]
    if has_condition:
        conditions = [condition(EXPOSED, "False", "MissingRole", "why")]
    ray_cluster["status"]["conditions"] = conditions
    events = [event("MissingRole", "2026-06-01T00:00:00Z")]
    found = summarize(RAY_CLUSTER, ray_cluster, related(events=events, children={INGRESS: []}))
    assert messages(found).count("MissingRole: why") == 1
    assert not [message for message in messages(found) if "OAuthUnavailable" in message]


def test_each_lasting_reason_has_a_remedy() -> None:
    assert set(LASTING_REMEDIES) == LASTING_REASONS


def changed(kind: str, status: str, reason: str, since: str) -> Object:
    return {**condition(kind, status, reason), "lastTransitionTime": since}


@pytest.mark.parametrize(
    ("kind", "reason", "status", "is_problem"),
    [
        (FLUX_JOB, "NoFluxSetup", {"conditions": waits_for("WaitingForTurn")}, False),
        (FLUX_JOB, "UpdateIgnored", {"conditions": waits_for("WaitingForTurn")}, False),
        (MINICLUSTER, "InvalidSpec", {"conditions": [condition("JobRequested", "True")]}, False),
        (FLUX_JOB, "Inadmissible", {"conditions": waits_for("WaitingForKueue")}, True),
        (APPWRAPPER, "ComponentCreationErrored", {"phase": "Resuming"}, False),
        (APPWRAPPER, "NotValidated", {"phase": "Resuming"}, False),
        (APPWRAPPER, "InvalidPodSets", {"phase": "Suspended"}, True),
    ],
)
def test_conditions_show_whether_the_cause_of_a_warning_exists(
    kind: GVK, reason: str, status: Object, *, is_problem: bool
) -> None:
    events = related(events=[event(reason, "2026-01-01T00:00:00Z")])
    summary = summarize(kind, obj(kind, status=status), events)
    assert messages(summary) == ([f"{reason}: why"] if is_problem else [])


@pytest.mark.parametrize(
    ("reserved", "expected"),
    [
        (None, ["Inadmissible: why"]),  # Workloads cannot be read
        (condition("QuotaReserved", "False", "Inadmissible"), ["Inadmissible: message"]),
        (condition("QuotaReserved", "False", "Pending"), []),
    ],
)
@pytest.mark.parametrize("version", WORKLOADS)
def test_appwrapper_is_inadmissible_as_long_as_its_workload_is(
    version: GVK, reserved: Object | None, expected: list[str]
) -> None:
    wrapper = obj(APPWRAPPER, spec={"suspend": True}, status={"phase": "Suspended"})
    children = {}
    if reserved is not None:
        children[version] = [obj(version, status={"conditions": [reserved]})]
    events = [event("Inadmissible", "2026-01-01T00:00:00Z")]
    assert messages(summarize(APPWRAPPER, wrapper, related(events=events, children=children))) == (
        expected
    )


@pytest.mark.parametrize(
    ("last", "is_problem"),
    [
        ("2026-01-01T00:00:09Z", False),
        ("2026-01-01T00:00:10Z", True),
        ("2026-01-01T00:00:10.500000Z", True),
        ("", True),
    ],
)
@pytest.mark.parametrize("kind", [FLUX_JOB, MINICLUSTER, APPWRAPPER])
def test_warning_is_no_problem_once_a_condition_has_changed_after_it(
    kind: GVK, last: str, *, is_problem: bool
) -> None:
    conditions = [
        changed("QuotaReserved", "False", "WaitingForTurn", "2026-01-01T00:00:01Z"),
        changed("PodsReady", "False", "Starting", "2026-01-01T00:00:10Z"),
    ]
    events = related(events=[event("Other", last)])
    summary = summarize(kind, obj(kind, status={"conditions": conditions}), events)
    assert messages(summary) == (["Other: why"] if is_problem else [])


@pytest.mark.parametrize(
    ("created", "owner", "is_problem"),
    [
        ("2026-01-01T00:00:11Z", "x", False),
        ("2026-01-01T00:00:10Z", "x", True),
        ("2026-01-01T00:00:11Z", "other", True),
    ],
)
@pytest.mark.parametrize("kind", [FLUX_JOB, MINICLUSTER, APPWRAPPER, RAY_CLUSTER])
def test_refusal_of_pods_is_no_problem_once_one_was_created_after_it(
    kind: GVK, created: str, owner: str, *, is_problem: bool
) -> None:
    is_ray = kind is RAY_CLUSTER
    refusal = event("FailedToCreateHeadPod" if is_ray else "FailedCreate", "2026-01-01T00:00:10Z")
    controller_kind = "RayCluster" if is_ray else "Job"
    refusal["involvedObject"] = {"kind": controller_kind, "name": "x"}
    reference = {"controller": True, "kind": controller_kind, "name": owner, "uid": "u"}
    starting = pod("Pending")
    starting["metadata"].update(creationTimestamp=created, ownerReferences=[reference])
    statuses = {
        FLUX_JOB: {"miniCluster": "x", "conditions": [condition("PodsReady", "False", "Starting")]},
        APPWRAPPER: {"phase": "Resuming"},
        RAY_CLUSTER: {"state": ""},
    }
    events = "events" if is_ray else "created_events"
    objects = related(pods=[starting], **{events: [refusal]})
    summary = summarize(kind, obj(kind, status=statuses.get(kind)), objects)
    assert len([each for each in messages(summary) if "why" in each]) == is_problem


def test_warning_events_are_the_newest_first_and_not_repeated() -> None:
    events = [
        event("A", "2026-01-01T00:00:00Z"),
        event("B", "2026-01-02T00:00:00Z", count=3),
        event("A", "2026-01-03"),
    ]
    warnings = summarize(RAY_CLUSTER, cluster(), related(events=events)).warnings
    assert [(each.reason, each.count) for each in warnings] == [("A", 1), ("B", 3)]


def test_the_end_of_a_long_event_is_not_lost() -> None:
    """The operator's own Events end with what to do."""
    message = f"{'cause ' * 100}set kuberay.authentication"
    events = [{**event("OAuthUnavailable", "2026-01-01T00:00:00Z"), "message": message}]
    others = related(events=events, children={INGRESS: []})
    summary = summarize(RAY_CLUSTER, cluster(), others)
    (problem,) = [each for each in summary.problems if message in each.message]
    assert "outside OpenShift also kuberay.ingressDomain" in problem.remedy


def test_the_end_of_a_message_of_the_scheduler_is_not_lost() -> None:
    message = f"{'0/9 nodes are available, ' * 20}9 Insufficient memory"
    pod = {
        "metadata": {"name": "head", "namespace": "ns"},
        "status": {"conditions": [condition("PodScheduled", "False", "Unschedulable", message)]},
    }
    (problem,) = pod_problems([pod])
    assert problem.message.endswith("9 Insufficient memory")


POD_CASES = [
    (
        {"conditions": [condition("PodScheduled", "False", "Unschedulable", "no nodes")]},
        "cannot be scheduled: no nodes",
    ),
    (
        {
            "containerStatuses": [
                {"name": "ray", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
            ]
        },
        "container ray waits: ImagePullBackOff",
    ),
    (
        {
            "containerStatuses": [
                {"name": "ray", "state": {"waiting": {"reason": "ErrImageNeverPull"}}}
            ]
        },
        "container ray waits: ErrImageNeverPull",
    ),
    (
        {"initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 3}}}]},
        "container i ended with exit code 3",
    ),
    (
        {
            "containerStatuses": [
                {"name": "r", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
            ]
        },
        "container r used more memory than its limit",
    ),
    (
        {
            "containerStatuses": [
                {
                    "name": "r",
                    "state": {"running": {}},
                    "lastState": {"terminated": {"exitCode": 1}},
                }
            ]
        },
        "",
    ),
]


@pytest.mark.parametrize(("status", "cause"), POD_CASES)
def test_pods_that_cannot_run_are_named_with_the_cause(status: Object, cause: str) -> None:
    pods = [{"metadata": {"name": f"p{number}"}, "status": status} for number in range(5)]
    summary = summarize(RAY_CLUSTER, cluster(""), related(pods=pods))
    assert messages(summary) == ([f"Pods p0, p1, p2 and 2 more: {cause}"] if cause else [])


def test_a_deletion_that_does_not_end_names_its_finalizers_and_pods() -> None:
    ray_cluster = cluster()
    ray_cluster["metadata"] |= {"deletionTimestamp": "2026-05-31T23:00:00Z", "finalizers": ["a/b"]}
    summary = summarize(RAY_CLUSTER, ray_cluster, related())
    assert messages(summary) == ["Being deleted since 2026-05-31 23:00 UTC, waiting for a/b"]
    assert summary.pending == "is being deleted, waiting for a/b"
    pods = [{"metadata": {"name": f"p{number}"}} for number in range(5)]
    (problem,) = summarize(RAY_CLUSTER, ray_cluster, related(pods=pods)).problems
    assert problem.message.endswith("waiting for a/b; pods that still exist: p0, p1, p2 and 2 more")
    assert problem.remedy.endswith("kubectl describe pod -n n p0")


@pytest.mark.parametrize(
    "kind", [RAY_CLUSTER, APPWRAPPER, FLUX_SETUP, FLUX_JOB, MINICLUSTER, INFERENCE_STACKS[1]]
)
def test_object_that_is_being_deleted_is_terminating_and_names_its_finalizers(kind: GVK) -> None:
    finished = [condition(name, "True", name) for name in ("JobFinished", "Ready", "Active")]
    status = {"phase": "Failed", "state": "failed", "conditions": finished}
    deleted = obj(kind, status=status, labels={"operatorVersion": "v2"})
    deleted["metadata"] |= {"deletionTimestamp": "2026-05-31T23:59:00Z", "finalizers": ["a/b"]}
    summary = summarize(kind, deleted, related())
    assert (summary.state, summary.fact("deletion")) == ("Terminating", "waits for a/b")
    assert summary.level in (Level.PROGRESSING, Level.WARNING)


def test_pods_that_end_are_terminating() -> None:
    pods = [pod("Running"), pod("Running"), pod("Succeeded")]
    for each in pods[1:]:
        each["metadata"]["deletionTimestamp"] = "2026-06-01T00:00:00Z"
    summary = summarize(RAY_CLUSTER, cluster(), related(pods=pods))
    assert summary.fact("pods") == "3 (1 running, 1 succeeded, 1 terminating)"


def test_timeline_of_an_appwrapper_ends_with_the_time_of_its_deletion() -> None:
    wrapper = obj(APPWRAPPER, status={"phase": "Running"})
    wrapper["metadata"]["deletionTimestamp"] = "2026-06-01T00:00:00Z"
    past_phases = VIEWS[APPWRAPPER].past_phases
    assert past_phases is not None
    (*_, last) = past_phases(summarize(APPWRAPPER, wrapper, related()))
    assert last == (milliseconds("2026-06-01T00:00:00Z"), "Terminating", "progressing")


def test_an_event_that_repeats_a_condition_is_no_further_problem() -> None:
    unhealthy = condition("Unhealthy", "True", "CreateFailed", "m" * 400)
    status = {"phase": "Failed", "conditions": [unhealthy]}
    repeated = {"reason": "Unhealthy", "message": f"CreateFailed: {'m' * 400}"}
    summary = summarize(APPWRAPPER, obj(APPWRAPPER, status=status), related(events=[repeated]))
    assert len(summary.problems) == 1


def test_failed_attempts_of_an_appwrapper_are_one_problem() -> None:
    def cause(attempt: int) -> str:
        return f"FoundFailedPods: 1 failed pods: j-{attempt} (container main: exit code 3)"

    events = [
        {
            "type": "Warning",
            "reason": "Unhealthy",
            "message": cause(attempt),
            "lastTimestamp": f"2026-01-01T0{attempt}Z",
        }
        for attempt in (2, 3, 1)
    ]
    unhealthy = condition(
        "Unhealthy", "True", "FoundFailedPods", f"{cause(3).partition(': ')[2]}; retry 3 of 3"
    )
    for conditions, expected in (
        ([unhealthy], f"{cause(3)}; retry 3 of 3"),
        ([], f"Unhealthy: {cause(3)}"),
    ):
        wrapper = obj(APPWRAPPER, status={"phase": "Resetting", "conditions": conditions})
        assert messages(summarize(APPWRAPPER, wrapper, related(events=events))) == [expected]


@pytest.mark.parametrize(
    ("phase", "suspend", "labels", "level"),
    [
        ("Running", False, {}, Level.OK),
        ("Succeeded", False, {}, Level.OK),
        ("Failed", False, {}, Level.FAILED),
        ("Resuming", False, {}, Level.PROGRESSING),
        ("Suspended", True, {}, Level.WAITING),
        ("Suspended", True, {"kueue.x-k8s.io/queue-name": "q"}, Level.WAITING),
        ("", False, {}, Level.PROGRESSING),
    ],
)
def test_level_of_an_appwrapper_follows_its_phase(
    phase: str, suspend: bool, labels: Any, level: Level
) -> None:
    wrapper = obj(APPWRAPPER, spec={"suspend": suspend}, status={"phase": phase}, labels=labels)
    summary = summarize(APPWRAPPER, wrapper)
    assert (summary.state, summary.level) == (phase, level)


def test_appwrapper_reports_why_a_component_cannot_be_created() -> None:
    errored = condition(
        "ResourcesDeployed", "False", "ComponentCreationErrored", "forbidden: quota"
    )
    status = {
        "phase": "Resuming",
        "resettingCount": 2,
        "conditions": [
            condition("QuotaReserved", "True"),
            condition("Unhealthy", "True", "CreateFailed", ""),
        ],
        "componentStatus": [
            {"kind": "Job", "name": "j", "conditions": [errored]},
            {
                "kind": "Service",
                "name": "s",
                "conditions": [condition("ResourcesDeployed", "True")],
            },
        ],
    }
    components = [{"template": {"kind": "Job"}}, {"template": {"kind": "Service"}}]
    summary = summarize(APPWRAPPER, obj(APPWRAPPER, spec={"components": components}, status=status))
    assert messages(summary) == ["CreateFailed", "Job j cannot be created: forbidden: quota"]
    assert dict(summary.facts) == {
        "components": "1 Job, 1 Service",
        "quota reserved": "yes",
        "retries": "2",
    }


@pytest.mark.parametrize("reason", ["FailedCreate", "FailedToCreateHeadPod"])
def test_remedy_for_containers_without_resources_names_a_limit_range(reason: str) -> None:
    refusal = "failed quota: compute: must specify limits.cpu for: create-cert,rbac-proxy"
    failed = cluster()
    failed["status"]["conditions"] = [
        condition("ReplicaFailure", "True", "FailedCreatePods", refusal)
    ]
    event = {
        "reason": reason,
        "message": refusal,
        "involvedObject": {"kind": "RayCluster", "name": "r"},
    }
    wrapper = obj(APPWRAPPER, status={"phase": "Resuming"})
    of_wrapper = summarize(APPWRAPPER, wrapper, related(created_events=[event]))
    for summary in (summarize(RAY_CLUSTER, failed), of_wrapper):
        (problem,) = summary.problems
        assert refusal in problem.message
        assert "LimitRange with defaults" in problem.remedy


@pytest.mark.parametrize(
    ("refusal", "remedy"),
    [
        ("exceeded quota: none", "raise the ResourceQuota"),
        ("maximum cpu usage per Container is 1, but limit is 2", "LimitRange"),
        ("minimum memory usage per Pod is 1Gi, but request is 1", "LimitRange"),
        (
            "cpu max limit to request ratio per Container is 2, but provided ratio is 4",
            "LimitRange",
        ),
        (
            "spec.containers[0].resources.requests: Invalid value: 2: must be less than or equal to cpu limit of 1",
            "LimitRange",
        ),
        ('violates PodSecurity "restricted:latest": runAsNonRoot != true', "securityContext"),
        ('pods is forbidden: User "u" cannot create resource "pods"', "permission"),
        (
            'error looking up service account n/s: serviceaccount "s" not found',
            "create the ServiceAccount",
        ),
        ("something else", "correct the pod template"),
    ],
)
def test_remedy_for_refused_pods_depends_on_the_cause(refusal: str, remedy: str) -> None:
    failed = cluster()
    failed["status"]["conditions"] = [
        condition("ReplicaFailure", "True", "FailedCreatePods", f'pods "p" is forbidden: {refusal}')
    ]
    if refusal.startswith("pods is"):
        failed["status"]["conditions"][0]["message"] = refusal
    (problem,) = summarize(RAY_CLUSTER, failed).problems
    assert remedy in problem.remedy
    assert ("create-cert" in problem.remedy) == (remedy == "securityContext")


@pytest.mark.parametrize(
    ("refusal", "remedy"),
    [
        ('violates PodSecurity "restricted:latest": runAsNonRoot != true', "securityProfile"),
        ("exceeded quota: none", "raise the ResourceQuota"),
        (
            'error looking up service account n/s: serviceaccount "s" not found',
            "create the ServiceAccount",
        ),
        ("something else", "quota or permission"),
    ],
)
@pytest.mark.parametrize("stalled", [False, True])
def test_remedy_for_refused_pods_of_a_stack_stays_when_the_rollout_stalls(
    refusal: str, remedy: str, *, stalled: bool
) -> None:
    reason = "FailedCreate"
    message = f'pods "p" is forbidden: {refusal}'
    if stalled:
        message = f"FailedCreate: {message}"
        reason = "RolloutStalled"
    conditions = [
        condition("Degraded", "True", reason, f"gateway: {reason}: {message}"),
        condition("GatewayReady", "False", reason, message),
    ]
    stack = obj(
        INFERENCE_STACKS[0],
        status={"conditions": conditions},
        labels={"operatorVersion": "v1"},
    )
    (problem,) = summarize(INFERENCE_STACKS[0], stack).problems
    assert problem.message == f"gateway: {reason}: {message}"
    assert remedy in problem.remedy


def ray_pod(name: str, image: str, reason: str, group: str = "headgroup") -> Object:
    waiting = {"state": {"waiting": {"reason": reason}}}
    return {
        "metadata": {"namespace": "n", "name": name, "labels": {"ray.io/group": group}},
        "spec": {"containers": [{"name": "ray", "image": image}]},
        "status": {"containerStatuses": [{"name": "ray", **waiting}]},
    }


@pytest.mark.parametrize(
    ("group", "image", "strategy", "remedy"),
    [
        ("headgroup", "old", {}, "kubectl delete pod -n n a b,"),
        ("headgroup", "new", {}, "check the name of the image"),
        ("headgroup", "old", {"type": "Recreate"}, "check the name of the image"),
        ("headgroup", "old", {"type": "None"}, "kubectl delete pod -n n a b,"),
        ("workers", "old", {}, "kubectl delete pod -n n a b,"),
        ("workers", "other", {}, "check the name of the image"),
        ("unknown", "old", {}, "check the name of the image"),
    ],
)
def test_pods_with_an_image_of_an_older_spec_have_to_be_deleted(
    group: str, image: str, strategy: Object, remedy: str
) -> None:
    def container(image: str) -> Object:
        return {"containers": [{"name": "ray", "image": image}]}

    workers = {"groupName": "workers", "template": {"spec": container("other")}}
    corrected = cluster(
        "", pod=container("new"), workerGroupSpecs=[workers], upgradeStrategy=strategy
    )
    pods = [ray_pod(name, image, "ImagePullBackOff", group) for name in ("a", "b")]
    (problem,) = summarize(RAY_CLUSTER, corrected, related(pods=pods)).problems
    assert problem.message.startswith("Pods a, b: container ray waits: ImagePullBackOff")
    assert remedy in problem.remedy


def test_command_for_many_pods_with_an_old_image_names_the_first() -> None:
    corrected = cluster("", pod={"containers": [{"name": "ray", "image": "new"}]})
    pods = [ray_pod(name, "old", "ErrImagePull") for name in "abcde"]
    (problem,) = summarize(RAY_CLUSTER, corrected, related(pods=pods)).problems
    assert "kubectl delete pod -n n a b c (and 2 more)," in problem.remedy


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("n" * 53, "KubeRay has not written a state since it was created"),
        ("n" * 54, "KubeRay ignores the RayCluster, because its name is longer than 53 characters"),
        ("9lives", "KubeRay ignores the RayCluster, because its name is not a DNS-1035 label"),
    ],
)
def test_raycluster_with_a_name_that_kuberay_does_not_accept_has_one_problem(
    name: str, problem: str
) -> None:
    ray_cluster = cluster()
    ray_cluster["metadata"] |= {"name": name, "creationTimestamp": "2026-05-01T00:00:00Z"}
    ray_cluster["status"] = {
        "conditions": [condition(EXPOSED, "False", "HostTooLong", "too long")] * (len(name) > 53)
    }
    (found,) = messages(summarize(RAY_CLUSTER, ray_cluster, related()))
    assert found.startswith(problem)


@pytest.mark.parametrize(
    ("applications", "gateway", "ready"),
    [("1/1", "False", "1/2"), ("1/1", "True", "2/2"), ("1/1", "", "1/1"), ("x", "True", "x")],
)
def test_gateway_counts_as_a_part_of_an_inferencestack(
    applications: str, gateway: str, ready: str
) -> None:
    conditions = [condition("GatewayReady", gateway)] if gateway else []
    status = {"readyApplications": applications, "conditions": conditions}
    assert summarize(INFERENCE_STACKS[0], obj(INFERENCE_STACKS[0], status=status)).ready == ready


def running_pod(name: str, **resources: str) -> Object:
    container = {"name": "ray", "image": "ray", "resources": {"requests": resources}}
    return {
        "metadata": {"namespace": "n", "name": name, "labels": {"ray.io/group": "headgroup"}},
        "spec": {"containers": [container]},
        "status": {"phase": "Running", "conditions": [condition("Ready", "True")]},
    }


def test_pods_that_run_with_an_older_spec_are_a_warning() -> None:
    changed = cluster(pod=running_pod("", cpu="2")["spec"])
    pods = [running_pod("a", cpu="1"), running_pod("b", cpu="2"), running_pod("c", cpu="1")]
    summary = summarize(RAY_CLUSTER, changed, related(pods=pods))
    assert (summary.level, messages(summary)) == (
        Level.WARNING,
        ["Pods are older than the spec: a, c (changed since: resources of container ray)"],
    )
    assert "kubectl delete pod -n n a c, or create the RayCluster" in summary.problems[0].remedy
    deleted = running_pod("a", cpu="1")
    deleted["metadata"]["deletionTimestamp"] = "2026-06-01T00:00:00Z"
    ended = {**running_pod("b", cpu="1"), "status": {"phase": "Failed"}}
    ignored = [deleted, ended, running_pod("c", cpu="2")]
    assert summarize(RAY_CLUSTER, changed, related(pods=ignored)).problems == ()
    changed["spec"]["upgradeStrategy"] = {"type": "Recreate"}
    assert summarize(RAY_CLUSTER, changed, related(pods=pods)).level is Level.OK


def test_pods_that_cannot_be_scheduled_have_to_be_deleted_after_a_change_of_the_spec() -> None:
    pending = running_pod("a", cpu="9")
    unschedulable = condition("PodScheduled", "False", "Unschedulable", "Insufficient cpu")
    pending["status"] = {"phase": "Pending", "conditions": [unschedulable]}
    before = cluster("", pod=pending["spec"])
    (problem,) = summarize(RAY_CLUSTER, before, related(pods=[pending])).problems
    assert problem.remedy.startswith("request less")
    assert "after a change of the spec, delete the pods" in problem.remedy
    after = cluster("", pod=running_pod("", cpu="1")["spec"])
    (problem,) = summarize(RAY_CLUSTER, after, related(pods=[pending])).problems
    assert problem.message == "Pod a: cannot be scheduled: Insufficient cpu"
    assert "kubectl delete pod -n n a, or create the RayCluster again" in problem.remedy
    after["metadata"]["ownerReferences"] = [
        {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "j", "uid": "u", "controller": True}
    ]
    (problem,) = summarize(RAY_CLUSTER, after, related(pods=[pending])).problems
    assert problem.remedy.endswith("or create the RayJob again")


@pytest.mark.parametrize(
    ("created", "is_problem"),
    [
        (["2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"], True),
        (["2026-01-03T00:00:00Z", "2026-01-01T00:00:00Z"], True),
        (["2026-01-03T00:00:00Z", "2026-01-03T00:00:00Z"], False),
    ],
)
@pytest.mark.parametrize("ready", ["2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z"])
def test_replaced_ca_is_a_problem_until_all_pods_are_younger(
    created: list[str], ready: str, *, is_problem: bool
) -> None:
    ray_cluster = cluster()
    ray_cluster["status"]["stateTransitionTimes"] = {"ready": ready}
    pods = []
    for time in created:
        running = pod("Running")
        running["metadata"]["creationTimestamp"] = time
        pods.append(running)
    events = [event("CertificateAuthorityReplaced", "2026-01-02T00:00:00Z")]
    summary = summarize(RAY_CLUSTER, ray_cluster, related(events=events, pods=pods))
    remedies = [problem.remedy for problem in summary.problems]
    assert len(remedies) == is_problem
    assert all("kubectl delete pod -n n -l ray.io/cluster=x" in each for each in remedies)


def test_ignored_annotations_of_an_appwrapper_are_problems() -> None:
    message = (
        "Suspend is false; annotation p/retryLimit: 'three': must be an integer; 3 is used; "
        "annotation p/retrylimit: unknown, so it is ignored"
    )
    deployed = condition("ResourcesDeployed", "True", "Resuming", message)
    wrapper = obj(APPWRAPPER, status={"phase": "Succeeded", "conditions": [deployed]})
    summary = summarize(APPWRAPPER, wrapper, related(events=[event("MalformedAnnotations", "")]))
    assert summary.level is Level.WARNING
    assert messages(summary) == [
        "annotation p/retryLimit: 'three': must be an integer; 3 is used",
        "annotation p/retrylimit: unknown, so it is ignored",
    ]
    assert {problem.remedy for problem in summary.problems} == {"correct or remove the annotation"}


def test_component_with_a_taken_name_is_one_problem_of_a_failed_appwrapper() -> None:
    taken = condition("ResourcesDeployed", "False", "ComponentCreationErrored", NOT_OURS)
    status = {
        "phase": "Failed",
        "conditions": [
            condition("Unhealthy", "True", "CreateFailed", f"error creating components: {NOT_OURS}")
        ],
        "componentStatus": [{"kind": "Job", "name": "j", "conditions": [taken]}],
    }
    (problem,) = summarize(APPWRAPPER, obj(APPWRAPPER, status=status)).problems
    assert "rename the component" in problem.remedy


@pytest.mark.parametrize(
    ("reason", "message", "remedy"),
    [
        ("ImagePullBackOff", "container server waits", "check the name of the image"),
        ("FailedCreate", 'pods "{}" is forbidden: violates PodSecurity "x"', "securityProfile"),
        ("FailedCreate", 'pods "{}" is forbidden: exceeded quota: none', "ResourceQuota"),
        (
            "FailedCreate",
            'Pod "{}" is invalid: a.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
            "LimitRange",
        ),
    ],
)
def test_cause_of_several_components_of_a_stack_is_one_problem(
    reason: str, message: str, remedy: str
) -> None:
    of_gateway = message.format("gateway-1")
    of_chat = message.format("chat-1")
    degraded = f"gateway: {reason}: {of_gateway}; application chat: {reason}: {of_chat}"
    status = {
        "conditions": [
            condition("Degraded", "True", reason, degraded),
            condition("GatewayReady", "False", reason, of_gateway),
        ],
        "applications": [
            {"name": "chat", "state": "Failed", "reason": reason, "message": of_chat},
            {"name": "other", "state": "Progressing", "reason": "RollingOut", "message": "new"},
        ],
    }
    stack = obj(INFERENCE_STACKS[1], status=status, labels={"operatorVersion": "v2"})
    (problem,) = summarize(INFERENCE_STACKS[1], stack).problems
    assert problem.message == f"gateway, application chat: {reason}: {of_gateway}"
    assert remedy in problem.remedy


def test_minicluster_that_waits_for_kueue_waits() -> None:
    waits = condition("JobWaitingForResources", "True", message="until Kueue admits it")
    summary = summarize(MINICLUSTER, obj(MINICLUSTER, status={"conditions": [waits]}))
    assert (summary.level, summary.pending, messages(summary)) == (Level.WAITING, "", [])


NO_LIMITS = 'pods "p" is forbidden: failed quota: compute: must specify limits.cpu for: main'
NOT_CREATED = condition("ResourcesDeployed", "False", "ComponentCreationErrored", NO_LIMITS)
POD_REFUSED = condition("PodsReady", "False", "X", f"A pod cannot start: FailedCreate: {NO_LIMITS}")


@pytest.mark.parametrize(
    ("kind", "status", "has_event"),
    [
        (APPWRAPPER, {"componentStatus": [{"conditions": [NOT_CREATED]}]}, False),
        (APPWRAPPER, {"phase": "Resuming"}, True),
        (APPWRAPPER, {"phase": "Running", "conditions": [POD_REFUSED]}, False),
        (FLUX_JOB, {"conditions": [condition("PodsReady", "False", "Refused", NO_LIMITS)]}, False),
        (MINICLUSTER, {"conditions": [condition("Valid", "False", "Invalid", NO_LIMITS)]}, False),
        (INFERENCE_STACKS[1], {"applications": [{"state": "Failed", "message": NO_LIMITS}]}, False),
        (
            INFERENCE_STACKS[1],
            {"conditions": [condition("Degraded", "True", "R", NO_LIMITS)]},
            False,
        ),
    ],
)
def test_remedy_for_missing_limits_is_the_same_wherever_the_refusal_is_found(
    kind: GVK, status: Object, *, has_event: bool
) -> None:
    created = {"reason": "FailedCreate", "message": NO_LIMITS, "involvedObject": {"kind": "Job"}}
    events = [created] if has_event else []
    labels = {"operatorVersion": "v2"}
    found = obj(kind, labels=labels, status=status)
    summary = summarize(kind, found, related(created_events=events))
    remedies = [each.remedy for each in summary.problems if NO_LIMITS in each.message]
    assert len(remedies) == 1
    assert "LimitRange with defaults" in remedies[0]


VIOLATION = 'pods "p" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false'


@pytest.mark.parametrize(
    ("kind", "message", "remedy"),
    [
        (FLUX_JOB, VIOLATION, "template.flux.container"),
        (MINICLUSTER, VIOLATION, "from which flux-view gets them"),
        (FLUX_JOB, NO_LIMITS, "those of flux-view in resources of flux.container"),
        (FLUX_JOB, "exceeded quota: none", "raise the ResourceQuota"),
    ],
)
@pytest.mark.parametrize("source", ["condition", "event"])
def test_remedy_for_refused_pods_of_flux_names_the_fields_and_what_to_create_again(
    kind: GVK, message: str, remedy: str, source: str
) -> None:
    reason = "Starting" if source == "event" else "PodsMissing"
    conditions = [condition("PodsReady", "False", reason, message)]
    events = [
        {"reason": "FailedCreate", "message": message, "involvedObject": {"kind": "Job"}},
    ]
    created = events if source == "event" else []
    found = obj(kind, status={"miniCluster": "x", "conditions": conditions})
    (problem,) = summarize(kind, found, related(created_events=created)).problems
    assert remedy in problem.remedy
    assert problem.remedy.partition("; to change the spec, ")[2].startswith(
        f"delete the {kind.kind} "
    )


@pytest.mark.parametrize(("owner", "named"), [("FluxJob", "delete the FluxJob "), ("Other", "")])
def test_remedy_of_a_minicluster_names_the_fluxjob_that_controls_it(owner: str, named: str) -> None:
    conditions = [condition("PodsReady", "False", "ImagePullBackOff", "not found")]
    reference = {"controller": True, "kind": owner, "name": "x", "uid": "u"}
    found = obj(MINICLUSTER, ownerReferences=[reference], status={"conditions": conditions})
    (problem,) = summarize(MINICLUSTER, found).problems
    assert named in problem.remedy
    assert ("delete the " in problem.remedy) == bool(named)


@pytest.mark.parametrize("field", ["events", "created_events"])
def test_prefix_of_combined_events_is_not_shown(field: str) -> None:
    combined = event("FailedCreate", "2026-01-01T00:00:10Z")
    combined["message"] = f"(combined from similar events): {combined['message']}"
    combined["involvedObject"] = {"kind": "Job", "name": "x"}
    conditions = [condition("PodsReady", "False", "Starting")]
    found = obj(FLUX_JOB, status={"miniCluster": "x", "conditions": conditions})
    (message,) = messages(summarize(FLUX_JOB, found, related(**{field: [combined]})))
    assert message.endswith("FailedCreate: why")
    assert "combined" not in message


def test_reason_of_missing_pods_is_a_problem_unless_an_event_has_it() -> None:
    refusal = 'Job j: pods "j-x" is forbidden: exceeded quota: none, requested: pods=1'
    ready = condition(
        "PodsReady",
        "False",
        "InsufficientPodsReady",
        f"A pod cannot start: FailedCreate: {refusal}",
    )
    wrapper = obj(APPWRAPPER, status={"phase": "Running", "conditions": [ready]})
    (problem,) = summarize(APPWRAPPER, wrapper, related()).problems
    assert problem.message == f"FailedCreate: {refusal}"
    assert "ResourceQuota" in problem.remedy
    event = {
        "reason": "FailedCreate",
        "message": "Error creating: exceeded quota: none",
        "involvedObject": {"kind": "Job", "name": "j"},
    }
    assert messages(summarize(APPWRAPPER, wrapper, related(created_events=[event]))) == [
        "Job j: FailedCreate: Error creating: exceeded quota: none"
    ]


NOT_OURS = "resource j exists, but is not controlled by appwrapper"
AGAIN = "again with another name"


@pytest.mark.parametrize(
    ("kind", "found", "remedy"),
    [
        (FLUX_JOB, condition("QuotaReserved", "False", "NameTaken"), AGAIN),
        (FLUX_JOB, condition("ObjectsReady", "False", "FailedToWrite"), "correct the spec"),
        (MINICLUSTER, condition("ObjectsReady", "False", "NameTaken"), AGAIN),
        (MINICLUSTER, condition("ObjectsReady", "False", "Deleting"), "wait"),
        (RAY_CLUSTER, condition(EXPOSED, "False", "NameTaken"), AGAIN),
        (INFERENCE_STACKS[1], condition("Degraded", "True", "NameTaken"), AGAIN),
        (INFERENCE_STACKS[1], condition("Degraded", "True", "HostNotFree"), "set another host"),
        (INFERENCE_STACKS[1], condition("Degraded", "True", "Deleting"), "wait"),
        (APPWRAPPER, condition("Unhealthy", "True", "CreateFailed", NOT_OURS), "rename the"),
    ],
)
def test_remedy_for_a_taken_name_fits_the_kind(kind: GVK, found: Object, remedy: str) -> None:
    one = obj(kind, status={"conditions": [found]}, labels={"operatorVersion": "v2"})
    remedies = [problem.remedy for problem in summarize(kind, one).problems]
    assert len(remedies) == 1
    assert remedy in remedies[0]


def test_remedy_for_a_component_with_a_taken_name_is_not_a_quota() -> None:
    taken = condition("ResourcesDeployed", "False", "ComponentCreationErrored", NOT_OURS)
    wrapper = obj(APPWRAPPER, status={"componentStatus": [{"name": "j", "conditions": [taken]}]})
    (problem,) = summarize(APPWRAPPER, wrapper).problems
    assert "rename the component" in problem.remedy
    assert "quota" not in problem.remedy


@pytest.mark.parametrize(
    ("reason", "events", "remedy"),
    [
        ("Unclaimed", [event("Unclaimed", "", "It. Running: v1, v2.")], "that runs: v1, v2"),
        ("Unclaimed", [event("Unclaimed", "", "Run: evil.")], "the administrator knows it"),
        ("Unclaimed", [], "the administrator knows it"),
        ("ClaimedTwice", [], "remove all but one of these operators"),
    ],
)
def test_remedy_for_a_stack_without_one_operator_names_no_version_of_its_own(
    reason: str, events: list[Object], remedy: str
) -> None:
    conditions = [condition("Claimed", "False", reason)]
    labels = {"operatorVersion": "v9"}
    stack = obj(INFERENCE_STACKS[1], status={"conditions": conditions}, labels=labels)
    (problem,) = summarize(INFERENCE_STACKS[1], stack, related(events=events)).problems
    assert remedy in problem.remedy


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_dropped_fields_of_a_component_are_a_problem_of_its_appwrapper(phase: str) -> None:
    dropped = condition("UnknownFields", "True", "FieldsDropped", 'unknown field "spec.paralelism"')
    component = {"kind": "Job", "name": "j", "conditions": [dropped]}
    wrapper = obj(APPWRAPPER, status={"phase": phase, "componentStatus": [component]})
    event = {"type": "Warning", "reason": "ComponentWarning", "message": "other words"}
    summary = summarize(APPWRAPPER, wrapper, related(events=[event]))
    assert summary.level is Level.WARNING
    assert messages(summary) == [
        'Job j was created without fields that its kind does not have: unknown field "spec.paralelism"'
    ]


def pod(phase: str, name: str = "p", **status: Any) -> Object:
    return {"metadata": {"name": name}, "status": {"phase": phase, **status}}


def running_wrapper(reason: str, message: str, status: str = "False", replicas: int = 1) -> Object:
    component = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "j",
        "podSets": [{"replicas": replicas}],
    }
    conditions = [
        condition("ResourcesDeployed", "True"),
        condition("PodsReady", status, reason, message),
    ]
    fields = {"phase": "Running", "conditions": conditions, "componentStatus": [component]}
    return obj(APPWRAPPER, spec={"components": [{"template": {"kind": "Job"}}]}, status=fields)


@pytest.mark.parametrize(
    ("managed_by", "ready"), [("kueue.x-k8s.io/multikueue", "1/1"), (None, "0/1")]
)
def test_appwrapper_that_multikueue_runs_elsewhere_is_as_ready_as_it_reports(
    managed_by: str | None, ready: str
) -> None:
    template = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c"}]}}
    component = {"podSets": [{"path": "template", "replicas": 1}]}
    condition = {"type": "PodsReady", "status": "True", "reason": "SufficientPodsReady"}
    wrapper = obj(
        APPWRAPPER,
        spec={"managedBy": managed_by, "components": [{"template": template}]},
        status={"phase": "Running", "conditions": [condition], "componentStatus": [component]},
    )
    summary = summarize(APPWRAPPER, wrapper, related(pods=[]))
    assert (summary.ready, summary.level) == (ready, Level.OK)
    assert bool(summary.fact("pods")) is (managed_by is None)


def test_pods_of_an_appwrapper_are_counted_as_pods() -> None:
    pending = summarize(
        APPWRAPPER, running_wrapper("Resuming", "Suspend is false"), related(pods=[pod("Pending")])
    )
    assert (pending.state, pending.level, pending.ready) == ("Running", Level.PROGRESSING, "0/1")
    assert pending.fact("pods") == "1 (1 pending)"
    assert "Suspend is false" not in dict(pending.facts).values()
    ready = pod("Running", conditions=[condition("Ready", "True")])
    wrapper = running_wrapper("SufficientPodsReady", "2 pods running", "True", replicas=3)
    found = summarize(APPWRAPPER, wrapper, related(pods=[ready, pod("Succeeded"), pod("Running")]))
    assert (found.level, found.ready, found.fact("pods")) == (
        Level.OK,
        "2/3",
        "3 (2 running, 1 succeeded)",
    )
    assert (
        summarize(APPWRAPPER, wrapper).ready == "3/3"
    )  # who cannot read pods relies on the condition


def test_cause_of_pods_that_do_not_start_is_to_be_corrected() -> None:
    status = {
        "phase": "Resetting",
        "conditions": [condition("Unhealthy", "True", "InsufficientPodsReady", "1 pending")],
    }
    pending = {"metadata": {"namespace": "n", "name": "a"}, "status": {"phase": "Pending"}}
    for pods in ([pending], []):  # a pod that did not start has no log to be kept
        (problem,) = summarize(
            APPWRAPPER, obj(APPWRAPPER, status=status), related(pods=pods)
        ).problems
        assert problem.remedy.startswith(
            "correct what the pods wait for; to change a component, delete the AppWrapper and create it again; "
        )


def test_cause_of_a_retry_comes_first_and_its_remedy_agrees_with_the_retry() -> None:
    message = "0 pods running; 1 pods missing (FailedCreate: exceeded quota: none)"
    deleted = "Resources deleted; next attempt at 2026-06-01 00:01:30 UTC"
    status = {
        "phase": "Resetting",
        "conditions": [
            condition("Unhealthy", "True", "InsufficientPodsReady", message),
            condition("ResourcesDeployed", "False", "Resetting", deleted),
        ],
    }
    event = {
        "reason": "FailedCreate",
        "message": "Error creating: exceeded quota: none",
        "involvedObject": {"kind": "Job", "name": "j"},
    }
    wrapper = obj(APPWRAPPER, status=status)
    first, second = summarize(APPWRAPPER, wrapper, related(created_events=[event])).problems
    assert first.message.startswith("Job j: FailedCreate: ")
    assert first.remedy.endswith("delete the AppWrapper and create it again")
    assert second.message.startswith("InsufficientPodsReady: ")
    assert second.remedy.startswith("the next attempt is at 2026-06-01 00:01:30 UTC; request less")
    assert "wait" not in second.remedy


def test_remedy_for_pods_of_an_appwrapper_names_how_to_change_a_component() -> None:
    waiting = condition("PodScheduled", "False", "Unschedulable", "Insufficient cpu")
    pending = {
        "metadata": {"namespace": "n", "name": "a"},
        "status": {"phase": "Pending", "conditions": [waiting]},
    }
    wrapper = obj(APPWRAPPER, status={"phase": "Resuming"})
    (problem,) = summarize(APPWRAPPER, wrapper, related(pods=[pending])).problems
    assert problem.remedy.startswith("request less")
    assert "to change a component, delete the AppWrapper" in problem.remedy


def test_remedy_of_a_failed_container_is_a_command_that_shows_its_log() -> None:
    waiting = {
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 3}},
    }
    ended = {"state": {"terminated": {"exitCode": 4}}}
    pods = [
        {
            "metadata": {"namespace": "n", "name": name},
            "status": {"containerStatuses": [{"name": "r", **state}]},
        }
        for name, state in {"a": waiting, "b": waiting, "c": ended}.items()
    ]
    command = "read the log: kubectl logs -c r"
    assert [problem.remedy for problem in pod_problems(pods)] == [
        f"{command} --previous -n NAMESPACE a",
        f"{command} --previous -n NAMESPACE a",
        f"{command} -n NAMESPACE c",
    ]


def test_job_that_exceeded_its_deadline_has_the_remedy_to_increase_it() -> None:
    cause = "Found 1 failed components: Job j (DeadlineExceeded: Job was active longer)"
    status = {
        "phase": "Failed",
        "conditions": [condition("Unhealthy", "True", "FailedComponent", cause)],
    }
    (problem,) = summarize(APPWRAPPER, obj(APPWRAPPER, status=status), related()).problems
    assert problem.message == f"FailedComponent: {cause}"
    assert problem.remedy.startswith("increase the component's deadline (activeDeadlineSeconds)")


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("Suspended", []),
        ("Preempted", ["Evicted: message"]),
        ("StartTimeout", ["StartTimeout: message"]),
    ],
)
def test_flux_job_that_its_user_suspended_has_no_problem(reason: str, expected: list[str]) -> None:
    conditions = [
        condition("JobWaitingForResources", "True", "JobWaitingForResources"),
        condition("QuotaReserved", "False", reason),
        condition("Evicted", "True", reason),
    ]
    summary = summarize(FLUX_JOB, obj(FLUX_JOB, status={"conditions": conditions}))
    assert messages(summary) == expected


def test_deadline_of_a_flux_job_is_one_problem() -> None:
    """The Event of the Job has the same cause as the condition."""
    cause = "Job was active longer than specified deadline"
    conditions = [
        condition("JobFinished", "True"),
        condition("Succeeded", "False", "DeadlineExceeded", f"The Job failed: {cause}"),
    ]
    event = {
        "reason": "DeadlineExceeded",
        "message": cause,
        "involvedObject": {"kind": "Job", "name": "j"},
    }
    for kind in (FLUX_JOB, MINICLUSTER):
        job = obj(kind, status={"miniCluster": "j", "conditions": conditions})
        summary = summarize(kind, job, related(created_events=[event]))
        assert messages(summary) == [f"The Job failed: {cause}"]


def test_remedy_of_a_failure_does_not_name_an_annotation_that_is_set() -> None:
    annotation = "workload.codeflare.dev.appwrapper/deletionOnFailureGracePeriodDuration"
    conditions = [condition("Unhealthy", "True", "FoundFailedPods", "1 failed pods: p")]
    status = {"phase": "Failed", "conditions": conditions}
    wrapper = obj(APPWRAPPER, status=status, annotations={annotation: "30m"})
    (problem,) = summarize(APPWRAPPER, wrapper, related(pods=[pod("Failed")])).problems
    assert problem.remedy == (
        f"kubectl logs -n n p; the pods of the last attempt are kept for 30m, as {annotation} says "
        '(with workload.codeflare.dev.appwrapper/retryLimit: "0", those of the first)'
    )


@pytest.mark.parametrize(
    ("job", "succeeded", "ready"),
    [
        ({"parallelism": 2, "completions": 4}, 3, "3/4"),
        ({"parallelism": 2, "completions": 4}, 4, "4/4"),
        ({"parallelism": 2}, 3, "2/2"),
    ],
)
def test_pods_that_a_job_replaces_count_until_it_is_complete(
    job: dict[str, int], succeeded: int, ready: str
) -> None:
    template = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {**job, "template": {"spec": {"containers": [{"name": "c"}]}}},
    }
    component = {"podSets": [{"path": "template.spec.template", "replicas": 2}]}
    wrapper = obj(
        APPWRAPPER,
        spec={"components": [{"template": template}]},
        status={"phase": "Running", "componentStatus": [component]},
    )
    pods = [pod("Succeeded", f"p{number}") for number in range(succeeded)]
    assert summarize(APPWRAPPER, wrapper, related(pods=pods)).ready == ready


@pytest.mark.parametrize(
    ("message", "shown"), [("", "Suspended"), ("spec.suspend", "Suspended: spec.suspend")]
)
def test_gateway_of_a_suspended_stack_shows_its_reason(message: str, shown: str) -> None:
    conditions = [condition("GatewayReady", "False", "Suspended", message)]
    stack = obj(INFERENCE_STACKS[0], status={"conditions": conditions})
    assert summarize(INFERENCE_STACKS[0], stack).fact("gateway") == shown


def test_failed_job_shows_its_next_attempt_and_how_to_keep_its_pods() -> None:
    cause = "Found 1 failed components: Job j; 1 failed pods: j-x (container main: exit code 3); retry 1 of 3"
    deleted = "Resources deleted for resetting AppWrapper; next attempt at 2026-06-01 00:01:30 UTC"
    status = {
        "phase": "Resetting",
        "conditions": [
            condition("Unhealthy", "True", "FailedComponent", cause),
            condition("ResourcesDeployed", "False", "Resetting", deleted),
        ],
    }
    (problem,) = summarize(APPWRAPPER, obj(APPWRAPPER, status=status), related()).problems
    assert problem.message == f"FailedComponent: {cause}"
    assert problem.remedy.startswith(
        "the next attempt is at 2026-06-01 00:01:30 UTC; to keep the pods"
    )
    assert "deletionOnFailureGracePeriodDuration: 1h" in problem.remedy
    status["phase"] = "Failed"
    failed = summarize(
        APPWRAPPER,
        obj(APPWRAPPER, status=status),
        related(pods=[pod("Failed", "j-x"), pod("Running")]),
    )
    assert failed.problems[0].remedy.startswith("kubectl logs -n n j-x; ")


@pytest.mark.parametrize(
    ("state", "pending"),
    [("Running", "is Running"), ("", "is new"), ("Failed", ""), ("Succeeded", "")],
)
def test_appwrapper_has_settled_when_it_has_ended(state: str, pending: str) -> None:
    assert summarize(APPWRAPPER, obj(APPWRAPPER, status={"phase": state})).pending == pending


@pytest.mark.parametrize(
    ("kind", "ready", "pending"),
    [
        (GVK("ray.io", "v1", "RayCluster"), "True", ""),
        (GVK("apps", "v1", "Deployment"), "True", ""),
        (GVK("apps", "v1", "Deployment"), "False", "is Running"),
        (GVK("batch", "v1", "Job"), "True", "is Running"),
    ],
)
def test_appwrapper_that_never_ends_has_settled_when_its_pods_are_ready(
    kind: GVK, ready: str, pending: str
) -> None:
    template = {"apiVersion": kind.api_version, "kind": kind.kind}
    status = {"phase": "Running", "conditions": [condition("PodsReady", ready)]}
    wrapper = obj(APPWRAPPER, spec={"components": [{"template": template}]}, status=status)
    assert summarize(APPWRAPPER, wrapper).pending == pending


def test_raycluster_has_settled_when_it_is_exposed_and_protected() -> None:
    ray_cluster, nothing = cluster(pod=TLS_HEAD), {INGRESS: [], NETWORK_POLICY: [], SECRET: []}
    pending = summarize(RAY_CLUSTER, ray_cluster, related(children=nothing)).pending
    assert pending.startswith("is missing NetworkPolicy ")
    assert pending.endswith(
        ", an address of the dashboard, an address of the client, Secret ca-secret-x"
    )
    assert summarize(RAY_CLUSTER, ray_cluster, related()).pending == ""  # nothing of it can be read
    suspended = cluster("suspended", pod=TLS_HEAD, suspend=True)
    assert summarize(RAY_CLUSTER, suspended, related(children=nothing)).pending == ""


def test_client_behind_a_gateway_is_shown_with_what_the_gateway_reports() -> None:
    parent = {"name": "shared", "sectionName": "ray-client", "port": 8443}
    rejected = {
        **condition("Accepted", "False", "NotAllowedByListeners", "no"),
        "observedGeneration": 1,
    }
    route = obj(
        TLS_ROUTES[0],
        spec={"parentRefs": [parent], "hostnames": ["c.example.com"]},
        status={"parents": [{"parentRef": parent, "conditions": [rejected]}]},
        name="rayclient-x",
        generation=1,
    )
    summary = summarize(RAY_CLUSTER, cluster(), related(children={TLS_ROUTES[0]: [route]}))
    assert summary.fact("ray client") == "ray://c.example.com:8443"
    assert "The Gateway shared, listener ray-client does not accept the TLSRoute: no" in messages(
        summary
    )


def test_pods_and_children_are_shown_with_commands_for_the_logs() -> None:
    containers = [
        {"name": "a", "ready": True, "restartCount": 2},
        {"name": "b", "ready": False, "restartCount": 1},
    ]
    running = obj(POD, name="w-0", status={"phase": "Running", "containerStatuses": containers})
    pods = [running, *(obj(POD, name=f"w-{number}") for number in range(1, 27))]
    children = {
        NETWORK_POLICY: [obj(NETWORK_POLICY, name="c-head"), obj(NETWORK_POLICY, name="c-workers")],
        SECRET: [],
    }
    view, key = VIEWS[RAY_CLUSTER], NamespacedName("team;rm", "c")
    shown = related_objects(view, key, Related(pods=pods, children=children))
    assert shown["Pods"][0] == ("w-0", "Running, 1/2 ready, 3 restarts")
    assert shown["Pods"][1] == ("w-1", "new")
    assert (len(shown["Pods"]), shown["Pods"][-1]) == (26, ("and 2 more", ""))
    assert shown["Children"] == [("NetworkPolicy", "c-head, c-workers")]
    assert [command for _, command in shown["Commands"]] == [
        "kubectl get pods --namespace 'team;rm' --selector ray.io/cluster=c",
        "kubectl logs --namespace 'team;rm' --selector ray.io/cluster=c --all-containers --prefix --tail 100",
    ]
    assert related_objects(view, key, Related(pods=[]))["Commands"] == []


def test_details_contain_each_text_once() -> None:
    conditions = [
        condition(kind, "True", "Resuming", "Suspend is false") for kind in ("A", "B", "C")
    ]
    status = {
        "phase": "Failed",
        "conditions": [*conditions, condition("Unhealthy", "True", "CreateFailed", "refused")],
    }
    event = {"reason": "Unhealthy", "message": "CreateFailed: refused"}
    details = summarize(
        APPWRAPPER, obj(APPWRAPPER, status=status), related(events=[event])
    ).details()
    assert details == {
        "Conditions": [
            ("A: True", "Resuming: Suspend is false"),
            ("B: True", "Resuming"),
            ("C: True", "Resuming"),
            ("Unhealthy: True", "CreateFailed"),
        ],
        "Warning Events": [("Unhealthy", "")],
    }


def test_event_that_a_condition_repeats_with_more_detail_is_one_problem() -> None:
    status = {
        "phase": "Failed",
        "conditions": [
            condition(
                "Unhealthy", "True", "FoundFailedPods", "1 failed pods: a (exit 3); retry limit 0"
            )
        ],
    }
    wrapper = obj(APPWRAPPER, status=status)
    event = {
        "metadata": {"name": "e"},
        "type": "Warning",
        "reason": "Unhealthy",
        "message": "FoundFailedPods: 1 failed pods: a (exit 3)",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    summary = summarize(APPWRAPPER, wrapper, related(events=[event]))
    assert messages(summary) == ["FoundFailedPods: 1 failed pods: a (exit 3); retry limit 0"]
    assert len(summary.warnings) == 1


def test_fluxsetup_shows_used_and_total_quota() -> None:
    status = {
        "conditions": [condition("Active", "True", "Ready")],
        "usedResources": 12,
        "admittedWorkloads": 3,
        "pendingWorkloads": 4,
    }
    summary = summarize(FLUX_SETUP, obj(FLUX_SETUP, spec={"max-size": 20}, status=status))
    assert (summary.state, summary.level, summary.ready) == ("Active", Level.OK, "12/20")
    assert (summary.fact("quota"), summary.fact("jobs")) == (
        "12 of 20 pods used",
        "3 admitted, 4 waiting",
    )
    status["conditions"] = [condition("Active", "False", "Replaced", "FluxSetup n/y is newer")]
    summary = summarize(FLUX_SETUP, obj(FLUX_SETUP, status=status))
    assert (summary.state, summary.level) == ("Replaced", Level.WARNING)


@pytest.mark.parametrize(
    ("conditions", "state", "level", "problems"),
    [
        ([condition("JobRequested", "True")], "JobRequested", Level.PROGRESSING, []),
        ([condition("JobRunning", "True")], "JobRunning", Level.OK, []),
        (
            [condition("JobFinished", "True"), condition("Succeeded", "True")],
            "JobFinished",
            Level.OK,
            [],
        ),
        (
            [
                condition("JobFinished", "True"),
                condition("Succeeded", "False", "Failed", "exit code 1"),
            ],
            "JobFinished",
            Level.FAILED,
            ["exit code 1"],
        ),
        (
            [
                condition("JobRequested", "True"),
                condition("QuotaReserved", "False", "TooLarge", "needs 9 pods"),
            ],
            "JobRequested",
            Level.WARNING,
            ["TooLarge: needs 9 pods"],
        ),
        (
            [
                condition("JobRequested", "True"),
                condition("QuotaReserved", "False", "InsufficientQuota"),
            ],
            "JobRequested",
            Level.WAITING,
            [],
        ),
        (
            [condition("Valid", "False", "Invalid", "spec.size")],
            "",
            Level.WARNING,
            ["Invalid: spec.size"],
        ),
    ],
)
def test_fluxjob_shows_its_state_and_why_it_does_not_run(
    conditions: Any, state: str, level: Level, problems: list[str]
) -> None:
    summary = summarize(FLUX_JOB, obj(FLUX_JOB, status={"conditions": conditions, "position": 4}))
    assert (summary.state, summary.level, messages(summary)) == (state, level, problems)
    assert summary.fact("position") == "4 in the queue"


OLD = "2026-05-31T23:59:00Z"


@pytest.mark.parametrize(
    ("gvk", "setting"), [(APPWRAPPER, "appwrapper.enabled"), (FLUX_JOB, "flux.enabled")]
)
def test_remedy_names_the_setting_that_enables_the_kind(gvk: GVK, setting: str) -> None:
    (problem,) = summarize(gvk, obj(gvk, creationTimestamp=OLD), related()).problems
    assert problem.remedy == (
        "check that the CodeFlare operator runs and may read this namespace: cfo doctor; and that in its configuration "
        f"{setting} is true (the default is false), and watchNamespaces and labelSelector include the object"
    )


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (obj(FLUX_JOB, creationTimestamp=OLD), "the CodeFlare operator has not written a state"),
        (obj(RAY_CLUSTER, creationTimestamp=OLD), "KubeRay has not written a state"),
        *(
            (obj(gvk, creationTimestamp=OLD, spec={"suspend": True}), f"{operator} has not written")
            for gvk, operator in (
                (APPWRAPPER, "the CodeFlare operator"),
                (FLUX_JOB, "the CodeFlare operator"),
                (MINICLUSTER, "the CodeFlare operator"),
                (RAY_CLUSTER, "KubeRay"),
            )
        ),
        (
            obj(RAY_CLUSTER, creationTimestamp=OLD, spec={"managedBy": "example.com/other"}),
            "spec.managedBy is example.com/other",
        ),
        (
            obj(INFERENCE_STACKS[0], creationTimestamp=OLD, labels={"operatorVersion": "v9"}),
            "operatorVersion v9: no operator of this version has written a status",
        ),
        (
            obj(
                INFERENCE_STACKS[0],
                status={"conditions": [condition("Claimed", "False", "Unclaimed", "No operator")]},
                labels={"operatorVersion": "v9"},
            ),
            "Unclaimed: No operator",
        ),
    ],
    ids=[
        "fluxjob",
        "raycluster",
        "suspended appwrapper",
        "suspended fluxjob",
        "suspended minicluster",
        "suspended raycluster",
        "other controller",
        "operatorVersion",
        "claimed",
    ],
)
def test_object_that_no_operator_takes_is_a_problem(one: Object, message: str) -> None:
    gvk = GVK.parse(one["apiVersion"], one["kind"])
    summary = summarize(gvk, one, related())
    assert summary.level is Level.WARNING
    assert any(message in each for each in messages(summary))
    with_state = {
        **one,
        "metadata": {**one["metadata"], "creationTimestamp": "2026-06-01T00:00:00Z"},
    }
    if "conditions" not in one["status"]:
        assert messages(summarize(gvk, with_state, related())) == []


def test_suspended_raycluster_of_multikueue_needs_no_state() -> None:
    """MultiKueue writes one when the RayCluster runs in another cluster."""
    spec = {"suspend": True, "managedBy": "kueue.x-k8s.io/multikueue"}
    summary = summarize(RAY_CLUSTER, obj(RAY_CLUSTER, creationTimestamp=OLD, spec=spec), related())
    assert (summary.level, messages(summary)) == (Level.WAITING, [])


def waiting_pod(reason: str) -> Object:
    """Return a pod whose container waits for ``reason``."""
    status = {"name": "c", "state": {"waiting": {"reason": reason, "message": "not found"}}}
    return obj(POD, status={"phase": "Pending", "containerStatuses": [status]})


@pytest.mark.parametrize(
    ("command", "conditions", "pending"),
    [
        ("", [condition("JobMiniClusterReady", "True")], "is JobMiniClusterReady"),
        ("", READY_FOR_USE, ""),
        ("sleep 1", READY_FOR_USE, "is JobMiniClusterReady"),
        ("sleep 1", [condition("JobRunning", "True")], "is JobRunning"),
        ("sleep 1", [condition("JobFinished", "True")], ""),
        ("sleep 1", waits_for("TooLarge"), ""),
        ("sleep 1", waits_for("Suspended"), ""),
        ("sleep 1", waits_for("WaitingForKueue"), ""),
        ("sleep 1", waits_for("InsufficientQuota"), "is JobWaitingForResources"),
    ],
)
def test_fluxjob_has_settled_when_it_ended_or_is_ready_for_use_or_waits_for_a_user(
    command: str, conditions: list[Object], pending: str
) -> None:
    job = obj(FLUX_JOB, spec={"command": command}, status={"conditions": conditions})
    assert summarize(FLUX_JOB, job).pending == pending


def test_fluxjob_for_interactive_use_is_ok_when_its_brokers_are_ready() -> None:
    job = obj(FLUX_JOB, status={"conditions": READY_FOR_USE})
    assert summarize(FLUX_JOB, job).level is Level.OK


@pytest.mark.parametrize(
    ("spec", "pending"),
    [
        ({"containers": [{"image": "flux"}]}, ""),
        ({"interactive": True, "containers": [{"command": "hostname"}]}, ""),
        ({"containers": [{"command": "hostname"}]}, "is JobRunning"),
    ],
)
def test_interactive_minicluster_has_settled_when_it_runs(
    spec: dict[str, Any], pending: str
) -> None:
    cluster = obj(MINICLUSTER, spec=spec, status={"conditions": [condition("JobRunning", "True")]})
    assert summarize(MINICLUSTER, cluster).pending == pending


@pytest.mark.parametrize(
    ("spec", "status", "connect"),
    [
        ({}, READY_FOR_USE, "kubectl exec -it -n n job/x -- /mnt/flux/flux-connect.sh"),
        ({}, [], ""),
        ({"command": "sleep 1"}, [condition("JobRunning", "True")], ""),
        ({"template": {"containers": [{"command": "a"}]}}, [condition("JobRunning", "True")], ""),
    ],
)
def test_fluxjob_for_interactive_use_has_the_command_that_connects(
    spec: Object, status: list[Object], connect: str
) -> None:
    job = obj(FLUX_JOB, spec=spec, status={"conditions": status})
    summary = summarize(FLUX_JOB, job)
    assert summary.fact("connect") == connect
    assert not connect or essence(summary) == connect


def test_command_to_connect_has_the_mount_path_of_the_minicluster() -> None:
    spec = {"containers": [{}], "flux": {"container": {"mountPath": "/opt/my flux/"}}}
    cluster = obj(MINICLUSTER, spec=spec, status={"conditions": [condition("JobRunning", "True")]})
    command = "kubectl exec -it -n n job/x -- '/opt/my flux/flux-connect.sh'"
    assert summarize(MINICLUSTER, cluster).fact("connect") == command
    job = obj(FLUX_JOB, status={"conditions": READY_FOR_USE})
    summary = summarize(FLUX_JOB, job, related(children={MINICLUSTER: [cluster]}))
    assert summary.fact("connect") == command


def test_fluxjob_is_not_ok_while_a_pod_of_its_minicluster_cannot_start() -> None:
    running = condition("JobRunning", "True")
    starting = condition("PodsReady", "False", "Starting", "The pods are being started")
    failing = condition("PodsReady", "False", "ImagePullBackOff", "Pod p: not found")
    status = {"miniCluster": "x", "conditions": [running, starting]}
    assert summarize(FLUX_JOB, obj(FLUX_JOB, status=status)).level is Level.PROGRESSING
    pods = related(pods=[waiting_pod("ImagePullBackOff")])
    summary = summarize(FLUX_JOB, obj(FLUX_JOB, status=status), pods)
    assert (summary.level, messages(summary)) == (
        Level.WARNING,
        ["Pod x: container c waits: ImagePullBackOff (not found)"],
    )
    status["conditions"] = [running, failing]
    summary = summarize(FLUX_JOB, obj(FLUX_JOB, status=status))
    assert (summary.level, messages(summary)) == (
        Level.WARNING,
        ["ImagePullBackOff: Pod p: not found"],
    )
    foreign = obj(FLUX_JOB, status={"conditions": [running]})
    assert messages(summarize(FLUX_JOB, foreign, pods)) == []


@pytest.mark.parametrize("gvk", [FLUX_JOB, MINICLUSTER])
def test_remedy_after_the_deadline_names_its_field(gvk: GVK) -> None:
    failed = condition("Succeeded", "False", "DeadlineExceeded", "The Job failed: too long")
    conditions = [condition("JobFinished", "True"), failed]
    (problem,) = summarize(gvk, obj(gvk, status={"conditions": conditions})).problems
    assert "deadlineSeconds" in problem.remedy


def test_minicluster_shows_ready_brokers() -> None:
    status = {"conditions": [condition("JobMiniClusterReady", "True")], "ready": 2, "size": 4}
    summary = summarize(MINICLUSTER, obj(MINICLUSTER, status=status))
    assert (summary.state, summary.level, summary.ready) == (
        "JobMiniClusterReady",
        Level.PROGRESSING,
        "2/4",
    )


@pytest.mark.parametrize("gvk", INFERENCE_STACKS, ids=str)
def test_inferencestack_shows_applications_and_their_failures(gvk: GVK) -> None:
    failed = {
        "name": "chat",
        "state": "Failed",
        "reason": "ImagePullBackOff",
        "replicas": 2,
        "model": "m",
    }
    status = {
        "conditions": [
            condition("Ready", "False", "ApplicationsNotReady"),
            condition("Degraded", "True", "Broken"),
        ],
        "applications": [failed],
        "readyApplications": "0/1",
        "url": "http://gateway",
        "operator": {"version": "2.0.0"},
    }
    summary = summarize(gvk, obj(gvk, status=status, labels={"operatorVersion": "v2"}))
    assert (summary.state, summary.level, summary.ready) == (
        "ApplicationsNotReady",
        Level.WARNING,
        "0/1",
    )
    assert messages(summary) == ["application chat: ImagePullBackOff", "Broken: message"]
    assert summary.fact("app chat") == "Failed, 0/2, m"
    assert summary.fact("operator") == "v2 (2.0.0)"
    unlabeled = summarize(gvk, obj(gvk))
    assert "label operatorVersion is missing" in messages(unlabeled)[0]


@pytest.mark.parametrize("gvk", INFERENCE_STACKS, ids=str)
def test_inferencestack_shows_its_queue_and_what_waits_in_it(gvk: GVK) -> None:
    labels = {"operatorVersion": "v2", "kueue.x-k8s.io/queue-name": "team"}
    conditions = [
        condition("Ready", "False", "WaitingForKueue"),
        condition("Degraded", "False", "AsExpected"),
        condition("QuotaReserved", "False", "WaitingForKueue"),
    ]
    waiting = summarize(
        gvk, obj(gvk, status={"conditions": conditions}, labels=labels, spec=APPLICATIONS)
    )
    assert (waiting.state, waiting.level, waiting.pending) == ("WaitingForKueue", Level.WAITING, "")
    assert (waiting.fact("queue"), waiting.fact("quota reserved")) == ("team", "no")
    assert essence(waiting) == "message", "not the URL, which does not answer yet"
    assert messages(waiting) == []
    conditions.append(condition("Evicted", "True", "Preempted"))
    evicted = summarize(
        gvk, obj(gvk, status={"conditions": conditions}, labels=labels, spec=APPLICATIONS)
    )
    assert (evicted.level, messages(evicted)) == (Level.WARNING, ["Evicted: message"])
    conditions[0] = condition("Ready", "True", "AllReady")
    conditions[2] = condition("QuotaReserved", "True", "AdmittedByKueue")
    conditions[3] = condition("Evicted", "False", "AdmittedByKueue")
    ready = summarize(
        gvk, obj(gvk, status={"conditions": conditions}, labels=labels, spec=APPLICATIONS)
    )
    assert (ready.state, ready.level, ready.fact("quota reserved")) == ("Ready", Level.OK, "yes")


def lead_pod(name: str, *, index: str = "0", code: int = 1, created: str = "2026-01-01") -> Object:
    """Return a pod of a MiniCluster whose container has ended and is not started again yet."""
    labels = {"batch.kubernetes.io/job-completion-index": index}
    state = {
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": code}},
    }
    created += "T00:00:00Z"
    metadata = {"name": name, "namespace": "n", "labels": labels, "creationTimestamp": created}
    return {"metadata": metadata, "status": {"containerStatuses": [{"name": "x", **state}]}}


@pytest.mark.parametrize("gvk", [FLUX_JOB, MINICLUSTER])
def test_pods_of_workers_do_not_hide_why_the_lead_broker_ends(gvk: GVK) -> None:
    status = {"miniCluster": "x", "conditions": [condition("PodsReady", "False", "Starting")]}
    workers = [lead_pod("x-1-a", index="1"), lead_pod("x-2-a", index="2")]
    pods = [*workers, lead_pod("x-0-a", code=127)]
    summary = summarize(gvk, obj(gvk, status=status), related(pods=pods))
    assert [each for each in messages(summary) if "exit code" in each] == [
        "Pod x-0-a: container x ended with exit code 127"
    ]
    remedy = summary.problems[-1].remedy
    assert remedy.startswith("read the log: kubectl logs -c x --previous -n n x-0-a; to change ")
    without_lead = summarize(gvk, obj(gvk, status=status), related(pods=workers))
    assert "Pods x-1-a, x-2-a: container x ended with exit code 1" in messages(without_lead)


@pytest.mark.parametrize(
    ("pods", "remedy"),
    [
        (
            [
                lead_pod("x-0-b"),
                lead_pod("x-0-a", created="2026-02-01"),
                lead_pod("x-1", index="1"),
            ],
            "read the log of the lead broker: kubectl logs -n n x-0-a -c x",
        ),
        ([], "the pod of the lead broker no longer exists"),
        (None, "read the log of the lead broker, if its pod still exists"),
    ],
)
def test_log_of_a_failed_command_is_that_of_the_newest_lead_broker(
    pods: list[Object] | None, remedy: str
) -> None:
    conditions = [condition("JobFinished", "True"), condition("Succeeded", "False")]
    failed = obj(MINICLUSTER, status={"conditions": conditions, "exitCode": 3})
    first, *_ = summarize(MINICLUSTER, failed, related(pods=pods)).problems
    assert first.remedy.startswith(remedy)


def test_quota_is_the_first_problem_of_a_raycluster_without_pods() -> None:
    refusal = {
        **event("FailedToCreateHeadPod", "2026-01-01T00:00:00Z"),
        "message": "exceeded quota: compute",
    }
    found = cluster("")
    found["status"]["conditions"] = [condition(EXPOSED, "False", "IngressDomainMissing")]
    summary = summarize(RAY_CLUSTER, found, related(events=[refusal]))
    assert messages(summary) == [
        "FailedToCreateHeadPod: exceeded quota: compute",
        "IngressDomainMissing: message",
    ]


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ({"kueue.x-k8s.io/queue-name": "team"}, "waits for quota in the LocalQueue team"),
        ({}, "spec.suspend is true"),
    ],
)
def test_suspended_raycluster_shows_its_queue_in_place_of_a_missing_address(
    labels: dict[str, str], why: str
) -> None:
    suspended = cluster("suspended", suspend=True)
    suspended["metadata"]["labels"] = labels
    summary = summarize(RAY_CLUSTER, suspended, related(children={INGRESS: []}))
    assert (essence(summary), summary.fact("dashboard")) == (why, "")


def test_ready_stack_without_applications_has_a_problem_unless_none_is_wanted() -> None:
    status = {"conditions": [condition("Ready", "True", "AllReady")], "readyApplications": "0/0"}
    labels = {"operatorVersion": "v2"}
    gvk = INFERENCE_STACKS[1]
    found = summarize(gvk, obj(gvk, status=status, labels=labels))
    assert found.level is Level.WARNING
    assert "no applications" in found.problems[0].message
    asked = summarize(gvk, obj(gvk, status=status, labels=labels, spec={"applications": {}}))
    assert asked.level is Level.OK


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        ("maximum cpu usage per Container is 1, but limit is 2", "within the LimitRange"),
        (
            'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
            "at most the limit of the container",
        ),
        ("violates nothing that is known", "kubectl get events -n n --field-selector"),
    ],
)
def test_commands_in_remedies_have_the_namespace_of_the_object(message: str, remedy: str) -> None:
    failed = {
        "reason": "Unknown",
        "message": message,
        "involvedObject": {"kind": "Job", "name": "it's"},
    }
    wrapper = obj(APPWRAPPER, status={"phase": "Resuming"})
    (problem,) = summarize(APPWRAPPER, wrapper, related(created_events=[failed])).problems
    assert remedy in problem.remedy
    assert "-n n " in f"{problem.remedy} "


@pytest.mark.parametrize(
    ("gvk", "status"),
    [
        (RAY_CLUSTER, {"state": "failed"}),
        (APPWRAPPER, {"phase": "Failed"}),
        (MINICLUSTER, {"conditions": [condition("ObjectsReady", "False", "Other")]}),
        (INFERENCE_STACKS[1], {"conditions": [condition("Degraded", "True", "Other")]}),
    ],
)
def test_describe_names_kind_group_object_and_namespace(gvk: GVK, status: Object) -> None:
    found = obj(gvk, status=status, labels={"operatorVersion": "v2"}, name="a b", namespace="n")
    resource = f"{gvk.kind.lower()}.{gvk.group}"
    remedies = [problem.remedy for problem in summarize(gvk, found).problems]
    assert any(f"kubectl describe {resource} 'a b' -n n" in remedy for remedy in remedies)


def test_long_message_of_a_container_is_shown_to_its_end() -> None:
    message = f"{'layer ' * 100}not found"
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": message}}}
    pods = [
        {
            "metadata": {"namespace": "n", "name": "p"},
            "status": {"containerStatuses": [{"name": "r", **waiting}]},
        }
    ]
    (problem,) = pod_problems(pods)
    assert problem.message.endswith("not found)")


def test_worker_groups_with_one_name_are_a_problem() -> None:
    groups = [{"groupName": name} for name in ("a", "b", "a", "a")]
    (problem,) = summarize(RAY_CLUSTER, cluster(workerGroupSpecs=groups)).problems
    assert problem.message.startswith("spec.workerGroupSpecs[2].groupName: 'a' is also the name of")
    assert problem.remedy == "give one of them another groupName"
    assert summarize(RAY_CLUSTER, cluster(workerGroupSpecs=[None, *groups[:2]])).problems == ()


@pytest.mark.parametrize(
    ("spec", "applications", "is_missing"),
    [({}, "0/3", True), ({}, "2/3", False), ({"suspend": True}, "0/3", False)],
)
def test_missing_kueue_is_no_problem_of_a_stack_with_admitted_pods_or_a_suspended_one(
    spec: Object, applications: str, is_missing: bool
) -> None:
    gvk = INFERENCE_STACKS[1]
    conditions = [
        condition("QuotaReserved", "False", "WaitingForKueue", "1 of 3 pods wait for quota"),
        condition("GatewayReady", "False", "Waiting"),
    ]
    status = {"conditions": conditions, "readyApplications": applications}
    labels = {"operatorVersion": "v2", "kueue.x-k8s.io/queue-name": "team"}
    missing = related(queue_problem=summaries.missing_kueue("team"))
    found = messages(summarize(gvk, obj(gvk, spec=spec, status=status, labels=labels), missing))
    assert any("Kueue is not installed" in message for message in found) is is_missing
