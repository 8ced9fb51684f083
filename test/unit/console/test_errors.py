"""The messages of commands that fail because of the cluster."""

from __future__ import annotations

import pytest

from cfo.console.errors import cluster_failure
from cfo.runtime import APIError, Forbidden, NotFound, TransportError
from cfo.runtime.client import NoClusterConfigured, Unauthorized

REFUSED = TransportError("cannot connect", outcome_unknown=False, refused=True)
NO_PERMISSION = 'pods is forbidden: User "ann" cannot list resource "pods" in API group ""'
RUN = "Try: cfo run --embedded"


@pytest.mark.parametrize(
    ("error", "remedies"),
    [
        (Unauthorized(401), ["log in again"]),
        (REFUSED, ["kubectl config view --minify", RUN]),
        (NoClusterConfigured("no kubeconfig"), [RUN]),
        (TransportError("timeout", outcome_unknown=True), []),
        (APIError(500), []),
        (Forbidden(403, {"message": NO_PERMISSION}), ["ask an administrator of the cluster"]),
        (Forbidden(403, {"message": "admission webhook denied the request"}), []),
        (NotFound(404, verb="discover", resource="/api"), ["not a Kubernetes API server", RUN]),
        (NotFound(404, verb="get", resource="pods"), []),
    ],
)
@pytest.mark.parametrize("embedded", [False, True])
def test_failure_because_of_the_cluster_has_a_remedy(
    error: Exception, remedies: list[str], *, embedded: bool
) -> None:
    wrapping = RuntimeError("discovery failed")
    wrapping.__cause__ = error
    for raised in (error, wrapping):
        expected = [each for each in remedies if embedded or each != RUN]
        message = cluster_failure(raised, embedded=embedded).message
        assert message.count("; ") == len(expected)
        assert all(remedy in message for remedy in expected)
