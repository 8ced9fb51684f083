"""When a run stops to suspend RayClusters, after others did not stop."""

from __future__ import annotations

from typing import Any

from cfo.console.migrate.raycluster.planning import SUSPENDED_ANNOTATION
from cfo.console.migrate.raycluster.steps import ObjectPlan
from cfo.console.migrate.raycluster.stop_limit import StopLimit
from cfo.runtime.objects.unstructured import Object
from test.support.migration import user_cluster


def cluster_of(namespace: str, **spec: Any) -> Object:
    cluster = user_cluster("rc", **spec)
    cluster["metadata"]["namespace"] = namespace
    return cluster


def running(namespace: str) -> ObjectPlan:
    return ObjectPlan(cluster_of(namespace), restarts=True)


def suspended(namespace: str) -> ObjectPlan:
    return ObjectPlan(cluster_of(namespace, suspend=True))


def test_one_that_does_not_stop_holds_up_no_other() -> None:
    limit = StopLimit()
    limit.record_failure(cluster_of("a"), are_pods_deleted=False)
    for namespace in ("a", "b"):
        assert limit.reason_against(running(namespace)) == ""


def test_three_failures_end_the_waiting_in_their_namespace_only() -> None:
    limit = StopLimit()
    for _ in range(3):
        limit.record_failure(cluster_of("a"), are_pods_deleted=False)
        limit.record_stopped()
    for plan in (running("a"), suspended("a")):
        reason = limit.reason_against(plan)
        assert reason.startswith("3 other RayClusters of its namespace did not stop")
    assert limit.reason_against(running("b")) == ""


def test_failures_in_three_namespaces_let_only_suspended_ones_be_migrated() -> None:
    limit = StopLimit()
    for namespace in ("a", "b", "c"):
        assert limit.reason_against(running("d")) == ""
        limit.record_failure(cluster_of(namespace), are_pods_deleted=False)
    assert limit.reason_against(running("d")) == (
        "KubeRay deleted no pods of RayClusters in the namespaces a, b, c, so no other one is suspended: check "
        "KubeRay, or migrate this namespace with -n"
    )
    assert limit.reason_against(suspended("d")) == ""


def test_delayed_deletions_of_pods_count_in_their_namespace() -> None:
    """Users can hold their pods in any number of namespaces by finalizers."""
    limit = StopLimit()
    for namespace in ("a", "b", "c") * 3:
        limit.record_failure(cluster_of(namespace), are_pods_deleted=True)
    assert limit.reason_against(running("d")) == ""
    assert limit.reason_against(running("a")) != ""


def test_one_that_stops_begins_the_count_of_namespaces_again() -> None:
    limit = StopLimit()
    for namespace in ("a", "b"):
        limit.record_failure(cluster_of(namespace), are_pods_deleted=False)
    limit.record_stopped()
    for namespace in ("c", "d"):
        limit.record_failure(cluster_of(namespace), are_pods_deleted=False)
    assert limit.reason_against(running("e")) == ""


def test_those_that_their_owners_suspended_only_count_in_their_namespace() -> None:
    limit = StopLimit()
    for namespace in ("a", "b", "c"):
        limit.record_failure(cluster_of(namespace, suspend=True), are_pods_deleted=False)
    assert limit.reason_against(running("d")) == ""
    for namespace in ("a", "b", "c"):  # suspended by an earlier run
        earlier = cluster_of(namespace, suspend=True)
        earlier["metadata"]["annotations"] = {SUSPENDED_ANNOTATION: "true"}
        limit.record_failure(earlier, are_pods_deleted=False)
    assert "in the namespaces a, b, c," in limit.reason_against(running("d"))
