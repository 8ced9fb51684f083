"""Warnings about pods that are valid but questionable."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.builtins.catalog import all_resources
from envtest.builtins.node_labels import selector_warnings
from envtest.builtins.pod_warnings import claim_warnings, pod_warnings
from envtest.builtins.storage import StorageClassStrategy
from envtest.builtins.volumes import PersistentVolumeStrategy


def warnings(**spec: Any) -> list[str]:
    return list(pod_warnings({"metadata": {"name": "p"}, "spec": spec}))


def ports(*lists: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "containers": [{"name": f"c{number}", "ports": each} for number, each in enumerate(lists)]
    }


def items(*paths: str) -> list[dict[str, str]]:
    return [{"key": "k", "path": path} for path in paths]


OVERLAP = 'volume "v" ({}): overlapping paths: {} with {}'


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        (
            {"configMap": {"name": "m", "items": items("a", "a/b/", "ab")}},
            [OVERLAP.format('ConfigMap "m"', '"a/b"', '"a"')],
        ),
        (
            {"secret": {"secretName": "s", "items": items("a/b", "a")}},
            [OVERLAP.format('Secret "s"', '"a"', '"a/b"')],
        ),
        (
            {"downwardAPI": {"items": items("a", "a")}},
            [OVERLAP.format("DownwardAPI", '"a"', '"a"')],
        ),
        ({"configMap": {"name": "m", "items": items("a", "ab")}}, []),
        ({"configMap": {"name": "m"}}, []),
        ({"projected": {"sources": [{}]}}, ['volume "v" (Projected) has no sources provided']),
        (
            {
                "projected": {
                    "sources": [
                        {"configMap": {"name": "m", "items": items("t")}},
                        {"serviceAccountToken": {"path": "t/x"}},
                        {"clusterTrustBundle": {"signerName": "s", "path": "t"}},
                    ]
                }
            },
            [
                OVERLAP.format("Projected", '"t/x" (ServiceAccountToken)', '"t" (ConfigMap "m")'),
                OVERLAP.format("Projected", '"t" (ClusterTrustBundle "s")', '"t" (ConfigMap "m")'),
                OVERLAP.format(
                    "Projected", '"t" (ClusterTrustBundle "s")', '"t/x" (ServiceAccountToken)'
                ),
            ],
        ),
    ],
)
def test_overlapping_paths_of_volumes(volume: dict[str, Any], expected: list[str]) -> None:
    assert warnings(volumes=[{"name": "v", **volume}]) == expected


def test_warnings_about_overlapping_paths_are_limited() -> None:
    paths = [*(f"f{number}" for number in range(50_000)), *("a" for _ in range(50_000))]
    volume = {"name": "v", "configMap": {"name": "m", "items": items(*paths)}}
    assert warnings(volumes=[volume, volume]) == 100 * [
        OVERLAP.format('ConfigMap "m"', '"a"', '"a"')
    ]


def test_ports_that_share_a_name_or_have_an_address_only() -> None:
    first = [{"containerPort": 80, "name": "http", "protocol": "TCP"}]
    second = [{"containerPort": 81, "name": "http", "protocol": "TCP", "hostIP": "10.0.0.1"}]
    shown = "{Name:http HostPort:0 ContainerPort:81 Protocol:TCP HostIP:10.0.0.1}"
    one, two = "spec.containers[0].ports[0]", "spec.containers[1].ports[0]"
    consequence = f"services and probes that select ports by name will use {one}"
    assert warnings(**ports(first, second)) == [
        f"{two}: hostIP set without hostPort: {shown}",
        f'{two}: duplicate port name "http" with {one}, {consequence}',
    ]


def test_addresses_in_another_form() -> None:
    texts = warnings(
        dnsConfig={"nameservers": ["2001:DB8::1", "10.0.0.1"]}, hostAliases=[{"ip": "::0"}]
    )
    rule = "should be in RFC 5952 canonical format"
    assert texts == [
        f'spec.dnsConfig.nameservers[0]: IPv6 address "2001:DB8::1" {rule} ("2001:db8::1")',
        f'spec.hostAliases[0].ip: IPv6 address "::0" {rule} ("::")',
    ]


def test_values_of_preferred_node_affinity() -> None:
    term = {
        "preference": {"matchExpressions": [{"key": "k", "operator": "In", "values": ["-a"]}]},
        "weight": 1,
    }
    [text] = warnings(
        affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    )
    assert ".preference.matchExpressions[0].values[0]: -a is invalid, a valid label must be" in text


def test_claims_with_a_fraction_of_a_byte() -> None:
    spec = {"resources": {"requests": {"storage": "1500m"}}}
    rule = 'fractional byte value "1500m" is invalid, must be an integer'
    assert list(claim_warnings(spec, "spec")) == [f"spec.resources.requests[storage]: {rule}"]
    volume = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
    path = "spec.volumes[0].ephemeral.volumeClaimTemplate.spec"
    assert warnings(volumes=[volume]) == [f"{path}.resources.requests[storage]: {rule}"]


def test_deprecated_labels_and_sources_of_volumes() -> None:
    label, text = "beta.kubernetes.io/os", 'deprecated since v1.14; use "kubernetes.io/os" instead'
    expression = {"key": label, "operator": "Exists"}
    terms = [{"matchExpressions": [expression]}]
    volume = {
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        "cephfs": {},
        "flocker": {},
    }
    resources = {each.kind: each for each in all_resources()}
    context: Any = None
    assert PersistentVolumeStrategy(resources["PersistentVolume"]).warnings(
        {"metadata": {}, "spec": volume}, None, context
    ) == [
        f"spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].key: {label} is {text}",
        "spec.cephfs: deprecated in v1.28, non-functional in v1.31+",
    ]
    topologies = [{"matchLabelExpressions": [{"key": label}]}]
    assert StorageClassStrategy(resources["StorageClass"]).warnings(
        {"allowedTopologies": topologies}, None, context
    ) == [f"allowedTopologies[0].matchLabelExpressions[0].key: {text}"]
    assert list(
        selector_warnings({"matchLabels": {label: "x"}, "matchExpressions": [expression]}, "p")
    ) == [
        f"p.matchExpressions[0].key: {label} is {text}",
        f"p.matchLabels.{label}: {text}",
    ]
