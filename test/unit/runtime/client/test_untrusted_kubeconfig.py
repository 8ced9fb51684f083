"""Kubeconfigs of other authors: what is accepted, and that nothing is run, read or printed."""

from __future__ import annotations

import base64
import time
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from cfo.runtime.client.kubeconfig_errors import KubeconfigError
from cfo.runtime.client.untrusted_kubeconfig import (
    MAX_KUBECONFIG_BYTES,
    KubeconfigPolicy,
    parse_untrusted_kubeconfig,
)
from envtest.formats.certificate_authority import CertificateAuthority

SECRET = "s3cr3t-value"
AUTHORITY = CertificateAuthority()


def encoded(pem: str | bytes) -> str:
    return base64.b64encode(pem.encode() if isinstance(pem, str) else pem).decode()


def kubeconfig(
    *, user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None, **fields: Any
) -> dict[str, Any]:
    server = {"server": "https://api.example.com:6443", "certificate-authority-data": encoded(AUTHORITY.pem)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {**server, **(cluster or {})}}],
        "users": [{"name": "u", "user": {"token": SECRET, **(user or {})}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "apps"}}],
        "current-context": "x",
        **fields,
    }


def parse(document: Any, **policy: bool) -> Any:
    content = document if isinstance(document, bytes) else yaml.safe_dump(document).encode()
    return parse_untrusted_kubeconfig(content, KubeconfigPolicy(**policy), environ={})


def test_token_and_certificate_authority_are_used() -> None:
    config = parse(kubeconfig())
    assert (config.server, config.token, config.namespace) == ("https://api.example.com:6443", SECRET, "apps")
    assert config.ca_pem == AUTHORITY.pem
    assert config.verify
    assert config == parse(kubeconfig())
    assert SECRET not in repr(config)


def test_client_certificate_is_used() -> None:
    pair = AUTHORITY.client("operator")
    user = {"client-certificate-data": encoded(pair.certificate), "client-key-data": encoded(pair.key)}
    config = parse(kubeconfig(user={"token": None, **user}))
    assert config.token == ""
    assert b"BEGIN CERTIFICATE" in config.client_cert_pem
    assert b"PRIVATE KEY" in config.client_key_pem


def test_impersonation_is_sent_in_headers() -> None:
    config = parse(kubeconfig(user={"as": "jane", "as-groups": ["devs"]}))
    assert config.headers == (("Impersonate-User", "jane"), ("Impersonate-Group", "devs"))


def test_environment_selects_the_proxy() -> None:
    content = yaml.safe_dump(kubeconfig()).encode()
    config = parse_untrusted_kubeconfig(content, environ={"HTTPS_PROXY": "http://proxy:3128"})
    assert config.proxy_url == "http://proxy:3128"


@pytest.mark.parametrize(
    ("user", "cluster", "field"),
    [
        ({"exec": {"command": "touch", "args": ["/tmp/owned"]}}, {}, "user.exec"),
        ({"auth-provider": {"name": "oidc"}}, {}, "user.auth-provider"),
        ({"tokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token"}, {}, "user.tokenFile"),
        ({"client-certificate": "/etc/passwd"}, {}, "user.client-certificate"),
        ({"client-key": "/etc/passwd"}, {}, "user.client-key"),
        ({"username": "u", "password": SECRET}, {}, "user.username"),
        ({}, {"certificate-authority": "/etc/passwd"}, "cluster.certificate-authority"),
        ({}, {"proxy-url": f"http://u:{SECRET}@proxy"}, "cluster.proxy-url"),
        ({}, {"insecure-skip-tls-verify": True}, "cluster.insecure-skip-tls-verify"),
        ({}, {"insecure-skip-tls-verify": "yes"}, "cluster.insecure-skip-tls-verify"),
        ({}, {"server": "http://api.example.com"}, "cluster.server"),
        ({}, {"server": f"https://u:{SECRET}@api.example.com"}, "cluster.server"),
        ({}, {"server": "https://api.example.com/?x=1"}, "cluster.server"),
        ({}, {"server": "file:///etc/passwd"}, "cluster.server"),
        ({}, {"server": "https://[::1"}, "cluster.server"),
        ({}, {"server": "https://api:99999"}, "cluster.server"),
        ({}, {"server": ["https://api"]}, "cluster.server"),
        ({}, {"server": None}, "cluster.server"),
        ({}, {"certificate-authority-data": f"{SECRET}!"}, "cluster.certificate-authority-data"),
        ({}, {"certificate-authority-data": encoded("no PEM")}, "cluster.certificate-authority-data"),
        ({"token": f"{SECRET}\nX-Injected: 1"}, {}, "user.token"),
        ({"token": "ü" * 10}, {}, "user.token"),
        ({"token": "x" * 20_000}, {}, "user.token"),
        ({"token": {"nested": SECRET}}, {}, "user.token"),
        ({"as": f"{SECRET}\r\nX: 1"}, {}, "user.as"),
        ({"as-groups": SECRET}, {}, "user.as"),
        ({"as-groups": [{"a": SECRET}] * 65}, {}, "user.as"),
        ({"as-user-extra": {"k": SECRET}}, {}, "user.as"),
        ({"client-certificate-data": encoded(AUTHORITY.pem)}, {}, "user"),
        (
            {"client-certificate-data": encoded("-----BEGIN X"), "client-key-data": encoded("-----BEGIN X")},
            {},
            "user.client-certificate-data",
        ),
        (
            {"client-certificate-data": encoded(AUTHORITY.pem), "client-key-data": encoded("-----BEGIN X")},
            {},
            "user.client-key-data",
        ),
    ],
)
def test_dangerous_field_is_refused_without_its_value(
    user: dict[str, Any], cluster: dict[str, Any], field: str
) -> None:
    with pytest.raises(KubeconfigError) as error:
        parse(kubeconfig(user=user, cluster=cluster))
    assert error.value.field == field
    assert SECRET not in str(error.value)
    assert "\n" not in str(error.value)
    assert error.value.__cause__ is None


