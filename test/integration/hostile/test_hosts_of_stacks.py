"""Tests that a stack does not get the host of an Ingress or HTTPRoute in another namespace."""

from __future__ import annotations

import pytest

from cfo.api.gateway import HTTP_ROUTE
from cfo.api.inferencestack.validation.settings import MAX_HOSTS
from cfo.api.inferencestack.validation.stack import validate
from cfo.controllers import host_claims
from cfo.runtime import Manager
from cfo.runtime.objects.kinds import INGRESS
from cfo.runtime.objects.unstructured import NamespacedName, Object
from test.integration.hostile.attacks import ingress
from test.support.gateways import HTTP_ROUTE_CRD
from test.support.inference_environment import (
    new_stack,
    run_inference_controllers,
    start_inference_environment,
)
from test.support.stack_gateways import GATEWAY, PARENT, gateway, hosts_of, wait_for_problem

HOSTS = tuple(f"{number}.example.com" for number in range(MAX_HOSTS + 1))


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enqueue at once what waits for a host; :mod:`.test_toggled_hosts` tests the delay."""
    monkeypatch.setattr(host_claims, "FOREIGN_DELAY", 0.0)


def route(name: str, namespace: str, *hosts: str, path: str = "/") -> Object:
    """Return an HTTPRoute of a tenant for these hosts, on the shared Gateway."""
    rules = [{"matches": [{"path": {"type": "PathPrefix", "value": path}}]}]
    return {
        "apiVersion": HTTP_ROUTE.api_version,
        "kind": HTTP_ROUTE.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"parentRefs": [PARENT], "hostnames": list(hosts), "rules": rules},
    }


async def test_stack_gets_no_host_of_another_namespace() -> None:
    async with start_inference_environment(HTTP_ROUTE_CRD) as env:
        await env.create_namespace("victim")
        await env.create(route("web", "victim", "shop.example.com"))
        await env.create(route("ray", "victim", "ray.example.com", path="/ray/victim/rc"))
        await env.create(ingress("old", "victim", "old.example.com"))
        await env.create(ingress("same", "ns", "own.example.com"))
        async with run_inference_controllers(env):
            taken = gateway(
                hosts=("shop.example.com", "free.example.com"), hostnames=("old.example.com",)
            )
            await env.create(new_stack(gateway=taken))
            await wait_for_problem(
                env,
                f"Ingress {GATEWAY} is not written: host shop.example.com is used by HTTPRoute victim/web",
                f"HTTPRoute {GATEWAY} is not written: host old.example.com is used by Ingress victim/old",
            )
            assert await env.find(INGRESS, GATEWAY) is None
            assert await env.find(HTTP_ROUTE, GATEWAY) is None

            await env.change(
                gateway=gateway(hosts=("own.example.com",), hostnames=("own.example.com",))
            )
            await hosts_of(env, INGRESS, ["own.example.com"])
            await hosts_of(env, HTTP_ROUTE, ["own.example.com"])

            path = "/ray/victim/rc/api"
            await env.change(
                gateway=gateway(
                    hosts=("own.example.com",), hostnames=("own.example.com",), path=path
                )
            )
            await wait_for_problem(env, "path /ray/victim/rc is used by HTTPRoute victim/ray")
            await hosts_of(env, HTTP_ROUTE, ["own.example.com"])

            await env.create(ingress("late", "victim", "own.example.com"))
            wanted = gateway(
                hosts=("own.example.com", "new.example.com"), hostnames=("own.example.com",)
            )
            await env.change(gateway=wanted)
            await hosts_of(env, INGRESS, ["own.example.com", "new.example.com"])


async def test_stack_gets_its_host_when_the_object_that_has_it_is_deleted() -> None:
    async with start_inference_environment() as env:
        await env.create_namespace("victim")
        await env.create(ingress("old", "victim", "old.example.com"))
        async with run_inference_controllers(env):
            await env.create(new_stack(gateway=gateway(hosts=("old.example.com",))))
            await wait_for_problem(env, "host old.example.com is used by Ingress victim/old")
            await env.client.delete(INGRESS, NamespacedName("victim", "old"))
            await hosts_of(env, INGRESS, ["old.example.com"])


def reconciles(manager: Manager) -> float:
    """Return how many reconciles of stacks have ended."""
    return sum(
        sample.value
        for metric in manager.metrics.registry.collect()
        for sample in metric.samples
        if sample.name == "controller_runtime_reconcile_total"
        and sample.labels["controller"] == "inferencestack-doublewordai"
    )


async def test_stack_is_reconciled_only_when_hosts_of_the_object_for_which_it_waits_change() -> (
    None
):
    """Controllers write the status of each Ingress, and a tenant can let them do so all the time."""
    async with start_inference_environment() as env:
        await env.create_namespace("victim")
        old = NamespacedName("victim", "old")
        await env.create(ingress("old", "victim", "old.example.com"))
        async with run_inference_controllers(env) as manager:
            await env.create(new_stack(gateway=gateway(hosts=("old.example.com",))))
            await wait_for_problem(env, "host old.example.com is used by Ingress victim/old")
            await env.wait_until_idle()
            before = reconciles(manager)
            for number in range(10):
                status = {"loadBalancer": {"ingress": [{"ip": f"192.0.2.{number}"}]}}
                await env.client.patch(INGRESS, old, {"status": status}, subresource="status")
                await env.wait_until_idle()
            assert reconciles(manager) == before
            await env.client.delete(INGRESS, old)
            await hosts_of(env, INGRESS, ["old.example.com"])


async def test_stack_that_no_longer_wants_a_host_does_not_wait_for_it() -> None:
    async with start_inference_environment() as env:
        await env.create_namespace("victim")
        await env.create(ingress("old", "victim", "old.example.com"))
        async with run_inference_controllers(env) as manager:
            await env.create(new_stack(gateway=gateway(hosts=("old.example.com",))))
            await wait_for_problem(env, "host old.example.com is used by Ingress victim/old")
            await env.change(gateway=gateway(hosts=("free.example.com",)))
            await hosts_of(env, INGRESS, ["free.example.com"])
            await env.wait_until_idle()
            before = reconciles(manager)
            await env.client.delete(INGRESS, NamespacedName("victim", "old"))
            await env.wait_until_idle()
            assert reconciles(manager) == before


async def test_host_that_very_many_objects_of_a_namespace_share_is_refused() -> None:
    """A tenant can create thousands of Ingresses with a thousand hosts each: not all of them are examined."""
    async with start_inference_environment() as env:
        for number in range(101):
            await env.create(ingress(f"same-{number}", "ns", "own.example.com"))
        async with run_inference_controllers(env):
            await env.create(new_stack(gateway=gateway(hosts=("own.example.com",))))
            await wait_for_problem(env, "host own.example.com is used by Ingress ns/same-")
            assert await env.find(INGRESS, GATEWAY) is None
            await env.client.delete(INGRESS, NamespacedName("ns", "same-0"))
            await env.change(gateway={"podAnnotations": {"touched": "yes"}})
            await hosts_of(env, INGRESS, ["own.example.com"])


@pytest.mark.parametrize(
    ("section", "field"),
    [
        ({"hosts": HOSTS}, "spec.gateway.ingress.hosts"),
        ({"hostnames": HOSTS}, "spec.gateway.httpRoute.hostnames"),
    ],
)
def test_stack_with_more_hosts_than_are_searched_is_refused(
    section: dict[str, tuple[str, ...]], field: str
) -> None:
    """The search of one host takes the longer the more objects of all tenants have many hosts."""
    errors = validate(new_stack(gateway=gateway(**section)), None).errors
    assert [str(error) for error in errors] == [
        f"{field}: Too many: {len(HOSTS)}: must have at most {MAX_HOSTS} items"
    ]
    section = {name: hosts[1:] for name, hosts in section.items()}
    assert validate(new_stack(gateway=gateway(**section)), None).errors == ()


async def test_route_with_more_dashboard_paths_than_are_searched_is_not_written() -> None:
    async with (
        start_inference_environment(HTTP_ROUTE_CRD) as env,
        run_inference_controllers(env),
    ):
        parts = gateway(hostnames=("own.example.com",))
        parts["httpRoute"]["rules"] = [
            {"matches": [{"path": {"value": f"/ray/victim/{host}"}} for host in HOSTS]}
        ]
        await env.create(new_stack(gateway=parts))
        await wait_for_problem(
            env,
            f"HTTPRoute {GATEWAY} is not written: it has {len(HOSTS) + 1} hosts and paths, "
            f"and at most {MAX_HOSTS} can be checked",
        )
        assert await env.find(HTTP_ROUTE, GATEWAY) is None
