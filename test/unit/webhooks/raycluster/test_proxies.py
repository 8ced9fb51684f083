"""The injection of oauth2-proxy and kube-rbac-proxy, with flags that the programs document."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from cfo.api.raycluster.names import VERSION_ANNOTATION, names_of
from cfo.config.authentication import AuthenticationConfiguration
from cfo.webhooks.raycluster.defaulting import default
from cfo.webhooks.raycluster.injection_plan import Images
from cfo.webhooks.raycluster.validation import create_errors, update_errors
from test.support.auth_proxies import KUBE_RBAC_PROXY_FLAGS, OAUTH2_PROXY_FLAGS, parse_flags
from test.support.ray_clusters import (
    NO_INJECTION,
    Cluster,
    find_by_name,
    head_pod,
    names_in,
    ray_cluster,
    worker,
)

OIDC: dict[str, Any] = {
    "issuerURL": "https://dex.test/dex",
    "secretName": "ray-oidc",
    "caSecretName": "dex-ca",
}


def settings_of(**authentication: Any) -> Any:
    config = AuthenticationConfiguration.from_document({"enabled": True, **authentication})
    images = Images(oauth2_proxy="oauth2:1", kube_rbac_proxy="rbac:1")
    return replace(NO_INJECTION, authentication=config, images=images)


def flags_of(pod: Cluster, name: str) -> dict[str, Any]:
    documented = OAUTH2_PROXY_FLAGS if name == "oauth-proxy" else KUBE_RBAC_PROXY_FLAGS
    return parse_flags(find_by_name(pod["containers"], name)["args"], documented)


def test_login_proxy_is_in_front_of_the_proxy_that_authorizes() -> None:
    cluster = default(ray_cluster(worker()), None, settings_of(oidc=OIDC)).cluster
    pod = head_pod(cluster)
    assert names_in(pod["containers"]) == ["ray-head", "oauth-proxy", "rbac-proxy"]
    assert names_in(pod["volumes"]) == ["proxy-tls-secret", "rbac-proxy-config", "oidc-ca"]
    assert pod["serviceAccountName"] == names_of(cluster).proxy_service_account
    front, rbac = flags_of(pod, "oauth-proxy"), flags_of(pod, "rbac-proxy")
    assert front["https-address"] == ":8443"
    assert front["upstream"] == [f"https://{rbac['secure-listen-address']}/"]
    assert rbac["secure-listen-address"].startswith("127.0.0.1:")
    assert rbac["upstream"] == "http://127.0.0.1:8265/"
    assert front["provider-ca-file"] == ["/etc/oidc-ca/ca.crt"]
    assert "oidc-issuer" not in rbac
    for name in ("oauth-proxy", "rbac-proxy"):
        container = find_by_name(pod["containers"], name)
        assert container["securityContext"]["runAsNonRoot"]
        assert not any("client-secret" in arg or "hidden" in arg for arg in container["args"])
    assert "ports" not in find_by_name(pod["containers"], "rbac-proxy")
    assert "oauth-proxy" not in names_in(
        cluster["spec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"]
    )


def test_proxies_target_the_port_of_the_dashboard() -> None:
    cluster = ray_cluster()
    cluster["spec"]["headGroupSpec"]["rayStartParams"] = {"dashboard-port": "9000"}
    rbac = flags_of(head_pod(default(cluster, None, settings_of()).cluster), "rbac-proxy")
    assert rbac["upstream"] == "http://127.0.0.1:9000/"
    openshift = head_pod(default(cluster, None, replace(NO_INJECTION, oauth=True)).cluster)
    assert (
        "--upstream=http://localhost:9000"
        in find_by_name(openshift["containers"], "oauth-proxy")["args"]
    )


def test_ray_container_mounts_no_secret_of_the_proxies() -> None:
    pod = head_pod(default(ray_cluster(), None, settings_of(oidc=OIDC)).cluster)
    assert "volumeMounts" not in find_by_name(pod["containers"], "ray-head")
    assert "env" not in find_by_name(pod["containers"], "ray-head")


def test_without_login_the_authorizing_proxy_is_public() -> None:
    pod = head_pod(
        default(ray_cluster(), None, settings_of(audiences=["ray", "kubernetes"])).cluster
    )
    assert names_in(pod["containers"]) == ["ray-head", "rbac-proxy"]
    rbac = flags_of(pod, "rbac-proxy")
    assert rbac["secure-listen-address"] == ":8443"
    assert rbac["auth-token-audiences"] == ["ray", "kubernetes"]
    (port,) = find_by_name(pod["containers"], "rbac-proxy")["ports"]
    assert (port["name"], port["containerPort"]) == ("oauth-proxy", 8443)


def test_proxy_verifies_tokens_itself_if_configured() -> None:
    pod = head_pod(default(ray_cluster(), None, settings_of(verifier="OIDC", oidc=OIDC)).cluster)
    rbac = flags_of(pod, "rbac-proxy")
    assert rbac["oidc-issuer"] == "https://dex.test/dex"
    assert rbac["oidc-clientID"] == "$(CLIENT_ID)"
    assert (rbac["oidc-username-prefix"], rbac["oidc-groups-prefix"]) == ("oidc:", "oidc:")
    assert rbac["oidc-ca-file"] == "/etc/oidc-ca/ca.crt"


def test_users_need_no_email_if_another_claim_has_their_name() -> None:
    pod = head_pod(
        default(ray_cluster(), None, settings_of(oidc={**OIDC, "usernameClaim": "sub"})).cluster
    )
    assert flags_of(pod, "oauth-proxy")["oidc-email-claim"] == "sub"
    pod = head_pod(default(ray_cluster(), None, settings_of(oidc=OIDC)).cluster)
    assert "oidc-email-claim" not in flags_of(pod, "oauth-proxy")


def test_injection_is_idempotent_valid_and_immutable() -> None:
    settings = settings_of(oidc=OIDC)
    stored = default(ray_cluster(worker(), version=None), None, settings).cluster
    assert create_errors(stored, settings) == []
    assert default(stored, stored, settings).cluster == stored
    for name in ("oauth-proxy", "rbac-proxy"):
        changed = default(ray_cluster(worker()), None, settings).cluster
        find_by_name(head_pod(changed)["containers"], name)["args"].append(
            "--upstream=http://evil/"
        )
        assert update_errors(stored, changed, settings)
        assert default(changed, stored, settings).cluster == stored
    removed = default(ray_cluster(worker()), None, settings).cluster
    del head_pod(removed)["containers"][1:]
    removed["metadata"]["annotations"][VERSION_ANNOTATION] = "v1"
    assert default(removed, stored, settings).cluster == stored


@pytest.mark.parametrize("name", ["oauth-proxy", "rbac-proxy"])
def test_container_with_a_proxy_name_does_not_run_ray(name: str) -> None:
    settings = settings_of(oidc=OIDC)
    containers = [{"name": name, "image": "evil"}, {"name": "ray-head", "image": "ray"}]
    pod = head_pod(default(ray_cluster(head={"containers": containers}), None, settings).cluster)
    assert pod["containers"][0]["name"] == "ray-head"
    assert find_by_name(pod["containers"], name)["image"] != "evil"


def test_container_with_the_name_of_a_proxy_that_is_not_injected_has_no_port_of_the_proxy() -> None:
    port = {"name": "oauth-proxy", "containerPort": 8265}
    imitation = {"name": "oauth-proxy", "image": "forwarder", "ports": [port]}
    cluster = ray_cluster(head={"containers": [{"name": "ray-head", "image": "ray"}, imitation]})
    settings = settings_of()
    (error,) = create_errors(default(cluster, None, settings).cluster, settings)
    assert "is reserved for the injected proxy" in str(error)


def test_ray_tokens_replace_the_proxies_only_if_ray_acts_on_them() -> None:
    token = {"authOptions": {"mode": "token"}}
    active = replace(settings_of(oidc=OIDC), kuberay_features=frozenset({"authOptions"}))
    assert names_in(
        head_pod(default(ray_cluster(**token), None, active).cluster)["containers"]
    ) == ["ray-head"]
    for settings, env in (
        (settings_of(oidc=OIDC), []),
        (active, [{"name": "RAY_AUTH_MODE", "value": "disabled"}]),
    ):
        containers = [{"name": "ray-head", "image": "ray", "env": env}]
        pod = head_pod(
            default(ray_cluster(head={"containers": containers}, **token), None, settings).cluster
        )
        assert "rbac-proxy" in names_in(pod["containers"])


@pytest.mark.parametrize(
    "later",
    [
        settings_of(oidc={**OIDC, "caSecretName": "other-ca"}),
        settings_of(),
        replace(NO_INJECTION, oauth=True),
    ],
    ids=["other CA", "no login", "OpenShift"],
)
@pytest.mark.parametrize(
    "first", [settings_of(oidc=OIDC), settings_of()], ids=["with login", "without login"]
)
def test_injected_proxies_stay_immutable_when_the_settings_change(first: Any, later: Any) -> None:
    stored = default(ray_cluster(), None, first).cluster
    assert default(stored, stored, later).cluster == stored
    for container in head_pod(stored)["containers"][1:]:
        changed = default(ray_cluster(), None, first).cluster
        find_by_name(head_pod(changed)["containers"], container["name"]).update(
            image="evil", args=[]
        )
        assert default(changed, stored, later).cluster == stored
        assert update_errors(stored, changed, later)


def test_proxy_is_not_imitated_in_a_cluster_that_was_created_without_it() -> None:
    settings = settings_of()
    old = default(ray_cluster(), None, NO_INJECTION).cluster
    new = default(ray_cluster(), None, NO_INJECTION).cluster
    head_pod(new)["containers"].append({"name": "rbac-proxy", "image": "evil"})
    (error,) = update_errors(old, default(new, old, settings).cluster, settings)
    assert "created without the operator's parts of the OAuth proxy" in str(error)
