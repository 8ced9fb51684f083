"""The objects of an installation.

``config/`` (kustomize), the Helm chart, the OLM bundle and ``cfo manifests`` are generated from this package, and this
package derives its objects from the code: RBAC rules from the controllers, webhook configurations from the registered
webhooks, CRDs from ``cfo.api``. Names, labels and selectors match the Go operator's deployment, so that applying our
manifests replaces it.

* :mod:`.overlays`: the objects of each variant of the installation. :func:`render` returns them.
* :mod:`.workload`, :mod:`.rbac`, :mod:`.monitoring`, :mod:`.grafana`: the objects by topic.
* :mod:`.components`: optional components: cert-manager, NetworkPolicy, Prometheus.
* :mod:`.names`: names and labels that all of them share.
* :mod:`.stack`: the versions of the components that the operator works with.

:mod:`cfo.console` has the commands that print and remove them.
"""

from cfo.manifests.names import DEFAULT_NAMESPACE, default_image
from cfo.manifests.overlays import COMPONENTS, OVERLAYS, render

__all__ = ["COMPONENTS", "DEFAULT_NAMESPACE", "OVERLAYS", "default_image", "render"]
