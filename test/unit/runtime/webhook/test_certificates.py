"""The policy of certificates: what is made, kept, renewed and trusted, and in what order; time is given."""

from __future__ import annotations

from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from cfo.runtime.objects import NamespacedName, Object
from cfo.runtime.webhook.certificates.certificate_authority import (
    CertificateSet,
    StoredCertificates,
    ca_certificates_of,
    ensure_certificates,
    is_issuer_of,
    parse_secret,
    subject_names,
)
from cfo.runtime.webhook.certificates.client_configs import (
    ORIGINAL_ANNOTATION,
    ca_bundles_of,
    desired_object,
    mark_created_for_url,
    merge_patch,
    was_created_for_url,
)
from cfo.runtime.webhook.certificates.serving_certificate import KeyPair, ServingCertificate
from cfo.runtime.webhook.options import RotatedCertificates, WebhookURL

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
NAMES = ("hooks.ns.svc", "hooks.ns.svc.cluster.local")
POLICY = RotatedCertificates(secret=NamespacedName("ns", "cert"), common_name="codeflare", organization="openshift.ai")
DAY = timedelta(days=1)


def made(now: datetime = NOW) -> CertificateSet:
    return ensure_certificates(StoredCertificates(problems=("it does not exist",)), POLICY, NAMES, now=now)[0]


def again(material: CertificateSet, now: datetime, names: tuple[str, ...] = NAMES) -> tuple[CertificateSet, list[str]]:
    return ensure_certificates(parse_secret(material.data()), POLICY, names, now=now)


def test_what_is_made_is_what_the_go_operator_made() -> None:
    material = made()
    authority, leaf = material.ca.certificate, material.pair.leaf
    assert authority.subject.rfc4514_string() == "O=openshift.ai,CN=codeflare"
    assert authority.issuer == authority.subject == leaf.issuer
    assert (authority.not_valid_after_utc - authority.not_valid_before_utc).days == 3650
    assert (leaf.not_valid_after_utc - leaf.not_valid_before_utc).days == 365
    assert subject_names(leaf) == set(NAMES)
    assert is_issuer_of(authority, leaf)
    assert not is_issuer_of(leaf, leaf)
    usage = leaf.extensions.get_extension_for_class(x509.KeyUsage)
    assert (usage.critical, usage.value.digital_signature, usage.value.key_cert_sign) == (True, True, False)
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert set(material.data()) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    assert material.bundle.count(b"BEGIN CERTIFICATE") == 1


def test_serial_numbers_are_positive_and_random() -> None:
    serials = [one.pair.leaf.serial_number for one in (made(), made())] + [
        one.ca.certificate.serial_number for one in (made(), made())
    ]
    assert len(set(serials)) == 4
    assert min(serials) > 2**64


def test_what_is_good_stays_as_it_is() -> None:
    material = made()
    kept, reasons = again(material, NOW + 100 * DAY)
    assert reasons == []
    assert kept.data() == material.data()
    assert material.next_change(POLICY) > NOW + 200 * DAY


def test_the_serving_certificate_is_renewed_with_a_third_of_its_life_left() -> None:
    material = made()
    due = material.next_change(POLICY)
    assert again(material, due - timedelta(seconds=1))[1] == []
    renewed, reasons = again(material, due)
    assert "serving certificate expires on" in reasons[0]
    assert renewed.ca.certificate == material.ca.certificate
    assert renewed.pair.leaf.not_valid_after_utc > material.pair.leaf.not_valid_after_utc
    assert renewed.pair.key != material.pair.key
    assert renewed.former_cas == ()


def test_the_authority_is_renewed_in_time_and_the_former_one_stays_trusted_for_a_while() -> None:
    material = made()
    later = NOW + 2500 * DAY
    renewed, reasons = again(material, later)
    assert "the CA expires on" in reasons[0]
    assert renewed.ca.certificate != material.ca.certificate
    assert renewed.former_cas == (material.ca.certificate,)
    assert is_issuer_of(renewed.ca.certificate, renewed.pair.leaf)
    assert ca_certificates_of(renewed.bundle) == [renewed.ca.certificate, material.ca.certificate]

    kept, reasons = again(renewed, later + POLICY.overlap - timedelta(seconds=1))
    assert (kept.former_cas, reasons) == ((material.ca.certificate,), [])
    assert later < renewed.next_change(POLICY) <= later + POLICY.overlap
    done, reasons = again(renewed, later + POLICY.overlap)
    assert (done.former_cas, reasons) == ((), ["a former CA is no longer needed"])
    assert done.pair == renewed.pair


