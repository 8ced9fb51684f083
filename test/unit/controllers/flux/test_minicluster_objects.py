"""Which objects a MiniCluster has, from its spec and from what exists, without a server."""

from __future__ import annotations

from typing import Any
from unittest import mock

import orjson
import pytest

from cfo.api.flux.names import MINICLUSTER_LABEL
from cfo.controllers.flux.minicluster.objects import (
    ExistingObjects,
    Objects,
    followed_job,
    main_service,
    new_job,
    no_service_pod,
    plan_of,
    possible_services,
    replaced_job,
    scripts_and_certificate,
    service_pod,
    sidecar_services,
    suspended_job,
    unwanted_services,
)
from cfo.controllers.flux.minicluster.plan import SCRIPTS_HASH_ANNOTATION
from cfo.controllers.flux.minicluster.pods import pod_template
from cfo.controllers.flux.minicluster.resources import desired_job
from cfo.runtime import GVK, JOB, SECRET, SERVICE, Entry, Object, owner_reference
from cfo.runtime.cache.entry import EntryDecoder
from cfo.runtime.client import Child, Update
from test.support.flux_environment import mini_cluster


def cluster_with(**spec: Any) -> Object:
    cluster = mini_cluster("a", **spec)
    cluster["metadata"]["uid"] = "u"
    return cluster


def container(name: str = "", *, flux: bool = False, **fields: Any) -> Object:
    return {"name": name, "image": "image", "runFlux": flux, **fields}


LEAD = container("lead", flux=True)
SIDECAR = container("web", ports=[8080])


def entry(gvk: GVK, name: str, owner: Object | None = None, **content: Any) -> Entry:
    metadata: Object = {"name": name, "namespace": "ns", "uid": f"{name}-uid"}
    if owner is not None:
        metadata["ownerReferences"] = [owner_reference(owner)]
    return EntryDecoder(gvk).decode(orjson.dumps({"metadata": metadata, **content}))


def shown(children: list[Child]) -> list[str]:
    """Return for each child whether it is present or absent, its kind, its name, and that of its alternative."""
    signs = {True: "-", False: "+"}
    texts = []
    for child in children:
        text = f"{signs[child.is_absent]}{child.gvk.kind} {child.key.name}"
        if child.fallback is not None:
            text += f" or {child.fallback.key.name}"
        texts.append(text)
    return texts


def test_service_with_a_requested_name_has_an_alternative() -> None:
    plan = plan_of(cluster_with(network={"headlessName": "net"}), None)
    assert shown(main_service(plan, ExistingObjects()).children) == ["+Service net or a"]
    assert possible_services(plan) == {"a", "net"}
    own = ExistingObjects(services={"a": entry(SERVICE, "a", plan.cluster)})
    assert shown(main_service(plan, own).children) == ["+Service a"]
    with_job = ExistingObjects(job={"metadata": {}})
    assert shown(main_service(plan, with_job).children) == ["+Service net"]


@pytest.mark.parametrize("address", ["10.0.0.1", "None", ""])
def test_service_that_changes_its_type_is_deleted_first(address: str) -> None:
    plan = plan_of(cluster_with(), None)
    stored = entry(SERVICE, "a", plan.cluster, spec={"clusterIP": address})
    objects = main_service(plan, ExistingObjects(services={"a": stored}))
    if address != "10.0.0.1":
        assert (shown(objects.children), objects.problem) == (["+Service a"], None)
        return
    assert shown(objects.children) == ["-Service a"]
    assert objects.problem == ("Creating", "Service a is being replaced.")
    kept = main_service(plan, ExistingObjects(services={"a": stored}, keep=True))
    (child,) = kept.children
    assert child.update is Update.KEEP


def test_sidecar_with_ports_has_a_service() -> None:
    plan = plan_of(cluster_with(containers=[LEAD, SIDECAR, container("quiet")]), None)
    assert shown(sidecar_services(plan, ExistingObjects()).children) == ["+Service web or a-web"]
    own = ExistingObjects(services={"a-web": entry(SERVICE, "a-web", plan.cluster)})
    assert shown(sidecar_services(plan, own).children) == ["+Service a-web"]


def test_two_services_with_one_name_are_a_problem() -> None:
    sidecars = [SIDECAR, container("web", ports=[9090])]
    objects = sidecar_services(
        plan_of(cluster_with(containers=[LEAD, *sidecars]), None), ExistingObjects()
    )
    assert objects.children == []
    assert objects.problem is not None
    assert objects.problem[0] == "NameTaken"


def test_scripts_and_certificate_are_present_until_the_job_is_foreign() -> None:
    plan = plan_of(cluster_with(), None)
    children = scripts_and_certificate(plan, ExistingObjects())
    assert [child.gvk.kind for child in children] == ["Secret", "ConfigMap"]
    (secret, config_map) = scripts_and_certificate(plan, ExistingObjects(keep=True))
    assert config_map.update is Update.KEEP
    stored = entry(SECRET, secret.key.name, plan.cluster, apiVersion="v1", kind="Secret")
    (kept, _) = scripts_and_certificate(plan, ExistingObjects(secret=stored))
    assert kept.desired == stored.object()
    assert scripts_and_certificate(plan, ExistingObjects(job={"spec": {"template": {}}})) == []


