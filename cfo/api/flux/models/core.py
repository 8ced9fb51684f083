"""The built-in types of Kubernetes that a MiniCluster contains, with the fields that upstream's CRD has."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cfo.runtime import APIModel, Int64, Quantity

__all__ = ["LabelSelector", "PodSecurityContext", "ResourceRequirements", "SecurityContext"]


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
