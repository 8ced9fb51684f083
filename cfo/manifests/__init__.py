"""The objects of an installation.

``config/`` (kustomize), the Helm chart, the OLM bundle and ``cfo manifests`` are generated from this package, and this
package derives its objects from the code: RBAC rules from the controllers, webhook configurations from the registered
webhooks, CRDs from ``cfo.api``. Names, labels and selectors match the Go operator's deployment, so that applying our
manifests replaces it.
"""
