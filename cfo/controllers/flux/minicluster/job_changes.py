"""What becomes of an existing Job when its MiniCluster changes.

A Job's template cannot be changed. A Job that has not started is therefore replaced; one that has started follows only
changes of its size, deadline, retries, labels and suspension.

Tenants can edit MiniClusters and their Jobs, but not the status of a MiniCluster, nor what a FluxJob is admitted with.
So these limit the size: ``admitted`` is how many pods the FluxJob of a MiniCluster is admitted with, or 0 if it has
none or its status has the limit already.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from cfo.api.flux.facts import controlling_job, size_of
from cfo.api.flux.names import PODS_PER_SECOND, USUAL_CREATION
from cfo.controllers.flux.minicluster.plan import (
    JOB_LABELS_ANNOTATION,
    MAXIMUM_SIZE_ANNOTATION,
    SCRIPTS_HASH_ANNOTATION,
    SPEC_HASH_ANNOTATION,
    Plan,
    spec_hash,
    wanted_suspend,
)
from cfo.controllers.flux.minicluster.resources import (
    backoff_limit,
    deadline_seconds,
    job_label_keys,
    job_labels,
)
from cfo.controllers.flux.minicluster.scripts import scripts_hash
from cfo.runtime import Object, annotations_of, find_condition, labels_of
from cfo.runtime.objects import parse_time


def end_condition(job: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the condition ``Complete`` or ``Failed`` of a Job that has ended, otherwise ``None``."""
    conditions = ((job or {}).get("status") or {}).get("conditions")
    for kind in ("Complete", "Failed"):
        condition = find_condition(conditions, kind)
        if condition is not None and condition.get("status") == "True":
            return condition
    return None


def is_suspended(job: Mapping[str, Any]) -> bool:
    """Return whether the Job is suspended."""
    return bool((job.get("spec") or {}).get("suspend"))


def missing_pods(job: Mapping[str, Any]) -> int:
    """Return how many pods of a Job that was started do not exist; 0 while some are being deleted."""
    status = job.get("status") or {}
    if is_suspended(job) or end_condition(job) is not None or not status.get("startTime"):
        return 0
    if status.get("terminating"):
        return 0
    existing = active_count(job) + int(status.get("succeeded") or 0)
    return max(0, int((job.get("spec") or {}).get("parallelism") or 0) - existing)


def active_count(job: Mapping[str, Any]) -> int:
    """Return how many pods of the Job run or wait, according to its status."""
    return int((job.get("status") or {}).get("active") or 0)


def has_failed_pods(job: Mapping[str, Any]) -> bool:
    """Return whether pods of the Job have failed, which it replaces after a pause; deleted ones count as failed."""
    return bool((job.get("status") or {}).get("failed"))


def seconds_until_first_pods(job: Mapping[str, Any], now: datetime) -> float:
    """Return for how many seconds all pods of a Job that was started may be missing; 0 if some should exist."""
    started = parse_time(job["status"]["startTime"])
    return max(0.0, (started + USUAL_CREATION - now).total_seconds())


