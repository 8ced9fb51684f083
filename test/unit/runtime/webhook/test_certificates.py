"""Webhook certificates: when they are created, kept, renewed and trusted, and how the CA bundle is injected."""

from __future__ import annotations

from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from cfo.runtime.objects import NamespacedName, Object
from cfo.runtime.webhook.certificates.announcement import (
    ORIGINAL,
    bundles_of,
    created,
    is_ours_alone,
    merge_patch,
    revised,
)
from cfo.runtime.webhook.certificates.certificate_authority import (
    Material,
    Stored,
    advance,
    authorities_of,
    covers,
    read,
    vouches,
)
from cfo.runtime.webhook.certificates.serving import KeyPair, ServingCertificate
from cfo.runtime.webhook.options import RotatedCertificates, WebhookURL

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
NAMES = ("hooks.ns.svc", "hooks.ns.svc.cluster.local")
POLICY = RotatedCertificates(secret=NamespacedName("ns", "cert"), common_name="codeflare", organization="openshift.ai")
DAY = timedelta(days=1)


def made(now: datetime = NOW) -> Material:
    return advance(Stored(problems=("it does not exist",)), POLICY, NAMES, now=now)[0]


def again(material: Material, now: datetime, names: tuple[str, ...] = NAMES) -> tuple[Material, list[str]]:
    return advance(read(material.data()), POLICY, names, now=now)


def test_created_certificates_match_those_of_the_go_operator() -> None:
    material = made()
    authority, leaf = material.authority.certificate, material.pair.leaf
    assert authority.subject.rfc4514_string() == "O=openshift.ai,CN=codeflare"
    assert authority.issuer == authority.subject == leaf.issuer
    assert (authority.not_valid_after_utc - authority.not_valid_before_utc).days == 3650
    assert (leaf.not_valid_after_utc - leaf.not_valid_before_utc).days == 365
    assert covers(leaf) == set(NAMES)
    assert vouches(authority, leaf)
    assert not vouches(leaf, leaf)
    usage = leaf.extensions.get_extension_for_class(x509.KeyUsage)
    assert (usage.critical, usage.value.digital_signature, usage.value.key_cert_sign) == (True, True, False)
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert set(material.data()) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    assert material.bundle.count(b"BEGIN CERTIFICATE") == 1


def test_serial_numbers_are_positive_and_random() -> None:
    serials = [one.pair.leaf.serial_number for one in (made(), made())] + [
        one.authority.certificate.serial_number for one in (made(), made())
    ]
    assert len(set(serials)) == 4
    assert min(serials) > 2**64


def test_valid_certificates_are_kept() -> None:
    material = made()
    kept, reasons = again(material, NOW + 100 * DAY)
    assert reasons == []
    assert kept.data() == material.data()
    assert material.next_change(POLICY) > NOW + 200 * DAY


def test_serving_certificate_is_renewed_with_a_third_of_its_lifetime_left() -> None:
    material = made()
    due = material.next_change(POLICY)
    assert again(material, due - timedelta(seconds=1))[1] == []
    renewed, reasons = again(material, due)
    assert "serving certificate is good until" in reasons[0]
    assert renewed.authority.certificate == material.authority.certificate
    assert renewed.pair.leaf.not_valid_after_utc > material.pair.leaf.not_valid_after_utc
    assert renewed.pair.key != material.pair.key
    assert renewed.former == ()


def test_ca_is_renewed_before_expiry_and_the_former_one_stays_trusted_for_the_overlap() -> None:
    material = made()
    later = NOW + 2500 * DAY
    renewed, reasons = again(material, later)
    assert "the authority is good until" in reasons[0]
    assert renewed.authority.certificate != material.authority.certificate
    assert renewed.former == (material.authority.certificate,)
    assert vouches(renewed.authority.certificate, renewed.pair.leaf)
    assert authorities_of(renewed.bundle) == [renewed.authority.certificate, material.authority.certificate]

    kept, reasons = again(renewed, later + POLICY.overlap - timedelta(seconds=1))
    assert (kept.former, reasons) == ((material.authority.certificate,), [])
    assert later < renewed.next_change(POLICY) <= later + POLICY.overlap
    done, reasons = again(renewed, later + POLICY.overlap)
    assert (done.former, reasons) == ((), ["a former authority need not be trusted any more"])
    assert done.pair == renewed.pair


