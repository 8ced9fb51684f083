"""Changes of manifests before they are created: owner references, names, namespaces and labels.

The object that is being handled is the default for the owner. Manifests are dicts, or objects of pykube (mappings in
``obj``) and of the official Kubernetes clients (with a method ``to_dict``, changed through their attributes).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Final

from cfo_handlers.bodies import build_owner_reference
from cfo_handlers.causes import ObjectCause
from cfo_handlers.diffs import FieldSpec, parse_field, resolve
from cfo_handlers.execution import current_invocation

_UNSET: Final = object()
_ATTRIBUTES: Final = {
    "generateName": "generate_name",
    "ownerReferences": "owner_references",
    "apiVersion": "api_version",
    "blockOwnerDeletion": "block_owner_deletion",
}


class _Metadata:
    """The metadata of a manifest of any type."""

    def __init__(self, manifest: Any) -> None:
        self._fields: MutableMapping[str, Any] | None = None
        if isinstance(manifest, MutableMapping):
            self._fields = manifest.setdefault("metadata", {})
        elif isinstance(getattr(manifest, "obj", None), MutableMapping):  # pykube
            self._fields = manifest.obj.setdefault("metadata", {})
        elif hasattr(manifest, "to_dict") and hasattr(manifest, "metadata"):
            if manifest.metadata is None:
                manifest.metadata = _sibling(manifest, "V1ObjectMeta")()
            self._model = manifest.metadata
        else:
            raise TypeError(
                f"{type(manifest).__name__}: must be a dict or an object of a Kubernetes client"
            )

    def get(self, name: str) -> Any:
        if self._fields is not None:
            return self._fields.get(name)
        return getattr(self._model, _ATTRIBUTES.get(name, name))

    def set(self, name: str, value: Any) -> None:
        if self._fields is None:
            setattr(self._model, _ATTRIBUTES.get(name, name), value)
        elif value is None:
            self._fields.pop(name, None)
        else:
            self._fields[name] = value

    def ensure(self, name: str, empty: Any) -> Any:
        if self.get(name) is None:
            self.set(name, empty)
        return self.get(name)

    def new_reference(self, reference: Mapping[str, Any]) -> Any:
        if self._fields is not None:
            return dict(reference)
        values = {_ATTRIBUTES.get(name, name): value for name, value in reference.items()}
        return _sibling(self._model, "V1OwnerReference")(**values)


def _sibling(model: Any, name: str) -> Any:
    """Return another class of the client to which a model belongs."""
    from importlib import import_module

    package = type(model).__module__.partition(".")[0]
    return getattr(import_module(f"{package}.client"), name)


def _uid(reference: Any) -> Any:
    if isinstance(reference, Mapping):
        return reference.get("uid")
    return getattr(reference, "uid", None)


def _walk(manifests: Any, nested: Iterable[FieldSpec] = ()) -> Iterator[Any]:
    """Yield the manifests in a manifest, or in a list of lists of them, and the objects in ``nested`` fields."""
    if manifests is None:
        return
    if isinstance(manifests, (list, tuple, set, frozenset)):
        for manifest in manifests:
            yield from _walk(manifest, nested)
        return
    yield manifests
    for field in nested:
        inner = resolve(manifests, parse_field(field))
        if inner is not None:
            yield from _walk(inner)


def _owner(owner: Any) -> Mapping[str, Any]:
    if owner is not None:
        found = getattr(owner, "obj", owner)
        if isinstance(found, Mapping):
            return found
        raise TypeError(f"owner: {type(owner).__name__}: must be a mapping")
    invocation = current_invocation.get()
    if invocation is None or not isinstance(invocation.cause, ObjectCause):
        raise LookupError("the owner must be given outside of a handler of an object")
    return invocation.cause.body


def _metadata_of_owner() -> Mapping[str, Any]:
    """Return the metadata of the object that is being handled."""
    metadata: Mapping[str, Any] = _owner(None).get("metadata") or {}
    return metadata


def append_owner_reference(
    objs: Any,
    owner: Any = None,
    *,
    controller: bool | None = True,
    block_owner_deletion: bool | None = True,
) -> None:
    """Add an owner reference, unless the manifests have one for this owner."""
    reference = build_owner_reference(
        _owner(owner), controller=controller, block_owner_deletion=block_owner_deletion
    )
    for manifest in _walk(objs):
        metadata = _Metadata(manifest)
        references = metadata.ensure("ownerReferences", [])
        if all(_uid(known) != reference.get("uid") for known in references):
            references.append(metadata.new_reference(reference))


def remove_owner_reference(objs: Any, owner: Any = None) -> None:
    """Remove the owner reference for this owner."""
    uid = build_owner_reference(_owner(owner)).get("uid")
    for manifest in _walk(objs):
        references = _Metadata(manifest).ensure("ownerReferences", [])
        references[:] = [known for known in references if _uid(known) != uid]


def label(
    objs: Any,
    labels: Any = _UNSET,
    *,
    forced: bool = False,
    nested: str | Iterable[FieldSpec] | None = None,
) -> None:
    """Add labels, by default those of the owner; existing ones are replaced only if ``forced``.

    ``nested``: fields whose objects get the labels, too, such as ``spec.template``.
    """
    wanted = labels
    if labels is _UNSET:
        wanted = _metadata_of_owner().get("labels") or {}
    fields = [nested] if isinstance(nested, str) else list(nested or ())
    for manifest in _walk(objs, fields):
        existing = _Metadata(manifest).ensure("labels", {})
        for key, value in wanted.items():
            if forced or key not in existing:
                existing[key] = value


def harmonize_naming(
    objs: Any, name: Any = _UNSET, *, forced: bool = False, strict: bool = False
) -> None:
    """Name manifests without a name after the owner: its name as a prefix, or, if ``strict``, exactly its name.

    ``forced``: also those that have a name. Raises :class:`LookupError` if the name is not known.
    """
    wanted = name
    if name is _UNSET:
        wanted = _metadata_of_owner().get("name")
    if wanted is None:
        raise LookupError("the name must be given, because the owner has none")
    for manifest in _walk(objs):
        metadata = _Metadata(manifest)
        if forced or not (metadata.get("name") or metadata.get("generateName")):
            if strict:
                metadata.set("name", wanted)
                metadata.set("generateName", None)
            else:
                metadata.set("name", None)
                metadata.set("generateName", f"{wanted}-")


def adjust_namespace(objs: Any, namespace: Any = _UNSET, *, forced: bool = False) -> None:
    """Set the namespace of manifests without one to that of the owner; ``forced``: of all."""
    wanted = namespace
    if namespace is _UNSET:
        wanted = _metadata_of_owner().get("namespace")
    for manifest in _walk(objs):
        metadata = _Metadata(manifest)
        if forced or metadata.get("namespace") is None:
            metadata.set("namespace", wanted)


def adopt(
    objs: Any,
    owner: Any = None,
    *,
    forced: bool = False,
    strict: bool = False,
    nested: str | Iterable[FieldSpec] | None = None,
) -> None:
    """Make manifests children of the owner: owner reference, name, namespace and labels."""
    real = _owner(owner)
    metadata = real.get("metadata") or {}
    append_owner_reference(objs, real)
    harmonize_naming(objs, metadata.get("name"), forced=forced, strict=strict)
    adjust_namespace(objs, metadata.get("namespace"), forced=forced)
    label(objs, metadata.get("labels") or {}, forced=forced, nested=nested)
