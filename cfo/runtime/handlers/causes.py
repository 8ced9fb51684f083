"""Why handlers are called, and the keywords that they get."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cfo.runtime.handlers.bodies import Body, BodyEssence, Patch
from cfo.runtime.handlers.declarations import (
    ChangingHandler,
    Reason,
    ResourceHandler,
    WebhookHandler,
    without_repetitions,
)
from cfo.runtime.handlers.diffs import Diff, FieldPath, compute_diff, reduce_diff, resolve
from cfo.runtime.handlers.environment import Environment, ObjectLogger
from cfo.runtime.handlers.filters import is_changed, matches_changes, matches_metadata, matches_value
from cfo.runtime.handlers.resource_selectors import Resource
from cfo.runtime.objects.unstructured import has_finalizer, is_deleting


@dataclass(frozen=True, slots=True)
class Change:
    """What changed in an object since its configuration was handled last."""

    reason: Reason
    old: BodyEssence | None
    new: BodyEssence | None
    diff: Diff
    initial: bool


class Cause:
    """Why handlers of an object are called. ``specific`` are the keywords of this type of handlers."""

    def __init__(
        self,
        environment: Environment,
        resource: Resource,
        body: Body,
        memo: Any,
        *,
        patch: Patch | None = None,
        change: Change | None = None,
        **specific: Any,
    ) -> None:
        self.environment = environment
        self.resource = resource
        self.body = body
        self.memo = memo
        self.patch = Patch() if patch is None else patch
        self.change = change
        self.logger = ObjectLogger(body)
        if change is not None:
            specific |= {"reason": change.reason, "diff": change.diff, "old": change.old, "new": change.new}
        self.specific = specific

    def kwargs(self) -> dict[str, Any]:
        """Return the keywords for filters and handlers; indexes replace keywords of the same name."""
        body, metadata = self.body, self.body.metadata
        indexes = self.environment.indexes
        return {
            "resource": self.resource,
            "body": body,
            "spec": body.spec,
            "status": body.status,
            "meta": metadata,
            "uid": metadata.uid,
            "name": metadata.name,
            "namespace": metadata.namespace,
            "labels": metadata.labels,
            "annotations": metadata.annotations,
            "patch": self.patch,
            "memo": self.memo,
            "logger": self.logger,
            "indices": indexes,
            **self.specific,
            **indexes,
        }

    def kwargs_for(self, handler: ResourceHandler) -> dict[str, Any]:
        """Return the keywords for one handler; ``old``, ``new`` and ``diff`` are those of its field, if it has one."""
        kwargs = self.kwargs()
        if handler.field and self.change is not None:
            kwargs["old"] = resolve(self.change.old, handler.field)
            kwargs["new"] = resolve(self.change.new, handler.field)
            kwargs["diff"] = reduce_diff(self.change.diff, handler.field)
        return kwargs

    @property
    def states(self) -> tuple[Any, ...]:
        """The states of the object of which a field must match."""
        return (self.body,) if self.change is None else (self.change.new, self.change.old)


def matches(handler: ResourceHandler, cause: Cause, *, changes: bool = True) -> bool:
    """Return whether the filters of a handler match; ``changes``: also those of the change of a field.

    Filters that are functions may raise any exception.
    """
    body = cause.body
    if not (
        matches_metadata(handler.labels, body.metadata.labels, cause.kwargs)
        and matches_metadata(handler.annotations, body.metadata.annotations, cause.kwargs)
    ):
        return False
    if isinstance(handler, WebhookHandler) and handler.subresource not in ("*", cause.specific.get("subresource")):
        return False
    if handler.field:
        if not matches_value(handler.field, handler.value, cause.states, cause.kwargs):
            return False
        if changes and isinstance(handler, ChangingHandler) and cause.change is not None:
            states = cause.change.old, cause.change.new
            if handler.needs_change and not is_changed(handler.field, states):
                return False
            if not matches_changes(handler.field, handler.old, handler.new, states, cause.kwargs):
                return False
    return handler.when is None or bool(handler.when(**cause.kwargs()))


def detect_change(
    environment: Environment, body: Mapping[str, Any], extra_fields: Iterable[FieldPath], *, initial: bool
) -> Change:
    """Compare an object with its last handled configuration. ``initial``: it existed before the start."""
    persistence = environment.settings.persistence
    new = persistence.progress_storage.clear(
        essence=persistence.diffbase_storage.build(body=body, extra_fields=extra_fields)
    )
    old = persistence.diffbase_storage.fetch(body=body)
    if old is not None and not _is_configuration(old):
        old = None
    if old is not None:
        old = persistence.progress_storage.clear(essence=old)
    else:
        equal = persistence.diffbase_storage.is_stored_digest(body=body, essence=new)
        old = None if equal is None else new if equal else {}
    if is_deleting(body):
        reason = Reason.DELETE if has_finalizer(body, persistence.finalizer) else Reason.FREE
        return Change(reason, old, new, compute_diff(old, new), initial=initial)
    if old is None:
        return Change(Reason.CREATE, old, new, compute_diff(None, new), initial=False)
    diff = Diff() if old == new else compute_diff(old, new)
    reason = Reason.UPDATE if diff else Reason.RESUME if initial else Reason.NOOP
    return Change(reason, old, new, diff, initial=initial)


def _is_configuration(stored: Mapping[str, Any]) -> bool:
    """Return whether a stored configuration has the form of an object; any user of the object can write it."""
    metadata = stored.get("metadata") or {}
    return isinstance(metadata, Mapping) and all(
        isinstance(metadata.get(name) or {}, Mapping) for name in ("labels", "annotations")
    )


def select_changing(handlers: Collection[ChangingHandler], cause: Cause) -> list[ChangingHandler]:
    """Return the handlers of a change whose filters match."""
    change = cause.change
    if change is None:
        return []
    deleting = is_deleting(cause.body)
    selected = []
    for handler in handlers:
        if handler.reason is not None and handler.reason is not change.reason:
            continue
        if handler.initial and (not change.initial or (deleting and not handler.deleted)):
            continue
        if matches(handler, cause):
            selected.append(handler)
    return without_repetitions(selected)
