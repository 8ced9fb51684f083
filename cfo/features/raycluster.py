"""RayClusters, and the optional roles of their controllers."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from cfo.api.gateway import GROUP as GATEWAY_GROUP
from cfo.api.raycluster.names import (
    CLUSTER_LABEL,
    DEFAULT_DENY_LABEL,
    DEFAULT_DENY_NAME,
    FIELD_MANAGER,
    FINALIZER,
    NAMESPACE_LABEL,
    RAY_CLUSTER,
    REQUESTER_ROLE,
    REQUESTER_RULES,
    REQUESTERS_LABEL,
    ROUTE,
)
from cfo.features.contract import Context, Kind, Leftovers, OptionalRole, UserRole
from cfo.runtime import GVK, NETWORK_POLICY, Rule
from cfo.runtime.objects import CLUSTER_ROLE_BINDING
from cfo.version import __version__

if TYPE_CHECKING:
    from cfo.checks.findings import Check
    from cfo.config.kuberay import KubeRayConfiguration
    from cfo.config.model import OperatorConfiguration
    from cfo.controllers.raycluster import ClusterEnvironment
    from cfo.summaries.kind_view import KindView


class RayClusters(Kind):
    """RayClusters, for which every operator has the permissions."""

    name = "raycluster"
    title = "RayClusters"
    gvks = (RAY_CLUSTER,)
    field_managers = (FIELD_MANAGER,)

    def is_enabled(self, configuration: OperatorConfiguration) -> bool:
        return configuration.kuberay.enabled

    def views(self) -> tuple[KindView, ...]:
        from cfo.summaries import raycluster, rayjob

        return (*raycluster.VIEWS, *rayjob.VIEWS)

    def base_rules(self, namespace: str) -> Sequence[Rule]:
        from cfo.controllers.raycluster import RULES

        return RULES

    def user_roles(self) -> Sequence[UserRole]:
        # to use RayClusters with Kubernetes tokens; the verb is Ray's own
        use = Rule(RAY_CLUSTER.group, "rayclusters", "ray:write")
        return (UserRole("ray-token-user-role", [use], ("admin", "edit")),)

    def finalizers(self) -> Mapping[GVK, str]:
        return {RAY_CLUSTER: FINALIZER}

    def conditions(self) -> Mapping[GVK, Collection[str]]:
        from cfo.api.raycluster.conditions import CONDITION_TYPES

        return {RAY_CLUSTER: CONDITION_TYPES}

    def leftovers(self) -> Sequence[Leftovers]:
        return (
            # with this policy, no one would admit anything to the pods of new RayClusters
            Leftovers(NETWORK_POLICY, DEFAULT_DENY_LABEL, DEFAULT_DENY_NAME),
            Leftovers(CLUSTER_ROLE_BINDING, REQUESTERS_LABEL),
        )

    def checks(self) -> Mapping[str, Check]:
        from cfo.checks import raycluster

        return {
            "admission": raycluster.admission,
            "kuberay": raycluster.kuberay,
            "domain": raycluster.domain,
            "ingress": raycluster.ingress,
            "authentication": raycluster.authentication,
        }

    def setup(self, context: Context) -> None:
        from cfo.controllers import raycluster

        environment = raycluster.setup(context.manager, context.configuration.kuberay)
        if context.serves_webhooks:
            _setup_webhook(context, environment)


def _setup_webhook(context: Context, environment: ClusterEnvironment) -> None:
    """Register the webhook, which reads the platform, the domain and the profiles through the controllers."""
    from cfo.webhooks.raycluster import Images, RayClusterWebhook, setup

    client = context.manager.client
    webhook = RayClusterWebhook(
        version=f"v{__version__}",
        settings_of=lambda namespace: environment.profiles.settings(client, namespace),
        has_oauth_server=environment.platform.has_oauth_server,
        ingress_domain=lambda: environment.domain.read(client),
        images=Images.from_environment(os.environ),
    )
    setup(context.manager, webhook, context.part)
    context.embedded_validators[RAY_CLUSTER] = webhook.submission_errors


class Authentication(OptionalRole):
    """The proxies that authenticate users of dashboards."""

    name = "authentication"
    title = "the authentication of dashboards"
    # Other roles have one of them, but only those that have both contain the rest of this role.
    probes = (
        Rule("", "serviceaccounts", "patch"),
        Rule("rbac.authorization.k8s.io", "clusterrolebindings", "create"),
    )
    # The finalizer of a RayCluster waits for the deletion of its binding.
    retained = Leftovers(CLUSTER_ROLE_BINDING, CLUSTER_LABEL, namespace_label=NAMESPACE_LABEL)
    release_rules = (Rule("rbac.authorization.k8s.io", "clusterrolebindings", "delete"),)

    def is_enabled(self, configuration: OperatorConfiguration) -> bool:
        kuberay = configuration.kuberay
        if not kuberay.enabled:
            return False
        has_proxies = kuberay.authentication.enabled or "authOptions" in kuberay.kuberay_features
        return has_proxies and _strictest(kuberay).ray_dashboard_oauth_enabled

    def rules(self) -> Sequence[Rule]:
        from cfo.controllers.raycluster import AUTHENTICATION_RULES

        return AUTHENTICATION_RULES


class OpenShift(OptionalRole):
    """Routes and the OAuth server of OpenShift."""

    name = "openshift"
    title = "OpenShift"
    probes = (Rule(ROUTE.group, "routes", "update"),)
    platform_kind = ROUTE

    def is_enabled(self, configuration: OperatorConfiguration) -> bool:
        return configuration.kuberay.enabled

    def rules(self) -> Sequence[Rule]:
        from cfo.controllers.raycluster import OPENSHIFT_RULES

        return OPENSHIFT_RULES


class GatewayAPI(OptionalRole):
    """The Gateway API, with which RayClusters are exposed."""

    name = "gateway"
    title = "the Gateway API"
    probes = (Rule(GATEWAY_GROUP, "tlsroutes", "create"),)

    def is_enabled(self, configuration: OperatorConfiguration) -> bool:
        return configuration.kuberay.enabled and configuration.kuberay.gateway.enabled

    def rules(self) -> Sequence[Rule]:
        from cfo.controllers.raycluster import GATEWAY_RULES

        return GATEWAY_RULES


class NamespaceLabels(OptionalRole):
    """Labels of Namespaces, by which profiles and the default-deny policy select them."""

    name = "namespaces"
    title = "labels of Namespaces"
    probes = (Rule("", "namespaces", "watch"),)

    def is_enabled(self, configuration: OperatorConfiguration) -> bool:
        kuberay = configuration.kuberay
        selects_namespaces = kuberay.network_policy.default_deny.namespace_selector is not None
        return kuberay.enabled and (bool(kuberay.profiles) or selects_namespaces)

    def rules(self) -> Sequence[Rule]:
        from cfo.controllers.raycluster import NAMESPACE_RULES

        return NAMESPACE_RULES


class CertificateRequests(OptionalRole):
    """CertificateSigningRequests of Ray nodes, which the operator signs."""

    name = "csr"
    title = "certificate requests"
    probes = (Rule("certificates.k8s.io", "certificatesigningrequests/approval", "update"),)

    def is_enabled(self, configuration: OperatorConfiguration) -> bool:
        kuberay = configuration.kuberay
        if not kuberay.enabled or kuberay.ca.issuer != "certificateSigningRequest":
            return False
        return _strictest(kuberay).mtls_enabled

    def rules(self) -> Sequence[Rule]:
        from cfo.controllers.raycluster import CERTIFICATE_REQUEST_RULES

        return CERTIFICATE_REQUEST_RULES

    def bound_roles(self) -> Mapping[str, Sequence[Rule]]:
        return {REQUESTER_ROLE: REQUESTER_RULES}


def _strictest(kuberay: KubeRayConfiguration) -> KubeRayConfiguration:
    """Return the configuration with everything that any profile of a namespace enables."""
    from cfo.config.kuberay import ProfileTable

    return ProfileTable(kuberay).strictest().kuberay
