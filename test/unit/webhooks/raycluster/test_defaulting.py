from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from cfo.api.raycluster.naming import VERSION_ANNOTATION, names_of
from cfo.webhooks.raycluster.defaulting import Defaulted, default
from cfo.webhooks.raycluster.settings import Images, Settings
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

TLS_ENV = ["MY_POD_IP", "RAY_USE_TLS", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT"]
MARK = f"metadata.annotations[{VERSION_ANNOTATION}]: the operator sets this when a RayCluster is created"


# --- creation ---------------------------------------------------------------------------------------------------------


def test_a_new_cluster_is_marked_with_the_operators_version() -> None:
    assert default_on_create(ray_cluster()).cluster["metadata"]["annotations"] == {VERSION_ANNOTATION: "v1"}


def test_somebody_elses_version_gives_way_with_a_warning() -> None:
    made = default_on_create(ray_cluster(version="v0"))
    assert made.cluster["metadata"]["annotations"] == {VERSION_ANNOTATION: "v1"}
    assert made.warnings == (f"{MARK}, 'v0' was replaced",)


def test_the_names_of_what_is_injected_are_those_of_a_marked_cluster() -> None:
    made = defaulted_cluster(worker())
    expected = names_of(made)
    assert head_pod(made)["serviceAccountName"] == expected.proxy_service_account
    assert find_by_name(head_pod(made)["volumes"], "proxy-tls-secret")["secret"] == {
        "secretName": expected.proxy_tls_secret
    }
    for pod in (head_pod(made), worker_pod(made)):
        assert find_by_name(pod["volumes"], "ca-vol")["secret"] == {"secretName": expected.ca_secret}
    proxy = find_by_name(head_pod(made)["containers"], "oauth-proxy")
    assert proxy["env"][0]["valueFrom"]["secretKeyRef"]["name"] == expected.cookie_secret
    assert f"--openshift-service-account={expected.proxy_service_account}" in proxy["args"]


def test_no_worker_gets_a_proxy() -> None:
    made = defaulted_cluster(worker())
    assert names_in(worker_pod(made)["containers"]) == ["ray-worker"]
    assert "serviceAccountName" not in worker_pod(made)


def test_every_worker_group_gets_tls() -> None:
    made = defaulted_cluster(worker("a"), worker("b"))
    for at in (0, 1):
        pod = worker_pod(made, at)
        assert names_in(pod["containers"][0]["env"]) == TLS_ENV
        assert names_in(pod["initContainers"]) == ["create-cert"]
        assert names_in(pod["volumes"]) == ["ca-vol", "server-cert"]


def test_nothing_is_injected_where_nothing_is_asked_for() -> None:
    cluster = ray_cluster(worker())
    made = default_on_create(cluster, NO_INJECTION)
    assert made.cluster["spec"] == cluster["spec"]
    assert made.warnings == ()


def test_nothing_empty_is_added_and_nothing_empty_of_the_users_goes() -> None:
    cluster = ray_cluster(worker(), head={"containers": [{"name": "ray", "resources": {}, "env": []}]})
    cluster["spec"]["headGroupSpec"]["template"]["metadata"] = {}
    made = default_on_create(cluster).cluster
    assert made["spec"]["headGroupSpec"]["template"]["metadata"] == {}
    assert head_pod(made)["containers"][0]["resources"] == {}
    assert "metadata" not in made["spec"]["workerGroupSpecs"][0]["template"]
    for pod in (head_pod(made), worker_pod(made)):
        for container in pod["containers"][1:] + pod["initContainers"] + worker_pod(made)["containers"]:
            assert "resources" not in container
    assert default_on_create(cluster, NO_INJECTION).cluster["spec"] == cluster["spec"]


def test_the_images_come_from_the_settings() -> None:
    made = defaulted_cluster(worker(), settings=replace(OAUTH_AND_MTLS, images=Images("proxy:1", "cert:1")))
    assert find_by_name(head_pod(made)["containers"], "oauth-proxy")["image"] == "proxy:1"
    assert [pod["initContainers"][0]["image"] for pod in (head_pod(made), worker_pod(made))] == ["cert:1", "cert:1"]


def test_the_images_come_from_the_environment_where_it_names_any() -> None:
    assert Images.of({"OAUTH_PROXY_IMAGE": "a", "CERT_GENERATOR_IMAGE": "b"}) == Images("a", "b")
    assert Images.of({"OAUTH_PROXY_IMAGE": ""}) == Images()
    assert Images().oauth_proxy.startswith("registry.redhat.io/openshift4/ose-oauth-proxy@sha256:1ea6a01b")
    assert Images().cert_generator.startswith("registry.redhat.io/ubi9@sha256:770cf070")


@pytest.mark.parametrize("settings", [OAUTH_AND_MTLS, OAUTH_ONLY, MTLS_ONLY])
def test_to_inject_twice_is_to_inject_once(settings: Settings) -> None:
    first = default_on_create(ray_cluster(worker()), settings)
    again = default(first.cluster, None, settings)
    assert again == Defaulted(first.cluster)
    assert default(first.cluster, first.cluster, settings) == Defaulted(first.cluster)


def test_what_the_go_operator_injected_is_taken_for_the_same() -> None:
    made = defaulted_cluster(worker())
    for pod in (head_pod(made), worker_pod(made)):
        for container in pod["containers"][1:] + pod["initContainers"]:
            container["resources"] = {}
    assert default(made, None, OAUTH_AND_MTLS) == Defaulted(made)


def test_what_is_injected_belongs_to_the_object_alone() -> None:
    made = defaulted_cluster(worker())
    for pod in (head_pod(made), worker_pod(made)):
        for item in pod["containers"][0]["env"] + pod["containers"][0]["volumeMounts"]:
            item.clear()
    assert find_by_name(worker_pod(defaulted_cluster(worker()))["containers"][0]["env"], "RAY_USE_TLS")["value"] == "1"


# --- what of the user's gives way, and what does not ------------------------------------------------------------------


def test_the_users_own_entries_stay_where_they_are() -> None:
    mine: Cluster = {
        "containers": [
            {"name": "ray", "env": [{"name": "A", "value": "1"}], "volumeMounts": [{"name": "d", "mountPath": "/d"}]},
            {"name": "side"},
        ],
        "initContainers": [{"name": "first"}],
        "volumes": [{"name": "d", "emptyDir": {}}],
        "priorityClassName": "high",
    }
    made = default_on_create(ray_cluster(head=copy.deepcopy(mine)))
    pod = head_pod(made.cluster)
    assert made.warnings == ()
    assert names_in(pod["containers"]) == ["ray", "side", "oauth-proxy"]
    assert pod["containers"][1] == {"name": "side"}
    assert names_in(pod["containers"][0]["env"]) == ["A", *TLS_ENV]
    assert names_in(pod["containers"][0]["volumeMounts"]) == ["d", "ca-vol", "server-cert"]
    assert names_in(pod["initContainers"]) == ["first", "create-cert"]
    assert names_in(pod["volumes"]) == ["d", "proxy-tls-secret", "ca-vol", "server-cert"]
    assert pod["priorityClassName"] == "high"


@pytest.mark.parametrize(
    ("pod", "field", "name"),
    [
        ({"serviceAccountName": "mine"}, "serviceAccountName", "mine"),
        ({"volumes": [{"name": "ca-vol", "configMap": {"name": "m"}}]}, "volumes", "ca-vol"),
        ({"volumes": [{"name": "server-cert", "hostPath": {"path": "/etc"}}]}, "volumes", "server-cert"),
        ({"volumes": [{"name": "proxy-tls-secret", "emptyDir": {}}]}, "volumes", "proxy-tls-secret"),
        ({"initContainers": [{"name": "create-cert", "image": "busybox"}]}, "initContainers", "create-cert"),
        (
            {"containers": [{"name": "r", "env": [{"name": "RAY_USE_TLS", "value": "0"}]}]},
            "containers[0].env",
            "RAY_USE_TLS",
        ),
        (
            {"containers": [{"name": "r", "volumeMounts": [{"name": "ca-vol", "mountPath": "/mine"}]}]},
            "containers[0].volumeMounts",
            "ca-vol",
        ),
        ({"containers": [{"name": "r"}, {"name": "oauth-proxy", "image": "evil"}]}, "containers", "oauth-proxy"),
    ],
)
def test_what_bears_the_name_of_an_injected_part_gives_way_with_a_warning(pod: Cluster, field: str, name: str) -> None:
    made = default_on_create(ray_cluster(head=pod))
    assert made.warnings == (f"{HEAD_PATH}.{field}: {name}: gave way to what the operator injects under this name",)
    clean = default_on_create(ray_cluster(head={"containers": [{"name": "r"}]})).cluster
    if field != "serviceAccountName":
        ours, theirs = (next(iter(_field(head_pod(one), field, name))) for one in (clean, made.cluster))
        assert theirs == ours
        assert len(_field(head_pod(made.cluster), field, name)) == 1


def _field(pod: Cluster, field: str, name: str) -> list[Cluster]:
    if field.startswith("containers[0]."):
        pod, field = pod["containers"][0], field.removeprefix("containers[0].")
    return [item for item in pod[field] if item["name"] == name]


def test_workers_warnings_name_their_index() -> None:
    made = default_on_create(ray_cluster(worker("a"), worker("b", volumes=[{"name": "ca-vol", "emptyDir": {}}])))
    assert made.warnings == (
        "spec.workerGroupSpecs[1].template.spec.volumes: ca-vol: gave way to what the operator injects under this name",
    )


def test_a_second_variable_of_the_same_name_cannot_win() -> None:
    env = [{"name": "RAY_USE_TLS", "value": "1"}, {"name": "RAY_USE_TLS", "value": "0"}]
    made = default_on_create(ray_cluster(head={"containers": [{"name": "ray", "env": env}]}))
    assert find_by_name(head_pod(made.cluster)["containers"][0]["env"], "RAY_USE_TLS") == {
        "name": "RAY_USE_TLS",
        "value": "1",
    }
    assert len(made.warnings) == 1


def test_another_mount_at_the_path_of_an_injected_one_gives_way() -> None:
    mounts = [{"name": "d", "mountPath": "/home/ray/workspace/tls/"}, {"name": "e", "mountPath": "/e"}]
    made = default_on_create(ray_cluster(head={"containers": [{"name": "ray", "volumeMounts": mounts}]}))
    assert names_in(head_pod(made.cluster)["containers"][0]["volumeMounts"]) == ["server-cert", "e", "ca-vol"]
    assert made.warnings == (
        f"{HEAD_PATH}.containers[0].volumeMounts: server-cert: gave way to what the operator injects under this name",
    )


def test_a_further_mount_of_an_injected_volume_stays() -> None:
    old = defaulted_cluster()
    new = copy.deepcopy(old)
    mine = {"name": "server-cert", "mountPath": "/certificates", "readOnly": True}
    head_pod(new)["containers"][0]["volumeMounts"].append(mine)
    assert default(new, old, OAUTH_AND_MTLS) == Defaulted(new)


# --- which container runs Ray -----------------------------------------------------------------------------------------


def test_a_users_container_called_like_the_proxy_never_gets_the_settings_for_ray() -> None:
    pod = {"containers": [{"name": "oauth-proxy", "image": "mine"}, {"name": "ray", "image": "ray"}]}
    made = default_on_create(ray_cluster(worker(**copy.deepcopy(pod)), head=pod), MTLS_ONLY)
    for found in (head_pod(made.cluster), worker_pod(made.cluster)):
        assert found["containers"][0] == {"name": "oauth-proxy", "image": "mine"}
        assert names_in(found["containers"][1]["env"]) == TLS_ENV
    assert [text.partition(": ")[0] for text in made.warnings] == [
        f"{HEAD_PATH}.containers[0]",
        f"{WORKER_PATH}.containers[0]",
    ]
    assert "the settings for Ray went to 'ray': put that first" in made.warnings[0]


@pytest.mark.parametrize("image", ["mine", Images().oauth_proxy])
def test_the_injected_proxy_never_stands_where_kuberay_starts_ray(image: str) -> None:
    pod = {"containers": [{"name": "oauth-proxy", "image": image}, {"name": "ray"}, {"name": "side"}]}
    found = head_pod(default_on_create(ray_cluster(head=pod)).cluster)
    assert names_in(found["containers"]) == ["ray", "side", "oauth-proxy"]
    assert names_in(found["containers"][0]["env"]) == TLS_ENV
    assert names_in(found["containers"][2]["env"]) == ["COOKIE_SECRET"]


def test_an_edit_that_puts_the_proxy_first_is_put_right() -> None:
    old = defaulted_cluster(head={"containers": [{"name": "ray"}, {"name": "side"}]})
    new = copy.deepcopy(old)
    head_pod(new)["containers"].reverse()
    made = default(new, old, OAUTH_AND_MTLS)
    assert names_in(head_pod(made.cluster)["containers"]) == ["side", "ray", "oauth-proxy"]
    assert made.warnings[0].endswith("so the injected oauth-proxy was moved behind the others")


def test_where_the_go_operator_left_the_proxy_first_it_stays() -> None:
    old = defaulted_cluster(head={"containers": [{"name": "ray"}, {"name": "side"}]}, settings=OAUTH_ONLY)
    head_pod(old)["containers"].reverse()
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"touched": "yes"}
    assert default(new, old, OAUTH_ONLY) == Defaulted(new)


