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
installed. So the permissions of its user are checked as well, whatever version it names: no controller can ask later,
because nothing stores who created an object. For the versions in the selector, :class:`OtherMajors` does so, with a
webhook whose failure affects no request: these majors do not block each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from cfo.api.inferencestack.kinds import (
    INFERENCE_STACKS,
    OPERATOR_VERSION_LABEL,
    is_operator_version,
    operator_version_of,
)
from cfo.api.reading import mapping
from cfo.config.model import InferenceStackConfiguration
from cfo.runtime import FieldError, FieldErrors, Manager, Object, is_deleting
from cfo.runtime.objects import GVR
from cfo.runtime.objects.field import Path
from cfo.runtime.webhook import AdmissionRequest, Operation, Validator
from cfo.webhooks.access import AccessReviewer
from cfo.webhooks.inferencestack.running import RunningVersions
from cfo.webhooks.queue_labels import queue_label_warnings

if TYPE_CHECKING:
    from cfo.api.inferencestack.profiles import Profile
    from cfo.api.inferencestack.validation.stack import StackValidation

_OTHER_VERSIONS: Final = [f"v{major}" for major in range(10)]
"""The versions that the selector excludes. Of later ones, the validator checks only the permissions of users."""

_APPLICATION_BYTES: Final = 256
"""The work for an application without fields, in bytes of JSON."""

_OPERATIONS: Final = (Operation.CREATE, Operation.UPDATE)


@dataclass(frozen=True, eq=False)
class InferenceStackWebhook(Validator[Object]):
    """The validator of the InferenceStacks for one major operator version, ``config.operator_version``.

    What reviews need is imported by the first one, because most operators have no InferenceStacks.
    """

    config: InferenceStackConfiguration
    reviewer: AccessReviewer
    running: RunningVersions = field(default_factory=RunningVersions)

    async def validate_create(self, obj: Object, request: AdmissionRequest) -> list[str]:
        """Return the warnings about ``obj``. Raises :class:`FieldErrors` with all errors."""
        if not self.is_responsible(obj):
            return await self._review_other_major({}, obj, request)
        if self._is_own(obj) and not self.config.enabled:
            request.warn(
                "the CodeFlare operator does not deploy InferenceStacks: its configuration disables them"
            )
        _weigh(obj, request)
        findings = await request.compute(
            _create_findings, obj, self._profile(obj), self.config.operator_version
        )
        warnings = await self._result(findings, obj, request)
        return [*warnings, *queue_label_warnings(obj)]

    async def validate_update(
        self, old: Object, obj: Object, request: AdmissionRequest
    ) -> list[str]:
        """Return the warnings about ``obj``. Raises :class:`FieldErrors` with the errors that ``old`` does not have.

        A stack that is being deleted is not validated, so that its finalizers can be removed.
        """
        if is_deleting(obj):
            return []
        if not self.is_responsible(obj):
            return await self._review_other_major(old, obj, request)
        _weigh(old, request)
        _weigh(obj, request)
        # If the old stack is not ours, everything that this operator creates for the stack is new.
        findings = await request.compute(
            _update_findings,
            old,
            obj,
            self._profile(obj),
            self.config.operator_version,
            is_new=not self._is_own(old),
        )
        warnings = await self._result(findings, obj, request)
        return [*warnings, *queue_label_warnings(obj, old)]

    async def _review_other_major(
        self, old: Object, obj: Object, request: AdmissionRequest
    ) -> list[str]:
        """Return the warnings of :meth:`other_major_warnings`, which checks permissions, unless its webhook does."""
        if operator_version_of(obj) not in _OTHER_VERSIONS:
            return await self.other_major_warnings(old, obj, request)
        return [] if _is_unchanged(old, obj) else self.version_warnings(obj)

    async def other_major_warnings(
        self, old: Object, obj: Object, request: AdmissionRequest
    ) -> list[str]:
        """Return the warnings about a stack of another major version, which is not validated.

        ``old`` is empty for a new one. Raises :class:`FieldErrors` if the user is not allowed to create what an
        operator of that version would create for ``obj``, and one of the same version did not create for ``old``.
        """
        if _is_unchanged(old, obj):
            return []  # such as an update by the operator of that version
        is_same = operator_version_of(old) == operator_version_of(obj)
        _weigh(old, request)
        _weigh(obj, request)
        resources = await request.compute(_new_resources, old if is_same else None, obj)
        FieldErrors.check(await self.reviewer.errors(resources, request))
        return self.version_warnings(obj)

    async def submission_errors(self, stack: Object, request: AdmissionRequest) -> list[FieldError]:
        """Return the errors with which ``stack`` would be refused if the user of ``request`` created it.

        For webhooks of objects from which stacks are created later. Whichever operator reconciles the stack, the user
        must be allowed to create its objects. A stack in another object has no queue of its own.
        """
        from cfo.api.inferencestack.queue import embedded_queue_errors

        _weigh(stack, request)
        findings = await request.compute(
            _create_findings, stack, self._profile(stack), self.config.operator_version
        )
        return [
            *findings.errors,
            *embedded_queue_errors(stack),
            *await self._access_errors(findings, request),
        ]

    def is_responsible(self, stack: Object) -> bool:
        """Return whether this webhook validates ``stack``: it has the own version, or none."""
        return self._is_own(stack) or not is_operator_version(operator_version_of(stack))

    def version_warnings(self, stack: Object) -> list[str]:
        """Return that a stack of another version waits, if no operator of that version seems to run."""
        version = operator_version_of(stack)
        if not self.running.lacks(version):
            return []
        label = Path("metadata", "labels").key(OPERATOR_VERSION_LABEL)
        warning = (
            f"{label}: no operator of version {version} seems to run, so the InferenceStack waits for one; this "
            f"operator has version {self.config.operator_version}"
        )
        return [warning]

    def _is_own(self, stack: Object) -> bool:
        return operator_version_of(stack) == self.config.operator_version

    def _profile(self, stack: Object) -> Profile | None:
        """Return the profile with which the operator will render ``stack``; ``None`` if it does not reconcile it."""
        if not self._is_own(stack):
            return None
        from cfo.api.inferencestack.profiles import newest_profile, pinned_profile

        return pinned_profile(stack) or newest_profile(self.config.operator_version)

    async def _result(
        self, findings: _Findings, stack: Object, request: AdmissionRequest
    ) -> list[str]:
        FieldErrors.check(findings.errors)
        if self._is_own(stack):
            FieldErrors.check(await self._access_errors(findings, request))
        return list(findings.warnings)

    async def _access_errors(
        self, findings: _Findings, request: AdmissionRequest
    ) -> list[FieldError]:
        """Return the errors in what the operator would create for the stack and did not create before."""
        errors: list[FieldError] = []
        if not self.config.allow_cluster_trigger_authentication:
            errors += findings.trigger_errors
        errors += await self.reviewer.errors(findings.resources, request)
        return errors


