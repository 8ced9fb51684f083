"""Versions of Kubernetes: how they are named, and how their types and resources differ from the shipped ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from envtest.builtins.catalog import all_resources, plain_name, resolve, schema_of, type_name
from envtest.builtins.normalization import DecodeError, decode, disabled_dropper
from envtest.configuration.kubernetes_version import (
    LATEST,
    SUPPORTED,
    KubernetesVersion,
    parse_version,
)

DATA = Path(__file__).parents[3] / "src" / "envtest" / "data"
POD = "io.k8s.api.core.v1.Pod"
OLDER = [release for release in SUPPORTED if release != LATEST.release]


@pytest.mark.parametrize(
    ("text", "version", "shown"),
    [
        ("", LATEST, "v1.36.0"),
        ("1.36", LATEST, "v1.36.0"),
        ("v1.35", KubernetesVersion(1, 35), "v1.35.0"),
        ("1.34.2", KubernetesVersion(1, 34, 2), "v1.34.2"),
    ],
)
def test_versions(text: str, version: KubernetesVersion, shown: str) -> None:
    assert (parse_version(text), str(version)) == (version, shown)


@pytest.mark.parametrize(
    "text", ["1", "latest", "1.34.", "1.34.1.2", "1.33", "1.37", "2.34", "1.٣٤", "1.34\n", "9" * 99]
)
def test_other_texts_are_not_versions(text: str) -> None:
    with pytest.raises(ValueError, match="Kubernetes version"):
        parse_version(text)


def test_each_older_version_has_data() -> None:
    assert {file.stem for file in (DATA / "versions").glob("*.json")} == set(OLDER)


@pytest.mark.parametrize("release", OLDER)
def test_types_of_an_older_version_can_be_resolved(release: str) -> None:
    seen: set[str] = set()

    def visit(name: str) -> None:
        if name in seen:
            return
        seen.add(name)
        schema = schema_of(name)
        for node in schema.properties.values():
            for each in (node, node.items, node.additional):
                if each is not None and each.ref:
                    visit(each.ref)

    for resource in all_resources(parse_version(release)):
        visit(resource.type)
    assert type_name(POD, release) in seen
    assert POD not in seen, "a type that differs is used in its own form everywhere"


def test_types_without_differences_are_shared() -> None:
    assert type_name("io.k8s.api.core.v1.ConfigMap", "1.34") == "io.k8s.api.core.v1.ConfigMap"
    assert type_name(POD, LATEST.release) == POD
    assert (type_name(POD, "1.34"), plain_name("1.34:" + POD)) == ("1.34:" + POD, POD)


FIELDS = [
    # type, field, versions in which it is unknown, versions in which it is dropped
    ("core.v1.PodSpec", "schedulingGroup", {"1.34", "1.35"}, {"1.36"}),
    ("core.v1.PodSpec", "workloadRef", {"1.34", "1.36"}, {"1.35"}),
    ("core.v1.PodSpec", "hostnameOverride", set(), {"1.34"}),
    ("core.v1.Container", "restartPolicyRules", set(), {"1.34"}),
    ("core.v1.EnvVarSource", "fileKeyRef", set(), {"1.34"}),
    ("core.v1.NodeStatus", "declaredFeatures", {"1.34"}, {"1.35"}),
    ("apps.v1.DeploymentStatus", "terminatingReplicas", set(), {"1.34"}),
    ("autoscaling.v2.HPAScalingRules", "tolerance", set(), {"1.34"}),
    ("resource.v1.Device", "taints", set(), {"1.34", "1.35"}),
    ("resource.v1.DeviceAttribute", "strings", {"1.34", "1.35"}, {"1.36"}),
    ("storage.v1.CSIDriverSpec", "serviceAccountTokenInSecrets", {"1.34"}, set()),
    ("coordination.v1.LeaseSpec", "preferredHolder", set(), {"1.34", "1.35", "1.36"}),
    ("core.v1.PodSpec", "priorityClassName", set(), set()),
]


@pytest.mark.parametrize(("name", "field", "unknown", "dropped"), FIELDS)
def test_fields_that_versions_do_not_have_or_drop(
    name: str, field: str, unknown: set[str], dropped: set[str]
) -> None:
    found = {
        release: resolve(type_name(f"io.k8s.api.{name}", release))["properties"].get(field)
        for release in SUPPORTED
    }
    assert {release for release, schema in found.items() if schema is None} == unknown
    assert {
        release
        for release, schema in found.items()
        if schema and schema["x-envtest-wire"] == "never"
    } == dropped


def test_values_of_disabled_fields_are_checked_and_dropped() -> None:
    name = type_name("io.k8s.api.core.v1.PodSpec", "1.34")
    decoded, unknown = decode(name, {"hostnameOverride": "a", "nodeName": "n"})
    assert unknown == []
    assert decoded["hostnameOverride"] == "a"  # a client owns it
    drop = disabled_dropper(name)
    assert drop is not None
    drop(decoded)
    assert decoded == {"nodeName": "n", "containers": None}
    with pytest.raises(DecodeError, match="hostnameOverride of type string"):
        decode(name, {"hostnameOverride": 1})


def test_hooks_that_have_only_a_disabled_field_are_dropped() -> None:
    name = type_name("io.k8s.api.core.v1.Container", "1.36")
    drop = disabled_dropper(name)
    assert drop is not None
    for given, expected in (
        ({}, set()),
        ({"stopSignal": "SIGUSR1"}, None),
        ({"stopSignal": "FOO", "preStop": {"sleep": {"seconds": 1}}}, {"preStop"}),
    ):
        decoded, _ = decode(name, {"name": "c", "lifecycle": given})
        drop(decoded)
        lifecycle = decoded.get("lifecycle")
        assert (None if lifecycle is None else set(lifecycle)) == expected


def test_resources_that_versions_do_not_serve() -> None:
    served = {
        release: {
            f"{each.group}/{each.version}/{each.plural}"
            for each in all_resources(parse_version(release))
        }
        for release in SUPPORTED
    }
    missing = {"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"}
    for release in OLDER:
        assert served[LATEST.release] - served[release] == {
            f"admissionregistration.k8s.io/v1/{name}" for name in missing
        }