def test_an_authority_is_trusted_for_as_long_as_its_certificate_is_served() -> None:
    old = made()
    new, _ = ensure_certificates(StoredCertificates(problems=("lost",)), POLICY, NAMES, now=NOW, trusted=[old.bundle])
    late = NOW + POLICY.overlap * 2
    kept, reasons = ensure_certificates(parse_secret(new.data()), POLICY, NAMES, now=late, served=old.pair.leaf)
    assert (kept.former_cas, reasons) == ((old.ca.certificate,), [])
    dropped, _ = ensure_certificates(parse_secret(new.data()), POLICY, NAMES, now=late, served=new.pair.leaf)
    assert dropped.former_cas == ()


def test_an_overlap_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match=r"overlap: 0:00:05: must be longer than propagation \(10 s\)"):
        RotatedCertificates(secret=NamespacedName("ns", "cert"), overlap=timedelta(seconds=5))


def test_a_lost_secret_means_a_new_authority_beside_those_that_were_trusted() -> None:
    old = made()
    new, reasons = ensure_certificates(
        StoredCertificates(problems=("it does not exist",)), POLICY, NAMES, now=NOW, trusted=[old.bundle, b"x"]
    )
    assert reasons == ["it does not exist"]
    assert ca_certificates_of(new.bundle) == [new.ca.certificate, old.ca.certificate]


def test_authorities_do_not_pile_up() -> None:
    material = made()
    for _ in range(6):
        material, _ = ensure_certificates(
            StoredCertificates(problems=("lost",)), POLICY, NAMES, now=NOW, trusted=[material.bundle]
        )
    assert len(ca_certificates_of(material.bundle)) == 4


def test_an_expired_authority_is_not_trusted_on() -> None:
    old = made(NOW - 4000 * DAY)
    new, _ = ensure_certificates(StoredCertificates(problems=("lost",)), POLICY, NAMES, now=NOW, trusted=[old.bundle])
    assert new.former_cas == ()


def test_a_certificate_for_other_names_is_made_anew_by_the_same_authority() -> None:
    material = made()
    other, reasons = again(material, NOW, ("elsewhere.ns.svc", "192.0.2.1"))
    assert reasons == ["the serving certificate does not contain the names elsewhere.ns.svc, 192.0.2.1"]
    assert subject_names(other.pair.leaf) == {"elsewhere.ns.svc", "192.0.2.1"}
    assert other.ca.certificate == material.ca.certificate


@pytest.mark.parametrize(
    ("broken", "new_authority"),
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
def test_what_is_broken_is_repaired_and_what_is_not_is_kept(
    broken: dict[str, str | None], *, new_authority: bool
) -> None:
    material = made()
    data = {key: value for key, value in {**material.data(), **broken}.items() if value is not None}
    repaired, reasons = ensure_certificates(parse_secret(data), POLICY, NAMES, now=NOW, trusted=[material.bundle])
    assert reasons
    assert is_issuer_of(repaired.ca.certificate, repaired.pair.leaf)
    assert (repaired.ca.certificate != material.ca.certificate) == new_authority
    assert material.ca.certificate in ca_certificates_of(repaired.bundle)
    assert again(repaired, NOW)[1] == []


def test_a_key_of_another_certificate_is_noticed() -> None:
    one, other = made(), made()
    data = {**one.data(), "tls.key": other.data()["tls.key"]}
    repaired, reasons = ensure_certificates(parse_secret(data), POLICY, NAMES, now=NOW)
    assert reasons == ["tls.key does not match tls.crt"]
    assert repaired.ca.certificate == one.ca.certificate


def test_the_secret_of_the_go_operator_is_taken_over() -> None:
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
        .add_extension(x509.SubjectKeyIdentifier(b"not what others would compute"), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    files = {
        "ca.crt": certificate.public_bytes(pem),
        "ca.key": key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()),
    }
    data = {name: b64encode(content).decode() for name, content in files.items()}
    material, _ = ensure_certificates(parse_secret(data), POLICY, NAMES, now=NOW)
    assert material.ca.certificate == certificate
    assert is_issuer_of(certificate, material.pair.leaf)
    identifier = material.pair.leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert identifier.key_identifier == b"not what others would compute"


def test_a_long_name_does_not_hinder() -> None:
    name = f"{'s' * 40}.{'n' * 63}.svc"
    material, _ = ensure_certificates(StoredCertificates(), POLICY, [name], now=NOW)
    assert subject_names(material.pair.leaf) == {name}


def test_no_key_is_ever_shown() -> None:
    material = made()
    shown = repr(material) + repr(parse_secret(material.data()))
    assert "PRIVATE" not in shown
    assert "PrivateKey" not in shown


def test_a_pair_that_cannot_be_served_changes_nothing() -> None:
    serving = ServingCertificate()
    good, other = made().pair, made().pair
    serving.serve(good)
    with pytest.raises(ValueError, match="cannot use the serving certificate"):
        serving.serve(KeyPair(good.certificate, other.key))
    with pytest.raises(ValueError, match="cannot use the serving certificate"):
        serving.serve(KeyPair(b"nonsense", other.key))
    assert serving.pair == good


def configuration(**clients: Object) -> Object:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "m", "resourceVersion": "7", "annotations": {"other": "stays"}},
        "webhooks": [
            {"name": name, "clientConfig": dict(client), "rules": [], "namespaceSelector": {"matchLabels": {"x": "y"}}}
            for name, client in clients.items()
        ],
    }


