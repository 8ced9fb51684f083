"""Which of the handlers that are due are called before their progress is stored; kopf's names."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from cfo_handlers.declarations import Handler, require_plain_function

Lifecycle: TypeAlias = Callable[..., Sequence[Handler]]


def all_at_once(handlers: Sequence[Handler], **_: Any) -> Sequence[Handler]:
    """Call all handlers, then store their progress once; the default here."""
    return handlers


def one_by_one(handlers: Sequence[Handler], **_: Any) -> Sequence[Handler]:
    """Store the progress after each handler."""
    return handlers[:1]


def randomized(handlers: Sequence[Handler], **_: Any) -> Sequence[Handler]:
    """Store the progress after each handler; the next one is chosen at random."""
    return [random.choice(handlers)] if handlers else []  # noqa: S311 - not for security


def shuffled(handlers: Sequence[Handler], **_: Any) -> Sequence[Handler]:
    """Call all handlers in random order."""
    return random.sample(handlers, len(handlers))


def asap(handlers: Sequence[Handler], *, state: Any, **_: Any) -> Sequence[Handler]:
    """Store the progress after each handler; the next one is one with the fewest calls. kopf's default."""
    return sorted(handlers, key=lambda handler: state[handler.id].retries)[:1]


_default: list[Lifecycle] = [all_at_once]


def get_default_lifecycle() -> Lifecycle:
    """Return the lifecycle of operators that set none."""
    return _default[0]


def set_default_lifecycle(lifecycle: Lifecycle | None) -> None:
    """Set the lifecycle of operators that set none; ``None``: :func:`all_at_once`.

    Raises :class:`TypeError` for an async function.
    """
    if lifecycle is not None:
        require_plain_function("lifecycle", lifecycle)
    _default[0] = lifecycle or all_at_once
