"""Bring the objects that belong to an owner to their desired state: the only way in which reconcilers write them.

A reconciler decides with pure functions which objects should exist, and describes each as a :class:`Child`.
:func:`reconcile_children` sends the requests. It leaves the objects of other owners unchanged:

* A cache cannot show that a name is free: it lags behind, and an informer that selects by labels or size never contains
  some objects. Therefore the first write of an object can only create it. If the name is taken, the object is read from
  the API server and its owner is checked.
* A change carries the uid and the resourceVersion that were checked, a deletion the uid, so neither reaches an object
  that another client created in the meantime. If the object has changed in the meantime, it is read, its owner is
  checked again, and the change carries only the uid: no client can prevent it by further changes.
* A failed write does not prevent the others. What no retry can change is reported once; all else is retried.
* What another client overwrites again and again is corrected later and later, but only if the child can wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from itertools import chain
from typing import Any, Final, Literal, Protocol, Self, TypeAlias, TypedDict, Unpack

import msgspec
import structlog
from anyio import to_thread
from anyio.lowlevel import checkpoint

from cfo.runtime.client.apply import ABSENT_VERSION
from cfo.runtime.client.client import CachedState, Client, PatchType, Propagation
from cfo.runtime.client.errors import (
    AlreadyExists,
    APIError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    UnknownKind,
    is_schema_mismatch,
)
from cfo.runtime.client.name_checks import NameChecks, WantedName
from cfo.runtime.client.overwrites import MAX_CORRECTION_DELAY, OVERWRITE_WINDOW
from cfo.runtime.client.unread_errors import collect
from cfo.runtime.objects.errors import ReconcileError, clear_frames, raise_together
from cfo.runtime.objects.foreign_models import ForeignModel
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    TypedObject,
    controller_of,
    gvk_of,
    is_controlled_by,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    owner_references_of,
    require_gvk,
    require_key,
    resource_version_of,
    set_controller_owner,
    to_object,
    uid_of,
)
from cfo.runtime.process.arguments import (
    InvalidArgument,
    require_plain_function,
    require_type,
    shown,
    truth_of,
    wrong_result,
)

_log = structlog.get_logger(__name__)

PREDECESSOR_RETRY_SECONDS: Final = 5.0
"""How long to wait for the garbage collection of an object whose owner was deleted and created again."""

_LASTING: Final = (Invalid, Forbidden, BadRequest)
"""Errors that a retry does not remove: the object, a policy, a quota or a permission has to be changed."""

_FEW_CHILDREN: Final = 8
"""How many children are written before other tasks run: those that are as desired send no request, so they await
nothing."""

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
        return f"Child({_id_text(self.id)})"

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


class Outcome(Enum):
    """What became of a child."""

    DONE = auto()
    """It is as desired."""
    TAKEN = auto()
    """An object of another owner has the name, or one with untrusted content that a finalizer keeps.

    It is checked again after 5 seconds, then after longer times, up to 5 minutes."""
    WAITING = auto()
    """An object of the owner, or of a deleted owner with the same name, is being deleted."""
    TERMINATING = auto()
    """Nothing can be created, because the namespace is being deleted."""
    REFUSED = auto()
    """The API server refused the request, and would refuse it again."""
    FAILED = auto()
    """The request failed, and a retry may succeed."""
    UNSERVED = auto()
    """The API server does not serve the kind, which is an error unless the child is optional or absent."""
    SKIPPED = auto()
    """A child that it requires is not as desired; the message names it."""
    OVERWRITTEN = auto()
    """Another client overwrites it again and again, so it is corrected later."""


_FAILED: Final = (Outcome.REFUSED, Outcome.FAILED)
"""The outcomes of failed requests."""


class ChildResult(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What became of ``child``.

    ``obj`` is the object as stored, or what ``keep`` returned for it. If another owner's object has the name, it is the
    metadata of that one, and if the outcome is ``WAITING``, the object that is being deleted. ``is_new`` and
    ``is_deleted``: whether a request created or deleted it. ``message`` is a sentence about any outcome except
    ``DONE``, without the consequence. ``warnings`` are those of the API server about its creation, for example about
    fields that it dropped; a creation by an apply only logs them.
    """

    child: Child
    outcome: Outcome
    obj: Object | None = None
    is_new: bool = False
    is_deleted: bool = False
    message: str = ""
    error: Exception | None = None
    warnings: tuple[str, ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether the child is as desired."""
        return self.outcome is Outcome.DONE

    @property
    def uses_fallback(self) -> bool:
        """Whether the fallback of the child is written instead."""
        is_blocked = self.outcome in (Outcome.SKIPPED, Outcome.TAKEN)
        return is_blocked and self.child.fallback is not None

    @property
    def is_error(self) -> bool:
        """Whether :meth:`ChildResults.raise_errors` raises its error."""
        if self.outcome is Outcome.UNSERVED:
            return not (self.child.is_optional or self.child.is_absent)
        return self.outcome in _FAILED


class ChildResults:
    """What became of all children of ``owner``, in their order; a child and its fallback have a result each.

    ``name_checks`` remembers for the next reconciles which names are taken.
    """

    def __init__(self, owner: Object, name_checks: NameChecks | None = None) -> None:
        self.owner = owner
        self._name_checks = NameChecks() if name_checks is None else name_checks
        self._results: dict[ObjectID, ChildResult] = {}
        self.retry_after = 0.0
        """The seconds until the next reconcile; 0 if none is needed."""
        self.created = 0
        """The number of created objects."""
        self.deleted = 0
        """The number of deleted objects."""
        self.is_limited = False
        """Whether a limit was reached, so that the other children are still to be written or deleted."""
        self._is_read = True

    def __iter__(self) -> Iterator[ChildResult]:
        self._is_read = True
        return iter(self._results.values())

    def __contains__(self, child_id: ObjectID) -> bool:
        _require_id("ChildResults", child_id)
        return child_id in self._results

    def get(self, gvk: GVK, key: NamespacedName) -> ChildResult | None:
        """Return the result of a child; ``None`` if there was no such child."""
        require_gvk("ChildResults", gvk)
        require_key("ChildResults", key)
        self._is_read = True
        return self._results.get((gvk, key))

    def stored(self, gvk: GVK, key: NamespacedName) -> Object | None:
        """Return the object of a child that is as desired, as stored; otherwise ``None``."""
        require_gvk("ChildResults", gvk)
        require_key("ChildResults", key)
        result = self._results.get((gvk, key))
        return result.obj if result is not None and result.is_done else None

    def is_done(self, *children: ObjectID) -> bool:
        """Return whether these children are as desired; without arguments: whether all are.

        Of a child whose fallback was written instead, only the fallback counts.
        """
        self._is_read = True
        if not children:
            return all(result.is_done or result.uses_fallback for result in self)
        return all(child in self and self._results[child].is_done for child in children)

    @property
    def errors(self) -> list[Exception]:
        """The errors of requests that failed or were refused, and of kinds that the API server does not serve."""
        self._is_read = True
        return self._errors

    @property
    def unread_errors(self) -> list[Exception]:
        """:attr:`errors`, unless the caller has read them, a result, or whether children are as desired."""
        return [] if self._is_read else self._errors

    @property
    def _errors(self) -> list[Exception]:
        results = self._results.values()
        return [result.error for result in results if result.is_error and result.error]

    def raise_errors(self) -> None:
        """Raise :attr:`errors`, so that the reconcile is retried."""
        raise_together(self.errors, "failed to write several objects")

    def require_reading(self) -> None:
        """Let the controller report the errors, if there are any and the caller does not read them."""
        if self._errors:
            self._is_read = False
            collect(self)

    def retry(self, seconds: float) -> None:
        """Request another reconcile after at most ``seconds``."""
        self.retry_after = min(self.retry_after or seconds, seconds)

    def add(self, result: ChildResult) -> None:
        """Add a result."""
        self._results[result.child.id] = result
        if result.is_new:
            self.created += 1
        if result.is_deleted:
            self.deleted += 1
        if result.uses_fallback:
            return
        if result.outcome is Outcome.TAKEN:
            name = WantedName(uid_of(self.owner), *result.child.id)
            self.retry(self._name_checks.next_delay(name))
        elif result.outcome is Outcome.WAITING and isinstance(result.error, NameTaken):
            self.retry(PREDECESSOR_RETRY_SECONDS)


class EventSink(Protocol):
    """Records Kubernetes Events, as :class:`~cfo.runtime.EventRecorder` does."""

    def event(
        self, obj: Object, type_: Literal["Normal", "Warning"], reason: str, message: str, /
    ) -> None:
        """Record an Event about ``obj``."""


class NameTaken(ReconcileError):
    """An object (``obj``) that does not belong to ``owner`` has the name of a child."""

    def __init__(self, obj: Object, owner: Object) -> None:
        self.obj = obj
        self.is_of_predecessor = _is_of_predecessor(obj, owner)
        """Whether the owner's name had another owner before, which was deleted: ``obj`` will be garbage-collected."""
        place = ""
        if namespace_of(obj) != namespace_of(owner) and namespace_of(obj):
            place = f" in namespace {namespace_of(obj)}"
        message = (
            f"{_title(obj)} already exists{place} and does not belong to this {gvk_of(owner).kind}"
        )
        controller = controller_of(obj)
        if controller is not None and not self.is_of_predecessor:
            kind = controller.get("kind")
            message += f", but to {kind} {controller.get('name')}"
            if kind == gvk_of(owner).kind:
                message += f" of {controller.get('apiVersion')}"
        super().__init__(message)


async def reconcile_children(
    client: Client,
    owner: Object | TypedObject | ForeignModel,
    children: Sequence[Child],
    *,
    prune: Iterable[ObjectID] = (),
    events: EventSink | None = None,
    block_owner_deletion: bool | None = None,
    max_created: int = 0,
    max_deleted: int = 0,
    keep: Callable[[Object], Object] | None = None,
) -> ChildResults:
    """Bring ``children`` of ``owner`` to their desired state, one after the other, and return what became of them.

    :param prune: objects in the cache; those that belong to the owner and are not among the children are deleted.
    :param events: records a Warning Event about the owner for each taken name (``NameTaken``; if the fallback was
        written instead, only with a ``consequence``), each lasting refusal (``FailedToReconcile``), and each object
        whose content was not trusted (``UntrustedContentReplaced``). Without it, a taken name is logged once.
    :param block_owner_deletion: whether a foreground deletion of the owner waits for the objects.
    :param max_created: the maximum number of objects to create; 0 means no limit. :attr:`ChildResults.is_limited` then
        asks for another reconcile.
    :param max_deleted: the same for objects to delete, absent children and pruned objects together.
    :param keep: returns what the results keep of an object (default: all). Many large objects take a multiple of their
        JSON.

    The errors of requests for a child are in the results. If a reconciler does not read them, the log has a warning,
    and its tests fail. Raises :class:`~cfo.runtime.client.OwnerDeleted`, :class:`~cfo.runtime.TransportError` and
    :class:`~cfo.runtime.DiscoveryIncomplete`. Before the first request, raises :class:`TypeError` for what is no
    :class:`Child`, and for an async function of one; :class:`ValueError` for two children with the same kind, namespace
    and name, for a requirement that is not an earlier child, and for a child without ``belongs`` that is not in the
    namespace of its owner, which thus cannot be its controller.
    """
    require_type("children", children, Iterable, "a list of Child, such as [Child.present(obj)]")
    listed = list(children)
    owner = to_object(owner)
    _check_children(listed, owner)
    if keep is not None:
        require_plain_function("keep", keep, "a function of an object")
    writer = _ChildWriter(client, owner, events, block_owner_deletion, keep)
    results = writer.results

    def pruned() -> Iterator[Child]:
        for pruned_id in prune:
            _require_id("prune", pruned_id)
            gvk, key = pruned_id
            if pruned_id not in results:
                yield Child.absent(gvk, key, propagation_policy=Propagation.BACKGROUND)

    def is_limit_reached() -> bool:
        if max_created and results.created >= max_created:
            return True
        return bool(max_deleted) and results.deleted >= max_deleted

    for index, child in enumerate(chain(listed, pruned())):
        if is_limit_reached():
            results.is_limited = True
            break
        if index >= _FEW_CHILDREN:
            await checkpoint()
        await writer.write(child)
    results.require_reading()
    return results


def _check_children(children: Iterable[Child], owner: Object) -> None:
    """Raise for children of ``owner`` that no order of writes could bring to their desired state."""
    ids: set[ObjectID] = set()
    possible: set[ObjectID] = set()  # of the earlier children and their fallbacks
    for child in children:
        if not isinstance(child, Child):
            raise TypeError(
                f"children: {shown(child)}: must be a Child, such as Child.present(obj)"
            )
        if child.id in ids:
            raise InvalidArgument(f"children: {_id_text(child.id)}: must not be there twice")
        ids.add(child.id)
        alternative: Child | None = child
        while alternative is not None:
            _check_identity(alternative)
            _check_functions(alternative)
            _check_namespace(alternative, owner)
            _check_requirements(child, alternative, possible)
            alternative = alternative.fallback
        alternative = child
        while alternative is not None:
            possible.add(alternative.id)
            alternative = alternative.fallback


def _check_requirements(child: Child, alternative: Child, possible: Collection[ObjectID]) -> None:
    """Raise for a requirement of ``child``, or of its fallback, that is not ``possible``: that of an earlier child."""
    requires = alternative.requires
    if not isinstance(requires, Collection) or not all(map(_is_id, requires)):
        raise TypeError(
            f"children: {_id_text(child.id)}: requires {requires!r:.200}: must be a list of the ids of earlier "
            "children, such as [other.id]"
        )
    for required in requires:
        if required not in possible:
            raise InvalidArgument(
                f"children: {_id_text(child.id)}: requires {_id_text(required)}, which must be an earlier child"
            )


def _require_id(name: str, value: object) -> None:
    """Raise :class:`TypeError` if ``value`` is not the id of a child; ``name`` is what got it."""
    if not _is_id(value):
        raise TypeError(f"{name}: {shown(value)}: must be the id of a child, such as child.id")


def _is_id(value: object) -> bool:
    if not isinstance(value, tuple) or len(value) != 2:
        return False
    gvk, key = value
    return isinstance(gvk, GVK) and isinstance(key, NamespacedName)


def _check_identity(child: Child) -> None:
    """Raise :class:`InvalidArgument` for a child without a field that every request for it needs."""
    gvk, key = child.id
    fields = {"apiVersion": gvk.version, "kind": gvk.kind, "metadata.name": key.name}
    for field, value in fields.items():
        if not value:
            raise InvalidArgument(f"children: {_id_text(child.id)}: {field} is missing")


def _check_functions(child: Child) -> None:
    """Raise :class:`TypeError` for an async function: its coroutine would count as true, or as a patch."""
    functions = {
        "compute": child.compute,
        "belongs": child.belongs,
        "is_trusted": child.is_trusted,
        "adoption": child.adoption,
        "update": None if isinstance(child.update, Update) else child.update,
    }
    for name, function in functions.items():
        if function is not None:
            require_plain_function(f"{_id_text(child.id)}: {name}", function, "a function")


def _check_namespace(child: Child, owner: Object) -> None:
    """Raise :class:`ValueError` for an object that cannot be recognized as one of ``owner``: it would be kept as is."""
    namespace = namespace_of(owner)
    if not namespace or child.belongs is not None:
        return
    if not child.key.namespace:
        raise InvalidArgument(
            f"children: {_id_text(child.id)}: metadata.namespace is missing: must be {namespace}, that of its owner; a "
            "cluster-scoped child needs belongs, a function that recognizes the object"
        )
    if child.key.namespace != namespace:
        raise InvalidArgument(
            f"children: {_id_text(child.id)}: not in the namespace of its owner {key_of(owner)}, which thus cannot be "
            "its controller: set belongs, a function that recognizes the object"
        )


def _check_computed(child: Child, computed: object) -> None:
    """Raise unless ``compute`` of a child returned the object that was checked: of its kind, namespace and name."""
    if isinstance(computed, dict):
        actual = gvk_of(computed), key_of(computed)
        if actual == child.id:
            return
        raise InvalidArgument(
            f"children: {_id_text(child.id)}: compute returned {_id_text(actual)}: must return an object of the "
            "child's kind, namespace and name"
        )
    raise _wrong_result(child, "compute", computed, "an object, a dict")


def _checked_patch(child: Child, function: str, patch: Any) -> Mapping[str, Any] | None:
    """Return the patch that a function of a child returned; raise :class:`TypeError` for what is none."""
    if patch is not None and not isinstance(patch, Mapping):
        raise _wrong_result(child, function, patch, "a merge patch, a dict")
    return patch


def _wrong_result(child: Child, function: str, result: object, allowed: str) -> TypeError:
    return wrong_result(f"children: {_id_text(child.id)}: {function}", result, allowed)


def _id_text(child_id: ObjectID) -> str:
    gvk, key = child_id
    return f"{gvk.kind} {key}"


class _Overwritten(Exception):
    """A child is not written for ``seconds``, because another client overwrites it again and again."""

    def __init__(self, seconds: float, current: Object | None) -> None:
        super().__init__(seconds)
        self.seconds = seconds
        self.current = current


class _ChildWriter:
    """Writes the children of ``owner`` and collects their results."""

    def __init__(
        self,
        client: Client,
        owner: Object,
        events: EventSink | None,
        block_owner_deletion: bool | None,
        keep: Callable[[Object], Object] | None,
    ) -> None:
        self.results = ChildResults(owner, client.name_checks)
        self._keep = keep
        self._client = client
        self._owner = owner
        self._events = events
        self._block_owner_deletion = block_owner_deletion

    async def write(self, child: Child) -> ChildResult:
        """Bring one child, or what is written instead of it, to its desired state; record and return the result."""
        if child.requires and not self.results.is_done(*child.requires):
            result = self._skipped(child)
        else:
            attempted = await self._attempt(child)
            self._check_watched(attempted)
            result = self._kept(attempted)
        if child.fallback is None or not result.uses_fallback:
            self._report(result)
            self.results.add(result)
            return result
        self.results.add(result)
        replacement = await self.write(child.fallback)
        if replacement.is_done and child.consequence:  # without one, nothing is wrong for the user
            self._report(result)
        return replacement

    def _check_watched(self, result: ChildResult) -> None:
        """Report an object of the owner whose events no informer delivers, for example because it lacks a label."""
        obj = result.obj
        if obj is None or not result.is_done:
            return
        child = result.child
        cached = self._client.cache.stored(child.gvk, child.key, partial=True)
        if cached is not None or not is_controlled_by(obj, self._owner):
            return
        owner = gvk_of(self._owner)
        self._client.cache.check_child(owner, child.gvk, child.key, labels_of(obj))

    def _kept(self, result: ChildResult) -> ChildResult:
        """Return the result without what it need not keep in memory while the other children are written."""
        if result.error is not None:
            clear_frames(result.error)
        if self._keep is None or result.obj is None:
            return result
        kept = self._keep(result.obj)
        if not isinstance(kept, dict):
            raise wrong_result("keep", kept, "an object, a dict")
        if isinstance(result.error, NameTaken):
            result.error.obj = kept
        return msgspec.structs.replace(result, obj=kept)

    def _skipped(self, child: Child) -> ChildResult:
        unmet = [required for required in child.requires if not self.results.is_done(required)]
        names = ", ".join(map(_id_text, unmet))
        message = f"{child.gvk.kind} {child.key.name} waits for {names}"
        return ChildResult(child=child, outcome=Outcome.SKIPPED, message=message)

    async def _attempt(self, child: Child) -> ChildResult:
        """Send the requests for a child; its errors become part of the result."""
        try:
            if child.is_absent:
                return await self._delete(child)
            return await self._create_or_update(child)
        except NameTaken as taken:
            outcome = Outcome.WAITING if taken.is_of_predecessor else Outcome.TAKEN
            # Another client's object can have any size, and only its metadata matters.
            taken.obj = {name: taken.obj[name] for name in ("apiVersion", "kind", "metadata")}
            return ChildResult(
                child=child, outcome=outcome, obj=taken.obj, message=str(taken), error=taken
            )
        except _Overwritten as overwritten:
            self.results.retry(overwritten.seconds)
            message = (
                f"{_id_text(child.id)} is overwritten by another client again and again, and corrected after at most "
                f"{MAX_CORRECTION_DELAY:g} s"
            )
            return ChildResult(
                child=child, outcome=Outcome.OVERWRITTEN, obj=overwritten.current, message=message
            )
        except UnknownKind as error:
            return ChildResult(
                child=child, outcome=Outcome.UNSERVED, message=str(error), error=error
            )
        except APIError as error:
            verb = "deleted" if child.is_absent else "written"
            message = f"{child.gvk.kind} {child.key.name} could not be {verb}: {error.message}"
            return ChildResult(
                child=child, outcome=_outcome_of(error), message=message, error=error
            )

    # Create and update.

    async def _create_or_update(self, child: Child) -> ChildResult:
        existing = await self._known(child)
        if existing is not None:
            return await self._update_checked(child, existing)
        warnings: list[str] = []
        try:
            created = await self._create(child, warnings)
        except Conflict:
            existing = await self._read(child)
            if existing is None:
                raise  # it was deleted in the meantime: a retry creates it
            return await self._update_checked(child, existing)
        return ChildResult(
            child=child,
            outcome=Outcome.DONE,
            obj=created,
            is_new=True,
            warnings=tuple(dict.fromkeys(warnings)),
        )

    async def _update_checked(self, child: Child, known: CachedState) -> ChildResult:
        """Update an existing object; if it changed since its owner was checked, check it once more.

        The second update does not depend on the resourceVersion: a client could change the object all the time.
        """
        try:
            return await self._update_owned(child, known)
        except Conflict as error:
            if error.causes:
                raise  # it names fields of another manager, which a retry does not release
            # Its owner reference may have been removed.
            live = await self._read(child)
            if live is None or uid_of(live.object) != uid_of(known.object):
                raise
        return await self._update_owned(child, live, unchanged=False)

    async def _known(self, child: Child) -> CachedState | None:
        """Return the object that the caller or the cache has; ``None`` does not mean that it does not exist."""
        if child.current is not None:
            return CachedState(child.current)
        known = self._client.cached(child.gvk, child.key)
        if known is not None and known.is_partial and child.compute is not None:
            return await self._read(child)
        return known

    async def _read(self, child: Child) -> CachedState | None:
        live = await self._client.get(child.gvk, child.key, live=True)
        return CachedState(live) if live is not None else None

    async def _create(self, child: Child, warnings: list[str]) -> Object:
        """Create the object and return it as stored; append the API server's warnings to ``warnings``.

        Raises :class:`Conflict` if the name is taken.
        """
        desired = self._with_owner(child, await self._desired(child, None))
        self._check_overwrites(child, None, desired)
        if child.update is Update.APPLY and child.compute is None:
            # The object is created by an apply, so that later applies own its fields.
            metadata = {**desired["metadata"], "resourceVersion": ABSENT_VERSION}
            created = await self._client.apply({**desired, "metadata": metadata})
        else:
            created = await self._client.create(desired, on_warning=warnings.append)
        if child.update is not Update.KEEP:  # the caller may have deleted it
            self._record_write(child, desired)
        return created

    async def _update_owned(
        self, child: Child, known: CachedState, *, unchanged: bool = True
    ) -> ChildResult:
        """Update an existing object, with ``unchanged`` only if it has not changed since it was read.

        Raises :class:`NameTaken` unless it belongs to the owner.
        """
        current = known.object
        if not self._belongs(child, current):
            raise NameTaken(current, self._owner)
        if is_deleting(current):
            return _waiting(child, current)
        if not _is_trusted(child, current):
            return await self._replace_object(child, current)
        adopted = await self._adopted(child, known)
        stored = await self._update(child, adopted, unchanged=unchanged)
        return ChildResult(child=child, outcome=Outcome.DONE, obj=stored)

    async def _adopted(self, child: Child, known: CachedState) -> CachedState:
        if child.adoption is None:
            return known
        patch = _checked_patch(child, "adoption", child.adoption(known.object))
        if not patch:
            return known
        # It may replace lists, such as the managedFields.
        return CachedState(await self._client.patch_object(known.object, patch, unchanged=True))

    async def _update(self, child: Child, known: CachedState, *, unchanged: bool) -> Object:
        current = known.object
        if child.update is Update.KEEP:
            return current
        if callable(child.update):
            patch = _checked_patch(child, "update", child.update(current))
            if not patch:
                return current
            return await self._client.patch_object(current, patch, unchanged=unchanged)
        desired = self._with_owner(child, await self._desired(child, current))
        self._check_overwrites(child, known, desired)
        if child.update is Update.REPLACE:
            stored = await self._replace_fields(child, current, desired)
        elif child.compute is not None and has_everything(current, desired):
            return current
        else:
            version = resource_version_of(current) if unchanged else ""
            stored = await self._client.apply(
                _with_uid(desired, current), version=version, cached=known
            )
        if resource_version_of(stored) != resource_version_of(current):
            self._record_write(child, desired)
        return stored

    def _check_overwrites(self, child: Child, known: CachedState | None, desired: Object) -> None:
        """Raise :class:`_Overwritten` if the child must wait until it is written again."""
        if not child.can_wait:
            return
        seconds = self._client.overwrites.delay(self._wanted_name(child), desired)
        if not seconds:
            return
        if known is None:
            raise _Overwritten(seconds, None)
        if self._would_change(child, known, desired):
            raise _Overwritten(seconds, known.object)

    def _would_change(self, child: Child, known: CachedState, desired: Object) -> bool:
        current = known.object
        if child.update is Update.REPLACE:
            return bool(_differing_fields(current, desired))
        if child.compute is not None:
            return not has_everything(current, desired)
        return self._client.would_apply(_with_uid(desired, current), known)

    def _record_write(self, child: Child, desired: Object) -> None:
        if not self._client.overwrites.wrote(self._wanted_name(child), desired):
            return
        correction = "it was corrected each time"
        if child.can_wait:
            correction += f", from now on after at most {MAX_CORRECTION_DELAY:g} s"
        self._record(
            "ChildOverwritten",
            f"Another client changed or deleted {_title(desired)} twice within {OVERWRITE_WINDOW:g} s, and "
            f"{correction}. If it was not you, ask an administrator to find another operator",
        )

    async def _replace_fields(self, child: Child, current: Object, desired: Object) -> Object:
        """Replace the fields that differ; an apply would keep what another client added to them."""
        changes = [
            {"op": "replace" if name in current else "add", "path": f"/{name}", "value": value}
            for name, value in _differing_fields(current, desired).items()
        ]
        if not changes:
            return current
        return await self._client.patch(
            child.gvk, child.key, changes, PatchType.JSON, uid=uid_of(current)
        )

    async def _replace_object(self, child: Child, current: Object) -> ChildResult:
        """Delete the object and create it again: an update would keep other keys, and an immutable object as is."""
        await self._client.delete(child.gvk, child.key, uid=uid_of(current))
        try:
            created = await self._client.create(
                self._with_owner(child, await self._desired(child, None))
            )
        except AlreadyExists:  # a finalizer keeps it
            message = f"{_title(current)} is being deleted, and its content is from another client"
            return ChildResult(child=child, outcome=Outcome.TAKEN, obj=current, message=message)
        self._record(
            "UntrustedContentReplaced",
            f"{_title(current)} had the labels of this {gvk_of(self._owner).kind}, but no owner reference with its "
            "uid: its content was replaced. Restart the pods that use it",
        )
        return ChildResult(child=child, outcome=Outcome.DONE, obj=created)

    async def _desired(self, child: Child, current: Object | None) -> Object:
        if child.compute is None:
            assert child.desired is not None
            return child.desired
        if child.in_thread:
            computed = await to_thread.run_sync(child.compute, current)
        else:
            computed = child.compute(current)
        _check_computed(child, computed)
        return computed

    def _with_owner(self, child: Child, desired: Object) -> Object:
        namespace = namespace_of(self._owner)
        if not child.has_owner_reference or namespace not in ("", namespace_of(desired)):
            return desired
        return set_controller_owner(
            desired, self._owner, block_owner_deletion=self._block_owner_deletion
        )

    # Delete.

    async def _delete(self, child: Child) -> ChildResult:
        """Delete the object that the cache has, if it belongs to the owner."""
        known = self._client.cached(child.gvk, child.key)
        current = child.current
        if current is None and known is not None:
            current = known.object
        try:
            is_deleted = await self._delete_owned(child, current)
        except Conflict:
            # Another object has the name. It may be another one of the owner.
            live = await self._client.get(child.gvk, child.key, live=True)
            is_deleted = await self._delete_owned(child, live)
        return ChildResult(child=child, outcome=Outcome.DONE, is_deleted=is_deleted)

    async def _delete_owned(self, child: Child, current: Object | None) -> bool:
        """Delete ``current`` if it belongs to the owner; return whether a request was sent."""
        # A second deletion of an object that a finalizer keeps would be a request without effect.
        if current is None or is_deleting(current) or not self._belongs(child, current):
            return False
        await self._client.delete(
            child.gvk,
            child.key,
            uid=uid_of(current),
            propagation_policy=child.propagation_policy,
        )
        return True

    # Ownership and reports.

    def _belongs(self, child: Child, obj: Object) -> bool:
        if child.belongs is not None:
            return _truth(child, "belongs", child.belongs(obj))
        return is_controlled_by(obj, self._owner)

    def _report(self, result: ChildResult) -> None:
        if result.outcome is Outcome.TERMINATING:
            # Not an error: the owner is in this namespace, and is deleted next.
            _log.debug(
                "Namespace is being deleted",
                kind=result.child.gvk.kind,
                object=result.child.key.name,
            )
        elif result.outcome is Outcome.TAKEN:
            self._report_taken(result)
        elif result.outcome is Outcome.REFUSED:
            self._record("FailedToReconcile", result.message)
        if result.is_error:
            # The caller raises the error, or decides what it means.
            _log.debug("Child could not be written or deleted", error=result.message)

    def _report_taken(self, result: ChildResult) -> None:
        message = result.message
        if result.child.consequence:
            message = f"{message}: {result.child.consequence}"
        self._record("NameTaken", message)
        if self._events is None and not result.uses_fallback:
            wanted = self._wanted_name(result.child)
            if self._client.name_checks.is_new(wanted):
                _log.warning("Name of a child is taken, will check it again", error=message)

    def _wanted_name(self, child: Child) -> WantedName:
        return WantedName(uid_of(self._owner), *child.id)

    def _record(self, reason: str, message: str) -> None:
        if self._events is not None:
            self._events.event(self._owner, "Warning", reason, message)


def _with_uid(desired: Object, current: Object) -> Object:
    """Return ``desired`` with the uid of the object that it is applied to, so that it reaches no other one."""
    return {**desired, "metadata": {**desired["metadata"], "uid": uid_of(current)}}


def _differing_fields(current: Object, desired: Object) -> dict[str, Any]:
    """Return the fields of ``desired``, except those that identify it, that ``current`` does not have."""
    return {
        name: value
        for name, value in desired.items()
        if name not in ("apiVersion", "kind", "metadata") and current.get(name) != value
    }


def has_everything(current: Object, desired: Object) -> bool:
    """Return whether ``current`` has all of ``desired``; other metadata and other keys of ``data`` are ignored."""
    metadata = current["metadata"]
    desired_metadata = desired["metadata"]
    for part in ("labels", "annotations"):
        if not _contains(metadata.get(part), desired_metadata.get(part)):
            return False
    references = owner_references_of(current)
    if any(reference not in references for reference in owner_references_of(desired)):
        return False
    if not _contains(current.get("data"), desired.get("data")):
        return False
    other_fields = set(desired) - {"apiVersion", "kind", "metadata", "data"}
    return all(current.get(field) == desired[field] for field in other_fields)


def _contains(current: Mapping[str, Any] | None, desired: Mapping[str, Any] | None) -> bool:
    return (desired or {}).items() <= (current or {}).items()


def _is_trusted(child: Child, current: Object) -> bool:
    if child.is_trusted is None:
        return True
    return _truth(child, "is_trusted", child.is_trusted(current))


def _truth(child: Child, name: str, result: object) -> bool:
    """Return whether the function ``name`` of a child returned what is true; see :func:`truth_of`."""
    if isinstance(result, bool):
        return result
    return truth_of(f"{_id_text(child.id)}: {name}", result)


def _waiting(child: Child, current: Object) -> ChildResult:
    """Return the result for a child whose object is being deleted."""
    message = f"{_title(current)} is being deleted"
    return ChildResult(child=child, outcome=Outcome.WAITING, obj=current, message=message)


def _outcome_of(error: APIError) -> Outcome:
    """Return what a failed request means for its child."""
    if any(cause.get("reason") == "NamespaceTerminating" for cause in error.causes):
        return Outcome.TERMINATING
    if is_schema_mismatch(error):
        return Outcome.REFUSED
    # A conflict with causes names fields of another manager, which a retry does not release.
    if isinstance(error, _LASTING) or (isinstance(error, Conflict) and error.causes):
        return Outcome.REFUSED
    return Outcome.FAILED


def _is_of_predecessor(obj: Object, owner: Object) -> bool:
    reference = controller_of(obj)
    if reference is None or reference.get("name") != name_of(owner):
        return False
    # Kinds of two API groups can have the same name, as those of InferenceStacks do.
    gvk = GVK.parse(str(reference.get("apiVersion")), str(reference.get("kind")))
    return gvk.same_kind(gvk_of(owner)) and reference.get("uid") != uid_of(owner)


def _title(obj: Object) -> str:
    return f"{gvk_of(obj).kind} {name_of(obj)}"
