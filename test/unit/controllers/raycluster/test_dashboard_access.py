"""Who authenticates the users of a dashboard and what exposes it, decided without a server."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.raycluster.cluster import POD_CLUSTER_LABEL
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.names import ROUTE
from cfo.config.kuberay import KubeRayConfiguration, NamespaceSettings
from cfo.controllers.raycluster.dashboard_access import Authentication, Exposure
from cfo.controllers.raycluster.environment import ClusterEnvironment
from cfo.runtime import DiscoveryIncomplete, Object
from test.support.decisions import list_objects, offline_manager, owned, serve, stored_cluster

TOKEN = {"authOptions": {"mode": "token"}}
REQUIRES_TOKEN = {"containers": [{"env": [{"name": "RAY_AUTH_MODE", "value": "token"}]}]}


class World:
    """The environment of an operator on OpenShift, or on vanilla Kubernetes."""

    def __init__(self, *, is_openshift: bool = False, **settings: Any) -> None:
        self.manager = offline_manager()
        fields = {"rayDashboardOAuthEnabled": True, "ingressDomain": "apps.test"}
        self.config = KubeRayConfiguration.from_document({**fields, **settings})
        self.environment = ClusterEnvironment.detect(self.manager, self.config)
        self.environment.platform._openshift = is_openshift
        if is_openshift:
            serve(self.environment.routes, ROUTE, self.manager)

    def list_heads(self, *pods: Object) -> None:
        """List these head pods."""
        heads = self.environment.access._head_pods
        assert heads is not None
        list_objects(heads.informer, pods)

    async def exposure(self, cluster: Object, **settings: Any) -> Exposure:
        """Return the decision for a cluster."""
        in_namespace = NamespaceSettings(self.config, **settings)
        return await self.environment.access.exposure_of(RayClusterFacts(cluster), in_namespace)


def head(cluster: Object, **spec: Any) -> Object:
    labels = {POD_CLUSTER_LABEL: "rc", "ray.io/node-type": "head"}
    pod = {"metadata": {"name": "head", "namespace": "ns", "labels": labels}, "spec": spec}
    return owned(pod, cluster)


async def test_no_one_authenticates_on_vanilla_kubernetes_without_own_proxies() -> None:
    found = await World(ingressDomain="").exposure(stored_cluster())
    assert (found.authentication, found.route_backend) == (Authentication.UNAVAILABLE, None)
    assert found.reason == "OAuthUnavailable"
    assert "this cluster is not OpenShift" in found.message


async def test_openshift_authenticates_through_its_proxy() -> None:
    found = await World(is_openshift=True).exposure(stored_cluster())
    assert found.authentication is Authentication.OAUTH_PROXY
    assert found.route_backend is not None
    assert found.route_backend.tls


async def test_cluster_without_the_injected_proxy_is_not_exposed() -> None:
    found = await World(authentication={"enabled": True}).exposure(stored_cluster())
    assert found.reason == "AuthenticationProxyMissing"
    assert found.route_backend is None


async def test_disabled_authentication_exposes_ray_itself() -> None:
    found = await World(rayDashboardOAuthEnabled=False).exposure(stored_cluster())
    assert found.authentication is Authentication.DISABLED
    assert found.route_backend is not None
    assert not found.route_backend.tls


async def test_cluster_that_multikueue_manages_is_exposed_by_another_actor() -> None:
    cluster = stored_cluster(managedBy="kueue.x-k8s.io/multikueue")
    found = await World(is_openshift=True).exposure(cluster)
    assert (found.authentication, found.is_by_operator) == (Authentication.OTHER, False)


async def test_profile_that_requires_tls_hides_a_cluster_without_it() -> None:
    world = World(rayDashboardOAuthEnabled=False)
    found = await world.exposure(stored_cluster(), profile="strict", enforced=frozenset({"mtls"}))
    assert not found.is_by_operator
    assert found.route_backend is None


@pytest.mark.parametrize(
    ("pods", "reason", "requires_token"),
    [
        ((), "", False),
        ((REQUIRES_TOKEN,), "", True),
        (({"containers": [{}]},), "RayTokenNotRequired", False),
    ],
)
async def test_ray_token_counts_only_if_the_running_head_requires_it(
    pods: tuple[Object, ...], reason: str, requires_token: bool
) -> None:
    world = World(kubeRayFeatures=["authOptions"])
    cluster = stored_cluster(**TOKEN)
    with pytest.raises(DiscoveryIncomplete):
        await world.exposure(cluster)
    world.list_heads(*(head(cluster, **pod) for pod in pods))
    found = await world.exposure(cluster)
    assert found.authentication is Authentication.RAY_TOKEN
    assert (found.reason, found.head_requires_token) == (reason, requires_token)
    assert (found.route_backend is None) is bool(reason)


async def test_head_pods_that_are_too_large_to_check_hide_the_dashboard() -> None:
    world = World(kubeRayFeatures=["authOptions"])
    cluster = stored_cluster(**TOKEN)
    large = head(cluster, containers=[{"name": "x" * (4 << 20)}])
    world.list_heads(large)
    found = await world.exposure(cluster)
    assert found.reason == "RayTokenUnverified"
    assert found.route_backend is None
