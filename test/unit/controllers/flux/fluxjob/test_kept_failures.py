"""Which failed FluxJobs keep their MiniCluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cfo.controllers.flux.fluxjob.kept_failures import MAX_KEPT, KeptFailures
from cfo.runtime import NamespacedName

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def key(number: int, namespace: str = "ns") -> NamespacedName:
    return NamespacedName(namespace, f"job-{number}")


def full(namespace: str = "ns") -> KeptFailures:
    """Return the newest failures of a namespace: each is a second newer than the one before it."""
    failures = KeptFailures()
    for number in range(MAX_KEPT):
        assert failures.keep(key(number, namespace), NOW + timedelta(seconds=number)) == []
    return failures


def test_newer_failure_displaces_the_oldest_of_its_namespace_only() -> None:
    failures = full()
    later = NOW + timedelta(hours=1)
    assert failures.keep(key(0, "other"), NOW) == []
    assert failures.keep(key(9), later) == [key(0)]
    assert not failures.may_keep(key(0), NOW)
    assert failures.may_keep(key(1), NOW + timedelta(seconds=1))
    assert failures.may_keep(key(0, "other"), NOW)


def test_older_failure_displaces_no_newer_one_whatever_the_order() -> None:
    failures = full()
    older = NOW - timedelta(seconds=1)
    assert not failures.may_keep(key(9), older)
    assert failures.keep(key(9), older) == [key(9)]
    assert failures.keep(key(9), older) == [key(9)]
    assert all(
        failures.may_keep(key(number), NOW + timedelta(seconds=number))
        for number in range(MAX_KEPT)
    )


def test_failures_of_the_same_time_do_not_displace_each_other_without_end() -> None:
    failures = KeptFailures()
    for number in range(MAX_KEPT):
        failures.keep(key(number), NOW)
    (displaced,) = failures.keep(key(MAX_KEPT), NOW)
    assert not failures.may_keep(displaced, NOW)


def test_same_failure_counts_once() -> None:
    failures = full()
    for _ in range(2):
        assert failures.keep(key(0), NOW) == []


def test_forgotten_failure_leaves_its_place_to_another() -> None:
    failures = full()
    failures.forget(key(3))
    failures.forget(key(3))
    assert failures.keep(key(9), NOW) == []


def test_released_failures_are_not_kept_again_until_they_are_forgotten() -> None:
    failures = full()
    assert failures.release("ns") == [key(number) for number in range(MAX_KEPT)]
    assert failures.release("ns") == []
    assert not failures.may_keep(key(0), NOW)
    assert failures.may_keep(key(9), NOW)
    failures.forget(key(0))
    assert failures.may_keep(key(0), NOW)
