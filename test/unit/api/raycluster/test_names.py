"""Tests of the names and hosts that derive from a RayCluster."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cfo.api.raycluster.names import (
    VERSION_ANNOTATION,
    ClusterNames,
    Derived,
    client_host,
    dashboard_host,
    fit,
    head_service_name,
    invalid_head_service_name,
    label_value,
    names_of,
    service_name,
)

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def cluster(
    name: str = "raycluster-kuberay",
    namespace: str = "ns",
    *,
    version: str | None = "UNKNOWN",
    **spec,
):
    """Return a RayCluster; ``spec`` is that of the head group."""
    metadata = {"name": name, "namespace": namespace}
    if version is not None:
        metadata["annotations"] = {VERSION_ANNOTATION: version}
    return {"metadata": metadata, "spec": {"headGroupSpec": spec}}


def test_names_of_cluster_with_version_end_in_hash() -> None:
    names = names_of(cluster(namespace="os-oauth-mtls-kuberay-sample"))
    assert names.ca_secret == "raycluster-kuberay-ca-secret-95fc2542"
    assert names.cookie_secret == "raycluster-kuberay-oauth-config-b81414d0"
    assert names.proxy_service == "raycluster-kuberay-oauth-feacfb96"
    assert names.proxy_service_account == "raycluster-kuberay-oauth-proxy-34d45785"
    assert names.proxy_tls_secret == "raycluster-kuberay-proxy-tls-secret-6c1fa935"
    assert (
        names.cluster_role_binding
        == "raycluster-kuberay-os-oauth-mtls-kuberay-sample-auth-2c55a751"
    )
    assert names.head_policy == "raycluster-kuberay-head-1582350a"
    assert names.workers_policy == "raycluster-kuberay-workers-958bd2aa"
    assert names.dashboard == "ray-dashboard-raycluster-kuberay"
    assert names.client == "rayclient-raycluster-kuberay"


def test_empty_version_annotation_counts_as_version() -> None:
    assert names_of(cluster("byhand", version="")).ca_secret == "byhand-ca-secret-54dc632d"


def test_cluster_without_version_has_old_names() -> None:
    names = names_of(cluster("old", "space", version=None))
    assert names.ca_secret == "ca-secret-old"
    assert names.cookie_secret == "old-oauth-config"
    assert names.proxy_service == "old-oauth"
    assert names.proxy_service_account == "old-oauth-proxy"
    assert names.proxy_tls_secret == "old-proxy-tls-secret"
    assert names.cluster_role_binding == "old-space-auth"
    assert names.head_policy == "old-head"
    assert names.workers_policy == "old-workers"
    assert names.dashboard == "ray-dashboard-old"
    assert names.client == "rayclient-old"


@pytest.mark.parametrize("version", ["UNKNOWN", None])
@pytest.mark.parametrize("name", ["n" * 63, "n" * 253, "my.ray.cluster", "a." + "b" * 60])
def test_names_that_the_api_server_rejects_are_shortened(name: str, version: str | None) -> None:
    names = names_of(cluster(name, version=version))
    assert DNS_LABEL.fullmatch(names.proxy_service)
    assert DNS_LABEL.fullmatch(head_service_name(cluster(name, version=version)))
    assert len(label_value(name)) <= 63
    derived = [name for name, value in vars(ClusterNames).items() if isinstance(value, Derived)]
    assert len(derived) == 11
    assert all(len(getattr(names, name)) <= 253 for name in derived)


def test_names_that_the_api_server_accepts_are_kept() -> None:
    names = names_of(cluster("n" * 63))
    assert names.ca_secret == "n" * 63 + "-ca-secret-b4aafffa"
    assert label_value("n" * 63) == "n" * 63
    assert service_name("9lives-oauth-5ada9295") == "9lives-oauth-5ada9295"
    assert fit("x" * 253) == "x" * 253


def test_shortened_names_of_different_clusters_differ() -> None:
    assert service_name("my.ray") != service_name("my-ray")
    assert label_value("n" * 64 + "a") != label_value("n" * 64 + "b")
    assert service_name("n" * 80 + "a") != service_name("n" * 80 + "b")


def test_head_service_name_comes_from_status_then_spec_then_default() -> None:
    with_name = cluster("c", headService={"metadata": {"name": "chosen"}})
    assert head_service_name(cluster("c")) == "c-head-svc"
    assert head_service_name(with_name) == "chosen"
    assert (
        head_service_name({**with_name, "status": {"head": {"serviceName": "reported"}}})
        == "reported"
    )
    assert head_service_name({**with_name, "status": {"head": {}}}) == "chosen"
    assert (
        head_service_name({"metadata": {"name": "c"}, "spec": None, "status": None}) == "c-head-svc"
    )


@pytest.mark.parametrize("name", ["x" * 100_000, "x" * 64, "a.b", "A", "$(id)", "-a", 7, ["a"]])
def test_name_that_no_service_can_have_is_not_the_head_service(name: Any) -> None:
    chosen = cluster("c", headService={"metadata": {"name": name}})
    assert head_service_name(chosen) == "c-head-svc"
    assert invalid_head_service_name(chosen) == name
    reported = {**cluster("c"), "status": {"head": {"serviceName": name}}}
    assert head_service_name(reported) == "c-head-svc"
    assert invalid_head_service_name(reported) is None


@pytest.mark.parametrize("name", ["x" * 63, "9lives", "a-b", "", None])
def test_name_that_a_service_can_have_is_valid(name: str | None) -> None:
    chosen = cluster("c", headService={"metadata": {"name": name}})
    assert head_service_name(chosen) == (name or "c-head-svc")
    assert invalid_head_service_name(chosen) is None


def test_default_head_service_name_is_truncated_as_by_kuberay() -> None:
    assert head_service_name(cluster("n" * 41)) == "n" * 41 + "-head-svc"
    assert head_service_name(cluster("a" + "n" * 41)) == "n" * 41 + "-head-svc"
    assert head_service_name(cluster("ab-" + "n" * 40)) == "r" + "n" * 40 + "-head-svc"
    assert head_service_name(cluster("a9" + "n" * 40)) == "r" + "n" * 40 + "-head-svc"
    assert (
        head_service_name(cluster("9lives")) == "9lives-head-svc"
    )  # KubeRay ignores such a cluster


def test_hosts_contain_name_namespace_and_suffix() -> None:
    assert dashboard_host(cluster("a-b", "c"), "apps.test") == "ray-dashboard-a-b-c.apps.test"
    assert client_host(cluster("a", "b-c"), "apps.test") == "rayclient-a-b-c.apps.test"
    assert (
        client_host(cluster("a", "b-c"), "apps.test", "0123abcd")
        == "rayclient-a-b-c-0123abcd.apps.test"
    )
    assert len(dashboard_host(cluster("n" * 253), "apps.test")) <= 253
