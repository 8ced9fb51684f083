"""RayClusters that are named on the command line of ``cfo migrate``."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cfo.console.errors import InvalidInput
from cfo.console.migrate.raycluster.migrate_command import _observed
from cfo.console.migrate.raycluster.observation import Observer
from cfo.console.migrate.raycluster.planning import ObservedCluster
from cfo.runtime import NamespacedName


class RecordingObserver:
    """Knows the RayCluster ``ns/known``, and records what is read."""

    def __init__(self) -> None:
        self.read: list[NamespacedName] = []

    async def cluster(self, key: NamespacedName) -> ObservedCluster | None:
        self.read.append(key)
        if key.name != "known":
            return None
        cluster: dict[str, Any] = {"metadata": {"namespace": key.namespace, "name": key.name}}
        return ObservedCluster(cluster, (), (), False)


async def test_named_cluster_is_read_once() -> None:
    observer = RecordingObserver()
    (found,) = await _observed(cast("Observer", observer), "ns", ["known"])
    assert found.cluster["metadata"]["name"] == "known"
    assert observer.read == [NamespacedName("ns", "known")]


async def test_named_cluster_that_does_not_exist_is_an_error() -> None:
    observer = RecordingObserver()
    with pytest.raises(InvalidInput, match="RayCluster ns/other does not exist"):
        await _observed(cast("Observer", observer), "ns", ["known", "other"])
