"""The controller of FluxJobs: each runs one command in a MiniCluster of its own, once the queue has admitted it.

:mod:`.transition` is the state machine, a pure function from an observation to a :mod:`.step`. It builds on
:mod:`.rendering` (the MiniCluster of a job) and :mod:`.start_timeout` (until when it must have pods).
:mod:`.reconciler` executes its steps.
"""
