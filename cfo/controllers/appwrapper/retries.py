"""Whether an AppWrapper that is unhealthy is retried, and when: pure functions."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from cfo.api.appwrapper.names import (
    PODS_READY,
    QUOTA_RESERVED,
    RESOURCES_DEPLOYED,
    UNHEALTHY,
    Phase,
)
from cfo.controllers.appwrapper.decision import WrapperDecision, WrapperObservation
from cfo.controllers.appwrapper.status import WrapperStatus
from cfo.runtime.objects import format_duration

_FIRST_PAUSE: Final = timedelta(milliseconds=10)
_PAUSE_DOUBLINGS: Final = 13
"""How often the shortest pause between two attempts doubles with the retries: up to 82 s."""


def report_unhealthy(decision: WrapperDecision, reason: str, message: str) -> None:
    """Let the condition ``Unhealthy`` be true from now on, and report that in an Event."""
    decision.status.set(UNHEALTHY, True, reason, message, restart=True)
    decision.record_warning(UNHEALTHY, f"{reason}: {message}")


def reset_or_fail(
    observation: WrapperObservation,
    decision: WrapperDecision,
    *,
    terminal: bool = False,
    max_retries: int | None = None,
) -> None:
    """Retry or fail, and add which retry it is, or why there is none, to the condition ``Unhealthy``.

    ``max_retries`` is the greatest retry limit with more pods than admitted, whatever the AppWrapper asks for; earlier
    retries count, whatever the reason was.
    """
    status = decision.status
    limit = observation.settings.retry_limit
    if max_retries is not None:
        limit = min(limit, max_retries)
    refusal = _retry_refusal(observation, status, limit, terminal=terminal)
    if not refusal:
        status.count_retry()
        status.phase = Phase.RESETTING
        _add_outcome(status, f"retry {status.retries} of {limit}")
        return
    _fail(decision, refusal)


def fail_overdue(observation: WrapperObservation, decision: WrapperDecision) -> bool:
    """Fail an AppWrapper that is overdue (:func:`is_overdue`); return whether it is."""
    refusal = _overdue(observation, decision.status)
    if refusal:
        _fail(decision, refusal)
    return bool(refusal)


def _fail(decision: WrapperDecision, refusal: str) -> None:
    """Let an AppWrapper fail; ``refusal`` is why it is not retried."""
    status = decision.status
    _add_outcome(status, refusal)
    decision.record_warning("Failed", f"{status.reason(UNHEALTHY)}: {status.message(UNHEALTHY)}")
    status.phase = Phase.FAILED


def _add_outcome(status: WrapperStatus, outcome: str) -> None:
    message = "; ".join(filter(None, (status.message(UNHEALTHY), outcome)))
    status.set(UNHEALTHY, True, status.reason(UNHEALTHY), message)


def _retry_refusal(
    observation: WrapperObservation, status: WrapperStatus, limit: int, *, terminal: bool
) -> str:
    """Return why an AppWrapper is not retried after ``limit`` retries; empty if it is.

    ``terminal``: a container ended with an exit code that makes the failure terminal.
    """
    settings = observation.settings
    if terminal:
        failed = (pod for pod in observation.pods if pod.phase == "Failed")
        codes = {code for pod in failed for code in pod.exit_codes if settings.is_terminal(code)}
        return f"exit code {', '.join(map(str, sorted(codes)))} is not retried"
    if status.retries < limit:
        return _overdue(observation, status)
    if limit < settings.retry_limit:
        return (
            f"not retried any more, because {status.retries} retries failed, and at most {limit} are allowed with more "
            "pods than admitted"
        )
    if limit < 1:
        return f"not retried, because the retry limit is {limit}"
    return "the only retry failed as well" if limit == 1 else f"all {limit} retries failed as well"


def is_overdue(observation: WrapperObservation, status: WrapperStatus) -> bool:
    """Return whether an AppWrapper has kept the quota of a queue without ready pods for as long as it may."""
    if not observation.is_queued or status.is_true(PODS_READY):
        return False
    return observation.now >= latest_readiness(observation, status)


def _overdue(observation: WrapperObservation, status: WrapperStatus) -> str:
    """Return why an AppWrapper that keeps quota is not retried any more; empty if it is.

    Its user chooses the number of retries, and all of them keep the quota, also if no pod ever runs.
    """
    if not is_overdue(observation, status):
        return ""
    ceiling = observation.settings.grace_period_ceiling
    return (
        f"not retried any more, because its pods have not been ready for {format_duration(ceiling)}"
    )


def latest_readiness(observation: WrapperObservation, status: WrapperStatus) -> datetime:
    """Return until when the pods must be ready, whatever its user sets, and whichever pods are created and deleted.

    All attempts together keep the quota of a queue. Without a queue, each attempt has that time again.
    """
    start = QUOTA_RESERVED if observation.is_queued else RESOURCES_DEPLOYED
    since = max(status.last_transition(start), status.last_transition(PODS_READY))
    return since + observation.settings.grace_period_ceiling


def limited_by_readiness(
    observation: WrapperObservation, status: WrapperStatus, deadline: datetime
) -> datetime:
    """Return ``deadline``, or an earlier one until which an AppWrapper may keep a queue's quota without ready pods.

    This limits each deadline that counts from something that users can begin again and again, such as the reason of
    ``Unhealthy``.
    """
    if not observation.is_queued or status.is_true(PODS_READY):
        return deadline
    return min(deadline, latest_readiness(observation, status))


def retry_pause(observation: WrapperObservation, status: WrapperStatus) -> timedelta:
    """Return the pause before the next attempt: that of the settings, or a longer one after many retries."""
    doublings = min(status.retries, _PAUSE_DOUBLINGS)
    shortest: timedelta = _FIRST_PAUSE * 2**doublings
    return max(observation.settings.retry_pause, shortest)
