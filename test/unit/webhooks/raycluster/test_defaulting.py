"""Defaulting of RayClusters: injection of the OAuth proxy and of TLS, on creation and on update."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from msgspec.structs import replace

from cfo.api.raycluster.certificates import requests_certificates
from cfo.api.raycluster.cluster import MULTIKUEUE_CONTROLLER, SECURE_TRUSTED_NETWORK
from cfo.api.raycluster.names import VERSION_ANNOTATION, names_of
from cfo.webhooks.raycluster.defaulting import DefaultingResult, default
from cfo.webhooks.raycluster.injection_plan import Images, InjectionSettings
from cfo.webhooks.raycluster.mtls import CA_KEY_DIRECTORY
from cfo.webhooks.raycluster.validation import create_errors, update_errors
from test.support.ray_clusters import (
    HEAD_PATH,
    MTLS_ONLY,
    NO_INJECTION,
    OAUTH_AND_MTLS,
    OAUTH_ONLY,
    WORKER_PATH,
    Cluster,
    default_on_create,
    defaulted_cluster,
    find_by_name,
    head_pod,
    names_in,
    ray_cluster,
    worker,
    worker_pod,
)

REQUESTS = replace(OAUTH_AND_MTLS, requests_certificates=True)
TLS_ENV = [
    "MY_POD_IP",
    "RAY_USE_TLS",
    "RAY_TLS_SERVER_CERT",
    "RAY_TLS_SERVER_KEY",
    "RAY_TLS_CA_CERT",
]
VERSION_FIELD = (
    f"metadata.annotations[{VERSION_ANNOTATION}]: the operator sets this "
    "annotation when a RayCluster is created"
)


# --- creation ---------------------------------------------------------------------------------------------------------


def test_new_cluster_is_annotated_with_operator_version() -> None:
    assert default_on_create(ray_cluster()).cluster["metadata"]["annotations"] == {
        VERSION_ANNOTATION: "v1"
    }


def test_version_set_by_user_is_replaced_with_warning() -> None:
    result = default_on_create(ray_cluster(version="v0"))
    assert result.cluster["metadata"]["annotations"] == {VERSION_ANNOTATION: "v1"}
    assert result.warnings == (f"{VERSION_FIELD}; the value 'v0' was replaced",)


def test_injected_parts_use_names_of_annotated_cluster() -> None:
    injected = defaulted_cluster(worker())
    expected = names_of(injected)
    assert head_pod(injected)["serviceAccountName"] == expected.proxy_service_account
    assert find_by_name(head_pod(injected)["volumes"], "proxy-tls-secret")["secret"] == {
        "secretName": expected.proxy_tls_secret
    }
    for pod in (head_pod(injected), worker_pod(injected)):
        assert find_by_name(pod["volumes"], "ca-vol")["secret"]["secretName"] == expected.ca_secret
    proxy = find_by_name(head_pod(injected)["containers"], "oauth-proxy")
    assert proxy["env"][0]["valueFrom"]["secretKeyRef"]["name"] == expected.cookie_secret
    assert f"--openshift-service-account={expected.proxy_service_account}" in proxy["args"]


def test_workers_get_no_oauth_proxy() -> None:
    injected = defaulted_cluster(worker())
    assert names_in(worker_pod(injected)["containers"]) == ["ray-worker"]
    assert "serviceAccountName" not in worker_pod(injected)


def test_every_worker_group_gets_tls() -> None:
    injected = defaulted_cluster(worker("a"), worker("b"))
    for index in (0, 1):
        pod = worker_pod(injected, index)
        assert names_in(pod["containers"][0]["env"]) == TLS_ENV
        assert names_in(pod["initContainers"]) == ["create-cert"]
        assert names_in(pod["volumes"]) == ["ca-vol", "server-cert", "ca-key-vol"]


def test_only_the_init_container_gets_the_key_of_the_ca() -> None:
    injected = defaulted_cluster(worker())
    for pod in (head_pod(injected), worker_pod(injected)):
        with_key = {
            volume["name"]
            for volume in pod["volumes"]
            if "secret" in volume
            and {"key": "ca.key", "path": "ca.key"} in volume["secret"].get("items", ["all"])
        }
        (init_container,) = pod["initContainers"]
        assert with_key == {"ca-key-vol"}
        assert with_key <= set(names_in(init_container["volumeMounts"]))
        assert not with_key & {
            name for item in pod["containers"] for name in names_in(item.get("volumeMounts"))
        }
        ca_volume = find_by_name(pod["volumes"], "ca-vol")
        assert ca_volume["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]
        assert "ca/* " not in init_container["command"][2]


def test_nothing_is_injected_when_disabled() -> None:
    cluster = ray_cluster(worker())
    result = default_on_create(cluster, NO_INJECTION)
    assert result.cluster["spec"] == cluster["spec"]
    assert result.warnings == ()


def test_empty_fields_are_neither_added_nor_removed() -> None:
    cluster = ray_cluster(
        worker(), head={"containers": [{"name": "ray", "resources": {}, "env": []}]}
    )
    cluster["spec"]["headGroupSpec"]["template"]["metadata"] = {}
    defaulted = default_on_create(cluster).cluster
    assert defaulted["spec"]["headGroupSpec"]["template"]["metadata"] == {}
    assert head_pod(defaulted)["containers"][0]["resources"] == {}
    assert "metadata" not in defaulted["spec"]["workerGroupSpecs"][0]["template"]
    for pod in (head_pod(defaulted), worker_pod(defaulted)):
        for container in (
            pod["containers"][1:] + pod["initContainers"] + worker_pod(defaulted)["containers"]
        ):
            assert "resources" not in container
    assert default_on_create(cluster, NO_INJECTION).cluster["spec"] == cluster["spec"]


def test_images_come_from_settings() -> None:
    injected = defaulted_cluster(
        worker(), settings=replace(OAUTH_AND_MTLS, images=Images("proxy:1", "cert:1"))
    )
    assert find_by_name(head_pod(injected)["containers"], "oauth-proxy")["image"] == "proxy:1"
    assert [
        pod["initContainers"][0]["image"] for pod in (head_pod(injected), worker_pod(injected))
    ] == [
        "cert:1",
        "cert:1",
    ]


def test_images_come_from_environment_variables_if_set() -> None:
    assert Images.from_environment(
        {"OAUTH_PROXY_IMAGE": "a", "CERT_GENERATOR_IMAGE": "b"}
    ) == Images("a", "b")
    assert Images.from_environment({"OAUTH_PROXY_IMAGE": ""}) == Images()
    assert Images().oauth_proxy.startswith(
        "registry.redhat.io/openshift4/ose-oauth-proxy@sha256:1ea6a01b"
    )
    assert Images().cert_generator.startswith("registry.redhat.io/ubi9@sha256:770cf070")


@pytest.mark.parametrize("settings", [OAUTH_AND_MTLS, OAUTH_ONLY, MTLS_ONLY])
def test_injection_is_idempotent(settings: InjectionSettings) -> None:
    first = default_on_create(ray_cluster(worker()), settings)
    repeated = default(first.cluster, None, settings)
    assert repeated == DefaultingResult(first.cluster)
    assert default(first.cluster, first.cluster, settings) == DefaultingResult(first.cluster)


def test_parts_injected_by_the_go_operator_are_recognized() -> None:
    injected = defaulted_cluster(worker())
    for pod in (head_pod(injected), worker_pod(injected)):
        for container in pod["containers"][1:] + pod["initContainers"]:
            container["resources"] = {}
    assert default(injected, None, OAUTH_AND_MTLS) == DefaultingResult(injected)


def test_injected_parts_are_not_shared_between_objects() -> None:
    injected = defaulted_cluster(worker())
    for pod in (head_pod(injected), worker_pod(injected)):
        for item in pod["containers"][0]["env"] + pod["containers"][0]["volumeMounts"]:
            item.clear()
    assert (
        find_by_name(
            worker_pod(defaulted_cluster(worker()))["containers"][0]["env"], "RAY_USE_TLS"
        )["value"]
        == "1"
    )


# --- conflicts with parts of the user ---------------------------------------------------------------------------------


def test_entries_of_user_keep_their_positions() -> None:
    user_part: Cluster = {
        "containers": [
            {
                "name": "ray",
                "env": [{"name": "A", "value": "1"}],
                "volumeMounts": [{"name": "d", "mountPath": "/d"}],
            },
            {"name": "side"},
        ],
        "initContainers": [{"name": "first"}],
        "volumes": [{"name": "d", "emptyDir": {}}],
        "priorityClassName": "high",
    }
    result = default_on_create(ray_cluster(head=copy.deepcopy(user_part)))
    pod = head_pod(result.cluster)
    assert result.warnings == ()
    assert names_in(pod["containers"]) == ["ray", "side", "oauth-proxy"]
    assert pod["containers"][1] == {"name": "side"}
    assert names_in(pod["containers"][0]["env"]) == ["A", *TLS_ENV]
    assert names_in(pod["containers"][0]["volumeMounts"]) == ["d", "ca-vol", "server-cert"]
    assert names_in(pod["initContainers"]) == ["first", "create-cert"]
    assert names_in(pod["volumes"]) == [
        "d",
        "proxy-tls-secret",
        "ca-vol",
        "server-cert",
        "ca-key-vol",
    ]
    assert pod["priorityClassName"] == "high"


@pytest.mark.parametrize(
    ("pod", "field", "name"),
    [
        ({"serviceAccountName": "mine"}, "serviceAccountName", "mine"),
        ({"volumes": [{"name": "ca-vol", "configMap": {"name": "m"}}]}, "volumes", "ca-vol"),
        (
            {"volumes": [{"name": "server-cert", "hostPath": {"path": "/etc"}}]},
            "volumes",
            "server-cert",
        ),
        (
            {"volumes": [{"name": "proxy-tls-secret", "emptyDir": {}}]},
            "volumes",
            "proxy-tls-secret",
        ),
        (
            {"initContainers": [{"name": "create-cert", "image": "busybox"}]},
            "initContainers",
            "create-cert",
        ),
        (
            {"containers": [{"name": "r", "env": [{"name": "RAY_USE_TLS", "value": "0"}]}]},
            "containers[0].env",
            "RAY_USE_TLS",
        ),
        (
            {
                "containers": [
                    {"name": "r", "volumeMounts": [{"name": "ca-vol", "mountPath": "/mine"}]}
                ]
            },
            "containers[0].volumeMounts",
            "ca-vol",
        ),
        (
            {"containers": [{"name": "r"}, {"name": "oauth-proxy", "image": "evil"}]},
            "containers",
            "oauth-proxy",
        ),
    ],
)
def test_user_part_with_name_of_injected_part_is_replaced_with_warning(
    pod: Cluster, field: str, name: str
) -> None:
    result = default_on_create(ray_cluster(head=pod))
    assert result.warnings == (
        f"{HEAD_PATH}.{field}: {name}: replaced, because the operator injects its own",
    )
    clean = default_on_create(ray_cluster(head={"containers": [{"name": "r"}]})).cluster
    if field != "serviceAccountName":
        injected, actual = (
            next(iter(_field(head_pod(cluster), field, name)))
            for cluster in (clean, result.cluster)
        )
        assert actual == injected
        assert len(_field(head_pod(result.cluster), field, name)) == 1


def _field(pod: Cluster, field: str, name: str) -> list[Cluster]:
    if field.startswith("containers[0]."):
        pod, field = pod["containers"][0], field.removeprefix("containers[0].")
    return [item for item in pod[field] if item["name"] == name]


def test_worker_warnings_contain_group_index() -> None:
    result = default_on_create(
        ray_cluster(worker("a"), worker("b", volumes=[{"name": "ca-vol", "emptyDir": {}}]))
    )
    assert result.warnings == (
        "spec.workerGroupSpecs[1].template.spec.volumes: ca-vol: replaced, because the operator injects its own",
    )


def test_duplicate_variable_cannot_override_injected_one() -> None:
    env = [{"name": "RAY_USE_TLS", "value": "1"}, {"name": "RAY_USE_TLS", "value": "0"}]
    result = default_on_create(ray_cluster(head={"containers": [{"name": "ray", "env": env}]}))
    assert find_by_name(head_pod(result.cluster)["containers"][0]["env"], "RAY_USE_TLS") == {
        "name": "RAY_USE_TLS",
        "value": "1",
    }
    assert len(result.warnings) == 1


def test_mount_at_path_of_injected_mount_is_replaced() -> None:
    mounts = [
        {"name": "d", "mountPath": "/home/ray/workspace/tls/"},
        {"name": "e", "mountPath": "/e"},
    ]
    result = default_on_create(
        ray_cluster(head={"containers": [{"name": "ray", "volumeMounts": mounts}]})
    )
    assert names_in(head_pod(result.cluster)["containers"][0]["volumeMounts"]) == [
        "server-cert",
        "e",
        "ca-vol",
    ]
    assert result.warnings == (
        f"{HEAD_PATH}.containers[0].volumeMounts: server-cert: replaced, because the operator injects its own",
    )


def test_additional_mount_of_injected_volume_is_kept() -> None:
    old = defaulted_cluster()
    new = copy.deepcopy(old)
    user_part = {"name": "server-cert", "mountPath": "/certificates", "readOnly": True}
    head_pod(new)["containers"][0]["volumeMounts"].append(user_part)
    assert default(new, old, OAUTH_AND_MTLS) == DefaultingResult(new)


# --- which container runs Ray -----------------------------------------------------------------------------------------


def test_user_container_named_like_the_proxy_gets_no_ray_settings() -> None:
    pod = {
        "containers": [{"name": "oauth-proxy", "image": "mine"}, {"name": "ray", "image": "ray"}]
    }
    result = default_on_create(ray_cluster(worker(**copy.deepcopy(pod)), head=pod), MTLS_ONLY)
    for found in (head_pod(result.cluster), worker_pod(result.cluster)):
        assert found["containers"][0] == {"name": "oauth-proxy", "image": "mine"}
        assert names_in(found["containers"][1]["env"]) == TLS_ENV
    assert [warning.partition(": ")[0] for warning in result.warnings] == [
        f"{HEAD_PATH}.containers[0]",
        f"{WORKER_PATH}.containers[0]",
    ]
    assert (
        "the settings for Ray were injected into 'ray'; make it the first container"
        in result.warnings[0]
    )


@pytest.mark.parametrize("image", ["mine", Images().oauth_proxy])
def test_injected_proxy_is_never_the_first_container(image: str) -> None:
    pod = {
        "containers": [{"name": "oauth-proxy", "image": image}, {"name": "ray"}, {"name": "side"}]
    }
    found = head_pod(default_on_create(ray_cluster(head=pod)).cluster)
    assert names_in(found["containers"]) == ["ray", "side", "oauth-proxy"]
    assert names_in(found["containers"][0]["env"]) == TLS_ENV
    assert names_in(found["containers"][2]["env"]) == ["COOKIE_SECRET"]


def test_update_that_moves_proxy_first_is_corrected() -> None:
    old = defaulted_cluster(head={"containers": [{"name": "ray"}, {"name": "side"}]})
    new = copy.deepcopy(old)
    head_pod(new)["containers"].reverse()
    result = default(new, old, OAUTH_AND_MTLS)
    assert names_in(head_pod(result.cluster)["containers"]) == ["side", "ray", "oauth-proxy"]
    assert result.warnings[0].endswith("so the injected proxies were moved to the end")


def test_proxy_placed_first_by_the_go_operator_is_kept() -> None:
    old = defaulted_cluster(
        head={"containers": [{"name": "ray"}, {"name": "side"}]}, settings=OAUTH_ONLY
    )
    head_pod(old)["containers"].reverse()
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"touched": "yes"}
    assert default(new, old, OAUTH_ONLY) == DefaultingResult(new)


# --- KubeRay's own TLS and authentication -----------------------------------------------------------------------------


WITH_KUBERAY = replace(OAUTH_AND_MTLS, kuberay_features=frozenset({"tlsOptions", "authOptions"}))


def test_parts_stay_unless_kuberay_features_are_configured() -> None:
    options: Cluster = {"tlsOptions": {"enabled": True}, "authOptions": {"mode": "token"}}
    old = defaulted_cluster(worker())
    new = copy.deepcopy(old)
    new["spec"] |= options
    result = default(new, old, OAUTH_AND_MTLS)
    assert result.cluster == new
    assert [warning.partition(":")[0] for warning in result.warnings] == [
        "spec.authOptions",
        "spec.tlsOptions",
    ]
    assert default(new, new, OAUTH_AND_MTLS).warnings == ()
    created = default_on_create(ray_cluster(worker(), **options))
    assert created.cluster["spec"] == new["spec"]
    assert len(created.warnings) == 2


def test_nothing_is_injected_when_kuberay_provides_tls_or_authentication() -> None:
    with_tls = defaulted_cluster(worker(), tlsOptions={"enabled": True}, settings=WITH_KUBERAY)
    assert names_in(head_pod(with_tls)["containers"]) == ["ray-head", "oauth-proxy"]
    assert "initContainers" not in head_pod(with_tls)
    assert worker_pod(with_tls) == worker_pod(ray_cluster(worker()))
    with_tokens = defaulted_cluster(worker(), authOptions={"mode": "token"}, settings=WITH_KUBERAY)
    assert names_in(head_pod(with_tokens)["containers"]) == ["ray-head"]
    assert names_in(head_pod(with_tokens)["initContainers"]) == ["create-cert"]
    assert "serviceAccountName" not in head_pod(with_tokens)


def test_enabling_kuberay_tls_removes_injected_tls() -> None:
    old = defaulted_cluster(worker(), head={"volumes": [{"name": "mine", "emptyDir": {}}]})
    new = copy.deepcopy(old)
    new["spec"]["tlsOptions"] = {"enabled": True}
    result = default(new, old, WITH_KUBERAY)
    expected = defaulted_cluster(
        worker(),
        head={"volumes": [{"name": "mine", "emptyDir": {}}]},
        tlsOptions={"enabled": True},
        settings=WITH_KUBERAY,
    )
    assert result.cluster == expected
    removed = "removed, because KubeRay provides the mTLS of the RayCluster"
    assert f"{HEAD_PATH}.initContainers: create-cert: {removed}" in result.warnings
    assert f"{WORKER_PATH}.volumes: ca-vol, server-cert, ca-key-vol: {removed}" in result.warnings
    assert default(result.cluster, result.cluster, WITH_KUBERAY) == DefaultingResult(result.cluster)


def test_enabling_kuberay_authentication_removes_proxy() -> None:
    old = defaulted_cluster()
    new = copy.deepcopy(old)
    new["spec"]["authOptions"] = {"mode": "token"}
    result = default(new, old, WITH_KUBERAY)
    assert result.cluster == defaulted_cluster(authOptions={"mode": "token"}, settings=WITH_KUBERAY)
    removed = "removed, because KubeRay provides the OAuth proxy of the RayCluster"
    assert f"{HEAD_PATH}.containers: oauth-proxy: {removed}" in result.warnings


def test_disabling_kuberay_tls_and_authentication_injects_parts() -> None:
    old = defaulted_cluster(
        worker(), tlsOptions={"enabled": True}, authOptions={"mode": "token"}, settings=WITH_KUBERAY
    )
    new = copy.deepcopy(old)
    del new["spec"]["tlsOptions"], new["spec"]["authOptions"]
    assert default(new, old, WITH_KUBERAY) == DefaultingResult(defaulted_cluster(worker()))


OTHER_ACTORS: list[tuple[Cluster, str, str]] = [
    (
        {"metadata": {"annotations": {SECURE_TRUSTED_NETWORK: "true"}}},
        "secureTrustedNetwork",
        "Open Data Hub",
    ),
    ({"spec": {"managedBy": MULTIKUEUE_CONTROLLER}}, "", "MultiKueue"),
]


def given_to(cluster: Cluster, change: Cluster) -> Cluster:
    """Return ``cluster`` with the settings ``change`` that give it to another actor."""
    result = copy.deepcopy(cluster)
    result["spec"] |= change.get("spec", {})
    annotations = change.get("metadata", {}).get("annotations", {})
    result["metadata"]["annotations"] = {**result["metadata"].get("annotations", {}), **annotations}
    return result


@pytest.mark.parametrize(
    ("change", "feature", "actor"), OTHER_ACTORS, ids=[case[2] for case in OTHER_ACTORS]
)
def test_nothing_is_injected_for_another_actor(change: Cluster, feature: str, actor: str) -> None:
    settings = replace(OAUTH_AND_MTLS, kuberay_features=frozenset({feature}))
    user = given_to(ray_cluster(worker()), change)
    assert defaulted_cluster(worker())["spec"] != user["spec"]
    created = default(user, None, settings)
    assert created.cluster["spec"] == user["spec"]
    assert created.warnings == ()


@pytest.mark.parametrize(
    ("change", "feature", "actor"), OTHER_ACTORS, ids=[case[2] for case in OTHER_ACTORS]
)
def test_injected_parts_are_removed_for_another_actor_and_return(
    change: Cluster, feature: str, actor: str
) -> None:
    settings = replace(OAUTH_AND_MTLS, kuberay_features=frozenset({feature}))
    ours = defaulted_cluster(worker())
    theirs = given_to(ray_cluster(worker(), version="v1"), change)
    update = default(given_to(ours, change), ours, settings)
    assert update.cluster == theirs
    removed = f"removed, because {actor} provides the mTLS of the RayCluster"
    assert f"{HEAD_PATH}.initContainers: create-cert: {removed}" in update.warnings
    # A webhook that is called later can give a new RayCluster to another actor; then this one is called again.
    reinvoked = default(given_to(ours, change), None, settings)
    assert reinvoked.cluster == theirs
    back = copy.deepcopy(ours)
    assert default(ray_cluster(worker(), version="v1"), theirs, settings).cluster == back


def test_annotation_of_open_data_hub_is_unconfirmed_unless_configured() -> None:
    user = given_to(ray_cluster(worker()), OTHER_ACTORS[0][0])
    created = default(user, None, OAUTH_AND_MTLS)
    assert created.cluster["spec"] == defaulted_cluster(worker())["spec"]
    assert len(created.warnings) == 2
    assert all("does not contain secureTrustedNetwork" in warning for warning in created.warnings)


# --- updates ----------------------------------------------------------------------------------------------------------


def in_former_form(cluster: Cluster) -> Cluster:
    """Return a defaulted RayCluster as earlier releases created it: one volume with the whole CA, no SAR of users."""
    former = copy.deepcopy(cluster)
    for group in (former["spec"]["headGroupSpec"], *former["spec"]["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        pod["volumes"] = [item for item in pod["volumes"] if item["name"] != "ca-key-vol"]
        del find_by_name(pod["volumes"], "ca-vol")["secret"]["items"]
        (init,) = pod["initContainers"]
        init["command"][2] = (
            init["command"][2].replace("ca/ca.crt .", "ca/* .").replace(CA_KEY_DIRECTORY + "/", "")
        )
        init["volumeMounts"] = [
            item for item in init["volumeMounts"] if item["name"] != "ca-key-vol"
        ]
    del find_by_name(head_pod(former)["containers"], "oauth-proxy")["args"][-1]
    return former


def test_entries_of_earlier_releases_are_kept_and_new_groups_get_current_ones() -> None:
    old = in_former_form(defaulted_cluster(worker()))
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"touched": "yes"}
    assert default(new, old, OAUTH_AND_MTLS) == DefaultingResult(new)
    del new["spec"]["workerGroupSpecs"][0]["template"]["spec"]["volumes"]
    new["spec"]["workerGroupSpecs"].append(worker("second"))
    result = default(new, old, OAUTH_AND_MTLS).cluster
    assert worker_pod(result) == worker_pod(old)
    assert worker_pod(result, 1) == worker_pod(defaulted_cluster(worker()))
    assert head_pod(result) == head_pod(old)


def test_pods_that_request_their_certificates_get_no_key_of_the_ca() -> None:
    injected = defaulted_cluster(worker(), settings=REQUESTS)
    assert create_errors(injected, REQUESTS) == []
    for pod in (head_pod(injected), worker_pod(injected)):
        assert names_in(pod["volumes"])[-3:] == ["ca-vol", "server-cert", "cert-request-vol"]
        assert "ca.key" not in str(pod)
        (init_container,) = pod["initContainers"]
        ray = pod["containers"][0]
        assert names_in(ray["env"]) == TLS_ENV
        assert "cert-request-vol" in names_in(init_container["volumeMounts"])
        assert "cert-request-vol" not in names_in(ray["volumeMounts"])
    assert requests_certificates(injected)
    context = find_by_name(head_pod(injected)["initContainers"], "create-cert")["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert not requests_certificates(defaulted_cluster(worker()))


def test_init_container_complies_with_restricted_if_the_ray_container_does() -> None:
    group = worker()
    ray = group["template"]["spec"]["containers"][0]
    ray["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "runAsGroup": ["no number"],
    }
    injected = defaulted_cluster(group)
    assert create_errors(injected, OAUTH_AND_MTLS) == []
    (init_container,) = worker_pod(injected)["initContainers"]
    assert init_container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
        "runAsNonRoot": True,
        "runAsUser": 1000,
    }
    (of_head,) = head_pod(injected)["initContainers"]
    assert "securityContext" not in of_head
    ray["securityContext"]["capabilities"] = {"drop": ["NET_RAW"]}
    (other,) = worker_pod(defaulted_cluster(group))["initContainers"]
    assert "securityContext" not in other


def test_cluster_of_an_earlier_release_keeps_its_init_container_without_security_context() -> None:
    old = defaulted_cluster(worker())
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    for pod in (head_pod(old), worker_pod(old)):
        pod["containers"][0]["securityContext"] = context
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"touched": "yes"}
    result = default(new, old, OAUTH_AND_MTLS)
    assert result.cluster == new
    assert result.warnings == ()


@pytest.mark.parametrize("settings", [OAUTH_AND_MTLS, REQUESTS])
def test_init_container_follows_a_change_of_the_security_context_of_ray(
    settings: InjectionSettings,
) -> None:
    old = defaulted_cluster(worker(), settings=settings)
    complying = copy.deepcopy(old)
    for pod in (head_pod(complying), worker_pod(complying)):
        pod["containers"][0]["securityContext"] = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
        }
    result = default(complying, old, settings)
    assert result.warnings == ()
    for pod in (head_pod(result.cluster), worker_pod(result.cluster)):
        (init_container,) = pod["initContainers"]
        assert init_container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
            "runAsNonRoot": True,
        }
    assert update_errors(old, result.cluster, settings) == []
    assert default(result.cluster, old, settings) == DefaultingResult(result.cluster)
    # The reverse change, by a user who edits the result.
    without = copy.deepcopy(result.cluster)
    for pod in (head_pod(without), worker_pod(without)):
        del pod["containers"][0]["securityContext"]
    assert default(without, result.cluster, settings) == DefaultingResult(old)


def test_own_security_context_of_the_init_container_is_reverted() -> None:
    old = defaulted_cluster(worker())
    new = copy.deepcopy(old)
    worker_pod(new)["initContainers"][0]["securityContext"] = {"privileged": True}
    result = default(new, old, OAUTH_AND_MTLS)
    assert result.cluster == old
    assert result.warnings == (f"{WORKER_PATH}.initContainers: create-cert: {REVERTED}",)


@pytest.mark.parametrize(
    ("before", "after"), [(OAUTH_AND_MTLS, REQUESTS), (REQUESTS, OAUTH_AND_MTLS)]
)
def test_existing_cluster_keeps_the_issuer_of_its_certificates(
    before: InjectionSettings, after: InjectionSettings
) -> None:
    old = defaulted_cluster(worker(), settings=before)
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"touched": "yes"}
    assert default(new, old, after) == DefaultingResult(new)
    assert update_errors(old, new, after) == []
    broken = copy.deepcopy(new)
    del worker_pod(broken)["volumes"]
    assert update_errors(old, broken, after)
    assert default(broken, old, after).cluster == new
    without = {**copy.deepcopy(old), "spec": {**old["spec"], "tlsOptions": {"enabled": True}}}
    kuberay = replace(after, kuberay_features=frozenset({"tlsOptions"}))
    removed = default(without, old, kuberay).cluster
    assert not worker_pod(removed).get("volumes")


def test_operator_upgrade_changes_no_existing_cluster() -> None:
    old = defaulted_cluster(worker())
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"touched": "yes"}
    upgraded = replace(
        OAUTH_AND_MTLS,
        version="v2",
        images=Images("proxy:2", "cert:2"),
        ingress_domain="elsewhere.test",
    )
    assert default(new, old, upgraded) == DefaultingResult(new)


def test_cluster_without_version_annotation_is_unchanged() -> None:
    old = ray_cluster(worker(), head={"serviceAccountName": "mine"})
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"touched": "yes"}
    assert default(new, old, OAUTH_AND_MTLS) == DefaultingResult(new)


def test_injected_parts_with_old_names_are_kept() -> None:
    old = defaulted_cluster(worker())
    del old["metadata"]["annotations"]
    expected = names_of(old)
    head_pod(old)["serviceAccountName"] = expected.proxy_service_account
    find_by_name(head_pod(old)["volumes"], "proxy-tls-secret")["secret"]["secretName"] = (
        expected.proxy_tls_secret
    )
    for pod in (head_pod(old), worker_pod(old)):
        find_by_name(pod["volumes"], "ca-vol")["secret"]["secretName"] = expected.ca_secret
    new = copy.deepcopy(old)
    del (
        head_pod(new)["serviceAccountName"],
        head_pod(new)["containers"][1],
        head_pod(new)["volumes"],
    )
    result = default(new, old, OAUTH_AND_MTLS)
    assert result.cluster == old
    (warning,) = result.warnings
    assert warning.startswith("oauth-proxy, ")


@pytest.mark.parametrize(("before", "after"), [("v0", None), ("v0", "mine"), (None, "mine")])
def test_version_annotation_is_immutable(before: str | None, after: str | None) -> None:
    result = default(ray_cluster(version=after), ray_cluster(version=before), NO_INJECTION)
    assert result.cluster["metadata"].get("annotations", {}).get(VERSION_ANNOTATION) == before
    assert ("annotations" in result.cluster["metadata"]) == (before is not None)
    warning = f"{VERSION_FIELD}; it is immutable, so the change was reverted"
    assert result.warnings == ((warning,) if after else ())  # users replace objects by their files


def _remove_proxy(cluster: Cluster) -> None:
    del head_pod(cluster)["containers"][1]


def _change_image(cluster: Cluster) -> None:
    head_pod(cluster)["containers"][1]["image"] = "evil"


def _add_argument(cluster: Cluster) -> None:
    head_pod(cluster)["containers"][1]["args"].append("--extra")


def _change_account(cluster: Cluster) -> None:
    head_pod(cluster)["serviceAccountName"] = "other"


def _remove_account(cluster: Cluster) -> None:
    del head_pod(cluster)["serviceAccountName"]


def _remove_env(cluster: Cluster) -> None:
    worker_pod(cluster)["containers"][0]["env"] = []


def _change_volume(cluster: Cluster) -> None:
    worker_pod(cluster)["volumes"][0] = {"name": "ca-vol", "emptyDir": {}}


def _change_mount(cluster: Cluster) -> None:
    worker_pod(cluster)["containers"][0]["volumeMounts"][1]["mountPath"] = "/other"


def _change_command(cluster: Cluster) -> None:
    worker_pod(cluster)["initContainers"][0]["command"] = ["true"]


def _remove_init_containers(cluster: Cluster) -> None:
    del head_pod(cluster)["initContainers"]


REVERTED = "injected by the operator, so the change was reverted"
KEPT = "injected by the operator, so they are kept"


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        (_remove_proxy, f"oauth-proxy: {KEPT}"),
        (_change_image, f"{HEAD_PATH}.containers: oauth-proxy: {REVERTED}"),
        (_add_argument, f"{HEAD_PATH}.containers: oauth-proxy: {REVERTED}"),
        (_change_account, f"{HEAD_PATH}.serviceAccountName: other: {REVERTED}"),
        (_remove_account, f"{names_of(ray_cluster(version='v1')).proxy_service_account}: {KEPT}"),
        (_remove_env, f"{', '.join(TLS_ENV)}: {KEPT}"),
        (_change_volume, f"{WORKER_PATH}.volumes: ca-vol: {REVERTED}"),
        (_change_mount, f"{WORKER_PATH}.containers[0].volumeMounts: server-cert: {REVERTED}"),
        (_change_command, f"{WORKER_PATH}.initContainers: create-cert: {REVERTED}"),
        (_remove_init_containers, f"create-cert: {KEPT}"),
    ],
)
def test_change_of_injected_part_is_reverted_with_warning(change: Any, warning: str) -> None:
    old = defaulted_cluster(
        worker(), settings=replace(OAUTH_AND_MTLS, images=Images("proxy:0", "cert:0"))
    )
    new = copy.deepcopy(old)
    change(new)
    result = default(new, old, OAUTH_AND_MTLS)
    assert result.cluster == old
    assert result.warnings == (warning,)


@pytest.mark.parametrize("settings", [OAUTH_AND_MTLS, MTLS_ONLY, OAUTH_ONLY])
@pytest.mark.parametrize("has_volumes", [True, False])
def test_manifest_that_is_applied_again_causes_no_warning(
    settings: InjectionSettings, *, has_volumes: bool
) -> None:
    """Whether the manifest contains other lists, which an apply replaces as well, or leaves them as they are."""
    manifest = ray_cluster(worker("a"), worker("b"), version="v1")
    if has_volumes:
        for pod in (head_pod(manifest), worker_pod(manifest)):
            pod["volumes"] = [{"name": "mine"}]
    old = default(copy.deepcopy(manifest), None, settings).cluster
    applied = copy.deepcopy(manifest)
    if not has_volumes:
        for pod, stored in (
            (head_pod(applied), head_pod(old)),
            (worker_pod(applied), worker_pod(old)),
        ):
            for field in ("volumes", "initContainers"):
                if field in stored:
                    pod[field] = copy.deepcopy(stored[field])
    head_pod(applied)["containers"][0]["image"] = "ray:new"
    result = default(applied, old, settings)
    assert result.warnings == ()
    head_pod(old)["containers"][0]["image"] = "ray:new"
    assert result.cluster == old


def test_manifest_that_lacks_some_entries_causes_one_warning() -> None:
    old = default(ray_cluster(worker("a"), worker("b"), version="v1"), None, OAUTH_AND_MTLS).cluster
    new = copy.deepcopy(old)
    _remove_proxy(new)
    del worker_pod(new)["containers"][0]["env"]
    result = default(new, old, OAUTH_AND_MTLS)
    assert result.cluster == old
    assert result.warnings == (f"oauth-proxy, {', '.join(TLS_ENV)}: {KEPT}",)


def test_changes_of_user_parts_are_kept() -> None:
    old = defaulted_cluster(worker())
    new = copy.deepcopy(old)
    head_pod(new)["containers"][0]["image"] = "ray:new"
    head_pod(new)["containers"].append({"name": "side"})
    worker_pod(new)["containers"][0]["env"].append({"name": "MINE", "value": "1"})
    new["spec"]["workerGroupSpecs"][0]["replicas"] = 7
    assert default(new, old, OAUTH_AND_MTLS) == DefaultingResult(new)


def test_new_worker_group_gets_injected_parts_if_head_has_them() -> None:
    old = defaulted_cluster(worker("a"))
    new = copy.deepcopy(old)
    new["spec"]["workerGroupSpecs"].insert(0, worker("b"))
    result = default(new, old, OAUTH_AND_MTLS)
    assert result == DefaultingResult(defaulted_cluster(worker("b"), worker("a")))
    without_injection = ray_cluster(worker("a"))
    added = ray_cluster(worker("a"), worker("b"))
    assert default(added, without_injection, OAUTH_AND_MTLS) == DefaultingResult(added)


def test_parts_of_disabled_injection_can_be_changed() -> None:
    old = defaulted_cluster(worker())
    new = copy.deepcopy(old)
    _remove_proxy(new)
    _remove_env(new)
    _change_account(new)
    assert default(new, old, NO_INJECTION) == DefaultingResult(new)


def test_enabling_injection_changes_no_existing_cluster() -> None:
    old = defaulted_cluster(worker(), settings=NO_INJECTION)
    assert default(copy.deepcopy(old), old, OAUTH_AND_MTLS) == DefaultingResult(old)


def test_user_sidecar_named_like_the_proxy_can_be_changed() -> None:
    old = ray_cluster(
        head={"containers": [{"name": "ray"}, {"name": "oauth-proxy", "image": "mine"}]}
    )
    new = copy.deepcopy(old)
    _change_image(new)
    assert default(new, old, OAUTH_AND_MTLS) == DefaultingResult(new)


def test_certificate_follows_renamed_head_service_without_warning() -> None:
    old = defaulted_cluster()
    new = copy.deepcopy(old)
    new["spec"]["headGroupSpec"]["headService"] = {"metadata": {"name": "other"}}
    result = default(new, old, OAUTH_AND_MTLS)
    assert result.warnings == ()
    command = head_pod(result.cluster)["initContainers"][0]["command"][2]
    assert 'DNS.6 = other.ns.svc">./domain.ext' in command
    assert (
        command.replace("other.ns.svc", "rc-head-svc.ns.svc")
        == head_pod(old)["initContainers"][0]["command"][2]
    )
    assert default(result.cluster, result.cluster, OAUTH_AND_MTLS) == DefaultingResult(
        result.cluster
    )


def test_deleting_cluster_is_unchanged() -> None:
    old = defaulted_cluster(worker())
    new = copy.deepcopy(old)
    new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    _remove_proxy(new)
    assert default(new, old, OAUTH_AND_MTLS) == DefaultingResult(new)


# --- invalid clusters -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        None,
        {},
        [],
        {"headGroupSpec": None},
        {"headGroupSpec": {"template": []}},
        {"headGroupSpec": {"template": {"spec": {"containers": "x"}}}},
        {"headGroupSpec": {"template": {"spec": {"containers": []}}}, "workerGroupSpecs": None},
        {"headGroupSpec": {"template": {"spec": {"containers": [{"env": {}}]}}}},
        {"headGroupSpec": {"template": {"spec": {"containers": [1]}}}},
        {"headGroupSpec": {"template": {"spec": {"volumes": [{"secret": "x"}]}}}},
        {"workerGroupSpecs": ["x"]},
        {"workerGroupSpecs": [{"template": {"spec": 1}}]},
        {"tlsOptions": True},
    ],
)
def test_invalid_spec_is_left_to_the_validator(spec: Any) -> None:
    cluster = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "rc"},
        "spec": spec,
    }
    result = default(cluster, None, OAUTH_AND_MTLS)
    assert result.cluster["spec"] == spec
    assert default(cluster, cluster, OAUTH_AND_MTLS).cluster["spec"] == spec
    assert default(ray_cluster(), cluster, OAUTH_AND_MTLS).cluster["spec"] == ray_cluster()["spec"]


@pytest.mark.parametrize(
    ("name", "hint"), [("n" * 54, "longer than 53 characters"), ("9lives", "not a DNS-1035 label")]
)
def test_names_ignored_by_kuberay_cause_warnings(name: str, hint: str) -> None:
    cluster = ray_cluster()
    cluster["metadata"]["name"] = name
    (warning,) = default_on_create(cluster).warnings
    assert warning.startswith("metadata.name: ")
    assert hint in warning
    assert default(cluster, cluster, OAUTH_AND_MTLS).warnings == ()
