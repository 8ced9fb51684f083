"""Rate limiters: exponential back-off for each item, a token bucket for all items, and one for each key."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from random import random as default_random
from typing import Final

from cfo.runtime.process.arguments import require_plain_function
from cfo.runtime.process.clock import Clock, SystemClock

MAX_BUCKETS: Final = 4096
"""How many token buckets are kept; see :class:`BucketRateLimiters`."""


class ExponentialRateLimiter:
    """Waits ``base * 2 ** failures`` seconds for each item, at most ``maximum``.

    Raises :class:`ValueError` unless 0 < base <= maximum.
    """

    def __init__(self, base: float = 0.005, maximum: float = 1000.0) -> None:
        if not 0 < base <= maximum:
            raise ValueError(f"base {base} s, maximum {maximum} s: must be 0 < base <= maximum")
        self.base = base
        self.maximum = maximum
        self._failures: dict[Hashable, int] = {}

    def when(self, item: Hashable) -> float:
        """Count a failure of ``item`` and return the seconds until its next retry."""
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        doublings = min(failures, 1000)  # a greater power is not a float
        return min(self.base * 2.0**doublings, self.maximum)

    def forget(self, item: Hashable) -> None:
        """Reset the failures of ``item``."""
        self._failures.pop(item, None)

    def num_requeues(self, item: Hashable) -> int:
        """Return the number of failures of ``item``."""
        return self._failures.get(item, 0)


class BucketRateLimiter:
    """A token bucket for all items: ``qps`` on average, bursts of up to ``burst``.

    Raises :class:`ValueError` unless qps > 0 and burst >= 1.
    """

    def __init__(self, qps: float = 10.0, burst: int = 100, clock: Clock | None = None) -> None:
        if qps <= 0 or burst < 1:
            raise ValueError(f"qps {qps}, burst {burst}: must be qps > 0 and burst >= 1")
        self.qps = qps
        self.burst = burst
        self._clock = clock or SystemClock()
        self._tokens = float(burst)
        self._refilled_at = self._clock.monotonic()

    def when(self) -> float:
        """Reserve a token and return the seconds until it is available."""
        self._refill()
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self.qps)

    def try_take(self) -> bool:
        """Take a token if one is available; return whether it was taken."""
        if self._refill() < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def _refill(self) -> float:
        """Add the tokens for the time since the last call; return how many there are."""
        now = self._clock.monotonic()
        added = (now - self._refilled_at) * self.qps
        self._tokens = min(float(self.burst), self._tokens + added)
        self._refilled_at = now
        return self._tokens


class BucketRateLimiters:
    """A token bucket for each key, each with ``qps`` and ``burst``.

    The buckets of the :data:`MAX_BUCKETS` keys that were used last are kept; another key starts with a full bucket.
    """

    def __init__(self, qps: float, burst: int, clock: Clock) -> None:
        self._qps = qps
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[Hashable, BucketRateLimiter] = OrderedDict()

    def try_take(self, key: Hashable) -> bool:
        """Take a token of ``key`` if one is available; return whether it was taken."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = BucketRateLimiter(self._qps, self._burst, self._clock)
            self._buckets[key] = bucket
            if len(self._buckets) > MAX_BUCKETS:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(key)
        return bucket.try_take()


class DefaultRateLimiter(ExponentialRateLimiter):
    """client-go's ``DefaultTypedControllerRateLimiter``.

    It backs off from 5 ms to 1000 s for each item, and allows 10 items per second with a burst of 100 in total.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self._bucket = BucketRateLimiter(clock=clock)

    def when(self, item: Hashable) -> float:
        """Count a failure of ``item`` and return the seconds until its next retry."""
        return max(super().when(item), self._bucket.when())


class Backoff:
    """Increasing delays between failures: 0.8 s, doubling up to 30 s, each with up to 100% jitter.

    The delays start over after two minutes without a failure. The numbers match client-go's reflector. ``random``
    returns numbers in [0, 1).
    """

    def __init__(self, clock: Clock, random: Callable[[], float] = default_random) -> None:
        require_plain_function("random", random, "a function that returns a number")
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
        if self.has_recovered:
            self._failures = 0
        self._failures += 1
        self._last_failure = self._clock.monotonic()

    def delay(self, at_least: float | None = None) -> float:
        """Return the seconds to wait after the failures so far; a server's Retry-After is the minimum."""
        doublings = min(self._failures - 1, 10)
        delay = min(30.0, 0.8 * 2.0**doublings)
        with_jitter = delay * (1.0 + self._random())
        return max(with_jitter, at_least or 0.0)
