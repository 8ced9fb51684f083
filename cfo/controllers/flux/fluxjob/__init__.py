"""The controller of FluxJobs: each runs one command in a MiniCluster of its own, once the queue has admitted it.

:mod:`.transition` is the state machine, a pure function from an observation to a :mod:`.step`. It builds on
:mod:`.rendering` (the MiniCluster of a job) and :mod:`.status`; :mod:`.reconciler` executes its steps.
"""

from cfo.controllers.flux.fluxjob.reconciler import FluxJobReconciler, setup
from cfo.runtime import Rule

__all__ = ["rules", "setup"]


def rules() -> list[Rule]:
    """Return the RBAC rules of the controller."""
    return [*FluxJobReconciler.rules]
