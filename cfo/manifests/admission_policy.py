"""What the ValidatingAdmissionPolicies of the manifests have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

POLICY_API: Final = "admissionregistration.k8s.io/v1"


def writes_of(group: str, *plurals: str) -> dict[str, Any]:
    """Return the rule that matches the creation and update of resources of ``group``, in any version."""
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": list(plurals),
        "scope": "*",
    }


def match_constraints(rules: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the constraints of a policy for ``rules``.

    They are one value for server-side apply, so they have all defaulted fields.
    """
    return {
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "resourceRules": list(rules),
    }
