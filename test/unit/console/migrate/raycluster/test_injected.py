"""The removal of injected entries: exact for both operators, and nothing of the users."""

from __future__ import annotations

import copy

import pytest
from msgspec.structs import replace

from cfo.config.kuberay import KubeRayConfiguration
from cfo.console.migrate.raycluster.injected import clean, known_settings
from cfo.runtime.objects.unstructured import Object
from cfo.webhooks.raycluster.defaulting import default
from test.support.migration import SETTINGS, injected, user_cluster
from test.support.recordings import RAYCLUSTER_RECORDINGS, load_raycluster, observations


def without_go_defaults(cluster: Object) -> Object:
    """Remove the empty ``resources`` that Go writes into every container."""
    result = copy.deepcopy(cluster)
    spec = result["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        for container in group["template"]["spec"]["containers"]:
            if container.get("resources") == {}:
                del container["resources"]
    return result


@pytest.mark.parametrize("old_names", [False, True])
@pytest.mark.parametrize("go", [False, True])
@pytest.mark.parametrize(
    ("oauth", "mtls"), [(True, True), (True, False), (False, True), (False, False)]
)
def test_cleaning_restores_the_pod_templates_of_the_user(
    *, go: bool, old_names: bool, oauth: bool, mtls: bool
) -> None:
    user = user_cluster("rc", groups=2)
    cluster = injected(user, oauth=oauth, mtls=mtls, go=go, old_names=old_names)
    before = copy.deepcopy(cluster)
    cleaning = clean(cluster)
    assert cluster == before, "the argument was modified"
    assert without_go_defaults(cleaning.cluster)["spec"] == user["spec"]
    assert cleaning.features == {
        name for name, on in (("OAuth proxy", oauth), ("mTLS", mtls)) if on
    }
    assert bool(cleaning.removed) is (oauth or mtls)
    assert cleaning.differing == ()


def head(cluster: Object) -> Object:
    pod: Object = cluster["spec"]["headGroupSpec"]["template"]["spec"]
    return pod


def test_other_images_are_recognized() -> None:
    cluster = injected(user_cluster("rc"))
    for container in (*head(cluster)["containers"], *head(cluster)["initContainers"]):
        container["image"] = "mirror.example/other"
    assert clean(cluster).differing == ()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda pod: pod["containers"][-1]["args"].append("--skip-auth-regex=.*"),
            "head: containers oauth-proxy differs from the injected one",
        ),
        (
            lambda pod: pod["initContainers"][0]["command"].__setitem__(2, "true"),
            "head: initContainers create-cert differs from the injected one",
        ),
        (
            lambda pod: pod["volumes"][1].update(
                secret={**pod["volumes"][1]["secret"], "defaultMode": 256}
            ),
            "head: volumes ca-vol differs from the injected one",
        ),
        (
            lambda pod: pod["containers"].append(
                {"name": "sidecar", "volumeMounts": [{"name": "ca-vol", "mountPath": "/ca"}]}
            ),
            "head: container sidecar mounts the injected volume ca-vol",
        ),
        (
            lambda pod: pod["containers"][0]["env"].append({"name": "RAY_USE_TLS", "value": "0"}),
            "head: env RAY_USE_TLS is duplicated",
        ),
        (
            lambda pod: pod["containers"][0].update(args=["--node-ip=$(MY_POD_IP)"]),
            "head: container ray-head uses the injected variable MY_POD_IP",
        ),
    ],
    ids=["proxy", "command", "volume", "mount", "duplicate", "variable"],
)
def test_edited_entries_are_reported_and_kept(edit: object, message: str) -> None:
    cluster = injected(user_cluster("rc"))
    assert callable(edit)
    edit(head(cluster))
    cleaning = clean(cluster)
    assert message in cleaning.differing
    names = [item["name"] for item in (head(cleaning.cluster)["volumes"])]
    assert names, "the volumes of the feature were removed although it was edited"


def test_entries_of_the_user_with_injected_names_are_kept() -> None:
    cluster = user_cluster("rc")
    head(cluster)["initContainers"] = [
        {"name": "create-cert", "image": "mine", "command": ["make"]}
    ]
    head(cluster)["containers"][0]["env"].append({"name": "RAY_USE_TLS", "value": "1"})
    cleaning = clean(cluster)
    assert cleaning.cluster == cluster
    assert (cleaning.removed, cleaning.differing) == ((), ())


def test_service_account_of_the_user_is_kept() -> None:
    cluster = injected(user_cluster("rc"))
    head(cluster)["serviceAccountName"] = "mine"
    assert head(clean(cluster).cluster)["serviceAccountName"] == "mine"


@pytest.mark.skipif(
    not RAYCLUSTER_RECORDINGS.is_dir(), reason="no recordings next to the repository"
)
def test_recorded_clusters_of_the_go_operator_are_cleaned() -> None:
    """All recorded RayClusters, except those whose users wrote or edited entries with injected names."""
    edited = {"same-names-mtls", "head-without-containers", "oauth-proxy-last"}
    count = 0
    for path in sorted((RAYCLUSTER_RECORDINGS / "os-oauth-mtls").glob("*.yaml")):
        if path.stem in edited:
            continue
        for _, objects in observations(load_raycluster(f"os-oauth-mtls/{path.stem}")):
            for cluster in (obj for obj in objects if obj["kind"] == "RayCluster"):
                cleaning = clean(cluster)
                assert cleaning.differing == (), path
                names = str(cleaning.cluster["spec"])
                assert [
                    name
                    for name in ("create-cert", "oauth-proxy", "proxy-tls-secret")
                    if name in names
                ] == [], path
                count += 1
    assert count > 20


OIDC = {"issuerURL": "https://issuer.test", "secretName": "oidc"}


@pytest.mark.parametrize("oidc", [None, OIDC])
def test_own_proxies_are_removed(oidc: Object | None) -> None:
    config = KubeRayConfiguration.from_document({"authentication": {"enabled": True, "oidc": oidc}})
    settings = replace(SETTINGS, oauth=False, mtls=False, authentication=config.authentication)
    user = user_cluster("rc")
    cluster = default(user, None, settings).cluster
    assert "kube-rbac-proxy" in str(cluster["spec"])
    cleaning = clean(cluster, known_settings(config))
    assert (cleaning.differing, cleaning.cluster["spec"]) == ((), user["spec"])
    assert cleaning.features == {"OAuth proxy"}
    changed = KubeRayConfiguration.from_document({"authentication": {"audiences": ["other"]}})
    if oidc:
        assert clean(cluster, known_settings(changed)).differing != ()


@pytest.mark.parametrize("requests", [False, True])
def test_requested_certificates_are_removed(*, requests: bool) -> None:
    user = user_cluster("rc", groups=2)
    cluster = default(user, None, replace(SETTINGS, requests_certificates=requests)).cluster
    cleaning = clean(cluster)
    assert (cleaning.differing, cleaning.cluster["spec"]) == ((), user["spec"])
