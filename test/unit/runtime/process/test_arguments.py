"""Checks of values that a program passes to the library."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cfo.runtime.process.arguments import truth_of


async def coroutine() -> bool:
    return False


async def asynchronous_generator() -> AsyncIterator[bool]:
    yield False


def generator() -> Iterator[bool]:
    yield False


@pytest.mark.parametrize(
    "function",
    [
        coroutine,
        asynchronous_generator,
        generator,
        lambda: generator,
        lambda: Path().is_dir,
        lambda: "a".isdigit,
    ],
)
def test_result_that_always_counts_as_true_is_refused(function: Callable[[], Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(
            TypeError, match=r"^belongs: returned a value of type .*: must return True or False$"
        ):
            truth_of("belongs", function())


@pytest.mark.parametrize(
    ("result", "truth"),
    [(True, True), (False, False), (None, False), ("", False), ("a", True), ([], False), (1, True)],
)
def test_other_results_count_as_true_if_they_do_in_python(result: object, truth: bool) -> None:
    assert truth_of("belongs", result) is truth
