"""The sections ``kuberay.ingress`` and ``kuberay.gateway``: through what dashboards and Ray clients are reachable."""

from __future__ import annotations

from typing import Self

from pydantic import Field, StrictStr, model_validator
from pydantic.alias_generators import to_camel

from cfo.config.section import Domain, Namespace, OptionalNamespace, OptionalObjectName, Section

__all__ = ["GatewayConfiguration", "IngressConfiguration"]


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
        given = {to_camel(name) for name in type(self).model_fields if getattr(self, name)}
        missing = [key for key in ("name", "namespace", "dashboardListener") if key not in given]
        if given and missing:
            raise ValueError(f"{', '.join(missing)} must be set as well")
        return self
