"""Instances of typed resources keep the whole object, and write what was set, read or changed."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from pydantic import field_validator

from cfo.runtime import (
    CustomResource,
    Int32,
    NamespacedName,
    ObjectMeta,
    TerminalError,
    annotations_of,
    controller_of,
    gvk_of,
    has_finalizer,
    is_controlled_by,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
    owner_references_of,
    resource_version_of,
    uid_of,
)
from cfo.runtime.objects import InvalidResource, SchemaError, set_controller_owner
from test.support.website import Port, Website, WebsiteSpec, WebsiteStatus

KEY = NamespacedName("default", "a")


def website(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Website",
        "metadata": {
            "namespace": "default",
            "name": "a",
            "resourceVersion": "7",
            "unknown": {"x": None},
        },
        "spec": {"html": "<p>", "unknown": [1, None], "replicas_": 2, **spec},
        "top": None,
    }


def test_unknown_fields_survive_a_round_trip() -> None:
    stored = website(replicas=3, ports=[{"name": "http", "number": 80, "appProtocol": "h2c"}])
    stored["spec"]["ready_replicas"] = "the python name of another field"
    assert Website.decode(deepcopy(stored)).to_object() == stored


def test_unset_fields_are_not_written() -> None:
    stored = website()
    assert Website.decode(deepcopy(stored)).spec.replicas == 1
    assert Website.decode(deepcopy(stored)).to_object() == stored


def test_changed_fields_are_written() -> None:
    obj = Website.decode(website())
    obj.spec.replicas = 5
    obj.spec.hosts.append("a.example.com")
    obj.spec.ports.append(Port(name="http", number=80))
    obj.metadata.labels["a"] = "b"
    obj.metadata.finalizers.append("example.com/f")
    obj.status.ready_replicas = 2
    written = obj.to_object()
    assert written["spec"]["replicas"] == 5
    assert written["spec"]["hosts"] == ["a.example.com"]
    assert written["spec"]["ports"] == [{"name": "http", "number": 80}]
    assert written["metadata"]["labels"] == {"a": "b"}
    assert written["metadata"]["finalizers"] == ["example.com/f"]
    assert written["status"] == {"readyReplicas": 2}
    assert written["spec"]["unknown"] == [1, None]


def test_default_that_is_changed_in_one_object_does_not_change_others() -> None:
    Website.decode(website()).spec.hosts.append("a")
    assert Website.decode(website()).spec.hosts == []


def test_none_removes_a_field() -> None:
    obj = Website.decode(website(note="x"))
    obj.spec.note = None
    assert "note" not in obj.to_object()["spec"]


def test_new_object_is_written_with_its_kind_and_without_defaults() -> None:
    obj = Website(metadata=ObjectMeta(name="a"), spec=WebsiteSpec(html="<p>"))
    assert obj.to_object() == {
        "apiVersion": "example.com/v1",
        "kind": "Website",
        "metadata": {"name": "a"},
        "spec": {"html": "<p>"},
    }


def test_intent_has_only_the_given_fields() -> None:
    assert Website.intent(KEY, status=WebsiteStatus(ready_replicas=3)) == {
        "apiVersion": "example.com/v1",
        "kind": "Website",
        "metadata": {"namespace": "default", "name": "a"},
        "status": {"readyReplicas": 3},
    }
    with pytest.raises(TypeError, match=r"Website\.intent: 'stats' is not a field"):
        Website.intent(KEY, stats=1)
    with pytest.raises(InvalidResource, match=r"status: Invalid value: 1"):
        Website.intent(KEY, status=1)


def test_invalid_object_is_reported_with_the_paths_of_its_fields() -> None:
    stored = website(replicas="many", ports=[{"name": "http", "number": 0}])
    del stored["spec"]["html"]
    with pytest.raises(InvalidResource) as raised:
        Website.decode(stored)
    assert isinstance(raised.value, TerminalError)
    assert {error.field for error in raised.value.errors} == {
        "spec.html",
        "spec.replicas",
        "spec.ports[0].number",
    }
    assert str(raised.value).startswith("Website default/a: [")
    assert "spec.html: Required value" in str(raised.value)


def test_error_of_a_validator_has_only_the_words_of_its_author() -> None:
    class Backup(CustomResource, group="example.com", version="v1"):
        days: Int32 = 1
        name: str = "daily"

        @field_validator("days")
        @classmethod
        def check_days(cls, days: int) -> int:
            if days < 1:
                raise ValueError("must be at least one day")
            return days

        @field_validator("name")
        @classmethod
        def check_name(cls, name: str) -> str:
            if not name:
                raise AssertionError
            return name

    with pytest.raises(InvalidResource) as raised:
        Backup.decode({**website(), "kind": "Backup", "days": 0, "name": ""})
    assert str(raised.value) == (
        "Backup default/a: [days: Invalid value: 0: must be at least one day, "
        'name: Invalid value: "": is not valid]'
    )


def test_object_of_another_kind_is_rejected() -> None:
    with pytest.raises(
        InvalidResource, match=r'"Website\.v2\.example\.com": must be Website\.v1\.example\.com'
    ):
        Website.decode({**website(), "apiVersion": "example.com/v2"})


def test_key_and_deletion_are_properties() -> None:
    obj = Website.decode(website())
    assert obj.key == KEY
    assert not obj.is_deleting


def test_functions_of_objects_read_instances() -> None:
    stored = website()
    stored["metadata"] |= {
        "uid": "1",
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "finalizers": ["example.com/f"],
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    }
    owner = website()
    owner["metadata"] |= {"uid": "2", "name": "owner"}
    stored = set_controller_owner(stored, owner)
    obj = Website.decode(deepcopy(stored))
    for read in (
        annotations_of,
        controller_of,
        gvk_of,
        is_deleting,
        key_of,
        labels_of,
        name_of,
        namespace_of,
        owner_reference,
        owner_references_of,
        resource_version_of,
        uid_of,
    ):
        assert read(obj) == read(stored)
    assert has_finalizer(obj, "example.com/f")
    assert is_controlled_by(obj, Website.decode(owner))
    obj.metadata.labels["a"] = "changed"
    assert labels_of(obj) == {"a": "changed"}


def test_new_instance_gets_an_owner() -> None:
    owner = website()
    owner["metadata"]["uid"] = "2"
    obj = Website(
        metadata=ObjectMeta(namespace="default", name="child"), spec=WebsiteSpec(html="<p>")
    )
    owned = set_controller_owner(obj, Website.decode(owner))
    assert isinstance(owned, Website)
    assert is_controlled_by(owned, owner)
    assert not is_controlled_by(obj, owner)
    assert owned.to_object()["spec"] == {"html": "<p>"}


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"group": "example", "version": "v1"}, "group: 'example': must be a domain name"),
        ({"group": "example.com"}, "version: '': must be a lower-case DNS label"),
        (
            {"group": "example.com", "version": "v1", "kind": "thing"},
            "kind: 'thing': must be a CamelCase word",
        ),
        (
            {"group": "example.com", "version": "v1", "plural": "Things"},
            "plural: 'Things': must be",
        ),
        (
            {"group": "example.com", "version": "v1", "scope": "Global"},
            "scope: 'Global': must be Namespaced or Cluster",
        ),
    ],
)
def test_invalid_declaration_is_rejected(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        type("Thing", (CustomResource,), {}, **keywords)
