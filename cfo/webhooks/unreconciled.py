"""Warn users of objects that the operator validates, but does not reconcile.

The first operator serves the webhooks for the objects of all. An object in a namespace, or with labels, that no
operator has would wait without any sign. It is validated and protected like all others, because another operator may
reconcile it.
"""

from __future__ import annotations

from collections.abc import Awaitable

from cfo.api.reading import mapping
from cfo.config.part import Part
from cfo.runtime import Object
from cfo.runtime.webhook import AdmissionRequest, Validator, Warnings


def with_warning(validator: Validator[Object], part: Part) -> Validator[Object]:
    """Return a validator like ``validator`` that also warns of objects outside ``part``."""
    if not part.namespaces and not part.selector:
        return validator
    return UnreconciledWarning(validator, part)


class UnreconciledWarning(Validator[Object]):
    """Validates like ``validator``, and warns of new objects outside ``part``, and of those that leave it."""

    def __init__(self, validator: Validator[Object], part: Part) -> None:
        self._validator = validator
        self._part = part

    def validate_create(
        self, obj: Object, request: AdmissionRequest
    ) -> Warnings | Awaitable[Warnings]:
        """Validate the creation of ``obj``."""
        self._warn(obj, request)
        return self._validator.validate_create(obj, request)

    def validate_update(
        self, old: Object, obj: Object, request: AdmissionRequest
    ) -> Warnings | Awaitable[Warnings]:
        """Validate the update of ``old`` to ``obj``."""
        if self._part.covers(request.namespace, string_labels(old)):
            self._warn(obj, request)
        return self._validator.validate_update(old, obj, request)

    def validate_delete(
        self, obj: Object, request: AdmissionRequest
    ) -> Warnings | Awaitable[Warnings]:
        """Validate the deletion of ``obj``."""
        return self._validator.validate_delete(obj, request)

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
