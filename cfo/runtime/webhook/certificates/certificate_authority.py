"""Creates, parses, checks and renews the webhooks' CA and serving certificate.

The Secret contains ``ca.crt`` (the current CA first, then former CAs that are still trusted because they were in use
until recently), ``ca.key``, ``tls.crt`` and ``tls.key``. The Go operator's Secret has the same layout and is taken
over. :func:`ensure_certificates` implements the complete policy, and is pure except for the randomness of keys and
serial numbers.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final, Literal

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cfo.runtime.process.private_keys import PrivateKey, load_private_key
from cfo.runtime.webhook.certificates.serving_certificate import KeyPair
from cfo.runtime.webhook.options import RotatedCertificates

BACKDATED: Final = timedelta(minutes=5)
"""How long before its creation a certificate is valid, because other clocks may be behind."""

_MAX_FORMER_CAS: Final = 3
"""The maximum number of former CAs that stay trusted, which limits the size of the bundle."""


@dataclass(frozen=True, slots=True)
class CertificateAuthority:
    """The private key and the certificate of a CA."""

    key: PrivateKey = field(repr=False)
    certificate: x509.Certificate


class CertificateSet(msgspec.Struct, frozen=True):
    """All certificates of the webhook server: its CA, former CAs that are still trusted, and the serving pair."""

    ca: CertificateAuthority
    former_cas: tuple[x509.Certificate, ...]
    pair: KeyPair

    @property
    def bundle(self) -> bytes:
        """The CA certificates to trust, as PEM: the value of ``caBundle``."""
        return b"".join(
            certificate_pem(certificate) for certificate in (self.ca.certificate, *self.former_cas)
        )

    def data(self) -> dict[str, str]:
        """Return the data of the Secret, base64-encoded; keys have the traditional format that Go and OpenSSL write."""
        content = {
            "ca.crt": self.bundle,
            "ca.key": key_pem(self.ca.key),
            "tls.crt": self.pair.certificate,
            "tls.key": self.pair.key,
        }
        return {name: b64encode(value).decode() for name, value in content.items()}

    def next_change(self, policy: RotatedCertificates) -> datetime:
        """Return when :func:`ensure_certificates` has to change something next."""
        times = [renewal_time(self.ca.certificate), renewal_time(self.pair.leaf)]
        if self.former_cas:
            times.append(_issued_at(self.ca.certificate) + policy.overlap)
            times += [certificate.not_valid_after_utc for certificate in self.former_cas]
        return min(times)


class StoredCertificates(msgspec.Struct, frozen=True):
    """The usable certificates of a Secret; ``problems`` explains why others are unusable."""

    ca: CertificateAuthority | None = None
    former_cas: tuple[x509.Certificate, ...] = ()
    pair: KeyPair | None = None
    problems: tuple[str, ...] = ()


def parse_secret(data: Mapping[str, str]) -> StoredCertificates:
    """Parse the data of a Secret. Never raises: missing and unusable entries are reported in ``problems``."""
    problems: list[str] = []
    content = {}
    for name in ("ca.crt", "ca.key", "tls.crt", "tls.key"):
        try:
            content[name] = b64decode(data.get(name) or "", validate=True)
        except (binascii.Error, ValueError):
            content[name] = b""
        if not content[name].strip():
            problems.append(f"{name} is missing")
    if problems and not any(content.values()):
        problems = ["the Secret is empty"]
    known = ca_certificates_of(content["ca.crt"])
    ca = _ca(content["ca.key"], known, problems)
    former_cas = tuple(other for other in known if ca is None or other != ca.certificate)
    return StoredCertificates(
        ca, former_cas, _pair(content["tls.crt"], content["tls.key"], problems), tuple(problems)
    )


def _ca(
    key_pem: bytes, known: Sequence[x509.Certificate], problems: list[str]
) -> CertificateAuthority | None:
    if not key_pem.strip():
        return None
    try:
        key = load_private_key(key_pem)
    except ValueError:
        problems.append("ca.key is not an RSA or ECDSA private key")
        return None
    for certificate in known:
        if certificate.public_key() == key.public_key():
            return CertificateAuthority(key, certificate)
    problems.append("ca.crt contains no CA certificate that matches ca.key")
    return None


def _pair(certificate: bytes, key_pem: bytes, problems: list[str]) -> KeyPair | None:
    if not certificate.strip() or not key_pem.strip():
        return None
    try:
        key = load_private_key(key_pem)
        leaf = x509.load_pem_x509_certificate(certificate)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        problems.append("tls.crt or tls.key cannot be parsed")
        return None
    if leaf.public_key() != key.public_key():
        problems.append("tls.key does not match tls.crt")
        return None
    return KeyPair(certificate, key_pem)


def ensure_certificates(
    stored: StoredCertificates,
    policy: RotatedCertificates,
    names: Sequence[str],
    *,
    now: datetime,
    trusted: Iterable[bytes] = (),
    served: x509.Certificate | None = None,
) -> tuple[CertificateSet, list[str]]:
    """Return the certificates that the Secret should contain, and the reasons why it has to be changed.

    If there are no reasons, the certificates equal those in ``stored``. ``names`` must be in the serving certificate.
    ``trusted`` contains the CA bundles (PEM) that API servers have used until now: when a new CA is created, the CAs in
    them stay trusted alongside it. ``served`` is the certificate that the server presents now: the CA that signed it
    stays trusted.
    """
    reasons = list(stored.problems)
    ca = stored.ca
    if ca is not None and not ca.certificate.not_valid_before_utc <= now < renewal_time(
        ca.certificate
    ):
        reasons.append(f"the CA expires on {ca.certificate.not_valid_after_utc:%Y-%m-%d}")
        ca = None
    if ca is None:
        others = [*([stored.ca.certificate] if stored.ca else []), *stored.former_cas]
        for bundle in trusted:
            others += ca_certificates_of(bundle)
        former_cas = [other for other in dict.fromkeys(others) if other.not_valid_after_utc > now][
            :_MAX_FORMER_CAS
        ]
        ca = _new_ca(policy, now)
        reasons = reasons or ["the CA is missing"]
    else:
        former_cas = [other for other in stored.former_cas if other.not_valid_after_utc > now]
        if now >= _issued_at(ca.certificate) + policy.overlap:
            former_cas = [
                other for other in former_cas if served is not None and is_issuer_of(other, served)
            ]
        if len(former_cas) != len(stored.former_cas):
            reasons.append("a former CA is no longer needed")
    pair = stored.pair
    if problem := _pair_problem(pair, ca, names, now):
        if not reasons:
            reasons.append(problem)
        pair = issue_certificate(ca, names, policy, now=now)
    assert pair is not None
    return CertificateSet(ca, tuple(former_cas), pair), reasons


def _pair_problem(
    pair: KeyPair | None, ca: CertificateAuthority, names: Iterable[str], now: datetime
) -> str:
    """Return why the serving pair must be replaced; empty if it is still valid."""
    if pair is None:
        return "the serving certificate is missing"
    leaf = pair.leaf
    if not is_issuer_of(ca.certificate, leaf):
        return "the serving certificate is not signed by the CA"
    if missing := [name for name in names if name not in subject_names(leaf)]:
        return f"the serving certificate does not contain the names {', '.join(missing)}"
    if now >= renewal_time(leaf):
        return f"the serving certificate expires on {leaf.not_valid_after_utc:%Y-%m-%d}"
    return ""


def ca_certificates_of(bundle: bytes) -> list[x509.Certificate]:
    """Return the CA certificates in a bundle (PEM); an empty list if it cannot be parsed."""
    try:
        certificates = x509.load_pem_x509_certificates(bundle)
    except ValueError:
        return []
    return [certificate for certificate in certificates if _is_ca(certificate)]


def _is_ca(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def is_issuer_of(ca: x509.Certificate, leaf: x509.Certificate) -> bool:
    """Return whether ``ca`` signed ``leaf``."""
    try:
        leaf.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def is_trusted(bundle: bytes, chain: Iterable[x509.Certificate]) -> bool:
    """Return whether a bundle (PEM) contains a certificate of ``chain``, or one that issued it."""
    try:
        trusted = x509.load_pem_x509_certificates(bundle)
    except ValueError:
        return False
    return any(
        anchor == shown or is_issuer_of(anchor, shown) for anchor in trusted for shown in chain
    )


def subject_names(leaf: x509.Certificate) -> set[str]:
    """Return the DNS names and IP addresses in the certificate's subject alternative names."""
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return set()
    return {
        *names.get_values_for_type(x509.DNSName),
        *map(str, names.get_values_for_type(x509.IPAddress)),
    }


