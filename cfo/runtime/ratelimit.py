"""How long to wait before the next try: a backoff for each item, a bucket over all of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from random import random as default_random
from typing import Protocol

from cfo.runtime.clock import Clock, SystemClock

__all__ = [
    "Backoff",
    "BucketRateLimiter",
    "ExponentialRateLimiter",
    "MaxOfRateLimiter",
    "RateLimiter",
    "default_rate_limiter",
]


class RateLimiter(Protocol):
    """Says how long an item that failed has to wait."""

    def when(self, item: Hashable) -> float:
        """Counts a failure of ``item`` and returns the seconds until it may be tried again."""
        ...

    def forget(self, item: Hashable) -> None:
        """The item succeeded, or is given up: its failures do not count any more."""
        ...

    def num_requeues(self, item: Hashable) -> int:
        """How many failures of ``item`` are counted."""
        ...


class ExponentialRateLimiter:
    """``base * 2 ** failures`` seconds for each item, at most ``maximum``."""

    def __init__(self, base: float = 0.005, maximum: float = 1000.0) -> None:
        if not 0 < base <= maximum:
            raise ValueError(f"base {base} and maximum {maximum}: must be 0 < base <= maximum seconds")
        self.base = base
        self.maximum = maximum
        self._failures: dict[Hashable, int] = {}

    def when(self, item: Hashable) -> float:
        """Counts a failure of ``item`` and returns the seconds until it may be tried again."""
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        return min(self.base * 2.0 ** min(failures, 1000), self.maximum)

    def forget(self, item: Hashable) -> None:
        """Starts ``item`` anew."""
        self._failures.pop(item, None)

    def num_requeues(self, item: Hashable) -> int:
        """How many failures of ``item`` are counted."""
        return self._failures.get(item, 0)


class BucketRateLimiter:
    """A token bucket over all items: ``qps`` in the long run, ``burst`` at once."""

    def __init__(self, qps: float = 10.0, burst: int = 100, clock: Clock | None = None) -> None:
        if qps <= 0 or burst < 1:
            raise ValueError(f"qps {qps} and burst {burst}: must be more than 0 and at least 1")
        self.qps = qps
        self.burst = burst
        self._clock = clock or SystemClock()
        self._tokens = float(burst)
        self._at = self._clock.monotonic()

    def when(self, item: Hashable) -> float:
        """Takes a token, on credit if need be, and returns the seconds until it is there."""
        self._fill()
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self.qps)

    def try_take(self) -> bool:
        """Takes a token if there is one."""
        if self._fill() < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def _fill(self) -> float:
        now = self._clock.monotonic()
        self._tokens = min(float(self.burst), self._tokens + (now - self._at) * self.qps)
        self._at = now
        return self._tokens

    def forget(self, item: Hashable) -> None:
        """A bucket knows no items."""

    def num_requeues(self, item: Hashable) -> int:
        """A bucket knows no items: 0."""
        return 0


class MaxOfRateLimiter:
    """The longest wait of several limiters."""

    def __init__(self, *limiters: RateLimiter) -> None:
        self._limiters = limiters

    def when(self, item: Hashable) -> float:
        """Asks every limiter; the longest wait counts."""
        return max(limiter.when(item) for limiter in self._limiters)

    def forget(self, item: Hashable) -> None:
        """Every limiter forgets ``item``."""
        for limiter in self._limiters:
            limiter.forget(item)

    def num_requeues(self, item: Hashable) -> int:
        """The highest count of all limiters."""
        return max(limiter.num_requeues(item) for limiter in self._limiters)


def default_rate_limiter(clock: Clock | None = None) -> RateLimiter:
    """5 ms to 1000 s for each item, and 10 a second with a burst of 100 over all of them.

    client-go's ``DefaultTypedControllerRateLimiter``.
    """
    return MaxOfRateLimiter(ExponentialRateLimiter(), BucketRateLimiter(clock=clock))


class Backoff:
    """Increasing delays between failures: 0.8 s, doubling up to 30 s, each with up to 100 % jitter.

    The delays start over after two minutes without a failure. The numbers are those of client-go's reflector.
    ``random`` returns numbers in [0, 1).
    """

    def __init__(self, clock: Clock, random: Callable[[], float] = default_random) -> None:
        self._clock = clock
        self._random = random
        self._failures = 0
        self._last_failure = 0.0

    @property
    def has_recovered(self) -> bool:
        """Whether there was no failure in the last two minutes."""
        return self._failures == 0 or self._clock.monotonic() - self._last_failure > 120.0

    def record_failure(self) -> None:
        """Count a failure."""
        self._failures = 1 if self.has_recovered else self._failures + 1
        self._last_failure = self._clock.monotonic()

    def delay(self, at_least: float | None = None) -> float:
        """Return the seconds to wait after the failures so far; a server's Retry-After is the minimum."""
        delay = min(30.0, 0.8 * 2.0 ** min(self._failures - 1, 10)) * (1.0 + self._random())
        return max(delay, at_least or 0.0)
