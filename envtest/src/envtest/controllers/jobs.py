"""The Job controller: creates pods until enough have succeeded or too many have failed.

The finalizer ``batch.kubernetes.io/job-tracking`` ensures that each finished pod is counted once: the controller
removes it from a pod when it has counted the pod.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from envtest.controllers.ownership import OwnerController, controller_reference
from envtest.controllers.pod_state import PODS, is_finished, is_ready, phase, pod_from_template
from envtest.errors import GroupResource
from envtest.objects import NamespacedName, Object, annotations_of, find_condition, has_finalizer, set_condition

__all__ = ["Jobs"]

JOBS: Final = GroupResource("batch", "jobs")
TRACKING: Final = "batch.kubernetes.io/job-tracking"
INDEX: Final = "batch.kubernetes.io/job-completion-index"


class Jobs(OwnerController):
    """Reconciles Jobs."""

    account = "job-controller"
    resource: ClassVar[GroupResource] = JOBS
    kind: ClassVar[str] = "Job"
    api_version: ClassVar[str] = "batch/v1"
    children: ClassVar[tuple[GroupResource, ...]] = (PODS,)

    async def reconcile(self, key: NamespacedName) -> float | None:
        """Count finished pods, create missing ones, and finish the Job when it is complete or has failed."""
        job = await self.owner(key)
        if job is None:
            await self._release_orphans(key)
            return None
        if _finished_condition(job):
            return await self._delete_after_ttl(job)
        pods = await self.controlled(job, PODS, job["spec"].get("selector") or {})
        job = await self._count(job, pods) or job
        active = [pod for pod in pods if not is_finished(pod) and not pod["metadata"].get("deletionTimestamp")]
        if job["metadata"].get("deletionTimestamp"):
            return None
        if failure := _failure(job, self.core.clock.now()):
            await self._finish(job, active, "Failed", *failure)
            return 0.0
        if message := _success_message(job):
            await self._finish(job, active, "Complete", "SuccessPolicy", message)
            return 0.0
        if _is_complete(job, active):
            await self._finish(job, [], "Complete", "CompletionsReached", "Reached expected number of succeeded pods")
            return 0.0
        if job["spec"].get("suspend"):
            await self._suspend(job, active)
            return None
        await self._set_start_time(job)
        created = await self._scale(job, pods, active)
        await self.set_status(job, {"active": len(active) + created or None, "ready": sum(map(is_ready, active))})
        return _seconds_to_deadline(job, self.core.clock.now())

    async def _release_orphans(self, key: NamespacedName) -> None:
        """Remove the finalizer from the pods of a deleted Job, which are no longer counted.

        kube-controller-manager does the same for orphan pods.
        """
        for record in self.client.records(PODS, key.namespace):
            controller = controller_reference(record)
            if controller is not None and (controller.kind, controller.name) == (self.kind, key.name):
                pod = await self.client.read(PODS, key.namespace, record.name)
                if pod is not None and has_finalizer(pod, TRACKING):
                    await self._untrack(pod)

    async def _count(self, job: Object, pods: list[Object]) -> Object | None:
        """Add pods that finished or are being deleted to the counts, each once."""
        succeeded = failed = 0
        indexes: list[int] = []
        for pod in pods:
            deleting = bool(pod["metadata"].get("deletionTimestamp"))
            if not has_finalizer(pod, TRACKING) or not (is_finished(pod) or deleting):
                continue
            if phase(pod) == "Succeeded":
                succeeded += 1
                indexes.append(_index_of(pod))
            elif phase(pod) == "Failed" or not _is_deleted_on_purpose(job, pod):
                failed += 1
            await self._untrack(pod)
        if not succeeded and not failed:
            return job
        status = job.get("status") or {}
        changes: dict[str, Any] = {
            "succeeded": (status.get("succeeded") or 0) + succeeded or None,
            "failed": (status.get("failed") or 0) + failed or None,
        }
        if _is_indexed(job):
            done = sorted({*_completed_indexes(job), *(index for index in indexes if index >= 0)})
            changes["completedIndexes"] = _intervals(done) or None
            changes["succeeded"] = len(done) or None
        return await self.set_status(job, changes)

    async def _untrack(self, pod: Object) -> None:
        def change(obj: Object) -> bool:
            finalizers = obj["metadata"].get("finalizers") or []
            if TRACKING not in finalizers:
                return False
            obj["metadata"]["finalizers"] = [one for one in finalizers if one != TRACKING]
            return True

        metadata = pod["metadata"]
        await self.client.modify(PODS, metadata["namespace"], metadata["name"], change, uid=metadata["uid"])

    async def _set_start_time(self, job: Object) -> None:
        status = job.get("status") or {}
        changes: dict[str, Any] = {"uncountedTerminatedPods": status.get("uncountedTerminatedPods") or {}}
        if not status.get("startTime"):
            changes["startTime"] = self.client.now()
        suspended = find_condition(status.get("conditions"), "Suspended")
        if suspended is not None and suspended.get("status") == "True":
            changes["conditions"] = self._with_condition(job, "Suspended", False, "JobResumed", "Job resumed")
            changes["startTime"] = self.client.now()
        if updated := await self.set_status(job, changes):
            job["status"] = updated.get("status")

    async def _scale(self, job: Object, pods: list[Object], active: list[Object]) -> int:
        """Create missing pods or delete surplus ones; return the change of the number of pods."""
        spec, status = job["spec"], job.get("status") or {}
        parallelism = int(spec.get("parallelism", 1))
        succeeded = int(status.get("succeeded") or 0)
        completions = spec.get("completions")
        if completions is None:
            desired = len(active) if succeeded else parallelism
        else:
            desired = min(parallelism, int(completions) - succeeded)
        if _is_indexed(job) and completions is not None:
            surplus = [pod for pod in active if _index_of(pod) >= int(completions)]
            await self.delete_all(PODS, surplus)
            active = [pod for pod in active if pod not in surplus]
        if len(active) > desired:
            await self.delete_all(PODS, active[desired:])
            return desired - len(active)
        free_indexes = self._free_indexes(job, active) if _is_indexed(job) else None
        for number in range(desired - len(active)):
            await self._create_pod(job, None if free_indexes is None else free_indexes[number])
        return max(0, desired - len(active))

    def _free_indexes(self, job: Object, active: list[Object]) -> list[int]:
        used_indexes = {*_completed_indexes(job), *(_index_of(pod) for pod in active)}
        return [index for index in range(int(job["spec"].get("completions") or 0)) if index not in used_indexes]

    async def _create_pod(self, job: Object, index: int | None) -> None:
        metadata = job["metadata"]
        pod = pod_from_template(job["spec"].get("template") or {}, metadata["namespace"], self.reference(job))
        pod["metadata"].setdefault("finalizers", []).append(TRACKING)
        pod["metadata"]["generateName"] = f"{metadata['name']}-"
        if index is not None:
            pod["metadata"]["generateName"] = f"{metadata['name']}-{index}-"
            pod["metadata"].setdefault("annotations", {})[INDEX] = str(index)
            pod["metadata"].setdefault("labels", {})[INDEX] = str(index)
            pod["spec"].setdefault("hostname", f"{metadata['name']}-{index}")
            field = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
            for container in pod["spec"].get("containers") or ():
                container.setdefault("env", []).append({"name": "JOB_COMPLETION_INDEX", "valueFrom": field})
        await self.client.create(PODS, pod)

    async def _suspend(self, job: Object, active: list[Object]) -> None:
        await self.delete_all(PODS, active)
        conditions = self._with_condition(job, "Suspended", True, "JobSuspended", "Job suspended")
        await self.set_status(job, {"conditions": conditions, "startTime": None, "active": None, "ready": 0})

    def _with_condition(self, job: Object, kind: str, status: bool, reason: str, message: str) -> list[Object]:
        conditions = [dict(one) for one in (job.get("status") or {}).get("conditions") or ()]
        now = self.client.now()
        existing = find_condition(conditions, kind)
        text = "True" if status else "False"
        if existing is None or existing.get("status") != text:
            condition = {"type": kind, "status": text, "reason": reason, "message": message, "lastProbeTime": now}
            set_condition(conditions, condition, now=now)
        return conditions

    async def _finish(self, job: Object, active: list[Object], kind: str, reason: str, message: str) -> None:
        """Delete the remaining pods, and set the interim and the final condition of a finished Job."""
        await self.delete_all(PODS, active)
        interim_kind = "SuccessCriteriaMet" if kind == "Complete" else "FailureTarget"
        job.setdefault("status", {})["conditions"] = self._with_condition(job, interim_kind, True, reason, message)
        conditions = self._with_condition(job, kind, True, reason, message)
        changes: dict[str, Any] = {"conditions": conditions, "active": None, "ready": 0}
        if not (job.get("status") or {}).get("startTime"):
            changes["startTime"] = self.client.now()
        if kind == "Complete":
            changes["completionTime"] = self.client.now()
        changes.setdefault("uncountedTerminatedPods", job["status"].get("uncountedTerminatedPods") or {})
        await self.set_status(job, changes)

    async def _delete_after_ttl(self, job: Object) -> float | None:
        """Delete a finished Job when its TTL has expired; return the seconds until then."""
        for pod in await self.controlled(job, PODS):
            if has_finalizer(pod, TRACKING):
                await self._untrack(pod)
        seconds = job["spec"].get("ttlSecondsAfterFinished")
        if seconds is None or job["metadata"].get("deletionTimestamp"):
            return None
        condition = _finished_condition(job) or {}
        moment = datetime.fromisoformat(condition["lastTransitionTime"]) + timedelta(seconds=int(seconds))
        remaining = (moment - self.core.clock.now()).total_seconds()
        if remaining > 0:
            return remaining
        metadata = job["metadata"]
        await self.client.delete(
            JOBS, metadata["namespace"], metadata["name"], uid=metadata["uid"], propagation="Foreground"
        )
        return None


def _finished_condition(job: Object) -> Any:
    """Return the condition of a finished Job, or ``None``."""
    conditions = (job.get("status") or {}).get("conditions")
    for kind in ("Complete", "Failed"):
        condition = find_condition(conditions, kind)
        if condition is not None and condition.get("status") == "True":
            return condition
    return None


def _is_indexed(job: Object) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def _is_deleted_on_purpose(job: Object, pod: Object) -> bool:
    """Return whether the Job controller deleted the pod, because the Job was suspended or has fewer indexes now."""
    completions = job["spec"].get("completions")
    is_surplus = _is_indexed(job) and completions is not None and _index_of(pod) >= int(completions)
    return is_surplus or bool(job["spec"].get("suspend"))


def _index_of(pod: Object) -> int:
    return int(annotations_of(pod).get(INDEX, "-1"))


def _success_message(job: Object) -> str:
    """Return kube-controller-manager's message if the success policy of the Job is met, otherwise an empty string."""
    succeeded = _completed_indexes(job)
    for number, rule in enumerate((job["spec"].get("successPolicy") or {}).get("rules") or ()):
        expected, count = _parse_indexes(rule.get("succeededIndexes")), rule.get("succeededCount")
        matching = succeeded & expected if expected else succeeded
        if len(matching) >= (len(expected) if count is None else int(count)):
            return f"Matched rules at index {number}"
    return ""


