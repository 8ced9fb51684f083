"""The decorators that declare handlers, with the names and parameters of kopf.

Errors about wrong arguments name the decorator, and the keywords that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar, Unpack

from cfo_handlers.callbacks import ActivityFn, ResourceFn
from cfo_handlers.declarations import (
    Activity,
    ActivityHandler,
    ChangingHandler,
    DaemonHandler,
    Handler,
    IndexHandler,
    Reason,
    TimerHandler,
    WatchingHandler,
    WebhookHandler,
    errors_of,
    get_default_registry,
    handler_id,
    keywords_of,
    require_keywords,
)
from cfo_handlers.diffs import FieldSpec, parse_field
from cfo_handlers.errors import ErrorsMode
from cfo_handlers.options import (
    ActivityOptions,
    DaemonOptions,
    FieldOptions,
    ResourceOptions,
    TimerOptions,
    UpdateOptions,
    WebhookOptions,
)
from cfo_handlers.resource_selectors import Argument, Selector

ActivityT = TypeVar("ActivityT", bound=ActivityFn)
ResourceT = TypeVar("ResourceT", bound=ResourceFn)
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
_SELECTOR_FIELDS = ("group", "version", "kind", "plural", "singular", "shortcut", "category")


def _decorator(
    name: str,
    new_handler: type[Handler],
    options: Mapping[str, Any],
    *,
    others: Collection[str] = (),
    suffix: str = "",
    **fixed: Any,
) -> Callable[[FunctionT], FunctionT]:
    """Return the decorator ``name``, whose handlers have the fields ``fixed``.

    ``options`` are the keywords that it was given, except ``others``, which it has, too. Raises :class:`TypeError` for
    a keyword that it does not have.
    """
    settings = dict(options)
    require_keywords(name, settings, [*keywords_of(new_handler), *others, "registry"])
    given_id = settings.pop("id", None)
    registry = settings.pop("registry", None)

    def decorator(fn: FunctionT) -> FunctionT:
        with errors_of(name):
            handler_name = handler_id(fn, given_id, field=suffix)
            handler = new_handler(fn=fn, id=handler_name, **fixed, **settings)
        (get_default_registry() if registry is None else registry).append(handler)
        return fn

    return decorator


def startup(**options: Unpack[ActivityOptions]) -> Callable[[ActivityT], ActivityT]:
    """Call the function before anything else; the operator does not start if it fails.

    The keywords of this and of the other functions for the whole operator are ``id``, ``param``, ``errors``,
    ``timeout``, ``retries``, ``backoff`` and ``registry``.
    """
    return _decorator("on.startup", ActivityHandler, options, activity=Activity.STARTUP)


def cleanup(**options: Unpack[ActivityOptions]) -> Callable[[ActivityT], ActivityT]:
    """Call the function when the operator stops."""
    return _decorator("on.cleanup", ActivityHandler, options, activity=Activity.CLEANUP)


def login(**options: Unpack[ActivityOptions]) -> Callable[[ActivityT], ActivityT]:
    """Call the function for the credentials, which it returns as a ``ConnectionInfo``."""
    return _decorator("on.login", ActivityHandler, options, activity=Activity.LOGIN)


def probe(**options: Unpack[ActivityOptions]) -> Callable[[ActivityT], ActivityT]:
    """Call the function once for a value of the liveness endpoint. Errors are ignored by default."""
    options.setdefault("errors", ErrorsMode.IGNORED)
    return _decorator("on.probe", ActivityHandler, options, activity=Activity.PROBE)


def _for_resource(
    name: str,
    new_handler: type[Handler],
    resource: tuple[Argument, ...],
    options: Mapping[str, Any],
    *,
    others: Collection[str] = (),
    **fixed: Any,
) -> Callable[[FunctionT], FunctionT]:
    """Return the decorator ``name`` for a resource; see :func:`_decorator`."""
    settings = dict(options)
    selected = {each: settings.pop(each, None) for each in _SELECTOR_FIELDS}
    with errors_of(name):
        selector = Selector.of(resource, **selected)
        path = parse_field(settings.pop("field", None))
    suffix = "" if new_handler is IndexHandler else ".".join(path)
    return _decorator(
        name,
        new_handler,
        settings,
        others=(*_SELECTOR_FIELDS, *others),
        suffix=suffix,
        selector=selector,
        field=path,
        **fixed,
    )


def resume(
    *resource: Argument, deleted: bool | None = None, **options: Unpack[ResourceOptions]
) -> Callable[[ResourceT], ResourceT]:
    """Call the function once for each object that existed before the start (``deleted``: also if it is being deleted).

    ``resource`` and the keywords ``group``, ``version``, ``kind``, ``plural``, ``singular``, ``shortcut`` and
    ``category`` select the resources (:class:`~cfo_handlers.resource_selectors.Selector`). The other keywords
    of this and of all functions for resources are ``id``, ``param``, ``errors``, ``timeout``, ``retries``, ``backoff``,
    the filters ``labels``, ``annotations``, ``when``, ``field`` and ``value``, and ``registry``.
    """
    return _for_resource(
        "on.resume",
        ChangingHandler,
        resource,
        options,
        others=["deleted"],
        initial=True,
        runs_while_deleting=bool(deleted),
    )


def create(
    *resource: Argument, **options: Unpack[ResourceOptions]
) -> Callable[[ResourceT], ResourceT]:
    """Call the function for each new object."""
    return _for_resource("on.create", ChangingHandler, resource, options, reason=Reason.CREATE)


def update(
    *resource: Argument, **options: Unpack[UpdateOptions]
) -> Callable[[ResourceT], ResourceT]:
    """Call the function for each changed object; ``old`` and ``new`` are filters of the values of ``field``."""
    return _for_resource(
        "on.update",
        ChangingHandler,
        resource,
        options,
        reason=Reason.UPDATE,
        needs_change=True,
    )


def delete(
    *resource: Argument, optional: bool | None = None, **options: Unpack[ResourceOptions]
) -> Callable[[ResourceT], ResourceT]:
    """Call the function for each object whose deletion was requested, before it is deleted.

    A finalizer ensures that; with ``optional`` there is none, and the function may not be called.
    """
    return _for_resource(
        "on.delete",
        ChangingHandler,
        resource,
        options,
        others=["optional"],
        reason=Reason.DELETE,
        needs_finalizer=not optional,
    )


def field(
    *resource: Argument, field: FieldSpec, **options: Unpack[FieldOptions]
) -> Callable[[ResourceT], ResourceT]:
    """Call the function when a field changes, also when it is set in a new object; filters ``old`` and ``new``."""
    settings = {**options, "field": field}
    return _for_resource("on.field", ChangingHandler, resource, settings, needs_change=True)


def event(
    *resource: Argument, **options: Unpack[ResourceOptions]
) -> Callable[[ResourceT], ResourceT]:
    """Call the function for each event of the watch, without retries."""
    return _for_resource("on.event", WatchingHandler, resource, options)


def index(
    *resource: Argument, **options: Unpack[ResourceOptions]
) -> Callable[[ResourceT], ResourceT]:
    """Add the function's result for each object to an index, which all handlers get under the function's name."""
    return _for_resource("on.index", IndexHandler, resource, options)


def daemon(
    *resource: Argument, **options: Unpack[DaemonOptions]
) -> Callable[[ResourceT], ResourceT]:
    """Run the function for each object until the object is deleted.

    Further keywords: ``initial_delay``, ``cancellation_backoff``, ``cancellation_timeout`` and
    ``cancellation_polling``, in seconds.
    """
    return _for_resource("on.daemon", DaemonHandler, resource, options)


def timer(*resource: Argument, **options: Unpack[TimerOptions]) -> Callable[[ResourceT], ResourceT]:
    """Call the function for each object every ``interval`` seconds.

    Further keywords: ``idle`` (seconds without a change to the object), ``initial_delay`` (seconds), ``sharp`` (the
    interval is from the start of one call to the start of the next, not from its end).
    """
    return _for_resource("on.timer", TimerHandler, resource, options)


def validate(
    *resource: Argument, **options: Unpack[WebhookOptions]
) -> Callable[[ResourceT], ResourceT]:
    """Call the function before an object is stored; it raises ``AdmissionError`` to deny that.

    Further keywords: ``operations``, ``subresource``, ``persistent``, ``side_effects``, ``ignore_failures``.
    """
    return _for_resource("on.validate", WebhookHandler, resource, options, mutating=False)


def mutate(
    *resource: Argument, **options: Unpack[WebhookOptions]
) -> Callable[[ResourceT], ResourceT]:
    """Call the function before an object is validated and stored; it changes the object with ``patch``."""
    return _for_resource("on.mutate", WebhookHandler, resource, options, mutating=True)
