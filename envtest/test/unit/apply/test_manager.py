"""Field ownership over a sequence of updates and applies by several managers."""

from typing import Any

import orjson
import pytest

from envtest.apimachinery.errors import StatusError
from envtest.apimachinery.objects import Object
from envtest.apply import ObjectType, Tracker, restore_times
from envtest.apply.fieldset import FieldSet
from envtest.apply.scale_ownership import from_scale, to_scale
from envtest.builtins.catalog import object_meta
from envtest.schema.schema_node import Schema

CONFIG_MAP = Tracker(ObjectType.builtin("io.k8s.api.core.v1.ConfigMap"), "v1", "ConfigMap")
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class ManagedObject:
    """An object with the managedFields of its writes; the time of each write is one second after the last."""

    def __init__(self, tracker: Tracker, api_version: str = "v1", kind: str = "ConfigMap") -> None:
        self.tracker, self.api_version, self.kind = tracker, api_version, kind
        self.live: Object | None = None
        self.second = 0

    def _body(self, content: dict[str, Any]) -> Object:
        metadata = {"name": "a", **content.pop("metadata", {})}
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata, **content}

    def _now(self) -> str:
        self.second += 1
        return f"2026-01-01T00:00:{self.second:02}Z"

    def apply(
        self, manager: str, *, force: bool = False, via: Tracker | None = None, **content: Any
    ) -> Object:
        tracker = via or self.tracker
        body = self._body(content)
        self._store(tracker.apply(self.live, body, manager=manager, force=force, now=self._now()))
        return self.object

    def update(self, manager: str, *, via: Tracker | None = None, **content: Any) -> Object:
        body = self._body(content)
        (via or self.tracker).track(self.live, body, manager=manager, now=self._now())
        self._store(body)
        return self.object

    def _store(self, obj: Object) -> None:
        obj["metadata"]["uid"] = "u"
        self.live = obj

    @property
    def object(self) -> Object:
        assert self.live is not None
        return self.live

    @property
    def entries(self) -> list[dict[str, Any]]:
        return self.object["metadata"].get("managedFields") or []

    @property
    def owners(self) -> dict[str, Any]:
        return {
            f"{entry['manager']} {entry['operation']}": entry["fieldsV1"] for entry in self.entries
        }

    def time(self, manager: str) -> str | None:
        return next(entry.get("time") for entry in self.entries if entry["manager"] == manager)


@pytest.fixture
def managed() -> ManagedObject:
    return ManagedObject(CONFIG_MAP)


def conflict(call: Any, *args: Any, **options: Any) -> StatusError:
    with pytest.raises(StatusError) as caught:
        call(*args, **options)
    assert caught.value.code == 409
    return caught.value


def test_apply_owns_fields_of_its_configuration(managed: ManagedObject) -> None:
    managed.apply("one", data={"k": "v"}, metadata={"labels": {"l": "1"}})
    assert managed.entries == [
        {
            "manager": "one",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:01Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:k": {}}, "f:metadata": {"f:labels": {"f:l": {}}}},
        }
    ]


def test_apply_removes_fields_that_left_its_configuration(managed: ManagedObject) -> None:
    managed.apply("one", data={"k": "v", "j": "w"})
    assert managed.apply("one", data={"k": "v"})["data"] == {"k": "v"}
    managed.apply("one")
    assert not managed.object.get("data")
    assert managed.entries == []


def test_fields_owned_by_another_manager_are_kept(managed: ManagedObject) -> None:
    managed.apply("one", data={"shared": "x", "mine": "1"})
    managed.apply("two", data={"shared": "x"})
    assert managed.apply("one")["data"] == {"shared": "x"}
    assert managed.owners == {"two Apply": {"f:data": {"f:shared": {}}}}


def test_apply_without_changes_has_no_time(managed: ManagedObject) -> None:
    managed.apply("one", data={"k": "v"})
    managed.apply("two", data={"k": "v"})
    assert managed.time("two") is None
    assert managed.time("one") == "2026-01-01T00:00:01Z"


