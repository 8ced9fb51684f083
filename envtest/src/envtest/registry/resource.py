"""A resource, a request for it, and the behavior of its kind.

A :class:`ResourceInfo` describes one resource in one served version, and has the :class:`Strategy` of its kind. The
hooks of a strategy get the :class:`RequestContext`, which names the resource. The three types refer to each other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.field_errors import FieldError
from envtest.apimachinery.objects import Object, format_time
from envtest.apimachinery.user import User

if TYPE_CHECKING:
    from envtest.schema.schema_node import Schema

__all__ = [
    "Converter",
    "MetadataChecks",
    "RequestContext",
    "ResourceInfo",
    "Strategy",
    "Subresource",
]

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")

Converter = Callable[[Sequence[Object], str], Awaitable[list[Object]]]
"""Converts stored objects to an ``apiVersion``; raises StatusError."""


@dataclass(slots=True)
class RequestContext:
    """One request for a resource.

    ``verb`` is the API verb (``create``, ``deletecollection``, ...), ``subresource`` is empty for the object itself.
    ``operation`` is the admission operation (CREATE, UPDATE, DELETE, CONNECT). ``field_validation`` is ``Strict``,
    ``Warn`` or ``Ignore``. ``warnings`` become Warning headers, ``audit`` annotations of the audit event. ``sent`` is
    the object of a built-in kind as it was before it was decoded. ``created_by_status`` is true if a write of the
    status creates the object. ``has_whole_floats`` is true if the body of a custom resource may contain ``2.0``, which
    is a float until the object is stored. ``deadline`` is the time of the event loop at which the request has timed
    out.
    """

    user: User
    verb: str
    info: ResourceInfo
    namespace: str
    name: str
    subresource: str = ""
    operation: str = ""
    dry_run: bool = False
    field_manager: str = ""
    field_validation: str = "Warn"
    force: bool = False
    query: Mapping[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    audit: dict[str, str] = field(default_factory=dict)
    sent: Mapping[str, Any] = field(default_factory=dict)
    created_by_status: bool = False
    has_whole_floats: bool = False
    deadline: float | None = None
    moment: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def now(self) -> str:
        """The time of the request in the format of object metadata: RFC 3339, whole seconds, UTC."""
        return format_time(self.moment)

    def warn(self, text: str) -> None:
        """Add a Warning header unless the response already has it."""
        if text and text not in self.warnings:
            self.warnings.append(text)


class MetadataChecks(NamedTuple):
    """How often the validation of a kind's updates checks the new metadata, and the change (which includes it)."""

    content: int = 1
    change: int = 1


class Strategy:
    """The behavior of a kind: the hooks that the request pipeline calls, in this order.

    ``decode`` -> (admission) -> ``default`` -> ``prepare_create`` / ``prepare_update`` -> ``validate``.
    This class accepts everything. Built-in kinds and custom resources have their own subclasses (``envtest.builtins``,
    ``envtest.crd``). Objects are plain dicts and are changed in place.
    """

    allow_create_on_update = False
    """Whether PUT creates an absent object (Lease, Service, Event, Role, ...)."""

    status_creates = False
    """Whether a write of the status creates an absent object if the same write of the object does (Service)."""

    validates_metadata = True
    """Whether metadata is validated together with the object; otherwise only the metadata of valid objects (Event)."""

    has_qualified_finalizers = True
    """Whether finalizers must be standard names or have a domain, as in most built-in kinds."""

    allow_unconditional_update = True
    """Whether PUT without a resourceVersion overwrites the object; custom resources reject it."""

    allocates = False
    """Whether objects own allocated values, which :meth:`settle` and :meth:`release` return."""

    default_propagation = "background"
    """The propagation policy of a DELETE that specifies none: ``background``, or ``orphan`` (Job)."""

    foreground_without_orphans = False
    """Whether a DELETE with ``orphanDependents: false`` has the policy ``Foreground`` (Namespace)."""

    metadata_checks = MetadataChecks()
    status_metadata_checks = MetadataChecks(content=0)
    """The checks if the status is updated, or if a namespace is finalized."""
    """How often updates of the kind check metadata in addition to the generic code."""

    returns_deleted_object = False
    """Whether DELETE returns the object instead of a Status (Pod, Service, ServiceAccount)."""

    stores_defaults_late = False
    """Whether the first update writes the object even if nothing changes: it adds defaults that a new one lacks."""

    generates_names = True
    """Whether random characters follow a ``generateName``."""

    status_warns = False
    """Whether updates of the status warn."""

    has_spec_generation = False
    """Whether ``metadata.generation`` starts at 1 and counts changes outside metadata and status."""

    def empty(self) -> Object:
        """Return an object without content, with the fields that kube-apiserver always writes, as in bookmarks."""
        return {}

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

    def default_applied(self, obj: Object) -> None:
        """Set defaults, in place, in an object that results from an apply."""
        self.default(obj)

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

    def drop_disabled(self, obj: Object) -> None:
        """Remove the fields of features that are disabled, in place; clients own them nevertheless."""

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """Clear the fields that a client must not set on creation (``status``); allocate values (cluster IPs)."""

    def fork(self) -> Self:
        """Return the strategy for a copy of the control plane, with a copy of the allocated values."""
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
        self,
        obj: Object,
        old: Object | None,
        ctx: RequestContext,
        metadata_errors: Sequence[FieldError] = (),
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


