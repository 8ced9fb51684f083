"""Where the last handled configuration is stored: in an annotation of the object, as kopf stores it, or in its status.

The next change is computed from it. Names and formats are kopf's, so that an operator can be moved in both directions.

Annotations of an object may have 256 KiB together. A configuration of more than 160 KiB is therefore stored as a
digest: changes are still detected, but ``old`` is empty.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import orjson
import structlog

from cfo.runtime.handlers.bodies import BodyEssence, Patch
from cfo.runtime.handlers.diffs import FieldPath, FieldSpec, parse_field, remove, resolve, store

_log = structlog.get_logger(__name__)

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


def marked_name(name: str, body: Mapping[str, Any]) -> str:
    """Return a name that a ReplicaSet does not inherit from its Deployment, whose annotations are copied to it."""
    owners = resolve(body, ("metadata", "ownerReferences")) or ()
    copied = body.get("kind") == "ReplicaSet" and any(owner.get("kind") == "Deployment" for owner in owners)
    return f"{name}-ofDRS" if copied else name


def encode(value: Any, option: int = 0) -> str:
    """Return ``value`` as compact JSON; with orjson's ``option`` OPT_SORT_KEYS, with sorted keys."""
    try:
        return orjson.dumps(value, default=dict, option=option | orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # orjson encodes at most 254 levels
        return json.dumps(value, default=dict, separators=(",", ":"), sort_keys=bool(option))


def decode(text: Any) -> Any:
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


def mark(prefix: str, patch: Patch, body: Mapping[str, Any]) -> None:
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
        return annotation_names(self.prefix, marked_name(key, body), v1=self.v1)

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
            if name in annotations and (decoded := decode(annotations[name])) is not None:
                return decoded  # type: ignore[no-any-return]
        return None

    def store(self, *, body: Mapping[str, Any], patch: Patch, essence: BodyEssence) -> None:
        """Add the configuration, or its digest if it is too large, to a patch of the object."""
        encoded = encode(essence)
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
        mark(self.prefix, patch, body)

    def is_stored_digest(self, *, body: Mapping[str, Any], essence: BodyEssence) -> bool | None:
        """Return whether the digest of ``essence`` is stored; ``None`` if no digest is stored."""
        annotations = resolve(body, ("metadata", "annotations")) or {}
        (name, *_) = self._names(body, self._digest_key)
        return annotations[name] == _digest(essence) if name in annotations else None


def _digest(essence: BodyEssence) -> str:
    return f"sha256:{hashlib.sha256(encode(essence, orjson.OPT_SORT_KEYS).encode()).hexdigest()}"


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
        return decode(text) if text is not None else None

    def store(self, *, body: Mapping[str, Any], patch: Patch, essence: BodyEssence) -> None:
        """Add the configuration to a patch of the object."""
        store(patch, self.field, encode(essence))


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
