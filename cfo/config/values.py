"""Types of values in the configuration, and the checks of which they consist."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

from cfo.runtime import LabelSelector
from cfo.runtime.cache import SelectorError

DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = rf"(?=.{{1,253}}$){DNS_LABEL.pattern}(\.{DNS_LABEL.pattern})*"

Check = Callable[[Any], object]
"""Returns a value, perhaps normalized, or raises ValueError with what is allowed. It gets values of any type."""


def bounded(low: float, high: float = 2**31 - 1) -> Check:
    """Return the check of a number from ``low`` to ``high``."""

    def check(value: object) -> object:
        if isinstance(value, int | float) and not low <= value:
            raise ValueError(f"must be greater than or equal to {low}")
        if isinstance(value, int | float) and not value <= high:
            raise ValueError(f"must be less than or equal to {high}")
        return value

    return check


def not_empty(value: object) -> object:
    """Check that a string or list is not empty."""
    if isinstance(value, Sequence) and not value:
        raise ValueError("must not be empty")
    return value


def at_most(length: int) -> Check:
    """Return the check of a list of at most ``length`` elements."""

    def check(value: object) -> object:
        if isinstance(value, list) and len(value) > length:
            raise ValueError(f"must not have more than {length} elements")
        return value

    return check


def matching(pattern: str | re.Pattern[str], problem: str) -> Check:
    """Return the check of a string that ``pattern`` matches completely; ``problem`` says what is allowed."""

    def check(value: object) -> object:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise ValueError(problem)
        return value

    return check


_NO_NAMESPACE = "must be the name of a namespace (a lower-case DNS label)"
Namespace = Annotated[str, matching(DNS_LABEL, _NO_NAMESPACE)]
OptionalNamespace = Annotated[str, matching(f"({DNS_LABEL.pattern})?", _NO_NAMESPACE)]

_NO_OBJECT_NAME = "must be the name of an object (lower-case DNS labels joined by dots)"
ObjectName = Annotated[str, matching(_SUBDOMAIN, _NO_OBJECT_NAME)]
OptionalObjectName = Annotated[str, matching(f"({_SUBDOMAIN})?", _NO_OBJECT_NAME)]


def _selector(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("must be a label selector such as operatorVersion=v1")  # noqa: TRY004 (a check raises ValueError)
    return str(LabelSelector.of(value))


Selector = Annotated[str, _selector]


def _label_key(value: object) -> object:
    if not isinstance(value, str) or not _selects(
        {"matchExpressions": [{"key": value, "operator": "Exists"}]}
    ):
        raise ValueError(
            "must be a label key: an optional DNS subdomain and '/', then a name of up to 63 characters"
        )
    return value


def _label_value(value: object) -> object:
    if not isinstance(value, str) or not _selects({"matchLabels": {"key": value}}):
        raise ValueError("must be a label value: up to 63 letters, digits, '-', '_' or '.'")
    return value


def _selects(selector: dict[str, Any]) -> bool:
    try:
        return bool(LabelSelector.of(selector))
    except SelectorError:
        return False


LabelKey = Annotated[str, _label_key]
LabelValue = Annotated[str, _label_value]

_NO_DOMAIN = "must be a domain name such as apps.example.com (lower-case DNS labels joined by dots)"
Domain = Annotated[str, matching(f"({_SUBDOMAIN})?", _NO_DOMAIN)]