# --- KubeRay's own TLS and authentication -----------------------------------------------------------------------------


def test_where_kuberay_sees_to_tls_or_authentication_ours_is_not_injected() -> None:
    with_tls = defaulted_cluster(worker(), tlsOptions={"enabled": True})
    assert names_in(head_pod(with_tls)["containers"]) == ["ray-head", "oauth-proxy"]
    assert "initContainers" not in head_pod(with_tls)
    assert worker_pod(with_tls) == worker_pod(ray_cluster(worker()))
    with_tokens = defaulted_cluster(worker(), authOptions={"mode": "token"})
    assert names_in(head_pod(with_tokens)["containers"]) == ["ray-head"]
    assert names_in(head_pod(with_tokens)["initContainers"]) == ["create-cert"]
    assert "serviceAccountName" not in head_pod(with_tokens)


def test_turning_on_kuberays_tls_takes_ours_out() -> None:
    old = defaulted_cluster(worker(), head={"volumes": [{"name": "mine", "emptyDir": {}}]})
    new = copy.deepcopy(old)
    new["spec"]["tlsOptions"] = {"enabled": True}
    made = default(new, old, OAUTH_AND_MTLS)
    wanted = defaulted_cluster(
        worker(), head={"volumes": [{"name": "mine", "emptyDir": {}}]}, tlsOptions={"enabled": True}
    )
    assert made.cluster == wanted
    assert (
        f"{HEAD_PATH}.initContainers: create-cert: taken out, because KubeRay's own tlsOptions are used"
        in made.warnings
    )
    assert f"{WORKER_PATH}.volumes: ca-vol, server-cert: taken out, because KubeRay's own tlsOptions are used" in (
        made.warnings
    )
    assert default(made.cluster, made.cluster, OAUTH_AND_MTLS) == Defaulted(made.cluster)


