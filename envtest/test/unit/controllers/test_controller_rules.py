"""The pure rules of the controllers of Services, budgets, volumes and certificate requests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from envtest.controllers.certificate_signing import refusal, sign_request
from envtest.controllers.disruption import BudgetPod, budget_status, disrupted_pods, scaled
from envtest.controllers.endpoint_slices import MAX_ENDPOINTS, endpoint_of, plan_slices, ports_key
from envtest.controllers.endpoints import MAX_ADDRESSES, service_subsets, truncate
from envtest.controllers.selector_index import SelectorIndex
from envtest.controllers.service_endpoints import EndpointPod, service_ports, trigger_time
from envtest.controllers.volume_matching import best_volume, volume_phase
from envtest.formats.certificate_authority import CertificateAuthority

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_index_of_selectors_and_objects() -> None:
    index: SelectorIndex[int] = SelectorIndex()
    index.set_selector("ns", "web", {"matchLabels": {"app": "web", "tier": "x"}})
    index.set_selector("ns", "all", {})
    index.set_selector(
        "ns", "in", {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}
    )
    index.set_selector(
        "ns", "no", {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}
    )
    labels = {"app": "web", "tier": "x"}
    index.set_object("ns", "a", labels, 1)
    index.set_object("ns", "b", {"app": "web"}, 2)
    index.set_object("other", "c", labels, 3)
    assert sorted(index.selectors_of("ns", labels)) == ["all", "in", "web"]
    assert sorted(index.selectors_of("ns", {})) == ["all", "no"]
    selector = index.selector("ns", "web")
    assert selector is not None
    assert index.objects_of("ns", selector) == [("a", 1)]
    assert index.objects_of("ns", {}) == [("a", 1), ("b", 2)]
    index.set_object("ns", "a", {}, None)
    index.set_selector("ns", "web", None)
    assert index.objects_of("ns", selector) == []
    assert sorted(index.selectors_of("ns", labels)) == ["all", "in"]


@pytest.mark.parametrize(
    ("value", "total", "result"), [(3, 10, 3), ("50%", 4, 2), ("34%", 10, 4), ("100%", 0, 0)]
)
def test_percentages_are_rounded_up(value: int | str, total: int, result: int) -> None:
    assert scaled(value, total) == result


def test_evictions_expire_after_two_minutes() -> None:
    recorded = {
        "new": "2025-12-31T23:59:00Z",
        "old": "2025-12-31T23:57:00Z",
        "gone": "2025-12-31T23:59:30Z",
    }
    pods = [
        BudgetPod("new", True, False, None),
        BudgetPod("old", True, False, None),
        BudgetPod("gone", True, True, None),
    ]
    assert disrupted_pods(recorded, pods, NOW) == ({"new": "2025-12-31T23:59:00Z"}, 60.0)


@pytest.mark.parametrize(
    ("healthy", "desired", "expected", "allowed", "reason"),
    [
        (3, 2, 3, 1, "SufficientPods"),
        (2, 2, 3, 0, "InsufficientPods"),
        (1, 2, 3, 0, "InsufficientPods"),
        (1, 0, 0, 0, "InsufficientPods"),  # a budget without pods allows nothing
    ],
)
def test_status_of_a_budget(
    healthy: int, desired: int, expected: int, allowed: int, reason: str
) -> None:
    budget = {"metadata": {"generation": 2}}
    status = budget_status(
        budget, healthy=healthy, desired=desired, expected=expected, disrupted={}, now="t"
    )
    assert (status["disruptionsAllowed"], status["conditions"][0]["reason"]) == (allowed, reason)
    assert (status["observedGeneration"], status["conditions"][0]["observedGeneration"]) == (2, 2)


def endpoint_pod(name: str, **changes: Any) -> EndpointPod:
    defaults: dict[str, Any] = {
        "namespace": "ns",
        "name": name,
        "uid": f"uid-{name}",
        "addresses": (f"10.0.0.{len(name)}",),
        "node": "n",
        "hostname": "",
        "subdomain": "",
        "is_ready": True,
        "is_terminating": False,
        "is_finished": False,
        "ready_since": "",
        "ports": ((("web", "TCP"), 8080),),
    }
    return EndpointPod(**{**defaults, **changes})


def service(**spec: Any) -> dict[str, Any]:
    ports = [{"name": "w", "port": 80, "targetPort": "web", "protocol": "TCP"}]
    return {
        "metadata": {"name": "s", "namespace": "ns"},
        "spec": {"clusterIP": "10.0.0.9", "ports": ports, **spec},
    }


def test_subsets_of_endpoints() -> None:
    pods = [
        endpoint_pod("a"),
        endpoint_pod("bb", is_ready=False),
        endpoint_pod("ccc", is_terminating=True),
        endpoint_pod("dddd", is_finished=True),
        endpoint_pod("eeeee", ports=()),
        endpoint_pod("ffffff", ports=((("web", "TCP"), 9),), hostname="h", subdomain="s"),
    ]
    found = {
        subset["ports"][0]["port"]: (
            [each["ip"] for each in subset.get("addresses", ())],
            [each["ip"] for each in subset.get("notReadyAddresses", ())],
        )
        for subset in service_subsets(service(), pods)
    }
    assert found == {8080: (["10.0.0.1"], ["10.0.0.2"]), 9: (["10.0.0.6"], [])}
    published = service_subsets(service(publishNotReadyAddresses=True), pods[:3])
    assert [each["ip"] for each in published[0]["addresses"]] == [
        "10.0.0.1",
        "10.0.0.2",
        "10.0.0.3",
    ]
    headless = service_subsets(service(clusterIP="None", ports=[]), pods[:1])
    assert "ports" not in headless[0]
    assert service_subsets(service(ports=[]), pods[:1]) == []


def test_numbered_and_missing_ports() -> None:
    ports = [
        {"name": "n", "port": 1, "targetPort": 7, "protocol": "TCP"},
        {"name": "m", "port": 2, "targetPort": "none"},
    ]
    assert service_ports(service(ports=ports), endpoint_pod("a")) == [
        {"name": "n", "port": 7, "protocol": "TCP"}
    ]


def test_endpoints_are_truncated_ready_ones_last() -> None:
    subsets = [
        {"addresses": [{}] * 600, "notReadyAddresses": [{}] * 300},
        {"notReadyAddresses": [{}] * 200},
    ]
    assert truncate(subsets)
    assert [len(each.get("notReadyAddresses", ())) for each in subsets] == [300, 100]
    assert (
        sum(
            len(each.get(name, ()))
            for each in subsets
            for name in ("addresses", "notReadyAddresses")
        )
        == MAX_ADDRESSES
    )
    assert not truncate(subsets)


def test_conditions_of_an_endpoint() -> None:
    terminating = endpoint_of(
        service(), endpoint_pod("a", is_terminating=True), ["10.0.0.1"], "zone-a"
    )
    assert terminating["conditions"] == {"ready": False, "serving": True, "terminating": True}
    assert (terminating["zone"], terminating["nodeName"]) == ("zone-a", "n")
    published = endpoint_of(
        service(publishNotReadyAddresses=True), endpoint_pod("a", is_ready=False), [], ""
    )
    assert published["conditions"] == {"ready": True, "serving": False, "terminating": False}


def slice_of(name: str, *uids: str) -> dict[str, Any]:
    endpoints = [{"addresses": ["x"], "targetRef": {"uid": uid}} for uid in uids]
    return {"metadata": {"name": name}, "addressType": "IPv4", "ports": [], "endpoints": endpoints}


def test_endpoints_stay_in_their_slices() -> None:
    group = ("IPv4", ports_key(()))
    wanted = [{"addresses": ["new"], "targetRef": {"uid": uid}} for uid in ("b", "c", "d")]
    plan = plan_slices([slice_of("one", "a", "b"), slice_of("two", "c")], {group: wanted}, ["IPv4"])
    names = {
        name: [each["targetRef"]["uid"] for each in endpoints]
        for name, (_, endpoints) in plan.updated.items()
    }
    assert names == {"one": ["b", "d"], "two": ["c"]}
    assert (plan.created, plan.deleted) == ([], [])


def test_slices_are_added_removed_and_one_remains() -> None:
    group = ("IPv4", ports_key(()))
    many = [
        {"addresses": ["x"], "targetRef": {"uid": str(number)}}
        for number in range(MAX_ENDPOINTS + 1)
    ]
    plan = plan_slices([], {group: many}, ["IPv4", "IPv6"])
    assert [(family, len(endpoints)) for family, _, endpoints in plan.created] == [
        ("IPv4", 100),
        ("IPv4", 1),
        ("IPv6", 0),
    ]
    empty = plan_slices([slice_of("one", "a"), slice_of("two", "b")], {}, ["IPv4"])
    assert (list(empty.updated.values()), len(empty.deleted), empty.created) == ([((), [])], 1, [])
    ports = ports_key([{"name": "w", "port": 1}])
    moved = plan_slices([slice_of("one", "a")], {("IPv4", ports): many[:1]}, ["IPv4"])
    assert moved == ({"one": (ports, many[:1])}, [], []), (
        "a slice whose ports change keeps its name"
    )


def test_trigger_time_is_that_of_the_first_change() -> None:
    assert trigger_time({"": "1", "a": "5", "b": "4"}, {"": "1"}) == "4"
    assert trigger_time({"": "1", "a": "5"}, {"": "1", "a": "5"}) == ""


def volume(name: str, size: str, **spec: Any) -> dict[str, Any]:
    spec = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "c",
        **spec,
    }
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}}


CLAIM: dict[str, Any] = {
    "metadata": {"name": "claim", "namespace": "ns", "uid": "u"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "c",
        "resources": {"requests": {"storage": "1Gi"}},
    },
}
RESERVATION = {"namespace": "ns", "name": "claim"}


@pytest.mark.parametrize(
    ("volumes", "chosen"),
    [
        ([], None),
        ([volume("big", "5Gi"), volume("fit", "1Gi"), volume("small", "500Mi")], "fit"),
        ([volume("v", "1Gi", storageClassName="d")], None),
        ([volume("v", "1Gi", accessModes=["ReadOnlyMany"])], None),
        ([volume("v", "1Gi", volumeMode="Block")], None),
        ([volume("fit", "1Gi"), volume("mine", "9Gi", claimRef=RESERVATION)], "mine"),
        ([volume("other", "1Gi", claimRef={"namespace": "ns", "name": "x"})], None),
        ([volume("stale", "1Gi", claimRef={**RESERVATION, "uid": "before"})], None),
    ],
)
def test_volume_for_a_claim(volumes: list[dict[str, Any]], chosen: str | None) -> None:
    best = best_volume(CLAIM, volumes)
    assert (best and best["metadata"]["name"]) == chosen


def test_phases_of_a_volume() -> None:
    bound = {**CLAIM, "spec": {**CLAIM["spec"], "volumeName": "v"}}
    reserved = volume("v", "1Gi", claimRef={**RESERVATION, "uid": "u"})
    assert volume_phase(volume("v", "1Gi"), None) == "Available"
    assert volume_phase(volume("v", "1Gi", claimRef=RESERVATION), None) == "Available"
    assert volume_phase(reserved, CLAIM) == "Available"
    assert volume_phase(reserved, bound) == "Bound"
    assert volume_phase(reserved, None) == "Released"


KEY = ec.generate_private_key(ec.SECP256R1())


def request(
    name: str, organization: str = "", *alternatives: x509.GeneralName
) -> x509.CertificateSigningRequest:
    attributes = (
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)] if organization else []
    )
    subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return builder.sign(KEY, hashes.SHA256())


NODE = ("system:node:n", "system:nodes")
SERVING, CLIENT = "kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client"
KUBELET = "kubernetes.io/kube-apiserver-client-kubelet"
DNS = x509.DNSName("n")


@pytest.mark.parametrize(
    ("signer", "subject", "usages", "problem"),
    [
        (CLIENT, ("jane",), ["client auth", "digital signature"], ""),
        (CLIENT, ("jane",), ["server auth"], "invalid usage for client certificate: server auth"),
        (
            CLIENT,
            ("jane",),
            ["digital signature"],
            "missing required usage for client certificate: client auth",
        ),
        (SERVING, (*NODE, DNS), ["digital signature", "server auth"], ""),
        (
            SERVING,
            NODE,
            ["digital signature", "server auth"],
            "DNS or IP subjectAltName is required",
        ),
        (
            SERVING,
            ("system:node:n", "x", DNS),
            ["server auth"],
            "subject organization is not system:nodes",
        ),
        (
            SERVING,
            (*NODE, DNS),
            ["server auth"],
            "usages did not match [digital signature key encipherment server auth]",
        ),
        (
            SERVING,
            ("n", "system:nodes", DNS),
            ["digital signature", "server auth"],
            "subject common name does not begin with system:node: ",
        ),
        (
            KUBELET,
            (*NODE, DNS),
            ["digital signature", "client auth"],
            "DNS subjectAltNames are not allowed",
        ),
        (KUBELET, NODE, ["digital signature", "client auth", "key encipherment"], ""),
        ("kubernetes.io/legacy-unknown", ("x",), ["server auth"], ""),
    ],
)
def test_requests_that_a_signer_refuses(
    signer: str, subject: Any, usages: list[str], problem: str
) -> None:
    assert refusal(signer, request(*subject), usages) == problem


@pytest.mark.parametrize(
    ("seconds", "start", "end"),
    [
        (None, -300, 365 * 86400 - 300),
        (3600, -300, 3600),
        (60, -300, 600),
        (10**9, -300, 365 * 86400 - 300),
    ],
)
def test_validity_and_usages_of_a_certificate(seconds: int | None, start: int, end: int) -> None:
    pem = sign_request(
        CertificateAuthority(), request("jane", "team", DNS), ["client auth", "any"], seconds, NOW
    )
    certificate = x509.load_pem_x509_certificate(pem)
    assert (certificate.not_valid_before_utc - NOW).total_seconds() == start
    assert (certificate.not_valid_after_utc - NOW).total_seconds() == end
    assert certificate.subject.rfc4514_string() == "CN=jane,O=team"
    assert len(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == 2
    assert certificate.extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    ).value.get_values_for_type(x509.DNSName) == ["n"]
