"""Which Services a MiniCluster has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cfo.controllers.flux.minicluster.objects import (
    ExistingObjects,
    main_service,
    possible_services,
    sidecar_services,
    unwanted_services,
)
from cfo.controllers.flux.minicluster.plan import Plan
from cfo.runtime import SERVICE, Entry, NamespacedName, Object
from test.support.flux_environment import mini_cluster

FLUX = {"runFlux": True, "image": "i", "command": "true"}


def cluster_with(name: str, *sidecars: str, headless: str = "") -> Object:
    containers: list[dict[str, Any]] = [FLUX]
    containers += [{"name": sidecar, "image": "i", "ports": [80]} for sidecar in sidecars]
    obj = mini_cluster(name, containers=containers, network={"headlessName": headless})
    obj["metadata"]["uid"] = "u"
    return obj


def own_services(*names: str) -> dict[str, Entry]:
    """Return cached Services that the MiniCluster controls, without an address."""
    controller = SimpleNamespace(uid="u")
    return {
        name: cast(
            "Entry",
            SimpleNamespace(
                meta=SimpleNamespace(controller=controller),
                object=dict,
                key=NamespacedName("ns", name),
            ),
        )
        for name in names
    }


@pytest.mark.parametrize(
    ("cluster", "sidecars", "headless"),
    [("a", ["b"], "a-b"), ("c", ["c-b", "b"], ""), ("a", ["b"], "b")],
)
def test_no_service_has_two_desired_states(
    cluster: str, sidecars: list[str], headless: str
) -> None:
    plan = Plan.of(cluster_with(cluster, *sidecars, headless=headless))
    # Each name has a Service of this MiniCluster, as after the first reconcile.
    existing = ExistingObjects(job={}, services=own_services(*possible_services(plan)))
    sidecar = sidecar_services(plan, existing)
    children = [*main_service(plan, existing).children, *sidecar.children]
    names = [child.key.name for child in children]
    assert len(names) == len(set(names))
    assert sidecar.problem is not None
    assert sidecar.problem[0] == "NameTaken"


def test_service_has_another_name_if_the_wanted_one_is_taken() -> None:
    plan = Plan.of(cluster_with("a", "b", headless="h"))
    (main,) = main_service(plan, ExistingObjects()).children
    (sidecar,) = sidecar_services(plan, ExistingObjects()).children
    assert (main.key.name, sidecar.key.name) == ("h", "b")
    assert main.fallback is not None
    assert sidecar.fallback is not None
    assert (main.fallback.key.name, sidecar.fallback.key.name) == ("a", "a-b")


def test_service_keeps_the_other_name_once_it_has_it() -> None:
    plan = Plan.of(cluster_with("a", "b", headless="h"))
    existing = ExistingObjects(services=own_services("a", "a-b"))
    (main,) = main_service(plan, existing).children
    (sidecar,) = sidecar_services(plan, existing).children
    assert (main.key.name, sidecar.key.name) == ("a", "a-b")
    assert main.fallback is None


def test_service_of_an_existing_job_keeps_its_name() -> None:
    plan = Plan.of(cluster_with("a", headless="h"))
    (main,) = main_service(plan, ExistingObjects(job={})).children
    assert (main.key.name, main.fallback) == ("h", None)


def test_own_services_that_are_not_needed_are_unwanted() -> None:
    cluster = cluster_with("a")
    existing = ExistingObjects(services=own_services("a", "old"))
    wanted = [(SERVICE, NamespacedName("ns", "a"))]
    unwanted = unwanted_services(existing, cluster, wanted)
    assert unwanted == [(SERVICE, NamespacedName("ns", "old"))]
