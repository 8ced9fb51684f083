"""Decides which profile applies to a namespace, and what it changes in the configuration.

A profile only adds protection. What it enforces applies in its namespaces as if the configuration enabled it for all
RayClusters, and features of other actors that a RayCluster could use instead are as if they were inactive:

* ``networkPolicy``: the operator always provides the policies. KubeRay's policies only add to them.
* ``mTLS``: Ray nodes use mutual TLS, even if ``kuberay.mTLSEnabled`` is false.
* ``authentication``: dashboards require a login, even if ``kuberay.rayDashboardOAuthEnabled`` is false, and KubeRay's
  Ingress, which requires none, is not available (``ingressOptions``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cfo.config.kuberay import KubeRayConfiguration, ProfileConfiguration
from cfo.runtime import LabelSelector

_CONCERNS: Final = ("network_policy", "mtls", "authentication")
_WITHOUT: Final[Mapping[str, frozenset[str]]] = {
    "network_policy": frozenset({"networkPolicy", "networkIsolation"}),
    "mtls": frozenset(),
    "authentication": frozenset({"ingressOptions"}),
}
"""By enforced concern: the features that are as if they were inactive."""


@dataclass(frozen=True, slots=True)
class NamespaceSettings:
    """The settings for the RayClusters of one namespace.

    ``kuberay`` is the configuration with everything that the profile enforces. ``profile`` is the name of the profile;
    empty if none applies. ``enforced`` are the values of the ``Concern`` members that it enforces.
    """

    kuberay: KubeRayConfiguration
    profile: str = ""
    enforced: frozenset[str] = frozenset()


class ProfileTable:
    """The settings for namespaces by their labels: the first profile that matches applies."""

    def __init__(self, config: KubeRayConfiguration) -> None:
        self._default = NamespaceSettings(config)
        self._settings = [
            (LabelSelector.of(profile.namespace_selector), _settings(config, profile.name, _enforced_by(profile)))
            for profile in config.profiles
        ]
        everything: Iterable[str] = (concern for profile in config.profiles for concern in _enforced_by(profile))
        self._strictest = _settings(config, "of all namespaces", frozenset(everything)) if config.profiles else None

    def of_labels(self, labels: Mapping[str, str]) -> NamespaceSettings:
        """Return the settings for a namespace with these labels."""
        return next((settings for selector, settings in self._settings if selector.matches(labels)), self._default)

    def strictest(self) -> NamespaceSettings:
        """Return settings that enforce everything that any profile enforces; the default if there are no profiles."""
        return self._strictest or self._default


def _enforced_by(profile: ProfileConfiguration) -> frozenset[str]:
    return frozenset(concern for concern in _CONCERNS if getattr(profile, concern) == "enforced")


def _settings(config: KubeRayConfiguration, name: str, enforced: frozenset[str]) -> NamespaceSettings:
    inactive = frozenset(feature for concern in enforced for feature in _WITHOUT[concern])
    changes: dict[str, Any] = {
        "kuberay_features": [feature for feature in config.kuberay_features if feature not in inactive]
    }
    if "mtls" in enforced:
        changes["mtls_enabled"] = True
    if "authentication" in enforced:
        changes["ray_dashboard_oauth_enabled"] = True
    return NamespaceSettings(config.model_copy(update=changes), name, enforced)
