"""The strategy of each built-in kind, and the registration of all built-in resources.

Strategies, their modules and the schemas of their kinds are loaded when a kind is first used: most tests use few kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from envtest.apimachinery.errors import GroupResource
from envtest.builtins.catalog import Resource, all_resources, schema_of, storage_hash
from envtest.builtins.conversions import converter_between, has_converter
from envtest.builtins.strategy import BuiltinStrategy
from envtest.configuration.kubernetes_version import LATEST, KubernetesVersion
from envtest.registry.registry import Registry
from envtest.registry.resource import ResourceInfo, Strategy, Subresource

__all__ = ["register_builtins", "selectable_fields", "strategy_for"]

_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"

_STRATEGIES: Final[dict[tuple[str, str], str]] = {
    ("", "ConfigMap"): "core.ConfigMapStrategy",
    ("", "Endpoints"): "core.EndpointsStrategy",
    ("", "Event"): "core.EventStrategy",
    ("", "LimitRange"): "limits.LimitRangeStrategy",
    ("", "Namespace"): "core.NamespaceStrategy",
    ("", "Node"): "nodes.NodeStrategy",
    ("", "PersistentVolume"): "volumes.PersistentVolumeStrategy",
    ("", "PersistentVolumeClaim"): "claims.PersistentVolumeClaimStrategy",
    ("", "Pod"): "pods.PodStrategy",
    ("", "PodTemplate"): "workloads.PodTemplateStrategy",
    ("", "ReplicationController"): "workloads.ReplicationControllerStrategy",
    ("", "ResourceQuota"): "limits.ResourceQuotaStrategy",
    ("", "Secret"): "core.SecretStrategy",
    ("", "Service"): "services.ServiceStrategy",
    ("", "ServiceAccount"): "core.ServiceAccountStrategy",
    ("apps", "ControllerRevision"): "workloads.ControllerRevisionStrategy",
    ("apps", "DaemonSet"): "workloads.DaemonSetStrategy",
    ("apps", "Deployment"): "workloads.DeploymentStrategy",
    ("apps", "ReplicaSet"): "workloads.ReplicaSetStrategy",
    ("apps", "StatefulSet"): "workloads.StatefulSetStrategy",
    ("apiregistration.k8s.io", "APIService"): "apiregistration.APIServiceStrategy",
    ("autoscaling", "HorizontalPodAutoscaler"): "autoscaling.AutoscalerStrategy",
    ("batch", "CronJob"): "batch.CronJobStrategy",
    ("batch", "Job"): "batch.JobStrategy",
    ("certificates.k8s.io", "CertificateSigningRequest"): "certificates.CertificateRequestStrategy",
    ("coordination.k8s.io", "Lease"): "coordination.LeaseStrategy",
    ("discovery.k8s.io", "EndpointSlice"): "discovery.EndpointSliceStrategy",
    ("events.k8s.io", "Event"): "core.EventStrategy",
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): "flowcontrol.FlowSchemaStrategy",
    (
        "flowcontrol.apiserver.k8s.io",
        "PriorityLevelConfiguration",
    ): "flowcontrol.PriorityLevelStrategy",
    ("networking.k8s.io", "IPAddress"): "addresses.AddressStrategy",
    ("networking.k8s.io", "Ingress"): "networking.IngressStrategy",
    ("networking.k8s.io", "IngressClass"): "networking.IngressClassStrategy",
    ("networking.k8s.io", "NetworkPolicy"): "networking.NetworkPolicyStrategy",
    ("networking.k8s.io", "ServiceCIDR"): "addresses.ServiceNetworkStrategy",
    ("node.k8s.io", "RuntimeClass"): "node.RuntimeClassStrategy",
    ("policy", "PodDisruptionBudget"): "policy.DisruptionBudgetStrategy",
    ("resource.k8s.io", "ResourceSlice"): "devices.DeviceSliceStrategy",
    ("resource.k8s.io", "DeviceClass"): "devices.DeviceClassStrategy",
    ("resource.k8s.io", "ResourceClaim"): "devices.DeviceClaimStrategy",
    ("resource.k8s.io", "ResourceClaimTemplate"): "devices.DeviceClaimTemplateStrategy",
    ("scheduling.k8s.io", "PriorityClass"): "scheduling.PriorityClassStrategy",
    ("storage.k8s.io", "CSIDriver"): "storage.CSIDriverStrategy",
    ("storage.k8s.io", "CSINode"): "storage.CSINodeStrategy",
    ("storage.k8s.io", "CSIStorageCapacity"): "storage.CSIStorageCapacityStrategy",
    ("storage.k8s.io", "StorageClass"): "storage.StorageClassStrategy",
    ("storage.k8s.io", "VolumeAttachment"): "storage.VolumeAttachmentStrategy",
    ("storage.k8s.io", "VolumeAttributesClass"): "storage.VolumeAttributesClassStrategy",
    (_ADMISSION, "MutatingAdmissionPolicy"): "admission_policies.PolicyStrategy",
    (_ADMISSION, "MutatingAdmissionPolicyBinding"): "admission_policies.PolicyBindingStrategy",
    (
        _ADMISSION,
        "MutatingWebhookConfiguration",
    ): "admissionregistration.WebhookConfigurationStrategy",
    (_ADMISSION, "ValidatingAdmissionPolicy"): "admission_policies.PolicyStrategy",
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): "admission_policies.PolicyBindingStrategy",
    (
        _ADMISSION,
        "ValidatingWebhookConfiguration",
    ): "admissionregistration.WebhookConfigurationStrategy",
    (_RBAC, "ClusterRole"): "rbac.RoleStrategy",
    (_RBAC, "ClusterRoleBinding"): "rbac.BindingStrategy",
    (_RBAC, "Role"): "rbac.RoleStrategy",
    (_RBAC, "RoleBinding"): "rbac.BindingStrategy",
}
"""Group and kind to module and class in this package."""

_SELECTABLE_FIELDS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("", "pods"): (
        ".spec.nodeName",
        ".spec.restartPolicy",
        ".spec.schedulerName",
        ".spec.serviceAccountName",
        ".spec.hostNetwork",
        ".status.phase",
        ".status.podIP",
        ".status.podIPs",
        ".status.nominatedNodeName",
    ),
    ("", "events"): (
        ".involvedObject.kind",
        ".involvedObject.namespace",
        ".involvedObject.name",
        ".involvedObject.uid",
        ".involvedObject.apiVersion",
        ".involvedObject.resourceVersion",
        ".involvedObject.fieldPath",
        ".reason",
        ".reportingComponent",
        ".source",
        ".type",
    ),
    ("events.k8s.io", "events"): (
        ".regarding.kind",
        ".regarding.namespace",
        ".regarding.name",
        ".regarding.uid",
        ".regarding.apiVersion",
        ".regarding.resourceVersion",
        ".regarding.fieldPath",
        ".reason",
        ".reportingController",
        ".type",
    ),
    ("", "namespaces"): (".status.phase",),
    ("", "nodes"): (".spec.unschedulable",),
    ("", "replicationcontrollers"): (".status.replicas",),
    ("", "secrets"): (".type",),
    ("", "services"): (".spec.clusterIP", ".spec.type"),
    ("batch", "jobs"): (".status.successful",),
    ("certificates.k8s.io", "certificatesigningrequests"): (".spec.signerName",),
    ("resource.k8s.io", "resourceslices"): (".spec.driver", ".spec.nodeName"),
}

_STORED_ELSEWHERE: Final[dict[tuple[str, str, str], tuple[GroupResource, str, str]]] = {
    ("events.k8s.io", "v1", "events"): (GroupResource("", "events"), "v1", "Event"),
    ("autoscaling", "v1", "horizontalpodautoscalers"): (
        GroupResource("autoscaling", "horizontalpodautoscalers"),
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
    ),
}
"""Resources whose objects are stored as objects of another resource: its store table, ``apiVersion`` and kind."""

_ALLOCATING: Final = frozenset({("", "services")})
"""Resources whose strategy allocates values."""

_DEPRECATED: Final[dict[tuple[str, str], str]] = {
    (
        "v1",
        "Endpoints",
    ): "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    ("v1", "ComponentStatus"): "v1 ComponentStatus is deprecated in v1.19+",
}


def strategy_for(resource: Resource) -> BuiltinStrategy:
    """Return a new strategy for a resource of the table."""
    module, _, name = _STRATEGIES.get(
        (resource.group, resource.kind), "strategy.BuiltinStrategy"
    ).partition(".")
    kind: type[BuiltinStrategy] = getattr(import_module(f"envtest.builtins.{module}"), name)
    return kind(resource)


def selectable_fields(group: str, plural: str) -> Sequence[str]:
    """Return the paths that field selectors may use besides ``metadata.name`` and ``metadata.namespace``."""
    return _SELECTABLE_FIELDS.get((group, plural), ())


StrategyFactory = Callable[[Resource], BuiltinStrategy]


class _BuiltinInfo(ResourceInfo):
    """Creates the strategy and the schema on first use."""

    __slots__ = ("_factory", "_resource")

    def __init__(self, resource: Resource, factory: StrategyFactory, **more: Any) -> None:
        super().__init__(
            group=resource.group,
            version=resource.version,
            plural=resource.plural,
            singular=resource.singular,
            kind=resource.kind,
            namespaced=resource.namespaced,
            strategy=_PLACEHOLDER,
            verbs=resource.verbs,
            short_names=resource.short_names,
            categories=resource.categories,
            **more,
        )
        self._resource = resource
        self._factory = factory
        del self.strategy, self.schema

    def __getattr__(self, name: str) -> Any:
        """Create ``strategy`` or ``schema`` on first use.

        Python calls this only for unset attributes, and :meth:`__init__` leaves these two unset.
        """
        if name == "strategy":
            self.strategy = self._factory(self._resource)
            return self.strategy
        if name == "schema":
            self.schema = schema_of(self._resource.type)
            return self.schema
        raise AttributeError(name)


_PLACEHOLDER: Final = Strategy()


def register_builtins(
    registry: Registry,
    factories: Mapping[tuple[str, str], StrategyFactory],
    kubernetes: KubernetesVersion = LATEST,
) -> None:
    """Register the built-in resources that the version ``kubernetes`` serves.

    ``factories`` create the strategies of the kinds, by group and kind, that :func:`strategy_for` does not know, or
    creates with defaults.
    """
    for resource in all_resources(kubernetes):
        table, version, kind = _STORED_ELSEWHERE.get(
            (resource.group, resource.version, resource.plural),
            (GroupResource(resource.group, resource.plural), "", ""),
        )
        info = _BuiltinInfo(
            resource,
            factories.get((resource.group, resource.kind), strategy_for),
            subresources={
                sub.name: Subresource(
                    sub.name,
                    sub.kind if sub.kind != resource.kind else "",
                    sub.group,
                    sub.version,
                    sub.verbs,
                )
                for sub in resource.subresources
            },
            selectable_fields=tuple(selectable_fields(resource.group, resource.plural)),
            storage=table,
            storage_version=version,
            storage_version_hash=_storage_hash(resource, version),
            allocates=(resource.group, resource.plural) in _ALLOCATING,
            deprecation=""
            if resource.group
            else _DEPRECATED.get((resource.version, resource.kind), ""),
        )
        if version:
            info.storage_kind = kind
        if has_converter(info):
            info.convert = converter_between(info)
        registry.register(info)


def _storage_hash(resource: Resource, version: str) -> str:
    if "get" not in resource.verbs or "create" not in resource.verbs:
        return ""
    if version:
        group, _, name = version.rpartition("/")
    else:
        group = resource.group
        name = resource.version
    return storage_hash(group, name, resource.kind)
