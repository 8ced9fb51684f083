"""Tests of :class:`cfo.runtime.GVK`."""

from __future__ import annotations

from cfo.runtime import GVK


def test_versions_of_a_kind_are_the_same_kind() -> None:
    cluster = GVK("ray.io", "v1", "RayCluster")
    assert cluster.same_kind(GVK.parse("ray.io/v1alpha1", "RayCluster"))
    assert not cluster.same_kind(GVK.parse("ray.io/v1", "RayJob"))
    assert not cluster.same_kind(GVK.parse("v1", "RayCluster"))
