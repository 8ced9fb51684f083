"""The queue of a FluxSetup: which FluxJobs get quota, in which order, and which have to wait for what.

:func:`decide` is a pure function of :mod:`.model`'s types. :mod:`.order` sorts the waiting jobs, :mod:`.capacity`
computes what is free now and later, and :mod:`.preemption` chooses jobs to evict.

:mod:`.ledger` keeps what this function needs in memory: :mod:`.records` of the objects in the informers, what each
:mod:`.group` of them holds, and which FluxSetup governs them (:mod:`.governance`). It reports a :mod:`.verdict` about
each job.
"""

from cfo.controllers.flux.queue.decision import decide
from cfo.controllers.flux.queue.model import (
    FOREVER,
    NOTHING,
    Blocked,
    Decision,
    Demand,
    Holding,
    Policy,
    WaitingJob,
)

__all__ = [
    "FOREVER",
    "NOTHING",
    "Blocked",
    "Decision",
    "Demand",
    "Holding",
    "Policy",
    "WaitingJob",
    "decide",
]
