"""How many certificate requests of one requester wait, and which requests need no decision any more."""

from __future__ import annotations

import pytest

from cfo.controllers.raycluster.node_signer import (
    MAX_DECISIONS,
    MAX_UNCACHED,
    MAX_WAITING,
    UncachedCSRs,
    WaitingCSRs,
    _is_decided,
)
from cfo.runtime import Object
from test.support.clocks import FakeClock


def full_queue() -> WaitingCSRs:
    """Return requests of one requester, of which no more may wait."""
    waiting = WaitingCSRs(MAX_WAITING)
    for number in range(MAX_WAITING):
        assert waiting.admits(f"csr-{number}", "greedy")
        waiting.add(f"csr-{number}", "greedy")
    return waiting


def test_requester_has_a_limited_number_of_waiting_requests() -> None:
    waiting = full_queue()
    assert not waiting.admits("one-more", "greedy")
    assert waiting.admits("csr-0", "greedy"), "it waits already"
    assert waiting.admits("first", "modest")


def test_request_that_ends_makes_room_for_another_one() -> None:
    waiting = full_queue()
    waiting.remove("csr-0")
    assert waiting.admits("one-more", "greedy")
    waiting.remove("csr-0")
    waiting.add("one-more", "greedy")
    assert not waiting.admits("another", "greedy")


def test_request_that_waits_again_counts_once() -> None:
    waiting = WaitingCSRs(MAX_WAITING)
    for _ in range(2 * MAX_WAITING):
        waiting.add("csr", "user")
    waiting.remove("csr")
    assert waiting._numbers == {}
    assert waiting._requesters == {}


def test_requests_that_are_not_cached_are_read_at_a_limited_rate() -> None:
    clock = FakeClock()
    uncached = UncachedCSRs(clock)
    added = [uncached.add(f"csr-{number}", "tenant") for number in range(MAX_UNCACHED + 1)]
    assert added == [True] * MAX_UNCACHED + [False]
    delays = [uncached.seconds_until_read("tenant") for _ in range(MAX_UNCACHED)]
    assert delays.count(0) == 50
    assert delays[-1] == MAX_UNCACHED / 2
    assert uncached.seconds_until_read("another") == 0
    clock.advance(2)
    assert [uncached.seconds_until_read("tenant") for _ in range(5)].count(0) == 4


def test_requester_of_requests_that_are_not_cached_has_a_limited_number_of_decisions() -> None:
    uncached = UncachedCSRs(FakeClock())
    admitted = [uncached.admits_decision("greedy") for _ in range(MAX_DECISIONS + 1)]
    assert admitted == [True] * MAX_DECISIONS + [False]
    assert uncached.admits_decision("modest")


@pytest.mark.parametrize(
    ("status", "is_decided"),
    [
        ({}, False),
        ({"conditions": [{"type": "Approved", "status": "True"}]}, False),
        ({"conditions": [{"type": "Denied", "status": "True"}]}, True),
        ({"conditions": [{"type": "Failed", "status": "True"}]}, True),
        ({"conditions": [{"type": "Approved", "status": "True"}], "certificate": "Y2VydA=="}, True),
    ],
    ids=["new", "approved, but not signed", "denied", "failed", "signed"],
)
def test_request_is_decided_when_it_is_refused_or_signed(status: Object, is_decided: bool) -> None:
    assert _is_decided({"status": status}) is is_decided
