"""Which run of a CronJob is due, and when the next one is. All functions are pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from envtest.builtins.cron_schedule import Schedule, ScheduleError

__all__ = ["Due", "due_run", "seconds_until_next", "time_zone"]

_MANY: Final = 100
_DELTA: Final = 0.1
"""Seconds after a scheduled time until the controller starts the Job."""


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


def due_run(cron_job: Mapping[str, Any], schedule: Schedule, now: datetime, *, deadline: bool = True) -> Due:
    """Return the latest run that is due; with ``deadline``, only runs within ``startingDeadlineSeconds``.

    Raises ScheduleError if two runs are less than a second apart.
    """
    spec, zone = cron_job["spec"], time_zone(cron_job["spec"])
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
    latest, run = None, schedule.next(first + timedelta(seconds=(missed - 2) * interval), zone)
    while run is not None and run <= now:
        latest, run = run, schedule.next(run, zone)
    return Due(since, latest, missed)


def seconds_until_next(cron_job: Mapping[str, Any], schedule: Schedule, now: datetime) -> float | None:
    """Return the seconds until the controller starts the next run; ``None`` if there is none within five years."""
    try:
        due = due_run(cron_job, schedule, now, deadline=False)
        base = due.run or (now if due.missed else due.since)
    except ScheduleError:
        base = now
    run = schedule.next(base, time_zone(cron_job["spec"]))
    return None if run is None else (run - now).total_seconds() + _DELTA
