"""Admission of AppWrappers: who made one is written down, and one that cannot run is refused.

An AppWrapper lets its creator make anything, through the operator: so it may hold only what the creator may create
(:mod:`.access` asks the API server), in its own namespace. All else that :mod:`.validation` refuses would be found out
only when the components are created, or never. Nothing that was validated may change later.
"""

from __future__ import annotations

from typing import Final

from cfo.api.appwrapper import APPWRAPPER
from cfo.config import AppWrapperConfiguration
from cfo.runtime.client.client import Client
from cfo.runtime.field import FieldErrors
from cfo.runtime.manager import Manager
from cfo.runtime.objects import Object
from cfo.runtime.reconcile import Rule
from cfo.runtime.webhook.admission import AdmissionRequest, Operation
from cfo.webhooks.appwrapper.access import AccessReviewer
from cfo.webhooks.appwrapper.defaulting import set_labels
from cfo.webhooks.appwrapper.validation import created_errors, kinds_of, updated_errors

__all__ = ["AppWrapperWebhook", "register", "rules"]


def rules() -> list[Rule]:
    """The rights that admission needs."""
    return [Rule("authorization.k8s.io", "subjectaccessreviews", ("create",))]


class AppWrapperWebhook:
    """Defaulter and validator of AppWrappers. ``client`` must not read from a cache: it asks who may do what."""

    def __init__(self, client: Client, config: AppWrapperConfiguration) -> None:
        self._default_queue_name = config.default_queue_name
        self._reviewer = AccessReviewer(client, ask=config.user_rbac_admission_check)

    def default(self, obj: Object, request: AdmissionRequest) -> None:
        """Labels ``obj`` with its queue and its creator."""
        set_labels(obj, request.user_info, self._default_queue_name)

    async def validate_create(self, obj: Object, request: AdmissionRequest) -> None:
        """Raises :class:`FieldErrors` with everything that is wrong with ``obj``."""
        access = await self._reviewer.review(kinds_of(obj), request.namespace, request.user_info)
        FieldErrors.check(created_errors(obj, request.namespace, access))

    def validate_update(self, old: Object, obj: Object, request: AdmissionRequest) -> None:
        """Raises :class:`FieldErrors` where what was validated at the creation has changed."""
        FieldErrors.check(updated_errors(old, obj))

    def validate_delete(self, obj: Object, request: AdmissionRequest) -> None:
        """Anybody who may delete an AppWrapper may."""


_CREATION: Final = (Operation.CREATE,)
_WRITES: Final = (Operation.CREATE, Operation.UPDATE)


def register(manager: Manager, config: AppWrapperConfiguration) -> None:
    """Serves the admission of AppWrappers on every replica of ``manager``."""
    webhook = AppWrapperWebhook(manager.api_reader, config)
    manager.webhooks.register(
        APPWRAPPER, defaulter=webhook, validator=webhook, operations=_CREATION, validator_operations=_WRITES
    )
