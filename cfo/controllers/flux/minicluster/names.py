"""Names, labels and paths of the objects of a MiniCluster; those that users see are identical to the Go operator's."""

from __future__ import annotations

from typing import Final

__all__ = [
    "BROKER_PORT",
    "CERTIFICATE_KEY",
    "INDEX_LABEL",
    "JOB_LABELS_ANNOTATION",
    "JOB_NAME_LABEL",
    "MAXIMUM_SIZE_ANNOTATION",
    "SCRIPTS_PATH",
    "SPEC_HASH_ANNOTATION",
    "config_map_name",
    "lead_host",
    "secret_name",
    "service_pod_name",
]


INDEX_LABEL: Final = "job-index"
"""Label of each pod of the Job: its index; of the service pod: ``services``."""

JOB_NAME_LABEL: Final = "job-name"
"""Label with the Job's name, which the Job controller sets on the Job's pods; the headless Service selects by it."""

JOB_LABELS_ANNOTATION: Final = "flux-framework.org/job-labels"
"""Annotation of the Job: the keys of ``spec.jobLabels`` that it has, joined by commas; others are not removed."""

SPEC_HASH_ANNOTATION: Final = "flux-framework.org/spec-hash"
"""Annotation of the Job: the hash of the part of the MiniCluster's spec that a Job cannot change once it exists."""

MAXIMUM_SIZE_ANNOTATION: Final = "flux-framework.org/maximum-size"
"""Annotation of the Job: the number of hosts that its brokers know, which is the limit of scaling."""

SCRIPTS_PATH: Final = "/flux_operator/"
"""The directory in which all containers find the scripts and the certificate."""

CERTIFICATE_KEY: Final = "curve.cert"
"""The key of the certificate in the Secret, and its file name in :data:`SCRIPTS_PATH`."""

BROKER_PORT: Final = 8050
"""The port on which the brokers listen."""


def config_map_name(name: str) -> str:
    """Return the name of the ConfigMap with the scripts; the volume in the pods has the same name."""
    return f"{name}-entrypoint"


def secret_name(name: str) -> str:
    """Return the name of the Secret with the certificate."""
    return f"{name}-curve"


def service_pod_name(name: str) -> str:
    """Return the name of the pod that runs ``spec.services``."""
    return f"{name}-services"


def lead_host(name: str) -> str:
    """Return the host name of the lead broker's pod."""
    return f"{name}-0"
