"""Admission: parsing of reviews, responses, JSON patches, and the handlers of defaulters and validators."""

from __future__ import annotations

import json
import random
from base64 import b64decode
from copy import deepcopy
from typing import Any

import jsonpatch
import orjson
import pytest
from structlog.testing import capture_logs

from cfo.runtime.client.errors import Conflict
from cfo.runtime.objects.field import FieldErrors, forbidden, invalid, required
from cfo.runtime.objects.unstructured import GVK, GVR, Object
from cfo.runtime.process.logged_stacks import LoggedStacks
from cfo.runtime.webhook import review_handlers
from cfo.runtime.webhook.admission import (
    AdmissionRequest,
    AdmissionResponse,
    Denied,
    Handler,
    InvalidObject,
    Operation,
    UserInfo,
    denied,
    errored,
)
from cfo.runtime.webhook.review import (
    MAX_OBJECT_BYTES,
    BadReview,
    IdentityTooLarge,
    ObjectTooLarge,
    TooManyValues,
    json_patch,
    named_namespace,
    read_review,
    write_review,
)
from cfo.runtime.webhook.review_handlers import DefaultingHandler, ValidatingHandler

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
    defaults: dict[str, Any] = {
        "object": {"spec": {"size": 1}},
        "kind": WIDGET,
        "name": "w",
        "namespace": "ns",
    }
    return AdmissionRequest(operation=operation, **{**defaults, **fields})


def test_review_is_parsed() -> None:
    parsed = read_review(review())
    assert (parsed.uid, parsed.operation, parsed.kind, parsed.resource) == (
        "u1",
        Operation.CREATE,
        WIDGET,
        GVR("acme.io", "v1", "widgets"),
    )
    assert parsed.request_kind.version == "v2"
    assert parsed.request_resource == parsed.resource
    assert (parsed.user_info.username, parsed.user_info.groups, dict(parsed.user_info.extra)) == (
        "alice",
        ("dev",),
        {"scopes": ["a"]},
    )
    assert parsed.object == {"spec": {"size": 1}}
    assert parsed.old_object is None
    assert parsed.dry_run
    assert parsed.options["fieldManager"] == "kubectl"


@pytest.mark.parametrize(
    ("username", "groups", "is_from_controller"),
    [
        ("alice", ["dev"], False),
        ("system:serviceaccount:team:operator", [], False),
        ("system:serviceaccount:operator-system:operator", [], True),
        ("admin", ["system:masters"], True),
    ],
)
def test_controllers_are_known_by_their_namespace(
    username: str, groups: list[str], *, is_from_controller: bool
) -> None:
    body = review(userInfo={"username": username, "groups": groups})
    assert read_review(body, {"operator-system"}).is_from_controller is is_from_controller


def as_sent(**request: Any) -> bytes:
    """Return a review as API servers encode it."""
    return orjson.dumps(orjson.loads(review(**request)))


@pytest.mark.parametrize(
    ("body", "namespace"),
    [
        (as_sent(namespace="team"), "team"),
        (as_sent(name='x","namespace":"other', namespace="team"), "team"),
        (as_sent(namespace="n" * 63), "n" * 63),
        (as_sent(namespace="n" * 64), ""),
        (b'{"namespace":"team', ""),
        (b" " * 4096 + as_sent(namespace="team"), ""),
        (b'{"namespace":"\xff"}', "\ufffd"),
        (b"", ""),
    ],
)
def test_namespace_of_a_review_is_known_before_it_is_read(body: bytes, namespace: str) -> None:
    assert named_namespace(body) == namespace


