"""Checks of strings that a program passes to the library."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from cfo.runtime.process.arguments import InvalidArgument

_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_OBJECT_NAME: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")

_MAX_DOMAIN: Final = 253
_DOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_IN_DOMAIN: Final = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?")


def require_list(name: str, values: object) -> None:
    """Raise :class:`TypeError` if ``values`` is one string, because its characters would be taken for the strings.

    ``name`` is the parameter, or the function that returned the value.
    """
    if isinstance(values, str | bytes):
        raise TypeError(f"{name}: {values!r:.200}: must be a list of strings")


def require_strings(name: str, values: Collection[object] | None) -> None:
    """Raise :class:`TypeError` if ``values``, which the parameter ``name`` got, are not strings, or are one string."""
    require_list(name, values)
    for value in values or ():
        if not isinstance(value, str):
            raise TypeError(f"{name}: {value!r:.200}: must be a string")


def require_namespace_name(name: str, value: str) -> None:
    """Raise :class:`ValueError` if ``value``, which the parameter ``name`` got, cannot be the name of a namespace."""
    if not _NAMESPACE.fullmatch(value):
        raise ValueError(
            f"{name}: {value!r:.200}: must be the name of a namespace: up to 63 lower-case letters, digits and -"
        )


def require_object_name(name: str, value: str) -> None:
    """Raise :class:`ValueError` if ``value``, which the parameter ``name`` got, cannot be the name of an object."""
    if not _OBJECT_NAME.fullmatch(value):
        raise ValueError(
            f"{name}: {value!r:.200}: must be the name of an object: up to 253 lower-case letters, digits, - and ."
        )


def require_qualified_name(name: str, value: str) -> None:
    """Raise :class:`ValueError` if ``value``, which the parameter ``name`` got, is not a domain, a slash and a name."""
    domain, slash, rest = value.partition("/")
    is_domain = len(domain) <= _MAX_DOMAIN and _DOMAIN.fullmatch(domain) is not None
    if not (slash and is_domain and _NAME_IN_DOMAIN.fullmatch(rest)):
        raise InvalidArgument(
            f"{name}: {value!r:.200}: must be a domain in lower case, a slash, and up to 63 letters, digits, -, _ and "
            "., such as example.com/cleanup"
        )
