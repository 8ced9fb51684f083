"""The parts of the specs of the Flux kinds: containers, Flux itself, and built-in types as in upstream's CRD."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cfo.runtime import APIModel, Int32, Int64, Quantity
from cfo.runtime.objects import ATOMIC


class ResourceRequirements(APIModel):
    """The resources that a container requests, and its limits."""

    limits: dict[str, Quantity] | None = Field(default=None, description="Limit of each resource.")
    requests: dict[str, Quantity] | None = Field(default=None, description="Requested amount of each resource.")


class Capabilities(APIModel):
    """Changes to the capabilities of a container."""

    add: list[str] | None = None
    drop: list[str] | None = None


class SELinuxOptions(APIModel):
    """An SELinux context."""

    level: str | None = None
    role: str | None = None
    type: str | None = None
    user: str | None = None


class SeccompProfile(APIModel):
    """A seccomp profile."""

    localhost_profile: str | None = None
    type: str


class WindowsSecurityContextOptions(APIModel):
    """The part of a security context that applies to Windows."""

    gmsa_credential_spec: str | None = None
    gmsa_credential_spec_name: str | None = None
    host_process: bool | None = None
    run_as_user_name: str | None = None


class SecurityContext(APIModel):
    """The security context of a container."""

    allow_privilege_escalation: bool | None = None
    capabilities: Capabilities | None = None
    privileged: bool | None = None
    proc_mount: str | None = None
    read_only_root_filesystem: bool | None = None
    run_as_group: Int64 | None = None
    run_as_non_root: bool | None = None
    run_as_user: Int64 | None = None
    se_linux_options: SELinuxOptions | None = None
    seccomp_profile: SeccompProfile | None = None
    windows_options: WindowsSecurityContextOptions | None = None


class Sysctl(APIModel):
    """A kernel parameter."""

    name: str
    value: str


class PodSecurityContext(APIModel):
    """The security context of a pod."""

    fs_group: Int64 | None = None
    fs_group_change_policy: str | None = None
    run_as_group: Int64 | None = None
    run_as_non_root: bool | None = None
    run_as_user: Int64 | None = None
    se_linux_options: SELinuxOptions | None = None
    seccomp_profile: SeccompProfile | None = None
    supplemental_groups: list[Int64] | None = None
    sysctls: list[Sysctl] | None = None
    windows_options: WindowsSecurityContextOptions | None = None


class LabelSelectorRequirement(APIModel):
    """A condition on the value of one label."""

    key: str
    operator: str
    values: list[str] | None = None


class LabelSelector(APIModel):
    """Conditions on labels, which all must hold; an empty selector matches everything."""

    match_expressions: Annotated[
        list[LabelSelectorRequirement] | None, Field(description="Conditions on the values of labels.")
    ] = None
    match_labels: Annotated[dict[str, str] | None, Field(description="Labels with their values.")] = None


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
    """A container of the pods of the cluster, or of the service pod."""

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