def test_turning_on_kuberays_authentication_takes_the_proxy_out() -> None:
    old = defaulted_cluster()
    new = copy.deepcopy(old)
    new["spec"]["authOptions"] = {"mode": "token"}
    made = default(new, old, OAUTH_AND_MTLS)
    assert made.cluster == defaulted_cluster(authOptions={"mode": "token"})
    assert (
        f"{HEAD_PATH}.containers: oauth-proxy: taken out, because KubeRay's own authOptions are used" in made.warnings
    )


def test_turning_off_kuberays_brings_ours() -> None:
    old = defaulted_cluster(worker(), tlsOptions={"enabled": True}, authOptions={"mode": "token"})
    new = copy.deepcopy(old)
    del new["spec"]["tlsOptions"], new["spec"]["authOptions"]
    assert default(new, old, OAUTH_AND_MTLS) == Defaulted(defaulted_cluster(worker()))


# --- updates ----------------------------------------------------------------------------------------------------------


def test_another_version_or_image_of_the_operator_changes_nothing() -> None:
    old = defaulted_cluster(worker())
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"touched": "yes"}
    upgraded = replace(
        OAUTH_AND_MTLS, version="v2", images=Images("proxy:2", "cert:2"), ingress_domain="elsewhere.test"
    )
    assert default(new, old, upgraded) == Defaulted(new)


