"""Where the state of handling is stored: in annotations of the object, as kopf stores it, or in its status.

Two things are stored: the last handled configuration, from which the next change is computed, and the progress of
handlers that must be called again. Names and formats are kopf's, so that an operator can be moved in both directions.

Annotations of an object may have 256 KiB together. A configuration of more than 160 KiB is therefore stored as a
digest: changes are still detected, but ``old`` is empty.
"""

from __future__ import annotations

import base64
import copy
import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeAlias

import orjson
import structlog

from cfo.runtime.handlers.bodies import BodyEssence, Patch
from cfo.runtime.handlers.diffs import FieldPath, FieldSpec, parse_field, remove, resolve, store

__all__ = [
    "AnnotationsDiffBaseStorage",
    "AnnotationsProgressStorage",
    "DiffBaseStorage",
    "MultiDiffBaseStorage",
    "MultiProgressStorage",
    "ProgressRecord",
    "ProgressStorage",
    "SmartProgressStorage",
    "StatusDiffBaseStorage",
    "StatusProgressStorage",
]

_log = structlog.get_logger(__name__)

ProgressRecord: TypeAlias = dict[str, Any]
"""The progress of a handler: ``started``, ``stopped``, ``delayed``, ``purpose``, ``retries``, ``success``,
``failure``, ``message``, ``subrefs``."""

PREFIX: Final = "kopf.zalando.org"
MAX_STORED: Final = 160 * 1024
_MAX_NAME: Final = 63
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_MARKER: Final = "kopf-managed"
_SAFE = str.maketrans({"/": ".", "<": "_", ">": "_"})


def annotation_names(prefix: str, name: str, *, v1: bool = True) -> list[str]:
    """Return the names of the annotation for ``name``: kopf's current format, and its former one if it differs."""
    safe = name.translate(_SAFE)
    suffix = _suffix(name) if len(name) > _MAX_NAME else ""
    names = [f"{prefix}/{safe[: _MAX_NAME - len(suffix)]}{suffix}"]
    if v1:
        room = _MAX_NAME - len(prefix) - 1
        suffix = _suffix(safe) if len(safe) > room else ""
        former = f"{prefix}/{safe[: max(0, room - len(suffix))]}{suffix}"
        names += [former] if former not in names else []
    return names


def _suffix(name: str) -> str:
    digest = hashlib.blake2b(name.encode(), digest_size=4).digest()
    return f"-{base64.b64encode(digest, altchars=b'-.').decode()}".rstrip("=-.")


def _marked_name(name: str, body: Mapping[str, Any]) -> str:
    """Return a name that a ReplicaSet does not inherit from its Deployment, whose annotations are copied to it."""
    owners = resolve(body, ("metadata", "ownerReferences")) or ()
    copied = body.get("kind") == "ReplicaSet" and any(owner.get("kind") == "Deployment" for owner in owners)
    return f"{name}-ofDRS" if copied else name


def _encode(value: Any) -> str:
    return orjson.dumps(value, default=dict, option=orjson.OPT_NON_STR_KEYS).decode()


def _decode(text: Any) -> Any:
    """Return the value of an annotation, which any user can write; ``None`` if it is not valid."""
    try:
        decoded = orjson.loads(text)
    except (orjson.JSONDecodeError, TypeError):
        return None
    return decoded if isinstance(decoded, dict) else None


