"""The facts that the controllers of RayClusters share."""

import pytest

from cfo.controllers.raycluster.environment import SharedFacts
from cfo.runtime import Object


def cluster(uid: str, *, version: str = "1", size: int = 0) -> Object:
    metadata = {"namespace": "default", "name": uid, "uid": uid, "resourceVersion": version}
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": {"filler": "x" * size}}


def test_facts_of_one_version_are_shared() -> None:
    shared = SharedFacts()
    first = shared.of(cluster("a"))
    assert shared.of(cluster("a")) is first
    assert shared.of(cluster("a", version="2")) is not first


def test_large_clusters_are_not_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharedFacts, "_MAX_BYTES", 1000)
    shared = SharedFacts()
    small, middle, large = cluster("small"), cluster("middle", size=500), cluster("large", size=1000)
    kept = shared.of(small)
    assert shared.of(large) is not shared.of(large)
    assert shared.of(small) is kept
    last = shared.of(middle)
    for version in "234":  # earlier versions take no place
        last = shared.of(cluster("middle", version=version, size=500))
    assert shared.of(small) is kept
    assert shared.of(cluster("other", size=500)) is not None
    assert shared.of(cluster("middle", version="4", size=500)) is not last
