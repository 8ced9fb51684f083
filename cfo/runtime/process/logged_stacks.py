"""Which stack traces the log already has, so that each retry of the same error does not repeat them."""

from __future__ import annotations

import traceback
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Final

_MAX_KEYS: Final = 1024
"""How many keys are remembered; the one that has not failed for the longest time is forgotten first."""

_MAX_CAUSES: Final = 16
"""How many causes of an error are compared: a program can let errors be the causes of each other."""


class LoggedStacks:
    """The last stack trace of each key, such as of an object that is reconciled.

    Messages are not compared, because they can contain a time or a number of attempts.
    """

    def __init__(self) -> None:
        self._logged: OrderedDict[Hashable, int] = OrderedDict()

    def is_new(self, key: Hashable, errors: Iterable[BaseException]) -> bool:
        """Remember where ``errors`` were raised; return whether that differs from the last ones of ``key``."""
        raised_at: list[object] = []
        for error in errors:
            raised_at += _places(error)
        places = hash(tuple(raised_at))
        is_new = self._logged.pop(key, None) != places
        self._logged[key] = places
        if len(self._logged) > _MAX_KEYS:
            self._logged.popitem(last=False)
        return is_new

    def is_first(self, error: BaseException) -> bool:
        """Remember where ``error`` was raised; return whether no other error was raised there before.

        It is for functions of many objects, some of which fail: one that succeeds does not make an error new.
        """
        places = hash(tuple(_places(error)))
        return self.is_new(places, [error])

    def forget(self, key: Hashable) -> None:
        """Forget the stack trace of ``key``, because it succeeded: its next error is logged with one."""
        self._logged.pop(key, None)


def _places(error: BaseException) -> Iterator[Any]:
    """Yield the types of an error and its causes, and the lines through which they were raised."""
    cause: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if cause is None:
            return
        yield type(cause)
        for frame, line in traceback.walk_tb(cause.__traceback__):
            yield frame.f_code, line
        cause = cause.__cause__ or cause.__context__
