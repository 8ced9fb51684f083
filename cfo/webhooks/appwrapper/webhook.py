"""The defaulting and validating webhook of AppWrappers, and its registration with a manager.

The webhook also validates the objects that will be created from the components and have webhooks of the operator. The
API server calls these only when a component is created, or when KubeRay creates the cluster of a RayJob or RayService.
A refusal at that time would leave an admitted AppWrapper that cannot run, and its user would be the operator, so that
nothing would check the permissions of the AppWrapper's creator.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import msgspec

from cfo.api.appwrapper.names import (
    APPWRAPPER,
    USER_ID_LABEL,
    USER_LABEL,
    is_idle,
    workload_name,
)
from cfo.api.flux.names import FLUX_JOB, MINICLUSTER
from cfo.api.kueue import QUEUE_NAME_LABEL, WORKLOADS
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.api.reading import mapping
from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.config.part import EVERYTHING, Part
from cfo.runtime import (
    GVK,
    APIError,
    Client,
    DiscoveryIncomplete,
    FieldError,
    FieldErrors,
    Manager,
    NamespacedName,
    Object,
    TransportError,
    UnknownKind,
    gvk_of,
)
from cfo.runtime.objects.field import Path, forbidden
from cfo.runtime.process import printable
from cfo.runtime.webhook import AdmissionRequest, Operation, UserInfo, Validator
from cfo.webhooks.access import AccessReviewer
from cfo.webhooks.queue_labels import queue_label_warnings
from cfo.webhooks.turns import Turns
from cfo.webhooks.unreconciled import string_labels, within_part

EmbeddedValidators = Mapping[GVK, Callable[[Object, AdmissionRequest], Awaitable[list[FieldError]]]]
"""Return the errors with which an object would be refused if it were created in the namespace of a request, by kind."""

_MAX_PLANNED: Final = 20
"""The maximum number of components that other webhooks of the operator validate: each costs as much as a review."""

_MAX_REASON_LENGTH: Final = 200

_SELECTED_KINDS: Final = (RAY_CLUSTER, FLUX_JOB, MINICLUSTER)
"""The kinds of components to which the operator's label selector applies."""

_DEFAULTED_OPERATIONS: Final = (Operation.CREATE,)
_VALIDATED_OPERATIONS: Final = (Operation.CREATE, Operation.UPDATE)


