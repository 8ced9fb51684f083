"""End-to-end tests, on a cluster with KubeRay and Kueue: ``make kind-e2e setup-e2e deploy-e2e test-e2e``."""
