"""The parts of the specs of the Flux kinds: containers, Flux itself, and built-in types as in upstream's CRD."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cfo.runtime import APIModel, Int32, Int64, Quantity
from cfo.runtime.objects import ATOMIC, optional


class ResourceRequirements(APIModel):
    """The resources that a container requests, and its limits."""

    limits: dict[str, Quantity] | None = optional("Limit of each resource.")
    requests: dict[str, Quantity] | None = optional("Requested amount of each resource.")


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

    match_expressions: list[LabelSelectorRequirement] | None = optional(
        "Conditions on the values of labels."
    )
    match_labels: dict[str, str] | None = optional("Labels with their values.")


class Commands(APIModel):
    """Shell code that runs before, around and after the command."""

    broker_pre: str | None = optional("Code that only the lead broker runs before the command.")
    init: str | None = optional("Code that runs first, before the environment is prepared.")
    post: str | None = optional("Code that runs after the command.")
    pre: str | None = optional("Code that runs before the brokers start.")
    prefix: str | None = optional("Words before the command or flux submit, such as a wrapper.")
    script: str | None = optional("Script that runs instead of the command.")
    service_pre: str | None = optional("Code that sidecars run before their command.")
    worker_pre: str | None = optional("Code that only the other brokers run before they start.")


class LifeCycle(APIModel):
    """Commands that run when the container starts and stops."""

    post_start_exec: str | None = optional("Command that runs after the container has started.")
    pre_stop_exec: str | None = optional("Command that runs before the container is stopped.")


class SecretReference(APIModel):
    """A key of a Secret."""

    key: str = Field(description="Key in the Secret.")
    name: str = Field(description="Name of the Secret.")


class Volume(APIModel):
    """A volume and where it is mounted.

    The first of csiDriver, secretName, emptyDir, hostPath, configMapName and claimName that is set determines its type.
    """

    claim_name: str | None = optional("Name of a PersistentVolumeClaim.")
    config_map_name: str | None = optional("Name of a ConfigMap, together with items.")
    csi_driver: str | None = optional("Name of a CSI driver.")
    csi_driver_attributes: dict[str, str] | None = optional("Attributes for the CSI driver.")
    empty_dir: bool = Field(
        default=False, description="Whether the volume is an emptyDir, mounted at /dev/shm."
    )
    empty_dir_medium: str | None = optional("Medium of the emptyDir, such as memory.")
    empty_dir_size_limit: str | None = optional("Maximum size of the emptyDir.")
    host_path: str | None = optional("Directory on the node.")
    items: dict[str, str] | None = optional("Keys of the ConfigMap and their paths.")
    path: str | None = optional("Directory in the container at which the volume is mounted.")
    read_only: bool = Field(default=False, description="Whether the volume is mounted read-only.")
    secret_name: str | None = optional("Name of a Secret.")


class MiniClusterContainer(APIModel):
    """A container of the pods of the cluster, or of the service pod."""  # prose: keep (the description in the CRD)

    batch: bool | None = optional("Whether the lines of the command are submitted as a batch.")
    batch_raw: bool | None = optional(
        "Whether the command is the batch script itself, without flux submit for each line."
    )
    command: str | None = optional("Command line that runs; interactive without one.")
    commands: Commands | None = optional("Shell code around the command.")
    environment: dict[str, str] | None = optional("Environment variables.")
    image: str = Field(
        default="ghcr.io/rse-ops/accounting:app-latest",
        description="Container image; the view must match its distribution.",
    )
    image_pull_policy: str | None = optional(
        "Pull policy: Always, IfNotPresent (the default) or Never."
    )
    image_pull_secret: str | None = optional("Name of the Secret that is used to pull the image.")
    launcher: bool | None = optional(
        "Whether the command submits jobs itself (as workflow tools do), so flux submit is not used."
    )
    life_cycle: LifeCycle | None = optional("Commands on start and stop.")
    logs: str | None = optional("Directory for the output of batch jobs; /tmp/fluxout if unset.")
    name: str | None = optional(
        "Name of the container; that of the container that runs Flux is the cluster's."
    )
    no_wrap_entrypoint: bool | None = optional(
        "Whether a sidecar keeps the entrypoint of its image."
    )
    ports: Annotated[list[Int32] | None, ATOMIC] = optional(
        "TCP ports; those of sidecars get a Service."
    )
    pull_always: bool = Field(default=False, description="Whether the image is always pulled.")
    resources: ResourceRequirements | None = optional("Resources of the container.")
    run_flux: bool | None = optional(
        "Whether this container runs Flux; exactly one does. True for a single container."
    )
    secrets: dict[str, SecretReference] | None = optional(
        "Environment variables with values from Secrets."
    )
    security_context: SecurityContext | None = optional("Security context of the container.")
    volumes: dict[str, Volume] | None = optional("Volumes by name.")
    working_dir: str | None = optional("Working directory of the command.")


class FluxContainer(APIModel):
    """The init container that installs Flux (the view) for the other containers."""

    disable: bool = Field(
        default=False,
        description="Whether the application's image contains Flux, so nothing is installed.",
    )
    image: str = Field(
        default="ghcr.io/converged-computing/flux-view-ubuntu:tag-noble",
        description="Image with the view; it must match the distribution of the application's image.",
    )
    image_pull_secret: str | None = optional("Not used; accepted for compatibility.")
    mount_path: str = Field(
        default="/mnt/flux", description="Directory at which the view is mounted."
    )
    name: str = Field(default="flux-view", description="Name of the container and of its volume.")
    pull_always: bool = Field(default=False, description="Whether the image is always pulled.")
    python_path: str | None = optional("PYTHONPATH of the view; found if unset.")
    resources: ResourceRequirements | None = optional("Resources of the container.")
    security_context: SecurityContext | None = optional("Security context of the container.")
    working_dir: str | None = optional("Working directory of the container.")


class BurstedCluster(APIModel):
    """Another cluster whose brokers may join."""

    name: str | None = optional("Name of the cluster; burst-INDEX if unset.")
    size: Int32 | None = optional("Number of its brokers; the size of this cluster if unset.")


class LeadBroker(APIModel):
    """The lead broker of the cluster that this cluster extends."""

    address: str = Field(description="Address of the lead broker.")
    name: str = Field(description="Name of the other cluster.")
    port: Int32 = Field(default=8050, description="Port of the lead broker.")
    size: Int32 = Field(description="Size of the other cluster.")


class Bursting(APIModel):
    """Brokers outside this cluster."""

    clusters: Annotated[list[BurstedCluster] | None, ATOMIC] = optional("Clusters that may join.")
    hostlist: str | None = optional("Hosts of the instance, instead of the generated ones.")
    lead_broker: LeadBroker | None = optional("The cluster that this cluster joins.")


class FluxScheduler(APIModel):
    """The scheduler of the Flux instance."""

    queue_policy: str | None = optional(
        "Queue policy: fcfs (the default), easy, conservative or hybrid."
    )
    simple: bool | None = optional("Whether to use Flux's simple scheduler instead of Fluxion.")


class FluxOptions(APIModel):
    """The installation and the configuration of Flux."""

    arch: str | None = optional("Not used; accepted for compatibility.")
    broker_config: str | None = optional("The broker's configuration (TOML), instead of ours.")
    bursting: Bursting | None = optional("Brokers outside this cluster.")
    complete_workers: bool | None = optional(
        "Whether a worker ends when its broker ends, whatever the outcome."
    )
    connect_timeout: str = Field(
        default="5s", description="Time after which a broker retries to connect."
    )
    container: FluxContainer | None = optional("The init container that installs Flux.")
    curve_cert: str | None = optional("The CURVE certificate, instead of a generated one.")
    disable_socket: bool | None = optional("Whether the broker's socket has its default path.")
    environment: dict[str, str] | None = optional(
        "Environment variables for users who connect to the instance."
    )
    log_level: Int32 = Field(default=6, description="Level of the broker's log, from 0 to 7.")
    minimal_service: bool | None = optional(
        "Whether only the lead broker gets a Service, with a cluster IP."
    )
    munge_secret: str | None = optional("Not used; accepted for compatibility.")
    no_wait_socket: bool | None = optional(
        "Whether sidecars start without waiting for the broker's socket."
    )
    option_flags: str | None = optional("Further flags of flux submit.")
    scheduler: FluxScheduler | None = optional("The scheduler of the Flux instance.")
    submit_command: str | None = optional("Command instead of flux submit.")
    topology: str | None = optional(
        "Topology of the brokers: flat (the default), kary:K, binomial or mincrit[:K]."
    )
    wrap: str | None = optional("Words before flux broker, such as strace.")
