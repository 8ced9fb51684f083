"""Stack traces that the log already has are not new."""

from __future__ import annotations

from collections.abc import Callable

from cfo.runtime.process import LoggedStacks
from cfo.runtime.process.logged_stacks import _MAX_KEYS


def fail() -> None:
    raise ValueError("boom")


def fail_again() -> None:
    raise ValueError("boom")


def error_of(function: Callable[[], None]) -> Exception:
    try:
        function()
    except ValueError as error:
        return error
    raise AssertionError("the function did not fail")


def test_same_place_is_not_new_until_the_key_is_forgotten() -> None:
    stacks = LoggedStacks()
    assert stacks.is_new("a", [error_of(fail)])
    assert not stacks.is_new("a", [error_of(fail)])
    assert stacks.is_new("b", [error_of(fail)])
    assert stacks.is_new("a", [error_of(fail_again)])
    assert stacks.is_new("a", [error_of(fail)])
    stacks.forget("a")
    assert stacks.is_new("a", [error_of(fail)])


def test_another_cause_is_new() -> None:
    causes = [fail, fail, fail_again]

    def wrap() -> None:
        try:
            causes.pop(0)()
        except ValueError as error:
            raise ValueError("wrapped") from error

    stacks = LoggedStacks()
    assert [stacks.is_new("a", [error_of(wrap)]) for _ in range(3)] == [True, False, True]


def test_errors_that_are_the_causes_of_each_other_are_compared() -> None:
    first = error_of(fail)
    second = error_of(fail_again)
    first.__cause__ = second
    second.__cause__ = first
    stacks = LoggedStacks()
    assert stacks.is_new("a", [first])
    assert not stacks.is_new("a", [first])


def test_number_of_remembered_keys_is_bounded() -> None:
    stacks = LoggedStacks()
    error = error_of(fail)
    for key in range(_MAX_KEYS + 1):
        assert stacks.is_new(key, [error])
    assert not stacks.is_new(_MAX_KEYS, [error])
    assert stacks.is_new(0, [error])
