"""Admission of AppWrappers by an API server with the operator's webhooks: recorded scenarios and further cases."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from cfo.api.appwrapper.models import appwrapper_crd
from cfo.api.appwrapper.names import USER_ID_LABEL, USER_LABEL
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.config.kuberay import KubeRayConfiguration, ProfileTable
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.transport import Exchange, Transport
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.unstructured import Object, labels_of, name_of
from cfo.runtime.webhook.admission import Operation, UserInfo
from cfo.webhooks import appwrapper
from cfo.webhooks.raycluster import RayClusterWebhook
from cfo.webhooks.raycluster.injection_plan import Images
from envtest import ControlPlane
from envtest.api_client import APIClient, Response
from test.support.appwrapper_recordings import (
    DIFFERENCES,
    WEBHOOK,
    actions,
    recorded_denial,
    settings_of,
    user_of,
)
from test.support.config_map_webhooks import OPTIONS, free_url, wait_until
from test.support.raycluster_environment import crd
from test.support.recordings import appwrapper_cases, load_appwrapper

ADMIN = UserInfo("admin", "admin", ("system:masters",))
ALICE = UserInfo("alice", "alice-uid", ("system:authenticated",))
RECORDER_QUERY = {"fieldManager": "golden-recorder"}
RBAC_PATH = "/apis/rbac.authorization.k8s.io/v1"
POD_SPEC: dict[str, Any] = {
    "restartPolicy": "Never",
    "containers": [{"name": "main", "image": "busybox"}],
}
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": POD_SPEC,
}
JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j"},
    "spec": {"template": {"spec": POD_SPEC}},
}
THING: dict[str, Any] = {
    "apiVersion": "example.com/v1",
    "kind": "Thing",
    "metadata": {"name": "t"},
    "spec": {"template": {"spec": POD_SPEC}},
}
THING_CRD = crd("example.com", "v1", "Thing", "things")
COMPONENT_CRDS = (
    crd("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"),
    crd("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs"),
    crd("ray.io", "v1", "RayCluster", "rayclusters"),
    crd("ray.io", "v1", "RayJob", "rayjobs"),
)


def impersonation_headers(user: UserInfo) -> dict[str, str]:
    headers = {"Impersonate-User": user.username, "Impersonate-Group": user.groups[0]}
    return headers | ({"Impersonate-Uid": user.uid} if user.uid else {})


def path_of(namespace: str, name: str = "") -> str:
    return f"/apis/workload.codeflare.dev/v1beta2/namespaces/{namespace}/appwrappers" + (
        f"/{name}" if name else ""
    )


def wrapper(*templates: Object, name: str = "aw") -> Object:
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": name},
        "spec": {"suspend": True, "components": [{"template": template} for template in templates]},
    }


class AdmissionEnvironment:
    """A control plane whose AppWrappers are admitted by the webhooks of a running manager."""

    def __init__(self, plane: ControlPlane, api: APIClient, exchanges: list[Exchange]) -> None:
        self.plane = plane
        self.api = api
        self.exchanges = exchanges

    async def namespace(self, name: str = "ns") -> str:
        """Create a namespace in which alice is allowed to create AppWrappers and pods."""
        assert (await self.api.post("/api/v1/namespaces", {"metadata": {"name": name}})).code == 201
        subjects = [{"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}]
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "alice"}
        binding = {"metadata": {"name": "alice"}, "roleRef": ref, "subjects": subjects}
        assert (
            await self.api.post(f"{RBAC_PATH}/namespaces/{name}/rolebindings", binding)
        ).code == 201

        async def is_allowed() -> bool:
            attributes = {"namespace": name, "verb": "create", "resource": "pods"}
            review = {"spec": {"user": "alice", "resourceAttributes": attributes}}
            answer = await self.api.post(
                "/apis/authorization.k8s.io/v1/subjectaccessreviews", review
            )
            return bool(answer.body["status"]["allowed"])

        await wait_until(
            is_allowed, "alice's permissions"
        )  # a real server applies them with a delay
        return name

    async def create(
        self, obj: Object, user: UserInfo = ADMIN, namespace: str = "ns", **query: str
    ) -> Response:
        return await self.api.post(
            path_of(namespace),
            obj,
            query=RECORDER_QUERY | query,
            headers=impersonation_headers(user),
        )

    async def patch(
        self, name: str, body: Any, namespace: str = "ns", content_type: str = "json-patch+json"
    ) -> Response:
        return await self.api.request(
            "PATCH",
            path_of(namespace, name),
            body,
            query=RECORDER_QUERY,
            content_type=f"application/{content_type}",
            headers=impersonation_headers(ADMIN),
        )

    def count_access_reviews(self) -> int:
        """Return the number of SubjectAccessReviews that the webhooks have created."""
        return sum(
            exchange.resource.startswith("subjectaccessreviews") for exchange in self.exchanges
        )


@asynccontextmanager
async def start_admission_environment(
    config: AppWrapperConfiguration,
) -> AsyncIterator[AdmissionEnvironment]:
    """Run a control plane and a manager with the webhooks until the end of the block."""
    exchanges: list[Exchange] = []
    async with (
        ControlPlane.auto(crds=[appwrapper_crd(), *COMPONENT_CRDS]) as plane,
        APIClient(plane) as api,
    ):
        rules = [
            {"apiGroups": ["workload.codeflare.dev"], "resources": ["appwrappers"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]},
        ]
        role = {"metadata": {"name": "alice"}, "rules": rules}
        assert (await api.post(f"{RBAC_PATH}/clusterroles", role)).code == 201
        async with Transport(
            ClientConfig.for_control_plane(plane), observe=exchanges.append
        ) as transport:
            webhook = replace(OPTIONS, url=free_url())
            manager = Manager(
                transport, ManagerOptions(field_manager="codeflare-operator", webhook=webhook)
            )
            clusters = RayClusterWebhook(
                settings_of=AsyncMock(
                    return_value=ProfileTable(KubeRayConfiguration()).strictest()
                ),
                version="v1",
                images=Images(),
                has_oauth_server=AsyncMock(return_value=False),
                ingress_domain=AsyncMock(return_value=""),
            )
            appwrapper.setup(manager, config, {RAY_CLUSTER: clusters.submission_errors})
            async with manager:
                await manager.started()

                async def ready() -> bool:
                    failures = await manager.health.failures()
                    assert not failures, failures
                    return True

                async def is_webhook_called() -> bool:
                    answer = await environment.create(wrapper(), namespace="default", dryRun="All")
                    return answer.code == 403

                environment = AdmissionEnvironment(plane, api, exchanges)
                await wait_until(ready, "readiness")
                await wait_until(
                    is_webhook_called, "webhook calls"
                )  # a real server starts to call webhooks with a delay
                yield environment


@pytest.fixture
async def environment() -> AsyncIterator[AdmissionEnvironment]:
    """Run an environment with the namespace ``ns``.

    It has its own task, because a manager must be stopped in the task that started it.
    """
    started: asyncio.Queue[AdmissionEnvironment] = asyncio.Queue()
    stopped = asyncio.Event()

    async def run() -> None:
        async with start_admission_environment(AppWrapperConfiguration()) as environment:
            await environment.namespace()
            started.put_nowait(environment)
            await stopped.wait()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run())
        yield await started.get()
        stopped.set()


# Recorded scenarios.

SCENARIOS = (
    "admission-*",
    "inference-*",
    "update-*",
    "name-of-64",
    "create-unknown-kind",
    "component-kind-withdrawn",
)
CONFIGURATIONS = sorted(
    {str(case.values[0]).partition("/")[0] for case in appwrapper_cases(*SCENARIOS)} - {"none"}
)


def managers(obj: Object) -> list[tuple[str, str]]:
    """Return manager and operation of the managedFields entries without a subresource."""
    return [
        (entry["manager"], entry["operation"])
        for entry in obj["metadata"].get("managedFields") or ()
        if not entry.get("subresource")
    ]


class Scenario:
    """Replays one recorded scenario."""

    def __init__(self, environment: AdmissionEnvironment, recording: dict[str, Any]) -> None:
        self.environment = environment
        self.recording = recording
        self.namespace: str = recording["namespace"]

    async def replay(self) -> None:
        """Replay the steps that concern admission; raise AssertionError if a response differs from its recording."""
        await self.environment.namespace(self.namespace)
        crds = [
            action["object"]
            for action, _ in actions(self.recording, "create", "CustomResourceDefinition")
        ]
        if crds:
            await self.environment.plane.install_crds(*crds)
        for action, result in actions(self.recording, "create"):
            answer = await self.environment.create(
                action["object"], user_of(action), self.namespace
            )
            self.compare_creation(name_of(action["object"]), answer, result)
        for action, result in actions(self.recording, "patch"):
            answer = await self.environment.patch(
                action["objectName"], action["patch"], self.namespace
            )
            self.compare(str(action["patch"]), answer, result)

    def compare_creation(self, name: str, answer: Response, result: dict[str, Any]) -> None:
        difference = DIFFERENCES.get((self.recording["name"], name))
        if difference is not None:
            result = {"code": 403, "reason": "Forbidden", "message": f"{WEBHOOK}{difference}"}
        elif self.recording["name"] == "admission-podset-paths":
            # No API server serves the kind of this recording, which is reported as a further error.
            kind = DIFFERENCES[self.recording["name"], "path0"]
            errors = recorded_denial(result["message"]).removeprefix("[").removesuffix("]")
            result = {**result, "message": f"{WEBHOOK}[{kind}, {errors}]"}
        self.compare(name, answer, result)

    def compare(self, step: str, answer: Response, result: dict[str, Any]) -> None:
        message = result.get("message") or ""
        if message.startswith(WEBHOOK):
            message = f"{WEBHOOK}{recorded_denial(message)}"
        assert (answer.code, answer.body.get("message") or "") == (result["code"], message), step
        if answer.code >= 400:
            assert answer.body["reason"] == result["reason"], step
            if "causes" in result:
                assert answer.body["details"]["causes"] == result["causes"], step
        elif "object" in result:
            recorded = result["object"]
            assert answer.body["spec"] == recorded["spec"], step
            for part in ("labels", "annotations", "generation"):
                assert answer.body["metadata"].get(part) == recorded["metadata"].get(part), step
            assert managers(answer.body) == managers(recorded), step


@pytest.mark.parametrize(
    "configuration",
    CONFIGURATIONS
    or [
        pytest.param("none", marks=pytest.mark.skip(reason="no recordings next to the repository"))
    ],
)
async def test_responses_equal_recorded_responses(configuration: str) -> None:
    cases = [str(case.values[0]) for case in appwrapper_cases(*SCENARIOS)]
    cases = [case for case in cases if case.startswith(f"{configuration}/")]
    # Scenarios that install a CRD come last, because the others were recorded without it.
    cases.sort(
        key=lambda case: any(actions(load_appwrapper(case), "create", "CustomResourceDefinition"))
    )
    failures: dict[str, str] = {}
    async with start_admission_environment(settings_of(load_appwrapper(cases[0]))) as environment:
        for case in cases:
            try:
                await Scenario(environment, load_appwrapper(case)).replay()
            except AssertionError as error:
                failures[case] = str(error)
    assert not failures, "\n\n".join(f"{case}: {error}" for case, error in failures.items())


# Further cases.


async def test_raycluster_that_its_webhook_refuses_is_refused_with_the_appwrapper(
    environment: AdmissionEnvironment,
) -> None:
    containers = [{"name": "ray", "image": "ray"}]
    head = {"enableIngress": True, "template": {"spec": {"containers": containers}}}
    workers = [{"replicas": 1, "template": {"spec": {"containers": containers}}}]
    spec = {"headGroupSpec": head, "workerGroupSpecs": workers}
    cluster = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "r"},
        "spec": spec,
    }
    job = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": "r"},
        "spec": {"rayClusterSpec": spec},
    }
    answer = await environment.create(wrapper(cluster, job, POD))
    assert answer.code == 403
    message = "Invalid value: true: RayCluster with enableIngress set to true is not allowed"
    assert [(cause["field"], cause["message"]) for cause in answer.body["details"]["causes"]] == [
        ("spec.components[0].template.spec.headGroupSpec.enableIngress", message),
        ("spec.components[1].template.spec.rayClusterSpec.headGroupSpec.enableIngress", message),
    ]
    head["enableIngress"] = False
    assert (await environment.create(wrapper(cluster, job, POD))).code == 201


async def test_permissions_of_requesting_user_are_checked(
    environment: AdmissionEnvironment,
) -> None:
    assert (await environment.create(wrapper(POD, name="pod"), ALICE)).code == 201
    denied = await environment.create(wrapper(POD, JOB), ALICE)
    assert denied.code == 403
    message = "User alice is not authorized to create jobs in ns"
    assert denied.body["message"] == f"{WEBHOOK}spec.components[1].template: Forbidden: {message}"
    assert denied.body["details"]["causes"] == [
        {
            "reason": "FieldValueForbidden",
            "message": f"Forbidden: {message}",
            "field": "spec.components[1].template",
        }
    ]
    role = (await environment.api.get(f"{RBAC_PATH}/clusterroles/alice")).body
    role["rules"].append({"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]})
    assert (await environment.api.put(f"{RBAC_PATH}/clusterroles/alice", role)).code == 200

    async def allowed() -> bool:
        return (await environment.create(wrapper(POD, JOB), ALICE)).code == 201

    await wait_until(allowed, "the new permission")


async def test_access_is_reviewed_once_per_kind(environment: AdmissionEnvironment) -> None:
    pods = [{**POD, "metadata": {"name": f"p{number}"}} for number in range(5)]
    before = environment.count_access_reviews()
    assert (await environment.create(wrapper(*pods, JOB))).code == 201
    assert environment.count_access_reviews() == before + 2


async def test_denied_and_dry_run_appwrappers_are_not_stored(
    environment: AdmissionEnvironment,
) -> None:
    assert (await environment.create(wrapper({**POD, "spec": {"container": []}}))).code == 403
    assert (await environment.api.get(path_of("ns"))).body["items"] == []
    assert (await environment.create(wrapper(POD), dryRun="All")).code == 201
    assert (await environment.api.get(path_of("ns"))).body["items"] == []


async def test_kind_is_accepted_as_soon_as_it_is_served(environment: AdmissionEnvironment) -> None:
    obj = wrapper(THING)
    obj["spec"]["components"][0]["podSets"] = [{"path": "template.spec.template"}]
    denied = await environment.create(obj)
    assert denied.code == 403
    assert 'no matches for kind "Thing" in version "example.com/v1"' in denied.body["message"]
    await environment.plane.install_crds(THING_CRD)
    assert (await environment.create(obj)).code == 201


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}},
            "template: Forbidden: AppWrappers cannot create cluster-scoped objects such as namespaces",
        ),
        (
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "LocalSubjectAccessReview",
                "metadata": {"name": "r"},
            },
            "template: Forbidden: AppWrappers cannot create localsubjectaccessreviews, which are not persisted",
        ),
        (
            {
                "apiVersion": "workload.codeflare.dev/v7",
                "kind": "AppWrapper",
                "metadata": {"name": "inner"},
            },
            "template: Forbidden: Nested AppWrappers are forbidden",
        ),
    ],
)
async def test_forbidden_component_kind_is_denied(
    environment: AdmissionEnvironment, template: Object, message: str
) -> None:
    denied = await environment.create(wrapper(POD, template))
    assert (denied.code, denied.body["message"]) == (403, f"{WEBHOOK}spec.components[1].{message}")


@pytest.mark.parametrize("template", ["Pod", [POD], None, {"spec": {}}])
async def test_template_that_is_not_an_object_is_a_field_error(
    environment: AdmissionEnvironment, template: Any
) -> None:
    denied = await environment.create(wrapper(POD, template))
    assert denied.code == 422
    assert all(
        cause["field"].startswith("spec.components[1]")
        for cause in denied.body["details"]["causes"]
    )


async def test_creator_labels_are_immutable(environment: AdmissionEnvironment) -> None:
    obj = wrapper(POD)
    obj["metadata"]["labels"] = {USER_LABEL: "root", "own": "x"}
    path = path_of("ns", "aw")
    applied = await environment.api.apply(path, obj, "user")
    assert applied.code == 201
    creator = {
        USER_LABEL: labels_of(applied.body)[USER_LABEL],
        USER_ID_LABEL: labels_of(applied.body)[USER_ID_LABEL],
    }
    assert creator[USER_LABEL] != "root"
    second_apply = await environment.api.apply(path, obj, "user", query={"force": "true"})
    assert second_apply.code == 403
    assert second_apply.body["message"] == (
        f"{WEBHOOK}metadata.labels[{USER_LABEL}]: Forbidden: attempt to change immutable field"
    )
    unlabeled = copy.deepcopy(obj)
    unlabeled["metadata"]["labels"] = {"own": "y"}
    await environment.api.apply(path, unlabeled, "user", query={"force": "true"})
    found = (await environment.api.get(path)).body
    assert {
        USER_LABEL: labels_of(found)[USER_LABEL],
        USER_ID_LABEL: labels_of(found)[USER_ID_LABEL],
    } == creator


@pytest.mark.parametrize("enabled", [True, False])
async def test_creation_warns_while_the_configuration_disables_appwrappers(
    *, enabled: bool
) -> None:
    async with start_admission_environment(AppWrapperConfiguration(enabled=enabled)) as environment:
        await environment.namespace()
        response = await environment.create(wrapper(POD))
        assert response.code == 201
        assert (
            "its configuration disables them" in response.headers.get("Warning", "")
        ) is not enabled


async def test_generated_name_is_truncated_to_63_characters(
    environment: AdmissionEnvironment,
) -> None:
    obj = wrapper(POD)
    obj["metadata"] = {"generateName": "a" * 100}
    created = await environment.create(obj)
    assert created.code == 201
    assert len(name_of(created.body)) == 63


async def test_template_is_stored_unchanged(environment: AdmissionEnvironment) -> None:
    template = {
        **JOB,
        "spec": {**JOB["spec"], "unknownField": {"a": [1, 1.5, None, ""]}},
        "status": {"x": "<&>"},
    }
    assert (await environment.create(wrapper(template))).code == 201
    assert (await environment.api.get(path_of("ns", "aw"))).body["spec"]["components"] == [
        {"template": template}
    ]


def test_webhooks_have_names_and_paths_of_the_go_operator() -> None:
    manager = Manager(ClientConfig(server="https://localhost"), ManagerOptions(webhook=OPTIONS))
    appwrapper.setup(manager, AppWrapperConfiguration())
    defaulting, validating = manager.webhooks
    assert (defaulting.name, defaulting.path, defaulting.operations) == (
        "mappwrapper.kb.io",
        "/mutate-workload-codeflare-dev-v1beta2-appwrapper",
        (Operation.CREATE,),
    )
    assert (validating.name, validating.path, validating.operations) == (
        "vappwrapper.kb.io",
        "/validate-workload-codeflare-dev-v1beta2-appwrapper",
        (Operation.CREATE, Operation.UPDATE),
    )
    for webhook in manager.webhooks:
        assert (webhook.groups, webhook.versions, webhook.resources) == (
            ("workload.codeflare.dev",),
            ("v1beta2",),
            ("appwrappers",),
        )
        assert (webhook.failure_policy, webhook.side_effects) == ("Fail", "None")