def test_a_cluster_without_the_mark_keeps_its_old_names_and_its_template() -> None:
    old = ray_cluster(worker(), head={"serviceAccountName": "mine"})
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"touched": "yes"}
    assert default(new, old, OAUTH_AND_MTLS) == Defaulted(new)


def test_a_cluster_with_injected_parts_under_old_names_keeps_them() -> None:
    old = defaulted_cluster(worker())
    del old["metadata"]["annotations"]
    expected = names_of(old)
    head_pod(old)["serviceAccountName"] = expected.proxy_service_account
    find_by_name(head_pod(old)["volumes"], "proxy-tls-secret")["secret"]["secretName"] = expected.proxy_tls_secret
    for pod in (head_pod(old), worker_pod(old)):
        find_by_name(pod["volumes"], "ca-vol")["secret"]["secretName"] = expected.ca_secret
    new = copy.deepcopy(old)
    del head_pod(new)["serviceAccountName"], head_pod(new)["containers"][1], head_pod(new)["volumes"]
    made = default(new, old, OAUTH_AND_MTLS)
    assert made.cluster == old
    assert len(made.warnings) == 4


@pytest.mark.parametrize(("before", "after"), [("v0", None), ("v0", "mine"), (None, "mine")])
def test_nobody_changes_the_mark(before: str | None, after: str | None) -> None:
    made = default(ray_cluster(version=after), ray_cluster(version=before), NO_INJECTION)
    assert made.cluster["metadata"].get("annotations", {}).get(VERSION_ANNOTATION) == before
    assert ("annotations" in made.cluster["metadata"]) == (before is not None)
    assert made.warnings == (f"{MARK}, and nobody may change it: it was put back",)


