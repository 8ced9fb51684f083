"""The names and labels of an installation.

Users, Open Data Hub and the operator's configuration depend on these names.
"""

from __future__ import annotations

from typing import Final

from cfo.runtime import NamespacedName, Object
from cfo.version import __version__

PREFIX: Final = "codeflare-operator"
DEFAULT_NAMESPACE: Final = "openshift-operators"
"""The Go operator's default namespace."""

IMAGE_REPOSITORY: Final = "quay.io/project-codeflare/codeflare-operator"
DEPLOYMENT: Final = f"{PREFIX}-manager"
SERVICE_ACCOUNT: Final = f"{PREFIX}-controller-manager"
MANAGER_ROLE: Final = f"{PREFIX}-manager-role"
"""The ClusterRole of the permissions that are always needed."""

MANAGER_BINDING: Final = NamespacedName("", f"{PREFIX}-manager-rolebinding")
"""Its ClusterRoleBinding."""

LABELS: Final = {"app.kubernetes.io/name": PREFIX, "app.kubernetes.io/part-of": "codeflare"}
"""The labels of all objects, and the selector of the Deployment, which is immutable."""


def default_image() -> str:
    """Return the image of this version."""
    return f"{IMAGE_REPOSITORY}:v{__version__}"


def named(api_version: str, kind: str, name: str, namespace: str = "", **rest: object) -> Object:
    """Return an object with our labels and with the fields ``rest``; an empty ``namespace`` is omitted."""
    metadata: dict[str, object] = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    metadata["labels"] = dict(LABELS)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}
