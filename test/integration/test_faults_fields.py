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
from test.support.faults import picture, running, same_end, settled
from test.support.raycluster_environment import OAUTH, PLAIN, ROUTES, World, kuberay, ray_cluster, world

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


async def _change(here: World, cluster: Object, path: tuple[str, ...], value: Any) -> bool:
    """Whether the API server let the change pass. What was there is taken away first, for a patch merges."""
    try:
        await here.patch(cluster, _patch(path, value))
    except Invalid:
        return False
    return True


@pytest.mark.parametrize("openshift", [False, True], ids=["vanilla", "openshift"])
async def test_every_field_there_and_back(openshift: bool) -> None:
    definitions = [*crds.load(), *([ROUTES] if openshift else [])]
    async with world(*definitions) as here, running(here, kuberay(**(OAUTH if openshift else PLAIN))):
        base = ray_cluster(namespace=await here.namespace("base"))
        await here.create(base)
        for index, field in enumerate(FIELDS):
            direct = await here.namespace(f"direct-{index}")
            moving = await here.namespace(f"moving-{index}")
            await here.create(_set(ray_cluster(namespace=direct), field.path, field.other))
            await here.create(ray_cluster(namespace=moving))
        await settled(here)
        at_base = await picture(here, "base", openshift=openshift)
        passed = 0
        for index, field in enumerate(FIELDS):
            there = await picture(here, f"direct-{index}", openshift=openshift)
            cluster = ray_cluster(namespace=f"moving-{index}")
            why = ".".join(field.path)
            assert await _change(here, cluster, field.path, field.other), why
            await same_end(here, f"moving-{index}", there, openshift=openshift, why=f"{why} changed")
            passed += await _change(here, cluster, field.path, field.impossible)
            await settled(here)
            original: Any = base
            for part in field.path:
                original = (original or {}).get(part)
            await _change(here, cluster, field.path, None)  # what a merge would keep
            if original is not None:
                assert await _change(here, cluster, field.path, original), why
            await same_end(here, f"moving-{index}", at_base, openshift=openshift, why=f"{why} changed back")
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
    definitions = [*crds.load(), *([ROUTES] if openshift else [])]
    usual = {**(OAUTH if openshift else PLAIN)}
    async with world(*definitions) as here:
        moving = await here.namespace("moving")
        await here.create(ray_cluster(namespace=moving))
        async with running(here, kuberay(**usual)):
            at_base = await picture(here, moving, openshift=openshift)
        for index, change in enumerate(SETTINGS):
            direct = await here.namespace(f"direct-{index}")
            created = await here.create(ray_cluster(namespace=direct))
            async with running(here, kuberay(**{**usual, **change})):
                await settled(here)
                there = await picture(here, direct, openshift=openshift)
                await same_end(here, moving, there, openshift=openshift, why=f"{change}")
                await here.delete(created)
                await same_end(here, direct, {}, openshift=openshift)
            async with running(here, kuberay(**usual)):
                await same_end(here, moving, at_base, openshift=openshift, why=f"{change} taken back")
