"""Tests of authenticated dashboards: the operator's own proxies on any platform, and Ray's tokens."""

from __future__ import annotations

import json
from base64 import b64decode
from datetime import datetime, timedelta
from typing import Any

import pytest
from cryptography import x509

from cfo.api.raycluster.conditions import EXPOSED
from cfo.api.raycluster.names import FINALIZER, RAY_CLUSTER, ROUTE, names_of
from cfo.config.authentication import AuthenticationConfiguration
from cfo.controllers import raycluster
from cfo.runtime.objects.kinds import (
    CLUSTER_ROLE_BINDING,
    INGRESS,
    NETWORK_POLICY,
    POD,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
)
from cfo.runtime.objects.rbac import Rule
from cfo.runtime.objects.unstructured import (
    Object,
    annotations_of,
    find_condition,
    key_of,
    owner_reference,
)
from cfo.runtime.process.clock import SystemClock
from cfo.webhooks.raycluster.defaulting import default
from cfo.webhooks.raycluster.injection_plan import InjectionSettings
from test.support.gateways import GATEWAY_CRDS, GATEWAY_SETTINGS
from test.support.raycluster_environment import (
    AUTHENTICATION_CONFIG_CRD,
    OAUTH_SETTINGS,
    OPENSHIFT_CRDS,
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    Environment,
    eventually,
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
    wait_until_deleted,
)
from test.support.tenant_clients import service_account_token

NAMES = names_of(ray_cluster())
AUTHENTICATION = {
    "enabled": True,
    "oidc": {"issuerURL": "https://dex.test", "secretName": "ray-oidc"},
}
PROXY_SETTINGS = {**OAUTH_SETTINGS, "authentication": AUTHENTICATION}
TOKEN_SETTINGS = {**OAUTH_SETTINGS, "kubeRayFeatures": ["authOptions"]}
INGRESS_NAMESPACE = {
    "namespaceSelector": {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["ingress"]}
        ]
    }
}
TOKEN = {"authOptions": {"mode": "token"}}
MANAGER_RULES = (
    Rule("events.k8s.io", "events", ("create", "patch")),
    Rule("apiextensions.k8s.io", "customresourcedefinitions", ("list", "watch")),
)


def admitted(cluster: Object, *, mtls: bool = True) -> Object:
    """Return the cluster as the webhook stores it with :data:`PROXY_SETTINGS`."""
    authentication = AuthenticationConfiguration.from_document(AUTHENTICATION)
    settings = InjectionSettings(
        version="test", oauth=False, mtls=mtls, authentication=authentication
    )
    return default(cluster, None, settings).cluster