def _remove_proxy(cluster: Cluster) -> None:
    del head_pod(cluster)["containers"][1]


def _change_image(cluster: Cluster) -> None:
    head_pod(cluster)["containers"][1]["image"] = "evil"


def _add_argument(cluster: Cluster) -> None:
    head_pod(cluster)["containers"][1]["args"].append("--extra")


def _other_account(cluster: Cluster) -> None:
    head_pod(cluster)["serviceAccountName"] = "other"


def _no_account(cluster: Cluster) -> None:
    del head_pod(cluster)["serviceAccountName"]


def _no_env(cluster: Cluster) -> None:
    worker_pod(cluster)["containers"][0]["env"] = []


def _other_volume(cluster: Cluster) -> None:
    worker_pod(cluster)["volumes"][0] = {"name": "ca-vol", "emptyDir": {}}


def _other_mount(cluster: Cluster) -> None:
    worker_pod(cluster)["containers"][0]["volumeMounts"][1]["mountPath"] = "/other"


def _other_command(cluster: Cluster) -> None:
    worker_pod(cluster)["initContainers"][0]["command"] = ["true"]


def _no_init(cluster: Cluster) -> None:
    del head_pod(cluster)["initContainers"]


BACK = "injected by the operator, so it was put back"


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        (_remove_proxy, f"{HEAD_PATH}.containers: oauth-proxy: {BACK}"),
        (_change_image, f"{HEAD_PATH}.containers: oauth-proxy: {BACK}"),
        (_add_argument, f"{HEAD_PATH}.containers: oauth-proxy: {BACK}"),
        (_other_account, f"{HEAD_PATH}.serviceAccountName: other: {BACK}"),
        (
            _no_account,
            f"{HEAD_PATH}.serviceAccountName: {names_of(ray_cluster(version='v1')).proxy_service_account}: {BACK}",
        ),
        (_no_env, f"{WORKER_PATH}.containers[0].env: {', '.join(TLS_ENV)}: {BACK}"),
        (_other_volume, f"{WORKER_PATH}.volumes: ca-vol: {BACK}"),
        (_other_mount, f"{WORKER_PATH}.containers[0].volumeMounts: server-cert: {BACK}"),
        (_other_command, f"{WORKER_PATH}.initContainers: create-cert: {BACK}"),
        (_no_init, f"{HEAD_PATH}.initContainers: create-cert: {BACK}"),
    ],
)
def test_an_edit_of_an_injected_part_is_put_back_with_a_warning(change: Any, warning: str) -> None:
    old = defaulted_cluster(worker(), settings=replace(OAUTH_AND_MTLS, images=Images("proxy:0", "cert:0")))
    new = copy.deepcopy(old)
    change(new)
    made = default(new, old, OAUTH_AND_MTLS)
    assert made.cluster == old
    assert made.warnings == (warning,)


