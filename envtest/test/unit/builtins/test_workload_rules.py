"""Validation of the kinds that run pods from a template, and the values that their messages show."""

from __future__ import annotations

from typing import Any

import pytest

from envtest import User
from envtest.apimachinery.errors import StatusError
from envtest.apimachinery.objects import Object
from envtest.builtins.catalog import all_resources, type_name
from envtest.builtins.normalization import decode
from envtest.builtins.string_validation import percent_above_100_errors, percent_or_int_value
from envtest.builtins.table import strategy_for
from envtest.builtins.workloads import StatefulSetStrategy
from envtest.configuration.kubernetes_version import SUPPORTED
from envtest.registry.resource import RequestContext, ResourceInfo

RESOURCES = {(each.group, each.kind): each for each in all_resources()}
ROLLING = "spec.updateStrategy.rollingUpdate"


def errors(
    kind: str, fields: dict[str, Any], *, old: dict[str, Any] | None = None, subresource: str = ""
) -> list[str]:
    """Return the errors of a workload with ``fields`` in its spec (or status), as an update of ``old`` or as new."""
    resource = RESOURCES["" if kind == "ReplicationController" else "apps", kind]
    strategy = strategy_for(resource)
    info = ResourceInfo(
        resource.group, resource.version, "x", "x", kind, namespaced=True, strategy=strategy
    )
    ctx = RequestContext(User("u"), "update", info, "default", "a", subresource)
    objects = [
        workload(kind, each, subresource or "spec") for each in (fields, old) if each is not None
    ]
    for each in objects:
        strategy.decode(each, ctx)
        strategy.default(each)
    return [
        str(each)
        for each in strategy.validate(objects[0], objects[1] if old is not None else None, ctx)
    ]


def workload(kind: str, fields: dict[str, Any], part: str) -> Object:
    selector: dict[str, Any] = {"app": "a"}
    pod = {"containers": [{"name": "c", "image": "i"}]}
    spec = {
        "selector": selector if kind == "ReplicationController" else {"matchLabels": selector},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": pod},
    }
    obj: Object = {"metadata": {"name": "a", "namespace": "default"}, "spec": spec}
    if part == "spec":
        pod.update(fields.pop("pod", {}))
    obj[part] = {**obj.get(part, {}), **fields}
    return obj


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {
                "ordinals": {"start": 3},
                "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"},
            },
            [],
        ),
        (
            {"ordinals": {"start": -1}},
            ["spec.ordinals.start: Invalid value: -1: must be greater than or equal to 0"],
        ),
        (
            {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Odd", "whenScaled": "Even"}},
            [
                f"spec.persistentVolumeClaimRetentionPolicy.{field}: Unsupported value: {value}: "
                'supported values: "Retain", "Delete"'
                for field, value in (("whenDeleted", '"Odd"'), ("whenScaled", '"Even"'))
            ],
        ),
        (
            {"updateStrategy": {"type": "OnDelete", "rollingUpdate": {"partition": 1}}},
            [
                (
                    f'{ROLLING}: Invalid value: {{"Partition":1,"MaxUnavailable":null}}: '
                    "only allowed for updateStrategy 'RollingUpdate'"
                )
            ],
        ),
        (
            {"updateStrategy": {"type": "Odd"}},
            [
                (
                    'spec.updateStrategy: Invalid value: {"Type":"Odd","RollingUpdate":null}: '
                    "must be 'RollingUpdate' or 'OnDelete'"
                )
            ],
        ),
    ],
)
def test_stateful_sets(fields: dict[str, Any], expected: list[str]) -> None:
    assert errors("StatefulSet", dict(fields)) == expected
    assert errors("StatefulSet", dict(fields), old={}) == expected


