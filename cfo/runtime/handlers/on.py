"""The decorators that declare handlers, with the names and parameters of kopf."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, TypeVar

from cfo.runtime.handlers.declarations import (
    Activity,
    ActivityHandler,
    ChangingHandler,
    DaemonHandler,
    IndexHandler,
    OperatorRegistry,
    Reason,
    ResourceHandler,
    TimerHandler,
    WatchingHandler,
    WebhookHandler,
    get_default_registry,
    handler_id,
)
from cfo.runtime.handlers.diffs import FieldSpec, parse_field
from cfo.runtime.handlers.errors import ErrorsMode
from cfo.runtime.handlers.filters import check_filters
from cfo.runtime.handlers.resource_selectors import Selector

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

_SELECTOR_FIELDS = ("group", "version", "kind", "plural", "singular", "shortcut", "category")
_OPERATIONS = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})


def _activity(
    activity: Activity,
    *,
    id: str | None = None,  # noqa: A002 - the parameters are kopf's
    registry: OperatorRegistry | None = None,
    **settings: Any,
) -> Callable[[FunctionT], FunctionT]:
    def decorator(fn: FunctionT) -> FunctionT:
        handler = ActivityHandler(fn=fn, id=handler_id(fn, id), activity=activity, **settings)
        (get_default_registry() if registry is None else registry).append(handler)
        return fn

    return decorator


def startup(**settings: Any) -> Callable[[FunctionT], FunctionT]:
    """Call the function before anything else; the operator does not start if it fails.

    The keywords of this and of the other functions for the whole operator are ``id``, ``param``, ``errors``,
    ``timeout``, ``retries``, ``backoff`` and ``registry``.
    """
    return _activity(Activity.STARTUP, **settings)


def cleanup(**settings: Any) -> Callable[[FunctionT], FunctionT]:
    """Call the function when the operator stops."""
    return _activity(Activity.CLEANUP, **settings)


def login(**settings: Any) -> Callable[[FunctionT], FunctionT]:
    """Call the function for the credentials, which it returns as a ``ConnectionInfo``."""
    return _activity(Activity.LOGIN, **settings)


def probe(**settings: Any) -> Callable[[FunctionT], FunctionT]:
    """Call the function once for a value of the liveness endpoint; by default errors are ignored."""
    return _activity(Activity.PROBE, **{"errors": ErrorsMode.IGNORED, **settings})


def _resource(
    new_handler: Callable[..., ResourceHandler],
    *resource: Any,
    id: str | None = None,  # noqa: A002
    field: FieldSpec = None,
    registry: OperatorRegistry | None = None,
    suffixed: bool = True,
    changes: bool = False,
    **settings: Any,
) -> Callable[[FunctionT], FunctionT]:
    selector = Selector.of(resource, **{name: settings.pop(name, None) for name in _SELECTOR_FIELDS})
    if not changes and ("old" in settings or "new" in settings):
        raise TypeError("the filters old and new are only for handlers of updates and fields")
    check_filters(field, settings)
    path = parse_field(field)

    def decorator(fn: FunctionT) -> FunctionT:
        identity = handler_id(fn, id, suffix=".".join(path) if suffixed else "")
        handler = new_handler(fn=fn, id=identity, selector=selector, field=path, **settings)
        (get_default_registry() if registry is None else registry).append(handler)
        return fn

    return decorator


def resume(*resource: Any, deleted: bool | None = None, **settings: Any) -> Callable[[FunctionT], FunctionT]:
    """Call the function once for each object that existed before the start (``deleted``: also if it is being deleted).

    ``resource`` and the keywords ``group``, ``version``, ``kind``, ``plural``, ``singular``, ``shortcut`` and
    ``category`` select the resources (:class:`~cfo.runtime.handlers.resource_selectors.Selector`). The other keywords
    of this and of all functions for resources are ``id``, ``param``, ``errors``, ``timeout``, ``retries``, ``backoff``,
    the filters ``labels``, ``annotations``, ``when``, ``field`` and ``value``, and ``registry``.
    """
    return _resource(partial(ChangingHandler, initial=True, deleted=bool(deleted)), *resource, **settings)


def create(*resource: Any, **settings: Any) -> Callable[[FunctionT], FunctionT]:
    """Call the function for each new object."""
    return _resource(partial(ChangingHandler, reason=Reason.CREATE), *resource, **settings)


def update(*resource: Any, **settings: Any) -> Callable[[FunctionT], FunctionT]:
    """Call the function for each changed object; ``old`` and ``new`` are filters of the values of ``field``."""
    new_handler = partial(ChangingHandler, reason=Reason.UPDATE, needs_change=True)
    return _resource(new_handler, *resource, changes=True, **settings)


def delete(*resource: Any, optional: bool | None = None, **settings: Any) -> Callable[[FunctionT], FunctionT]:
    """Call the function for each object whose deletion was requested, before it is deleted.

    A finalizer ensures that; with ``optional`` there is none, and the function may not be called.
    """
    new_handler = partial(ChangingHandler, reason=Reason.DELETE, needs_finalizer=not optional)
    return _resource(new_handler, *resource, **settings)


def field(*resource: Any, field: FieldSpec, **settings: Any) -> Callable[[FunctionT], FunctionT]:
    """Call the function when a field changes, also when it is set in a new object; filters ``old`` and ``new``."""
    return _resource(partial(ChangingHandler, needs_change=True), *resource, field=field, changes=True, **settings)


def event(*resource: Any, **settings: Any) -> Callable[[FunctionT], FunctionT]:
    """Call the function for each event of the watch, without retries."""
    return _resource(WatchingHandler, *resource, **settings)


def index(*resource: Any, **settings: Any) -> Callable[[FunctionT], FunctionT]:
    """Add the function's result for each object to an index, which all handlers get under the function's name."""
    return _resource(IndexHandler, *resource, suffixed=False, **settings)


def daemon(*resource: Any, **settings: Any) -> Callable[[FunctionT], FunctionT]:
    """Run the function for each object until the object is deleted.

    Further keywords: ``initial_delay``, ``cancellation_backoff``, ``cancellation_timeout`` and
    ``cancellation_polling``, in seconds.
    """
    return _resource(DaemonHandler, *resource, **settings)


def timer(*resource: Any, sharp: bool | None = None, **settings: Any) -> Callable[[FunctionT], FunctionT]:
    """Call the function for each object every ``interval`` seconds.

    Further keywords: ``idle`` (seconds without a change to the object), ``initial_delay`` (seconds), ``sharp`` (the
    interval is from the start of one call to the start of the next, not from its end).
    """
    return _resource(partial(TimerHandler, sharp=bool(sharp)), *resource, **settings)


def _webhook(
    *resource: Any,
    mutating: bool,
    operation: str | None = None,
    operations: Collection[str] | None = None,
    persistent: bool | None = None,
    side_effects: bool | None = None,
    ignore_failures: bool | None = None,
    **settings: Any,
) -> Callable[[FunctionT], FunctionT]:
    wanted = None if operations is None else frozenset(operations)
    if operation is not None:
        wanted = (wanted or frozenset()) | {operation}
    if wanted is not None and not (wanted and wanted <= _OPERATIONS):
        raise ValueError(f"operations {sorted(wanted)}: must be one or more of {', '.join(sorted(_OPERATIONS))}")
    new_handler = partial(
        WebhookHandler,
        mutating=mutating,
        operations=wanted,
        persistent=bool(persistent),
        side_effects=bool(side_effects),
        ignore_failures=bool(ignore_failures),
    )
    return _resource(new_handler, *resource, **settings)


def validate(*resource: Any, **settings: Any) -> Callable[[FunctionT], FunctionT]:
    """Call the function before an object is stored; it raises ``AdmissionError`` to deny that.

    Further keywords: ``operations``, ``subresource``, ``persistent``, ``side_effects``, ``ignore_failures``.
    """
    return _webhook(*resource, mutating=False, **settings)


def mutate(*resource: Any, **settings: Any) -> Callable[[FunctionT], FunctionT]:
    """Call the function before an object is validated and stored; it changes the object with ``patch``."""
    return _webhook(*resource, mutating=True, **settings)
