"""Vanilla Kubernetes: Ingresses, and whose a host is."""

from __future__ import annotations

from typing import Any

from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.api.raycluster.naming import CLUSTER_LABEL, FIELD_MANAGER
from cfo.runtime.kinds import INGRESS
from cfo.runtime.objects import Object, annotations_of, owner_reference
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


def host_of(ingress: Object) -> str:
    (rule,) = ingress["spec"]["rules"]
    return str(rule["host"])


def backend_of(ingress: Object) -> dict[str, Any]:
    (path,) = ingress["spec"]["rules"][0]["http"]["paths"]
    service: dict[str, Any] = path["backend"]["service"]
    return service


def foreign_ingress(host: str, name: str = "mine", namespace: str = "ns") -> Object:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"rules": [{"host": host, "http": {"paths": [path]}}]},
    }


async def hosts(here: Environment, namespace: str = "ns") -> set[str]:
    return {
        host_of(item) for item in await here.client.list(INGRESS, namespace=namespace, label_selector=CLUSTER_LABEL)
    }


async def test_dashboard_and_client_get_an_ingress_each_as_clients_know_them() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            cluster = await here.create(ray_cluster())
            await here.wait_until_idle()
            dashboard, client = await here.get(INGRESS, DASHBOARD), await here.get(INGRESS, CLIENT)
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


async def test_class_annotations_and_tls_can_be_chosen() -> None:
    settings = {"className": "haproxy", "annotations": {"a": "b"}, "tlsSecretName": "wildcard"}
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS, ingress=settings)):
            await here.create(ray_cluster())
            await here.wait_until_idle()
            dashboard, client = await here.get(INGRESS, DASHBOARD), await here.get(INGRESS, CLIENT)
            for ingress in (dashboard, client):
                assert ingress["spec"]["ingressClassName"] == "haproxy"
                assert annotations_of(ingress) == {"a": "b"}
            assert dashboard["spec"]["tls"] == [{"hosts": [host_of(dashboard)], "secretName": "wildcard"}]
            assert "tls" not in client["spec"]


async def test_a_missing_domain_is_told_on_the_cluster_and_comes_from_the_cluster_settings() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(rayDashboardOAuthEnabled=False)):
            await here.create(ray_cluster())
            await here.wait_for_event("IngressDomainMissing", "ingressDomain")
            assert not await hosts(here)
            await here.plane.install_crds(INGRESS_CONFIG_CRD)
            settings = {"apiVersion": "config.openshift.io/v1", "kind": "Ingress", "metadata": {"name": "cluster"}}
            await here.create({**settings, "spec": {"domain": "apps.settings"}})

            async def exposed() -> bool:
                return await hosts(here) == {"ray-dashboard-rc-ns.apps.settings", "rayclient-rc-ns.apps.settings"}

            await eventually(exposed, "Ingresses")


async def test_a_missing_domain_is_asked_for_once_not_for_every_cluster() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(rayDashboardOAuthEnabled=False)):
            await here.create(ray_cluster("first"))
            await here.wait_for_event("IngressDomainMissing")
            await here.wait_until_idle()
            here.clear_requests()
            for number in range(5):
                await here.create(ray_cluster(f"rc-{number}"))
            await here.wait_until_idle()
            assert [verb for verb, _ in here.requests() if verb == "discover"] == []


async def test_the_configured_domain_comes_first() -> None:
    async with start_environment(*VANILLA_CRDS, INGRESS_CONFIG_CRD) as here:
        await here.create_namespace()
        settings = {"apiVersion": "config.openshift.io/v1", "kind": "Ingress", "metadata": {"name": "cluster"}}
        await here.create({**settings, "spec": {"domain": "apps.settings"}})
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            await here.create(ray_cluster())
            await here.wait_until_idle()
            assert await hosts(here) == {"ray-dashboard-rc-ns.apps.test", "rayclient-rc-ns.apps.test"}


async def test_a_host_that_somebody_has_is_refused_until_it_is_free() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        await here.create_namespace("elsewhere")
        taken = await here.create(foreign_ingress("ray-dashboard-rc-ns.apps.test", namespace="elsewhere"))
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            await here.create(ray_cluster())
            await here.wait_for_event("HostTaken", DASHBOARD, "ray-dashboard-rc-ns.apps.test", "elsewhere/mine")
            await here.wait_until_idle()
            assert await hosts(here) == {"rayclient-rc-ns.apps.test"}
            await here.delete(taken)

            async def made() -> bool:
                return "ray-dashboard-rc-ns.apps.test" in await hosts(here)

            await eventually(made, "the dashboard")


