"""Finalizers: cleanup that must happen before an object is deleted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from cfo.runtime.client.client import Client, PatchType
from cfo.runtime.client.errors import Conflict, Invalid, NotFound
from cfo.runtime.controller.reconcile import Result
from cfo.runtime.objects.unstructured import (
    Object,
    TypedObject,
    has_finalizer,
    is_deleting,
    key_of,
    kind_of,
    to_object,
    uid_of,
)
from cfo.runtime.process.arguments import (
    ASYNC_FUNCTION,
    require_async_function,
    require_parameters,
    wrong_result,
)
from cfo.runtime.process.strings import require_qualified_name

T = TypeVar("T", bound=Object | TypedObject)

_FINALIZERS: Final = "/metadata/finalizers"
_FAILED_TEST: Final = "the server rejected our request due to an error in our request"
"""What API servers answer to a JSON patch that does not fit the object, such as after a failed test."""


async def set_finalizer(client: Client, obj: T, name: str, *, present: bool) -> T | None:
    """Add or remove the finalizer ``name``; return the object as stored, or ``None`` if it no longer exists.

    Sends no request if nothing changes. Only the uid of ``obj`` and the finalizers that the request depends on are
    preconditions, so that users who change the object all the time cannot prevent it. If another client has changed
    these finalizers, or deletes the object to which one must be added,
    :class:`~cfo.runtime.client.errors.Conflict` is raised, and the reconcile is retried. The order of the finalizers of
    an object that is being deleted does not matter. Other errors of the request, such as the denial of a webhook, are
    raised as they are.
    """
    return await _set_finalizer(client, obj, to_object(obj), name, present=present)


async def _set_finalizer(
    client: Client, obj: T, wire: Object, name: str, *, present: bool
) -> T | None:
    if has_finalizer(wire, name) is present:
        return obj
    current: list[str] = wire["metadata"].get("finalizers") or []
    if present:
        changes = _addition(current, name)
    elif is_deleting(wire):
        changes = _last_removal(current, name)
    else:
        changes = _removal(current, name)
    try:
        stored: T = await client.patch(
            kind_of(obj), key_of(wire), changes, PatchType.JSON, uid=uid_of(wire)
        )
    except NotFound:
        return None
    except Invalid as error:
        if not _is_conflict(error):
            raise  # such as the denial of a webhook
        message = (
            f"{key_of(wire)} was recreated or is being deleted, or its finalizers have changed"
        )
        raise Conflict(409, message=message, verb=error.verb, resource=error.resource) from error
    return stored


def _is_conflict(error: Invalid) -> bool:
    """Return whether the patch did not fit the object, or would add a finalizer to an object that is being deleted."""
    if not error.causes:
        return error.message == _FAILED_TEST
    return all(
        cause.get("field") == "metadata.finalizers" and cause.get("reason") == "FieldValueForbidden"
        for cause in error.causes
    )


def _addition(finalizers: list[str], name: str) -> list[Object]:
    """Return the JSON patch that adds ``name`` to ``finalizers``, unless the object is being deleted."""
    # API servers compare a field that does not exist with null.
    is_not_deleting: Object = {"op": "test", "path": "/metadata/deletionTimestamp", "value": None}
    if finalizers:
        return [is_not_deleting, {"op": "add", "path": f"{_FINALIZERS}/-", "value": name}]
    return [
        is_not_deleting,
        {"op": "test", "path": _FINALIZERS, "value": None},
        {"op": "add", "path": _FINALIZERS, "value": [name]},
    ]


def _removal(finalizers: list[str], name: str) -> list[Object]:
    """Return the JSON patch that removes ``name`` from ``finalizers``."""
    path = f"{_FINALIZERS}/{finalizers.index(name)}"
    return [{"op": "test", "path": path, "value": name}, {"op": "remove", "path": path}]


def _last_removal(finalizers: list[str], name: str) -> list[Object]:
    """Return the JSON patch that removes ``name`` from the ``finalizers`` of an object that is being deleted.

    It contains the whole list, so that a user who changes its order all the time cannot prevent it. API servers refuse
    to add finalizers to such an object. So no addition is lost, and a finalizer that was removed does not return.
    """
    others = [finalizer for finalizer in finalizers if finalizer != name]
    return [{"op": "replace", "path": _FINALIZERS, "value": others}]


class Finalizer:
    """A finalizer of one controller: added before the first work, removed after the cleanup.

    ``name`` is a qualified name such as ``example.com/bucket``. The controller needs the permission to patch the
    objects. Raises :class:`ValueError` for a name that the API server rejects, such as one without a domain, and
    :class:`TypeError` for a name that is no string.
    """

    def __init__(self, client: Client, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"Finalizer(client, name): name: {name!r:.200}: must be a string")
        require_qualified_name("finalizer", name)
        self.client = client
        self.name = name

    async def reconcile(
        self,
        obj: T,
        *,
        apply: Callable[[T], Awaitable[Result | None]],
        cleanup: Callable[[T], Awaitable[Result | None]],
    ) -> Result:
        """Call ``apply`` with the object that has the finalizer, or ``cleanup`` once its deletion was requested.

        ``cleanup`` must be idempotent, because it runs again if the finalizer cannot be removed afterwards. It keeps
        the finalizer if it raises, or returns a :class:`Result` with ``requeue_after``. An object that is being
        deleted and does not have the finalizer is ignored.

        Raises :class:`TypeError` if one of them is no coroutine function, or does not accept the object: before the
        finalizer is added, which the object would keep.
        """
        wire = to_object(obj)
        for name, function in (("apply", apply), ("cleanup", cleanup)):
            require_async_function(f"Finalizer.reconcile: {name}", function)
        if not is_deleting(wire):
            if not has_finalizer(wire, self.name):
                require_parameters("Finalizer.reconcile: apply", apply, "obj")
                require_parameters("Finalizer.reconcile: cleanup", cleanup, "obj")
            stored = await _set_finalizer(self.client, obj, wire, self.name, present=True)
            if stored is None:
                return Result()
            return await _result_of("apply", apply(stored)) or Result()
        if not has_finalizer(wire, self.name):
            return Result()
        result = await _result_of("cleanup", cleanup(obj))
        if result is not None and result.requeue_after > 0:
            return result
        await _set_finalizer(self.client, obj, wire, self.name, present=False)
        return Result()


async def _result_of(name: str, returned: object) -> Result | None:
    """Await what the function ``name`` returned.

    Raises :class:`TypeError` if that, or its result, has another type.
    """
    if not isinstance(returned, Awaitable):  # a lambda
        raise TypeError(f"Finalizer.reconcile: {name}: must be {ASYNC_FUNCTION}")
    result: object = await returned
    if result is not None and not isinstance(result, Result):
        raise wrong_result(f"Finalizer.reconcile: {name}", result, "a Result or None")
    return result
