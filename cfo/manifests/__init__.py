"""What an installation consists of, as plain objects; the one source of everything that deploys the operator.

``config/`` (kustomize), the Helm chart, the OLM bundle and ``cfo manifests`` are written from what stands here, and
this in turn from the code: rights from the rules beside the controllers, webhook configurations from the registered
webhooks, definitions from ``cfo.api``. Names, labels and selectors are those of the Go operator's deployment, so that
a cluster changes over by applying ours.
"""

from cfo.manifests.names import DEFAULT_NAMESPACE, default_image
from cfo.manifests.overlays import COMPONENTS, OVERLAYS, render

__all__ = ["COMPONENTS", "DEFAULT_NAMESPACE", "OVERLAYS", "default_image", "render"]
