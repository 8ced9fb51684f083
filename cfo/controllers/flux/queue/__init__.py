"""The queue of a FluxSetup: which FluxJobs get quota, in which order, and which have to wait for what.

:mod:`.decision` is a pure function of :mod:`.model`'s types.

:mod:`.ledger` keeps what this function needs in memory: :mod:`.records` of the objects in the informers, what each
:mod:`.group` of them holds, and which FluxSetup governs them (:mod:`.governance`). It reports a verdict about each job.
"""