def head(name: str, cluster: Object, **variables: str) -> Object:
    """Return a head pod of ``cluster`` with these environment variables in the Ray container."""
    labels = {"ray.io/cluster": "rc", "ray.io/node-type": "head"}
    metadata = {
        "name": name,
        "namespace": "ns",
        "labels": labels,
        "ownerReferences": [owner_reference(cluster)],
    }
    env = [{"name": variable, "value": value} for variable, value in variables.items()]
    spec = {"containers": [{"name": "ray-head", "image": "ray", "env": env}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


class LaterClock(SystemClock):
    """The clock of the machine, when two thirds of the certificate's lifetime are over."""

    def now(self) -> datetime:
        return super().now() + timedelta(days=2500)


def data_of(secret: Object) -> dict[str, bytes]:
    """Return the decoded content of a Secret."""
    return {key: b64decode(value) for key, value in secret["data"].items()}


async def policy_ports(env: Environment) -> list[tuple[Any, list[int]]]:
    """Return the peers and ports of each ingress rule of the head's policy."""
    policy = await env.get(NETWORK_POLICY, NAMES.head_policy)
    return [
        (rule.get("from"), [port["port"] for port in rule.get("ports", ())])
        for rule in policy["spec"]["ingress"]
    ]


async def test_proxies_get_their_objects_and_the_ingress_targets_them() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(
            env, kuberay_config(**PROXY_SETTINGS, ingress={"namespaces": ["ingress"]})
        ):
            cluster = await env.create(admitted(ray_cluster()))
            await env.wait_for_event("OIDCSecretMissing", "ray-oidc")
            await env.wait_until_idle()
            service = await env.get(SERVICE, NAMES.proxy_service)
            assert not annotations_of(service)
            (port,) = service["spec"]["ports"]
            assert (port["port"], port["targetPort"]) == (443, 8443)
            assert not annotations_of(await env.get(SERVICE_ACCOUNT, NAMES.proxy_service_account))
            settings = data_of(await env.get(SECRET, NAMES.cookie_secret))
            assert len(b64decode(settings["cookie_secret"], altchars=b"-_")) == 32
            assert json.loads(settings["rbac-proxy.json"])["authorization"][
                "resourceAttributes"
            ] == {
                "apiGroup": "ray.io",
                "resource": "rayclusters",
                "namespace": "ns",
                "name": "rc",
            }
            tls = data_of(await env.get(SECRET, NAMES.proxy_tls_secret))
            ca, leaf = (x509.load_pem_x509_certificate(tls[key]) for key in ("ca.crt", "tls.crt"))
            leaf.verify_directly_issued_by(ca)
            names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            assert f"{NAMES.proxy_service}.ns.svc" in names.get_values_for_type(x509.DNSName)
            binding = await env.get(CLUSTER_ROLE_BINDING, NAMES.cluster_role_binding, "")
            assert binding["subjects"][0]["name"] == NAMES.proxy_service_account
            assert (await env.get(RAY_CLUSTER, "rc"))["metadata"]["finalizers"] == [FINALIZER]

            ingress = await env.get(INGRESS, NAMES.dashboard)
            (path,) = ingress["spec"]["rules"][0]["http"]["paths"]
            assert path["backend"]["service"] == {
                "name": NAMES.proxy_service,
                "port": {"name": "oauth-proxy"},
            }
            assert ingress["spec"]["tls"] == [{"hosts": ["ray-dashboard-rc-ns.apps.test"]}]
            assert (
                annotations_of(ingress)["nginx.ingress.kubernetes.io/backend-protocol"] == "HTTPS"
            )
            assert await env.find(INGRESS, NAMES.client) is not None

            rules = await policy_ports(env)
            assert (None, [8443, 10001]) in rules
            peers = [peer for peer, ports in rules if 8265 in ports]
            assert [list(one[0]) for one in peers] == [
                ["podSelector"],
                ["namespaceSelector", "podSelector"],
            ]
            assert (
                peers[0][0]["podSelector"]["matchExpressions"][0]["key"]
                == "batch.kubernetes.io/job-name"
            )
        async with run_controllers(
            env, kuberay_config(**PROXY_SETTINGS, ingress={"namespaces": ["ingress"]})
        ):
            await env.wait_until_idle()
            assert {verb for verb, _ in env.requests()} <= {"discover"}
            await env.delete(cluster)
            await wait_until_deleted(env, [(RAY_CLUSTER, "rc")])
            assert await env.find(CLUSTER_ROLE_BINDING, NAMES.cluster_role_binding, "") is None


async def test_base_role_and_role_of_the_feature_are_sufficient() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        token = await service_account_token(
            env, *raycluster.RULES, *raycluster.AUTHENTICATION_RULES, *MANAGER_RULES
        )
        settings = kuberay_config(**PROXY_SETTINGS, kubeRayFeatures=["authOptions"])
        async with run_controllers(env, settings, token=token):
            proxied = await env.create(admitted(ray_cluster()))
            await env.create(ray_cluster("other", **TOKEN))

            async def are_exposed() -> bool:
                return {NAMES.dashboard, "ray-dashboard-other"} <= await env.child_names(INGRESS)

            await eventually(are_exposed, "both Ingresses")
            await env.wait_until_idle()
            assert await env.find(CLUSTER_ROLE_BINDING, NAMES.cluster_role_binding, "") is not None
            await env.delete(proxied)
            await wait_until_deleted(env, [(RAY_CLUSTER, "rc")])
            assert [exchange for exchange in env.exchanges if exchange.code == "403"] == []


async def wait_for_missing_role(env: Environment, message: str) -> None:
    """Wait until the condition about the dashboard of the RayCluster names the missing role."""

    async def is_reported() -> bool:
        cluster = await env.get(RAY_CLUSTER, "rc")
        conditions = (cluster.get("status") or {}).get("conditions") or []
        exposed = find_condition(conditions, EXPOSED) or {}
        return exposed.get("reason") == "MissingRole" and message in exposed["message"]

    await eventually(is_reported, f"MissingRole: {message}")


async def test_missing_role_of_the_proxies_is_in_the_condition() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        token = await service_account_token(env, *raycluster.RULES, *MANAGER_RULES)
        settings = kuberay_config(**PROXY_SETTINGS)
        async with run_controllers(env, settings, token=token, wait=False):
            await env.create(admitted(ray_cluster()))
            await wait_for_missing_role(env, "not allowed to list Service, ServiceAccount")


async def test_missing_role_for_bindings_of_former_proxies_is_in_the_condition() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PROXY_SETTINGS)):
            await env.create(admitted(ray_cluster()))
            await env.wait_until_idle()
        assert await env.find(CLUSTER_ROLE_BINDING, NAMES.cluster_role_binding, "") is not None
        token = await service_account_token(env, *raycluster.RULES, *MANAGER_RULES)
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS), token=token, wait=False):
            await wait_for_missing_role(env, "not allowed to delete the ClusterRoleBinding")