@dataclass(frozen=True, slots=True)
class Subresource:
    """A subresource as discovery lists it.

    ``group``, ``version`` and ``kind`` describe its body (``autoscaling/v1 Scale``, ...); empty values mean the values
    of the resource itself. ``settings`` holds data for its handler (a CRD's scale paths).
    """

    name: str
    kind: str = ""
    group: str = ""
    version: str = ""
    verbs: tuple[str, ...] = ("get", "patch", "update")
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ResourceInfo:
    """One resource in one served version.

    ``storage`` is the group and resource under which the store holds the objects, ``storage_version`` the
    ``apiVersion`` in which they are encoded. ``convert`` is needed if the served version differs from it; ``None``
    means that only ``apiVersion`` changes. ``selectable_fields`` are paths (``.spec.size``) that field selectors may
    use in addition to ``metadata.name`` and ``metadata.namespace``. ``columns`` are a CRD's
    ``additionalPrinterColumns``.
    """

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    strategy: Strategy
    list_kind: str = ""
    verbs: tuple[str, ...] = ALL_VERBS
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: dict[str, Subresource] = field(default_factory=dict)
    schema: Schema | None = None
    is_crd: bool = False
    columns: Sequence[Mapping[str, Any]] = ()
    selectable_fields: tuple[str, ...] = ()
    storage: GroupResource = field(default_factory=lambda: GroupResource("", ""))
    storage_version: str = ""
    storage_version_hash: str = ""
    convert: Converter | None = None
    converts_by_webhook: bool = False
    """Whether ``convert`` calls a conversion webhook."""
    storage_kind: str = ""
    read_through: int = 0
    """Records up to this store revision were written under an older schema; they are pruned and defaulted when read."""
    versions: frozenset[str] = frozenset()
    """The ``apiVersion`` of each version of the CRD, whether it is served or not."""
    unreadable: str = ""
    """The error of reading the first object that is stored in a version which the CRD no longer has."""
    terminating: bool = False
    """Whether the CRD is being deleted: its objects can be read and deleted, but not created."""
    deprecation: str = ""
    """The warning that every request for this version gets."""
    allocates: bool = False
    """Whether the strategy holds the allocations of one control plane (cluster IPs)."""
    resource: GroupResource = field(init=False)
    """The group and resource, as error messages name it."""

    def __post_init__(self) -> None:
        self.resource = GroupResource(self.group, self.plural)
        self.list_kind = self.list_kind or f"{self.kind}List"
        if not self.storage.resource:
            self.storage = self.resource
        self.storage_version = self.storage_version or self.api_version

    @property
    def go_package(self) -> str:
        """The package of kube-apiserver's internal type, which some messages contain."""
        return "core" if self.kind == "Event" else self.group.split(".")[0] or "core"

    def fork(self) -> ResourceInfo:
        """Return a copy whose strategy has its own allocations."""
        copied = copy(self)
        copied.strategy = self.strategy.fork()
        return copied

    @property
    def api_version(self) -> str:
        """``group/version`` as in ``apiVersion``."""
        return f"{self.group}/{self.version}" if self.group else self.version
