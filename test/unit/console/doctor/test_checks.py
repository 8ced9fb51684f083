"""The checks of ``cfo doctor``: facts in, findings out."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from unittest.mock import Mock

import pytest

from cfo.checks.findings import SERVED_ELSEWHERE, Finding
from cfo.config.document import ParsedConfiguration, parse
from cfo.config.model import OperatorConfiguration
from cfo.config.section import ConfigurationError
from cfo.console.doctor import checks, other_operators
from cfo.console.doctor.arguments import configuration_name
from cfo.console.doctor.facts import (
    Installation,
    WebhookConfigurationFacts,
    is_go_deployment,
    narrowed_settings,
)
from cfo.console.doctor.other_operators import OtherOperator
from cfo.console.doctor.permissions import PermissionFacts
from cfo.manifests.names import DEPLOYMENT, IMAGE_REPOSITORY
from cfo.manifests.overlays import CERTIFICATE
from cfo.operator import WEBHOOK_SECRET_NAME, webhook_configurations
from cfo.runtime import CONFIG_MAP, GVK, Client, NamespacedName, Object, Rule
from cfo.version import CONFIG_MAP_NAME
from test.support.certificates import create_ca, create_certificate

SERVICE = NamespacedName("ops", "webhooks")
HOST = "webhooks.ops.svc"
SECRET = NamespacedName("ops", WEBHOOK_SECRET_NAME)
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def states(findings: Any) -> list[str]:
    return [str(finding.status) for finding in findings]


def deployment(
    image: str = "x/codeflare-operator:v0.1.0", *, replicas: int = 2, ready: int = 2
) -> Object:
    template = {"spec": {"containers": [{"name": "manager", "image": image}]}}
    return {
        "spec": {"replicas": replicas, "template": template},
        "status": {"readyReplicas": ready},
    }


def other(
    webhooks: bool = False, proven: bool = False, **settings: Any
) -> dict[str, OtherOperator]:
    """Return what was found of an operator in another namespace, with these settings.

    ``proven``: it runs, and an administrator installed it.
    """
    found = OtherOperator(
        ["ValidatingWebhookConfiguration v"] if webhooks else [], ["Deployment d"]
    )
    found.configuration = OperatorConfiguration.from_document(settings)
    found.is_alive = found.is_bound = proven
    return {"opendatahub": found}


@pytest.mark.parametrize(
    ("others", "own", "expected"),
    [
        ({}, {}, "ok"),
        (other(webhooks=True), {"watchNamespaces": ["a"]}, "fail"),
        (other(webhooks=True), {"webhook": {"enabled": False}}, "warn"),
        (
            other(webhooks=True, watchNamespaces=["a"]),
            {"webhook": {"enabled": False}, "watchNamespaces": ["b"]},
            "ok",
        ),
        (other(), {}, "warn"),
        ({"x": OtherOperator(signs=["Lease l"])}, {"watchNamespaces": ["a"]}, "warn"),
        (other(watchNamespaces=["a", "b"]), {"watchNamespaces": ["b"]}, "warn"),
        (other(watchNamespaces=["a"]), {"watchNamespaces": ["b"]}, "ok"),
        (other(proven=True), {}, "fail"),
        (other(proven=True, watchNamespaces=["a"]), {"watchNamespaces": ["a", "b"]}, "fail"),
        (other(proven=True, watchNamespaces=["a"]), {"watchNamespaces": ["b"]}, "ok"),
        (other(proven=True, watchNamespaces=["a"]), {}, "fail"),
        (other(proven=True, labelSelector="x=y"), {"watchNamespaces": ["a"]}, "fail"),
        (
            other(watchNamespaces=["a"], labelSelector="x=a"),
            {"watchNamespaces": ["a"], "labelSelector": "x=b"},
            "ok",
        ),
        (other(watchNamespaces=["a"]), {"labelSelector": "part=b"}, "warn"),
        (other(labelSelector="part=a"), {"labelSelector": "part=b"}, "ok"),
        (other(labelSelector="part=a"), {"labelSelector": "part=a"}, "warn"),
    ],
)
def test_other_operators_must_reconcile_other_objects(
    others: Any, own: dict[str, Any], expected: str
) -> None:
    checked = "namespace ours (Lease l, holder h)"
    configuration = OperatorConfiguration.from_document(own)
    (finding,) = other_operators.findings(others, configuration, checked, ["ours"])
    assert finding.status == expected
    assert (checked in finding.message) is bool(others)
    assert not others or next(iter(others)) in finding.message
    assert ("renewal of its Lease: ours; keep one" in finding.remedy) is (expected != "ok")


@pytest.mark.parametrize(
    ("own", "theirs", "own_part", "their_part"),
    [
        (
            {"watchNamespaces": ["a", "b"]},
            {"watchNamespaces": ["c"]},
            "namespaces a, b",
            "namespace c",
        ),
        (
            {"labelSelector": "part=a"},
            {"labelSelector": "part=b", "watchNamespaces": [f"n{number}" for number in range(12)]},
            "all namespaces with labels part=a",
            "namespaces n0, n1, n2, n3, n4, n5, n6, n7, n8, n9 and 2 more with labels part=b",
        ),
    ],
)
def test_operators_that_divide_the_cluster_are_named_with_their_parts(
    own: dict[str, Any], theirs: dict[str, Any], own_part: str, their_part: str
) -> None:
    configuration = OperatorConfiguration.from_document(own)
    found = other(**theirs)
    (finding,) = other_operators.findings(found, configuration, "namespace ours", [])
    assert finding.status == "ok"
    assert finding.message == (
        f"two CodeFlare operators divide the cluster: the one in namespace ours reconciles {own_part}, "
        f"the one in namespace opendatahub (Deployment d) reconciles {their_part}"
    )


def test_operator_with_an_unknown_part_may_reconcile_the_same_objects() -> None:
    unread = other()
    unread["opendatahub"].configuration = None
    (finding,) = other_operators.findings(unread, OperatorConfiguration(), "namespace ours", [])
    assert finding.message == (
        "two CodeFlare operators may reconcile the same objects: the one in namespace ours reconciles all namespaces, "
        "the one in namespace opendatahub (Deployment d) reconciles objects that are not known, because its "
        "configuration cannot be read, or is longer than 32768 characters"
    )


class LargeDocuments:
    """A client of a namespace in which a tenant has created the objects of an operator, with a large document.

    It is in the ConfigMap, or in the option of the Deployment with which an operator creates its ConfigMap.
    """

    def __init__(self, document: str, *, has_config_map: bool) -> None:
        self._document = document
        self._has_config_map = has_config_map

    async def get(self, gvk: GVK, _: NamespacedName, *, live: bool) -> Object | None:
        assert live
        if gvk == CONFIG_MAP:
            return {"data": {"config.yaml": self._document}} if self._has_config_map else None
        created = deployment()
        (container,) = created["spec"]["template"]["spec"]["containers"]
        container["args"] = [f"--default-config={self._document}"]
        return created


@pytest.mark.parametrize("has_config_map", [True, False])
async def test_large_configuration_of_another_operator_is_not_parsed(
    monkeypatch: pytest.MonkeyPatch, *, has_config_map: bool
) -> None:
    parsed = Mock(wraps=other_operators.parse)
    monkeypatch.setattr(other_operators, "parse", parsed)
    usual = "watchNamespaces: [a]"
    for document, expected in ((usual, ["a"]), (f"{usual} #" + "x" * (32 << 10), None)):
        client = cast("Client", LargeDocuments(document, has_config_map=has_config_map))
        found = await other_operators.configuration_of(client, "ns", 32 << 10)
        assert (list(found.watch_namespaces) if found else None) == expected
    parsed.assert_called_once_with(usual)


@pytest.mark.parametrize("is_own", [False, True])
def test_operator_that_is_scaled_to_0_does_not_reconcile(is_own: bool) -> None:
    found = other()
    found["opendatahub"].is_stopped = not is_own
    (finding,) = other_operators.findings(
        found, OperatorConfiguration(), "namespace ours", ["ours"], runs_nothing=is_own
    )
    assert finding.status == "warn"
    assert "would reconcile the same objects, but one is scaled to 0 replicas" in finding.message
    assert finding.remedy.startswith("do not scale it up while both are installed; alive, by")


def test_overlap_is_only_a_warning_if_a_configuration_was_not_read() -> None:
    unread = other(proven=True)
    unread["opendatahub"].configuration = None
    for others, is_known in ((unread, True), (other(proven=True), False)):
        (finding,) = other_operators.findings(
            others, OperatorConfiguration(), "namespace ours", [], is_known=is_known
        )
        assert finding.status == "warn"


def test_operator_elsewhere_is_not_another_one_if_the_checked_namespace_has_none() -> None:
    """With ``NAMESPACE=default cfo run``, the default namespace of ``cfo doctor`` has none."""
    found = {"default": OtherOperator(signs=["Lease l, holder h"])}
    (finding,) = other_operators.missing_findings(found, "openshift-operators")
    assert finding.status == "warn"
    assert finding.message == (
        "a CodeFlare operator is in namespace default (Lease l, holder h); "
        "none was found in namespace openshift-operators"
    )
    assert "default" not in finding.remedy


def crowd(**installed: OtherOperator) -> dict[str, OtherOperator]:
    """Return what was found if a tenant has a Lease of an operator in each of 12 namespaces."""
    tenants = {
        f"aa-{number:02}": OtherOperator(signs=["Lease l, holder h"], is_alive=True)
        for number in range(12)
    }
    return {**tenants, **installed}


@pytest.mark.parametrize(
    "installed",
    [
        OtherOperator(signs=["Lease l"], is_alive=True, is_bound=True),
        OtherOperator(["ValidatingWebhookConfiguration v"], is_alive=True),
    ],
)
def test_leases_of_tenants_do_not_hide_an_installed_operator(installed: OtherOperator) -> None:
    installed.configuration = OperatorConfiguration()
    found = list(
        other_operators.findings(crowd(zz=installed), OperatorConfiguration(), "namespace ours", [])
    )
    assert found[0].status == "fail"
    assert "namespace zz (" in found[0].message
    assert states(found[1:]) == ["warn"] * 10
    assert found[-1].message.startswith("not shown: 3 more namespaces with a Deployment or a Lease")
    found = list(other_operators.missing_findings(crowd(zz=installed), "ours"))
    assert "is in namespace zz (" in found[0].message
    assert len(found) == 11
    assert found[-1].message.startswith("not shown: 3 more namespaces")


def test_living_operators_are_named_before_others() -> None:
    tenants = {f"aa-{number:02}": OtherOperator(signs=["Deployment d"]) for number in range(12)}
    living = OtherOperator(signs=["Lease l"], is_alive=True)
    first, *_ = other_operators.missing_findings({**tenants, "zz": living}, "ours")
    assert "is in namespace zz (Lease l)" in first.message


def test_number_of_operators_that_are_not_named_is_reported() -> None:
    alive = [f"n{number}" for number in range(12)]
    found = other(proven=True)
    (finding,) = other_operators.findings(found, OperatorConfiguration(), "namespace ours", alive)
    assert "renewal of its Lease: n0, n1, " in finding.remedy
    assert ", n9 and 2 more; keep one" in finding.remedy
    found["opendatahub"].signs = [f"Deployment d{number}" for number in range(2_000)]
    (finding,) = other_operators.findings(found, OperatorConfiguration(), "namespace ours", alive)
    assert ", Deployment d9 and 1990 more) reconciles all namespaces" in finding.message


def pod(
    image: str = "x/codeflare-operator:v0.1.0", started: str = "2026-01-01T10:00:00Z"
) -> Object:
    status = {"containerStatuses": [{"state": {"running": {"startedAt": started}}}]}
    return {"spec": {"containers": [{"image": image}]}, "status": status}


@pytest.mark.parametrize(
    ("pods", "message", "remedy"),
    [
        ((), ": it has no pods", "describe deployment codeflare-operator-manager"),
        (
            ({"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}),
            ": no container of its pods runs yet",
            "describe pods a b",
        ),
        ((pod(),), "", "logs deployment/codeflare-operator-manager; /readyz names the reason"),
    ],
)
def test_remedy_for_replicas_that_are_not_ready_fits_their_pods(
    pods: tuple[Object, ...], message: str, remedy: str
) -> None:
    installation = Installation("ops", deployment=deployment(ready=0), pods=pods)
    (finding,) = checks.check_operator(installation, [], NOW)
    assert finding.message == f"0 of 2 replicas are ready{message}"
    assert finding.remedy == f"kubectl -n ops {remedy}"


@pytest.mark.parametrize(
    ("installed", "pods", "expected"),
    [
        (deployment(), (), ["ok", "ok"]),
        (deployment(ready=1), (), ["warn", "ok"]),
        (deployment(ready=0), (), ["fail", "ok"]),
        (deployment(replicas=0, ready=0), (), ["fail", "ok"]),
        (deployment("x/codeflare-operator:v0.2.0"), (), ["ok", "warn"]),
        (deployment("x/codeflare-operator@sha256:0123"), (), ["ok", "skip"]),
        (deployment("host:5000/codeflare-operator"), (), ["ok", "skip"]),
        (deployment("host:5000/codeflare-operator:0.1.0@sha256:0"), (), ["ok", "ok"]),
        (deployment(), (pod(), pod("x/codeflare-operator:v0.0.9")), ["ok", "warn"]),
    ],
)
def test_operator_has_ready_replicas_of_this_version(
    installed: Object | None, pods: tuple[Object, ...], expected: list[str]
) -> None:
    installation = Installation("ops", deployment=installed, pods=pods)
    found = [
        *checks.check_operator(installation, [], NOW),
        *checks.check_version(installation, [], "0.1.0"),
    ]
    assert states(found) == expected
    # An image that is pinned by its digest must not fail the check of a CI job.
    assert all(not finding.is_needed for finding in found if finding.status == "skip")


@pytest.mark.parametrize(
    ("image", "is_marked", "expected"),
    [
        (f"{IMAGE_REPOSITORY}:v0.1.0", False, "skip"),
        (f"{IMAGE_REPOSITORY}:v0.1.0@sha256:0", False, "skip"),
        (f"{IMAGE_REPOSITORY}:v0.1.0", True, "ok"),
        (f"mirror.test/{IMAGE_REPOSITORY}:v0.1.0", False, "ok"),
    ],
)
def test_tag_of_a_name_that_the_go_operator_has_is_no_version(
    image: str, expected: str, *, is_marked: bool
) -> None:
    installation = Installation("ops", deployment=deployment(image))
    webhooks = [WebhookConfigurationFacts(name="w", exists=True, is_marked=is_marked)]
    (finding,) = checks.check_version(installation, webhooks, "0.1.0")
    assert finding.status == expected


def waiting_pod(name: str, reason: str, message: str = "") -> Object:
    waiting = {"reason": reason, "message": message}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ops"},
        "spec": {"containers": [{"image": "x"}]},
        "status": {
            "phase": "Pending",
            "containerStatuses": [{"name": "manager", "state": {"waiting": waiting}}],
        },
    }


@pytest.mark.parametrize(("ready", "expected"), [(0, "fail"), (1, "warn"), (2, "warn")])
def test_pods_of_the_operator_that_do_not_run_are_named_with_their_reason(
    ready: int, expected: str
) -> None:
    """Also in a rollout, while the pods of the last revision are ready."""
    crashing = waiting_pod("m-1", "CrashLoopBackOff")
    unpulled = waiting_pod("m-2", "ImagePullBackOff", "no such image")
    evicted = waiting_pod("m-3", "ErrImagePull")
    evicted["status"]["phase"] = "Failed"
    installation = Installation(
        "ops", deployment=deployment(ready=ready), pods=(evicted, crashing, unpulled)
    )
    replicas, *found = checks.check_operator(installation, [], NOW)
    assert replicas.status == ("ok" if ready == 2 else expected)
    assert replicas.remedy == ("" if ready == 2 else "solve the problems of its pods, below")
    assert [(each.status, each.message, each.remedy) for each in found] == [
        (
            expected,
            "Pod m-1: container manager waits: CrashLoopBackOff",
            "read the log: kubectl logs -c manager --previous -n ops m-1",
        ),
        (
            expected,
            "Pod m-2: container manager waits: ImagePullBackOff (no such image)",
            "check the name of the image, and the pull secret of the ServiceAccount",
        ),
    ]


def test_pods_of_the_operator_that_are_refused_are_reported() -> None:
    installed = deployment(ready=0)
    message = 'pods "m-" is forbidden: exceeded quota: small'
    installed["status"]["conditions"] = [
        {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
    ]
    _, found = checks.check_operator(Installation("ops", deployment=installed), [], NOW)
    assert (found.status, found.message) == ("fail", f"pods cannot be created: {message}")
    assert "ResourceQuota" in found.remedy


@pytest.mark.parametrize(
    ("image", "port", "grace_period", "expected"),
    [
        ("x/codeflare-operator:v1.16.0", "metrics", 10, True),
        ("x/codeflare-operator@sha256:a", "metrics", 40, True),
        ("x/codeflare-operator:v1.16.0", "health", 10, True),  # applied over this operator's
        ("x/codeflare-operator:v1.16.0", "health", 40, False),
        ("x/codeflare-operator:v0.1.0", "metrics", 10, False),
    ],
)
def test_go_operator_is_recognized_by_its_pod_template(
    image: str, port: str, grace_period: int, expected: bool
) -> None:
    installed = deployment(image)
    pod_template = installed["spec"]["template"]["spec"]
    pod_template["terminationGracePeriodSeconds"] = grace_period
    pod_template["containers"][0]["ports"] = [{"name": port}]
    assert is_go_deployment(installed, "0.1.0") is expected


MISSING = "no Deployment codeflare-operator-manager in namespace ops"


@pytest.mark.parametrize(
    ("options", "expected", "is_installed_by_remedy"),
    [
        ({}, MISSING, True),
        ({"services": {NamespacedName("ops", "s"): 0}}, MISSING, True),
        (
            {"services": {NamespacedName("there", "s"): 1}},
            f"{MISSING}, but the webhooks lead to namespace there",
            False,
        ),
        (
            {"urls": ("https://host:9443/x",)},
            "runs outside the cluster, because the webhooks have a URL",
            False,
        ),
        (
            {"urls": ("https://host:9443/x",), "lease_namespace": "ops"},
            "runs outside the cluster, because the webhooks have a URL",
            False,
        ),
        (
            {"urls": ("https://host:9443/x",), "lease_namespace": "there"},
            f"{MISSING}, but the webhooks have the URL of an operator whose Lease is in namespace there",
            False,
        ),
        (
            {
                "services": {NamespacedName("there", "s"): None},
                "deleted_namespaces": frozenset({"there"}),
            },
            MISSING,
            True,
        ),
    ],
)
def test_missing_deployment_is_reported_with_what_the_webhooks_name(
    options: dict[str, Any], expected: str, is_installed_by_remedy: bool
) -> None:
    webhooks = [WebhookConfigurationFacts(name="w", exists=True, **options)]
    (finding,) = checks.check_operator(Installation("ops"), webhooks, NOW)
    assert finding.message == expected
    assert ("cfo manifests" in finding.remedy) is is_installed_by_remedy


def test_default_namespace_that_does_not_exist_is_reported() -> None:
    (finding,) = checks.check_operator(Installation("ops", has_namespace=False), [], NOW)
    assert finding.message == f"{MISSING}, which does not exist"


def lease(holder: str = "laptop_1_https://127.0.0.1:9443", *, renewed: str = "11:59:50") -> Object:
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": 60,
        "acquireTime": "2026-01-01T10:00:00.000000Z",
        "renewTime": f"2026-01-01T{renewed}.000000Z",
    }
    return {"spec": spec}


@pytest.mark.parametrize(
    ("found", "installed", "expected"),
    [
        (lease(), deployment(replicas=0, ready=0), "ok"),
        (lease(), None, "ok"),
        (lease(renewed="11:58:00"), deployment(replicas=0, ready=0), "fail"),
        (lease(holder=""), deployment(replicas=0, ready=0), "fail"),
        (lease(holder=f"{DEPLOYMENT}-5f4c-x2_1"), deployment(replicas=0, ready=0), "fail"),
        (lease(), deployment(replicas=2, ready=0), "warn"),
        (lease(), deployment(replicas=2, ready=1), "warn"),
        (lease(renewed="11:58:00"), deployment(replicas=2, ready=0), "fail"),
        (lease(holder=f"{DEPLOYMENT}-5f4c-x2_1"), deployment(replicas=2, ready=0), "fail"),
        (None, deployment(replicas=0, ready=0), "fail"),
    ],
)
def test_operator_outside_the_cluster_renews_the_lease(
    found: Object | None, installed: Object | None, expected: str
) -> None:
    """The documentation asks for 0 replicas, so that only one operator runs; its pods are not repaired."""
    installation = Installation("ops", deployment=installed, lease=found)
    (finding,) = checks.check_operator(installation, [], NOW)
    assert finding.status == expected
    is_alive = "laptop_1_https://127.0.0.1:9443 renews the Lease" in finding.message
    has_ready_pods = installation.ready_replicas > 0
    assert is_alive is (expected != "fail" and not has_ready_pods)
    if is_alive and expected == "warn":
        assert "0 of 2 replicas" in finding.message
        assert "scale deployment" in finding.remedy
        assert "--replicas 0, or stop the operator outside" in finding.remedy


@pytest.mark.parametrize(
    ("changed", "expected"), [("2026-01-01T09:59:59Z", "ok"), ("2026-01-01T10:00:01Z", "warn")]
)
def test_operator_outside_the_cluster_has_read_the_configuration(
    changed: str, expected: str
) -> None:
    installation = Installation("ops", config_map(changed), parse(""), lease=lease())
    (finding,) = checks.check_configuration(installation, NOW)
    assert finding.status == expected
    assert ("restart the operator outside the cluster" in finding.remedy) is (expected == "warn")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (lease(), ["ok", "ok"]),
        (None, ["ok", "ok"]),
        (lease(renewed="11:58:00"), ["fail", "fail"]),
        ({}, ["fail", "fail"]),
    ],
)
def test_url_of_an_operator_that_does_not_run_any_more_fails(
    found: Object | None, expected: list[str]
) -> None:
    facts = [webhooks(services={}, urls=("https://127.0.0.1:9443/x",), lease=found)]
    findings = [
        *checks.check_operator(Installation("ops"), facts, NOW),
        *checks.check_webhooks(facts, NOW),
    ]
    assert states(findings) == expected
    assert all("start the operator again" in each.remedy for each in findings if each.remedy)
    moves = (
        f"validatingwebhookconfigurations {facts[0].name}; then apply the manifests: cfo manifests"
    )
    assert moves in findings[-1].remedy or expected == ["ok", "ok"]


def config_map(changed: str) -> Object:
    managed = [
        {"manager": "old", "time": "2025-01-01T00:00:00Z"},
        {"manager": "kubectl", "time": changed},
    ]
    return {
        "metadata": {
            "name": "config",
            "managedFields": managed,
            "creationTimestamp": "2024-01-01T00:00:00Z",
        }
    }


@pytest.mark.parametrize(
    ("parsed", "changed", "expected"),
    [
        (parse(""), "2026-01-01T09:00:00Z", ["ok"]),
        (parse(""), "2026-01-01T10:00:00Z", ["ok"]),
        (parse(""), "2026-01-01T10:00:01Z", ["warn"]),
        (parse("kubray: {}"), "2026-01-01T09:00:00Z", ["warn"]),
        (ConfigurationError("a", "b"), "2026-01-01T09:00:00Z", ["fail", "fail"]),
        (ConfigurationError("a", warnings=["b"]), "2026-01-01T09:00:00Z", ["warn", "fail"]),
    ],
)
def test_configuration_is_valid_and_was_read_by_the_operator(
    parsed: ParsedConfiguration | ConfigurationError, changed: str, expected: list[str]
) -> None:
    installation = Installation(
        "ops", config_map(changed), parsed, pods=(pod(), pod(started="2026-01-02T00:00:00Z"))
    )
    assert states(checks.check_configuration(installation, NOW)) == expected


def test_namespaces_that_do_not_exist_are_warnings() -> None:
    installation = Installation("ops", config_map("2026-01-01T09:00:00Z"), parse(""))
    missing = {"watchNamespaces": ["a"], "flux.adminNamespaces": [*"bcdefgh"]}
    found = list(checks.check_configuration(installation, NOW, missing))
    assert states(found) == ["warn", "warn"]
    assert [finding.message.removeprefix("ConfigMap ops/config: ") for finding in found] == [
        "watchNamespaces: namespace a does not exist",
        "flux.adminNamespaces: namespaces b, c, d, e, f and 2 more do not exist",
    ]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("webhook: {enabled: false}", ["fail"]),
        ("{webhook: {enabled: false}, labelSelector: team=x}", ["ok"]),
    ],
)
def test_additional_operator_without_its_part_is_a_failure(
    document: str, expected: list[str]
) -> None:
    """It reconciles all objects then. The permissions that it needs are still those in its part."""
    installed = deployment()
    (container,) = installed["spec"]["template"]["spec"]["containers"]
    created = "{webhook: {enabled: false}, watchNamespaces: [a, b], labelSelector: team=x}"
    container["args"] = [f"--default-config={created}"]
    installation = Installation(
        "ops", config_map("2026-01-01T09:00:00Z"), parse(document), deployment=installed
    )
    found = list(checks.check_configuration(installation, NOW))
    assert states(found) == expected
    remedy = "set watchNamespaces: [a, b] and labelSelector: team=x in the ConfigMap, and restart the operator"
    has_part = "team=x" in document
    assert [finding.remedy for finding in found if finding.remedy] == [remedy][: not has_part]
    assert installation.with_part.configuration.label_selector == "team=x"
    assert [*installation.with_part.configuration.watch_namespaces] == (
        [] if has_part else ["a", "b"]
    )


@pytest.mark.parametrize(
    ("webhook", "expected"),
    [
        ("{}", ["fail"]),
        ("{enabled: true}", ["fail"]),
        ("{enabled: false}", ["ok"]),
        ("{mutatingConfigurationName: own}", ["ok"]),
    ],
)
def test_additional_operator_that_enables_the_webhooks_of_the_first_is_a_failure(
    webhook: str, expected: list[str]
) -> None:
    """It has no permission for them. No other check must recommend what they need."""
    installed = deployment()
    (container,) = installed["spec"]["template"]["spec"]["containers"]
    container["args"] = ["--default-config={webhook: {enabled: false}, labelSelector: team=x}"]
    parsed = parse(f"{{labelSelector: team=x, webhook: {webhook}}}")
    installation = Installation(
        "ops", config_map("2026-01-01T09:00:00Z"), parsed, deployment=installed
    )
    assert states(checks.check_configuration(installation, NOW)) == expected
    enabled = installation.with_disabled_webhooks.configuration.webhook.enabled
    assert (enabled is False) is ("mutating" not in webhook)


def test_missing_configuration_is_a_warning_only_while_the_operator_runs_which_created_it() -> None:
    assert states(checks.check_configuration(Installation("ops"), NOW)) == ["skip"]
    starting = Installation("ops", deployment=deployment(ready=0))
    assert states(checks.check_configuration(starting, NOW)) == ["skip"]
    for running in (
        Installation("ops", deployment=deployment()),
        Installation("ops", lease=lease(holder="laptop")),
    ):
        (finding,) = checks.check_configuration(running, NOW)
        assert finding.status == "warn"
        assert "was deleted; the operator keeps its settings until it is" in finding.message


def test_configuration_is_read_by_the_pods_of_a_rollout() -> None:
    installed = deployment()
    installed["status"] |= {"replicas": 3, "updatedReplicas": 2}
    installation = Installation(
        "ops", config_map("2026-01-01T11:00:00Z"), parse(""), deployment=installed, pods=(pod(),)
    )
    (finding,) = checks.check_configuration(installation, NOW)
    assert finding.remedy.startswith("wait for the rollout: kubectl -n ops rollout status")
    (finding,) = checks.check_operator(installation, [], NOW)
    assert finding.message == "2 of 2 replicas are ready, and a rollout is in progress"
    new = pod()
    new["metadata"] = {"name": "new"}
    new["status"]["conditions"] = [
        {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T10:00:01Z"}
    ]
    stuck = replace(installation, pods=(new,))
    found = list(checks.check_operator(stuck, [], NOW))
    assert states(found) == ["ok", "warn"]
    assert found[1].message == "pod new runs, but has not been ready for a minute"
    assert "port-forward pod/new 8081" in found[1].remedy
    (finding,) = checks.check_configuration(stuck, NOW)
    assert "in the check operator" in finding.remedy


def webhooks(**fields: Any) -> WebhookConfigurationFacts:
    return WebhookConfigurationFacts(
        **{"name": "validating", "exists": True, "services": {SERVICE: 2}, **fields}
    )


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ([], ["skip"]),
        ([webhooks()], ["ok"]),
        ([webhooks(exists=False)], ["fail"]),
        ([webhooks(missing=("vraycluster",))], ["fail"]),
        ([webhooks(services={SERVICE: 0})], ["fail"]),
        ([webhooks(services={SERVICE: None})], ["fail"]),
        ([webhooks(services={}, urls=("https://127.0.0.1:9443/x",))], ["ok"]),
    ],
)
def test_webhooks_lead_to_ready_endpoints(
    facts: list[WebhookConfigurationFacts], expected: list[str]
) -> None:
    assert states(checks.check_webhooks(facts, NOW)) == expected


@pytest.mark.parametrize(
    ("changes", "expected", "remedy"),
    [
        ({}, [], ""),
        ({"failurePolicy": "Ignore"}, ["fail"], "apply the manifests"),
        ({"matchPolicy": "Exact"}, ["fail"], "apply the manifests"),
        ({"rules": []}, ["fail", "fail"], "apply the manifests"),
        ({"objectSelector": {"matchLabels": {"a": "b"}}}, ["fail"], "kubectl patch"),
        ({"matchConditions": [{"name": "a", "expression": "b"}]}, ["fail"], "kubectl patch"),
        ({"namespaceSelector": {"matchLabels": {"a": "b"}}}, ["fail"], "kubectl patch"),
        (
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "a"}}},
            ["warn"],
            "kubectl patch",
        ),
    ],
)
def test_settings_with_which_objects_bypass_a_webhook_are_named(
    changes: Object, expected: list[str], remedy: str
) -> None:
    """The manifests restore their own settings; what only another client has set has to be removed."""
    for configuration in webhook_configurations("ops"):
        for wanted in configuration["webhooks"]:
            narrowed = [*narrowed_settings({**wanted, **changes}, wanted)]
            found = [
                each
                for each in checks.check_webhooks([webhooks(narrowed=tuple(narrowed))], NOW)
                if each.status != "ok"
            ]
            if wanted["name"] == "vraycluster.ray.openshift.ai":
                assert states(found) == expected
                assert all(each.remedy.startswith(remedy) for each in found)
            if not changes:
                assert not narrowed


def test_webhooks_of_the_go_operator_are_no_failure() -> None:
    """It has none for the kinds that only this operator has."""
    others = ("vfluxjob.kb.io", "vinferencestack.doublewordai.co")
    found = list(checks.check_webhooks([webhooks(missing=others)], NOW, is_go=True))
    assert states(found) == ["warn", "ok"]
    assert found[0].message == (
        "validating has only the webhooks of the Go operator, for RayClusters and AppWrappers"
    )
    assert "follow docs/migration.md" in found[0].remedy
    missing = ("vappwrapper.kb.io", *others)
    found = list(checks.check_webhooks([webhooks(missing=missing)], NOW, is_go=True))
    assert states(found) == ["warn", "fail"]
    assert found[1].message == "validating lacks vappwrapper.kb.io"


def test_webhooks_must_not_lead_to_an_operator_that_serves_none() -> None:
    (finding,) = checks.check_webhooks([webhooks()], NOW, unserved=SERVICE.namespace)
    assert states([finding]) == ["fail"]
    assert "webhook.enabled of its operator is false" in finding.message
    assert states(checks.check_webhooks([webhooks()], NOW, unserved="other")) == ["ok"]


@pytest.mark.parametrize(
    "fact",
    [
        WebhookConfigurationFacts("validating", exists=False),
        webhooks(missing=("vfluxjob.kb.io",)),
        webhooks(services={SERVICE: None}),
    ],
)
def test_webhooks_of_another_operator_are_not_repaired_by_manifests_that_have_none(
    fact: WebhookConfigurationFacts,
) -> None:
    (finding,) = checks.check_webhooks([fact], NOW, unserved="other", is_outside=True)
    assert (finding.status, finding.remedy) == ("fail", SERVED_ELSEWHERE)


def test_unready_service_is_that_of_the_operator_in_its_namespace() -> None:
    fact = webhooks(services={SERVICE: 0})
    (own,) = checks.check_webhooks([fact], NOW, namespace=SERVICE.namespace)
    assert own.remedy.startswith("see the check operator;")
    (others,) = checks.check_webhooks([fact], NOW, namespace="other", unserved="other")
    assert others.remedy == "check the operator there: cfo doctor --namespace ops"


@pytest.mark.parametrize(("replicas", "expected"), [(1, []), (2, ["warn"])])
def test_replicas_without_leader_election_are_several_operators(
    replicas: int, expected: list[str]
) -> None:
    parsed = parse("leaderElection: {leaderElect: false}")
    installation = Installation("ops", parsed=parsed, deployment=deployment(replicas=replicas))
    assert states(checks.check_leader_election(installation)) == expected
    installation = Installation("ops", parsed=parse(""), deployment=deployment(replicas=replicas))
    assert states(checks.check_leader_election(installation)) == []


def test_config_map_of_another_name_needs_a_role_that_the_manifests_lack() -> None:
    user = "system:serviceaccount:ops:manager"
    assert list(checks.check_configuration_role(user, Installation("ops"))) == []
    installation = Installation("ops", config_name="mine")
    (finding,) = checks.check_configuration_role(user, installation)
    assert finding.remedy == (
        "kubectl -n ops create role mine --verb get,list,watch --resource configmaps --resource-name mine && "
        "kubectl -n ops create rolebinding mine --role mine --serviceaccount ops:manager; "
        "or run the operator without --config"
    )


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ([], CONFIG_MAP_NAME),
        (["--config", "mine"], "mine"),
        (["-config=mine"], "mine"),
        (["--config=other", "--default-config={}", "--config=mine"], "mine"),
        (["--config"], CONFIG_MAP_NAME),
        (["--config=../secrets/x"], CONFIG_MAP_NAME),
    ],
)
def test_config_map_is_that_of_the_arguments(arguments: list[str], name: str) -> None:
    installed = deployment()
    installed["spec"]["template"]["spec"]["containers"][0]["args"] = arguments
    assert configuration_name(installed) == name
    assert configuration_name(None) == CONFIG_MAP_NAME


def test_paths_of_one_server_are_one_target() -> None:
    urls = [f"https://127.0.0.1:{port}/{path}" for port in (9443, 9444) for path in ("a", "b")]
    (finding,) = checks.check_webhooks([webhooks(services={}, urls=tuple(urls))], NOW)
    assert finding.message == "validating leads to https://127.0.0.1:9443, https://127.0.0.1:9444"


def test_serving_certificate_is_valid_and_trusted() -> None:
    ca, other = create_ca(), create_ca()
    leaf = create_certificate(ca, "webhooks", HOST, days=365)
    now = leaf.certificate.not_valid_before_utc + timedelta(hours=1)
    trusting = webhooks(bundles=(other.cert_pem + ca.cert_pem,))

    def findings_of(
        pem: bytes | None, facts: list[WebhookConfigurationFacts], later: timedelta = timedelta()
    ) -> list[Finding]:
        return list(checks.check_certificate(SECRET, pem, facts, now + later))

    assert states(findings_of(leaf.cert_pem, [trusting])) == ["ok", "ok"]
    assert states(findings_of(leaf.cert_pem, [webhooks(bundles=(leaf.cert_pem,))])) == ["ok", "ok"]
    assert states(findings_of(leaf.cert_pem, [trusting], timedelta(days=350))) == ["warn", "ok"]
    assert states(findings_of(leaf.cert_pem, [trusting], timedelta(days=366))) == ["fail", "ok"]
    assert states(findings_of(leaf.cert_pem, [trusting], timedelta(days=-1))) == ["fail", "ok"]
    (missing,) = findings_of(None, [trusting])
    assert missing.status == "fail"
    assert missing.remedy.startswith("see the check of the operator, which creates it")
    assert missing.remedy.endswith("kubectl -n ops logs deployment/codeflare-operator-manager")
    assert states(findings_of(b"text", [trusting])) == ["fail"]
    for bundle in (other.cert_pem, b"", b"text"):
        assert states(
            findings_of(leaf.cert_pem, [trusting, webhooks(bundles=(ca.cert_pem, bundle))])
        ) == ["ok", "fail"]
    unnamed = create_certificate(ca, "webhooks", "other.ops.svc", days=365)
    assert states(findings_of(unnamed.cert_pem, [trusting])) == ["ok", "fail", "ok"]
    assert states(findings_of(create_certificate(ca, "x", days=365).cert_pem, [trusting])) == [
        "ok",
        "fail",
        "ok",
    ]
    assert states(findings_of(None, [webhooks(services={}, urls=("https://x",))])) == ["skip"]


@pytest.mark.parametrize(
    ("name", "has_cert_manager", "message", "remedy"),
    [
        (CERTIFICATE, False, "the CRD certificates.cert-manager.io does not exist", "install cert"),
        (CERTIFICATE, True, f"from the Certificate ops/{CERTIFICATE}", "check that cert-manager"),
        ("mounted", False, "Secret ops/mounted does not exist", "such as OLM"),
    ],
)
def test_missing_certificate_names_who_creates_it(
    name: str, has_cert_manager: bool, message: str, remedy: str
) -> None:
    secret = NamespacedName("ops", name)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    (found,) = checks.check_certificate(
        secret, None, [webhooks()], now, has_cert_manager=has_cert_manager
    )
    assert found.status == "fail"
    assert message in found.message
    assert remedy in found.remedy
    assert "kubectl -n ops logs" not in found.remedy


@pytest.mark.parametrize(
    ("secure", "scheme", "expected"),
    [(False, "http", "ok"), (True, "http", "warn"), (True, "https", "ok")],
)
def test_monitor_with_http_does_not_fit_a_secure_endpoint(
    secure: bool, scheme: str, expected: str
) -> None:
    installation = Installation("ops", parsed=parse(f"metrics: {{secureServing: {secure}}}"))
    metadata = {"namespace": "ops", "name": "metrics"}
    monitor = {"metadata": metadata, "spec": {"endpoints": [{"scheme": scheme}]}}
    assert states(checks.check_monitoring(monitor, installation)) == [expected]
    assert states(checks.check_monitoring(None, installation)) == ["skip"]


@pytest.mark.parametrize(
    ("settings", "is_openshift", "env", "expected"),
    [
        ("{}", False, [], "warn"),
        ("{}", False, [{"name": "CERT_GENERATOR_IMAGE", "value": ""}], "warn"),
        ("{}", False, [{"name": "CERT_GENERATOR_IMAGE", "value": "mirror.test/ubi"}], "ok"),
        ("{}", True, [], "skip"),
        ("kuberay: {mTLSEnabled: false}", False, [], "skip"),
    ],
)
def test_default_image_of_certificates_is_warned_of_outside_openshift(
    settings: str, is_openshift: bool, env: list[Any], expected: str
) -> None:
    installed = deployment()
    installed["spec"]["template"]["spec"]["containers"][0]["env"] = env
    installation = Installation("ops", parsed=parse(settings), deployment=installed)
    assert states(checks.check_images(installation, is_openshift=is_openshift)) == [expected]


OF_HELM = {
    "labels": {"app.kubernetes.io/managed-by": "Helm"},
    "annotations": {
        "meta.helm.sh/release-name": "mine",
        "meta.helm.sh/release-namespace": "ops",
    },
}


@pytest.mark.parametrize(
    ("metadata", "remedy"),
    [
        ({}, "kubectl -n ops set env deployment/codeflare-operator-manager CERT_GENERATOR_IMAGE="),
        (OF_HELM, "value: IMAGE} to env in the values of the Helm release mine"),
        ({"labels": {"olm.owner": "csv"}}, "with OLM (in a Subscription, spec.config.env)"),
    ],
)
def test_settings_are_changed_with_the_tool_that_installed_the_operator(
    metadata: dict[str, Any], remedy: str
) -> None:
    installed = {**deployment(), "metadata": {"namespace": "ops", **metadata}}
    installation = Installation("ops", parsed=parse(""), deployment=installed)
    (finding,) = checks.check_images(installation, is_openshift=False)
    assert remedy in finding.remedy


def test_missing_permissions_are_shown_as_rules_of_their_component() -> None:
    base = (
        Rule("", "secrets", "get", ["a"], namespace="ops"),
        Rule("ray.io", "rayclusters", "list"),
        Rule("ray.io", "rayclusters", "watch"),
    )
    many = [Rule("", f"kind{index}s", "get") for index in range(9)]
    delete = [Rule("rbac.authorization.k8s.io", "clusterrolebindings", "delete")]
    missing = {"": base, "flux": many, "authentication": delete}
    facts = PermissionFacts(99, 99, missing, frozenset({"authentication"}))
    first, second, third = checks.check_permissions("me", facts)
    assert first.message == (
        "missing of the base role: list, watch rayclusters.ray.io; get secrets named a in namespace ops"
    )
    assert second.message.startswith("missing of the component flux: ")
    assert all(rule.resources[0] in second.message for rule in many), "nothing is hidden"
    assert third.message == (
        "missing of the component authentication, whose feature is disabled, but its objects still have to be deleted: "
        "delete clusterrolebindings.rbac.authorization.k8s.io"
    )
    assert states(checks.check_permissions("me", PermissionFacts(3, 3, {}))) == ["ok"]
    facts = PermissionFacts(99, 99, {"flux": many}, needed={"flux": 9})
    (whole,) = checks.check_permissions("me", facts)
    assert whole.message == "missing: the component flux, with all of its 9 permissions"


def test_missing_permissions_of_many_namespaces_are_one_short_line() -> None:
    namespaces = [f"team-{index:02}" for index in range(50)]
    rules = [
        Rule("", f"kind{index}s", verb, [f"name{index}"], namespace=namespace)
        for index in range(40)
        for verb in ("get", "watch")
        for namespace in namespaces
    ]
    rules.append(Rule("apiextensions.k8s.io", "customresourcedefinitions", "list"))
    facts = PermissionFacts(5000, 5000, {"": rules})
    (finding,) = checks.check_permissions("me", facts)
    first, second, *_, last = finding.message.split("; ")
    assert first.endswith(
        "missing of the base role: list customresourcedefinitions.apiextensions.k8s.io"
    )
    places = "team-00, team-01, team-02, team-03, team-04 and 45 more"
    assert second == f"get, watch kind0s named name0 in namespaces {places}"
    assert last == "and 29 more rules"


def test_permissions_that_were_not_checked_are_a_warning() -> None:
    (finding,) = checks.check_permissions("me", PermissionFacts(2000, 3000, {}))
    assert finding.status == "warn"
    assert finding.message == "2000 of 3000 permissions were checked; me has all of these"
    missing = {"flux": [Rule("", "pods", "get"), Rule("", "pods", "list")]}
    facts = PermissionFacts(2000, 3000, missing, needed={"flux": 2})
    first, second = checks.check_permissions("me", facts)
    assert first.message == (
        "missing: the component flux, with all 2 permissions of it that were checked"
    )
    assert second.message == "2000 of 3000 permissions were checked"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("v1.34.0", "ok"),
        ("v1.37.9+k3s1", "ok"),
        ("v1.33.9", "warn"),
        ("v1.38.0", "warn"),
        ("", "skip"),
    ],
)
def test_kubernetes_is_in_the_matrix(version: str, expected: str) -> None:
    assert states(checks.check_kubernetes(version, "1.34 to 1.37")) == [expected]


@pytest.mark.parametrize(
    ("skew", "expected"),
    [(None, "skip"), (0, "ok"), (-4.9, "ok"), (6, "warn"), (-59, "warn"), (61, "fail")],
)
def test_clocks_agree(skew: float | None, expected: str) -> None:
    assert states(checks.check_clock(skew)) == [expected]


def test_names_of_unneeded_role_bindings_are_quoted() -> None:
    unused = [NamespacedName("b", "y"), NamespacedName("a", "x; rm"), NamespacedName("a", "--all")]
    (finding,) = checks.check_unused_bindings("account", unused)
    assert finding.message.endswith("no longer contains their namespaces a, b")
    command = "kubectl -n a delete rolebindings -- --all 'x; rm'"
    assert finding.remedy == f"{command}, and the same in namespace b"
    assert list(checks.check_unused_bindings("account", [])) == []
