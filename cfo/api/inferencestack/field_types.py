"""Field types of InferenceStacks: for each, the schema in the CRD and the shape that validation checks.

The original CRD has no schema at all: a stack's spec is the values of a Helm chart. The CRD here stays compatible with
it, so that an existing stack remains valid when the CRD is replaced:

* every object preserves unknown fields (:class:`OpenModel`); validation reports them;
* an optional field can be ``null``, which in Helm removes a default;
* parts of pods are open objects, whose fields validation checks with :mod:`cfo.api.builtin_types`;
* values that end up in a configuration file are scalars of any type (:data:`Scalar`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from cfo.runtime import APIModel
from cfo.runtime.objects import QUANTITY_SCHEMA

_PRESERVE: Final[dict[str, Any]] = {"x-kubernetes-preserve-unknown-fields": True}


@dataclass(frozen=True, slots=True)
class FieldShape:
    """The shape of a field (see :mod:`cfo.api.builtin_types`), if its Python type does not determine it."""

    text: str


def open_schema(*rules: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    """Return the function that completes the schema of an :class:`OpenModel` that has these CEL rules."""

    def complete(schema: dict[str, Any]) -> None:
        schema.update(_PRESERVE)
        if rules:
            schema["x-kubernetes-validations"] = list(rules)
        for field in schema.get("properties", {}).values():
            present = [option for option in field.get("anyOf", ()) if option.get("type") != "null"]
            if len(present) != 1:
                continue
            # null would have to be one of the values of an enum
            is_enum = present[0].keys() & {"const", "enum"}
            if not is_enum:
                field["nullable"] = True

    return complete


class OpenModel(APIModel):
    """Base class of the parts of an InferenceStack: unknown fields are preserved in the CRD as well."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="allow",
        json_schema_extra=open_schema(),
    )


def rule(expression: str, message: str, **fields: str) -> dict[str, str]:
    """Return a CEL rule of the CRD."""
    return {"rule": expression, "message": message, **fields}


OPEN: Final = Field(json_schema_extra=_PRESERVE)
"""The schema of an object with any fields, or of any value."""

Scalar = Annotated[Any, FieldShape("scalar"), OPEN]
"""A string, number or boolean."""

IntOrString = Annotated[
    Any, FieldShape("IntOrString"), Field(json_schema_extra={"x-kubernetes-int-or-string": True})
]

Quantity = Annotated[Any, FieldShape("Quantity"), Field(json_schema_extra=QUANTITY_SCHEMA)]
"""A resource quantity, such as ``2Gi``."""

Host = Annotated[str, Field(json_schema_extra={"maxLength": 253, "pattern": "^[-*.A-Za-z0-9]*$"})]
"""A host name, also with a wildcard; the API server checks the rest in the Ingress or HTTPRoute."""

AnyObject = Annotated[dict[str, Any], FieldShape("object"), OPEN]
Affinity = Annotated[dict[str, Any], FieldShape("Affinity"), OPEN]
ContainerPort = Annotated[dict[str, Any], FieldShape("ContainerPort"), OPEN]
DeploymentStrategy = Annotated[dict[str, Any], FieldShape("DeploymentStrategy"), OPEN]
EnvVar = Annotated[dict[str, Any], FieldShape("EnvVar"), OPEN]
HorizontalPodAutoscalerBehavior = Annotated[
    dict[str, Any], FieldShape("HorizontalPodAutoscalerBehavior"), OPEN
]
Lifecycle = Annotated[dict[str, Any], FieldShape("Lifecycle"), OPEN]
LocalObjectReference = Annotated[dict[str, Any], FieldShape("LocalObjectReference"), OPEN]
MetricSpec = Annotated[dict[str, Any], FieldShape("MetricSpec"), OPEN]
PodSecurityContext = Annotated[dict[str, Any], FieldShape("PodSecurityContext"), OPEN]
Probe = Annotated[dict[str, Any], FieldShape("Probe"), OPEN]
ResourceRequirements = Annotated[dict[str, Any], FieldShape("ResourceRequirements"), OPEN]
SecretKeySelector = Annotated[dict[str, Any], FieldShape("SecretKeySelector"), OPEN]
SecurityContext = Annotated[dict[str, Any], FieldShape("SecurityContext"), OPEN]
ServicePort = Annotated[dict[str, Any], FieldShape("ServicePort"), OPEN]
Toleration = Annotated[dict[str, Any], FieldShape("Toleration"), OPEN]
Volume = Annotated[dict[str, Any], FieldShape("Volume"), OPEN]
VolumeMount = Annotated[dict[str, Any], FieldShape("VolumeMount"), OPEN]

Strings = dict[str, str]
