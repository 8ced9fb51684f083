"""Tests of exposing RayClusters through a Gateway: routes, their status as Events, hosts, the change from Ingresses."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from cfo.api.gateway import BACKEND_TLS_POLICIES, GROUP, HTTP_ROUTE, TLS_ROUTES
from cfo.api.raycluster.conditions import EXPOSED
from cfo.api.raycluster.names import CLUSTER_LABEL, RAY_CLUSTER, names_of
from cfo.runtime import find_condition
from cfo.runtime.objects.kinds import CONFIG_MAP, CUSTOM_RESOURCE_DEFINITION, INGRESS, SECRET
from cfo.runtime.objects.unstructured import (
    NamespacedName,
    Object,
    labels_of,
    name_of,
    owner_reference,
)
from cfo.webhooks.raycluster.defaulting import default
from cfo.webhooks.raycluster.injection_plan import InjectionSettings
from test.support.gateways import (
    BACKEND_TLS_POLICY_CRD,
    GATEWAY_CRDS,
    GATEWAY_SETTINGS,
    HTTP_ROUTE_CRD,
    TLS_ROUTE_CRD,
    old_tls_route_crd,
    report,
)
from test.support.raycluster_environment import (
    OAUTH_SETTINGS,
    OPENSHIFT_CRDS,
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    Environment,
    eventually,
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
    wait_until_deleted,
)

TLS_ROUTE = TLS_ROUTES[0]
DASHBOARD, CLIENT = "ray-dashboard-rc", "rayclient-rc"
CRDS = (*VANILLA_CRDS, *GATEWAY_CRDS)
HOST = "ray-dashboard-rc-ns.apps.test"
CONFIG = kuberay_config(**PLAIN_SETTINGS, gateway=GATEWAY_SETTINGS)
PATH_CONFIG = kuberay_config(
    **PLAIN_SETTINGS, gateway={**GATEWAY_SETTINGS, "dashboardHost": "ray.apps.test"}
)
INGRESS_CONFIG = kuberay_config(**PLAIN_SETTINGS)
PARENT = {"group": GROUP, "kind": "Gateway", "namespace": "gateways", "name": "shared"}


def cluster_with_mtls(name: str = "rc") -> Object:
    """Return a RayCluster whose head requires client certificates."""
    cluster = ray_cluster(name)
    container = {"name": "ray-head", "image": "ray", "env": [{"name": "RAY_USE_TLS", "value": "1"}]}
    pod = {"containers": [container], "initContainers": [{"name": "create-cert", "image": "ray"}]}
    cluster["spec"]["headGroupSpec"]["template"]["spec"] = pod
    return cluster


def foreign_route(name: str = "foreign", **spec: Any) -> Object:
    """Return an HTTPRoute of a user."""
    metadata = {"name": name, "namespace": "ns"}
    return {
        "apiVersion": HTTP_ROUTE.api_version,
        "kind": "HTTPRoute",
        "metadata": metadata,
        "spec": spec,
    }


async def reasons(env: Environment) -> list[str]:
    """Return the reasons of all Events about routes."""
    return [reason for _, reason, _ in await env.events() if reason.startswith("Route")]


async def test_dashboard_and_client_get_routes_and_their_status_is_reported_by_events() -> None:
    async with start_environment(*CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, CONFIG):
            cluster = await env.create(cluster_with_mtls())
            await env.wait_until_idle()
            dashboard, client = (
                await env.get(HTTP_ROUTE, DASHBOARD),
                await env.get(TLS_ROUTE, CLIENT),
            )
            assert dashboard["spec"] == {
                "parentRefs": [{**PARENT, "sectionName": "https"}],
                "hostnames": [HOST],
                "rules": [
                    {
                        "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                        "backendRefs": [
                            {
                                "group": "",
                                "kind": "Service",
                                "name": "rc-head-svc",
                                "port": 8265,
                                "weight": 1,
                            }
                        ],
                    }
                ],
            }
            assert client["spec"] == {
                "parentRefs": [{**PARENT, "sectionName": "ray-client"}],
                "hostnames": ["rayclient-rc-ns.apps.test"],
                "rules": [
                    {
                        "backendRefs": [
                            {
                                "group": "",
                                "kind": "Service",
                                "name": "rc-head-svc",
                                "port": 10001,
                                "weight": 1,
                            }
                        ]
                    }
                ],
            }
            for route in (dashboard, client):
                assert route["metadata"]["ownerReferences"] == [owner_reference(cluster)]
                assert labels_of(route) == {CLUSTER_LABEL: "rc"}
            assert not await env.child_names(INGRESS)
            await env.wait_for_event(
                "RoutePending", "HTTPRoute ray-dashboard-rc", "gateways/shared"
            )
            await env.wait_for_event("RoutePending", "TLSRoute rayclient-rc")
            await report(env, dashboard, accepted=False, message="namespace ns is not allowed")
            await env.wait_for_event(
                "RouteNotAccepted",
                DASHBOARD,
                "listener https",
                "NotAllowedByListeners",
                "namespace ns is not allowed",
            )
            await report(env, dashboard, resolved=False, message="no Service")
            await env.wait_for_event(
                "RouteNotAccepted", "ResolvedRefs: False (BackendNotFound): no Service"
            )
            await report(env, dashboard)
            await env.wait_for_event("RouteAccepted", "HTTPRoute ray-dashboard-rc")
            before = len(await reasons(env))
            await env.patch(cluster, {"metadata": {"labels": {"unrelated": "change"}}})
            await report(env, await env.get(HTTP_ROUTE, DASHBOARD))
            await env.wait_until_idle()
            assert len(await reasons(env)) == before
            await env.patch(
                await env.get(HTTP_ROUTE, DASHBOARD), {"spec": {"hostnames": ["changed"]}}
            )
            await env.wait_until_idle()
            assert (await env.get(HTTP_ROUTE, DASHBOARD))["spec"] == dashboard["spec"]


async def test_condition_exposed_has_the_port_of_the_listener_for_ray_clients() -> None:
    settings = {**GATEWAY_SETTINGS, "clientPort": 8443}
    async with start_environment(*CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS, gateway=settings)):
            await env.create(cluster_with_mtls())

            async def address() -> bool:
                conditions = ((await env.get(RAY_CLUSTER, "rc")).get("status") or {}).get(
                    "conditions"
                )
                message = (find_condition(conditions, EXPOSED) or {}).get("message", "")
                return "; Ray client: ray://rayclient-rc-ns.apps.test:8443" in message

            await eventually(address, "the address of the Ray client")
            (parent,) = (await env.get(TLS_ROUTE, CLIENT))["spec"]["parentRefs"]
            assert parent == {**PARENT, "sectionName": "ray-client", "port": 8443}


async def test_ingresses_are_deleted_once_routes_are_accepted_and_restart_writes_nothing() -> None:
    async with start_environment(*CRDS) as env:
        await env.create_namespace()
        await env.create(cluster_with_mtls())
        async with run_controllers(env, INGRESS_CONFIG):
            assert await env.child_names(INGRESS) == {DASHBOARD, CLIENT}
        async with run_controllers(env, CONFIG):
            assert await env.child_names(INGRESS) == {DASHBOARD, CLIENT}
            dashboard, client = (
                await env.get(HTTP_ROUTE, DASHBOARD),
                await env.get(TLS_ROUTE, CLIENT),
            )
            await report(env, dashboard, generation=0)
            await report(env, client, accepted=False)
            await env.wait_until_idle()
            assert await env.child_names(INGRESS) == {DASHBOARD, CLIENT}
            await report(env, dashboard)
            await wait_until_deleted(env, [(INGRESS, DASHBOARD)])
            assert await env.child_names(INGRESS) == {CLIENT}
            await report(env, client)
            await wait_until_deleted(env, [(INGRESS, CLIENT)])
            await env.wait_until_idle()
        async with run_controllers(env, CONFIG):
            writes = [
                exchange
                for exchange in env.exchanges
                if exchange.verb not in ("list", "watch", "discover", "get")
            ]
            assert not writes
        async with run_controllers(env, INGRESS_CONFIG):
            assert await env.child_names(INGRESS) == {DASHBOARD, CLIENT}
            await wait_until_deleted(env, [(HTTP_ROUTE, DASHBOARD), (TLS_ROUTE, CLIENT)])
            (rule,) = (await env.get(INGRESS, DASHBOARD))["spec"]["rules"]
            assert rule["host"] == HOST


async def test_client_without_mtls_has_no_route() -> None:
    async with start_environment(*CRDS) as env:
        await env.create_namespace()
        cluster = await env.create(ray_cluster())
        async with run_controllers(env, INGRESS_CONFIG):
            pass
        async with run_controllers(env, CONFIG):
            await env.wait_for_event("RayClientNotExposed", "requires certificates")
            assert not await env.child_names(TLS_ROUTE)
            await report(env, await env.get(HTTP_ROUTE, DASHBOARD))
            await wait_until_deleted(env, [(INGRESS, DASHBOARD), (INGRESS, CLIENT)])
            secured = cluster_with_mtls()["spec"]
            await env.patch(cluster, {"spec": secured})
            await env.wait_until_idle()
            assert await env.child_names(TLS_ROUTE) == {CLIENT}
            await env.patch(cluster, {"spec": {**secured, "tlsOptions": {"enabled": True}}})
            await env.wait_until_idle()
            assert not await env.child_names(TLS_ROUTE)


async def test_shared_host_serves_each_dashboard_at_the_path_that_the_sdk_expects() -> None:
    async with start_environment(*CRDS) as env:
        await env.create_namespace()
        path = "/ray/ns/rc"
        match = {"matches": [{"path": {"type": "PathPrefix", "value": path}}]}
        taken = await env.create(foreign_route(rules=[match]))
        async with run_controllers(env, PATH_CONFIG):
            await env.create(ray_cluster())
            await env.wait_for_event("HostTaken", f"path {path} is used by HTTPRoute ns/foreign")
            await env.delete(taken)
            await env.wait_until_idle()
            route = await env.get(HTTP_ROUTE, DASHBOARD)
            assert route["spec"]["hostnames"] == ["ray.apps.test"]
            labels = labels_of(route)
            assert (labels["ray.io/cluster-name"], labels["ray.io/cluster-namespace"]) == (
                "rc",
                "ns",
            )
            redirect, proxy = route["spec"]["rules"]
            assert redirect["matches"] == [{"path": {"type": "Exact", "value": path}}]
            assert (
                redirect["filters"][0]["requestRedirect"]["path"]["replaceFullPath"] == f"{path}/"
            )
            assert proxy["matches"] == match["matches"]
            assert proxy["filters"][0]["urlRewrite"]["path"] == {
                "type": "ReplacePrefixMatch",
                "replacePrefixMatch": "/",
            }
            env.clear_requests()
            await env.create(foreign_route("later", rules=[match]))
            await env.wait_for_event(
                "HostShared", f"path {path} is also used by HTTPRoute ns/later"
            )
            written = {each for each in env.requests() if each[0] != "discover"}
            assert written <= {("apply", "rayclusters.ray.io/status")}


async def test_hosts_are_unique_among_ingresses_and_routes() -> None:
    async with start_environment(*CRDS) as env:
        await env.create_namespace()
        taken = await env.create(foreign_route(hostnames=[HOST]))
        async with run_controllers(env, INGRESS_CONFIG):
            await env.create(ray_cluster())
            await env.wait_for_event(
                "HostTaken", "Ingress ray-dashboard-rc is not created", "HTTPRoute ns/foreign"
            )
            assert await env.child_names(INGRESS) == {CLIENT}
            await env.delete(taken)
            await eventually(lambda: env.find(INGRESS, DASHBOARD), "the Ingress")
        # The cluster a-b in ns and the cluster a in b-ns have the same host.
        await env.create_namespace("b-ns")
        async with run_controllers(env, CONFIG):
            await env.create(ray_cluster("a-b"))
            await env.wait_until_idle()
            await env.create(ray_cluster("a", "b-ns"))
            await env.wait_for_event(
                "HostTaken", "HTTPRoute ray-dashboard-a: host", "HTTPRoute ns/", namespace="b-ns"
            )
            await env.wait_until_idle()
            first = await env.get(HTTP_ROUTE, "ray-dashboard-a-b")
            second = await env.get(HTTP_ROUTE, "ray-dashboard-a", "b-ns")
            assert first["spec"]["hostnames"] == ["ray-dashboard-a-b-ns.apps.test"]
            assert second["spec"]["hostnames"] != first["spec"]["hostnames"]
            # The Ingress of rc still has its host.
            assert (await env.get(HTTP_ROUTE, DASHBOARD))["spec"]["hostnames"] == [HOST]


async def test_routes_follow_the_crds_that_come_and_go() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        await env.create(cluster_with_mtls())
        async with run_controllers(env, CONFIG):
            await env.wait_for_event("GatewayAPIUnavailable", "HTTPRoute")
            await env.wait_for_event("GatewayAPIUnavailable", "TLSRoute")
            assert not await env.child_names(INGRESS)
            await env.plane.install_crds(HTTP_ROUTE_CRD, old_tls_route_crd())
            await eventually(lambda: env.find(HTTP_ROUTE, DASHBOARD), "the HTTPRoute")
            await eventually(
                lambda: env.find(TLS_ROUTES[-1], CLIENT), "the TLSRoute of an old version"
            )
            await env.client.delete(
                CUSTOM_RESOURCE_DEFINITION, NamespacedName("", name_of(HTTP_ROUTE_CRD))
            )

            async def is_reported_again() -> bool:
                return (
                    sum(reason == "GatewayAPIUnavailable" for _, reason, _ in await env.events())
                    > 2
                )

            await eventually(is_reported_again, "an Event that the HTTPRoute is deleted")
            await env.plane.install_crds(HTTP_ROUTE_CRD)
            await eventually(lambda: env.find(HTTP_ROUTE, DASHBOARD), "the HTTPRoute again")


async def test_openshift_uses_routes_of_its_own() -> None:
    async with start_environment(*OPENSHIFT_CRDS, *GATEWAY_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, CONFIG):
            await env.create(cluster_with_mtls())
            await env.wait_until_idle()
            assert not await env.child_names(HTTP_ROUTE)
            assert not await env.child_names(TLS_ROUTE)


async def test_gateway_verifies_the_certificate_of_the_authenticating_proxy() -> None:
    authentication = {"enabled": True}
    config = kuberay_config(
        **OAUTH_SETTINGS, authentication=authentication, gateway=GATEWAY_SETTINGS
    )
    settings = InjectionSettings(
        version="test", oauth=False, mtls=True, authentication=config.authentication
    )
    async with start_environment(*VANILLA_CRDS, HTTP_ROUTE_CRD, TLS_ROUTE_CRD) as env:
        await env.create_namespace()
        async with run_controllers(env, config):
            await env.create(ray_cluster("unprotected"))
            cluster = await env.create(default(ray_cluster(), None, settings).cluster)
            names = names_of(cluster)
            await env.wait_for_event("BackendTLSUnavailable", "BackendTLSPolicy")
            await env.wait_until_idle()
            assert not await env.child_names(HTTP_ROUTE)
            assert await env.child_names(TLS_ROUTE) == {CLIENT}
            await env.plane.install_crds(BACKEND_TLS_POLICY_CRD)
            await eventually(lambda: env.find(HTTP_ROUTE, DASHBOARD), "the HTTPRoute")
            await env.wait_until_idle()
            (rule,) = (await env.get(HTTP_ROUTE, DASHBOARD))["spec"]["rules"]
            (backend,) = rule["backendRefs"]
            assert (backend["name"], backend["port"]) == (names.proxy_service, 443)
            policy = await env.get(BACKEND_TLS_POLICIES[0], DASHBOARD)
            assert policy["spec"]["targetRefs"] == [
                {"group": "", "kind": "Service", "name": names.proxy_service}
            ]
            validation = policy["spec"]["validation"]
            assert validation["hostname"] == f"{names.proxy_service}.ns.svc"
            (reference,) = validation["caCertificateRefs"]
            ca = await env.get(CONFIG_MAP, reference["name"])
            secret = await env.get(SECRET, names.proxy_tls_secret)
            assert list(ca["data"]) == ["ca.crt"]
            assert b64encode(ca["data"]["ca.crt"].encode()).decode() == secret["data"]["ca.crt"]
            assert await env.child_names(HTTP_ROUTE) == {DASHBOARD}
            await env.patch(ca, {"data": {"ca.crt": "changed"}})
            await env.wait_until_idle()
            assert (await env.get(CONFIG_MAP, reference["name"]))["data"] == ca["data"]
