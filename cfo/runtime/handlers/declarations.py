"""What the decorators declare: a function, and when it is called."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, TypeVar

from cfo.runtime.handlers.diffs import FieldPath
from cfo.runtime.handlers.errors import ErrorsMode
from cfo.runtime.handlers.filters import MetaFilter
from cfo.runtime.handlers.resource_selectors import Resource, Selector

Function: TypeAlias = Callable[..., Any]


class Reason(enum.StrEnum):
    """Why handlers of a change run."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    RESUME = "resume"
    NOOP = "noop"
    """Nothing changed that handlers are for."""
    FREE = "free"
    """The object is being deleted, and our finalizer is not set."""


class Activity(enum.StrEnum):
    """What a handler of the whole operator is for."""

    STARTUP = "startup"
    CLEANUP = "cleanup"
    LOGIN = "authentication"
    PROBE = "probe"


@dataclass(frozen=True, kw_only=True)
class Handler:
    """A function, its identifier, and how its errors are treated.

    ``timeout``: seconds after its first call from which it is no longer retried. ``retries``: the maximum number of
    calls. ``backoff``: seconds before the call after an exception. ``None``: no limit, or the default.

    For each type: ``threads`` names the pool in which functions that are not coroutine functions run, and
    ``stores_result`` is whether results are put into the status of the object.
    """

    fn: Function
    id: str
    param: Any = None
    errors: ErrorsMode | None = None
    timeout: float | None = None
    retries: int | None = None
    backoff: float | None = None
    title: ClassVar[str] = "Handler"
    default_errors: ClassVar[ErrorsMode] = ErrorsMode.TEMPORARY
    threads: ClassVar[str] = "handlers"
    stores_result: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"{self.title} {self.id!r}"


@dataclass(frozen=True, kw_only=True)
class ActivityHandler(Handler):
    """A handler of the whole operator."""

    activity: Activity
    title: ClassVar[str] = "Activity"


@dataclass(frozen=True, kw_only=True)
class ResourceHandler(Handler):
    """A handler for objects; ``selector`` is ``None`` for sub-handlers, which are for the object of their parent."""

    selector: Selector | None
    labels: MetaFilter | None = None
    annotations: MetaFilter | None = None
    when: Function | None = None
    field: FieldPath = ()
    value: Any = None


@dataclass(frozen=True, kw_only=True)
class WatchingHandler(ResourceHandler):
    """A handler of all events."""

    default_errors: ClassVar[ErrorsMode] = ErrorsMode.IGNORED
    stores_result: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class IndexHandler(ResourceHandler):
    """A function that returns what an index contains for an object."""

    default_errors: ClassVar[ErrorsMode] = ErrorsMode.IGNORED


@dataclass(frozen=True, kw_only=True)
class ChangingHandler(ResourceHandler):
    """A handler of changes. ``reason`` ``None``: any; ``initial``: only the first time after the start."""

    reason: Reason | None = None
    initial: bool = False
    deleted: bool = False
    needs_finalizer: bool = False
    needs_change: bool = False
    old: Any = None
    new: Any = None
    stores_result: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class BackgroundHandler(ResourceHandler):
    """A handler that accompanies an object from its creation to its deletion."""

    initial_delay: float | Function | None = None
    stores_result: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class DaemonHandler(BackgroundHandler):
    """A handler that runs until it is stopped; the fields are seconds."""

    cancellation_backoff: float | None = None
    cancellation_timeout: float | None = None
    cancellation_polling: float | None = None
    title: ClassVar[str] = "Daemon"
    threads: ClassVar[str] = "daemons"


@dataclass(frozen=True, kw_only=True)
class TimerHandler(BackgroundHandler):
    """A handler that is called every ``interval`` seconds, if the object has not changed for ``idle`` seconds."""

    interval: float | None = None
    idle: float | None = None
    sharp: bool = False
    title: ClassVar[str] = "Timer"


@dataclass(frozen=True, kw_only=True)
class WebhookHandler(ResourceHandler):
    """A handler of admission requests."""

    mutating: bool
    operations: Collection[str] | None = None
    subresource: str | None = None
    persistent: bool = False
    side_effects: bool = False
    ignore_failures: bool = False
    title: ClassVar[str] = "Webhook"
    default_errors: ClassVar[ErrorsMode] = ErrorsMode.PERMANENT
    threads: ClassVar[str] = "admission"


def handler_id(function: Function, given: str | None, *, prefix: str = "", suffix: str = "") -> str:
    """Return the identifier of a handler: the name of the function unless one is given.

    ``prefix`` is the identifier of the parent, ``suffix`` the field. Raises :class:`ValueError` if the function has no
    name.
    """
    parts = (prefix, given if given is not None else _name_of(function), suffix)
    return "/".join(part for part in parts if part)


def _name_of(function: Function) -> str:
    if isinstance(function, functools.partial):
        return _name_of(function.func)
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None:
        return _name_of(wrapped)
    name: str | None = getattr(function, "__qualname__", None)
    if name is None:
        raise ValueError(f"{function!r}: has no name, therefore the handler needs an id")
    if name.endswith("<lambda>"):
        code = function.__code__
        return f"lambda:{code.co_filename}:{code.co_firstlineno}"
    return name


HandlerT = TypeVar("HandlerT", bound=Handler)
ResourceHandlerT = TypeVar("ResourceHandlerT", bound=ResourceHandler)


class OperatorRegistry:
    """Handlers in the order in which they were declared."""

    def __init__(self) -> None:
        self._handlers: list[Handler] = []

    def append(self, handler: Handler) -> None:
        """Add a handler."""
        self._handlers.append(handler)

    def __iter__(self) -> Iterator[Handler]:
        return iter(tuple(self._handlers))

    def __len__(self) -> int:
        return len(self._handlers)

    def of_type(self, kind: type[HandlerT]) -> list[HandlerT]:
        """Return the handlers of a type."""
        return [handler for handler in self._handlers if isinstance(handler, kind)]

    def activities(self, activity: Activity) -> list[ActivityHandler]:
        """Return the handlers of the whole operator."""
        return [handler for handler in self.of_type(ActivityHandler) if handler.activity is activity]

    def for_resource(self, kind: type[ResourceHandlerT], resource: Resource) -> list[ResourceHandlerT]:
        """Return the handlers of a type that are for a resource."""
        return [
            handler for handler in self.of_type(kind) if handler.selector is None or handler.selector.check(resource)
        ]


_default: list[OperatorRegistry] = []


def get_default_registry() -> OperatorRegistry:
    """Return the registry to which decorators without ``registry`` add their handlers."""
    if not _default:
        _default.append(OperatorRegistry())
    return _default[0]


def set_default_registry(registry: OperatorRegistry) -> None:
    """Replace the registry to which decorators without ``registry`` add their handlers."""
    _default[:] = [registry]
