"""Ownership over the life of an object: one manager after another updates or applies."""

from typing import Any

import orjson
import pytest

from envtest.apply import ObjectType, Tracker, restore_times
from envtest.apply.fieldset import FieldSet
from envtest.apply.scale import from_scale, to_scale
from envtest.builtins.catalog import object_meta, schema_of
from envtest.errors import StatusError
from envtest.objects import Object
from envtest.schema.node import Schema

CONFIG_MAP = Tracker(ObjectType.builtin(schema_of("io.k8s.api.core.v1.ConfigMap")), "v1", "ConfigMap")
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class World:
    """One object, and the writes that it sees; every write has its own second."""

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

    def apply(self, manager: str, *, force: bool = False, via: Tracker | None = None, **content: Any) -> Object:
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
        return {f"{entry['manager']} {entry['operation']}": entry["fieldsV1"] for entry in self.entries}

    def time(self, manager: str) -> str | None:
        return next(entry.get("time") for entry in self.entries if entry["manager"] == manager)


@pytest.fixture
def world() -> World:
    return World(CONFIG_MAP)


def conflict(call: Any, *args: Any, **options: Any) -> StatusError:
    with pytest.raises(StatusError) as caught:
        call(*args, **options)
    assert caught.value.code == 409
    return caught.value


def test_an_apply_owns_what_it_says(world: World) -> None:
    world.apply("one", data={"k": "v"}, metadata={"labels": {"l": "1"}})
    assert world.entries == [
        {
            "manager": "one",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:01Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:k": {}}, "f:metadata": {"f:labels": {"f:l": {}}}},
        }
    ]


def test_what_is_said_no_more_goes(world: World) -> None:
    world.apply("one", data={"k": "v", "j": "w"})
    assert world.apply("one", data={"k": "v"})["data"] == {"k": "v"}
    world.apply("one")
    assert not world.object.get("data")
    assert world.entries == []


def test_others_values_are_kept_when_one_stops_saying_them(world: World) -> None:
    world.apply("one", data={"shared": "x", "mine": "1"})
    world.apply("two", data={"shared": "x"})
    assert world.apply("one")["data"] == {"shared": "x"}
    assert world.owners == {"two Apply": {"f:data": {"f:shared": {}}}}


def test_an_apply_that_changes_nothing_has_no_time(world: World) -> None:
    world.apply("one", data={"k": "v"})
    world.apply("two", data={"k": "v"})
    assert world.time("two") is None
    assert world.time("one") == "2026-01-01T00:00:01Z"


def test_a_conflict_names_owner_and_field(world: World) -> None:
    world.apply("one", data={"k": "v", "j": "w"})
    refused = conflict(world.apply, "two", data={"k": "other"})
    assert refused.message == 'Apply failed with 1 conflict: conflict with "one": .data.k'
    assert refused.details == {
        "causes": [{"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.k"}]
    }


def test_several_conflicts_are_listed_by_owner(world: World) -> None:
    world.apply("one", data={"a": "1", "b": "1"})
    world.update("two", data={"a": "1", "b": "1", "c": "1"})
    refused = conflict(world.apply, "three", data={"a": "2", "b": "2", "c": "2"})
    assert refused.message == (
        'Apply failed with 3 conflicts: conflicts with "one":\n- .data.a\n- .data.b\n'
        'conflicts with "two" using v1:\n- .data.c'
    )


def test_force_takes_the_fields(world: World) -> None:
    world.apply("one", data={"k": "v", "j": "w"})
    assert world.apply("two", force=True, data={"k": "mine"})["data"] == {"k": "mine", "j": "w"}
    assert world.owners == {"one Apply": {"f:data": {"f:j": {}}}, "two Apply": {"f:data": {"f:k": {}}}}


def test_an_update_takes_what_it_changes(world: World) -> None:
    world.apply("one", data={"k": "v", "j": "w"})
    world.update("two", data={"k": "changed", "j": "w"}, metadata={"managedFields": world.entries})
    assert world.owners == {"one Apply": {"f:data": {"f:j": {}}}, "two Update": {"f:data": {"f:k": {}}}}


def test_a_creation_owns_containers_that_it_made(world: World) -> None:
    world.update("one", data={"k": "v"})
    assert world.owners == {"one Update": {"f:data": {".": {}, "f:k": {}}}}


def test_an_update_that_says_nothing_of_managed_fields_keeps_them(world: World) -> None:
    world.apply("one", data={"k": "v"})
    world.update("two", data={"k": "v", "n": "x"})
    assert set(world.owners) == {"one Apply", "two Update"}


@pytest.mark.parametrize("reset", [[], [{}]])
def test_cleared_managed_fields_stop_tracking_until_the_first_apply(world: World, reset: list[Any]) -> None:
    world.update("one", data={"k": "v"})
    world.update("one", data={"k": "v"}, metadata={"managedFields": reset})
    world.update("two", data={"k": "w"})
    assert world.entries == []
    refused = conflict(world.apply, "three", data={"k": "x"})
    assert refused.message == 'Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.k'
    world.apply("three", force=True, data={"j": "y"})
    assert world.owners["before-first-apply Update"] == {"f:data": {".": {}, "f:k": {}}}


