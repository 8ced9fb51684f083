"""The cluster roles of kube-controller-manager's controllers, which run with service accounts of their own.

The source is ``plugin/pkg/auth/authorizer/rbac/bootstrappolicy/controller_policy.go`` of Kubernetes 1.36. Each role is
a list of rules ``VERBS | GROUPS | RESOURCES | NAMES``; ``core`` is the group without a name, ``read`` means
``get list watch``, and ``events`` the rule that allows writing events.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

__all__ = ["controller_roles"]

_APPROVE = "kubernetes.io/kube-apiserver-client-kubelet"
_SIGN = (
    "kubernetes.io/legacy-unknown,kubernetes.io/kube-apiserver-client,"
    "kubernetes.io/kube-apiserver-client-kubelet,kubernetes.io/kubelet-serving"
)
_ROLES: Final[dict[str, str]] = {
    "attachdetach-controller": """
        list watch | core | persistentvolumes persistentvolumeclaims
        read | core | nodes
        patch update | core | nodes/status
        list watch | core | pods
        events
        get create delete list watch | storage.k8s.io | volumeattachments
        read | storage.k8s.io | csidrivers
        read | storage.k8s.io | csinodes
    """,
    "clusterrole-aggregation-controller": """
        escalate read update patch | rbac.authorization.k8s.io | clusterroles
    """,
    "cronjob-controller": """
        read update | batch | cronjobs
        read create update delete patch | batch | jobs
        update | batch | cronjobs/status
        update | batch | cronjobs/finalizers
        list watch delete | core | pods
        events
    """,
    "daemon-set-controller": """
        read | extensions apps | daemonsets
        update | extensions apps | daemonsets/status
        update | extensions apps | daemonsets/finalizers
        list watch | core | nodes
        list watch create delete patch | core | pods
        create | core | pods/binding
        read create delete update patch | apps | controllerrevisions
        events
    """,
    "deployment-controller": """
        read update | extensions apps | deployments
        update | extensions apps | deployments/status
        update | extensions apps | deployments/finalizers
        read create update patch delete | apps extensions | replicasets
        read update | core | pods
        events
    """,
    "disruption-controller": """
        read | extensions apps | deployments
        read | apps extensions | replicasets
        read | core | replicationcontrollers
        read | policy | poddisruptionbudgets
        read | apps | statefulsets
        update | policy | poddisruptionbudgets/status
        patch update | core | pods/status
        get | * | */scale
        events
    """,
    "endpoint-controller": """
        read | core | services pods
        read create update delete | core | endpoints
        create | core | endpoints/restricted
        events
    """,
    "endpointslice-controller": """
        read | core | services pods nodes
        update | core | services/finalizers
        read create update delete | discovery.k8s.io | endpointslices
        create | discovery.k8s.io | endpointslices/restricted
        events
    """,
    "endpointslicemirroring-controller": """
        read | core | services endpoints
        update | core | services/finalizers
        update | core | endpoints/finalizers
        read create update delete | discovery.k8s.io | endpointslices
        create | discovery.k8s.io | endpointslices/restricted
        events
    """,
    "expand-controller": """
        read update patch | core | persistentvolumes
        update patch | core | persistentvolumeclaims/status
        read | core | persistentvolumeclaims
        events
        get | core | services
    """,
    "ephemeral-volume-controller": """
        read | core | pods
        update | core | pods/finalizers
        read create | core | persistentvolumeclaims
        events
    """,
    "resource-claim-controller": """
        read | core | pods
        update | core | pods/finalizers
        read create delete | resource.k8s.io | resourceclaims
        update patch | resource.k8s.io | resourceclaims resourceclaims/status
        update patch | core | pods/status
        events
    """,
    "device-taint-eviction-controller": """
        read delete | core | pods
        update patch | core | pods/status
        read | resource.k8s.io | resourceclaims
        read | resource.k8s.io | resourceslices
        read | resource.k8s.io | deviceclasses
        read | resource.k8s.io | devicetaintrules
        events
    """,
    "generic-garbage-collector": """
        read patch update delete | * | *
        events
    """,
    "horizontal-pod-autoscaler": """
        read | autoscaling | horizontalpodautoscalers
        update | autoscaling | horizontalpodautoscalers/status
        get update | * | */scale
        list watch | core | pods
        list watch | metrics.k8s.io | pods
        read | custom.metrics.k8s.io | *
        read | external.metrics.k8s.io | *
        events
    """,
    "job-controller": """
        read update patch | batch | jobs
        update | batch | jobs/status
        update | batch | jobs/finalizers
        list watch create delete patch | core | pods
        events
    """,
    "namespace-controller": """
        read delete | core | namespaces
        update | core | namespaces/finalize namespaces/status
        read delete deletecollection | * | *
    """,
    "node-controller": """
        read update delete patch | core | nodes
        patch update | core | nodes/status
        patch update | core | pods/status
        read delete | core | pods
        events
    """,
    "persistent-volume-binder": """
        read update create delete | core | persistentvolumes
        update | core | persistentvolumes/status
        read update | core | persistentvolumeclaims
        update | core | persistentvolumeclaims/status
        read create delete | core | pods
        read | storage.k8s.io | storageclasses
        list watch | core | nodes
        events
        watch | core | events
        get | core | services
    """,
    "pod-garbage-collector": """
        list watch delete | core | pods
        read | core | nodes
        patch | core | pods/status
    """,
    "replicaset-controller": """
        read update | apps extensions | replicasets
        update | apps extensions | replicasets/status
        update | apps extensions | replicasets/finalizers
        list watch patch create delete | core | pods
        events
    """,
    "replication-controller": """
        read update | core | replicationcontrollers
        update | core | replicationcontrollers/status
        update | core | replicationcontrollers/finalizers
        list watch patch create delete | core | pods
        events
    """,
    "resourcequota-controller": """
        list watch | * | *
        update | core | resourcequotas/status
        events
    """,
    "route-controller": """
        list watch | core | nodes
        patch | core | nodes/status
        events
    """,
    "service-account-controller": """
        create | core | serviceaccounts
        events
    """,
    "service-controller": """
        read | core | services
        patch update | core | services/status
        list watch | core | nodes
        events
    """,
    "service-cidrs-controller": """
        read patch update | networking.k8s.io | servicecidrs
        patch update | networking.k8s.io | servicecidrs/finalizers
        patch update | networking.k8s.io | servicecidrs/status
        read | networking.k8s.io | ipaddresses
        events
    """,
    "statefulset-controller": """
        list watch | core | pods
        read | apps | statefulsets
        update | apps | statefulsets/status
        update | apps | statefulsets/finalizers
        get create delete update patch | core | pods
        get create delete update patch list watch | apps | controllerrevisions
        read create | core | persistentvolumeclaims
        update delete | core | persistentvolumeclaims
        update | core | pods/finalizers
        events
    """,
    "ttl-controller": """
        update patch list watch | core | nodes
        events
    """,
    "certificate-controller": f"""
        read delete | certificates.k8s.io | certificatesigningrequests
        update | certificates.k8s.io | certificatesigningrequests/status certificatesigningrequests/approval
        approve | certificates.k8s.io | signers | {_APPROVE}
        sign | certificates.k8s.io | signers | {_SIGN}
        create | authorization.k8s.io | subjectaccessreviews
        events
    """,
    "pvc-protection-controller": """
        read update | core | persistentvolumeclaims
        read | core | pods
        events
    """,
    "pv-protection-controller": """
        read update | core | persistentvolumes
        events
    """,
    "volumeattributesclass-protection-controller": """
        read | core | persistentvolumeclaims
        read | core | persistentvolumes
        read update | storage.k8s.io | volumeattributesclasses
        events
    """,
    "ttl-after-finished-controller": """
        read delete | batch | jobs
        events
    """,
    "root-ca-cert-publisher": """
        create update | core | configmaps
        events
    """,
    "validatingadmissionpolicy-status-controller": """
        read | admissionregistration.k8s.io | validatingadmissionpolicies
        get patch update | admissionregistration.k8s.io | validatingadmissionpolicies/status
        events
    """,
    "legacy-service-account-token-cleaner": """
        get | core | configmaps | kube-apiserver-legacy-service-account-token-tracking
        patch delete | core | secrets
    """,
    "selinux-warning-controller": """
        events
        read | core | persistentvolumes
        read | core | persistentvolumeclaims
        read | core | pods
        read | storage.k8s.io | csidrivers
    """,
}


def controller_roles() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the name of each controller, which is that of its service account, with its rules."""
    for name, table in _ROLES.items():
        yield name, [_rule(line) for line in table.strip().splitlines()]


def _rule(line: str) -> dict[str, Any]:
    if line.strip() == "events":
        line = "create patch update | core events.k8s.io | events"
    columns = [part.split() for part in line.replace("read", "get list watch").split("|")]
    verbs, groups, resources, *names = columns
    rule: dict[str, Any] = {
        "verbs": sorted(verbs),
        "apiGroups": sorted("" if group == "core" else group for group in groups),
        "resources": sorted(resources),
    }
    if names:
        rule["resourceNames"] = sorted(names[0][0].split(","))
    return rule
