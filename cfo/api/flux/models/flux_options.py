"""How Flux itself is installed and configured in a MiniCluster: ``spec.flux``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cfo.api.flux.models.core import ResourceRequirements, SecurityContext
from cfo.runtime import APIModel, Int32
from cfo.runtime.objects import ATOMIC

__all__ = ["FluxOptions"]


class FluxContainer(APIModel):
    """The init container that installs Flux (the view) for the other containers."""

    disable: bool = Field(
        default=False, description="Whether the application's image contains Flux, so nothing is installed."
    )
    image: str = Field(
        default="ghcr.io/converged-computing/flux-view-ubuntu:tag-noble",
        description="Image with the view; it must match the distribution of the application's image.",
    )
    image_pull_secret: str | None = Field(default=None, description="Not used; accepted for compatibility.")
    mount_path: str = Field(default="/mnt/flux", description="Directory at which the view is mounted.")
    name: str = Field(default="flux-view", description="Name of the container and of its volume.")
    pull_always: bool = Field(default=False, description="Whether the image is always pulled.")
    python_path: str | None = Field(default=None, description="PYTHONPATH of the view; found if unset.")
    resources: ResourceRequirements | None = Field(default=None, description="Resources of the container.")
    security_context: SecurityContext | None = Field(default=None, description="Security context of the container.")
    working_dir: str | None = Field(default=None, description="Working directory of the container.")


class BurstedCluster(APIModel):
    """Another cluster whose brokers may join."""

    name: str | None = Field(default=None, description="Name of the cluster; burst-INDEX if unset.")
    size: Int32 | None = Field(default=None, description="Number of its brokers; the size of this cluster if unset.")


class LeadBroker(APIModel):
    """The lead broker of the cluster that this cluster extends."""

    address: str = Field(description="Address of the lead broker.")
    name: str = Field(description="Name of the other cluster.")
    port: Int32 = Field(default=8050, description="Port of the lead broker.")
    size: Int32 = Field(description="Size of the other cluster.")


class Bursting(APIModel):
    """Brokers outside this cluster."""

    clusters: Annotated[list[BurstedCluster] | None, ATOMIC, Field(description="Clusters that may join.")] = None
    hostlist: str | None = Field(default=None, description="Hosts of the instance, instead of the generated ones.")
    lead_broker: LeadBroker | None = Field(default=None, description="The cluster that this cluster joins.")


class FluxScheduler(APIModel):
    """The scheduler of the Flux instance."""

    queue_policy: str | None = Field(
        default=None, description="Queue policy: fcfs (the default), easy, conservative or hybrid."
    )
    simple: bool | None = Field(default=None, description="Whether to use Flux's simple scheduler instead of Fluxion.")


class FluxOptions(APIModel):
    """The installation and the configuration of Flux."""

    arch: str | None = Field(default=None, description="Not used; accepted for compatibility.")
    broker_config: str | None = Field(default=None, description="The broker's configuration (TOML), instead of ours.")
    bursting: Bursting | None = Field(default=None, description="Brokers outside this cluster.")
    complete_workers: bool | None = Field(
        default=None, description="Whether a worker ends when its broker ends, whatever the outcome."
    )
    connect_timeout: str = Field(default="5s", description="Time after which a broker retries to connect.")
    container: FluxContainer | None = Field(default=None, description="The init container that installs Flux.")
    curve_cert: str | None = Field(default=None, description="The CURVE certificate, instead of a generated one.")
    disable_socket: bool | None = Field(default=None, description="Whether the broker's socket has its default path.")
    environment: dict[str, str] | None = Field(
        default=None, description="Environment variables for users who connect to the instance."
    )
    log_level: Int32 = Field(default=6, description="Level of the broker's log, from 0 to 7.")
    minimal_service: bool | None = Field(
        default=None, description="Whether only the lead broker gets a Service, with a cluster IP."
    )
    munge_secret: str | None = Field(default=None, description="Not used; accepted for compatibility.")
    no_wait_socket: bool | None = Field(
        default=None, description="Whether sidecars start without waiting for the broker's socket."
    )
    option_flags: str | None = Field(default=None, description="Further flags of flux submit.")
    scheduler: FluxScheduler | None = Field(default=None, description="The scheduler of the Flux instance.")
    submit_command: str | None = Field(default=None, description="Command instead of flux submit.")
    topology: str | None = Field(
        default=None, description="Topology of the brokers: flat (the default), kary:K, binomial or mincrit[:K]."
    )
    wrap: str | None = Field(default=None, description="Words before flux broker, such as strace.")
