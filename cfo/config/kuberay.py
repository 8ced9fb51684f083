"""The section ``kuberay``, with the CA of RayClusters, and its profiles for namespaces.

A profile only adds protection. What it enforces applies in its namespaces as if the configuration enabled it for all
RayClusters, and features of KubeRay that a RayCluster could use instead are treated as inactive:

* ``networkPolicy``: the operator always provides the policies. KubeRay's policies only add to them.
* ``mTLS``: Ray nodes use mutual TLS, even if ``kuberay.mTLSEnabled`` is false.
* ``authentication``: dashboards require a login, even if ``kuberay.rayDashboardOAuthEnabled`` is false, and KubeRay's
  Ingress, which requires none, is not available (``ingressOptions``).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, Self

from msgspec import field, structs

from cfo.config.authentication import AuthenticationConfiguration
from cfo.config.durations import Duration
from cfo.config.network import (
    GatewayConfiguration,
    IngressConfiguration,
    NetworkPolicyConfiguration,
)
from cfo.config.section import Section
from cfo.config.values import DNS_LABEL, Domain, Namespace, Selector, matching
from cfo.runtime import LabelSelector


class CertificateLifetime(Duration):
    """A duration of at least one hour."""

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return a duration. Raises :class:`ValueError` with what is allowed."""
        lifetime = super().parse(value)
        if lifetime < timedelta(hours=1):
            raise ValueError("must be at least 1h")
        return lifetime


