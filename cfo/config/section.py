"""What the sections of the configuration have in common: their base class, and types of values."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic.alias_generators import to_camel

from cfo.runtime import LabelSelector
from cfo.runtime.cache import SelectorError

__all__ = [
    "DNS_LABEL",
    "Domain",
    "LabelKey",
    "LabelValue",
    "Namespace",
    "ObjectName",
    "OptionalNamespace",
    "OptionalObjectName",
    "Section",
    "Selector",
]

DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Section(BaseModel):
    """A section of the document: keys in camelCase, unknown keys are rejected, values do not change."""

    model_config = ConfigDict(alias_generator=to_camel, frozen=True, extra="forbid", populate_by_name=True)


def _namespace(value: object) -> object:
    if not isinstance(value, str) or not DNS_LABEL.fullmatch(value):
        raise ValueError("must be the name of a namespace (a lower-case DNS label)")
    return value


Namespace = Annotated[str, BeforeValidator(_namespace)]
OptionalNamespace = Annotated[str, BeforeValidator(lambda value: value if value == "" else _namespace(value))]


def _object_name(value: object) -> object:
    if (
        not isinstance(value, str)
        or len(value) > 253
        or not all(DNS_LABEL.fullmatch(label) for label in value.split("."))
    ):
        raise ValueError("must be the name of an object (lower-case DNS labels joined by dots)")
    return value


ObjectName = Annotated[str, BeforeValidator(_object_name)]
OptionalObjectName = Annotated[str, BeforeValidator(lambda value: value if value == "" else _object_name(value))]


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


def _domain(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("must be a domain name such as apps.example.com")  # noqa: TRY004 (pydantic's contract)
    if value and (len(value) > 253 or not all(DNS_LABEL.fullmatch(label) for label in value.split("."))):
        raise ValueError("must be a domain name such as apps.example.com (lower-case DNS labels joined by dots)")
    return value


Domain = Annotated[str, BeforeValidator(_domain)]
