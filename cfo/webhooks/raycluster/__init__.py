"""Admission of RayClusters: what the operator injects into them, and what it refuses.

Into a new cluster go its version mark, on OpenShift an OAuth proxy before the dashboard (:mod:`.oauth`), and mutual TLS
between all nodes (:mod:`.mtls`, :mod:`.certificate`). From then on these are nobody's to change: :mod:`.plan` decides
what that means for each group, :mod:`.parts` does it, :mod:`.defaulting` tells the user what came of it, and
:mod:`.validation` checks it. All of that is pure; :mod:`.webhook` answers API servers with it.
"""

from cfo.webhooks.raycluster.webhook import RayClusterWebhook, register

__all__ = ["RayClusterWebhook", "register"]
