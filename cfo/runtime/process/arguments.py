"""Checks of values that a program passes to the library: errors name the parameter, the value and what is allowed."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, UnionType
from typing import Final, TypeVar

T = TypeVar("T")


class InvalidArgument(ValueError):
    """Raised for a value that only the program's own code can correct; in a reconciler it is a bug, as in Go a panic.

    Values that come from objects, which can have any content, raise another error.
    """


MAX_FIELD_MANAGER: Final = 128
"""The maximum length of a field manager's name."""


ASYNC_FUNCTION: Final = "a coroutine function (async def)"
"""What a function must be whose result the library awaits."""

_FUNCTIONS: Final = (FunctionType, MethodType, BuiltinFunctionType)
_LAMBDA: Final = "<lambda>"


def require_type(
    name: str, value: object, expected: type | tuple[type, ...] | UnionType, allowed: str
) -> None:
    """Raise :class:`TypeError` if ``value`` is not an instance of ``expected``, in words ``allowed``.

    ``name`` is the parameter. A boolean is not a number.
    """
    is_flag = isinstance(value, bool) and expected is not bool
    if is_flag or not isinstance(value, expected):
        raise TypeError(f"{name}: {_described(value)}: must be {allowed}")


def shown(value: object) -> str:
    """Return a value for an error. Of a dict or a list, only the type: an object in it can be a Secret."""
    if isinstance(value, Mapping | list):
        return f"a value of type {type(value).__name__}"
    return _described(value)


def _described(value: object) -> str:
    """Return a value for an error; of a function its name, because ``repr`` has an address in memory."""
    if isinstance(value, _FUNCTIONS):
        return f"function {function_name(value):.200}"
    return f"{value!r:.200}"


def require_plain_function(
    name: str,
    function: object,
    allowed: str,
    *parameters: str,
    can_be_class: bool = False,
) -> None:
    """Raise :class:`TypeError` if ``function`` cannot be called, is a class, or is an async function.

    The library calls it without awaiting the result. ``name`` is the parameter, ``allowed`` describes the function.
    With ``parameters``, the function must accept these; the check takes 20 us, too long for each reconcile.
    ``can_be_class``: a class such as ``bool`` is allowed, too.
    """
    called = getattr(function, "__call__", None)  # noqa: B004 - the method of an instance
    is_async = _is_async(function) or _is_async(called)
    is_wrong_class = isinstance(function, type) and not can_be_class
    if is_async or is_wrong_class or not callable(function):
        described = f"async function {function_name(function)}" if is_async else shown(function)
        raise TypeError(f"{name}: {described}: must be {allowed}, without async")
    if parameters:
        require_parameters(f"{name}: {function_name(function)}", function, *parameters)


def require_async_function(name: str, function: object, allowed: str = ASYNC_FUNCTION) -> None:
    """Raise :class:`TypeError` if ``function`` cannot be called, is a class, or is a function without async.

    The library awaits the result. A lambda can call an async function, and a decorated function can wrap one: that they
    do not is found only by the result, see :func:`wrong_result`. ``name`` is the parameter.
    """
    is_plain = isinstance(function, FunctionType | MethodType) and not _may_be_async(function)
    if is_plain or isinstance(function, type) or not callable(function):
        raise TypeError(f"{name}: {_described(function)}: must be {allowed}")


def _may_be_async(function: FunctionType | MethodType) -> bool:
    """Return whether a function is async, wraps an async one, or is a lambda."""
    return function.__name__ == _LAMBDA or inspect.iscoroutinefunction(inspect.unwrap(function))


def require_parameters(name: str, function: Callable[..., object], *parameters: str) -> None:
    """Raise :class:`TypeError` if ``function`` cannot be called with these positional parameters."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # that of some functions of C is not known
    try:
        signature.bind(*parameters)
    except TypeError:
        accepted = signature.replace(return_annotation=inspect.Signature.empty)
        raise TypeError(
            f"{name}{accepted}: must accept the parameters ({', '.join(parameters)})"
        ) from None


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


_UNFINISHED: Final = (
    Awaitable,
    AsyncIterator,
    Generator,
    *_FUNCTIONS,
)
"""What a function returns that does not await or call another one. No check of the function itself can find it."""


def truth_of(name: str, result: object) -> bool:
    """Return whether ``result`` is true, which the function ``name`` of a program returned.

    Raises :class:`TypeError` for what :func:`finished` rejects: it always counts as true.
    """
    if isinstance(result, bool):
        return result
    return bool(finished(name, result, "True or False"))


def finished(name: str, result: T, allowed: str) -> T:
    """Return ``result``, which the function ``name`` of a program returned.

    Raises :class:`TypeError` for a coroutine or another awaitable, for a generator, and for a function.
    """
    if isinstance(result, _UNFINISHED):
        raise wrong_result(name, result, allowed)
    return result


def wrong_result(
    name: str, result: object, allowed: str, *, inside: object | None = None
) -> TypeError:
    """Return the error for what the function ``name`` of a program returned; ``allowed`` describes other results.

    It contains only the type of the result, which can be a Secret. ``inside`` is the collection that has the result.
    """
    if inspect.iscoroutine(result):
        result.close()  # otherwise Python warns that it was never awaited
    shown = "None" if result is None else f"a value of type {type(result).__name__}"
    if inside is not None:
        shown += f" in a {type(inside).__name__}"
    return TypeError(f"{name}: returned {shown}: must return {allowed}")


def function_name(function: object) -> str:
    """Return the name of a function, or the class name of an instance that is called like one.

    All lambdas have the same name; theirs contains the file and the line.
    """
    name: str = getattr(function, "__qualname__", type(function).__name__)
    if isinstance(function, FunctionType) and function.__name__ == _LAMBDA:
        code = function.__code__
        return f"{name} in {code.co_filename}:{code.co_firstlineno}"
    return name


def require_field_manager(name: str, value: object) -> None:
    """Raise :class:`TypeError` or :class:`ValueError` if API servers refuse the field manager ``value``."""
    require_type(name, value, str, "a string, such as website-operator")
    text = str(value)
    if not text.strip() or len(text) > MAX_FIELD_MANAGER or not text.isprintable():
        raise ValueError(
            f"{name}: {text!r:.200}: must be 1 to {MAX_FIELD_MANAGER} printable characters, such as website-operator"
        )
