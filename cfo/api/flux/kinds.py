"""The Flux kinds."""

from __future__ import annotations

from typing import Final

from cfo.runtime import GVK

GROUP: Final = "flux-framework.org"

MINICLUSTER: Final = GVK(GROUP, "v1alpha2", "MiniCluster")
FLUX_JOB: Final = GVK(GROUP, "v1alpha1", "FluxJob")
FLUX_SETUP: Final = GVK(GROUP, "v1alpha1", "FluxSetup")
