"""The target owners of shards: balanced, with the fewest moves, and equal for all members."""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cfo.runtime.sharding.assignment import FREE, target_owners
from test.support.properties import PROPERTY

_MEMBERS = ["a", "b", "c", "d"]
_members = st.frozensets(st.sampled_from(_MEMBERS), min_size=1)
_owners = st.lists(st.sampled_from([*_MEMBERS, FREE, "gone"]), min_size=1, max_size=9).map(tuple)


def _moves(members: frozenset[str], owners: tuple[str, ...], target: tuple[str, ...]) -> int:
    return sum(owner in members and owner != wanted for owner, wanted in zip(owners, target, strict=True))


@PROPERTY
@given(_members, _owners)
def test_target_is_balanced_with_the_fewest_moves(members: frozenset[str], owners: tuple[str, ...]) -> None:
    target = target_owners(members, owners)

    counts = [target.count(member) for member in members]
    assert sum(counts) == len(owners)
    assert max(counts) - min(counts) <= 1
    owned = Counter(owners)
    fewest = min(
        sum(max(0, owned[member] - count) for member, count in zip(members, permutation, strict=True))
        for permutation in itertools.permutations(counts)
    )
    assert _moves(members, owners, target) == fewest


@PROPERTY
@given(_members, _owners)
def test_target_of_the_target_is_the_target(members: frozenset[str], owners: tuple[str, ...]) -> None:
    target = target_owners(members, owners)

    assert target_owners(members, target) == target


@PROPERTY
@given(_members, _owners, st.data())
def test_target_stays_the_same_while_it_is_reached(
    members: frozenset[str], owners: tuple[str, ...], data: st.DataObject
) -> None:
    """Members free and take their shards in any order; no shard moves twice."""
    target = target_owners(members, owners)
    changing = [shard for shard, owner in enumerate(owners) if owner != target[shard]]
    done = data.draw(st.sets(st.sampled_from(changing)) if changing else st.just(set()))
    partial = tuple(target[shard] if shard in done else owner for shard, owner in enumerate(owners))

    assert sum(one != two for one, two in zip(partial, target_owners(members, partial), strict=True)) <= len(
        changing
    ) - len(done)


@PROPERTY
@given(_members, _owners)
def test_leader_shard_stays_with_its_owner(members: frozenset[str], owners: tuple[str, ...]) -> None:
    if owners[0] in members:
        assert target_owners(members, owners)[0] == owners[0]


def test_new_member_of_two_gets_a_third_of_the_shards_from_both() -> None:
    owners = ("a",) * 8 + ("b",) * 8

    target = target_owners(frozenset("abc"), owners)

    assert sorted(Counter(target).values()) == [5, 5, 6]
    assert _moves(frozenset("ab"), owners, target) == 5


def test_shards_of_a_removed_member_are_divided_among_the_others() -> None:
    owners = tuple("abcabcabc")

    target = target_owners(frozenset("ab"), owners)

    assert sorted(Counter(target).values()) == [4, 5]
    assert _moves(frozenset("ab"), owners, target) == 0


def test_shards_are_free_without_members() -> None:
    assert target_owners(frozenset(), ("a", "b")) == (FREE, FREE)
