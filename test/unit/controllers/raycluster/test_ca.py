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
from test.support.go_certificates import NOW, go_certificate_authority


def leaf(authority: ca.CertificateAuthority) -> x509.Certificate:
    """A node's certificate, as the nodes sign them for themselves."""
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ray-head")]))
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=365))
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(authority.key, hashes.SHA256())
    )


def extension(certificate: x509.Certificate, kind):
    found = certificate.extensions.get_extension_for_class(kind)
    return found.critical, found.value


@pytest.mark.parametrize(
    ("algorithm", "kind", "pem"),
    [
        ("ecdsa", ec.EllipticCurvePrivateKey, b"BEGIN EC PRIVATE KEY"),
        ("rsa", rsa.RSAPrivateKey, b"BEGIN RSA PRIVATE KEY"),
    ],
)
def test_a_new_authority_is_the_go_operators_but_for_key_and_lifetime(algorithm, kind, pem) -> None:
    authority = ca.create(algorithm, now=NOW)
    certificate = authority.certificate
    assert isinstance(authority.key, kind)
    assert certificate.subject.rfc4514_string() == certificate.issuer.rfc4514_string() == "CN=root-ca"
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc == timedelta(days=3650)
    assert certificate.not_valid_before_utc <= NOW < certificate.not_valid_after_utc
    assert certificate.version is x509.Version.v3
    assert isinstance(certificate.signature_hash_algorithm, hashes.SHA256)
    assert certificate.serial_number > 0
    critical, usage = extension(certificate, x509.KeyUsage)
    assert critical
    assert usage.digital_signature
    assert usage.key_cert_sign
    assert not usage.crl_sign
    assert extension(certificate, x509.BasicConstraints) == (True, x509.BasicConstraints(ca=True, path_length=None))
    critical, extended = extension(certificate, x509.ExtendedKeyUsage)
    assert not critical
    assert set(extended) == {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
    assert len(list(certificate.extensions)) == 4
    data = authority.data()
    assert set(data) == {"ca.key", "ca.crt"}
    assert pem in data["ca.key"]
    assert data["ca.crt"].count(b"BEGIN CERTIFICATE") == 1


def test_what_was_made_is_read_back() -> None:
    made = ca.create("ecdsa", now=NOW)
    read = ca.load(made.data()["ca.crt"], made.data()["ca.key"])
    assert read.data() == made.data()


def test_of_several_certificates_the_first_counts() -> None:
    first, second = ca.create("ecdsa", now=NOW), ca.create("ecdsa", now=NOW)
    bundle = first.data()["ca.crt"] + second.data()["ca.crt"]
    assert ca.load(bundle, first.data()["ca.key"]).certificate == first.certificate
    with pytest.raises(ca.InvalidCertificateAuthority, match="does not match"):
        ca.load(bundle, second.data()["ca.key"])


def test_renewal_is_due_with_a_third_of_the_lifetime_left() -> None:
    assert go_certificate_authority(days=363).renewal_due == NOW + timedelta(days=242)
    ours = ca.create("ecdsa", now=NOW)
    assert NOW + timedelta(days=2430) < ours.renewal_due < NOW + timedelta(days=2435)


@pytest.mark.parametrize("make", [go_certificate_authority, lambda: ca.create("ecdsa", now=NOW)])
def test_renewal_keeps_key_subject_and_key_identifier(make) -> None:
    old = make()
    later = NOW + timedelta(days=300)
    new = ca.renew(old, now=later)
    assert new.key is old.key
    assert new.certificate.subject == old.certificate.subject
    assert extension(new.certificate, x509.SubjectKeyIdentifier) == extension(
        old.certificate, x509.SubjectKeyIdentifier
    )
    assert new.certificate.not_valid_after_utc - later > timedelta(days=3649)
    assert new.certificate.serial_number != old.certificate.serial_number
    for leaf_of, trusted in ((old, new), (new, old)):
        leaf(leaf_of).verify_directly_issued_by(trusted.certificate)


@pytest.mark.skipif(which("openssl") is None, reason="no openssl on the PATH")
@pytest.mark.parametrize("make", [go_certificate_authority, lambda: ca.create("ecdsa", now=NOW)])
def test_openssl_trusts_old_and_new_leaves_under_old_and_new_authority(make, tmp_path: Path) -> None:
    old = make()
    new = ca.renew(old, now=NOW + timedelta(days=1))
    moment = str(int((NOW + timedelta(days=2)).timestamp()))
    for number, (signer, trusted) in enumerate([(old, new), (new, old)]):
        trust, signed = tmp_path / f"ca{number}.crt", tmp_path / f"leaf{number}.crt"
        trust.write_bytes(trusted.data()["ca.crt"])
        signed.write_bytes(leaf(signer).public_bytes(serialization.Encoding.PEM))
        done = subprocess.run(
            ["openssl", "verify", "-attime", moment, "-CAfile", trust, signed], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


def test_what_cannot_be_used_says_why_and_keeps_the_key_if_there_is_one() -> None:
    good, other = ca.create("ecdsa", now=NOW), ca.create("ecdsa", now=NOW)
    data = good.data()
    for certificate, reason in (
        (b"", "missing"),
        (b"not a certificate", "missing"),
        (other.data()["ca.crt"], "does not match"),
        (leaf(good).public_bytes(serialization.Encoding.PEM), "not a CA certificate"),
    ):
        with pytest.raises(ca.InvalidCertificateAuthority, match=reason) as caught:
            ca.load(certificate, data["ca.key"])
        assert caught.value.key is not None
    for key in (b"", b"not a key", other.data()["ca.crt"]):
        with pytest.raises(ca.InvalidCertificateAuthority, match=r"ca\.key") as caught:
            ca.load(data["ca.crt"], key)
        assert caught.value.key is None
    ed = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with pytest.raises(ca.InvalidCertificateAuthority, match="neither"):
        ca.load(data["ca.crt"], ed)


def test_an_expired_authority_is_no_broken_one() -> None:
    expired = go_certificate_authority(begin=NOW - timedelta(days=400))
    assert ca.load(expired.data()["ca.crt"], expired.data()["ca.key"]).renewal_due < NOW
