"""The defaulting and validating webhook of AppWrappers, and its registration with a manager."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from cfo.api.appwrapper import APPWRAPPER
from cfo.config import AppWrapperConfiguration
from cfo.runtime import Client, FieldError, FieldErrors, Manager, Object, Rule
from cfo.runtime.webhook import AdmissionRequest, Operation
from cfo.webhooks.appwrapper.access import AccessReviewer
from cfo.webhooks.appwrapper.defaulting import set_labels
from cfo.webhooks.appwrapper.json_types import count_errors, json_type_errors
from cfo.webhooks.appwrapper.ray_clusters import planned_clusters
from cfo.webhooks.appwrapper.validation import component_kinds, create_errors, create_warnings, update_errors

__all__ = ["AppWrapperWebhook", "ClusterErrors", "rules", "setup"]

ClusterErrors = Callable[[Object, AdmissionRequest], Awaitable[list[FieldError]]]
"""Returns the errors with which a RayCluster would be refused if it were created in the namespace of a request."""

_DEFAULTED_OPERATIONS: Final = (Operation.CREATE,)
_VALIDATED_OPERATIONS: Final = (Operation.CREATE, Operation.UPDATE)


def rules() -> list[Rule]:
    """Return the RBAC rules that the webhook needs."""
    return [Rule("authorization.k8s.io", "subjectaccessreviews", ("create",))]


class AppWrapperWebhook:
    """The defaulter and validator of AppWrappers. ``client`` must not read from a cache.

    ``cluster_errors`` is the validation of RayClusters; ``None`` if they are not validated.
    """

    def __init__(
        self, client: Client, config: AppWrapperConfiguration, cluster_errors: ClusterErrors | None = None
    ) -> None:
        self._cluster_errors = cluster_errors
        self._counts_added_pods = config.kueue_integration
        self._default_queue_name = config.default_queue_name
        self._reviewer = AccessReviewer(client, check_permissions=config.user_rbac_admission_check)

    def default(self, obj: Object, request: AdmissionRequest) -> None:
        """Label ``obj`` with its queue and its creator."""
        set_labels(obj, request.user_info, self._default_queue_name)

    async def validate_create(self, obj: Object, request: AdmissionRequest) -> None:
        """Raise :class:`FieldErrors` with all errors if ``obj`` is invalid."""
        FieldErrors.check(count_errors(obj) or json_type_errors(obj))
        access = await self._reviewer.review(component_kinds(obj), request.namespace, request.user_info)
        FieldErrors.check(await request.compute(create_errors, obj, request.namespace, access))
        FieldErrors.check(await self._ray_errors(obj, request))
        request.warn(*create_warnings(obj, counts_added_pods=self._counts_added_pods))

    async def _ray_errors(self, obj: Object, request: AdmissionRequest) -> list[FieldError]:
        """Return the errors in the RayClusters that will be created; the number of pod sets limits their number."""
        errors: list[FieldError] = []
        if self._cluster_errors is not None:
            for planned in planned_clusters(obj):
                errors += map(planned.located, await self._cluster_errors(planned.cluster, request))
        return errors

    async def validate_update(self, old: Object, obj: Object, request: AdmissionRequest) -> None:
        """Raise :class:`FieldErrors` if a field that was validated on creation has changed."""
        FieldErrors.check(await request.compute(update_errors, old, obj))

    def validate_delete(self, obj: Object, request: AdmissionRequest) -> None:
        """Allow every deletion."""


def setup(manager: Manager, config: AppWrapperConfiguration, cluster_errors: ClusterErrors | None = None) -> None:
    """Register the webhook of AppWrappers with ``manager``, which serves it on every replica.

    ``cluster_errors`` is the validation of RayClusters, if the operator validates them.
    """
    webhook = AppWrapperWebhook(manager.api_reader, config, cluster_errors)
    manager.webhooks.register(
        APPWRAPPER,
        defaulter=webhook,
        validator=webhook,
        operations=_DEFAULTED_OPERATIONS,
        validator_operations=_VALIDATED_OPERATIONS,
    )
