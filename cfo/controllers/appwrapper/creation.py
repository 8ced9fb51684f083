"""What follows the creation of components: pure functions that record it, or retry one that was rejected."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec

from cfo.api.appwrapper.created_components import CREATED, identity_message
from cfo.api.appwrapper.names import RESOURCES_DEPLOYED, Phase
from cfo.controllers.appwrapper.components import (
    CREATION_ERRORED,
    Component,
    unknown_fields,
    warnings_message,
)
from cfo.controllers.appwrapper.decision import WrapperDecision, WrapperObservation
from cfo.controllers.appwrapper.retries import limited_by_readiness, report_unhealthy, reset_or_fail

_CREATION_RETRY: Final = timedelta(seconds=1)
"""The delay before a rejected creation is retried."""


class Creation(msgspec.Struct, frozen=True):
    """The result of creating a component: its object's uid, or an error. ``fatal``: a retry cannot succeed.

    ``warnings`` are those of the API server.
    """

    component: Component
    uid: str = ""
    error: str = ""
    fatal: bool = False
    warnings: tuple[str, ...] = ()


def missing_components(observation: WrapperObservation) -> list[Component]:
    """Return the components whose creation has not been recorded yet."""
    return [component for component in observation.components if component.deployed != "True"]


def after_creation(
    observation: WrapperObservation, creations: Sequence[Creation]
) -> WrapperDecision:
    """Decide the next step after components were created, or one (the last of ``creations``) was rejected."""
    decision = WrapperDecision(status=observation.status())
    status = decision.status
    for creation in creations:
        component = creation.component
        status.set_component_identity(component.index, component.gvk, component.key.name)
        if creation.error:
            status.set_component_condition(component.index, False, CREATION_ERRORED, creation.error)
        else:
            status.set_component_condition(
                component.index,
                True,
                CREATED,
                identity_message(component.display_name, creation.uid),
            )
        _report_warnings(decision, creation)
    failed = next((creation for creation in creations if creation.error), None)
    if failed is None:
        if len(creations) == len(missing_components(observation)):
            status.phase = Phase.RUNNING
        else:
            decision.requeue_at(observation.now)
        return decision
    deadline = status.last_transition(RESOURCES_DEPLOYED) + observation.settings.admission_grace
    deadline = limited_by_readiness(observation, status, deadline)
    if not failed.fatal and observation.now < deadline:
        if failed.component.reason != CREATION_ERRORED:
            message = (
                f"{failed.component.display_name} cannot be created, will retry: {failed.error}"
            )
            decision.record_warning(CREATION_ERRORED, message)
        decision.requeue_at(min(observation.now + _CREATION_RETRY, deadline))
        return decision
    report_unhealthy(decision, "CreateFailed", f"error creating components: {failed.error}")
    if failed.fatal:
        status.phase = Phase.FAILED
    else:
        reset_or_fail(observation, decision)
    return decision


def _report_warnings(decision: WrapperDecision, creation: Creation) -> None:
    """Report the API server's warnings about a component; those about dropped fields hold as long as its object."""
    if not creation.warnings:
        return
    component = creation.component
    decision.record_warning(
        "ComponentWarning",
        f"The API server warns about {component.display_name}: {warnings_message(creation.warnings)}",
    )
    dropped = unknown_fields(creation.warnings)
    if dropped:
        decision.status.set_unknown_fields(component.index, warnings_message(dropped))
