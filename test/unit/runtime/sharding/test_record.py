"""The record of a ring in the annotation of its Lease."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfo.runtime.sharding.record import MAX_MEMBERS, InvalidRecord, Member, RingRecord, ring_name
from test.support.properties import PROPERTY

_identities = st.text(min_size=1, max_size=60)


@PROPERTY
@given(st.dictionaries(_identities, st.tuples(st.integers(0, 2**53), st.integers(1, 86_400)), max_size=5), st.data())
def test_record_is_read_as_it_was_written(members: dict[str, tuple[int, int]], data: st.DataObject) -> None:
    owners = data.draw(st.lists(st.sampled_from(["", *members]), min_size=1, max_size=20))
    record = RingRecord(tuple(owners), {identity: Member(*member) for identity, member in members.items()})

    assert RingRecord.parse(record.dump(), len(owners)) == record


@PROPERTY
@given(st.one_of(st.text(), st.recursive(st.none() | st.integers(), st.lists, max_leaves=4).map(repr)))
def test_any_other_annotation_is_rejected(annotation: str) -> None:
    with pytest.raises(InvalidRecord):
        RingRecord.parse(annotation, 4)


_VALID = {"renewals": 1, "leaseSeconds": 15, "shards": [0]}


@pytest.mark.parametrize(
    "members",
    [
        None,
        [],
        3,
        {"": _VALID},
        {"a" * 317: _VALID},
        {"a": None},
        {"a": {}},
        {"a": {**_VALID, "renewals": -1}},
        {"a": {**_VALID, "renewals": True}},
        {"a": {**_VALID, "renewals": 1.5}},
        {"a": {**_VALID, "leaseSeconds": 0}},
        {"a": {**_VALID, "leaseSeconds": 86_401}},
        {"a": {**_VALID, "shards": [4]}},
        {"a": {**_VALID, "shards": [-1]}},
        {"a": {**_VALID, "shards": [0, 0]}},
        {"a": {**_VALID, "shards": "0"}},
        {"a": {**_VALID, "shards": None}},
        {"a": _VALID, "b": _VALID},
        {f"m{number}": {**_VALID, "shards": []} for number in range(MAX_MEMBERS + 1)},
    ],
)
def test_impossible_members_are_rejected(members: object) -> None:
    with pytest.raises(InvalidRecord):
        RingRecord.parse(orjson.dumps({"members": members}).decode(), 4)


def test_annotation_above_64_kilobytes_is_not_decoded() -> None:
    with pytest.raises(InvalidRecord, match="at most 65536 characters"):
        RingRecord.parse('{"members": {}}' + " " * 65_536, 4)
    with pytest.raises(InvalidRecord):
        RingRecord.parse(None, 4)


def test_largest_record_fits_into_an_annotation() -> None:
    """Annotations are limited to 256 KiB, our records to 64 KiB."""
    members = {f"{'x' * 253}_{number:062}": Member(2**53, 86_400) for number in range(MAX_MEMBERS)}
    record = RingRecord(tuple(list(members) * 4), members)

    assert RingRecord.parse(record.dump(), 256) == record


def test_name_of_the_ring_contains_what_all_members_must_agree_on() -> None:
    assert ring_name(16) == "ring:16"
    assert ring_name(16, "fnv1a") == "ring:16:fnv1a"
