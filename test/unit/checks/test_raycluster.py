"""The checks of RayClusters: facts in, findings out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest

from cfo.checks import raycluster
from cfo.checks.components import InstalledCRD
from cfo.checks.findings import Finding
from cfo.checks.raycluster import Admission
from cfo.config.document import parse
from cfo.config.model import OperatorConfiguration
from cfo.runtime import NamespacedName, Object

RAY = NamespacedName("ray", "kuberay-operator")
CRD = InstalledCRD(exists=True, established=True, served=("v1", "v1alpha1"))


REFUSAL = (
    'admission webhook "vraycluster.ray.openshift.ai" denied the request: spec: Required value'
)


def states(findings: Iterable[Finding]) -> list[str]:
    return [str(finding.status) for finding in findings]


@pytest.mark.parametrize(
    ("admission", "enabled", "expected"),
    [
        (Admission(served=False), True, "skip"),
        (Admission(served=True, defaulted=True), True, "ok"),
        (Admission(served=True), True, "fail"),
        (Admission(served=True), False, "ok"),
        (Admission(served=True, error='failed calling webhook "m": refused'), True, "fail"),
        (Admission(served=True, error="quota exceeded"), True, "warn"),
        (Admission(served=True, error=REFUSAL), True, "warn"),
    ],
)
def test_dry_run_passes_through_the_webhooks(
    admission: Admission, enabled: bool, expected: str
) -> None:
    configuration = parse(f"kuberay: {{enabled: {str(enabled).lower()}}}").configuration
    (finding,) = raycluster.check_admission(admission, configuration)
    assert finding.status == expected
    assert ("see the check webhooks, because" in finding.remedy) is (admission.error == REFUSAL)


@pytest.mark.parametrize(("has_routes", "expected"), [(True, "skip"), (False, "fail")])
def test_gateway_needs_the_crd_of_routes(expected: str, *, has_routes: bool) -> None:
    assert raycluster.check_gateway(has_routes=has_routes).status == expected


def test_webhooks_of_an_operator_that_ended_are_not_blamed_on_a_firewall() -> None:
    error = 'failed calling webhook "m": Post "https://127.0.0.1:9443/m": connection refused'
    admission = Admission(served=True, error=error, url="https://127.0.0.1:9443")
    (finding,) = raycluster.check_admission(admission, OperatorConfiguration())
    assert "registered at https://127.0.0.1:9443: if the operator there has ended" in finding.remedy
    assert "firewall" not in finding.remedy


@pytest.mark.parametrize(
    ("admitted", "expected"),
    [([], ["ok"]), (["other", RAY.namespace], ["ok"]), (["other"], ["ok", "warn"])],
)
def test_namespaces_that_do_not_admit_kuberay_to_the_heads_are_a_warning(
    admitted: list[str], expected: list[str]
) -> None:
    configuration = OperatorConfiguration.from_document(
        {"kuberay": {"operatorNamespaces": admitted}}
    )
    found = list(
        raycluster.check_kuberay(
            CRD, [(RAY, "quay.io/kuberay/operator:v1.7.3")], configuration, "v1.7.0"
        )
    )
    assert states(found) == expected


@pytest.mark.parametrize(
    ("crd", "images", "expected"),
    [
        (InstalledCRD(exists=False), [], ["fail"]),
        (InstalledCRD(exists=True), ["operator:v1.7.0"], ["fail"]),
        (
            InstalledCRD(exists=True, established=True, served=("v1alpha1",)),
            ["operator:v1.7.0"],
            ["fail"],
        ),
        (CRD, [], ["warn"]),
        (CRD, ["quay.io/kuberay/operator:v1.7.3"], ["ok"]),
        (CRD, ["quay.io/kuberay/operator:v1.4.2"], ["warn"]),
        (CRD, ["quay.io/kuberay/operator:nightly"], ["skip"]),
    ],
)
def test_kuberay_is_installed_in_a_tested_version(
    crd: InstalledCRD, images: list[str], expected: list[str]
) -> None:
    operators = [(RAY, image) for image in images]
    assert (
        states(raycluster.check_kuberay(crd, operators, OperatorConfiguration(), "v1.7.0"))
        == expected
    )
    disabled = parse("kuberay: {enabled: false}").configuration
    assert states(raycluster.check_kuberay(crd, operators, disabled, "v1.7.0")) == ["skip"]


def test_deployments_of_users_do_not_fill_the_report() -> None:
    operators = [
        (NamespacedName(f"team-{number}", "kuberay-operator"), "x:v1.7.0") for number in range(300)
    ]
    *_, last = found = list(
        raycluster.check_kuberay(CRD, operators, OperatorConfiguration(), "v1.7.0")
    )
    assert len(found) == 6
    assert last.message.startswith("not shown: 295 more Deployments")


@pytest.mark.parametrize(
    ("detected", "document", "expected"),
    [
        ("", "kuberay: {ingressDomain: a.test}", "ok"),
        ("b.test", "", "ok"),
        ("", "", "warn"),
        ("", "kuberay: {enabled: false}", "skip"),
        (
            "",
            "kuberay: {gateway: {name: g, namespace: n, dashboardListener: d, dashboardHost: h.test}}",
            "ok",
        ),
    ],
)
def test_domain_is_known(detected: str, document: str, expected: str) -> None:
    assert states(raycluster.check_domain(detected, parse(document).configuration)) == [expected]


def ingress_class(name: str, *, is_default: bool = False) -> Object:
    annotations = {"ingressclass.kubernetes.io/is-default-class": str(is_default).lower()}
    return {"metadata": {"name": name, "annotations": annotations}}


@pytest.mark.parametrize(
    ("classes", "kuberay", "is_openshift", "expected"),
    [
        ([], {}, False, "warn"),
        ([], {}, True, "skip"),
        ([], {"enabled": False}, False, "skip"),
        ([], {"ingressDomain": ""}, False, "skip"),
        ([], {"ingress": {"className": "a"}}, False, "warn"),
        ([ingress_class("a")], {"ingress": {"className": "a"}}, False, "ok"),
        ([ingress_class("a")], {"ingress": {"className": "b"}}, False, "warn"),
        ([ingress_class("a")], {}, False, "warn"),
        ([ingress_class("a"), ingress_class("b", is_default=True)], {}, False, "ok"),
    ],
)
def test_ingresses_have_a_class(
    classes: list[Object], kuberay: dict[str, Any], *, is_openshift: bool, expected: str
) -> None:
    document = {"kuberay": {"ingressDomain": "apps.test", **kuberay}}
    configuration = OperatorConfiguration.from_document(document)
    found = raycluster.check_ingress(classes, configuration, is_openshift=is_openshift)
    assert states(found) == [expected]


TOKENS = {"kubeRayFeatures": ["authOptions"]}
ENFORCED = {
    "rayDashboardOAuthEnabled": False,
    "profiles": [{"name": "strict", "authentication": "enforced"}],
}


@pytest.mark.parametrize(
    ("kuberay", "is_openshift", "has_login", "expected"),
    [
        ({}, True, True, "ok OpenShift's OAuth server logs users in"),
        ({}, True, False, "warn no dashboard is exposed: .*OAuth server does not log users in"),
        ({}, False, True, "warn no dashboard is exposed: .*the cluster is not OpenShift"),
        ({"authentication": {"enabled": True}}, False, True, "ok "),
        (TOKENS, False, True, "ok only dashboards of RayClusters with Ray's own tokens"),
        (ENFORCED, False, True, "warn no dashboard is exposed in the namespaces of the profiles"),
        ({"rayDashboardOAuthEnabled": False}, False, True, "skip .*: dashboards require no login"),
        ({"rayDashboardOAuthEnabled": False}, True, True, "skip .*: no dashboard is exposed"),
        ({"enabled": False}, False, True, "skip "),
    ],
)
def test_dashboards_that_require_a_login_have_one(
    kuberay: dict[str, Any], *, is_openshift: bool, has_login: bool, expected: str
) -> None:
    configuration = OperatorConfiguration.from_document({"kuberay": kuberay})
    finding = raycluster.check_authentication(
        configuration, is_openshift=is_openshift, has_openshift_login=has_login
    )
    assert re.match(expected, f"{finding.status} {finding.message}")


def test_remedy_does_not_admit_the_namespace_of_a_tenant() -> None:
    configuration = OperatorConfiguration.from_document(
        {"kuberay": {"operatorNamespaces": ["old"]}}
    )
    found = [
        (NamespacedName("kuberay", "o"), "k:v1.7.0"),
        (NamespacedName("tenant", "o"), "k:v1.7.0"),
    ]
    *_, finding = raycluster.check_kuberay(CRD, found, configuration, "1.7.0")
    assert finding.status == "warn"
    assert "KubeRay runs in kuberay, tenant" in finding.message
    assert "tenant" not in finding.remedy
