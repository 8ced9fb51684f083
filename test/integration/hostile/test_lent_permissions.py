"""Tests that tenants cannot create through the operator what they are not allowed to create themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

from cfo.api.flux.names import FLUX_JOB, MINICLUSTER
from cfo.api.gateway import HTTP_ROUTE
from cfo.api.inferencestack.kinds import INFERENCE_STACKS, SCALED_OBJECT
from cfo.runtime.client.client import Client
from cfo.runtime.client.errors import APIError, Forbidden
from cfo.runtime.objects.kinds import DEPLOYMENT
from cfo.runtime.objects.rbac import Rule
from cfo.runtime.objects.unstructured import NamespacedName, Object, gvk_of, key_of
from cfo.webhooks.access import REMEMBERED_SECONDS
from envtest import EmbeddedControlPlane
from test.support.appwrapper_environment import pod, wrapper
from test.support.config_map_webhooks import free_url
from test.support.flux_environment import mini_cluster
from test.support.inference_environment import new_stack
from test.support.operator_process import (
    LOOPBACK_ADDRESSES,
    OperatorProcess,
    create_config_map,
    run_operator,
)
from test.support.raycluster_environment import eventually
from test.support.tenant_clients import start_tenant_client
from test.support.tenants import ATTACKER, OPTIONAL_CRDS, VICTIM, TenantPlane, start_tenant_plane

CONFIG: dict[str, Any] = {
    **LOOPBACK_ADDRESSES,
    "kuberay": {"enabled": False},
    "appwrapper": {"enabled": True},
    "flux": {"enabled": True},
    "inferenceStack": {"enabled": True, "operatorVersion": "v2"},
}
ROUTE = {
    "httpRoute": {
        "parentRefs": [{"name": "shared", "namespace": "gateways"}],
        "hostnames": ["shop.example.com"],
    }
}
SCALED = {
    "scaling": {
        "enabled": True,
        "spec": {"triggers": [{"type": "cpu", "metadata": {"value": "50"}}]},
    }
}
STACK = INFERENCE_STACKS[1]


@asynccontextmanager
async def start_operator(directory: Path) -> AsyncIterator[tuple[TenantPlane, OperatorProcess]]:
    """Run a plane with tenants and the operator with AppWrappers, Flux and stacks of v2, which validates them."""
    async with start_tenant_plane(*OPTIONAL_CRDS) as tenants:
        await create_config_map(tenants, {"config.yaml": yaml.safe_dump(CONFIG)})
        async with run_operator(tenants, directory, "--webhook-url", str(free_url())) as operator:
            await operator.ready()
            invalid = new({"gateway": {}}, name="invalid")

            async def is_called() -> bool:
                return "reserved" in await denial(tenants.client.create(invalid, dry_run=True))

            await eventually(is_called, "the webhooks")
            yield tenants, operator


def new(
    applications: dict[str, Any] | None = None, name: str = "s", version: str = "v2", **spec: Any
) -> Object:
    """Return a stack of the attacker."""
    obj = new_stack(applications, name, version, **spec)
    obj["metadata"]["namespace"] = ATTACKER
    return obj


async def denial(request: Awaitable[Object]) -> str:
    """Return the message with which a request is refused; empty if it succeeds."""
    try:
        await request
    except APIError as error:
        return error.message
    return ""


async def update(client: Client, name: str, spec: Any, **labels: str) -> Object:
    """Merge ``spec`` and ``labels`` into a stack of the attacker."""
    patch = {"metadata": {"labels": labels}, "spec": spec}
    return await client.patch(STACK, NamespacedName(ATTACKER, name), patch)


def count_reviews(tenants: TenantPlane) -> int:
    """Return the number of SubjectAccessReviews that the embedded plane has answered."""
    assert isinstance(tenants.plane, EmbeddedControlPlane)
    return sum(
        event["objectRef"].get("resource") == "subjectaccessreviews"
        for event in tenants.plane.audit.events
        if "objectRef" in event
    )


async def test_stack_is_refused_if_its_user_is_not_allowed_to_create_its_objects(
    tmp_path: Path,
) -> None:
    async with start_operator(tmp_path) as (tenants, _):
        attacker = tenants.attacker
        everything = {
            "gateway": {
                **ROUTE,
                "exportPrometheusMetrics": True,
                "podDisruptionBudget": {"minAvailable": 1},
            },
            "applications": {"a": {**SCALED, "cache": {"size": "1Gi"}}},
        }
        refused = await denial(attacker.create(new(**everything)))
        for field, resource in (
            ("spec.gateway.httpRoute", "httproutes"),
            ("spec.gateway.exportPrometheusMetrics", "servicemonitors"),
            ("spec.applications[a].scaling", "scaledobjects"),
        ):
            user = tenants.user_of(ATTACKER)
            assert (
                f"{field}: Forbidden: User {user} is not authorized to create {resource} in {ATTACKER}"
                in refused
            )
        assert refused.count("not authorized") == 3, "edit allows all other resources"

        await attacker.create(new({"a": {}}))
        for changed in everything, {"gateway": ROUTE}, {"applicationTemplate": SCALED}:
            assert "not authorized" in await denial(update(attacker, "s", changed))
        await attacker.create(
            new(name="unlabelled", version="", gateway=ROUTE)
        )  # no operator ever renders it
        for version in ("v2", "v7", "v12"):
            assert "create httproutes" in await denial(
                update(attacker, "unlabelled", {}, operatorVersion=version)
            )
        # Its operator may be installed later, and renders it then.
        for version in ("v7", "v10"):
            name = f"other-{version}"
            assert "create httproutes" in await denial(
                attacker.create(new(name=name, version=version, gateway=ROUTE))
            )
            await attacker.create(new(name=name, version=version))
            await update(attacker, name, {"gateway": {"replicas": 2}})
            assert "create httproutes" in await denial(update(attacker, name, {"gateway": ROUTE}))
            assert "create httproutes" in await denial(
                update(attacker, "s", {"gateway": ROUTE}, operatorVersion=version)
            )
        for version in ("v2", "v7", "v10", ""):
            wrapped = new({"a": SCALED}, version=version, gateway=ROUTE)
            del wrapped["metadata"]["namespace"]
            components = wrapper(pod("p"), wrapped, name="w")
            components["metadata"]["namespace"] = ATTACKER
            refused = await denial(attacker.create(components))
            assert "spec.components[1].template.spec.gateway.httpRoute: Forbidden: User" in refused
            assert (
                "spec.components[1].template.spec.applications[a].scaling: Forbidden: User"
                in refused
            )

        async def is_rendered() -> bool:
            key = NamespacedName(ATTACKER, "s-inference-stack-a")
            return await tenants.client.get(DEPLOYMENT, key) is not None

        await eventually(is_rendered, "the Deployment of the stack")
        assert await tenants.client.list(HTTP_ROUTE) == []
        assert await tenants.client.list(SCALED_OBJECT) == []


@pytest.mark.embedded(reason="reads the audit log")
async def forget_answers() -> None:
    """Wait until the operator, another process, has forgotten the answers to its reviews."""
    await anyio.sleep(REMEMBERED_SECONDS + 0.1)


async def test_updates_that_add_no_resource_are_not_reviewed(tmp_path: Path) -> None:
    async with start_operator(tmp_path) as (tenants, _):
        wrapped = {key: value for key, value in new({"a": {}}).items() if key != "metadata"}
        stacks = [{**wrapped, "metadata": {"name": f"s{number}"}} for number in range(21)]
        for count, refused in (
            (20, ""),
            (21, "spec.components[21].template: Forbidden: at most 20 such objects"),
        ):
            await forget_answers()
            before = count_reviews(tenants)
            many = wrapper(pod("p"), *stacks[:count], name="many")
            many["metadata"]["namespace"] = ATTACKER
            assert refused in await denial(tenants.attacker.create(many, dry_run=True))
            assert (
                count_reviews(tenants) - before == 6
            )  # pods, inferencestacks, and four for all stacks
        await forget_answers()
        before = count_reviews(tenants)
        await tenants.attacker.create(new({"a": {}}))
        assert (
            count_reviews(tenants) - before == 4
        )  # configmaps, deployments, serviceaccounts, services
        await tenants.grant(ATTACKER, Rule("gateway.networking.k8s.io", "httproutes", "create"))

        async def is_granted() -> bool:
            return not await denial(update(tenants.attacker, "s", {"gateway": ROUTE}))

        await eventually(is_granted, "the permission to create HTTPRoutes")
        before = count_reviews(tenants)
        await update(
            tenants.attacker,
            "s",
            {"gateway": {**ROUTE, "replicaCount": 2}, "applications": {"b": {}}},
        )
        await update(tenants.attacker, "s", {"gateway": {"httpRoute": None}}, team="x")
        assert count_reviews(tenants) == before
        await forget_answers()
        await update(tenants.attacker, "s", {"gateway": ROUTE})
        assert (
            count_reviews(tenants) > before
        )  # the API server repeats a patch that conflicts with a status

        async def is_created() -> bool:
            return len(await tenants.client.list(HTTP_ROUTE, namespace=ATTACKER)) == 1

        await eventually(is_created, "the HTTPRoute")


async def test_flux_objects_are_refused_if_their_user_is_not_allowed_to_create_jobs(
    tmp_path: Path,
) -> None:
    flux = Rule("flux-framework.org", ("fluxjobs", "miniclusters"), ("create", "patch"))
    wrappers = Rule("workload.codeflare.dev", "appwrappers", "create")
    pods = Rule("", "pods", "create")
    cluster = mini_cluster("m", VICTIM)
    job: Object = {
        "apiVersion": FLUX_JOB.api_version,
        "kind": FLUX_JOB.kind,
        "metadata": {"name": "j", "namespace": VICTIM},
        "spec": {"size": 1, "command": "sleep"},
    }
    async with start_operator(tmp_path) as (tenants, _):
        await tenants.create_namespace("team")
        async with start_tenant_client(tenants, flux, wrappers, pods, namespace="team") as limited:
            for obj in (cluster, job):
                own = {**obj, "metadata": {**obj["metadata"], "namespace": "team"}}
                with pytest.raises(
                    Forbidden, match=r"spec: Forbidden: User .* to create jobs in team"
                ):
                    await limited.create(own)
                wrapped = wrapper(pod("p"), {**own, "metadata": {"name": "wrapped"}}, name="w")
                wrapped["metadata"]["namespace"] = "team"
                with pytest.raises(
                    Forbidden, match=r"\[1\].template.spec: Forbidden: User .* create jobs in"
                ):
                    await limited.create(wrapped)
                await tenants.victim.create(obj)
            spec: Any = {
                "size": 2,
                "suspend": True,
                "containers": [{"image": "i", "command": "true"}],
            }
            for obj, changes in (
                (
                    {**cluster, "spec": spec},
                    [{"containers": [{"image": "own", "command": "true"}]}, {"size": 3}],
                ),
                (
                    {**job, "spec": {**job["spec"], "size": 2, "suspend": True}},
                    [{"image": "own"}, {"size": 3}],
                ),
            ):
                stored = await tenants.client.create(
                    {**obj, "metadata": {"name": "waits", "namespace": "team"}}
                )
                for change in changes:
                    refused = await denial(
                        limited.patch(gvk_of(obj), key_of(stored), {"spec": change})
                    )
                    assert "spec: Forbidden: User" in refused, change
                    await tenants.client.patch(
                        gvk_of(obj), key_of(stored), {"spec": change}, dry_run=True
                    )
                for change in (
                    {"suspend": False},
                    {"size": 1},
                ):  # nothing that the object did not have
                    await limited.patch(gvk_of(obj), key_of(stored), {"spec": change}, dry_run=True)

        async def is_admitted() -> bool:
            return await tenants.client.get(MINICLUSTER, NamespacedName(VICTIM, "m")) is not None

        await eventually(is_admitted, "the MiniCluster of a user with edit")
