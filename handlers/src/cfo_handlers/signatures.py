"""Checks that handlers accept the keywords with which they are called, before they are called for an object."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any, Final

from cfo_handlers.callbacks import ActivityFn, ResourceFn
from cfo_handlers.declarations import (
    ActivityHandler,
    IndexHandler,
    OperatorRegistry,
    ResourceHandler,
)
from cfo_handlers.errors import InvalidProgram


def _keywords(function_type: type) -> frozenset[str]:
    """Return the keywords of a type of functions."""
    parameters = _parameters(function_type.__call__)
    return frozenset(
        each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY
    )


def _parameters(function: Callable[..., Any]) -> Collection[inspect.Parameter]:
    """Return the parameters of what is called: those of a decorator, not those of the function that it wraps."""
    return inspect.signature(function, follow_wrapped=False).parameters.values()


_ACTIVITY_KEYWORDS: Final = _keywords(ActivityFn)
_RESOURCE_KEYWORDS: Final = _keywords(ResourceFn)


def require_signatures(registry: OperatorRegistry) -> None:
    """Raise :class:`InvalidProgram` for a handler, or its filter ``when``, that would fail with each call.

    All keywords are passed, so a function needs ``**_``, and what it requires must be one of them: the known ones and
    the identifiers of indexes. Which keywords a type of handlers lacks is not checked.
    """
    indexes = {handler.id for handler in registry.of_type(IndexHandler)}
    for handler in registry:
        known = _ACTIVITY_KEYWORDS if isinstance(handler, ActivityHandler) else _RESOURCE_KEYWORDS
        allowed = known | indexes
        _require_signature(str(handler), handler.fn, allowed)
        if isinstance(handler, ResourceHandler) and handler.when is not None:
            _require_signature(f"{handler}: when", handler.when, allowed)


def _require_signature(name: str, function: Callable[..., Any], allowed: Collection[str]) -> None:
    try:
        parameters = _parameters(function)
    except (TypeError, ValueError):  # such as of a builtin function, which has no signature
        return
    kinds = {each.kind for each in parameters}
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        raise InvalidProgram(f"{name}: must accept keywords that it does not use: add **_")
    for each in parameters:
        if not _is_required(each):
            continue
        if each.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise InvalidProgram(
                f"{name}: parameter {each.name}: must be a keyword: remove the / after it"
            )
        if each.name not in allowed:
            raise InvalidProgram(
                f"{name}: keyword {each.name}: must be one of {', '.join(sorted(allowed))}, or have a default"
            )


def _is_required(parameter: inspect.Parameter) -> bool:
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is inspect.Parameter.empty and parameter.kind not in variadic
