"""Serving certificates: when they are created, kept, renewed and trusted."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from cfo.runtime.pki.certificates import (
    BACKDATED,
    ca_certificates_of,
    is_current,
    is_issuer_of,
    is_trusted,
    load_certificate,
    subject_names,
)
from cfo.runtime.pki.policy import CertificatePolicy
from cfo.runtime.pki.rotation import (
    CertificateSet,
    StoredCertificates,
    ensure_certificates,
    parse_secret,
)
from test.support.certificates import malformed_certificates

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
MALFORMED = malformed_certificates()
NAMES = ("hooks.ns.svc", "hooks.ns.svc.cluster.local")
POLICY = CertificatePolicy(common_name="codeflare", organization="openshift.ai")
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)


def create_certificates(now: datetime = NOW) -> CertificateSet:
    return ensure_certificates(
        StoredCertificates(problems=("the Secret does not exist",)), POLICY, NAMES, now=now
    )[0]


def ensure_again(
    certificates: CertificateSet, now: datetime, names: tuple[str, ...] = NAMES
) -> tuple[CertificateSet, list[str]]:
    return ensure_certificates(parse_secret(certificates.data()), POLICY, names, now=now)


def test_created_certificates_match_the_go_operator() -> None:
    certificates = create_certificates()
    ca, leaf = certificates.ca.certificate, certificates.pair.leaf
    assert ca.subject.rfc4514_string() == "O=openshift.ai,CN=codeflare"
    assert ca.issuer == ca.subject == leaf.issuer
    assert (ca.not_valid_after_utc - ca.not_valid_before_utc).days == 3650
    assert (leaf.not_valid_after_utc - leaf.not_valid_before_utc).days == 365
    assert subject_names(leaf) == set(NAMES)
    assert is_issuer_of(ca, leaf)
    assert not is_issuer_of(leaf, leaf)
    usage = leaf.extensions.get_extension_for_class(x509.KeyUsage)
    assert (usage.critical, usage.value.digital_signature, usage.value.key_cert_sign) == (
        True,
        True,
        False,
    )
    assert ca.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert set(certificates.data()) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    assert certificates.bundle.count(b"BEGIN CERTIFICATE") == 1


def test_serial_numbers_are_positive_and_random() -> None:
    serials = [
        one.pair.leaf.serial_number for one in (create_certificates(), create_certificates())
    ] + [one.ca.certificate.serial_number for one in (create_certificates(), create_certificates())]
    assert len(set(serials)) == 4
    assert min(serials) > 2**64


def test_valid_certificates_are_kept() -> None:
    certificates = create_certificates()
    kept, reasons = ensure_again(certificates, NOW + 100 * DAY)
    assert reasons == []
    assert kept.data() == certificates.data()
    assert certificates.next_change(POLICY) > NOW + 200 * DAY


def test_serving_certificate_is_renewed_with_a_third_of_its_lifetime_left() -> None:
    certificates = create_certificates()
    due = certificates.next_change(POLICY)
    assert ensure_again(certificates, due - timedelta(seconds=1))[1] == []
    renewed, reasons = ensure_again(certificates, due)
    assert "serving certificate is valid from 2026-06-01 to" in reasons[0]
    assert renewed.ca.certificate == certificates.ca.certificate
    assert renewed.pair.leaf.not_valid_after_utc > certificates.pair.leaf.not_valid_after_utc
    assert renewed.pair.key != certificates.pair.key
    assert renewed.former_cas == ()


def test_serving_certificate_of_a_clock_that_was_ahead_is_replaced() -> None:
    certificates = create_certificates()
    due = certificates.next_change(POLICY)
    ahead, _ = ensure_again(certificates, due + 12 * HOUR)
    assert ensure_again(ahead, due + 12 * HOUR - BACKDATED)[1] == []
    replaced, reasons = ensure_again(ahead, due)
    assert "serving certificate is valid from" in reasons[0]
    assert replaced.ca.certificate == certificates.ca.certificate
    assert is_current(replaced.pair.leaf, due)


def test_ca_is_renewed_before_expiry_and_the_former_one_stays_trusted_for_the_overlap() -> None:
    certificates = create_certificates()
    later = NOW + 2500 * DAY
    renewed, reasons = ensure_again(certificates, later)
    assert "the CA is valid from 2026-06-01 to" in reasons[0]
    assert renewed.ca.certificate != certificates.ca.certificate
    assert renewed.former_cas == (certificates.ca.certificate,)
    assert is_issuer_of(renewed.ca.certificate, renewed.pair.leaf)
    assert ca_certificates_of(renewed.bundle) == [
        renewed.ca.certificate,
        certificates.ca.certificate,
    ]

    kept, reasons = ensure_again(renewed, later + POLICY.overlap - timedelta(seconds=1))
    assert (kept.former_cas, reasons) == ((certificates.ca.certificate,), [])
    assert later < renewed.next_change(POLICY) <= later + POLICY.overlap
    after_overlap, reasons = ensure_again(renewed, later + POLICY.overlap)
    assert (after_overlap.former_cas, reasons) == ((), ["a former CA is no longer needed"])
    assert after_overlap.pair == renewed.pair


def test_former_ca_is_trusted_while_a_certificate_of_it_is_served() -> None:
    old = create_certificates()
    new, _ = ensure_certificates(
        StoredCertificates(problems=("lost",)), POLICY, NAMES, now=NOW, trusted=[old.bundle]
    )
    late = NOW + POLICY.overlap * 2
    kept, reasons = ensure_certificates(
        parse_secret(new.data()), POLICY, NAMES, now=late, served=old.pair.leaf
    )
    assert (kept.former_cas, reasons) == ((old.ca.certificate,), [])
    dropped, _ = ensure_certificates(
        parse_secret(new.data()), POLICY, NAMES, now=late, served=new.pair.leaf
    )
    assert dropped.former_cas == ()


def test_lost_secret_causes_a_new_ca_and_keeps_the_trusted_ones() -> None:
    old = create_certificates()
    new, reasons = ensure_certificates(
        StoredCertificates(problems=("the Secret does not exist",)),
        POLICY,
        NAMES,
        now=NOW,
        trusted=[old.bundle, b"x"],
    )
    assert reasons == ["the Secret does not exist"]
    assert ca_certificates_of(new.bundle) == [new.ca.certificate, old.ca.certificate]


def test_number_of_former_cas_is_limited() -> None:
    certificates = create_certificates()
    for _ in range(6):
        certificates, _ = ensure_certificates(
            StoredCertificates(problems=("lost",)),
            POLICY,
            NAMES,
            now=NOW,
            trusted=[certificates.bundle],
        )
    assert len(ca_certificates_of(certificates.bundle)) == 4


def test_expired_ca_is_not_trusted() -> None:
    old = create_certificates(NOW - 4000 * DAY)
    new, _ = ensure_certificates(
        StoredCertificates(problems=("lost",)), POLICY, NAMES, now=NOW, trusted=[old.bundle]
    )
    assert new.former_cas == ()


def test_changed_names_cause_a_new_certificate_of_the_same_ca() -> None:
    certificates = create_certificates()
    other, reasons = ensure_again(certificates, NOW, ("elsewhere.ns.svc", "192.0.2.1"))
    assert reasons == [
        "the serving certificate does not contain the names elsewhere.ns.svc, 192.0.2.1"
    ]
    assert subject_names(other.pair.leaf) == {"elsewhere.ns.svc", "192.0.2.1"}
    assert other.ca.certificate == certificates.ca.certificate


@pytest.mark.parametrize(
    ("broken", "new_ca"),
    [
        ({"tls.crt": "bm8="}, False),
        ({"tls.key": ""}, False),
        ({"tls.crt": None}, False),
        ({"tls.key": "!!!"}, False),
        ({"ca.key": "bm8="}, True),
        ({"ca.crt": "bm8="}, True),
        ({"ca.crt": None, "ca.key": None}, True),
    ],
)
def test_invalid_parts_are_replaced_and_valid_ones_are_kept(
    broken: dict[str, str | None], *, new_ca: bool
) -> None:
    certificates = create_certificates()
    data = {
        key: value for key, value in {**certificates.data(), **broken}.items() if value is not None
    }
    repaired, reasons = ensure_certificates(
        parse_secret(data), POLICY, NAMES, now=NOW, trusted=[certificates.bundle]
    )
    assert reasons
    assert is_issuer_of(repaired.ca.certificate, repaired.pair.leaf)
    assert (repaired.ca.certificate != certificates.ca.certificate) == new_ca
    assert certificates.ca.certificate in ca_certificates_of(repaired.bundle)
    assert ensure_again(repaired, NOW)[1] == []


def test_key_of_another_certificate_is_detected() -> None:
    one, other = create_certificates(), create_certificates()
    data = {**one.data(), "tls.key": other.data()["tls.key"]}
    repaired, reasons = ensure_certificates(parse_secret(data), POLICY, NAMES, now=NOW)
    assert reasons == ["tls.key does not match tls.crt"]
    assert repaired.ca.certificate == one.ca.certificate


def test_secret_of_the_go_operator_is_adopted() -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "codeflare")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + 3649 * DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier(b"an identifier of another format"), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    files = {
        "ca.crt": certificate.public_bytes(pem),
        "ca.key": key.private_bytes(
            pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        ),
    }
    data = {name: b64encode(content).decode() for name, content in files.items()}
    certificates, _ = ensure_certificates(parse_secret(data), POLICY, NAMES, now=NOW)
    assert certificates.ca.certificate == certificate
    assert is_issuer_of(certificate, certificates.pair.leaf)
    identifier = certificates.pair.leaf.extensions.get_extension_for_class(
        x509.AuthorityKeyIdentifier
    ).value
    assert identifier.key_identifier == b"an identifier of another format"


def test_dns_name_longer_than_a_common_name_is_supported() -> None:
    name = f"{'s' * 40}.{'n' * 63}.svc"
    certificates, _ = ensure_certificates(StoredCertificates(), POLICY, [name], now=NOW)
    assert subject_names(certificates.pair.leaf) == {name}


def test_repr_contains_no_private_key() -> None:
    certificates = create_certificates()
    output = repr(certificates) + repr(parse_secret(certificates.data()))
    assert "PRIVATE" not in output
    assert "PrivateKey" not in output


def test_unreadable_bundle_has_no_certificates() -> None:
    assert ca_certificates_of(b"") == []
    assert ca_certificates_of(b"\n") == []


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_certificates_are_replaced(name: str) -> None:
    certificate, key = MALFORMED[name]
    malformed = b64encode(certificate).decode()
    malformed_key = b64encode(key).decode()
    valid = create_certificates()
    data = valid.data() | {"ca.crt": malformed, "ca.key": malformed_key}
    certificates, changes = ensure_certificates(parse_secret(data), POLICY, NAMES, now=NOW)
    assert changes
    assert is_issuer_of(certificates.ca.certificate, certificates.pair.leaf)
    data = valid.data() | {"tls.crt": malformed, "tls.key": malformed_key}
    certificates, changes = ensure_certificates(parse_secret(data), POLICY, NAMES, now=NOW)
    assert changes
    assert subject_names(certificates.pair.leaf) == set(NAMES)


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_certificates_are_no_cas_and_trust_nothing(name: str) -> None:
    certificate, _ = MALFORMED[name]
    assert ca_certificates_of(certificate) == []
    assert not is_trusted(certificate, [create_certificates().pair.leaf])
    try:
        parsed = load_certificate(certificate)
    except ValueError:  # no other type
        return
    assert subject_names(parsed) == set()
    assert not is_issuer_of(parsed, create_certificates().pair.leaf)
