"""Types of values in the configuration."""

from __future__ import annotations

from typing import Annotated, Final, Self

from msgspec import Meta

from cfo.runtime import LabelSelector

DNS_LABEL: Final = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_SUBDOMAIN: Final = rf"(?=.{{1,253}}\Z){DNS_LABEL}(\.{DNS_LABEL})*"
_PREFIX_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_PREFIX: Final = rf"(?=[^/]{{1,253}}/){_PREFIX_LABEL}(\.{_PREFIX_LABEL})*/"
_LABEL_VALUE: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"


def matching(pattern: str, description: str) -> Meta:
    """Return the constraint of a string that ``pattern`` matches completely; the description says what it must be."""
    return Meta(pattern=rf"\A(?:{pattern})\Z", description=description)


def between(low: int, high: int = 2**31 - 1) -> Meta:
    """Return the constraint of an integer from ``low`` to ``high``."""
    return Meta(ge=low, le=high, description=f"an integer from {low} to {high}")


def elements(least: int, most: int) -> Meta:
    """Return the constraint of a list of ``least`` to ``most`` elements."""
    return Meta(
        min_length=least, max_length=most, description=f"a list of {least} to {most} elements"
    )


NonEmpty = Annotated[str, Meta(min_length=1, description="a string that is not empty")]

_NAMESPACE: Final = "the name of a namespace (a lower-case DNS label)"
Namespace = Annotated[str, matching(DNS_LABEL, _NAMESPACE)]
OptionalNamespace = Annotated[str, matching(f"({DNS_LABEL})?", _NAMESPACE)]

_OBJECT_NAME: Final = "the name of an object (lower-case DNS labels joined by dots)"
ObjectName = Annotated[str, matching(_SUBDOMAIN, _OBJECT_NAME)]
OptionalObjectName = Annotated[str, matching(f"({_SUBDOMAIN})?", _OBJECT_NAME)]

OptionalQueueName = Annotated[
    str,
    matching(
        rf"((?=.{{1,63}}\Z){_SUBDOMAIN})?",
        "the name of a LocalQueue, which is also a label value: up to 63 characters, lower-case DNS labels joined by "
        "dots",
    ),
]

Domain = Annotated[
    str,
    matching(
        f"({_SUBDOMAIN})?",
        "a domain name such as apps.example.com (lower-case DNS labels joined by dots)",
    ),
]

LabelKey = Annotated[
    str,
    matching(
        f"({_LABEL_PREFIX})?{_LABEL_VALUE}",
        "a label key: an optional DNS subdomain and '/', then a name of up to 63 characters",
    ),
]
LabelValue = Annotated[
    str,
    matching(f"({_LABEL_VALUE})?", "a label value: up to 63 letters, digits, '-', '_' or '.'"),
]


class Selector(str):
    """A label selector in its canonical form."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return a selector. Raises :class:`ValueError` with what is allowed."""
        if not isinstance(value, str):
            raise ValueError("must be a label selector such as operatorVersion=v1")  # noqa: TRY004 (msgspec reports it)
        return cls(LabelSelector.of(value))