def test_former_ca_is_trusted_while_a_certificate_of_it_is_served() -> None:
    old = made()
    new, _ = advance(Stored(problems=("lost",)), POLICY, NAMES, now=NOW, trusted=[old.bundle])
    late = NOW + POLICY.overlap * 2
    kept, reasons = advance(read(new.data()), POLICY, NAMES, now=late, served=old.pair.leaf)
    assert (kept.former, reasons) == ((old.authority.certificate,), [])
    dropped, _ = advance(read(new.data()), POLICY, NAMES, now=late, served=new.pair.leaf)
    assert dropped.former == ()


def test_overlap_that_is_too_short_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"overlap: 0:00:05: must be longer than propagation \(10 s\)"):
        RotatedCertificates(secret=NamespacedName("ns", "cert"), overlap=timedelta(seconds=5))


def test_lost_secret_leads_to_a_new_ca_and_trusted_ones_are_kept() -> None:
    old = made()
    new, reasons = advance(Stored(problems=("it does not exist",)), POLICY, NAMES, now=NOW, trusted=[old.bundle, b"x"])
    assert reasons == ["it does not exist"]
    assert authorities_of(new.bundle) == [new.authority.certificate, old.authority.certificate]


def test_number_of_former_cas_is_limited() -> None:
    material = made()
    for _ in range(6):
        material, _ = advance(Stored(problems=("lost",)), POLICY, NAMES, now=NOW, trusted=[material.bundle])
    assert len(authorities_of(material.bundle)) == 4


def test_expired_ca_is_not_trusted() -> None:
    old = made(NOW - 4000 * DAY)
    new, _ = advance(Stored(problems=("lost",)), POLICY, NAMES, now=NOW, trusted=[old.bundle])
    assert new.former == ()


def test_changed_names_lead_to_a_new_certificate_of_the_same_ca() -> None:
    material = made()
    other, reasons = again(material, NOW, ("elsewhere.ns.svc", "192.0.2.1"))
    assert reasons == ["the serving certificate does not name elsewhere.ns.svc, 192.0.2.1"]
    assert covers(other.pair.leaf) == {"elsewhere.ns.svc", "192.0.2.1"}
    assert other.authority.certificate == material.authority.certificate


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
def test_invalid_parts_are_replaced_and_valid_ones_are_kept(
    broken: dict[str, str | None], *, new_authority: bool
) -> None:
    material = made()
    data = {key: value for key, value in {**material.data(), **broken}.items() if value is not None}
    repaired, reasons = advance(read(data), POLICY, NAMES, now=NOW, trusted=[material.bundle])
    assert reasons
    assert vouches(repaired.authority.certificate, repaired.pair.leaf)
    assert (repaired.authority.certificate != material.authority.certificate) == new_authority
    assert material.authority.certificate in authorities_of(repaired.bundle)
    assert again(repaired, NOW)[1] == []


def test_key_of_another_certificate_is_detected() -> None:
    one, other = made(), made()
    data = {**one.data(), "tls.key": other.data()["tls.key"]}
    repaired, reasons = advance(read(data), POLICY, NAMES, now=NOW)
    assert reasons == ["tls.key does not belong to tls.crt"]
    assert repaired.authority.certificate == one.authority.certificate


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
        .add_extension(x509.SubjectKeyIdentifier(b"an identifier of another format"), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    files = {
        "ca.crt": certificate.public_bytes(pem),
        "ca.key": key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()),
    }
    data = {name: b64encode(content).decode() for name, content in files.items()}
    material, _ = advance(read(data), POLICY, NAMES, now=NOW)
    assert material.authority.certificate == certificate
    assert vouches(certificate, material.pair.leaf)
    identifier = material.pair.leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert identifier.key_identifier == b"an identifier of another format"


def test_dns_name_longer_than_a_common_name_is_supported() -> None:
    name = f"{'s' * 40}.{'n' * 63}.svc"
    material, _ = advance(Stored(), POLICY, [name], now=NOW)
    assert covers(material.pair.leaf) == {name}


def test_repr_contains_no_private_key() -> None:
    material = made()
    shown = repr(material) + repr(read(material.data()))
    assert "PRIVATE" not in shown
    assert "PrivateKey" not in shown


def test_invalid_key_pair_keeps_the_served_one() -> None:
    serving = ServingCertificate()
    good, other = made().pair, made().pair
    serving.serve(good)
    with pytest.raises(ValueError, match="cannot be served"):
        serving.serve(KeyPair(good.certificate, other.key))
    with pytest.raises(ValueError, match="cannot be served"):
        serving.serve(KeyPair(b"nonsense", other.key))
    assert serving.pair == good


def configuration(**clients: Object) -> Object:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "m", "resourceVersion": "7", "annotations": {"other": "kept"}},
        "webhooks": [
            {"name": name, "clientConfig": dict(client), "rules": [], "namespaceSelector": {"matchLabels": {"x": "y"}}}
            for name, client in clients.items()
        ],
    }


