"""The names that an installation uses; others (users, ODH, the operator's own configuration) know them, too."""

from __future__ import annotations

from typing import Final

from cfo.runtime.objects import Object
from cfo.version import __version__

__all__ = [
    "DEFAULT_NAMESPACE",
    "DEPLOYMENT",
    "IMAGE_REPOSITORY",
    "LABELS",
    "METRICS_SERVICE",
    "PREFIX",
    "SERVICE_ACCOUNT",
    "default_image",
    "named",
]

PREFIX: Final = "codeflare-operator"
DEFAULT_NAMESPACE: Final = "openshift-operators"
"""Where the Go operator lives by default."""

IMAGE_REPOSITORY: Final = "quay.io/project-codeflare/codeflare-operator"
DEPLOYMENT: Final = f"{PREFIX}-manager"
SERVICE_ACCOUNT: Final = f"{PREFIX}-controller-manager"
METRICS_SERVICE: Final = f"{PREFIX}-manager-metrics"

LABELS: Final = {"app.kubernetes.io/name": PREFIX, "app.kubernetes.io/part-of": "codeflare"}
"""On everything, and the selector of the Deployment, which cannot be changed once it is made."""


def default_image() -> str:
    """The image of this version."""
    return f"{IMAGE_REPOSITORY}:v{__version__}"


def named(api_version: str, kind: str, name: str, namespace: str = "", **rest: object) -> Object:
    """An object of ours: its labels, its namespace (empty: it has none), and ``rest`` beside its metadata."""
    metadata: dict[str, object] = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    metadata["labels"] = dict(LABELS)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}