class AppWrapperWebhook(Validator[Object]):
    """The defaulter and validator of AppWrappers. ``client`` must not read from a cache.

    What reviews need is imported by the first one, because most operators have no AppWrappers.
    ``validators`` validate the objects that are created from components; those of other kinds are not validated.
    ``part`` is what this operator reconciles.
    """

    def __init__(
        self,
        client: Client,
        config: AppWrapperConfiguration,
        validators: EmbeddedValidators | None = None,
        part: Part = EVERYTHING,
    ) -> None:
        self._part = part
        # Others may be added to the given ones later.
        self._validators = validators if validators is not None else {}
        self._is_enabled = config.enabled
        self._fault_tolerance = config.fault_tolerance
        self._queues_itself = config.kueue_integration
        self._default_queue_name = config.default_queue_name
        self._client = client
        self._turns = Turns()
        self._reviewer = AccessReviewer(client, check_permissions=config.user_rbac_admission_check)

    def default(self, obj: Object, request: AdmissionRequest) -> None:
        """Label ``obj`` with its queue and its creator."""
        set_labels(obj, request.user_info, self._default_queue_name)

    async def validate_create(self, obj: Object, request: AdmissionRequest) -> None:
        """Raise :class:`FieldErrors` with all errors if ``obj`` is invalid."""
        from cfo.webhooks.appwrapper import validation

        FieldErrors.check(validation.count_errors(obj) or validation.json_type_errors(obj))
        access = await self._reviewer.review(validation.component_kinds(obj), request)
        errors = await request.compute(validation.create_errors, obj, request.namespace, access)
        FieldErrors.check(errors)
        FieldErrors.check(await self._embedded_errors(obj, request))
        request.warn(*await request.compute(self._warnings, obj))
        request.warn(*queue_label_warnings(obj))
        if not self._is_enabled:
            request.warn(
                "the CodeFlare operator does not deploy AppWrappers: its configuration disables them"
            )

    def _warnings(self, obj: Object) -> list[str]:
        from cfo.config.appwrapper_settings import Settings
        from cfo.webhooks.appwrapper.validation import create_warnings

        settings = Settings.of({"metadata": _metadata(obj)}, self._fault_tolerance)
        warnings = list(create_warnings(obj, counts_added_pods=self._queues_itself))
        return [*settings.problems, *warnings, *self._selector_warnings(obj)]

    def _selector_warnings(self, obj: Object) -> Iterator[str]:
        """Yield a warning for each object that the selector leaves out, although it selects the AppWrapper."""
        selector = self._part.selector
        if not selector or not selector.matches(string_labels(obj)):
            return  # the AppWrapper is warned of itself
        for planned in islice(planned_objects(obj, _SELECTED_KINDS), _MAX_PLANNED):
            if not selector.matches(string_labels(planned.obj)):
                yield (
                    f"{planned.template_path.child('metadata', 'labels')}: the CodeFlare operator in namespace "
                    f"{self._part.operator} does not reconcile this {planned.obj['kind']}, because its labels do not "
                    f"match labelSelector {selector}"
                )

    async def _embedded_errors(self, obj: Object, request: AdmissionRequest) -> list[FieldError]:
        """Return the errors in the objects that will be created, at most one for each component."""
        errors: list[FieldError] = []
        for number, planned in enumerate(planned_objects(obj, self._validators)):
            if number == _MAX_PLANNED:
                detail = f"at most {_MAX_PLANNED} such objects are allowed"
                errors.append(forbidden(planned.template_path, detail))
                break
            validate = self._validators[gvk_of(planned.obj)]
            found = await validate(planned.obj, request)
            errors += (planned.located(error) for error in found)
        return errors

    async def validate_update(self, old: Object, obj: Object, request: AdmissionRequest) -> None:
        """Raise :class:`FieldErrors` if a field that was validated on creation has changed."""
        from cfo.webhooks.appwrapper.validation import (
            change_warnings,
            template_change_warnings,
            update_errors,
        )

        errors = await request.compute(update_errors, old, obj)
        if any(error.field.endswith(".template.raw") for error in errors):
            request.warn(*await request.compute(template_change_warnings, old, obj))
        request.warn(*change_warnings(errors), *queue_label_warnings(obj, old))
        FieldErrors.check(errors)

    async def can_leave(self, old: Object, obj: Object, request: AdmissionRequest) -> bool:
        """Return whether another operator can take over an AppWrapper.

        Kueue can admit its Workload at any time, so it must neither have one, nor have or get a queue. The operator
        may not have seen yet that its queue was removed, so the Workload is read.
        """
        if not is_idle(old) or _has_queue(old) or _has_queue(obj):
            return False
        return not self._queues_itself or not await self._has_workload(old, request)

    async def _has_workload(self, appwrapper: Object, request: AdmissionRequest) -> bool:
        """Return whether the Workload of an AppWrapper exists; also if it cannot be read."""
        uid = mapping(appwrapper.get("metadata")).get("uid")
        identity = {"metadata": {"name": request.name, "uid": uid if isinstance(uid, str) else ""}}
        key = NamespacedName(request.namespace, workload_name(identity))
        for workload in WORKLOADS:
            try:
                async with self._turns.turn(request.client, request.namespace):
                    return await self._client.get(workload, key, live=True) is not None
            except UnknownKind:
                continue
            except (APIError, TransportError, DiscoveryIncomplete, ValueError) as error:
                reason = printable(str(error), _MAX_REASON_LENGTH)
                request.warn(f"cannot read the Workload of the AppWrapper: {reason}")
                return True
        return False


