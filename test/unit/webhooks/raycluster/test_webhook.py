"""The RayCluster webhook: platform lookups, warnings, errors and generated names."""

from __future__ import annotations

import copy
import re
from typing import Any
from unittest.mock import AsyncMock

import pytest

from cfo.api.raycluster.names import RAY_CLUSTER, names_of
from cfo.config.kuberay import KubeRayConfiguration, ProfileTable
from cfo.runtime.client.discovery import DiscoveryIncomplete
from cfo.runtime.objects.field import FieldErrors
from cfo.runtime.webhook.admission import AdmissionRequest, Denied, Operation
from cfo.webhooks.raycluster.injection_plan import Images
from cfo.webhooks.raycluster.webhook import RayClusterWebhook
from test.support.ray_clusters import Cluster, head_pod, names_in, ray_cluster, worker

GATEWAY = {"name": "g", "namespace": "gateways", "dashboardListener": "https"}


class FakePlatform:
    """The platform on which the webhook runs, and a record of what the webhook looked up."""

    def __init__(self, *, openshift: bool = True, domain: str = "apps.test") -> None:
        self.openshift = openshift
        self.domain = domain
        self.is_unknown = False
        self.lookups: list[str] = []

    async def is_openshift(self) -> bool:
        self.lookups.append("platform")
        if self.is_unknown:
            raise DiscoveryIncomplete("the API server is down")
        return self.openshift

    async def ingress_domain(self) -> str:
        self.lookups.append("domain")
        return self.domain

    def webhook(
        self, *, oauth: bool = True, mtls: bool = True, config: KubeRayConfiguration | None = None
    ) -> RayClusterWebhook:
        config = config or KubeRayConfiguration.from_document(
            {"rayDashboardOAuthEnabled": oauth, "mTLSEnabled": mtls}
        )
        return RayClusterWebhook(
            settings_of=AsyncMock(return_value=ProfileTable(config).strictest()),
            version="v1",
            images=Images("proxy:1", "cert:1"),
            has_oauth_server=self.is_openshift,
            ingress_domain=self.ingress_domain,
        )


def request(old: Cluster | None = None) -> AdmissionRequest:
    operation = Operation.CREATE if old is None else Operation.UPDATE
    return AdmissionRequest(operation=operation, kind=RAY_CLUSTER, namespace="ns", old_object=old)


@pytest.mark.parametrize(
    ("openshift", "settings", "limit"),
    [
        (True, {}, 48),
        (False, {}, 0),
        (False, {"rayDashboardOAuthEnabled": False}, 48),
        (False, {"authentication": {"enabled": True}}, 48),
        (False, {"kubeRayFeatures": ["authOptions"]}, 48),
        (True, {"gateway": {**GATEWAY, "dashboardHost": "ray.test"}}, 0),
        (
            True,
            {"gateway": {**GATEWAY, "dashboardHost": "ray.test", "clientListener": "ray"}},
            52,
        ),
    ],
)
async def test_new_names_that_are_too_long_for_hosts_cause_a_warning(
    openshift: bool, settings: dict[str, Any], limit: int
) -> None:
    """Only if the operator exposes RayClusters; names cannot be changed later."""
    config = KubeRayConfiguration.from_document({"ingressDomain": "apps.test", **settings})
    webhook = FakePlatform(openshift=openshift).webhook(config=config)
    for length in (48, 49, 52, 53):
        cluster = ray_cluster()
        cluster["metadata"]["name"] = "a" * (length - len("ns"))
        new, update = request(), request(cluster)
        await webhook.default(cluster, new)
        await webhook.default(cluster, update)
        found = [warning for warning in new.warnings if "HostTooLong" in warning]
        assert len(found) == (0 < limit < length)
        assert not any("HostTooLong" in warning for warning in update.warnings)


async def test_defaulted_cluster_is_valid() -> None:
    webhook, admission_request = FakePlatform().webhook(), request()
    result = await webhook.default(ray_cluster(worker()), admission_request)
    assert names_in(head_pod(result)["containers"]) == ["ray-head", "oauth-proxy"]
    assert admission_request.warnings == []
    await webhook.validate_create(result, admission_request)
    await webhook.validate_update(result, result, admission_request)


