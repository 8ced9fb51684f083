"""What the decorators declare: a function, and when it is called."""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

from cfo_handlers.diffs import FieldPath
from cfo_handlers.errors import ErrorsMode
from cfo_handlers.filters import MetaFilter
from cfo_handlers.resource_selectors import Resource, Selector

Function: TypeAlias = Callable[..., Any]
_ANY_RESOURCE: Final = Selector()
"""The selector of sub-handlers, which are called only for the object of their parent."""

_OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})


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
    LOGIN = "authentication"  # kopf's name in identifiers and results
    PROBE = "probe"


@dataclass(frozen=True, kw_only=True)
class Handler:
    """A function, its identifier, and how its errors are treated.

    ``timeout``: seconds after its first call from which it is no longer retried. ``retries``: the maximum number of
    calls; as in kopf, the first call counts. ``backoff``: seconds before the call after an exception. ``None``: no
    limit, or the default.

    Class variables: ``thread_pool`` names the pool in which functions that are not coroutine functions run,
    ``stores_result`` is whether results are put into the status of the object, and ``own_fields`` are those that only
    the decorator sets.

    Raises :class:`TypeError` for a value of another type, and :class:`ValueError` for a negative number.
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
    thread_pool: ClassVar[str] = "handlers"
    stores_result: ClassVar[bool] = False
    own_fields: ClassVar[frozenset[str]] = frozenset({"fn"})

    def __post_init__(self) -> None:
        _check_errors(self.errors)
        _check_seconds("timeout", self.timeout)
        _check_seconds("backoff", self.backoff)
        _check_retries(self.retries)

    def __str__(self) -> str:
        return f"{self.title} {self.id!r}"


@dataclass(frozen=True, kw_only=True)
class ActivityHandler(Handler):
    """A handler of the whole operator."""

    activity: Activity
    title: ClassVar[str] = "Activity"
    own_fields: ClassVar[frozenset[str]] = frozenset({"fn", "activity"})


@dataclass(frozen=True, kw_only=True)
class ResourceHandler(Handler):
    """A handler for objects.

    Raises :class:`TypeError` or :class:`ValueError` for filters that contradict each other, and for async functions.
    """

    selector: Selector = _ANY_RESOURCE
    labels: MetaFilter | None = None
    annotations: MetaFilter | None = None
    when: Function | None = None
    field: FieldPath = ()
    value: Any = None
    own_fields: ClassVar[frozenset[str]] = frozenset({"fn", "selector"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.field and self._filters_values:
            raise TypeError("the filters value, old and new need a field")
        _check_filters("labels", self.labels)
        _check_filters("annotations", self.annotations)
        if self.when is not None:
            require_plain_function("when", self.when)
        _check_filter_function("value", self.value)

    @property
    def _filters_values(self) -> bool:
        """Whether a filter is about the value of the field."""
        return self.value is not None


def require_plain_function(name: str, function: object) -> None:
    """Raise :class:`TypeError` for what cannot be called, and for an async function, whose result is not awaited."""
    if not callable(function):
        raise TypeError(f"{name}: {function!r:.200}: must be a function")
    if inspect.iscoroutinefunction(unwrapped(function)):
        raise TypeError(
            f"{name}: async function {function!r:.200}: must be a function without async"
        )


def _check_filter_function(name: str, value: object) -> None:
    """Raise :class:`TypeError` for an async function as a filter of a value: its result would always be true."""
    if callable(value):
        require_plain_function(name, value)


def _check_errors(errors: object) -> None:
    if errors is not None and not isinstance(errors, ErrorsMode):
        modes = ", ".join(f"ErrorsMode.{mode.name}" for mode in ErrorsMode)
        raise TypeError(f"errors: {errors!r:.200}: must be one of {modes}")


def _check_seconds(name: str, value: object) -> None:
    if value is None:
        return
    problem = f"{name}: {value!r:.200}: must be a number of seconds, 0 or more"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(problem)
    if not value >= 0:
        raise ValueError(problem)


def _check_retries(value: object) -> None:
    if value is None:
        return
    problem = f"retries: {value!r:.200}: must be a whole number of calls, 0 or more"
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(problem)
    if value < 0:
        raise ValueError(problem)


def _check_filters(name: str, filters: MetaFilter | None) -> None:
    if filters is None:
        return
    if not isinstance(filters, Mapping):
        raise TypeError(f"{name}: {filters!r:.200}: must be a dict, such as {{'app': 'web'}}")
    if None in filters.values():
        raise ValueError(f"{name}: None is not a filter: use PRESENT or ABSENT")
    for key, value in filters.items():
        _check_filter_function(f"{name}: {key}", value)


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
    """A handler of changes.

    ``reason``: the changes that it is for, ``None``: any. ``initial``: it is called only the first time after the
    start. ``runs_while_deleting``: then also for an object that is being deleted. ``needs_finalizer``: its object gets
    our finalizer, so that it is called before the deletion. ``needs_change``: it is called only if its field changed.
    ``old`` and ``new``: filters of the value of the field before and after the change.
    """

    reason: Reason | None = None
    initial: bool = False
    runs_while_deleting: bool = False
    needs_finalizer: bool = False
    needs_change: bool = False
    old: Any = None
    new: Any = None
    stores_result: ClassVar[bool] = True
    own_fields: ClassVar[frozenset[str]] = frozenset(
        {
            "fn",
            "selector",
            "reason",
            "initial",
            "runs_while_deleting",
            "needs_finalizer",
            "needs_change",
        }
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_filter_function("old", self.old)
        _check_filter_function("new", self.new)
        if not self._filters_change:
            return
        if not self.needs_change:
            raise TypeError("the filters old and new are only for handlers of updates and fields")
        if self.value is not None:
            raise TypeError("the filter value cannot be combined with old and new")

    @property
    def _filters_change(self) -> bool:
        return self.old is not None or self.new is not None

    @property
    def _filters_values(self) -> bool:
        return super()._filters_values or self._filters_change


@dataclass(frozen=True, kw_only=True)
class BackgroundHandler(ResourceHandler):
    """A handler that accompanies an object from its creation to its deletion."""

    initial_delay: float | Function | None = None
    stores_result: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if callable(self.initial_delay):
            require_plain_function("initial_delay", self.initial_delay)
        else:
            _check_seconds("initial_delay", self.initial_delay)


@dataclass(frozen=True, kw_only=True)
class DaemonHandler(BackgroundHandler):
    """A handler that runs until it is stopped; the fields are seconds."""

    cancellation_backoff: float | None = None
    cancellation_timeout: float | None = None
    cancellation_polling: float | None = None
    title: ClassVar[str] = "Daemon"
    thread_pool: ClassVar[str] = "daemons"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_seconds("cancellation_backoff", self.cancellation_backoff)
        _check_seconds("cancellation_timeout", self.cancellation_timeout)
        _check_seconds("cancellation_polling", self.cancellation_polling)


@dataclass(frozen=True, kw_only=True)
class TimerHandler(BackgroundHandler):
    """A handler that is called every ``interval`` seconds, if the object has not changed for ``idle`` seconds.

    ``sharp``: the interval begins with the call, not with its end.
    """

    interval: float | None = None
    idle: float | None = None
    sharp: bool | None = None
    title: ClassVar[str] = "Timer"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_seconds("interval", self.interval)
        _check_seconds("idle", self.idle)


@dataclass(frozen=True, kw_only=True)
class WebhookHandler(ResourceHandler):
    """A handler of admission requests.

    ``side_effects`` and ``ignore_failures`` are ``sideEffects`` and ``failurePolicy`` of the webhook; ``persistent`` is
    a keyword of kopf without effect here.

    Raises :class:`ValueError` for unknown operations.
    """

    mutating: bool
    operation: str | None = None
    operations: Collection[str] | None = None
    subresource: str | None = None
    persistent: bool | None = None
    side_effects: bool | None = None
    ignore_failures: bool | None = None
    title: ClassVar[str] = "Webhook"
    default_errors: ClassVar[ErrorsMode] = ErrorsMode.PERMANENT
    thread_pool: ClassVar[str] = "admission"
    own_fields: ClassVar[frozenset[str]] = frozenset({"fn", "selector", "mutating"})

    def __post_init__(self) -> None:
        super().__post_init__()
        selected = self.selected_operations
        if not selected or not selected <= _OPERATIONS:
            raise ValueError(
                f"operations {sorted(selected)}: must be one or more of {', '.join(sorted(_OPERATIONS))}"
            )

    @property
    def selected_operations(self) -> frozenset[str]:
        """``operation`` and ``operations``; by default CREATE and UPDATE if it mutates, otherwise all operations."""
        if self.operation is not None:
            return frozenset(self.operations or ()) | {self.operation}
        if self.operations is not None:
            return frozenset(self.operations)
        if self.mutating:
            return frozenset({"CREATE", "UPDATE"})
        return _OPERATIONS


def keywords_of(handler: type[Handler]) -> list[str]:
    """Return the keywords of decorators that declare such handlers."""
    return [each.name for each in fields(handler) if each.name not in handler.own_fields]


def require_keywords(decorator: str, given: Iterable[str], allowed: Collection[str]) -> None:
    """Raise :class:`TypeError` for a keyword in ``given`` that is not ``allowed``."""
    for keyword in given:
        if keyword in allowed:
            continue
        similar = get_close_matches(keyword, allowed)
        hint = f"; did you mean {_same_start(keyword, similar)}?" if similar else ""
        raise TypeError(
            f"{decorator}: keyword {keyword}: must be one of {', '.join(sorted(allowed))}{hint}"
        )


def _same_start(keyword: str, similar: Collection[str]) -> str:
    """Return the first name that begins as ``keyword``, such as retries for retry, not registry; else the first one."""
    return max(similar, key=lambda name: name.startswith(keyword[:4]))


@contextmanager
def errors_of(decorator: str) -> Iterator[None]:
    """Let errors about the arguments of a decorator begin with its name."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise type(error)(f"{decorator}: {error}") from None


