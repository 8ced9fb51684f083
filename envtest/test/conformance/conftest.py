"""Fixtures: a cluster with all controllers and two nodes, and a client that behaves as the specs' clients."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from envtest import ControlPlane
from test.conformance.client import SpecClient
from test.conformance.cluster import run_cluster


@pytest.fixture
async def cluster() -> AsyncIterator[ControlPlane]:
    async with run_cluster() as plane:
        yield plane


@pytest.fixture
async def client(cluster: ControlPlane) -> AsyncIterator[SpecClient]:
    async with SpecClient(cluster) as requests:
        yield requests


@pytest.fixture
async def namespace(client: SpecClient) -> str:
    """Create a namespace as the specs do, and wait for its account and CA."""
    metadata = {
        "generateName": "spec-",
        "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
    }
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    name = str((await client.create("/api/v1/namespaces", body))["metadata"]["name"])
    await client.until(f"/api/v1/namespaces/{name}/serviceaccounts/default", 200)
    await client.until(f"/api/v1/namespaces/{name}/configmaps/kube-root-ca.crt", 200)
    return name
