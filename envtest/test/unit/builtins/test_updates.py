"""How often and where kube-apiserver reports the errors of updates of built-in kinds."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from typing import Any

import pytest

from envtest import User
from envtest.apimachinery.field_errors import FieldError
from envtest.apimachinery.objects import Object
from envtest.builtins.catalog import all_resources
from envtest.builtins.image_names import image_pull_policy
from envtest.builtins.table import strategy_for
from envtest.registry.object_metadata import validate_metadata_update
from envtest.registry.resource import RequestContext, ResourceInfo
from envtest.schema.shaping import copy_json

RESOURCES = {(each.group, each.kind): each for each in all_resources()}
METADATA = {"name": "a", "namespace": "default", "uid": "1"}
TEMPLATE = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def checked(group: str, kind: str, obj: Object, old: Object | None = None) -> list[FieldError]:
    """Return the errors of ``obj`` after decoding and defaulting, as an update of ``old`` or as a new object."""
    resource = RESOURCES[(group, kind)]
    strategy = strategy_for(resource)
    info = ResourceInfo(
        group=group,
        version=resource.version,
        kind=kind,
        plural=resource.plural,
        singular=kind.lower(),
        namespaced=True,
        strategy=strategy,
    )
    ctx = RequestContext(
        info=info, namespace="default", name="a", verb="update", user=User("u"), subresource=""
    )
    for each in (obj, old):
        if each is not None:
            each.setdefault("metadata", dict(METADATA))
            strategy.decode(each, ctx)
            strategy.default(each)
    return list(strategy.validate(obj, old, ctx))


@pytest.mark.parametrize(
    ("group", "kind", "labels", "uid"),
    [
        ("", "ConfigMap", 4, 2),
        ("networking.k8s.io", "NetworkPolicy", 3, 2),
        ("discovery.k8s.io", "EndpointSlice", 3, 1),
        ("policy", "PodDisruptionBudget", 2, 1),
        ("", "PersistentVolume", 4, 1),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema", 3, 1),
        ("networking.k8s.io", "IngressClass", 4, 2),
    ],
)
def test_metadata_errors_are_repeated_as_often_as_the_kind_checks_them(
    group: str, kind: str, labels: int, uid: int
) -> None:
    old = {"metadata": dict(METADATA)}
    new = {"metadata": {**METADATA, "uid": "2", "labels": {"a": "b c"}}}
    checks = strategy_for(RESOURCES[(group, kind)]).metadata_checks
    found = Counter(each.field for each in validate_metadata_update(new, old, checks))
    assert found == {"metadata.labels": labels, "metadata.uid": uid}


def job(image: str = "i", **labels: str) -> Object:
    selector = {"matchLabels": {"batch.kubernetes.io/controller-uid": "1"}}
    generated = dict.fromkeys(
        ("controller-uid", "batch.kubernetes.io/controller-uid"), METADATA["uid"]
    )
    generated |= dict.fromkeys(("job-name", "batch.kubernetes.io/job-name"), METADATA["name"])
    metadata = {"labels": {**generated, **labels}}
    spec = {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": image, "imagePullPolicy": "Always"}],
    }
    return {"spec": {"selector": selector, "template": {"metadata": metadata, "spec": spec}}}


@pytest.mark.parametrize(
    ("suspended", "new", "fields"),
    [
        (True, job("other"), ["spec.template.spec"]),
        (True, job(added="1"), []),
        (False, job("other"), ["spec.template"]),
        (False, job(""), [*["spec.template.spec.containers[0].image"] * 2, "spec.template"]),
    ],
)
def test_job_update_reports_the_changed_template(
    suspended: bool, new: Object, fields: list[str]
) -> None:
    old, new = job(), copy_json(new)
    old["spec"]["suspend"] = new["spec"]["suspend"] = suspended
    assert [each.field for each in checked("batch", "Job", new, old)] == fields


def stateful_set(**changes: Any) -> Object:
    spec = {
        "selector": {"matchLabels": {"app": "x"}},
        "serviceName": "s",
        "template": copy_json(TEMPLATE),
    }
    return {"spec": {**spec, **changes}}


def test_volumes_of_claims_precede_those_of_the_template() -> None:
    template = copy_json(TEMPLATE)
    template["spec"]["volumes"][0]["name"] = ""
    claims = [{"metadata": {"name": "data"}, "spec": CLAIM}]
    errors = checked(
        "apps", "StatefulSet", stateful_set(template=template, volumeClaimTemplates=claims)
    )
    assert [str(each) for each in errors] == ["spec.template.spec.volumes[1].name: Required value"]


def test_claim_templates_are_validated_on_creation() -> None:
    claims = [{"metadata": {"name": "data"}, "spec": {**CLAIM, "accessModes": []}}]
    (error,) = checked("apps", "StatefulSet", stateful_set(volumeClaimTemplates=claims))
    assert error.field == "spec.volumeClaimTemplates[0].spec.accessModes"
    assert not checked(
        "apps",
        "StatefulSet",
        *(stateful_set(volumeClaimTemplates=copy_json(claims)) for _ in range(2)),
    )


@pytest.mark.parametrize("kind", ["DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"])
def test_empty_selector_is_not_an_absent_one(kind: str) -> None:
    (empty,) = checked("apps", kind, stateful_set(selector={}))
    assert empty.body.startswith("Invalid value: {}: empty selector is invalid")
    absent = checked("apps", kind, stateful_set(selector=None))
    required = [] if kind == "DaemonSet" else ["spec.selector"]
    assert [each.field for each in absent] == [*required, "spec.template.metadata.labels"]


def test_template_of_an_invalid_selector_is_not_validated() -> None:
    template = {"metadata": {}, "spec": {"containers": []}}
    errors = checked(
        "apps",
        "Deployment",
        stateful_set(selector={"matchLabels": {"a": "b c"}}, template=template),
    )
    assert [each.field for each in errors] == ["spec.selector.matchLabels", "spec.selector"]


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("i", "Always"),
        ("i:1", "IfNotPresent"),
        ("example.com:5000/i", "Always"),
        ("Upper", "IfNotPresent"),
        ("", "IfNotPresent"),
        ("../a", "IfNotPresent"),
        (f"a@sha256:{'a' * 64}", "IfNotPresent"),
        (f"a:latest@sha256:{'a' * 64}", "Always"),
        (f"a:latest@md5:{'a' * 32}", "IfNotPresent"),
        ("a" * 247, "Always"),
        ("a" * 248, "IfNotPresent"),
        (f"index.docker.io/{'a' * 248}", "IfNotPresent"),
        ("a" * 63, "Always"),
        ("a" * 64, "IfNotPresent"),
        (f"a:{'t' * 129}", "IfNotPresent"),
        ("x_y.z/c", "Always"),
        ("-a.b/c", "IfNotPresent"),
        ("[::1]:80/a", "Always"),
        ("localhost/A", "IfNotPresent"),
    ],
)
def test_image_without_a_tag_is_pulled_unless_its_name_is_invalid(image: str, policy: str) -> None:
    assert image_pull_policy(image) == policy


def test_volume_source_is_immutable_and_its_difference_is_shown() -> None:
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/x"},
    }
    (error,) = checked(
        "",
        "PersistentVolume",
        {"spec": {**spec, "hostPath": {"path": "/y"}}},
        {"spec": copy_json(spec)},
    )
    assert '@@ -2,7 +2,7 @@\n  "GCEPersistentDisk": null,' in error.detail
    assert '-  "Path": "/x",\n+  "Path": "/y",\n' in error.detail


def test_only_a_bound_claim_can_grow() -> None:
    grown = {**CLAIM, "resources": {"requests": {"storage": "2Gi"}}}
    (error,) = checked("", "PersistentVolumeClaim", {"spec": grown}, {"spec": copy_json(CLAIM)})
    assert error.field == "spec"
    bound = {"spec": copy_json(CLAIM), "status": {"phase": "Bound"}}
    assert not checked("", "PersistentVolumeClaim", {"spec": copy_json(grown)}, bound)


def indexed_job(**spec: Any) -> Object:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    return {
        "spec": {
            "selector": {},
            "completionMode": "Indexed",
            "completions": 2,
            "template": template,
            **spec,
        }
    }


EXIT_CODES = '{"ContainerName":null,"Operator":"In","Values":[1]}'


def event(**fields: Any) -> Object:
    reporter = {
        "reportingController": "a.b/c",
        "reportingInstance": "i",
        "action": "x",
        "reason": "y",
    }
    regarding = {"kind": "Pod", "namespace": "default", "name": "p"}
    when = {"eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal"}
    return {**reporter, **when, "regarding": regarding, **fields}


@pytest.mark.parametrize(
    ("group", "kind", "new", "old", "field", "shown"),
    [
        (
            "batch",
            "Job",
            indexed_job(successPolicy={"rules": [{"succeededCount": 1}]}),
            indexed_job(),
            "spec.successPolicy",
            '{"Rules":[{"SucceededIndexes":null,"SucceededCount":1}]}',
        ),
        (
            "batch",
            "Job",
            indexed_job(
                podFailurePolicy={
                    "rules": [
                        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [1]}}
                    ]
                }
            ),
            indexed_job(),
            "spec.podFailurePolicy",
            f'{{"Rules":[{{"Action":"Ignore","OnExitCodes":{EXIT_CODES},"OnPodConditions":null}}]}}',
        ),
        (
            "batch",
            "Job",
            indexed_job(),
            indexed_job(successPolicy={"rules": [{"succeededCount": 1}]}),
            "spec.successPolicy",
            "null",
        ),
        ("events.k8s.io", "Event", event(type="Warning"), event(), "type", '"Warning"'),
        ("events.k8s.io", "Event", event(), event(note="n"), "message", '""'),
        (
            "events.k8s.io",
            "Event",
            event(regarding={"kind": "Pod", "namespace": "default", "uid": "u"}),
            event(),
            "involvedObject",
            '{"Kind":"Pod","Namespace":"default","Name":"","UID":"u","APIVersion":"","ResourceVersion":"","FieldPath":""}',
        ),
        (
            "storage.k8s.io",
            "VolumeAttachment",
            {"spec": {"attacher": "a", "nodeName": "m", "source": {"persistentVolumeName": "v"}}},
            {"spec": {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "v"}}},
            "spec",
            '{"Attacher":"a","Source":{"PersistentVolumeName":"v","InlineVolumeSpec":null},"NodeName":"m"}',
        ),
    ],
)
def test_immutable_values_are_shown_as_internal_types(
    group: str, kind: str, new: Object, old: Object, field: str, shown: str
) -> None:
    texts = [
        str(each)
        for each in checked(group, kind, copy_json(new), copy_json(old))
        if each.field == field
    ]
    assert f"{field}: Invalid value: {shown}: field is immutable" in texts


def test_scopes_of_a_quota_are_immutable_in_any_order() -> None:
    def quota(*scopes: str) -> Object:
        return {"spec": {"scopes": list(scopes)}}

    before, reordered = ("Terminating", "NotBestEffort"), ("NotBestEffort", "Terminating")
    assert not checked("", "ResourceQuota", quota(*reordered), quota(*before))
    (error,) = checked("", "ResourceQuota", quota("Terminating"), quota(*before))
    assert str(error) == 'spec.scopes: Invalid value: ["Terminating"]: field is immutable'


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{}", ""),
        ("null", ""),
        ("[]", "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        ("1", "json: cannot unmarshal number into Go value of type map[string]interface {}"),
        ("[" * 100_000, "unexpected end of JSON input"),
        ("{}x", "invalid character 'x' after top-level value"),
        ("tru", "unexpected end of JSON input"),
    ],
)
def test_registry_credentials_are_a_json_object(content: str, problem: str) -> None:
    data = {".dockerconfigjson": b64encode(content.encode()).decode()}
    errors = checked("", "Secret", {"type": "kubernetes.io/dockerconfigjson", "data": data})
    path, value = "data[.dockerconfigjson]", '"<secret contents redacted>"'
    assert len(errors) == bool(problem)
    assert all(
        str(each).startswith(f"{path}: Invalid value: {value}: {problem}") for each in errors
    )
