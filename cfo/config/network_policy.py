"""The section ``kuberay.networkPolicy``: what the NetworkPolicies of RayClusters allow in addition, and in egress."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, StrictBool, StrictInt, model_validator

from cfo.config.section import Namespace, Section, Selector

_MAX_ENTRIES = 100
"""The maximum length of each list: its entries are in two NetworkPolicies of each RayCluster."""


def _cidr(value: object) -> object:
    """Check a CIDR as the API server does: an address with host bits is rejected."""
    try:
        network = ip_network(value) if isinstance(value, str) and "/" in value else None
    except ValueError:
        network = None
    if network is None or str(network) != value:
        raise ValueError("must be a CIDR in canonical form, such as 10.0.0.0/8 or 2001:db8::/64")
    return value


CIDR = Annotated[str, BeforeValidator(_cidr)]
Port = Annotated[StrictInt, Field(ge=1, le=65535)]


class EgressDestination(Section):
    """A destination that pods of RayClusters may connect to: addresses or namespaces, and their TCP ports."""

    cidrs: list[CIDR] = Field(default_factory=list, max_length=_MAX_ENTRIES)
    namespaces: list[Namespace] = Field(default_factory=list, max_length=_MAX_ENTRIES)
    ports: list[Port] = Field(min_length=1, max_length=_MAX_ENTRIES)

    @model_validator(mode="after")
    def _has_peers(self) -> Self:
        if not self.cidrs and not self.namespaces:
            raise ValueError("must contain cidrs or namespaces; to allow all addresses, list 0.0.0.0/0 and ::/0")
        return self


class EgressConfiguration(Section):
    """Connections that the pods of RayClusters may open. By default they are not restricted."""

    restrict: StrictBool = Field(
        default=False,
        description="Whether the NetworkPolicies restrict egress of head and workers to their own RayCluster and the "
        "destinations below.",
    )
    own_namespace: StrictBool = Field(
        default=False, description="Whether pods in the namespace of the RayCluster (such as Redis) are allowed."
    )
    dns_namespaces: list[Namespace] = Field(
        default_factory=lambda: ["kube-system", "openshift-dns"],
        max_length=_MAX_ENTRIES,
        description="Namespaces of the cluster's DNS, which are allowed on ports 53 and 5353. Workers find the head by "
        "DNS.",
    )
    dns_cidrs: list[CIDR] = Field(
        default_factory=list,
        alias="dnsCIDRs",
        max_length=_MAX_ENTRIES,
        description="CIDRs of DNS servers that are not pods, such as the address of NodeLocal DNSCache, allowed on the "
        "same ports.",
    )
    api_server_cidrs: list[CIDR] = Field(
        default_factory=list,
        alias="apiServerCIDRs",
        max_length=_MAX_ENTRIES,
        description="CIDRs of the API servers' endpoints, which the autoscaler, the proxies that authenticate users "
        "and pods that request certificates need. Kubernetes has no selector for them.",
    )
    api_server_ports: list[Port] = Field(
        default_factory=lambda: [443, 6443],
        min_length=1,
        max_length=_MAX_ENTRIES,
        description="Ports of the API servers in `apiServerCIDRs`.",
    )
    destinations: list[EgressDestination] = Field(
        default_factory=list,
        max_length=_MAX_ENTRIES,
        description="Further destinations, such as object stores: each has `cidrs` or `namespaces` or both, and TCP "
        "`ports`.",
    )


class DefaultDenyConfiguration(Section):
    """NetworkPolicies that admit nothing to pods of RayClusters until the policies of the RayCluster exist."""

    namespace_selector: Selector | None = Field(
        default=None,
        description="Label selector of the namespaces that get the NetworkPolicy `ray-default-deny`; an empty string "
        "selects all namespaces. If unset, existing ones are deleted. Requires the component `namespaces`.",
    )


class NetworkPolicyConfiguration(Section):
    """The NetworkPolicies of RayClusters."""

    serve_namespaces: list[Namespace] = Field(
        default_factory=list,
        max_length=_MAX_ENTRIES,
        description="Namespaces that may reach the ports of Ray Serve, in addition to the namespace of the RayCluster "
        "and `kuberay.ingress.namespaces`.",
    )
    egress: EgressConfiguration = Field(default_factory=EgressConfiguration)
    default_deny: DefaultDenyConfiguration = Field(default_factory=DefaultDenyConfiguration)
