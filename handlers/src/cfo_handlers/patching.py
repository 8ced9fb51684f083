"""Sends the patches that handlers filled: one request for the status, one for everything else."""

from __future__ import annotations

import copy
import datetime
import inspect
from collections.abc import Mapping
from typing import Any, Final

from cfo.runtime.client import APIError, NotFound, TransportError, WriteRejected
from cfo.runtime.objects import Object, key_of, merged, resource_version_of, uid_of
from cfo_handlers.bodies import Patch
from cfo_handlers.diffs import FieldPath, compute_diff, resolve
from cfo_handlers.environment import Environment
from cfo_handlers.resource_selectors import Resource

_RETRY_DELAYS: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Seconds before a patch is sent again."""


def plain(value: Any) -> Any:
    """Return ``value`` as JSON types: views become dicts, times strings. Raises :class:`TypeError` for other types."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__}: cannot be stored in an object")


def _require_plain_functions(patch: Patch) -> None:
    for function in patch.fns:
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"patch.fns: {function!r:.200}: must be a function, without async")


def make_plain(patch: Patch) -> None:
    """Convert the content of a patch to JSON types; clear it and raise :class:`TypeError` if that is impossible.

    It is impossible, too, with an async function among its functions.
    """
    try:
        _require_plain_functions(patch)
        content = plain(dict(patch))
    except TypeError:
        patch.clear()
        raise
    dict.clear(patch)
    patch.update(content)


def _merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch from one object to another."""
    patch: dict[str, Any] = {}
    for item in compute_diff(old, new):
        target = patch
        for name in item.field[:-1]:
            target = target.setdefault(name, {})
        target[item.field[-1]] = item.new
    return patch


def patched(obj: Object, patch: Patch) -> Object:
    """Return an object as a patch and its functions change it, as a copy."""
    target = merged(copy.deepcopy(obj), patch)
    for function in patch.fns:
        function(target)
    return target


async def apply_patch(
    environment: Environment, resource: Resource, obj: Object, patch: Patch, logger: Any
) -> Object | None:
    """Send a patch of ``obj``; return the object as stored, or ``None`` if it no longer exists.

    The status is written first, if it is a subresource, so that a state that marks the object as handled implies that
    the results of its handlers were stored. An object that was recreated under this name is not changed. At most 16
    patches of an operator are sent at the same time. While the API server is overloaded or does not respond, a patch is
    sent again for about a minute, because a failure means that the handlers are called again.

    Raises the errors of requests; :class:`~cfo.runtime.Conflict` if functions of the patch saw an
    outdated object.
    """
    if not patch:
        return obj
    content: dict[str, Any] = dict(patch)
    precondition = {"uid": uid_of(obj)}
    if patch.fns:
        content = _merge_patch(obj, patched(obj, patch))
        precondition["resourceVersion"] = resource_version_of(obj)
    wanted = content
    stored: Object | None = obj
    status: dict[str, Any] = {}
    if "status" in content and "status" in resource.subresources:
        status = {"status": content["status"]}
        content = {key: value for key, value in content.items() if key != "status"}
    try:
        if status and _changes(obj, status):
            body = {**status, "metadata": precondition}
            stored = await _send(environment, resource, obj, body, subresource="status")
            precondition.pop("resourceVersion", None)
        if _changes(obj, content):
            metadata = {**(content.get("metadata") or {}), **precondition}
            stored = await _send(environment, resource, obj, {**content, "metadata": metadata})
    except NotFound:
        return None
    lost = sorted(_lost(wanted, stored or {}))
    if lost:
        logger.warning(
            f"The API server dropped these fields, because the schema does not have them: {', '.join(lost)}"
        )
    return stored


async def _send(
    environment: Environment,
    resource: Resource,
    obj: Object,
    body: Mapping[str, Any],
    subresource: str = "",
) -> Object:
    delays = iter(_RETRY_DELAYS)
    while True:
        try:
            async with environment.patches:
                return await environment.client.patch(
                    resource.gvk, key_of(obj), body, subresource=subresource
                )
        except WriteRejected:
            raise
        except (APIError, TransportError) as error:
            delay = next(delays, None)
            if delay is None or not _is_temporary(error):
                raise
            retry_after = getattr(error, "retry_after", None) or 0.0
            await environment.clock.sleep(max(delay, retry_after))


def _is_temporary(error: APIError | TransportError) -> bool:
    """Return whether the API server is overloaded, fails, or does not respond."""
    return isinstance(error, TransportError) or error.code == 429 or error.code >= 500


def _changes(obj: Object, patch: Mapping[str, Any]) -> bool:
    before = {key: obj[key] for key in patch if key in obj}
    return merged(before, patch) != before


def _lost(patch: Mapping[str, Any], stored: Mapping[str, Any], path: FieldPath = ()) -> set[str]:
    """Return the fields of a patch that are not in the stored object."""
    found: set[str] = set()
    for name, value in patch.items():
        if isinstance(value, Mapping) and value:
            found |= _lost(value, stored, (*path, name))
        elif value is not None and value not in ({}, []) and resolve(stored, (*path, name)) is None:
            found.add(".".join((*path, name)))
    return found
