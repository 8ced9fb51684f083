"""Why handlers are called, and the keywords that they get."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cfo.runtime.objects import has_finalizer, is_deleting, uid_of
from cfo_handlers.bodies import Body, BodyEssence, Patch
from cfo_handlers.declarations import (
    ChangingHandler,
    Handler,
    Reason,
    ResourceHandler,
    WebhookHandler,
)
from cfo_handlers.diffs import Diff, FieldPath, compute_diff, reduce_diff, resolve
from cfo_handlers.environment import Environment, ObjectLogger
from cfo_handlers.filters import MISSING, PRESENT, MetaFilter, accepts
from cfo_handlers.resource_selectors import Resource


@dataclass(frozen=True, slots=True)
class Change:
    """What changed in an object since its configuration was handled last."""

    reason: Reason
    old: BodyEssence | None
    new: BodyEssence | None
    diff: Diff
    initial: bool


class Cause:
    """Why handlers of the operator are called. ``specific`` are the keywords of this type of handlers.

    ``uid`` is that of the object; empty if they are not called for an object.
    """

    def __init__(
        self, environment: Environment, body: Mapping[str, Any] | None = None, **specific: Any
    ) -> None:
        self.environment = environment
        self.specific = specific
        self.patch = Patch()
        self.logger = ObjectLogger(body)
        self.uid = uid_of(body or {})

    def kwargs(self) -> dict[str, Any]:
        """Return the keywords for filters and handlers; indexes replace keywords of the same name."""
        indexes = self.environment.indexes
        return {"logger": self.logger, "indices": indexes, **self.specific, **indexes}

    def kwargs_for(self, handler: Handler) -> dict[str, Any]:
        """Return the keywords for one handler."""
        return self.kwargs()


class ObjectCause(Cause):
    """Why handlers of an object are called."""

    def __init__(
        self,
        environment: Environment,
        resource: Resource,
        body: Body,
        memo: Any,
        *,
        change: Change | None = None,
        **specific: Any,
    ) -> None:
        if change is not None:
            specific |= {
                "reason": change.reason,
                "diff": change.diff,
                "old": change.old,
                "new": change.new,
            }
        super().__init__(environment, body, **specific)
        self.resource = resource
        self.body = body
        self.memo = memo
        self.change = change

    def kwargs(self) -> dict[str, Any]:
        """Return the keywords for filters and handlers; indexes replace keywords of the same name."""
        body = self.body
        metadata = body.metadata
        return {
            "resource": self.resource,
            "body": body,
            "memo": self.memo,
            "spec": body.spec,
            "status": body.status,
            "meta": metadata,
            "uid": metadata.uid,
            "name": metadata.name,
            "namespace": metadata.namespace,
            "labels": metadata.labels,
            "annotations": metadata.annotations,
            "patch": self.patch,
            **super().kwargs(),
        }

    def kwargs_for(self, handler: Handler) -> dict[str, Any]:
        """Return the keywords for one handler; ``old``, ``new`` and ``diff`` are those of its field, if it has one."""
        kwargs = self.kwargs()
        change = self.change
        if change is not None and isinstance(handler, ResourceHandler) and handler.field:
            kwargs["old"] = resolve(change.old, handler.field)
            kwargs["new"] = resolve(change.new, handler.field)
            kwargs["diff"] = reduce_diff(change.diff, handler.field)
        return kwargs

    @property
    def states(self) -> tuple[Any, ...]:
        """The states of the object of which a field must match."""
        if self.change is None:
            return (self.body,)
        return (self.change.new, self.change.old)


def matches(handler: ResourceHandler, cause: ObjectCause, *, changes: bool = True) -> bool:
    """Return whether the filters of a handler match; ``changes``: also those of the change of a field.

    Filters that are functions may raise any exception.
    """
    metadata = cause.body.metadata
    if not _accepts_all(handler.labels, metadata.labels, cause):
        return False
    if not _accepts_all(handler.annotations, metadata.annotations, cause):
        return False
    if isinstance(handler, WebhookHandler) and not _subresource_matches(handler, cause):
        return False
    if handler.field and not _field_matches(handler, cause, changes=changes):
        return False
    return handler.when is None or bool(handler.when(**cause.kwargs()))


def _accepts_all(wanted: MetaFilter | None, actual: Mapping[str, Any], cause: ObjectCause) -> bool:
    """Return whether the filters of labels or annotations accept the actual ones."""
    if wanted is None:
        return True
    return all(
        accepts(value, actual.get(key, MISSING), cause.kwargs) for key, value in wanted.items()
    )


def _subresource_matches(handler: WebhookHandler, cause: ObjectCause) -> bool:
    return handler.subresource in ("*", cause.specific.get("subresource"))


def _field_matches(handler: ResourceHandler, cause: ObjectCause, *, changes: bool) -> bool:
    """Return whether the filters of a handler's field match; ``changes``: also those of its change."""
    wanted = PRESENT if handler.value is None else handler.value
    values = [resolve(state, handler.field, MISSING) for state in cause.states]
    if not any(accepts(wanted, value, cause.kwargs) for value in values):
        return False
    if not changes or cause.change is None or not isinstance(handler, ChangingHandler):
        return True
    new, old = values
    if handler.needs_change and old == new:
        return False
    if handler.old is not None and not accepts(handler.old, old, cause.kwargs):
        return False
    return handler.new is None or accepts(handler.new, new, cause.kwargs)


