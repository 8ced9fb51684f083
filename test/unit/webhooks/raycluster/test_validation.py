"""Validation of RayClusters on creation and update, after defaulting."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from cfo.api.raycluster.cluster import MULTIKUEUE_CONTROLLER
from cfo.api.raycluster.names import VERSION_ANNOTATION
from cfo.webhooks.raycluster.defaulting import default
from cfo.webhooks.raycluster.injection_plan import Images, InjectionSettings
from cfo.webhooks.raycluster.validation import create_errors, update_errors
from test.support.ray_clusters import (
    HEAD_PATH,
    MTLS_ONLY,
    NO_INJECTION,
    OAUTH_AND_MTLS,
    OAUTH_ONLY,
    WORKER_PATH,
    Cluster,
    defaulted_cluster,
    find_by_name,
    head_pod,
    ray_cluster,
    worker,
    worker_pod,
)

NO_CONTAINER = "Required value: must contain a container that runs Ray"


def creation_errors(cluster: Cluster, settings: InjectionSettings = OAUTH_AND_MTLS) -> list[str]:
    """Return the errors of a new cluster after defaulting."""
    return [
        str(error) for error in create_errors(default(cluster, None, settings).cluster, settings)
    ]


def update_error_messages(
    old: Cluster, new: Cluster, settings: InjectionSettings = OAUTH_AND_MTLS
) -> list[str]:
    """Return the errors of an update that was not defaulted."""
    return [str(error) for error in update_errors(old, new, settings)]


@pytest.mark.parametrize("settings", [OAUTH_AND_MTLS, OAUTH_ONLY, MTLS_ONLY, NO_INJECTION])
def test_defaulted_cluster_is_valid(settings: InjectionSettings) -> None:
    cluster = defaulted_cluster(worker(), settings=settings)
    assert create_errors(cluster, settings) == []
    assert update_errors(cluster, copy.deepcopy(cluster), settings) == []


@pytest.mark.parametrize("settings", [OAUTH_AND_MTLS, NO_INJECTION])
def test_enable_ingress_is_rejected_with_message_of_the_go_operator(
    settings: InjectionSettings,
) -> None:
    cluster = defaulted_cluster(settings=settings)
    invalid = copy.deepcopy(cluster)
    invalid["spec"]["headGroupSpec"]["enableIngress"] = True
    reason = "RayCluster with enableIngress set to true is not allowed"
    message = f"spec.headGroupSpec.enableIngress: Invalid value: true: {reason}"
    assert creation_errors(invalid, settings) == [message]
    assert update_error_messages(cluster, invalid, settings) == [message]
    with_ingress = replace(settings, kuberay_features=frozenset({"ingressOptions"}))
    assert creation_errors(invalid, with_ingress) == []
    assert update_error_messages(cluster, invalid, with_ingress) == []
    invalid["spec"]["headGroupSpec"]["enableIngress"] = False
    assert creation_errors(invalid, settings) == []


def test_cluster_that_was_stored_with_enable_ingress_can_be_changed() -> None:
    stored = defaulted_cluster(worker())
    stored["spec"]["headGroupSpec"]["enableIngress"] = True
    scaled = copy.deepcopy(stored)
    scaled["metadata"]["finalizers"] = ["example.com/mine"]
    scaled["spec"]["workerGroupSpecs"][0]["replicas"] = 7
    assert update_error_messages(stored, scaled) == []
    without = copy.deepcopy(scaled)
    without["spec"]["headGroupSpec"]["enableIngress"] = False
    assert update_error_messages(stored, without) == []
    assert len(update_error_messages(without, scaled)) == 1


def test_name_that_the_head_service_cannot_have_is_rejected_unless_it_was_stored() -> None:
    stored = defaulted_cluster(worker())
    renamed = copy.deepcopy(stored)
    renamed["spec"]["headGroupSpec"]["headService"] = {"metadata": {"name": "x" * 100_000}}
    for (message,) in (creation_errors(renamed), update_error_messages(stored, renamed)):
        assert message.startswith("spec.headGroupSpec.headService.metadata.name: Invalid value: ")
        assert message.endswith("because it is the name of a Service")
        assert len(message) < 1_300
    scaled = copy.deepcopy(renamed)
    scaled["spec"]["workerGroupSpecs"][0]["replicas"] = 7
    assert update_error_messages(renamed, scaled) == []
    assert update_error_messages(renamed, default(stored, renamed, OAUTH_AND_MTLS).cluster) == []


@pytest.mark.parametrize("settings", [OAUTH_AND_MTLS, OAUTH_ONLY, MTLS_ONLY, NO_INJECTION])
@pytest.mark.parametrize("containers", [{"containers": []}, {"containers": None}, {}])
def test_group_without_containers_is_rejected_with_index(
    settings: InjectionSettings, containers: Cluster
) -> None:
    empty = {"groupName": "empty", "template": {"spec": containers}}
    cluster = ray_cluster(worker(), empty, head={"containers": containers.get("containers")})
    assert creation_errors(cluster, settings) == [
        f"{HEAD_PATH}.containers: {NO_CONTAINER}",
        f"spec.workerGroupSpecs[1].template.spec.containers: {NO_CONTAINER}",
    ]


def test_group_without_template_is_rejected() -> None:
    assert creation_errors(ray_cluster({"groupName": "w"})) == [
        f"{WORKER_PATH}.containers: {NO_CONTAINER}"
    ]
    assert creation_errors({"metadata": {"name": "rc"}}, NO_INJECTION) == [
        f"{HEAD_PATH}.containers: {NO_CONTAINER}"
    ]


def test_injected_proxy_does_not_count_as_ray_container() -> None:
    proxy_only = {"containers": [{"name": "oauth-proxy", "image": "ray"}]}
    for settings in (OAUTH_AND_MTLS, OAUTH_ONLY, MTLS_ONLY):
        (error,) = creation_errors(ray_cluster(head=copy.deepcopy(proxy_only)), settings)
        assert error.startswith(
            f"{HEAD_PATH}.containers: {NO_CONTAINER}; the name 'oauth-proxy' is reserved"
        )
    assert creation_errors(ray_cluster(worker(**proxy_only)), OAUTH_ONLY) == []
    assert creation_errors(ray_cluster(head=proxy_only), NO_INJECTION) == []


def test_ray_container_cannot_be_removed() -> None:
    old = defaulted_cluster()
    new = copy.deepcopy(old)
    del head_pod(new)["containers"][0]
    (error,) = update_error_messages(old, default(new, old, OAUTH_AND_MTLS).cluster)
    assert error.startswith(
        f"{HEAD_PATH}.containers: {NO_CONTAINER}; the name 'oauth-proxy' is reserved"
    )
    assert update_error_messages(new, copy.deepcopy(new)) == []


def test_existing_errors_do_not_block_updates() -> None:
    old = ray_cluster(worker(containers=[]), head={"containers": []})
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"a": "b"}
    assert update_error_messages(old, new) == []
    new["spec"]["workerGroupSpecs"].append(worker("second", containers=[]))
    assert update_error_messages(old, new) == [
        f"spec.workerGroupSpecs[1].template.spec.containers: {NO_CONTAINER}"
    ]
    assert update_error_messages(ray_cluster(worker()), ray_cluster(worker(containers=[]))) == [
        f"{WORKER_PATH}.containers: {NO_CONTAINER}"
    ]


def test_name_longer_than_a_label_value_is_rejected_on_create() -> None:
    cluster = ray_cluster()
    cluster["metadata"]["name"] = "n" * 64
    assert creation_errors(cluster) == ["metadata.name: Too long: may not be more than 63 bytes"]
    assert update_error_messages(cluster, cluster) == []
    cluster["metadata"]["name"] = "n" * 63
    assert creation_errors(cluster) == []


def _change_proxy_image(cluster: Cluster) -> None:
    head_pod(cluster)["containers"][1]["image"] = "evil"


def _remove_proxy(cluster: Cluster) -> None:
    del head_pod(cluster)["containers"][1]


def _add_second_proxy(cluster: Cluster) -> None:
    head_pod(cluster)["containers"].append({"name": "oauth-proxy", "image": "evil"})


def _remove_proxy_volume(cluster: Cluster) -> None:
    del head_pod(cluster)["volumes"][0]


def _change_account(cluster: Cluster) -> None:
    head_pod(cluster)["serviceAccountName"] = "other"


def _remove_init_containers(cluster: Cluster) -> None:
    del worker_pod(cluster)["initContainers"]


def _change_ca_volume(cluster: Cluster) -> None:
    worker_pod(cluster)["volumes"][0]["secret"]["secretName"] = "mine"


def _disable_tls(cluster: Cluster) -> None:
    worker_pod(cluster)["containers"][0]["env"][1]["value"] = "0"


def _remove_mount(cluster: Cluster) -> None:
    del worker_pod(cluster)["containers"][0]["volumeMounts"][0]


def _make_mount_writable(cluster: Cluster) -> None:
    del find_by_name(worker_pod(cluster)["containers"][0]["volumeMounts"], "ca-vol")["readOnly"]


CHANGES = [
    (
        _remove_proxy,
        f"{HEAD_PATH}.containers: Required value: OAuth Proxy container is immutable",
        True,
    ),
    (_add_second_proxy, f"{HEAD_PATH}.containers: Invalid value: ", True),
    (_change_proxy_image, f"{HEAD_PATH}.containers: Invalid value: ", False),
    (
        _remove_proxy_volume,
        f"{HEAD_PATH}.volumes: Required value: OAuth Proxy TLS Secret volume is immutable",
        True,
    ),
    (
        _change_account,
        f'{HEAD_PATH}.serviceAccountName: Invalid value: "other": RayCluster head group service account',
        True,
    ),
    (
        _remove_init_containers,
        f"{WORKER_PATH}.initContainers: Required value: create-cert Init Container is immutable",
        True,
    ),
    (_change_ca_volume, f"{WORKER_PATH}.volumes: Invalid value: ", False),
    (_disable_tls, f"{WORKER_PATH}.containers[0].env: Invalid value: ", False),
    (
        _remove_mount,
        f"{WORKER_PATH}.containers[0].volumeMounts: Required value: ca-vol and server-cert volume mounts",
        True,
    ),
    (
        _make_mount_writable,
        f"{WORKER_PATH}.containers[0].volumeMounts: Invalid value: ",
        False,
    ),
]


@pytest.mark.parametrize(("change", "error", "rejected_by_other_version"), CHANGES)
def test_injected_parts_are_immutable_even_for_other_webhooks(
    change: Any, error: str, rejected_by_other_version: bool
) -> None:
    old = defaulted_cluster(worker())
    new = copy.deepcopy(old)
    change(new)
    (found,) = update_error_messages(old, new)
    assert found.startswith(error)
    assert "immutable" in found
    (on_create,) = [str(item) for item in create_errors(new, OAUTH_AND_MTLS)]
    assert on_create.startswith(found)
    assert rejected_by_other_version or "differs from the injected one" in on_create
    assert len(on_create) < 400, "it names the field, and does not print the whole entry"
    # replicas of two operator versions inject slightly different parts, so only their presence is checked
    of_other_version = [
        str(item) for item in create_errors(new, replace(OAUTH_AND_MTLS, version="v2"))
    ]
    assert of_other_version == [found] * rejected_by_other_version


def test_content_of_mounts_is_checked_on_creation() -> None:
    new = defaulted_cluster(worker())
    find_by_name(worker_pod(new)["containers"][0]["volumeMounts"], "server-cert")["subPath"] = (
        "elsewhere"
    )
    (error,) = [str(item) for item in create_errors(new, OAUTH_AND_MTLS)]
    assert error.startswith(f"{WORKER_PATH}.containers[0].volumeMounts: Invalid value: ")


def test_new_cluster_with_deletion_timestamp_is_injected_and_validated() -> None:
    """Server-side apply can create an object with a deletionTimestamp, which an API server stores as such."""
    cluster = ray_cluster(worker())
    cluster["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    defaulted = default(cluster, None, OAUTH_AND_MTLS).cluster
    assert head_pod(defaulted) == head_pod(defaulted_cluster(worker()))
    assert create_errors(defaulted, OAUTH_AND_MTLS) == []
    _disable_tls(defaulted)
    assert len(create_errors(defaulted, OAUTH_AND_MTLS)) == 1


def test_cause_contains_field() -> None:
    old = defaulted_cluster(worker())
    new = copy.deepcopy(old)
    _disable_tls(new)
    (error,) = update_errors(old, new, OAUTH_AND_MTLS)
    assert error.cause() == {
        "reason": "FieldValueInvalid",
        "field": f"{WORKER_PATH}.containers[0].env",
        "message": 'Invalid value: "RAY_USE_TLS": RAY_TLS related environment variables are immutable: value differs',
    }


@pytest.mark.parametrize("change", [change for change, _, _ in CHANGES])
def test_deleting_cluster_is_not_validated(change: Any) -> None:
    old = defaulted_cluster(worker())
    new = copy.deepcopy(old)
    new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    new["spec"]["headGroupSpec"]["enableIngress"] = True
    change(new)
    assert update_error_messages(old, new) == []


def test_version_annotation_is_immutable() -> None:
    old = defaulted_cluster()
    new = copy.deepcopy(old)
    new["metadata"]["annotations"][VERSION_ANNOTATION] = "mine"
    (error,) = update_error_messages(old, new)
    assert error.startswith(
        f'metadata.annotations[{VERSION_ANNOTATION}]: Invalid value: "mine": the version '
    )


def test_existing_clusters_can_be_updated_after_operator_upgrade() -> None:
    old = defaulted_cluster(worker())
    new = copy.deepcopy(old)
    new["spec"]["workerGroupSpecs"][0]["replicas"] = 3
    upgraded = replace(
        OAUTH_AND_MTLS,
        version="v2",
        images=Images("proxy:2", "cert:2"),
        ingress_domain="elsewhere.test",
    )
    assert update_error_messages(old, new, upgraded) == []


def test_parts_of_disabled_injection_can_be_removed() -> None:
    old = defaulted_cluster(worker())
    new = copy.deepcopy(old)
    _remove_proxy(new)
    _disable_tls(new)
    assert update_error_messages(old, new, NO_INJECTION) == []
    new["spec"]["tlsOptions"] = {"enabled": True}
    new["spec"]["authOptions"] = {"mode": "token"}
    assert len(update_error_messages(old, new)) == 2
    features = frozenset({"tlsOptions", "authOptions"})
    assert update_error_messages(old, new, replace(OAUTH_AND_MTLS, kuberay_features=features)) == []


def test_user_sidecar_named_like_the_proxy_can_be_changed() -> None:
    old = ray_cluster(
        head={"containers": [{"name": "ray"}, {"name": "oauth-proxy", "image": "mine"}]}
    )
    new = copy.deepcopy(old)
    _change_proxy_image(new)
    assert update_error_messages(old, new) == []


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
def test_wrong_types_are_reported_with_path(spec: Any, errors: list[str]) -> None:
    cluster = {"metadata": {"name": "rc", "namespace": "ns"}, "spec": spec}
    assert creation_errors(cluster) == errors
    assert update_error_messages(ray_cluster(), cluster) == errors


UNEXPECTED_VALUES: list[Any] = [None, 1, "x", [], {}, [None], [{"name": {}}]]


def all_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in ``value``."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in items:
        yield (*path, key)
        yield from all_paths(item, (*path, key))


def replace_value(cluster: Cluster, path: tuple[Any, ...], unexpected: Any) -> Cluster:
    changed = copy.deepcopy(cluster)
    container: Any = changed
    for key in path[:-1]:
        container = container[key]
    container[path[-1]] = unexpected
    return changed


def test_unexpected_values_never_raise() -> None:
    valid = defaulted_cluster(worker(), tlsOptions={"enabled": False}, authOptions={"mode": "none"})
    valid["spec"]["headGroupSpec"].update(
        enableIngress=False, headService={"metadata": {"name": "mine"}}
    )
    for path in all_paths(valid["spec"], ("spec",)):
        for unexpected in UNEXPECTED_VALUES:
            malformed = replace_value(valid, path, unexpected)
            assert isinstance(creation_errors(malformed), list)
            assert isinstance(
                update_error_messages(valid, default(malformed, valid, OAUTH_AND_MTLS).cluster),
                list,
            )
            assert isinstance(
                update_error_messages(malformed, default(valid, malformed, OAUTH_AND_MTLS).cluster),
                list,
            )


def test_metadata_of_each_stored_cluster_can_be_changed() -> None:
    valid = defaulted_cluster(worker(), tlsOptions={"enabled": False}, authOptions={"mode": "none"})
    valid["spec"]["headGroupSpec"]["enableIngress"] = True
    for path in all_paths(valid["spec"], ("spec",)):
        for unexpected in UNEXPECTED_VALUES:
            stored = replace_value(valid, path, unexpected)
            changed = copy.deepcopy(stored)
            changed["metadata"]["finalizers"] = ["example.com/mine"]
            admitted = default(changed, stored, OAUTH_AND_MTLS).cluster
            assert update_error_messages(stored, admitted) == [], path


def test_running_cluster_is_not_given_to_multikueue_or_taken_from_it() -> None:
    ours = defaulted_cluster(worker())
    managed = default(
        ray_cluster(worker(), managedBy=MULTIKUEUE_CONTROLLER), None, OAUTH_AND_MTLS
    ).cluster
    message = "the managedBy field is immutable"
    for old, new in ((ours, managed), (managed, ours)):
        (error,) = update_error_messages(old, default(new, old, OAUTH_AND_MTLS).cluster)
        assert error.startswith("spec.managedBy: Invalid value")
        assert error.endswith(message)
    without_spec = {key: value for key, value in managed.items() if key != "spec"}
    assert f"spec.managedBy: Invalid value: null: {message}" in update_error_messages(
        managed, without_spec
    )
    explicit = copy.deepcopy(ours)
    explicit["spec"]["managedBy"] = "ray.io/kuberay-operator"
    assert update_errors(ours, explicit, OAUTH_AND_MTLS) == []


def test_parts_of_mtls_are_not_imitated_after_creation() -> None:
    old = defaulted_cluster(worker(), settings=NO_INJECTION)
    new = copy.deepcopy(old)
    pod = head_pod(new)
    pod["initContainers"] = [{"name": "create-cert", "image": "evil"}]
    pod["containers"][0]["env"] = [{"name": "RAY_USE_TLS", "value": "1"}]
    (error,) = update_error_messages(old, default(new, old, MTLS_ONLY).cluster, MTLS_ONLY)
    assert error.startswith(
        f"{HEAD_PATH}.initContainers: Forbidden: the RayCluster was created without"
    )
    assert update_errors(new, copy.deepcopy(new), MTLS_ONLY) == []
    assert update_errors(old, new, NO_INJECTION) == []


def test_only_the_proxy_has_a_port_with_the_name_of_its_port() -> None:
    port = {"name": "oauth-proxy", "containerPort": 8265}
    cluster = ray_cluster(
        head={"containers": [{"name": "ray-head", "image": "ray", "ports": [port]}]}
    )
    message = f"{HEAD_PATH}.containers: Forbidden: the port name 'oauth-proxy' is reserved for the injected proxy"
    assert creation_errors(cluster, OAUTH_ONLY) == [message]
    assert creation_errors(cluster, NO_INJECTION) == []
    stored = default(cluster, None, OAUTH_ONLY).cluster
    assert update_errors(stored, copy.deepcopy(stored), OAUTH_ONLY) == []
    assert update_error_messages(defaulted_cluster(settings=OAUTH_ONLY), stored, OAUTH_ONLY) == [
        message
    ]
