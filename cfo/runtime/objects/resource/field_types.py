"""Types of the fields of API types, with the metadata that structural schemas require: formats and list types."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from cfo.runtime.objects.parsers import MAX_LENGTH, QUANTITY_PATTERN
from cfo.runtime.objects.resource.model import APIModel

Int32 = Annotated[int, Field(json_schema_extra={"format": "int32"})]
Int64 = Annotated[int, Field(json_schema_extra={"format": "int64"})]

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""A time in RFC 3339 format, as in ``metadata.creationTimestamp``; a string, so that it is written as it was read."""

QUANTITY_SCHEMA: dict[str, Any] = {
    "maxLength": MAX_LENGTH,
    "pattern": f"^{QUANTITY_PATTERN}$",
    "x-kubernetes-int-or-string": True,
}
Quantity = Annotated[int | str, Field(json_schema_extra=QUANTITY_SCHEMA)]
"""A number, or a string such as 500m or 4Gi. A string that is not a quantity is rejected."""

IntOrString = Annotated[int | str, Field(json_schema_extra={"x-kubernetes-int-or-string": True})]
"""A number or any string, such as the port 8080 or http."""

ATOMIC = Field(json_schema_extra={"x-kubernetes-list-type": "atomic"})
"""Annotation of a list that is replaced as a whole when it is applied."""

SET = Field(json_schema_extra={"x-kubernetes-list-type": "set"})
"""Annotation of a list of unique scalars, whose items several field managers can own when it is applied."""


def list_map(*keys: str) -> Any:
    """Return the annotation for a list of models that the wire names of the fields ``keys`` identify.

    Each item can have another field manager when it is applied.
    """
    return Field(
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": list(keys),
        }
    )


def optional(description: str, **schema: Any) -> Any:
    """Return an optional field of a model, ``None`` if it is not set; ``schema`` is added to its schema in the CRD."""
    extra: dict[str, Any] = {"json_schema_extra": schema} if schema else {}
    return Field(default=None, description=description, **extra)


EmbeddedResource = Annotated[
    dict[str, Any],
    Field(
        json_schema_extra={
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        }
    ),
]
"""A whole object of any kind; the schema does not describe its fields."""

_REASON_PATTERN = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_CONDITION_TYPE = rf"^({_LABEL}(\.{_LABEL})*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"


class Condition(APIModel):
    """One aspect of an object's state, as Kubernetes' metav1.Condition defines it."""

    last_transition_time: Annotated[
        str,
        Field(
            json_schema_extra={"format": "date-time"},
            description="Last time the status of the condition changed.",
        ),
    ]
    message: Annotated[
        str,
        Field(
            json_schema_extra={"maxLength": 32768},
            description="Human-readable details of the last transition.",
        ),
    ]
    observed_generation: Annotated[
        int | None,
        Field(
            json_schema_extra={"format": "int64", "minimum": 0},
            description="The metadata.generation that the condition is based on.",
        ),
    ] = None
    reason: Annotated[
        str,
        Field(
            json_schema_extra={"maxLength": 1024, "minLength": 1, "pattern": _REASON_PATTERN},
            description="Reason of the last transition, in CamelCase.",
        ),
    ]
    status: Annotated[
        str,
        Field(
            json_schema_extra={"enum": ["True", "False", "Unknown"]},
            description="Status of the condition.",
        ),
    ]
    type: Annotated[
        str,
        Field(
            json_schema_extra={"maxLength": 316, "pattern": _CONDITION_TYPE},
            description="Type of the condition, in CamelCase.",
        ),
    ]


ConditionList = Annotated[
    list[Condition],
    Field(
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    ),
]