class PlannedObject(msgspec.Struct, frozen=True):
    """An object that will be created from a component.

    ``template_path`` is the path of the component's template in the AppWrapper, ``spec_path`` that of its spec; a
    RayJob contains the spec of a RayCluster.
    """

    obj: Object
    template_path: Path
    spec_path: Path

    def located(self, error: FieldError) -> FieldError:
        """Return an error in :attr:`obj` with the path of the field in the AppWrapper."""
        field = str(error.field)
        if field == "spec" or field.startswith("spec."):
            return replace(error, field=f"{self.spec_path}{field[len('spec') :]}")
        return replace(error, field=str(self.template_path.child(field)))


def planned_objects(appwrapper: Object, kinds: Container[GVK]) -> Iterator[PlannedObject]:
    """Yield the objects of ``kinds`` that will be created from ``appwrapper``, which passed validation."""
    from cfo.api.appwrapper.kinds import EMBEDDED_KINDS, RAY_SPECS, kind_of
    from cfo.api.appwrapper.paths import value_or_none
    from cfo.webhooks.appwrapper.validation import COMPONENTS

    for index, component in enumerate(appwrapper["spec"]["components"]):
        template: Object = component["template"]
        gvk = kind_of(template)
        kind = EMBEDDED_KINDS.get(gvk, gvk)
        path = RAY_SPECS.get(gvk, "template.spec")
        if kind not in kinds:
            continue
        spec = value_or_none(template, path)
        if spec is None and gvk in RAY_SPECS:
            continue  # such as a RayJob that runs in an existing cluster
        at = COMPONENTS.index(index)
        metadata = _metadata(template)
        if gvk != kind:
            # KubeRay generates the name of a RayCluster.
            metadata["generateName"] = f"{metadata.pop('name', '')}-"
        obj = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": metadata,
            "spec": spec,
        }
        yield PlannedObject(obj, at.child("template"), at.child(*path.split(".")))


def _metadata(template: Mapping[str, Any]) -> Object:
    """Return the metadata that an object gets from a component; KubeRay copies labels and annotations."""
    metadata: Mapping[str, Any] = template.get("metadata") or {}
    found = {name: metadata[name] for name in ("name", "generateName") if metadata.get(name)}
    for name in ("labels", "annotations"):
        values = metadata.get(name) or {}
        found[name] = {key: value for key, value in values.items() if isinstance(value, str)}
    return found


_INVALID_CHARACTER = re.compile(r"[^-_.A-Za-z0-9]")


def set_labels(appwrapper: Object, user: UserInfo, default_queue_name: str) -> None:
    """Set the labels of the creator, replacing existing ones, and the label of the default queue if there is none.

    An existing but empty queue label is kept: it means that the AppWrapper must not be queued.
    """
    metadata = appwrapper.get("metadata") or {}
    labels = metadata.get("labels") or {}
    metadata["labels"] = labels
    appwrapper["metadata"] = metadata
    if default_queue_name:
        labels.setdefault(QUEUE_NAME_LABEL, default_queue_name)
    labels[USER_LABEL] = sanitized_label(user.username)
    labels[USER_ID_LABEL] = sanitized_label(user.uid)


def sanitized_label(text: str) -> str:
    """Convert ``text`` to a valid label value: its first 63 bytes, with ``_`` for each invalid character."""
    cut = text.encode()[:63].decode(errors="replace")
    return _INVALID_CHARACTER.sub("_", cut).strip("-_.")


def _has_queue(appwrapper: Object) -> bool:
    return bool(string_labels(appwrapper).get(QUEUE_NAME_LABEL))


def setup(
    manager: Manager,
    config: AppWrapperConfiguration,
    validators: EmbeddedValidators | None = None,
    part: Part = EVERYTHING,
) -> None:
    """Register the webhook of AppWrappers with ``manager``, which serves it on every replica.

    For ``validators`` see :class:`AppWrapperWebhook`. ``part`` is what this operator reconciles.
    """
    webhook = AppWrapperWebhook(manager.api_reader, config, validators, part)
    manager.webhooks.register(
        APPWRAPPER,
        defaulter=webhook,
        validator=within_part(webhook, part, webhook.can_leave),
        operations=_DEFAULTED_OPERATIONS,
        validator_operations=_VALIDATED_OPERATIONS,
    )