class CAConfiguration(Section):
    """The certificate authority (CA) that each RayCluster gets for mTLS."""

    key_algorithm: Annotated[
        Literal["ecdsa", "rsa"],
        "Key algorithm of new CAs: `ecdsa` (P-256) or `rsa` (2048 bits).",
    ] = "ecdsa"
    issuer: Annotated[
        Literal["secret", "certificateSigningRequest"],
        "How the pods of new RayClusters get their certificates: `secret`: an init container signs them with the "
        "CA's key, which it mounts; `certificateSigningRequest`: it requests them from the operator (component "
        "`csr`).",
    ] = "secret"
    node_certificate_lifetime: Annotated[
        CertificateLifetime,
        "Validity of the certificates that the operator issues for pods, at least 1h. Restart pods before that: Ray "
        "does not reload certificates.",
    ] = CertificateLifetime(days=365)

    @classmethod
    def normalized(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``data`` with the algorithm in lower case."""
        algorithm = data.get("keyAlgorithm")
        if isinstance(algorithm, str):
            return {**data, "keyAlgorithm": algorithm.lower()}
        return data


class ProfileConfiguration(Section):
    """What is enforced for every RayCluster in some namespaces; ``default`` enforces nothing."""

    name: Annotated[str, matching(DNS_LABEL, "a lower-case DNS label")]
    namespace_selector: Selector = Selector("")
    network_policy: Literal["default", "enforced"] = "default"
    mtls: Literal["default", "enforced"] = field(default="default", name="mTLS")
    authentication: Literal["default", "enforced"] = "default"


class KubeRayConfiguration(Section):
    """The RayCluster controllers and webhooks."""

    enabled: Annotated[
        bool, "Whether the RayCluster controllers run and their webhooks are served."
    ] = True
    ray_dashboard_oauth_enabled: Annotated[
        bool,
        "Whether the dashboard requires authentication: by OpenShift's OAuth proxy or by `authentication`.",
    ] = field(default=True, name="rayDashboardOAuthEnabled")
    ingress_domain: Annotated[
        Domain,
        "Domain of dashboards and Ray clients; if empty, the domain in `ingresses.config.openshift.io/cluster`, if "
        "that exists.",
    ] = ""
    mtls_enabled: Annotated[bool, "Whether Ray nodes and clients use mutual TLS."] = field(
        default=True, name="mTLSEnabled"
    )
    operator_namespaces: Annotated[
        list[Namespace],
        "Namespaces of the KubeRay operator, which may reach head pods; if empty, they are detected.",
    ] = field(default_factory=list)
    kuberay_features: Annotated[
        list[
            Literal[
                "networkIsolation",
                "networkPolicy",
                "secureTrustedNetwork",
                "tlsOptions",
                "authOptions",
                "ingressOptions",
            ]
        ],
        "Features that are active in KubeRay; RayClusters that use one do not get the operator's own objects and "
        "pod template entries for it. `networkPolicy` is the feature gate `RayClusterNetworkPolicy`, `tlsOptions` "
        "is `RayClusterMTLS`; `networkIsolation` and `secureTrustedNetwork` are Open Data Hub's.",
    ] = field(default_factory=list, name="kubeRayFeatures")
    profiles: Annotated[
        list[ProfileConfiguration],
        "Profiles for namespaces; the first one whose `namespaceSelector` (a label selector such as "
        "`tenant=research`; if empty, all namespaces) matches applies. Each has a `name`. `networkPolicy`, `mTLS` "
        "and `authentication` can be `enforced`. Not with `watchNamespaces`, because the operator has to read "
        "Namespaces.",
    ] = field(default_factory=list)
    authentication: AuthenticationConfiguration = AuthenticationConfiguration()
    ingress: IngressConfiguration = IngressConfiguration()
    gateway: GatewayConfiguration = GatewayConfiguration()
    network_policy: NetworkPolicyConfiguration = NetworkPolicyConfiguration()
    ca: CAConfiguration = CAConfiguration()

    def conflicts(self) -> Iterator[str]:
        """Yield what is wrong with settings that depend on each other."""
        names: set[str] = set()
        for profile in self.profiles:
            if profile.name in names:
                yield f"profiles: the name {profile.name} is used more than once"
            names.add(profile.name)
        requires_login = self.ray_dashboard_oauth_enabled or any(
            profile.authentication == "enforced" for profile in self.profiles
        )
        if self.authentication.enabled and not requires_login:
            yield (
                "authentication.enabled requires rayDashboardOAuthEnabled: true, or a profile that enforces "
                "authentication; otherwise dashboards are exposed without authentication"
            )
        # The proxies, which would receive the session of another dashboard, run in tenants' pods.
        if self.gateway.dashboard_host and self.authentication.oidc is not None:
            yield (
                "gateway.dashboardHost and authentication.oidc must not be set together, because browsers would send "
                "the session of one dashboard to all others: unset gateway.dashboardHost"
            )


_REPLACED_FEATURES: Final[Mapping[str, frozenset[str]]] = {
    "network_policy": frozenset({"networkPolicy", "networkIsolation"}),
    "mtls": frozenset(),
    "authentication": frozenset({"ingressOptions"}),
}
"""By setting of a profile: the features of KubeRay that are treated as inactive if it is enforced."""


@dataclass(frozen=True, slots=True)
class NamespaceSettings:
    """The settings for the RayClusters of one namespace.

    ``kuberay`` is the configuration with everything that the profile enforces. ``profile`` is the name of the profile,
    for messages; empty if none applies. ``enforced`` are the settings that it enforces, by the names of the fields of
    :class:`ProfileConfiguration`, which are the values of :class:`~cfo.api.raycluster.facts.Concern`.
    """

    kuberay: KubeRayConfiguration
    profile: str = ""
    enforced: frozenset[str] = frozenset()


class ProfileTable:
    """The settings for namespaces by their labels: the first profile that matches applies."""

    def __init__(self, config: KubeRayConfiguration) -> None:
        self._default = NamespaceSettings(config)
        self._strictest = self._default
        self._settings: list[tuple[LabelSelector, NamespaceSettings]] = []
        enforced_by_any: set[str] = set()
        for profile in config.profiles:
            enforced = _enforced_by(profile)
            enforced_by_any |= enforced
            selector = LabelSelector.of(profile.namespace_selector)
            self._settings.append((selector, _settings(config, profile.name, enforced)))
        if config.profiles:
            self._strictest = _settings(config, "of all namespaces", frozenset(enforced_by_any))

    def of_labels(self, labels: Mapping[str, str]) -> NamespaceSettings:
        """Return the settings for a namespace with these labels."""
        for selector, settings in self._settings:
            if selector.matches(labels):
                return settings
        return self._default

    def strictest(self) -> NamespaceSettings:
        """Return settings that enforce everything that any profile enforces; the default if there are no profiles."""
        return self._strictest


def _enforced_by(profile: ProfileConfiguration) -> frozenset[str]:
    return frozenset(name for name in _REPLACED_FEATURES if getattr(profile, name) == "enforced")


def _settings(
    config: KubeRayConfiguration, profile: str, enforced: frozenset[str]
) -> NamespaceSettings:
    """Return the settings of a namespace to which a profile applies that enforces the settings ``enforced``."""
    inactive: set[str] = set()
    for name in enforced:
        inactive |= _REPLACED_FEATURES[name]
    features = [feature for feature in config.kuberay_features if feature not in inactive]
    changes: dict[str, Any] = {"kuberay_features": features}
    if "mtls" in enforced:
        changes["mtls_enabled"] = True
    if "authentication" in enforced:
        changes["ray_dashboard_oauth_enabled"] = True
    return NamespaceSettings(structs.replace(config, **changes), profile, enforced)
