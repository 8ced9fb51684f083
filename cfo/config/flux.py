"""The section ``flux``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, StrictBool, StrictInt

from cfo.config.section import Namespace, Section


class DefaultSetupConfiguration(Section):
    """The FluxSetup `default`, with which FluxJobs run before an administrator has created a FluxSetup."""

    enabled: StrictBool = Field(
        default=False,
        description="Whether to create the FluxSetup at start, in the operator's namespace, if the cluster has none. "
        "It governs all namespaces. It is never changed or created again while another one exists.",
    )
    max_size: StrictInt = Field(default=20, ge=0, le=2**31 - 1, description="Maximum number of pods of all FluxJobs.")
    mini_cluster_size: StrictInt = Field(
        default=1, ge=1, le=100_000, description="Number of pods of FluxJobs that have no size."
    )
    queueing_strategy: Literal["BestEffortFIFO", "StrictFIFO", "Backfill"] = Field(
        default="BestEffortFIFO", description="Which FluxJobs may be admitted before one that does not fit."
    )


class FluxConfiguration(Section):
    """The controllers of MiniClusters, FluxJobs and FluxSetups."""

    enabled: StrictBool = Field(default=False, description="Whether the Flux controllers run.")
    admin_namespaces: list[Namespace] = Field(
        default_factory=list,
        description="Namespaces whose FluxSetups may select other namespaces; the operator's own namespace always may. "
        "A FluxSetup with a `namespaceSelector` in another namespace is inactive (`InvalidSelector`).",
    )
    default_setup: DefaultSetupConfiguration = Field(default_factory=DefaultSetupConfiguration)
