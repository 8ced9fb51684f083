"""The types of the Flux kinds, and their CRDs.

As everywhere, reconcilers work on the wire form; the CRDs are generated from these models, and a program that needs a
typed spec can parse one with them.
"""

from cfo.api.flux.models.minicluster import MiniCluster, MiniClusterSpec, minicluster_crd
from cfo.api.flux.models.queue import FluxJob, FluxSetup, fluxjob_crd, fluxsetup_crd

__all__ = ["FluxJob", "FluxSetup", "MiniCluster", "MiniClusterSpec", "fluxjob_crd", "fluxsetup_crd", "minicluster_crd"]
