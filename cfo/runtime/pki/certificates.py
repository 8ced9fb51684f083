"""X.509 certificates: their fields and extensions, who issued them, and when they are renewed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from cfo.runtime.pki.private_keys import PrivateKey, PublicKey

BACKDATED: Final = timedelta(minutes=5)
"""How long before its creation a certificate is valid, because other clocks may be behind."""

PARSE_ERRORS: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    InvalidSignature,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""What cryptography raises for certificates and certificate requests of others, also when their fields are read."""


@dataclass(frozen=True, slots=True)
class CertificateAuthority:
    """The private key and the certificate of a CA."""

    key: PrivateKey = field(repr=False)
    certificate: x509.Certificate


class KeyPair(msgspec.Struct, frozen=True):
    """A certificate chain, leaf certificate first, and the private key of the leaf; both PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "KeyPair(...)"

    @property
    def leaf(self) -> x509.Certificate:
        """The leaf certificate. Raises :class:`ValueError` if it cannot be parsed."""
        return load_certificate(self.certificate)


def load_certificate(pem: bytes) -> x509.Certificate:
    """Return the first certificate in ``pem``. Raises :class:`ValueError` if it cannot be parsed.

    Its extensions and names are parsed when they are read, which can raise any of :data:`PARSE_ERRORS`.
    """
    try:
        return x509.load_pem_x509_certificate(pem)
    except PARSE_ERRORS as error:
        raise ValueError(str(error)) from error


def load_certificates(pem: bytes) -> list[x509.Certificate]:
    """Return all certificates in ``pem``. Raises :class:`ValueError` if there are none, or one cannot be parsed."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except PARSE_ERRORS as error:
        raise ValueError(str(error)) from error


def certificate_builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: PublicKey,
    start: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    """Return the builder of a certificate, to which its extensions are added; times are cut to whole seconds."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start.replace(microsecond=0))
        .not_valid_after(end.replace(microsecond=0))
    )


def key_usage(*, ca: bool, encipherment: bool = True) -> x509.KeyUsage:
    """Return for what the key of a certificate may be used: signatures of certificates only if it is that of a CA."""
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=encipherment,
        key_cert_sign=ca,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def authority_key_identifier(ca: CertificateAuthority) -> x509.AuthorityKeyIdentifier:
    """Return the key identifier in the CA's own certificate, because implementations compute it in different ways."""
    try:
        own = ca.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.key.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """Return a certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def ca_certificates_of(bundle: bytes) -> list[x509.Certificate]:
    """Return the CA certificates in a bundle (PEM); an empty list if it cannot be parsed."""
    try:
        certificates = load_certificates(bundle)
    except ValueError:
        return []
    return [certificate for certificate in certificates if _is_ca(certificate)]


def _is_ca(certificate: x509.Certificate) -> bool:
    try:
        _ = certificate.subject  # issued certificates have it
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, *PARSE_ERRORS):
        return False


def is_issuer_of(ca: x509.Certificate, leaf: x509.Certificate) -> bool:
    """Return whether ``ca`` signed ``leaf``."""
    try:
        leaf.verify_directly_issued_by(ca)
    except PARSE_ERRORS:
        return False
    return True


def is_trusted(bundle: bytes, chain: Iterable[x509.Certificate]) -> bool:
    """Return whether a bundle (PEM) contains a certificate of ``chain``, or one that issued it."""
    try:
        trusted = load_certificates(bundle)
    except ValueError:
        return False
    shown = list(chain)
    for anchor in trusted:
        if any(anchor == certificate or is_issuer_of(anchor, certificate) for certificate in shown):
            return True
    return False


def subject_names(leaf: x509.Certificate) -> set[str]:
    """Return the DNS names and IP addresses in the certificate's subject alternative names."""
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, *PARSE_ERRORS):
        return set()
    return {
        *names.get_values_for_type(x509.DNSName),
        *map(str, names.get_values_for_type(x509.IPAddress)),
    }


def renewal_time(certificate: x509.Certificate) -> datetime:
    """Return when to renew the certificate: when a third of its lifetime is left."""
    start = certificate.not_valid_before_utc
    end = certificate.not_valid_after_utc
    return end - (end - start) / 3


def is_current(certificate: x509.Certificate, now: datetime) -> bool:
    """Return whether a certificate is valid and need not be renewed.

    It is not valid yet if the clock was ahead when it was issued.
    """
    return certificate.not_valid_before_utc <= now < renewal_time(certificate)