def seconds_until_all_pods(job: Mapping[str, Any], now: datetime) -> float:
    """Return for how many seconds pods of a Job that was started may still be missing; 0 if all should exist."""
    pods = int((job.get("spec") or {}).get("parallelism") or 0)
    creation = timedelta(seconds=pods // PODS_PER_SECOND)
    return seconds_until_first_pods(job, now - creation)


def has_started(job: Mapping[str, Any]) -> bool:
    """Return whether pods of the Job exist or may exist; a suspended Job without pods starts from the beginning."""
    if not is_suspended(job):
        return True
    status = job.get("status") or {}
    return any(status.get(key) for key in ("startTime", "active", "terminating"))


def template_is_own(job: Mapping[str, Any]) -> bool:
    """Return whether this operator created the Job, and not the Go operator, whose pods expect other scripts."""
    return SPEC_HASH_ANNOTATION in annotations_of(job)


def is_outdated(job: Mapping[str, Any], cluster: Mapping[str, Any]) -> bool:
    """Return whether the spec of ``cluster`` was changed in a way that this Job cannot follow."""
    recorded = annotations_of(job).get(SPEC_HASH_ANNOTATION)
    return recorded is not None and recorded != spec_hash(cluster)


def keeps_scripts(job: Mapping[str, Any], plan: Plan) -> bool:
    """Return whether the Job has started with the scripts of another version of the operator.

    A pod that replaces another one must run the same scripts as its peers.
    """
    recorded = annotations_of(job).get(SCRIPTS_HASH_ANNOTATION)
    return has_started(job) and recorded != scripts_hash(plan)


def ignored_changes(job: Mapping[str, Any], cluster: Mapping[str, Any]) -> str:
    """Return a message about the changes of the spec that a Job that has started cannot follow, or an empty string."""
    remedy = "Delete and recreate the MiniCluster to apply the change."
    if controlling_job(cluster):
        remedy = "Create a new FluxJob with the change."
    size = size_of(cluster.get("spec") or {})
    if end_condition(job) is not None and size != (job.get("spec") or {}).get("parallelism"):
        return f"spec.size: {size}: the MiniCluster has ended, and gets no more pods. {remedy}"
    if is_outdated(job, cluster):
        return (
            "The spec was changed after the Job had started. The Job follows only changes of size, deadlineSeconds, "
            f"backoffLimit, jobLabels and suspend. {remedy}"
        )
    wanted = int((cluster.get("spec") or {}).get("maxSize") or 0)
    known = _known_hosts(cluster, job)
    if known and wanted > known:
        return (
            f"spec.maxSize: {wanted}: the brokers were started for at most {known} hosts. {remedy}"
        )
    return ""


def maximum_size(
    cluster: Mapping[str, Any], job: Mapping[str, Any] | None, admitted: int = 0
) -> int:
    """Return the maximum number of pods.

    That is ``maxSize``, or the size with which the cluster started. The brokers of a Job that has started know a fixed
    number of hosts, so it cannot be raised.
    """
    spec = cluster.get("spec") or {}
    wanted = int(spec.get("maxSize") or 0)
    known = _known_hosts(cluster, job)
    if job is None or not known:
        maximum = wanted or size_of(spec)
    elif has_started(job):
        maximum = min(wanted or known, known)
    else:
        maximum = wanted or max(known, size_of(spec))
    return _at_most(admitted, maximum)


def _at_most(admitted: int, number: int) -> int:
    """Return ``number``, or ``admitted`` if that is less, and not 0."""
    return min(number, admitted) if admitted else number


def limited_size(
    cluster: Mapping[str, Any], job: Mapping[str, Any] | None, admitted: int = 0
) -> int:
    """Return the size within the limits 1 and :func:`maximum_size`.

    A size below 1 becomes the size of the Job, and without a Job it stays as it is, which validation refuses. Without a
    Job, only ``admitted`` limits it.
    """
    size = size_of(cluster.get("spec") or {})
    if job is None:
        return _at_most(admitted, size)
    maximum = maximum_size(cluster, job, admitted)
    if size < 1:
        return min(int((job.get("spec") or {}).get("parallelism") or 1), maximum) or 1
    return min(size, maximum)


def known_hosts(
    cluster: Mapping[str, Any], job: Mapping[str, Any] | None, admitted: int = 0
) -> int:
    """Return the number of hosts in the configuration of the brokers, which the status records."""
    known = _known_hosts(cluster, job)
    if job is not None and known and has_started(job):
        return _at_most(admitted, known)
    return maximum_size(cluster, job, admitted)


def is_limit_recorded(cluster: Mapping[str, Any], job: Mapping[str, Any] | None) -> bool:
    """Return whether the status has the number of hosts that the brokers of a Job that has started know."""
    return job is not None and has_started(job) and _recorded_hosts(cluster) > 0


def must_record_first(
    cluster: Mapping[str, Any], job: Mapping[str, Any] | None, hosts: int
) -> bool:
    """Return whether the status must record another number of ``hosts`` before the Job, which may start then."""
    if job is None or has_started(job):
        return False
    return _recorded_hosts(cluster) not in (0, hosts)


def _recorded_hosts(cluster: Mapping[str, Any]) -> int:
    """Return the number of hosts that the status records; 0 if it has none."""
    return int((cluster.get("status") or {}).get("maximumSize") or 0)


def job_patch(job: Mapping[str, Any], plan: Plan, *, command_failed: bool = False) -> Object:
    """Return the merge patch that makes the Job follow the spec; empty if nothing changes.

    A suspension comes alone, and the rest after it: what is added to a Job that its tenant has filled up to the limit
    of etcd is refused. A Job whose command failed (see :class:`.lead.LeadPod`) and is not to be run again gets no more
    retries, so that it fails.
    """
    suspension = suspension_patch(job, plan.cluster)
    if suspension and not is_suspended(job):
        return suspension
    current = job.get("spec") or {}
    has_failed = command_failed and not plan.retries_command
    gets_no_retries = has_failed or current.get("backoffLimit") == 0
    spec: Object = {
        "activeDeadlineSeconds": deadline_seconds(plan.spec),
        "backoffLimit": 0 if gets_no_retries else backoff_limit(plan.spec),
        "completions": plan.size,
        "parallelism": plan.size,
    }
    changed = {key: value for key, value in spec.items() if current.get(key) != value}
    changed |= suspension.get("spec") or {}
    if "completions" in changed or "parallelism" in changed:
        # The API server allows this change only if both change together.
        changed["completions"] = plan.size
        changed["parallelism"] = plan.size
    patch = {"metadata": _metadata_patch(job, plan), "spec": changed}
    return {key: value for key, value in patch.items() if value}


def _metadata_patch(job: Mapping[str, Any], plan: Plan) -> Object:
    """Return the part of :func:`job_patch` for labels and annotations.

    Only labels that came from ``spec.jobLabels`` are removed, so those of other clients stay.
    """
    wanted = job_labels(plan)
    labels = labels_of(job)
    annotations = annotations_of(job)
    recorded = set((annotations.get(JOB_LABELS_ANNOTATION) or "").split(","))
    removed = recorded & (labels.keys() - wanted.keys())
    changed_labels: Object = {
        key: value for key, value in wanted.items() if labels.get(key) != value
    }
    changed_labels |= dict.fromkeys(sorted(removed))
    wanted_annotations: Object = {}
    if template_is_own(job):
        wanted_annotations[MAXIMUM_SIZE_ANNOTATION] = str(plan.maximum)
        wanted_annotations[JOB_LABELS_ANNOTATION] = job_label_keys(plan) or None
    changed_annotations = {
        key: value for key, value in wanted_annotations.items() if annotations.get(key) != value
    }
    patch = {"labels": changed_labels, "annotations": changed_annotations}
    return {key: value for key, value in patch.items() if value}


def suspension_patch(job: Mapping[str, Any], cluster: Mapping[str, Any]) -> Object:
    """Return the merge patch that suspends or resumes the Job; empty if nothing changes."""
    wanted = wanted_suspend(cluster)
    if wanted is None or wanted == is_suspended(job):
        return {}
    return {"spec": {"suspend": wanted}}


def _known_hosts(cluster: Mapping[str, Any], job: Mapping[str, Any] | None) -> int:
    """Return the number of hosts that the status and the Job record, the smaller one; 0 if neither does.

    The status is written first, and another client may start the Job before it gets the same number.
    """
    recorded = [_recorded_hosts(cluster), _annotated_hosts(job)]
    return min(filter(None, recorded), default=0)


def _annotated_hosts(job: Mapping[str, Any] | None) -> int:
    annotation = annotations_of(job or {}).get(MAXIMUM_SIZE_ANNOTATION) or ""
    is_number = annotation.isascii() and annotation.isdigit() and len(annotation) < 10
    return int(annotation) if is_number else 0
