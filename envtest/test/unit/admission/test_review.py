"""Responses of admission webhooks, with the messages of kube-apiserver 1.36."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any

import orjson
import pytest

from envtest.admission.review import InvalidResponse, Review

INVALID = "received invalid webhook response: "
UNDECODABLE = "received undecodable patch in webhook response: "
JSON_PATCH = {"patchType": "JSONPatch"}


def field(name: str, value: str, go_type: str, struct: str = "AdmissionResponse") -> str:
    return f"json: cannot unmarshal {value} into Go struct field {struct}.response.{name} of type {go_type}"


def encoded(patch: Any) -> str:
    return b64encode(orjson.dumps(patch)).decode()


def body(review: Review, **fields: Any) -> bytes:
    response = {"uid": review.uid, "allowed": True, **fields}
    return orjson.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"patch": [{"op": "add"}], **JSON_PATCH}, field("patch", "object", "uint8")),
        ({"patch": {"a": 1}, **JSON_PATCH}, field("patch", "object", "[]uint8")),
        ({"patch": 5, **JSON_PATCH}, field("patch", "number", "[]uint8")),
        ({"patch": "[{]", **JSON_PATCH}, "illegal base64 data at input byte 0"),
        ({"status": "no"}, field("status", "string", "v1.Status")),
        ({"status": {"code": "400"}}, field("status.code", "string", "int32", "Status")),
        ({"status": {"message": 5}}, field("status.message", "number", "string", "Status")),
        (
            {"status": {"details": {"causes": "x"}}},
            field("status.details.causes", "string", "[]v1.StatusCause", "StatusDetails"),
        ),
        ({"uid": 5}, field("uid", "number", "string")),
        ({"auditAnnotations": [1]}, field("auditAnnotations", "array", "map[string]string")),
        ({"auditAnnotations": {"a": 1}}, field("auditAnnotations", "number", "string")),
        ({"warnings": [1]}, field("warnings", "number", "string")),
        ({"warnings": "x"}, field("warnings", "string", "[]string")),
        ({"allowed": "yes"}, field("allowed", "string", "bool")),
        ({"allowed": 1}, field("allowed", "number", "bool")),
    ],
)
@pytest.mark.parametrize("mutating", [True, False])
def test_value_of_a_wrong_type_fails_the_call(
    fields: dict[str, Any], message: str, mutating: bool
) -> None:
    review = Review({})
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        review.parse_response(body(review, **fields), mutating=mutating)


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"a": 1}, "json: cannot unmarshal object into Go value of type jsonpatch.Patch"),
        ([5], "json: cannot unmarshal number into Patch.0 of type jsonpatch.Operation"),
    ],
)
def test_patch_must_be_a_list_of_operations(patch: Any, message: str) -> None:
    review = Review({})
    with pytest.raises(InvalidResponse) as failed:
        review.parse_response(body(review, patch=encoded(patch), **JSON_PATCH), mutating=True)
    assert str(failed.value) == UNDECODABLE + message


def test_empty_patch_can_have_another_type() -> None:
    review = Review({})
    fields = {"patch": encoded([]), "patchType": "MergePatch"}
    assert review.parse_response(body(review, **fields), mutating=True).patch == []
    fields["patch"] = encoded([{"op": "remove", "path": "/data"}])
    with pytest.raises(InvalidResponse, match=r'^unsupported patch type "MergePatch"$'):
        review.parse_response(body(review, **fields), mutating=True)


def test_null_is_an_absent_value() -> None:
    review = Review({})
    fields = {"status": None, "warnings": [None], "auditAnnotations": {"a": None}, "allowed": None}
    response = review.parse_response(body(review, **fields), mutating=False)
    assert (response.allowed, response.status, response.audit) == (False, None, {"a": ""})


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (b"null", f"{INVALID}webhook response was absent"),
        (b"{}", f"{INVALID}webhook response was absent"),
        (b'{"response": null}', f"{INVALID}webhook response was absent"),
        (b"[]", "couldn't get version/kind; json parse error: json: cannot unmarshal array"),
        (b"{", "couldn't get version/kind; json parse error: unexpected end of JSON input"),
        (b"<html>", "couldn't get version/kind; json parse error: json: cannot unmarshal string"),
        (b'{"kind": 5}', "cannot unmarshal number into Go struct field .kind of type string"),
        (b'{"apiVersion": "v1", "kind": "Pod"}', 'no kind "Pod" is registered for version "v1"'),
        (
            b'{"apiVersion": "admission.k8s.io/v1beta1"}',
            "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
        ),
        (
            b'{"response": []}',
            "cannot unmarshal array into Go struct field AdmissionReview.response of type v1.Admission",
        ),
        (b'{"response": {}}', f"{INVALID}expected webhook response of admission.k8s.io/v1, Kind="),
    ],
)
def test_other_documents_fail_the_call(document: bytes, message: str) -> None:
    with pytest.raises((InvalidResponse, ValueError)) as failed:
        Review({}).parse_response(document, mutating=False)
    assert message in str(failed.value)
