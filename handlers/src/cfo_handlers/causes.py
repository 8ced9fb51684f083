"""Why handlers are called, and the keywords that they get."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cfo.runtime.objects import has_finalizer, is_deleting
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
from cfo_handlers.filters import MISSING, PRESENT, accepts
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
    """Why handlers of the operator are called. ``specific`` are the keywords of this type of handlers."""

    def __init__(
        self, environment: Environment, body: Mapping[str, Any] | None = None, **specific: Any
    ) -> None:
        self.environment = environment
        self.specific = specific
        self.patch = Patch()
        self.logger = ObjectLogger(body)

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
        body, metadata = self.body, self.body.metadata
        return {
            "resource": self.resource,
            "body": body,
            "memo": self.memo,
            "spec": body.spec,
            "status": body.status,
            "meta": metadata,
            **{
                name: getattr(metadata, name)
                for name in ("uid", "name", "namespace", "labels", "annotations")
            },
            "patch": self.patch,
            **super().kwargs(),
        }

    def kwargs_for(self, handler: Handler) -> dict[str, Any]:
        """Return the keywords for one handler; ``old``, ``new`` and ``diff`` are those of its field, if it has one."""
        kwargs, change = self.kwargs(), self.change
        if change is not None and isinstance(handler, ResourceHandler) and (path := handler.field):
            kwargs |= {"old": resolve(change.old, path), "new": resolve(change.new, path)}
            kwargs["diff"] = reduce_diff(change.diff, path)
        return kwargs

    @property
    def states(self) -> tuple[Any, ...]:
        """The states of the object of which a field must match."""
        return (self.body,) if self.change is None else (self.change.new, self.change.old)


def matches(handler: ResourceHandler, cause: ObjectCause, *, changes: bool = True) -> bool:
    """Return whether the filters of a handler match; ``changes``: also those of the change of a field.

    Filters that are functions may raise any exception.
    """
    metadata, kwargs = cause.body.metadata, cause.kwargs
    for wanted, actual in (
        (handler.labels, metadata.labels),
        (handler.annotations, metadata.annotations),
    ):
        if not all(
            accepts(value, actual.get(key, MISSING), kwargs)
            for key, value in (wanted or {}).items()
        ):
            return False
    if isinstance(handler, WebhookHandler) and handler.subresource not in (
        "*",
        cause.specific.get("subresource"),
    ):
        return False
    if handler.field:
        values = [resolve(state, handler.field, MISSING) for state in cause.states]
        if not any(
            accepts(PRESENT if handler.value is None else handler.value, value, kwargs)
            for value in values
        ):
            return False
        if changes and isinstance(handler, ChangingHandler) and cause.change is not None:
            new, old = values
            if handler.needs_change and old == new:
                return False
            pairs = ((handler.old, old), (handler.new, new))
            if not all(wanted is None or accepts(wanted, value, kwargs) for wanted, value in pairs):
                return False
    return handler.when is None or bool(handler.when(**cause.kwargs()))


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
        equal = persistence.diffbase_storage.is_stored_digest(body=body, essence=new)
        old = None if equal is None else new if equal else {}
    diff = Diff() if old == new else compute_diff(old, new)
    if is_deleting(body):
        reason = Reason.DELETE if has_finalizer(body, persistence.finalizer) else Reason.FREE
    elif old is None:
        reason, initial = Reason.CREATE, False
    else:
        reason = Reason.UPDATE if diff else Reason.RESUME if initial else Reason.NOOP
    return Change(reason, old, new, diff, initial)


def _is_configuration(stored: Mapping[str, Any]) -> bool:
    """Return whether a stored configuration has the form of an object; any user of the object can write it."""
    metadata = stored.get("metadata") or {}
    return isinstance(metadata, Mapping) and all(
        isinstance(metadata.get(name) or {}, Mapping) for name in ("labels", "annotations")
    )


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
        if handler.initial and (
            not change.initial or (is_deleting(cause.body) and not handler.deleted)
        ):
            continue
        if matches(handler, cause):
            selected.setdefault((id(handler.fn), handler.id), handler)
    return list(selected.values())