async def test_client_without_certificates_is_not_exposed() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PROXY_SETTINGS, mTLSEnabled=False)):
            await env.create(admitted(ray_cluster(), mtls=False))
            await env.wait_for_event("RayClientNotExposed", "10001")
            await env.wait_until_idle()
            assert await env.child_names(INGRESS) == {NAMES.dashboard}


async def test_cluster_without_injected_proxies_is_not_exposed() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(
            env, kuberay_config(**PROXY_SETTINGS, ingress={"namespaces": ["ingress"]})
        ):
            await env.create(ray_cluster())
            await env.wait_for_event("AuthenticationProxyMissing", "Recreate")
            await env.wait_until_idle()
            open_to_ingress = [
                ports for peers, ports in await policy_ports(env) if peers == [INGRESS_NAMESPACE]
            ]
            assert open_to_ingress == [
                [10001]
            ]  # an Ingress of a user must not reach the dashboard either
            assert await env.child_names(INGRESS) == set()
            assert await env.child_names(SERVICE) == set()
            assert "finalizers" not in (await env.get(RAY_CLUSTER, "rc"))["metadata"]


@pytest.mark.parametrize(
    "later", [{"ingressDomain": ""}, {"gateway": GATEWAY_SETTINGS}], ids=["domain", "gateway"]
)
async def test_no_ingress_to_the_dashboard_itself_remains_when_users_have_to_log_in(
    later: Any,
) -> None:
    async with start_environment(*VANILLA_CRDS, *GATEWAY_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(admitted(ray_cluster()))
            await env.wait_until_idle()
            assert await env.find(INGRESS, NAMES.dashboard) is not None
        async with run_controllers(env, kuberay_config(**{**PROXY_SETTINGS, **later})):
            await env.wait_until_idle()  # no Gateway has accepted a route yet
            assert await env.find(INGRESS, NAMES.dashboard) is None
            assert await env.find(INGRESS, NAMES.client) is not None


async def test_unusable_cookie_and_changed_settings_are_replaced() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PROXY_SETTINGS)):
            await env.create(admitted(ray_cluster()))
            await env.wait_until_idle()
            secret = await env.get(SECRET, NAMES.cookie_secret)
            cookie = secret["data"]["cookie_secret"]
            await env.patch(secret, {"data": {"rbac-proxy.json": "e30K"}})

            async def is_restored() -> bool:
                found = data_of(await env.get(SECRET, NAMES.cookie_secret))
                return b"rayclusters" in found["rbac-proxy.json"]

            await eventually(is_restored, "the settings of kube-rbac-proxy")
            assert (await env.get(SECRET, NAMES.cookie_secret))["data"]["cookie_secret"] == cookie
            await env.patch(secret, {"data": {"cookie_secret": "c2hvcnQ="}})

            async def is_replaced() -> bool:
                return (
                    len(data_of(await env.get(SECRET, NAMES.cookie_secret))["cookie_secret"]) == 44
                )

            await eventually(is_replaced, "a cookie key that oauth2-proxy accepts")
        access = {"access": {"apiGroup": "", "resource": "pods"}}
        changed = {**PROXY_SETTINGS, "authentication": {**AUTHENTICATION, **access}}
        async with run_controllers(env, kuberay_config(**changed)):
            await env.wait_until_idle()
            found = data_of(await env.get(SECRET, NAMES.cookie_secret))
            attributes = json.loads(found["rbac-proxy.json"])["authorization"]["resourceAttributes"]
            assert attributes == {"resource": "pods", "namespace": "ns"}


