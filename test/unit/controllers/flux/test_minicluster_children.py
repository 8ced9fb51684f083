"""What is reported about the objects of a MiniCluster that cannot be written."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.flux.names import MINICLUSTER_LABEL
from cfo.controllers.flux.minicluster.objects import label_patch, problem_of
from cfo.runtime import Invalid, Object, owner_reference
from cfo.runtime.client import Child, ChildResult, ChildResults, NameTaken, Outcome
from test.support.flux_environment import mini_cluster

CLUSTER = mini_cluster("a")
CLUSTER["metadata"]["uid"] = "u"


def job(owner: str = "") -> Object:
    metadata: dict[str, Any] = {"name": "a", "namespace": "ns"}
    if owner:
        other = {**CLUSTER, "metadata": {"name": owner, "uid": "other"}}
        metadata["ownerReferences"] = [owner_reference(other)]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}


def result(outcome: Outcome, message: str = "", **fields: Any) -> ChildResult:
    return ChildResult(
        child=Child.present(job()), outcome=outcome, obj=job(), message=message, **fields
    )


def taken(owner: str) -> NameTaken:
    return NameTaken(job(owner), CLUSTER)


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (result(Outcome.DONE), None),
        (result(Outcome.SKIPPED), None),
        (
            result(Outcome.TAKEN, str(taken("b")), error=taken("b")),
            (
                "NameTaken",
                (
                    "Job a already exists and does not belong to this MiniCluster, but to MiniCluster b "
                    "of flux-framework.org/v1alpha2."
                ),
            ),
        ),
        (
            result(Outcome.WAITING, str(taken("a")), error=taken("a")),
            ("Deleting", "Job a of a deleted MiniCluster with the same name still exists."),
        ),
        (
            result(Outcome.WAITING, "Job a is being deleted"),
            ("Deleting", "Job a is being deleted."),
        ),
        (
            result(Outcome.TERMINATING),
            ("NamespaceTerminating", "The namespace is being deleted."),
        ),
        (result(Outcome.REFUSED, "no", error=Invalid(422)), ("FailedToWrite", "no")),
        (result(Outcome.FAILED, "no", error=Invalid(500)), ("FailedToWrite", "no")),
    ],
)
def test_result_is_a_problem(found: ChildResult, problem: tuple[str, str] | None) -> None:
    results = ChildResults(CLUSTER)
    results.add(found)
    assert problem_of(results) == problem


def test_taken_name_with_an_alternative_is_no_problem() -> None:
    child = Child.present(job(), fallback=Child.present(job()))
    results = ChildResults(CLUSTER)
    results.add(ChildResult(child=child, outcome=Outcome.TAKEN, obj=job(), message="taken"))
    assert problem_of(results) is None


def test_object_of_the_go_operator_gets_the_label() -> None:
    labels = {MINICLUSTER_LABEL: "a"}
    assert label_patch(CLUSTER, job()) == {"metadata": {"labels": labels}}
    labelled = {**job(), "metadata": {**job()["metadata"], "labels": labels}}
    assert label_patch(CLUSTER, labelled) == {}
