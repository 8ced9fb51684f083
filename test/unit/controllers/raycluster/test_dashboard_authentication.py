"""Who authenticates the users of a dashboard, and what exposes it."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.raycluster.cluster import requests_ray_token, requires_ray_token
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.names import VERSION_ANNOTATION, names_of
from cfo.controllers.raycluster.dashboard_access import (
    Authentication,
    authentication_of,
    dashboard_backend,
)

NONE = {"required": True, "openshift_oauth": False, "auth_proxy": False, "ray_token": False}
TOKEN = {"authOptions": {"mode": "token"}}


def cluster(*containers: str, auth_mode: str | None = None, **spec: Any) -> dict[str, Any]:
    ray: dict[str, Any] = {"name": "ray-head"}
    if auth_mode is not None:
        ray["env"] = [{"name": "RAY_AUTH_MODE", "value": auth_mode}]
    pod = {"containers": [ray, *({"name": name} for name in containers)]}
    metadata = {"name": "rc", "namespace": "ns", "annotations": {VERSION_ANNOTATION: "v1"}}
    return {"metadata": metadata, "spec": {"headGroupSpec": {"template": {"spec": pod}}, **spec}}


@pytest.mark.parametrize(
    ("available", "spec", "expected"),
    [
        ({"required": False}, {}, Authentication.DISABLED),
        (
            {"required": False, "ray_token": True, "auth_proxy": True},
            TOKEN,
            Authentication.DISABLED,
        ),
        ({}, {}, Authentication.UNAVAILABLE),
        ({}, TOKEN, Authentication.UNAVAILABLE),
        ({"openshift_oauth": True}, {}, Authentication.OAUTH_PROXY),
        ({"openshift_oauth": True}, TOKEN, Authentication.OAUTH_PROXY),
        ({"openshift_oauth": True, "auth_proxy": True}, {}, Authentication.AUTH_PROXY),
        ({"auth_proxy": True}, TOKEN, Authentication.AUTH_PROXY),
        ({"auth_proxy": True, "ray_token": True}, TOKEN, Authentication.RAY_TOKEN),
        ({"openshift_oauth": True, "ray_token": True}, TOKEN, Authentication.RAY_TOKEN),
        (
            {"auth_proxy": True, "ray_token": True},
            {"authOptions": {"mode": "disabled"}},
            Authentication.AUTH_PROXY,
        ),
        ({"ray_token": True}, {}, Authentication.UNAVAILABLE),
    ],
)
def test_authentication(
    available: dict[str, bool], spec: dict[str, Any], expected: Authentication
) -> None:
    assert authentication_of(RayClusterFacts(cluster(**spec)), **{**NONE, **available}) is expected


@pytest.mark.parametrize("value", ["disabled", "", "TOKEN", None])
def test_template_that_overrides_the_mode_requests_no_token(value: str | None) -> None:
    obj = cluster(**TOKEN)
    container = obj["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    for others in ([], [{"name": "RAY_AUTH_MODE", "value": "token"}]):
        container["env"] = [*others, {"name": "RAY_AUTH_MODE", "value": value}]
        assert not requests_ray_token(obj)
    assert requests_ray_token(cluster(auth_mode="token", **TOKEN))
    assert not requests_ray_token(cluster(auth_mode="token"))


def test_pod_requires_a_token_only_if_its_first_container_does() -> None:
    with_token = {"name": "ray", "env": [{"name": "RAY_AUTH_MODE", "value": "token"}]}
    assert requires_ray_token({"containers": [with_token, {"name": "sidecar"}]})
    assert not requires_ray_token({"containers": [{"name": "ray"}, with_token]})
    assert not requires_ray_token({})


def test_backend_is_the_proxy_only_if_it_was_injected() -> None:
    injected = cluster("oauth-proxy", "rbac-proxy")
    backend = dashboard_backend(RayClusterFacts(injected), Authentication.AUTH_PROXY)
    assert backend is not None
    assert (backend.service, backend.port, backend.tls) == (
        names_of(injected).proxy_service,
        443,
        True,
    )
    assert dashboard_backend(RayClusterFacts(cluster()), Authentication.AUTH_PROXY) is None
    assert dashboard_backend(RayClusterFacts(injected), Authentication.UNAVAILABLE) is None
    for authentication in (Authentication.RAY_TOKEN, Authentication.DISABLED):
        backend = dashboard_backend(RayClusterFacts(injected), authentication)
        assert backend is not None
        assert (backend.service, backend.port, backend.port_name, backend.tls) == (
            "rc-head-svc",
            8265,
            "dashboard",
            False,
        )
