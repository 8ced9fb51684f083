"""The control plane's CA, its serving certificate, and client certificates for users.

All keys are ECDSA P-256, which are generated in about a millisecond, so each control plane has its own.
"""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["SERVER_NAMES", "CertificateAuthority", "KeyPair", "server_context"]

SERVER_NAMES: Final = (
    "127.0.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "::1",
)
"""The names and addresses of every API server."""

_VALIDITY = timedelta(days=3650)


class KeyPair(NamedTuple):
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    expires: datetime | None = None,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(expires or now + _VALIDITY)
    )


class CertificateAuthority:
    """A self-signed CA. ``pair`` loads an existing CA, of a persistent control plane; otherwise one is generated."""

    def __init__(self, pair: KeyPair | None = None, *, name: str = "envtest-ca") -> None:
        if pair is not None:
            self._certificate = x509.load_pem_x509_certificate(pair.certificate)
            key = serialization.load_pem_private_key(pair.key, None)
            if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
                raise ValueError("the CA's key is not an RSA or ECDSA key")
            self._key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey = key
            return
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = (
            _builder(subject, subject, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(ca=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )

    def matches(self) -> bool:
        """Whether the key belongs to the certificate; always true for a generated CA."""
        return self._certificate.public_key() == self._key.public_key()

    @property
    def pem(self) -> bytes:
        """The CA certificate as PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def pair(self) -> KeyPair:
        """The CA certificate and its key, for storage."""
        return KeyPair(self.pem, _pem(self._key))

    def server(self, names: Sequence[str]) -> KeyPair:
        """Issue a serving certificate for DNS names and addresses."""
        alternatives: list[x509.GeneralName] = []
        for name in names:
            try:
                alternatives.append(x509.IPAddress(ipaddress.ip_address(name)))
            except ValueError:
                alternatives.append(x509.DNSName(name))
        return self._issue(
            [x509.NameAttribute(NameOID.COMMON_NAME, names[0])],
            ExtendedKeyUsageOID.SERVER_AUTH,
            x509.SubjectAlternativeName(alternatives),
        )

    def client(
        self, user: str, groups: Sequence[str] = (), *, expires: datetime | None = None
    ) -> KeyPair:
        """Issue a certificate that authenticates as ``user`` in ``groups`` until ``expires`` (default: 10 years)."""
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        return self._issue(subject, ExtendedKeyUsageOID.CLIENT_AUTH, None, expires)

    @property
    def expires(self) -> datetime:
        """When the CA certificate expires."""
        return self._certificate.not_valid_after_utc

    def sign(self, builder: x509.CertificateBuilder) -> bytes:
        """Issue the certificate (PEM) of a builder that has a subject, a public key and a validity."""
        certificate = (
            builder.issuer_name(self._certificate.subject)
            .serial_number(x509.random_serial_number())
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)

    def _issue(
        self,
        subject: Sequence[x509.NameAttribute[str]],
        usage: x509.ObjectIdentifier,
        alternatives: x509.SubjectAlternativeName | None,
        expires: datetime | None = None,
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(x509.Name(list(subject)), self._certificate.subject, key.public_key(), expires)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(ca=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )


def server_context(pair: KeyPair, client_ca: bytes | None) -> ssl.SSLContext:
    """Return a TLS context (1.2 and later) that accepts, but does not require, client certificates.

    ``client_ca`` (PEM) is the CA of the client certificates, or a certificate that is accepted itself; without it no
    client certificate is requested. Raises OSError, ValueError for certificates that cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # as Go's servers
    with tempfile.TemporaryDirectory(prefix="envtest-") as folder:
        file = Path(folder) / "server.pem"
        file.touch(mode=0o600)
        file.write_bytes(pair.certificate + pair.key)
        context.load_cert_chain(file)
    if client_ca is not None:
        context.load_verify_locations(cadata=client_ca.decode("ascii"))
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.verify_mode = ssl.CERT_OPTIONAL
    return context
