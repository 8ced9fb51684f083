"""The decorators that declare handlers, with the names and parameters of kopf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from cfo_handlers.declarations import (
    Activity,
    ActivityHandler,
    ChangingHandler,
    DaemonHandler,
    Handler,
    IndexHandler,
    OperatorRegistry,
    Reason,
    TimerHandler,
    WatchingHandler,
    WebhookHandler,
    get_default_registry,
    handler_id,
)
from cfo_handlers.diffs import FieldSpec, parse_field
from cfo_handlers.errors import ErrorsMode
from cfo_handlers.resource_selectors import Selector

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
_SELECTOR_FIELDS = ("group", "version", "kind", "plural", "singular", "shortcut", "category")


class Decorator(Protocol):
    """Declares a handler, and returns its function."""

    def __call__(self, fn: FunctionT, /) -> FunctionT:
        """Declare the function."""


def _decorator(
    new_handler: Callable[..., Handler],
    *,
    id: str | None = None,  # noqa: A002 - the parameters are kopf's
    suffix: str = "",
    registry: OperatorRegistry | None = None,
    **settings: Any,
) -> Decorator:
    def decorator(fn: FunctionT) -> FunctionT:
        handler = new_handler(fn=fn, id=handler_id(fn, id, field=suffix), **settings)
        (get_default_registry() if registry is None else registry).append(handler)
        return fn

    return decorator


def startup(**settings: Any) -> Decorator:
    """Call the function before anything else; the operator does not start if it fails.

    The keywords of this and of the other functions for the whole operator are ``id``, ``param``, ``errors``,
    ``timeout``, ``retries``, ``backoff`` and ``registry``.
    """
    return _decorator(ActivityHandler, activity=Activity.STARTUP, **settings)


def cleanup(**settings: Any) -> Decorator:
    """Call the function when the operator stops."""
    return _decorator(ActivityHandler, activity=Activity.CLEANUP, **settings)


def login(**settings: Any) -> Decorator:
    """Call the function for the credentials, which it returns as a ``ConnectionInfo``."""
    return _decorator(ActivityHandler, activity=Activity.LOGIN, **settings)


def probe(*, errors: ErrorsMode = ErrorsMode.IGNORED, **settings: Any) -> Decorator:
    """Call the function once for a value of the liveness endpoint."""
    return _decorator(ActivityHandler, activity=Activity.PROBE, errors=errors, **settings)


def _for_resource(
    new_handler: Callable[..., Handler],
    resource: tuple[Any, ...],
    *,
    field: FieldSpec = None,
    **settings: Any,
) -> Decorator:
    selector = Selector.of(
        resource, **{name: settings.pop(name, None) for name in _SELECTOR_FIELDS}
    )
    path = parse_field(field)
    suffix = "" if new_handler is IndexHandler else ".".join(path)
    return _decorator(new_handler, selector=selector, field=path, suffix=suffix, **settings)


def resume(*resource: Any, deleted: bool | None = None, **settings: Any) -> Decorator:
    """Call the function once for each object that existed before the start (``deleted``: also if it is being deleted).

    ``resource`` and the keywords ``group``, ``version``, ``kind``, ``plural``, ``singular``, ``shortcut`` and
    ``category`` select the resources (:class:`~cfo_handlers.resource_selectors.Selector`). The other keywords
    of this and of all functions for resources are ``id``, ``param``, ``errors``, ``timeout``, ``retries``, ``backoff``,
    the filters ``labels``, ``annotations``, ``when``, ``field`` and ``value``, and ``registry``.
    """
    return _for_resource(
        ChangingHandler, resource, initial=True, runs_while_deleting=bool(deleted), **settings
    )


def create(*resource: Any, **settings: Any) -> Decorator:
    """Call the function for each new object."""
    return _for_resource(ChangingHandler, resource, reason=Reason.CREATE, **settings)


def update(*resource: Any, **settings: Any) -> Decorator:
    """Call the function for each changed object; ``old`` and ``new`` are filters of the values of ``field``."""
    return _for_resource(
        ChangingHandler, resource, reason=Reason.UPDATE, needs_change=True, **settings
    )


def delete(*resource: Any, optional: bool | None = None, **settings: Any) -> Decorator:
    """Call the function for each object whose deletion was requested, before it is deleted.

    A finalizer ensures that; with ``optional`` there is none, and the function may not be called.
    """
    return _for_resource(
        ChangingHandler, resource, reason=Reason.DELETE, needs_finalizer=not optional, **settings
    )


def field(*resource: Any, field: FieldSpec, **settings: Any) -> Decorator:
    """Call the function when a field changes, also when it is set in a new object; filters ``old`` and ``new``."""
    return _for_resource(ChangingHandler, resource, field=field, needs_change=True, **settings)


def event(*resource: Any, **settings: Any) -> Decorator:
    """Call the function for each event of the watch, without retries."""
    return _for_resource(WatchingHandler, resource, **settings)


def index(*resource: Any, **settings: Any) -> Decorator:
    """Add the function's result for each object to an index, which all handlers get under the function's name."""
    return _for_resource(IndexHandler, resource, **settings)


def daemon(*resource: Any, **settings: Any) -> Decorator:
    """Run the function for each object until the object is deleted.

    Further keywords: ``initial_delay``, ``cancellation_backoff``, ``cancellation_timeout`` and
    ``cancellation_polling``, in seconds.
    """
    return _for_resource(DaemonHandler, resource, **settings)


def timer(*resource: Any, **settings: Any) -> Decorator:
    """Call the function for each object every ``interval`` seconds.

    Further keywords: ``idle`` (seconds without a change to the object), ``initial_delay`` (seconds), ``sharp`` (the
    interval is from the start of one call to the start of the next, not from its end).
    """
    return _for_resource(TimerHandler, resource, **settings)


def validate(*resource: Any, **settings: Any) -> Decorator:
    """Call the function before an object is stored; it raises ``AdmissionError`` to deny that.

    Further keywords: ``operations``, ``subresource``, ``persistent``, ``side_effects``, ``ignore_failures``.
    """
    return _for_resource(WebhookHandler, resource, mutating=False, **settings)


def mutate(*resource: Any, **settings: Any) -> Decorator:
    """Call the function before an object is validated and stored; it changes the object with ``patch``."""
    return _for_resource(WebhookHandler, resource, mutating=True, **settings)