async def test_who_takes_a_host_later_moves_nothing() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            await here.create(ray_cluster())
            await here.wait_until_idle()
            before = await here.get(INGRESS, DASHBOARD)
            await here.create(foreign_ingress(host_of(before), name="zz-later"))
            await here.wait_until_idle()
            assert await here.get(INGRESS, DASHBOARD) == before


async def test_clusters_whose_hosts_would_be_the_same_share_none() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        first, second = ray_cluster("a-b", "c"), ray_cluster("a", "b-c")
        for namespace in ("c", "b-c"):
            await here.create_namespace(namespace)
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            await here.create(first)
            await here.wait_until_idle()
            await here.create(second)
            await here.wait_for_event("HostTaken", "ray-dashboard-a-b-c.apps.test", namespace="b-c")
            await here.wait_until_idle()
            of_first, of_second = await hosts(here, "c"), await hosts(here, "b-c")
            assert of_first == {"ray-dashboard-a-b-c.apps.test", "rayclient-a-b-c.apps.test"}
            assert len(of_second) == 2
            assert not of_first & of_second
            await here.delete(await here.get(RAY_CLUSTER, "a-b", "c"))
            await wait_until_deleted(here, [(RAY_CLUSTER, "a-b")], "c")
            await here.wait_until_idle()
            assert await hosts(here, "b-c") == of_second
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            assert await hosts(here, "b-c") == of_second


async def test_clusters_with_one_host_that_come_together_share_none() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        for name, namespace in (("a-b", "c"), ("a", "b-c")):
            await here.create_namespace(namespace)
            await here.create(ray_cluster(name, namespace))
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            of_first, of_second = await hosts(here, "c"), await hosts(here, "b-c")
            assert len(of_first) == len(of_second) == 2
            assert not of_first & of_second
            assert "ray-dashboard-a-b-c.apps.test" in of_first | of_second
            assert len([resource for _, resource in here.requests() if "ingresses" in resource]) == 4


async def test_hosts_which_the_go_operator_gave_twice_are_told_apart() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        go = here.client.with_field_manager(FIELD_MANAGER)
        for name, namespace in (("a-b", "c"), ("a", "b-c")):
            await here.create_namespace(namespace)
            cluster = await here.create(ray_cluster(name, namespace))
            ingress = foreign_ingress("ray-dashboard-a-b-c.apps.test", f"ray-dashboard-{name}", namespace)
            ingress["metadata"]["labels"] = {CLUSTER_LABEL: name}
            await go.apply(ingress, owner=cluster)
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            of_first, of_second = await hosts(here, "c"), await hosts(here, "b-c")
            assert len(of_first | of_second) == 4


async def test_a_suspended_cluster_gets_none_and_keeps_what_it_has() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            await here.create(ray_cluster("asleep", suspend=True))
            awake = await here.create(ray_cluster())
            await here.wait_until_idle()
            await here.patch(awake, {"spec": {"suspend": True}})
            await here.wait_until_idle()
            assert await here.child_names(INGRESS) == {DASHBOARD, CLIENT}


async def test_ingresses_go_when_oauth_is_turned_on() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            await here.create(ray_cluster())
            await here.wait_until_idle()
        async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)):
            await wait_until_deleted(here, [(INGRESS, DASHBOARD), (INGRESS, CLIENT)])


async def test_backends_follow_the_head_service() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            named = ray_cluster()
            named["spec"]["headGroupSpec"]["headService"] = {"metadata": {"name": "mine"}}
            cluster = await here.create(named)
            await here.wait_until_idle()
            assert backend_of(await here.get(INGRESS, CLIENT))["name"] == "mine"
            await here.patch(cluster, {"status": {"head": {"serviceName": "real"}}}, subresource="status")
            await here.wait_until_idle()
            for name in (DASHBOARD, CLIENT):
                assert backend_of(await here.get(INGRESS, name))["name"] == "real"


async def test_a_deleted_cluster_gets_no_ingress_again() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        held = ray_cluster()
        held["metadata"]["finalizers"] = ["example.com/hold"]
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            await here.create(held)
            await here.wait_until_idle()
            await here.delete(held)
            for name in (DASHBOARD, CLIENT):
                await here.delete(await here.get(INGRESS, name))
            await here.wait_until_idle()
            assert not await here.child_names(INGRESS)


async def test_a_host_too_long_for_dns_is_told() -> None:
    name = "k" * 60
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            await here.create(ray_cluster(name))
            await here.wait_for_event("HostTooLong", f"ray-dashboard-{name}-ns.apps.test")
            await here.wait_until_idle()
            assert f"ray-dashboard-{name}-ns.apps.test" in await hosts(here)
