"""RayClusters, and the optional features of their controllers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from cfo.api.gateway import GROUP as GATEWAY_GROUP
from cfo.api.raycluster.names import (
    DEFAULT_DENY_LABEL,
    DEFAULT_DENY_NAME,
    FIELD_MANAGER,
    FINALIZER,
    RAY_CLUSTER,
    REQUESTER_ROLE,
    REQUESTER_RULES,
    REQUESTERS_LABEL,
    ROUTE,
)
from cfo.features.contract import Context, Feature, Leftovers, UserRole, lazy
from cfo.runtime import NETWORK_POLICY, Rule
from cfo.runtime.objects import CLUSTER_ROLE_BINDING
from cfo.version import __version__

if TYPE_CHECKING:
    from cfo.config.kuberay import KubeRayConfiguration
    from cfo.config.model import OperatorConfiguration

_rules = lazy("cfo.controllers.raycluster:RULES")


def _setup(context: Context) -> None:
    from cfo.controllers import raycluster

    manager = context.manager
    environment = raycluster.setup(manager, context.configuration.kuberay)
    if not context.serves_webhooks:
        return
    from cfo.webhooks import raycluster as webhooks

    webhook = webhooks.RayClusterWebhook(
        version=f"v{__version__}",
        settings_of=lambda namespace: environment.profiles.settings(manager.client, namespace),
        has_oauth_server=environment.platform.has_oauth_server,
        ingress_domain=lambda: environment.domain.read(manager.client),
        images=webhooks.Images.from_environment(os.environ),
    )
    webhooks.setup(manager, webhook)
    context.embedded_validators[RAY_CLUSTER] = webhook.submission_errors


def _strictest(kuberay: KubeRayConfiguration) -> KubeRayConfiguration:
    from cfo.config.kuberay import ProfileTable

    return ProfileTable(kuberay).strictest().kuberay


def _authenticates(configuration: OperatorConfiguration) -> bool:
    kuberay = configuration.kuberay
    authenticates = kuberay.authentication.enabled or "authOptions" in kuberay.kuberay_features
    return kuberay.enabled and authenticates and _strictest(kuberay).ray_dashboard_oauth_enabled


def _reads_namespaces(configuration: OperatorConfiguration) -> bool:
    kuberay = configuration.kuberay
    selects_namespaces = kuberay.network_policy.default_deny.namespace_selector is not None
    return kuberay.enabled and (bool(kuberay.profiles) or selects_namespaces)


def _requests_certificates(configuration: OperatorConfiguration) -> bool:
    kuberay = configuration.kuberay
    requests = kuberay.ca.issuer == "certificateSigningRequest"
    return kuberay.enabled and requests and _strictest(kuberay).mtls_enabled


RAY_CLUSTERS: Final = Feature(
    name="raycluster",
    title="RayClusters",
    enabled=lambda configuration: configuration.kuberay.enabled,
    kinds=(RAY_CLUSTER,),
    views=lazy("cfo.summaries.raycluster:VIEWS"),
    finalizers={RAY_CLUSTER: FINALIZER},
    # with this policy, no one would admit anything to the pods of new RayClusters
    leftovers=(Leftovers(NETWORK_POLICY, DEFAULT_DENY_LABEL, DEFAULT_DENY_NAME),),
    base_rules=lambda namespace: _rules(),
    user_roles=(
        # the role to use RayClusters with Kubernetes tokens; its verb is Ray's own
        UserRole(
            "ray-token-user-role",
            [Rule(RAY_CLUSTER.group, "rayclusters", "ray:write")],
            ("admin", "edit"),
        ),
    ),
    field_managers=(FIELD_MANAGER,),
    setup=_setup,
    checks={
        "admission": lazy("cfo.checks.raycluster:admission"),
        "kuberay": lazy("cfo.checks.raycluster:kuberay"),
    },
)

AUTHENTICATION: Final = Feature(
    name="authentication",
    title="the authentication of dashboards",
    enabled=_authenticates,
    rules=lazy("cfo.controllers.raycluster:AUTHENTICATION_RULES"),
    probe=Rule("", "serviceaccounts", "patch"),
)

OPENSHIFT: Final = Feature(
    name="openshift",
    title="OpenShift",
    enabled=lambda configuration: configuration.kuberay.enabled,
    platform_kind=ROUTE,
    rules=lazy("cfo.controllers.raycluster:OPENSHIFT_RULES"),
    probe=Rule(ROUTE.group, "routes", "update"),
    checks={"domain": lazy("cfo.checks.raycluster:domain")},
)

GATEWAY: Final = Feature(
    name="gateway",
    title="the Gateway API",
    enabled=lambda configuration: (
        configuration.kuberay.enabled and configuration.kuberay.gateway.enabled
    ),
    rules=lazy("cfo.controllers.raycluster:GATEWAY_RULES"),
    probe=Rule(GATEWAY_GROUP, "httproutes", "create"),
)

NAMESPACES: Final = Feature(
    name="namespaces",
    title="labels of Namespaces",
    enabled=_reads_namespaces,
    rules=lazy("cfo.controllers.raycluster:NAMESPACE_RULES"),
    probe=Rule("", "namespaces", "watch"),
)

CERTIFICATE_REQUESTS: Final = Feature(
    name="csr",
    title="certificate requests",
    enabled=_requests_certificates,
    leftovers=(Leftovers(CLUSTER_ROLE_BINDING, REQUESTERS_LABEL),),
    rules=lazy("cfo.controllers.raycluster:CERTIFICATE_REQUEST_RULES"),
    probe=Rule("certificates.k8s.io", "certificatesigningrequests/approval", "update"),
    bound_roles={REQUESTER_ROLE: REQUESTER_RULES},
)