@pytest.mark.parametrize(
    ("kind", "sent", "stored"),
    [
        ("StatefulSet", {}, {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}),
        ("StatefulSet", {"type": "RollingUpdate"}, {"type": "RollingUpdate"}),
        (
            "StatefulSet",
            {"type": "RollingUpdate", "rollingUpdate": {}},
            {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        ),
        ("StatefulSet", {"type": "OnDelete"}, {"type": "OnDelete"}),
        (
            "DaemonSet",
            {"type": "RollingUpdate"},
            {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
        ),
        ("DaemonSet", {"type": "OnDelete"}, {"type": "OnDelete"}),
        (
            "DaemonSet",
            {"type": "OnDelete", "rollingUpdate": {}},
            {"type": "OnDelete", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 0}},
        ),
    ],
)
def test_defaults_of_rollouts(kind: str, sent: Object, stored: Object) -> None:
    assert defaulted(kind, {"updateStrategy": sent})["spec"]["updateStrategy"] == stored


def defaulted(kind: str, fields: dict[str, Any], **annotations: str) -> Object:
    resource = RESOURCES["apps", kind]
    strategy = strategy_for(resource)
    info = ResourceInfo("apps", "v1", "x", "x", kind, namespaced=True, strategy=strategy)
    obj = workload(kind, fields, "spec")
    obj["metadata"]["annotations"] = {
        f"deprecated.daemonset.template.{name}": text for name, text in annotations.items()
    }
    strategy.decode(obj, RequestContext(User("u"), "create", info, "default", "a"))
    strategy.default(obj)
    return obj


@pytest.mark.parametrize(
    ("text", "problem"),
    [("", "invalid syntax"), ("-" + "9" * 5000, "value out of range")],
)
def test_template_generation_of_daemon_sets_is_an_integer(text: str, problem: str) -> None:
    with pytest.raises(StatusError) as caught:
        defaulted("DaemonSet", {}, generation=text)
    assert caught.value.code == 400
    assert caught.value.message == (
        'DaemonSet in version "v1" cannot be handled as a DaemonSet: '
        f'strconv.ParseInt: parsing "{text}": {problem}'
    )


def test_template_generation_of_daemon_sets_is_stored_in_the_shortest_form() -> None:
    annotations = defaulted("DaemonSet", {}, generation="+007")["metadata"]["annotations"]
    assert annotations == {"deprecated.daemonset.template.generation": "7"}


@pytest.mark.parametrize("release", SUPPORTED)
def test_rollouts_of_stateful_sets_have_no_limit_of_unavailable_pods(release: str) -> None:
    """The feature gate MaxUnavailableStatefulSet is off by default in all supported versions."""
    name = type_name("io.k8s.api.apps.v1.StatefulSetSpec", release)
    rolling = {"partition": 1, "maxUnavailable": 2}
    obj = {"spec": decode(name, {"updateStrategy": {"rollingUpdate": rolling}})[0]}
    strategy = StatefulSetStrategy(RESOURCES["apps", "StatefulSet"])
    strategy.drop_disabled(obj)
    assert obj["spec"]["updateStrategy"]["rollingUpdate"] == {"partition": 1}


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("Deployment", "ReplicaSet"),
        *(
            (kind, kind)
            for kind in ("DaemonSet", "ReplicaSet", "ReplicationController", "StatefulSet")
        ),
    ],
)
def test_pods_without_end_have_no_deadline(kind: str, named: str) -> None:
    path = "spec.template.spec.activeDeadlineSeconds"
    expected = [f"{path}: Forbidden: activeDeadlineSeconds in {named} is not Supported"]
    assert errors(kind, {"pod": {"activeDeadlineSeconds": 5}}) == expected


@pytest.mark.parametrize(
    ("kind", "strategy", "shown"),
    [
        ("DaemonSet", {"type": "Odd"}, '{"Type":"Odd","RollingUpdate":null}'),
        (
            "DaemonSet",
            {"type": "Odd", "rollingUpdate": {"maxSurge": "5%"}},
            '{"Type":"Odd","RollingUpdate":{"MaxUnavailable":0,"MaxSurge":"5%"}}',
        ),
        (
            "Deployment",
            {"type": "Odd", "rollingUpdate": {"maxSurge": 1}},
            '{"Type":"Odd","RollingUpdate":{"MaxUnavailable":0,"MaxSurge":1}}',
        ),
    ],
)
def test_unknown_update_strategies_are_shown_as_internal_types(
    kind: str, strategy: Any, shown: str
) -> None:
    field, supported = "updateStrategy", '"RollingUpdate", "OnDelete"'
    if kind == "Deployment":
        field, supported = "strategy", '"Recreate", "RollingUpdate"'
    expected = [f"spec.{field}: Unsupported value: {shown}: supported values: {supported}"]
    assert errors(kind, {field: strategy}) == expected