def handler_id(
    function: Function, given: str | None, *, parent_id: str = "", field: str = ""
) -> str:
    """Return the identifier of a handler: the name of the function unless one is given, between parent and field.

    Raises :class:`ValueError` if the function has no name.
    """
    name = _name_of(function) if given is None else given
    return "/".join(part for part in (parent_id, name, field) if part)


def _name_of(function: Function) -> str:
    function = unwrapped(function)
    name: str | None = getattr(function, "__qualname__", None)
    if name is None:
        raise ValueError(f"{function!r}: has no name, therefore the handler needs an id")
    if name.endswith("<lambda>"):
        return f"lambda:{function.__code__.co_filename}:{function.__code__.co_firstlineno}"
    return name


def unwrapped(function: Any) -> Any:
    """Return the function that partials and decorators wrap."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            return function


HandlerT = TypeVar("HandlerT", bound=Handler)
ResourceHandlerT = TypeVar("ResourceHandlerT", bound=ResourceHandler)


class OperatorRegistry(list[Handler]):
    """Handlers in the order in which they were declared."""

    def of_type(self, kind: type[HandlerT]) -> list[HandlerT]:
        """Return the handlers of a type."""
        return [handler for handler in self if isinstance(handler, kind)]

    def activities(self, activity: Activity) -> list[ActivityHandler]:
        """Return the handlers of the whole operator."""
        return [
            handler for handler in self.of_type(ActivityHandler) if handler.activity is activity
        ]

    def for_resource(
        self, kind: type[ResourceHandlerT], resource: Resource
    ) -> list[ResourceHandlerT]:
        """Return the handlers of a type that are for a resource."""
        return [handler for handler in self.of_type(kind) if handler.selector.check(resource)]


_default_registry = OperatorRegistry()


def get_default_registry() -> OperatorRegistry:
    """Return the registry to which decorators without ``registry`` add their handlers."""
    return _default_registry


def set_default_registry(registry: OperatorRegistry) -> None:
    """Replace the registry to which decorators without ``registry`` add their handlers."""
    global _default_registry
    _default_registry = registry
