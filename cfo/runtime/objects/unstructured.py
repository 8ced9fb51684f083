"""The object model: plain dicts, and accessors for the fields that every Kubernetes object has.

An object is a plain ``dict`` in its wire form (see docs/architecture.md). Nothing is converted, so unknown fields
survive every read-modify-write. A :class:`TypedObject` is the same object as an instance of a class. The client and the
functions here, which read and write the standard metadata (`ObjectMeta`_) of any kind, accept both. None of them copies
a dict: objects returned by the cache are already copies. What they return of an instance is a copy.

.. _ObjectMeta: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/object-meta/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import (
    Any,
    ClassVar,
    Final,
    NamedTuple,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

from cfo.runtime.objects.foreign_models import ForeignModel, model_to_object
from cfo.runtime.process.arguments import InvalidArgument, require_type, shown
from cfo.runtime.process.printable import printable

MAX_UID: Final = 64
"""The maximum length of the uid of an owner; an API server's uids have 36 characters."""

MAX_OWNER_PART: Final = 320
"""The maximum length of the other strings of an owner reference; the longest is an API group with its version."""

_MAX_MESSAGE: Final = 32768

Object: TypeAlias = dict[str, Any]
"""A Kubernetes object in its wire form."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
V = TypeVar("V")


class GVK(NamedTuple):
    """Group, version and kind; the core group is the empty string."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        """``group/version``, or only ``version`` in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @classmethod
    def parse(cls, api_version: str, kind: str) -> GVK:
        """Return the GVK for the ``apiVersion`` and ``kind`` of an object or a reference."""
        group, _, version = api_version.rpartition("/")
        return cls(group, version, kind)

    def same_kind(self, other: GVK) -> bool:
        """Return whether ``other`` is the same kind of the same group, in whichever version."""
        return self.kind == other.kind and self.group == other.group

    @property
    def gvk(self) -> GVK:
        """This GVK itself, which is therefore an :class:`ObjectKind` whose objects are dicts."""
        return self

    def decode(self, obj: Object) -> Object:
        """Return ``obj`` unchanged (see :class:`ObjectKind`)."""
        return obj

    def __str__(self) -> str:
        if not self.group:
            return f"{self.kind}.{self.version}"
        return f"{self.kind}.{self.version}.{self.group}"


class ObjectKind(Protocol[T_co]):
    """A kind, whose objects are read as ``T_co``: a :class:`GVK` (dicts), or a class of :class:`TypedObject`."""

    @property
    def gvk(self) -> GVK:
        """Group, version and kind."""
        ...

    def decode(self, obj: Object, /) -> T_co:
        """Return ``obj``, which the caller no longer uses, as ``T_co``."""
        ...


def require_kind(name: str, kind: object) -> GVK:
    """Return the GVK of ``kind``, which the function ``name`` got. Raises :class:`TypeError` if it is no kind.

    Raises :class:`ValueError` for a group or a version with a slash, which is an ``apiVersion``, for both in the wrong
    order, and for ``core``.
    """
    gvk = getattr(kind, "gvk", None)
    if not isinstance(gvk, GVK):
        raise TypeError(
            f"{name}: {shown(kind)}: must be a kind: a GVK, such as CONFIG_MAP, or a class that declares one"
        )
    if "/" in gvk.group or "/" in gvk.version:
        raise InvalidArgument(
            f"{name}: {gvk!r:.200}: group and version must be separate, as in GVK('apps', 'v1', 'Deployment')"
        )
    if "." in gvk.version or _is_version(gvk.group):
        raise InvalidArgument(
            f"{name}: {gvk!r:.200}: the group must come first, as in GVK('apps', 'v1', 'Deployment')"
        )
    if gvk.group == "core":
        raise InvalidArgument(
            f"{name}: {gvk!r:.200}: the group of core kinds must be empty, as in GVK('', 'v1', 'Pod')"
        )
    return gvk


def _is_version(group: str) -> bool:
    """Return whether a group is a version, such as ``v1`` or ``v1beta1``."""
    return group.startswith("v") and group[1:2].isdigit() and "." not in group


