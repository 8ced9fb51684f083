"""An authority of its own and what it signs: made, read back from a Secret, judged, renewed.

The Secret holds ``ca.crt`` (the authority first, then those that are still trusted because they were in use until a
moment ago), ``ca.key``, ``tls.crt`` and ``tls.key``: the layout of the Go operator's, whose Secrets are taken over.
:func:`advance` is the whole policy, as one pure function (but for the randomness of keys and serial numbers).
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cfo.runtime.private_keys import PrivateKey, load_private_key
from cfo.runtime.webhook.certificates.serving import KeyPair
from cfo.runtime.webhook.options import RotatedCertificates

__all__ = [
    "Authority",
    "Material",
    "Stored",
    "advance",
    "authorities_of",
    "covers",
    "issue",
    "read",
    "renewal",
    "vouches",
]

_BACKDATED: Final = timedelta(minutes=5)  # clocks of API servers differ
_FORMER: Final = 3  # authorities trusted besides the present one, whatever happens


@dataclass(frozen=True, slots=True)
class Authority:
    """A private key and the certificate by which it is trusted."""

    key: PrivateKey = field(repr=False)
    certificate: x509.Certificate


@dataclass(frozen=True, slots=True)
class Material:
    """Everything that is needed to serve. ``former`` are authorities that are trusted besides ``authority``."""

    authority: Authority
    former: tuple[x509.Certificate, ...]
    pair: KeyPair

    @property
    def bundle(self) -> bytes:
        """The certificates to trust, as PEM: what goes into ``caBundle``."""
        return b"".join(_pem(certificate) for certificate in (self.authority.certificate, *self.former))

    def data(self) -> dict[str, str]:
        """The content of the Secret, in base64; keys in the traditional form that Go and OpenSSL write."""
        content = {
            "ca.crt": self.bundle,
            "ca.key": _key_pem(self.authority.key),
            "tls.crt": self.pair.certificate,
            "tls.key": self.pair.key,
        }
        return {name: b64encode(value).decode() for name, value in content.items()}

    def next_change(self, policy: RotatedCertificates) -> datetime:
        """When :func:`advance` will have something to do."""
        moments = [renewal(self.authority.certificate), renewal(self.pair.leaf)]
        if self.former:
            moments.append(_begin(self.authority.certificate) + policy.overlap)
            moments += [certificate.not_valid_after_utc for certificate in self.former]
        return min(moments)


@dataclass(frozen=True, slots=True)
class Stored:
    """What of a Secret can be used; ``problems`` says what is wrong with the rest."""

    authority: Authority | None = None
    former: tuple[x509.Certificate, ...] = ()
    pair: KeyPair | None = None
    problems: tuple[str, ...] = ()


def read(data: Mapping[str, str]) -> Stored:
    """Reads the data of a Secret, whatever is in it."""
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
        problems = ["it is empty"]
    known = authorities_of(content["ca.crt"])
    authority = _authority(content["ca.key"], known, problems)
    former = tuple(other for other in known if authority is None or other != authority.certificate)
    return Stored(authority, former, _pair(content["tls.crt"], content["tls.key"], problems), tuple(problems))


def _authority(key_pem: bytes, known: Sequence[x509.Certificate], problems: list[str]) -> Authority | None:
    if not key_pem.strip():
        return None
    try:
        key = load_private_key(key_pem)
    except ValueError:
        problems.append("ca.key is no private key (RSA or ECDSA)")
        return None
    for certificate in known:
        if certificate.public_key() == key.public_key():
            return Authority(key, certificate)
    problems.append("ca.crt holds no authority that ca.key belongs to")
    return None


def _pair(certificate: bytes, key_pem: bytes, problems: list[str]) -> KeyPair | None:
    if not certificate.strip() or not key_pem.strip():
        return None
    try:
        key = load_private_key(key_pem)
        leaf = x509.load_pem_x509_certificate(certificate)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        problems.append("tls.crt or tls.key cannot be read")
        return None
    if leaf.public_key() != key.public_key():
        problems.append("tls.key does not belong to tls.crt")
        return None
    return KeyPair(certificate, key_pem)


def advance(
    stored: Stored,
    policy: RotatedCertificates,
    names: Sequence[str],
    *,
    now: datetime,
    trusted: Iterable[bytes] = (),
    served: x509.Certificate | None = None,
) -> tuple[Material, list[str]]:
    """What should be in the Secret, and why that is not what is in it (nothing: it is).

    ``names`` must be in the serving certificate. ``trusted`` are bundles (PEM) that API servers were told to trust
    until now: a new authority joins those in them. ``served`` is what is shown at this moment: the authority that
    vouches for it stays trusted.
    """
    reasons = list(stored.problems)
    authority = stored.authority
    if authority is not None and not authority.certificate.not_valid_before_utc <= now < renewal(authority.certificate):
        reasons.append(f"the authority is good until {authority.certificate.not_valid_after_utc:%Y-%m-%d}")
        authority = None
    if authority is None:
        others = [*([stored.authority.certificate] if stored.authority else []), *stored.former]
        for bundle in trusted:
            others += authorities_of(bundle)
        former = [other for other in dict.fromkeys(others) if other.not_valid_after_utc > now][:_FORMER]
        authority = _new_authority(policy, now)
        reasons = reasons or ["there is no authority"]
    else:
        former = [other for other in stored.former if other.not_valid_after_utc > now]
        if now >= _begin(authority.certificate) + policy.overlap:
            former = [other for other in former if served is not None and vouches(other, served)]
        if len(former) != len(stored.former):
            reasons.append("a former authority need not be trusted any more")
    pair = stored.pair
    if fault := _fault(pair, authority, names, now):
        if not reasons:
            reasons.append(fault)
        pair = issue(authority, names, policy, now=now)
    assert pair is not None
    return Material(authority, tuple(former), pair), reasons


def _fault(pair: KeyPair | None, authority: Authority, names: Iterable[str], now: datetime) -> str:
    """Why the pair cannot stay; empty when it can."""
    if pair is None:
        return "there is no serving certificate"
    leaf = pair.leaf
    if not vouches(authority.certificate, leaf):
        return "the serving certificate is not the authority's"
    if missing := [name for name in names if name not in covers(leaf)]:
        return f"the serving certificate does not name {', '.join(missing)}"
    if now >= renewal(leaf):
        return f"the serving certificate is good until {leaf.not_valid_after_utc:%Y-%m-%d}"
    return ""


def authorities_of(bundle: bytes) -> list[x509.Certificate]:
    """The authorities among the certificates of a bundle (PEM); none where it cannot be read."""
    try:
        certificates = x509.load_pem_x509_certificates(bundle)
    except ValueError:
        return []
    return [certificate for certificate in certificates if _is_authority(certificate)]


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def vouches(authority: x509.Certificate, leaf: x509.Certificate) -> bool:
    """Whether ``authority`` signed ``leaf``."""
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def covers(leaf: x509.Certificate) -> set[str]:
    """The names and addresses that a certificate is for."""
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return set()
    return {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}


def _begin(certificate: x509.Certificate) -> datetime:
    return certificate.not_valid_before_utc + _BACKDATED


def renewal(certificate: x509.Certificate) -> datetime:
    """When a third of its life is left."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return end - (end - begin) / 3


