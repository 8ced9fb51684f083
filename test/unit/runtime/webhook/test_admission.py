"""Reviews are read, answered and written; defaulters and validators become answers, whatever they do."""

from __future__ import annotations

import json
import random
from base64 import b64decode
from copy import deepcopy
from typing import Any

import jsonpatch
import pytest

from cfo.runtime.client.errors import Conflict
from cfo.runtime.field import FieldErrors, forbidden, invalid, required
from cfo.runtime.objects import GVK, GVR, Object
from cfo.runtime.webhook.admission import (
    AdmissionRequest,
    AdmissionResponse,
    Denied,
    InvalidObject,
    Operation,
    allowed,
    denied,
    errored,
    patched,
)
from cfo.runtime.webhook.handlers import DefaultingHandler, ValidatingHandler, answer
from cfo.runtime.webhook.review import BadReview, json_patch, read_review, write_review

WIDGET = GVK("acme.io", "v1", "Widget")


def review(**request: Any) -> bytes:
    return json.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "u1",
                "kind": {"group": "acme.io", "version": "v1", "kind": "Widget"},
                "resource": {"group": "acme.io", "version": "v1", "resource": "widgets"},
                "requestKind": {"group": "acme.io", "version": "v2", "kind": "Widget"},
                "name": "w",
                "namespace": "ns",
                "operation": "CREATE",
                "userInfo": {"username": "alice", "groups": ["dev"], "extra": {"scopes": ["a"]}},
                "object": {"spec": {"size": 1}},
                "oldObject": None,
                "dryRun": True,
                "options": {"kind": "CreateOptions", "fieldManager": "kubectl"},
                **request,
            },
        }
    ).encode()


def request(operation: Operation = Operation.CREATE, **fields: Any) -> AdmissionRequest:
    known: dict[str, Any] = {"object": {"spec": {"size": 1}}, "kind": WIDGET, "name": "w", "namespace": "ns"}
    return AdmissionRequest(operation=operation, **{**known, **fields})


def test_a_review_is_read() -> None:
    asked = read_review(review())
    assert (asked.uid, asked.operation, asked.kind, asked.resource) == (
        "u1",
        Operation.CREATE,
        WIDGET,
        GVR("acme.io", "v1", "widgets"),
    )
    assert asked.request_kind.version == "v2"
    assert asked.request_resource == asked.resource
    assert (asked.user_info.username, asked.user_info.groups, dict(asked.user_info.extra)) == (
        "alice",
        ("dev",),
        {"scopes": ["a"]},
    )
    assert asked.object == {"spec": {"size": 1}}
    assert asked.old_object is None
    assert asked.dry_run
    assert asked.options["fieldManager"] == "kubectl"


def test_what_is_left_out_of_a_review_is_empty() -> None:
    asked = read_review(
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"DELETE",'
        b'"oldObject":{"a":1},"newField":{"of":"later"}}}'
    )
    assert (asked.object, asked.old_object, asked.dry_run, asked.user_info.groups) == (None, {"a": 1}, False, ())


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "cannot decode the body"),
        (b"nonsense", "cannot decode the body"),
        (b"[]", "cannot decode the body"),
        (b'{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}', "v1beta1"),
        (b'{"apiVersion":"v1","kind":"Pod"}', "got Pod of v1"),
        (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}', "no request"),
        (review(operation="PATCH"), "cannot decode the body"),
        (review(object=[1]), "must be JSON objects"),
    ],
)
def test_what_is_no_review_is_refused_with_the_reason(body: bytes, why: str) -> None:
    with pytest.raises(BadReview, match=why):
        read_review(body)


def test_what_is_shown_of_a_request_holds_no_object() -> None:
    assert "hunter2" not in repr(read_review(review(object={"data": {"password": "hunter2"}})))


