"""Sub-handlers: handlers that a handler declares while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from cfo.runtime.handlers.declarations import ChangingHandler, Reason, handler_id
from cfo.runtime.handlers.diffs import FieldSpec, parse_field
from cfo.runtime.handlers.execution import Invocation, current_invocation, run_subhandlers
from cfo.runtime.handlers.on import check_filters

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def _current() -> tuple[Invocation, ChangingHandler]:
    invocation = current_invocation.get()
    if invocation is None or not isinstance(invocation.handler, ChangingHandler):
        raise TypeError("sub-handlers can only be declared in a handler of changes, while it runs")
    return invocation, invocation.handler


def subhandler(
    *,
    id: str | None = None,  # noqa: A002 - the parameters are kopf's
    field: FieldSpec = None,
    value: Any = None,
    old: Any = None,
    new: Any = None,
    labels: Any = None,
    annotations: Any = None,
    **settings: Any,
) -> Callable[[FunctionT], FunctionT]:
    """Declare a sub-handler of the handler that is running; its identifier is ``PARENT/id``.

    Sub-handlers are called when the handler returns, or by :func:`execute`. The handler has finished when they have;
    until then it is called again, and must declare the same ones. Raises :class:`TypeError` outside of a handler of
    changes.
    """
    invocation, parent = _current()
    check_filters(field, value, old, new, labels, annotations)
    is_update = parent.reason is Reason.UPDATE or (parent.reason is None and not parent.initial)
    if not (old is None and new is None) and not is_update:
        raise TypeError("the filters old and new are only for handlers of updates")

    def decorator(fn: FunctionT) -> FunctionT:
        handler = ChangingHandler(
            fn=fn,
            id=handler_id(fn, id, prefix=parent.id),
            selector=None,
            field=parse_field(field),
            value=value,
            old=old,
            new=new,
            labels=labels,
            annotations=annotations,
            needs_change=parent.needs_change,
            **settings,
        )
        invocation.subhandlers.append(handler)
        return fn

    return decorator


def register(fn: FunctionT, *, id: str | None = None, **settings: Any) -> FunctionT:  # noqa: A002
    """Declare a sub-handler as :func:`subhandler` does."""
    return subhandler(id=id, **settings)(fn)


async def execute(
    *,
    fns: Mapping[str, Callable[..., Any]] | Iterable[Callable[..., Any]] | None = None,
    handlers: Iterable[ChangingHandler] | None = None,
) -> None:
    """Call sub-handlers now: the functions ``fns`` (by identifier), ``handlers``, or those declared so far.

    Raises a :class:`~cfo.runtime.handlers.errors.TemporaryError` unless all have finished, :class:`TypeError` outside
    of a handler of changes, and if both parameters are given.
    """
    invocation, parent = _current()
    if fns is not None and handlers is not None:
        raise TypeError("execute: either fns or handlers can be given, not both")
    if handlers is not None:
        await run_subhandlers(invocation, list(handlers))
    elif fns is not None:
        named = fns.items() if isinstance(fns, Mapping) else ((None, fn) for fn in fns)
        new = [ChangingHandler(fn=fn, id=handler_id(fn, name, prefix=parent.id), selector=None) for name, fn in named]
        await run_subhandlers(invocation, new)
    elif not invocation.subhandlers_called:
        await run_subhandlers(invocation, invocation.subhandlers)
