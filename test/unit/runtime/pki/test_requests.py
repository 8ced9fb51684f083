"""Which certificate requests are accepted, and what they contain."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa

from cfo.runtime.pki.policy import CertificatePolicy
from cfo.runtime.pki.requests import (
    MAX_REQUEST_BYTES,
    InvalidCertificateRequest,
    parse_certificate_request,
)
from cfo.runtime.pki.rotation import StoredCertificates, ensure_certificates
from test.support.certificate_requests import address, request_pem
from test.support.composite_keys import composite_rsa_key

CERTIFICATES, _ = ensure_certificates(
    StoredCertificates(), CertificatePolicy(), ["a.example"], now=datetime(2026, 6, 1, tzinfo=UTC)
)


def reason_of(pem: bytes) -> str:
    """Return why the request is refused."""
    with pytest.raises(InvalidCertificateRequest) as refused:
        parse_certificate_request(pem)
    assert len(str(refused.value)) < 400
    return refused.value.reason


def test_content_of_a_request_is_its_key_and_names() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    request = parse_certificate_request(
        request_pem(address("10.0.0.1"), x509.DNSName("a.example"), key=key)
    )
    assert request.public_key == key.public_key()
    assert request.addresses == {ip_address("10.0.0.1")}
    assert request.hosts == {"a.example"}


def test_request_can_have_no_names() -> None:
    request = parse_certificate_request(request_pem())
    assert not request.addresses
    assert not request.hosts


@pytest.mark.parametrize(
    ("key", "is_allowed"),
    [
        (ec.generate_private_key(ec.SECP256R1()), True),
        (ec.generate_private_key(ec.SECP384R1()), True),
        (rsa.generate_private_key(65537, 2048), True),
        (ec.generate_private_key(ec.SECP521R1()), False),
        (ec.generate_private_key(ec.SECP256K1()), False),
        (rsa.generate_private_key(65537, 1024), False),
        (dsa.generate_private_key(1024), False),
    ],
    ids=["P-256", "P-384", "RSA-2048", "P-521", "secp256k1", "RSA-1024", "DSA"],
)
def test_keys_are_limited_in_kind_and_size(key: Any, is_allowed: bool) -> None:
    pem = request_pem(address("10.0.0.1"), key=key)
    if is_allowed:
        assert parse_certificate_request(pem).public_key == key.public_key()
    else:
        assert reason_of(pem) == "KeyNotAllowed"


def altered(pem: bytes) -> bytes:
    """Return the request with another key, which has not signed it."""
    old = x509.load_pem_x509_csr(pem)
    new = ec.generate_private_key(ec.SECP256R1()).public_key()
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    der = old.public_bytes(serialization.Encoding.DER).replace(
        old.public_key().public_bytes(*form), new.public_bytes(*form)
    )
    return (
        b"-----BEGIN CERTIFICATE REQUEST-----\n"
        + b64encode(der)
        + b"\n-----END CERTIFICATE REQUEST-----\n"
    )


def with_version_9(pem: bytes) -> bytes:
    """Return the request with a version that does not exist."""
    der = x509.load_pem_x509_csr(pem).public_bytes(serialization.Encoding.DER)
    changed = der.replace(b"\x02\x01\x00", b"\x02\x01\x09", 1)
    return (
        b"-----BEGIN CERTIFICATE REQUEST-----\n"
        + b64encode(changed)
        + b"\n-----END CERTIFICATE REQUEST-----\n"
    )


@pytest.mark.parametrize(
    ("pem", "reason"),
    [
        (b"", "InvalidRequest"),
        (b"\x00\xff", "InvalidRequest"),
        (CERTIFICATES.pair.certificate, "InvalidRequest"),
        (altered(request_pem(address("10.0.0.1"))), "InvalidRequest"),
        (with_version_9(request_pem(address("10.0.0.1"))), "InvalidRequest"),
        (request_pem(*[address(f"10.0.0.{number}") for number in range(65)]), "TooManyNames"),
        (
            request_pem(address("10.0.0.1"), x509.UniformResourceIdentifier("spiffe://a/b")),
            "NameNotAllowed",
        ),
        (
            request_pem(*[x509.DNSName(f"{'x' * 60}-{number}.example") for number in range(60)]),
            "RequestTooLarge",
        ),
        (b"-----BEGIN CERTIFICATE REQUEST-----\n" + b"A" * MAX_REQUEST_BYTES, "RequestTooLarge"),
    ],
    ids=[
        "empty",
        "bytes",
        "certificate",
        "signature",
        "version",
        "many",
        "uri",
        "large-names",
        "large",
    ],
)
def test_malformed_requests_are_refused(pem: bytes, reason: str) -> None:
    assert reason_of(pem) == reason


def test_request_with_a_large_key_is_refused_before_its_signature_is_verified() -> None:
    key = serialization.load_pem_private_key(
        composite_rsa_key(6144), None, unsafe_skip_rsa_key_validation=True
    )
    pem = request_pem(address("10.0.0.1"), key=key)
    assert len(pem) < MAX_REQUEST_BYTES
    assert reason_of(pem) == "KeyNotAllowed"


def test_ed25519_is_refused() -> None:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    request = builder.sign(ed25519.Ed25519PrivateKey.generate(), None).public_bytes(
        serialization.Encoding.PEM
    )
    assert reason_of(request) == "KeyNotAllowed"
