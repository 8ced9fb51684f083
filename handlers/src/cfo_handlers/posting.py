"""Events about objects, which handlers record from the event loop and from threads."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from cfo.runtime import EventType
from cfo.runtime.client import identity_of
from cfo_handlers.execution import current_invocation

_NOT_LETTERS = re.compile(r"[^A-Za-z0-9]+")


def event(objs: Any, *, type: str, reason: str, message: str = "") -> None:  # noqa: A002 - the parameter is kopf's
    """Record an Event about one or more objects. Types other than ``Normal`` are recorded as ``Warning``.

    Raises :class:`LookupError` outside of a handler, and :class:`ValueError` for an object without kind or name.
    """
    _post(objs, type, reason, message, 0)


def info(objs: Any, *, reason: str, message: str = "") -> None:
    """Record an Event of type Normal."""
    _post(objs, "Normal", reason, message, logging.INFO)


def warn(objs: Any, *, reason: str, message: str = "") -> None:
    """Record an Event of type Warning."""
    _post(objs, "Warning", reason, message, logging.WARNING)


def exception(
    objs: Any, *, reason: str = "", message: str = "", exc: BaseException | None = None
) -> None:
    """Record an Event of type Warning about an exception, by default the one that is being handled."""
    error = exc if exc is not None else sys.exc_info()[1]
    text = message
    if error is not None:
        text = f"{message} {error}".strip()
    _post(objs, "Warning", reason or type(error).__name__, text, logging.ERROR)


def _post(objs: Any, kind: str, reason: str, message: str, level: int) -> None:
    invocation = current_invocation.get()
    if invocation is None:
        raise LookupError("Events can only be recorded in a handler")
    environment = invocation.cause.environment
    posting = environment.settings.posting
    if not posting.enabled or (level and level < posting.level):
        return
    word = (_NOT_LETTERS.sub("", reason) or "Unknown")[:128]
    regarding = objs if isinstance(objs, (list, tuple)) else [objs]
    event_type: EventType = "Normal" if kind == "Normal" else "Warning"
    for obj in regarding:
        record = partial(environment.recorder.event, _regarding(obj), event_type, word, message)
        environment.loop.call_soon_threadsafe(record)  # handlers run in threads, too


def _regarding(obj: Any) -> dict[str, Any]:
    found = getattr(obj, "obj", obj)
    if not isinstance(found, Mapping):
        raise TypeError(f"{type(obj).__name__}: must be a mapping")
    metadata = found.get("metadata")
    is_named = isinstance(metadata, Mapping) and metadata.get("name")
    if not (is_named and found.get("apiVersion") and found.get("kind")):
        raise ValueError("the object of an Event must have apiVersion, kind and metadata.name")
    return identity_of(found)