async def test_serving_certificate_is_renewed_by_the_same_ca() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PROXY_SETTINGS)):
            await env.create(admitted(ray_cluster()))
            await env.wait_until_idle()
            first = data_of(await env.get(SECRET, NAMES.proxy_tls_secret))
        later = LaterClock()
        async with run_controllers(env, kuberay_config(**PROXY_SETTINGS), clock=later):
            await env.wait_until_idle()
            second = data_of(await env.get(SECRET, NAMES.proxy_tls_secret))
            assert second["ca.crt"] == first["ca.crt"]
            assert second["tls.crt"] != first["tls.crt"]
            leaf = x509.load_pem_x509_certificate(second["tls.crt"])
            leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(first["ca.crt"]))


async def test_openshift_issues_the_certificate_of_the_proxies() -> None:
    """A Route with the CA of another certificate needs a permission that the operator does not have."""
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PROXY_SETTINGS)):
            await env.create(admitted(ray_cluster()))

            async def has_route() -> bool:
                return await env.child_names(ROUTE) == {NAMES.dashboard, NAMES.client}

            await eventually(has_route, "the Routes")
            route = await env.get(ROUTE, NAMES.dashboard)
            assert route["spec"]["to"]["name"] == NAMES.proxy_service
            assert route["spec"]["tls"]["termination"] == "reencrypt"
            assert "destinationCACertificate" not in route["spec"]["tls"]
            service = await env.get(SERVICE, NAMES.proxy_service)
            annotation = "service.beta.openshift.io/serving-cert-secret-name"
            assert service["metadata"]["annotations"][annotation] == NAMES.proxy_tls_secret
            assert await env.find(SECRET, NAMES.proxy_tls_secret) is None
            assert await env.child_names(INGRESS) == set()


async def test_openshift_without_its_oauth_server_needs_our_proxies() -> None:
    async with start_environment(*OPENSHIFT_CRDS, AUTHENTICATION_CONFIG_CRD) as env:
        await env.create_namespace()
        login = {
            "apiVersion": "config.openshift.io/v1",
            "kind": "Authentication",
            "metadata": {"name": "cluster"},
        }
        settings = await env.create({**login, "spec": {"type": ""}})
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            await env.create(ray_cluster())
            await env.wait_until_idle()
            assert await env.child_names(ROUTE) == {NAMES.dashboard, NAMES.client}
            await env.patch(settings, {"spec": {"type": "OIDC"}})
            await env.wait_for_event(
                "OAuthUnavailable", "authentications.config.openshift.io/cluster"
            )

            async def is_hidden() -> bool:
                return not await env.child_names(ROUTE)

            await eventually(is_hidden, "no Route, because its proxy could not log users in")


