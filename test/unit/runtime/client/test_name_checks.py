"""When names that other owners' objects have are checked again."""

from __future__ import annotations

from cfo.runtime import GVK, NamespacedName
from cfo.runtime.client.name_checks import (
    FIRST_NAME_CHECK_SECONDS,
    NAME_CONFLICT_RETRY_SECONDS,
    NameChecks,
    WantedName,
)
from test.support.clocks import FakeClock


def wanted(name: str) -> WantedName:
    return WantedName("uid", GVK("", "v1", "Service"), NamespacedName("ns", name))


def test_reconciles_for_other_reasons_do_not_delay_the_next_check() -> None:
    checks = NameChecks(clock=FakeClock())
    assert [checks.next_delay(wanted("a")) for _ in range(20)] == [FIRST_NAME_CHECK_SECONDS] * 20


def test_name_that_is_taken_again_much_later_is_checked_soon() -> None:
    clock = FakeClock()
    checks = NameChecks(clock=clock)
    checks.next_delay(wanted("a"))
    clock.advance(100)
    assert checks.next_delay(wanted("a")) == 100
    clock.advance(3 * NAME_CONFLICT_RETRY_SECONDS)
    assert checks.next_delay(wanted("a")) == FIRST_NAME_CHECK_SECONDS


def test_name_is_new_until_it_was_found_taken() -> None:
    checks = NameChecks(size=1, clock=FakeClock())
    assert checks.is_new(wanted("a"))
    checks.next_delay(wanted("a"))
    assert not checks.is_new(wanted("a"))
    assert not checks.is_new(
        wanted("b")
    )  # it would be new each time, because it cannot be remembered


def test_many_taken_names_are_checked_seldom_and_need_no_more_memory() -> None:
    clock = FakeClock()
    checks = NameChecks(size=2, clock=clock)
    delays = [checks.next_delay(wanted(name)) for name in "abc"]
    assert delays == [
        FIRST_NAME_CHECK_SECONDS,
        FIRST_NAME_CHECK_SECONDS,
        NAME_CONFLICT_RETRY_SECONDS,
    ]
    assert len(checks) == 2
    clock.advance(3 * NAME_CONFLICT_RETRY_SECONDS)
    assert checks.next_delay(wanted("c")) == FIRST_NAME_CHECK_SECONDS
    assert len(checks) == 1
