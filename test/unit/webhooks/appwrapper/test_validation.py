"""Validation of AppWrappers in cases that were not recorded."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cfo.api.appwrapper.names import USER_LABEL
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.manifests.stack import components
from cfo.runtime.client.discovery import Resource
from cfo.runtime.objects.field import Path
from cfo.runtime.objects.unstructured import GVK, Object
from cfo.webhooks.access import Access
from cfo.webhooks.appwrapper.component_fields import component_warnings
from cfo.webhooks.appwrapper.validation import (
    change_warnings,
    component_kinds,
    create_errors,
    create_warnings,
    template_change_warnings,
    update_errors,
)

POD_SPEC: dict[str, Any] = {"containers": [{"name": "main", "image": "busybox"}]}
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": POD_SPEC,
}
POD_KIND = GVK("", "v1", "Pod")


def resource(
    gvk: GVK, plural: str, *, namespaced: bool = True, verbs: str = "create delete get"
) -> Access:
    return Access(
        Resource(gvk=gvk, plural=plural, namespaced=namespaced, verbs=frozenset(verbs.split()))
    )


ACCESS = {
    gvk: resource(gvk, plural, **options)
    for gvk, plural, options in (
        (POD_KIND, "pods", {}),
        (GVK("batch", "v1", "Job"), "jobs", {}),
        (GVK("apps", "v1", "Deployment"), "deployments", {}),
        (GVK("", "v1", "Service"), "services", {}),
        (GVK("", "v1", "PersistentVolume"), "persistentvolumes", {"namespaced": False}),
        (GVK("", "v1", "Binding"), "bindings", {"verbs": "create"}),
    )
}


def template(api_version: str, kind: str, name: str = "x", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def wrapper(*templates: Any, name: str = "aw") -> Object:
    components = [
        item if isinstance(item, dict) and "template" in item else {"template": item}
        for item in templates
    ]
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": {"components": components}}


def errors(obj: Object, access: dict[GVK, Access] | None = None) -> list[str]:
    return [str(error) for error in create_errors(obj, "ns", ACCESS if access is None else access)]


def test_appwrapper_with_one_pod_is_valid() -> None:
    assert errors(wrapper(POD)) == []
    assert errors(wrapper(POD, template("v1", "Service"))) == []


@pytest.mark.parametrize("length", [63, 64])
def test_name_must_be_a_valid_label_value(length: int) -> None:
    expected = ["metadata.name: Too long: may not be more than 63 bytes"] if length > 63 else []
    assert errors(wrapper(POD, name="a" * length)) == expected


@pytest.mark.parametrize(
    ("name", "is_refused"),
    [
        ("a" * 61, False),
        ("1abc", False),
        ("", False),
        ("a" * 62, True),
        ("a" * 63, True),
        ("my.job-1", True),
    ],
)
def test_name_must_fit_the_pod_sets_of_a_workload(name: str, is_refused: bool) -> None:
    unqueued = wrapper(POD, name=name)
    queued = copy.deepcopy(unqueued)
    queued["metadata"]["labels"] = {QUEUE_NAME_LABEL: "q"}
    message = f"because the pod sets of its Workload are named {name}-0"
    assert errors(unqueued) == []
    for obj in (unqueued, queued):
        obj["spec"]["suspend"] = True
    for found in (errors(queued), list(map(str, update_errors(unqueued, queued)))):
        assert [message in error for error in found] == [True] * is_refused
    assert update_errors(queued, queued) == []


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (None, ["template: Invalid value: must be of type object"]),
        ("Pod", ["template: Invalid value: must be of type object"]),
        ([POD], ["template: Invalid value: must be of type object"]),
        ({}, ["template.apiVersion: Required value", "template.kind: Required value"]),
        ({"apiVersion": "v1", "kind": ""}, ["template.kind: Required value"]),
        (
            {"apiVersion": 1, "kind": "Pod"},
            ["template.apiVersion: Invalid value: must be of type string"],
        ),
        ({**POD, "metadata": "p"}, ["template.metadata: Invalid value: must be of type object"]),
        (
            {**POD, "metadata": {"name": ["p"]}},
            ["template.metadata.name: Invalid value: must be of type string"],
        ),
        (
            {**POD, "metadata": {"name": "p", "ownerReferences": 5}},
            ["template.metadata.ownerReferences: Invalid value: must be of type array"],
        ),
        (
            {**POD, "metadata": {"name": "p", "ownerReferences": [None]}},
            ["template.metadata.ownerReferences[0]: Invalid value: must be of type object"],
        ),
    ],
)
def test_malformed_template_is_a_field_error(broken: Any, expected: list[str]) -> None:
    obj = wrapper(POD, {"template": broken})
    assert component_kinds(obj) == {POD_KIND}
    assert errors(obj) == [f"spec.components[1].{message}" for message in expected]


def test_appwrapper_without_components_is_invalid() -> None:
    specs: list[Object] = [{}, {"components": None}, {"components": []}]
    for spec in specs:
        assert errors({"metadata": {"name": "aw"}, "spec": spec}) == [
            "spec.components: Invalid value: components contains no podspecs"
        ]


def test_invalid_component_is_the_only_error_of_an_appwrapper_with_one() -> None:
    broken = {"template": {**POD, "spec": {"containers": "none"}}}
    (error,) = errors({"metadata": {"name": "aw"}, "spec": {"components": [broken]}})
    assert error.startswith("spec.components[0].template: Invalid value")


def warnings(obj: Object, *, counts_added_pods: bool = False) -> list[str]:
    assert errors(obj) == []
    return list(create_warnings(obj, counts_added_pods=counts_added_pods))


def test_requests_above_limits_and_fractions_of_bytes_are_admitted_with_a_warning() -> None:
    above = {"name": "main", "resources": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}}
    spec = {"containers": [above], "initContainers": [above]}
    job = template("batch/v1", "Job", template={"spec": spec})
    where = "spec.components[1].template.spec.template.spec"
    assert warnings(wrapper(POD, job)) == [
        f'{where}.{field}[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1; '
        "the API server will refuse the pods"
        for field in ("initContainers", "containers")
    ]
    above["resources"] = {"requests": {"memory": "8m"}}
    (first, _) = warnings(wrapper(job))
    where = "spec.components[0].template.spec.template.spec.initContainers[0].resources"
    rule = 'fractional byte value "8m" is invalid, must be an integer'
    assert first == f"{where}.requests[memory]: {rule}"
    spec["containers"] = [above] * 50
    assert len(warnings(wrapper(job))) == 10


def test_pod_sets_without_pods_are_admitted_with_a_warning() -> None:
    expected = [
        "spec.components: all pod sets have 0 replicas, so the AppWrapper succeeds as soon as they are created"
    ]
    job = template("batch/v1", "Job", parallelism=0, template={"spec": POD_SPEC})
    assert warnings(wrapper(job)) == expected
    assert warnings(wrapper(job, POD)) == []
    declared = {
        "template": template("v1", "Service", t={"spec": POD_SPEC}),
        "podSets": [{"path": "template.spec.t", "replicas": 0}],
    }
    assert warnings(wrapper(declared)) == expected


def test_each_component_is_validated() -> None:
    obj = wrapper(
        template("v1", "PersistentVolume"),
        template("v1", "Binding"),
        template("example.com/v1", "Thing"),
        template("workload.codeflare.dev/v1beta1", "AppWrapper"),
        {**POD, "metadata": {"name": "p", "namespace": "other"}},
        template("batch/v1", "Job", parallelism=-1, template={"spec": POD_SPEC}),
        POD,
    )
    access = {
        **ACCESS,
        GVK("example.com", "v1", "Thing"): Access(failure="the API server does not respond"),
    }
    assert errors(obj, access) == [
        (
            "spec.components[0].template: Forbidden: AppWrappers cannot create cluster-scoped objects such as "
            "persistentvolumes"
        ),
        "spec.components[1].template: Forbidden: AppWrappers cannot create bindings, which are not persisted",
        "spec.components[2].template: Internal error: the API server does not respond",
        "spec.components[3].template: Forbidden: Nested AppWrappers are forbidden",
        (
            "spec.components[4].template.metadata.namespace: Forbidden: "
            "AppWrappers cannot create objects in other namespaces"
        ),
        (
            "spec.components[5].template: Invalid value: error inferring PodSets: "
            "at path position 'template.spec.parallelism' value -1 is not between 0 and 2147483647"
        ),
        'spec.components[6].template.metadata.name: Duplicate value: "p"',
    ]


def test_negative_requests_are_refused_of_all_pods_and_containers_that_are_counted() -> None:
    requests = {"requests": {"cpu": "-1"}}
    head = {"template": {"spec": {"containers": [{"name": "head", "resources": requests}]}}}
    cluster = template(
        "ray.io/v1",
        "RayCluster",
        enableInTreeAutoscaling=True,
        autoscalerOptions={"resources": {"limits": {"memory": "-1Gi"}}},
        headGroupSpec=head,
    )
    pod = {**POD_SPEC, "overhead": {"cpu": -1}, "resources": requests}
    declared = {
        "template": template("example.com/v1", "Thing", t={"spec": pod}),
        "podSets": [{"path": "template.spec.t"}],
    }
    kinds = (GVK("ray.io", "v1", "RayCluster"), GVK("example.com", "v1", "Thing"))
    access = {kind: resource(kind, "kinds") for kind in kinds}
    rule = "must be greater than or equal to 0"
    ray = "spec.components[0].template.spec"
    thing = "spec.components[1].template.spec.t.spec"
    assert errors(wrapper(cluster, declared), access) == [
        (
            f"{ray}.headGroupSpec.template.spec.containers[0].resources.requests[cpu]: "
            f'Invalid value: "-1": {rule}'
        ),
        f'{ray}.autoscalerOptions.resources.limits[memory]: Invalid value: "-1Gi": {rule}',
        f'{thing}.resources.requests[cpu]: Invalid value: "-1": {rule}',
        f'{thing}.overhead[cpu]: Invalid value: "-1": {rule}',
    ]


def test_duplicate_names_of_different_kinds_are_valid() -> None:
    service, unnamed = (
        template("v1", "Service", name="p"),
        {**POD, "metadata": {"generateName": "p-"}},
    )
    assert errors(wrapper(POD, service, unnamed, unnamed)) == []


def test_nested_appwrappers_are_not_reviewed() -> None:
    assert component_kinds(
        wrapper(POD, POD, template("workload.codeflare.dev/v1", "AppWrapper"))
    ) == {POD_KIND}


@pytest.mark.parametrize("replicas", [-1, 2**31])
def test_declared_replicas_are_limited(replicas: int) -> None:
    pod_sets = [{"path": "template.spec.template", "replicas": replicas}]
    component = {
        "template": template("v1", "Service", template={"spec": POD_SPEC}),
        "podSets": pod_sets,
    }
    assert errors(wrapper(component)) == [
        (
            f"spec.components[0].podSets[0].replicas: Invalid value: {replicas}: "
            "must be between 0 and 2147483647, inclusive"
        )
    ]


def test_declared_pod_sets_are_formatted_as_in_go() -> None:
    job = template("batch/v1", "Job", template={"spec": POD_SPEC})
    pod_sets = [{"annotations": {"a": "<b>"}, "path": "template.spec.template", "replicas": 2}]
    assert errors(wrapper({"template": job, "podSets": pod_sets})) == [
        (
            'spec.components[0].podSets: Invalid value: [{"replicas":2,"path":"template.spec.template",'
            '"annotations":{"a":"\\u003cb\\u003e"}}]: replica count 2 differs from inferred count 1 '
            "for PodSet at path position 'template.spec.template'"
        )
    ]


def test_denial_does_not_contain_templates() -> None:
    secret = {
        **POD,
        "spec": {
            **POD_SPEC,
            "containers": [{"name": "main", "env": [{"name": "A", "value": "s3cret"}], "x": 1}],
        },
    }
    messages = errors(wrapper(*[secret] * 9))
    assert messages
    assert "s3cret" not in " ".join(messages)


class TestUpdate:
    """Updates of an AppWrapper with a Job and a Pod."""

    old = wrapper(
        {
            "template": template(
                "batch/v1", "Job", template={"spec": POD_SPEC}, parallelism=1, suspend=True
            ),
            "podSets": [{"path": "template.spec.template", "replicas": 1}],
        },
        POD,
    )

    def copy_of_old(self) -> tuple[Object, list[dict[str, Any]]]:
        new = copy.deepcopy(self.old)
        return new, new["spec"]["components"]

    def immutable_fields(self, new: Object) -> list[str]:
        return [
            str(error).removesuffix(": Forbidden: attempt to change immutable field")
            for error in update_errors(self.old, new)
        ]

    def test_refused_change_has_a_warning_with_the_remedy(self) -> None:
        new, components = self.copy_of_old()
        components[0]["podSets"][0]["replicas"] = 2
        again = "to change these fields, delete the AppWrapper, and create it again with the change"
        assert list(change_warnings(update_errors(self.old, new))) == [again]

        queued = copy.deepcopy(self.old)
        queued["metadata"]["labels"] = {QUEUE_NAME_LABEL: "a"}
        moved = copy.deepcopy(queued)
        moved["metadata"]["labels"] = {QUEUE_NAME_LABEL: "b"}
        (warning,) = change_warnings(update_errors(queued, moved))
        assert warning.endswith(
            "can be changed while spec.suspend is true and the condition QuotaReserved is not"
        )

        claimed = copy.deepcopy(self.old)
        claimed["metadata"]["labels"] = {USER_LABEL: "someone"}
        assert list(change_warnings(update_errors(self.old, claimed))) == []

    def test_warning_names_the_field_of_a_template_that_has_changed(self) -> None:
        assert template_change_warnings(self.old, self.old) == []
        new, components = self.copy_of_old()
        components[0]["template"]["spec"]["parallelism"] = 3
        components[1]["template"]["metadata"]["labels"] = {"example.com/a": "b"}
        (warning,) = template_change_warnings(self.old, new)
        assert warning.startswith(
            "templates differ first in spec.components[0].template.spec.parallelism, spec.components[1]"
        )
        old = copy.deepcopy(new)
        components[1]["template"]["metadata"]["labels"] = {"example.com/a": "c"}
        assert template_change_warnings(old, new) == [
            "templates differ first in spec.components[1].template.metadata.labels[example.com/a]"
        ]

    @pytest.mark.parametrize(("fields", "named"), [(1000, ".field7"), (1001, "")])
    def test_warning_names_no_field_among_too_many(self, fields: int, named: str) -> None:
        old, components = self.copy_of_old()
        components[0]["template"]["spec"] = {f"field{number}": 0 for number in range(fields)}
        new = copy.deepcopy(old)
        new["spec"]["components"][0]["template"]["spec"]["field7"] = 1
        assert template_change_warnings(old, new) == [
            f"templates differ first in spec.components[0].template.spec{named}"
        ]

    def test_queue_fields_are_mutable(self) -> None:
        new, components = self.copy_of_old()
        components[0]["podSetInfos"] = [{"nodeSelector": {"a": "b"}}]
        components[0]["annotations"] = {"a": "b"}
        components[0]["podSets"][0]["annotations"] = {"a": "b"}
        del components[0]["podSets"][0]["replicas"]
        new["spec"]["suspend"] = True
        new["metadata"]["labels"] = {"a": "b"}
        assert self.immutable_fields(new) == []

    @pytest.mark.parametrize("was_suspended", [False, True])
    @pytest.mark.parametrize("is_suspended", [False, True])
    def test_requirements_of_the_queue_change_only_with_the_suspension(
        self, was_suspended: bool, is_suspended: bool
    ) -> None:
        old = copy.deepcopy(self.old)
        old["spec"]["suspend"] = was_suspended
        new = copy.deepcopy(self.old)
        new["spec"]["suspend"] = is_suspended
        new["spec"]["components"][0]["podSetInfos"] = [{"nodeSelector": {"pool": "gold"}}]
        errors = update_errors(old, new)
        if was_suspended or is_suspended:
            assert errors == []
            return
        (error,) = errors
        assert error.field == "spec.components[0].podSetInfos"
        (warning,) = change_warnings(errors)
        assert warning.endswith("can be changed only together with spec.suspend")

    @pytest.mark.parametrize("queue", ["", "q", "other"])
    @pytest.mark.parametrize(
        ("was_suspended", "is_suspended", "status", "is_allowed"),
        [
            (True, True, {}, True),
            (True, True, {"conditions": [{"type": "QuotaReserved", "status": "False"}]}, True),
            (True, True, {"conditions": [{"type": "QuotaReserved", "status": "True"}]}, False),
            (True, False, {}, False),
            (False, True, {}, False),
            (False, False, {}, False),
        ],
        ids=[
            "not seen yet",
            "suspended",
            "being suspended",
            "with its resumption",
            "with its suspension",
            "running",
        ],
    )
    def test_queue_changes_only_while_nothing_runs(
        self,
        queue: str,
        was_suspended: bool,
        is_suspended: bool,
        status: dict[str, Any],
        is_allowed: bool,
    ) -> None:
        old, _ = self.copy_of_old()
        old["metadata"]["labels"] = {QUEUE_NAME_LABEL: "q" if queue != "q" else ""}
        old["spec"]["suspend"] = was_suspended
        old["status"] = status
        new, _ = self.copy_of_old()
        new["metadata"]["labels"] = {QUEUE_NAME_LABEL: queue} if queue else {}
        new["spec"]["suspend"] = is_suspended
        found = [str(error) for error in update_errors(old, new)]
        if is_allowed:
            assert found == []
            return
        (error,) = found
        assert error.startswith("metadata.labels[kueue.x-k8s.io/queue-name]: Forbidden")

    @pytest.mark.parametrize("status", ["text", {"conditions": "text"}, {"conditions": ["text"]}])
    def test_status_of_any_type_is_read(self, status: Any) -> None:
        old, _ = self.copy_of_old()
        old["spec"]["suspend"] = True
        old["status"] = status
        assert update_errors(old, copy.deepcopy(old)) == []

    @pytest.mark.parametrize("value", [1.0, True, "1", 2])
    def test_template_is_immutable(self, value: Any) -> None:
        new, components = self.copy_of_old()
        components[0]["template"]["spec"]["parallelism"] = value
        assert self.immutable_fields(new) == ["spec.components[0].template.raw"]

    def test_order_of_keys_is_not_a_change(self) -> None:
        new, components = self.copy_of_old()
        components[1]["template"] = dict(reversed(components[1]["template"].items()))
        assert self.immutable_fields(new) == []

    def test_all_changes_are_reported(self) -> None:
        new, components = self.copy_of_old()
        components[0]["podSets"] = [{"path": "template.spec", "replicas": 2}]
        components[1]["podSets"] = [{"path": "template"}]
        components[1]["template"]["x"] = 1
        new["metadata"]["labels"] = {USER_LABEL: "eve"}
        new["spec"]["managedBy"] = ""
        assert self.immutable_fields(new) == [
            "spec.components[0].podsets[0].replicas",
            "spec.components[0].podsets[0].path",
            "spec.components[1].template.raw",
            "spec.components[1].podsets",
            "metadata.labels[workload.codeflare.dev/user]",
            "spec.managedBy",
        ]


RAY_KINDS = {
    GVK("ray.io", "v1", "RayCluster"): resource(GVK("ray.io", "v1", "RayCluster"), "rayclusters"),
}
WORKERS = "template.spec.workerGroupSpecs[0]"


def autoscaled_cluster(*pod_sets: Object, queue: str = "q", **group: Any) -> Object:
    cluster = template(
        "ray.io/v1",
        "RayCluster",
        enableInTreeAutoscaling=True,
        headGroupSpec={"template": {"spec": POD_SPEC}},
        workerGroupSpecs=[{"template": {"spec": POD_SPEC}, **group}],
    )
    obj = wrapper({"template": cluster, "podSets": list(pod_sets)})
    obj["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue}
    return obj


@pytest.mark.parametrize(("queue", "is_refused"), [("q", True), ("", False)])
def test_worker_group_without_a_limit_is_refused_in_a_queue(queue: str, is_refused: bool) -> None:
    """M1: an autoscaler that can add any number of pods cannot be admitted by a queue."""
    found = errors(autoscaled_cluster(replicas=1, queue=queue), RAY_KINDS)
    message = (
        f"spec.components[0].{WORKERS}.maxReplicas: Required value: "
        "Ray's autoscaler can add pods, so the queue must know the greatest number"
    )
    assert found == ([message] if is_refused else [])


@pytest.mark.parametrize(("queue", "is_refused"), [("lq", True), ("", False)])
def test_train_job_without_pod_sets_is_refused_in_a_queue(queue: str, is_refused: bool) -> None:
    gvk = GVK("trainer.kubeflow.org", "v1alpha1", "TrainJob")
    obj = wrapper(POD, template(gvk.api_version, gvk.kind, runtimeRef={"name": "torch"}))
    obj["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue}
    found = errors(obj, {**ACCESS, gvk: resource(gvk, "trainjobs")})
    assert len(found) == is_refused
    if is_refused:
        assert found[0].startswith(
            "spec.components[1].podSets: Required value: the pod templates of a TrainJob"
        )


def test_queue_that_is_added_later_must_know_what_can_run() -> None:
    """Kueue can hold AppWrappers without a queue until they get one (``manageJobsWithoutQueueName``)."""
    old = autoscaled_cluster(replicas=1, queue="")
    new = autoscaled_cluster(replicas=1, queue="q")
    for obj in (old, new):
        obj["spec"]["suspend"] = True
    (error,) = map(str, update_errors(old, new))
    assert error.startswith(f"spec.components[0].{WORKERS}.maxReplicas: Required value: ")
    # An AppWrapper that an earlier version admitted in a queue can still be changed.
    assert update_errors(new, new) == []
    limited = [autoscaled_cluster(replicas=1, maxReplicas=5, queue=queue) for queue in ("", "q")]
    for obj in limited:
        obj["spec"]["suspend"] = True
    assert update_errors(*limited) == []


def test_worker_group_declared_with_its_replicas_is_admitted_with_a_warning() -> None:
    obj = autoscaled_cluster(
        {"path": "template.spec.headGroupSpec.template"},
        {"path": f"{WORKERS}.template", "replicas": 1},
        replicas=1,
        maxReplicas=5,
    )
    assert errors(obj, RAY_KINDS) == []
    message = (
        "spec.components[0].podSets[1].replicas: 1: 5 pods are counted, because as many can run"
    )
    assert list(create_warnings(obj, counts_added_pods=True)) == [message]
    obj["spec"]["components"][0]["podSets"][1]["replicas"] = 3
    (error,) = errors(obj, RAY_KINDS)
    assert "replica count 3 differs from inferred count 5" in error


def test_custom_resources_without_pod_sets_are_admitted_with_a_warning() -> None:
    """Such as an InferenceStack: its pods would run after the AppWrapper has released its quota."""
    stack = GVK("example.com", "v1", "Stack")
    route = GVK("gateway.networking.k8s.io", "v1", "HTTPRoute")
    templates = [template(f"{kind.group}/{kind.version}", kind.kind) for kind in (route, stack)]
    obj = wrapper(*templates, POD)
    kinds = {
        route: resource(route, "httproutes"),
        stack: resource(stack, "stacks"),
        POD_KIND: resource(POD_KIND, "pods"),
    }
    assert errors(obj, kinds) == []
    (warning,) = create_warnings(obj, counts_added_pods=False)
    assert warning.startswith(
        "spec.components[1]: no pods of the Stack are counted, because it has no podSets"
    )


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob", "RayService"])
def test_mistyped_fields_of_a_ray_component_cause_warnings(kind: str) -> None:
    """As long as the AppWrapper waits for quota, nothing else would tell."""
    group = {
        "groupName": "w",
        "replica": 2,
        "replicas": 1,
        "maxReplicas": 1,
        "rayStartParams": {"num-cpus": 1},
        "template": {"spec": POD_SPEC},
    }
    spec = {
        "headGroupSpec": {"rayStartParams": {}, "template": {"spec": POD_SPEC}},
        "workerGroupSpecs": [group, group],
        "rayVersions": "2.9",
    }
    field = {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}.get(kind, "")
    given = {field: spec, "submissionMode": "HTTPMode"} if field else spec
    obj = wrapper(template("ray.io/v1", kind, **given))
    gvk = GVK("ray.io", "v1", kind)
    assert errors(obj, {gvk: resource(gvk, f"{kind.lower()}s")}) == []
    path = ".".join(filter(None, ["spec.components[0].template.spec", field]))
    found = list(create_warnings(obj, counts_added_pods=True))
    dropped = "unknown field in KubeRay 1.7, whose value the API server drops"
    for index in (0, 1):
        where = f"{path}.workerGroupSpecs[{index}]"
        assert f"{where}.replica: {dropped}; did you mean replicas?" in found
        wrong = f"{where}.rayStartParams[num-cpus]: must be a string, or the component cannot be created"
        assert wrong in found
    assert f"{path}.rayVersions: {dropped}; did you mean rayVersion?" in found
    (same_name,) = [warning for warning in found if "is also the name of" in warning]
    assert same_name.startswith(f"{path}.workerGroupSpecs[1].groupName: 'w'")
    assert len(found) == 6


def test_mistyped_fields_of_built_in_components_cause_warnings() -> None:
    job = template("batch/v1", "Job", paralellism=1, template={"spec": POD_SPEC})
    (warning,) = warnings(wrapper(job))
    dropped = "unknown field in Kubernetes 1.36, whose value the API server drops"
    where = "spec.components[0].template.spec"
    assert warning == f"{where}.paralellism: {dropped}; did you mean parallelism?"
    job["spec"] = {"workers": 1, "template": {"spec": POD_SPEC}}
    assert warnings(wrapper(job)) == [f"{where}.workers: {dropped}"]
    deployment = template(
        "apps/v1", "Deployment", **{f"a{n}": 1 for n in range(20)}, template={"spec": POD_SPEC}
    )
    others = [copy.deepcopy(deployment) for _ in range(3)]
    for index, other in enumerate(others):
        other["metadata"] = {"name": f"d{index}"}
    assert len(warnings(wrapper(*others))) == 10, "limited, for all components together"


def test_suspended_component_causes_a_warning() -> None:
    job = template("batch/v1", "Job", suspend=True, template={"spec": POD_SPEC})
    (warning,) = warnings(wrapper(job))
    assert warning.startswith("spec.components[0].template.spec.suspend: a suspended component")
    mpi = template("kubeflow.org/v2beta1", "MPIJob", runPolicy={"suspend": True})
    (warning,) = component_warnings([mpi], Path("spec", "components"))
    assert warning.startswith("spec.components[0].template.spec.runPolicy.suspend: a suspended")


def test_fields_are_those_of_the_tested_kuberay() -> None:
    """The package ships the CRD of this release, from which the table of fields is generated."""
    version = dict(components())["KubeRay"].removeprefix("v")
    cluster = template("ray.io/v1", "RayCluster", rayVersions="2.9")
    (warning,) = component_warnings([cluster], Path("x"))
    release = version.rpartition(".")[0]
    assert f"unknown field in KubeRay {release}," in warning
