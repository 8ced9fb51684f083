"""The kinds of InferenceStacks, which two API groups serve, and the optional kinds that a stack consists of.

Operators up to version 1 used the group ``models.takeoff.co``, later ones ``doublewordai.co``. The types are the same.
Source: the CRDs of the charts ``catalog`` 1.0 and 2.13 of the original operator.
"""

from __future__ import annotations

import re
from typing import Final

from cfo.runtime import GVK, Object, labels_of

INFERENCE_STACKS: Final = (
    GVK("models.takeoff.co", "v1alpha1", "InferenceStack"),
    GVK("doublewordai.co", "v1alpha1", "InferenceStack"),
)
"""The kind of InferenceStacks in each API group."""

OPERATOR_VERSION_LABEL: Final = "operatorVersion"
"""The label with the major version of the operator that reconciles a stack: ``v1``. Without it, no operator does."""

SCALED_OBJECT: Final = GVK("keda.sh", "v1alpha1", "ScaledObject")
SERVICE_MONITOR: Final = GVK("monitoring.coreos.com", "v1", "ServiceMonitor")
HORIZONTAL_POD_AUTOSCALER: Final = GVK("autoscaling", "v2", "HorizontalPodAutoscaler")
PERSISTENT_VOLUME_CLAIM: Final = GVK("", "v1", "PersistentVolumeClaim")
POD_DISRUPTION_BUDGET: Final = GVK("policy", "v1", "PodDisruptionBudget")

_OPERATOR_VERSION = re.compile(r"v(0|[1-9][0-9]{0,5})")


def is_operator_version(text: str) -> bool:
    """Return whether ``text`` has the form of the label's values: ``v<major>``."""
    return _OPERATOR_VERSION.fullmatch(text) is not None


def operator_version_of(stack: Object) -> str:
    """Return the value of the label ``operatorVersion``; empty if the label is not set."""
    value = labels_of(stack).get(OPERATOR_VERSION_LABEL)
    return value if isinstance(value, str) else ""
