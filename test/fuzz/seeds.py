"""The valid objects that fuzzing mutates: those of the samples and, if they exist, of the recordings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import orjson
import yaml

from cfo.runtime.objects.unstructured import Object
from test.support.recordings import GOLDEN

__all__ = ["Corpus"]

_SAMPLES = Path(__file__).parents[2] / "config" / "samples"
_RECORDINGS = {"RayCluster": "raycluster/k8s-plain-mtls", "AppWrapper": "appwrapper/default"}
_MAX_BYTES = 12_000
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Corpus:
    """Valid objects, and their fields at all levels by name, each name with up to three different values.

    The objects are ``objects`` and the stored ones of ``kind``, which are read when a test uses them.
    """

    def __init__(self, objects: Sequence[Object] = (), kind: str | None = None) -> None:
        self._objects = objects
        self._kind = kind

    @cached_property
    def objects(self) -> Sequence[Object]:
        """All objects, the stored ones first."""
        return self._objects if self._kind is None else [*_stored(self._kind), *self._objects]

    @cached_property
    def fields(self) -> Sequence[tuple[str, Any]]:
        """The names of fields, and their values."""
        values: dict[str, dict[bytes, Any]] = {}
        for obj in self.objects:
            for name, value in _fields(obj):
                known = values.setdefault(name, {})
                if len(known) < 3:
                    known.setdefault(orjson.dumps(value), value)
        return [(name, value) for name, known in sorted(values.items()) for value in known.values()]

    def __repr__(self) -> str:
        return f"Corpus({len(self.objects)} objects)"  # a failure prints it


@cache
def _stored(kind: str) -> list[Object]:
    """Return all objects of ``kind`` without managed fields, each only once, smaller ones first."""
    recordings = (GOLDEN / _RECORDINGS[kind]).glob("*.yaml") if kind in _RECORDINGS else ()
    files = [*_SAMPLES.glob("*.yaml"), *recordings]
    documents = [
        document for file in files for document in yaml.load_all(file.read_text(), Loader=_LOADER)
    ]
    found = {orjson.dumps(obj, option=orjson.OPT_SORT_KEYS) for obj in _objects(documents, kind)}
    encoded = sorted(
        (raw for raw in found if len(raw) <= _MAX_BYTES), key=lambda raw: (len(raw), raw)
    )
    return [orjson.loads(raw) for raw in encoded]


def _objects(value: Any, kind: str) -> Iterator[Object]:
    if isinstance(value, dict):
        if (
            value.get("kind") == kind
            and isinstance(value.get("spec"), dict)
            and "metadata" in value
        ):
            metadata = {
                name: item for name, item in value["metadata"].items() if name != "managedFields"
            }
            yield orjson.loads(orjson.dumps({**value, "metadata": metadata}))
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _objects(item, kind)


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from value.items()
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _fields(item)
