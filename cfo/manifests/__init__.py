"""The objects of an installation, and the commands that print and remove them.

``config/`` (kustomize), the Helm chart, the OLM bundle and ``cfo manifests`` are generated from this package, and this
package derives its objects from the code: RBAC rules from the controllers, webhook configurations from the registered
webhooks, CRDs from ``cfo.api``. Names, labels and selectors match the Go operator's deployment, so that applying our
manifests replaces it.

* :mod:`.overlays`: the objects of each variant of the installation. :func:`render` returns them.
* :mod:`.workload`, :mod:`.rbac`, :mod:`.monitoring`, :mod:`.dashboard`: the objects by topic.
* :mod:`.components`: optional components: cert-manager, NetworkPolicy, Prometheus.
* :mod:`.names`: names and labels that all of them share.
* :mod:`.stack`: the versions of the components that the operator works with.
* :mod:`.uninstall`: remove an installation.
* :mod:`.manifests_command`, :mod:`.uninstall_command`: ``cfo manifests`` and ``cfo uninstall``.
"""

from cfo.manifests.names import DEFAULT_NAMESPACE, default_image
from cfo.manifests.overlays import COMPONENTS, OVERLAYS, render

__all__ = ["COMPONENTS", "DEFAULT_NAMESPACE", "OVERLAYS", "default_image", "render"]
