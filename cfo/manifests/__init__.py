"""The objects of an installation.

``config/`` (kustomize), the Helm chart, the OLM bundle and ``cfo manifests`` are generated from this package, and this
package derives its objects from the code: RBAC rules from the controllers, webhook configurations from the registered
webhooks, CRDs from ``cfo.api``. Names, labels and selectors match the Go operator's deployment, so that applying our
manifests replaces it.

* :mod:`.overlays`: the objects of each variant of the installation, and optional components.
* :mod:`.workload`, :mod:`.rbac`, :mod:`.monitoring`: the objects by topic.
* :mod:`.names`: names and labels that all of them share.
* :mod:`.stack`: the versions of the components that the operator works with.
"""
