"""Profiles of the configuration: validation, and which one applies to a namespace."""

from __future__ import annotations

import pytest

from cfo.api.raycluster.facts import Concern
from cfo.config.document import parse
from cfo.config.kuberay import KubeRayConfiguration, ProfileTable
from cfo.config.section import ConfigurationError

STRICT = "{name: strict, namespaceSelector: tenant, networkPolicy: enforced, mTLS: enforced, authentication: enforced}"
TRUSTED = '{name: trusted, namespaceSelector: "tenant in (a, b)"}'
FEATURES = "[networkPolicy, networkIsolation, secureTrustedNetwork, tlsOptions, authOptions, ingressOptions]"


def config(*profiles: str) -> KubeRayConfiguration:
    settings = f"mTLSEnabled: false, rayDashboardOAuthEnabled: false, kubeRayFeatures: {FEATURES}"
    return parse(
        f"kuberay: {{{settings}, profiles: [{', '.join(profiles)}]}}"
    ).configuration.kuberay


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("kuberay: {profiles: [{}]}", "kuberay.profiles[0].name: "),
        (
            "kuberay: {profiles: [{name: A}]}",
            "kuberay.profiles[0].name: 'A': must be a lower-case DNS label",
        ),
        (
            "kuberay: {profiles: [{name: a, mTLS: disabled}]}",
            "kuberay.profiles[0].mTLS: 'disabled': must be",
        ),
        (
            "kuberay: {profiles: [{name: a, namespaceSelector: '=='}]}",
            "kuberay.profiles[0].namespaceSelector: ",
        ),
        (
            "kuberay: {profiles: [{name: a}, {name: a}]}",
            "profiles: the name a is used more than once",
        ),
        (
            "{watchNamespaces: [a], kuberay: {profiles: [{name: a}]}}",
            "kuberay.profiles requires an operator for all",
        ),
    ],
)
def test_invalid_profile_is_reported_with_path(document: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse(document)
    assert message in str(raised.value)


def test_first_matching_profile_applies() -> None:
    table = ProfileTable(config(TRUSTED, STRICT))
    assert table.of_labels({"tenant": "c"}).profile == "strict"
    trusted = table.of_labels({"tenant": "a"})
    assert (trusted.profile, trusted.enforced, trusted.kuberay) == (
        "trusted",
        frozenset(),
        config(TRUSTED, STRICT),
    )
    assert table.of_labels({}).profile == ""
    assert ProfileTable(config(STRICT, TRUSTED)).of_labels({"tenant": "a"}).profile == "strict"


def test_profile_enables_what_it_enforces_and_disables_weaker_features() -> None:
    settings = ProfileTable(config(STRICT)).of_labels({"tenant": ""})
    assert settings.enforced < {concern.value for concern in Concern}
    assert settings.kuberay.mtls_enabled
    assert settings.kuberay.ray_dashboard_oauth_enabled
    assert settings.kuberay.kuberay_features == [
        "secureTrustedNetwork",
        "tlsOptions",
        "authOptions",
    ]


def test_strictest_settings_enforce_everything_that_any_profile_enforces() -> None:
    profiles = (
        "{name: a, mTLS: enforced}",
        "{name: b, namespaceSelector: x=y, authentication: enforced}",
    )
    assert ProfileTable(config(*profiles)).strictest().enforced == {"mtls", "authentication"}
    assert ProfileTable(config()).strictest().profile == ""
