"""Rewriting of webhook manifests to a local server; other manifests are unchanged."""

from __future__ import annotations

import ssl
import stat
from base64 import b64decode
from pathlib import Path

from envtest.planes.local_webhooks import LocalWebhooks

SERVICE = {"namespace": "acme", "name": "hooks", "path": "/mutate"}


def test_service_references_become_local_urls(tmp_path: Path) -> None:
    webhooks = LocalWebhooks.prepare(tmp_path, port=9443)
    original = {
        "kind": "MutatingWebhookConfiguration",
        "webhooks": [
            {"name": "a", "clientConfig": {"service": SERVICE}},
            {"name": "b", "clientConfig": {"service": {"namespace": "acme", "name": "hooks"}}},
            {"name": "c", "clientConfig": {"url": "https://elsewhere/x"}},
        ],
    }
    configs = [each["clientConfig"] for each in webhooks.rewrite(original)["webhooks"]]
    assert [each["url"] for each in configs] == [
        "https://127.0.0.1:9443/mutate",
        "https://127.0.0.1:9443/",
        "https://elsewhere/x",
    ]
    assert {b64decode(each["caBundle"]) for each in configs} == {webhooks.ca_pem}
    assert original["webhooks"][0] == {"name": "a", "clientConfig": {"service": SERVICE}}


def test_conversion_webhooks_become_local_urls(tmp_path: Path) -> None:
    webhooks = LocalWebhooks.prepare(tmp_path, host="::1", port=1)
    conversion = {"strategy": "Webhook", "webhook": {"clientConfig": {"service": SERVICE}}}
    crd = {"kind": "CustomResourceDefinition", "spec": {"conversion": conversion}}
    config = webhooks.rewrite(crd)["spec"]["conversion"]["webhook"]["clientConfig"]
    assert config["url"] == "https://[::1]:1/mutate"
    untouched = {"kind": "CustomResourceDefinition", "spec": {"conversion": {"strategy": "None"}}}
    assert webhooks.rewrite(untouched) == untouched
    assert webhooks.rewrite({"kind": "Pod"}) == {"kind": "Pod"}


def test_certificate_is_valid_and_key_file_is_private(tmp_path: Path) -> None:
    directory = tmp_path / "certs"
    webhooks = LocalWebhooks.prepare(directory)
    assert 0 < webhooks.port < 65536
    assert stat.S_IMODE((directory / "tls.key").stat().st_mode) == 0o600
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    assert (
        ssl.create_default_context(cadata=webhooks.ca_pem.decode()).cert_store_stats()["x509_ca"]
        == 1
    )
