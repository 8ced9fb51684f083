"""Admission of RayClusters through an API server: recorded cases, samples, malformed clusters, warnings."""

from __future__ import annotations

import copy
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import jsonpatch
import pytest
import yaml

from cfo.api.raycluster.names import AUTHENTICATION_CONFIG, INGRESS_CONFIG, ROUTE
from cfo.config.kuberay import KubeRayConfiguration, ProfileTable
from cfo.controllers.raycluster.platform import IngressDomain, OptionalKind, Platform
from cfo.runtime.client.client import Client
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.transport import Transport
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.unstructured import Object
from cfo.webhooks import raycluster as webhooks
from envtest.api_client import APIClient, Response
from test.support.config_map_webhooks import OPTIONS, free_url, wait_until
from test.support.planes import local_config, new_plane
from test.support.ray_clusters import head_pod, names_in, ray_cluster, worker, worker_pod
from test.support.raycluster_admission import (
    DENIED_BY_CFO,
    AdmissionReplay,
    apply_patch,
    with_crd_defaults,
)
from test.support.raycluster_environment import (
    INGRESS_CONFIG_CRD,
    OAUTH_SETTINGS,
    OPENSHIFT_CRDS,
    PLAIN_SETTINGS,
    RAY_CLUSTER_CRD,
    kuberay_config,
)
from test.support.raycluster_recordings import TESTED_CONFIGURATIONS, recorded_crds
from test.support.recordings import RAYCLUSTER_RECORDINGS, load_raycluster
from test.support.sweeps import sampled

SAMPLES = Path(__file__).parents[2] / "config" / "samples"


class Admission:
    """A user who sends RayClusters to an API server that calls the operator's webhooks."""

    def __init__(self, api: APIClient) -> None:
        self._api = api

    def _path(self, namespace: str, name: str = "", version: str = "v1") -> str:
        path = f"/apis/ray.io/{version}/namespaces/{namespace}/rayclusters"
        return path + (f"/{name}" if name else "")

    async def create_namespace(self, name: str, **labels: str) -> None:
        """Create a namespace; ``_`` in the name of a label becomes ``/``."""
        metadata = {
            "name": name,
            "labels": {key.replace("_", "/"): value for key, value in labels.items()},
        }
        response = await self._api.post("/api/v1/namespaces", {"metadata": metadata})
        assert response.code == 201, response.body

    async def create(self, obj: Object, namespace: str = "ns") -> Response:
        return await self._api.post(self._path(namespace), obj)

    async def get(self, name: str, namespace: str = "ns") -> Response:
        return await self._api.get(self._path(namespace, name))

    async def replace(self, obj: Object, namespace: str = "ns") -> Response:
        return await self._api.put(self._path(namespace, obj["metadata"]["name"]), obj)

    async def merge(
        self, name: str, patch: Any, namespace: str = "ns", *, version: str = "v1"
    ) -> Response:
        return await self._api.merge(self._path(namespace, name, version), patch)

    async def patch(
        self, name: str, patch: Any, media_type: str, namespace: str = "ns"
    ) -> Response:
        return await self._api.request(
            "PATCH", self._path(namespace, name), patch, content_type=media_type
        )

    async def delete(self, name: str, namespace: str = "ns") -> Response:
        return await self._api.delete(self._path(namespace, name))


def warnings(response: Response) -> list[str]:
    """Return the warnings of a response."""
    headers = response.headers.getall("Warning", [])  # type: ignore[attr-defined]
    return [
        re.sub(r"\\(.)", r"\1", text)
        for header in headers
        for text in re.findall(r'299 \S+ "((?:[^"\\]|\\.)*)"', header)
    ]


