"""Creates, parses, checks and renews a server's CA and serving certificate, as the data of a Secret.

The Secret contains ``ca.crt`` (the current CA first, then former CAs that are still trusted because they were in use
until recently), ``ca.key``, ``tls.crt`` and ``tls.key``. The Go operator's Secret has the same layout and is taken
over. :func:`ensure_certificates` implements the complete policy, and is pure except for the randomness of keys and
serial numbers.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from ipaddress import ip_address
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cfo.runtime.pki.certificates import (
    BACKDATED,
    PARSE_ERRORS,
    CertificateAuthority,
    KeyPair,
    authority_key_identifier,
    ca_certificates_of,
    certificate_builder,
    certificate_pem,
    is_current,
    is_issuer_of,
    key_usage,
    load_certificate,
    renewal_time,
    subject_names,
)
from cfo.runtime.pki.policy import CertificatePolicy
from cfo.runtime.pki.private_keys import PrivateKey, create_key, key_pem, load_private_key
from cfo.runtime.process.strings import require_strings

_MAX_FORMER_CAS: Final = 3
"""The maximum number of former CAs that stay trusted, which limits the size of the bundle."""


class CertificateSet(msgspec.Struct, frozen=True):
    """All certificates of a server: its CA, former CAs that are still trusted, and the serving pair."""

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

    def next_change(self, policy: CertificatePolicy) -> datetime:
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
    pair = _pair(content["tls.crt"], content["tls.key"], problems)
    return StoredCertificates(ca, former_cas, pair, tuple(problems))


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
        if _has_key(certificate, key):
            return CertificateAuthority(key, certificate)
    problems.append("ca.crt contains no CA certificate that matches ca.key")
    return None


def _has_key(certificate: x509.Certificate, key: PrivateKey) -> bool:
    """Return whether ``certificate``, whose own key can be of a type that is not supported, is that of ``key``."""
    try:
        return certificate.public_key() == key.public_key()
    except PARSE_ERRORS:
        return False


def _pair(certificate: bytes, key_pem: bytes, problems: list[str]) -> KeyPair | None:
    if not certificate.strip() or not key_pem.strip():
        return None
    try:
        key = load_private_key(key_pem)
        is_match = load_certificate(certificate).public_key() == key.public_key()
    except PARSE_ERRORS:
        problems.append("tls.crt or tls.key cannot be parsed")
        return None
    if not is_match:
        problems.append("tls.key does not match tls.crt")
        return None
    return KeyPair(certificate, key_pem)


def ensure_certificates(
    stored: StoredCertificates,
    policy: CertificatePolicy,
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
    if ca is not None and not is_current(ca.certificate, now):
        reasons.append(f"the CA {_validity(ca.certificate)}")
        ca = None
    if ca is None:
        others = list(stored.former_cas)
        if stored.ca is not None:
            others.insert(0, stored.ca.certificate)
        for bundle in trusted:
            others += ca_certificates_of(bundle)
        valid = [other for other in dict.fromkeys(others) if other.not_valid_after_utc > now]
        former_cas = valid[:_MAX_FORMER_CAS]
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
    problem = _pair_problem(pair, ca, names, now)
    if problem:
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
    present = subject_names(leaf)
    missing = [name for name in names if name not in present]
    if missing:
        return f"the serving certificate does not contain the names {', '.join(missing)}"
    if not is_current(leaf, now):
        return f"the serving certificate {_validity(leaf)}"
    return ""


def _validity(certificate: x509.Certificate) -> str:
    start = certificate.not_valid_before_utc
    end = certificate.not_valid_after_utc
    return f"is valid from {start:%Y-%m-%d} to {end:%Y-%m-%d}"


def _issued_at(certificate: x509.Certificate) -> datetime:
    return certificate.not_valid_before_utc + BACKDATED


def _new_ca(policy: CertificatePolicy, now: datetime) -> CertificateAuthority:
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


def issue_certificate(
    ca: CertificateAuthority, names: Sequence[str], policy: CertificatePolicy, *, now: datetime
) -> KeyPair:
    """Create a serving certificate for ``names`` (host names and IP addresses), with a new key.

    Raises :class:`TypeError` if ``names`` is one string.
    """
    require_strings("names", names)
    key = create_key(policy.key_algorithm)
    alternatives: list[x509.GeneralName] = []
    for name in names:
        try:
            alternatives.append(x509.IPAddress(ip_address(name)))
        except ValueError:
            alternatives.append(x509.DNSName(name))
    # X.509 limits common names to 64 characters; clients verify only the names in the extension.
    common_name = names[0]
    if len(common_name) > 64:
        common_name, _, _ = common_name.partition(".")
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
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