def test_the_users_own_edits_pass() -> None:
    old = defaulted_cluster(worker())
    new = copy.deepcopy(old)
    head_pod(new)["containers"][0]["image"] = "ray:new"
    head_pod(new)["containers"].append({"name": "side"})
    worker_pod(new)["containers"][0]["env"].append({"name": "MINE", "value": "1"})
    new["spec"]["workerGroupSpecs"][0]["replicas"] = 7
    assert default(new, old, OAUTH_AND_MTLS) == Defaulted(new)


def test_a_new_worker_group_gets_what_the_head_has() -> None:
    old = defaulted_cluster(worker("a"))
    new = copy.deepcopy(old)
    new["spec"]["workerGroupSpecs"].insert(0, worker("b"))
    made = default(new, old, OAUTH_AND_MTLS)
    assert made == Defaulted(defaulted_cluster(worker("b"), worker("a")))
    plain = ray_cluster(worker("a"))
    added = ray_cluster(worker("a"), worker("b"))
    assert default(added, plain, OAUTH_AND_MTLS) == Defaulted(added)


def test_with_a_concern_turned_off_its_parts_are_nobodys() -> None:
    old = defaulted_cluster(worker())
    new = copy.deepcopy(old)
    _remove_proxy(new)
    _no_env(new)
    _other_account(new)
    assert default(new, old, NO_INJECTION) == Defaulted(new)


def test_a_concern_turned_on_later_changes_no_cluster_by_itself() -> None:
    old = defaulted_cluster(worker(), settings=NO_INJECTION)
    assert default(copy.deepcopy(old), old, OAUTH_AND_MTLS) == Defaulted(old)


def test_a_users_own_sidecar_that_only_looks_injected_is_theirs_to_change() -> None:
    old = ray_cluster(head={"containers": [{"name": "ray"}, {"name": "oauth-proxy", "image": "mine"}]})
    new = copy.deepcopy(old)
    _change_image(new)
    assert default(new, old, OAUTH_AND_MTLS) == Defaulted(new)


def test_the_certificate_follows_an_edit_of_the_head_services_name_without_a_warning() -> None:
    old = defaulted_cluster()
    new = copy.deepcopy(old)
    new["spec"]["headGroupSpec"]["headService"] = {"metadata": {"name": "other"}}
    made = default(new, old, OAUTH_AND_MTLS)
    assert made.warnings == ()
    command = head_pod(made.cluster)["initContainers"][0]["command"][2]
    assert 'DNS.6 = other.ns.svc">./domain.ext' in command
    assert command.replace("other.ns.svc", "rc-head-svc.ns.svc") == head_pod(old)["initContainers"][0]["command"][2]
    assert default(made.cluster, made.cluster, OAUTH_AND_MTLS) == Defaulted(made.cluster)


def test_a_cluster_that_is_being_deleted_is_left_alone() -> None:
    old = defaulted_cluster(worker())
    new = copy.deepcopy(old)
    new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    _remove_proxy(new)
    assert default(new, old, OAUTH_AND_MTLS) == Defaulted(new)


# --- what cannot work -------------------------------------------------------------------------------------------------


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
def test_what_cannot_be_read_or_run_is_left_for_the_validator(spec: Any) -> None:
    cluster = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "rc"}, "spec": spec}
    made = default(cluster, None, OAUTH_AND_MTLS)
    assert made.cluster["spec"] == spec
    assert default(cluster, cluster, OAUTH_AND_MTLS).cluster["spec"] == spec
    assert default(ray_cluster(), cluster, OAUTH_AND_MTLS).cluster["spec"] == ray_cluster()["spec"]


@pytest.mark.parametrize(("name", "hint"), [("n" * 54, "more than 53 characters"), ("9lives", "no DNS-1035 label")])
def test_names_that_kuberay_ignores_are_warned_of(name: str, hint: str) -> None:
    cluster = ray_cluster()
    cluster["metadata"]["name"] = name
    (warning,) = default_on_create(cluster).warnings
    assert warning.startswith("metadata.name: ")
    assert hint in warning
    assert default(cluster, cluster, OAUTH_AND_MTLS).warnings == ()