class DiffBaseStorage:
    """Stores the last handled configuration. ``ignored_fields`` are fields whose changes are not handled."""

    def __init__(self, ignored_fields: Iterable[FieldSpec] | None = None) -> None:
        self.ignored_fields = [parse_field(field) for field in ignored_fields or ()]

    def build(self, *, body: Mapping[str, Any], extra_fields: Iterable[FieldPath] = ()) -> BodyEssence:
        """Return the configuration of an object: all but ``status`` and most metadata, and ``extra_fields``."""
        essence: BodyEssence = {
            key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata", "status")
        }
        metadata = body.get("metadata") or {}
        annotations = dict(metadata.get("annotations") or {})
        if annotations:
            foreign = {key.partition("/")[0] for key in annotations if _is_marker(key)}
            annotations = {
                key: value
                for key, value in annotations.items()
                if key.partition("/")[0] not in foreign and key != _LAST_APPLIED
            }
        kept = {"labels": metadata.get("labels"), "annotations": annotations}
        kept = {key: value for key, value in kept.items() if value}
        if kept:
            essence["metadata"] = kept
        for path in extra_fields:
            value = resolve(body, path)
            if value is not None and resolve(essence, path) is None:
                store(essence, path, copy.deepcopy(value))
        for path in self.ignored_fields:
            if resolve(essence, path) is not None:
                essence = copy.deepcopy(essence)
                remove(essence, path)
        return essence

    def fetch(self, *, body: Mapping[str, Any]) -> BodyEssence | None:
        """Return the stored configuration, or ``None``."""
        raise NotImplementedError

    def store(self, *, body: Mapping[str, Any], patch: Patch, essence: BodyEssence) -> None:
        """Add the configuration to a patch of the object."""
        raise NotImplementedError

    def is_stored_digest(self, *, body: Mapping[str, Any], essence: BodyEssence) -> bool | None:
        """Return whether the digest of ``essence`` is stored; ``None`` if no digest is stored."""
        return None


def _is_marker(key: str) -> bool:
    prefix, slash, name = key.partition("/")
    return bool(slash) and (name == _MARKER or prefix == PREFIX or prefix.endswith(f".{PREFIX}"))


def _mark(prefix: str, patch: Patch, body: Mapping[str, Any]) -> None:
    """Mark the annotations of another prefix as those of a kopf operator, whose changes other ones ignore."""
    key = f"{prefix}/{_MARKER}"
    if not prefix.startswith("kopf.") and key not in (resolve(body, ("metadata", "annotations")) or {}):
        patch.metadata.annotations[key] = "yes"


class AnnotationsDiffBaseStorage(DiffBaseStorage):
    """Stores the configuration in the annotation ``prefix/key``."""

    def __init__(
        self,
        *,
        prefix: str = PREFIX,
        key: str = "last-handled-configuration",
        ignored_fields: Iterable[FieldSpec] | None = None,
        v1: bool = True,
    ) -> None:
        super().__init__(ignored_fields)
        self.prefix = prefix
        self.key = key
        self.v1 = v1

    def _names(self, body: Mapping[str, Any], key: str) -> list[str]:
        return annotation_names(self.prefix, _marked_name(key, body), v1=self.v1)

    @property
    def _digest_key(self) -> str:
        return f"{self.key}-digest"

    def build(self, *, body: Mapping[str, Any], extra_fields: Iterable[FieldPath] = ()) -> BodyEssence:
        """Return the configuration of an object without our own annotations."""
        essence = super().build(body=body, extra_fields=extra_fields)
        annotations = resolve(essence, ("metadata", "annotations")) or {}
        own = [name for name in annotations if name.startswith(f"{self.prefix}/")]
        if own:
            for name in self._names(body, self.key) + self._names(body, self._digest_key):
                remove(essence, ("metadata", "annotations", name))
        return essence

    def fetch(self, *, body: Mapping[str, Any]) -> BodyEssence | None:
        """Return the stored configuration, or ``None``."""
        annotations = resolve(body, ("metadata", "annotations")) or {}
        for name in self._names(body, self.key):
            if name in annotations and (decoded := _decode(annotations[name])) is not None:
                return decoded  # type: ignore[no-any-return]
        return None

    def store(self, *, body: Mapping[str, Any], patch: Patch, essence: BodyEssence) -> None:
        """Add the configuration, or its digest if it is too large, to a patch of the object."""
        encoded = _encode(essence)
        small = len(encoded.encode()) <= MAX_STORED
        if not small:
            _log.warning("Configuration too large to be stored, storing its digest", size=len(encoded))
        stored = resolve(body, ("metadata", "annotations")) or {}
        for key, value in (
            (self.key, f"{encoded}\n" if small else None),
            (self._digest_key, None if small else _digest(essence)),
        ):
            for name in self._names(body, key):
                if value is not None or name in stored:
                    patch.metadata.annotations[name] = value
        _mark(self.prefix, patch, body)

    def is_stored_digest(self, *, body: Mapping[str, Any], essence: BodyEssence) -> bool | None:
        """Return whether the digest of ``essence`` is stored; ``None`` if no digest is stored."""
        annotations = resolve(body, ("metadata", "annotations")) or {}
        (name, *_) = self._names(body, self._digest_key)
        return annotations[name] == _digest(essence) if name in annotations else None


