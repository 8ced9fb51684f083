"""The certificate authority (CA) of one RayCluster: create, load, renew, and issue certificates for nodes.

Head, workers and clients sign their own certificates with ``ca.key`` and the first certificate in ``ca.crt`` when they
start, and keep using that ``ca.crt``. Renewal therefore keeps the key, subject and key identifier, so old leaf
certificates verify with the new CA certificate and vice versa, and no pod has to be restarted. A new key breaks this,
so it is created only on request or when the old key is lost.

All functions are pure, except for the randomness of keys and serial numbers; the time is a parameter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address
from typing import Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cfo.api.raycluster.certificates import CA_LIFETIME
from cfo.runtime.pki import (
    BACKDATED,
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

CERTIFICATE_KEY = "ca.crt"
PRIVATE_KEY_KEY = "ca.key"

MAX_CERTIFICATE_BYTES = 64 << 10
"""The largest accepted ``ca.crt``; a certificate of an RSA key of 4096 bits takes 2 kB."""

_NODE_SUBJECT = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ray-node")])
_EXTENDED_USAGES = x509.ExtendedKeyUsage(
    [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
)
_SUBJECT = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "root-ca")])


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
            PRIVATE_KEY_KEY: key_pem(self.key),
            CERTIFICATE_KEY: certificate_pem(self.certificate),
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
    return ClusterCA(key, _self_signed(key, _SUBJECT, identifier, now or datetime.now(UTC)))


def renew(authority: ClusterCA, *, now: datetime | None = None) -> ClusterCA:
    """Return the CA with a certificate that is valid for another :data:`CA_LIFETIME`.

    The key, the subject and the key identifier stay the same.
    """
    certificate = authority.certificate
    try:
        identifier = certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        identifier = x509.SubjectKeyIdentifier.from_public_key(authority.key.public_key())
    return ClusterCA(
        authority.key,
        _self_signed(authority.key, certificate.subject, identifier, now or datetime.now(UTC)),
    )


def load(certificate_data: bytes, key_data: bytes) -> ClusterCA:
    """Load a stored CA from PEM; if there are several certificates, the first is used, as by all signers.

    Raises :class:`InvalidCertificateAuthority` if it is unusable for any reason other than expiry.
    """
    key = _load_key(key_data)
    if len(certificate_data) > MAX_CERTIFICATE_BYTES:
        raise InvalidCertificateAuthority(
            f"{CERTIFICATE_KEY} has {len(certificate_data)} bytes, at most {MAX_CERTIFICATE_BYTES} are allowed",
            key,
        )
    try:
        certificate = x509.load_pem_x509_certificate(certificate_data)
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        # The size of our key is limited, that of another one is not, so only an equal one is used to verify.
        matches = certificate.public_key() == key.public_key()
        if matches:
            certificate.verify_directly_issued_by(certificate)
    except x509.ExtensionNotFound:
        raise InvalidCertificateAuthority(
            f"{CERTIFICATE_KEY} is not a CA certificate", key
        ) from None
    except InvalidSignature:
        raise InvalidCertificateAuthority(f"{CERTIFICATE_KEY} is not self-signed", key) from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InvalidCertificateAuthority(
            f"{CERTIFICATE_KEY} is missing or is not a CA certificate", key
        ) from None
    if not constraints.ca:
        raise InvalidCertificateAuthority(f"{CERTIFICATE_KEY} is not a CA certificate", key)
    if not matches:
        raise InvalidCertificateAuthority(
            f"{PRIVATE_KEY_KEY} does not match {CERTIFICATE_KEY}", key
        )
    return ClusterCA(key, certificate)


def issue(
    authority: ClusterCA,
    public_key: PublicKey,
    *,
    addresses: Iterable[IPv4Address | IPv6Address],
    hosts: Iterable[str],
    lifetime: timedelta,
    now: datetime,
) -> bytes:
    """Return a certificate (PEM) of a Ray node, which is a server and a client of the other nodes.

    It is not valid longer than the certificate of ``authority``.
    """
    issuer = authority.certificate
    names: list[x509.GeneralName] = [*map(x509.IPAddress, addresses), *map(x509.DNSName, hosts)]
    end = min(now + lifetime, issuer.not_valid_after_utc)
    builder = (
        certificate_builder(_NODE_SUBJECT, issuer.subject, public_key, now - BACKDATED, end)
        .add_extension(authority_key_identifier(authority), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )
    return certificate_pem(_with_usages(builder, is_ca=False).sign(authority.key, hashes.SHA256()))


def _load_key(pem: bytes) -> PrivateKey:
    try:
        return load_private_key(pem)
    except ValueError as error:
        raise InvalidCertificateAuthority(f"{PRIVATE_KEY_KEY} {error}") from None


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
