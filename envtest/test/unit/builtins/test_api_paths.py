"""Hints about paths of built-in resources."""

from __future__ import annotations

import pytest

from envtest.builtins.api_paths import served_elsewhere

DEPLOYMENTS = "Deployment is served at /apis/apps/v1/namespaces/NAMESPACE/deployments"


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/api/v1/namespaces/a/deployments/web", DEPLOYMENTS),
        ("/apis/apps/v1beta1/deployments?limit=1", DEPLOYMENTS),
        ("/apis/apps/v1/namespaces/a/deployment", DEPLOYMENTS),
        ("/apis/apps/v1/namespaces/a/Deployment/web", DEPLOYMENTS),
        ("/apis/v1/namespaces/a/pods/web", "Pod is served at /api/v1/namespaces/NAMESPACE/pods"),
        ("/api/v1/ns", "Namespace is served at /api/v1/namespaces"),
        ("/apis/apps/v1/namespaces/a/deployments/web", ""),
        ("/api/v1/namespaces/a", ""),
        ("/api/v1/namespaces", ""),
        ("/apis/example.com/v1/toys", ""),
        ("/api/v1", ""),
        ("/apis/apps/v1", ""),
        ("/version", ""),
        ("", ""),
    ],
)
def test_path_of_a_resource_in_another_group_or_version(path: str, hint: str) -> None:
    assert served_elsewhere(path) == hint
