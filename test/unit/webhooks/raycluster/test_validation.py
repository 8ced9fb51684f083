from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from cfo.api.raycluster.naming import VERSION_ANNOTATION
from cfo.webhooks.raycluster.defaulting import default
from cfo.webhooks.raycluster.settings import Images, Settings
from cfo.webhooks.raycluster.validation import created_errors, updated_errors
from test.support.ray_clusters import (
    HEAD_PATH,
    MTLS_ONLY,
    NO_INJECTION,
    OAUTH_AND_MTLS,
    OAUTH_ONLY,
    WORKER_PATH,
    Cluster,
    defaulted_cluster,
    head_pod,
    ray_cluster,
    worker,
    worker_pod,
)

NO_CONTAINER = "Required value: a group needs a container for Ray"


def refusals(cluster: Cluster, settings: Settings = OAUTH_AND_MTLS) -> list[str]:
    """What is said of a new cluster, after both webhooks."""
    return [str(error) for error in created_errors(default(cluster, None, settings).cluster, settings)]


def update_refusals(old: Cluster, new: Cluster, settings: Settings = OAUTH_AND_MTLS) -> list[str]:
    """What the validator says of an update that the mutating webhook did not see."""
    return [str(error) for error in updated_errors(old, new, settings)]


@pytest.mark.parametrize("settings", [OAUTH_AND_MTLS, OAUTH_ONLY, MTLS_ONLY, NO_INJECTION])
def test_what_was_defaulted_is_valid(settings: Settings) -> None:
    made = defaulted_cluster(worker(), settings=settings)
    assert created_errors(made, settings) == []
    assert updated_errors(made, copy.deepcopy(made), settings) == []


@pytest.mark.parametrize("settings", [OAUTH_AND_MTLS, NO_INJECTION])
def test_enable_ingress_is_refused_in_the_words_of_the_go_operator(settings: Settings) -> None:
    cluster = defaulted_cluster(settings=settings)
    refused = copy.deepcopy(cluster)
    refused["spec"]["headGroupSpec"]["enableIngress"] = True
    reason = "RayCluster with enableIngress set to true is not allowed"
    message = f"spec.headGroupSpec.enableIngress: Invalid value: true: {reason}"
    assert refusals(refused, settings) == [message]
    assert update_refusals(cluster, refused, settings) == [message]
    refused["spec"]["headGroupSpec"]["enableIngress"] = False
    assert refusals(refused, settings) == []


@pytest.mark.parametrize("settings", [OAUTH_AND_MTLS, OAUTH_ONLY, MTLS_ONLY, NO_INJECTION])
@pytest.mark.parametrize("containers", [{"containers": []}, {"containers": None}, {}])
def test_a_group_without_containers_is_refused_with_its_index(settings: Settings, containers: Cluster) -> None:
    empty = {"groupName": "empty", "template": {"spec": containers}}
    cluster = ray_cluster(worker(), empty, head={"containers": containers.get("containers")})
    assert refusals(cluster, settings) == [
        f"{HEAD_PATH}.containers: {NO_CONTAINER}",
        f"spec.workerGroupSpecs[1].template.spec.containers: {NO_CONTAINER}",
    ]


def test_a_group_without_a_template_is_refused() -> None:
    assert refusals(ray_cluster({"groupName": "w"})) == [f"{WORKER_PATH}.containers: {NO_CONTAINER}"]
    assert refusals({"metadata": {"name": "rc"}}, NO_INJECTION) == [f"{HEAD_PATH}.containers: {NO_CONTAINER}"]


def test_the_injected_proxy_is_no_container_for_ray() -> None:
    only = {"containers": [{"name": "oauth-proxy", "image": "ray"}]}
    for settings in (OAUTH_AND_MTLS, OAUTH_ONLY, MTLS_ONLY):
        (error,) = refusals(ray_cluster(head=copy.deepcopy(only)), settings)
        assert error.startswith(f"{HEAD_PATH}.containers: {NO_CONTAINER}; one called 'oauth-proxy' is none")
    assert refusals(ray_cluster(worker(**only)), OAUTH_ONLY) == []
    assert refusals(ray_cluster(head=only), NO_INJECTION) == []


def test_the_container_for_ray_cannot_be_taken_away() -> None:
    old = defaulted_cluster()
    new = copy.deepcopy(old)
    del head_pod(new)["containers"][0]
    (error,) = update_refusals(old, default(new, old, OAUTH_AND_MTLS).cluster)
    assert error.startswith(f"{HEAD_PATH}.containers: {NO_CONTAINER}; one called 'oauth-proxy' is none")
    assert update_refusals(new, copy.deepcopy(new)) == []