@dataclass(frozen=True, slots=True)
class _Findings:
    """What a review needs of the validation of a stack.

    Not the resolved stack, which takes up to 10 MB: other reviews compute while this one waits for the API server.
    ``resources`` are those of the objects that the operator would create and did not create before, each with the field
    that causes it; ``trigger_errors`` are the errors in new triggers, if they are not allowed.
    """

    errors: Sequence[FieldError] = ()
    warnings: Sequence[str] = ()
    trigger_errors: Sequence[FieldError] = ()
    resources: Mapping[GVR, Path] = field(default_factory=dict)


def _create_findings(stack: Object, profile: Profile | None, operator_version: str) -> _Findings:
    from cfo.api.inferencestack.validation.stack import validate

    return _findings(validate(stack, profile, operator_version))


def _update_findings(
    old: Object, stack: Object, profile: Profile | None, operator_version: str, *, is_new: bool
) -> _Findings:
    """Return the findings of an update; with ``is_new``, the operator has created nothing for ``old``."""
    from cfo.api.inferencestack.validation.stack import validate_update

    validation = validate_update(old, stack, profile, operator_version)
    return _findings(replace(validation, old=None) if is_new else validation)


def _findings(validation: StackValidation) -> _Findings:
    from cfo.api.inferencestack.created_resources import cluster_trigger_errors, created_resources

    stack = validation.stack
    if stack is None:  # the controller does not render it
        return _Findings(validation.errors, validation.warnings)
    return _Findings(
        validation.errors,
        validation.warnings,
        cluster_trigger_errors(stack, validation.old),
        created_resources(stack, validation.old),
    )


def _weigh(stack: Object, request: AdmissionRequest) -> None:
    """Count the template as work for each application, because it is merged into them; the types are not checked."""
    spec = mapping(stack.get("spec"))
    template = len(orjson.dumps(spec.get("applicationTemplate")))
    applications = mapping(spec.get("applications"))
    request.weigh(len(applications) * (template + _APPLICATION_BYTES))


@dataclass(frozen=True, eq=False)
class OtherMajors(Validator[Object]):
    """Checks the permissions of users whose stacks have another major version than ``webhook``, and that it runs."""

    webhook: InferenceStackWebhook

    async def validate_create(self, obj: Object, request: AdmissionRequest) -> list[str]:
        """Return warnings. Raise :class:`FieldErrors` if the user is not allowed to create what an operator would."""
        return await self.validate_update({}, obj, request)

    async def validate_update(
        self, old: Object, obj: Object, request: AdmissionRequest
    ) -> list[str]:
        """Like :meth:`validate_create`, for what an operator of the same version did not create for ``old``."""
        if is_deleting(obj) or self.webhook.is_responsible(obj):
            return []  # finalizers can be removed; the webhook for this version is called as well
        return await self.webhook.other_major_warnings(old, obj, request)


def _is_unchanged(old: Object, stack: Object) -> bool:
    """Return whether an update leaves the stack with its operator, and changes nothing that it reconciles."""
    is_same_version = operator_version_of(old) == operator_version_of(stack)
    return is_same_version and old.get("spec") == stack.get("spec")


def _new_resources(old: Object | None, stack: Object) -> Mapping[GVR, Path]:
    """Return the resources that an operator of another version would create for ``stack``, except those for ``old``."""
    from cfo.api.inferencestack.created_resources import created_resources
    from cfo.api.inferencestack.validation.stack import validate

    resolved = validate(stack, None).stack
    if resolved is None:
        return {}  # other versions may have fields of other types
    before = validate(old, None).stack if old is not None else None
    return created_resources(resolved, before)


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
        if config.enabled:  # only then is the operator allowed to read Leases
            manager.when_available(gvk, webhook.running.read)
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
