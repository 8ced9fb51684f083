"""Retries of failed requests, and the error to raise when there is no retry.

A request is retried in three cases: it was never sent (the connection could not be established), the server requested a
retry (429 or 503 with ``Retry-After``), or the connection broke before the response and the request is idempotent. All
other failures are raised to the caller, because only the caller knows how to handle them.
"""

from __future__ import annotations

import errno
import os

import aiohttp

from cfo.runtime.client.errors import APIError, TransportError
from cfo.runtime.process.clock import Clock

_MAX_CONNECTION_RETRIES = 3
_FIRST_CONNECTION_DELAY_SECONDS = 0.1
_MAX_RETRY_AFTER_RETRIES = 5
_MAX_DELAY_SECONDS = 30.0


class Attempts:
    """The attempts at one request.

    ``idempotent``: sending the request twice has the same effect as once. ``read_only``: the request changes nothing,
    so its outcome is never unknown. ``limit``: seconds for all attempts together, until ``deadline``.
    """

    def __init__(
        self,
        verb: str,
        resource: str,
        host: str,
        *,
        idempotent: bool,
        read_only: bool,
        limit: float,
        deadline: float,
        clock: Clock,
    ) -> None:
        self._verb = verb
        self._resource = resource
        self._host = host
        self._idempotent = idempotent
        self._read_only = read_only
        self._limit = limit
        self._clock = clock
        self._deadline = deadline
        self._connection_failures = 0
        self._retry_after_responses = 0
        self._may_have_executed = False

    def delay_after(self, error: APIError | aiohttp.ClientError) -> float | None:
        """Return the seconds to wait before the next attempt; ``None`` if the request must not be retried.

        It does not raise ``error``: the traceback would contain this frame, which refers to the error. The cycle would
        keep all objects of the callers in memory until a collection of garbage.
        """
        if isinstance(error, APIError):
            return self._delay_after_response(error)
        may_have_executed = not _never_sent(error)
        if may_have_executed:
            self._may_have_executed = True
        delay = _FIRST_CONNECTION_DELAY_SECONDS * float(2**self._connection_failures)
        self._connection_failures += 1
        if _is_permanent(error):
            return None
        if may_have_executed and not self._idempotent:
            return None
        if self._connection_failures > _MAX_CONNECTION_RETRIES or not self._allows(delay):
            return None
        return delay

    def _delay_after_response(self, error: APIError) -> float | None:
        delay = error.retry_after
        self._retry_after_responses += 1
        if error.code not in {429, 503} or delay is None:
            return None  # only with Retry-After does the server say that it did not execute the request
        if self._retry_after_responses > _MAX_RETRY_AFTER_RETRIES or not self._allows(delay):
            return None
        return delay

    def _allows(self, delay: float) -> bool:
        remaining = self._deadline - self._clock.monotonic()
        return delay <= min(_MAX_DELAY_SECONDS, remaining)

    def failure(self, error: aiohttp.ClientError) -> TransportError:
        """Return the error for a connection that could not be established or that broke."""
        problem = "cannot connect to" if _never_sent(error) else "lost the connection to"
        message = f"{problem} {self._host}: {_reason(error)}"
        refused = False
        if isinstance(error, aiohttp.ClientConnectorError):
            refused = error.os_error.errno == errno.ECONNREFUSED
        return self._error(message, self._may_have_executed, refused=refused)

    def timed_out(self, awaiting_response: bool) -> TransportError:
        """Return the error for a request whose time limit for all attempts has passed."""
        return self._error(
            f"no response from {self._host} within {self._limit:g} s",
            self._may_have_executed or awaiting_response,
        )

    def _error(
        self, message: str, may_have_executed: bool, *, refused: bool = False
    ) -> TransportError:
        return TransportError(
            message,
            outcome_unknown=may_have_executed and not self._read_only,
            verb=self._verb,
            resource=self._resource,
            refused=refused,
        )


def _never_sent(error: aiohttp.ClientError) -> bool:
    """Return whether the connection was never established."""
    return isinstance(
        error,
        aiohttp.ClientConnectorError
        | aiohttp.ClientConnectorCertificateError
        | aiohttp.ConnectionTimeoutError
        | aiohttp.ClientHttpProxyError
        | aiohttp.InvalidURL,
    )


def _is_permanent(error: aiohttp.ClientError) -> bool:
    """Return whether the next attempt would fail in the same way."""
    return isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.InvalidURL)


def _reason(error: aiohttp.ClientError) -> str:
    """Describe the cause without any URL, because a proxy URL may contain a password."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
        # Its text also names the file and the line of Python's source.
        description = getattr(cause, "verify_message", "") or str(cause)
        return f"certificate verification failed: {description}"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy responded with {error.status} {error.message}"
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        description = cause.strerror
        if cause.errno and cause.errno > 0:
            description = os.strerror(cause.errno)
        return description or str(cause) or type(cause).__name__
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "connection timed out"
    if isinstance(error, aiohttp.SocketTimeoutError):
        return "read timed out"
    return str(error) or type(error).__name__
