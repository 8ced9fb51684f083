"""Admission webhooks: requests, order of calls, and handling of responses."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import orjson
import pytest

from envtest.admission.review import InvalidResponse, Review, admission_request, rejection
from envtest.admission.webhook_client import CallFailed, ServiceEndpoints
from envtest.apimachinery.errors import StatusError
from envtest.registry.resource import ResourceInfo, Strategy
from envtest.storage import Store
from test.support.admission import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    GROUP,
    NAMESPACES,
    FakeWebhookClient,
    Responder,
    add_configuration,
    admission_chain,
    config_map,
    context,
    store_object,
    webhook,
)


@pytest.fixture
def store() -> Store:
    store = Store()
    store_object(store, "v1", "Namespace", "namespaces", "a", metadata={"labels": {"team": "one"}})
    return store


def test_service_resolves_to_registered_url_or_external_name(store: Store) -> None:
    store_object(
        store, "v1", "Service", "services", "plain", namespace="a", spec={"type": "ClusterIP"}
    )
    external = {"type": "ExternalName", "externalName": "localhost"}
    store_object(store, "v1", "Service", "services", "elsewhere", namespace="a", spec=external)
    endpoints = ServiceEndpoints(store)
    assert endpoints.resolve("a", "elsewhere", 9443) == "https://localhost:9443"
    with pytest.raises(CallFailed, match='no endpoints available for service "plain"'):
        endpoints.resolve("a", "plain", 443)
    with pytest.raises(CallFailed, match='service "none" not found'):
        endpoints.resolve("a", "none", 443)
    endpoints.register("a", "plain", "https://127.0.0.1:9443/")
    assert endpoints.resolve("a", "plain", 443) == "https://127.0.0.1:9443"
    for url in ("https://127.0.0.1:x", "https://a:b@127.0.0.1:1", "https://127.0.0.1:1?q"):
        with pytest.raises(ValueError, match="must be https://HOST:PORT"):
            endpoints.register("a", "plain", url)


def test_admission_request_has_all_fields() -> None:
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
    assert request["userInfo"] == {
        "username": "admin",
        "uid": "admin",
        "groups": ["system:masters"],
    }
    deletion = admission_request(
        context(CONFIG_MAPS, "DELETE", verb="deletecollection"), {}, config_map()
    )
    assert "name" not in deletion
    assert deletion["object"] is None
    assert admission_request(context(NAMESPACES, name="n"), {}, None)["namespace"] == "n"


def response_to(review: Review, **response: Any) -> bytes:
    document = {"apiVersion": f"admission.k8s.io/{review.version}", "kind": "AdmissionReview"}
    return orjson.dumps({**document, "response": {"uid": review.uid, "allowed": True, **response}})


def test_response_is_parsed() -> None:
    review = Review({})
    patch = [{"op": "add", "path": "/x", "value": 1}]
    encoded = b64encode(json.dumps(patch).encode()).decode()
    body = response_to(
        review, patch=encoded, patchType="JSONPatch", warnings=["w"], auditAnnotations={"k": "v"}
    )
    response = review.parse_response(body, mutating=True)
    assert (response.allowed, response.patch, response.warnings, response.audit) == (
        True,
        patch,
        ("w",),
        {"k": "v"},
    )
    assert not review.parse_response(response_to(review, allowed=False), mutating=False).allowed


@pytest.mark.parametrize(
    ("response", "mutating", "problem"),
    [
        ({"uid": "wrong"}, True, "expected response.uid="),
        ({"patch": "W10="}, True, "webhook returned response.patch but not response.patchType"),
        (
            {"patchType": "JSONPatch"},
            True,
            "webhook returned response.patchType but not response.patch",
        ),
        ({"patch": "W3t9XQ==", "patchType": "Merge"}, True, 'unsupported patch type "Merge"'),
        (
            {"patch": "W10=", "patchType": "JSONPatch"},
            False,
            "validating webhook may not return response.patch",
        ),
        (
            {"patch": "e30=", "patchType": "JSONPatch"},
            True,
            "undecodable patch in webhook response",
        ),
    ],
)
def test_invalid_responses_are_rejected(
    response: dict[str, Any], mutating: bool, problem: str
) -> None:
    review = Review({})
    with pytest.raises(InvalidResponse, match=problem):
        review.parse_response(response_to(review, **response), mutating=mutating)


def test_malformed_responses_are_rejected() -> None:
    review = Review({})
    with pytest.raises(
        ValueError, match="json: cannot unmarshal string into Go value of type struct"
    ):
        review.parse_response(b"not json", mutating=True)
    with pytest.raises(ValueError, match="base64"):
        review.parse_response(
            response_to(review, patch="%%%", patchType="JSONPatch"), mutating=True
        )
    with pytest.raises(InvalidResponse, match="webhook response was absent"):
        review.parse_response(
            b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}', mutating=True
        )
    with pytest.raises(ValueError, match='no kind "Pod" is registered for version "v1"'):
        review.parse_response(b'{"apiVersion":"v1","kind":"Pod","response":{}}', mutating=True)
    old = Review({}, ("v1beta1", "v1"))
    assert old.parse_response(response_to(old, uid="whatever"), mutating=True).allowed


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (None, 400, 'admission webhook "w" denied the request without explanation'),
        ({"message": "no"}, 400, 'admission webhook "w" denied the request: no'),
        (
            {"reason": "NotFound", "code": 404},
            404,
            'admission webhook "w" denied the request: NotFound',
        ),
        ({"code": 200, "message": "no"}, 400, 'admission webhook "w" denied the request: no'),
    ],
)
def test_denial_becomes_status_error(
    status: dict[str, Any] | None, code: int, message: str
) -> None:
    error = rejection("w", status)
    assert (error.code, error.message) == (code, message)


def add_label(key: str) -> Responder:
    return lambda request: {
        "patch": [{"op": "add", "path": f"/metadata/labels/{key}", "value": "x"}]
    }


async def test_mutating_webhooks_run_in_order_of_configuration_names_and_see_earlier_changes(
    store: Store,
) -> None:
    add_configuration(store, "Mutating", "b", webhook("three"))
    add_configuration(store, "Mutating", "a", webhook("one"), webhook("two"))
    client = FakeWebhookClient(
        store, one=add_label("one"), two=add_label("two"), three=add_label("three")
    )
    ctx = context()
    original = config_map()
    result = await admission_chain(store, client).mutate(ctx, original, None)
    assert client.called_urls == ["one", "two", "three"]
    assert list(client.calls[2][1]["object"]["metadata"]["labels"]) == ["one", "two"]
    assert list(result["metadata"]["labels"]) == ["one", "two", "three"]
    assert original["metadata"]["labels"] == {}
    annotation = ctx.audit["mutation.webhook.admission.k8s.io/round_0_index_0"]
    assert json.loads(annotation) == {
        "configuration": "a",
        "webhook": "one.acme.io",
        "mutated": True,
    }


async def test_webhook_is_reinvoked_after_a_later_change(store: Store) -> None:
    add_configuration(
        store,
        "Mutating",
        "m",
        webhook("one", reinvocationPolicy="IfNeeded"),
        webhook("two"),
        webhook("three"),
    )
    client = FakeWebhookClient(store, one=lambda _: {}, two=add_label("two"), three=lambda _: {})
    await admission_chain(store, client).mutate(context(), config_map(), None)
    assert client.called_urls == ["one", "two", "three", "one"]


async def test_webhook_is_not_reinvoked_without_a_change(store: Store) -> None:
    add_configuration(
        store, "Mutating", "m", webhook("one", reinvocationPolicy="IfNeeded"), webhook("two")
    )
    unchanged = [{"op": "add", "path": "/metadata/name", "value": "x"}]
    client = FakeWebhookClient(store, one=lambda _: {}, two=lambda _: {"patch": unchanged})
    await admission_chain(store, client).mutate(context(), config_map(), None)
    assert client.called_urls == ["one", "two"]


async def test_failed_call_is_handled_by_failure_policy(store: Store) -> None:
    add_configuration(
        store, "Mutating", "m", webhook("one", failurePolicy="Ignore"), webhook("two")
    )
    client = FakeWebhookClient(
        store, one=lambda _: {"fail": "down"}, two=lambda _: {"fail": "down"}
    )
    ctx = context()
    with pytest.raises(StatusError) as error:
        await admission_chain(store, client).mutate(ctx, config_map(), None)
    assert error.value.code == 500
    assert error.value.message == (
        'Internal error occurred: failed calling webhook "two.acme.io": failed to call webhook: down'
    )
    assert (
        ctx.audit["failed-open.mutation.webhook.admission.k8s.io/round_0_index_0"] == "one.acme.io"
    )


async def test_patch_that_does_not_apply_is_an_internal_error(store: Store) -> None:
    add_configuration(store, "Mutating", "m", webhook("one"))
    client = FakeWebhookClient(
        store, one=lambda _: {"patch": [{"op": "remove", "path": "/nosuch"}]}
    )
    with pytest.raises(
        StatusError, match="error in remove for path: '/nosuch': Unable to remove nonexistent key"
    ):
        await admission_chain(store, client).mutate(context(), config_map(), None)


async def test_patch_of_a_deletion_is_rejected(store: Store) -> None:
    add_configuration(store, "Mutating", "m", webhook("one"))
    client = FakeWebhookClient(store, one=add_label("x"))
    with pytest.raises(StatusError, match="attempted to modify the object, which is not supported"):
        await admission_chain(store, client).mutate(
            context(CONFIG_MAPS, "DELETE"), {}, config_map()
        )


async def test_dry_run_calls_only_webhooks_without_side_effects(store: Store) -> None:
    add_configuration(
        store, "Validating", "v", webhook("one"), webhook("two", sideEffects="NoneOnDryRun")
    )
    client = FakeWebhookClient(store, one=lambda _: {}, two=lambda _: {}, three=lambda _: {})
    await admission_chain(store, client).validate(context(dry_run=True), config_map(), None)
    assert sorted(client.called_urls) == ["one", "two"]
    add_configuration(
        store, "Validating", "w", webhook("three", sideEffects="Some", failurePolicy="Ignore")
    )
    with pytest.raises(
        StatusError, match=r'admission webhook "three\.acme\.io" does not support dry run'
    ) as error:
        await admission_chain(store, client).validate(context(dry_run=True), config_map(), None)
    assert error.value.code == 400


async def test_error_names_first_rejecting_webhook_and_warnings_are_kept(store: Store) -> None:
    add_configuration(store, "Validating", "v", webhook("one"), webhook("two"), webhook("three"))
    no = {"allowed": False, "status": {"message": "no"}}
    client = FakeWebhookClient(
        store, one=lambda _: {"warnings": ["careful"]}, two=lambda _: no, three=lambda _: no
    )
    ctx = context()
    with pytest.raises(
        StatusError, match=r'admission webhook "two\.acme\.io" denied the request: no'
    ):
        await admission_chain(store, client).validate(ctx, config_map(), None)
    assert ctx.warnings == ["careful"]
    assert sorted(client.called_urls) == ["one", "three", "two"]


async def test_webhooks_are_not_called_for_webhook_configurations(store: Store) -> None:
    all_resources = [
        {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
    ]
    add_configuration(store, "Validating", "v", webhook("one", rules=all_resources))
    plural = "validatingwebhookconfigurations"
    info = ResourceInfo(
        GROUP, "v1", plural, plural[:-1], "ValidatingWebhookConfiguration", False, Strategy()
    )
    client = FakeWebhookClient(store, one=lambda _: {"allowed": False})
    await admission_chain(store, client).validate(context(info), {"metadata": {"name": "v"}}, None)
    assert client.called_urls == []
