"""Undo: later edits are not overwritten, other objects are not touched, and the file is checked."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from cfo.console.migrate.raycluster.planning import ObservedCluster, Options, plan_cluster
from cfo.console.migrate.raycluster.steps import Action, ObjectPlan
from cfo.console.migrate.raycluster.targets import Target
from cfo.console.migrate.raycluster.undoing import (
    MAX_BYTES,
    InvalidUndoFile,
    Record,
    UndoFile,
    load,
    plan_undo_cluster,
    plan_undo_object,
)
from cfo.runtime.objects.unstructured import Object
from test.support.migration import TO_KUBERAY, injected, observed, result_of, user_cluster

_MAPS = ("annotations", "finalizers")


def migrated(**spec: Any) -> tuple[Record, Object]:
    """Return the record of a migrated RayCluster, and its current state."""
    plan = plan_cluster(
        observed(injected(user_cluster("rc", groups=2, **spec), go=True)), TO_KUBERAY
    )
    after = result_of(plan)
    return Record(plan.object, after), copy.deepcopy(after)


def undo(
    record: Record, current: Object | None, *, force: bool = False, allow_downtime: bool = True
) -> ObjectPlan:
    found = ObservedCluster(current, has_pods=True) if current is not None else None
    return plan_undo_cluster(record, found, force=force, allow_downtime=allow_downtime)


def restored(plan: ObjectPlan, current: Object) -> Object:
    for step in plan.steps:
        if step.change is not None:
            current = step.change(current)
    return current


def test_cluster_is_restored_but_for_later_changes_of_other_fields() -> None:
    record, current = migrated()
    current["spec"]["workerGroupSpecs"][1]["replicas"] = 3
    current["metadata"]["labels"] = {"added": "later"}
    result = restored(undo(record, current), current)
    expected = copy.deepcopy(record.before)
    expected["spec"]["suspend"] = False
    expected["spec"]["workerGroupSpecs"][1]["replicas"] = 3
    expected["metadata"]["labels"] = {"added": "later"}
    assert result == expected


def test_what_others_changed_between_two_runs_is_not_restored() -> None:
    """The second run of an interrupted migration records the state that it found, with the changes of others."""
    record, current = migrated()
    for obj in (record.after, current):
        assert obj is not None
        obj["metadata"] |= {"resourceVersion": "8", "labels": {"added": "later"}}
        obj["spec"]["workerGroupSpecs"][1]["replicas"] = 3
    result = restored(undo(record, current), current)
    assert result["metadata"]["resourceVersion"] == "8"
    assert result["metadata"]["labels"] == {"added": "later"}
    assert result["spec"]["workerGroupSpecs"][1]["replicas"] == 3
    assert (
        result["spec"]["workerGroupSpecs"][1]["template"]
        == record.before["spec"]["workerGroupSpecs"][1]["template"]
    )


@pytest.mark.parametrize("name", ["finalizers", "annotations", "workerGroupSpecs", "template"])
def test_group_with_the_name_of_a_field_is_restored(name: str) -> None:
    """Users name their groups; one that could not be read would prevent the undo of all RayClusters."""
    record, current = migrated()
    for obj in (record.before, record.after, current):
        assert obj is not None
        obj["spec"]["workerGroupSpecs"][0]["groupName"] = name
    current["spec"]["workerGroupSpecs"][0]["replicas"] = 3
    expected = {**record.before["spec"]["workerGroupSpecs"][0], "replicas": 3}
    assert restored(undo(record, current), current)["spec"]["workerGroupSpecs"][0] == expected


def test_deleted_group_is_a_conflict_and_not_created_again() -> None:
    record, current = migrated()
    del current["spec"]["workerGroupSpecs"][1]
    assert (
        "spec.workerGroupSpecs.w1 was edited after the migration"
        in undo(record, current).blockers[0]
    )
    (group,) = restored(undo(record, current, force=True), current)["spec"]["workerGroupSpecs"]
    assert group["groupName"] == "w0"


def test_later_edit_is_a_conflict_unless_forced() -> None:
    record, current = migrated()
    pod = current["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    pod["containers"][0]["image"] = "newer"
    plan = undo(record, current)
    assert plan.steps == []
    assert "spec.workerGroupSpecs.w0.template was edited after the migration" in plan.blockers[0]
    assert restored(undo(record, current, force=True), current)["spec"] == {
        **record.before["spec"],
        "suspend": False,
    }


def test_interrupted_migration_is_undone() -> None:
    """After its first write, the RayCluster is only suspended."""
    plan = plan_cluster(observed(injected(user_cluster("rc"))), TO_KUBERAY)
    record = Record(plan.object, result_of(plan))
    assert plan.steps[0].change is not None
    current = plan.steps[0].change(plan.object)
    undone = undo(record, current)
    assert [step.text for step in undone.steps] == ["resume"]
    expected = copy.deepcopy(record.before)
    expected["spec"]["suspend"] = False
    assert restored(undone, current) == expected


def test_running_cluster_is_not_restarted_without_permission() -> None:
    record, current = migrated()
    assert "--allow-downtime" in undo(record, current, allow_downtime=False).blockers[0]
    record, current = migrated(suspend=True)
    assert undo(record, current, allow_downtime=False).blockers == []


def test_cluster_that_had_no_annotations_is_restored_by_one_write() -> None:
    """The API server drops empty annotations and finalizers, so writing them would never end."""
    before = user_cluster("rc")
    before["metadata"] = {
        key: value for key, value in before["metadata"].items() if key not in _MAPS
    }
    after = {
        **before,
        "metadata": {**before["metadata"], "annotations": {"a": "b"}, "finalizers": ["c"]},
    }
    current = restored(undo(Record(before, after), after), after)
    current["metadata"] = {
        key: value for key, value in current["metadata"].items() if value or key not in _MAPS
    }
    assert current["metadata"] == before["metadata"]
    assert undo(Record(before, after), current).steps == []


@pytest.mark.parametrize("uid", [None, "another"])
def test_other_cluster_of_the_name_is_kept(uid: str | None) -> None:
    record, current = migrated()
    current["metadata"]["uid"] = uid
    assert undo(record, current if uid else None, force=True).steps == []


def policy(uid: str = "p", **fields: Any) -> Object:
    metadata = {
        "name": "p",
        "namespace": "ns",
        "uid": uid,
        "ownerReferences": [{"uid": "owner"}],
        **fields,
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {**metadata, "resourceVersion": "7"},
        "spec": {"ingress": [{}]},
    }


def test_deleted_object_is_created_without_server_fields() -> None:
    plan = plan_undo_object(Record(policy(), None), None, frozenset({"owner"}), force=False)
    (step,) = plan.steps
    assert step.action is Action.CREATE
    assert {"uid", "resourceVersion"} & step.object["metadata"].keys() == set()


@pytest.mark.parametrize(
    ("current", "owners"),
    [(policy("other"), {"owner"}), (None, set()), (policy(), {"owner"})],
    ids=["another object", "owner deleted", "not deleted"],
)
def test_object_that_cannot_or_need_not_be_restored_is_kept(
    current: Object | None, owners: set[str]
) -> None:
    assert (
        plan_undo_object(Record(policy(), None), current, frozenset(owners), force=True).steps == []
    )


def test_policy_that_kuberay_took_over_is_kept() -> None:
    taken = policy(labels={"app.kubernetes.io/created-by": "kuberay-operator"})
    record = Record(policy(), {**policy(), "spec": {"ingress": []}})
    assert plan_undo_object(record, taken, frozenset({"owner"}), force=True).steps == []


def test_secret_is_left_to_the_operator() -> None:
    secret = {**policy(), "apiVersion": "v1", "kind": "Secret"}
    assert (
        plan_undo_object(Record(secret, None), None, frozenset({"owner"}), force=True).steps == []
    )


def test_file_keeps_the_first_state_of_each_object(tmp_path: Path) -> None:
    path = tmp_path / "undo.json"
    state = observed(injected(user_cluster("rc")))
    plan = plan_cluster(state, TO_KUBERAY)
    UndoFile(path, "identity", "kuberay").record(plan)
    assert path.stat().st_mode & 0o777 == 0o600
    file = load(path)
    suspend = plan.steps[0].change
    assert suspend is not None
    interrupted = ObservedCluster(
        suspend(state.cluster), state.children, state.bindings, has_pods=False
    )
    file.record(plan_cluster(interrupted, TO_KUBERAY))
    again = load(path)
    assert again.records.keys() == file.records.keys()
    assert again.records["uid-rc"].before == state.cluster
    assert again.records["uid-rc"].after == result_of(plan)


def test_plan_without_steps_writes_no_file(tmp_path: Path) -> None:
    path = tmp_path / "undo.json"
    blocked = plan_cluster(observed(injected(user_cluster("rc"))), Options(Target.KUBERAY))
    UndoFile(path, "identity", "kuberay").record(blocked)
    assert not path.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a JSON document"),
        ("[]", "not an undo file of cfo migrate"),
        (
            json.dumps({"format": "cfo-migrate-undo/v1", "objects": [{"before": {}}]}),
            "has no kind, name or uid",
        ),
        (
            json.dumps(
                {"format": "cfo-migrate-undo/v1", "objects": [{"before": policy(), "after": []}]}
            ),
            "has no kind, name or uid",
        ),
    ],
)
def test_invalid_file_is_rejected(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "undo.json"
    path.write_text(content)
    with pytest.raises(InvalidUndoFile, match=message):
        load(path)


def test_huge_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "undo.json"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(InvalidUndoFile, match="larger than 512 MiB"):
        load(path)
