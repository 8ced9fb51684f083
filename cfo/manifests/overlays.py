"""The objects of an installation, and its optional components."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import jsonpatch

from cfo.config.model import OperatorConfiguration
from cfo.features import KINDS, OPTIONAL_ROLES
from cfo.features.contract import OptionalRole
from cfo.manifests import additional, host_policy, monitoring, rbac, workload
from cfo.manifests.names import DEFAULT_NAMESPACE, DEPLOYMENT, LABELS, PREFIX, default_image, named
from cfo.manifests.watched import divide
from cfo.manifests.workload import METRICS_PORT, WEBHOOK_PORT
from cfo.operator import webhook_configurations
from cfo.runtime import Object, name_of, namespace_of
from cfo.runtime.objects import copied

CERTIFICATE = f"{PREFIX}-serving-cert"
INJECTION = "cert-manager.io/inject-ca-from"
SCRAPER_LABEL = {"metrics": "enabled"}
"""The label of the namespaces from which the component network-policy admits scrapes of the metrics."""


def patch(obj: Object, operations: list[dict[str, Any]]) -> None:
    """Apply a JSON patch to ``obj`` in place."""
    jsonpatch.apply_patch(obj, operations, in_place=True)


def certificates(namespace: str) -> list[Object]:
    """Return a self-signed Issuer and the Certificate of the webhooks."""
    service = f"{OperatorConfiguration().webhook.service_name}.{namespace}.svc"
    issuer = f"{PREFIX}-selfsigned-issuer"
    return [
        named("cert-manager.io/v1", "Issuer", issuer, namespace, spec={"selfSigned": {}}),
        named(
            "cert-manager.io/v1",
            "Certificate",
            CERTIFICATE,
            namespace,
            spec={
                "dnsNames": [service, f"{service}.cluster.local"],
                "issuerRef": {"kind": "Issuer", "name": issuer},
                "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
                "secretName": CERTIFICATE,
            },
        ),
    ]


def certificate_patch() -> list[dict[str, Any]]:
    """Return the JSON patch that makes the Deployment serve the certificate from cert-manager."""
    spec = "/spec/template/spec"
    directory = OperatorConfiguration().webhook.cert_dir
    mount = {"name": "cert", "mountPath": directory, "readOnly": True}
    return [
        {
            "op": "add",
            "path": f"{spec}/containers/0/args",
            "value": [f"--webhook-cert-dir={directory}"],
        },
        {"op": "add", "path": f"{spec}/containers/0/volumeMounts/-", "value": mount},
        {
            "op": "add",
            "path": f"{spec}/volumes/-",
            "value": {"name": "cert", "secret": {"secretName": CERTIFICATE}},
        },
    ]


def _certmanager(objects: list[Object], namespace: str) -> list[Object]:
    for obj in objects:
        if obj["kind"] == "Deployment":
            patch(obj, certificate_patch())
        elif obj["kind"].endswith("WebhookConfiguration"):
            obj["metadata"].setdefault("annotations", {})[INJECTION] = f"{namespace}/{CERTIFICATE}"
    return [*objects, *certificates(namespace)]


def network_policies(namespace: str, api_servers: Iterable[str] = ()) -> list[Object]:
    """Return a NetworkPolicy that allows only traffic to the webhooks, and to the metrics from some namespaces.

    Webhooks are allowed for ``api_servers``, the CIDRs of the control plane; if none are given, for every source,
    because Kubernetes has no selector for API servers.

    Metrics are allowed for namespaces with :data:`SCRAPER_LABEL`. The kubelet's probes come from the node,
    whose traffic NetworkPolicies do not block.
    """
    blocks = [{"ipBlock": {"cidr": cidr}} for cidr in api_servers]
    sources: dict[str, Any] = {"from": blocks} if blocks else {}
    spec = {
        "podSelector": {"matchLabels": dict(LABELS)},
        "policyTypes": ["Ingress"],
        "ingress": [
            {**sources, "ports": [{"port": WEBHOOK_PORT, "protocol": "TCP"}]},
            metrics_rule(),
        ],
    }
    return [named("networking.k8s.io/v1", "NetworkPolicy", DEPLOYMENT, namespace, spec=spec)]


def metrics_rule() -> dict[str, Any]:
    """Return the rule of the NetworkPolicy that admits scrapes of the metrics."""
    scrapers = [{"namespaceSelector": {"matchLabels": dict(SCRAPER_LABEL)}}]
    return {"from": scrapers, "ports": [{"port": METRICS_PORT, "protocol": "TCP"}]}


def _with_role(role: OptionalRole, objects: list[Object], namespace: str) -> list[Object]:
    return [*objects, *rbac.optional_access(role, namespace)]


COMPONENTS: dict[str, Callable[[list[Object], str], list[Object]]] = {
    **{role.name: partial(_with_role, role) for role in OPTIONAL_ROLES},
    "certmanager": _certmanager,
    "network-policy": lambda objects, namespace: [*objects, *network_policies(namespace)],
    "prometheus": lambda objects, namespace: [*objects, *monitoring.objects(namespace)],
    "reserved-hosts": lambda objects, namespace: [*objects, *host_policy.policy()],
}


def bases(namespace: str, image: str, *, serves_webhooks: bool = True) -> dict[str, list[Object]]:
    """Return the objects of the default installation, by their directory in ``config/``.

    The operator has no permissions for webhooks unless ``serves_webhooks``.
    """
    configurations = webhook_configurations(namespace)
    for configuration in configurations:
        configuration["metadata"]["labels"] = dict(LABELS)
    return {
        "crd": crds(),
        "rbac": [
            *rbac.access(namespace, serves_webhooks=serves_webhooks),
            *rbac.user_roles(),
        ],
        "manager": [
            workload.namespace_object(namespace),
            workload.metrics_service(namespace),
            workload.disruption_budget(namespace),
            workload.deployment(namespace, image),
        ],
        "webhook": [workload.webhook_service(namespace), *configurations],
    }


def crds() -> list[Object]:
    """Return our own CRDs. KubeRay installs the CRD of RayClusters."""
    own = [crd for kind in KINDS for crd in kind.crds()]
    for crd in own:
        crd["metadata"]["labels"] = {**crd["metadata"].get("labels", {}), **LABELS}
    return own


def bundled_crds() -> list[Object]:
    """Return the CRDs in the OLM bundle.

    OLM allows one owner of a CRD, so those that operators of several major versions share are installed separately.
    """
    shared = {gvk.group for kind in KINDS if kind.shared for gvk in kind.gvks}
    return [crd for crd in crds() if crd["spec"]["group"] not in shared]


_ORDER = (
    "Namespace",
    "CustomResourceDefinition",
    "ServiceAccount",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "ConfigMap",
    "Service",
    "PodDisruptionBudget",
    "NetworkPolicy",
    "Issuer",
    "Certificate",
    "Deployment",
    "ServiceMonitor",
    "PrometheusRule",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)
"""The kinds of an installation, in an order in which they can be applied."""


def render(
    namespace: str = DEFAULT_NAMESPACE,
    image: str = default_image(),
    components: Iterable[str] = (),
    api_servers: Iterable[str] = (),
    part: Mapping[str, Any] | None = None,
    watch_namespaces: Sequence[str] = (),
) -> list[Object]:
    """Return all objects of an installation, in an order in which they can be applied.

    ``components`` are names in :data:`COMPONENTS`. With the component ``network-policy``, ``api_servers`` are the CIDRs
    from which webhooks can be called; every address if there are none. With ``part``, the installation is that of an
    additional operator (see :func:`.additional.adapt`). Otherwise, ``watch_namespaces`` are those of the first one.
    Either one has most permissions only in these namespaces (see :mod:`.watched`).
    """
    objects: list[Object] = []
    for group in bases(namespace, image, serves_webhooks=part is None).values():
        objects += copied(group)
    for name in sorted(set(components)):
        objects = COMPONENTS[name](objects, namespace)
    blocks = tuple(api_servers)
    if blocks and "network-policy" in components:
        objects = [obj for obj in objects if obj["kind"] != "NetworkPolicy"]
        objects += network_policies(namespace, blocks)
    if part is not None:
        namespaces = part.get("watchNamespaces", ())
        return _sorted(_adapted(objects, namespace, namespaces, part))
    if watch_namespaces:
        (deployment,) = [obj for obj in objects if obj["kind"] == "Deployment"]
        settings = {"watchNamespaces": [*watch_namespaces]}
        workload.set_first_configuration(deployment, settings)
    return _sorted(_adapted(objects, namespace, watch_namespaces, None))


def render_roles(
    namespace: str,
    components: Iterable[str],
    *,
    is_additional: bool = False,
    watch_namespaces: Sequence[str] = (),
) -> list[Object]:
    """Return only the roles of ``components``, which must be optional roles, and their bindings.

    They change nothing that runs. ``is_additional``: they are those of the additional operator in ``namespace``. With
    ``watch_namespaces``, most permissions are only for these.
    """
    objects: list[Object] = []
    for role in OPTIONAL_ROLES:
        if role.name in components:
            objects += copied(rbac.optional_access(role, namespace))
    part: dict[str, Any] | None = {} if is_additional else None
    return _sorted(_adapted(objects, namespace, watch_namespaces, part))


def _adapted(
    objects: list[Object],
    namespace: str,
    watch_namespaces: Sequence[str],
    part: Mapping[str, Any] | None,
) -> list[Object]:
    """Return ``objects`` for an operator that has its permissions in ``watch_namespaces``, or is an additional one."""
    if watch_namespaces:
        objects = divide(objects, namespace, watch_namespaces)
    if part is not None:
        objects = additional.adapt(objects, namespace, part)
    return objects


def _sorted(objects: Iterable[Object]) -> list[Object]:
    return sorted(
        objects, key=lambda obj: (_ORDER.index(obj["kind"]), namespace_of(obj), name_of(obj))
    )
