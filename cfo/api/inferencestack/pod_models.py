"""The types of what the gateway and the applications have in common: images, and settings of their pods."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from cfo.api.inferencestack.field_types import (
    Affinity,
    ContainerPort,
    DeploymentStrategy,
    EnvVar,
    IntOrString,
    Lifecycle,
    OpenModel,
    PodSecurityContext,
    Probe,
    ResourceRequirements,
    SecurityContext,
    Strings,
    Toleration,
    Volume,
    VolumeMount,
    open_schema,
    optional,
    rule,
)
from cfo.runtime import Int64

__all__ = ["Image", "PodSettings"]

Count = Annotated[int, Field(json_schema_extra={"format": "int32", "minimum": 0})]


class Image(OpenModel):
    """A container image."""

    repository: str | None = optional("Repository of the image.")
    tag: str | None = optional("Tag of the image. A digest belongs to the repository: `repository@sha256`.")
    pull_policy: str | None = optional("imagePullPolicy of the container.")


class PodDisruptionBudget(OpenModel):
    """How many pods an eviction can make unavailable."""

    model_config = ConfigDict(
        json_schema_extra=open_schema(
            rule(
                "!has(self.minAvailable) || !has(self.maxUnavailable)",
                "minAvailable and maxUnavailable must not both be set",
            )
        )
    )

    min_available: IntOrString | None = optional("Number or percentage of pods that must be available.")
    max_unavailable: IntOrString | None = optional("Number or percentage of pods that can be unavailable.")


class PodSettings(OpenModel):
    """What the gateway and the applications have in common: settings of the Deployment and its pods."""

    image: Image | None = optional("Image of the container.")
    env: list[EnvVar] | None = optional("Environment variables.")
    replica_count: Count | None = optional("Number of replicas. Ignored while scaling is enabled.")
    pod_annotations: Strings | None = optional("Annotations of the pods.")
    pod_labels: Strings | None = optional("Labels of the pods.")
    pod_security_context: PodSecurityContext | None = optional("securityContext of the pods.")
    security_context: SecurityContext | None = optional("securityContext of the container.")
    ports: list[ContainerPort] | None = optional("Ports of the container.")
    resources: ResourceRequirements | None = optional("Resources of the container.")
    liveness_probe: Probe | None = optional("Liveness probe of the container.")
    readiness_probe: Probe | None = optional("Readiness probe of the container.")
    startup_probe: Probe | None = optional("Startup probe of the container.")
    volumes: list[Volume] | None = optional("Further volumes of the pods.")
    volume_mounts: list[VolumeMount] | None = optional("Further volume mounts of the container.")
    node_selector: Strings | None = optional("nodeSelector of the pods.")
    tolerations: list[Toleration] | None = optional("Tolerations of the pods.")
    affinity: Affinity | None = optional("Affinity of the pods.")
    strategy: DeploymentStrategy | None = optional("Strategy of the Deployment (extension).")
    termination_grace_period_seconds: Int64 | None = optional(
        "Time in seconds that a pod has to finish its requests when it is deleted (extension)."
    )
    lifecycle: Lifecycle | None = optional("Lifecycle hooks of the container, such as preStop (extension).")
    pod_disruption_budget: PodDisruptionBudget | None = optional("Creates a PodDisruptionBudget (extension).")