def require_gvk(name: str, gvk: object) -> None:
    """Raise :class:`TypeError` if ``gvk``, which the function ``name`` got, is not a :class:`GVK`."""
    if not isinstance(gvk, GVK):
        raise TypeError(f"{name}: {shown(gvk)}: must be a GVK, such as CONFIG_MAP or Website.gvk")


def require_key(name: object, key: object) -> None:
    """Raise :class:`TypeError` if ``key`` is not a :class:`NamespacedName` of two strings.

    ``name`` is the function or kind.
    """
    if isinstance(key, NamespacedName):
        namespace, key_name = key
        if isinstance(namespace, str) and isinstance(key_name, str):
            return
    raise TypeError(
        f"{name}: {shown(key)}: must be a NamespacedName of two strings, as in NamespacedName(namespace, name)"
    )


def require_namespace(name: str, namespace: object) -> None:
    """Raise :class:`TypeError` if ``namespace``, which the function ``name`` got, is not a string."""
    if not isinstance(namespace, str):
        raise TypeError(
            f"{name}: namespace: {shown(namespace)}: must be the name of a namespace, a string"
        )


ByKind: TypeAlias = Mapping[GVK, V] | Mapping[ObjectKind[Any], V]
"""Values by kind; a GVK and a class of this kind are the same key."""


class TypedObject:
    """Base class of the classes whose instances are objects of one kind (see :class:`cfo.runtime.CustomResource`)."""

    gvk: ClassVar[GVK]

    @classmethod
    def decode(cls, obj: Object) -> Self:
        """Return ``obj`` as an instance. Raises :class:`cfo.runtime.objects.InvalidResource` if it does not fit."""
        raise NotImplementedError

    @classmethod
    def intent(cls, key: NamespacedName, **fields: Any) -> Object:
        """Return the wire form of an object that has only ``fields``."""
        raise NotImplementedError

    def to_object(self) -> Object:
        """Return the object in its wire form."""
        raise NotImplementedError

    def wire_metadata(self) -> Mapping[str, Any]:
        """Return a copy of ``metadata`` in its wire form."""
        return self.to_object().get("metadata") or {}


TypedT = TypeVar("TypedT", bound=TypedObject)


def to_object(obj: Object | TypedObject | ForeignModel) -> Object:
    """Return the wire form of ``obj``: a dict is returned unchanged.

    Raises :class:`ValueError` for a generated model without apiVersion or kind.
    """
    if isinstance(obj, dict):
        return obj
    return obj.to_object() if isinstance(obj, TypedObject) else model_to_object(obj)


def kind_of(obj: Object | TypedObject) -> ObjectKind[Any]:
    """Return the kind that decodes an object of the same type as ``obj``: the class of an instance, or a GVK."""
    return type(obj) if isinstance(obj, TypedObject) else gvk_of(obj)


def split_kind(obj: Object | TypedObject | ForeignModel) -> tuple[ObjectKind[Any], Object]:
    """Return the kind that decodes a new state of ``obj``, and the wire form of ``obj``.

    A new state of a :class:`ForeignModel` is a dict. Raises :class:`ValueError` for an object without apiVersion or
    kind.
    """
    wire = to_object(obj)
    missing = [name for name in ("apiVersion", "kind") if not wire.get(name)]
    if missing:
        raise InvalidArgument(
            f"object {name_of(wire)!r:.200}: {', '.join(missing)}: must not be empty"
        )
    kind = type(obj) if isinstance(obj, TypedObject) else gvk_of(wire)
    return kind, wire


class GVR(NamedTuple):
    """Group, version and resource, the plural name in URLs."""

    group: str
    version: str
    resource: str

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


