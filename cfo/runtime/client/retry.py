"""When a request that failed is sent again, and what to call its failure when it is not.

Three things may be repeated: what never left (the connection was not made), what the server asked to have again
later (429 and 503 with ``Retry-After``), and, when the connection broke before the answer, what does the same
however often it is done. All else goes to the caller, who knows more.
"""

from __future__ import annotations

import os

import aiohttp

from cfo.runtime.client.errors import APIError, TransportError
from cfo.runtime.clock import Clock

__all__ = ["Attempts"]

_LOST_RETRIES = 3
_FIRST_LOST_WAIT_SECONDS = 0.1
_TOLD_RETRIES = 5
_LONGEST_TOLD_WAIT_SECONDS = 30.0


class Attempts:
    """The attempts at one request.

    ``repeatable``: doing it twice is the same as once; ``reads``: it changes nothing, so that its outcome
    is never unknown. ``limit``: seconds for all attempts together.
    """

    def __init__(
        self, verb: str, resource: str, host: str, *, repeatable: bool, reads: bool, limit: float, clock: Clock
    ) -> None:
        self._verb = verb
        self._resource = resource
        self._host = host
        self._repeatable = repeatable
        self._reads = reads
        self._limit = limit
        self._clock = clock
        self._deadline = clock.monotonic() + limit
        self._lost = 0
        self._told = 0
        self._may_have_happened = False

    def wait_after(self, error: APIError | aiohttp.ClientError) -> float:
        """The seconds to wait before the next attempt.

        Raises ``error``, as an :class:`APIError` or a :class:`TransportError`, when there is none.
        """
        if isinstance(error, APIError):
            wait = error.retry_after
            self._told += 1
            if error.code not in {429, 503} or wait is None or self._told > _TOLD_RETRIES or not self._fits(wait):
                raise error
            return wait
        sent = not _never_sent(error)
        self._may_have_happened |= sent
        wait = _FIRST_LOST_WAIT_SECONDS * float(2**self._lost)
        self._lost += 1
        if _is_hopeless(error) or (sent and not self._repeatable) or self._lost > _LOST_RETRIES or not self._fits(wait):
            raise self.failure(error) from error
        return wait

    def _fits(self, wait: float) -> bool:
        return wait <= min(_LONGEST_TOLD_WAIT_SECONDS, self._deadline - self._clock.monotonic())

    def failure(self, error: aiohttp.ClientError) -> TransportError:
        """What to raise for a connection that could not be made, or that broke."""
        reason = _reason(error)
        where = f"cannot connect to {self._host}" if _never_sent(error) else f"lost the connection to {self._host}"
        return self._error(f"{where}: {reason}", self._may_have_happened)

    def timed_out(self, waiting_for_answer: bool) -> TransportError:
        """What to raise when the time for all attempts is over."""
        return self._error(
            f"no answer from {self._host} within {self._limit:g} s", self._may_have_happened or waiting_for_answer
        )

    def _error(self, message: str, may_have_happened: bool) -> TransportError:
        return TransportError(
            message,
            outcome_unknown=may_have_happened and not self._reads,
            verb=self._verb,
            resource=self._resource,
        )


def _never_sent(error: aiohttp.ClientError) -> bool:
    """Whether the connection was not even made."""
    return isinstance(
        error,
        aiohttp.ClientConnectorError
        | aiohttp.ClientConnectorCertificateError
        | aiohttp.ConnectionTimeoutError
        | aiohttp.ClientHttpProxyError
        | aiohttp.InvalidURL,
    )


def _is_hopeless(error: aiohttp.ClientError) -> bool:
    """Whether the next attempt would end in the same way."""
    return isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.InvalidURL)


def _reason(error: aiohttp.ClientError) -> str:
    """The cause in words, without a URL (a proxy's may hold a password)."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return str(error.certificate_error)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy answered {error.status} {error.message}"
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        in_words = os.strerror(cause.errno) if cause.errno and cause.errno > 0 else cause.strerror
        return in_words or str(cause) or type(cause).__name__
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "it took too long"
    if isinstance(error, aiohttp.SocketTimeoutError):
        return "nothing came for too long"
    return str(error) or type(error).__name__
