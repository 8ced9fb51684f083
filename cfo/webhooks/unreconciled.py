"""Warn users of objects that the operator validates, but does not reconcile, and keep others from leaving it.

The first operator serves the webhooks for the objects of all. An object in a namespace, or with labels, that no
operator has would wait without any sign. It is validated and protected like all others, because another operator may
reconcile it.

No operator would end an object that loses these labels while it runs: it could not be preempted, and its quota would be
kept. The first operator's selector excludes what others reconcile, so all selectors have its keys.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Final, TypeAlias

from cfo.api.reading import mapping
from cfo.config.part import Part
from cfo.runtime import FieldErrors, Object
from cfo.runtime.objects.field import Path, forbidden
from cfo.runtime.webhook import AdmissionRequest, Validator, Warnings

_LABELS: Final = Path("metadata", "labels")


CanLeave: TypeAlias = Callable[[Object, Object, AdmissionRequest], bool | Awaitable[bool]]
"""Returns whether an object, as it is and as it will be, can lose the labels by which an operator reconciles it."""


def can_always_leave(old: Object, obj: Object, request: AdmissionRequest) -> bool:
    """Return true: another or no operator can reconcile an object of this kind at any time, because it has no quota."""
    return True


def within_part(
    validator: Validator[Object],
    part: Part,
    can_leave: CanLeave = can_always_leave,
) -> Validator[Object]:
    """Return a validator like ``validator`` that also checks what becomes of objects outside ``part``.

    It warns of them. An object that ``can_leave`` is false of keeps the labels that decide which operator reconciles
    it, unless ``part`` contains it afterwards.
    """
    if not part.namespaces and not part.selector:
        return validator
    return PartValidator(validator, part, can_leave)


class PartValidator(Validator[Object]):
    """Validates like ``validator``, and checks what becomes of objects outside ``part`` (:func:`within_part`)."""

    def __init__(self, validator: Validator[Object], part: Part, can_leave: CanLeave) -> None:
        self._validator = validator
        self._part = part
        self._can_leave = can_leave

    def validate_create(
        self, obj: Object, request: AdmissionRequest
    ) -> Warnings | Awaitable[Warnings]:
        """Validate the creation of ``obj``."""
        self._warn(obj, request)
        return self._validator.validate_create(obj, request)

    async def validate_update(
        self, old: Object, obj: Object, request: AdmissionRequest
    ) -> Warnings:
        """Validate the update of ``old`` to ``obj``."""
        await self._check_change(old, obj, request)
        if self._part.covers(request.namespace, string_labels(old)):
            self._warn(obj, request)
        warnings = self._validator.validate_update(old, obj, request)
        if isawaitable(warnings):
            return await warnings
        return warnings

    def validate_delete(
        self, obj: Object, request: AdmissionRequest
    ) -> Warnings | Awaitable[Warnings]:
        """Validate the deletion of ``obj``."""
        return self._validator.validate_delete(obj, request)

    async def _check_change(self, old: Object, obj: Object, request: AdmissionRequest) -> None:
        """Raise :class:`FieldErrors` if labels change that must stay."""
        before = string_labels(old)
        after = string_labels(obj)
        changed = [key for key in self._part.keys if before.get(key) != after.get(key)]
        if not changed or self._part.covers(request.namespace, after):
            return
        can_leave = self._can_leave(old, obj, request)
        if isawaitable(can_leave):
            can_leave = await can_leave
        if can_leave:
            return
        detail = (
            f"immutable while the {request.kind.kind} is in a queue, has quota or runs, because the label decides "
            "which CodeFlare operator reconciles it"
        )
        request.warn(
            f"to change these labels, delete the {request.kind.kind}, and create it again with the change"
        )
        FieldErrors.check([forbidden(_LABELS.key(key), detail) for key in changed])

    def _warn(self, obj: Object, request: AdmissionRequest) -> None:
        part = self._part
        if part.covers(request.namespace, string_labels(obj)):
            return
        reason = f"its labels do not match labelSelector {part.selector}"
        if not part.has_namespace(request.namespace):
            reason = f"watchNamespaces does not contain {request.namespace}"
        request.warn(
            f"the CodeFlare operator in namespace {part.operator} does not reconcile this {request.kind.kind}, because "
            f"{reason}; it waits unless another CodeFlare operator does"
        )


def string_labels(obj: Object) -> dict[str, str]:
    """Return the labels. Any pod can call a webhook, with fields of any type."""
    labels = mapping(mapping(obj.get("metadata")).get("labels"))
    return {key: value for key, value in labels.items() if isinstance(value, str)}