def test_missing_fields_of_a_review_are_empty_and_unknown_ones_are_ignored() -> None:
    parsed = read_review(
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"DELETE",'
        b'"oldObject":{"a":1},"newField":{"a":"b"}}}'
    )
    assert (parsed.object, parsed.old_object, parsed.dry_run, parsed.user_info.groups) == (
        None,
        {"a": 1},
        False,
        (),
    )
    assert not parsed.is_from_controller
    empty = read_review(review(userInfo={"username": "a", "groups": None, "extra": None}))
    assert empty.user_info == UserInfo("a")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "cannot decode the body"),
        (b"nonsense", "cannot decode the body"),
        (review(uid="?").replace(b"?", b"\xff"), "cannot decode the body"),
        (review(operation="x" * 10_000), "cannot decode the body"),
        (review(uid="u" * 257), "uid: 257 characters: at most 256 are allowed"),
        (review(uid="u" * 257, options={"a": [0] * 400_000}), "uid: 257 characters"),
        (
            review(oldObject={"a": [0] * 700_000, "b": "x" * 1_000_000}),
            "oldObject has about 70[0-9]* values, and [0-9]* bytes",
        ),
        (b"[]", "cannot decode the body"),
        (b'{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}', "v1beta1"),
        (b'{"apiVersion":"v1","kind":"Pod"}', "got Pod of v1"),
        (b'{"apiVersion":"v1","kind":"%s"}' % (b"k" * 1_000_000), "got kkk.*… of v1"),
        (b'{"apiVersion":"%s","kind":"Pod"}' % (b"v" * 1_000_000), "got Pod of vvv.*…"),
        (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}', "no request"),
        (review(operation="PATCH"), "cannot decode the body"),
        (review(object=[1]), "must be JSON objects"),
        (review(object={"metadata": ["name"]}), r"at `\$.metadata`"),
        (review(object={"metadata": {"labels": {"a": 1}}}), r"at `\$.metadata.labels"),
        (review(object={"kind": 1}), r"at `\$.kind`"),
    ],
)
def test_invalid_review_is_rejected_with_the_reason(body: bytes, message: str) -> None:
    with pytest.raises(BadReview, match=message) as raised:
        read_review(body)
    assert len(str(raised.value)) < 1_000


LARGE = {"metadata": {"name": "a"}, "spec": {"text": "," * 300_000, "suspend": False}}
SUSPENDED = {**LARGE, "spec": {**LARGE["spec"], "suspend": True}}
MANAGED = {"manager": "m", "fieldsV1": {f"f:{number}": {} for number in range(1000)}}
LATER = {**SUSPENDED, "metadata": {"name": "a", "managedFields": [MANAGED]}}


@pytest.mark.parametrize(
    ("operation", "new", "old"),
    [
        ("CREATE", LARGE, None),
        ("UPDATE", LARGE, {"metadata": {"name": "a"}}),
        ("UPDATE", {**LARGE, "more": [0, 0]}, LARGE),
    ],
)
def test_object_with_very_many_values_is_denied_unread(
    operation: str, new: Object, old: Object | None
) -> None:
    with pytest.raises(TooManyValues, match=r"about 30[0-9]+ values: at most 300000") as denied_by:
        read_review(review(operation=operation, object=new, oldObject=old))
    assert denied_by.value.uid == "u1"


@pytest.mark.parametrize(
    ("operation", "new", "old"),
    [
        ("UPDATE", SUSPENDED, LARGE),
        ("UPDATE", LATER, LARGE),
        ("UPDATE", {"metadata": {"name": "a"}}, LARGE),
        ("DELETE", None, LARGE),
    ],
)
def test_object_with_very_many_values_can_be_suspended_repaired_and_deleted(
    operation: str, new: Object | None, old: Object
) -> None:
    """It was stored while no webhook ran. Kueue and the operator must be able to end what it runs."""
    found = read_review(review(operation=operation, object=new, oldObject=old))
    assert (found.object, found.old_object) == (new, old)


def test_controller_can_add_values_to_an_object_with_very_many() -> None:
    kueue = {"username": "system:serviceaccount:kueue-system:kueue"}
    more = {**SUSPENDED, "metadata": {"name": "a", "annotations": {"suspend": "true"}, "uid": "u"}}
    body = review(operation="UPDATE", object=more, oldObject=LARGE, userInfo=kueue)
    assert read_review(body, {"kueue-system"}).object == more
    with pytest.raises(TooManyValues):
        read_review(body)


FULL = {"metadata": {"name": "a", "labels": {"a": "x" * MAX_OBJECT_BYTES}}}
FULLER = {"metadata": {"name": "a", "labels": {"a": "x" * MAX_OBJECT_BYTES, "b": "c"}}}


@pytest.mark.parametrize(
    ("operation", "new", "old"),
    [("CREATE", FULL, None), ("UPDATE", FULL, {}), ("UPDATE", FULLER, FULL)],
)
@pytest.mark.parametrize("user", ["alice", "system:serviceaccount:ns:a", "kueue-system:a"])
def test_object_that_leaves_no_room_for_its_status_is_denied(
    operation: str, new: Object, old: Object | None, user: str
) -> None:
    with pytest.raises(ObjectTooLarge, match="bytes: at most 1310720 are allowed") as denied_by:
        read_review(
            review(
                operation=operation,
                object=new,
                oldObject=old,
                userInfo={"username": user},
            ),
            {"kueue-system"},
        )
    assert denied_by.value.uid == "u1"


