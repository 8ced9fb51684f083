"""An additional operator in a cluster that has one: it reconciles its own part of the objects.

Its ClusterRoles and their bindings have names of their own, which end with its namespace. The first installation
keeps what a cluster has once: CRDs, roles for users, and the webhooks, which the first operator serves for all objects.
So an additional operator is not allowed to write webhook configurations.

Like the first operator, it creates its ConfigMap when it starts, with the settings that its Deployment has. So applying
the manifests again keeps what its administrators have changed there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cfo.config.model import OperatorConfiguration
from cfo.manifests import rbac, workload
from cfo.runtime import Object, name_of
from cfo.version import CONFIG_MAP_NAME

_OF_THE_CLUSTER = (
    "CustomResourceDefinition",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
)
"""Kinds of which the first installation has the only objects."""

FIRST_ONLY = ("certmanager", "reserved-hosts")
"""Components that only the first installation can have: they concern the webhooks, or all namespaces."""


def adapt(objects: Sequence[Object], namespace: str, part: Mapping[str, Any]) -> list[Object]:
    """Return what an additional operator in ``namespace`` needs of the ``objects`` of an installation.

    ``part`` has the settings that select its part of the objects: ``watchNamespaces``, ``labelSelector``, or both.
    Its ClusterRoles and what binds them get new names in place.
    """
    own_roles = {obj["roleRef"]["name"] for obj in objects if _binds_cluster_role(obj)}
    found = []
    for obj in objects:
        if _belongs_to_the_first(obj):
            continue
        if obj["kind"] == "Deployment":
            workload.set_first_configuration(obj, configuration(part))
        if _binds_cluster_role(obj):
            obj["metadata"]["name"] = own_name(name_of(obj), namespace)
            obj["roleRef"]["name"] = own_name(obj["roleRef"]["name"], namespace)
        elif obj["kind"] == "ClusterRole" and name_of(obj) in own_roles:
            obj["metadata"]["name"] = own_name(name_of(obj), namespace)
        found.append(obj)
    return found


def own_name(name: str, namespace: str) -> str:
    """Return the name that a ClusterRole, or its binding, has for the additional operator in ``namespace``."""
    return f"{name}-{namespace}"


def note(part: Mapping[str, Any]) -> str:
    """Return what an administrator has to change in the configuration of the first operator before."""
    changes = []
    if "watchNamespaces" in part:
        changes.append(f"watchNamespaces without {', '.join(part['watchNamespaces'])}")
    if "labelSelector" in part:
        changes.append(f"a labelSelector that excludes {part['labelSelector']}")
    return (
        f"first set {' or '.join(changes)} in the ConfigMap {CONFIG_MAP_NAME} of the first operator, and restart it: "
        "otherwise both reconcile the same objects, and overwrite each other's writes; cfo doctor checks this"
    )


def configuration(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first configuration of an additional operator, with the settings in ``part``."""
    return {"webhook": {"enabled": False}, **part}


def _binds_cluster_role(obj: Object) -> bool:
    return bool(obj.get("roleRef", {}).get("kind") == "ClusterRole")


def _belongs_to_the_first(obj: Object) -> bool:
    if obj["kind"] in _OF_THE_CLUSTER:
        return True
    if obj["kind"] == "ClusterRole":
        return name_of(obj) in map(name_of, rbac.user_roles())
    service_name = OperatorConfiguration().webhook.service_name
    return obj["kind"] == "Service" and name_of(obj) == service_name
