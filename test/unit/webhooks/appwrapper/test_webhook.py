"""The objects that will be created from the components of an AppWrapper, and the labels of its creator and queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest

from cfo import operator
from cfo.api.appwrapper import podsets
from cfo.api.appwrapper.names import APPWRAPPER, USER_ID_LABEL, USER_LABEL, workload_name
from cfo.api.flux.names import FLUX_JOB
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.config.model import OperatorConfiguration
from cfo.config.part import Part
from cfo.features import KINDS as FEATURE_KINDS
from cfo.runtime import LabelSelector
from cfo.runtime.client.discovery import Resource
from cfo.runtime.client.errors import Forbidden, UnknownKind
from cfo.runtime.objects.field import Path, invalid
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object
from cfo.runtime.webhook.admission import AdmissionRequest, UserInfo
from cfo.webhooks import appwrapper as webhooks
from cfo.webhooks.appwrapper.webhook import (
    AppWrapperWebhook,
    PlannedObject,
    planned_objects,
    sanitized_label,
    set_labels,
)

if TYPE_CHECKING:
    from cfo.runtime.client.client import Client
    from cfo.runtime.webhook.worker import ReviewWorker

KINDS = (RAY_CLUSTER, FLUX_JOB)
ALICE = UserInfo("alice", "a-1")
POD_SPEC: dict[str, Any] = {"containers": [{"name": "main", "image": "busybox"}]}
SPEC: dict[str, Any] = {"headGroupSpec": {"template": {}}}


def planned(kind: str, spec: dict[str, Any], **metadata: Any) -> list[PlannedObject]:
    template = {"apiVersion": "ray.io/v1", "kind": kind, "metadata": metadata, "spec": spec}
    pod = {"apiVersion": "v1", "kind": "Pod"}
    return list(
        planned_objects(
            {"spec": {"components": [{"template": pod}, {"template": template}]}}, KINDS
        )
    )


@pytest.mark.parametrize(
    ("kind", "spec", "path"),
    [
        ("RayCluster", SPEC, "spec"),
        ("RayJob", {"rayClusterSpec": SPEC}, "spec.rayClusterSpec"),
        ("RayService", {"rayClusterConfig": SPEC}, "spec.rayClusterConfig"),
    ],
)
def test_errors_have_the_path_in_the_appwrapper(kind: str, spec: dict[str, Any], path: str) -> None:
    (cluster,) = planned(kind, spec, name="r")
    assert cluster.obj["spec"] == SPEC
    located = {
        str(field): str(cluster.located(invalid(field, 1, "x")).field)
        for field in (
            Path("spec"),
            Path("spec", "headGroupSpec", "enableIngress"),
            Path("metadata", "name"),
        )
    }
    at = "spec.components[1].template"
    assert located == {
        "spec": f"{at}.{path}",
        "spec.headGroupSpec.enableIngress": f"{at}.{path}.headGroupSpec.enableIngress",
        "metadata.name": f"{at}.metadata.name",
    }


def test_cluster_of_a_job_has_a_generated_name_and_its_labels() -> None:
    metadata = {"labels": {"a": "b", "c": 1}, "annotations": {"d": None}, "finalizers": ["x"]}
    (cluster,) = planned("RayJob", {"rayClusterSpec": SPEC}, name="r", **metadata)
    assert cluster.obj["metadata"] == {
        "generateName": "r-",
        "labels": {"a": "b"},
        "annotations": {},
    }
    (cluster,) = planned("RayCluster", SPEC, generateName="g-")
    assert cluster.obj["metadata"] == {"generateName": "g-", "labels": {}, "annotations": {}}


@pytest.mark.parametrize(
    ("kind", "spec"), [("RayJob", {"clusterSelector": {"a": "b"}}), ("RayClusterSet", SPEC)]
)
def test_component_without_a_cluster_of_its_own_has_none(kind: str, spec: dict[str, Any]) -> None:
    assert planned(kind, spec) == []


def test_ignored_annotations_are_warned_of() -> None:
    """Otherwise only the status would tell, which few people read before the AppWrapper has failed."""
    prefix = "workload.codeflare.dev.appwrapper/"
    annotations = {f"{prefix}retrylimit": "1", f"{prefix}retryLimit": "three", f"{prefix}x": 1}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": POD_SPEC}
    wrapper = {
        "metadata": {"name": "aw", "annotations": annotations},
        "spec": {"components": [{"template": pod}]},
    }
    webhook = AppWrapperWebhook(cast("Client", Served()), AppWrapperConfiguration())
    assert webhook._warnings(wrapper) == [
        f"annotation {prefix}retryLimit: 'three': must be an integer; 3 is used",
        f"annotation {prefix}retrylimit: unknown, so it is ignored; did you mean retryLimit?",
    ]


@pytest.mark.parametrize("enabled", [True, False])
def test_components_of_all_kinds_of_the_operator_are_validated(
    monkeypatch: pytest.MonkeyPatch, *, enabled: bool
) -> None:
    """The operator creates components, so for the webhooks of their kinds it is the user, with its own permissions."""
    found: list[Any] = []
    setup = webhooks.setup
    monkeypatch.setattr(webhooks, "setup", lambda *args: (found.append(args[2]), setup(*args)))
    configuration = OperatorConfiguration.from_document({"kuberay": {"enabled": enabled}})
    operator.webhook_configurations("ns", configuration)
    (validators,) = found
    kinds = {gvk for kind in FEATURE_KINDS for gvk in kind.gvks}
    kinds -= {APPWRAPPER}  # nested ones are rejected
    assert set(validators) == (kinds if enabled else kinds - {RAY_CLUSTER})


def test_objects_of_other_validated_kinds_are_planned_as_they_are() -> None:
    template = {
        "apiVersion": FLUX_JOB.api_version,
        "kind": FLUX_JOB.kind,
        "metadata": {"name": "j"},
    }
    for spec in ({"size": 1}, None):
        (found,) = planned_objects(
            {"spec": {"components": [{"template": {**template, "spec": spec}}]}}, KINDS
        )
        assert (found.obj["metadata"]["name"], found.obj["spec"]) == ("j", spec)
        assert (
            found.located(invalid(Path("spec", "x"), 1, "")).field
            == "spec.components[0].template.spec.x"
        )


@pytest.mark.parametrize(
    ("user_name", "label"),
    [
        ("", ""),
        ("plain.name_1-2", "plain.name_1-2"),
        ("system:serviceaccount:team:runner", "system_serviceaccount_team_runner"),
        ("-a.b_", "a.b"),
        (":::", ""),
        ("é" * 40, ""),
        ("a" + "é" * 40 + "b", "a"),
        ("ab\ncd", "ab_cd"),
        ("x" * 70, "x" * 63),
        ("x" * 62 + "-" + "y", "x" * 62),
    ],
)
def test_user_name_is_sanitized_to_label(user_name: str, label: str) -> None:
    assert sanitized_label(user_name) == label


@pytest.mark.parametrize(
    "metadata", [{}, {"labels": None}, {"labels": {USER_LABEL: "root", USER_ID_LABEL: "0"}}]
)
def test_creator_labels_cannot_be_chosen_by_user(metadata: dict[str, Any]) -> None:
    obj: Object = {"metadata": metadata}
    set_labels(obj, ALICE, "")
    assert obj["metadata"]["labels"] == {USER_LABEL: "alice", USER_ID_LABEL: "a-1"}


@pytest.mark.parametrize(
    ("own", "queue"), [({}, "team"), ({QUEUE_NAME_LABEL: ""}, ""), ({QUEUE_NAME_LABEL: "q"}, "q")]
)
def test_default_queue_applies_only_without_queue_label(own: dict[str, str], queue: str) -> None:
    obj: Object = {"metadata": {"labels": own}}
    set_labels(obj, ALICE, "team")
    assert obj["metadata"]["labels"][QUEUE_NAME_LABEL] == queue


class Served:
    """A client of a cluster in which all kinds are served and everything is allowed."""

    def __init__(self) -> None:
        self.mapper = self

    async def resource(self, gvk: GVK) -> Resource:
        verbs = frozenset({"create", "delete", "get"})
        return Resource(gvk=gvk, plural="things", namespaced=True, verbs=verbs)

    async def create(self, review: Object) -> Object:
        return {"status": {"allowed": True}}


class Worker:
    """Computes at once, and knows whether it computes."""

    is_running = False

    async def run(
        self, client: tuple[str, str], size: int, function: Callable[..., Any], *args: Any
    ) -> Any:
        self.is_running = True
        try:
            return function(*args)
        finally:
            self.is_running = False


async def test_templates_are_read_only_by_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large templates would block the event loop for a fifth of a second in each review."""
    worker = Worker()
    reads: list[bool] = []

    def record(spec: object) -> str:
        reads.append(worker.is_running)
        return ""

    monkeypatch.setattr(podsets, "pod_template_problems", record)
    template = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"template": {"spec": {}}},
    }
    webhook = AppWrapperWebhook(cast("Client", Served()), AppWrapperConfiguration())
    request = AdmissionRequest(namespace="ns", worker=cast("ReviewWorker", worker))
    wrapper = {"metadata": {"name": "w"}, "spec": {"components": [{"template": template}]}}
    await webhook.validate_create(wrapper, request)
    assert len(reads) > 1
    assert all(reads)


