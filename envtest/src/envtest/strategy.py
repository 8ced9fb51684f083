"""What is special about a resource: the hooks that the request pipeline calls, in this order.

``decode`` -> (admission) -> ``default`` -> ``prepare_create`` / ``prepare_update`` -> ``validate``.
The base class knows no kind at all: it accepts everything. Built-in kinds and custom resources bring
their own (``envtest.builtins``, ``envtest.crd``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from envtest.field_errors import FieldError
from envtest.objects import Object

if TYPE_CHECKING:
    from envtest.context import RequestContext

__all__ = ["Strategy"]


class Strategy:
    """The neutral strategy; objects are plain dicts, changed in place."""

    allow_create_on_update = False
    """PUT of an absent object creates it (Lease, Service, Event, Role, ...)."""

    allow_unconditional_update = True
    """PUT without a resourceVersion overwrites; custom resources refuse."""

    default_propagation = "background"
    """What a DELETE without a propagation policy does to dependents: ``background`` or ``orphan`` (Job)."""

    returns_deleted_object = False
    """DELETE answers with the object instead of a Status (Pod, Service, ServiceAccount)."""

    has_spec_generation = False
    """``metadata.generation`` is 1 at first and counts changes outside metadata and status."""

    def decode(self, obj: Object, ctx: RequestContext) -> list[str]:
        """Checks types, prunes unknown fields in place.

        Returns what strict decoding has to say, ``unknown field "spec.x"``, in order; raises StatusError
        (400) for what cannot be decoded. Also called on the result of a patch.
        """
        return []

    def restore(self, obj: Object) -> None:
        """Brings an object, in place, into the form that the version has now in which it was once stored."""

    def decode_stored(self, obj: Object) -> None:
        """Brings a stored object, in place, into the form of this version, to which it has been converted."""
        self.default(obj)

    def default(self, obj: Object) -> None:
        """Sets defaults, in place."""

    def grace_period(self, obj: Object, requested: int | None) -> int | None:
        """The seconds of grace of a deletion, given what the client asked for; ``None``: not deleted gracefully."""
        return None

    def begin_deletion(self, obj: Object, ctx: RequestContext) -> bool:
        """Marks ``obj`` in place on the first DELETE, for kinds that go in their own way.

        ``True``: it is marked, store it and answer with it. ``False``: delete it as everything else (or it has been
        marked before and may go now).
        """
        return False

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """Clears what a client may not set on creation (``status``), allocates (cluster IPs)."""

    def adopt(self, obj: Object) -> None:
        """Remembers what was handed out to an object that an earlier process stored."""

    def release(self, uid: str) -> None:
        """Takes back what was handed out to an object that is gone, or was not stored in the end."""

    def prepare_update(self, new: Object, old: Object, ctx: RequestContext) -> None:
        """Restores in ``new`` what this (sub)resource may not change; ``ctx.subresource`` says which it is."""

    def validate(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[FieldError]:
        """The errors of ``obj``; ``old`` is the stored object of an update, ``None`` on creation."""
        return ()

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[str]:
        """Texts for ``Warning`` headers: deprecated fields, questionable names."""
        return ()

    def validate_name(self, name: str, *, prefix: bool = False) -> list[str] | None:
        """What is wrong with a name (or with a generateName ``prefix``).

        ``None`` leaves the judgement to the default rule, a DNS subdomain.
        """
        return None
