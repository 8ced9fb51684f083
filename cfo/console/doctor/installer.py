"""Which tool has installed the operator, and how that tool repairs an installation.

``cfo manifests | kubectl apply`` would take fields from Helm, whose next upgrade fails then, and OLM would revert it.
Both tools put labels on the Deployment, and so does Open Data Hub on that of the Go operator.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from cfo.checks.findings import MIGRATION, MIGRATION_FROM_ODH
from cfo.features import OPTIONAL_ROLES
from cfo.features.contract import OptionalRole
from cfo.manifests.names import SERVICE_ACCOUNT
from cfo.manifests.rbac import optional_binding, optional_cluster_role
from cfo.runtime import Object, annotations_of, labels_of, namespace_of

_OLM_V0_OWNER: Final = "olm.owner"
_OLM_V1_OWNER: Final = "olm.operatorframework.io/owner-name"
_ODH_COMPONENT: Final = "app.opendatahub.io/codeflare"
"""The label that Open Data Hub 2 and RHOAI 2 put on all objects of their component codeflare."""


@dataclass(frozen=True, slots=True)
class HelmRelease:
    """The release of Helm to which an object belongs."""

    name: str
    namespace: str

    def upgrade(self, components: Collection[str]) -> str:
        """Return how an upgrade repairs the release, and adds ``components``, whose values have their names."""
        words = ["helm", "upgrade", self.name, "CHART", "--namespace", self.namespace]
        words.append("--reuse-values")
        for name in sorted(components):
            words += ["--set", f"{name}.enabled=true"]
        return (
            f"upgrade the Helm release with the chart that it has: {shlex.join(words)} (Helm 4: --force-conflicts if "
            "other clients have changed fields)"
        )


@dataclass(frozen=True, slots=True)
class OLMOwner:
    """The object of OLM that owns the operator: a ClusterServiceVersion, or a ClusterExtension of OLM v1.

    ``namespace`` is that of the operator.
    """

    kind: str
    name: str
    namespace: str

    def repair(self, components: Collection[str]) -> str:
        """Return where OLM reports problems, and how the roles of ``components`` are bound, which OLM does not do."""
        describe = ["kubectl", "describe", self.kind, self.name]
        if self.kind == "clusterserviceversion":
            describe += ["--namespace", self.namespace]
        remedy = f"find out why OLM does not repair it: {shlex.join(describe)}"
        if components:
            commands = " && ".join(
                self._binding_command(role) for role in OPTIONAL_ROLES if role.name in components
            )
            remedy = f"bind the ClusterRoles that OLM does not bind: {commands}; otherwise {remedy}"
        return remedy

    def _binding_command(self, role: OptionalRole) -> str:
        words = ["kubectl", "create", "clusterrolebinding", optional_binding(role)]
        words += ["--clusterrole", optional_cluster_role(role)]
        words += ["--serviceaccount", f"{self.namespace}:{SERVICE_ACCOUNT}"]
        return shlex.join(words)


def migration_remedy(deployment: Object | None) -> str:
    """Return how the Go operator of ``deployment`` is replaced; Open Data Hub has to remove its own."""
    return MIGRATION_FROM_ODH if is_of_open_data_hub(deployment) else MIGRATION


def is_of_open_data_hub(deployment: Object | None) -> bool:
    """Return whether a DataScienceCluster of Open Data Hub 2 or RHOAI 2 has installed ``deployment``."""
    return deployment is not None and labels_of(deployment).get(_ODH_COMPONENT) == "true"


def helm_release(obj: Object | None) -> HelmRelease | None:
    """Return the Helm release of ``obj``, by the metadata that Helm adds; ``None`` if Helm did not create it."""
    if obj is None or labels_of(obj).get("app.kubernetes.io/managed-by") != "Helm":
        return None
    annotations = annotations_of(obj)
    name = annotations.get("meta.helm.sh/release-name")
    namespace = annotations.get("meta.helm.sh/release-namespace")
    if not name or not namespace:
        return None
    return HelmRelease(name, namespace)


def olm_owner(deployment: Object | None) -> OLMOwner | None:
    """Return the owner of ``deployment`` in OLM; ``None`` if OLM did not create it."""
    if deployment is None:
        return None
    labels = labels_of(deployment)
    if _OLM_V0_OWNER in labels:
        name = labels[_OLM_V0_OWNER]
        return OLMOwner("clusterserviceversion", name, namespace_of(deployment))
    if _OLM_V1_OWNER in labels:
        return OLMOwner("clusterextension", labels[_OLM_V1_OWNER], namespace_of(deployment))
    return None
