"""Controllers of MiniClusters, FluxJobs and FluxSetups.

:mod:`.minicluster` creates the objects of a MiniCluster and reports its state. :mod:`.queue` decides, as a pure
function, which FluxJobs get quota of a FluxSetup. :mod:`.metrics` exports the quotas and what is used of them.
"""

from cfo.controllers.flux.setup import rules, setup

__all__ = ["rules", "setup"]
