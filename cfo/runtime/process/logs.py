"""Structured logging, in a console format for people or as JSON for machines.

Libraries log through ``structlog.get_logger(name)`` and do not depend on this module; a program calls :func:`configure`
once. The keys match controller-runtime's zap logger (``ts``, ``level``, ``logger``, ``msg``, ``error``), so that tools
for the Go operator's logs work unchanged. Every line logged in a reconcile has ``controller``, ``controllerGroup``,
``controllerKind``, ``namespace``, ``name``, ``reconcileID`` and ``causes`` (what queued the reconcile, converted to a
string only if the line is written); these are context variables, so that no logger has to be passed around.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from collections.abc import Callable
from typing import Any, Final, Literal, TextIO, cast

import orjson
import structlog
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

from cfo.runtime.process.printable import printable, printable_lines, replace_characters

__all__ = ["LEVELS", "LogFormat", "configure", "hide_local_variables"]

LogFormat = Literal["console", "json"]

LEVELS = ("debug", "info", "warning", "error")

_MAX_VALUE: Final = 10_000
"""The maximum length of a value in characters: an error from an API server, for example, can have 1 MiB."""

_HALF: Final = _MAX_VALUE // 2
_BLOCKS: Final = frozenset({"stack", "exception"})
_ONLY_FOR_SEARCHES: Final = ("controllerGroup", "controllerKind", "reconcileID", "causes")
_ORDER = (
    "level",
    "ts",
    "logger",
    "msg",
    "controller",
    "controllerGroup",
    "controllerKind",
    "namespace",
    "name",
)


def configure(
    log_format: LogFormat = "console", level: str = "info", stream: TextIO | None = None
) -> None:
    """Send all logs, including the logs of the standard library's ``logging``, to ``stream`` (default: stderr).

    ``level`` is one of :data:`LEVELS`; libraries that use ``logging`` are logged from ``warning`` upwards at any level.
    On a terminal, lines have no ``reconcileID``, ``causes``, and group and kind of the controller, unless ``level`` is
    ``debug`` or the format JSON.
    A value has at most 10,000 characters; the rest is replaced with ``…``, in stack traces the middle.
    A line that the stream does not take, as on a full disk, is dropped: no work depends on the log. The next line has
    the number of failures as ``unwrittenLines``. Raises :class:`ValueError` for an unknown level or format.
    """
    if level not in LEVELS:
        raise ValueError(f"log level {level!r}: must be one of {', '.join(LEVELS)}")
    if log_format not in ("console", "json"):
        raise ValueError(f"log format {log_format!r}: must be console or json")
    out = _Output(stream or sys.stderr)
    threshold = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        _add_name,
        out.add_failures,
        structlog.processors.StackInfoRenderer(),
    ]
    render: list[Processor]
    if log_format == "json":
        render = [
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
            structlog.processors.ExceptionRenderer(),
            _limit_values,
            _as_zap,
            structlog.processors.JSONRenderer(serializer=_serialize),
        ]
    else:
        render = [
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
            *([_shorten] if out.isatty() and level != "debug" else []),
            _limit_values,
            _make_printable,
            structlog.dev.ConsoleRenderer(
                colors=_has_colors(out), exception_formatter=_write_traceback, timestamp_key="ts"
            ),
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


def hide_local_variables() -> None:
    """Let structlog print plain stack traces, unless the program has configured it.

    Its default prints the values of local variables if ``rich`` is installed, which can be the data of Secrets.
    """
    processors = structlog.get_config()["processors"]
    if not structlog.is_configured() and isinstance(processors[-1], structlog.dev.ConsoleRenderer):
        # in place, so that structlog.testing.capture_logs, which does the same, can undo its own change
        processors[-1] = structlog.dev.ConsoleRenderer(
            colors=_has_colors(sys.stdout), exception_formatter=_write_traceback
        )


def _has_colors(stream: TextIO | _Output | None) -> bool:
    is_terminal = stream is not None and stream.isatty()
    return is_terminal and not os.environ.get("NO_COLOR")


class _Output:
    """Writes lines to a stream. A line that cannot be written is counted, and never an error of who logs it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._failures = 0

    def write(self, line: str) -> int:
        """Write a line and flush it."""
        try:
            self._stream.write(line)
            self._stream.flush()
        except OSError:  # the disk is full, or no one reads the pipe any more
            self._failures += 1
        else:
            self._failures = 0
        return len(line)

    def flush(self) -> None:
        """Do nothing, because each line is flushed when it is written."""

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._stream.isatty()

    def add_failures(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        """Add the number of failures since the last line that was written; a processor of structlog."""
        if self._failures:
            event["unwrittenLines"] = self._failures
        return event


class _NamedLogger(structlog.WriteLogger):
    """A named logger that writes whole lines."""

    def __init__(self, stream: _Output, name: str) -> None:
        super().__init__(cast("TextIO", stream))
        self.name = name


class _NamedLoggerFactory:
    def __init__(self, stream: _Output) -> None:
        self._stream = stream

    def __call__(self, *args: Any) -> _NamedLogger:
        name = str(args[0]) if args else ""
        return _NamedLogger(self._stream, name)


def _add_name(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    name = getattr(event.get("_record", logger), "name", "")
    if name:
        event["logger"] = name
    return event


def _as_zap(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Rename the keys to zap's, and put the most important ones first."""
    event["msg"] = event.pop("event", "")
    if "exception" in event:
        event["stacktrace"] = event.pop("exception")
    first = {key: event[key] for key in _ORDER if key in event}
    return {**first, **event}


def _shorten(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Remove what a line on a terminal does not need in addition to ``controller``, ``namespace`` and ``name``."""
    for key in _ONLY_FOR_SEARCHES:
        event.pop(key, None)
    return event


def _limit_values(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Cut long values, before anything reads their characters one by one."""
    for key, value in event.items():
        if key in _BLOCKS:
            event[key] = _limited_block(value)
        elif key != "exc_info":
            event[key] = _limited(value)
    return event


def _limited(value: Any) -> Any:
    """Return ``value``, or the start of its text if that is too long."""
    text = value if isinstance(value, str) else str(value)
    if len(text) <= _MAX_VALUE:
        return value
    return f"{text[: _MAX_VALUE - 1]}…"


def _limited_block(text: str) -> str:
    """Return a stack trace, without its middle if it is too long: it ends with what has failed."""
    if len(text) <= _MAX_VALUE:
        return text
    return f"{text[:_HALF]}\n…\n{text[-_HALF:]}"


def _make_printable(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Escape what a terminal interprets; the renderer prints strings as they are, and all other values escaped."""
    for key, value in event.items():
        if not isinstance(value, str):
            continue
        if key in _BLOCKS:
            event[key] = printable_lines(value)
        else:
            event[key] = printable(value, _MAX_VALUE)
    return event


def _write_traceback(stream: TextIO, exception: ExcInfo) -> None:
    """Write a stack trace, whose message can contain text of users."""
    text = io.StringIO()
    structlog.dev.plain_traceback(text, exception)
    stream.write(printable_lines(_limited_block(text.getvalue())))


def _serialize(event: Any, default: Callable[[Any], Any] | None = None, **_: Any) -> str:
    line = orjson.dumps(event, default=default or str, option=orjson.OPT_NON_STR_KEYS).decode()
    if line.isprintable():
        return line
    # orjson does not escape all of them: bidirectional marks, for example.
    return replace_characters(line, _json_escape)


def _json_escape(character: str) -> str:
    if character.isprintable():
        return character
    return json.dumps(character).strip('"')
