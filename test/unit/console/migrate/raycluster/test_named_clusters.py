"""RayClusters that are named on the command line of ``cfo migrate``."""

from __future__ import annotations

from typing import Any, cast
from unittest import mock

import pytest

from cfo.console.errors import InvalidInput
from cfo.console.migrate.raycluster.migrate_command import _keys
from cfo.console.migrate.raycluster.observation import Observer
from cfo.runtime import GVK, Client, NamespacedName, Object


class KnownCluster:
    """A client of a cluster with the RayCluster ``ns/known``."""

    async def get(self, gvk: GVK, key: NamespacedName, **_: Any) -> Object | None:
        return {} if key == NamespacedName("ns", "known") else None


async def keys(*names: str) -> list[NamespacedName]:
    observer = mock.Mock(spec=Observer)
    observer.keys.return_value = [NamespacedName("ns", "all")]
    return await _keys(cast("Client", KnownCluster()), observer, "ns", names)


async def test_named_clusters_are_migrated_and_otherwise_all() -> None:
    assert await keys("known") == [NamespacedName("ns", "known")]
    assert await keys() == [NamespacedName("ns", "all")]


async def test_named_cluster_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="RayCluster ns/other does not exist"):
        await keys("known", "other")
