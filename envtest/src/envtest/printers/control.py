"""Tables of roles, leases, webhooks, admission policies, priority classes, API services and signing requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from envtest.apimachinery.objects import Object
from envtest.printers.columns import (
    AGE,
    NAME,
    NONE,
    Column,
    Printer,
    object_age,
    object_name,
    since,
)

__all__ = ["CONTROL"]

_UNSET: Final = "<unset>"


def _subjects(subjects: Iterable[Mapping[str, Any]] | None) -> list[str]:
    """Return the cells of users, groups and service accounts."""
    by_kind: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in subjects or ():
        kind = subject.get("kind", "")
        name = subject.get("name", "")
        if kind in by_kind:
            if kind == "ServiceAccount":
                name = f"{subject.get('namespace', '')}/{name}"
            by_kind[kind].append(name)
    return [", ".join(names) for names in by_kind.values()]


def _binding(obj: Object, now: datetime) -> list[Any]:
    role = obj.get("roleRef") or {}
    return [
        object_name(obj),
        f"{role.get('kind', '')}/{role.get('name', '')}",
        object_age(obj, now),
        *_subjects(obj.get("subjects")),
    ]


def _lease(obj: Object, now: datetime) -> list[Any]:
    return [
        object_name(obj),
        (obj.get("spec") or {}).get("holderIdentity") or "",
        object_age(obj, now),
    ]


def _webhooks(obj: Object, now: datetime) -> list[Any]:
    return [object_name(obj), len(obj.get("webhooks") or ()), object_age(obj, now)]


def _policy(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    kind = spec.get("paramKind")
    rules = spec.get("validations") or spec.get("mutations") or ()
    return [
        object_name(obj),
        len(rules),
        f"{kind['apiVersion']}/{kind['kind']}" if kind else _UNSET,
        object_age(obj, now),
    ]


def _policy_binding(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    text = _UNSET
    reference = spec.get("paramRef")
    if reference:
        if reference.get("name"):
            text = f"{reference.get('namespace') or '*'}/{reference['name']}"
        elif reference.get("selector") is not None:
            text = _go_selector(reference["selector"])
    return [object_name(obj), spec.get("policyName", ""), text, object_age(obj, now)]


def _go_selector(selector: Mapping[str, Any]) -> str:
    """Format a LabelSelector as its method ``String`` in Go does."""
    labels = "".join(
        f"{name}: {value}," for name, value in sorted((selector.get("matchLabels") or {}).items())
    )
    requirements = "".join(
        f"LabelSelectorRequirement{{Key:{each.get('key', '')},Operator:{each.get('operator', '')},"
        f"Values:[{' '.join(each.get('values') or ())}],}},"
        for each in selector.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{requirements}}},}}"
    )


def _priority_class(obj: Object, now: datetime) -> list[Any]:
    return [
        object_name(obj),
        obj.get("value") or 0,
        bool(obj.get("globalDefault")),
        object_age(obj, now),
        obj.get("preemptionPolicy") or "",
    ]


def _runtime_class(obj: Object, now: datetime) -> list[Any]:
    return [object_name(obj), obj.get("handler", ""), object_age(obj, now)]


def _api_service(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    service = spec.get("service")
    available = "Unknown"
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Available":
            available = condition.get("status", "")
            if available != "True":
                available += f" ({condition.get('reason', '')})"
    target = f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"
    return [object_name(obj), target, available, object_age(obj, now)]


def _signing_request(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    status = obj.get("status") or {}
    kinds = [condition.get("type", "") for condition in status.get("conditions") or ()]
    state = "Pending"
    if "Denied" in kinds:
        state = "Denied"
    elif "Approved" in kinds:
        state = "Approved"
    if "Failed" in kinds:
        state += ",Failed"
    if status.get("certificate"):
        state += ",Issued"
    seconds = spec.get("expirationSeconds")
    duration = (
        NONE
        if seconds is None
        else since(datetime.fromtimestamp(now.timestamp() - seconds, now.tzinfo), now)
    )
    return [
        object_name(obj),
        object_age(obj, now),
        spec.get("signerName") or NONE,
        spec.get("username", ""),
        duration,
        state,
    ]


_BINDING_COLUMNS: Final = (
    NAME,
    Column(
        "Role",
        "The role whose rules are granted to the subjects; this field of a binding is immutable.",
    ),
    AGE,
)


def _binding_columns(kind: str) -> tuple[Column, ...]:
    named = (
        Column(column, f"{column} in the {kind}", priority=1)
        for column in ("Users", "Groups", "ServiceAccounts")
    )
    return (*_BINDING_COLUMNS, *named)


_WEBHOOK_COLUMNS: Final = (
    NAME,
    Column(
        "Webhooks",
        "The number of webhooks in this configuration; each has its own rules and selectors.",
        "integer",
    ),
    AGE,
)
_PARAM_KIND: Final = Column(
    "ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy"
)
_POLICY_BINDING_COLUMNS: Final = (
    NAME,
    Column(
        "PolicyName",
        "The name of the policy to which this binding applies; without such a policy it has no effect.",
    ),
    Column(
        "ParamRef",
        "The parameter resources of the policy, if the policy has parameters (paramKind).",
    ),
    AGE,
)

CONTROL: Final[dict[tuple[str, str], Printer]] = {
    ("rbac.authorization.k8s.io", "RoleBinding"): (_binding_columns("roleBinding"), _binding),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): (
        _binding_columns("clusterRoleBinding"),
        _binding,
    ),
    ("coordination.k8s.io", "Lease"): (
        (
            NAME,
            Column(
                "Holder",
                "The identity of the current holder of the lease, in a format that its holders choose.",
            ),
            AGE,
        ),
        _lease,
    ),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): (_WEBHOOK_COLUMNS, _webhooks),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): (
        _WEBHOOK_COLUMNS,
        _webhooks,
    ),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): (
        (
            NAME,
            Column(
                "Validations",
                "Validations indicates the number of validation rules defined in this configuration",
                "integer",
            ),
            _PARAM_KIND,
            AGE,
        ),
        _policy,
    ),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"): (
        (
            NAME,
            Column(
                "Mutations",
                "Mutation indicates the number of mutations rules defined in this configuration",
                "integer",
            ),
            _PARAM_KIND,
            AGE,
        ),
        _policy,
    ),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"): (
        _POLICY_BINDING_COLUMNS,
        _policy_binding,
    ),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"): (
        _POLICY_BINDING_COLUMNS,
        _policy_binding,
    ),
    ("scheduling.k8s.io", "PriorityClass"): (
        (
            NAME,
            Column(
                "Value",
                "The priority of the pods of this class; pending pods of a higher priority are scheduled first.",
                "integer",
            ),
            Column(
                "Global-Default",
                "Whether this class applies to pods without a priority class; at most one class is the default.",
                "boolean",
            ),
            AGE,
            Column(
                "PreemptionPolicy",
                "Whether pods of this class may preempt pods of a lower priority: Never or PreemptLowerPriority.",
            ),
        ),
        _priority_class,
    ),
    ("node.k8s.io", "RuntimeClass"): ((NAME, Column("Handler", ""), AGE), _runtime_class),
    ("apiregistration.k8s.io", "APIService"): (
        (
            NAME,
            Column("Service", "The reference to the service that hosts this API endpoint."),
            Column("Available", "Whether this service is available."),
            AGE,
        ),
        _api_service,
    ),
    ("certificates.k8s.io", "CertificateSigningRequest"): (
        (
            NAME,
            AGE,
            Column(
                "SignerName",
                "The requested signer; the names of Kubernetes' own signers start with kubernetes.io/.",
            ),
            Column(
                "Requestor",
                "The user who created the request; it is set by the API server and immutable.",
            ),
            Column(
                "RequestedDuration",
                "The requested validity period of the certificate; the signer may choose a different one.",
            ),
            Column(
                "Condition",
                "Whether the request was approved or denied, and whether a certificate was issued.",
            ),
        ),
        _signing_request,
    ),
}
