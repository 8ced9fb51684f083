"""The certificate authority (CA) of one RayCluster: create, load, renew, and issue certificates for nodes.

Depending on ``kuberay.ca.issuer``, Ray nodes sign their certificates themselves when they start, with ``ca.key`` and
the first certificate in ``ca.crt``, or the operator issues them. In both cases they keep using that ``ca.crt``. Renewal
therefore keeps the key, subject and key identifier, so old leaf certificates verify with the new CA certificate and
vice versa, and no pod has to be restarted. A new key breaks this, so it is created only on request or when the old key
is lost.

All functions are pure, except for the randomness of keys and serial numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address
from typing import Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cfo.api.raycluster.certificates import CA_LIFETIME
from cfo.runtime.pki import (
    BACKDATED,
    PARSE_ERRORS,
    CertificateAuthority,
    PrivateKey,
    PublicKey,
    authority_key_identifier,
    certificate_builder,
    certificate_pem,
    create_key,
    key_pem,
    key_usage,
    load_private_key,
    renewal_time,
)

CERTIFICATE_FIELD = "ca.crt"
PRIVATE_KEY_FIELD = "ca.key"

MAX_CERTIFICATE_BYTES = 64 << 10
"""The largest accepted ``ca.crt``; a certificate of an RSA key of 4096 bits takes 2 kB."""

_NODE_SUBJECT = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ray-node")])
_EXTENDED_USAGES = x509.ExtendedKeyUsage(
    [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
)
_CA_SUBJECT = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "root-ca")])


class InvalidCertificateAuthority(ValueError):
    """The stored data is not a usable CA; ``key`` is its private key, if at least that is readable."""

    def __init__(self, reason: str, key: PrivateKey | None = None) -> None:
        self.key = key
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class ClusterCA(CertificateAuthority):
    """A private key with its self-signed certificate."""

    @property
    def renewal_due(self) -> datetime:
        """The time of renewal, which is when a third of the lifetime remains."""
        return renewal_time(self.certificate)

    def data(self) -> dict[str, bytes]:
        """Return the content of the Secret, in PEM."""
        return {
            PRIVATE_KEY_FIELD: key_pem(self.key),
            CERTIFICATE_FIELD: certificate_pem(self.certificate),
        }


def create(
    algorithm: Literal["ecdsa", "rsa"],
    *,
    now: datetime | None = None,
    key: PrivateKey | None = None,
) -> ClusterCA:
    """Create a CA, with a new key (P-256 or RSA-2048) unless ``key`` is given."""
    key = key or create_key(algorithm)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return ClusterCA(key, _self_signed(key, _CA_SUBJECT, identifier, now or datetime.now(UTC)))


def renew(ca: ClusterCA, *, now: datetime | None = None) -> ClusterCA:
    """Return the CA with a certificate that is valid for another :data:`CA_LIFETIME`.

    The key, the subject and the key identifier stay the same.
    """
    certificate = ca.certificate
    try:
        identifier = certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        identifier = x509.SubjectKeyIdentifier.from_public_key(ca.key.public_key())
    return ClusterCA(
        ca.key,
        _self_signed(ca.key, certificate.subject, identifier, now or datetime.now(UTC)),
    )


def load(certificate_data: bytes, key_data: bytes) -> ClusterCA:
    """Load a stored CA from PEM; if there are several certificates, the first is used, as by all signers.

    Raises :class:`InvalidCertificateAuthority` if it is unusable for any reason other than expiry.
    """
    key = _load_key(key_data)

    def invalid(reason: str) -> InvalidCertificateAuthority:
        return InvalidCertificateAuthority(f"{CERTIFICATE_FIELD} {reason}", key)

    if len(certificate_data) > MAX_CERTIFICATE_BYTES:
        raise invalid(
            f"has {len(certificate_data)} bytes, at most {MAX_CERTIFICATE_BYTES} are allowed"
        )
    try:
        certificate = x509.load_pem_x509_certificate(certificate_data)
        # Issued certificates have these, which are parsed when they are read.
        _ = certificate.subject, certificate.not_valid_before_utc, certificate.not_valid_after_utc
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        # The size of another key is not limited, and verifying with a large one takes long, so only ours is used.
        matches = certificate.public_key() == key.public_key()
        if matches:
            certificate.verify_directly_issued_by(certificate)
    except x509.ExtensionNotFound:
        raise invalid("is not a CA certificate") from None
    except InvalidSignature:
        raise invalid("is not self-signed") from None
    except PARSE_ERRORS:
        raise invalid("is missing or is not a CA certificate") from None
    if not constraints.ca:
        raise invalid("is not a CA certificate")
    if not matches:
        raise InvalidCertificateAuthority(
            f"{PRIVATE_KEY_FIELD} does not match {CERTIFICATE_FIELD}", key
        )
    return ClusterCA(key, certificate)


def issue_pem(
    ca: ClusterCA,
    public_key: PublicKey,
    *,
    addresses: Iterable[IPv4Address | IPv6Address],
    hosts: Iterable[str],
    lifetime: timedelta,
    now: datetime,
) -> bytes:
    """Return a certificate (PEM) of a Ray node, which is a server and a client of the other nodes.

    It is not valid longer than the certificate of ``ca``.
    """
    issuer = ca.certificate
    names: list[x509.GeneralName] = [*map(x509.IPAddress, addresses), *map(x509.DNSName, hosts)]
    end = min(now + lifetime, issuer.not_valid_after_utc)
    builder = (
        certificate_builder(_NODE_SUBJECT, issuer.subject, public_key, now - BACKDATED, end)
        .add_extension(authority_key_identifier(ca), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )
    return certificate_pem(_with_usages(builder, is_ca=False).sign(ca.key, hashes.SHA256()))


def _load_key(pem: bytes) -> PrivateKey:
    try:
        return load_private_key(pem)
    except ValueError as error:
        raise InvalidCertificateAuthority(f"{PRIVATE_KEY_FIELD} {error}") from None


def _self_signed(
    key: PrivateKey, subject: x509.Name, identifier: x509.SubjectKeyIdentifier, now: datetime
) -> x509.Certificate:
    begin = now - BACKDATED
    builder = certificate_builder(subject, subject, key.public_key(), begin, begin + CA_LIFETIME)
    builder = builder.add_extension(identifier, critical=False)
    return _with_usages(builder, is_ca=True).sign(key, hashes.SHA256())


def _with_usages(builder: x509.CertificateBuilder, *, is_ca: bool) -> x509.CertificateBuilder:
    return (
        builder.add_extension(key_usage(ca=is_ca, encipherment=not is_ca), critical=True)
        .add_extension(_EXTENDED_USAGES, critical=False)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    )
