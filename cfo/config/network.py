"""The sections ``kuberay.ingress``, ``kuberay.gateway`` and ``kuberay.networkPolicy``: access to RayClusters."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, StrictBool, StrictInt, StrictStr, model_validator
from pydantic.alias_generators import to_camel

from cfo.config.section import Domain, Namespace, OptionalNamespace, OptionalObjectName, Section, Selector

Port = Annotated[StrictInt, Field(ge=1, le=65535)]


class IngressConfiguration(Section):
    """The Ingresses for the dashboard and the Ray client, on clusters without Routes."""

    class_name: OptionalObjectName | None = Field(
        default=None,
        description="`ingressClassName` of both Ingresses. If unset: none for the dashboard, `nginx` for the client "
        "(or the default IngressClass if `nginx` does not exist).",
    )
    annotations: dict[StrictStr, StrictStr] | None = Field(
        default=None,
        description="Annotations of both Ingresses. If unset: those with which the controller of the IngressClass "
        "passes the client's TLS through, and connects to a dashboard that serves HTTPS.",
    )
    tls_secret_name: StrictStr = Field(
        default="",
        description="Secret with the dashboard's certificate, in the RayCluster's namespace; if empty, no TLS.",
    )
    namespaces: list[Namespace] = Field(
        default_factory=list,
        description="Namespaces of the ingress controllers (or of the Gateway's pods) that the NetworkPolicies "
        "allow to reach the dashboard (port 8265), the client (port 10001) and Serve (port 8000), or the ports that "
        "the RayCluster sets.",
    )


class GatewayConfiguration(Section):
    """The Gateway (Gateway API) through which dashboards and Ray clients are reachable, instead of Ingresses."""

    name: OptionalObjectName = Field(default="", description="Name of the Gateway; if empty, Ingresses are used.")
    namespace: OptionalNamespace = Field(default="", description="Namespace of the Gateway.")
    dashboard_listener: OptionalObjectName = Field(
        default="",
        description="Name of the listener for dashboards, which should have the protocol `HTTPS`. It must admit "
        "HTTPRoutes of the RayClusters' namespaces.",
    )
    client_listener: OptionalObjectName = Field(
        default="",
        description="Name of the listener for Ray clients, with the protocol `TLS` and the mode `Passthrough`. It must "
        "admit TLSRoutes of the RayClusters' namespaces. If empty, Ray clients are not reachable through the Gateway.",
    )
    client_port: Port = Field(
        default=443,
        description="Port of that listener, which the addresses of Ray clients contain. Unless it is 443, TLSRoutes "
        "also contain it in `parentRefs`.",
    )
    dashboard_host: Domain = Field(
        default="",
        description="One host for all dashboards, each at the path `/ray/NAMESPACE/NAME`, where CodeFlare SDK expects "
        "it. If empty, each dashboard has a host of its own below `kuberay.ingressDomain`, which isolates dashboards "
        "from each other in browsers.",
    )

    @property
    def enabled(self) -> bool:
        """Whether a Gateway is configured."""
        return bool(self.name)

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        fields = type(self).model_fields
        given = {to_camel(name) for name in fields if getattr(self, name) not in (fields[name].default, "")}
        missing = [key for key in ("name", "namespace", "dashboardListener") if key not in given]
        if given and missing:
            raise ValueError(f"{', '.join(missing)} must be set as well")
        return self


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
