"""Tests of the Ingress controller: on vanilla Kubernetes, Ingresses, and which cluster or user owns a host."""

from __future__ import annotations

from typing import Any

from cfo.api.raycluster.names import CLUSTER_LABEL, FIELD_MANAGER, RAY_CLUSTER
from cfo.runtime.objects.kinds import INGRESS
from cfo.runtime.objects.unstructured import (
    Object,
    annotations_of,
    owner_reference,
    set_controller_owner,
)
from test.support.raycluster_environment import (
    INGRESS_CONFIG_CRD,
    OAUTH_SETTINGS,
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

DASHBOARD, CLIENT = "ray-dashboard-rc", "rayclient-rc"
"""Names of the two Ingresses of the cluster ``rc``."""


def host_of(ingress: Object) -> str:
    """Return the host of the only rule."""
    (rule,) = ingress["spec"]["rules"]
    return str(rule["host"])


def backend_of(ingress: Object) -> dict[str, Any]:
    """Return the Service of the only path."""
    (path,) = ingress["spec"]["rules"][0]["http"]["paths"]
    service: dict[str, Any] = path["backend"]["service"]
    return service


def foreign_ingress(host: str, name: str = "foreign", namespace: str = "ns") -> Object:
    """Return an Ingress of a user for this host."""
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"rules": [{"host": host, "http": {"paths": [path]}}]},
    }


async def cluster_hosts(env: Environment, namespace: str = "ns") -> set[str]:
    """Return the hosts of all Ingresses of RayClusters in a namespace."""
    return {
        host_of(item)
        for item in await env.client.list(
            INGRESS, namespace=namespace, label_selector=CLUSTER_LABEL
        )
    }


async def test_dashboard_and_client_get_the_ingresses_that_clients_expect() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            cluster = await env.create(ray_cluster())
            await env.wait_until_idle()
            dashboard, client = await env.get(INGRESS, DASHBOARD), await env.get(INGRESS, CLIENT)
            assert host_of(dashboard) == "ray-dashboard-rc-ns.apps.test"
            assert backend_of(dashboard) == {"name": "rc-head-svc", "port": {"name": "dashboard"}}
            assert "ingressClassName" not in dashboard["spec"]
            assert not annotations_of(dashboard)
            assert host_of(client) == "rayclient-rc-ns.apps.test"
            assert backend_of(client) == {"name": "rc-head-svc", "port": {"number": 10001}}
            assert client["spec"]["ingressClassName"] == "nginx"
            assert annotations_of(client) == {
                "nginx.ingress.kubernetes.io/rewrite-target": "/",
                "nginx.ingress.kubernetes.io/ssl-passthrough": "true",
                "nginx.ingress.kubernetes.io/ssl-redirect": "true",
            }
            for ingress in (dashboard, client):
                assert ingress["metadata"]["ownerReferences"] == [owner_reference(cluster)]
                (field,) = ingress["metadata"]["managedFields"]
                assert (field["manager"], field["operation"]) == (FIELD_MANAGER, "Apply")


async def test_ingress_class_annotations_and_tls_secret_are_configurable() -> None:
    settings = {"className": "haproxy", "annotations": {"a": "b"}, "tlsSecretName": "wildcard"}
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS, ingress=settings)):
            await env.create(ray_cluster())
            await env.wait_until_idle()
            dashboard, client = await env.get(INGRESS, DASHBOARD), await env.get(INGRESS, CLIENT)
            for ingress in (dashboard, client):
                assert ingress["spec"]["ingressClassName"] == "haproxy"
                assert annotations_of(ingress) == {"a": "b"}
            assert dashboard["spec"]["tls"] == [
                {"hosts": [host_of(dashboard)], "secretName": "wildcard"}
            ]
            assert "tls" not in client["spec"]


async def test_missing_domain_is_reported_and_then_read_from_openshift_ingress_config() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(rayDashboardOAuthEnabled=False)):
            await env.create(ray_cluster())
            await env.wait_for_event("IngressDomainMissing", "ingressDomain")
            assert not await cluster_hosts(env)
            await env.plane.install_crds(INGRESS_CONFIG_CRD)
            settings = {
                "apiVersion": "config.openshift.io/v1",
                "kind": "Ingress",
                "metadata": {"name": "cluster"},
            }
            await env.create({**settings, "spec": {"domain": "apps.settings"}})

            async def has_hosts() -> bool:
                return await cluster_hosts(env) == {
                    "ray-dashboard-rc-ns.apps.settings",
                    "rayclient-rc-ns.apps.settings",
                }

            await eventually(has_hosts, "Ingresses with the domain of the cluster settings")


