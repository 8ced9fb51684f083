"""A control plane for development and tests: embedded and pure Python, or the real one, behind one interface.

``ControlPlane.embedded()`` answers as kube-apiserver 1.36 does, in this process, ready in a fraction of a second;
``ControlPlane.real()`` starts the real etcd and kube-apiserver. The layers of the embedded one, each knowing only
those before it: ``storage`` (revisions, history, watches), ``schema`` and ``builtins`` (what objects look
like), ``apply`` (patches, ownership), ``auth`` and ``admission`` (who may, what is allowed), the pipeline
(``write``, ``deletion``), ``handlers`` (HTTP), ``server``.
"""

from envtest.plane import ControlPlane

__all__ = ["ControlPlane"]