def test_conflict_names_owner_and_field(managed: ManagedObject) -> None:
    managed.apply("one", data={"k": "v", "j": "w"})
    error = conflict(managed.apply, "two", data={"k": "other"})
    assert error.message == 'Apply failed with 1 conflict: conflict with "one": .data.k'
    assert error.details == {
        "causes": [
            {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.k"}
        ]
    }


def test_conflicts_are_listed_by_owner(managed: ManagedObject) -> None:
    managed.apply("one", data={"a": "1", "b": "1"})
    managed.update("two", data={"a": "1", "b": "1", "c": "1"})
    error = conflict(managed.apply, "three", data={"a": "2", "b": "2", "c": "2"})
    assert error.message == (
        'Apply failed with 3 conflicts: conflicts with "one":\n- .data.a\n- .data.b\n'
        'conflicts with "two" using v1:\n- .data.c'
    )


def test_forced_apply_takes_ownership(managed: ManagedObject) -> None:
    managed.apply("one", data={"k": "v", "j": "w"})
    assert managed.apply("two", force=True, data={"k": "mine"})["data"] == {"k": "mine", "j": "w"}
    assert managed.owners == {
        "one Apply": {"f:data": {"f:j": {}}},
        "two Apply": {"f:data": {"f:k": {}}},
    }


def test_update_takes_ownership_of_changed_fields(managed: ManagedObject) -> None:
    managed.apply("one", data={"k": "v", "j": "w"})
    managed.update(
        "two", data={"k": "changed", "j": "w"}, metadata={"managedFields": managed.entries}
    )
    assert managed.owners == {
        "one Apply": {"f:data": {"f:j": {}}},
        "two Update": {"f:data": {"f:k": {}}},
    }


def test_create_owns_new_containers(managed: ManagedObject) -> None:
    managed.update("one", data={"k": "v"})
    assert managed.owners == {"one Update": {"f:data": {".": {}, "f:k": {}}}}


def test_update_without_managed_fields_keeps_them(managed: ManagedObject) -> None:
    managed.apply("one", data={"k": "v"})
    managed.update("two", data={"k": "v", "n": "x"})
    assert set(managed.owners) == {"one Apply", "two Update"}


@pytest.mark.parametrize("reset", [[], [{}]])
def test_reset_of_managed_fields_stops_tracking_until_first_apply(
    managed: ManagedObject, reset: list[Any]
) -> None:
    managed.update("one", data={"k": "v"})
    managed.update("one", data={"k": "v"}, metadata={"managedFields": reset})
    managed.update("two", data={"k": "w"})
    assert managed.entries == []
    error = conflict(managed.apply, "three", data={"k": "x"})
    assert (
        error.message
        == 'Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.k'
    )
    managed.apply("three", force=True, data={"j": "y"})
    assert managed.owners["before-first-apply Update"] == {"f:data": {".": {}, "f:k": {}}}


def test_invalid_managed_fields_are_ignored(managed: ManagedObject) -> None:
    managed.apply("one", data={"k": "v"})
    managed.update(
        "two", data={"k": "w"}, metadata={"managedFields": [{"manager": "x", "operation": "Dance"}]}
    )
    assert set(managed.owners) == {"two Update"}


def test_apply_and_update_of_one_manager_have_separate_entries(managed: ManagedObject) -> None:
    managed.update("one", data={"k": "v", "j": "w"})
    managed.apply("one", force=True, data={"k": "mine"})
    assert managed.owners == {
        "one Apply": {"f:data": {"f:k": {}}},
        "one Update": {"f:data": {".": {}, "f:j": {}}},
    }


def test_oldest_update_managers_are_merged_above_ten(managed: ManagedObject) -> None:
    data: dict[str, str] = {}
    for number in range(12):
        data = {**data, f"k{number:02}": "v"}
        managed.update(f"m{number:02}", data=data)
    managers = [entry["manager"] for entry in managed.entries]
    assert len(managers) == 10
    assert "ancient-changes" in managers
    assert managed.owners["ancient-changes Update"] == {
        "f:data": {".": {}, "f:k00": {}, "f:k01": {}, "f:k02": {}}
    }


def test_metadata_set_by_the_server_has_no_owner(managed: ManagedObject) -> None:
    managed.apply(
        "one", metadata={"namespace": "n", "uid": "u", "resourceVersion": "1", "labels": {"a": "b"}}
    )
    assert managed.owners == {"one Apply": {"f:metadata": {"f:labels": {"f:a": {}}}}}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"apiVersion": "v1", "kind": "Secret"}, "invalid object type: /v1, Kind=Secret"),
        ({"kind": "ConfigMap"}, "invalid object type: /, Kind=ConfigMap"),
        (
            {"apiVersion": "apps/v1", "kind": "Deployment"},
            "invalid object type: apps/v1, Kind=Deployment",
        ),
        (
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "a", "managedFields": []},
            },
            "metadata.managedFields must be nil",
        ),
    ],
)
def test_apply_of_another_kind_is_a_bad_request(body: Object, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        CONFIG_MAP.apply(None, body, manager="m", force=False, now="t")
    assert (caught.value.code, caught.value.message) == (400, message)


def test_apply_that_does_not_fit_the_schema_is_a_server_error() -> None:
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "n"},
        "nope": 1,
    }
    with pytest.raises(StatusError) as caught:
        CONFIG_MAP.apply(None, body, manager="m", force=False, now="t")
    assert caught.value.code == 500
    assert caught.value.message == (
        "failed to create typed patch object (n/a; /v1, Kind=ConfigMap): .nope: field not declared in schema"
    )


