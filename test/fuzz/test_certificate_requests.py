"""CertificateSigningRequests: whatever a pod sends, a certificate has the names of the pod, or there is none."""

from __future__ import annotations

import time
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import strategies as st

from cfo.api.raycluster.certificates import CERTIFICATE_USAGES
from cfo.controllers.raycluster import ca
from cfo.controllers.raycluster.node_request import (
    NodeNames,
    Refusal,
    check_names,
    parse_request,
    requester_of,
)
from test.fuzz.profiles import fuzz
from test.support.certificate_requests import address, request_pem
from test.support.properties import CHARACTERS

POD = address("10.0.0.1")
NAMES = NodeNames(frozenset({POD.value}), ("localhost", "rc-head-svc.ns.svc"))
NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = ec.derive_private_key(0x1234567890, ec.SECP256R1())
PLACES = st.integers(
    0, 1023
)  # signatures have different lengths, so the length cannot be the bound

USERS = st.sampled_from(
    ["system:serviceaccount:ns:a", "system:serviceaccount:", "system:serviceaccount:a", "alice", ""]
)
EXTRA = st.dictionaries(
    st.sampled_from([f"authentication.kubernetes.io/pod-{part}" for part in ("name", "uid")]),
    st.lists(st.text(CHARACTERS, max_size=3), max_size=2),
)
GENERAL_NAMES = st.lists(
    st.sampled_from(
        [
            *(POD, address("127.0.0.1"), address("10.0.0.2"), address("::1")),
            *(
                x509.DNSName("localhost"),
                x509.DNSName("rc-head-svc.ns.svc"),
                x509.DNSName("other.svc"),
            ),
            *(x509.DNSName("*"), x509.RFC822Name("a@b.c"), x509.DirectoryName(x509.Name([]))),
        ]
    ),
    max_size=4,
)


@cache
def authority() -> ca.CertificateAuthority:
    return ca.create("ecdsa", now=NOW)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Return a request in PEM, of which up to three bytes of the DER may be changed."""
    pem = request_pem(*draw(GENERAL_NAMES), key=KEY)
    der = bytearray(x509.load_pem_x509_csr(pem).public_bytes(Encoding.DER))
    for _ in range(draw(st.integers(0, 3))):
        der[draw(PLACES) % len(der)] = draw(st.integers(0, 255))
    end = draw(PLACES) % len(der) if draw(st.booleans()) else len(der)
    text = b64encode(bytes(der[:end]))
    return (
        b"-----BEGIN CERTIFICATE REQUEST-----\n" + text + b"\n-----END CERTIFICATE REQUEST-----\n"
    )


@fuzz(
    0.25,
    st.one_of(requests(), st.binary(max_size=64)),
    st.lists(st.sampled_from([*CERTIFICATE_USAGES, "any"])),
)
def test_certificate_has_the_names_of_the_pod(pem: bytes, usages: Any) -> None:
    for wanted in (usages, list(CERTIFICATE_USAGES)):
        spec = {"request": b64encode(pem).decode(), "usages": wanted}
        start = time.thread_time()
        try:
            request = parse_request(spec)
            check_names(request, NAMES)
        except Refusal:
            continue
        finally:
            assert time.thread_time() - start < 1.0
        assert request.hosts <= set(NAMES.hosts)
        assert POD.value in request.addresses
        certificate = x509.load_pem_x509_certificate(
            ca.issue_pem(
                authority(),
                request.public_key,
                addresses=NAMES.addresses,
                hosts=NAMES.hosts,
                lifetime=timedelta(days=1),
                now=NOW,
            )
        )
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert found.get_values_for_type(x509.DNSName) == list(NAMES.hosts)
        assert found.get_values_for_type(x509.IPAddress) == list(NAMES.addresses)
        assert certificate.public_key() == KEY.public_key()
        assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


@fuzz(0.1, USERS, EXTRA)
def test_requester_is_a_pod_with_name_and_uid(username: str, extra: dict[str, list[str]]) -> None:
    try:
        requester = requester_of({"username": username, "extra": extra})
    except Refusal:
        return
    assert (
        username == f"system:serviceaccount:{requester.pod.namespace}:{requester.service_account}"
    )
    assert [[requester.pod.name], [requester.pod_uid]] == [extra[key] for key in sorted(extra)]