SERVICE = {"service": {"namespace": "ns", "name": "hooks", "path": "/mutate"}, "caBundle": "Cg=="}
BUNDLE = b"-----BEGIN CERTIFICATE-----"
URL = WebhookURL("192.0.2.1", 9443)


def test_ca_bundle_is_set_in_every_webhook_and_nothing_else_changes() -> None:
    before = configuration(a=SERVICE, b={"url": "https://elsewhere/x"})
    after = revised(before, bundle=BUNDLE, url=None, paths={})
    encoded = b64encode(BUNDLE).decode()
    assert after == configuration(
        a={**SERVICE, "caBundle": encoded}, b={"url": "https://elsewhere/x", "caBundle": encoded}
    )
    assert bundles_of(after) == {"a": BUNDLE, "b": BUNDLE}
    assert revised(after, bundle=BUNDLE, url=None, paths={}) == after
    assert merge_patch(before, after) == {"metadata": {"resourceVersion": "7"}, "webhooks": after["webhooks"]}


def test_url_replaces_the_service_which_can_be_restored() -> None:
    before = configuration(a=SERVICE, b=SERVICE)
    local = revised(before, bundle=BUNDLE, url=URL, paths={"a": "/registered"})
    assert [hook["clientConfig"].get("url") for hook in local["webhooks"]] == [
        "https://192.0.2.1:9443/registered",
        "https://192.0.2.1:9443/mutate",
    ]
    assert all("service" not in hook["clientConfig"] for hook in local["webhooks"])
    assert local["webhooks"][0]["namespaceSelector"] == {"matchLabels": {"x": "y"}}
    assert revised(local, bundle=BUNDLE, url=URL, paths={"a": "/registered"}) == local

    moved = revised(local, bundle=BUNDLE, url=WebhookURL("192.0.2.2", 1), paths={"a": "/registered"})
    assert moved["metadata"]["annotations"][ORIGINAL] == local["metadata"]["annotations"][ORIGINAL]

    back = revised(moved, bundle=None, url=None, paths={})
    assert back == before
    patch = merge_patch(moved, back)
    assert patch["metadata"] == {"resourceVersion": "7", "annotations": {ORIGINAL: None}}


def test_reapplied_manifest_keeps_the_recorded_original() -> None:
    before = configuration(a=SERVICE)
    local = revised(before, bundle=BUNDLE, url=URL, paths={})
    applied = {**before, "metadata": local["metadata"]}
    again = revised(applied, bundle=BUNDLE, url=URL, paths={})
    assert again == local
    assert revised(again, bundle=None, url=None, paths={}) == before


def test_configuration_created_for_a_url_is_recognized() -> None:
    made_ = revised(created(configuration(a={"url": f"{URL}/mutate"})), bundle=BUNDLE, url=URL, paths={})
    assert is_ours_alone(made_)
    assert is_ours_alone(revised(made_, bundle=BUNDLE, url=WebhookURL("192.0.2.2", 1), paths={}))
    assert not is_ours_alone(configuration(a=SERVICE))
    broken = configuration(a=SERVICE)
    broken["metadata"]["annotations"][ORIGINAL] = "nonsense"
    assert not is_ours_alone(broken)


def test_ca_bundle_and_url_are_set_in_a_crd_with_conversion_webhook() -> None:
    def crd(client: Object) -> Object:
        conversion = {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}}
        return {
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.acme.io", "resourceVersion": "7"},
            "spec": {"conversion": conversion},
        }

    before = crd({"service": {"namespace": "ns", "name": "hooks"}})
    local = revised(before, bundle=BUNDLE, url=URL, paths={"conversion": "/convert"})
    patch = merge_patch(before, local)
    assert patch["spec"]["conversion"]["webhook"]["clientConfig"] == {
        "url": "https://192.0.2.1:9443/convert",
        "caBundle": b64encode(BUNDLE).decode(),
        "service": None,
    }
    assert revised(local, bundle=None, url=None, paths={})["spec"] == before["spec"]
    plain: Object = {"kind": "CustomResourceDefinition", "metadata": {"name": "x"}, "spec": {}}
    assert revised(plain, bundle=BUNDLE, url=URL, paths={}) == plain


def test_unreadable_ca_bundles_are_empty() -> None:
    assert bundles_of(configuration(a={"caBundle": "%%%"}, b={}, c={"caBundle": None})) == dict.fromkeys("abc", b"")
    assert authorities_of(b64decode("Cg==")) == []
