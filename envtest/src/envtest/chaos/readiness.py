"""When an operator is ready: it watches and its requests pause, a URL responds, or a time has passed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from envtest.chaos.run_clock import RunClock

__all__ = ["Readiness", "parse_readiness"]

_SETTLED: Final = 0.3
"""Seconds without a new request after which the start of an operator that watches is complete."""
_SETTLED_WITHOUT_WATCH: Final = 2.0
"""The same for an operator that has not opened a watch: it may be between two requests of its discovery."""
_PROBE_SECONDS: Final = 0.1
_RESPONSE_SECONDS: Final = 10.0
"""Real seconds until a request to the URL is repeated."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """``url`` must respond with a status below 400, ``seconds`` must have passed, or (by default) requests pause.

    The pause is 0.3 s after the first watch, and 2 s without a watch.
    """

    url: str = ""
    seconds: float | None = None

    def unmet(self) -> str:
        """Return what did not happen, and how to set another condition."""
        missing = "it sent no request, or did not pause between them"
        if self.url:
            missing = f"{self.url} did not respond with a status below 400"
        return f"{missing}; --ready (ready in Python) is a URL, or the seconds of a start"

    async def wait(
        self,
        requests: Callable[[], int],
        watches: Callable[[], int],
        last: Callable[[], float],
        clock: RunClock,
        deadline: float,
    ) -> bool:
        """Wait until the operator is ready; return false at ``deadline``.

        ``requests`` returns how many requests it has sent, ``watches`` how many of them are watches, ``last`` when it
        sent the latest. Times are those of ``clock``.
        """
        if self.seconds is not None:
            await clock.sleep(self.seconds)
            return True
        if self.url:
            return await self._probe(clock, deadline)
        while (now := clock.now()) < deadline:
            pause = _SETTLED if watches() else _SETTLED_WITHOUT_WATCH
            if requests() and now - last() >= pause:
                return True
            await clock.sleep(_SETTLED / 6)
        return False

    async def _probe(self, clock: RunClock, deadline: float) -> bool:
        import aiohttp

        async with aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=_RESPONSE_SECONDS)
        ) as session:
            while clock.now() < deadline:
                try:
                    async with session.get(self.url, ssl=False) as response:
                        if response.status < 400:
                            return True
                except (aiohttp.ClientError, TimeoutError):
                    pass
                await clock.sleep(_PROBE_SECONDS)
        return False


def parse_readiness(text: str) -> Readiness:
    """Return the readiness of an option: empty, a URL, or a number of seconds. Raises ValueError."""
    if not text:
        return Readiness()
    if text.startswith(("http://", "https://")):
        return Readiness(url=text)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:
        raise ValueError(f"readiness {text!r}: must be a URL or a number of seconds up to 3600")
    return Readiness(seconds=seconds)