async def test_missing_domain_causes_no_discovery_per_cluster() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(rayDashboardOAuthEnabled=False)):
            await env.create(ray_cluster("first"))
            await env.wait_for_event("IngressDomainMissing")
            await env.wait_until_idle()
            env.clear_requests()
            for number in range(5):
                await env.create(ray_cluster(f"rc-{number}"))
            await env.wait_until_idle()
            assert [verb for verb, _ in env.requests() if verb == "discover"] == []


async def test_configured_domain_takes_precedence() -> None:
    async with start_environment(*VANILLA_CRDS, INGRESS_CONFIG_CRD) as env:
        await env.create_namespace()
        settings = {
            "apiVersion": "config.openshift.io/v1",
            "kind": "Ingress",
            "metadata": {"name": "cluster"},
        }
        await env.create({**settings, "spec": {"domain": "apps.settings"}})
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster())
            await env.wait_until_idle()
            assert await cluster_hosts(env) == {
                "ray-dashboard-rc-ns.apps.test",
                "rayclient-rc-ns.apps.test",
            }


async def test_ingress_with_taken_host_is_created_when_host_becomes_free() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        await env.create_namespace("elsewhere")
        taken = await env.create(
            foreign_ingress("ray-dashboard-rc-ns.apps.test", namespace="elsewhere")
        )
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster())
            await env.wait_for_event(
                "HostTaken", DASHBOARD, "ray-dashboard-rc-ns.apps.test", "elsewhere/foreign"
            )
            await env.wait_until_idle()
            assert await cluster_hosts(env) == {"rayclient-rc-ns.apps.test"}
            await env.delete(taken)

            async def has_dashboard() -> bool:
                return "ray-dashboard-rc-ns.apps.test" in await cluster_hosts(env)

            await eventually(has_dashboard, "the dashboard's Ingress is created")


async def test_later_ingress_with_same_host_changes_nothing() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster())
            await env.wait_until_idle()
            before = await env.get(INGRESS, DASHBOARD)
            await env.create(foreign_ingress(host_of(before), name="zz-later"))
            await env.wait_for_event("HostShared", DASHBOARD, host_of(before), "ns/zz-later")
            await env.wait_until_idle()
            assert await env.get(INGRESS, DASHBOARD) == before


async def test_clusters_with_colliding_hosts_get_different_hosts() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        first, second = ray_cluster("a-b", "c"), ray_cluster("a", "b-c")
        for namespace in ("c", "b-c"):
            await env.create_namespace(namespace)
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(first)
            await env.wait_until_idle()
            await env.create(second)
            await env.wait_for_event("HostTaken", "ray-dashboard-a-b-c.apps.test", namespace="b-c")
            await env.wait_until_idle()
            of_first, of_second = await cluster_hosts(env, "c"), await cluster_hosts(env, "b-c")
            assert of_first == {"ray-dashboard-a-b-c.apps.test", "rayclient-a-b-c.apps.test"}
            assert len(of_second) == 2
            assert not of_first & of_second
            await env.delete(await env.get(RAY_CLUSTER, "a-b", "c"))
            await wait_until_deleted(env, [(RAY_CLUSTER, "a-b")], "c")
            await env.wait_until_idle()
            assert await cluster_hosts(env, "b-c") == of_second
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            assert await cluster_hosts(env, "b-c") == of_second


async def test_clusters_with_colliding_hosts_at_startup_get_different_hosts() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        for name, namespace in (("a-b", "c"), ("a", "b-c")):
            await env.create_namespace(namespace)
            await env.create(ray_cluster(name, namespace))
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            of_first, of_second = await cluster_hosts(env, "c"), await cluster_hosts(env, "b-c")
            assert len(of_first) == len(of_second) == 2
            assert not of_first & of_second
            assert "ray-dashboard-a-b-c.apps.test" in of_first | of_second
            assert len([resource for _, resource in env.requests() if "ingresses" in resource]) == 4