@asynccontextmanager
async def admission(
    config: KubeRayConfiguration,
    *crds: Object,
    version: str = "UNKNOWN",
    objects: tuple[Object, ...] = (),
) -> AsyncIterator[Admission]:
    """Run a control plane with these CRDs and the operator's webhooks next to it; yield a user of the control plane."""
    async with (
        new_plane(crds) as plane,
        Transport(local_config(plane)) as transport,
        APIClient(plane) as api,
    ):
        client = Client(transport, RESTMapper(transport), field_manager="admin")
        for obj in objects:
            await client.create(obj)
        options = replace(
            OPTIONS,
            url=free_url(),
            mutating_configuration="rayclusters",
            validating_configuration="rayclusters",
        )
        manager = Manager(transport, ManagerOptions(webhook=options))
        # the controllers, which provide this to the webhooks, do not run here
        settings = OptionalKind(manager, INGRESS_CONFIG, field_selector="metadata.name=cluster")
        domain = IngressDomain(config, settings, manager.clock)
        login = OptionalKind(manager, AUTHENTICATION_CONFIG, field_selector="metadata.name=cluster")
        platform = Platform(manager.mapper, OptionalKind(manager, ROUTE), login)
        webhook = webhooks.RayClusterWebhook(
            settings_of=AsyncMock(return_value=ProfileTable(config).strictest()),
            version=version,
            images=webhooks.Images(),
            has_oauth_server=platform.has_oauth_server,
            ingress_domain=lambda: domain.read(client),
        )
        webhooks.setup(manager, webhook)
        async with manager:
            await manager.started()

            async def is_ready() -> bool:
                failures = await manager.health.failures()
                assert not failures, failures
                return True

            await wait_until(is_ready, "readiness")
            user = Admission(api)
            await user.create_namespace("ns")
            yield user


# --- recorded cases ---------------------------------------------------------------------------------------------------


class APIServerReplay(AdmissionReplay):
    """The replay of a recording through an API server; compares its responses."""

    def __init__(self, recording: dict[str, Any], admission: Admission) -> None:
        super().__init__(recording)
        self.admission = admission

    async def replay(self) -> None:
        """Replay all steps."""
        if self.skips_webhooks:
            return  # the namespace is excluded by a selector that only the recorder's configurations have
        namespace = self.recording["namespace"]
        await self.admission.create_namespace(namespace)
        name = ""
        for step in self.recording["steps"]:
            action = step.get("do")
            if not action or "RayCluster" not in (
                action.get("kind"),
                (action.get("object") or {}).get("kind"),
            ):
                continue
            result = step.get("result") or action["result"]
            if action["op"] == "delete":
                await self.admission.delete(action["objectName"], namespace)
            elif action["op"] == "create":
                self.user, name = (
                    with_crd_defaults(action["object"]),
                    action["object"]["metadata"]["name"],
                )
                response = await self.admission.create(action["object"], namespace)
                if self.recording["name"] in DENIED_BY_CFO:
                    assert DENIED_BY_CFO[self.recording["name"]] in response.body["message"]
                    assert (response.code, response.body["reason"]) == (403, "Forbidden")
                    return
                self.compare(response, None, result)
            else:
                media_type = action.get("type") or "application/merge-patch+json"
                try:
                    apply_patch(self.state, action)
                except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
                    continue  # it patches the proxy, which is not injected here
                response = await self.admission.patch(name, action["patch"], media_type, namespace)
                self.compare(response, self.state, result)

    def compare(self, response: Response, old: Object | None, result: dict[str, Any]) -> None:
        """Compare a response with the recorded ``result``."""
        self.compared += 1
        assert response.code == result["code"], response.body
        if response.code >= 400:
            assert (response.body["reason"], response.body["message"]) == (
                result["reason"],
                result["message"],
            )
            return
        self.state = with_crd_defaults(response.body)
        if "object" in result:
            assert self.state == self.expected(result["object"], old)


@pytest.mark.skipif(
    not RAYCLUSTER_RECORDINGS.is_dir(), reason="no recordings next to the repository"
)
@pytest.mark.sweep
@pytest.mark.parametrize("configuration", TESTED_CONFIGURATIONS)
async def test_recorded_admissions_are_reproduced(configuration: str) -> None:
    every = sorted(path.stem for path in (RAYCLUSTER_RECORDINGS / configuration).glob("*.yaml"))
    cases = sampled(every, TESTED_CONFIGURATIONS.index(configuration))
    config = load_raycluster(f"{configuration}/{cases[0]}")["config"]
    compared = 0
    async with admission(
        kuberay_config(**config["kuberay"]), *recorded_crds(openshift=config["openshift"])
    ) as user:
        for case in cases:
            replay = APIServerReplay(load_raycluster(f"{configuration}/{case}"), user)
            try:
                await replay.replay()
            except AssertionError as error:
                raise AssertionError(f"{configuration}/{case}: {error}") from error
            compared += replay.compared
    assert compared > 5


