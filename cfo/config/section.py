"""What the sections of the configuration have in common: their base class, and types of values."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic.alias_generators import to_camel

from cfo.runtime import LabelSelector
from cfo.runtime.cache import SelectorError

DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = rf"(?=.{{1,253}}$){DNS_LABEL.pattern}(\.{DNS_LABEL.pattern})*"


class Section(BaseModel):
    """A section of the document: keys in camelCase, unknown keys are rejected, values do not change."""

    model_config = ConfigDict(alias_generator=to_camel, frozen=True, extra="forbid", populate_by_name=True)


def matching(pattern: str | re.Pattern[str], problem: str) -> BeforeValidator:
    """Return the validation of a string that ``pattern`` matches completely; ``problem`` says what is allowed."""

    def validate(value: object) -> object:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise ValueError(problem)
        return value

    return BeforeValidator(validate)


_NO_NAMESPACE = "must be the name of a namespace (a lower-case DNS label)"
Namespace = Annotated[str, matching(DNS_LABEL, _NO_NAMESPACE)]
OptionalNamespace = Annotated[str, matching(f"({DNS_LABEL.pattern})?", _NO_NAMESPACE)]

_NO_OBJECT_NAME = "must be the name of an object (lower-case DNS labels joined by dots)"
ObjectName = Annotated[str, matching(_SUBDOMAIN, _NO_OBJECT_NAME)]
OptionalObjectName = Annotated[str, matching(f"({_SUBDOMAIN})?", _NO_OBJECT_NAME)]


def _selector(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("must be a label selector such as operatorVersion=v1")  # noqa: TRY004 (pydantic's contract)
    return str(LabelSelector.of(value))


Selector = Annotated[str, BeforeValidator(_selector)]


def _label_key(value: object) -> object:
    if not isinstance(value, str) or not _selects({"matchExpressions": [{"key": value, "operator": "Exists"}]}):
        raise ValueError("must be a label key: an optional DNS subdomain and '/', then a name of up to 63 characters")
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


LabelKey = Annotated[str, BeforeValidator(_label_key)]
LabelValue = Annotated[str, BeforeValidator(_label_value)]


_NO_DOMAIN = "must be a domain name such as apps.example.com (lower-case DNS labels joined by dots)"
Domain = Annotated[str, matching(f"({_SUBDOMAIN})?", _NO_DOMAIN)]
