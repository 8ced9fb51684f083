"""Resource-specific behavior: the hooks that the request pipeline calls, in this order.

``decode`` -> (admission) -> ``default`` -> ``prepare_create`` / ``prepare_update`` -> ``validate``.
The base class accepts everything. Built-in kinds and custom resources have their own subclasses (``envtest.builtins``,
``envtest.crd``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

from envtest.field_errors import FieldError
from envtest.objects import Object

if TYPE_CHECKING:
    from envtest.context import RequestContext

__all__ = ["Strategy"]


class MetadataChecks(NamedTuple):
    """How often the validation of a kind's updates checks the new metadata, and the change (which includes it)."""

    content: int = 1
    change: int = 1


class Strategy:
    """The neutral strategy. Objects are plain dicts and are changed in place."""

    allow_create_on_update = False
    """Whether PUT creates an absent object (Lease, Service, Event, Role, ...)."""

    allow_unconditional_update = True
    """Whether PUT without a resourceVersion overwrites the object; custom resources reject it."""

    allocates = False
    """Whether objects own allocated values, which :meth:`settle` and :meth:`release` return."""

    default_propagation = "background"
    """The propagation policy of a DELETE that specifies none: ``background``, or ``orphan`` (Job)."""

    metadata_checks = MetadataChecks()
    """How often updates of the kind check metadata in addition to the generic code."""

    returns_deleted_object = False
    """Whether DELETE returns the object instead of a Status (Pod, Service, ServiceAccount)."""

    stores_defaults_late = False
    """Whether the first update writes the object even if nothing changes: it adds defaults that a new one lacks."""

    has_spec_generation = False
    """Whether ``metadata.generation`` starts at 1 and counts changes outside metadata and status."""

    def decode(self, obj: Object, ctx: RequestContext) -> list[str]:
        """Check types and prune unknown fields, in place.

        Return the errors of strict decoding (``unknown field "spec.x"``) in order. Raises StatusError (400) for an
        object that cannot be decoded. Also called on the result of a patch.
        """
        return []

    def restore(self, obj: Object) -> None:
        """Convert an object in place from the schema with which it was stored to the current one of its version."""

    def decode_stored(self, obj: Object) -> None:
        """Adapt a stored object, in place, to the schema of this version after conversion to the version."""
        self.default(obj)

    def default(self, obj: Object) -> None:
        """Set defaults, in place."""

    def grace_period(self, obj: Object, requested: int | None) -> int | None:
        """Return the grace period of a deletion in seconds; ``None`` if the kind has no graceful deletion.

        ``requested`` is the client's ``gracePeriodSeconds``.
        """
        return None

    def begin_deletion(self, obj: Object, ctx: RequestContext) -> bool:
        """Mark ``obj`` in place on the first DELETE, for kinds with their own deletion procedure.

        ``True``: it is marked; store it and return it. ``False``: delete it like any other object (or it was marked
        before and can be deleted now).
        """
        return False

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """Clear the fields that a client must not set on creation (``status``); allocate values (cluster IPs)."""

    def fork(self) -> Self:
        """Return the strategy of a copy of the control plane, with a copy of the allocated values."""
        return self

    def adopt(self, obj: Object) -> None:
        """Mark the values of an object that an earlier process stored as allocated."""

    def settle(self, obj: Object) -> None:
        """Release the values that were allocated to an object, except those of ``obj``, which is stored."""

    def release(self, uid: str) -> None:
        """Release the values allocated to an object that was deleted or could not be stored."""

    def prepare_update(self, new: Object, old: Object, ctx: RequestContext) -> None:
        """Restore in ``new`` the fields that this resource, or the subresource in ``ctx``, must not change."""

    def validate(
        self, obj: Object, old: Object | None, ctx: RequestContext, metadata_errors: Sequence[FieldError] = ()
    ) -> Sequence[FieldError]:
        """Return the errors of ``obj``; ``old`` is the stored object on update, ``None`` on creation.

        ``metadata_errors`` were already found in the metadata, and are not returned.
        """
        return ()

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[str]:
        """Return messages for ``Warning`` headers: deprecated fields, discouraged names."""
        return ()

    def validate_name(self, name: str, *, prefix: bool = False) -> list[str] | None:
        """Return the errors of a name (or of a generateName ``prefix``).

        ``None`` applies the default rule, a DNS subdomain.
        """
        return None
