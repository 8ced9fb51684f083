"""The section ``inferenceStack``."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, StrictBool

from cfo.config.section import Section


def _operator_version(value: object) -> object:
    if not isinstance(value, str) or not re.fullmatch(r"v(0|[1-9][0-9]{0,5})", value):
        raise ValueError("must be v<major>, such as v1")
    return value


class InferenceStackConfiguration(Section):
    """The InferenceStack controller and webhook."""

    enabled: StrictBool = Field(default=False, description="Whether the InferenceStack controller runs.")
    operator_version: Annotated[str, BeforeValidator(_operator_version)] = Field(
        default="v1",
        description="Major version of this operator: it reconciles and validates the InferenceStacks with this value "
        "of the label `operatorVersion`. The webhook configuration must have the same value.",
    )