def test_what_was_wrong_before_does_not_keep_from_editing() -> None:
    old = ray_cluster(worker(containers=[]), head={"containers": []})
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"a": "b"}
    assert update_refusals(old, new) == []
    new["spec"]["workerGroupSpecs"].append(worker("second", containers=[]))
    assert update_refusals(old, new) == [f"spec.workerGroupSpecs[1].template.spec.containers: {NO_CONTAINER}"]
    assert update_refusals(ray_cluster(worker()), ray_cluster(worker(containers=[]))) == [
        f"{WORKER_PATH}.containers: {NO_CONTAINER}"
    ]


def test_a_name_that_no_label_can_hold_is_refused_when_the_cluster_is_created() -> None:
    cluster = ray_cluster()
    cluster["metadata"]["name"] = "n" * 64
    assert refusals(cluster) == ["metadata.name: Too long: may not be more than 63 bytes"]
    assert update_refusals(cluster, cluster) == []
    cluster["metadata"]["name"] = "n" * 63
    assert refusals(cluster) == []


def _proxy_image(cluster: Cluster) -> None:
    head_pod(cluster)["containers"][1]["image"] = "evil"


def _no_proxy(cluster: Cluster) -> None:
    del head_pod(cluster)["containers"][1]


def _two_proxies(cluster: Cluster) -> None:
    head_pod(cluster)["containers"].append({"name": "oauth-proxy", "image": "evil"})


def _no_proxy_volume(cluster: Cluster) -> None:
    del head_pod(cluster)["volumes"][0]


def _account(cluster: Cluster) -> None:
    head_pod(cluster)["serviceAccountName"] = "other"


def _no_init(cluster: Cluster) -> None:
    del worker_pod(cluster)["initContainers"]


def _ca_volume(cluster: Cluster) -> None:
    worker_pod(cluster)["volumes"][0]["secret"]["secretName"] = "mine"


def _no_tls(cluster: Cluster) -> None:
    worker_pod(cluster)["containers"][0]["env"][1]["value"] = "0"


def _mount(cluster: Cluster) -> None:
    del worker_pod(cluster)["containers"][0]["volumeMounts"][0]


CHANGES = [
    (_no_proxy, f"{HEAD_PATH}.containers: Required value: OAuth Proxy container is immutable", True),
    (_two_proxies, f"{HEAD_PATH}.containers: Invalid value: ", True),
    (_proxy_image, f"{HEAD_PATH}.containers: Invalid value: ", False),
    (_no_proxy_volume, f"{HEAD_PATH}.volumes: Required value: OAuth Proxy TLS Secret volume is immutable", True),
    (
        _account,
        f'{HEAD_PATH}.serviceAccountName: Invalid value: "other": RayCluster head group service account',
        True,
    ),
    (_no_init, f"{WORKER_PATH}.initContainers: Required value: create-cert Init Container is immutable", True),
    (_ca_volume, f"{WORKER_PATH}.volumes: Invalid value: ", False),
    (_no_tls, f"{WORKER_PATH}.containers[0].env: Invalid value: ", False),
    (
        _mount,
        f"{WORKER_PATH}.containers[0].volumeMounts: Required value: ca-vol and server-cert volume mounts",
        True,
    ),
]


@pytest.mark.parametrize(("change", "error", "at_creation"), CHANGES)
def test_what_was_injected_is_immutable_even_for_other_webhooks(change: Any, error: str, at_creation: bool) -> None:
    old = defaulted_cluster(worker())
    new = copy.deepcopy(old)
    change(new)
    (found,) = update_refusals(old, new)
    assert found.startswith(error)
    assert "immutable" in found
    # replicas of two versions inject what differs a little; that it was injected is checked all the same
    found_at_creation = [str(item) for item in created_errors(new, OAUTH_AND_MTLS)]
    assert [text.startswith(error) for text in found_at_creation] == [True] * at_creation


def test_causes_name_the_field() -> None:
    old = defaulted_cluster(worker())
    new = copy.deepcopy(old)
    _no_tls(new)
    (error,) = updated_errors(old, new, OAUTH_AND_MTLS)
    assert error.cause() == {
        "reason": "FieldValueInvalid",
        "field": f"{WORKER_PATH}.containers[0].env",
        "message": 'Invalid value: {"name":"RAY_USE_TLS","value":"0"}: '
        "RAY_TLS related environment variables are immutable",
    }