def _digest(essence: BodyEssence) -> str:
    encoded = orjson.dumps(essence, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    return f"sha256:{hashlib.sha256(encoded).hexdigest()}"


class StatusDiffBaseStorage(DiffBaseStorage):
    """Stores the configuration in a field of the status."""

    def __init__(
        self,
        *,
        name: str = "kopf",
        field: FieldSpec = "status.{name}.last-handled-configuration",
        ignored_fields: Iterable[FieldSpec] | None = None,
    ) -> None:
        super().__init__(ignored_fields)
        self.field = parse_field(field.format(name=name) if isinstance(field, str) else field)

    def fetch(self, *, body: Mapping[str, Any]) -> BodyEssence | None:
        """Return the stored configuration, or ``None``."""
        text = resolve(body, self.field)
        return _decode(text) if text is not None else None

    def store(self, *, body: Mapping[str, Any], patch: Patch, essence: BodyEssence) -> None:
        """Add the configuration to a patch of the object."""
        store(patch, self.field, _encode(essence))


class MultiDiffBaseStorage(DiffBaseStorage):
    """Stores the configuration in several storages, and reads it from the first one that has it."""

    def __init__(self, storages: Collection[DiffBaseStorage]) -> None:
        super().__init__()
        self.storages = storages

    def build(self, *, body: Mapping[str, Any], extra_fields: Iterable[FieldPath] = ()) -> BodyEssence:
        """Return the configuration of an object without what any storage stores."""
        paths = tuple(extra_fields)
        essence = super().build(body=body, extra_fields=paths)
        for storage in self.storages:
            essence = storage.build(body=essence, extra_fields=paths)
        return essence

    def fetch(self, *, body: Mapping[str, Any]) -> BodyEssence | None:
        """Return the stored configuration, or ``None``."""
        found = (storage.fetch(body=body) for storage in self.storages)
        return next((essence for essence in found if essence is not None), None)

    def store(self, *, body: Mapping[str, Any], patch: Patch, essence: BodyEssence) -> None:
        """Add the configuration to a patch of the object."""
        for storage in self.storages:
            storage.store(body=body, patch=patch, essence=essence)


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
        return annotation_names(self.prefix, _marked_name(key, body), v1=self.v1)

    def fetch(self, *, key: str, body: Mapping[str, Any]) -> ProgressRecord | None:
        """Return the progress of a handler, or ``None``."""
        annotations = resolve(body, ("metadata", "annotations")) or {}
        for name in self._names(key, body):
            if name in annotations and (decoded := _decode(annotations[name])) is not None:
                return decoded  # type: ignore[no-any-return]
        return None

    def store(self, *, key: str, record: ProgressRecord, body: Mapping[str, Any], patch: Patch) -> None:
        """Add the progress of a handler to a patch of the object."""
        known = {name: value for name, value in record.items() if self.verbose or value is not None}
        for name in self._names(key, body):
            patch.metadata.annotations[name] = _encode(known)
        _mark(self.prefix, patch, body)

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