@pytest.mark.parametrize("crds", [VANILLA_CRDS, OPENSHIFT_CRDS], ids=["kubernetes", "openshift"])
async def test_ray_token_exposes_the_dashboard_only_while_all_head_pods_require_it(
    crds: tuple[Object, ...],
) -> None:
    exposed = ROUTE if crds is OPENSHIFT_CRDS else INGRESS
    async with start_environment(*crds) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**TOKEN_SETTINGS)):
            cluster = await env.create(ray_cluster(**TOKEN))

            async def is_exposed() -> bool:
                found = await env.find(exposed, NAMES.dashboard)
                return found is not None

            async def is_hidden() -> bool:
                return not await is_exposed()

            await eventually(is_exposed, "the dashboard is exposed")
            await env.wait_for_event("OAuthByKubeRay", "authOptions")
            dashboard = await env.get(exposed, NAMES.dashboard)
            if exposed is ROUTE:
                assert dashboard["spec"]["to"]["name"] == "rc-head-svc"
                assert dashboard["spec"]["tls"]["termination"] == "edge"
            else:
                (path,) = dashboard["spec"]["rules"][0]["http"]["paths"]
                assert path["backend"]["service"] == {
                    "name": "rc-head-svc",
                    "port": {"name": "dashboard"},
                }
                assert dashboard["spec"]["tls"] == [{"hosts": ["ray-dashboard-rc-ns.apps.test"]}]
            await env.wait_until_idle()
            assert (None, [8443]) in await policy_ports(env)  # no head pod has been checked yet

            old = await env.create(head("old", cluster))
            await eventually(is_hidden, "the head pod does not require tokens")
            await env.wait_for_event("RayTokenNotRequired", "old")
            await env.create(head("forged", cluster, RAY_AUTH_MODE="token"))
            await env.wait_until_idle()
            assert await is_hidden()

            await env.client.delete(POD, key_of(old), grace_period_seconds=0)
            await eventually(is_exposed, "only a head pod that requires tokens is left")

            async def is_open() -> bool:
                return (None, [8443, 8265]) in await policy_ports(env)

            await eventually(is_open, "the policy opens the authenticated port")


async def test_ray_token_exposes_nothing_while_a_head_pod_is_too_large_to_be_checked() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**TOKEN_SETTINGS)):
            cluster = await env.create(ray_cluster(**TOKEN))

            async def is_exposed() -> bool:
                return await env.find(INGRESS, NAMES.dashboard) is not None

            async def is_hidden() -> bool:
                return not await is_exposed()

            await eventually(is_exposed, "the dashboard is exposed")
            large = head("large", cluster)
            (container,) = large["spec"]["containers"]
            container["env"] = [{"name": "LARGE", "value": "x" * 300_000}]
            await env.create(large)
            await eventually(is_hidden, "a head pod that is not cached may not require tokens")
            await env.wait_for_event("RayTokenUnverified", "too large")
            await env.wait_for_event("ObjectTooLarge", "at most 262144 are allowed")
            await env.client.delete(POD, key_of(large), grace_period_seconds=0)
            await eventually(is_exposed, "all head pods are known")


async def test_ray_token_that_the_template_disables_exposes_nothing() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**TOKEN_SETTINGS)):
            cluster = ray_cluster(**TOKEN)
            (container,) = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
            container["env"] = [{"name": "RAY_AUTH_MODE", "value": "disabled"}]
            await env.create(cluster)
            await env.wait_for_event("OAuthUnavailable", "kuberay.authentication")
            await env.wait_until_idle()
            assert await env.child_names(INGRESS) == set()
