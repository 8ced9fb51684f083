"""Registration of webhooks, and the webhook configurations that are generated from it."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.runtime.objects.kinds import (
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
    plural,
)
from cfo.runtime.objects.unstructured import GVK, Object
from cfo.runtime.webhook.admission import AdmissionRequest, Operation, Validator
from cfo.runtime.webhook.options import ServiceReference, WebhookURL
from cfo.runtime.webhook.registration import Webhooks

CLUSTER = GVK("ray.io", "v1", "RayCluster")
SERVICE = ServiceReference("operators", "hooks")


class AllHandlers:
    def default(self, obj: Object, request: AdmissionRequest) -> None: ...
    def validate_create(self, obj: Object, request: AdmissionRequest) -> None: ...
    def validate_update(self, old: Object, obj: Object, request: AdmissionRequest) -> None: ...
    def validate_delete(self, obj: Object, request: AdmissionRequest) -> None: ...


def create_webhooks(**settings: Any) -> Webhooks:
    webhooks = Webhooks()
    webhooks.register(
        CLUSTER,
        defaulter=AllHandlers(),
        validator=AllHandlers(),
        defaulter_name="mraycluster.ray.openshift.ai",
        validator_name="vraycluster.ray.openshift.ai",
        **settings,
    )
    return webhooks


def test_default_paths_and_names_match_controller_runtime() -> None:
    webhooks = Webhooks()
    webhooks.register(CLUSTER, defaulter=AllHandlers(), validator=AllHandlers())
    assert {hook.path: hook.name for hook in webhooks} == {
        "/mutate-ray-io-v1-raycluster": "mraycluster.kb.io",
        "/validate-ray-io-v1-raycluster": "vraycluster.kb.io",
    }
    assert webhooks.get("/mutate-ray-io-v1-raycluster") is not None
    assert webhooks.get("/mutate") is None


def test_configuration_matches_controller_gen() -> None:
    configuration = create_webhooks().configuration(
        MUTATING_WEBHOOK_CONFIGURATION, "mutating", SERVICE
    )
    assert configuration == {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "mutating"},
        "webhooks": [
            {
                "name": "mraycluster.ray.openshift.ai",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {
                    "service": {
                        "namespace": "operators",
                        "name": "hooks",
                        "path": "/mutate-ray-io-v1-raycluster",
                    }
                },
                "failurePolicy": "Fail",
                "matchPolicy": "Equivalent",
                "rules": [
                    {
                        "apiGroups": ["ray.io"],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": ["rayclusters"],
                        "scope": "*",
                    }
                ],
                "sideEffects": "None",
                "timeoutSeconds": 10,
            }
        ],
    }


def test_configuration_contains_every_setting() -> None:
    webhooks = create_webhooks(
        resource="clusters",
        scope="Namespaced",
        failure_policy="Ignore",
        side_effects="NoneOnDryRun",
        timeout_seconds=3,
        object_selector={"matchLabels": {"c": "d"}},
        validator_operations=[Operation.DELETE],
    )
    configuration = webhooks.configuration(
        VALIDATING_WEBHOOK_CONFIGURATION,
        "v",
        ServiceReference("n", "s", 8443),
    )
    assert configuration is not None
    (hook,) = configuration["webhooks"]
    assert hook["clientConfig"] == {
        "service": {
            "namespace": "n",
            "name": "s",
            "path": "/validate-ray-io-v1-raycluster",
            "port": 8443,
        },
    }
    assert hook["rules"][0]["operations"] == ["DELETE"]
    assert hook["rules"][0]["resources"] == ["clusters"]
    assert hook["rules"][0]["scope"] == "Namespaced"
    assert (hook["failurePolicy"], hook["sideEffects"], hook["timeoutSeconds"]) == (
        "Ignore",
        "NoneOnDryRun",
        3,
    )
    assert hook["objectSelector"] == {"matchLabels": {"c": "d"}}


def test_configuration_can_use_a_url() -> None:
    configuration = create_webhooks().configuration(
        VALIDATING_WEBHOOK_CONFIGURATION, "v", WebhookURL("192.0.2.1", 9443)
    )
    assert configuration is not None
    assert configuration["webhooks"][0]["clientConfig"] == {
        "url": "https://192.0.2.1:9443/validate-ray-io-v1-raycluster"
    }


def test_no_configuration_is_generated_without_webhooks() -> None:
    assert Webhooks().configuration(MUTATING_WEBHOOK_CONFIGURATION, "m", SERVICE) is None


def test_duplicate_or_invalid_registration_is_rejected() -> None:
    webhooks = create_webhooks()
    with pytest.raises(ValueError, match="already used"):
        webhooks.register(CLUSTER, defaulter=AllHandlers())
    with pytest.raises(ValueError, match=r"name: 'mraycluster.ray.openshift.ai': already used"):
        webhooks.register(
            GVK("b", "v1", "B"),
            defaulter=AllHandlers(),
            defaulter_name="mraycluster.ray.openshift.ai",
        )
    with pytest.raises(ValueError, match="a defaulter or a validator is required"):
        webhooks.register(CLUSTER)
    with pytest.raises(ValueError, match="timeout_seconds: 31: must be 1 to 30"):
        Webhooks().register(CLUSTER, defaulter=AllHandlers(), timeout_seconds=31)
    with pytest.raises(ValueError, match="at least three parts"):
        Webhooks().register(CLUSTER, defaulter=AllHandlers(), defaulter_name="short")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("RayCluster", "rayclusters"),
        ("Ingress", "ingresses"),
        ("NetworkPolicy", "networkpolicies"),
        ("Gateway", "gateways"),
        ("Mesh", "meshes"),
        ("Box", "boxes"),
    ],
)
def test_plural_is_guessed(kind: str, name: str) -> None:
    assert plural(kind) == name


@pytest.mark.parametrize(
    ("text", "host", "port", "bind"),
    [
        ("https://192.0.2.7:9443", "192.0.2.7", 9443, ":9443"),
        ("https://laptop.example.test:8443/", "laptop.example.test", 8443, ":8443"),
        ("https://127.0.0.1:9443", "127.0.0.1", 9443, "127.0.0.1:9443"),
        ("https://[::1]:9443", "::1", 9443, "[::1]:9443"),
        ("https://host", "host", 443, ":443"),
    ],
)
def test_webhook_url_is_parsed(text: str, host: str, port: int, bind: str) -> None:
    url = WebhookURL.parse(text)
    assert (url.host, url.port, url.bind_address) == (host, port, bind)
    assert WebhookURL.parse(str(url)) == url


@pytest.mark.parametrize(
    "text",
    [
        "http://host:9443",
        "host:9443",
        "https://",
        "https://host:9443/path",
        "https://host:0",
        "https://host:99999",
        "https://user:secret@host:9443",
        "https://host:9443?x=1",
        "https://bad_host:9443",
        "",
    ],
)
def test_invalid_webhook_url_is_rejected_with_the_allowed_format(text: str) -> None:
    with pytest.raises(ValueError, match="must be https://HOST:PORT"):
        WebhookURL.parse(text)


class EmptyValidator(Validator[Object]):
    """A validator that overrides nothing."""


class ValidatorOfCreations(Validator[Object]):
    def validate_create(self, obj: Object, request: AdmissionRequest) -> None: ...


@pytest.mark.parametrize(
    ("handlers", "message"),
    [
        ({"validator": object()}, "validator object: must have a method validate_create"),
        ({"validator": EmptyValidator()}, "EmptyValidator: must have a method validate_create"),
        ({"validator": ValidatorOfCreations()}, "must have a method validate_update"),
        ({"validator": AllHandlers}, "validator AllHandlers: must be an instance, not a class"),
        ({"defaulter": object()}, "defaulter object: must have a method default"),
    ],
)
def test_handler_without_the_methods_that_are_called_is_rejected(
    handlers: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        Webhooks().register(CLUSTER, **handlers)


def test_validator_needs_only_the_methods_of_its_operations() -> None:
    operations = (Operation.CREATE, Operation.DELETE)
    Webhooks().register(CLUSTER, validator=ValidatorOfCreations(), operations=operations)