def test_nonsense_in_managed_fields_is_ignored(world: World) -> None:
    world.apply("one", data={"k": "v"})
    world.update("two", data={"k": "w"}, metadata={"managedFields": [{"manager": "x", "operation": "Dance"}]})
    assert set(world.owners) == {"two Update"}


def test_the_same_name_applies_and_updates_as_two(world: World) -> None:
    world.update("one", data={"k": "v", "j": "w"})
    world.apply("one", force=True, data={"k": "mine"})
    assert world.owners == {"one Apply": {"f:data": {"f:k": {}}}, "one Update": {"f:data": {".": {}, "f:j": {}}}}


def test_eleven_updaters_are_too_many(world: World) -> None:
    data: dict[str, str] = {}
    for number in range(12):
        data = {**data, f"k{number:02}": "v"}
        world.update(f"m{number:02}", data=data)
    managers = [entry["manager"] for entry in world.entries]
    assert len(managers) == 10
    assert "ancient-changes" in managers
    assert world.owners["ancient-changes Update"] == {"f:data": {".": {}, "f:k00": {}, "f:k01": {}, "f:k02": {}}}


def test_metadata_that_the_server_sets_is_owned_by_nobody(world: World) -> None:
    world.apply("one", metadata={"namespace": "n", "uid": "u", "resourceVersion": "1", "labels": {"a": "b"}})
    assert world.owners == {"one Apply": {"f:metadata": {"f:labels": {"f:a": {}}}}}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"apiVersion": "v1", "kind": "Secret"}, "invalid object type: /v1, Kind=Secret"),
        ({"kind": "ConfigMap"}, "invalid object type: /, Kind=ConfigMap"),
        ({"apiVersion": "apps/v1", "kind": "Deployment"}, "invalid object type: apps/v1, Kind=Deployment"),
        (
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "managedFields": []}},
            "metadata.managedFields must be nil",
        ),
    ],
)
def test_what_is_no_such_object_is_a_bad_request(body: Object, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        CONFIG_MAP.apply(None, body, manager="m", force=False, now="t")
    assert (caught.value.code, caught.value.message) == (400, message)


def test_what_does_not_fit_the_schema_is_an_error_of_the_server() -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}, "nope": 1}
    with pytest.raises(StatusError) as caught:
        CONFIG_MAP.apply(None, body, manager="m", force=False, now="t")
    assert caught.value.code == 500
    assert caught.value.message == (
        "failed to create typed patch object (n/a; /v1, Kind=ConfigMap): .nope: field not declared in schema"
    )


def test_kubectl_takes_over_what_it_applied_on_the_client_side(world: World) -> None:
    last = orjson.dumps(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v", "j": "w"}}
    ).decode()
    world.update("kubectl-client-side-apply", data={"k": "v", "j": "w"}, metadata={"annotations": {LAST_APPLIED: last}})
    taken = world.apply("kubectl", data={"k": "new"})
    assert taken["data"] == {"k": "new", "j": "w"}
    assert orjson.loads(taken["metadata"]["annotations"][LAST_APPLIED])["data"] == {"k": "new"}
    world.update("other", data={"k": "theirs", "j": "w"}, metadata={"annotations": {LAST_APPLIED: last}})
    assert "other" in conflict(world.apply, "kubectl", data={"k": "mine"}).message


def test_an_apply_hands_out_an_object_that_nobody_else_holds(world: World) -> None:
    world.apply("one", metadata={"labels": {"a": "b"}})
    live = world.object
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


def test_times_alone_are_no_change(world: World) -> None:
    world.apply("one", data={"k": "v"})
    old = orjson.loads(orjson.dumps(world.object))
    new = orjson.loads(orjson.dumps(world.object))
    new["metadata"]["managedFields"][0]["time"] = "2030-01-01T00:00:00Z"
    assert restore_times(new, old)
    assert new == old
    new["data"]["k"] = "w"
    new["metadata"]["managedFields"][0]["time"] = "2030-01-01T00:00:00Z"
    assert not restore_times(new, old)
    assert new["metadata"]["managedFields"][0]["time"] == "2030-01-01T00:00:00Z"


DEPLOYMENT = ObjectType.builtin(schema_of("io.k8s.api.apps.v1.Deployment"))
MAIN = Tracker(DEPLOYMENT, "apps/v1", "Deployment", reset=FieldSet.of(("f:status",)))
STATUS = Tracker(DEPLOYMENT, "apps/v1", "Deployment", subresource="status", reset=FieldSet.of(("f:spec",)))


def deployment() -> World:
    return World(MAIN, "apps/v1", "Deployment")


def test_endpoints_own_only_what_they_let_through() -> None:
    world = deployment()
    world.apply("one", spec={"replicas": 1}, status={"replicas": 5})
    world.apply("one", via=STATUS, spec={"replicas": 9}, status={"replicas": 2})
    assert [(entry.get("subresource"), entry["fieldsV1"]) for entry in world.entries] == [
        (None, {"f:spec": {"f:replicas": {}}}),
        ("status", {"f:status": {"f:replicas": {}}}),
    ]