def test_an_answer_is_written() -> None:
    response = patched("fine", {"op": "add", "path": "/a", "value": 1}).with_warnings("careful", "careful")
    written = json.loads(write_review("u1", response))
    assert (written["apiVersion"], written["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    answered = written["response"]
    assert (answered["uid"], answered["allowed"], answered["patchType"]) == ("u1", True, "JSONPatch")
    assert json.loads(b64decode(answered["patch"])) == [{"op": "add", "path": "/a", "value": 1}]
    assert answered["warnings"] == ["careful"]
    assert answered["status"] == {"message": "fine", "code": 200}


@pytest.mark.parametrize(
    "response", [allowed(), denied("no"), AdmissionResponse(allowed=False, patch=({"op": "remove", "path": "/a"},))]
)
def test_without_a_patch_there_is_no_patch_type(response: AdmissionResponse) -> None:
    written = json.loads(write_review("u", response))["response"]
    assert "patch" not in written
    assert "patchType" not in written


def test_a_validating_webhook_never_patches() -> None:
    response = patched("", {"op": "remove", "path": "/a"})
    assert "patch" not in json.loads(write_review("u", response, mutating=False))["response"]


def value(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.random()
    if depth > 3 or kind < 0.45:
        return chance.choice([0, 1, True, False, None, "a", "b", "", 1.5, [], {}])
    if kind < 0.7:
        return [value(chance, depth + 1) for _ in range(chance.randint(0, 4))]
    keys = ["a", "b", "a/b", "~x", ""]
    return {chance.choice(keys): value(chance, depth + 1) for _ in range(chance.randint(0, 4))}


def changed(chance: random.Random, old: Any) -> Any:
    new = deepcopy(old)
    if isinstance(new, dict) and new:
        key = chance.choice(sorted(new))
        new[key] = changed(chance, new[key])
        if chance.random() < 0.3:
            new["new"] = value(chance)
        return new
    if isinstance(new, list) and new and chance.random() < 0.8:
        position = chance.randrange(len(new))
        new[position] = changed(chance, new[position])
        new.insert(chance.randint(0, len(new)), value(chance))
        chance.shuffle(new)
        return new
    return value(chance)


@pytest.mark.parametrize("seed", range(20))
def test_a_patch_makes_exactly_the_changed_object(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(100):
        old = {"x": value(chance), "y": [value(chance)], "z": {"p": value(chance), "q": {}}}
        new = changed(chance, old)
        patch = json_patch(old, new)
        assert json.dumps(jsonpatch.JsonPatch(patch).apply(old), sort_keys=True) == json.dumps(new, sort_keys=True)


def test_a_patch_holds_nothing_but_the_change() -> None:
    old = {"metadata": {"name": "w"}, "spec": {"containers": [{"name": "a", "image": "x"}], "other": {"deep": [1, 2]}}}
    new = deepcopy(old)
    new["metadata"]["labels"] = {"l": "1"}
    new["spec"]["containers"].append({"name": "b"})  # type: ignore[attr-defined]
    assert sorted(json_patch(old, new), key=lambda step: step["path"]) == [
        {"op": "add", "path": "/metadata/labels", "value": {"l": "1"}},
        {"op": "add", "path": "/spec/containers/1", "value": {"name": "b"}},
    ]
    assert json_patch(old, deepcopy(old)) == []


class Sizes:
    """A defaulter and validator of widgets, sync and async methods mixed."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def default(self, obj: Object, request: AdmissionRequest) -> None:
        if self.error:
            raise self.error
        obj["spec"]["size"] = 2
        request.warn("size is 2 now")
        request.audit("defaulted", "size")

    async def validate_create(self, obj: Object, request: AdmissionRequest) -> list[str]:
        if self.error:
            raise self.error
        return ["a warning"]

    def validate_update(self, old: Object, obj: Object, request: AdmissionRequest) -> None:
        FieldErrors.check([forbidden("spec.size", "is immutable")] if old != obj else [])

    def validate_delete(self, obj: Object, request: AdmissionRequest) -> None:
        raise Denied("is needed", code=409, reason="Conflict")


async def test_a_defaulter_becomes_a_patch_warnings_and_audit_annotations() -> None:
    response, failed = await answer(DefaultingHandler(Sizes()), read_review(review()))
    assert not failed
    assert list(response.patch) == [{"op": "replace", "path": "/spec/size", "value": 2}]
    assert response.warnings == ("size is 2 now",)
    assert response.audit_annotations == {"defaulted": "size"}


async def test_a_defaulter_may_return_another_object() -> None:
    class Replacing:
        async def default(self, obj: Object, request: AdmissionRequest) -> Object:
            return {"spec": {"size": 3}}

    response, _ = await answer(DefaultingHandler(Replacing()), request())
    assert list(response.patch) == [{"op": "replace", "path": "/spec/size", "value": 3}]


async def test_deletions_are_not_defaulted() -> None:
    response, _ = await answer(DefaultingHandler(Sizes(ValueError("never asked"))), request(Operation.DELETE))
    assert response.allowed


async def test_a_validator_is_asked_about_each_operation() -> None:
    handler = ValidatingHandler(Sizes())
    created, _ = await answer(handler, request())
    assert (created.allowed, created.warnings) == (True, ("a warning",))
    same, _ = await answer(handler, request(Operation.UPDATE, old_object={"spec": {"size": 1}}))
    assert same.allowed
    updated, _ = await answer(handler, request(Operation.UPDATE, old_object={"spec": {"size": 9}}))
    assert (updated.code, updated.reason, updated.message) == (
        403,
        "Forbidden",
        "spec.size: Forbidden: is immutable",
    )
    assert updated.details["causes"] == [
        {"reason": "FieldValueForbidden", "message": "Forbidden: is immutable", "field": "spec.size"}
    ]
    deleted, failed = await answer(handler, request(Operation.DELETE, object=None, old_object={"spec": {}}))
    assert (deleted.allowed, deleted.code, deleted.reason, failed) == (False, 409, "Conflict", False)
    connected, _ = await answer(handler, request(Operation.CONNECT))
    assert connected.allowed


async def test_a_question_without_its_objects_is_a_bad_request() -> None:
    for operation in (Operation.CREATE, Operation.UPDATE, Operation.DELETE):
        response, failed = await answer(ValidatingHandler(Sizes()), request(operation, object=None))
        assert (response.allowed, response.code, failed) == (False, 400, False)
    response, _ = await answer(DefaultingHandler(Sizes()), request(object=None))
    assert response.code == 400


async def test_an_invalid_object_reads_as_one_of_the_api_servers_own() -> None:
    error = InvalidObject(WIDGET, "w", [required("spec.size"), invalid("spec.color", "x", "no color")])
    response, failed = await answer(ValidatingHandler(Sizes(error)), request())
    assert (response.code, response.reason, failed) == (422, "Invalid", False)
    assert response.message == (
        'Widget.acme.io "w" is invalid: [spec.size: Required value, spec.color: Invalid value: "x": no color]'
    )
    assert (response.details["kind"], len(response.details["causes"])) == ("Widget", 2)


async def test_a_status_of_the_api_server_is_passed_on() -> None:
    error = Conflict(409, {"reason": "Conflict", "message": "somebody was faster", "details": {"name": "x"}})
    response, failed = await answer(ValidatingHandler(Sizes(error)), request())
    assert (response.code, response.reason, response.message, failed) == (
        409,
        "Conflict",
        "somebody was faster",
        False,
    )


@pytest.mark.parametrize("handler", [DefaultingHandler, ValidatingHandler])
async def test_any_other_error_is_an_error_of_the_webhook(handler: Any) -> None:
    response, failed = await answer(handler(Sizes(IndexError("list index out of range"))), request())
    assert failed
    assert response == errored(500, "the webhook failed: IndexError: list index out of range")


async def test_warnings_reach_the_user_also_with_a_refusal() -> None:
    class Refusing(Sizes):
        async def validate_create(self, obj: Object, request: AdmissionRequest) -> list[str]:
            request.warn("one", "one")
            raise Denied("no")

    response, _ = await answer(ValidatingHandler(Refusing()), request())
    assert (response.allowed, response.warnings) == (False, ("one",))
