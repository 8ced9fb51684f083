"""Rules for the label with which Kueue admits a job: when it must not change any more.

A job with this label is not counted in the quota of a FluxSetup. So it must not get the label while it runs.
"""

from __future__ import annotations

from typing import Any, Final

from cfo.api.flux.conditions import is_true
from cfo.api.flux.kinds import FLUX_JOB
from cfo.api.flux.names import QUEUE_NAME_LABEL, QUOTA_RESERVED, State
from cfo.runtime import FieldError, Object, controller_of, labels_of
from cfo.runtime.objects.field import Path, forbidden

__all__ = ["flux_job_queue_errors", "minicluster_queue_errors"]

_LABELS: Final = Path("metadata").child("labels").key(QUEUE_NAME_LABEL)
_JOB_LABELS: Final = Path("spec").child("jobLabels").key(QUEUE_NAME_LABEL)


def flux_job_queue_errors(old: Object, new: Object) -> list[FieldError]:
    """Return an error if the label of a FluxJob changes from ``old``, with its status, after its admission."""
    if labels_of(old).get(QUEUE_NAME_LABEL) == labels_of(new).get(QUEUE_NAME_LABEL):
        return []
    if not (is_true(old, QUOTA_RESERVED) or is_true(old, State.FINISHED)):
        return []
    return [forbidden(_LABELS, "immutable once the FluxJob has been admitted; delete it and create another one")]


def minicluster_queue_errors(old: Object, new: Object) -> list[FieldError]:
    """Return an error if the label in ``jobLabels`` of a MiniCluster changes while its Job may have pods.

    It may change before the controller has seen the MiniCluster, and while its Job is suspended; but not if it belongs
    to a FluxJob, which is in one queue only.
    """
    if _job_label(old) == _job_label(new):
        return []
    is_idle = not (old.get("status") or {}).get("conditions") or is_true(old, State.WAITING)
    owner = controller_of(old)
    if is_idle and (owner is None or owner.get("kind") != FLUX_JOB.kind):
        return []
    return [forbidden(_JOB_LABELS, "immutable while the Job of the MiniCluster is not suspended")]


def _job_label(cluster: Object) -> Any:
    return ((cluster.get("spec") or {}).get("jobLabels") or {}).get(QUEUE_NAME_LABEL)
