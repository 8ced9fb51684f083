"""CertificateSigningRequests of Ray nodes, valid and not."""

from __future__ import annotations

from base64 import b64encode
from ipaddress import ip_address
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from cfo.api.raycluster.certificates import CERTIFICATE_USAGES, SIGNER_NAME
from cfo.runtime.objects.unstructured import Object

__all__ = ["address", "certificate_request", "request_pem"]


def address(text: str) -> x509.IPAddress:
    """Return an IP address as a name."""
    return x509.IPAddress(ip_address(text))


def request_pem(*names: x509.GeneralName, key: Any = None) -> bytes:
    """Return a request for these names, signed with ``key`` (default: a new P-256 key)."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(list(names)), critical=False)
    request = builder.sign(key or ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def certificate_request(name: str, *names: x509.GeneralName, **spec: Any) -> Object:
    """Return a CertificateSigningRequest for these names; ``spec`` replaces fields of its spec."""
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "signerName": SIGNER_NAME,
            "usages": list(CERTIFICATE_USAGES),
            "request": b64encode(request_pem(*names)).decode(),
            **spec,
        },
    }