def test_daemon_sets_without_a_selector_match_no_pods() -> None:
    text = "`selector` does not match template `labels`"
    expected = [f'spec.template.metadata.labels: Invalid value: {{"app":"a"}}: {text}']
    assert errors("DaemonSet", {"selector": None}) == expected
    expected = ["spec.selector: Invalid value: {}: empty selector is invalid for daemonset"]
    assert errors("DaemonSet", {"selector": {}}) == expected


def test_replication_controllers_wait_a_positive_time() -> None:
    expected = ["spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0"]
    assert errors("ReplicationController", {"minReadySeconds": -1}) == expected


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3),
        ("0%", 0),
        ("00%", 0),
        ("012%", 12),
        ("5", 5),
        ("-5", -5),
        ("+5%", 0),
        ("abc", 0),
        ("", 0),
        (None, 0),
        ("9" * 5000 + "%", int("9" * 19)),
        ("0" * 5000, 0),
    ],
)
def test_numbers_and_percentages(value: Any, number: int) -> None:
    assert percent_or_int_value(value) == number


def test_very_long_percentages_are_above_100() -> None:
    assert len(list(percent_above_100_errors("p", "9" * 5000 + "%"))) == 1
    assert not list(percent_above_100_errors("p", "0" * 5000 + "99%"))


@pytest.mark.parametrize(
    ("kind", "rolling", "zero"),
    [
        ("Deployment", {"maxUnavailable": "00%", "maxSurge": "0%"}, True),
        ("Deployment", {"maxUnavailable": "abc", "maxSurge": 0}, True),
        ("Deployment", {"maxUnavailable": "abc", "maxSurge": 1}, False),
        ("DaemonSet", {"maxUnavailable": "00%", "maxSurge": 0}, True),
        ("DaemonSet", {"maxUnavailable": "abc", "maxSurge": "0%"}, True),
        ("DaemonSet", {"maxUnavailable": "1%", "maxSurge": 0}, False),
    ],
)
def test_rollouts_must_make_progress(kind: str, rolling: Any, zero: bool) -> None:
    field = "strategy" if kind == "Deployment" else "updateStrategy"
    found = [
        each
        for each in errors(kind, {field: {"rollingUpdate": rolling}})
        if "a valid percent" not in each
    ]
    path = f"spec.{field}.rollingUpdate.maxUnavailable"
    text = f'Invalid value: "{rolling["maxUnavailable"]}": may not be 0 when `maxSurge` is 0'
    if kind == "DaemonSet":
        text = "Required value: cannot be 0 when maxSurge is 0"
    assert found == [f"{path}: {text}"] * zero


@pytest.mark.parametrize("kind", ["DaemonSet", "Deployment", "StatefulSet"])
def test_counts_of_collisions_only_grow(kind: str) -> None:
    def decremented(status: dict[str, Any], old: dict[str, Any]) -> list[str]:
        return errors(kind, status, old=old, subresource="status")

    text = "status.collisionCount: Invalid value: {}: cannot be decremented"
    assert decremented({"collisionCount": 3}, {"collisionCount": 5}) == [text.format(3)]
    assert decremented({}, {"collisionCount": 5}) == [text.format(0)]
    assert not decremented({"collisionCount": 5}, {"collisionCount": 5})
    assert not decremented({"collisionCount": 1}, {})


@pytest.mark.parametrize(
    ("kind", "ready"),
    [
        ("StatefulSet", "status.readyReplicas"),
        *(
            (kind, "readyReplicas")
            for kind in ("Deployment", "ReplicaSet", "ReplicationController")
        ),
    ],
)
def test_available_replicas_are_ready(kind: str, ready: str) -> None:
    status = {"replicas": 1, "readyReplicas": 1, "availableReplicas": 5}
    assert errors(kind, status, old={}, subresource="status") == [
        f"status.availableReplicas: Invalid value: 5: cannot be greater than {limit}"
        for limit in ("status.replicas", ready)
    ]


def test_errors_of_a_stateful_set_are_in_the_order_of_kube_apiserver() -> None:
    container = {"name": "c", "image": ""}
    fields = {
        "serviceName": "A_",
        "replicas": -1,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}},
        "volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": {}}],
    }
    found = [each.partition(": ")[0] for each in errors("StatefulSet", fields)]
    assert found == [
        "spec.volumeClaimTemplates[0].spec.accessModes",
        "spec.volumeClaimTemplates[0].spec.resources[storage]",
        "spec.replicas",
        "spec.serviceName",
        "spec.template.spec.containers[0].image",
    ]