def _new_authority(policy: RotatedCertificates, now: datetime) -> Authority:
    key = _new_key(policy)
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, policy.common_name)]
    if policy.organization:
        subject.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, policy.organization))
    name = x509.Name(subject)
    begin = now - _BACKDATED
    certificate = (
        _builder(name, name, key, begin, begin + policy.authority_lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(policy.common_name)]), critical=False)
        .add_extension(_usage(authority=True), critical=True)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(key, certificate)


def _new_key(policy: RotatedCertificates) -> PrivateKey:
    if policy.key_algorithm == "rsa":
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return ec.generate_private_key(ec.SECP256R1())


def issue(authority: Authority, names: Sequence[str], policy: RotatedCertificates, *, now: datetime) -> KeyPair:
    """A new serving certificate for ``names`` (host names and IP addresses), with a new key."""
    key = _new_key(policy)
    alternatives: list[x509.GeneralName] = []
    for name in names:
        try:
            alternatives.append(x509.IPAddress(ip_address(name)))
        except ValueError:
            alternatives.append(x509.DNSName(name))
    # A common name has at most 64 characters; names are read from the extension alone.
    subject = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, names[0].split(".")[0] if len(names[0]) > 64 else names[0])]
    )
    usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    begin = now - _BACKDATED
    end = min(begin + policy.lifetime, authority.certificate.not_valid_after_utc)
    certificate = (
        _builder(subject, authority.certificate.subject, key, begin, end)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(usages, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_identifier(authority), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return KeyPair(_pem(certificate), _key_pem(key))


def _identifier(authority: Authority) -> x509.AuthorityKeyIdentifier:
    """The authority's key identifier as its own certificate has it: not everybody computes it in the same way."""
    try:
        own = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: PrivateKey, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin.replace(microsecond=0))
        .not_valid_after(end.replace(microsecond=0))
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=True,
        key_cert_sign=authority,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
