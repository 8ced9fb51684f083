"""What is wrong with AppWrappers, beyond what was recorded."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cfo.api.appwrapper import USER_LABEL
from cfo.runtime.discovery import Resource
from cfo.runtime.objects import GVK, Object
from cfo.webhooks.appwrapper.access import Access
from cfo.webhooks.appwrapper.validation import component_kinds, create_errors, update_errors

POD_SPEC: dict[str, Any] = {"containers": [{"name": "main", "image": "busybox"}]}
POD: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": POD_SPEC}
POD_KIND = GVK("", "v1", "Pod")


def resource(gvk: GVK, plural: str, *, namespaced: bool = True, verbs: str = "create delete get") -> Access:
    return Access(Resource(gvk=gvk, plural=plural, namespaced=namespaced, verbs=frozenset(verbs.split())))


ACCESS = {
    gvk: resource(gvk, plural, **how)
    for gvk, plural, how in (
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
    components = [each if isinstance(each, dict) and "template" in each else {"template": each} for each in templates]
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": {"components": components}}


def errors(obj: Object, access: dict[GVK, Access] | None = None) -> list[str]:
    return [str(error) for error in create_errors(obj, "ns", ACCESS if access is None else access)]


def test_one_pod_is_enough() -> None:
    assert errors(wrapper(POD)) == []
    assert errors(wrapper(POD, template("v1", "Service"))) == []


@pytest.mark.parametrize("length", [63, 64])
def test_a_name_must_do_as_a_label(length: int) -> None:
    told = ["metadata.name: Too long: may not be more than 63 bytes"] if length > 63 else []
    assert errors(wrapper(POD, name="a" * length)) == told


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (None, ["template: Invalid value: must be of type object"]),
        ("Pod", ["template: Invalid value: must be of type object"]),
        ([POD], ["template: Invalid value: must be of type object"]),
        ({}, ["template.apiVersion: Required value", "template.kind: Required value"]),
        ({"apiVersion": "v1", "kind": ""}, ["template.kind: Required value"]),
        ({"apiVersion": 1, "kind": "Pod"}, ["template.apiVersion: Invalid value: must be of type string"]),
        ({**POD, "metadata": "p"}, ["template.metadata: Invalid value: must be of type object"]),
        ({**POD, "metadata": {"name": ["p"]}}, ["template.metadata.name: Invalid value: must be of type string"]),
    ],
)
def test_a_template_that_is_no_object_is_a_field_error(broken: Any, told: list[str]) -> None:
    obj = wrapper(POD, {"template": broken})
    assert component_kinds(obj) == {POD_KIND}
    assert errors(obj) == [f"spec.components[1].{text}" for text in told]


def test_without_components_there_are_no_pods() -> None:
    specs: list[Object] = [{}, {"components": None}, {"components": []}]
    for spec in specs:
        assert errors({"metadata": {"name": "aw"}, "spec": spec}) == [
            "spec.components: Invalid value: components contains no podspecs"
        ]


def test_pod_sets_without_a_pod_are_refused() -> None:
    told = ["spec.components: Invalid value: components contains no pods: all podspecs have 0 replicas"]
    job = template("batch/v1", "Job", parallelism=0, template={"spec": POD_SPEC})
    assert errors(wrapper(job)) == told
    assert errors(wrapper(job, POD)) == []
    declared = {
        "template": template("v1", "Service", t={"spec": POD_SPEC}),
        "podSets": [{"path": "template.spec.t", "replicas": 0}],
    }
    assert errors(wrapper(declared)) == told


def test_each_component_is_judged() -> None:
    obj = wrapper(
        template("v1", "PersistentVolume"),
        template("v1", "Binding"),
        template("example.com/v1", "Thing"),
        template("workload.codeflare.dev/v1beta1", "AppWrapper"),
        {**POD, "metadata": {"name": "p", "namespace": "other"}},
        template("batch/v1", "Job", parallelism=-1, template={"spec": POD_SPEC}),
        POD,
    )
    access = {**ACCESS, GVK("example.com", "v1", "Thing"): Access(failure="the API server does not answer")}
    assert errors(obj, access) == [
        (
            "spec.components[0].template: Forbidden: AppWrappers cannot create cluster-scoped objects such as "
            "persistentvolumes"
        ),
        "spec.components[1].template: Forbidden: AppWrappers cannot create bindings, which are not stored",
        "spec.components[2].template: Internal error: the API server does not answer",
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


def test_the_same_name_is_another_object_of_another_kind() -> None:
    service, unnamed = template("v1", "Service", name="p"), {**POD, "metadata": {"generateName": "p-"}}
    assert errors(wrapper(POD, service, unnamed, unnamed)) == []


def test_nobody_is_asked_about_nested_appwrappers() -> None:
    assert component_kinds(wrapper(POD, POD, template("workload.codeflare.dev/v1", "AppWrapper"))) == {POD_KIND}


@pytest.mark.parametrize("replicas", [-1, 2**31])
def test_declared_replicas_have_bounds(replicas: int) -> None:
    pod_sets = [{"path": "template.spec.template", "replicas": replicas}]
    thing = {"template": template("v1", "Service", template={"spec": POD_SPEC}), "podSets": pod_sets}
    assert errors(wrapper(thing)) == [
        (
            f"spec.components[0].podSets[0].replicas: Invalid value: {replicas}: "
            "must be between 0 and 2147483647, inclusive"
        )
    ]


def test_declared_pod_sets_are_printed_as_go_prints_them() -> None:
    job = template("batch/v1", "Job", template={"spec": POD_SPEC})
    pod_sets = [{"annotations": {"a": "<b>"}, "path": "template.spec.template", "replicas": 2}]
    assert errors(wrapper({"template": job, "podSets": pod_sets})) == [
        (
            'spec.components[0].podSets: Invalid value: [{"replicas":2,"path":"template.spec.template",'
            '"annotations":{"a":"\\u003cb\\u003e"}}]: replica count 2 differs from inferred count 1 '
            "for PodSet at path position 'template.spec.template'"
        )
    ]


def test_a_denial_does_not_print_templates() -> None:
    secret = {
        **POD,
        "spec": {**POD_SPEC, "containers": [{"name": "main", "env": [{"name": "A", "value": "s3cret"}], "x": 1}]},
    }
    told = errors(wrapper(*[secret] * 9))
    assert told
    assert "s3cret" not in " ".join(told)


class TestUpdate:
    old = wrapper(
        {
            "template": template("batch/v1", "Job", template={"spec": POD_SPEC}, parallelism=1, suspend=True),
            "podSets": [{"path": "template.spec.template", "replicas": 1}],
        },
        POD,
    )

    def changed(self) -> tuple[Object, list[dict[str, Any]]]:
        new = copy.deepcopy(self.old)
        return new, new["spec"]["components"]

    def told(self, new: Object) -> list[str]:
        return [
            str(error).removesuffix(": Forbidden: attempt to change immutable field")
            for error in update_errors(self.old, new)
        ]

    def test_queues_suspend_and_inject(self) -> None:
        new, components = self.changed()
        components[0]["podSetInfos"] = [{"nodeSelector": {"a": "b"}}]
        components[0]["annotations"] = {"a": "b"}
        components[0]["podSets"][0]["annotations"] = {"a": "b"}
        del components[0]["podSets"][0]["replicas"]
        new["spec"]["suspend"] = True
        new["metadata"]["labels"] = {"a": "b"}
        assert self.told(new) == []

    @pytest.mark.parametrize("value", [1.0, True, "1", 2])
    def test_a_template_stays_as_it_is(self, value: Any) -> None:
        new, components = self.changed()
        components[0]["template"]["spec"]["parallelism"] = value
        assert self.told(new) == ["spec.components[0].template.raw"]

    def test_the_order_of_keys_is_no_change(self) -> None:
        new, components = self.changed()
        components[1]["template"] = dict(reversed(components[1]["template"].items()))
        assert self.told(new) == []

    def test_all_changes_are_told(self) -> None:
        new, components = self.changed()
        components[0]["podSets"] = [{"path": "template.spec", "replicas": 2}]
        components[1]["podSets"] = [{"path": "template"}]
        components[1]["template"]["x"] = 1
        new["metadata"]["labels"] = {USER_LABEL: "eve"}
        new["spec"]["managedBy"] = ""
        assert self.told(new) == [
            "spec.components[0].podsets[0].replicas",
            "spec.components[0].podsets[0].path",
            "spec.components[1].template.raw",
            "spec.components[1].podsets",
            "metadata.labels[workload.codeflare.dev/user]",
            "spec.managedBy",
        ]