@pytest.mark.parametrize(
    "fields",
    [
        {"object": FULL, "oldObject": FULLER},
        {"object": FULL, "oldObject": FULL},
        {"object": FULL, "oldObject": {}, "subResource": "status"},
        {
            "object": FULL,
            "oldObject": {},
            "userInfo": {"username": "system:serviceaccount:kueue-system:kueue"},
        },
        {"object": FULL, "oldObject": {}, "userInfo": {"groups": ["system:masters"]}},
        {"object": FULL, "oldObject": {}, "kind": {"group": "apps", "version": "v1"}},
        {"object": FULL, "oldObject": {}, "kind": {"group": "batch.k8s.io", "version": "v1"}},
    ],
)
def test_large_object_can_be_written_if_it_does_not_grow_or_is_not_stored_as_json(
    fields: dict[str, Any],
) -> None:
    found = read_review(review(operation="UPDATE", **fields), {"kueue-system"})
    assert found.object == FULL


@pytest.mark.parametrize(
    "unseen",
    [{"metadata": {"managedFields": [{"manager": "x" * 900_000}]}}, {"status": "x" * 900_000}],
)
def test_large_object_cannot_exchange_what_no_webhook_sees_for_content(
    unseen: dict[str, Any],
) -> None:
    old = {"spec": "x" * 600_000, **unseen}
    assert read_review(review(operation="UPDATE", object=old, oldObject=old)).object == old
    with pytest.raises(ObjectTooLarge):
        read_review(review(operation="UPDATE", object={"spec": "x" * 1_400_000}, oldObject=old))


@pytest.mark.parametrize(
    "fields",
    [
        {"userInfo": {"username": "u" * 65_536}},
        {"userInfo": {"username": "u", "groups": ["dev"] * 20_000}},
        {"userInfo": {"username": "u", "extra": {"scopes": ["s" * 65_536]}}},
        {"namespace": "n" * 65_536},
        {"options": {"a": [0] * 400_000}},
        {"unknown": "x" * 65_536},
    ],
)
def test_request_that_is_large_besides_its_objects_is_refused(fields: dict[str, Any]) -> None:
    allowed = {"object": {"data": "x" * 100_000}, "oldObject": {"data": "x" * 100_000}}
    assert read_review(review(**allowed)).user_info.username == "alice"
    with pytest.raises(IdentityTooLarge, match="at most 65536 are allowed") as refused:
        read_review(review(**allowed, **fields))
    assert refused.value.uid == "u1"


def test_repr_of_a_request_contains_no_object() -> None:
    assert "hunter2" not in repr(read_review(review(object={"data": {"password": "hunter2"}})))


