"""Tests that tenants cannot use the ports of a RayCluster to open it to clients without credentials."""

from __future__ import annotations

from typing import Any

from cfo.api.raycluster.cluster import CERTIFICATE_CONTAINER, TLS_VARIABLE
from cfo.api.raycluster.names import names_of
from cfo.runtime.objects.kinds import INGRESS, NETWORK_POLICY
from cfo.runtime.objects.rbac import Rule
from cfo.runtime.objects.unstructured import Object
from test.support.raycluster_environment import (
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
)
from test.support.tenant_clients import start_tenant_client

EDIT_CLUSTERS = Rule("ray.io", "rayclusters", ("get", "create", "patch", "delete"))


def cluster_with(name: str, params: dict[str, str], *ports: tuple[str, int]) -> Object:
    """Return a RayCluster with the parts for mTLS, so that its client port is open to everyone."""
    container: dict[str, Any] = {
        "name": "ray-head",
        "image": "ray",
        "env": [TLS_VARIABLE],
        "ports": [{"name": port, "containerPort": number} for port, number in ports],
    }
    init = [{"name": CERTIFICATE_CONTAINER, "image": "ray"}]
    template = {"spec": {"containers": [container], "initContainers": init}}
    return ray_cluster(name, headGroupSpec={"rayStartParams": params, "template": template})


HOSTILE = (
    cluster_with("gcs", {}, ("client", 6379), ("gcs-server", 6379)),
    cluster_with("dashboard", {"dashboard-port": "10001"}),
    cluster_with("proxy", {"port": "8443"}),
    cluster_with("serve", {}, ("serve", 10001)),
    cluster_with("all-workers", {"min-worker-port": "1", "max-worker-port": "65535"}),
    cluster_with("smuggled", {"ray-client-server-port": "10001 --dashboard-port=10001"}),
    cluster_with("many", {}, *((f"serve-{at}", 20000 + at) for at in range(1000))),
)


async def test_ports_of_a_tenant_do_not_open_what_does_not_authenticate() -> None:
    """The tenant may only edit RayClusters. None of its ports is open to everyone or to an ingress controller."""
    config = kuberay_config(**PLAIN_SETTINGS, ingress={"namespaces": ["nginx"]})
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with start_tenant_client(env, EDIT_CLUSTERS) as tenant, run_controllers(env, config):
            for cluster in HOSTILE:
                await tenant.create(cluster)
            await env.wait_until_idle()
            for cluster in HOSTILE:
                names = names_of(cluster)
                policy = await env.get(NETWORK_POLICY, names.head_policy)
                own_cluster, *others = policy["spec"]["ingress"]
                assert "ports" not in own_cluster
                assert all(rule["ports"] for rule in others)
                numbers = {port["port"] for rule in others for port in rule["ports"]}
                assert 6379 not in numbers
                assert len(numbers) < 20
                everyone = {
                    port["port"] for rule in others if "from" not in rule for port in rule["ports"]
                }
                expected = {
                    "proxy": {10001},
                    "all-workers": set(),
                    "smuggled": set(),
                    "many": {8443, 10001},
                }
                assert everyone == expected.get(cluster["metadata"]["name"], {8443})
                ingress = await env.get(INGRESS, names.client)
                (path,) = ingress["spec"]["rules"][0]["http"]["paths"]
                assert path["backend"]["service"]["port"] == {"number": 10001}
            note = await env.wait_for_event("PortRefused", "client has port 6379")
            assert "GCS server listens there" in note
