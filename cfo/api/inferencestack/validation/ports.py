"""Whether ports are complete and different: Kubernetes identifies them by number and protocol."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from cfo.api.inferencestack.validation.integers import as_integer
from cfo.runtime import FieldError
from cfo.runtime.objects.field import Path, duplicate, invalid, required

__all__ = ["port_errors", "port_list_errors"]

_MAX_PORT: Final = 65535
_REASON: Final = f"must be a port: an integer from 1 to {_MAX_PORT}"


def port_errors(config: Mapping[str, Any], name: str, path: Path) -> Iterator[FieldError]:
    """Yield an error if the parameter ``name`` of a configuration is set and not a port."""
    value = config.get(name)
    if value is not None and not 0 < (as_integer(value) or 0) <= _MAX_PORT:
        yield invalid(path.child(name), value, _REASON)


def port_list_errors(ports: Iterable[Mapping[str, Any]] | None, field: str, path: Path) -> Iterator[FieldError]:
    """Yield the errors in a list of ports, whose number is in ``field``: ``containerPort`` or ``port``."""
    seen: set[tuple[int, str]] = set()
    for index, port in enumerate(ports or ()):
        at, number = path.index(index).child(field), port.get(field)
        if number is None:
            yield required(at)
        elif not 0 < number <= _MAX_PORT:
            yield invalid(at, number, _REASON)
        elif (key := (number, port.get("protocol") or "TCP")) in seen:
            yield duplicate(at, number)
        else:
            seen.add(key)
