"""A Kubernetes control plane for development and tests: in pure Python, or the real one, behind one interface.

``ControlPlane.embedded()`` behaves like kube-apiserver 1.36; it runs in this process and is ready in a fraction of a
second. ``ControlPlane.real()`` starts the real etcd and kube-apiserver. The layers of the embedded control plane, each
of which imports only those before it: ``apimachinery`` (objects, errors), ``storage``, ``schema`` and ``registry``,
``builtins``, ``apply`` and ``auth``, ``endpoints`` (HTTP), ``admission`` and ``writes``, ``handlers``, ``controllers``
and ``server``, ``planes``.

The names below are imported on first use, because pytest imports this package in every project that has it installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envtest.apimachinery.user import User
    from envtest.planes.base import InstallError
    from envtest.planes.plane import ControlPlane, EmbeddedControlPlane, RealControlPlane
    from envtest.planes.snapshots import SnapshotError

__all__ = [
    "ControlPlane",
    "EmbeddedControlPlane",
    "InstallError",
    "RealControlPlane",
    "SnapshotError",
    "User",
]

_MODULES = {
    "InstallError": "planes.base",
    "SnapshotError": "planes.snapshots",
    "User": "apimachinery.user",
}
"""The modules of the names that are not in ``planes.plane``."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"envtest.{_MODULES.get(name, 'planes.plane')}"), name)
