"""What is reported about the objects of a MiniCluster that cannot be written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from cfo.controllers.flux.minicluster.children import Children
from cfo.runtime import Client, EventRecorder, Object, owner_reference
from cfo.runtime.client import NameTaken
from test.support.flux_environment import mini_cluster

CLUSTER = mini_cluster("a")
CLUSTER["metadata"]["uid"] = "u"


class Reports:
    """The writes of a MiniCluster, and the reasons and messages of their Events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        recorder = SimpleNamespace(
            event=lambda _, __, reason, message: self.events.append((reason, message))
        )
        self.children = Children(cast("Client", None), cast("EventRecorder", recorder), CLUSTER)


def job(owner: str = "", *, deleting: bool = False) -> Object:
    references = (
        [owner_reference({**CLUSTER, "metadata": {"name": owner, "uid": "other"}})] if owner else []
    )
    metadata = {"name": "a", "ownerReferences": references} | (
        {"deletionTimestamp": "now"} if deleting else {}
    )
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}


@pytest.mark.parametrize(
    ("owner", "consequence", "problem", "retry"),
    [
        (
            "",
            "it waits",
            ("NameTaken", "Job a already exists and does not belong to this MiniCluster."),
            300,
        ),
        ("b", "", None, 0),
        (
            "a",
            "",
            ("Deleting", "Job a of a deleted MiniCluster with the same name still exists."),
            5,
        ),
    ],
)
def test_taken_name_is_a_problem_if_the_object_is_required(
    owner: str, consequence: str, problem: tuple[str, str] | None, retry: float
) -> None:
    reports = Reports()
    reports.children.report_taken(NameTaken(job(owner), CLUSTER), consequence)
    assert reports.children.problem == problem
    assert reports.children.retry_after == retry
    expected = [
        ("NameTaken", "Job a already exists and does not belong to this MiniCluster: it waits")
    ]
    assert reports.events == (expected if consequence else [])


@pytest.mark.parametrize("is_lasting", [False, True])
def test_failure_is_in_the_status_and_a_lasting_one_an_event(is_lasting: bool) -> None:
    reports = Reports()
    reports.children.report_failure("refused", is_lasting=is_lasting)
    reports.children.report_terminating()
    assert reports.children.problem == ("FailedToWrite", "refused")
    assert reports.events == ([("FailedToReconcile", "refused")] if is_lasting else [])


async def test_object_that_is_being_deleted_is_not_written() -> None:
    reports = Reports()
    assert await reports.children.adopt(job()) == job()
    assert await reports.children.adopt(job(deleting=True)) is None
    assert reports.children.problem == ("Deleting", "Job a is being deleted.")
