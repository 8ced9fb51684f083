"""Decides how the objects of a stack are written, and what the results mean for its status.

An object that is not in its informer is created. If its name is taken, the existing object is read: one that Helm
created for this stack is taken over, any other is left as it is and reported. A Deployment is not written if its pods
would use such an object: they would run as the ServiceAccount, or change the volume, of another owner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import structlog

from cfo.api.inferencestack.kinds import PERSISTENT_VOLUME_CLAIM
from cfo.api.inferencestack.names import (
    DELETING,
    HOST_NOT_FREE,
    NAME_TAKEN,
    RECONCILE_ERROR,
    is_retained,
)
from cfo.controllers.inferencestack.ownership import belongs_to, is_of_helm, taken_over
from cfo.runtime import (
    CONFIG_MAP,
    DEPLOYMENT,
    NETWORK_POLICY,
    SERVICE_ACCOUNT,
    Object,
    gvk_of,
    key_of,
)
from cfo.runtime.client import (
    NAME_CONFLICT_RETRY_SECONDS,
    Child,
    ChildResults,
    NameTaken,
    ObjectID,
    Outcome,
)
from cfo.runtime.objects import raise_together

_log = structlog.get_logger("cfo.controllers.inferencestack")


def stack_children(
    stack: Object, desired: Sequence[Object], uncached: Mapping[ObjectID, Object]
) -> list[Child]:
    """Return the children of ``stack``; ``uncached`` are those that were read from the API server."""
    wanted = {(gvk_of(obj), key_of(obj)) for obj in desired}
    children = []
    for obj in desired:
        requires: tuple[ObjectID, ...] = ()
        if gvk_of(obj) == DEPLOYMENT:
            requires = tuple(used for used in _used_objects(obj) if used in wanted)
        child = Child.present(
            obj,
            belongs=partial(belongs_to, stack=stack),
            adoption=take_over,
            has_owner_reference=not is_retained(obj),
            current=uncached.get((gvk_of(obj), key_of(obj))),
            requires=requires,
            is_optional=True,
            can_wait=gvk_of(obj) != NETWORK_POLICY,
        )
        children.append(child)
    return children


def take_over(current: Object) -> Mapping[str, Any]:
    """Return the patch with which an object of Helm becomes ours; empty for any other object.

    Helm owns fields of the object: one that is later removed from the stack would remain. No object of the cache has
    managedFields.
    """
    if not is_of_helm(current):
        return {}
    _log.info(
        "Adopting object that Helm created",
        kind=gvk_of(current).kind,
        object=str(key_of(current)),
    )
    return {"metadata": {"managedFields": taken_over(current)}}


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What the writes mean for the status and the next reconcile.

    ``failures`` are the messages of those that will not succeed until something changes, and ``failure_reason`` is the
    reason of the first. ``is_disturbed``: a retry will probably succeed. ``is_limited``: not all objects are written
    yet.
    """

    failures: Sequence[str] = ()
    failure_reason: str = RECONCILE_ERROR
    errors: Sequence[Exception] = ()
    is_disturbed: bool = False
    is_limited: bool = False
    retry_after: float = 0.0

    def raise_errors(self) -> None:
        """Raise the errors of failed requests, so that the reconcile is retried."""
        raise_together(self.errors, "failed to write several objects")


def written_of(results: ChildResults, conflicts: Sequence[str]) -> Written:
    """Return what the results mean; ``conflicts`` are the objects that were not written because of their hosts."""
    failures = list(conflicts)
    reasons = [HOST_NOT_FREE] * len(failures)
    is_disturbed = False
    for result in results:
        if isinstance(result.error, NameTaken):
            failures.append(result.message)
            reasons.append(NAME_TAKEN if result.outcome is Outcome.TAKEN else DELETING)
        elif result.outcome is Outcome.REFUSED:
            failures.append(result.message)
            reasons.append(RECONCILE_ERROR)
        elif result.outcome is Outcome.FAILED:
            is_disturbed = True
    if conflicts:
        results.retry(NAME_CONFLICT_RETRY_SECONDS)
    return Written(
        failures=failures,
        failure_reason=next(iter(reasons), RECONCILE_ERROR),
        errors=results.errors,
        is_disturbed=is_disturbed,
        is_limited=results.is_limited,
        retry_after=results.retry_after,
    )


def _used_objects(deployment: Object) -> Iterator[ObjectID]:
    """Yield the stack's objects that the pods of a rendered Deployment can use."""
    key = key_of(deployment)
    pod: Mapping[str, Any] = deployment["spec"]["template"]["spec"]
    yield SERVICE_ACCOUNT, key._replace(name=pod["serviceAccountName"])
    for volume in pod.get("volumes") or ():
        config_map = (volume.get("configMap") or {}).get("name", "")
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName", "")
        yield CONFIG_MAP, key._replace(name=config_map)
        yield PERSISTENT_VOLUME_CLAIM, key._replace(name=claim)
