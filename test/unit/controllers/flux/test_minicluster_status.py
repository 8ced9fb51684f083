"""Tests of the pure functions that decide about the status, the Job and the size of a MiniCluster."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from cfo.api.flux.names import FLUX_JOB
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.controllers.flux.minicluster.job_changes import (
    has_started,
    ignored_changes,
    job_patch,
    known_hosts,
    limited_size,
    maximum_size,
    missing_pods,
    seconds_until_all_pods,
    seconds_until_first_pods,
)
from cfo.controllers.flux.minicluster.lead import (
    LeadPod,
    failure_in,
    lead_of,
    needs_reconcile,
    unlabelled_index,
)
from cfo.controllers.flux.minicluster.plan import Plan, spec_hash, wanted_suspend
from cfo.controllers.flux.minicluster.resources import create_certificate, desired_job, z85_encode
from cfo.controllers.flux.minicluster.status import Observed, desired_status, is_finished, notices
from cfo.controllers.pod_status import PodFailure
from cfo.runtime import GVK, Entry, Event, NamespacedName, find_condition
from cfo.runtime.cache.entry import EntryDecoder
from cfo.runtime.cache.store import EventType
from cfo.runtime.objects.unstructured import Object
from test.support.flux_environment import condition, mini_cluster, state, true_conditions
from test.support.z85 import z85_decode

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def stored(cluster: Object, **job: Any) -> tuple[Object, Object]:
    """Return a MiniCluster as stored, and its Job with these fields of its status and ``suspend``."""
    cluster["metadata"] |= {"uid": "u", "generation": 1}
    created = desired_job(Plan.of(cluster))
    created["metadata"] |= {"uid": "j"}
    if "suspend" in job:
        created["spec"]["suspend"] = job.pop("suspend")
    return cluster, {**created, "status": job}


def written(cluster: Object, observed: Observed, now: datetime = NOW) -> Object:
    """Return the MiniCluster with the status that is written for ``observed``."""
    return {**cluster, "status": desired_status(cluster, observed, now)}


def ended(kind: str, reason: str = "") -> Object:
    """Return the conditions of a Job that has ended."""
    return {
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ]
    }


def test_states_follow_the_job() -> None:
    cluster, job = stored(mini_cluster(minSize=1), suspend=True)
    assert state(written(cluster, Observed())) == ["JobRequested"]
    assert state(written(cluster, Observed(job=job))) == ["JobWaitingForResources"]
    job["spec"]["suspend"] = False
    assert state(written(cluster, Observed(job=job))) == ["JobMiniClusterReady"]
    job["status"] = {"ready": 1}
    running = written(cluster, Observed(job=job))
    assert state(running) == ["JobRunning", "JobMiniClusterReady"]
    job["status"] = {"ready": 0}
    assert state(written(running, Observed(job=job))) == ["JobRunning", "JobMiniClusterReady"]
    job["spec"]["suspend"] = True
    assert state(written(running, Observed(job=job))) == ["JobWaitingForResources"]
    job["status"] = ended("Complete")
    finished = written(running, Observed(job=job))
    assert true_conditions(finished) == ["JobFinished", "ObjectsReady", "Succeeded"]
    assert is_finished(finished)
    assert state(written(finished, Observed())) == ["JobFinished"]


def test_removed_queue_label_after_which_nothing_resumes_the_job_is_reported() -> None:
    queued = {"jobLabels": {QUEUE_NAME_LABEL: "q"}}
    waiting, job = stored(mini_cluster(**queued), suspend=True)
    waiting["status"] = written(waiting, Observed(job=job))["status"]
    waiting["spec"]["jobLabels"] = {}
    stuck = written(waiting, Observed(job=job))
    message = condition(stuck, "JobWaitingForResources")["message"]
    assert message == (
        "The Job is suspended, and nothing resumes it: set spec.suspend to false, or the label "
        "kueue.x-k8s.io/queue-name in spec.jobLabels."
    )
    assert notices(waiting, stuck["status"]) == [("Warning", "NotQueued", message)]
    assert notices(stuck, stuck["status"]) == []
    stuck["spec"]["suspend"] = True
    suspended = written(stuck, Observed(job=job))
    message = condition(suspended, "JobWaitingForResources")["message"]
    assert message == "The Job is suspended. It starts when spec.suspend is set to false."
    owner = {"apiVersion": FLUX_JOB.api_version, "kind": "FluxJob", "name": "j", "controller": True}
    stuck["metadata"]["ownerReferences"] = [owner]
    waiting = written(stuck, Observed(job=job))
    message = condition(waiting, "JobWaitingForResources")["message"]
    assert message == "The Job is suspended until its FluxJob has quota."


def test_running_sidecar_of_an_ended_command_is_reported() -> None:
    cluster, job = stored(mini_cluster())
    job["status"] = {"ready": 2}
    found = written(cluster, Observed(job=job, lead=LeadPod("Running", 0)))
    assert "ends when the other containers" in condition(found, "JobRunning")["message"]
    assert state(found) == ["JobRunning", "JobMiniClusterReady"]


def test_conditions_have_the_order_of_the_go_operator_and_its_required_fields() -> None:
    cluster, job = stored(mini_cluster(size=3))
    status = desired_status(cluster, Observed(job=job, maximum=5), NOW)
    assert [item["type"] for item in status["conditions"]] == [
        "JobRequested",
        "JobWaitingForResources",
        "JobRunning",
        "JobMiniClusterReady",
        "JobFinished",
        "ObjectsReady",
    ]
    assert all(item["reason"] == item["type"] for item in status["conditions"][:5])
    assert (status["size"], status["maximumSize"]) == (3, 5)
    assert (status["selector"], status["jobid"]) == ("hpa-selector=flux-sample", "flux-sample-u")


def test_times_change_only_with_the_status_of_a_condition() -> None:
    cluster, job = stored(mini_cluster())
    first = written(cluster, Observed(job=job))
    second = written(first, Observed(job=job), NOW + timedelta(hours=1))
    assert second == first
    assert notices(first, second["status"]) == []
    job["status"] = {"ready": 2}
    third = written(second, Observed(job=job), NOW + timedelta(hours=1))
    assert condition(third, "JobRunning")["lastTransitionTime"] == "2026-01-01T01:00:00Z"
    assert condition(third, "JobMiniClusterReady")["lastTransitionTime"] == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("job_end", "exit_code", "expected"),
    [
        (ended("Complete"), 0, ("True", "Succeeded", "The command succeeded.")),
        (
            ended("Failed", "BackoffLimitExceeded"),
            3,
            ("False", "BackoffLimitExceeded", "The command failed with exit code 3: m"),
        ),
        (
            ended("Failed", "DeadlineExceeded"),
            None,
            ("False", "DeadlineExceeded", "The Job failed: m"),
        ),
    ],
)
def test_result_has_reason_and_exit_code(
    job_end: Object, exit_code: int | None, expected: tuple[str, str, str]
) -> None:
    cluster, job = stored(mini_cluster())
    job["status"] = job_end
    found = written(cluster, Observed(job=job, lead=LeadPod("Failed", exit_code)))
    succeeded = condition(found, "Succeeded")
    assert (succeeded["status"], succeeded["reason"], succeeded["message"]) == expected
    assert found["status"].get("exitCode") == exit_code
    ((kind, _, message),) = notices(cluster, found["status"])
    assert (kind, message) == ("Normal" if expected[0] == "True" else "Warning", expected[2])


@pytest.mark.parametrize(
    "lead",
    [
        pytest.param(None, id="deleted"),
        pytest.param(LeadPod("Running"), id="end-not-seen"),
        pytest.param(
            LeadPod("Running", 3, has_failed=True, reason="Error"), id="last-run-not-seen"
        ),
    ],
)
def test_exit_code_of_a_complete_job_does_not_depend_on_the_pod(lead: LeadPod | None) -> None:
    cluster, job = stored(mini_cluster())
    failed = written(cluster, Observed(job=job, lead=LeadPod("Running", 3, has_failed=True)))
    assert "CommandFailed" in true_conditions(failed)
    job["status"] = ended("Complete")
    found = written(failed, Observed(job=job, lead=lead))
    assert found["status"]["exitCode"] == 0
    assert true_conditions(found) == ["JobFinished", "ObjectsReady", "Succeeded"]
    first = written(cluster, Observed(job=job, lead=lead))
    assert first["status"]["exitCode"] == 0


def test_exit_code_is_kept_until_the_job_is_suspended() -> None:
    cluster, job = stored(mini_cluster())
    failed = written(cluster, Observed(job=job, lead=LeadPod("Running", 3)))
    assert written(failed, Observed(job=job))["status"]["exitCode"] == 3
    job["spec"]["suspend"] = True
    assert "exitCode" not in written(failed, Observed(job=job))["status"]


def test_problem_of_a_running_cluster_is_reported_without_changing_its_state() -> None:
    cluster, job = stored(mini_cluster())
    found = written(cluster, Observed(job=job, problem=("NameTaken", "ConfigMap a exists")))
    assert state(found) == ["JobMiniClusterReady"]
    assert condition(found, "ObjectsReady")["message"] == "ConfigMap a exists"


@pytest.mark.parametrize(
    ("spec", "started", "known", "maximum", "size"),
    [
        ({"size": 2}, True, 2, 2, 2),
        ({"size": 9}, True, 4, 4, 4),
        ({"size": 0}, True, 4, 4, 2),
        ({"size": -3, "maxSize": 1}, True, 4, 1, 1),
        ({"size": 9, "maxSize": 9}, True, 4, 4, 4),
        ({"size": 3, "maxSize": 2}, True, 4, 2, 2),
        ({"size": 9}, False, 4, 9, 9),
        ({"size": 9, "maxSize": 6}, False, 4, 6, 6),
    ],
)
def test_size_is_limited_by_maximum_and_known_hosts(
    spec: dict[str, int], started: bool, known: int, maximum: int, size: int
) -> None:
    _, job = stored(mini_cluster(maxSize=known), suspend=not started)
    cluster = mini_cluster(**spec)
    assert has_started(job) is started
    assert (maximum_size(cluster, job), limited_size(cluster, job)) == (maximum, size)
    assert known_hosts(cluster, job) == (known if started else maximum)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("7", 3), ("2", 2), ("-1", 3), ("9" * 5000, 3), ("²", 3), ("", 3), ("0", 3)],
)
def test_annotation_of_the_job_only_lowers_the_maximum_in_the_status(
    text: str, expected: int
) -> None:
    cluster, job = stored(mini_cluster(maxSize=9))
    job["metadata"]["annotations"]["flux-framework.org/maximum-size"] = text
    recorded = {**cluster, "status": {"maximumSize": 3}}
    assert known_hosts(recorded, job) == maximum_size(recorded, job) == expected


@pytest.mark.parametrize(
    ("job", "admitted", "maximum", "size"),
    [("none", 3, 3, 3), ("suspended", 3, 3, 3), ("started", 3, 3, 3), ("suspended", 0, 9, 9)],
)
def test_maximum_is_what_the_fluxjob_is_admitted_with(
    job: str, admitted: int, maximum: int, size: int
) -> None:
    _, existing = stored(mini_cluster(maxSize=5), suspend=job == "suspended")
    cluster = mini_cluster(size=9, maxSize=9)
    found = None if job == "none" else existing
    assert maximum_size(cluster, found, admitted) == maximum
    assert known_hosts(cluster, found, admitted) == maximum
    assert limited_size(cluster, found, admitted) == size


def test_patch_of_an_unchanged_job_is_empty() -> None:
    for spec in ({}, {"suspend": True}, {"jobLabels": {"a": "b"}}, {"backoffLimit": 3}):
        cluster, job = stored(mini_cluster(**spec))
        job["metadata"].setdefault("labels", {}).setdefault(
            "flux-framework.org/minicluster", "flux-sample"
        )
        assert job_patch(job, Plan.of(cluster)) == {}, spec


@pytest.mark.parametrize(
    ("spec", "failed", "limit"),
    [
        ({}, False, None),
        ({}, True, 0),
        ({"logging": {"strict": True}}, True, None),
        ({"backoffLimit": 5}, True, None),
    ],
)
def test_job_gets_no_retries_after_its_command_failed(
    spec: Object, limit: int | None, *, failed: bool
) -> None:
    cluster, job = stored(mini_cluster(**spec))
    patch = job_patch(job, Plan.of(cluster), command_failed=failed)
    assert patch.get("spec", {}).get("backoffLimit") == limit
    if limit == 0:
        job["spec"]["backoffLimit"] = 0
        assert "backoffLimit" not in job_patch(job, Plan.of(cluster)).get("spec", {})


def test_job_follows_size_deadline_retries_and_labels() -> None:
    cluster, job = stored(mini_cluster(maxSize=4))
    cluster["spec"] |= {"size": 3, "deadlineSeconds": 9, "backoffLimit": 2, "jobLabels": {"a": "b"}}
    patch = job_patch(job, Plan.of(cluster, maximum=4))
    assert patch["spec"] == {
        "activeDeadlineSeconds": 9,
        "backoffLimit": 2,
        "completions": 3,
        "parallelism": 3,
    }
    assert patch["metadata"]["labels"] == {
        "a": "b",
        "flux-framework.org/minicluster": "flux-sample",
    }


def test_suspension_of_a_job_comes_before_all_other_changes() -> None:
    """What is added to a Job that its tenant has filled up to the limit of etcd is refused."""
    cluster, job = stored(mini_cluster(maxSize=4))
    cluster["spec"] |= {"suspend": True, "deadlineSeconds": 9, "jobLabels": {"a": "b"}}
    plan = Plan.of(cluster, maximum=4)
    assert job_patch(job, plan) == {"spec": {"suspend": True}}
    job["spec"]["suspend"] = True
    assert job_patch(job, plan)["metadata"]["labels"]["a"] == "b"


def test_hash_covers_what_a_job_cannot_follow() -> None:
    base = mini_cluster()
    same = copy.deepcopy(base)
    same["spec"] |= {
        "size": 5,
        "suspend": True,
        "cleanup": True,
        "interactive": False,
        "network": {},
        "maxSize": 9,
    }
    same["spec"]["containers"][0] |= {"pullAlways": False, "environment": {}}
    assert spec_hash(same) == spec_hash(base)
    for change in (
        {"tasks": 2},
        {"interactive": True},
        {"containers": []},
        {"flux": {"optionFlags": "-x"}},
    ):
        assert spec_hash({"spec": {**base["spec"], **change}}) != spec_hash(base)


def test_end_by_the_success_policy_is_the_success_of_the_lead_broker() -> None:
    cluster, job = stored(mini_cluster(), **ended("Complete", "SuccessPolicy"))
    status = written(cluster, Observed(job=job))["status"]
    finished = find_condition(status["conditions"], "JobFinished")
    assert finished is not None
    assert finished["message"] == "The Job has ended: the pod of the lead broker has succeeded"


def test_size_of_a_minicluster_that_has_ended_has_no_effect() -> None:
    cluster, job = stored(mini_cluster(), **ended("Complete"))
    assert ignored_changes(job, cluster) == ""
    cluster["spec"]["size"] += 1
    size = cluster["spec"]["size"]
    message = ignored_changes(job, cluster)
    assert message.startswith(f"spec.size: {size}: the MiniCluster has ended, and gets no more")
    scaled = written(cluster, Observed(job=job, outdated=message))
    assert ("Warning", "ChangeNotApplied", message) in notices(cluster, scaled["status"])


def test_ignored_changes_are_named() -> None:
    cluster, job = stored(mini_cluster(maxSize=4))
    assert ignored_changes(job, cluster) == ""
    cluster["spec"]["maxSize"] = 6
    assert "spec.maxSize: 6: the brokers were started for at most 4 hosts" in ignored_changes(
        job, cluster
    )
    cluster["spec"]["tasks"] = 6
    assert "The spec was changed after the Job had started" in ignored_changes(job, cluster)


@pytest.mark.parametrize(
    ("spec", "annotation", "expected"),
    [
        ({}, None, None),
        ({"suspend": True}, None, True),
        ({"suspend": False}, "true", False),
        ({}, "true", True),
        ({}, "false", False),
        ({"suspend": True, "jobLabels": {"kueue.x-k8s.io/queue-name": "q"}}, None, None),
    ],
)
def test_suspension_is_decided_by_spec_annotation_or_kueue(
    spec: Object, annotation: str | None, expected: bool | None
) -> None:
    cluster = mini_cluster(**spec)
    if annotation is not None:
        cluster["metadata"]["annotations"] = {"flux-framework.org/suspend": annotation}
    assert wanted_suspend(cluster) is expected
    # A Job with a queue waits for Kueue, also if Kueue's webhook did not suspend it.
    assert desired_job(Plan.of(cluster))["spec"].get("suspend") is (
        True if "jobLabels" in spec else expected
    )


def pod(
    index: str = "0",
    *,
    uid: str = "j",
    version: str = "1",
    labels: dict[str, str] | None = None,
    deleted: str | None = None,
    **status: Any,
) -> Entry:
    """Return a pod of a Job as an informer stores it; ``deleted`` is the time of its deletion."""
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "flux-sample",
        "uid": uid,
        "controller": True,
    }
    metadata = {
        "name": f"p-{version}",
        "namespace": "ns",
        "uid": f"p-{version}",
        "resourceVersion": version,
        "labels": {
            "flux-framework.org/minicluster": "flux-sample",
            "batch.kubernetes.io/job-completion-index": index,
            **({"job-index": index} if labels is None else labels),
        },
        "ownerReferences": [owner],
    }
    if deleted is not None:
        metadata["deletionTimestamp"] = deleted
    raw = orjson.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status})
    return EntryDecoder(GVK("", "v1", "Pod")).decode(raw)


def container(state_name: str = "state", exit_code: int = 3, name: str = "flux-sample") -> Object:
    """Return the status of a container that has ended."""
    return {
        "containerStatuses": [{"name": name, state_name: {"terminated": {"exitCode": exit_code}}}]
    }


def test_removed_job_labels_are_removed_from_the_job() -> None:
    cluster, job = stored(mini_cluster(jobLabels={"team": "a", "tier": "gold"}))
    assert job_patch(job, Plan.of(cluster)) == {}
    job["metadata"]["labels"]["other"] = "client"
    kept = {**cluster, "spec": {**cluster["spec"], "jobLabels": {"team": "b"}}}
    assert job_patch(job, Plan.of(kept)) == {
        "metadata": {
            "labels": {"team": "b", "tier": None},
            "annotations": {"flux-framework.org/job-labels": "team"},
        }
    }
    none = {**cluster, "spec": {**cluster["spec"], "jobLabels": {}}}
    assert job_patch(job, Plan.of(none)) == {
        "metadata": {
            "labels": {"team": None, "tier": None},
            "annotations": {"flux-framework.org/job-labels": None},
        }
    }


def test_exit_code_is_that_of_the_container_that_runs_flux() -> None:
    newest = pod(version="9", phase="Running", **container("lastState", 4))
    older = pod(version="3", phase="Failed", **container())
    foreign = pod(version="99", uid="other", phase="Failed", **container(exit_code=7))
    worker = pod("1", version="98", phase="Failed", **container(exit_code=8))
    assert ended_lead([newest, older, foreign, worker]) == ("Running", 4)
    assert ended_lead([pod(version="10", phase="Pending"), older]) == ("Pending", 3)
    assert ended_lead([pod(phase="Running", **container(name="side"))]) == ("Running", None)
    assert lead_of([foreign, worker], "j", "flux-sample") is None


def ended_lead(pods: list[Entry]) -> tuple[str, int | None]:
    """Return the phase of the lead broker's newest pod, and Flux's last exit code."""
    lead = lead_of(pods, "j", "flux-sample")
    assert lead is not None
    return lead.phase, lead.exit_code


DISRUPTED = [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]


@pytest.mark.parametrize("state_name", ["state", "lastState"])
@pytest.mark.parametrize(
    ("exit_code", "reason", "status", "deleted", "expected"),
    [
        (0, "Completed", {}, None, (False, "")),
        (3, "Error", {}, None, (True, "Error")),
        (3, "", {}, None, (True, "Error")),
        (3, "not a reason", {}, None, (True, "Error")),
        (134, "Error", {}, None, (True, "Error")),
        (137, "OOMKilled", {}, None, (True, "OOMKilled")),
        (139, "Error", {}, None, (True, "Error")),
        (1, "Error", {}, "2026-01-01T00:00:00Z", (False, "")),
        (143, "Error", {}, "2026-01-01T00:00:00Z", (False, "")),
        (137, "Error", {"conditions": DISRUPTED}, None, (False, "")),
        (255, "Unknown", {}, None, (False, "")),
        (137, "ContainerStatusUnknown", {}, None, (False, "")),
    ],
)
def test_command_has_failed_unless_its_pod_was_deleted_evicted_or_lost(
    state_name: str,
    exit_code: int,
    reason: str,
    status: Object,
    deleted: str | None,
    expected: tuple[bool, str],
) -> None:
    containers = container(state_name, exit_code)
    containers["containerStatuses"][0][state_name]["terminated"]["reason"] = reason
    lead = lead_of([pod(deleted=deleted, **containers, **status)], "j", "flux-sample")
    assert lead is not None
    assert (lead.has_failed, lead.reason) == expected


def test_restarts_of_flux_are_those_in_all_pods_of_the_lead_broker() -> None:
    restarted = container("lastState")
    restarted["containerStatuses"][0]["restartCount"] = 2
    first = pod(version="1", phase="Failed", **container())
    second = pod(version="2", phase="Running", **restarted)
    lead = lead_of([first, second], "j", "flux-sample")
    assert lead is not None
    assert lead.restarts == 3


@pytest.mark.parametrize(
    ("lead", "expected"),
    [
        (LeadPod("Failed", 3, True, "Error"), "The command ended with exit code 3."),
        (
            LeadPod("Running", 137, True, "OOMKilled", 1),
            "The command ended with exit code 137 (OOMKilled). It was started again once.",
        ),
        (
            LeadPod("Running", 139, True, "Error", 2),
            "The command ended with exit code 139. It was started again 2 times.",
        ),
    ],
)
def test_failed_run_of_the_command_is_a_condition_until_one_succeeds(
    lead: LeadPod, expected: str
) -> None:
    cluster, job = stored(mini_cluster(backoffLimit=5))
    failed = written(cluster, Observed(job=job, lead=lead))
    found = condition(failed, "CommandFailed")
    assert (found["status"], found["reason"], found["message"]) == ("True", lead.reason, expected)
    assert written(failed, Observed(job=job)) == failed
    for ended in (LeadPod("Running", 0), LeadPod("Running", 143)):
        after = written(failed, Observed(job=job, lead=ended))
        assert "CommandFailed" not in true_conditions(after)


def test_outcome_names_why_the_command_was_killed_after_its_pod_was_deleted() -> None:
    cluster, job = stored(mini_cluster())
    killed = LeadPod("Running", 137, True, "OOMKilled", 1)
    cluster = written(cluster, Observed(job=job, lead=killed))
    job["status"] = ended("Failed", "BackoffLimitExceeded")
    finished = written(cluster, Observed(job=job))
    message = "The command failed with exit code 137 (OOMKilled): m"
    assert condition(finished, "Succeeded")["message"] == message


def test_only_relevant_changes_of_pods_cause_a_reconcile() -> None:
    def is_relevant(old: Entry | None, new: Entry | None) -> bool:
        return needs_reconcile(Event(EventType.UPDATED, NamespacedName("ns", "p"), old, new))

    lead, worker = pod(phase="Running"), pod("1", phase="Running")
    assert is_relevant(None, pod(labels={}))
    assert unlabelled_index(pod(labels={})) == "0"
    assert is_relevant(lead, None)
    assert is_relevant(lead, pod(phase="Succeeded", **container()))
    assert not is_relevant(lead, pod(phase="Running", podIP="1.2.3.4"))
    assert not is_relevant(worker, pod("1", phase="Failed"))
    waiting = {
        "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "ErrImagePull"}}}]
    }
    assert is_relevant(worker, pod("1", phase="Pending", **waiting))


def image_failure(name: str, reason: str) -> Object:
    """Return the status of a container whose image cannot be pulled."""
    waiting = {"reason": reason, "message": f"{reason} of nope:1"}
    return {"containerStatuses": [{"name": name, "state": {"waiting": waiting}}]}


def test_failure_is_that_of_the_lead_broker_or_of_the_first_pod_that_belongs_to_the_cluster() -> (
    None
):
    lead = pod(phase="Pending", **image_failure("lead", "ErrImagePull"))
    worker = pod("1", phase="Pending", **image_failure("worker", "InvalidImageName"))
    foreign = pod(uid="other", phase="Pending", **image_failure("foreign", "ErrImagePull"))
    ended = pod(phase="Failed", reason="Evicted", message="node is low on memory")
    found = failure_in([worker, foreign, lead], {"j"})
    assert found is not None
    assert (found.reason, found.message.partition(": ")[2]) == (
        "ErrImagePull",
        "container lead: ErrImagePull of nope:1",
    )
    found = failure_in([worker, foreign, ended], {"j"})
    assert found is not None
    assert found.reason == "InvalidImageName"
    assert failure_in([foreign, ended], {"j"}) is None


def test_condition_does_not_follow_each_attempt_to_pull_an_image() -> None:
    cluster, job = stored(mini_cluster())
    first = PodFailure("ErrImagePull", "Pod p: container c: not found")
    later = PodFailure("ImagePullBackOff", "Pod p: container c: Back-off pulling image")
    other = PodFailure("ImagePullBackOff", "Pod p: container d: Back-off pulling image")

    def pods_ready(failure: PodFailure | None) -> Object:
        observed = Observed(job=job, failure=failure)
        cluster["status"] = desired_status(cluster, observed, NOW)
        return dict(find_condition(cluster["status"]["conditions"], "PodsReady") or {})

    assert pods_ready(None) == {}
    assert pods_ready(first)["message"] == first.message
    assert pods_ready(later)["message"] == first.message
    assert pods_ready(other)["message"] == other.message
    assert pods_ready(None)["status"] == "True"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"startTime": "2026-01-01T00:00:00Z"}, 2),
        ({"startTime": "2026-01-01T00:00:00Z", "active": 1, "succeeded": 1}, 0),
        ({"startTime": "2026-01-01T00:00:00Z", "failed": 1}, 2),
        ({"startTime": "2026-01-01T00:00:00Z", "failed": 1, "terminating": 1}, 0),
        ({}, 0),
    ],
    ids=["none exist", "all exist", "failed", "being deleted", "not started"],
)
def test_pods_that_the_job_could_not_create_are_counted(status: Object, expected: int) -> None:
    job = {"spec": {"parallelism": 2}, "status": status}
    assert missing_pods(job) == expected


def test_pods_are_missing_only_after_the_usual_time_of_their_creation() -> None:
    job = {"spec": {"parallelism": 600}, "status": {"startTime": "2026-01-01T00:00:00Z"}}
    soon = datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)
    later = soon + timedelta(seconds=40)
    assert (seconds_until_first_pods(job, soon), seconds_until_first_pods(job, later)) == (20, 0)
    # the Job controller creates 20 pods a second
    assert (seconds_until_all_pods(job, soon), seconds_until_all_pods(job, later)) == (50, 10)
    assert seconds_until_all_pods(job, later + timedelta(seconds=10)) == 0


def test_z85_matches_the_specification() -> None:
    # https://rfc.zeromq.org/spec/32/ has this example
    assert z85_encode(bytes.fromhex("864FD26FB559F75B")) == "HelloWorld"
    assert z85_decode("HelloWorld") == bytes.fromhex("864FD26FB559F75B")
    for wrong in ("Hello~", "HelloWorl", "%%%%%"):
        with pytest.raises(ValueError, match=r"Z85|multiple"):
            z85_decode(wrong)
    with pytest.raises(ValueError, match="3 bytes"):
        z85_encode(b"abc")


def test_certificates_have_different_matching_keys() -> None:
    pairs = []
    for _ in range(2):
        lines = create_certificate("a-0").splitlines()
        public, secret = (
            next(line for line in lines if key in line).split('"')[1]
            for key in ("public-key", "secret-key")
        )
        private = X25519PrivateKey.from_private_bytes(z85_decode(secret))
        assert z85_encode(private.public_key().public_bytes_raw()) == public
        pairs.append(secret)
    assert pairs[0] != pairs[1]
