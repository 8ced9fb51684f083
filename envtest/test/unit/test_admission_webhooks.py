"""How webhooks are asked, in which order, and what their answers do."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import orjson
import pytest

from envtest.admission.review import InvalidResponse, Review, admission_request, rejection
from envtest.admission.webhook_client import CallFailed, ServiceEndpoints
from envtest.errors import StatusError
from envtest.registry import ResourceInfo
from envtest.storage import Store
from envtest.strategy import Strategy
from test.support.admission_world import (
    DEPLOYMENTS,
    GROUP,
    MAPS,
    NAMESPACES,
    Script,
    Scripted,
    chain,
    config_map,
    configure,
    context,
    hook,
    put,
)


@pytest.fixture
def store() -> Store:
    store = Store()
    put(store, "v1", "Namespace", "namespaces", "a", metadata={"labels": {"team": "one"}})
    return store


def test_services_lead_to_who_stands_for_them_and_external_names_to_their_hosts(store: Store) -> None:
    put(store, "v1", "Service", "services", "plain", namespace="a", spec={"type": "ClusterIP"})
    external = {"type": "ExternalName", "externalName": "localhost"}
    put(store, "v1", "Service", "services", "elsewhere", namespace="a", spec=external)
    endpoints = ServiceEndpoints(store)
    assert endpoints.resolve("a", "elsewhere", 9443) == "https://localhost:9443"
    with pytest.raises(CallFailed, match='no endpoints available for service "plain"'):
        endpoints.resolve("a", "plain", 443)
    with pytest.raises(CallFailed, match='service "none" not found'):
        endpoints.resolve("a", "none", 443)
    endpoints.register("a", "plain", "https://127.0.0.1:9443/")
    assert endpoints.resolve("a", "plain", 443) == "https://127.0.0.1:9443"


def test_a_review_tells_everything() -> None:
    ctx = context(DEPLOYMENTS, "UPDATE", subresource="scale", name="d", dry_run=True)
    request = admission_request(ctx, {"kind": "Scale", "spec": {}}, {"kind": "Scale"})
    assert request["kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert request["resource"] == {"group": "apps", "version": "v1", "resource": "deployments"}
    assert request["subResource"] == request["requestSubResource"] == "scale"
    assert (request["name"], request["namespace"], request["operation"], request["dryRun"]) == (
        "d",
        "a",
        "UPDATE",
        True,
    )
    assert request["userInfo"] == {"username": "admin", "uid": "admin", "groups": ["system:masters"]}
    deletion = admission_request(context(MAPS, "DELETE", verb="deletecollection"), {}, config_map())
    assert "name" not in deletion
    assert deletion["object"] is None
    assert admission_request(context(NAMESPACES, name="n"), {}, None)["namespace"] == "n"


def answer_to(review: Review, **response: Any) -> bytes:
    document = {"apiVersion": f"admission.k8s.io/{review.version}", "kind": "AdmissionReview"}
    return orjson.dumps({**document, "response": {"uid": review.uid, "allowed": True, **response}})


def test_a_verdict_is_read() -> None:
    review = Review({})
    patch = [{"op": "add", "path": "/x", "value": 1}]
    encoded = b64encode(json.dumps(patch).encode()).decode()
    body = answer_to(review, patch=encoded, patchType="JSONPatch", warnings=["w"], auditAnnotations={"k": "v"})
    response = review.parse_response(body, mutating=True)
    assert (response.allowed, response.patch, response.warnings, response.audit) == (True, patch, ("w",), {"k": "v"})
    assert not review.parse_response(answer_to(review, allowed=False), mutating=False).allowed


@pytest.mark.parametrize(
    ("response", "mutating", "problem"),
    [
        ({"uid": "wrong"}, True, "expected response.uid="),
        ({"patch": "W10="}, True, "webhook returned response.patch but not response.patchType"),
        ({"patchType": "JSONPatch"}, True, "webhook returned response.patchType but not response.patch"),
        ({"patch": "W10=", "patchType": "Merge"}, True, 'invalid response.patchType of "Merge"'),
        ({"patch": "W10=", "patchType": "JSONPatch"}, False, "validating webhook may not return response.patch"),
        ({"patch": "e30=", "patchType": "JSONPatch"}, True, "undecodable patch in webhook response"),
    ],
)
def test_answers_that_cannot_be_believed(response: dict[str, Any], mutating: bool, problem: str) -> None:
    review = Review({})
    with pytest.raises(InvalidResponse, match=problem):
        review.parse_response(answer_to(review, **response), mutating=mutating)


def test_answers_that_are_none() -> None:
    review = Review({})
    with pytest.raises(ValueError, match="malformed"):
        review.parse_response(b"not json", mutating=True)
    with pytest.raises(ValueError, match="base64"):
        review.parse_response(answer_to(review, patch="%%%", patchType="JSONPatch"), mutating=True)
    with pytest.raises(InvalidResponse, match="webhook response was absent"):
        review.parse_response(b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}', mutating=True)
    with pytest.raises(
        InvalidResponse, match=r"expected webhook response of admission\.k8s\.io/v1, Kind=AdmissionReview, got v1"
    ):
        review.parse_response(b'{"apiVersion":"v1","kind":"Pod","response":{}}', mutating=True)
    old = Review({}, ("v1beta1", "v1"))
    assert old.parse_response(answer_to(old, uid="whatever"), mutating=True).allowed


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (None, 400, 'admission webhook "w" denied the request without explanation'),
        ({"message": "no"}, 400, 'admission webhook "w" denied the request: no'),
        ({"reason": "NotFound", "code": 404}, 404, 'admission webhook "w" denied the request: NotFound'),
        ({"code": 200, "message": "no"}, 400, 'admission webhook "w" denied the request: no'),
    ],
)
def test_rejections(status: dict[str, Any] | None, code: int, message: str) -> None:
    refusal = rejection("w", status)
    assert (refusal.code, refusal.message) == (code, message)


def labelling(key: str) -> Script:
    return lambda request: {"patch": [{"op": "add", "path": f"/metadata/labels/{key}", "value": "x"}]}


async def test_mutating_webhooks_run_by_configuration_name_and_see_each_others_changes(store: Store) -> None:
    configure(store, "Mutating", "b", hook("three"))
    configure(store, "Mutating", "a", hook("one"), hook("two"))
    client = Scripted(store, one=labelling("one"), two=labelling("two"), three=labelling("three"))
    ctx = context()
    original = config_map()
    result = await chain(store, client).mutate(ctx, original, None)
    assert client.urls == ["one", "two", "three"]
    assert list(client.asked[2][1]["object"]["metadata"]["labels"]) == ["one", "two"]
    assert list(result["metadata"]["labels"]) == ["one", "two", "three"]
    assert original["metadata"]["labels"] == {}
    annotation = ctx.audit["mutation.webhook.admission.k8s.io/round_0_index_0"]
    assert json.loads(annotation) == {"configuration": "a", "webhook": "one.acme.io", "mutated": True}


async def test_hooks_are_called_again_when_a_later_one_changed_the_object(store: Store) -> None:
    configure(store, "Mutating", "m", hook("one", reinvocationPolicy="IfNeeded"), hook("two"), hook("three"))
    client = Scripted(store, one=lambda _: {}, two=labelling("two"), three=lambda _: {})
    await chain(store, client).mutate(context(), config_map(), None)
    assert client.urls == ["one", "two", "three", "one"]


async def test_nothing_is_called_again_without_a_change(store: Store) -> None:
    configure(store, "Mutating", "m", hook("one", reinvocationPolicy="IfNeeded"), hook("two"))
    same = [{"op": "add", "path": "/metadata/name", "value": "x"}]
    client = Scripted(store, one=lambda _: {}, two=lambda _: {"patch": same})
    await chain(store, client).mutate(context(), config_map(), None)
    assert client.urls == ["one", "two"]


async def test_failures_count_by_policy(store: Store) -> None:
    configure(store, "Mutating", "m", hook("one", failurePolicy="Ignore"), hook("two"))
    client = Scripted(store, one=lambda _: {"fail": "down"}, two=lambda _: {"fail": "down"})
    ctx = context()
    with pytest.raises(StatusError) as refusal:
        await chain(store, client).mutate(ctx, config_map(), None)
    assert refusal.value.code == 500
    assert refusal.value.message == (
        'Internal error occurred: failed calling webhook "two.acme.io": failed to call webhook: down'
    )
    assert ctx.audit["failed-open.mutation.webhook.admission.k8s.io/round_0_index_0"] == "one.acme.io"


async def test_a_patch_that_does_not_apply_is_an_internal_error(store: Store) -> None:
    configure(store, "Mutating", "m", hook("one"))
    client = Scripted(store, one=lambda _: {"patch": [{"op": "remove", "path": "/nosuch"}]})
    with pytest.raises(StatusError, match="error in remove for path: '/nosuch': Unable to remove nonexistent key"):
        await chain(store, client).mutate(context(), config_map(), None)


async def test_a_patch_of_a_deletion_is_refused(store: Store) -> None:
    configure(store, "Mutating", "m", hook("one"))
    client = Scripted(store, one=labelling("x"))
    with pytest.raises(StatusError, match="attempted to modify the object, which is not supported"):
        await chain(store, client).mutate(context(MAPS, "DELETE"), {}, config_map())


async def test_dry_runs_ask_only_hooks_without_side_effects(store: Store) -> None:
    configure(store, "Validating", "v", hook("one"), hook("two", sideEffects="NoneOnDryRun"))
    client = Scripted(store, one=lambda _: {}, two=lambda _: {}, three=lambda _: {})
    await chain(store, client).validate(context(dry_run=True), config_map(), None)
    assert sorted(client.urls) == ["one", "two"]
    configure(store, "Validating", "w", hook("three", sideEffects="Some", failurePolicy="Ignore"))
    with pytest.raises(StatusError, match=r'admission webhook "three\.acme\.io" does not support dry run') as refusal:
        await chain(store, client).validate(context(dry_run=True), config_map(), None)
    assert refusal.value.code == 400


async def test_the_first_refusing_validator_is_named_and_warnings_are_kept(store: Store) -> None:
    configure(store, "Validating", "v", hook("one"), hook("two"), hook("three"))
    no = {"allowed": False, "status": {"message": "no"}}
    client = Scripted(store, one=lambda _: {"warnings": ["careful"]}, two=lambda _: no, three=lambda _: no)
    ctx = context()
    with pytest.raises(StatusError, match=r'admission webhook "two\.acme\.io" denied the request: no'):
        await chain(store, client).validate(ctx, config_map(), None)
    assert ctx.warnings == ["careful"]
    assert sorted(client.urls) == ["one", "three", "two"]


async def test_webhooks_never_see_their_own_configurations(store: Store) -> None:
    everything = [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]
    configure(store, "Validating", "v", hook("one", rules=everything))
    plural = "validatingwebhookconfigurations"
    info = ResourceInfo(GROUP, "v1", plural, plural[:-1], "ValidatingWebhookConfiguration", False, Strategy())
    client = Scripted(store, one=lambda _: {"allowed": False})
    await chain(store, client).validate(context(info), {"metadata": {"name": "v"}}, None)
    assert client.urls == []
