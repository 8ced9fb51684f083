"""Calls of handlers: in the event loop or in a thread, with what follows from their results and errors."""

from __future__ import annotations

import datetime
import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from cfo.runtime.controller.threads import ThreadPool
from cfo.runtime.handlers.causes import Cause, select_changing
from cfo.runtime.handlers.declarations import (
    ChangingHandler,
    Handler,
    IndexHandler,
    Reason,
    ResourceHandler,
    handler_id,
)
from cfo.runtime.handlers.diffs import FieldSpec, parse_field
from cfo.runtime.handlers.environment import Environment
from cfo.runtime.handlers.errors import (
    ErrorsMode,
    HandlerRetriesError,
    HandlerTimeoutError,
    PermanentError,
    SubhandlersPending,
    TemporaryError,
)
from cfo.runtime.handlers.filters import check_filters
from cfo.runtime.handlers.lifecycles import get_default_lifecycle
from cfo.runtime.handlers.patching import make_plain, plain
from cfo.runtime.handlers.progress import HandlerState, Outcome, Progress


@dataclass(slots=True)
class Invocation:
    """The call of a handler that is in progress: for functions of this package that the handler calls."""

    environment: Environment
    handler: Handler | None
    cause: Cause | None
    parent: Invocation | None = None
    subhandlers: list[ChangingHandler] = field(default_factory=list)
    subhandlers_called: bool = False
    children: set[str] = field(default_factory=set)


