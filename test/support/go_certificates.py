"""Certificate authorities as the Go operator creates them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from cfo.controllers.raycluster import ca

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def go_certificate_authority(days: int = 365, begin: datetime = NOW) -> ca.ClusterCA:
    """Create a CA as the Go operator does: an RSA key, one year of validity, and its own kind of key identifier."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "root-ca")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier(b"another way of hashing"), critical=False)
        .sign(key, hashes.SHA256())
    )
    return ca.ClusterCA(key, certificate)
