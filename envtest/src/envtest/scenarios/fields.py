"""Reads the fields of a scenario; each error names the path, the value, and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import orjson

from envtest.schema.quantity import QuantityError, parse_quantity

__all__ = ["MAX_SECONDS", "Fields", "ScenarioError"]

T = TypeVar("T")

MAX_SECONDS: Final = 100 * 365 * 86400.0
_MAX_SHOWN: Final = 60
_MAX_ITEMS: Final = 10_000


class ScenarioError(ValueError):
    """Raised for a scenario that cannot be used."""


def _shown(value: Any) -> str:
    try:
        text = orjson.dumps(value, default=str).decode()
    except orjson.JSONEncodeError:
        text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


class Fields:
    """The fields of one mapping at ``path``, of which only ``known`` are allowed."""

    def __init__(self, value: Any, path: str, known: Sequence[str]) -> None:
        self.path = path
        self._prefix = f"{path}." if path else ""
        if not isinstance(value, Mapping):
            raise ScenarioError(f"{path or 'scenario'}: {_shown(value)}: must be a mapping")
        self._values: Mapping[str, Any] = value
        for name in value:
            if name not in known:
                raise ScenarioError(
                    f"{self._prefix}{name}: unknown field: must be one of {', '.join(known)}"
                )

    def error(self, name: str, allowed: str) -> ScenarioError:
        """Return the error of a field."""
        return ScenarioError(
            f"{self._prefix}{name}: {_shown(self._values.get(name))}: must be {allowed}"
        )

    def has(self, name: str) -> bool:
        """Return whether a field is set."""
        return self._values.get(name) is not None

    def _typed(
        self, name: str, types: type[T] | tuple[type[T], ...], default: T, allowed: str
    ) -> T:
        value = self._values.get(name)
        if value is None:
            return default
        if not isinstance(value, types) or (isinstance(value, bool) and types is not bool):
            raise self.error(name, allowed)
        return value

    def text(self, name: str, default: str = "", *, choices: Sequence[str] = ()) -> str:
        """Return a string, one of ``choices`` if there are any."""
        value = self._typed(name, str, default, "a string")
        if choices and value not in choices and self.has(name):
            raise self.error(name, f"one of {', '.join(choices)}")
        return value

    def required(self, name: str) -> str:
        """Return a string that must be set."""
        value = self.text(name)
        if not value:
            raise self.error(name, "a non-empty string")
        return value

    def boolean(self, name: str) -> bool | None:
        """Return a boolean, or ``None``."""
        value = self._values.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.error(name, "true or false")
        return value

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        """Return an integer from ``low`` to ``high``."""
        allowed = f"an integer from {low} to {high}"
        value = self._typed(name, int, default, allowed)
        if not low <= value <= high and self.has(name):
            raise self.error(name, allowed)
        return value

    def seconds(self, name: str) -> float | None:
        """Return a number of seconds, or ``None``."""
        if not self.has(name):
            return None
        allowed = f"a number of seconds from 0 to {MAX_SECONDS:.0f}"
        value = self._values[name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(name, allowed)
        if not (math.isfinite(value) and 0 <= value <= MAX_SECONDS):
            raise self.error(name, allowed)
        return float(value)

    def items(self, name: str) -> list[Any]:
        """Return a list."""
        value = self._values.get(name)
        if value is None:
            return []
        if (
            not isinstance(value, Sequence)
            or isinstance(value, str | bytes)
            or len(value) > _MAX_ITEMS
        ):
            raise self.error(name, f"a list of at most {_MAX_ITEMS} items")
        return [*value]

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of strings."""
        value = self.items(name)
        if not all(isinstance(each, str) for each in value):
            raise self.error(name, "a list of strings")
        return tuple(value)

    def mapping(self, name: str) -> dict[str, Any]:
        """Return a mapping."""
        value = self._values.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise self.error(name, "a mapping")
        return dict(value or {})

    def labels(self, name: str) -> dict[str, str]:
        """Return a mapping of strings."""
        value = self.mapping(name)
        for key, text in value.items():
            if not isinstance(text, str):
                raise ScenarioError(f"{self._prefix}{name}.{key}: {_shown(text)}: must be a string")
        return value

    def quantities(self, name: str) -> dict[str, str]:
        """Return a mapping of quantities in canonical notation."""
        quantities = {}
        for key, value in self.mapping(name).items():
            quantity = None
            if isinstance(value, int | str) and not isinstance(value, bool):
                with suppress(QuantityError):
                    quantity = parse_quantity(str(value))
            if quantity is None or quantity.value < 0:
                path = f"{self._prefix}{name}.{key}"
                allowed = "a quantity of at least 0, such as 500m or 2Gi"
                raise ScenarioError(f"{path}: {_shown(value)}: must be {allowed}")
            quantities[key] = str(quantity)
        return quantities

    def section(self, name: str, known: Sequence[str]) -> Fields:
        """Return the fields of a mapping."""
        return Fields(self._values.get(name, {}), f"{self._prefix}{name}", known)

    def sections(self, name: str, known: Sequence[str]) -> list[Fields]:
        """Return the fields of each mapping in a list."""
        return [
            Fields(each, f"{self._prefix}{name}[{number}]", known)
            for number, each in enumerate(self.items(name))
        ]
