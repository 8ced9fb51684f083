"""How a changed ConfigMap differs from the configuration in use."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.config.document import default_document, parse
from cfo.config.watch import compare_configuration, configuration_watch_rules

USED = parse("kuberay: {ingressDomain: a.test}")


@pytest.mark.parametrize(
    ("data", "reason", "text"),
    [
        ({"config.yaml": "kuberay: {ingressDomain: a.test}"}, "", ""),
        ({"other": "# comment\nkuberay:\n  ingressDomain: a.test\n"}, "", ""),
        (
            {"a": "kuberay: {ingressDomain: b.test}"},
            "ConfigurationChanged",
            "the new values of kuberay.ingressDomain.",
        ),
        (
            {"a": default_document()},
            "ConfigurationChanged",
            "the new values of kuberay.ingressDomain.",
        ),
        (
            {"a": "kuberay: {ingressDomain: 5}"},
            "ConfigurationInvalid",
            "kuberay.ingressDomain: 5: must be",
        ),
        ({}, "ConfigurationInvalid", "must contain exactly one key"),
        ({"a": "#" * 65537}, "ConfigurationInvalid", "a: is larger than 64 KiB"),
        (None, "ConfigurationDeleted", "was deleted"),
    ],
)
def test_change_is_named_with_what_to_do(
    data: dict[str, Any] | None, reason: str, text: str
) -> None:
    change = compare_configuration(USED, data)
    assert change.reason == reason
    assert text in change.message


def test_only_the_first_settings_are_named() -> None:
    tolerance = (
        "{admissionGracePeriod: 1s, warmupGracePeriod: 1s, failureGracePeriod: 1s, "
        "resetPause: 1s, retryLimit: 9}"
    )
    kuberay = (
        "{mTLSEnabled: false, rayDashboardOAuthEnabled: false, operatorNamespaces: "
        "[a], kubeRayFeatures: [tlsOptions]}"
    )
    document = f"appwrapper: {{enabled: true, schedulerName: x, faultTolerance: {tolerance}}}\nkuberay: {kuberay}"
    change = compare_configuration(USED, {"a": document})
    assert len(change.settings) == 12
    assert " and 2 more." in change.message


def test_only_the_named_config_map_may_be_watched() -> None:
    (rule,) = configuration_watch_rules("config", "ops")
    assert (rule.resources, rule.verbs) == (("configmaps",), ("list", "watch"))
    assert (rule.resource_names, rule.namespace) == (("config",), "ops")
