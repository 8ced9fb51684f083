"""Admission of InferenceStacks: reject stacks that cannot be rendered, and warn about what will not work.

The rules are in :mod:`cfo.api.inferencestack.validation`, because the controller applies them as well. There is no
defaulter: clients such as the original console edit the spec, so it must contain only what they wrote.

Operators of several major versions can share a cluster, and each validates its own stacks: the webhook configuration
selects by the label ``operatorVersion``, so that the webhook of one operator is not called for the stacks of another,
and its failure does not affect them. Stacks that have no label or an invalid one are validated by all operators, with
the rules that do not depend on the defaults of a major version.

A user must be allowed to create what the operator creates for the stack, because the operator creates it with its own
permissions. An update is checked for resources that the operator did not create for the stack before.

A stack of another major version can exist before the operator of that version, and is rendered as soon as that is
installed. So :class:`OtherMajors` checks the permissions of its user as well, with a webhook whose failure affects no
request: majors do not block each other, and no controller can ask later, because nothing stores who created an object.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from cfo.api.inferencestack.kinds import (
    INFERENCE_STACKS,
    OPERATOR_VERSION_LABEL,
    is_operator_version,
    operator_version_of,
)
from cfo.config.model import InferenceStackConfiguration
from cfo.runtime import FieldError, FieldErrors, Manager, Object, is_deleting
from cfo.runtime.webhook import AdmissionRequest, Operation, Validator
from cfo.webhooks.access import AccessReviewer

if TYPE_CHECKING:
    from cfo.api.inferencestack.profiles import Profile
    from cfo.api.inferencestack.validation.stack import StackValidation

_OTHER_VERSIONS: Final = [f"v{major}" for major in range(10)]
"""The versions that the selector excludes; the validator itself ignores stacks of later ones."""

_OPERATIONS: Final = (Operation.CREATE, Operation.UPDATE)


@dataclass(frozen=True, eq=False)
class InferenceStackWebhook(Validator[Object]):
    """The validator of the InferenceStacks for one major operator version, ``config.operator_version``.

    What reviews need is imported by the first one, because most operators have no InferenceStacks.
    """

    config: InferenceStackConfiguration
    reviewer: AccessReviewer

    async def validate_create(self, obj: Object, request: AdmissionRequest) -> list[str]:
        """Return the warnings about ``obj``. Raises :class:`FieldErrors` with all errors."""
        if not self.is_responsible(obj):
            return []
        from cfo.api.inferencestack.validation.stack import validate

        if self._is_own(obj) and not self.config.enabled:
            request.warn(
                "the CodeFlare operator does not deploy InferenceStacks: its configuration disables them"
            )
        validation = await request.compute(
            validate, obj, self._profile(obj), self.config.operator_version
        )
        return await self._result(validation, obj, request)

    async def validate_update(
        self, old: Object, obj: Object, request: AdmissionRequest
    ) -> list[str]:
        """Return the warnings about ``obj``. Raises :class:`FieldErrors` with the errors that ``old`` does not have.

        A stack that is being deleted is not validated, so that its finalizers can be removed.
        """
        if is_deleting(obj) or not self.is_responsible(obj):
            return []
        from cfo.api.inferencestack.validation.stack import validate_update

        validation = await request.compute(
            validate_update, old, obj, self._profile(obj), self.config.operator_version
        )
        if not self._is_own(old):
            # Everything that this operator creates for the stack is new.
            validation = replace(validation, old=None)
        return await self._result(validation, obj, request)

    async def submission_errors(self, stack: Object, request: AdmissionRequest) -> list[FieldError]:
        """Return the errors with which ``stack`` would be refused if the user of ``request`` created it.

        For webhooks of objects from which stacks are created later. Whichever operator reconciles the stack, the user
        must be allowed to create its objects. A stack in another object has no queue of its own.
        """
        from cfo.api.inferencestack.queue import embedded_queue_errors
        from cfo.api.inferencestack.validation.stack import validate

        validation = await request.compute(
            validate, stack, self._profile(stack), self.config.operator_version
        )
        return [
            *validation.errors,
            *embedded_queue_errors(stack),
            *await self._access_errors(validation, request),
        ]

    def is_responsible(self, stack: Object) -> bool:
        """Return whether this webhook validates ``stack``: it has the own version, or none."""
        return self._is_own(stack) or not is_operator_version(operator_version_of(stack))

    def _is_own(self, stack: Object) -> bool:
        return operator_version_of(stack) == self.config.operator_version

    def _profile(self, stack: Object) -> Profile | None:
        """Return the profile with which the operator will render ``stack``; ``None`` if it does not reconcile it."""
        if not self._is_own(stack):
            return None
        from cfo.api.inferencestack.profiles import newest_profile, pinned_profile

        return pinned_profile(stack) or newest_profile(self.config.operator_version)

    async def _result(
        self, validation: StackValidation, stack: Object, request: AdmissionRequest
    ) -> list[str]:
        FieldErrors.check(validation.errors)
        if self._is_own(stack):
            FieldErrors.check(await self._access_errors(validation, request))
        return list(validation.warnings)

    async def _access_errors(
        self, validation: StackValidation, request: AdmissionRequest
    ) -> list[FieldError]:
        """Return the errors in what the operator would create for the stack and did not create before."""
        from cfo.api.inferencestack.created_resources import (
            cluster_trigger_errors,
            created_resources,
        )

        stack = validation.stack
        old = validation.old
        if stack is None:
            return []  # the controller does not render it
        errors: list[FieldError] = []
        if not self.config.allow_cluster_trigger_authentication:
            errors += cluster_trigger_errors(stack, old)
        errors += await self.reviewer.errors(created_resources(stack, old), request)
        return errors


@dataclass(frozen=True, eq=False)
class OtherMajors(Validator[Object]):
    """Checks the permissions of users whose stacks have another major version than ``webhook``; nothing else."""

    webhook: InferenceStackWebhook

    async def validate_create(self, obj: Object, request: AdmissionRequest) -> None:
        """Raise :class:`FieldErrors` if the user is not allowed to create what an operator would create."""
        await self.validate_update({}, obj, request)

    async def validate_update(self, old: Object, obj: Object, request: AdmissionRequest) -> None:
        """Like :meth:`validate_create`, for what an operator of the same version did not create for ``old``."""
        if is_deleting(obj) or self.webhook.is_responsible(obj):
            return  # finalizers can be removed; the webhook for this version is called as well
        from cfo.api.inferencestack.created_resources import created_resources
        from cfo.api.inferencestack.validation.stack import validate

        is_same = bool(old) and operator_version_of(old) == operator_version_of(obj)
        if is_same and old.get("spec") == obj.get("spec"):
            return  # such as an update by the operator of that version
        validation = await request.compute(validate, obj, None)
        if validation.stack is None:
            return  # other versions may have fields of other types
        before = None
        if is_same:
            before = (await request.compute(validate, old, None)).stack
        resources = created_resources(validation.stack, before)
        FieldErrors.check(await self.webhook.reviewer.errors(resources, request))


def object_selector(operator_version: str, operator: str = "NotIn") -> dict[str, Any]:
    """Return the label selector of the webhook of ``operator_version``: it excludes the other major versions.

    With the operator ``In``, it selects only them, for :class:`OtherMajors`.

    A selector of only the own version would leave out stacks without a valid label. OLM supports no CEL conditions.
    """
    others = [version for version in _OTHER_VERSIONS if version != operator_version]
    expression = {"key": OPERATOR_VERSION_LABEL, "operator": operator, "values": others}
    return {"matchExpressions": [expression]}


def setup(manager: Manager, config: InferenceStackConfiguration) -> InferenceStackWebhook:
    """Register the webhook of InferenceStacks with ``manager``, which serves it on every replica; return it."""
    reviewer = AccessReviewer(
        manager.api_reader, check_permissions=config.user_rbac_admission_check
    )
    webhook = InferenceStackWebhook(config, reviewer)
    for gvk in INFERENCE_STACKS:
        manager.webhooks.register(
            gvk,
            validator=webhook,
            validator_name=f"vinferencestack.{gvk.group}",
            operations=_OPERATIONS,
            object_selector=object_selector(config.operator_version),
        )
        manager.webhooks.register(
            gvk,
            validator=OtherMajors(webhook),
            validator_name=f"vinferencestack-others.{gvk.group}",
            path_suffix="-others",
            operations=_OPERATIONS,
            failure_policy="Ignore",
            object_selector=object_selector(config.operator_version, "In"),
        )
    return webhook
