"""Tests of the CA of a RayCluster: creation, loading, renewal, and compatibility with the Go operator's."""

from __future__ import annotations

import subprocess
from datetime import timedelta
from pathlib import Path
from shutil import which

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cfo.controllers.raycluster import ca
from test.support.certificates import malformed_certificates
from test.support.go_certificates import NOW, go_certificate_authority

MALFORMED = malformed_certificates()


def leaf(issuer: ca.CertificateAuthority) -> x509.Certificate:
    """Return a Ray node's certificate, signed with the CA as the node's init container does."""
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = issuer.certificate.extensions.get_extension_for_class(
        x509.SubjectKeyIdentifier
    ).value
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ray-head")]))
        .issuer_name(issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=365))
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
        .sign(issuer.key, hashes.SHA256())
    )


def extension(certificate: x509.Certificate, kind):
    """Return whether an extension is critical, and its value."""
    found = certificate.extensions.get_extension_for_class(kind)
    return found.critical, found.value


@pytest.mark.parametrize(
    ("algorithm", "kind", "pem"),
    [
        ("ecdsa", ec.EllipticCurvePrivateKey, b"BEGIN EC PRIVATE KEY"),
        ("rsa", rsa.RSAPrivateKey, b"BEGIN RSA PRIVATE KEY"),
    ],
)
def test_new_ca_equals_that_of_go_operator_except_key_and_lifetime(algorithm, kind, pem) -> None:
    created = ca.create(algorithm, now=NOW)
    certificate = created.certificate
    assert isinstance(created.key, kind)
    assert (
        certificate.subject.rfc4514_string() == certificate.issuer.rfc4514_string() == "CN=root-ca"
    )
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc == timedelta(
        days=3650
    )
    assert certificate.not_valid_before_utc <= NOW < certificate.not_valid_after_utc
    assert certificate.version is x509.Version.v3
    assert isinstance(certificate.signature_hash_algorithm, hashes.SHA256)
    assert certificate.serial_number > 0
    critical, usage = extension(certificate, x509.KeyUsage)
    assert critical
    assert usage.digital_signature
    assert usage.key_cert_sign
    assert not usage.crl_sign
    assert extension(certificate, x509.BasicConstraints) == (
        True,
        x509.BasicConstraints(ca=True, path_length=None),
    )
    critical, extended = extension(certificate, x509.ExtendedKeyUsage)
    assert not critical
    assert set(extended) == {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
    assert len(list(certificate.extensions)) == 4
    data = created.data()
    assert set(data) == {"ca.key", "ca.crt"}
    assert pem in data["ca.key"]
    assert data["ca.crt"].count(b"BEGIN CERTIFICATE") == 1


def test_created_ca_can_be_loaded() -> None:
    created = ca.create("ecdsa", now=NOW)
    loaded = ca.load(created.data()["ca.crt"], created.data()["ca.key"])
    assert loaded.data() == created.data()


def test_first_certificate_of_bundle_is_used() -> None:
    first, second = ca.create("ecdsa", now=NOW), ca.create("ecdsa", now=NOW)
    bundle = first.data()["ca.crt"] + second.data()["ca.crt"]
    assert ca.load(bundle, first.data()["ca.key"]).certificate == first.certificate
    with pytest.raises(ca.InvalidCertificateAuthority, match="does not match"):
        ca.load(bundle, second.data()["ca.key"])


def test_renewal_is_due_with_a_third_of_the_lifetime_left() -> None:
    assert go_certificate_authority(days=363).renewal_due == NOW + timedelta(days=242)
    own = ca.create("ecdsa", now=NOW)
    assert NOW + timedelta(days=2430) < own.renewal_due < NOW + timedelta(days=2435)


@pytest.mark.parametrize(
    "create_ca", [go_certificate_authority, lambda: ca.create("ecdsa", now=NOW)]
)
def test_renewal_keeps_key_subject_and_key_identifier(create_ca) -> None:
    old = create_ca()
    later = NOW + timedelta(days=300)
    new = ca.renew(old, now=later)
    assert new.key is old.key
    assert new.certificate.subject == old.certificate.subject
    assert extension(new.certificate, x509.SubjectKeyIdentifier) == extension(
        old.certificate, x509.SubjectKeyIdentifier
    )
    assert new.certificate.not_valid_after_utc - later > timedelta(days=3649)
    assert new.certificate.serial_number != old.certificate.serial_number
    for signer, trusted in ((old, new), (new, old)):
        leaf(signer).verify_directly_issued_by(trusted.certificate)


@pytest.mark.skipif(which("openssl") is None, reason="openssl is not installed")
@pytest.mark.parametrize(
    "create_ca", [go_certificate_authority, lambda: ca.create("ecdsa", now=NOW)]
)
def test_openssl_trusts_old_and_new_leaves_under_old_and_new_ca(create_ca, tmp_path: Path) -> None:
    old = create_ca()
    new = ca.renew(old, now=NOW + timedelta(days=1))
    timestamp = str(int((NOW + timedelta(days=2)).timestamp()))
    for number, (signer, trusted) in enumerate([(old, new), (new, old)]):
        ca_path, leaf_path = tmp_path / f"ca{number}.crt", tmp_path / f"leaf{number}.crt"
        ca_path.write_bytes(trusted.data()["ca.crt"])
        leaf_path.write_bytes(leaf(signer).public_bytes(serialization.Encoding.PEM))
        result = subprocess.run(
            ["openssl", "verify", "-attime", timestamp, "-CAfile", ca_path, leaf_path],
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stderr


def test_invalid_ca_is_rejected_with_reason_and_its_valid_key() -> None:
    valid, other = ca.create("ecdsa", now=NOW), ca.create("ecdsa", now=NOW)
    data = valid.data()
    for certificate, reason in (
        (b"", "missing"),
        (b"not a certificate", "missing"),
        (other.data()["ca.crt"], "does not match"),
        (leaf(valid).public_bytes(serialization.Encoding.PEM), "not a CA certificate"),
    ):
        with pytest.raises(ca.InvalidCertificateAuthority, match=reason) as caught:
            ca.load(certificate, data["ca.key"])
        assert caught.value.key is not None
    for key in (b"", b"not a key", other.data()["ca.crt"]):
        with pytest.raises(ca.InvalidCertificateAuthority, match=r"ca\.key") as caught:
            ca.load(data["ca.crt"], key)
        assert caught.value.key is None
    ed25519_key = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with pytest.raises(ca.InvalidCertificateAuthority, match="neither"):
        ca.load(data["ca.crt"], ed25519_key)


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_ca_is_rejected_and_its_key_is_kept(name: str) -> None:
    certificate, key = MALFORMED[name]
    with pytest.raises(ca.InvalidCertificateAuthority, match="is not a CA certificate") as caught:
        ca.load(certificate, key)
    assert caught.value.key is not None


def test_expired_ca_is_not_invalid() -> None:
    expired = go_certificate_authority(begin=NOW - timedelta(days=400))
    assert ca.load(expired.data()["ca.crt"], expired.data()["ca.key"]).renewal_due < NOW


def test_large_certificate_is_rejected_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = ca.create("ecdsa", now=NOW).data()
    monkeypatch.setattr(x509, "load_pem_x509_certificate", None)
    with pytest.raises(
        ca.InvalidCertificateAuthority, match=r"ca\.crt has \d+ bytes, at most 65536"
    ) as caught:
        ca.load(data["ca.crt"] + b"#" * ca.MAX_CERTIFICATE_BYTES, data["ca.key"])
    assert caught.value.key is not None


def test_signature_is_not_verified_with_another_key() -> None:
    der = bytearray(ca.create("rsa", now=NOW).certificate.public_bytes(serialization.Encoding.DER))
    der[-1] ^= 1
    unsigned = x509.load_der_x509_certificate(bytes(der)).public_bytes(serialization.Encoding.PEM)
    with pytest.raises(
        ca.InvalidCertificateAuthority, match="does not match"
    ):  # and not: is not self-signed
        ca.load(unsigned, ca.create("ecdsa", now=NOW).data()["ca.key"])
