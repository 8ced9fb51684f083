"""Admission of RayClusters: inject the OAuth proxy and mutual TLS into their pod templates, and validate them.

When a RayCluster is created, it gets an annotation with the operator's version, on OpenShift an OAuth proxy in front of
the dashboard, and mutual TLS between all Ray nodes. After that, users cannot change these parts.

* :mod:`.webhook`: the defaulter and validator that API servers call, and ``setup()``. All other modules are pure
  functions.
* :mod:`.defaulting`: apply the injection plan to a RayCluster, and warn the user about replaced and reverted fields.
* :mod:`.validation`: reject RayClusters that are invalid or differ from the injection plan.
* :mod:`.injection_plan`: the settings of the injection, and the decision for each group which entries to inject, keep
  or remove.
* :mod:`.proxies`, :mod:`.mtls`: the containers, volumes and settings to inject.
* :mod:`.pod_additions`: add them to a pod template, find, restore and remove them.
* :mod:`.json_types`: check that a RayCluster has the JSON types that these modules rely on, and not too many entries.
"""

from cfo.webhooks.raycluster.webhook import RayClusterWebhook, setup

__all__ = ["RayClusterWebhook", "setup"]
