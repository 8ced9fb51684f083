"""The containers of a MiniCluster, in the pods of the cluster and in the service pod."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cfo.api.flux.models.core import ResourceRequirements, SecurityContext
from cfo.runtime import APIModel, Int32
from cfo.runtime.objects import ATOMIC

__all__ = ["MiniClusterContainer", "Volume"]


class Commands(APIModel):
    """Shell code that runs before, around and after the command."""

    broker_pre: str | None = Field(default=None, description="Code that only the lead broker runs before the command.")
    init: str | None = Field(default=None, description="Code that runs first, before the environment is prepared.")
    post: str | None = Field(default=None, description="Code that runs after the command.")
    pre: str | None = Field(default=None, description="Code that runs before the brokers start.")
    prefix: str | None = Field(default=None, description="Words before the command or flux submit, such as a wrapper.")
    script: str | None = Field(default=None, description="Script that runs instead of the command.")
    service_pre: str | None = Field(default=None, description="Code that sidecars run before their command.")
    worker_pre: str | None = Field(default=None, description="Code that only the other brokers run before they start.")


class LifeCycle(APIModel):
    """Commands that run when the container starts and stops."""

    post_start_exec: str | None = Field(default=None, description="Command that runs after the container has started.")
    pre_stop_exec: str | None = Field(default=None, description="Command that runs before the container is stopped.")


class SecretReference(APIModel):
    """A key of a Secret."""

    key: str = Field(description="Key in the Secret.")
    name: str = Field(description="Name of the Secret.")


class Volume(APIModel):
    """A volume and where it is mounted.

    The first of csiDriver, secretName, emptyDir, hostPath, configMapName and claimName that is set determines its type.
    """

    claim_name: str | None = Field(default=None, description="Name of a PersistentVolumeClaim.")
    config_map_name: str | None = Field(default=None, description="Name of a ConfigMap, together with items.")
    csi_driver: str | None = Field(default=None, description="Name of a CSI driver.")
    csi_driver_attributes: dict[str, str] | None = Field(default=None, description="Attributes for the CSI driver.")
    empty_dir: bool = Field(default=False, description="Whether the volume is an emptyDir, mounted at /dev/shm.")
    empty_dir_medium: str | None = Field(default=None, description="Medium of the emptyDir, such as memory.")
    empty_dir_size_limit: str | None = Field(default=None, description="Maximum size of the emptyDir.")
    host_path: str | None = Field(default=None, description="Directory on the node.")
    items: dict[str, str] | None = Field(default=None, description="Keys of the ConfigMap and their paths.")
    path: str | None = Field(default=None, description="Directory in the container at which the volume is mounted.")
    read_only: bool = Field(default=False, description="Whether the volume is mounted read-only.")
    secret_name: str | None = Field(default=None, description="Name of a Secret.")


class MiniClusterContainer(APIModel):
    """A container of the pods of the cluster, or of the service pod."""  # prose: keep (the description in the CRD)

    batch: bool | None = Field(default=None, description="Whether the lines of the command are submitted as a batch.")
    batch_raw: bool | None = Field(
        default=None, description="Whether the command is the batch script itself, without flux submit for each line."
    )
    command: str | None = Field(default=None, description="Command line that runs; interactive without one.")
    commands: Commands | None = Field(default=None, description="Shell code around the command.")
    environment: dict[str, str] | None = Field(default=None, description="Environment variables.")
    image: str = Field(
        default="ghcr.io/rse-ops/accounting:app-latest",
        description="Container image; the view must match its distribution.",
    )
    image_pull_policy: str | None = Field(
        default=None, description="Pull policy: Always, IfNotPresent (the default) or Never."
    )
    image_pull_secret: str | None = Field(
        default=None, description="Name of the Secret that is used to pull the image."
    )
    launcher: bool | None = Field(
        default=None,
        description="Whether the command submits jobs itself (as workflow tools do), so flux submit is not used.",
    )
    life_cycle: LifeCycle | None = Field(default=None, description="Commands on start and stop.")
    logs: str | None = Field(default=None, description="Directory for the output of batch jobs; /tmp/fluxout if unset.")
    name: str | None = Field(
        default=None, description="Name of the container; that of the container that runs Flux is the cluster's."
    )
    no_wrap_entrypoint: bool | None = Field(
        default=None, description="Whether a sidecar keeps the entrypoint of its image."
    )
    ports: Annotated[list[Int32] | None, ATOMIC, Field(description="TCP ports; those of sidecars get a Service.")] = (
        None
    )
    pull_always: bool = Field(default=False, description="Whether the image is always pulled.")
    resources: ResourceRequirements | None = Field(default=None, description="Resources of the container.")
    run_flux: bool | None = Field(
        default=None, description="Whether this container runs Flux; exactly one does. True for a single container."
    )
    secrets: dict[str, SecretReference] | None = Field(
        default=None, description="Environment variables with values from Secrets."
    )
    security_context: SecurityContext | None = Field(default=None, description="Security context of the container.")
    volumes: dict[str, Volume] | None = Field(default=None, description="Volumes by name.")
    working_dir: str | None = Field(default=None, description="Working directory of the command.")