async def test_duplicate_hosts_of_go_operator_are_separated() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        go_client = env.client.with_field_manager(FIELD_MANAGER)
        for name, namespace in (("a-b", "c"), ("a", "b-c")):
            await env.create_namespace(namespace)
            cluster = await env.create(ray_cluster(name, namespace))
            ingress = foreign_ingress(
                "ray-dashboard-a-b-c.apps.test", f"ray-dashboard-{name}", namespace
            )
            ingress["metadata"]["labels"] = {CLUSTER_LABEL: name}
            await go_client.apply(set_controller_owner(ingress, cluster))
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            of_first, of_second = await cluster_hosts(env, "c"), await cluster_hosts(env, "b-c")
            assert len(of_first | of_second) == 4


async def test_suspended_cluster_gets_no_ingress_and_keeps_existing_ones() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster("suspended", suspend=True))
            active = await env.create(ray_cluster())
            await env.wait_until_idle()
            await env.patch(active, {"spec": {"suspend": True}})
            await env.wait_until_idle()
            assert await env.child_names(INGRESS) == {DASHBOARD, CLIENT}


async def test_ingresses_are_deleted_when_oauth_is_enabled() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster())
            await env.wait_until_idle()
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            await wait_until_deleted(env, [(INGRESS, DASHBOARD), (INGRESS, CLIENT)])


async def test_ingress_backends_follow_head_service() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            cluster = ray_cluster()
            cluster["spec"]["headGroupSpec"]["headService"] = {"metadata": {"name": "chosen"}}
            cluster = await env.create(cluster)
            await env.wait_until_idle()
            assert backend_of(await env.get(INGRESS, CLIENT))["name"] == "chosen"
            await env.patch(
                cluster, {"status": {"head": {"serviceName": "reported"}}}, subresource="status"
            )
            await env.wait_until_idle()
            for name in (DASHBOARD, CLIENT):
                assert backend_of(await env.get(INGRESS, name))["name"] == "reported"


async def test_ingresses_of_deleted_cluster_are_not_recreated() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        held = ray_cluster()
        held["metadata"]["finalizers"] = ["example.com/hold"]
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(held)
            await env.wait_until_idle()
            await env.delete(held)
            for name in (DASHBOARD, CLIENT):
                await env.delete(await env.get(INGRESS, name))
            await env.wait_until_idle()
            assert not await env.child_names(INGRESS)


async def test_too_long_host_is_reported() -> None:
    name = "k" * 60
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster(name))
            await env.wait_for_event("HostTooLong", f"ray-dashboard-{name}-ns.apps.test")
            await env.wait_until_idle()
            assert f"ray-dashboard-{name}-ns.apps.test" in await cluster_hosts(env)


def ingress_class(name: str, controller: str, *, default: bool = False) -> Object:
    """Return an IngressClass."""
    annotations = {"ingressclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IngressClass",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"controller": controller},
    }


async def test_client_ingress_follows_the_controllers_of_the_ingress_classes() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        haproxy = await env.create(
            ingress_class("haproxy", "haproxy.org/ingress-controller", default=True)
        )
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster())
            await env.wait_until_idle()
            client = await env.get(INGRESS, CLIENT)
            assert client["spec"]["ingressClassName"] == "haproxy"
            assert annotations_of(client) == {"haproxy.org/ssl-passthrough": "true"}
            await env.create(ingress_class("nginx", "k8s.io/ingress-nginx"))
            await env.wait_until_idle()
            client = await env.get(INGRESS, CLIENT)
            assert client["spec"]["ingressClassName"] == "nginx"
            assert set(annotations_of(client)) == {
                "nginx.ingress.kubernetes.io/rewrite-target",
                "nginx.ingress.kubernetes.io/ssl-passthrough",
                "nginx.ingress.kubernetes.io/ssl-redirect",
            }
            await env.delete(haproxy)
        async with run_controllers(
            env, kuberay_config(**PLAIN_SETTINGS, ingress={"className": "traefik"})
        ):
            await env.create(ray_cluster("other"))
            await env.wait_for_event(
                "IngressTLSUnavailable", "IngressClass traefik", "does not exist"
            )
            await env.create(ingress_class("traefik", "traefik.io/ingress-controller"))
            await env.wait_for_event(
                "IngressTLSUnavailable", "TLS passthrough", "traefik.io/ingress-controller"
            )
            await env.wait_until_idle()
            # the client Ingress of the former class passed TLS through
            assert await env.child_names(INGRESS) == {DASHBOARD, "ray-dashboard-other"}
