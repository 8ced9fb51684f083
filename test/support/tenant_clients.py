"""Clients of tenants: users of one namespace with exactly the given permissions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.errors import Forbidden
from cfo.runtime.client.transport import Transport
from cfo.runtime.discovery import RESTMapper
from cfo.runtime.kinds import SECRET, SERVICE_ACCOUNT
from cfo.runtime.objects import NamespacedName
from cfo.runtime.reconcile import Rule, policy_rules
from test.support.raycluster_environment import Environment

RBAC = "rbac.authorization.k8s.io"


@asynccontextmanager
async def start_tenant_client(env: Environment, *rules: Rule, namespace: str = "ns") -> AsyncIterator[Client]:
    """Return a client of a new user ``tenant``, who has these permissions in ``namespace`` and no others."""
    account = NamespacedName(namespace, "tenant")
    metadata = {"name": account.name, "namespace": account.namespace}
    await env.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    await env.create(
        {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": policy_rules(list(rules))}
    )
    await env.create(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": account.name},
            "subjects": [{"kind": "ServiceAccount", **metadata}],
        }
    )
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "spec": {}}
    response = await env.client.create(request, subresource="token", key=account, gvk=SERVICE_ACCOUNT)
    config = ClientConfig.for_control_plane(env.plane, token=response["status"]["token"])
    async with Transport(config) as transport:
        client = Client(transport, RESTMapper(transport), field_manager="tenant")
        with pytest.raises(Forbidden):
            await client.list(SECRET, namespace=namespace)
        yield client
