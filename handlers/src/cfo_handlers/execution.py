"""Calls of handlers: in the event loop or in a thread, with what follows from their results and errors."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar, Unpack

from cfo.runtime import APIError, TransportError
from cfo.runtime.controller import is_panic
from cfo.runtime.process import function_errors
from cfo_handlers.callbacks import ResourceFn
from cfo_handlers.causes import Cause, ObjectCause
from cfo_handlers.declarations import (
    ChangingHandler,
    Handler,
    errors_of,
    handler_id,
    keywords_of,
    require_keywords,
    unwrapped,
)
from cfo_handlers.diffs import FieldSpec, parse_field
from cfo_handlers.errors import (
    ErrorsMode,
    HandlerRetriesError,
    HandlerTimeoutError,
    PermanentError,
    SubhandlersPending,
    TemporaryError,
)
from cfo_handlers.lifecycles import get_default_lifecycle
from cfo_handlers.options import SubhandlerOptions
from cfo_handlers.patching import make_plain, plain
from cfo_handlers.progress import HandlerState, Outcome, Progress, StoredProgress


@dataclass(slots=True)
class Invocation:
    """The call of a handler that is in progress: for functions of this package that the handler calls."""

    handler: Handler
    cause: Cause
    subhandlers: list[ChangingHandler] = field(default_factory=list)
    subhandlers_called: bool = False
    children: set[str] = field(default_factory=set)


current_invocation: ContextVar[Invocation | None] = ContextVar(
    "cfo_handler_invocation", default=None
)


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a function, or what it wraps, is a coroutine function."""
    return inspect.iscoroutinefunction(unwrapped(function))


async def call_handler(
    handler: Handler, cause: Cause, state: HandlerState | None = None
) -> Outcome:
    """Call a handler once, and put its result into the patch of ``cause``; ``state``: its progress before the call.

    Raises nothing except cancellation: errors are part of the outcome.
    """
    now = cause.environment.now()
    state = state or HandlerState(started=now)
    runtime = now - state.started
    invocation = Invocation(handler, cause)
    token = current_invocation.set(invocation)
    try:
        if handler.timeout is not None and runtime.total_seconds() >= handler.timeout:
            raise HandlerTimeoutError(f"{handler} has timed out after {runtime}.")  # noqa: TRY301
        if handler.retries is not None and state.retries >= handler.retries:
            raise HandlerRetriesError(f"{handler} has exceeded {state.retries} retries.")  # noqa: TRY301
        progress = {
            "retry": state.retries,
            "started": state.started,
            "runtime": runtime,
            "param": handler.param,
        }
        result = await _call(handler, cause, {**progress, **cause.kwargs_for(handler)})
        if handler.stores_result:
            result = plain(result)
        if isinstance(handler, ChangingHandler):
            await _run_declared(invocation)
        make_plain(cause.patch)
    except Exception as error:  # noqa: BLE001 - handlers raise anything
        return _failed(invocation, state, error)
    finally:
        current_invocation.reset(token)
    cause.logger.info(f"{handler} succeeded.")
    if handler.stores_result and result is not None:
        _store_result(handler, cause, result)
    return Outcome(final=True, result=result, children=frozenset(invocation.children))


def _store_result(handler: Handler, cause: Cause, result: Any) -> None:
    """Put a result into the status; a dict is added to what the handler itself has put there."""
    status = cause.patch.status
    if isinstance(result, dict):
        own = status.get(handler.id) or {}
        status[handler.id] = {**own, **result}
    else:
        status[handler.id] = result


async def _call(handler: Handler, cause: Cause, kwargs: Mapping[str, Any]) -> Any:
    """Call a coroutine function in the event loop, any other function in a thread."""
    environment = cause.environment
    if is_async(handler.fn):
        with_client = {**environment.client_for(is_async=True), **kwargs}
        return await handler.fn(**with_client)
    threads = environment.threads(handler.thread_pool)
    with_client = {**environment.client_for(is_async=False), **kwargs}
    return await threads.run(handler.fn, **with_client)


def _failed(invocation: Invocation, state: HandlerState, error: Exception) -> Outcome:
    """Log the error of a handler, and return what follows from it."""
    handler = invocation.handler
    logger = invocation.cause.logger
    children = frozenset(invocation.children)
    text = str(error) or repr(error)
    if isinstance(error, SubhandlersPending):
        logger.debug(f"{handler} has unfinished sub-handlers. Will retry soon.")
        return Outcome(final=False, exception=error, delay=error.delay, children=children)
    if isinstance(error, (HandlerTimeoutError, HandlerRetriesError)):
        logger.error(text)
        return Outcome(final=True, exception=error, children=children)
    if isinstance(error, PermanentError):
        logger.error(f"{handler} failed permanently: {text}")
        return Outcome(final=True, exception=error, children=children)
    environment = invocation.cause.environment
    if isinstance(error, TemporaryError):
        mode = ErrorsMode.TEMPORARY
        delay = error.delay or 0.0
        log = logger.error
        failure = f"{handler} failed temporarily"
        consequence = ""
    else:
        mode = handler.errors or handler.default_errors
        if not isinstance(error, APIError | TransportError):
            function_errors.report(error, str(handler), is_bug=is_panic(error))
        delay = environment.settings.execution.default_backoff
        if handler.backoff is not None:
            delay = handler.backoff
        is_new = environment.stacks.is_new((handler.id, invocation.cause.uid), [error])
        stack_trace = error if is_new or state.retries == 0 else None
        log = functools.partial(logger.error, exc_info=stack_trace)
        failure = f"{handler} failed with an exception"
        consequence = f" and will try again in {delay:g} seconds"
    if mode is ErrorsMode.IGNORED:
        log(f"{failure} and will ignore it: {text}")
        return Outcome(final=True, children=children)
    runtime = (environment.now() - state.started).total_seconds()
    final: Exception | None = None
    if mode is ErrorsMode.PERMANENT:
        consequence = " and will stop now"
        final = error
    elif handler.timeout is not None and runtime + delay >= handler.timeout:
        consequence = (
            f" and will not be retried, because of its timeout of {handler.timeout} seconds"
        )
        final = HandlerTimeoutError(f"{failure}{consequence}: {text}")
    elif handler.retries is not None and state.retries + 1 >= handler.retries:
        consequence = f" and will not be retried, because it was called {handler.retries} times"
        final = HandlerRetriesError(f"{failure}{consequence}: {text}")
    log(f"{failure}{consequence}: {text}")
    if final is not None:
        return Outcome(final=True, exception=final, children=children)
    return Outcome(final=False, exception=error, delay=delay, children=children)


