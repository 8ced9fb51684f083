"""ValidatingAdmissionPolicies that let only the Job controller tie pods to Jobs in the namespaces of tenants.

The operator, Kueue and users trust the pods of a Job: they prove that it runs, and their ends are its result. With the
role ``edit``, a tenant can create a pod with a controller reference to any Job in its namespace. Without the reference,
the label with the uid of the Job is enough, because the Job controller adopts such a pod. So a tiny pod could keep the
quota of a Job that runs nothing.

A pod is therefore created with a tie to a Job, and its ties are changed, only by a user who may update the status of
Jobs in the namespace. The Job controller is allowed to, and so is the garbage collector, which orphans the pods of
deleted Jobs. The role ``edit`` is not, nor are controllers that create pods from the templates of tenants, such as this
operator. Updates that keep the ties, as those of schedulers and Kueue do, and subresources are not affected.

A Job with its own selector (``manualSelector``) adopts any pods with the labels, or creates pods with the labels of
another Job, which adopts these when the first one is deleted. Only the same users may create one.
"""

from __future__ import annotations

from typing import Final

from cfo.api.job_pods import JOB_UID_LABELS
from cfo.manifests.admission_policy import POLICY_API, match_constraints, writes_of
from cfo.manifests.names import PREFIX, named
from cfo.runtime import Object

TENANT_LABEL: Final = "codeflare.dev/tenant"
"""The label of a Namespace in which the policy holds; its value is ``true``."""

NAME: Final = f"{PREFIX}-tenant-job-pods"

SELECTORS_NAME: Final = f"{PREFIX}-tenant-job-selectors"

_MAY_UPDATE_STATUS: Final = (
    "authorizer.group('batch').resource('jobs').subresource('status')"
    ".namespace(request.namespace).check('update').allowed()"
)


def _ties(pod: str) -> str:
    """Return the CEL expression for the ties of ``pod``, a CEL expression, to Jobs: a list of strings."""
    names = ", ".join(f"'{label}'" for label in JOB_UID_LABELS)
    labels = (
        f"(has({pod}.metadata.labels) ? [{names}].filter(name, name in {pod}.metadata.labels)"
        f".map(name, name + '=' + {pod}.metadata.labels[name]) : [])"
    )
    owners = (
        f"(has({pod}.metadata.ownerReferences) ? {pod}.metadata.ownerReferences.filter(owner,"
        " has(owner.controller) && owner.controller && owner.kind == 'Job'"
        " && owner.apiVersion.startsWith('batch/')).map(owner, string(owner.uid)) : [])"
    )
    return f"{labels} + {owners}"


def policies() -> list[Object]:
    """Return the policies, each with its binding to all namespaces with the label."""
    labels = " and ".join(JOB_UID_LABELS)
    ties = {
        "matchConstraints": match_constraints([writes_of("", "pods")]),
        "variables": [
            {"name": "ties", "expression": _ties("object")},
            {"name": "oldTies", "expression": f"oldObject == null ? [] : {_ties('oldObject')}"},
        ],
        "validations": [
            {
                "expression": f"variables.ties == variables.oldTies || {_MAY_UPDATE_STATUS}",
                "message": f"the labels {labels}, and controller references to Jobs, are written only by the Job "
                "controller",
                "reason": "Forbidden",
            },
        ],
    }
    selectors = {
        "matchConstraints": match_constraints([writes_of("batch", "jobs")]),
        "validations": [
            {
                # A selector cannot change later.
                "expression": "oldObject != null || !has(object.spec.manualSelector)"
                f" || !object.spec.manualSelector || {_MAY_UPDATE_STATUS}",
                "message": "spec.manualSelector must not be true: the Job would adopt pods that it has not created",
                "reason": "Forbidden",
            },
        ],
    }
    return [*_with_binding(NAME, ties), *_with_binding(SELECTORS_NAME, selectors)]


def _with_binding(name: str, spec: Object) -> list[Object]:
    binding = {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {"matchLabels": {TENANT_LABEL: "true"}},
            "objectSelector": {},
        },
    }
    spec = {"failurePolicy": "Fail", **spec}
    return [
        named(POLICY_API, "ValidatingAdmissionPolicy", name, spec=spec),
        named(POLICY_API, "ValidatingAdmissionPolicyBinding", name, spec=binding),
    ]
