"""Tests that the tenants of these tests have the permissions of the aggregated role ``edit``, and no others."""

from __future__ import annotations

import pytest

from cfo.runtime.client.errors import Forbidden
from cfo.runtime.objects.kinds import SECRET
from test.support.raycluster_environment import ray_cluster
from test.support.tenants import ATTACKER, OPTIONAL_CRDS, VICTIM, start_tenant_plane


async def test_tenants_have_exactly_the_permissions_of_the_aggregated_role_edit() -> None:
    async with start_tenant_plane(*OPTIONAL_CRDS) as tenants:
        for client, own, other in (
            (tenants.attacker, ATTACKER, VICTIM),
            (tenants.victim, VICTIM, ATTACKER),
        ):
            await client.create(ray_cluster("rc", own))
            assert await client.list(SECRET, namespace=own) is not None
            with pytest.raises(Forbidden):
                await client.create(ray_cluster("rc", other))
            with pytest.raises(Forbidden):
                await client.list(SECRET, namespace=other)
        for group, resource in (
            ("doublewordai.co", "inferencestacks"),
            ("workload.codeflare.dev", "appwrappers"),
            ("flux-framework.org", "miniclusters"),
            ("networking.k8s.io", "ingresses"),
            ("autoscaling", "horizontalpodautoscalers"),
            ("policy", "poddisruptionbudgets"),
            ("batch", "jobs"),
        ):
            assert await tenants.is_allowed(ATTACKER, "create", group, resource), resource
        for group, resource in (
            ("gateway.networking.k8s.io", "httproutes"),
            ("keda.sh", "scaledobjects"),
            ("monitoring.coreos.com", "servicemonitors"),
            ("flux-framework.org", "fluxsetups"),
            ("", "resourcequotas"),
            ("rbac.authorization.k8s.io", "rolebindings"),
        ):
            assert not await tenants.is_allowed(ATTACKER, "create", group, resource), resource
