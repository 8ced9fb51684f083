"""Reads InferenceStacks and other objects from YAML or JSON, such as the output of ``kubectl get -o yaml``.

YAML can represent more than JSON: dates, keys that are not strings, values that contain themselves, and a few lines
that expand to billions of values. The limits are checked before anything is computed on a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import yaml

from cfo.api.builtin_types import type_problems
from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.runtime import NamespacedName, Object, gvk_of, key_of
from cfo.runtime.process import MAX_YAML_LEVELS, YAML_ERRORS, check_levels

MAX_VALUES: Final = 200_000
"""The maximum number of values in one object; an object of 1 MiB, the limit of API servers, has fewer."""


class _Loader(yaml.CSafeLoader):
    """Loads dates as strings, as kubectl does."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (a class attribute of the base class)
        first: [
            (tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"
        ]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }


def parse(content: bytes) -> list[Any]:
    """Return the documents in ``content``. Raises ValueError, with a message of one line."""
    if content.lstrip()[:1] in (b"{", b"["):
        with suppress(orjson.JSONDecodeError):  # YAML in flow style
            return [orjson.loads(content)]
    try:
        check_levels(content)
        return list(yaml.load_all(content, Loader=_Loader))
    except (RecursionError, *YAML_ERRORS) as error:
        raise ValueError(f"not valid YAML: {' '.join(str(error).split())}") from None


def json_problem(value: Any) -> str:
    """Return why JSON cannot represent ``value``, or which limit it exceeds; empty if there is no such reason."""
    count = 0
    pending: list[tuple[Any, int]] = [(value, 1)]
    while pending:
        item, level = pending.pop()
        if level > MAX_YAML_LEVELS:
            return f"must have at most {MAX_YAML_LEVELS} levels"
        if isinstance(item, Mapping):
            if not all(isinstance(key, str) for key in item):
                return "keys must be strings"
        elif not isinstance(item, list):
            if item is not None and not isinstance(item, str | int | float):
                return f"must contain only JSON values, not {type(item).__name__}"
            continue
        count += len(item)
        if count > MAX_VALUES:
            return f"must have at most {MAX_VALUES} values"
        pending += [
            (each, level + 1) for each in (item.values() if isinstance(item, Mapping) else item)
        ]
    return ""


MAX_BYTES: Final = 64 << 20
"""The maximum size of one file."""

_GROUP_KINDS: Final = {(gvk.group, gvk.kind) for gvk in INFERENCE_STACKS}

_TEMPLATE: Final = ("spec", "template")
_OBJECTS: Final = {
    "Deployment": (
        (*_TEMPLATE, "spec"),
        (*_TEMPLATE, "metadata", "labels"),
        (*_TEMPLATE, "metadata", "annotations"),
    ),
    "ConfigMap": (("data",),),
}
"""Fields of existing objects that the plan reads, and that must be objects."""


class InvalidDocument(ValueError):
    """Raised for a file that does not contain Kubernetes objects; the message is one line with the file's name."""


@dataclass(slots=True)
class Documents:
    """The objects of some files: the InferenceStacks by namespace and name, and all others.

    A stack has the same objects in both API groups, so its group is not part of the key.
    """

    stacks: dict[NamespacedName, Object] = field(default_factory=dict)
    others: list[Object] = field(default_factory=list)


def read_documents(files: Iterable[tuple[str, bytes]], namespace: str) -> Documents:
    """Return the objects in ``files``, given as pairs of name and content.

    Objects without namespace get ``namespace``. Raises :class:`InvalidDocument`, also for duplicate stacks.
    """
    found = Documents()
    for file, content in files:
        if len(content) > MAX_BYTES:
            raise InvalidDocument(f"{file}: larger than {MAX_BYTES >> 20} MiB")
        for obj in _objects(file, content):
            obj["metadata"].setdefault("namespace", namespace)
            if (gvk_of(obj).group, gvk_of(obj).kind) not in _GROUP_KINDS:
                found.others.append(obj)
            elif key_of(obj) in found.stacks:
                raise InvalidDocument(f"{file}: InferenceStack {key_of(obj)} is duplicated")
            else:
                found.stacks[key_of(obj)] = obj
    return found


def _objects(file: str, content: bytes) -> Iterator[Object]:
    """Yield the objects in ``content``, and those in its lists."""
    try:
        documents = parse(content)
    except ValueError as error:
        raise InvalidDocument(f"{file}: {error}") from None
    for document in documents:
        if document is None:
            continue
        if isinstance(document, dict) and isinstance(document.get("items"), list):
            for item in document["items"]:
                yield _checked(file, item)
        else:
            yield _checked(file, document)


def _checked(file: str, document: Any) -> Object:
    if not isinstance(document, dict):
        raise InvalidDocument(
            f"{file}: must contain Kubernetes objects, not {type(document).__name__}"
        )
    metadata = document.get("metadata")
    if (
        not isinstance(metadata, dict)
        or not isinstance(metadata.get("name"), str)
        or not metadata["name"]
    ):
        raise InvalidDocument(
            f"{file}: {document.get('kind') or 'object'}: metadata.name is missing"
        )
    for key in ("namespace", "uid"):
        if not isinstance(metadata.get(key, ""), str):
            raise InvalidDocument(f"{file}: {metadata['name']!r}: metadata.{key}: must be a string")
    for key in ("namespace", "name"):
        if not (metadata.get(key, "").isascii() and metadata.get(key, "").isprintable()):
            raise InvalidDocument(f"{file}: metadata.{key}: {metadata[key]!r}: not a valid name")
    if problem := json_problem(document):
        raise InvalidDocument(f"{file}: {document.get('kind')} {metadata['name']!r}: {problem}")
    for key in ("apiVersion", "kind"):
        if not isinstance(document.get(key), str):
            raise InvalidDocument(f"{file}: {metadata['name']}: {key} is missing")
    if problem := _metadata_problem(metadata):
        raise InvalidDocument(f"{file}: {metadata['name']}: metadata.{problem}")
    for path in _OBJECTS.get(document["kind"], ()):
        value: Any = document
        for key in path:
            value = value.get(key) or {}
            if not isinstance(value, dict):
                raise InvalidDocument(
                    f"{file}: {metadata['name']}: {'.'.join(path)}: must be an object"
                )
    if document["kind"] == "Deployment" and not isinstance(
        (document.get("spec") or {}).get("replicas") or 0, int
    ):
        raise InvalidDocument(f"{file}: {metadata['name']}: spec.replicas: must be an integer")
    return document


def _metadata_problem(metadata: Object) -> str:
    """Return which field of ``metadata`` has a wrong JSON type; empty if none has."""
    for problem in type_problems(metadata, "ObjectMeta"):
        if problem.expected:
            return f"{problem.path}: must be {problem.expected}"
    pending = [entry.get("fieldsV1") for entry in metadata.get("managedFields") or ()]
    while pending:
        fields = pending.pop()
        if isinstance(fields, dict):
            pending += fields.values()
        elif fields is not None:
            return "managedFields: fieldsV1 must contain only objects"
    return ""
