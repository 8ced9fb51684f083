"""Objects of other libraries: generated models, and objects that dynamic clients return.

``V1Deployment`` of kubernetes-asyncio, or of the official client, is a generated model: it has attributes in
snake_case, and its class has two tables, ``attribute_map`` (names in JSON) and ``openapi_types``. An object that a
dynamic client returns has a method ``to_dict()`` with the wire form. Nothing here imports these libraries.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any, Final, Protocol, cast

_MICRO_TIMES: Final = frozenset(
    {"acquireTime", "eventTime", "lastObservedTime", "pingTime", "renewTime"}
)
"""Fields of Kubernetes' type MicroTime, whose parser requires six digits of a second; all others are of type Time."""


class ForeignModel(Protocol):
    """An object of another library: a generated model, or an object of a dynamic client."""

    def to_dict(self) -> dict[str, Any]:
        """Return the object as a dict; only that of a dynamic client is the wire form."""
        ...


def model_to_object(model: object) -> dict[str, Any]:
    """Return the wire form of a :class:`ForeignModel`: JSON's names, and no attribute that is ``None``.

    The libraries do not fill in ``api_version`` and ``kind``. Raises :class:`ValueError` if one of them is empty, or if
    a timestamp has no time zone, and :class:`TypeError` for other objects.
    """
    wire = model_to_wire(model)
    missing = [name for name in ("apiVersion", "kind") if not wire.get(name)]
    if missing:
        # The attributes as the caller spells them; the class of a dynamic client's object has no table.
        attributes = getattr(type(model), "attribute_map", {})
        names = [name for name, wire_name in attributes.items() if wire_name in missing] or missing
        raise ValueError(f"{type(model).__name__}: {' and '.join(names)} must be set")
    return wire


def model_to_wire(model: object) -> dict[str, Any]:
    """Return the wire form of a model that need not be a complete object, such as the body of a patch.

    Raises :class:`ValueError` if a timestamp has no time zone, and :class:`TypeError` for other objects.
    """
    wire: Any = None
    # Attributes of the class, because objects of dynamic clients return a value for any attribute.
    if hasattr(type(model), "attribute_map"):
        wire = _wire_value(model, type(model).__name__, "")
    elif hasattr(type(model), "to_dict"):
        wire = cast("ForeignModel", model).to_dict()
    if not isinstance(wire, dict):
        raise TypeError(
            f"{type(model).__name__}: must be a dict, a TypedObject, a generated model or an object of a dynamic client"
        )
    return wire


def _wire_value(value: object, path: str, name: str) -> Any:
    """Return the wire form of a value; ``path`` is where it is, and ``name`` the field in JSON that contains it."""
    if isinstance(value, Mapping):
        return {key: _wire_value(item, f"{path}[{key!r}]", "") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_wire_value(item, f"{path}[{index}]", "") for index, item in enumerate(value)]
    if isinstance(value, datetime):
        return _timestamp(value, path, name)
    if isinstance(value, date):
        return value.isoformat()
    names: Mapping[str, str] | None = getattr(type(value), "attribute_map", None)
    if names is None:
        return value
    wire = {}
    for attribute, wire_name in names.items():
        item = getattr(value, attribute)
        if item is not None:
            wire[wire_name] = _wire_value(item, f"{path}.{attribute}", wire_name)
    return wire


def _timestamp(moment: datetime, path: str, name: str) -> str:
    """Return a timestamp as the API server stores it, so that applying it again changes nothing."""
    if moment.tzinfo is None:
        raise ValueError(f"{path}: {moment.isoformat()}: must have a time zone")
    precision = "microseconds" if name in _MICRO_TIMES else "seconds"
    in_utc = moment.astimezone(UTC).replace(tzinfo=None)
    return f"{in_utc.isoformat(timespec=precision)}Z"
