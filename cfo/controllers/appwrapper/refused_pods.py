"""Finds out why pods of a component are missing: it is suspended, or the API server refuses them, such as by quota.

The status of a Deployment or RayCluster says so. That of a Job or StatefulSet does not, only its Events do, and this
operator has no permission to read Events. So the API server is asked (:mod:`cfo.controllers.pod_refusals`).
"""

from __future__ import annotations

from typing import Final

import msgspec
import structlog

from cfo.api.appwrapper.kinds import TRAIN_JOB, known_kind, suspension_of
from cfo.api.appwrapper.names import COMPONENT_SUSPENDED, PODS_READY, RESOURCES_DEPLOYED
from cfo.api.appwrapper.podsets import PodSetError, is_submitter, pod_template_at, replicas_of
from cfo.api.raycluster.names import names_of
from cfo.api.reading import MALFORMED, MAX_MESSAGE, items, path, text
from cfo.controllers.appwrapper.components import Component
from cfo.controllers.appwrapper.decision import WrapperObservation
from cfo.controllers.pod_refusals import refusal_of_pod
from cfo.controllers.pod_status import MAX_WHOLE_MESSAGE, PodFailure, shortened
from cfo.runtime import (
    APIError,
    Client,
    DiscoveryIncomplete,
    NamespacedName,
    Object,
    TransportError,
    UnknownKind,
    controller_of,
    find_condition,
    key_of,
    uid_of,
)
from cfo.runtime.process import UnreadableObject

_log = structlog.get_logger("cfo.controllers.appwrapper")

_REASON: Final = "FailedCreate"
"""The reason of the Events of Kubernetes' own controllers about pods that they cannot create."""

_REPLICA_FAILURE: Final = "ReplicaFailure"
"""The condition of Deployments and RayClusters about that."""

_UNKNOWN: Final = (
    APIError,
    TransportError,
    DiscoveryIncomplete,
    UnknownKind,
    UnreadableObject,
)
"""Why the component's object may not be known."""

_MAX_TEMPLATES: Final = 3
"""How many pod templates of a component are tried."""


_UNKNOWN_ACCOUNT: Final = "error looking up service account "

_SUSPENSION_HOLDS: Final = 10.0
"""For how many seconds the answer that a component is suspended is used: a user resumes it at any time."""


class _Answer(msgspec.Struct, frozen=True):
    """Why pods of the AppWrapper ``uid`` are missing, which have been missing ``since`` (as its status says).

    ``until``: from when on the API server is asked again, in seconds of the monotonic clock; ``None`` if it is not.
    """

    uid: str
    since: str
    failure: PodFailure | None
    until: float | None

    def applies(self, uid: str, since: str, now: float) -> bool:
        """Return whether this is the answer about an AppWrapper at the time ``now``, in seconds."""
        is_current = self.until is None or now < self.until
        return is_current and (self.uid, self.since) == (uid, since)


class RefusedPods:
    """Asks the API server why pods of a component are missing, once for each time that they are."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._answers: dict[NamespacedName, _Answer] = {}
        """By AppWrapper."""

    async def failure_of(
        self, observation: WrapperObservation, component: Component
    ) -> PodFailure | None:
        """Return why pods of ``component`` are not created; ``None`` if they can be, or that is not known.

        The first call after a deployment, or after pods became unready, sends at most four requests; the other calls
        return its answer. While the component is suspended, one request is sent every 10 s at most.
        """
        wrapper = observation.wrapper
        uid = uid_of(wrapper)
        since = _missing_since(wrapper)
        known = self._answers.get(key_of(wrapper))
        if known is not None and known.applies(uid, since, observation.monotonic):
            return known.failure
        failure = None
        try:
            failure = await self._ask(component, uid)
        except (*_UNKNOWN, *MALFORMED) as error:
            # Whatever the component's object is, the answer only explains, and must not delay what is decided.
            _log.info("Cannot determine why pods are missing", error=str(error))
        until = None
        if failure is not None and failure.reason == COMPONENT_SUSPENDED:
            until = observation.monotonic + _SUSPENSION_HOLDS
        self._answers[key_of(wrapper)] = _Answer(uid, since, failure, until)
        return failure

    def forget(self, wrapper: NamespacedName) -> None:
        """Forget the answer about an AppWrapper that no longer exists."""
        self._answers.pop(wrapper, None)

    async def _ask(self, component: Component, owner_uid: str) -> PodFailure | None:
        # The stored object has what webhooks added to the template.
        obj = await self._client.get(component.gvk, component.key, live=True)
        if obj is None or (controller_of(obj) or {}).get("uid") != owner_uid:
            return None
        field = suspension_of(obj)
        if field:
            advice = "resume it, or suspend the AppWrapper instead"
            message = f"{component.display_name} is suspended ({field}): {advice}"
            return PodFailure(COMPONENT_SUSPENDED, message)
        message = _reported(obj)
        if not message:
            message = await self._refusal(component, obj)
        if not message:
            return None
        # Pod Security names the fields to set at the end of a long message.
        subject = f"{component.display_name}: "
        return PodFailure(_REASON, shortened(subject + message, MAX_WHOLE_MESSAGE))

    async def _refusal(self, component: Component, obj: Object) -> str:
        """Return why the API server refuses a pod of ``obj``, the component's object; empty if it does not."""
        if known_kind(component.gvk) == TRAIN_JOB:
            return ""  # it has only patches of pod templates, which are no pods
        wanted = [
            pod_set
            for pod_set in component.pod_sets
            if replicas_of(pod_set) and not is_submitter(component.gvk, pod_set)
        ]
        for pod_set in wanted[:_MAX_TEMPLATES]:
            try:
                template = pod_template_at(obj, pod_set.get("path") or "")
            except PodSetError:  # the object was changed after it had been created
                continue
            message = await refusal_of_pod(self._client, obj, template)
            if message and not _is_own_account_missing(obj, message):
                return message
        return ""


def _missing_since(wrapper: Object) -> str:
    """Return the later time of the conditions from which on pods have been missing; empty if there is none."""
    conditions = wrapper["status"].get("conditions")
    found = [find_condition(conditions, kind) or {} for kind in (RESOURCES_DEPLOYED, PODS_READY)]
    return max(str(condition.get("lastTransitionTime") or "") for condition in found)


def _is_own_account_missing(obj: Object, message: str) -> bool:
    """Return whether the ServiceAccount is missing that this operator creates for a RayCluster: no user must."""
    return _UNKNOWN_ACCOUNT in message and names_of(obj).proxy_service_account in message


def _reported(obj: Object) -> str:
    """Return what the status of a component's object says about pods that cannot be created; empty if nothing."""
    for condition in items(path(obj, "status", "conditions")):
        if condition.get("type") == _REPLICA_FAILURE and condition.get("status") == "True":
            return text(condition.get("message"), MAX_MESSAGE)
    return ""
