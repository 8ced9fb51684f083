"""What is stored in objects: their last handled configuration, and the progress of handlers that must be called again.

The next change is computed from the configuration. Both are stored in annotations, as in kopf, or in the status. Names
and formats are kopf's, so that an operator can be moved in both directions.

Annotations of an object may have 256 KiB together. A configuration of more than 160 KiB is therefore stored as a
digest: changes are still detected, but ``old`` is empty.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeAlias

import orjson
import structlog

from cfo_handlers.bodies import BodyEssence, Patch
from cfo_handlers.diffs import FieldPath, FieldSpec, parse_field, remove, resolve, store

_log = structlog.get_logger(__name__)

PREFIX: Final = "kopf.zalando.org"
MAX_STORED: Final = 160 * 1024
_MAX_NAME: Final = 63
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_MARKER: Final = "kopf-managed"
_SAFE = str.maketrans({"/": ".", "<": "_", ">": "_"})

ProgressRecord: TypeAlias = dict[str, Any]
"""The progress of a handler: ``started``, ``stopped``, ``delayed``, ``purpose``, ``retries``, ``success``,
``failure``, ``message``, ``subrefs``."""


def _suffix(name: str) -> str:
    digest = hashlib.blake2b(name.encode(), digest_size=4).digest()
    return f"-{base64.b64encode(digest, altchars=b'-.').decode()}".rstrip("=-.")


def _encode(value: Any, option: int = 0) -> str:
    """Return ``value`` as compact JSON; with orjson's ``option`` OPT_SORT_KEYS, with sorted keys."""
    try:
        return orjson.dumps(value, default=dict, option=option | orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # orjson encodes at most 254 levels
        return json.dumps(value, default=dict, separators=(",", ":"), sort_keys=bool(option))


def _decode(text: Any) -> dict[str, Any] | None:
    """Return the value of an annotation, which any user can write; ``None`` if it is absent or not valid."""
    if text is None:
        return None
    try:
        decoded = orjson.loads(text)
    except (orjson.JSONDecodeError, TypeError):
        return None
    return decoded if isinstance(decoded, dict) else None


class DiffBaseStorage:
    """Stores the last handled configuration. ``ignored_fields`` are fields whose changes are not handled."""

    def __init__(self, ignored_fields: Iterable[FieldSpec] | None = None) -> None:
        self.ignored_fields = [parse_field(field) for field in ignored_fields or ()]

    def build(
        self, *, body: Mapping[str, Any], extra_fields: Iterable[FieldPath] = ()
    ) -> BodyEssence:
        """Return the configuration of an object: all but ``status`` and most metadata, and ``extra_fields``.

        It is a copy: handlers can change what is in the body, for example when they build a child from a part of it.
        """
        content: BodyEssence = {
            key: value
            for key, value in body.items()
            if key not in ("apiVersion", "kind", "metadata", "status")
        }
        # deepcopy fails for objects with several hundred levels, which users can create.
        essence: BodyEssence = orjson.loads(_encode(content))
        metadata = body.get("metadata") or {}
        annotations = dict(metadata.get("annotations") or {})
        if annotations:
            foreign = {key.partition("/")[0] for key in annotations if _is_marker(key)}
            annotations = {
                key: value
                for key, value in annotations.items()
                if key.partition("/")[0] not in foreign and key != _LAST_APPLIED
            }
        labels = dict(metadata.get("labels") or {})
        kept = {"labels": labels, "annotations": annotations}
        kept = {key: value for key, value in kept.items() if value}
        if kept:
            essence["metadata"] = kept
        for path in extra_fields:
            value = resolve(body, path)
            if value is not None and resolve(essence, path) is None:
                store(essence, path, copy.deepcopy(value))
        for path in self.ignored_fields:
            if resolve(essence, path) is not None:
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


class _Annotations:
    """The annotations of a prefix."""

    prefix: str
    v1: bool

    def _names(self, key: str, body: Mapping[str, Any]) -> list[str]:
        """Return the names of the annotation for ``key``: kopf's current format, and its former one if it differs.

        A ReplicaSet does not inherit them from its Deployment, whose annotations are copied to it.
        """
        if body.get("kind") == "ReplicaSet":
            owners = resolve(body, ("metadata", "ownerReferences")) or ()
            if any(owner.get("kind") == "Deployment" for owner in owners):
                key = f"{key}-ofDRS"
        safe = key.translate(_SAFE)
        suffix = _suffix(key) if len(key) > _MAX_NAME else ""
        names = [f"{self.prefix}/{safe[: _MAX_NAME - len(suffix)]}{suffix}"]
        if self.v1:
            room = _MAX_NAME - len(self.prefix) - 1
            suffix = _suffix(safe) if len(safe) > room else ""
            names.append(f"{self.prefix}/{safe[: max(0, room - len(suffix))]}{suffix}")
        return list(dict.fromkeys(names))

    def _read(self, key: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
        annotations = resolve(body, ("metadata", "annotations")) or {}
        for name in self._names(key, body):
            decoded = _decode(annotations.get(name))
            if decoded is not None:
                return decoded
        return None

    def _mark(self, patch: Patch, body: Mapping[str, Any]) -> None:
        """Mark the annotations of another prefix as those of a kopf operator, whose changes other ones ignore."""
        key = f"{self.prefix}/{_MARKER}"
        is_marked = resolve(body, ("metadata", "annotations", key)) is not None
        if not is_marked and not self.prefix.startswith("kopf."):
            patch.metadata.annotations[key] = "yes"


def _field(name: str, field: FieldSpec) -> FieldPath:
    if isinstance(field, str):
        return parse_field(field.format(name=name))
    return parse_field(field)


class AnnotationsDiffBaseStorage(_Annotations, DiffBaseStorage):
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
        self._digest_key = f"{key}-digest"

    def build(
        self, *, body: Mapping[str, Any], extra_fields: Iterable[FieldPath] = ()
    ) -> BodyEssence:
        """Return the configuration of an object without our own annotations."""
        essence = super().build(body=body, extra_fields=extra_fields)
        annotations = resolve(essence, ("metadata", "annotations")) or {}
        if any(name.startswith(f"{self.prefix}/") for name in annotations):
            for name in self._names(self.key, body) + self._names(self._digest_key, body):
                remove(essence, ("metadata", "annotations", name))
        return essence

    def fetch(self, *, body: Mapping[str, Any]) -> BodyEssence | None:
        """Return the stored configuration, or ``None``."""
        return self._read(self.key, body)

    def store(self, *, body: Mapping[str, Any], patch: Patch, essence: BodyEssence) -> None:
        """Add the configuration, or its digest if it is too large, to a patch of the object."""
        encoded = _encode(essence)
        if len(encoded.encode()) > MAX_STORED:
            _log.warning(
                "Configuration too large to be stored, storing its digest", size=len(encoded)
            )
            self._replace(self.key, None, body, patch)
            self._replace(self._digest_key, _digest(essence), body, patch)
        else:
            self._replace(self.key, f"{encoded}\n", body, patch)
            self._replace(self._digest_key, None, body, patch)
        self._mark(patch, body)

    def _replace(self, key: str, value: str | None, body: Mapping[str, Any], patch: Patch) -> None:
        """Set the annotations for ``key``; ``None`` removes those that the object has."""
        stored = resolve(body, ("metadata", "annotations")) or {}
        for name in self._names(key, body):
            if value is not None or name in stored:
                patch.metadata.annotations[name] = value

    def is_stored_digest(self, *, body: Mapping[str, Any], essence: BodyEssence) -> bool | None:
        """Return whether the digest of ``essence`` is stored; ``None`` if no digest is stored."""
        annotations = resolve(body, ("metadata", "annotations")) or {}
        name = self._names(self._digest_key, body)[0]
        if name not in annotations:
            return None
        return bool(annotations[name] == _digest(essence))


def _digest(essence: BodyEssence) -> str:
    encoded = _encode(essence, orjson.OPT_SORT_KEYS).encode()
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
        self.field = _field(name, field)

    def fetch(self, *, body: Mapping[str, Any]) -> BodyEssence | None:
        """Return the stored configuration, or ``None``."""
        return _decode(resolve(body, self.field))

    def store(self, *, body: Mapping[str, Any], patch: Patch, essence: BodyEssence) -> None:
        """Add the configuration to a patch of the object."""
        store(patch, self.field, _encode(essence))


class _Several:
    """Stores in several storages, and reads from the first one that has a value."""

    storages: Collection[Any]

    def fetch(self, **keywords: Any) -> Any:
        for storage in self.storages:
            found = storage.fetch(**keywords)
            if found is not None:
                return found
        return None

    def store(self, **keywords: Any) -> None:
        for storage in self.storages:
            storage.store(**keywords)

    def purge(self, **keywords: Any) -> None:
        for storage in self.storages:
            storage.purge(**keywords)


class MultiDiffBaseStorage(_Several, DiffBaseStorage):
    """Stores the configuration in several storages, and reads it from the first one that has it."""

    def __init__(self, storages: Collection[DiffBaseStorage]) -> None:
        super().__init__()
        self.storages = storages

    def build(
        self, *, body: Mapping[str, Any], extra_fields: Iterable[FieldPath] = ()
    ) -> BodyEssence:
        """Return the configuration of an object without what any storage stores."""
        paths = tuple(extra_fields)
        essence = super().build(body=body, extra_fields=paths)
        for storage in self.storages:
            essence = storage.build(body=essence, extra_fields=paths)
        return essence


class ProgressStorage:
    """Stores the progress of handlers, by their identifiers."""

    def fetch(self, *, key: str, body: Mapping[str, Any]) -> ProgressRecord | None:
        """Return the progress of a handler, or ``None``."""
        raise NotImplementedError

    def store(
        self, *, key: str, record: ProgressRecord, body: Mapping[str, Any], patch: Patch
    ) -> None:
        """Add the progress of a handler to a patch of the object."""
        raise NotImplementedError

    def purge(self, *, key: str, body: Mapping[str, Any], patch: Patch) -> None:
        """Remove the progress of a handler in a patch of the object."""
        raise NotImplementedError

    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        """Return a configuration without what this storage stores."""
        return essence


class AnnotationsProgressStorage(_Annotations, ProgressStorage):
    """Stores the progress in the annotations ``prefix/HANDLER``; ``touch_key`` is ignored: nothing is touched."""

    def __init__(
        self, *, prefix: str = PREFIX, verbose: bool = False, v1: bool = True, touch_key: Any = None
    ) -> None:
        self.prefix = prefix
        self.verbose = verbose
        self.v1 = v1

    def fetch(self, *, key: str, body: Mapping[str, Any]) -> ProgressRecord | None:
        """Return the progress of a handler, or ``None``."""
        return self._read(key, body)

    def store(
        self, *, key: str, record: ProgressRecord, body: Mapping[str, Any], patch: Patch
    ) -> None:
        """Add the progress of a handler to a patch of the object."""
        known = {name: value for name, value in record.items() if self.verbose or value is not None}
        for name in self._names(key, body):
            patch.metadata.annotations[name] = _encode(known)
        self._mark(patch, body)

    def purge(self, *, key: str, body: Mapping[str, Any], patch: Patch) -> None:
        """Remove the progress of a handler in a patch of the object."""
        for name in self._names(key, body):
            _remove_stored(("metadata", "annotations", name), body, patch)

    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        """Return a configuration without the annotations of the prefix."""
        for name in list(resolve(essence, ("metadata", "annotations")) or ()):
            if name.startswith(f"{self.prefix}/"):
                remove(essence, ("metadata", "annotations", name))
        return essence


def _remove_stored(path: FieldPath, body: Mapping[str, Any], patch: Patch) -> None:
    if resolve(body, path) is not None:
        store(patch, path, None)
    else:
        remove(patch, path)


class StatusProgressStorage(ProgressStorage):
    """Stores the progress in a field of the status; ``touch_field`` is ignored: nothing is touched."""

    def __init__(
        self,
        *,
        name: str = "kopf",
        field: FieldSpec = "status.{name}.progress",
        touch_field: Any = None,
    ) -> None:
        self.field = _field(name, field)

    def fetch(self, *, key: str, body: Mapping[str, Any]) -> ProgressRecord | None:
        """Return the progress of a handler, or ``None``."""
        found = resolve(body, (*self.field, key))
        return found if isinstance(found, dict) else None

    def store(
        self, *, key: str, record: ProgressRecord, body: Mapping[str, Any], patch: Patch
    ) -> None:
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


class MultiProgressStorage(_Several, ProgressStorage):
    """Stores the progress in several storages, and reads it from the first one that has it."""

    def __init__(self, storages: Collection[ProgressStorage]) -> None:
        self.storages = storages

    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        """Return a configuration without what the storages store."""
        for storage in self.storages:
            essence = storage.clear(essence=essence)
        return essence


class _ReadOnlyStatus(StatusProgressStorage):
    """Reads and removes what former versions of kopf stored in the status."""

    def store(
        self, *, key: str, record: ProgressRecord, body: Mapping[str, Any], patch: Patch
    ) -> None:
        """Store nothing."""


class SmartProgressStorage(MultiProgressStorage):
    """The default: annotations, and what former versions of kopf stored in the status."""

    def __init__(
        self,
        *,
        name: str = "kopf",
        field: FieldSpec = "status.{name}.progress",
        touch_field: Any = None,
        **others: Any,
    ) -> None:
        super().__init__(
            [AnnotationsProgressStorage(**others), _ReadOnlyStatus(name=name, field=field)]
        )
