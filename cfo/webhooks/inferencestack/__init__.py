"""Admission of InferenceStacks: reject stacks that cannot be rendered, and warn about what will not work.

The rules are in :mod:`cfo.api.inferencestack.validation`, because the controller applies them as well. There is no
defaulter: clients such as the original console edit the spec, so it must contain only what they wrote.

Operators of several major versions can share a cluster, and each validates its own stacks: the webhook configuration
selects by the label ``operatorVersion``, so that the webhook of one operator is not called for the stacks of another,
and its failure does not affect them. Stacks that have no label or an invalid one are validated by all operators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from cfo.api.inferencestack.kinds import (
    INFERENCE_STACKS,
    OPERATOR_VERSION_LABEL,
    is_operator_version,
    operator_version_of,
)
from cfo.api.inferencestack.profiles import Profile, newest_profile, pinned_profile
from cfo.api.inferencestack.validation import Validation, validate, validate_update
from cfo.config import InferenceStackConfiguration
from cfo.runtime import FieldErrors, Manager, Object, is_deleting
from cfo.runtime.webhook import AdmissionRequest, Operation

_OTHER_VERSIONS: Final = [f"v{major}" for major in range(10)]
"""The versions that the selector excludes; the validator itself ignores stacks of later ones."""

_OPERATIONS: Final = (Operation.CREATE, Operation.UPDATE)


@dataclass(frozen=True, eq=False)
class InferenceStackWebhook:
    """The validator of the InferenceStacks for one major operator version: ``operator_version``, ``v1``."""

    operator_version: str

    async def validate_create(self, obj: Object, request: AdmissionRequest) -> list[str]:
        """Return the warnings about ``obj``. Raises :class:`FieldErrors` with all errors."""
        if not self._is_responsible(obj):
            return []
        return _result(await request.compute(validate, obj, self._profile(obj)))

    async def validate_update(self, old: Object, obj: Object, request: AdmissionRequest) -> list[str]:
        """Return the warnings about ``obj``. Raises :class:`FieldErrors` with the errors that ``old`` does not have.

        A stack that is being deleted is not validated, so that its finalizers can be removed.
        """
        if is_deleting(obj) or not self._is_responsible(obj):
            return []
        return _result(await request.compute(validate_update, old, obj, self._profile(obj)))

    def validate_delete(self, obj: Object, request: AdmissionRequest) -> None:
        """Allow every deletion."""

    def _is_responsible(self, stack: Object) -> bool:
        version = operator_version_of(stack)
        return version == self.operator_version or not is_operator_version(version)

    def _profile(self, stack: Object) -> Profile:
        return pinned_profile(stack) or newest_profile(self.operator_version)


def _result(validation: Validation) -> list[str]:
    FieldErrors.check(validation.errors)
    return list(validation.warnings)


def object_selector(operator_version: str) -> dict[str, Any]:
    """Return the label selector of the webhook of ``operator_version``: it excludes the other major versions.

    A selector of only the own version would leave out stacks without a valid label. OLM supports no CEL conditions.
    """
    others = [version for version in _OTHER_VERSIONS if version != operator_version]
    return {"matchExpressions": [{"key": OPERATOR_VERSION_LABEL, "operator": "NotIn", "values": others}]}


def setup(manager: Manager, config: InferenceStackConfiguration) -> None:
    """Register the webhook of InferenceStacks with ``manager``, which serves it on every replica."""
    webhook = InferenceStackWebhook(config.operator_version)
    for gvk in INFERENCE_STACKS:
        manager.webhooks.register(
            gvk,
            validator=webhook,
            validator_name=f"vinferencestack.{gvk.group}",
            operations=_OPERATIONS,
            object_selector=object_selector(config.operator_version),
        )
