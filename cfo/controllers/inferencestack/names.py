"""Names that the controllers of InferenceStacks use; :mod:`cfo.api.inferencestack.names` has those of the objects."""

from __future__ import annotations

from typing import Final

from cfo.api.inferencestack.kinds import OPERATOR_VERSION_LABEL
from cfo.api.inferencestack.names import MANAGED_BY

FIELD_MANAGER: Final = MANAGED_BY
"""The field manager of all writes. It is the same for all major versions, so that one can take over from another."""

CLAIMS_FIELD_MANAGER: Final = f"{MANAGED_BY}-claims"
"""The field manager of the condition ``Claimed``, which the operator of another version can write."""

PAUSE_ANNOTATION: Final = f"{MANAGED_BY}/pause-reconcile"
"""Annotation of a stack: with the value ``true``, only its status is written."""

HELM_RELEASE_NAME: Final = "meta.helm.sh/release-name"
"""Annotation of objects that Helm created: the name of the release, which is the name of the stack."""

HELM_FINALIZERS: Final = ("uninstall-helm-release", "helm.sdk.operatorframework.io/uninstall-release")
"""Finalizers of the original operator and of operator-sdk's; without that operator, they block the deletion."""


def version_selector(operator_version: str) -> str:
    """Return the label selector of the stacks that an operator of this major version reconciles."""
    return f"{OPERATOR_VERSION_LABEL}={operator_version}"
