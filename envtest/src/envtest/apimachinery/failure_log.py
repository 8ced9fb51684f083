"""The log of bugs: unexpected exceptions in requests, watches and controllers."""

from __future__ import annotations

import traceback

__all__ = ["log_failure"]


def log_failure(event: str, *, logger: str = "envtest", **details: str) -> None:
    """Log the exception that is being handled, with its traceback.

    The traceback is rendered here, because structlog's default renderer adds the values of local variables, among them
    tokens and Secrets. structlog is imported on the first failure, to keep startup fast.
    """
    import structlog

    structlog.get_logger(logger).error(event, **details, exception=traceback.format_exc().rstrip())
