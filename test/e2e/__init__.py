"""End-to-end tests on a cluster with KubeRay and Kueue; ``docs/e2e.md`` describes how to run them."""
