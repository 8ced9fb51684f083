"""The sections ``kuberay.ingress``, ``kuberay.gateway`` and ``kuberay.networkPolicy``: access to RayClusters."""

from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_network
from typing import Annotated, Self

from msgspec import field

from cfo.config.section import Section
from cfo.config.values import (
    Domain,
    Namespace,
    OptionalNamespace,
    OptionalObjectName,
    Selector,
    between,
    elements,
)

Port = Annotated[int, between(1, 65535)]


class IngressConfiguration(Section):
    """The Ingresses for the dashboard and the Ray client, on clusters without Routes."""

    class_name: Annotated[
        OptionalObjectName | None,
        "`ingressClassName` of both Ingresses. If unset: none for the dashboard, `nginx` for the client "
        "(or the default IngressClass if `nginx` does not exist).",
    ] = None
    annotations: Annotated[
        dict[str, str] | None,
        "Annotations of both Ingresses. If unset: those that the controller of the IngressClass needs to pass TLS "
        "through.",
    ] = None
    tls_secret_name: Annotated[
        OptionalObjectName,
        "Secret with the dashboard's certificate, in the RayCluster's namespace; if empty, no TLS.",
    ] = ""
    namespaces: Annotated[
        list[Namespace],
        "Namespaces of the ingress controllers (or of the Gateway's pods), which may reach the dashboard, the "
        "client and Serve.",
    ] = field(default_factory=list)


class GatewayConfiguration(Section):
    """The Gateway (Gateway API) through which dashboards and Ray clients are reachable, instead of Ingresses."""

    name: Annotated[OptionalObjectName, "Name of the Gateway; if empty, Ingresses are used."] = ""
    namespace: Annotated[OptionalNamespace, "Namespace of the Gateway."] = ""
    dashboard_listener: Annotated[
        OptionalObjectName,
        "Name of the listener for dashboards, which admits HTTPRoutes of the RayClusters' namespaces; should have "
        "the protocol `HTTPS`.",
    ] = ""
    client_listener: Annotated[
        OptionalObjectName,
        "Name of the listener for Ray clients, with the protocol `TLS` and the mode `Passthrough`, which admits "
        "TLSRoutes of the RayClusters' namespaces. If empty, Ray clients are not reachable.",
    ] = ""
    client_port: Annotated[
        Port,
        "Port of that listener, for the addresses of Ray clients. Unless it is 443, TLSRoutes also contain it in "
        "`parentRefs`.",
    ] = 443
    dashboard_host: Annotated[
        Domain,
        "One host for all dashboards, each at the path `/ray/NAMESPACE/NAME`, where CodeFlare SDK expects it. If "
        "empty, each dashboard has its own host below `kuberay.ingressDomain`, so that browsers isolate them.",
    ] = ""

    @property
    def enabled(self) -> bool:
        """Whether a Gateway is configured."""
        return bool(self.name)

    def conflicts(self) -> Iterator[str]:
        """Yield what is wrong with settings that depend on each other."""
        document = self.to_document()
        defaults = dict(zip(self.__struct_encode_fields__, self.__struct_defaults__, strict=True))
        given = {key for key, value in document.items() if value not in (defaults[key], "")}
        missing = [key for key in ("name", "namespace", "dashboardListener") if key not in given]
        if given and missing:
            yield f"{', '.join(missing)} must be set as well"


_MAX_ENTRIES = 100
"""The maximum length of each list: its entries are in two NetworkPolicies of each RayCluster."""


class CIDR(str):
    """A network as the API server accepts it: in canonical form, so an address with host bits is rejected."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return a valid CIDR. Raises :class:`ValueError` with what is allowed."""
        if isinstance(value, str) and "/" in value:
            with suppress(ValueError):
                if str(ip_network(value)) == value:
                    return cls(value)
        raise ValueError("must be a CIDR in canonical form, such as 10.0.0.0/8 or 2001:db8::/64")


class EgressDestination(Section):
    """A destination that pods of RayClusters may connect to: addresses or namespaces, and their TCP ports."""

    ports: Annotated[list[Port], elements(1, _MAX_ENTRIES)]
    cidrs: Annotated[list[CIDR], elements(0, _MAX_ENTRIES)] = field(default_factory=list)
    namespaces: Annotated[list[Namespace], elements(0, _MAX_ENTRIES)] = field(default_factory=list)

    def conflicts(self) -> Iterator[str]:
        """Yield what is wrong with settings that depend on each other."""
        if not self.cidrs and not self.namespaces:
            yield "must contain cidrs or namespaces; to allow all addresses, list 0.0.0.0/0 and ::/0"


class EgressConfiguration(Section):
    """Connections that the pods of RayClusters may open. By default they are not restricted."""

    restrict: Annotated[
        bool,
        "Whether the NetworkPolicies restrict egress of head and workers to their own RayCluster and the "
        "destinations below.",
    ] = False
    own_namespace: Annotated[
        bool, "Whether pods in the namespace of the RayCluster (such as Redis) are allowed."
    ] = False
    dns_namespaces: Annotated[
        list[Namespace],
        elements(0, _MAX_ENTRIES),
        "Namespaces of the cluster's DNS, which are allowed on ports 53 and 5353. Workers find the head by DNS.",
    ] = field(default_factory=lambda: ["kube-system", "openshift-dns"])
    dns_cidrs: Annotated[
        list[CIDR],
        elements(0, _MAX_ENTRIES),
        "CIDRs of DNS servers that are not pods, such as the address of NodeLocal DNSCache, allowed on the same ports.",
    ] = field(default_factory=list, name="dnsCIDRs")
    api_server_cidrs: Annotated[
        list[CIDR],
        elements(0, _MAX_ENTRIES),
        "CIDRs of the API servers' endpoints, which the autoscaler, the proxies that authenticate users and pods "
        "that request certificates need.",
    ] = field(default_factory=list, name="apiServerCIDRs")
    api_server_ports: Annotated[
        list[Port],
        elements(1, _MAX_ENTRIES),
        "Ports of the API servers in `apiServerCIDRs`.",
    ] = field(default_factory=lambda: [443, 6443])
    destinations: Annotated[
        list[EgressDestination],
        elements(0, _MAX_ENTRIES),
        "Further destinations, such as object stores: each has `cidrs` or `namespaces` or both, and TCP `ports`.",
    ] = field(default_factory=list)


class DefaultDenyConfiguration(Section):
    """NetworkPolicies that admit nothing to pods of RayClusters until the policies of the RayCluster exist."""

    namespace_selector: Annotated[
        Selector | None,
        "Label selector of the namespaces that get the NetworkPolicy `ray-default-deny`; an empty string "
        "selects all namespaces. If unset, existing ones are deleted. Requires the component `namespaces`.",
    ] = None


class NetworkPolicyConfiguration(Section):
    """The NetworkPolicies of RayClusters."""

    serve_namespaces: Annotated[
        list[Namespace],
        elements(0, _MAX_ENTRIES),
        "Namespaces that may reach Ray Serve, in addition to the RayCluster's and `kuberay.ingress.namespaces`.",
    ] = field(default_factory=list)
    egress: EgressConfiguration = EgressConfiguration()
    default_deny: DefaultDenyConfiguration = DefaultDenyConfiguration()
