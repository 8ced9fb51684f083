"""Logs: structured, for people (console) or for machines (JSON).

Libraries log through ``structlog.get_logger(name)`` and know nothing of this module; a program calls
:func:`configure` once. The keys are those of controller-runtime's zap logger (``ts``, ``level``,
``logger``, ``msg``, ``error``), so that what reads the Go operator's logs reads these. What runs in a reconcile
carries ``controller``, ``controllerGroup``, ``controllerKind``, ``namespace``, ``name`` and ``reconcileID``
on every line, as context variables: nobody has to pass a logger on.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any, Literal, TextIO

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

__all__ = ["LEVELS", "LogFormat", "configure"]

LogFormat = Literal["console", "json"]

LEVELS = ("debug", "info", "warning", "error")

_ORDER = ("level", "ts", "logger", "msg", "controller", "controllerGroup", "controllerKind", "namespace", "name")


def configure(log_format: LogFormat = "console", level: str = "info", stream: TextIO | None = None) -> None:
    """Sends all logs, those of the standard library's ``logging`` too, to ``stream`` (stderr by default).

    ``level`` is one of :data:`LEVELS`; other libraries are heard from ``warning`` on, at any level. Raises
    :class:`ValueError` for what is neither.
    """
    if level not in LEVELS:
        raise ValueError(f"{level!r} is no log level: must be one of {', '.join(LEVELS)}")
    if log_format not in ("console", "json"):
        raise ValueError(f"{log_format!r} is no log format: must be console or json")
    out = stream or sys.stderr
    threshold = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        _add_name,
        structlog.processors.StackInfoRenderer(),
    ]
    render: list[Processor]
    if log_format == "json":
        render = [
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
            structlog.processors.ExceptionRenderer(),
            _as_zap,
            structlog.processors.JSONRenderer(serializer=_serialize),
        ]
    else:
        colors = out.isatty()
        render = [
            structlog.processors.TimeStamper(fmt="%H:%M:%S.%f", utc=False, key="timestamp"),
            structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback),
        ]
    structlog.configure(
        processors=[*shared, *render],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=_NamedLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(threshold, logging.WARNING))
    logging.captureWarnings(capture=True)


class _NamedLogger(structlog.WriteLogger):
    """Writes whole lines, and knows its name."""

    def __init__(self, stream: TextIO, name: str) -> None:
        super().__init__(stream)
        self.name = name


class _NamedLoggerFactory:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, *args: Any) -> _NamedLogger:
        return _NamedLogger(self._stream, str(args[0]) if args else "")


def _add_name(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    name = getattr(event.get("_record", logger), "name", "")
    if name:
        event["logger"] = name
    return event


def _as_zap(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Renames to zap's keys, and puts first what people look for first."""
    event["msg"] = event.pop("event", "")
    if "exception" in event:
        event["stacktrace"] = event.pop("exception")
    return {**{key: event[key] for key in _ORDER if key in event}, **event}


def _serialize(event: Any, default: Callable[[Any], Any] | None = None, **_: Any) -> str:
    return orjson.dumps(event, default=default or str, option=orjson.OPT_NON_STR_KEYS).decode()