# --- injection and its effects ----------------------------------------------------------------------------------------


async def test_openshift_ingress_domain_is_read_without_informer() -> None:
    settings = {
        "apiVersion": INGRESS_CONFIG.api_version,
        "kind": INGRESS_CONFIG.kind,
        "metadata": {"name": "cluster"},
        "spec": {"domain": "apps.openshift.test"},
    }
    config = kuberay_config(**{**OAUTH_SETTINGS, "ingressDomain": ""})
    async with admission(config, *OPENSHIFT_CRDS, INGRESS_CONFIG_CRD, objects=(settings,)) as user:
        created = (await user.create(ray_cluster())).body
        assert (
            "DNS.5 = rayclient-rc-ns.apps.openshift.test"
            in head_pod(created)["initContainers"][0]["command"][2]
        )


async def test_warnings_reach_the_user() -> None:
    async with admission(kuberay_config(**OAUTH_SETTINGS), *OPENSHIFT_CRDS) as user:
        created = await user.create(ray_cluster(worker(), head={"serviceAccountName": "chosen"}))
        assert created.code == 201
        (warning,) = warnings(created)
        assert warning.startswith(
            "spec.headGroupSpec.template.spec.serviceAccountName: chosen: replaced, because the operator injects "
        )
        changed = copy.deepcopy(created.body)
        changed["spec"]["headGroupSpec"]["template"]["spec"]["containers"][1]["image"] = "evil"
        worker_pod(changed)["containers"][0]["env"] = []
        response = await user.replace(changed)
        assert response.code == 200
        assert response.body["spec"] == created.body["spec"]
        assert response.body["metadata"]["generation"] == created.body["metadata"]["generation"]
        assert [warning.rpartition(": ")[2] for warning in warnings(response)] == [
            "injected by the operator, so the change was reverted",
            "injected by the operator, so they are kept",
        ]
        assert warnings(await user.merge("rc", {"metadata": {"labels": {"a": "b"}}})) == []


async def test_injected_names_contain_the_generated_name() -> None:
    async with admission(kuberay_config(**OAUTH_SETTINGS), *OPENSHIFT_CRDS) as user:
        cluster = ray_cluster()
        cluster["metadata"] = {"generateName": "my-"}
        created = (await user.create(cluster)).body
        name = created["metadata"]["name"]
        assert re.fullmatch(r"my-[a-z0-9]{5}", name)
        assert head_pod(created)["serviceAccountName"].startswith(f"{name}-oauth-proxy-")


async def test_finalizer_of_invalid_cluster_being_deleted_can_be_removed() -> None:
    async with admission(kuberay_config(**OAUTH_SETTINGS), *OPENSHIFT_CRDS) as user:
        cluster = ray_cluster()
        cluster["metadata"]["finalizers"] = ["example.com/hold"]
        created = (await user.create(cluster)).body
        await user.delete("rc")
        deleting = (await user.get("rc")).body
        del head_pod(deleting)["containers"][1]
        deleting["spec"]["headGroupSpec"]["enableIngress"] = True
        edited = await user.replace(deleting)
        assert (edited.code, warnings(edited)) == (200, [])
        assert names_in(head_pod(edited.body)["containers"]) == ["ray-head"]
        assert names_in(head_pod(created)["containers"]) == ["ray-head", "oauth-proxy"]
        finalized = await user.merge("rc", {"metadata": {"finalizers": None}})
        assert finalized.code == 200
        assert (await user.get("rc")).code == 404


def crd_with_an_older_version() -> Object:
    """Return the CRD of RayClusters with ``v1alpha1``, which has only the groups below ``spec``."""
    found = copy.deepcopy(RAY_CLUSTER_CRD)
    older = copy.deepcopy(found["spec"]["versions"][0])
    older |= {"name": "v1alpha1", "storage": False}
    any_value = {"x-kubernetes-preserve-unknown-fields": True}
    groups = {"headGroupSpec": any_value, "workerGroupSpecs": any_value}
    older["schema"]["openAPIV3Schema"]["properties"]["spec"] = {
        "type": "object",
        "properties": groups,
    }
    found["spec"]["versions"].append(older)
    return found


