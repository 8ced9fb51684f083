"""Authorization attributes of requests, computed from method, path and query only."""

from __future__ import annotations

import pytest

from envtest import User
from envtest.auth.attributes import attributes_of, forbidden_message


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", "/api/v1/pods", {}, ("list", "", "v1", "pods", "", "", "")),
        ("GET", "/api/v1/pods", {"watch": "true"}, ("watch", "", "v1", "pods", "", "", "")),
        ("GET", "/api/v1/pods", {"watch": "0"}, ("list", "", "v1", "pods", "", "", "")),
        ("GET", "/api/v1/watch/namespaces/a/pods", {}, ("watch", "", "v1", "pods", "", "a", "")),
        ("HEAD", "/api/v1/namespaces/a/pods/p", {}, ("get", "", "v1", "pods", "", "a", "p")),
        ("POST", "/api/v1/namespaces/a/pods", {}, ("create", "", "v1", "pods", "", "a", "")),
        (
            "PATCH",
            "/apis/apps/v1/namespaces/a/deployments/d/scale",
            {},
            ("patch", "apps", "v1", "deployments", "scale", "a", "d"),
        ),
        (
            "DELETE",
            "/apis/apps/v1/namespaces/a/deployments",
            {},
            ("deletecollection", "apps", "v1", "deployments", "", "a", ""),
        ),
        (
            "DELETE",
            "/apis/apps/v1/namespaces/a/deployments/d",
            {},
            ("delete", "apps", "v1", "deployments", "", "a", "d"),
        ),
        ("GET", "/api/v1/namespaces/a", {}, ("get", "", "v1", "namespaces", "", "a", "a")),
        (
            "PUT",
            "/api/v1/namespaces/a/finalize",
            {},
            ("update", "", "v1", "namespaces", "finalize", "a", "a"),
        ),
        ("POST", "/api/v1/namespaces", {}, ("create", "", "v1", "namespaces", "", "", "")),
        (
            "GET",
            "/api/v1/pods",
            {"fieldSelector": "metadata.name=x"},
            ("list", "", "v1", "pods", "", "", "x"),
        ),
        (
            "GET",
            "/api/v1/pods",
            {"fieldSelector": "a=b,metadata.name==x"},
            ("list", "", "v1", "pods", "", "", "x"),
        ),
        (
            "GET",
            "/api/v1/pods",
            {"fieldSelector": "metadata.name!=x"},
            ("list", "", "v1", "pods", "", "", ""),
        ),
        (
            "GET",
            "/api/v1/pods",
            {"fieldSelector": "metadata.name=a/b"},
            ("list", "", "v1", "pods", "", "", ""),
        ),
    ],
)
def test_resource_request_attributes(
    method: str, path: str, query: dict[str, str], expected: tuple[str, ...]
) -> None:
    found = attributes_of(method, path, query)
    assert found.is_resource_request
    parts = (
        found.verb,
        found.group,
        found.version,
        found.resource,
        found.subresource,
        found.namespace,
        found.name,
    )
    assert parts == expected


@pytest.mark.parametrize(
    "path",
    ["/", "/api", "/api/v1", "/apis/apps/v1", "/healthz", "/metrics", "/no/such/path", "/apis"],
)
def test_other_paths_are_not_resource_requests(path: str) -> None:
    found = attributes_of("GET", path, {})
    assert not found.is_resource_request
    assert (found.verb, found.path) == ("get", path)


def test_forbidden_message_names_user_resource_and_scope() -> None:
    alice = User("alice")
    scale = attributes_of("GET", "/apis/apps/v1/namespaces/a/deployments/d/scale", {}, alice)
    assert forbidden_message(scale) == (
        'User "alice" cannot get resource "deployments/scale" in API group "apps" in the namespace "a"'
    )
    nodes = attributes_of("GET", "/api/v1/nodes", {}, alice)
    assert forbidden_message(nodes, "because") == (
        'User "alice" cannot list resource "nodes" in API group "" at the cluster scope: because'
    )
    assert (
        forbidden_message(attributes_of("GET", "/metrics", {}, alice))
        == 'User "alice" cannot get path "/metrics"'
    )
