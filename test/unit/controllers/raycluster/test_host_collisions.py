"""Tests of the lookups by the hosts of other clients' Ingresses."""

from __future__ import annotations

from cfo.controllers.raycluster.host_collisions import clusters_at_address
from cfo.runtime.cache.informer import Reader
from cfo.runtime.objects import NamespacedName


class CountingReader(Reader):
    """A reader that contains one key and counts the lookups."""

    def __init__(self, key: NamespacedName) -> None:
        self.key = key
        self.lookups = 0

    def contains(self, key: NamespacedName) -> bool:
        self.lookups += 1
        return key == self.key


def test_address_is_split_only_where_a_namespace_can_begin() -> None:
    reader = CountingReader(NamespacedName("n" * 63, "a-" * 60))
    assert list(clusters_at_address(reader, f"{'a-' * 60}-{'n' * 63}")) == [reader.key]
    assert reader.lookups <= 64
    reader = CountingReader(NamespacedName("c", "a-b"))
    assert list(clusters_at_address(reader, "a-b-c")) == [reader.key]
    reader.lookups = 0
    assert list(clusters_at_address(reader, "-" * 240)) == []
    assert reader.lookups <= 64
