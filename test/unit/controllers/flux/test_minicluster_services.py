"""Tests of the Services of a MiniCluster without an API server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cfo.controllers.flux.minicluster.children import Children
from cfo.controllers.flux.minicluster.objects import ServiceWriter
from cfo.controllers.flux.minicluster.plan import Plan
from cfo.runtime import Entry, Object, Reader, name_of
from test.support.flux_environment import mini_cluster


class RecordingChildren:
    """Records the names of the Services that are applied."""

    def __init__(self, cluster: Object) -> None:
        self.cluster = cluster
        self.keep_existing = False
        self.problem: tuple[str, str] | None = None
        self.applied: list[str] = []

    async def ensure(
        self, desired: Object, current: Entry | None, *, required: bool = True
    ) -> bool:
        self.applied.append(name_of(desired))
        return True

    def add_problem(self, reason: str, message: str) -> None:
        self.problem = self.problem or (reason, message)


@pytest.mark.parametrize(
    ("cluster", "sidecars", "headless"),
    [("a", ["b"], "a-b"), ("c", ["c-b", "b"], ""), ("a", ["b"], "b")],
)
async def test_no_service_has_two_desired_states(
    cluster: str, sidecars: list[str], headless: str
) -> None:
    containers: list[dict[str, Any]] = [{"runFlux": True, "image": "i", "command": "true"}]
    containers += [{"name": name, "image": "i", "ports": [80]} for name in sidecars]
    obj = mini_cluster(cluster, containers=containers, network={"headlessName": headless})
    obj["metadata"]["uid"] = "u"
    children = RecordingChildren(obj)
    # Each name has a Service of this MiniCluster, as after the first reconcile.
    own = SimpleNamespace(meta=SimpleNamespace(controller=SimpleNamespace(uid="u")), object=dict)
    services = cast("Reader", SimpleNamespace(entry=lambda key: own))
    writer = ServiceWriter(cast("Children", children), services)
    await writer.apply_sidecars(await writer.apply_main(Plan.of(obj), fixed=True))
    assert len(children.applied) == len(set(children.applied))
    assert children.problem is not None
    assert children.problem[0] == "NameTaken"