def _completed_indexes(job: Object) -> set[int]:
    """Return the indexes that have succeeded."""
    return _parse_indexes((job.get("status") or {}).get("completedIndexes"))


def _parse_indexes(text: str | None) -> set[int]:
    """Return the indexes in ``0,2-4``."""
    found: set[int] = set()
    for part in (text or "").split(","):
        if part:
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    return found


def _intervals(indexes: list[int]) -> str:
    """Format sorted indexes as ``0,2-4``."""
    parts: list[list[int]] = []
    for index in indexes:
        if parts and index == parts[-1][-1] + 1:
            parts[-1].append(index)
        else:
            parts.append([index])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def _is_complete(job: Object, active: list[Object]) -> bool:
    succeeded = int((job.get("status") or {}).get("succeeded") or 0)
    completions = job["spec"].get("completions")
    if completions is None:
        return bool(succeeded) and not active
    return succeeded >= int(completions)


def _seconds_to_deadline(job: Object, now: datetime) -> float | None:
    """Return the seconds until the Job exceeds its active deadline."""
    limit, started = job["spec"].get("activeDeadlineSeconds"), (job.get("status") or {}).get("startTime")
    if limit is None or not started:
        return None
    moment = datetime.fromisoformat(started) + timedelta(seconds=int(limit))
    return max(0.0, (moment - now).total_seconds())


def _failure(job: Object, now: datetime) -> tuple[str, str] | None:
    """Return reason and message of the failure of a Job, with the messages of kube-controller-manager."""
    if int((job.get("status") or {}).get("failed") or 0) > int(job["spec"].get("backoffLimit", 6)):
        return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    if not job["spec"].get("suspend") and _seconds_to_deadline(job, now) == 0.0:
        return "DeadlineExceeded", "Job was active longer than specified deadline"
    return None
