"""CronJobs on the plane's clock: which runs start, and which Jobs are kept."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object
from envtest.builtins.cron_schedule import parse_schedule
from envtest.controllers.cronjobs import due_run, seconds_until_next
from test.support.headless_plane import HeadlessPlane, headless_plane

EVENTS = GroupResource("", "events")
CRON_JOBS = GroupResource("batch", "cronjobs")
JOBS = GroupResource("batch", "jobs")


def cron_job(created: str = "2026-01-01T00:00:30Z", last: str | None = None, **spec: Any) -> Object:
    status = {"lastScheduleTime": last} if last else {}
    return {"metadata": {"name": "c", "creationTimestamp": created}, "spec": spec, "status": status}


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-01-01T{text}Z")


@pytest.mark.parametrize(
    ("obj", "now", "run", "missed"),
    [
        (cron_job(), "00:00:59", None, 0),
        (cron_job(), "00:01:00", "00:01:00", 0),
        (cron_job(), "00:05:10", "00:05:00", 5),
        (cron_job(last="2026-01-01T00:04:00Z"), "00:05:10", "00:05:00", 0),
        (cron_job(), "03:00:00", "03:00:00", 180),
        (cron_job(startingDeadlineSeconds=20), "00:05:30", None, 0),
        (cron_job(startingDeadlineSeconds=90), "00:05:10", "00:05:00", 2),
    ],
)
def test_due_run(obj: Object, now: str, run: str | None, missed: int) -> None:
    due = due_run(obj, parse_schedule("* * * * *"), at(now))
    assert (due.run, due.missed) == (at(run) if run else None, missed)


def test_next_run_is_after_the_last_one() -> None:
    schedule = parse_schedule("*/10 * * * *")
    assert seconds_until_next(cron_job(), schedule, at("00:01:00")) == pytest.approx(540.1)
    assert seconds_until_next(
        cron_job(last="2026-01-01T00:10:00Z"), schedule, at("00:10:01")
    ) == pytest.approx(599.1)
    assert seconds_until_next(cron_job(), parse_schedule("0 0 31 2 *"), at("00:01:00")) is None


def template() -> Object:
    pod = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}
    return {"metadata": {"labels": {"from": "cron"}}, "spec": {"template": {"spec": pod}}}


async def start(plane: HeadlessPlane, **spec: Any) -> Object:
    return await plane.create(
        "c", resource=CRON_JOBS, spec={"schedule": "0 * * * *", "jobTemplate": template(), **spec}
    )


def status(plane: HeadlessPlane) -> Object:
    return (plane.get("c", CRON_JOBS) or {}).get("status") or {}


def reasons(plane: HeadlessPlane) -> set[str]:
    return {
        each["reason"] for each in plane.list(EVENTS) if each["involvedObject"]["kind"] == "CronJob"
    }


async def finish(plane: HeadlessPlane, name: str, kind: str = "Complete") -> None:
    now = plane.core.clock.timestamp()
    interim = "SuccessCriteriaMet" if kind == "Complete" else "FailureTarget"
    conditions = [
        {"type": each, "status": "True", "lastTransitionTime": now} for each in (interim, kind)
    ]
    changes: Object = {"startTime": now, "conditions": conditions}
    if kind == "Complete":
        changes |= {"completionTime": now, "succeeded": 1}
    job = plane.get(name, JOBS)
    assert job is not None
    await plane.edit(job, lambda obj: obj.update(status=changes), JOBS, "status")


async def test_each_hour_starts_a_job() -> None:
    async with headless_plane("cronjob") as plane:
        await start(plane)
        await plane.core.clock.advance(3600)
        (job,) = plane.list(JOBS)
        run = datetime.fromisoformat(
            job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
        )
        assert job["metadata"]["name"] == f"c-{int(run.timestamp()) // 60}"
        assert job["metadata"]["labels"]["from"] == "cron"
        assert job["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
        assert status(plane)["active"][0]["uid"] == job["metadata"]["uid"]
        assert datetime.fromisoformat(status(plane)["lastScheduleTime"]) == run
        await plane.core.clock.advance(3 * 3600)
        assert len(plane.list(JOBS)) == 4
        await finish(plane, job["metadata"]["name"])
        await plane.until(lambda: status(plane).get("lastSuccessfulTime"))
        assert len(status(plane)["active"]) == 3
        assert reasons(plane) == {"SuccessfulCreate", "SawCompletedJob"}


async def test_forbidden_concurrency_skips_runs() -> None:
    async with headless_plane("cronjob") as plane:
        await start(plane, concurrencyPolicy="Forbid")
        await plane.core.clock.advance(3 * 3600)
        (job,) = plane.list(JOBS)
        assert "JobAlreadyActive" in reasons(plane)
        await finish(plane, job["metadata"]["name"])
        await plane.core.clock.advance(3600)
        assert len(plane.list(JOBS)) == 2


async def test_replaced_jobs_are_deleted() -> None:
    async with headless_plane("cronjob", "gc") as plane:
        await start(plane, concurrencyPolicy="Replace")
        await plane.core.clock.advance(3 * 3600)
        assert len(plane.list(JOBS)) == 1
        assert len(status(plane)["active"]) == 1


async def test_suspended_cron_job_starts_the_last_missed_run_when_it_resumes() -> None:
    async with headless_plane("cronjob") as plane:
        created = await start(plane, suspend=True)
        await plane.core.clock.advance(5 * 3600)
        assert plane.list(JOBS) == []
        await plane.edit(created, lambda obj: obj["spec"].update(suspend=False), CRON_JOBS)
        await plane.until(lambda: status(plane).get("active"))
        assert len(plane.list(JOBS)) == 1


async def test_old_finished_jobs_are_deleted() -> None:
    async with headless_plane("cronjob", "gc") as plane:
        await start(plane, successfulJobsHistoryLimit=1, failedJobsHistoryLimit=0)
        names = []
        for kind in ("Complete", "Failed", "Complete"):
            await plane.core.clock.advance(3600)
            (name,) = (each["name"] for each in status(plane)["active"])
            names.append(name)
            await finish(plane, name, kind)
            await plane.until(lambda: not status(plane).get("active"))
        await plane.until(lambda: plane.names(JOBS) == {names[2]})
