"""CAs, certificates and SSL contexts for TLS tests."""

from __future__ import annotations

import ipaddress
import ssl
from base64 import encodebytes
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class KeyPair(NamedTuple):
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def cert_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )


def create_ca(name: str = "test-ca", extensions: Sequence[str] = ()) -> KeyPair:
    """Create a CA without key identifiers, as older releases of kubeadm did; ``extensions`` are further OIDs."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = _builder(subject, subject, key, ca=True)
    for oid in extensions:
        extension = x509.UnrecognizedExtension(x509.ObjectIdentifier(oid), b"\0")
        builder = builder.add_extension(extension, critical=False)
    return KeyPair(builder.sign(key, hashes.SHA256()), key)


def create_certificate(ca: KeyPair, name: str, *hosts: str, days: float = 1) -> KeyPair:
    """Create a certificate, signed by ``ca``, for a common name and for DNS names or IP addresses."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = _builder(subject, ca.certificate.subject, key, ca=False, days=days)
    if hosts:
        names = [_general_name(host) for host in hosts]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return KeyPair(builder.sign(ca.key, hashes.SHA256()), key)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    *,
    ca: bool,
    days: float = 1,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )


def server_ssl_context(
    pair: KeyPair, directory: Path, client_ca: KeyPair | None = None
) -> ssl.SSLContext:
    """Return a server-side SSL context; with ``client_ca``, clients must present a certificate of that CA."""
    file = directory / "server.pem"
    file.write_bytes(pair.cert_pem + pair.key_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as API servers, which are written in Go
    context.load_cert_chain(file)
    if client_ca is not None:
        context.load_verify_locations(cadata=client_ca.cert_pem.decode())
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def resigned(pair: KeyPair, old: bytes, new: bytes) -> bytes:
    """Return the self-signed certificate (PEM) of ``pair`` with ``new`` for each ``old`` in its DER, signed again.

    For certificates that no library creates. Both must have the same length.
    """
    assert len(old) == len(new)
    content = pair.certificate.tbs_certificate_bytes
    assert old in content
    content = content.replace(old, new)
    signature = pair.key.sign(content, ec.ECDSA(hashes.SHA256()))
    algorithm = bytes.fromhex("300a06082a8648ce3d040302")  # ecdsa-with-SHA256
    der = _der(0x30, content + algorithm + _der(0x03, b"\0" + signature))
    encoded = encodebytes(der).decode()
    return f"-----BEGIN CERTIFICATE-----\n{encoded}-----END CERTIFICATE-----\n".encode()


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 128:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes([tag, 128 + len(length)]) + length + content


def malformed_certificates() -> dict[str, tuple[bytes, bytes]]:
    """Return certificates of CAs and their keys (PEM), of which each cannot be parsed in another way."""
    version = create_ca()
    extension = create_ca(extensions=("1.2.3.4", "1.2.3.5"))
    subject = create_ca("malformed-subject")
    return {
        "unknown version": (
            resigned(version, b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x08"),
            version.key_pem,
        ),
        "duplicate extension": (
            resigned(extension, b"\x06\x03\x2a\x03\x05", b"\x06\x03\x2a\x03\x04"),
            extension.key_pem,
        ),
        "invalid subject": (
            resigned(subject, b"malformed-subject", b"\xff" * len("malformed-subject")),
            subject.key_pem,
        ),
    }