class NamespacedName(NamedTuple):
    """The namespace and name of an object; ``namespace`` is empty for cluster-scoped objects."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def _metadata(obj: Mapping[str, Any] | TypedObject) -> Mapping[str, Any]:
    if isinstance(obj, TypedObject):
        return obj.wire_metadata()
    return obj.get("metadata") or {}


def gvk_of(obj: Mapping[str, Any] | TypedObject) -> GVK:
    """Return the GVK from the ``apiVersion`` and ``kind`` of an object; missing parts are empty."""
    if isinstance(obj, TypedObject):
        return obj.gvk
    return GVK.parse(obj.get("apiVersion") or "", obj.get("kind") or "")


def name_of(obj: Mapping[str, Any] | TypedObject) -> str:
    """Return ``metadata.name``, or the empty string."""
    return _metadata(obj).get("name") or ""


def namespace_of(obj: Mapping[str, Any] | TypedObject) -> str:
    """Return ``metadata.namespace``, or the empty string."""
    return _metadata(obj).get("namespace") or ""


def key_of(obj: Mapping[str, Any] | TypedObject) -> NamespacedName:
    """Return the namespace and name of the object."""
    metadata = _metadata(obj)
    return NamespacedName(metadata.get("namespace") or "", metadata.get("name") or "")


def uid_of(obj: Mapping[str, Any] | TypedObject) -> str:
    """Return ``metadata.uid``, or the empty string for an object that was never persisted."""
    return _metadata(obj).get("uid") or ""


def resource_version_of(obj: Mapping[str, Any] | TypedObject) -> str:
    """Return ``metadata.resourceVersion``, or the empty string."""
    return _metadata(obj).get("resourceVersion") or ""


def labels_of(obj: Mapping[str, Any] | TypedObject) -> dict[str, str]:
    """Return ``metadata.labels``, or an empty dict (not attached to the object)."""
    return _metadata(obj).get("labels") or {}


def annotations_of(obj: Mapping[str, Any] | TypedObject) -> dict[str, str]:
    """Return ``metadata.annotations``, or an empty dict (not attached to the object)."""
    return _metadata(obj).get("annotations") or {}


def is_deleting(obj: Mapping[str, Any] | TypedObject) -> bool:
    """Return whether deletion was requested, so that only finalizers delay it."""
    return bool(_metadata(obj).get("deletionTimestamp"))


def has_finalizer(obj: Mapping[str, Any] | TypedObject, finalizer: str) -> bool:
    """Return whether the object has ``finalizer``."""
    return finalizer in (_metadata(obj).get("finalizers") or ())


def owner_references_of(obj: Mapping[str, Any] | TypedObject) -> list[dict[str, Any]]:
    """Return ``metadata.ownerReferences``, or an empty list."""
    return _metadata(obj).get("ownerReferences") or []


def new_object(
    gvk: GVK,
    name: str,
    namespace: str = "",
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **fields: Any,
) -> Object:
    """Return an object with further top-level ``fields``; metadata that is empty is left out."""
    require_gvk("new_object", gvk)
    require_type("new_object: name", name, str, "a string")
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": dict(labels or {}),
        "annotations": annotations,
    }
    present = {key: value for key, value in metadata.items() if value}
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": present, **fields}


def owner_reference(
    owner: Mapping[str, Any] | TypedObject,
    *,
    controller: bool = True,
    block_owner_deletion: bool | None = None,
) -> dict[str, Any]:
    """Return an owner reference to ``owner``, which must have been persisted, because the reference contains its uid.

    ``controller`` marks the single managing controller; ``block_owner_deletion`` is written only if it is not ``None``
    (it requires permission to update the finalizers of the owner). Raises :class:`ValueError` if a part is missing.
    """
    gvk = gvk_of(owner)
    reference: dict[str, Any] = {
        "apiVersion": gvk.api_version,
        "kind": gvk.kind,
        "name": name_of(owner),
        "uid": uid_of(owner),
    }
    missing = [name for name, value in reference.items() if not value]
    if missing:
        raise InvalidArgument(
            f"owner {gvk} {key_of(owner)}: {', '.join(missing)}: must not be empty; pass the object as the API server "
            "returned it"
        )
    if controller:
        reference["controller"] = True
    if block_owner_deletion is not None:
        reference["blockOwnerDeletion"] = block_owner_deletion
    return reference


@overload
def set_controller_owner(
    obj: Object, owner: Object | TypedObject, *, block_owner_deletion: bool | None = None
) -> Object: ...
@overload
def set_controller_owner(
    obj: TypedT, owner: Object | TypedObject, *, block_owner_deletion: bool | None = None
) -> TypedT: ...


def set_controller_owner(
    obj: Object | TypedObject,
    owner: Object | TypedObject,
    *,
    block_owner_deletion: bool | None = None,
) -> Object | TypedObject:
    """Return a copy of the object with ``owner`` as its controller.

    It is for an object that is created. An apply of the copy takes an existing object from its owner:
    :func:`~cfo.runtime.client.reconcile_children` checks whose object it is.

    Raises :class:`ValueError` if ``owner`` is in another namespace, or was never persisted.
    """
    if namespace_of(owner) and not namespace_of(obj):
        raise InvalidArgument(
            f"{gvk_of(obj)} {name_of(obj)}: metadata.namespace is missing: must be {namespace_of(owner)}, that "
            "of its owner; a cluster-scoped object cannot have an owner that is in a namespace"
        )
    if namespace_of(owner) and namespace_of(owner) != namespace_of(obj):
        raise InvalidArgument(
            f"{gvk_of(obj)} {key_of(obj)}: its owner {key_of(owner)} is in another namespace; "
            "the garbage collector would delete it"
        )
    reference = owner_reference(owner, block_owner_deletion=block_owner_deletion)
    others = [other for other in owner_references_of(obj) if other.get("uid") != reference["uid"]]
    metadata = {**_metadata(obj), "ownerReferences": [*others, reference]}
    kind, wire = split_kind(obj)
    owned: Object | TypedObject = kind.decode({**wire, "metadata": metadata})
    return owned


def controller_of(obj: Mapping[str, Any] | TypedObject) -> dict[str, Any] | None:
    """Return the owner reference whose ``controller`` is true, or ``None``; a copy, cut by :func:`owner_part`."""
    for reference in owner_references_of(obj):
        if reference.get("controller"):
            return {
                name: owner_part(name, value) if isinstance(value, str) else value
                for name, value in reference.items()
            }
    return None


def owner_part(field: str, value: str) -> str:
    """Return a string of an owner reference, cut after one more character than that of an existing object can have.

    An API server accepts any strings there, so that a tenant could fill the memory of those who keep them.
    """
    limit = MAX_UID if field == "uid" else MAX_OWNER_PART
    return value[: limit + 1]


def is_controlled_by(
    obj: Mapping[str, Any] | TypedObject, owner: Mapping[str, Any] | TypedObject
) -> bool:
    """Return whether ``owner`` (by uid) is the managing controller of ``obj``."""
    reference = controller_of(obj)
    return reference is not None and reference.get("uid") == uid_of(owner)


def copied(value: T) -> T:
    """Return a copy of ``value`` that shares no dict or list with it, as :func:`copy.deepcopy` of JSON, but faster."""
    if isinstance(value, dict):
        copied_dict = {key: copied(item) for key, item in value.items()}
        return cast("T", copied_dict)
    if isinstance(value, list):
        copied_list = [copied(item) for item in value]
        return cast("T", copied_list)
    return value


def merged(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``target`` with a merge patch (RFC 7386) applied; modifies neither, and shares unchanged maps."""
    result = dict(target)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            current = result.get(key)
            if not isinstance(current, Mapping):
                current = {}
            result[key] = merged(current, value)
        else:
            result[key] = value
    return result


def find_condition(
    conditions: Iterable[Mapping[str, Any]] | None, condition_type: str
) -> Mapping[str, Any] | None:
    """Return the condition of type ``condition_type``, or ``None``."""
    for condition in conditions or ():
        if condition.get("type") == condition_type:
            return condition
    return None


def set_condition(conditions: list[dict[str, Any]], condition: dict[str, Any], *, now: str) -> bool:
    """Add or replace the condition of the same type; return whether anything changed.

    ``lastTransitionTime`` is set to ``now`` (RFC 3339) only if the status changes, as apimachinery's
    ``meta.SetStatusCondition`` does. The message is made printable and is cut at 32768 characters.
    """
    if "message" in condition:
        condition = {**condition, "message": printable(condition["message"], _MAX_MESSAGE)}
    for index, existing in enumerate(conditions):
        if existing.get("type") != condition["type"]:
            continue
        transition_time = now
        if existing.get("status") == condition["status"]:
            transition_time = existing.get("lastTransitionTime", now)
        replaced = {**existing, **condition, "lastTransitionTime": transition_time}
        conditions[index] = replaced
        return replaced != existing
    conditions.append({**condition, "lastTransitionTime": now})
    return True
