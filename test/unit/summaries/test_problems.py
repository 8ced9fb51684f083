"""Problems that all kinds can have: pods that cannot run or are refused, with their remedies."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.flux.names import FLUX_JOB, MINICLUSTER
from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.api.raycluster.conditions import EXPOSED
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.runtime import GVK, Object, gvk_of
from cfo.runtime.process.clock import rfc3339
from cfo.summaries.problems import hung_pods, pod_problems, seconds_until_hung
from cfo.summaries.summary import Level
from test.support.summary_objects import (
    NO_LIMITS,
    NOT_OURS,
    NOW,
    OLD,
    changed,
    cluster,
    condition,
    event,
    messages,
    obj,
    pod,
    related,
    summarize,
)


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
                    "ready": False,
                    "state": {"running": {}},
                    "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                }
            ]
        },
        "container r used more memory than its limit",
    ),
    (
        {
            "containerStatuses": [
                {
                    "name": "r",
                    "ready": False,
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


@pytest.mark.parametrize(
    ("causes", "remedy"),
    [
        ("2 Insufficient cpu", "request less, or wait for"),
        ('persistentvolumeclaim "data" not found', "create the PersistentVolumeClaim"),
        (
            "pod has unbound immediate PersistentVolumeClaims",
            "kubectl describe persistentvolumeclaim -n n",
        ),
        (
            "1 node(s) didn't find available persistent volumes to bind, 2 Insufficient cpu",
            "kubectl describe persistentvolumeclaim -n n",
        ),
        ("2 node(s) had volume node affinity conflict", "nodes that can use its volume"),
        ("2 node(s) didn't match Pod's node affinity/selector", "correct nodeSelector"),
        ("2 node(s) didn't match pod anti-affinity rules", "correct podAffinity"),
        ("2 node(s) had untolerated taint {nvidia.com/gpu: present}", "add a toleration"),
        ("2 node(s) had untolerated taint(s)", "add a toleration"),
        (
            "1 node(s) had untolerated taint {gpu: }, 1 Insufficient nvidia.com/gpu",
            "if the pod may run on these nodes; or request less, or wait for",
        ),
        (
            "1 Insufficient cpu, 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }",
            "request less, or wait for",
        ),
    ],
)
def test_remedy_for_a_pod_without_a_node_is_that_of_the_cause(causes: str, remedy: str) -> None:
    message = f"0/2 nodes are available: {causes}. preemption: 0/2 nodes are available"
    pods = [
        pod("Pending", conditions=[condition("PodScheduled", "False", "Unschedulable", message)])
    ]
    (problem,) = summarize(RAY_CLUSTER, cluster(""), related(pods=pods)).problems
    assert remedy in problem.remedy
    waited = condition(
        "Unhealthy", "True", "InsufficientPodsReady", f"1 waiting pods: Unschedulable ({message})"
    )
    wrapper = obj(APPWRAPPER, status={"phase": "Resetting", "conditions": [waited]})
    (problem,) = summarize(APPWRAPPER, wrapper).problems
    assert remedy in problem.remedy


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
        assert problem.remedy.startswith("ask the administrator for a LimitRange with defaults")
        assert "the operator adds create-cert, rbac-proxy without resources" in problem.remedy
    failed["status"]["conditions"][0]["message"] = f"{refusal},ray-head; requests.cpu for: ray-head"
    (problem,) = summarize(RAY_CLUSTER, failed).problems
    assert problem.remedy.startswith("specify these resources for your containers; and ask")


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
        (
            'violates PodSecurity "restricted:latest": runAsNonRoot != true (pod or container "create-cert" must set',
            "securityContext",
        ),
        ('pods is forbidden: User "u" cannot create resource "pods"', "permission"),
        (
            'error looking up service account n/s: serviceaccount "s" not found',
            "create the ServiceAccount",
        ),
        (
            'error looking up service account n/c-oauth-proxy-1: serviceaccount "c-oauth-proxy-1" not found',
            "do not create it",
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


AGAIN = "again with another name"


@pytest.mark.parametrize(
    ("kind", "found", "remedy"),
    [
        (FLUX_JOB, condition("QuotaReserved", "False", "NameTaken"), AGAIN),
        (FLUX_JOB, condition("ObjectsReady", "False", "FailedToWrite"), "correct the spec"),
        (FLUX_JOB, condition("ObjectsReady", "False", "FailedToWrite"), "delete the FluxJob and"),
        (MINICLUSTER, condition("ObjectsReady", "False", "NameTaken"), AGAIN),
        (MINICLUSTER, condition("ObjectsReady", "False", "Deleting"), "wait"),
        (RAY_CLUSTER, condition(EXPOSED, "False", "NameTaken"), AGAIN),
        (INFERENCE_STACKS[1], condition("Degraded", "True", "NameTaken"), AGAIN),
        (INFERENCE_STACKS[1], condition("Degraded", "True", "HostNotFree"), "set another host"),
        (INFERENCE_STACKS[1], condition("Degraded", "True", "Deleting"), "wait"),
        (APPWRAPPER, condition("Unhealthy", "True", "CreateFailed", NOT_OURS), "another name"),
    ],
)
def test_remedy_for_a_taken_name_fits_the_kind(kind: GVK, found: Object, remedy: str) -> None:
    one = obj(kind, status={"conditions": [found]}, labels={"operatorVersion": "v2"})
    remedies = [problem.remedy for problem in summarize(kind, one).problems]
    assert len(remedies) == 1
    assert remedy in remedies[0]


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


def running_pod(name: str, *, ready: bool = False, **fields: Any) -> Object:
    """Return a pod whose container started six minutes before :data:`NOW`."""
    started = rfc3339(NOW - timedelta(minutes=6))
    state = {"running": {"startedAt": started}}
    containers = [{"name": "ray", "ready": ready, "state": state, **fields}]
    return pod("Running", name, containerStatuses=containers)


def test_container_that_runs_without_becoming_ready_is_a_problem_after_five_minutes() -> None:
    hung = [running_pod(name) for name in ("a", "b")]
    (problem,) = hung_pods([*hung, running_pod("c", ready=True)], NOW)
    assert problem.message == "Pods a, b: container ray runs, but has not been ready for 5 minutes"
    assert problem.remedy == (
        "check its readinessProbe, and read the log: kubectl logs -c ray -n NAMESPACE a"
    )
    earlier = NOW - timedelta(minutes=2)
    assert list(hung_pods(hung, earlier)) == []
    assert seconds_until_hung(hung, earlier) == 60
    assert seconds_until_hung(hung, NOW) == math.inf


@pytest.mark.parametrize(
    ("reason", "containers_ready", "phase", "is_lost"),
    [
        ("", "True", "Running", True),
        ("ReadinessGatesNotReady", "True", "Running", False),
        ("ContainersNotReady", "False", "Running", False),
        ("", "False", "Running", False),
        ("", "True", "Succeeded", False),
    ],
)
@pytest.mark.parametrize("kind", [RAY_CLUSTER, APPWRAPPER, FLUX_JOB, MINICLUSTER])
def test_pod_of_a_node_that_does_not_report_is_a_problem_at_once(
    kind: GVK, reason: str, containers_ready: str, phase: str, is_lost: bool
) -> None:
    conditions = [
        condition("Ready", "False", reason),
        condition("ContainersReady", containers_ready),
    ]
    lost = pod(phase, "a", conditions=conditions)
    lost["spec"] = {"nodeName": "node-1"}
    status = {"phase": "Running", "state": "ready", "miniCluster": "j"}
    summary = summarize(kind, obj(kind, status=status), related(pods=[lost]))
    expected = "Pod a: is not ready, although its containers are: node node-1 may be down"
    assert (expected in messages(summary)) is is_lost


def pending_pod(name: str, **status: Any) -> Object:
    """Return a pod that has had a node for five minutes."""
    since = rfc3339(NOW - timedelta(minutes=5))
    scheduled = changed("PodScheduled", "True", "", since)
    return pod("Pending", name, conditions=[scheduled], **status)


def test_container_that_is_not_created_is_no_second_problem_of_an_image() -> None:
    creating = {"name": "proxy", "state": {"waiting": {"reason": "ContainerCreating"}}}
    missing = {"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    hung = pending_pod("a", containerStatuses=[missing, creating])
    assert list(hung_pods([hung], NOW)) == []
    assert len(list(pod_problems([hung]))) == 1


def test_pod_without_containers_is_a_problem_after_five_minutes() -> None:
    creating = {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}
    hung = pending_pod("a", containerStatuses=[creating, {**creating, "name": "other"}])
    (problem,) = hung_pods([hung], NOW)
    assert problem.message == "Pod a: its containers were not created for 5 minutes"
    assert problem.remedy == (
        "see what it lacks, such as a Secret or a volume: kubectl describe pod -n NAMESPACE a"
    )
    earlier = NOW - timedelta(minutes=1)
    assert (list(hung_pods([hung], earlier)), seconds_until_hung([hung], earlier)) == ([], 60)


MISSING = 'MountVolume.SetUp failed for volume "v" : secret "token" not found'


def creating_pod(*conditions: Object) -> Object:
    """Return a pod with a node, whose containers kubelet has not created yet."""
    waiting = [{"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}]
    creating = pending_pod("a", initContainerStatuses=waiting, containerStatuses=waiting)
    creating["metadata"]["uid"] = "u"
    creating["status"]["conditions"] += conditions
    return creating


def mount_event(message: str, uid: str = "u") -> Object:
    involved = {"kind": "Pod", "name": "a", "uid": uid}
    return {**event("FailedMount", OLD, message), "involvedObject": involved}


@pytest.mark.parametrize("kind", [RAY_CLUSTER, APPWRAPPER, FLUX_JOB, MINICLUSTER])
def test_secret_that_a_volume_lacks_is_named_at_once(kind: GVK) -> None:
    one = obj(kind, status={"phase": "Running", "state": "", "miniCluster": "j"})
    events = [
        mount_event("failed to sync secret cache: timed out waiting for the condition"),
        mount_event(MISSING),
        mount_event("Unable to attach or mount volumes: timed out waiting for the condition"),
        mount_event('secret "other" not found', uid="other"),
    ]
    summary = summarize(kind, one, related(pods=[creating_pod()], pod_events=events))
    (problem,) = (each for each in summary.problems if "secret" in each.message)
    assert problem.message == f"Pod a: FailedMount: {MISSING}"
    assert problem.remedy.startswith("create the Secret, ConfigMap or PersistentVolumeClaim")
    assert "kubelet tries again by itself" in problem.remedy


def test_event_about_a_volume_is_no_problem_once_the_pod_can_start() -> None:
    earlier = NOW - timedelta(minutes=1)
    ready = condition("PodReadyToStartContainers", "True")
    running = running_pod("a", ready=True)
    running["metadata"]["uid"] = "u"
    for one in (creating_pod(ready), running):
        assert list(hung_pods([one], earlier, [mount_event(MISSING)])) == []
    # without an Event, the pod hangs, also one with init containers
    (problem,) = hung_pods([creating_pod()], NOW)
    assert problem.message == "Pod a: its containers were not created for 5 minutes"


def test_init_container_that_does_not_end_is_a_problem_after_five_minutes() -> None:
    since = rfc3339(NOW - timedelta(minutes=5))
    running = {"running": {"startedAt": since}}
    hung = pending_pod(
        "a",
        initContainerStatuses=[
            {"name": "proxy", "started": True, "state": running},
            {"name": "wait-gcs-ready", "started": True, "state": running},
        ],
        containerStatuses=[{"name": "ray", "state": {"waiting": {"reason": "PodInitializing"}}}],
    )
    hung["spec"] = {"initContainers": [{"name": "proxy", "restartPolicy": "Always"}]}
    (problem,) = hung_pods([hung], NOW)
    assert problem.message == "Pod a: init container wait-gcs-ready has run for 5 minutes"
    assert problem.remedy == "read the log: kubectl logs -c wait-gcs-ready -n NAMESPACE a"


def test_pod_that_starts_or_ends_or_was_ready_until_now_is_no_problem() -> None:
    starting = running_pod("a", started=False)  # its startupProbe has not succeeded
    ending = running_pod("b")
    ending["metadata"]["deletionTimestamp"] = rfc3339(NOW)
    unready = running_pod("c")
    since = rfc3339(NOW - timedelta(minutes=1))
    unready["status"]["conditions"] = [changed("Ready", "False", "ContainersNotReady", since)]
    assert list(hung_pods([starting, ending, unready], NOW)) == []
    assert seconds_until_hung([starting, ending, unready], NOW) == 240


@pytest.mark.parametrize(
    "one",
    [
        cluster(),
        obj(
            APPWRAPPER, status={"phase": "Running", "conditions": [condition("PodsReady", "True")]}
        ),
        obj(MINICLUSTER, status={"conditions": [condition("JobRunning", "True")]}),
        obj(
            FLUX_JOB,
            status={"miniCluster": "x", "conditions": [condition("JobRunning", "True")]},
        ),
    ],
    ids=lambda one: one["kind"],
)
def test_object_that_runs_shows_its_hung_pod(one: Object) -> None:
    gvk = gvk_of(one)
    assert summarize(gvk, one, related(pods=[running_pod("a", ready=True)])).level is Level.OK
    summary = summarize(gvk, one, related(pods=[running_pod("a")]))
    assert summary.level is Level.WARNING
    (message,) = messages(summary)
    assert message == "Pod a: container ray runs, but has not been ready for 5 minutes"


def test_remedy_of_a_failure_does_not_name_an_annotation_that_is_set() -> None:
    annotation = "workload.codeflare.dev.appwrapper/deletionOnFailureGracePeriodDuration"
    conditions = [condition("Unhealthy", "True", "FoundFailedPods", "1 failed pods: p")]
    status = {"phase": "Failed", "conditions": conditions}
    wrapper = obj(APPWRAPPER, status=status, annotations={annotation: "30m"})
    (problem,) = summarize(APPWRAPPER, wrapper, related(pods=[pod("Failed")])).problems
    kept = (
        f"kubectl logs -n n p; the pods of the last attempt are kept for 30m, as {annotation} says"
    )
    limit = "workload.codeflare.dev.appwrapper/retryLimit"
    assert problem.remedy == f'{kept}; with {limit}: "0" there is only one attempt'
    wrapper["metadata"]["annotations"][limit] = "0"
    (problem,) = summarize(APPWRAPPER, wrapper, related(pods=[pod("Failed")])).problems
    assert problem.remedy == kept


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
