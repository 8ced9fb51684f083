"""Parses certificate requests (PKCS #10) of untrusted clients.

Sizes are checked before anything is computed, and the signature, which proves that the client has the private key, is
verified only with a key of an allowed type and size.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Final

import msgspec
from cryptography import x509

from cfo.runtime.pki.certificates import PARSE_ERRORS
from cfo.runtime.pki.private_keys import PublicKey, check_public_key

MAX_REQUEST_BYTES: Final = 4 << 10
"""The largest accepted PEM; a request with an RSA key of 4096 bits takes 1.8 kB."""

_MAX_NAMES: Final = 64


class InvalidCertificateRequest(ValueError):
    """Raised if a request is not accepted; ``reason`` is a word in CamelCase, the message one sentence."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


class CertificateRequest(msgspec.Struct, frozen=True):
    """The content of a request: a public key of an allowed type and size, and the requested names."""

    public_key: PublicKey
    addresses: frozenset[IPv4Address | IPv6Address]
    hosts: frozenset[str]


def parse_certificate_request(pem: bytes) -> CertificateRequest:
    """Return the content of the request in ``pem``. Raises :class:`InvalidCertificateRequest`.

    A request has at most 64 names, and no names other than host names and IP addresses.
    """
    if len(pem) > MAX_REQUEST_BYTES:
        raise InvalidCertificateRequest(
            "RequestTooLarge", f"The request is larger than {MAX_REQUEST_BYTES} bytes."
        )
    try:
        request = x509.load_pem_x509_csr(pem)
        key = request.public_key()
    except PARSE_ERRORS:
        raise InvalidCertificateRequest(
            "InvalidRequest", "The request is not a valid certificate request in PEM."
        ) from None
    try:
        public_key = check_public_key(key)
    except ValueError as error:
        raise InvalidCertificateRequest("KeyNotAllowed", str(error)) from None
    try:
        is_signed = request.is_signature_valid
        names = _alternative_names(request)
    except PARSE_ERRORS:
        raise InvalidCertificateRequest(
            "InvalidRequest", "The signature or the extensions of the request cannot be parsed."
        ) from None
    if not is_signed:
        raise InvalidCertificateRequest(
            "InvalidRequest", "The signature of the request is invalid."
        )
    return _with_names(public_key, names)


def _alternative_names(request: x509.CertificateSigningRequest) -> list[x509.GeneralName]:
    try:
        extension = request.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return list(extension.value)


def _with_names(public_key: PublicKey, names: Sequence[x509.GeneralName]) -> CertificateRequest:
    if len(names) > _MAX_NAMES:
        raise InvalidCertificateRequest(
            "TooManyNames", f"The request has {len(names)} names, at most {_MAX_NAMES} are allowed."
        )
    addresses: set[IPv4Address | IPv6Address] = set()
    hosts: set[str] = set()
    for name in names:
        if isinstance(name, x509.DNSName):
            hosts.add(name.value)
        elif isinstance(name, x509.IPAddress) and isinstance(name.value, IPv4Address | IPv6Address):
            addresses.add(name.value)
        else:
            raise InvalidCertificateRequest(
                "NameNotAllowed",
                "The request has a name that is neither a host name nor an IP address.",
            )
    return CertificateRequest(public_key, frozenset(addresses), frozenset(hosts))