def detect_change(
    environment: Environment,
    body: Mapping[str, Any],
    extra_fields: Iterable[FieldPath],
    *,
    initial: bool,
) -> Change:
    """Compare an object with its last handled configuration. ``initial``: it existed before the start."""
    persistence = environment.settings.persistence
    new = persistence.progress_storage.clear(
        essence=persistence.diffbase_storage.build(body=body, extra_fields=extra_fields)
    )
    old = persistence.diffbase_storage.fetch(body=body)
    if old is not None and _is_configuration(old):
        old = persistence.progress_storage.clear(essence=old)
    else:
        old = _configuration_by_digest(environment, body, new)
    diff = Diff()
    if old != new:
        diff = compute_diff(old, new)
    if is_deleting(body):
        blocked = has_finalizer(body, persistence.finalizer)
        reason = Reason.DELETE if blocked else Reason.FREE
    elif old is None:
        reason = Reason.CREATE
        initial = False
    elif diff:
        reason = Reason.UPDATE
    elif initial:
        reason = Reason.RESUME
    else:
        reason = Reason.NOOP
    return Change(reason, old, new, diff, initial)


def _configuration_by_digest(
    environment: Environment, body: Mapping[str, Any], new: BodyEssence
) -> BodyEssence | None:
    """Return the last handled configuration as far as a stored digest shows it; ``None`` if no digest is stored.

    It is ``new`` if the digest is equal; otherwise it is not known, and empty.
    """
    storage = environment.settings.persistence.diffbase_storage
    equal = storage.is_stored_digest(body=body, essence=new)
    if equal is None:
        return None
    return new if equal else {}


def _is_configuration(stored: Mapping[str, Any]) -> bool:
    """Return whether a stored configuration has the form of an object; any user of the object can write it."""
    metadata = stored.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        return False
    labels = metadata.get("labels") or {}
    annotations = metadata.get("annotations") or {}
    return isinstance(labels, Mapping) and isinstance(annotations, Mapping)


def select_changing(
    handlers: Collection[ChangingHandler], cause: ObjectCause
) -> list[ChangingHandler]:
    """Return the handlers of a change whose filters match.

    Each function with its identifier is returned once: it can be declared for several reasons that occur together.
    """
    change = cause.change
    if change is None:
        return []
    selected: dict[tuple[int, str], ChangingHandler] = {}
    for handler in handlers:
        if handler.reason is not None and handler.reason is not change.reason:
            continue
        if handler.initial and not change.initial:
            continue
        if handler.initial and is_deleting(cause.body) and not handler.runs_while_deleting:
            continue
        if matches(handler, cause):
            selected.setdefault((id(handler.fn), handler.id), handler)
    return list(selected.values())
