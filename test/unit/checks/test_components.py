"""Versions of other components."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from cfo.checks.components import parse_version, read_deployments
from cfo.runtime import GVK, Client, NamespacedName, Object


def test_version_is_bounded() -> None:
    assert parse_version("v1.36.2") == (1, 36, 2)
    for text in ("1" * 5000, f"v1.{'2' * 5000}", f"{'1' * 5000}.2"):
        assert parse_version(text) is None or max(parse_version(text) or ()) < 10**9


def deployment(namespace: str, *images: str) -> Object:
    containers = [{"name": "c", "image": image} for image in images]
    return {
        "metadata": {"namespace": namespace, "name": "operator"},
        "spec": {"template": {"spec": {"containers": containers}}},
    }


class Deployments:
    """A client of a cluster with a Deployment without labels, and those of a tenant with them."""

    async def select(
        self, _: GVK, select: Callable[[Object], Any], *, label_selector: str = "", **__: str
    ) -> list[Any]:
        found = [deployment("kuberay", "kuberay:v1.7.0", "sidecar")]
        if label_selector == "app.kubernetes.io/name in (a,b)":
            found = [deployment("tenant", "x" * 100_000), deployment("tenant")]
        return [each for each in map(select, found) if each is not None]


async def test_labelled_deployments_do_not_hide_one_without_the_label() -> None:
    found = await read_deployments(cast("Client", Deployments()), ["a", "b"], "operator")
    assert found[0] == (NamespacedName("kuberay", "operator"), "kuberay:v1.7.0")
    (key, image) = found[1]
    assert key.namespace == "tenant"
    assert len(image) <= 1_000
    assert len(found) == 2
