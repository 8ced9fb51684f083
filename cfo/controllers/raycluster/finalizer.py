"""The finalizer that keeps a RayCluster until its ClusterRoleBindings are deleted.

Both are the same as the Go operator's: the name, and the field manager of the finalizer.
"""

from __future__ import annotations

from typing import Final

__all__ = ["FINALIZER", "FINALIZER_MANAGER"]

FINALIZER: Final = "ray.openshift.ai/oauth-finalizer"
FINALIZER_MANAGER: Final = "codeflare-operator"
