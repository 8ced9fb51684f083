"""What every property requires: a limit of the CPU time, a limit of the output, and text that a terminal can show."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["assert_readable", "assert_small", "limited_time"]

MAX_SECONDS: Final = 1.0
"""The maximum CPU time of one computation; those that are linear in the size of one object take milliseconds."""


@contextmanager
def limited_time(seconds: float = MAX_SECONDS) -> Iterator[None]:
    """Fail if the block needs more CPU time of this thread."""
    started = time.thread_time()
    yield
    used = time.thread_time() - started
    assert used <= seconds, f"took {used:.1f} s"


def assert_small(value: Any, limit: int) -> None:
    """Assert that ``value`` can be encoded as JSON, in at most ``limit`` characters."""
    size = len(json.dumps(value))
    assert size <= limit, f"{size} characters, at most {limit}"


def assert_readable(texts: Iterable[str], limit: int) -> None:
    """Assert that the lines of ``texts`` are printable, and that they have at most ``limit`` characters together."""
    size = 0
    for text in texts:
        size += len(text)
        for line in text.split("\n"):
            assert line.isprintable(), f"not printable: {line[:200]!a}"
    assert size <= limit, f"{size} characters, at most {limit}"
