"""Where the progress of handlers is stored that must be called again: in annotations, as in kopf, or in the status.

Names and formats are kopf's, so that an operator can be moved in both directions.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from cfo.runtime.handlers.bodies import BodyEssence, Patch
from cfo.runtime.handlers.diffs import FieldPath, FieldSpec, parse_field, remove, resolve, store
from cfo.runtime.handlers.storage import PREFIX, annotation_names, decode, encode, mark, marked_name

ProgressRecord: TypeAlias = dict[str, Any]
"""The progress of a handler: ``started``, ``stopped``, ``delayed``, ``purpose``, ``retries``, ``success``,
``failure``, ``message``, ``subrefs``."""


class ProgressStorage:
    """Stores the progress of handlers, by their identifiers."""

    def fetch(self, *, key: str, body: Mapping[str, Any]) -> ProgressRecord | None:
        """Return the progress of a handler, or ``None``."""
        raise NotImplementedError

    def store(self, *, key: str, record: ProgressRecord, body: Mapping[str, Any], patch: Patch) -> None:
        """Add the progress of a handler to a patch of the object."""
        raise NotImplementedError

    def purge(self, *, key: str, body: Mapping[str, Any], patch: Patch) -> None:
        """Remove the progress of a handler in a patch of the object."""
        raise NotImplementedError

    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        """Return a configuration without what this storage stores."""
        return essence


class AnnotationsProgressStorage(ProgressStorage):
    """Stores the progress in the annotations ``prefix/HANDLER``."""

    def __init__(
        self, *, prefix: str = PREFIX, verbose: bool = False, touch_key: str = "touch-dummy", v1: bool = True
    ) -> None:
        self.prefix = prefix
        self.verbose = verbose
        self.touch_key = touch_key
        self.v1 = v1

    def _names(self, key: str, body: Mapping[str, Any]) -> list[str]:
        return annotation_names(self.prefix, marked_name(key, body), v1=self.v1)

    def fetch(self, *, key: str, body: Mapping[str, Any]) -> ProgressRecord | None:
        """Return the progress of a handler, or ``None``."""
        annotations = resolve(body, ("metadata", "annotations")) or {}
        for name in self._names(key, body):
            if name in annotations and (decoded := decode(annotations[name])) is not None:
                return decoded  # type: ignore[no-any-return]
        return None

    def store(self, *, key: str, record: ProgressRecord, body: Mapping[str, Any], patch: Patch) -> None:
        """Add the progress of a handler to a patch of the object."""
        known = {name: value for name, value in record.items() if self.verbose or value is not None}
        for name in self._names(key, body):
            patch.metadata.annotations[name] = encode(known)
        mark(self.prefix, patch, body)

    def purge(self, *, key: str, body: Mapping[str, Any], patch: Patch) -> None:
        """Remove the progress of a handler in a patch of the object."""
        for name in self._names(key, body):
            _remove_stored(("metadata", "annotations", name), body, patch)

    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        """Return a configuration without the annotations of the prefix."""
        annotations = resolve(essence, ("metadata", "annotations")) or {}
        for name in [name for name in annotations if name.startswith(f"{self.prefix}/")]:
            remove(essence, ("metadata", "annotations", name))
        return essence


def _remove_stored(path: FieldPath, body: Mapping[str, Any], patch: Patch) -> None:
    if resolve(body, path) is not None:
        store(patch, path, None)
    else:
        remove(patch, path)


class StatusProgressStorage(ProgressStorage):
    """Stores the progress in a field of the status."""

    def __init__(
        self,
        *,
        name: str = "kopf",
        field: FieldSpec = "status.{name}.progress",
        touch_field: FieldSpec = "status.{name}.dummy",
    ) -> None:
        self.field = parse_field(field.format(name=name) if isinstance(field, str) else field)
        self.touch_field = parse_field(touch_field.format(name=name) if isinstance(touch_field, str) else touch_field)

    def fetch(self, *, key: str, body: Mapping[str, Any]) -> ProgressRecord | None:
        """Return the progress of a handler, or ``None``."""
        found = resolve(body, (*self.field, key))
        return found if isinstance(found, dict) else None

    def store(self, *, key: str, record: ProgressRecord, body: Mapping[str, Any], patch: Patch) -> None:
        """Add the progress of a handler to a patch of the object."""
        store(patch, (*self.field, key), record)

    def purge(self, *, key: str, body: Mapping[str, Any], patch: Patch) -> None:
        """Remove the progress of a handler in a patch of the object."""
        _remove_stored((*self.field, key), body, patch)

    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        """Return a configuration without the field."""
        if resolve(essence, self.field) is not None:
            essence = copy.deepcopy(essence)
            remove(essence, self.field)
        return essence


class MultiProgressStorage(ProgressStorage):
    """Stores the progress in several storages, and reads it from the first one that has it."""

    def __init__(self, storages: Collection[ProgressStorage]) -> None:
        self.storages = storages

    def fetch(self, *, key: str, body: Mapping[str, Any]) -> ProgressRecord | None:
        """Return the progress of a handler, or ``None``."""
        found = (storage.fetch(key=key, body=body) for storage in self.storages)
        return next((record for record in found if record is not None), None)

    def store(self, *, key: str, record: ProgressRecord, body: Mapping[str, Any], patch: Patch) -> None:
        """Add the progress of a handler to a patch of the object."""
        for storage in self.storages:
            storage.store(key=key, record=record, body=body, patch=patch)

    def purge(self, *, key: str, body: Mapping[str, Any], patch: Patch) -> None:
        """Remove the progress of a handler in a patch of the object."""
        for storage in self.storages:
            storage.purge(key=key, body=body, patch=patch)

    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        """Return a configuration without what the storages store."""
        for storage in self.storages:
            essence = storage.clear(essence=essence)
        return essence


class _ReadOnlyStatus(StatusProgressStorage):
    """Reads and removes what former versions of kopf stored in the status."""

    def store(self, *, key: str, record: ProgressRecord, body: Mapping[str, Any], patch: Patch) -> None:
        """Store nothing."""


class SmartProgressStorage(MultiProgressStorage):
    """The default: annotations, and what former versions of kopf stored in the status."""

    def __init__(
        self,
        *,
        name: str = "kopf",
        field: FieldSpec = "status.{name}.progress",
        touch_key: str = "touch-dummy",
        touch_field: FieldSpec = "status.{name}.dummy",
        prefix: str = PREFIX,
        v1: bool = True,
        verbose: bool = False,
    ) -> None:
        annotations = AnnotationsProgressStorage(prefix=prefix, verbose=verbose, touch_key=touch_key, v1=v1)
        super().__init__([annotations, _ReadOnlyStatus(name=name, field=field, touch_field=touch_field)])
