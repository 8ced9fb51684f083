from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.api.raycluster.naming import names_of
from cfo.config import KubeRayConfiguration
from cfo.runtime.discovery import DiscoveryIncomplete
from cfo.runtime.field import FieldErrors
from cfo.runtime.webhook.admission import AdmissionRequest, Denied, Operation
from cfo.webhooks.raycluster.settings import Images
from cfo.webhooks.raycluster.webhook import RayClusterWebhook
from test.support.ray_clusters import Cluster, head_pod, names_in, ray_cluster, worker


class Around:
    """Where the operator runs, as a test wants it."""

    def __init__(self, *, openshift: bool = True, domain: str = "apps.test") -> None:
        self.openshift = openshift
        self.domain = domain
        self.unknown = False
        self.asked: list[str] = []

    async def is_openshift(self) -> bool:
        self.asked.append("platform")
        if self.unknown:
            raise DiscoveryIncomplete("the API server is down")
        return self.openshift

    async def ingress_domain(self) -> str:
        self.asked.append("domain")
        return self.domain

    def webhook(self, *, oauth: bool = True, mtls: bool = True) -> RayClusterWebhook:
        config = KubeRayConfiguration.model_validate({"rayDashboardOAuthEnabled": oauth, "mTLSEnabled": mtls})
        return RayClusterWebhook(
            config,
            version="v1",
            images=Images("proxy:1", "cert:1"),
            is_openshift=self.is_openshift,
            ingress_domain=self.ingress_domain,
        )


def request(old: Cluster | None = None) -> AdmissionRequest:
    operation = Operation.CREATE if old is None else Operation.UPDATE
    return AdmissionRequest(operation=operation, kind=RAY_CLUSTER, namespace="ns", old_object=old)


async def test_a_cluster_is_completed_and_then_valid() -> None:
    webhook, asked = Around().webhook(), request()
    made = await webhook.default(ray_cluster(worker()), asked)
    assert names_in(head_pod(made)["containers"]) == ["ray-head", "oauth-proxy"]
    assert asked.warnings == []
    await webhook.validate_create(made, asked)
    await webhook.validate_update(made, made, asked)


async def test_warnings_go_to_the_user() -> None:
    asked = request()
    await Around().webhook().default(ray_cluster(head={"serviceAccountName": "mine"}), asked)
    (warning,) = asked.warnings
    assert "serviceAccountName: mine: gave way" in warning


async def test_refusals_are_field_errors() -> None:
    webhook = Around().webhook()
    with pytest.raises(FieldErrors, match=r"^spec.headGroupSpec.template.spec.containers: Required value"):
        await webhook.validate_create(ray_cluster(head={"containers": []}), request())
    old = await webhook.default(ray_cluster(), request())
    new = copy.deepcopy(old)
    head_pod(new)["serviceAccountName"] = "other"
    with pytest.raises(FieldErrors, match="service account is immutable"):
        await webhook.validate_update(old, new, request(old))
    webhook.validate_delete(old, request(old))


async def test_on_vanilla_kubernetes_there_is_no_proxy() -> None:
    made = await Around(openshift=False).webhook().default(ray_cluster(), request())
    assert names_in(head_pod(made)["containers"]) == ["ray-head"]
    assert "serviceAccountName" not in head_pod(made)


async def test_only_what_is_needed_is_asked_for() -> None:
    around = Around()
    await around.webhook(oauth=False, mtls=False).default(ray_cluster(), request())
    assert around.asked == []
    await around.webhook(oauth=False).default(ray_cluster(), request())
    assert around.asked == ["domain"]


async def test_what_cannot_be_known_now_is_not_guessed() -> None:
    around = Around()
    around.unknown = True
    with pytest.raises(Denied, match="try again: the API server is down") as caught:
        await around.webhook().default(ray_cluster(), request())
    assert (caught.value.response.code, caught.value.response.reason) == (503, "ServiceUnavailable")


async def test_a_cluster_that_is_being_deleted_needs_nothing_known() -> None:
    around = Around()
    around.unknown = True
    old = ray_cluster()
    gone = {**old, "metadata": {**old["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert await around.webhook().default(gone, request(old)) == gone
    await around.webhook().validate_update(old, gone, request(old))
    assert around.asked == []


async def test_a_generated_name_is_made_before_names_derive_from_it() -> None:
    cluster = ray_cluster()
    cluster["metadata"] = {"generateName": "my-"}
    made = await Around().webhook().default(cluster, request())
    assert re.fullmatch(r"my-[bcdfghjklmnpqrstvwxz2456789]{5}", made["metadata"]["name"])
    assert head_pod(made)["serviceAccountName"] == names_of(made).proxy_service_account
    assert made["metadata"]["namespace"] == "ns"
    again = await Around().webhook().default(copy.deepcopy(made), request())
    assert again == made
    cluster["metadata"] = {"generateName": "n" * 80}
    long = await Around().webhook().default(cluster, request())
    assert len(long["metadata"]["name"]) == 63


@pytest.mark.parametrize("status", [{"head": {"serviceName": "evil"}}, {"head": {"serviceName": "$(reboot)"}}])
async def test_a_status_that_a_user_sends_is_not_kuberays(status: Any) -> None:
    made = await Around().webhook().default({**ray_cluster(), "status": status}, request())
    assert "DNS.6 = rc-head-svc.ns.svc" in head_pod(made)["initContainers"][0]["command"][2]
