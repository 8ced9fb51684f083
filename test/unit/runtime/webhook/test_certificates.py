"""Webhook certificates: which pair is served, and how the CA bundle is injected."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta

import pytest

from cfo.runtime.objects.unstructured import NamespacedName, Object
from cfo.runtime.pki.certificates import KeyPair
from cfo.runtime.pki.policy import CertificatePolicy
from cfo.runtime.pki.rotation import StoredCertificates, ensure_certificates
from cfo.runtime.webhook.certificates.client_configs import (
    ORIGINAL_ANNOTATION,
    ca_bundles_of,
    desired_object,
    mark_created_for_url,
    merge_patch,
    was_created_for_url,
)
from cfo.runtime.webhook.certificates.serving_certificate import ServingCertificate
from cfo.runtime.webhook.options import RotatedCertificates, WebhookURL
from test.support.certificates import malformed_certificates

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def key_pair() -> KeyPair:
    certificates, _ = ensure_certificates(
        StoredCertificates(), CertificatePolicy(), ["hooks.ns.svc"], now=NOW
    )
    return certificates.pair


def test_overlap_that_is_too_short_is_rejected() -> None:
    with pytest.raises(
        ValueError, match=r"overlap: 0:00:05: must be longer than propagation \(10 s\)"
    ):
        RotatedCertificates(secret=NamespacedName("ns", "cert"), overlap=timedelta(seconds=5))


def test_invalid_key_pair_keeps_the_served_one() -> None:
    serving = ServingCertificate()
    valid_pair = key_pair()
    other = key_pair()
    serving.serve(valid_pair)
    with pytest.raises(ValueError, match="cannot use the serving certificate"):
        serving.serve(KeyPair(valid_pair.certificate, other.key))
    with pytest.raises(ValueError, match="cannot use the serving certificate"):
        serving.serve(KeyPair(b"nonsense", other.key))
    malformed, key = malformed_certificates()["unknown version"]
    with pytest.raises(ValueError, match="cannot use the serving certificate"):
        serving.serve(KeyPair(malformed, key))
    with pytest.raises(ValueError, match="version"):
        serving.trust_clients(malformed)
    assert serving.pair == valid_pair


def configuration(**clients: Object) -> Object:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "m", "resourceVersion": "7", "annotations": {"other": "kept"}},
        "webhooks": [
            {
                "name": name,
                "clientConfig": dict(client),
                "rules": [],
                "namespaceSelector": {"matchLabels": {"x": "y"}},
            }
            for name, client in clients.items()
        ],
    }


SERVICE = {"service": {"namespace": "ns", "name": "hooks", "path": "/mutate"}, "caBundle": "Cg=="}
BUNDLE = b"-----BEGIN CERTIFICATE-----"
URL = WebhookURL("192.0.2.1", 9443)


def test_ca_bundle_is_set_in_every_webhook_and_nothing_else_changes() -> None:
    before = configuration(a=SERVICE, b={"url": "https://elsewhere/x"})
    after = desired_object(before, bundle=BUNDLE, url=None, paths={})
    encoded = b64encode(BUNDLE).decode()
    assert after == configuration(
        a={**SERVICE, "caBundle": encoded}, b={"url": "https://elsewhere/x", "caBundle": encoded}
    )
    assert ca_bundles_of(after) == {"a": BUNDLE, "b": BUNDLE}
    assert desired_object(after, bundle=BUNDLE, url=None, paths={}) == after
    assert merge_patch(before, after) == {
        "metadata": {"resourceVersion": "7"},
        "webhooks": after["webhooks"],
    }


def test_url_replaces_the_service_which_can_be_restored() -> None:
    before = configuration(a=SERVICE, b=SERVICE)
    local = desired_object(before, bundle=BUNDLE, url=URL, paths={"a": "/registered"})
    assert [hook["clientConfig"].get("url") for hook in local["webhooks"]] == [
        "https://192.0.2.1:9443/registered",
        "https://192.0.2.1:9443/mutate",
    ]
    assert all("service" not in hook["clientConfig"] for hook in local["webhooks"])
    assert local["webhooks"][0]["namespaceSelector"] == {"matchLabels": {"x": "y"}}
    assert desired_object(local, bundle=BUNDLE, url=URL, paths={"a": "/registered"}) == local

    with_other_url = desired_object(
        local, bundle=BUNDLE, url=WebhookURL("192.0.2.2", 1), paths={"a": "/registered"}
    )
    assert (
        with_other_url["metadata"]["annotations"][ORIGINAL_ANNOTATION]
        == local["metadata"]["annotations"][ORIGINAL_ANNOTATION]
    )

    restored = desired_object(with_other_url, bundle=None, url=None, paths={})
    assert restored == before
    patch = merge_patch(with_other_url, restored)
    assert patch["metadata"] == {"resourceVersion": "7", "annotations": {ORIGINAL_ANNOTATION: None}}


def test_reapplied_manifest_keeps_the_recorded_original() -> None:
    before = configuration(a=SERVICE)
    local = desired_object(before, bundle=BUNDLE, url=URL, paths={})
    applied = {**before, "metadata": local["metadata"]}
    result = desired_object(applied, bundle=BUNDLE, url=URL, paths={})
    assert result == local
    assert desired_object(result, bundle=None, url=None, paths={}) == before


def test_configuration_created_for_a_url_is_recognized() -> None:
    created = desired_object(
        mark_created_for_url(configuration(a={"url": f"{URL}/mutate"})),
        bundle=BUNDLE,
        url=URL,
        paths={},
    )
    assert was_created_for_url(created)
    assert was_created_for_url(
        desired_object(created, bundle=BUNDLE, url=WebhookURL("192.0.2.2", 1), paths={})
    )
    assert not was_created_for_url(configuration(a=SERVICE))
    broken = configuration(a=SERVICE)
    broken["metadata"]["annotations"][ORIGINAL_ANNOTATION] = "nonsense"
    assert not was_created_for_url(broken)


def test_unreadable_ca_bundles_are_empty() -> None:
    assert ca_bundles_of(
        configuration(a={"caBundle": "%%%"}, b={}, c={"caBundle": None})
    ) == dict.fromkeys("abc", b"")
