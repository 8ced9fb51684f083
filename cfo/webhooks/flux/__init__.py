"""Admission of MiniClusters, FluxJobs and FluxSetups: reject objects that cannot run.

:mod:`cfo.api.flux.validation` has the rules, which the controllers apply as well.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final

import orjson

from cfo.api.flux.names import EVICTED, FLUX_JOB, FLUX_SETUP, MINICLUSTER, QUOTA_RESERVED
from cfo.api.reading import mapping
from cfo.config.part import EVERYTHING, Part
from cfo.runtime import (
    GVK,
    Entry,
    FieldError,
    FieldErrors,
    Manager,
    NamespacedName,
    Object,
    is_deleting,
    labels_of,
    namespace_of,
)
from cfo.runtime.cache import Reader
from cfo.runtime.objects import GVR
from cfo.runtime.objects.field import Path, forbidden
from cfo.runtime.webhook import AdmissionRequest, Operation, Validator
from cfo.webhooks.access import AccessReviewer
from cfo.webhooks.flux.json_types import (
    FLUX_JOB_SPEC,
    FLUX_SETUP_SPEC,
    MINICLUSTER_SPEC,
    is_too_large,
    json_type_errors,
)
from cfo.webhooks.queue_labels import LABELS, Place, queue_label_warnings
from cfo.webhooks.shapes import Shape
from cfo.webhooks.unreconciled import within_part

_OPERATIONS: Final = (Operation.CREATE, Operation.UPDATE)
_JOBS: Final = GVR("batch", "v1", "jobs")
_FIELDS_WITHOUT_EFFECT_ON_PODS: Final = frozenset(
    {"cleanup", "priority", "priorityClassName", "suspend", "ttlSecondsAfterFinished"}
)
"""The fields of a spec that do not change which pods are created."""


class FluxValidator(Validator[Object]):
    """The validator of one kind; the first review imports the rules.

    With ``reviewer``, users who create an object, or change its pods, must be allowed to create Jobs: the operator
    creates one for the object, whose pods contain what these users wrote. Unless ``is_served``, users are warned that
    the object they create has no effect.
    """

    spec: ClassVar[Shape]
    """The JSON types of the spec."""

    queue_labels: ClassVar[Sequence[Place]]
    """Where an object can have the label of a queue of Kueue; empty if it never has one."""

    def __init__(self, reviewer: AccessReviewer | None = None, *, is_served: bool = True) -> None:
        self._reviewer = reviewer
        self._is_served = is_served

    @abstractmethod
    def errors(self, obj: Object) -> list[FieldError]:
        """Return the errors in ``obj``, whose fields have the right JSON types."""

    def update_errors(self, old: Object, new: Object) -> list[FieldError]:
        """Return the errors of rules that compare the new object with the old one, whose types are checked."""
        return []

    def start_errors(
        self, old: Object | None, new: Object, request: AdmissionRequest
    ) -> list[FieldError]:
        """Return an error if ``new`` would run, unlike ``old``, and may not. Their fields have any types."""
        return []

    def can_leave(self, old: Object, obj: Object, request: AdmissionRequest) -> bool:
        """Return whether another operator can take over ``old``, whose fields have any types."""
        return True

    def warnings(self, obj: Object) -> list[str]:
        """Return what has no effect in ``obj``."""
        return []

    def change_warnings(self, old: Object, new: Object) -> list[str]:
        """Return which changes have no effect."""
        return []

    async def validate_create(self, obj: Object, request: AdmissionRequest) -> list[str]:
        """Return warnings. Raise :class:`FieldErrors` with all errors if ``obj`` is invalid."""
        FieldErrors.check(await request.compute(self._create_errors, obj))
        FieldErrors.check(self.start_errors(None, obj, request))
        FieldErrors.check(await self.submission_errors(obj, request))
        if not self._is_served:
            request.warn(
                "the CodeFlare operator does not run Flux objects: its configuration disables them"
            )
        return [*self.warnings(obj), *self._queue_warnings(obj)]

    async def submission_errors(self, obj: Object, request: AdmissionRequest) -> list[FieldError]:
        """Return an error if the user of ``request`` is not allowed to create what the operator creates for ``obj``.

        Webhooks of other kinds call this for objects that contain ``obj``, such as AppWrappers.
        """
        if self._reviewer is None:
            return []
        field_by_resource = {_JOBS: Path("spec")}
        return await self._reviewer.errors(field_by_resource, request)

    async def validate_update(
        self, old: Object, obj: Object, request: AdmissionRequest
    ) -> list[str]:
        """Return warnings. Raise :class:`FieldErrors` with the errors in the change.

        These are the errors in ``obj`` that ``old`` does not have, and those of :meth:`update_errors`. An object that
        is being deleted is not validated, so that its finalizers can be removed.
        """
        if is_deleting(obj):
            return []
        FieldErrors.check(self.start_errors(old, obj, request))
        if old.get("spec") == obj.get("spec"):
            if labels_of(old) != labels_of(obj):
                FieldErrors.check(await request.compute(self._label_errors, old, obj))
                warnings = [] if is_too_large(obj) else self.warnings(obj)
                return [*warnings, *self._queue_warnings(obj, old)]
            return []
        FieldErrors.check(await request.compute(self._change_errors, old, obj))
        if _changes_or_adds_pods(old, obj):
            FieldErrors.check(await self.submission_errors(obj, request))
        if is_too_large(obj):
            return []  # as before the update
        return [
            *self.change_warnings(old, obj),
            *self.warnings(obj),
            *self._queue_warnings(obj, old),
        ]

    def _queue_warnings(self, obj: Object, old: Object | None = None) -> list[str]:
        if not self.queue_labels:
            return []
        return queue_label_warnings(obj, old, places=self.queue_labels)

    def _create_errors(self, obj: Object) -> list[FieldError]:
        return json_type_errors(obj, self.spec) or self.errors(obj)

    def _label_errors(self, old: Object, new: Object) -> list[FieldError]:
        errors = json_type_errors(new, self.spec)
        if errors or is_too_large(new):
            return errors
        return self.update_errors(old, new)

    def _change_errors(self, old: Object, new: Object) -> list[FieldError]:
        from cfo.api.flux.validation import new_errors

        errors = json_type_errors(new, self.spec)
        if errors:
            return errors
        if json_type_errors(old, self.spec):
            return self.errors(new)
        errors = new_errors(self.errors, old, new)
        if is_too_large(old) or is_too_large(new):
            return errors
        return [*self.update_errors(old, new), *errors]


def _unknown_job(cluster: NamespacedName) -> Entry | None:
    return None


class MiniClusterValidator(FluxValidator):
    """The validator of MiniClusters. ``job_of`` returns the FluxJob with the name of a MiniCluster, if it is known."""

    spec = MINICLUSTER_SPEC
    queue_labels = (("spec", "jobLabels"),)

    def __init__(
        self,
        reviewer: AccessReviewer | None = None,
        *,
        job_of: Callable[[NamespacedName], Entry | None] = _unknown_job,
        is_served: bool = True,
    ) -> None:
        super().__init__(reviewer, is_served=is_served)
        self._job_of = job_of

    def start_errors(
        self, old: Object | None, new: Object, request: AdmissionRequest
    ) -> list[FieldError]:
        """Return an error if ``new`` would run although its FluxJob has no quota, which would be kept from others.

        Controllers may resume it: what is known of the FluxJob can be older than its admission.
        """
        from cfo.api.flux.facts import controlling_job, is_true
        from cfo.api.flux.validation.queue import runs_without_kueue

        if request.is_from_controller or not runs_without_kueue(new):
            return []
        if old is not None and runs_without_kueue(old):
            return []
        uid = controlling_job(new)
        job = self._job_of(NamespacedName(request.namespace, request.name)) if uid else None
        if job is None or job.meta.uid != uid:
            return []
        status = {"status": orjson.loads(bytes(job.part("status") or b"null"))}
        if is_true(status, QUOTA_RESERVED) and not is_true(status, EVICTED):
            return []
        detail = f"must be true while FluxJob {request.name}, to which the MiniCluster belongs, has no quota"
        return [forbidden(Path("spec", "suspend"), detail)]

    def errors(self, obj: Object) -> list[FieldError]:
        """Return the errors in a MiniCluster."""
        from cfo.api.flux.validation.minicluster import validate_minicluster

        return validate_minicluster(obj)

    def update_errors(self, old: Object, new: Object) -> list[FieldError]:
        """Return the errors in a change of a MiniCluster."""
        from cfo.api.flux.validation.queue import minicluster_queue_errors

        return minicluster_queue_errors(old, new)

    def can_leave(self, old: Object, obj: Object, request: AdmissionRequest) -> bool:
        """Return whether nothing of a MiniCluster runs, so that no pods depend on its controller."""
        from cfo.api.flux.validation.queue import is_idle_minicluster

        return is_idle_minicluster(old)

    def warnings(self, obj: Object) -> list[str]:
        """Return what has no effect in a MiniCluster."""
        from cfo.api.flux.validation.minicluster import minicluster_warnings

        return minicluster_warnings(obj)

    def change_warnings(self, old: Object, new: Object) -> list[str]:
        """Return which changes the Job of a MiniCluster does not follow."""
        from cfo.api.flux.validation.minicluster import change_warnings

        return change_warnings(old, new)


class FluxJobValidator(FluxValidator):
    """The validator of FluxJobs. ``setups_for`` returns the FluxSetups that may govern a job."""

    spec = FLUX_JOB_SPEC
    queue_labels = (LABELS, ("spec", "template", "jobLabels"))

    def __init__(
        self,
        setups_for: Callable[[Object], Iterable[Object]],
        reviewer: AccessReviewer | None = None,
        *,
        is_served: bool = True,
    ) -> None:
        super().__init__(reviewer, is_served=is_served)
        self._setups_for = setups_for

    def errors(self, obj: Object) -> list[FieldError]:
        """Return the errors in a FluxJob."""
        from cfo.api.flux.validation.queue import validate_flux_job

        return validate_flux_job(obj)

    def update_errors(self, old: Object, new: Object) -> list[FieldError]:
        """Return the errors in a change of a FluxJob."""
        from cfo.api.flux.validation.queue import flux_job_update_errors

        return flux_job_update_errors(old, new)

    def can_leave(self, old: Object, obj: Object, request: AdmissionRequest) -> bool:
        """Return whether a FluxJob has no quota, which only its controller gives back."""
        from cfo.api.flux.facts import is_true

        return not is_true(old, QUOTA_RESERVED)

    def warnings(self, obj: Object) -> list[str]:
        """Return what has no effect in a FluxJob."""
        from cfo.api.flux.validation.queue import flux_job_warnings

        return flux_job_warnings(obj, self._setups_for(obj))


class FluxSetupValidator(FluxValidator):
    """The validator of FluxSetups, of which those in ``admin_namespaces`` may select other namespaces."""

    spec = FLUX_SETUP_SPEC
    queue_labels = ()

    def __init__(self, admin_namespaces: Collection[str] = (), *, is_served: bool = True) -> None:
        super().__init__(is_served=is_served)
        self._admin_namespaces = admin_namespaces

    def errors(self, obj: Object) -> list[FieldError]:
        """Return the errors in a FluxSetup."""
        from cfo.api.flux.validation.queue import validate_flux_setup

        return validate_flux_setup(obj)

    def warnings(self, obj: Object) -> list[str]:
        """Return what has no effect in a FluxSetup."""
        from cfo.api.flux.validation.minicluster import ignored_fields

        spec = obj.get("spec") or {}
        ignored = ignored_fields(spec.get("mini-cluster") or {}, Path("spec", "mini-cluster"))
        selector = spec.get("namespaceSelector")
        namespace = namespace_of(obj)
        if selector is None or namespace in self._admin_namespaces:
            return ignored
        warning = (
            f"spec.namespaceSelector: the FluxSetup is inactive: FluxSetups in namespace {namespace} "
            "are not allowed to select other namespaces (flux.adminNamespaces)"
        )
        return [warning, *ignored]


def _changes_or_adds_pods(old: Object, new: Object) -> bool:
    """Return whether an update changes the pods, or adds some.

    Suspending, resuming and removing pods needs no permission to create Jobs: Kueue and other controllers do this.
    """
    before = _pod_fields(old)
    after = _pod_fields(new)
    old_size = before.pop("size", None)
    new_size = after.pop("size", None)
    is_smaller = isinstance(old_size, int) and isinstance(new_size, int) and new_size < old_size
    if new_size != old_size and not is_smaller:
        return True
    return before != after


def _pod_fields(obj: Object) -> dict[str, Any]:
    spec = mapping(obj.get("spec"))  # the old object may have any type
    return {key: value for key, value in spec.items() if key not in _FIELDS_WITHOUT_EFFECT_ON_PODS}


def setup(
    manager: Manager,
    admin_namespaces: Collection[str],
    *,
    check_permissions: bool = True,
    is_served: bool = True,
    part: Part = EVERYTHING,
) -> dict[GVK, FluxValidator]:
    """Register the webhooks of all Flux kinds with ``manager``, which serves them on every replica; return them.

    ``admin_namespaces``: the namespaces whose FluxSetups may select other namespaces. ``check_permissions``: whether
    creators of MiniClusters and FluxJobs must be allowed to create Jobs. ``is_served``: whether this operator's
    controllers run; only then is it allowed to read FluxSetups, on which warnings about a FluxJob depend, and FluxJobs,
    on which it depends whether a MiniCluster may be resumed.
    ``part`` is what this operator reconciles.
    """
    setups: Reader | None = None
    jobs: Reader | None = None

    def read_setups(manager: Manager) -> None:
        nonlocal setups
        setups = manager.cache.informer(FLUX_SETUP).reader

    def read_jobs(manager: Manager) -> None:
        nonlocal jobs
        jobs = manager.cache.informer(FLUX_JOB).reader

    if is_served:
        manager.when_available(FLUX_SETUP, read_setups)
        manager.when_available(FLUX_JOB, read_jobs)

    def setups_for(job: Object) -> Iterator[Object]:
        if setups is None:  # the kind is not served, or not yet
            return
        for namespace in {namespace_of(job), *admin_namespaces}:
            yield from setups.list(namespace)

    def job_of(cluster: NamespacedName) -> Entry | None:
        return jobs.entry(cluster) if jobs is not None else None

    reviewer = AccessReviewer(manager.api_reader, check_permissions=check_permissions)
    validators: dict[GVK, FluxValidator] = {
        MINICLUSTER: MiniClusterValidator(reviewer, job_of=job_of, is_served=is_served),
        FLUX_JOB: FluxJobValidator(setups_for, reviewer, is_served=is_served),
        FLUX_SETUP: FluxSetupValidator(admin_namespaces, is_served=is_served),
    }
    for kind, validator in validators.items():
        manager.webhooks.register(
            kind,
            validator=within_part(validator, part, validator.can_leave),
            validator_operations=_OPERATIONS,
        )
    return validators