def test_a_conflict_with_a_subresource_says_so() -> None:
    world = deployment()
    world.update("one", spec={"replicas": 1})
    world.update("ctl", via=STATUS, spec={"replicas": 1}, status={"replicas": 2})
    refused = conflict(world.apply, "two", via=STATUS, status={"replicas": 3})
    assert refused.message == (
        'Apply failed with 1 conflict: conflict with "ctl" with subresource "status" using apps/v1: .status.replicas'
    )


def test_what_a_go_struct_always_has_is_not_made_by_its_creator() -> None:
    world = deployment()
    world.update("one", spec={"template": {"spec": {"containers": [{"name": "c"}]}}, "selector": {"matchLabels": {}}})
    assert world.owners["one Update"] == {
        "f:spec": {
            "f:selector": {},
            "f:template": {"f:spec": {"f:containers": {'k:{"name":"c"}': {".": {}, "f:name": {}}}}},
        }
    }


def custom(**properties: Any) -> ObjectType:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    return ObjectType.custom(Schema(schema), object_meta())


STRINGS = {"type": "array", "items": {"type": "string"}}


def test_managers_of_other_versions_keep_theirs() -> None:
    kinds = {"g/v1": custom(a={"type": "string"}, b={"type": "string"}), "g/v2": custom(a={"type": "string"})}
    one = Tracker(kinds["g/v1"], "g/v1", "Thing", types=kinds.get)
    two = Tracker(kinds["g/v2"], "g/v2", "Thing", types=kinds.get)
    world = World(one, "g/v1", "Thing")
    world.apply("old", spec={"a": "1"})
    world.tracker, world.api_version = two, "g/v2"
    world.object["apiVersion"] = "g/v2"
    assert "old" in conflict(world.apply, "new", spec={"a": "2"}).message
    world.apply("new", force=True, spec={"a": "2"})
    assert world.owners == {"new Apply": {"f:spec": {"f:a": {}}}}


def test_managers_of_versions_that_are_gone_are_forgotten() -> None:
    kind = custom(a={"type": "string"})
    world = World(Tracker(kind, "g/v1", "Thing"), "g/v1", "Thing")
    world.apply("old", spec={"a": "1"})
    world.entries[0]["apiVersion"] = "g/v0"
    world.apply("new", spec={"a": "2"})
    assert world.owners == {"new Apply": {"f:spec": {"f:a": {}}}}


def test_what_does_not_fit_the_version_of_another_manager_loses_its_owners() -> None:
    kinds = {"g/v1": custom(a={"type": "string"}), "g/v2": custom(a={"type": "string"}, b={"type": "string"})}
    world = World(Tracker(kinds["g/v1"], "g/v1", "Thing", types=kinds.get), "g/v1", "Thing")
    world.update("old", spec={"a": "1"})
    world.tracker, world.api_version = Tracker(kinds["g/v2"], "g/v2", "Thing", types=kinds.get), "g/v2"
    world.object["apiVersion"] = "g/v2"
    with pytest.raises(StatusError) as caught:
        world.apply("new", spec={"b": "2"})
    assert (caught.value.code, caught.value.message) == (
        500,
        "failed to convert new object: .spec.b: field not declared in schema",
    )
    world.update("new", spec={"a": "1", "b": "2"})
    assert world.entries == []


def test_what_became_atomic_is_owned_as_a_whole() -> None:
    granular = custom(tags={**STRINGS, "x-kubernetes-list-type": "set"})
    atomic = custom(tags={**STRINGS, "x-kubernetes-list-type": "atomic"})
    world = World(Tracker(granular, "g/v1", "Thing"), "g/v1", "Thing")
    world.apply("one", spec={"tags": ["a"]})
    world.tracker = Tracker(atomic, "g/v1", "Thing")
    assert ".spec.tags" in conflict(world.apply, "two", spec={"tags": ["b"]}).message
    world.apply("one", spec={"tags": ["a", "b"]})
    assert world.owners == {"one Apply": {"f:spec": {"f:tags": {}}}}


PATHS = {"apps/v1": ("f:spec", "f:replicas")}


def test_scaling_takes_the_replicas() -> None:
    world = deployment()
    world.apply("one", spec={"replicas": 1, "paused": True})
    seen = to_scale(world.entries, PATHS)
    assert [(entry["manager"], entry["apiVersion"], entry["fieldsV1"]) for entry in seen] == [
        ("one", "autoscaling/v1", {"f:spec": {"f:replicas": {}}})
    ]
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
    carried = from_scale(world.entries, scaled, "apps/v1", PATHS)
    assert {entry["manager"]: entry["fieldsV1"] for entry in carried} == {
        "one": {"f:spec": {"f:paused": {}}},
        "scaler": {"f:spec": {"f:replicas": {}}},
    }
    assert carried[1]["subresource"] == "scale"
    assert from_scale(world.entries, seen, "apps/v1", PATHS) == world.entries