@pytest.mark.parametrize("change", [change for change, _, _ in CHANGES])
def test_what_is_being_deleted_passes(change: Any) -> None:
    old = defaulted_cluster(worker())
    new = copy.deepcopy(old)
    new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    new["spec"]["headGroupSpec"]["enableIngress"] = True
    change(new)
    assert update_refusals(old, new) == []


def test_the_mark_is_immutable() -> None:
    old = defaulted_cluster()
    new = copy.deepcopy(old)
    new["metadata"]["annotations"][VERSION_ANNOTATION] = "mine"
    (error,) = update_refusals(old, new)
    assert error.startswith(f'metadata.annotations[{VERSION_ANNOTATION}]: Invalid value: "mine": the version ')


def test_an_upgraded_operator_leaves_existing_clusters_editable() -> None:
    old = defaulted_cluster(worker())
    new = copy.deepcopy(old)
    new["spec"]["workerGroupSpecs"][0]["replicas"] = 3
    upgraded = replace(
        OAUTH_AND_MTLS, version="v2", images=Images("proxy:2", "cert:2"), ingress_domain="elsewhere.test"
    )
    assert update_refusals(old, new, upgraded) == []


def test_with_a_concern_turned_off_or_left_to_kuberay_its_parts_may_go() -> None:
    old = defaulted_cluster(worker())
    new = copy.deepcopy(old)
    _no_proxy(new)
    _no_tls(new)
    assert update_refusals(old, new, NO_INJECTION) == []
    new["spec"]["tlsOptions"] = {"enabled": True}
    new["spec"]["authOptions"] = {"mode": "token"}
    assert update_refusals(old, new) == []


def test_a_sidecar_that_only_looks_injected_is_the_users() -> None:
    old = ray_cluster(head={"containers": [{"name": "ray"}, {"name": "oauth-proxy", "image": "mine"}]})
    new = copy.deepcopy(old)
    _proxy_image(new)
    assert update_refusals(old, new) == []


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        ([], ["spec: Invalid value: []: must be an object"]),
        ({"headGroupSpec": 1}, ["spec.headGroupSpec: Invalid value: 1: must be an object"]),
        (
            {"headGroupSpec": {"template": {"spec": {"containers": "x", "volumes": [1]}}}},
            [
                f'{HEAD_PATH}.containers: Invalid value: "x": must be a list',
                f"{HEAD_PATH}.volumes[0]: Invalid value: 1: must be an object",
            ],
        ),
        (
            {"workerGroupSpecs": ["x", {"template": {"spec": {"containers": [{"env": {}}]}}}]},
            [
                'spec.workerGroupSpecs[0]: Invalid value: "x": must be an object',
                f"{WORKER_PATH.replace('0', '1')}.containers[0].env: Invalid value: {{}}: must be a list",
            ],
        ),
        ({"tlsOptions": "x"}, ['spec.tlsOptions: Invalid value: "x": must be an object']),
        (
            {"headGroupSpec": {"template": {"spec": {"volumes": [{"secret": "x"}]}}}},
            [f'{HEAD_PATH}.volumes[0].secret: Invalid value: "x": must be an object'],
        ),
    ],
)
def test_what_has_the_wrong_type_is_named(spec: Any, errors: list[str]) -> None:
    cluster = {"metadata": {"name": "rc", "namespace": "ns"}, "spec": spec}
    assert refusals(cluster) == errors
    assert update_refusals(ray_cluster(), cluster) == errors


ODD: list[Any] = [None, 1, "x", [], {}, [None], [{"name": {}}]]


def everywhere(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all that is in ``value``."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from everywhere(item, (*path, key))


def with_odd(cluster: Cluster, path: tuple[Any, ...], odd: Any) -> Cluster:
    made = copy.deepcopy(cluster)
    owner: Any = made
    for key in path[:-1]:
        owner = owner[key]
    owner[path[-1]] = odd
    return made


def test_whatever_stands_wherever_is_answered() -> None:
    full = defaulted_cluster(worker(), tlsOptions={"enabled": False}, authOptions={"mode": "none"})
    full["spec"]["headGroupSpec"].update(enableIngress=False, headService={"metadata": {"name": "mine"}})
    for path in everywhere(full["spec"], ("spec",)):
        for odd in ODD:
            strange = with_odd(full, path, odd)
            assert isinstance(refusals(strange), list)
            assert isinstance(update_refusals(full, default(strange, full, OAUTH_AND_MTLS).cluster), list)
            assert isinstance(update_refusals(strange, default(full, strange, OAUTH_AND_MTLS).cluster), list)
