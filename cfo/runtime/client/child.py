"""Describes the objects that should exist for an owner, or that should not.

:func:`~cfo.runtime.client.children.reconcile_children` brings them to that state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Self, TypeAlias, TypedDict, Unpack

import msgspec

from cfo.runtime.client.client import Propagation
from cfo.runtime.objects.foreign_models import ForeignModel
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    TypedObject,
    gvk_of,
    key_of,
    require_gvk,
    require_key,
    to_object,
)
from cfo.runtime.process.arguments import (
    shown,
)

ObjectID: TypeAlias = tuple[GVK, NamespacedName]
"""Identifies an object in the API."""


class Update(Enum):
    """What happens to an object of the owner that already exists."""

    APPLY = auto()
    """Server-side apply, unless nothing would change: fields of other field managers stay."""
    KEEP = auto()
    """Nothing: the object is only created."""
    REPLACE = auto()
    """Each top-level field of the desired object except ``metadata`` replaces the existing one, with all that other
    clients added to it."""


class ChildOptions(TypedDict, total=False):
    """The optional fields of a :class:`Child`."""

    update: Update | Callable[[Object], Mapping[str, Any]]
    in_thread: bool
    belongs: Callable[[Object], bool] | None
    is_trusted: Callable[[Object], bool] | None
    adoption: Callable[[Object], Mapping[str, Any]] | None
    has_owner_reference: bool
    current: Object | None
    consequence: str
    fallback: Child | None
    requires: tuple[ObjectID, ...]
    propagation_policy: Propagation | None
    is_optional: bool
    can_wait: bool


class Child(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An object that should exist for an owner, or that should not.

    Create it with :meth:`present`, :meth:`computed` or :meth:`absent`, whose ``options`` are the fields from ``update``
    on.
    """

    gvk: GVK
    key: NamespacedName
    desired: Object | None = None
    compute: Callable[[Object | None], Object] | None = None
    update: Update | Callable[[Object], Mapping[str, Any]] = Update.APPLY
    """What happens to an existing object, or a function that returns the merge patch for it (empty: none is sent)."""
    in_thread: bool = False
    """Whether ``compute`` runs in a worker thread."""
    belongs: Callable[[Object], bool] | None = None
    """Returns whether an existing object is the owner's (default: the owner is its controller, by uid)."""
    is_trusted: Callable[[Object], bool] | None = None
    """Returns whether the content of an existing object of the owner may be used. Another one is deleted and created
    again, because an update would keep its other keys."""
    adoption: Callable[[Object], Mapping[str, Any]] | None = None
    """Returns a merge patch that an existing object gets before the update, for example of its ``managedFields``
    (empty: none is sent)."""
    has_owner_reference: bool = True
    """Whether the owner becomes the controller. It never does if it cannot: it is in a namespace, and the child is not
    in the same."""
    current: Object | None = None
    """The existing object, if the caller has read it from the API server."""
    consequence: str = ""
    """What it means for the user when an object of another owner has the name, in half a sentence."""
    fallback: Child | None = None
    """Written instead if the name is taken, or if a requirement is not met."""
    requires: tuple[ObjectID, ...] = ()
    """The children, earlier in the list, that must be as desired first."""
    propagation_policy: Propagation | None = None
    """What a deletion does with the objects that this one owns (default: that of the kind)."""
    is_optional: bool = False
    """Whether it may be missing because the API server does not serve its kind; otherwise, that is an error."""
    can_wait: bool = False
    """Whether it is written only after up to 30 seconds while another client overwrites or deletes it again and again,
    as a second operator does; both would write without end. Leave it false for what protects something, such as a
    NetworkPolicy: any user who may change it could keep it open. Updates by a function never wait, nor do deletions."""

    def __post_init__(self) -> None:
        require_gvk("Child", self.gvk)
        require_key("Child", self.key)

    def __repr__(self) -> str:
        # Without the object, which can be a Secret.
        return f"Child({id_text(self.id)})"

    @classmethod
    def present(
        cls, desired: Object | TypedObject | ForeignModel, **options: Unpack[ChildOptions]
    ) -> Self:
        """Return a child that exists as ``desired``."""
        obj = to_object(desired)
        return cls(gvk=gvk_of(obj), key=key_of(obj), desired=obj, **options)

    @classmethod
    def computed(
        cls,
        gvk: GVK,
        key: NamespacedName,
        compute: Callable[[Object | None], Object],
        **options: Unpack[ChildOptions],
    ) -> Self:
        """Return a child that is computed from the existing object, for example a Secret whose keys are kept.

        ``compute`` gets the existing object with its content (``None``: there is none). Its result, which must have
        this kind, namespace and name, is applied unless the object has all of it already.
        """
        return cls(gvk=gvk, key=key, compute=compute, **options)

    @classmethod
    def absent(cls, gvk: GVK, key: NamespacedName, **options: Unpack[ChildOptions]) -> Self:
        """Return a child that does not exist: an object of the owner with this name is deleted."""
        return cls(gvk=gvk, key=key, **options)

    @property
    def id(self) -> ObjectID:
        """Its kind, namespace and name."""
        return self.gvk, self.key

    @property
    def is_absent(self) -> bool:
        """Whether it should not exist."""
        return self.desired is None and self.compute is None


def require_id(name: str, value: object) -> None:
    """Raise :class:`TypeError` if ``value`` is not the id of a child; ``name`` is what got it."""
    if not is_id(value):
        raise TypeError(f"{name}: {shown(value)}: must be the id of a child, such as child.id")


def is_id(value: object) -> bool:
    """Return whether ``value`` is the id of a child."""
    if not isinstance(value, tuple) or len(value) != 2:
        return False
    gvk, key = value
    return isinstance(gvk, GVK) and isinstance(key, NamespacedName)


def id_text(child_id: ObjectID) -> str:
    """Return kind, namespace and name of a child, for messages."""
    gvk, key = child_id
    return f"{gvk.kind} {key}"
