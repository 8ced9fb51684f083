"""The CronJob controller: creates a Job at each scheduled time, and deletes the oldest finished ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from email.utils import format_datetime
from typing import Any, ClassVar, Final, NamedTuple
from zoneinfo import ZoneInfo

import orjson

from envtest.apimachinery.errors import GroupResource, StatusError
from envtest.apimachinery.objects import NamespacedName, Object, controller_of, format_time
from envtest.builtins.cron_schedule import Schedule, ScheduleError, parse_schedule
from envtest.controllers.job_outcome import COMPLETE, FAILED, finished_condition
from envtest.controllers.jobs import JOBS
from envtest.controllers.ownership import OwnerController
from envtest.controllers.pod_control import is_namespace_terminating

__all__ = ["CronJobs", "due_run", "seconds_until_next", "time_zone"]

CRON_JOBS: Final = GroupResource("batch", "cronjobs")
SCHEDULED: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_MANY: Final = 100
_DELTA: Final = 0.1
"""Seconds after a scheduled time until the controller starts the Job."""


class CronJobs(OwnerController):
    """Reconciles CronJobs."""

    account = "cronjob-controller"
    resource: ClassVar[GroupResource] = CRON_JOBS
    kind: ClassVar[str] = "CronJob"
    api_version: ClassVar[str] = "batch/v1"
    children: ClassVar[tuple[GroupResource, ...]] = (JOBS,)

    async def reconcile(self, key: NamespacedName) -> float | None:
        """Start the run that is due, and update the status; return the seconds until the next run."""
        cron_job = await self.owner(key)
        if cron_job is None:
            return None
        jobs = await self.controlled(cron_job, JOBS)
        status: dict[str, Any] = orjson.loads(orjson.dumps(cron_job.get("status") or {}))
        await self._follow_jobs(cron_job, status, jobs)
        delay = None
        try:
            if not cron_job["metadata"].get("deletionTimestamp"):
                delay = await self._run(cron_job, status)
        finally:
            await self._clean_up(cron_job, status, jobs)
            status["active"] = status.get("active") or None
            await self.set_status(cron_job, status)
        return delay

    async def _follow_jobs(
        self, cron_job: Object, status: dict[str, Any], jobs: Sequence[Object]
    ) -> None:
        """Remove Jobs that finished or disappeared from the active ones."""
        active = {each.get("uid"): each for each in status.get("active") or ()}
        existing = set()
        for job in jobs:
            uid = job["metadata"]["uid"]
            name = job["metadata"]["name"]
            existing.add(uid)
            finished = finished_condition(job)
            if finished is None:
                if uid not in active:
                    text = f"Saw a job that the controller did not create or forgot: {name}"
                    await self.events.warning(cron_job, "UnexpectedJob", text)
                continue
            if uid in active:
                text = f"Saw completed job: {name}, status: {finished['type']}"
                await self.events.normal(cron_job, "SawCompletedJob", text)
                del active[uid]
            completed = (job.get("status") or {}).get("completionTime")
            if (
                finished["type"] == COMPLETE
                and completed
                and completed > (status.get("lastSuccessfulTime") or "")
            ):
                status["lastSuccessfulTime"] = completed
        for uid in [uid for uid in active if uid not in existing]:
            name = active.pop(uid).get("name")
            await self.events.normal(cron_job, "MissingJob", f"Active job went missing: {name}")
        status["active"] = list(active.values())

    async def _run(self, cron_job: Object, status: dict[str, Any]) -> float | None:
        """Create the Job of a run that is due; return the seconds until the next run."""
        spec = cron_job["spec"]
        now = self.core.clock.now()
        try:
            zone = time_zone(spec)
        except (LookupError, ValueError, OSError):
            text = f'invalid timeZone: "{spec["timeZone"]}": unknown time zone {spec["timeZone"]}'
            await self.events.warning(cron_job, "UnknownTimeZone", text)
            return None
        if spec.get("suspend"):
            return None
        try:
            schedule = parse_schedule(spec["schedule"])
        except ScheduleError as error:
            text = f'unparseable schedule: "{spec["schedule"]}" : {error}'
            await self.events.warning(cron_job, "UnparseableSchedule", text)
            return None
        try:
            due = due_run(cron_job, schedule, now)
        except ScheduleError as error:
            await self.events.warning(
                cron_job, "InvalidSchedule", f"invalid schedule: {spec['schedule']} : {error}"
            )
            return None
        if due.run is not None:
            if due.too_many_missed:
                text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
                await self.events.warning(cron_job, "TooManyMissedTimes", text)
            if await self._may_start(cron_job, status, due.run, now):
                await self._start(cron_job, status, due.run, due.run.astimezone(zone))
        return self._until_next(cron_job, status, schedule)

    def _until_next(
        self, cron_job: Object, status: dict[str, Any], schedule: Schedule
    ) -> float | None:
        delay = seconds_until_next({**cron_job, "status": status}, schedule, self.core.clock.now())
        return None if delay is None else max(0.0, delay)

    async def _may_start(
        self, cron_job: Object, status: dict[str, Any], run: datetime, now: datetime
    ) -> bool:
        """Return whether a run starts a Job; the Jobs that it replaces are deleted."""
        spec = cron_job["spec"]
        active = status["active"]
        deadline = spec.get("startingDeadlineSeconds")
        if deadline is not None and run + timedelta(seconds=int(deadline)) < now:
            text = f"Missed scheduled time to start a job: {format_datetime(run)}"
            await self.events.warning(cron_job, "MissSchedule", text)
            return False
        name = _job_name(cron_job, run)
        if any(each.get("name") == name for each in active) or status.get(
            "lastScheduleTime"
        ) == format_time(run):
            return False
        if spec.get("concurrencyPolicy") == "Forbid" and active:
            text = "Not starting job because prior execution is running and concurrency policy is Forbid"
            await self.events.normal(cron_job, "JobAlreadyActive", text)
            return False
        if spec.get("concurrencyPolicy") == "Replace":
            for each in list(active):
                await self._delete_job(cron_job, status, each["name"], each["uid"])
        return True

    async def _start(
        self, cron_job: Object, status: dict[str, Any], run: datetime, local: datetime
    ) -> None:
        """Create the Job of a run, and add it to the active ones."""
        template: Object = orjson.loads(orjson.dumps(cron_job["spec"]["jobTemplate"]))
        metadata = template.get("metadata") or {}
        annotations = {
            **(metadata.get("annotations") or {}),
            SCHEDULED: local.isoformat().replace("+00:00", "Z"),
        }
        desired = {
            "metadata": {
                "name": _job_name(cron_job, run),
                "namespace": cron_job["metadata"]["namespace"],
                "labels": metadata.get("labels") or {},
                "annotations": annotations,
                "ownerReferences": [self.reference(cron_job)],
            },
            "spec": template["spec"],
        }
        namespace = desired["metadata"]["namespace"]
        name = desired["metadata"]["name"]
        try:
            job = await self.client.create(JOBS, desired)
        except StatusError as error:
            if not is_namespace_terminating(error):
                await self.events.warning(
                    cron_job, "FailedCreate", f"Error creating job: {error.message}"
                )
            raise
        if job is not None:
            await self.events.normal(cron_job, "SuccessfulCreate", f"Created job {name}")
        else:
            job = await self.client.read(JOBS, namespace, name)
            if job is None or (controller_of(job) or {}).get("uid") != cron_job["metadata"]["uid"]:
                return
        reference = {"apiVersion": "batch/v1", "kind": "Job", "namespace": namespace, "name": name}
        created = {field: job["metadata"][field] for field in ("uid", "resourceVersion")}
        status["active"].append({**reference, **created})
        status["lastScheduleTime"] = format_time(run)

    async def _delete_job(
        self, cron_job: Object, status: dict[str, Any], name: str, uid: str
    ) -> None:
        namespace = cron_job["metadata"]["namespace"]
        try:
            await self.client.delete(JOBS, namespace, name, uid=uid, propagation="Background")
        except StatusError as error:
            await self.events.warning(cron_job, "FailedDelete", f"Deleted job: {error.message}")
            raise
        status["active"] = [each for each in status["active"] if each.get("uid") != uid]
        await self.events.normal(cron_job, "SuccessfulDelete", f"Deleted job {name}")

    async def _clean_up(
        self, cron_job: Object, status: dict[str, Any], jobs: Sequence[Object]
    ) -> None:
        """Delete the oldest finished Jobs beyond the history limits."""
        limits = {COMPLETE: "successfulJobsHistoryLimit", FAILED: "failedJobsHistoryLimit"}
        for kind, field in limits.items():
            limit = cron_job["spec"].get(field)
            finished = [
                job
                for job in jobs
                if (finished_condition(job) or {}).get("type") == kind
                and not job["metadata"].get("deletionTimestamp")
            ]
            if limit is None or len(finished) <= int(limit):
                continue
            finished.sort(key=_start_order)
            for job in finished[: len(finished) - int(limit)]:
                await self._delete_job(
                    cron_job, status, job["metadata"]["name"], job["metadata"]["uid"]
                )


def _job_name(cron_job: Object, run: datetime) -> str:
    return f"{cron_job['metadata']['name']}-{int(run.timestamp()) // 60}"


def _start_order(job: Object) -> tuple[bool, str, str]:
    started = (job.get("status") or {}).get("startTime")
    return started is None, started or "", job["metadata"]["name"]


class Due(NamedTuple):
    """The latest run that is due, if any; ``since`` is the time from which runs were considered."""

    since: datetime
    run: datetime | None = None
    missed: int = 0
    """About how many runs were due since then."""

    @property
    def too_many_missed(self) -> bool:
        """Whether so many runs were missed that the clock or the deadline may be wrong."""
        return self.missed > _MANY


def time_zone(spec: Mapping[str, Any]) -> tzinfo:
    """Return the time zone of a CronJob. Raises LookupError, ValueError or OSError for an unknown one."""
    name = spec.get("timeZone")
    return UTC if name is None else ZoneInfo(name)


def due_run(
    cron_job: Mapping[str, Any], schedule: Schedule, now: datetime, *, deadline: bool = True
) -> Due:
    """Return the latest run that is due; with ``deadline``, only runs within ``startingDeadlineSeconds``.

    Raises ScheduleError if two runs are less than a second apart.
    """
    spec = cron_job["spec"]
    zone = time_zone(spec)
    last = (cron_job.get("status") or {}).get("lastScheduleTime")
    since = datetime.fromisoformat(last or cron_job["metadata"]["creationTimestamp"])
    if deadline and spec.get("startingDeadlineSeconds") is not None:
        since = max(since, now - timedelta(seconds=int(spec["startingDeadlineSeconds"])))
    first = schedule.next(since, zone)
    if first is None or now < first:
        return Due(since)
    second = schedule.next(first, zone)
    if second is None or now < second:
        return Due(since, first)
    interval = round((second - first).total_seconds())
    if interval < 1:
        raise ScheduleError("time difference between two schedules is less than 1 second")
    missed = int((now - first).total_seconds()) // interval + 1
    latest = None
    run = schedule.next(first + timedelta(seconds=(missed - 2) * interval), zone)
    while run is not None and run <= now:
        latest = run
        run = schedule.next(run, zone)
    return Due(since, latest, missed)


def seconds_until_next(
    cron_job: Mapping[str, Any], schedule: Schedule, now: datetime
) -> float | None:
    """Return the seconds until the controller starts the next run; ``None`` if there is none within five years."""
    try:
        due = due_run(cron_job, schedule, now, deadline=False)
        base = due.run or (now if due.missed else due.since)
    except ScheduleError:
        base = now
    run = schedule.next(base, time_zone(cron_job["spec"]))
    return None if run is None else (run - now).total_seconds() + _DELTA