@pytest.mark.parametrize(
    ("wrapper_labels", "labels", "kinds"),
    [
        ({"team": "a"}, {"team": "a"}, []),
        ({"team": "a"}, {}, ["RayCluster", "RayCluster"]),
        ({"team": "a"}, {"team": "b"}, ["RayCluster", "RayCluster"]),
        ({}, {}, []),  # the AppWrapper itself is warned of
    ],
)
def test_component_that_the_selector_leaves_out_is_warned_of(
    wrapper_labels: dict[str, str], labels: dict[str, str], kinds: list[str]
) -> None:
    """A RayCluster without the operator would wait for the Secret of its CA; KubeRay copies labels of a RayJob."""
    components = [
        {"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": SPEC},
        {"apiVersion": "ray.io/v1", "kind": "RayJob", "spec": {"rayClusterSpec": SPEC}},
        {"apiVersion": "batch/v1", "kind": "Job", "spec": {}},
    ]
    wrapper = {
        "metadata": {"labels": wrapper_labels},
        "spec": {
            "components": [
                {"template": {**each, "metadata": {"name": "x", "labels": labels}}}
                for each in components
            ]
        },
    }
    part = Part("operators", selector=LabelSelector.of("team=a"))
    webhook = AppWrapperWebhook(cast("Client", Served()), AppWrapperConfiguration(), part=part)
    found = list(webhook._selector_warnings(wrapper))
    assert found == [
        f"spec.components[{index}].template.metadata.labels: the CodeFlare operator in namespace operators does not "
        f"reconcile this {kind}, because its labels do not match labelSelector team=a"
        for index, kind in enumerate(kinds)
    ]