def test_kubectl_migrates_from_client_side_apply(managed: ManagedObject) -> None:
    last = orjson.dumps(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "a"},
            "data": {"k": "v", "j": "w"},
        }
    ).decode()
    managed.update(
        "kubectl-client-side-apply",
        data={"k": "v", "j": "w"},
        metadata={"annotations": {LAST_APPLIED: last}},
    )
    applied = managed.apply("kubectl", data={"k": "new"})
    assert applied["data"] == {"k": "new", "j": "w"}
    assert orjson.loads(applied["metadata"]["annotations"][LAST_APPLIED])["data"] == {"k": "new"}
    managed.update(
        "other", data={"k": "other", "j": "w"}, metadata={"annotations": {LAST_APPLIED: last}}
    )
    assert "other" in conflict(managed.apply, "kubectl", data={"k": "mine"}).message


def test_apply_returns_an_independent_copy(managed: ManagedObject) -> None:
    managed.apply("one", metadata={"labels": {"a": "b"}})
    live = managed.object
    before = orjson.dumps(live)
    copy = CONFIG_MAP.apply(
        live,
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}},
        manager="two",
        force=False,
        now="t",
    )
    copy["metadata"]["labels"] = {}
    copy["data"]["k"] = "changed"
    assert orjson.dumps(live) == before


def test_times_are_restored_when_nothing_else_changed(managed: ManagedObject) -> None:
    managed.apply("one", data={"k": "v"})
    old = orjson.loads(orjson.dumps(managed.object))
    new = orjson.loads(orjson.dumps(managed.object))
    new["metadata"]["managedFields"][0]["time"] = "2030-01-01T00:00:00Z"
    assert restore_times(new, old)
    assert new == old
    new["data"]["k"] = "w"
    new["metadata"]["managedFields"][0]["time"] = "2030-01-01T00:00:00Z"
    assert not restore_times(new, old)
    assert new["metadata"]["managedFields"][0]["time"] == "2030-01-01T00:00:00Z"


DEPLOYMENT = ObjectType.builtin("io.k8s.api.apps.v1.Deployment")
MAIN = Tracker(DEPLOYMENT, "apps/v1", "Deployment", reset=FieldSet.of(("f:status",)))
STATUS = Tracker(
    DEPLOYMENT, "apps/v1", "Deployment", subresource="status", reset=FieldSet.of(("f:spec",))
)


def deployment() -> ManagedObject:
    return ManagedObject(MAIN, "apps/v1", "Deployment")


def test_endpoints_do_not_own_reset_fields() -> None:
    managed = deployment()
    managed.apply("one", spec={"replicas": 1}, status={"replicas": 5})
    managed.apply("one", via=STATUS, spec={"replicas": 9}, status={"replicas": 2})
    assert [(entry.get("subresource"), entry["fieldsV1"]) for entry in managed.entries] == [
        (None, {"f:spec": {"f:replicas": {}}}),
        ("status", {"f:status": {"f:replicas": {}}}),
    ]


def test_conflict_with_a_subresource_names_it() -> None:
    managed = deployment()
    managed.update("one", spec={"replicas": 1})
    managed.update("ctl", via=STATUS, spec={"replicas": 1}, status={"replicas": 2})
    error = conflict(managed.apply, "two", via=STATUS, status={"replicas": 3})
    assert error.message == (
        'Apply failed with 1 conflict: conflict with "ctl" with subresource "status" using apps/v1: .status.replicas'
    )


def test_zero_values_of_go_structs_have_no_owner() -> None:
    managed = deployment()
    managed.update(
        "one",
        spec={
            "template": {"spec": {"containers": [{"name": "c"}]}},
            "selector": {"matchLabels": {}},
        },
    )
    assert managed.owners["one Update"] == {
        "f:spec": {
            "f:selector": {},
            "f:template": {"f:spec": {"f:containers": {'k:{"name":"c"}': {".": {}, "f:name": {}}}}},
        }
    }