def test_huge_key_is_refused_before_it_is_used() -> None:
    weak = rsa.generate_private_key(65537, 1024).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    certificate = AUTHORITY.client("operator").certificate
    user = {"client-certificate-data": encoded(certificate), "client-key-data": encoded(weak)}
    with pytest.raises(KubeconfigError, match="RSA key of 1024 bits"):
        parse(kubeconfig(user=user))
    # OpenSSL uses the first key in the certificate and key files, so only certificates must remain of the first field.
    pair = AUTHORITY.client("operator")
    user = {"client-certificate-data": encoded(weak + pair.certificate), "client-key-data": encoded(pair.key)}
    assert b"KEY" not in parse(kubeconfig(user=user)).client_cert_pem


def test_policy_allows_proxies_and_insecure_servers() -> None:
    assert parse(kubeconfig(cluster={"proxy-url": "http://proxy:1"}), proxy_url=True).proxy_url == "http://proxy:1"
    with pytest.raises(KubeconfigError, match="HTTP or HTTPS"):
        parse(kubeconfig(cluster={"proxy-url": "socks5://proxy:1"}), proxy_url=True)
    assert parse(kubeconfig(cluster={"server": "http://localhost:1"}), insecure=True).server == "http://localhost:1"
    assert not parse(kubeconfig(cluster={"insecure-skip-tls-verify": True}), insecure=True).verify


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"kind: [",
        b"a: *missing",
        b"!!python/object/apply:os.system [true]",
        b"&a [*a]",
        b"x: " + b"[" * 60_000,
        b"? " * 30_000,
        b"x" * (MAX_KUBECONFIG_BYTES + 1),
        b"contexts: [{name: x, context: s3cr3t-value}]\ncurrent-context: x",
        b"contexts: s3cr3t-value\ncurrent-context: x",
        b"contexts: []\ncurrent-context: [s3cr3t-value]",
        b"contexts: [s3cr3t-value]\ncurrent-context: s3cr3t-value",
        b"token: !s3cr3t-value x",
    ],
)
def test_malformed_content_is_one_line_without_values_and_takes_less_than_two_seconds(content: bytes) -> None:
    started = time.process_time()
    with pytest.raises(KubeconfigError) as error:
        parse(content)
    assert time.process_time() - started < 2.0
    assert SECRET not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("missing", ["clusters", "contexts", "users", "current-context"])
def test_missing_section_is_reported(missing: str) -> None:
    document = kubeconfig()
    del document[missing]
    with pytest.raises(KubeconfigError) as error:
        parse(document)
    assert error.value.field == missing


def test_anonymous_user_needs_no_entry() -> None:
    document = kubeconfig(contexts=[{"name": "x", "context": {"cluster": "c"}}], users=[])
    assert parse(document).token == ""
