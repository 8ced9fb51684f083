"""For each field of what the operator is told: change it, change it to something impossible, change it back.

The end must be that of going there directly (the pattern of Acto, SOSP 2023): no state of an object may depend on the
way that led to it.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import pytest

from cfo.demo import crds
from cfo.runtime.client.errors import Invalid
from cfo.runtime.objects import Object
from test.support.faults import run_with_faulty_transport, snapshot, wait_for_snapshot
from test.support.raycluster_environment import (
    OAUTH_SETTINGS,
    PLAIN_SETTINGS,
    ROUTE_CRD,
    Environment,
    kuberay_config,
    ray_cluster,
    start_environment,
)

REMOVED = object()


class Field(NamedTuple):
    """A field of a RayCluster: where it is, another value, and one that cannot be."""

    path: tuple[str, ...]
    other: Any
    impossible: Any


FIELDS = [
    Field(("spec", "tlsOptions"), {"enabled": True}, {"enabled": "perhaps"}),
    Field(("spec", "authOptions"), {"mode": "token"}, {"mode": "trust"}),
    Field(("spec", "networkPolicy"), {"mode": "DenyAll"}, {"mode": 7}),
    Field(("spec", "rayVersion"), "2.9.0", 2.9),
    Field(("spec", "enableInTreeAutoscaling"), True, "often"),
    Field(("spec", "headServiceAnnotations"), {"team": "a"}, {"team": 7}),
    Field(("spec", "headGroupSpec", "serviceType"), "NodePort", ["NodePort"]),
    Field(("spec", "headGroupSpec", "enableIngress"), False, "no"),
    Field(("spec", "headGroupSpec", "rayStartParams"), {"dashboard-host": "0.0.0.0"}, "none"),
    Field(("spec", "managedBy"), "kueue.x-k8s.io/multikueue", "somebody"),
    Field(("metadata", "labels"), {"kueue.x-k8s.io/queue-name": "q"}, {"no label": "?"}),
    Field(("metadata", "annotations", "note"), "changed", {"a": "map"}),
]
"""Served with KubeRay's own definition, so the API server refuses what cannot be; what it lets pass must not matter."""


def _set(obj: Object, path: tuple[str, ...], value: Any) -> Object:
    """A copy of ``obj`` with ``value`` at ``path``."""
    changed = copy.deepcopy(obj)
    place = changed
    for part in path[:-1]:
        place = place.setdefault(part, {})
    if value is REMOVED:
        place.pop(path[-1], None)
    else:
        place[path[-1]] = value
    return changed


def _patch(path: tuple[str, ...], value: Any) -> Any:
    """The merge patch that replaces what is at ``path``."""
    for part in reversed(path):
        value = {part: value}
    return value


async def _change(here: Environment, cluster: Object, path: tuple[str, ...], value: Any) -> bool:
    """Whether the API server let the change pass. What was there is taken away first, for a patch merges."""
    try:
        await here.patch(cluster, _patch(path, value))
    except Invalid:
        return False
    return True


@pytest.mark.parametrize("openshift", [False, True], ids=["vanilla", "openshift"])
async def test_every_field_there_and_back(openshift: bool) -> None:
    definitions = [*crds.load(), *([ROUTE_CRD] if openshift else [])]
    async with (
        start_environment(*definitions) as here,
        run_with_faulty_transport(here, kuberay_config(**(OAUTH_SETTINGS if openshift else PLAIN_SETTINGS))),
    ):
        base = ray_cluster(namespace=await here.create_namespace("base"))
        await here.create(base)
        for index, field in enumerate(FIELDS):
            direct = await here.create_namespace(f"direct-{index}")
            moving = await here.create_namespace(f"moving-{index}")
            await here.create(_set(ray_cluster(namespace=direct), field.path, field.other))
            await here.create(ray_cluster(namespace=moving))
        await here.wait_until_idle()
        at_base = await snapshot(here, "base", openshift=openshift)
        passed = 0
        for index, field in enumerate(FIELDS):
            there = await snapshot(here, f"direct-{index}", openshift=openshift)
            cluster = ray_cluster(namespace=f"moving-{index}")
            why = ".".join(field.path)
            assert await _change(here, cluster, field.path, field.other), why
            await wait_for_snapshot(here, f"moving-{index}", there, openshift=openshift, description=f"{why} changed")
            passed += await _change(here, cluster, field.path, field.impossible)
            await here.wait_until_idle()
            original: Any = base
            for part in field.path:
                original = (original or {}).get(part)
            await _change(here, cluster, field.path, None)  # what a merge would keep
            if original is not None:
                assert await _change(here, cluster, field.path, original), why
            await wait_for_snapshot(
                here, f"moving-{index}", at_base, openshift=openshift, description=f"{why} changed back"
            )
        assert passed < len(FIELDS) / 2


SETTINGS: list[dict[str, Any]] = [
    {"rayDashboardOAuthEnabled": True},
    {"mTLSEnabled": False},
    {"ingressDomain": "other.test"},
    {"ingress": {"className": "traefik"}},
    {"ingress": {"annotations": {"a": "b"}}},
    {"ingress": {"tlsSecretName": "cert"}},
    {"ingress": {"namespaces": ["ingress-nginx"]}},
    {"operatorNamespaces": ["kuberay"]},
]


@pytest.mark.parametrize("openshift", [False, True], ids=["vanilla", "openshift"])
async def test_every_setting_there_and_back(openshift: bool) -> None:
    """The operator's own configuration is an input as well: each of its starts may bring another one."""
    definitions = [*crds.load(), *([ROUTE_CRD] if openshift else [])]
    usual = {**(OAUTH_SETTINGS if openshift else PLAIN_SETTINGS)}
    async with start_environment(*definitions) as here:
        moving = await here.create_namespace("moving")
        await here.create(ray_cluster(namespace=moving))
        async with run_with_faulty_transport(here, kuberay_config(**usual)):
            at_base = await snapshot(here, moving, openshift=openshift)
        for index, change in enumerate(SETTINGS):
            direct = await here.create_namespace(f"direct-{index}")
            created = await here.create(ray_cluster(namespace=direct))
            async with run_with_faulty_transport(here, kuberay_config(**{**usual, **change})):
                await here.wait_until_idle()
                there = await snapshot(here, direct, openshift=openshift)
                await wait_for_snapshot(here, moving, there, openshift=openshift, description=f"{change}")
                await here.delete(created)
                await wait_for_snapshot(here, direct, {}, openshift=openshift)
            async with run_with_faulty_transport(here, kuberay_config(**usual)):
                await wait_for_snapshot(here, moving, at_base, openshift=openshift, description=f"{change} taken back")
