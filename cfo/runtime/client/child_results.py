"""What became of the children of an owner."""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import Enum, auto
from typing import Final

import msgspec

from cfo.runtime.client.child import Child, ObjectID, require_id
from cfo.runtime.client.name_checks import NameChecks, WantedName
from cfo.runtime.client.unread_errors import collect
from cfo.runtime.objects.errors import ReconcileError, raise_together
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    controller_of,
    gvk_of,
    name_of,
    namespace_of,
    require_gvk,
    require_key,
    uid_of,
)
from cfo.runtime.process.arguments import InvalidArgument

PREDECESSOR_RETRY_SECONDS: Final = 5.0
"""How long to wait for the garbage collection of an object whose owner was deleted and created again."""


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
        """The seconds until the next reconcile; 0 if none is needed. Use :meth:`retry` for an earlier one."""
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
        require_id("ChildResults", child_id)
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
        """Request another reconcile after at most ``seconds``, such as for a deadline of the caller.

        Raises :class:`InvalidArgument` unless ``seconds`` is more than 0: 0 in :attr:`retry_after` means never.
        """
        if not 0 < seconds < math.inf:
            raise InvalidArgument(f"retry: {seconds!r:.200} seconds: must be more than 0")
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
            f"{title(obj)} already exists{place} and does not belong to this {gvk_of(owner).kind}"
        )
        controller = controller_of(obj)
        if controller is not None and not self.is_of_predecessor:
            kind = controller.get("kind")
            message += f", but to {kind} {controller.get('name')}"
            if kind == gvk_of(owner).kind:
                message += f" of {controller.get('apiVersion')}"
        super().__init__(message)


def _is_of_predecessor(obj: Object, owner: Object) -> bool:
    reference = controller_of(obj)
    if reference is None or reference.get("name") != name_of(owner):
        return False
    # Kinds of two API groups can have the same name, as those of InferenceStacks do.
    gvk = GVK.parse(str(reference.get("apiVersion")), str(reference.get("kind")))
    return gvk.same_kind(gvk_of(owner)) and reference.get("uid") != uid_of(owner)


def title(obj: Object) -> str:
    """Return kind and name of an object, for messages."""
    return f"{gvk_of(obj).kind} {name_of(obj)}"
