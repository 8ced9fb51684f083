"""Write the objects that belong to an owner, and leave the objects of other owners unchanged.

A cache cannot show that a name is free: it lags behind, and an informer that selects by labels or size never contains
some objects. Therefore the first write of an object can only create it. If the name is taken, the object is read from
the API server and its owner is checked. A change carries the uid and the resourceVersion that were checked, a deletion
the uid, so neither reaches an object that another client created in the meantime, and a change none whose owner
reference was removed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import structlog

from cfo.runtime.client.apply import ABSENT_VERSION
from cfo.runtime.client.children import NameTaken
from cfo.runtime.client.client import Client, Propagation
from cfo.runtime.client.errors import APIError, BadRequest, Conflict, Forbidden, Invalid
from cfo.runtime.objects.errors import raise_together
from cfo.runtime.objects.unstructured import (
    GVK,
    Object,
    gvk_of,
    is_controlled_by,
    is_deleting,
    key_of,
    resource_version_of,
    set_controller_owner,
    uid_of,
)

T = TypeVar("T")

_log = structlog.get_logger(__name__)

_LASTING: Final = (Invalid, Forbidden, BadRequest)
"""Errors that a retry does not remove: someone has to change the object, a policy, a quota or a permission."""


async def apply_to(client: Client, desired: Object, uid: str, version: str = "") -> Object:
    """Apply ``desired`` to the object with this uid; an empty ``uid`` only creates. Raises :class:`Conflict`.

    ``version``: the resourceVersion that the object must still have, if ``desired`` was computed from it.
    """
    precondition = {"uid": uid} if uid else {"resourceVersion": ABSENT_VERSION}
    return await client.apply(_with_metadata(desired, precondition), version=version)


async def patch_checked(
    client: Client,
    obj: Object,
    patch: Mapping[str, Any],
    *,
    unchanged: bool = False,
    subresource: str = "",
) -> Object:
    """Send a merge patch to ``obj``, unless it was deleted or recreated; return it as stored.

    With ``unchanged``, any change of ``obj`` raises :class:`Conflict`: for a patch that replaces what another client
    may have changed, for example a list.
    """
    precondition = {"uid": uid_of(obj)}
    if unchanged:
        precondition["resourceVersion"] = resource_version_of(obj)
    return await client.patch(
        gvk_of(obj), key_of(obj), _with_metadata(patch, precondition), subresource=subresource
    )


async def create_or_read(
    client: Client, desired: Object, *, by_apply: bool = False
) -> tuple[Object, bool]:
    """Create ``desired``, with a POST or an apply; return the stored object and whether it was created.

    If its name is taken, that object is returned, as the API server has it.
    """
    try:
        return await (apply_to(client, desired, "") if by_apply else client.create(desired)), True
    except Conflict:
        current = await client.get(gvk_of(desired), key_of(desired), live=True)
        if current is None:
            raise  # it was deleted in the meantime: a retry creates it
        return current, False


class OwnedWrites:
    """The writes of one reconcile of ``owner``.

    A write through :meth:`attempt` does not prevent the others: its error is kept in ``errors``, and
    :meth:`raise_errors` raises it at the end of the reconcile, which is then retried. ``retry_after`` are the seconds
    until the next reconcile, or 0; ``created`` is the number of created objects. ``block_owner_deletion``: whether a
    foreground deletion of the owner waits for the objects.

    A subclass overrides :meth:`owns`, :meth:`owned` and :meth:`adopt` if ownership is not only a controller reference,
    and the methods ``report_*`` to tell the user.
    """

    def __init__(
        self, client: Client, owner: Object, *, block_owner_deletion: bool | None = None
    ) -> None:
        self.client = client
        self.owner = owner
        self.errors: list[APIError] = []
        self.retry_after = 0.0
        self.created = 0
        self._block_owner_deletion = block_owner_deletion

    def owns(self, obj: Object) -> bool:
        """Return whether ``obj`` belongs to the owner."""
        return is_controlled_by(obj, self.owner)

    def owned(self, desired: Object) -> Object:
        """Return ``desired`` with what makes it belong to the owner."""
        return set_controller_owner(
            desired, self.owner, block_owner_deletion=self._block_owner_deletion
        )

    async def adopt(self, current: Object) -> Object | None:
        """Prepare an object of the owner for an apply; ``None`` leaves it unchanged."""
        return current

    def report_taken(self, taken: NameTaken, consequence: str) -> None:
        """Report that an object of another owner has the name, with its ``consequence``."""
        raise taken

    def report_failure(self, message: str, *, is_lasting: bool) -> None:
        """Report a failed write; a retry does not help if it ``is_lasting``."""

    def report_terminating(self) -> None:
        """Report that nothing can be created, because the namespace is being deleted."""

    async def create(self, desired: Object) -> tuple[Object, bool]:
        """Create ``desired`` with a POST; return the stored object and whether it was created.

        An object of the owner that exists is returned as it is. Raises :class:`NameTaken` for any other.
        """
        current, is_new = await create_or_read(self.client, self.owned(desired))
        self.created += is_new
        return (current if is_new else self.checked(current)), is_new

    async def apply(self, desired: Object, current: Object | None = None) -> Object | None:
        """Apply ``desired``; return the stored object, or ``None`` if :meth:`adopt` left the existing one unchanged.

        ``current`` is the cached object. Raises :class:`NameTaken` if the object with this name is not the owner's.
        """
        if current is None:
            current, is_new = await create_or_read(self.client, self.owned(desired), by_apply=True)
            self.created += is_new
            if is_new:
                return current
        try:
            return await self._apply_to_checked(desired, current)
        except Conflict:  # changed since it was checked; its owner reference may have been removed
            live = await self.client.get(gvk_of(desired), key_of(desired), live=True)
            if live is None or uid_of(live) != uid_of(current):
                raise
        return await self._apply_to_checked(desired, live)

    async def _apply_to_checked(self, desired: Object, current: Object) -> Object | None:
        adopted = await self.adopt(self.checked(current))
        if adopted is None:
            return None
        return await self.apply_to(desired, uid_of(adopted), resource_version_of(adopted))

    async def apply_to(self, desired: Object, uid: str, version: str = "") -> Object:
        """Apply ``desired`` to the owner's object with this uid, see :func:`apply_to`."""
        return await apply_to(self.client, self.owned(desired), uid, version)

    async def delete_owned(
        self,
        gvk: GVK,
        current: Object | None,
        *,
        owns: Callable[[Object], bool] | None = None,
        propagation_policy: Propagation | None = None,
        ignore_conflict: bool = False,
    ) -> None:
        """Delete the cached object if it belongs to the owner (decided by ``owns``, if given).

        If another object has the name now, :class:`Conflict` is raised, unless ``ignore_conflict``.
        """
        # A second deletion of an object that a finalizer keeps would be a request without effect.
        if current is None or is_deleting(current) or not (owns or self.owns)(current):
            return
        try:
            await self.client.delete(
                gvk, key_of(current), uid=uid_of(current), propagation_policy=propagation_policy
            )
        except Conflict:
            if not ignore_conflict:
                raise

    def checked(self, current: Object) -> Object:
        """Return ``current`` if it belongs to the owner; otherwise raise :class:`NameTaken`."""
        if not self.owns(current):
            raise NameTaken(current, self.owner)
        return current

    async def attempt(
        self,
        write: Awaitable[T],
        gvk: GVK,
        name: str,
        verb: str = "written",
        *,
        consequence: str = "",
    ) -> T | None:
        """Return the result of ``write``; if it fails, keep and report the error, and return ``None``.

        ``gvk``, ``name`` and ``verb`` say what was attempted; ``consequence`` what a taken name leads to.
        """
        try:
            return await write
        except NameTaken as taken:
            self.report_taken(taken, consequence)
        except APIError as error:
            if any(cause.get("reason") == "NamespaceTerminating" for cause in error.causes):
                # Not an error: the owner is in this namespace, and is deleted next.
                _log.debug("Namespace is being deleted", kind=gvk.kind, object=name)
                self.report_terminating()
                return None
            self.errors.append(error)
            # A conflict with causes names fields of another manager, which a retry does not release.
            is_lasting = isinstance(error, _LASTING) or (
                isinstance(error, Conflict) and bool(error.causes)
            )
            self.report_failure(
                f"{gvk.kind} {name} could not be {verb}: {error.message}", is_lasting=is_lasting
            )
        return None

    def retry(self, seconds: float) -> None:
        """Request another reconcile after at most ``seconds``."""
        self.retry_after = min(self.retry_after or seconds, seconds)

    def raise_errors(self) -> None:
        """Raise the errors of failed writes, so that the reconcile is retried."""
        raise_together(self.errors, "failed to write several objects")


def _with_metadata(obj: Mapping[str, Any], fields: Mapping[str, str]) -> Object:
    return {**obj, "metadata": {**(obj.get("metadata") or {}), **fields}}
