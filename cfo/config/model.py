"""The model of the whole configuration document; each group of sections has a module of its own.

The models contain settings, defaults, and the validation of single values. Error messages state the allowed values.
:mod:`cfo.config.document` parses documents into these models. ``docs/configuration.md`` is generated from the
descriptions and from the first docstring line of each model.
"""

from __future__ import annotations

from itertools import combinations
from typing import Self

from pydantic import Field, StrictInt, model_validator

from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.config.endpoints import DebugConfiguration, HealthConfiguration, MetricsConfiguration, WebhookConfiguration
from cfo.config.flux import FluxConfiguration
from cfo.config.inferencestack import InferenceStackConfiguration
from cfo.config.kuberay import KubeRayConfiguration
from cfo.config.leader_election import LeaderElection
from cfo.config.section import Namespace, Section, Selector

__all__ = ["ClientConnection", "OperatorConfiguration"]


_ALL_ADDRESSES = ("", "0.0.0.0", "[::]")  # noqa: S104 (compared, not bound)


def _overlap(first: str, second: str) -> bool:
    """Return whether two bind addresses have the same port on the same address; port 0 is any free port."""
    (host, _, port), (other_host, _, other_port) = first.rpartition(":"), second.rpartition(":")
    if not port.isdigit() or not other_port.isdigit() or int(port) == 0 or int(port) != int(other_port):
        return False
    return host == other_host or host in _ALL_ADDRESSES or other_host in _ALL_ADDRESSES


class ClientConnection(Section):
    """Rate limit of the API client. By default there is none, and only the server's Priority and Fairness applies."""

    qps: float | None = Field(
        default=None,
        description="Maximum requests per second; unset or negative means no limit.",
        strict=True,
        allow_inf_nan=False,
    )
    burst: StrictInt | None = Field(default=None, ge=0, description="Maximum burst of requests above `qps`.")


class OperatorConfiguration(Section):
    """The whole configuration document."""

    watch_namespaces: list[Namespace] = Field(
        default_factory=list,
        description="Namespaces whose RayClusters, AppWrappers and Flux objects are reconciled; if empty, all. If set, "
        "the operator needs permissions only in these namespaces (except for the OAuth proxy, which needs "
        "ClusterRoleBindings, and AppWrappers, which need to read ValidatingWebhookConfigurations), and does not "
        "detect `kuberay.operatorNamespaces`, so set that as well.",
    )
    label_selector: Selector = Field(
        default="",
        description="Label selector of the RayClusters, AppWrappers and Flux objects that are reconciled; if empty, "
        "all. With selectors such as `operatorVersion=v1`, operators of several versions can share a cluster.",
    )
    client_connection: ClientConnection = Field(default_factory=ClientConnection)
    metrics: MetricsConfiguration = Field(default_factory=MetricsConfiguration)
    health: HealthConfiguration = Field(default_factory=HealthConfiguration)
    debug: DebugConfiguration = Field(default_factory=DebugConfiguration)
    leader_election: LeaderElection = Field(default_factory=LeaderElection)
    webhook: WebhookConfiguration = Field(default_factory=WebhookConfiguration)
    kuberay: KubeRayConfiguration = Field(default_factory=KubeRayConfiguration)
    appwrapper: AppWrapperConfiguration = Field(default_factory=AppWrapperConfiguration)
    flux: FluxConfiguration = Field(default_factory=FluxConfiguration)
    inference_stack: InferenceStackConfiguration = Field(default_factory=InferenceStackConfiguration)

    @model_validator(mode="after")
    def _debug_clients_are_authenticated(self) -> Self:
        if self.debug.bind_address == "metrics" and not self.metrics.secure_serving:
            raise ValueError('debug.bindAddress "metrics" requires metrics.secureServing: true')
        return self

    @model_validator(mode="after")
    def _namespaces_can_be_selected(self) -> Self:
        if self.watch_namespaces and self.kuberay.network_policy.default_deny.namespace_selector is not None:
            raise ValueError(
                "kuberay.networkPolicy.defaultDeny.namespaceSelector requires an operator for all namespaces: "
                "unset it, or unset watchNamespaces"
            )
        return self

    @model_validator(mode="after")
    def _ports_differ(self) -> Self:
        servers = {"metrics": self.metrics.bind_address, "health": self.health.bind_address}
        if self.webhook.enabled is not False:
            servers["webhook"] = self.webhook.bind_address
        for (first, address), (second, other) in combinations(servers.items(), 2):
            if _overlap(address, other):
                raise ValueError(
                    f"{first}.bindAddress and {second}.bindAddress must not use the same port: {address}, {other}"
                )
        return self

    @model_validator(mode="after")
    def _profiles_need_all_namespaces(self) -> Self:
        if self.watch_namespaces and self.kuberay.profiles:
            raise ValueError(
                "kuberay.profiles requires an operator for all namespaces: unset it, or unset watchNamespaces"
            )
        return self
