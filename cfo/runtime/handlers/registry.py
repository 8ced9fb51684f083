"""The registry: the handlers that the decorators declared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from cfo.runtime.handlers.declarations import Activity, ActivityHandler, ChangingHandler, Handler, ResourceHandler
from cfo.runtime.handlers.resource_selectors import Resource

__all__ = ["OperatorRegistry", "get_default_registry", "set_default_registry", "without_repetitions"]

HandlerT = TypeVar("HandlerT", bound=Handler)
ResourceHandlerT = TypeVar("ResourceHandlerT", bound=ResourceHandler)


class OperatorRegistry:
    """Handlers in the order in which they were declared."""

    def __init__(self) -> None:
        self._handlers: list[Handler] = []

    def append(self, handler: Handler) -> None:
        """Add a handler."""
        self._handlers.append(handler)

    def __iter__(self) -> Iterator[Handler]:
        return iter(tuple(self._handlers))

    def __len__(self) -> int:
        return len(self._handlers)

    def of_type(self, kind: type[HandlerT]) -> list[HandlerT]:
        """Return the handlers of a type."""
        return [handler for handler in self._handlers if isinstance(handler, kind)]

    def activities(self, activity: Activity) -> list[ActivityHandler]:
        """Return the handlers of the whole operator."""
        return [handler for handler in self.of_type(ActivityHandler) if handler.activity is activity]

    def for_resource(self, kind: type[ResourceHandlerT], resource: Resource) -> list[ResourceHandlerT]:
        """Return the handlers of a type that are for a resource."""
        return [
            handler for handler in self.of_type(kind) if handler.selector is None or handler.selector.check(resource)
        ]


_default: list[OperatorRegistry] = []


def get_default_registry() -> OperatorRegistry:
    """Return the registry to which decorators without ``registry`` add their handlers."""
    if not _default:
        _default.append(OperatorRegistry())
    return _default[0]


def set_default_registry(registry: OperatorRegistry) -> None:
    """Replace the registry to which decorators without ``registry`` add their handlers."""
    _default[:] = [registry]


def without_repetitions(handlers: Iterable[ChangingHandler]) -> list[ChangingHandler]:
    """Return each function with its identifier once: it can be declared for several reasons that occur together."""
    found: dict[tuple[int, str], ChangingHandler] = {}
    for handler in handlers:
        found.setdefault((id(handler.fn), handler.id), handler)
    return list(found.values())
