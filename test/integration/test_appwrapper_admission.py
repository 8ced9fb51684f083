"""AppWrappers on their way through an API server and the webhooks: what was recorded, and what was not."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from cfo.api.appwrapper import USER_ID_LABEL, USER_LABEL
from cfo.api.appwrapper.models import appwrapper_crd
from cfo.config import AppWrapperConfiguration
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.transport import Exchange, Transport
from cfo.runtime.manager import Manager, ManagerOptions
from cfo.runtime.objects import Object, labels_of, name_of
from cfo.runtime.webhook.admission import Operation, UserInfo
from cfo.webhooks import appwrapper
from envtest import ControlPlane
from envtest.api_client import Answer, APIClient
from test.support.appwrapper_recordings import DIFFERENCES, WEBHOOK, actions, recorded_denial, settings_of, user_of
from test.support.config_map_webhooks import OPTIONS, free_url, until
from test.support.raycluster_environment import crd
from test.support.recordings import appwrapper_cases, load_appwrapper

ADMIN = UserInfo("admin", "admin", ("system:masters",))
ALICE = UserInfo("alice", "alice-uid", ("system:authenticated",))
RECORDER = {"fieldManager": "golden-recorder"}
RBAC = "/apis/rbac.authorization.k8s.io/v1"
POD_SPEC: dict[str, Any] = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
POD: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": POD_SPEC}
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
THINGS = crd("example.com", "v1", "Thing", "things")
WRAPPED = (
    crd("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"),
    crd("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs"),
    crd("ray.io", "v1", "RayCluster", "rayclusters"),
    crd("ray.io", "v1", "RayJob", "rayjobs"),
)


def as_user(user: UserInfo) -> dict[str, str]:
    headers = {"Impersonate-User": user.username, "Impersonate-Group": user.groups[0]}
    return headers | ({"Impersonate-Uid": user.uid} if user.uid else {})


def path_of(namespace: str, name: str = "") -> str:
    return f"/apis/workload.codeflare.dev/v1beta2/namespaces/{namespace}/appwrappers" + (f"/{name}" if name else "")


def wrapper(*templates: Object, name: str = "aw") -> Object:
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": name},
        "spec": {"suspend": True, "components": [{"template": template} for template in templates]},
    }


class Guarded:
    """A control plane whose AppWrappers are guarded by the webhooks of a manager."""

    def __init__(self, plane: ControlPlane, api: APIClient, exchanges: list[Exchange]) -> None:
        self.plane = plane
        self.api = api
        self.exchanges = exchanges

    async def namespace(self, name: str = "ns") -> str:
        """Makes a namespace in which alice may make AppWrappers of pods."""
        assert (await self.api.post("/api/v1/namespaces", {"metadata": {"name": name}})).code == 201
        subjects = [{"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}]
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "alice"}
        binding = {"metadata": {"name": "alice"}, "roleRef": ref, "subjects": subjects}
        assert (await self.api.post(f"{RBAC}/namespaces/{name}/rolebindings", binding)).code == 201

        async def may() -> bool:
            attributes = {"namespace": name, "verb": "create", "resource": "pods"}
            review = {"spec": {"user": "alice", "resourceAttributes": attributes}}
            answer = await self.api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
            return bool(answer.body["status"]["allowed"])

        await until(may, "alice's rights")  # a real server learns of them with a delay
        return name

    async def create(self, obj: Object, user: UserInfo = ADMIN, namespace: str = "ns", **query: str) -> Answer:
        return await self.api.post(path_of(namespace), obj, query=RECORDER | query, headers=as_user(user))

    async def patch(self, name: str, body: Any, namespace: str = "ns", content_type: str = "json-patch+json") -> Answer:
        return await self.api.request(
            "PATCH",
            path_of(namespace, name),
            body,
            query=RECORDER,
            content_type=f"application/{content_type}",
            headers=as_user(ADMIN),
        )

    def reviews(self) -> int:
        return sum(exchange.resource.startswith("subjectaccessreviews") for exchange in self.exchanges)


@asynccontextmanager
async def guarded(config: AppWrapperConfiguration) -> AsyncIterator[Guarded]:
    exchanges: list[Exchange] = []
    async with ControlPlane.auto(crds=[appwrapper_crd(), *WRAPPED]) as plane, APIClient(plane) as api:
        rules = [
            {"apiGroups": ["workload.codeflare.dev"], "resources": ["appwrappers"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]},
        ]
        role = {"metadata": {"name": "alice"}, "rules": rules}
        assert (await api.post(f"{RBAC}/clusterroles", role)).code == 201
        async with Transport(ClientConfig.for_control_plane(plane), observe=exchanges.append) as transport:
            webhook = replace(OPTIONS, url=free_url())
            manager = Manager(transport, ManagerOptions(field_manager="codeflare-operator", webhook=webhook))
            appwrapper.setup(manager, config)
            async with manager:
                await manager.started()

                async def ready() -> bool:
                    failures = await manager.health.failures()
                    assert not failures, failures
                    return True

                async def asked() -> bool:
                    answer = await running.create(wrapper(), namespace="default", dryRun="All")
                    return answer.code == 403

                running = Guarded(plane, api, exchanges)
                await until(ready, "readiness")
                await until(asked, "the API server asks")  # a real one learns of webhooks with a delay
                yield running


@pytest.fixture
async def here() -> AsyncIterator[Guarded]:
    """One with the namespace ``ns``; in a task of its own, because a manager ends in the task in which it began."""
    made: asyncio.Queue[Guarded] = asyncio.Queue()
    over = asyncio.Event()

    async def run() -> None:
        async with guarded(AppWrapperConfiguration()) as running:
            await running.namespace()
            made.put_nowait(running)
            await over.wait()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run())
        yield await made.get()
        over.set()


# What was recorded.

SCENARIOS = ("admission-*", "inference-*", "update-*", "name-of-64", "create-unknown-kind", "component-kind-withdrawn")
CONFIGURATIONS = sorted({str(case.values[0]).partition("/")[0] for case in appwrapper_cases(*SCENARIOS)} - {"none"})


def managers(obj: Object) -> list[tuple[str, str]]:
    """Who wrote the object itself, and how."""
    return [
        (entry["manager"], entry["operation"])
        for entry in obj["metadata"].get("managedFields") or ()
        if not entry.get("subresource")
    ]


class Scenario:
    """One recording, being played."""

    def __init__(self, here: Guarded, recording: dict[str, Any]) -> None:
        self.here = here
        self.recording = recording
        self.namespace: str = recording["namespace"]

    async def play(self) -> None:
        """Plays what concerns admission. Raises AssertionError where an answer is another one."""
        await self.here.namespace(self.namespace)
        things = [do["object"] for do, _ in actions(self.recording, "create", "CustomResourceDefinition")]
        await self.here.plane.install_crds(*things)
        for do, result in actions(self.recording, "create"):
            answer = await self.here.create(do["object"], user_of(do), self.namespace)
            self.compare_creation(name_of(do["object"]), answer, result)
        for do, result in actions(self.recording, "patch"):
            answer = await self.here.patch(do["objectName"], do["patch"], self.namespace)
            self.compare(str(do["patch"]), answer, result)

    def compare_creation(self, name: str, answer: Answer, result: dict[str, Any]) -> None:
        difference = DIFFERENCES.get((self.recording["name"], name))
        if difference is not None:
            result = {"code": 403, "reason": "Forbidden", "message": f"{WEBHOOK}{difference}"}
        elif self.recording["name"] == "admission-podset-paths":
            # Nobody serves the kind that paths were recorded with: that is said, too.
            kind = DIFFERENCES[self.recording["name"], "path0"]
            errors = recorded_denial(result["message"]).removeprefix("[").removesuffix("]")
            result = {**result, "message": f"{WEBHOOK}[{kind}, {errors}]"}
        self.compare(name, answer, result)

    def compare(self, what: str, answer: Answer, result: dict[str, Any]) -> None:
        message = result.get("message") or ""
        if message.startswith(WEBHOOK):
            message = f"{WEBHOOK}{recorded_denial(message)}"
        assert (answer.code, answer.body.get("message") or "") == (result["code"], message), what
        if answer.code >= 400:
            assert answer.body["reason"] == result["reason"], what
            if "causes" in result:
                assert answer.body["details"]["causes"] == result["causes"], what
        elif "object" in result:
            recorded = result["object"]
            assert answer.body["spec"] == recorded["spec"], what
            for part in ("labels", "annotations", "generation"):
                assert answer.body["metadata"].get(part) == recorded["metadata"].get(part), what
            assert managers(answer.body) == managers(recorded), what


@pytest.mark.parametrize(
    "configuration",
    CONFIGURATIONS or [pytest.param("none", marks=pytest.mark.skip(reason="no recordings beside the repository"))],
)
async def test_the_recorded_answers(configuration: str) -> None:
    cases = [str(case.values[0]) for case in appwrapper_cases(*SCENARIOS)]
    cases = [case for case in cases if case.startswith(f"{configuration}/")]
    # What installs a kind comes last: others were recorded without it.
    cases.sort(key=lambda case: any(actions(load_appwrapper(case), "create", "CustomResourceDefinition")))
    failed: dict[str, str] = {}
    async with guarded(settings_of(load_appwrapper(cases[0]))) as here:
        for case in cases:
            try:
                await Scenario(here, load_appwrapper(case)).play()
            except AssertionError as error:
                failed[case] = str(error)
    assert not failed, "\n\n".join(f"{case}: {error}" for case, error in failed.items())


# What was not.


async def test_rights_are_those_of_whoever_asks(here: Guarded) -> None:
    assert (await here.create(wrapper(POD, name="pod"), ALICE)).code == 201
    refused = await here.create(wrapper(POD, JOB), ALICE)
    assert refused.code == 403
    text = "User alice is not authorized to create jobs in ns"
    assert refused.body["message"] == f"{WEBHOOK}spec.components[1].template: Forbidden: {text}"
    assert refused.body["details"]["causes"] == [
        {"reason": "FieldValueForbidden", "message": f"Forbidden: {text}", "field": "spec.components[1].template"}
    ]
    role = (await here.api.get(f"{RBAC}/clusterroles/alice")).body
    role["rules"].append({"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]})
    assert (await here.api.put(f"{RBAC}/clusterroles/alice", role)).code == 200

    async def allowed() -> bool:
        return (await here.create(wrapper(POD, JOB), ALICE)).code == 201

    await until(allowed, "the new right")


async def test_each_kind_is_reviewed_once(here: Guarded) -> None:
    pods = [{**POD, "metadata": {"name": f"p{number}"}} for number in range(5)]
    before = here.reviews()
    assert (await here.create(wrapper(*pods, JOB))).code == 201
    assert here.reviews() == before + 2


async def test_nothing_is_left_of_what_was_refused(here: Guarded) -> None:
    assert (await here.create(wrapper({**POD, "spec": {"container": []}}))).code == 403
    assert (await here.api.get(path_of("ns"))).body["items"] == []
    assert (await here.create(wrapper(POD), dryRun="All")).code == 201
    assert (await here.api.get(path_of("ns"))).body["items"] == []


async def test_a_kind_is_known_as_soon_as_it_is_served(here: Guarded) -> None:
    obj = wrapper(THING)
    obj["spec"]["components"][0]["podSets"] = [{"path": "template.spec.template"}]
    refused = await here.create(obj)
    assert refused.code == 403
    assert 'no matches for kind "Thing" in version "example.com/v1"' in refused.body["message"]
    await here.plane.install_crds(THINGS)
    assert (await here.create(obj)).code == 201


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}},
            "template: Forbidden: AppWrappers cannot create cluster-scoped objects such as namespaces",
        ),
        (
            {"apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview", "metadata": {"name": "r"}},
            "template: Forbidden: AppWrappers cannot create localsubjectaccessreviews, which are not stored",
        ),
        (
            {"apiVersion": "workload.codeflare.dev/v7", "kind": "AppWrapper", "metadata": {"name": "inner"}},
            "template: Forbidden: Nested AppWrappers are forbidden",
        ),
    ],
)
async def test_what_cannot_be_wrapped(here: Guarded, template: Object, text: str) -> None:
    refused = await here.create(wrapper(POD, template))
    assert (refused.code, refused.body["message"]) == (403, f"{WEBHOOK}spec.components[1].{text}")


@pytest.mark.parametrize("template", ["Pod", [POD], None, {"spec": {}}])
async def test_a_template_that_is_no_object_is_a_field_error(here: Guarded, template: Any) -> None:
    refused = await here.create(wrapper(POD, template))
    assert refused.code == 422
    assert all(cause["field"].startswith("spec.components[1]") for cause in refused.body["details"]["causes"])


async def test_the_creator_stays_who_it_was(here: Guarded) -> None:
    mine = wrapper(POD)
    mine["metadata"]["labels"] = {USER_LABEL: "root", "own": "x"}
    path = path_of("ns", "aw")
    applied = await here.api.apply(path, mine, "somebody")
    assert applied.code == 201
    creator = {USER_LABEL: labels_of(applied.body)[USER_LABEL], USER_ID_LABEL: labels_of(applied.body)[USER_ID_LABEL]}
    assert creator[USER_LABEL] != "root"
    again = await here.api.apply(path, mine, "somebody", query={"force": "true"})
    assert again.code == 403
    assert again.body["message"] == (
        f"{WEBHOOK}metadata.labels[{USER_LABEL}]: Forbidden: attempt to change immutable field"
    )
    unlabelled = copy.deepcopy(mine)
    unlabelled["metadata"]["labels"] = {"own": "y"}
    await here.api.apply(path, unlabelled, "somebody", query={"force": "true"})
    found = (await here.api.get(path)).body
    assert {USER_LABEL: labels_of(found)[USER_LABEL], USER_ID_LABEL: labels_of(found)[USER_ID_LABEL]} == creator


async def test_generated_names_fit(here: Guarded) -> None:
    obj = wrapper(POD)
    obj["metadata"] = {"generateName": "a" * 100}
    made = await here.create(obj)
    assert made.code == 201
    assert len(name_of(made.body)) == 63


async def test_a_template_is_stored_as_it_came(here: Guarded) -> None:
    template = {**JOB, "spec": {**JOB["spec"], "unknownToAnybody": {"a": [1, 1.5, None, ""]}}, "status": {"x": "<&>"}}
    assert (await here.create(wrapper(template))).code == 201
    assert (await here.api.get(path_of("ns", "aw"))).body["spec"]["components"] == [{"template": template}]


def test_the_webhooks_are_announced_as_those_of_the_go_operator() -> None:
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
