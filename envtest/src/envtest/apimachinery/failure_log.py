"""The log of bugs: unexpected exceptions in requests, watches and controllers."""

from __future__ import annotations

import logging
import traceback

__all__ = ["log_failure"]


def log_failure(event: str, *, logger: str = "envtest", **details: str) -> None:
    """Log the exception that is being handled, with its traceback and ``details``, as an error of ``logger``.

    Tracebacks contain no values of variables, among which are tokens and Secrets.
    """
    fields = "".join(f" {name}={value!r}" for name, value in details.items())
    logging.getLogger(logger).error("%s%s\n%s", event, fields, traceback.format_exc().rstrip())
