"""The table of types with which admission checks InferenceStacks: ``cfo/api/inferencestack/types.json``.

The source is the models from which the CRD is generated (``cfo/api/inferencestack/models.py``). The format is that of
``cfo/api/builtin_types.json``, to whose types it refers. It is a file because importing the models takes time.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from cfo.api.inferencestack.field_types import FieldShape, OpenModel
from cfo.api.inferencestack.models import InferenceStackSpec

TARGET = "cfo/api/inferencestack/types.json"

_SCALARS: dict[Any, str] = {str: "string", bool: "boolean"}


def files() -> dict[str, str]:
    """Return the content of the generated file, by its path from the root of the repository."""
    return {TARGET: table()}


def table() -> str:
    """Return the table: the spec, and all models that it refers to, directly or indirectly."""
    found: dict[str, dict[str, str]] = {}
    queue: list[type[OpenModel]] = [InferenceStackSpec]
    while queue:
        model = queue.pop()
        if model.__name__ not in found:
            found[model.__name__] = {
                field.alias or name: shape(field.annotation, field.metadata, queue)
                for name, field in sorted(model.model_fields.items())
            }
    lines = ",\n".join(f'"{name}": {json.dumps(found[name])}' for name in sorted(found))
    return f"{{\n{lines}\n}}\n"


def shape(annotation: Any, metadata: Iterable[Any], queue: list[type[OpenModel]]) -> str:
    """Return the shape of a field; models that it refers to are appended to ``queue``."""
    for item in metadata:
        if isinstance(item, FieldShape):
            return item.text
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin is Annotated:
        return shape(arguments[0], _with_format(arguments), queue)
    if origin in (Union, types.UnionType):
        (present,) = [argument for argument in arguments if argument is not type(None)]
        return shape(present, metadata, queue)
    if origin is list:
        return f"[{shape(arguments[0], (), queue)}]"
    if origin is dict:
        return f"{{{shape(arguments[1], (), queue)}}}"
    if origin is Literal:
        return "string"
    if annotation is int:
        return next((item for item in metadata if item in ("int32", "int64")), "int64")
    if isinstance(annotation, type) and issubclass(annotation, OpenModel):
        queue.append(annotation)
        return annotation.__name__
    return _SCALARS[annotation]


def _with_format(arguments: tuple[Any, ...]) -> list[Any]:
    """Return the metadata of an annotated type, with the format of an integer."""
    extras = [getattr(item, "json_schema_extra", None) for item in arguments[1:]]
    return [
        *arguments[1:],
        *(extra["format"] for extra in extras if isinstance(extra, dict) and "format" in extra),
    ]
