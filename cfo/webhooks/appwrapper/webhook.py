"""The defaulting and validating webhook of AppWrappers, and its registration with a manager."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from cfo.api.appwrapper import APPWRAPPER
from cfo.config import AppWrapperConfiguration
from cfo.runtime import GVK, Client, FieldError, FieldErrors, Manager, Object, Rule, gvk_of
from cfo.runtime.webhook import AdmissionRequest, Operation
from cfo.webhooks.appwrapper.access import AccessReviewer
from cfo.webhooks.appwrapper.defaulting import set_labels
from cfo.webhooks.appwrapper.embedded import planned_objects
from cfo.webhooks.appwrapper.json_types import count_errors, json_type_errors
from cfo.webhooks.appwrapper.validation import component_kinds, create_errors, create_warnings, update_errors

__all__ = ["AppWrapperWebhook", "rules", "setup"]

EmbeddedValidators = Mapping[GVK, Callable[[Object, AdmissionRequest], Awaitable[list[FieldError]]]]
"""Return the errors with which an object would be refused if it were created in the namespace of a request, by kind."""

_DEFAULTED_OPERATIONS: Final = (Operation.CREATE,)
_VALIDATED_OPERATIONS: Final = (Operation.CREATE, Operation.UPDATE)


def rules() -> list[Rule]:
    """Return the RBAC rules that the webhook needs."""
    return [Rule("authorization.k8s.io", "subjectaccessreviews", ("create",))]


class AppWrapperWebhook:
    """The defaulter and validator of AppWrappers. ``client`` must not read from a cache.

    ``validators`` validate the objects that are created from components; those of other kinds are not validated.
    """

    def __init__(
        self, client: Client, config: AppWrapperConfiguration, validators: EmbeddedValidators | None = None
    ) -> None:
        self._validators = validators or {}
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
        FieldErrors.check(await self._embedded_errors(obj, request))
        request.warn(*create_warnings(obj, counts_added_pods=self._counts_added_pods))

    async def _embedded_errors(self, obj: Object, request: AdmissionRequest) -> list[FieldError]:
        """Return the errors in the objects that will be created; the number of pod sets limits their number."""
        errors: list[FieldError] = []
        for planned in planned_objects(obj):
            if validate := self._validators.get(gvk_of(planned.obj)):
                errors += map(planned.located, await validate(planned.obj, request))
        return errors

    async def validate_update(self, old: Object, obj: Object, request: AdmissionRequest) -> None:
        """Raise :class:`FieldErrors` if a field that was validated on creation has changed."""
        FieldErrors.check(await request.compute(update_errors, old, obj))

    def validate_delete(self, obj: Object, request: AdmissionRequest) -> None:
        """Allow every deletion."""


def setup(manager: Manager, config: AppWrapperConfiguration, validators: EmbeddedValidators | None = None) -> None:
    """Register the webhook of AppWrappers with ``manager``, which serves it on every replica.

    For ``validators`` see :class:`AppWrapperWebhook`.
    """
    webhook = AppWrapperWebhook(manager.api_reader, config, validators)
    manager.webhooks.register(
        APPWRAPPER,
        defaulter=webhook,
        validator=webhook,
        operations=_DEFAULTED_OPERATIONS,
        validator_operations=_VALIDATED_OPERATIONS,
    )