async def call_handlers(progress: Progress, cause: Cause, due: Iterable[Handler]) -> None:
    """Call the handlers that are ``due``, record their progress, and put their results into the patch."""
    for handler in due:
        outcome = await call_handler(handler, cause, progress.states[handler.id])
        progress.record(handler, outcome)


async def call_changing(progress: StoredProgress, cause: ObjectCause) -> None:
    """Call those of the handlers of a change that are due which the lifecycle selects."""
    lifecycle = cause.environment.lifecycle or get_default_lifecycle()
    selected = lifecycle(progress.due(), state=progress.states, **cause.kwargs())
    await call_handlers(progress, cause, selected)


async def run_subhandlers(invocation: Invocation, handlers: Collection[ChangingHandler]) -> None:
    """Call the sub-handlers of a handler of changes. Raises :class:`SubhandlersPending` unless all have finished."""
    if not handlers:
        return
    cause = invocation.cause
    assert isinstance(cause, ObjectCause)  # that of a handler of changes
    progress = StoredProgress(handlers, cause)
    await call_changing(progress, cause)
    progress.store()
    invocation.children.update(progress.states)
    for state in progress.states.values():
        invocation.children.update(state.children)
    delay = progress.delay()
    if delay is not None:
        raise SubhandlersPending("sub-handlers have not finished", delay=delay)


async def _run_declared(invocation: Invocation) -> None:
    """Call the sub-handlers that were declared while the handler ran, unless that was done already."""
    if not invocation.subhandlers_called:
        invocation.subhandlers_called = True
        await run_subhandlers(invocation, invocation.subhandlers)


ResourceT = TypeVar("ResourceT", bound=ResourceFn)


def _current() -> tuple[Invocation, ChangingHandler]:
    invocation = current_invocation.get()
    if invocation is None or not isinstance(invocation.handler, ChangingHandler):
        raise TypeError("sub-handlers can only be declared in a handler of changes, while it runs")
    return invocation, invocation.handler


def subhandler(
    *,
    id: str | None = None,  # noqa: A002 - the parameters are kopf's
    field: FieldSpec = None,
    **options: Unpack[SubhandlerOptions],
) -> Callable[[ResourceT], ResourceT]:
    """Declare a sub-handler of the handler that is running; its identifier is ``PARENT/id``.

    Sub-handlers are called when the handler returns, or by :func:`execute`. The handler has finished when they have;
    until then it is called again, and must declare the same ones. Raises :class:`TypeError` outside of a handler of
    changes.
    """
    invocation, parent = _current()
    require_keywords("subhandler", options, keywords_of(ChangingHandler))

    def decorator(fn: ResourceT) -> ResourceT:
        with errors_of("subhandler"):
            handler = ChangingHandler(
                fn=fn,
                id=handler_id(fn, id, parent_id=parent.id),
                field=parse_field(field),
                needs_change=parent.needs_change,
                **options,
            )
        invocation.subhandlers.append(handler)
        return fn

    return decorator


def register(
    fn: ResourceT,
    *,
    id: str | None = None,  # noqa: A002
    field: FieldSpec = None,
    **options: Unpack[SubhandlerOptions],
) -> ResourceT:
    """Declare a sub-handler as :func:`subhandler` does."""
    return subhandler(id=id, field=field, **options)(fn)


async def execute(
    *,
    fns: Mapping[str, Callable[..., Any]] | Iterable[Callable[..., Any]] | None = None,
    handlers: Iterable[ChangingHandler] | None = None,
) -> None:
    """Call sub-handlers now: the functions ``fns`` (by identifier), ``handlers``, or those declared so far.

    With ``fns`` or ``handlers``, those that were declared are called when the handler returns.

    Raises a :class:`~cfo_handlers.errors.TemporaryError` unless all have finished, :class:`TypeError` outside
    of a handler of changes, and if both parameters are given.
    """
    invocation, parent = _current()
    if fns is not None and handlers is not None:
        raise TypeError("execute: either fns or handlers can be given, not both")
    if handlers is not None:
        await run_subhandlers(invocation, list(handlers))
    elif fns is not None:
        named: Iterable[tuple[str | None, Callable[..., Any]]]
        named = fns.items() if isinstance(fns, Mapping) else [(None, fn) for fn in fns]
        declared = [
            ChangingHandler(fn=fn, id=handler_id(fn, name, parent_id=parent.id))
            for name, fn in named
        ]
        await run_subhandlers(invocation, declared)
    else:
        await _run_declared(invocation)
