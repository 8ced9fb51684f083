"""Programs ``etcd`` and ``kube-apiserver`` that take the flags of the real ones, for test frameworks that start these.

The program ``etcd`` is the whole control plane: it keeps the objects and serves the API. ``kube-apiserver`` passes its
flags to the ``etcd`` of ``--etcd-servers``, which then listens on its port until that program ends. So all API servers
of one ``etcd`` share its objects, and an API server can be restarted. :mod:`envtest.programs.folder` writes both.

``flags`` and ``kube_apiserver`` use only the standard library, so that this program starts in a few hundredths of a
second.
"""
