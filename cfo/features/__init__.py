"""The optional features of the operator, and the permissions that each needs in addition to those of the base role.

Each feature has a role of its own, which is installed only with the feature, so that an operator without AppWrappers
cannot create pods, for example. The configuration, or the platform, enables a feature; if its role is missing, the
controllers of the feature wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from cfo.api.gateway import GROUP as GATEWAY_GROUP
from cfo.api.raycluster.kinds import ROUTE
from cfo.config import OperatorConfiguration, ProfileTable
from cfo.console.dashboard import in_cluster
from cfo.controllers import appwrapper, flux, inferencestack, raycluster
from cfo.runtime import APIError, Client, DiscoveryIncomplete, Rule, TransportError, UnknownKind

__all__ = ["FEATURES", "Feature", "enabled_features", "warn_about_missing_roles"]

_log = structlog.get_logger("cfo.features")


@dataclass(frozen=True, slots=True)
class Feature:
    """An optional feature: its name in the manifests, its rules, and the permission that identifies its role.

    ``bound_roles`` are the names and rules of the ClusterRoles that the operator binds to other subjects.
    """

    name: str
    title: str
    rules: Callable[[], list[Rule]]
    group: str
    resource: str
    verb: str = "update"
    bound_roles: Mapping[str, Iterable[Rule]] = field(default_factory=dict)


FEATURES: Final = (
    Feature("appwrapper", "AppWrappers", appwrapper.rules, "workload.codeflare.dev", "appwrappers/finalizers"),
    Feature("kueue", "Kueue", appwrapper.kueue_rules, "kueue.x-k8s.io", "workloads/finalizers"),
    Feature("flux", "Flux", flux.rules, "flux-framework.org", "miniclusters/finalizers"),
    Feature("inferencestack", "InferenceStacks", inferencestack.rules, "doublewordai.co", "inferencestacks/finalizers"),
    Feature("openshift", "OpenShift", raycluster.openshift_rules, ROUTE.group, "routes"),
    Feature("gateway", "the Gateway API", raycluster.gateway_rules, GATEWAY_GROUP, "httproutes", "create"),
    Feature(
        "authentication",
        "the authentication of dashboards",
        raycluster.authentication_rules,
        "",
        "serviceaccounts",
        "patch",
    ),
    Feature("namespaces", "labels of Namespaces", raycluster.namespace_rules, "", "namespaces", "watch"),
    Feature(
        "csr",
        "certificate requests",
        raycluster.certificate_request_rules,
        "certificates.k8s.io",
        "certificatesigningrequests/approval",
        bound_roles=raycluster.REQUESTER_ROLES,
    ),
    Feature("dashboard", "the dashboard", in_cluster.rules, "", "events", "watch"),
)


async def enabled_features(client: Client, configuration: OperatorConfiguration) -> list[Feature]:
    """Return the features that ``configuration`` or the platform enables.

    Raises :class:`cfo.runtime.client.errors.APIError` and :class:`cfo.runtime.TransportError`.
    """
    wrappers = configuration.appwrapper
    enabled = {"appwrapper"} if wrappers.enabled else set()
    if wrappers.enabled and (wrappers.kueue_integration or wrappers.slack_queue_name):
        enabled.add("kueue")
    if configuration.flux.enabled:
        enabled.add("flux")
    if configuration.inference_stack.enabled:
        enabled.add("inferencestack")
    kuberay = configuration.kuberay
    strictest = ProfileTable(kuberay).strictest().kuberay
    authenticates = kuberay.authentication.enabled or "authOptions" in kuberay.kuberay_features
    if kuberay.enabled and strictest.ray_dashboard_oauth_enabled and authenticates:
        enabled.add("authentication")
    if kuberay.enabled and kuberay.gateway.enabled:
        enabled.add("gateway")
    selects_namespaces = kuberay.network_policy.default_deny.namespace_selector is not None
    if kuberay.enabled and (kuberay.profiles or selects_namespaces):
        enabled.add("namespaces")
    if kuberay.enabled and strictest.mtls_enabled and kuberay.ca.issuer == "certificateSigningRequest":
        enabled.add("csr")
    if kuberay.enabled:
        try:
            await client.mapper.resource(ROUTE)
            enabled.add("openshift")
        except (UnknownKind, DiscoveryIncomplete):
            pass  # not OpenShift, or its API server does not respond, and then the controllers retry
    if configuration.metrics.dashboard:
        enabled.add("dashboard")
    return [feature for feature in FEATURES if feature.name in enabled]


async def warn_about_missing_roles(client: Client, features: Iterable[Feature]) -> None:
    """Log a warning for each of ``features`` whose role is not installed, with the component that contains it.

    A failed request is ignored, because the controllers report missing permissions as well.
    """
    for feature in features:
        resource, _, subresource = feature.resource.partition("/")
        attributes = {"group": feature.group, "resource": resource, "subresource": subresource, "verb": feature.verb}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        try:
            response = await client.create(review)
        except (APIError, TransportError):
            continue
        if not (response.get("status") or {}).get("allowed"):
            _log.warning(
                f"The role for {feature.title} is not installed, waiting for it",
                component=feature.name,
                install=f"cfo manifests --with {feature.name}",
            )