def custom(**properties: Any) -> ObjectType:
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": properties}},
    }
    return ObjectType.custom(Schema(schema), object_meta())


STRINGS = {"type": "array", "items": {"type": "string"}}


def test_conflict_with_a_manager_of_another_version() -> None:
    kinds = {
        "g/v1": custom(a={"type": "string"}, b={"type": "string"}),
        "g/v2": custom(a={"type": "string"}),
    }
    one = Tracker(kinds["g/v1"], "g/v1", "Thing", types=kinds.get)
    two = Tracker(kinds["g/v2"], "g/v2", "Thing", types=kinds.get)
    managed = ManagedObject(one, "g/v1", "Thing")
    managed.apply("old", spec={"a": "1"})
    managed.tracker, managed.api_version = two, "g/v2"
    managed.object["apiVersion"] = "g/v2"
    assert "old" in conflict(managed.apply, "new", spec={"a": "2"}).message
    managed.apply("new", force=True, spec={"a": "2"})
    assert managed.owners == {"new Apply": {"f:spec": {"f:a": {}}}}


def test_managers_of_removed_versions_are_dropped() -> None:
    kind = custom(a={"type": "string"})
    managed = ManagedObject(Tracker(kind, "g/v1", "Thing"), "g/v1", "Thing")
    managed.apply("old", spec={"a": "1"})
    managed.entries[0]["apiVersion"] = "g/v0"
    managed.apply("new", spec={"a": "2"})
    assert managed.owners == {"new Apply": {"f:spec": {"f:a": {}}}}


def test_object_that_does_not_fit_another_managers_version_loses_its_owners() -> None:
    kinds = {
        "g/v1": custom(a={"type": "string"}),
        "g/v2": custom(a={"type": "string"}, b={"type": "string"}),
    }
    managed = ManagedObject(
        Tracker(kinds["g/v1"], "g/v1", "Thing", types=kinds.get), "g/v1", "Thing"
    )
    managed.update("old", spec={"a": "1"})
    managed.tracker, managed.api_version = (
        Tracker(kinds["g/v2"], "g/v2", "Thing", types=kinds.get),
        "g/v2",
    )
    managed.object["apiVersion"] = "g/v2"
    with pytest.raises(StatusError) as caught:
        managed.apply("new", spec={"b": "2"})
    assert (caught.value.code, caught.value.message) == (
        500,
        "failed to convert new object: .spec.b: field not declared in schema",
    )
    managed.update("new", spec={"a": "1", "b": "2"})
    assert managed.entries == []


def test_list_that_became_atomic_is_owned_as_a_whole() -> None:
    granular = custom(tags={**STRINGS, "x-kubernetes-list-type": "set"})
    atomic = custom(tags={**STRINGS, "x-kubernetes-list-type": "atomic"})
    managed = ManagedObject(Tracker(granular, "g/v1", "Thing"), "g/v1", "Thing")
    managed.apply("one", spec={"tags": ["a"]})
    managed.tracker = Tracker(atomic, "g/v1", "Thing")
    assert ".spec.tags" in conflict(managed.apply, "two", spec={"tags": ["b"]}).message
    managed.apply("one", spec={"tags": ["a", "b"]})
    assert managed.owners == {"one Apply": {"f:spec": {"f:tags": {}}}}


PATHS = {"apps/v1": ("f:spec", "f:replicas")}


def test_scaling_transfers_ownership_of_replicas() -> None:
    managed = deployment()
    managed.apply("one", spec={"replicas": 1, "paused": True})
    scale_entries = to_scale(managed.entries, PATHS)
    assert [
        (entry["manager"], entry["apiVersion"], entry["fieldsV1"]) for entry in scale_entries
    ] == [("one", "autoscaling/v1", {"f:spec": {"f:replicas": {}}})]
    scaled = [
        {
            "manager": "scaler",
            "operation": "Update",
            "apiVersion": "autoscaling/v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:replicas": {}}},
            "subresource": "scale",
        }
    ]
    object_entries = from_scale(managed.entries, scaled, "apps/v1", PATHS)
    assert {entry["manager"]: entry["fieldsV1"] for entry in object_entries} == {
        "one": {"f:spec": {"f:paused": {}}},
        "scaler": {"f:spec": {"f:replicas": {}}},
    }
    assert object_entries[1]["subresource"] == "scale"
    assert from_scale(managed.entries, scale_entries, "apps/v1", PATHS) == managed.entries
