"""Clients of tenants: users of one namespace with exactly the given permissions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cfo.runtime.client.client import Client
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.errors import Forbidden
from cfo.runtime.client.transport import Transport
from cfo.runtime.objects.kinds import SECRET, SERVICE_ACCOUNT
from cfo.runtime.objects.rbac import Rule, policy_rules
from cfo.runtime.objects.unstructured import NamespacedName
from test.support.operator_roles import RBAC
from test.support.planes import local_config
from test.support.raycluster_environment import Environment


@asynccontextmanager
async def start_tenant_client(
    env: Environment, *rules: Rule, namespace: str = "ns"
) -> AsyncIterator[Client]:
    """Return a client of a new user ``tenant``, who has these permissions in ``namespace`` and no others."""
    token = await service_account_token(env, *rules, namespace=namespace)
    config = local_config(env.plane, token=token)
    async with Transport(config) as transport:
        client = Client(transport, RESTMapper(transport), field_manager="tenant")
        with pytest.raises(Forbidden):
            await client.list(SECRET, namespace=namespace)
        yield client


async def service_account_token(
    env: Environment, *rules: Rule, namespace: str = "", name: str = "tenant"
) -> str:
    """Create a ServiceAccount with these permissions in ``namespace``, and return a token of it.

    With an empty ``namespace``, the account is in ``default`` and has the permissions in all namespaces.
    """
    account = NamespacedName(namespace or "default", name)
    prefix = "" if namespace else "Cluster"
    scope = {"name": name, **({"namespace": namespace} if namespace else {})}
    metadata = {"name": account.name, "namespace": account.namespace}
    token = await new_account_token(env.client, account)
    role = {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{prefix}Role",
        "metadata": scope,
        "rules": policy_rules(list(rules)),
    }
    await env.create(role)
    await env.create(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": f"{prefix}RoleBinding",
            "metadata": scope,
            "roleRef": {"apiGroup": RBAC, "kind": role["kind"], "name": name},
            "subjects": [{"kind": "ServiceAccount", **metadata}],
        }
    )
    return token


async def new_account_token(client: Client, account: NamespacedName) -> str:
    """Create a ServiceAccount without permissions, and return a token of it."""
    metadata = {"name": account.name, "namespace": account.namespace}
    await client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    return await account_token(client, account)


async def account_token(client: Client, account: NamespacedName) -> str:
    """Return a token of an existing ServiceAccount."""
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {},
        "spec": {},
    }
    response = await client.create_subresource(SERVICE_ACCOUNT, account, "token", request)
    return str(response["status"]["token"])