async def test_older_version_removes_no_fields_that_it_lacks() -> None:
    """The webhook gets the old object without them, as well, so no other rule would notice that."""
    async with admission(kuberay_config(**PLAIN_SETTINGS), crd_with_an_older_version()) as user:
        cluster = ray_cluster()
        cluster["spec"]["managedBy"] = "ray.io/kuberay-operator"
        assert (await user.create(cluster)).code == 201
        label = {"metadata": {"labels": {"a": "b"}}}
        denied = await user.merge("rc", label, version="v1alpha1")
        assert denied.code == 403
        assert "ray.io/v1alpha1 lacks spec.managedBy of this RayCluster" in denied.body["message"]
        assert (await user.merge("rc", label)).code == 200
        assert (await user.merge("rc", {"spec": {"managedBy": None}})).code == 200
        assert (await user.merge("rc", label, version="v1alpha1")).code == 200


async def test_every_sample_is_admitted() -> None:
    samples = [
        document
        for path in sorted(SAMPLES.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
        if document and document["kind"] == "RayCluster"
    ]
    assert samples
    async with admission(kuberay_config(**PLAIN_SETTINGS), RAY_CLUSTER_CRD) as user:
        for sample in samples:
            sample["metadata"]["namespace"] = "ns"
            created = await user.create(sample)
            assert created.code == 201, created.body
            assert names_in(head_pod(created.body)["initContainers"])[-1] == "create-cert"


MALFORMED: dict[str, tuple[Any, list[str]]] = {
    "ingress": (
        {"headGroupSpec": {**ray_cluster()["spec"]["headGroupSpec"], "enableIngress": True}},
        ["spec.headGroupSpec.enableIngress"],
    ),
    "no-containers": (
        ray_cluster(worker(containers=[]), head={"containers": []})["spec"],
        [
            "spec.headGroupSpec.template.spec.containers",
            "spec.workerGroupSpecs[0].template.spec.containers",
        ],
    ),
    "only-proxy": (
        ray_cluster(head={"containers": [{"name": "oauth-proxy", "image": "ray"}]})["spec"],
        ["spec.headGroupSpec.template.spec.containers"],
    ),
    "containers-not-a-list": (
        {"headGroupSpec": {"template": {"spec": {"containers": "ray"}}}},
        ["spec.headGroupSpec.template.spec.containers"],
    ),
    "n" * 64: (ray_cluster()["spec"], ["metadata.name"]),
    "empty-spec": ({}, ["spec.headGroupSpec.template.spec.containers"]),
}


async def test_malformed_clusters_are_denied_with_field_path_and_not_stored() -> None:
    async with admission(kuberay_config(**OAUTH_SETTINGS), *OPENSHIFT_CRDS) as user:
        for name, (spec, fields) in MALFORMED.items():
            response = await user.create(
                {**ray_cluster(), "metadata": {"name": name}, "spec": spec}
            )
            assert response.code == 403, (name, response.body)
            assert [cause["field"] for cause in response.body["details"]["causes"]] == fields, name
            assert all(field in response.body["message"] for field in fields)
            assert (await user.get(name)).code == 404
        assert (await user.get("")).body["items"] == []


@pytest.mark.skipif(
    not RAYCLUSTER_RECORDINGS.is_dir(), reason="no recorded CRDs next to the repository"
)
async def test_real_crd_reports_fields_of_wrong_type() -> None:
    async with admission(kuberay_config(**OAUTH_SETTINGS), *recorded_crds(openshift=True)) as user:
        cluster = ray_cluster(
            worker(), {"groupName": "w", "template": {"spec": {"containers": [{"name": 1}]}}}
        )
        for group in cluster["spec"]["workerGroupSpecs"]:
            group.update(replicas=1, minReplicas=0, maxReplicas=2, rayStartParams={})
        head_pod(cluster)["volumes"] = "x"
        response = await user.create(cluster)
        assert (response.code, response.body["reason"]) == (422, "Invalid")
        fields = {cause["field"] for cause in response.body["details"]["causes"]}
        assert "spec.headGroupSpec.template.spec.volumes" in fields
        assert "spec.workerGroupSpecs[1].template.spec.containers[0].name" in fields
