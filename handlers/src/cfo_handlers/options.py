"""The keywords of the decorators, and their types."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypedDict

from cfo_handlers.bodies import Operation
from cfo_handlers.declarations import OperatorRegistry
from cfo_handlers.diffs import FieldSpec
from cfo_handlers.errors import ErrorsMode
from cfo_handlers.filters import MetaFilter


class CallOptions(TypedDict, total=False):
    """The keywords of all handlers. ``timeout`` and ``backoff`` are seconds; ``retries`` counts the first call, too."""

    param: Any
    errors: ErrorsMode | None
    timeout: float | None
    retries: int | None
    backoff: float | None


class ActivityOptions(CallOptions, total=False):
    """The keywords of handlers of the whole operator."""

    id: str | None
    registry: OperatorRegistry | None


class FilterOptions(CallOptions, total=False):
    """The keywords of handlers that have filters."""

    labels: MetaFilter | None
    annotations: MetaFilter | None
    when: Callable[..., bool] | None
    value: Any


class SubhandlerOptions(FilterOptions, total=False):
    """The keywords of sub-handlers. ``old`` and ``new`` filter the value of the field, if the parent is for updates."""

    old: Any
    new: Any


class SelectionOptions(FilterOptions, total=False):
    """The keywords of handlers for objects, except ``field``."""

    id: str | None
    registry: OperatorRegistry | None
    group: str | None
    version: str | None
    kind: str | None
    plural: str | None
    singular: str | None
    shortcut: str | None
    category: str | None


class FieldOptions(SelectionOptions, total=False):
    """The keywords of handlers of a field's change. ``old`` and ``new`` filter the value before and after it."""

    old: Any
    new: Any


class ResourceOptions(SelectionOptions, total=False):
    """The keywords of handlers for objects."""

    field: FieldSpec


class UpdateOptions(ResourceOptions, total=False):
    """The keywords of handlers of updates. ``old`` and ``new`` filter the value of ``field`` before and after it."""

    old: Any
    new: Any


class DaemonOptions(ResourceOptions, total=False):
    """The keywords of daemons, in seconds."""

    initial_delay: float | Callable[..., float] | None
    cancellation_backoff: float | None
    cancellation_timeout: float | None
    cancellation_polling: float | None


class TimerOptions(ResourceOptions, total=False):
    """The keywords of timers, in seconds. ``sharp``: the interval begins with the call, not with its end."""

    initial_delay: float | Callable[..., float] | None
    interval: float | None
    idle: float | None
    sharp: bool | None


class WebhookOptions(ResourceOptions, total=False):
    """The keywords of admission handlers."""

    operation: Operation | None
    operations: Collection[Operation] | None
    subresource: str | None
    persistent: bool | None
    side_effects: bool | None
    ignore_failures: bool | None