def _issued_at(certificate: x509.Certificate) -> datetime:
    return certificate.not_valid_before_utc + BACKDATED


def renewal_time(certificate: x509.Certificate) -> datetime:
    """Return when to renew the certificate: when a third of its lifetime is left."""
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return end - (end - start) / 3


def _new_ca(policy: RotatedCertificates, now: datetime) -> CertificateAuthority:
    key = create_key(policy.key_algorithm)
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, policy.common_name)]
    if policy.organization:
        subject.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, policy.organization))
    name = x509.Name(subject)
    start = now - BACKDATED
    certificate = (
        certificate_builder(name, name, key.public_key(), start, start + policy.ca_lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(policy.common_name)]), critical=False
        )
        .add_extension(key_usage(ca=True), critical=True)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return CertificateAuthority(key, certificate)


def create_key(algorithm: Literal["ecdsa", "rsa"]) -> PrivateKey:
    """Create a private key: P-256 or RSA-2048."""
    if algorithm == "rsa":
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return ec.generate_private_key(ec.SECP256R1())


def issue_certificate(
    ca: CertificateAuthority, names: Sequence[str], policy: RotatedCertificates, *, now: datetime
) -> KeyPair:
    """Create a serving certificate for ``names`` (host names and IP addresses), with a new key."""
    key = create_key(policy.key_algorithm)
    alternatives: list[x509.GeneralName] = []
    for name in names:
        try:
            alternatives.append(x509.IPAddress(ip_address(name)))
        except ValueError:
            alternatives.append(x509.DNSName(name))
    # X.509 limits common names to 64 characters; clients verify only the names in the extension.
    subject = x509.Name(
        [
            x509.NameAttribute(
                NameOID.COMMON_NAME, names[0].split(".")[0] if len(names[0]) > 64 else names[0]
            )
        ]
    )
    usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    start = now - BACKDATED
    end = min(start + policy.lifetime, ca.certificate.not_valid_after_utc)
    certificate = (
        certificate_builder(subject, ca.certificate.subject, key.public_key(), start, end)
        .add_extension(key_usage(ca=False), critical=True)
        .add_extension(usages, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(authority_key_identifier(ca), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .sign(ca.key, hashes.SHA256())
    )
    return KeyPair(certificate_pem(certificate), key_pem(key))


def authority_key_identifier(ca: CertificateAuthority) -> x509.AuthorityKeyIdentifier:
    """Return the key identifier in the CA's own certificate, because implementations compute it in different ways."""
    try:
        own = ca.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.key.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def certificate_builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey,
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


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """Return a certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: PrivateKey) -> bytes:
    """Return a private key as PEM, in the traditional format that Go and OpenSSL write."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