SERVICE = {"service": {"namespace": "ns", "name": "hooks", "path": "/mutate"}, "caBundle": "Cg=="}
BUNDLE = b"-----BEGIN CERTIFICATE-----"
URL = WebhookURL("192.0.2.1", 9443)


def test_a_bundle_goes_into_every_webhook_and_nothing_else_changes() -> None:
    before = configuration(a=SERVICE, b={"url": "https://elsewhere/x"})
    after = desired_object(before, bundle=BUNDLE, url=None, paths={})
    encoded = b64encode(BUNDLE).decode()
    assert after == configuration(
        a={**SERVICE, "caBundle": encoded}, b={"url": "https://elsewhere/x", "caBundle": encoded}
    )
    assert ca_bundles_of(after) == {"a": BUNDLE, "b": BUNDLE}
    assert desired_object(after, bundle=BUNDLE, url=None, paths={}) == after
    assert merge_patch(before, after) == {"metadata": {"resourceVersion": "7"}, "webhooks": after["webhooks"]}


def test_a_url_replaces_the_service_and_gives_way_to_it_again() -> None:
    before = configuration(a=SERVICE, b=SERVICE)
    local = desired_object(before, bundle=BUNDLE, url=URL, paths={"a": "/registered"})
    assert [hook["clientConfig"].get("url") for hook in local["webhooks"]] == [
        "https://192.0.2.1:9443/registered",
        "https://192.0.2.1:9443/mutate",
    ]
    assert all("service" not in hook["clientConfig"] for hook in local["webhooks"])
    assert local["webhooks"][0]["namespaceSelector"] == {"matchLabels": {"x": "y"}}
    assert desired_object(local, bundle=BUNDLE, url=URL, paths={"a": "/registered"}) == local

    moved = desired_object(local, bundle=BUNDLE, url=WebhookURL("192.0.2.2", 1), paths={"a": "/registered"})
    assert (
        moved["metadata"]["annotations"][ORIGINAL_ANNOTATION] == local["metadata"]["annotations"][ORIGINAL_ANNOTATION]
    )

    back = desired_object(moved, bundle=None, url=None, paths={})
    assert back == before
    patch = merge_patch(moved, back)
    assert patch["metadata"] == {"resourceVersion": "7", "annotations": {ORIGINAL_ANNOTATION: None}}


def test_somebody_who_applies_the_manifest_again_does_not_hide_what_was_original() -> None:
    before = configuration(a=SERVICE)
    local = desired_object(before, bundle=BUNDLE, url=URL, paths={})
    applied = {**before, "metadata": local["metadata"]}
    again = desired_object(applied, bundle=BUNDLE, url=URL, paths={})
    assert again == local
    assert desired_object(again, bundle=None, url=None, paths={}) == before


def test_what_a_url_made_is_known_as_such() -> None:
    made_ = desired_object(
        mark_created_for_url(configuration(a={"url": f"{URL}/mutate"})), bundle=BUNDLE, url=URL, paths={}
    )
    assert was_created_for_url(made_)
    assert was_created_for_url(desired_object(made_, bundle=BUNDLE, url=WebhookURL("192.0.2.2", 1), paths={}))
    assert not was_created_for_url(configuration(a=SERVICE))
    broken = configuration(a=SERVICE)
    broken["metadata"]["annotations"][ORIGINAL_ANNOTATION] = "nonsense"
    assert not was_created_for_url(broken)


def test_a_definition_with_a_conversion_webhook_is_told_too() -> None:
    def definition(client: Object) -> Object:
        conversion = {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}}
        return {
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.acme.io", "resourceVersion": "7"},
            "spec": {"conversion": conversion},
        }

    before = definition({"service": {"namespace": "ns", "name": "hooks"}})
    local = desired_object(before, bundle=BUNDLE, url=URL, paths={"conversion": "/convert"})
    patch = merge_patch(before, local)
    assert patch["spec"]["conversion"]["webhook"]["clientConfig"] == {
        "url": "https://192.0.2.1:9443/convert",
        "caBundle": b64encode(BUNDLE).decode(),
        "service": None,
    }
    assert desired_object(local, bundle=None, url=None, paths={})["spec"] == before["spec"]
    plain: Object = {"kind": "CustomResourceDefinition", "metadata": {"name": "x"}, "spec": {}}
    assert desired_object(plain, bundle=BUNDLE, url=URL, paths={}) == plain


def test_unreadable_bundles_count_as_none() -> None:
    assert ca_bundles_of(configuration(a={"caBundle": "%%%"}, b={}, c={"caBundle": None})) == dict.fromkeys("abc", b"")
    assert ca_certificates_of(b64decode("Cg==")) == []
