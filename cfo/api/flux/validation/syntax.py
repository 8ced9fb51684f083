"""Rules for single values: names, keys, paths and choices."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from itertools import islice
from typing import Any, Final

from cfo.api.reading import has_more_values_than
from cfo.runtime import FieldError, LabelSelector, Object
from cfo.runtime.cache import SelectorError
from cfo.runtime.objects import is_dns_label
from cfo.runtime.objects.field import MAX_ERRORS, OMIT, Path, invalid, not_supported, required

MAX_DNS_LABEL: Final = 63
_MAX_SUBDOMAIN: Final = 253

MAX_VALUES: Final = 10_000
"""The maximum number of values in a spec, at all levels, which limits the work in validation and controllers."""

_VARIABLE: Final = re.compile(r"[ -<>-~]+")  # printable ASCII without "="
_SHELL_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DNS_LABEL_RULE: Final = "lower-case letters, digits and '-', with a letter or digit at both ends"


def checked_spec(
    errors: Callable[[Object], Iterator[FieldError]],
) -> Callable[[Object], list[FieldError]]:
    """Make a function return the errors that it yields about an object, at most one more than are reported.

    If the spec has more than :data:`MAX_VALUES` values, nothing else is checked.
    """

    @wraps(errors)
    def check(obj: Object) -> list[FieldError]:
        if has_more_values_than(MAX_VALUES, obj.get("spec") or {}):
            return [
                invalid(Path("spec"), OMIT, f"must have at most {MAX_VALUES} values, at all levels")
            ]
        return list(islice(errors(obj), MAX_ERRORS + 1))

    return check


def dns_label(path: Path, value: str, limit: int = MAX_DNS_LABEL) -> Iterator[FieldError]:
    """Yield an error unless ``value`` is a DNS label of at most ``limit`` characters."""
    if not value:
        yield required(path)
    elif len(value) > limit or not is_dns_label(value):
        yield invalid(path, value, f"must be at most {limit} {_DNS_LABEL_RULE}")


def service_name(path: Path, value: str, limit: int = MAX_DNS_LABEL) -> Iterator[FieldError]:
    """Yield an error unless ``value`` is a DNS label of at most ``limit`` characters that a Service can have as name.

    It must begin with a letter (DNS-1035), unless the API server has the feature RelaxedServiceNameValidation.
    """
    yield from dns_label(path, value, limit)
    if value[:1].isdigit():
        yield invalid(path, value, "must begin with a letter, because it is the name of a Service")


def dns_subdomain(path: Path, value: str) -> Iterator[FieldError]:
    """Yield an error unless ``value`` is the name of an object: DNS labels joined by dots."""
    if not value:
        yield required(path)
    elif len(value) > _MAX_SUBDOMAIN or not all(is_dns_label(label) for label in value.split(".")):
        yield invalid(
            path,
            value,
            f"must be at most {_MAX_SUBDOMAIN} characters, in labels of {_DNS_LABEL_RULE}, joined by '.'",
        )


def between(path: Path, value: int | None, low: int, high: int) -> Iterator[FieldError]:
    """Yield an error if ``value`` is set and not in the range from ``low`` to ``high``."""
    if value is not None and not low <= value <= high:
        yield invalid(path, value, f"must be between {low} and {high}, inclusive")


def choice(path: Path, value: str | None, allowed: Iterable[str]) -> Iterator[FieldError]:
    """Yield an error if ``value`` is set, not empty, and not one of ``allowed``."""
    allowed = tuple(allowed)
    if value and value not in allowed:
        yield not_supported(path, value, allowed)


def label_errors(path: Path, labels: Mapping[str, str] | None) -> Iterator[FieldError]:
    """Yield an error for each label whose key or value is not valid."""
    for key, value in (labels or {}).items():
        try:
            LabelSelector.of({"matchLabels": {key: value}})
        except SelectorError as error:
            yield invalid(path.key(key), value, str(error))


def annotation_errors(path: Path, annotations: Mapping[str, str] | None) -> Iterator[FieldError]:
    """Yield an error for each annotation whose key is not valid."""
    for key in annotations or {}:
        try:
            LabelSelector.of({"matchLabels": {key.lower(): ""}})
        except SelectorError as error:
            yield invalid(path, key, str(error))


def selector_errors(path: Path, selector: Mapping[str, Any] | None) -> Iterator[FieldError]:
    """Yield an error if ``selector`` is not a valid LabelSelector."""
    try:
        LabelSelector.of(selector)
    except SelectorError as error:
        yield invalid(path, selector, str(error))


def environment_errors(
    path: Path, names: Iterable[str], *, exported: bool = False
) -> Iterator[FieldError]:
    """Yield an error for each name that an environment variable cannot have.

    ``exported``: the variables are exported by a shell, which limits their names to identifiers.
    """
    for name in names:
        if exported and not _SHELL_VARIABLE.fullmatch(name):
            yield invalid(
                path, name, "must be letters, digits and '_', and must not begin with a digit"
            )
        elif not _VARIABLE.fullmatch(name):
            yield invalid(path, name, "must be printable ASCII characters without '='")
