"""The base class of the sections of the configuration, and types of values that several sections share."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic.alias_generators import to_camel

__all__ = ["DNS_LABEL", "ObjectName", "OptionalObjectName", "Section"]

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


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


class Section(BaseModel):
    """A section: keys in camelCase, immutable, without unknown keys."""

    model_config = ConfigDict(alias_generator=to_camel, frozen=True, extra="forbid", populate_by_name=True)
