"""Partitions: the hash of namespaces, the ranges of shards, and the selector of Kubernetes 1.36."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfo.runtime import Partition
from cfo.runtime.sharding.ranges import HashRange, KeyHash, fnv1a_64, mixed_64, shard_of_key
from test.support.properties import PROPERTY

_HASHES: list[KeyHash] = ["mixed", "fnv1a"]


@pytest.mark.parametrize(
    ("key", "expected"),
    [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), ("foobar", 0x85944171F73967E8)],
)
def test_fnv1a_returns_the_published_test_vectors(key: str, expected: int) -> None:
    assert fnv1a_64(key) == expected


@pytest.mark.parametrize("pattern", ["team-{:02}", "user{}", "tenant-{:04}", "{:03}-project"])
def test_numbered_namespaces_are_distributed_evenly(pattern: str) -> None:
    counts = Counter(shard_of_key(pattern.format(number), 16) for number in range(1600))

    assert len(counts) == 16
    assert max(counts.values()) < 150, "more than 1.5 times the average of 100"


def test_numbered_namespaces_are_not_distributed_by_fnv1a_without_mixing() -> None:
    assert len({shard_of_key(f"team-{number:02}", 64, "fnv1a") for number in range(40)}) == 1


@PROPERTY
@given(st.text(max_size=80), st.integers(1, 256), st.sampled_from(_HASHES))
def test_each_key_is_in_exactly_the_range_of_its_shard(key: str, shards: int, key_hash: KeyHash) -> None:
    shard = shard_of_key(key, shards, key_hash)
    value = fnv1a_64(key) if key_hash == "fnv1a" else mixed_64(key)

    (owned,) = Partition(shards, frozenset({shard}), key_hash).ranges()
    assert owned.start <= value < owned.end


@PROPERTY
@given(st.integers(1, 256))
def test_ranges_of_all_shards_cover_all_hashes_once(shards: int) -> None:
    singles = [Partition(shards, frozenset({shard})).ranges()[0] for shard in range(shards)]

    assert singles[0].start == 0
    assert singles[-1].end == 2**64
    assert all(one.end == following.start for one, following in pairwise(singles))
    assert Partition(shards, frozenset(range(shards))).ranges() == (HashRange(0, 2**64),)


def test_partition_covers_objects_by_namespace_and_cluster_scoped_objects_by_name() -> None:
    shard = shard_of_key("ray", 8)
    partition = Partition(8, frozenset({shard}))

    assert partition.shard_of("ray", "any") == shard
    assert partition.covers("ray", "any")
    assert partition.covers("", "ray")
    assert not Partition(8, frozenset(range(8)) - {shard}).covers("ray", "any")


def test_empty_and_complete_partitions() -> None:
    empty, complete = Partition(4, frozenset()), Partition(4, frozenset(range(4)), "fnv1a")

    assert empty.is_empty
    assert not empty.is_complete
    assert not empty.covers("default", "x")
    assert empty.ranges() == ()
    assert complete.is_complete
    assert complete.covers("default", "x")
    assert empty.shard_selector == complete.shard_selector == ""


def test_shard_selector_joins_adjacent_shards() -> None:
    partition = Partition(4, frozenset({0, 2, 3}), "fnv1a")

    assert partition.shard_selector == (
        "shardRange(object.metadata.namespace, '0x0000000000000000', '0x4000000000000000') || "
        "shardRange(object.metadata.namespace, '0x8000000000000000', '0x10000000000000000')"
    )
    assert Partition(4, frozenset({0, 2})).shard_selector == "", "the API server cannot compute the mixed hash"


@PROPERTY
@given(st.integers(2, 256), st.data())
def test_shard_selector_selects_what_the_partition_covers(shards: int, data: st.DataObject) -> None:
    owned = data.draw(st.frozensets(st.integers(0, shards - 1), min_size=1, max_size=shards - 1))
    namespace = data.draw(st.from_regex(r"[a-z0-9][a-z0-9-]{0,40}", fullmatch=True))
    partition = Partition(shards, owned, "fnv1a")

    bounds = re.findall(r"'0x([0-9a-f]{16,17})', '0x([0-9a-f]{16,17})'", partition.shard_selector)
    selected = any(int(start, 16) <= fnv1a_64(namespace) < int(end, 16) for start, end in bounds)
    assert selected == partition.covers(namespace, "x")


@pytest.mark.parametrize(
    ("shards", "owned", "message"),
    [
        (0, [], "shards: 0: must be between 1 and 256"),
        (257, [], "shards: 257: must be between 1 and 256"),
        (4, [4], "owned: [4]: must be between 0 and 3"),
        (4, [-1], "owned: [-1]: must be between 0 and 3"),
    ],
)
def test_impossible_partitions_are_rejected(shards: int, owned: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Partition(shards, frozenset(owned))
