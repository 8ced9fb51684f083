"""The object as handlers see it: read-only views of its parts, the patch that they fill, and a memo."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, Literal, TypeAlias, TypedDict, cast

RawBody: TypeAlias = dict[str, Any]
RawEventType: TypeAlias = str | None
BodyEssence: TypeAlias = dict[str, Any]
PatchFn: TypeAlias = Callable[[RawBody], None]
ObjectReference: TypeAlias = dict[str, Any]
OwnerReference: TypeAlias = dict[str, Any]
Logger: TypeAlias = logging.Logger | logging.LoggerAdapter[logging.Logger]
HandlerId: TypeAlias = str
Headers: TypeAlias = Mapping[str, str]
SSLPeer: TypeAlias = Mapping[str, Any]
UserInfo: TypeAlias = Mapping[str, Any]
Operation: TypeAlias = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


class RawEvent(TypedDict):
    """An event of the watch; ``type`` is ``None`` for an object of the initial list."""

    type: RawEventType
    object: RawBody


class View(Mapping[str, Any]):
    """A read-only view of one field of a mapping, which may be replaced or absent."""

    def __init__(self, source: Mapping[str, Any], name: str) -> None:
        self._source = source
        self._name = name

    @property
    def _current(self) -> Mapping[str, Any]:
        current = self._source.get(self._name)
        return current if isinstance(current, Mapping) else {}

    def __getitem__(self, key: str) -> Any:
        return self._current[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._current)

    def __len__(self) -> int:
        return len(self._current)

    def __repr__(self) -> str:
        return repr(dict(self._current))


class Spec(View):
    """``spec``."""


class Status(View):
    """``status``."""


class Labels(View):
    """``metadata.labels``."""


class Annotations(View):
    """``metadata.annotations``."""


class Meta(View):
    """``metadata``."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__(body, "metadata")

    @property
    def labels(self) -> Labels:
        """``metadata.labels``."""
        return Labels(self, "labels")

    @property
    def annotations(self) -> Annotations:
        """``metadata.annotations``."""
        return Annotations(self, "annotations")

    @property
    def uid(self) -> str:
        """``metadata.uid``."""
        return cast("str", self.get("uid"))

    @property
    def name(self) -> str:
        """``metadata.name``."""
        return cast("str", self.get("name"))

    @property
    def namespace(self) -> str | None:
        """``metadata.namespace``; ``None`` for a cluster-scoped object."""
        return self.get("namespace")

    @property
    def creation_timestamp(self) -> str | None:
        """``metadata.creationTimestamp``."""
        return self.get("creationTimestamp")

    @property
    def deletion_timestamp(self) -> str | None:
        """``metadata.deletionTimestamp``."""
        return self.get("deletionTimestamp")


class Body(View):
    """An object. Daemons and timers see its current state, because the runtime replaces the content."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw

    @property
    def metadata(self) -> Meta:
        """``metadata``."""
        return Meta(self)

    @property
    def meta(self) -> Meta:
        """``metadata``."""
        return Meta(self)

    @property
    def spec(self) -> Spec:
        """``spec``."""
        return Spec(self, "spec")

    @property
    def status(self) -> Status:
        """``status``."""
        return Status(self, "status")

    def replace(self, raw: Mapping[str, Any]) -> None:
        """Show another state of the object."""
        self._raw = raw

    @property
    def _current(self) -> Mapping[str, Any]:
        return self._raw


class MutableView(View, MutableMapping[str, Any]):
    """One field of a patch, created when something is stored in it."""

    _source: MutableMapping[str, Any]

    def __setitem__(self, key: str, value: Any) -> None:
        self._source.setdefault(self._name, {})[key] = value

    def __delitem__(self, key: str) -> None:
        part = self._source[self._name]
        del part[key]
        if not part:
            del self._source[self._name]


class MetaPatch(MutableView):
    """``metadata`` of a patch."""

    def __init__(self, source: MutableMapping[str, Any]) -> None:
        super().__init__(source, "metadata")

    @property
    def labels(self) -> MutableView:
        """``metadata.labels``."""
        return MutableView(self, "labels")

    @property
    def annotations(self) -> MutableView:
        """``metadata.annotations``."""
        return MutableView(self, "annotations")


class Patch(dict[str, Any]):
    """A merge patch that handlers fill; it is sent when they have run. A value of ``None`` removes a field.

    ``fns`` are functions that change the whole object in place, for what a merge patch cannot express, such as adding
    an element to a list. Their result is sent only if no other client has changed the object in the meantime.
    """

    def __init__(self, source: Mapping[str, Any] | None = None) -> None:
        super().__init__(source or {})
        self.fns: list[PatchFn] = []

    # Properties, as in kopf: what is assigned to them, as in ``patch.status = {}``, would be lost.

    @property
    def metadata(self) -> MetaPatch:
        """``metadata``."""
        return MetaPatch(self)

    @property
    def meta(self) -> MetaPatch:
        """``metadata``."""
        return MetaPatch(self)

    @property
    def spec(self) -> MutableView:
        """``spec``."""
        return MutableView(self, "spec")

    @property
    def status(self) -> MutableView:
        """``status``."""
        return MutableView(self, "status")

    def __bool__(self) -> bool:
        return len(self) > 0 or bool(self.fns)

    def clear(self) -> None:
        """Remove everything."""
        super().clear()
        self.fns.clear()


class Memo(dict[Any, Any]):
    """Values that handlers keep in memory, as items or attributes; one for each object, until it is deleted."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(name) from None


def build_object_reference(body: Mapping[str, Any]) -> ObjectReference:
    """Return a reference to an object."""
    metadata = body.get("metadata") or {}
    reference = {**_identity(body), "namespace": metadata.get("namespace")}
    return {key: value for key, value in reference.items() if value}


def build_owner_reference(
    body: Mapping[str, Any],
    *,
    controller: bool | None = True,
    block_owner_deletion: bool | None = True,
) -> OwnerReference:
    """Return an owner reference to an object."""
    reference = {
        "controller": controller,
        "blockOwnerDeletion": block_owner_deletion,
        **_identity(body),
    }
    return {key: value for key, value in reference.items() if value is not None}


def _identity(body: Mapping[str, Any]) -> dict[str, Any]:
    metadata = body.get("metadata") or {}
    return {
        "apiVersion": body.get("apiVersion"),
        "kind": body.get("kind"),
        "name": metadata.get("name"),
        "uid": metadata.get("uid"),
    }
