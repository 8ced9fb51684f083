"""Tests that compare the desired children of a RayCluster with the recorded ones of the Go operator."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.raycluster.facts import RayClusterFacts
from cfo.config.kuberay import KubeRayConfiguration
from cfo.controllers.raycluster import ingress_resources, policies, resources
from cfo.controllers.raycluster.dashboard_access import Authentication, Backend, dashboard_backend
from cfo.controllers.raycluster.operator_namespaces import WELL_KNOWN_OPENSHIFT, WELL_KNOWN_VANILLA
from cfo.runtime.objects.unstructured import Object, is_deleting, name_of, owner_reference
from test.support.network_policies import without_open_client_port
from test.support.recordings import load_raycluster, observations, raycluster_cases

DIFFERENCES = {
    "name-of-63": "the Go operator stops at the first name that the API server rejects",
    "name-with-dots": "the Go operator stops at the first name that the API server rejects",
    "old-names-unannotated": "the Go operator duplicates every object once the annotation is set",
    "preexisting-objects": "the Go operator adopts objects of another owner",
}
WITHOUT_TLS = ("old-names-annotated-by-hand", "old-names-unannotated")
"""The RayClusters of these scenarios have no parts for mTLS at first, but the Go operator opens their client port."""


def desired_objects(
    cluster: Object, config: KubeRayConfiguration, *, openshift: bool
) -> list[Object]:
    """Return all objects that the reconcilers create for a cluster, Secrets with empty data."""
    facts = RayClusterFacts(cluster)
    names = facts.names
    operator_namespaces = WELL_KNOWN_OPENSHIFT if openshift else WELL_KNOWN_VANILLA
    found = [
        policies.desired_head_policy(facts, config, operator_namespaces),
        policies.desired_workers_policy(facts, config),
    ]
    if config.mtls_enabled:
        found.append(resources.desired_secret(facts, names.ca_secret, {}))
    if facts.is_suspended:
        return found
    if openshift and config.ray_dashboard_oauth_enabled:
        found += [
            resources.desired_secret(facts, names.cookie_secret, {}),
            resources.desired_proxy_service(facts, is_oauth_proxy=True, openshift_certificate=True),
            resources.desired_proxy_service_account(facts, openshift_client=True),
            resources.desired_dashboard_route(facts, _backend(facts, Authentication.OAUTH_PROXY)),
            resources.desired_client_route(facts),
            resources.desired_cluster_role_binding(facts, names.cluster_role_binding),
        ]
    if not openshift and not config.ray_dashboard_oauth_enabled:
        found += [
            ingress_resources.desired_dashboard_ingress(
                facts,
                config.ingress_domain,
                config.ingress,
                backend=_backend(facts, Authentication.DISABLED),
                ingress_class=ingress_resources.choose_ingress_class(
                    config.ingress.class_name, "", None
                ),
            ),
            ingress_resources.desired_client_ingress(
                facts,
                config.ingress_domain,
                config.ingress,
                ingress_class=ingress_resources.choose_ingress_class(
                    config.ingress.class_name, ingress_resources.NGINX_CLASS, None
                ),
            ),
        ]
    return found


def _backend(facts: RayClusterFacts, authentication: Authentication) -> Backend:
    backend = dashboard_backend(facts, authentication)
    assert backend is not None
    return backend


def contains(actual: Any, desired: Any) -> bool:
    """Report whether ``actual`` equals ``desired``, apart from fields of objects that a server added."""
    if isinstance(desired, dict):
        return isinstance(actual, dict) and all(
            key in actual and contains(actual[key], value) for key, value in desired.items()
        )
    if isinstance(desired, list):
        return (
            isinstance(actual, list)
            and len(actual) == len(desired)
            and all(map(contains, actual, desired))
        )
    return bool(actual == desired)


def applied_fields(value: Any) -> set[tuple[str, ...]]:
    """Return the paths of the leaves in a recorded ``fieldsV1``."""
    found: set[tuple[str, ...]] = set()

    def walk(fields: dict[str, Any], path: tuple[str, ...]) -> None:
        children = {key: child for key, child in fields.items() if key != "."}
        if not children:
            found.add(path)
        for key, child in children.items():
            walk(child, (*path, key))

    walk(value, ())
    return found


@pytest.mark.parametrize("case", raycluster_cases())
def test_desired_objects_equal_recorded_objects(case: str) -> None:
    recording = load_raycluster(case)
    scenario = case.partition("/")[2]
    config = KubeRayConfiguration.from_document(recording["config"]["kuberay"])
    for title, objects in observations(recording):
        clusters = [
            item for item in objects if item["kind"] == "RayCluster" and not is_deleting(item)
        ]
        if len(clusters) != 1:
            continue
        cluster = clusters[0]
        if title == "suspended":
            continue  # existing objects are kept, which the reconcilers decide
        observed = {
            (item["kind"], name_of(item)): item for item in objects if item["kind"] != "RayCluster"
        }
        desired = {
            (item["kind"], name_of(item)): item
            for item in desired_objects(cluster, config, openshift=recording["config"]["openshift"])
        }
        if scenario in DIFFERENCES:
            observed = {key: item for key, item in observed.items() if key in desired}
        else:
            assert set(desired) == set(observed), title
        if scenario in ("name-of-63", "name-with-dots"):
            continue  # the proxy's Service has another name here; the recorded Routes lead to none
        for key, actual in observed.items():
            if scenario == "preexisting-objects" and any(
                field["manager"] != "codeflare-raycluster-controller"
                for field in actual["metadata"]["managedFields"]
            ):
                continue
            expected = desired[key]
            if (
                scenario in WITHOUT_TLS
                and key[0] == "NetworkPolicy"
                and "create-cert" not in str(cluster)
            ):
                actual = without_open_client_port(actual)
            if key[0] != "ClusterRoleBinding":
                assert actual["metadata"]["ownerReferences"] == [owner_reference(cluster)]
            assert contains(actual, expected), (title, key, expected, actual)
            assert actual["metadata"].get("labels") == expected["metadata"]["labels"]
            assert actual["metadata"].get("annotations") == expected["metadata"].get("annotations")
            fields = applied_fields(
                actual["metadata"]["managedFields"][0]["fieldsV1"].get("f:spec", {})
            )
            names = {path[0].removeprefix("f:") for path in fields if path}
            assert names == set(expected.get("spec", {})) - (
                {"policyTypes"} if key[0] == "NetworkPolicy" else set()
            )
