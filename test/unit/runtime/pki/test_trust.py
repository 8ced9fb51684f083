"""TLS clients verify servers as Go's clients do, with each version of Python."""

from __future__ import annotations

import ssl

import pytest

from cfo.runtime.pki.trust import client_context
from test.support.certificates import create_ca


def test_only_the_given_certificate_authorities_are_trusted() -> None:
    ca = create_ca()
    context = client_context(ca.cert_pem)
    assert context.get_ca_certs(binary_form=True) == [
        ssl.PEM_cert_to_DER_cert(ca.cert_pem.decode())
    ]


def test_host_names_are_verified_and_key_identifiers_are_not_required() -> None:
    context = client_context(create_ca().cert_pem)
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN


@pytest.mark.parametrize(
    "pem", [b"-----BEGIN CERTIFICATE-----\nMQ==\n-----END CERTIFICATE-----\n", b"no"]
)
def test_invalid_certificates_are_an_error(pem: bytes) -> None:
    with pytest.raises((ssl.SSLError, ValueError)):
        client_context(pem)