def test_job_that_has_started_keeps_the_scripts_of_another_version() -> None:
    """L3: a pod that is replaced after an upgrade must run the same scripts as its peers."""
    cluster = cluster_with(size=2, maxSize=4)
    plan = plan_of(cluster, None)
    started = desired_job(plan)
    started["status"] = {"startTime": "2026-01-01T00:00:00Z"}
    resized = {**cluster, "spec": {**cluster["spec"], "size": 3}}
    for current in (cluster, resized):
        (_, config_map) = scripts_and_certificate(
            plan_of(current, started), ExistingObjects(job=started)
        )
        assert config_map.update is Update.APPLY
    waiting = {**started, "spec": {**started["spec"], "suspend": True}, "status": {}}
    with mock.patch("cfo.controllers.flux.minicluster.scripts._text", return_value="echo new"):
        newer = plan_of(cluster, None)
        for job, update in ((started, Update.KEEP), (waiting, Update.APPLY)):
            (_, config_map) = scripts_and_certificate(newer, ExistingObjects(job=job))
            assert config_map.update is update
    del started["metadata"]["annotations"][SCRIPTS_HASH_ANNOTATION]
    (_, config_map) = scripts_and_certificate(plan, ExistingObjects(job=started))
    assert config_map.update is Update.KEEP, "created by a version that did not record its scripts"


def test_job_follows_the_spec() -> None:
    plan = plan_of(cluster_with(), None)
    assert shown([new_job(plan)]) == ["+Job a"]
    job = desired_job(plan)
    job["metadata"]["labels"] = {MINICLUSTER_LABEL: "a"}
    for child in (followed_job(plan, ExistingObjects(), job), suspended_job(plan.cluster, job)):
        assert child.current == job
        assert callable(child.update)
        assert child.update(job) == {}
    objects = replaced_job(job)
    assert shown(objects.children) == ["-Job a"]
    assert objects.problem is not None
    assert objects.children[0].gvk == JOB


def test_service_pod_exists_while_the_job_may_run() -> None:
    services = [container("db", image="db")]
    plan = plan_of(cluster_with(services=services), None)
    job = desired_job(plan)
    name = no_service_pod(plan.cluster).key.name
    assert shown([service_pod(plan, ExistingObjects(), job)]) == [f"+Pod {name}"]
    suspended = {**job, "spec": {**job["spec"], "suspend": True}}
    assert shown([service_pod(plan, ExistingObjects(), suspended)]) == [f"-Pod {name}"]
    without = plan_of(cluster_with(), None)
    assert shown([service_pod(without, ExistingObjects(), job)]) == [f"-Pod {name}"]


def test_only_own_services_are_unwanted() -> None:
    cluster = cluster_with()
    services = {name: entry(SERVICE, name, cluster) for name in ("a", "former")}
    services["foreign"] = entry(SERVICE, "foreign")
    existing = ExistingObjects(services=services)
    unwanted = unwanted_services(existing, cluster, [(SERVICE, services["a"].key)])
    assert unwanted == [(SERVICE, services["former"].key)]


def test_first_problem_counts() -> None:
    objects = Objects()
    objects.add_problem("First", "one")
    objects.add_problem("Second", "two")
    assert objects.problem == ("First", "one")


@pytest.mark.parametrize(
    ("volume", "source", "path"),
    [
        ({"csiDriver": "csi.test", "path": "/a"}, {"csi": {"driver": "csi.test"}}, "/a"),
        (
            {"csiDriver": "csi.test", "csiDriverAttributes": {"k": "v"}, "path": "/a"},
            {"csi": {"driver": "csi.test", "volumeAttributes": {"k": "v"}}},
            "/a",
        ),
        ({"secretName": "s", "path": "/a"}, {"secret": {"secretName": "s"}}, "/a"),
        ({"emptyDir": True}, {"emptyDir": {}}, "/dev/shm"),
        (
            {"emptyDir": True, "emptyDirMedium": "memory", "emptyDirSizeLimit": "1Gi"},
            {"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
            "/dev/shm",
        ),
        (
            {"hostPath": "/data", "path": "/a", "readOnly": True},
            {"hostPath": {"path": "/data", "type": "Directory"}},
            "/a",
        ),
        (
            {"configMapName": "c", "items": {"key": "file"}, "path": "/a"},
            {"configMap": {"name": "c", "items": [{"key": "key", "path": "file"}]}},
            "/a",
        ),
        ({"claimName": "p", "path": "/a"}, {"persistentVolumeClaim": {"claimName": "p"}}, "/a"),
        ({"path": "/a"}, {"emptyDir": {}}, "/a"),
    ],
)
def test_volume_of_a_container_has_its_source(volume: Object, source: Object, path: str) -> None:
    lead = container("lead", flux=True, volumes={"data": volume})
    spec = pod_template(plan_of(cluster_with(containers=[lead]), None))["spec"]
    (found,) = [each for each in spec["volumes"] if each["name"] == "data"]
    assert found == {"name": "data", **source}
    (mount,) = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "data"]
    expected = {"name": "data", "mountPath": path}
    if volume.get("readOnly"):
        expected["readOnly"] = True  # type: ignore[assignment]
    assert mount == expected


RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.mark.parametrize(
    ("of_flux", "own", "expected"),
    [
        (None, None, {}),
        (RESTRICTED, None, RESTRICTED),
        ({**RESTRICTED, "privileged": False, "procMount": "Unmasked"}, None, RESTRICTED),
        ({"privileged": True, "runAsUser": 0}, None, {}),
        ({**RESTRICTED, "capabilities": {"drop": ["NET_RAW"]}}, None, {}),
        (RESTRICTED, {"runAsUser": 5}, {"runAsUser": 5}),
    ],
)
def test_init_container_complies_with_restricted_if_the_container_that_runs_flux_does(
    of_flux: Object | None, own: Object | None, expected: Object
) -> None:
    lead = container("lead", flux=True, securityContext=of_flux)
    sidecar = container("web", securityContext=RESTRICTED)
    flux = {"container": {"securityContext": own}}
    cluster = cluster_with(containers=[sidecar, lead], flux=flux)
    (init_container,) = pod_template(plan_of(cluster, None))["spec"]["initContainers"]
    assert init_container["securityContext"] == expected