current_invocation: ContextVar[Invocation | None] = ContextVar("cfo_handler_invocation", default=None)


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a function, or what it wraps, is a coroutine function."""
    if isinstance(function, functools.partial):
        return is_async(function.func)
    wrapped = getattr(function, "__wrapped__", None)
    return is_async(wrapped) if wrapped is not None else inspect.iscoroutinefunction(function)


async def call(
    environment: Environment, function: Callable[..., Any], kwargs: Mapping[str, Any], *, pool: ThreadPool | None = None
) -> Any:
    """Call a function: a coroutine function in the event loop, any other in a thread of ``pool``."""
    if is_async(function):
        return await function(**{**environment.client_for(is_async=True), **kwargs})
    return await (pool or environment.threads).run(function, **{**environment.client_for(is_async=False), **kwargs})


async def call_handler(
    handler: Handler,
    invocation: Invocation,
    state: HandlerState,
    kwargs: Mapping[str, Any],
    *,
    logger: Any,
    default_errors: ErrorsMode = ErrorsMode.TEMPORARY,
    pool: ThreadPool | None = None,
) -> Outcome:
    """Call a handler once. Raises nothing except cancellation: errors are part of the outcome."""
    environment = invocation.environment
    runtime = environment.now() - state.started
    try:
        _check_limits(handler, state, runtime)
        token = current_invocation.set(invocation)
        try:
            progress = {"retry": state.retries, "started": state.started, "runtime": runtime, "param": handler.param}
            result = await call(environment, handler.fn, {**progress, **kwargs}, pool=pool)
            if stores_result(handler):
                result = plain(result)
            if isinstance(handler, ChangingHandler) and not invocation.subhandlers_called:
                await run_subhandlers(invocation, invocation.subhandlers)
        finally:
            current_invocation.reset(token)
        if invocation.cause is not None:
            make_plain(invocation.cause.patch)
    except Exception as error:  # noqa: BLE001 - handlers raise anything
        return _failed(handler, invocation, state, error, logger, default_errors)
    logger.info(f"{handler} succeeded.")
    return Outcome(final=True, result=result, children=frozenset(invocation.children))


def stores_result(handler: Handler) -> bool:
    """Return whether the result of a handler is stored in the object."""
    return isinstance(handler, ResourceHandler) and not isinstance(handler, IndexHandler)


def _check_limits(handler: Handler, state: HandlerState, runtime: datetime.timedelta) -> None:
    if handler.timeout is not None and runtime.total_seconds() >= handler.timeout:
        raise HandlerTimeoutError(f"{handler} has timed out after {runtime}.")
    if handler.retries is not None and state.retries >= handler.retries:
        raise HandlerRetriesError(f"{handler} has exceeded {state.retries} retries.")


def _failed(
    handler: Handler,
    invocation: Invocation,
    state: HandlerState,
    error: Exception,
    logger: Any,
    default_errors: ErrorsMode,
) -> Outcome:
    environment, children = invocation.environment, frozenset(invocation.children)
    text = str(error) or repr(error)
    if isinstance(error, SubhandlersPending):
        logger.debug(f"{handler} has unfinished sub-handlers. Will retry soon.")
        return Outcome(final=False, exception=error, delay=error.delay, children=children)
    if isinstance(error, PermanentError):
        own = isinstance(error, (HandlerTimeoutError, HandlerRetriesError))
        logger.error(text if own else f"{handler} failed permanently: {text}")
        return Outcome(final=True, exception=error, children=children)
    expected = isinstance(error, TemporaryError)
    mode = ErrorsMode.TEMPORARY if expected else handler.errors or default_errors
    log = logger.error if expected else functools.partial(logger.error, exc_info=error)
    what = f"{handler} failed temporarily" if expected else f"{handler} failed with an exception"
    if mode is ErrorsMode.IGNORED:
        log(f"{what} and will ignore it: {text}")
        return Outcome(final=True, children=children)
    if mode is ErrorsMode.PERMANENT:
        log(f"{what} and will stop now: {text}")
        return Outcome(final=True, exception=error, children=children)
    default = environment.settings.execution.default_backoff
    backoff = handler.backoff if handler.backoff is not None else default
    delay = (error.delay or 0.0) if isinstance(error, TemporaryError) else backoff
    runtime = (environment.now() - state.started).total_seconds()
    message = ""
    final: Exception
    if handler.timeout is not None and runtime + delay >= handler.timeout:
        message = f"{what} and will not be retried, because of its timeout of {handler.timeout} seconds: {text}"
        final = HandlerTimeoutError(message)
    elif handler.retries is not None and state.retries + 1 >= handler.retries:
        message = f"{what} and will not be retried, because it was called {handler.retries} times: {text}"
        final = HandlerRetriesError(message)
    if message:
        log(message)
        return Outcome(final=True, exception=final, children=children)
    log(f"{what}: {text}" if expected else f"{what} and will try again in {delay:g} seconds: {text}")
    return Outcome(final=False, exception=error, delay=delay, children=children)


async def call_handlers(
    handlers: Collection[ChangingHandler],
    progress: Progress,
    cause: Cause,
    *,
    parent: Invocation | None = None,
) -> None:
    """Call the handlers that are due, record their progress, and put their results into the patch."""
    environment = cause.environment
    now = environment.now()
    states = progress.states
    due = [item for item in handlers if not states[item.id].finished and not states[item.id].delay(now)]
    lifecycle = environment.lifecycle or get_default_lifecycle()
    for handler in cast("Sequence[ChangingHandler]", lifecycle(due, state=states, **cause.kwargs())):
        invocation = Invocation(environment, handler, cause, parent)
        kwargs = cause.kwargs_for(handler)
        outcome = await call_handler(handler, invocation, states[handler.id], kwargs, logger=cause.logger)
        progress.record(handler.id, outcome, environment.now())
        deliver_result(handler, outcome, cause.patch)


def deliver_result(handler: Handler, outcome: Outcome, patch: Any) -> None:
    """Put the result of a handler into ``status``, under its identifier."""
    if outcome.exception is None and outcome.result is not None:
        result = outcome.result
        if isinstance(result, Mapping):
            result = {**(patch.status.get(handler.id) or {}), **result}
        patch.status[handler.id] = result


async def run_subhandlers(invocation: Invocation, handlers: Collection[ChangingHandler]) -> None:
    """Call the sub-handlers of a handler. Raises :class:`SubhandlersPending` unless all have finished.

    Raises :class:`RuntimeError` if the handler is not a handler of changes.
    """
    invocation.subhandlers_called = True
    if not handlers:
        return
    cause = invocation.cause
    if cause is None or cause.change is None:
        raise RuntimeError("only handlers of changes have sub-handlers")
    selected = select_changing(handlers, cause)
    progress = Progress(
        invocation.environment.settings.persistence.progress_storage,
        cause.body,
        owned=handlers,
        selected=selected,
        purpose=cause.change.reason,
        now=invocation.environment.now(),
    )
    await call_handlers(selected, progress, cause, parent=invocation)
    progress.store(cause.patch)
    ancestor: Invocation | None = invocation
    while ancestor is not None:
        ancestor.children.update(progress)
        ancestor = ancestor.parent
    if not progress.done:
        raise SubhandlersPending("sub-handlers have not finished", delay=progress.delay(invocation.environment.now()))


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
    **settings: Any,
) -> Callable[[FunctionT], FunctionT]:
    """Declare a sub-handler of the handler that is running; its identifier is ``PARENT/id``.

    Sub-handlers are called when the handler returns, or by :func:`execute`. The handler has finished when they have;
    until then it is called again, and must declare the same ones. Raises :class:`TypeError` outside of a handler of
    changes.
    """
    invocation, parent = _current()
    check_filters(field, settings)
    is_update = parent.reason is Reason.UPDATE or (parent.reason is None and not parent.initial)
    if not (settings.get("old") is None and settings.get("new") is None) and not is_update:
        raise TypeError("the filters old and new are only for handlers of updates")

    def decorator(fn: FunctionT) -> FunctionT:
        handler = ChangingHandler(
            fn=fn,
            id=handler_id(fn, id, prefix=parent.id),
            selector=None,
            field=parse_field(field),
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
