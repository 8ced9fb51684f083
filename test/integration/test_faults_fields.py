"""Tests that change each input field of the operator to another value, to an invalid one, and back.

Each time the resulting state must equal the state of an object created with this value (the pattern of Acto, SOSP
2023): no state may depend on the changes that led to it.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import pytest

from cfo.console.demo import crds
from cfo.runtime.client.errors import Invalid
from cfo.runtime.objects.unstructured import Object
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
from test.support.sweeps import sampled

REMOVED = object()


class Field(NamedTuple):
    """A field of a RayCluster: its path, a valid value other than the default, and an invalid one."""

    path: tuple[str, ...]
    other: Any
    invalid: Any


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
    Field(("metadata", "labels"), {"kueue.x-k8s.io/queue-name": "q"}, {"no label": "?"}),
    Field(("metadata", "annotations", "note"), "changed", {"a": "map"}),
]
"""The fields to change.

With KubeRay's own CRD, the API server denies most invalid values; those that it accepts must have no effect.

``managedBy`` is left out: the NetworkPolicies of a RayCluster that had pods before stay, by design
(test_raycluster_responsibility.py).
"""


def _set(obj: Object, path: tuple[str, ...], value: Any) -> Object:
    """Return a copy of ``obj`` with ``value`` at ``path``."""
    changed = copy.deepcopy(obj)
    parent = changed
    for part in path[:-1]:
        parent = parent.setdefault(part, {})
    if value is REMOVED:
        parent.pop(path[-1], None)
    else:
        parent[path[-1]] = value
    return changed


def _patch(path: tuple[str, ...], value: Any) -> Any:
    """Return the merge patch that sets ``value`` at ``path``."""
    for part in reversed(path):
        value = {part: value}
    return value


async def _change(env: Environment, cluster: Object, path: tuple[str, ...], value: Any) -> bool:
    """Send a merge patch of a field; return whether the API server accepted it."""
    try:
        await env.patch(cluster, _patch(path, value))
    except Invalid:
        return False
    return True


@pytest.mark.parametrize("openshift", [False, True], ids=["vanilla", "openshift"])
@pytest.mark.sweep
async def test_state_depends_only_on_current_value_of_each_field(openshift: bool) -> None:
    all_crds = [*crds.load(), *([ROUTE_CRD] if openshift else [])]
    settings: dict[str, Any] = {
        **(OAUTH_SETTINGS if openshift else PLAIN_SETTINGS),
        "kubeRayFeatures": ["networkPolicy", "tlsOptions", "authOptions"],
    }
    async with (
        start_environment(*all_crds) as env,
        run_with_faulty_transport(env, kuberay_config(**settings)),
    ):
        fields = sampled(FIELDS)
        base = ray_cluster(namespace=await env.create_namespace("base"))
        await env.create(base)
        for index, field in enumerate(fields):
            direct = await env.create_namespace(f"direct-{index}")
            changing = await env.create_namespace(f"changing-{index}")
            await env.create(_set(ray_cluster(namespace=direct), field.path, field.other))
            await env.create(ray_cluster(namespace=changing))
        await env.wait_until_idle()
        base_snapshot = await snapshot(env, "base", openshift=openshift)
        accepted = 0
        for index, field in enumerate(fields):
            direct_snapshot = await snapshot(env, f"direct-{index}", openshift=openshift)
            cluster = ray_cluster(namespace=f"changing-{index}")
            name = ".".join(field.path)
            assert await _change(env, cluster, field.path, field.other), name
            await wait_for_snapshot(
                env,
                f"changing-{index}",
                direct_snapshot,
                openshift=openshift,
                description=f"{name} changed",
            )
            accepted += await _change(env, cluster, field.path, field.invalid)
            await env.wait_until_idle()
            original: Any = base
            for part in field.path:
                original = (original or {}).get(part)
            await _change(
                env, cluster, field.path, None
            )  # a merge patch keeps the fields that it does not contain
            if original is not None:
                assert await _change(env, cluster, field.path, original), name
            await wait_for_snapshot(
                env,
                f"changing-{index}",
                base_snapshot,
                openshift=openshift,
                description=f"{name} changed back",
            )
        assert accepted < len(fields) / 2


SETTINGS: list[dict[str, Any]] = [
    {"rayDashboardOAuthEnabled": True},
    {"mTLSEnabled": False},
    {"ingressDomain": "other.test"},
    {"ingress": {"className": "traefik"}},
    {"ingress": {"annotations": {"a": "b"}}},
    {"ingress": {"tlsSecretName": "cert"}},
    {"ingress": {"namespaces": ["ingress-nginx"]}},
    {"operatorNamespaces": ["kuberay"]},
    {"kubeRayFeatures": ["tlsOptions"]},
]


@pytest.mark.parametrize("openshift", [False, True], ids=["vanilla", "openshift"])
@pytest.mark.sweep
async def test_state_depends_only_on_current_value_of_each_setting(openshift: bool) -> None:
    """The operator's configuration is an input as well, and may change with each start."""
    all_crds = [*crds.load(), *([ROUTE_CRD] if openshift else [])]
    base_settings = {**(OAUTH_SETTINGS if openshift else PLAIN_SETTINGS)}
    async with start_environment(*all_crds) as env:
        changing = await env.create_namespace("changing")
        await env.create(ray_cluster(namespace=changing))
        async with run_with_faulty_transport(env, kuberay_config(**base_settings)):
            base_snapshot = await snapshot(env, changing, openshift=openshift)
        for index, change in enumerate(sampled(SETTINGS)):
            direct = await env.create_namespace(f"direct-{index}")
            created = await env.create(ray_cluster(namespace=direct))
            async with run_with_faulty_transport(
                env, kuberay_config(**{**base_settings, **change})
            ):
                await env.wait_until_idle()
                direct_snapshot = await snapshot(env, direct, openshift=openshift)
                await wait_for_snapshot(
                    env, changing, direct_snapshot, openshift=openshift, description=f"{change}"
                )
                await env.delete(created)
                await wait_for_snapshot(env, direct, {}, openshift=openshift)
            async with run_with_faulty_transport(env, kuberay_config(**base_settings)):
                await wait_for_snapshot(
                    env,
                    changing,
                    base_snapshot,
                    openshift=openshift,
                    description=f"{change} reverted",
                )