async def test_warnings_are_returned_to_the_user() -> None:
    admission_request = request()
    await (
        FakePlatform()
        .webhook()
        .default(ray_cluster(head={"serviceAccountName": "mine"}), admission_request)
    )
    (warning,) = admission_request.warnings
    assert "serviceAccountName: mine: replaced" in warning


async def test_denials_are_field_errors() -> None:
    webhook = FakePlatform().webhook()
    with pytest.raises(
        FieldErrors, match=r"^spec.headGroupSpec.template.spec.containers: Required value"
    ):
        await webhook.validate_create(ray_cluster(head={"containers": []}), request())
    old = await webhook.default(ray_cluster(), request())
    new = copy.deepcopy(old)
    head_pod(new)["serviceAccountName"] = "other"
    with pytest.raises(FieldErrors, match="service account is immutable"):
        await webhook.validate_update(old, new, request(old))
    webhook.validate_delete(old, request(old))


async def test_oauth_proxy_is_not_injected_on_vanilla_kubernetes() -> None:
    result = await FakePlatform(openshift=False).webhook().default(ray_cluster(), request())
    assert names_in(head_pod(result)["containers"]) == ["ray-head"]
    assert "serviceAccountName" not in head_pod(result)


async def test_only_required_platform_properties_are_looked_up() -> None:
    platform = FakePlatform()
    await platform.webhook(oauth=False, mtls=False).default(ray_cluster(), request())
    assert platform.lookups == []
    await platform.webhook(oauth=False).default(ray_cluster(), request())
    assert platform.lookups == ["domain"]


async def test_unknown_platform_denies_with_service_unavailable() -> None:
    platform = FakePlatform()
    platform.is_unknown = True
    with pytest.raises(Denied, match="try again later: the API server is down") as raised:
        await platform.webhook().default(ray_cluster(), request())
    assert (raised.value.response.code, raised.value.response.reason) == (503, "ServiceUnavailable")


async def test_deleting_cluster_requires_no_platform_lookup() -> None:
    platform = FakePlatform()
    platform.is_unknown = True
    old = ray_cluster()
    deleting = {**old, "metadata": {**old["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert await platform.webhook().default(deleting, request(old)) == deleting
    await platform.webhook().validate_update(old, deleting, request(old))
    assert platform.lookups == []


async def test_new_cluster_with_deletion_timestamp_is_injected() -> None:
    cluster = ray_cluster()
    cluster["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    result = await FakePlatform().webhook().default(cluster, request())
    assert names_in(head_pod(result)["containers"]) == ["ray-head", "oauth-proxy"]
    await FakePlatform().webhook().validate_create(result, request())


async def test_name_is_generated_before_derived_names() -> None:
    cluster = ray_cluster()
    cluster["metadata"] = {"generateName": "my-"}
    result = await FakePlatform().webhook().default(cluster, request())
    assert re.fullmatch(r"my-[bcdfghjklmnpqrstvwxz2456789]{5}", result["metadata"]["name"])
    assert head_pod(result)["serviceAccountName"] == names_of(result).proxy_service_account
    assert result["metadata"]["namespace"] == "ns"
    repeated = await FakePlatform().webhook().default(copy.deepcopy(result), request())
    assert repeated == result
    cluster["metadata"] = {"generateName": "n" * 80}
    truncated = await FakePlatform().webhook().default(cluster, request())
    assert len(truncated["metadata"]["name"]) == 63


@pytest.mark.parametrize(
    "status", [{"head": {"serviceName": "evil"}}, {"head": {"serviceName": "$(reboot)"}}]
)
async def test_status_sent_by_user_is_ignored(status: Any) -> None:
    result = await FakePlatform().webhook().default({**ray_cluster(), "status": status}, request())
    assert "DNS.6 = rc-head-svc.ns.svc" in head_pod(result)["initContainers"][0]["command"][2]
