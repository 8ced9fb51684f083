"""Admission of MiniClusters, FluxJobs and FluxSetups: reject objects that cannot run.

:mod:`cfo.api.flux.validation` has the rules, which the controllers apply as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from typing import Any, Final

from cfo.api.flux.names import FLUX_JOB, FLUX_SETUP, MINICLUSTER
from cfo.runtime import (
    GVK,
    FieldError,
    FieldErrors,
    Manager,
    Object,
    is_deleting,
    labels_of,
    namespace_of,
)
from cfo.runtime.cache import Reader
from cfo.runtime.objects import GVR
from cfo.runtime.objects.field import Path
from cfo.runtime.webhook import AdmissionRequest, Operation, Validator
from cfo.webhooks.access import AccessReviewer

_OPERATIONS: Final = (Operation.CREATE, Operation.UPDATE)
_JOBS: Final = GVR("batch", "v1", "jobs")
_WITHOUT_PODS: Final = frozenset(
    {"cleanup", "priority", "priorityClassName", "suspend", "ttlSecondsAfterFinished"}
)
"""The fields of a spec that do not change what is created."""


def _rule(module: str, name: str) -> Callable[..., Any]:
    """Return a function of :mod:`cfo.api.flux.validation`, which is imported for the first review of a Flux object."""
    return lambda *arguments: getattr(import_module(f"cfo.api.flux.validation.{module}"), name)(
        *arguments
    )


@dataclass(frozen=True, eq=False)
class FluxValidator(Validator[Object]):
    """The validator of one kind.

    ``errors`` returns the errors in an object, ``update_errors`` those in a change, which depend on the old object, and
    ``warnings`` what has no effect. With ``reviewer``, users who create an object, or change its pods, must be allowed
    to create Jobs: the operator creates one for the object, whose pods contain what these users wrote. Creators are
    warned unless ``is_served``.
    """

    errors: Callable[[Object], list[FieldError]]
    update_errors: Callable[[Object, Object], list[FieldError]] = lambda old, new: []
    warnings: Callable[[Object], list[str]] = lambda obj: []
    reviewer: AccessReviewer | None = None
    is_served: bool = True

    async def validate_create(self, obj: Object, request: AdmissionRequest) -> list[str]:
        """Return warnings. Raise :class:`FieldErrors` with all errors if ``obj`` is invalid."""
        FieldErrors.check(await request.compute(self.errors, obj))
        FieldErrors.check(await self.submission_errors(obj, request))
        if not self.is_served:
            request.warn(
                "the CodeFlare operator does not run Flux objects: its configuration disables them"
            )
        return self.warnings(obj)

    async def submission_errors(self, obj: Object, request: AdmissionRequest) -> list[FieldError]:
        """Return an error if the user of ``request`` is not allowed to create what the operator creates for ``obj``.

        Also for webhooks of objects from which ``obj`` is created later.
        """
        if self.reviewer is None:
            return []
        return await self.reviewer.errors({_JOBS: Path("spec")}, request)

    async def validate_update(
        self, old: Object, obj: Object, request: AdmissionRequest
    ) -> list[str]:
        """Return warnings. Raise :class:`FieldErrors` with errors in the change, and those that ``old`` does not have.

        An object that is being deleted is not validated, so that its finalizers can be removed.
        """
        if is_deleting(obj):
            return []
        if old.get("spec") == obj.get("spec"):
            if labels_of(old) != labels_of(obj):
                FieldErrors.check(self.update_errors(old, obj))
            return []
        FieldErrors.check(await request.compute(self._changed, old, obj))
        if _renders_more(old, obj):
            FieldErrors.check(await self.submission_errors(obj, request))
        return self.warnings(obj)

    def _changed(self, old: Object, new: Object) -> list[FieldError]:
        from cfo.api.flux.validation import new_errors

        return [*self.update_errors(old, new), *new_errors(self.errors, old, new)]


def _renders_more(old: Object, new: Object) -> bool:
    """Return whether an update changes the pods, or adds some. Kueue and other controllers suspend and resume."""
    before, after = (
        {key: value for key, value in (obj.get("spec") or {}).items() if key not in _WITHOUT_PODS}
        for obj in (old, new)
    )
    size, wanted = before.get("size"), after.get("size")
    if isinstance(size, int) and isinstance(wanted, int) and wanted < size:
        after["size"] = size
    return before != after


def setup(
    manager: Manager,
    admin_namespaces: Collection[str],
    *,
    check_permissions: bool = True,
    is_served: bool = True,
) -> dict[GVK, FluxValidator]:
    """Register the webhooks of all Flux kinds with ``manager``, which serves them on every replica; return them.

    ``admin_namespaces``: the namespaces whose FluxSetups may select other namespaces. ``check_permissions``: whether
    creators of MiniClusters and FluxJobs must be allowed to create Jobs. ``is_served``: whether this operator's
    controllers run; only then it may read FluxSetups, on which warnings about a FluxJob depend.
    """

    def setup_warnings(obj: Object) -> list[str]:
        namespace = namespace_of(obj)
        if (obj.get("spec") or {}).get(
            "namespaceSelector"
        ) is None or namespace in admin_namespaces:
            return []
        reason = f"FluxSetups in namespace {namespace} are not allowed to select other namespaces"
        return [
            f"spec.namespaceSelector: the FluxSetup is inactive: {reason} (flux.adminNamespaces)"
        ]

    readers: list[Reader] = []
    if is_served:
        manager.when_available(
            FLUX_SETUP, lambda _: readers.append(manager.cache.informer(FLUX_SETUP).reader)
        )

    def setups_for(job: Object) -> Iterator[Object]:
        for reader, namespace in product(readers, {namespace_of(job), *admin_namespaces}):
            yield from reader.list(namespace)

    reviewer = AccessReviewer(manager.api_reader, check_permissions=check_permissions)
    validators = {
        MINICLUSTER: FluxValidator(
            _rule("minicluster", "validate_minicluster"),
            _rule("queue", "minicluster_queue_errors"),
            _rule("minicluster", "minicluster_warnings"),
            reviewer,
            is_served,
        ),
        FLUX_JOB: FluxValidator(
            _rule("queue", "validate_flux_job"),
            _rule("queue", "flux_job_update_errors"),
            lambda job: _rule("queue", "flux_job_warnings")(job, setups_for(job)),
            reviewer,
            is_served,
        ),
        FLUX_SETUP: FluxValidator(
            _rule("queue", "validate_flux_setup"), warnings=setup_warnings, is_served=is_served
        ),
    }
    for kind, validator in validators.items():
        manager.webhooks.register(kind, validator=validator, validator_operations=_OPERATIONS)
    return validators