def test_response_is_written_as_a_review() -> None:
    patch = [{"op": "add", "path": "/a", "value": 1}]
    response = AdmissionResponse(allowed=True, message="fine", patch=patch, warnings=("careful",))
    written = json.loads(write_review("u1", response))
    assert (written["apiVersion"], written["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    fields = written["response"]
    assert (fields["uid"], fields["allowed"], fields["patchType"]) == ("u1", True, "JSONPatch")
    assert json.loads(b64decode(fields["patch"])) == [{"op": "add", "path": "/a", "value": 1}]
    assert fields["warnings"] == ["careful"]
    assert fields["status"] == {"message": "fine", "code": 200}


@pytest.mark.parametrize(
    "response",
    [
        AdmissionResponse(allowed=True),
        denied("no"),
        AdmissionResponse(allowed=False, patch=({"op": "remove", "path": "/a"},)),
    ],
)
def test_response_without_a_patch_has_no_patch_type(response: AdmissionResponse) -> None:
    written = json.loads(write_review("u", response))["response"]
    assert "patch" not in written
    assert "patchType" not in written


def test_response_of_a_validating_webhook_has_no_patch() -> None:
    response = AdmissionResponse(allowed=True, patch=[{"op": "remove", "path": "/a"}])
    assert "patch" not in json.loads(write_review("u", response, mutating=False))["response"]


def random_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.random()
    if depth > 3 or kind < 0.45:
        return rng.choice([0, 1, True, False, None, "a", "b", "", 1.5, [], {}])
    if kind < 0.7:
        return [random_value(rng, depth + 1) for _ in range(rng.randint(0, 4))]
    keys = ["a", "b", "a/b", "~x", ""]
    return {rng.choice(keys): random_value(rng, depth + 1) for _ in range(rng.randint(0, 4))}


def random_change(rng: random.Random, old: Any) -> Any:
    new = deepcopy(old)
    if isinstance(new, dict) and new:
        key = rng.choice(sorted(new))
        new[key] = random_change(rng, new[key])
        if rng.random() < 0.3:
            new["new"] = random_value(rng)
        return new
    if isinstance(new, list) and new and rng.random() < 0.8:
        position = rng.randrange(len(new))
        new[position] = random_change(rng, new[position])
        new.insert(rng.randint(0, len(new)), random_value(rng))
        rng.shuffle(new)
        return new
    return random_value(rng)


@pytest.mark.parametrize("seed", range(20))
def test_json_patch_produces_the_changed_object(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(100):
        old = {
            "x": random_value(rng),
            "y": [random_value(rng)],
            "z": {"p": random_value(rng), "q": {}},
        }
        new = random_change(rng, old)
        patch = json_patch(old, new)
        assert json.dumps(jsonpatch.JsonPatch(patch).apply(old), sort_keys=True) == json.dumps(
            new, sort_keys=True
        )


def test_json_patch_contains_only_the_changes() -> None:
    old = {
        "metadata": {"name": "w"},
        "spec": {"containers": [{"name": "a", "image": "x"}], "other": {"deep": [1, 2]}},
    }
    new = deepcopy(old)
    new["metadata"]["labels"] = {"l": "1"}
    new["spec"]["containers"].append({"name": "b"})  # type: ignore[attr-defined]
    assert sorted(json_patch(old, new), key=lambda step: step["path"]) == [
        {"op": "add", "path": "/metadata/labels", "value": {"l": "1"}},
        {"op": "add", "path": "/spec/containers/1", "value": {"name": "b"}},
    ]
    assert json_patch(old, deepcopy(old)) == []


async def respond(handler: Handler, request: AdmissionRequest) -> tuple[AdmissionResponse, bool]:
    return await review_handlers.respond(handler, request, LoggedStacks())


class WidgetWebhook:
    """A defaulter and validator of widgets, with sync and async methods, which can fail with ``error``."""

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


async def test_defaulter_results_in_a_patch_warnings_and_audit_annotations() -> None:
    response, failed = await respond(
        DefaultingHandler(WidgetWebhook(), WIDGET), read_review(review())
    )
    assert not failed
    assert list(response.patch) == [{"op": "replace", "path": "/spec/size", "value": 2}]
    assert response.warnings == ("size is 2 now",)
    assert response.audit_annotations == {"defaulted": "size"}


async def test_defaulter_can_return_another_object() -> None:
    class ReplacingDefaulter:
        async def default(self, obj: Object, request: AdmissionRequest) -> Object:
            return {"spec": {"size": 3}}

    response, _ = await respond(DefaultingHandler(ReplacingDefaulter(), WIDGET), request())
    assert list(response.patch) == [{"op": "replace", "path": "/spec/size", "value": 3}]


async def test_deletions_are_not_defaulted() -> None:
    response, _ = await respond(
        DefaultingHandler(WidgetWebhook(ValueError("must not be called")), WIDGET),
        request(Operation.DELETE),
    )
    assert response.allowed


async def test_validator_is_called_for_each_operation() -> None:
    handler = ValidatingHandler(WidgetWebhook(), WIDGET)
    created, _ = await respond(handler, request())
    assert (created.allowed, created.warnings) == (True, ("a warning",))
    unchanged, _ = await respond(
        handler, request(Operation.UPDATE, old_object={"spec": {"size": 1}})
    )
    assert unchanged.allowed
    updated, _ = await respond(handler, request(Operation.UPDATE, old_object={"spec": {"size": 9}}))
    assert (updated.code, updated.reason, updated.message) == (
        403,
        "Forbidden",
        "spec.size: Forbidden: is immutable",
    )
    assert updated.details["causes"] == [
        {
            "reason": "FieldValueForbidden",
            "message": "Forbidden: is immutable",
            "field": "spec.size",
        }
    ]
    deleted, failed = await respond(
        handler, request(Operation.DELETE, object=None, old_object={"spec": {}})
    )
    assert (deleted.allowed, deleted.code, deleted.reason, failed) == (
        False,
        409,
        "Conflict",
        False,
    )
    connected, _ = await respond(handler, request(Operation.CONNECT))
    assert connected.allowed


async def test_request_without_its_objects_is_a_bad_request() -> None:
    for operation in (Operation.CREATE, Operation.UPDATE, Operation.DELETE):
        response, failed = await respond(
            ValidatingHandler(WidgetWebhook(), WIDGET), request(operation, object=None)
        )
        assert (response.allowed, response.code, failed) == (False, 400, False)
    response, _ = await respond(DefaultingHandler(WidgetWebhook(), WIDGET), request(object=None))
    assert response.code == 400


async def test_invalid_object_error_has_the_format_of_the_api_server() -> None:
    error = InvalidObject(
        WIDGET, "w", [required("spec.size"), invalid("spec.color", "x", "no color")]
    )
    response, failed = await respond(ValidatingHandler(WidgetWebhook(error), WIDGET), request())
    assert (response.code, response.reason, failed) == (422, "Invalid", False)
    assert response.message == (
        'Widget.acme.io "w" is invalid: [spec.size: Required value, spec.color: Invalid value: "x": no color]'
    )
    assert (response.details["kind"], len(response.details["causes"])) == ("Widget", 2)


async def test_api_error_of_a_validator_is_passed_on() -> None:
    error = Conflict(
        409,
        {"reason": "Conflict", "message": "the object has been modified", "details": {"name": "x"}},
    )
    response, failed = await respond(ValidatingHandler(WidgetWebhook(error), WIDGET), request())
    assert (response.code, response.reason, response.message, failed) == (
        409,
        "Conflict",
        "the object has been modified",
        False,
    )


@pytest.mark.parametrize("handler", [DefaultingHandler, ValidatingHandler])
async def test_any_other_error_is_an_internal_error_of_the_webhook(handler: Any) -> None:
    response, failed = await respond(
        handler(WidgetWebhook(IndexError("list index out of range")), WIDGET), request()
    )
    assert failed
    assert response == errored(500, "the webhook failed: IndexError: list index out of range")


async def test_stack_trace_of_a_webhook_is_logged_once_for_many_requests() -> None:
    class Mistaken(WidgetWebhook):
        def default(self, obj: Object, request: AdmissionRequest) -> None:
            del obj["spec"]["colour"]

    handler = DefaultingHandler(Mistaken(), WIDGET)
    stacks = LoggedStacks()
    with capture_logs() as lines:
        for _ in range(2):
            await review_handlers.respond(handler, request(), stacks)
    first, second = lines
    assert isinstance(first["exc_info"], KeyError)
    assert second["exc_info"] is None
    assert second["error"] == "KeyError: 'colour'"


@pytest.mark.parametrize("result", ["text", False, True, 0, {"a": 1}, [1]])
async def test_result_that_is_no_list_of_warnings_is_an_error_of_the_webhook(result: Any) -> None:
    class Validator(WidgetWebhook):
        def validate_create(self, obj: Object, request: AdmissionRequest) -> Any:
            return result

    response, failed = await respond(ValidatingHandler(Validator(), WIDGET), request())
    assert failed
    assert not response.allowed
    message = f"Validator: returned a value of type {type(result).__name__}: must return None or a list of strings"
    assert response.message.startswith(f"the webhook failed: TypeError: {message}")


@pytest.mark.parametrize("result", [True, "text", [1]])
async def test_result_that_is_no_object_is_an_error_of_the_webhook(result: Any) -> None:
    class Mistaken(WidgetWebhook):
        def default(self, obj: Object, request: AdmissionRequest) -> Any:
            return result

    response, failed = await respond(DefaultingHandler(Mistaken(), WIDGET), request())
    assert failed
    assert response.message == (
        f"the webhook failed: TypeError: Mistaken.default: returned a value of type {type(result).__name__}: must "
        "return the changed object or None"
    )


async def test_object_without_its_kind_is_an_error_of_the_webhook() -> None:
    class Mistaken(WidgetWebhook):
        def default(self, obj: Object, request: AdmissionRequest) -> Object:
            return {"spec": obj["spec"]}

    widget = {"apiVersion": "acme.io/v1", "kind": "Widget", "spec": {}}
    handler = DefaultingHandler(Mistaken(), WIDGET)
    response, failed = await respond(handler, request(object=widget))
    assert failed
    assert response.message == (
        "the webhook failed: TypeError: Mistaken.default: the changed object has apiVersion '' and kind '': must have "
        "'acme.io/v1' and 'Widget'"
    )


async def test_warnings_are_returned_with_a_denial() -> None:
    class DenyingWebhook(WidgetWebhook):
        async def validate_create(self, obj: Object, request: AdmissionRequest) -> list[str]:
            request.warn("one", "one")
            raise Denied("no")

    response, _ = await respond(ValidatingHandler(DenyingWebhook(), WIDGET), request())
    assert (response.allowed, response.warnings) == (False, ("one",))