class WorkloadClient:
    """Answers reads of a Workload with ``answers``, by the version of its API."""

    def __init__(self, **answers: Object | Exception | None) -> None:
        self.answers = answers
        self.keys: list[NamespacedName] = []

    async def get(self, gvk: GVK, key: NamespacedName, **_: Any) -> Object | None:
        """Return, or raise, the answer."""
        self.keys.append(key)
        answer = self.answers.get(gvk.version)
        if gvk.version not in self.answers:
            raise UnknownKind(gvk)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("answers", "can_leave"),
    [
        ({"v1beta2": {}}, False),
        ({"v1beta1": {}}, False),
        ({"v1beta2": None}, True),
        ({"v1beta1": None}, True),
        ({}, True),
        ({"v1beta2": Forbidden(403)}, False),
        ({"v1beta2": ValueError("name")}, False),
    ],
)
async def test_appwrapper_with_a_workload_stays_with_its_operator(
    answers: dict[str, Any], can_leave: bool
) -> None:
    """The operator may not have seen yet that the AppWrapper has left its queue."""
    client = WorkloadClient(**answers)
    config = AppWrapperConfiguration(kueue_integration=True)
    webhook = AppWrapperWebhook(cast("Client", client), config)
    idle = {"metadata": {"name": "w", "uid": "u"}, "spec": {"suspend": True}}
    request = AdmissionRequest(name="w", namespace="ns")
    assert await webhook.can_leave(idle, idle, request) is can_leave
    assert set(client.keys) == {NamespacedName("ns", workload_name(idle))}
    is_read = can_leave or isinstance(answers.get("v1beta2", {}), dict)
    assert bool(request.warnings) is not is_read


async def test_workload_is_read_only_of_an_appwrapper_that_could_leave_without_it() -> None:
    client = WorkloadClient(v1beta2=None)
    idle: Object = {"metadata": {"name": "w", "uid": 1}, "spec": {"suspend": True}}
    queued = {**idle, "metadata": {"labels": {QUEUE_NAME_LABEL: "lq"}}}
    request = AdmissionRequest(name="w", namespace="ns")
    webhook = AppWrapperWebhook(
        cast("Client", client), AppWrapperConfiguration(kueue_integration=True)
    )
    for old, new in ((queued, idle), (idle, queued), ({**idle, "spec": {}}, idle)):
        assert not await webhook.can_leave(old, new, request)
    plain = AppWrapperWebhook(cast("Client", client), AppWrapperConfiguration())
    assert await plain.can_leave(idle, idle, request)
    assert client.keys == []
    assert await webhook.can_leave(idle, idle, request)
    assert len(client.keys) == 1
