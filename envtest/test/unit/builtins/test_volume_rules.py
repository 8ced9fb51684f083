"""Validation of the sources of volumes, which pods and persistent volumes have in common."""

from __future__ import annotations

from time import process_time
from typing import Any

import pytest

from envtest.builtins.volume_rules import check_volumes
from envtest.builtins.volume_sources import source_errors

FORMAT = "must be valid format"
REGISTRY = "must be a host:port pair or multiple pairs separated by commas"
IQN = "iqn.2001-04.com.example:storage.kube.sys1"
SELECTOR = {"matchExpressions": [{"key": "e", "operator": "Exists"}], "matchLabels": {"k": "v"}}
BUNDLE = {"path": "p", "labelSelector": SELECTOR}
NAMESPACE_TEXT = "if the endpointnamespace is set, it must be a valid namespace name"


def errors(*volumes: dict[str, Any], pod_name: str = "") -> list[str]:
    """Return the errors of these volumes of a pod; a volume without a name is ``v``."""
    return [
        str(each)
        for each in check_volumes([{"name": "v", **each} for each in volumes], "volumes", pod_name)[
            0
        ]
    ]


def shared_errors(kind: str, source: dict[str, Any], *, persistent: bool = False) -> list[str]:
    return [str(each) for each in source_errors(kind, source, kind, persistent=persistent)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"gitRepo": {"repository": "r", "directory": "."}}, []),
        (
            {"gitRepo": {"repository": "r", "directory": "../a"}},
            ["volumes[0].gitRepo.directory: Invalid value: \"../a\": must not contain '..'"],
        ),
        (
            {"gitRepo": {"repository": "r", "directory": "/a"}},
            ['volumes[0].gitRepo.directory: Invalid value: "/a": must be a relative path'],
        ),
        ({"gcePersistentDisk": {}}, ["volumes[0].persistentDisk.pdName: Required value"]),
        (
            {"csi": {"driver": "a_b", "nodePublishSecretRef": {"name": "B"}}},
            ["volumes[0].csi.driver: Invalid value", "volumes[0].csi.name: Invalid value"],
        ),
        (
            {"iscsi": {"targetPortal": "p" * 63, "iqn": IQN, "initiatorName": IQN}},
            ["volumes[0].name: Invalid value"],
        ),
        (
            {"nfs": {"server": "s", "path": "/"}, "cephfs": {}, "downwardAPI": {}},
            [
                "volumes[0].cephFS: Forbidden: may not specify more than 1 volume type",
                "volumes[0].downwarAPI: Forbidden: may not specify more than 1 volume type",
            ],
        ),
        (
            {"hostPath": {"path": "/x"}, "emptyDir": {}},
            ["volumes[0].hostPath: Forbidden: may not specify more than 1 volume type"],
        ),
        (
            {
                "projected": {
                    "sources": [
                        {"clusterTrustBundle": {**BUNDLE, "name": "a", "signerName": "b.c/d"}}
                    ]
                }
            },
            [
                (
                    'volumes[0].projected.sources[0].clusterTrustBundle: Invalid value: {"Name":"a",'
                    '"SignerName":"b.c/d","LabelSelector":{"matchLabels":{"k":"v"},"matchExpressions":'
                    '[{"key":"e","operator":"Exists"}]},"Optional":null,"Path":"p"}: '
                    "only one of name and signerName may be used"
                )
            ],
        ),
    ],
)
def test_volume_of_a_pod_is_validated(source: dict[str, Any], expected: list[str]) -> None:
    found = errors(source)
    assert len(found) == len(expected), found
    assert all(map(str.startswith, found, expected)), found


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"clusterTrustBundle": {"name": "a.io:b:c", "path": "p"}}, []),
        (
            {"clusterTrustBundle": {"name": ":c", "path": "p"}},
            [
                (
                    'clusterTrustBundle.name: Invalid value: ":c": not a valid clustertrustbundlename: '
                    'ClusterTrustBundle without signer name must not have ":" in its name'
                )
            ],
        ),
        (
            {"clusterTrustBundle": {"signerName": "a", "path": "p"}},
            [
                (
                    'clusterTrustBundle.signerName: Invalid value: "a": must be a fully qualified domain and path of '
                    "the form 'example.com/signer-name'"
                )
            ],
        ),
        (
            {"podCertificate": {"signerName": "a.io/b", "keyType": "ED25519", "keyPath": "k"}},
            [],
        ),
        (
            {"podCertificate": {"signerName": "a/b", "keyType": "X", "maxExpirationSeconds": 60}},
            [
                'podCertificate.signerName: Invalid value: "a": should be a domain with at least two segments',
                'podCertificate.keyType: Unsupported value: "X": supported values: "RSA3072", "RSA4096", "ECDSAP256"',
                "podCertificate.maxExpirationSeconds: Invalid value: 60: if provided, maxExpirationSeconds must be >=",
                "podCertificate: Required value: specify at least one of credentialBundlePath, keyPath, and",
            ],
        ),
        (
            {
                "podCertificate": {
                    "signerName": "kubernetes.io/b",
                    "keyType": "RSA3072",
                    "maxExpirationSeconds": 86401,
                    "keyPath": "../k",
                }
            },
            [
                "podCertificate.maxExpirationSeconds: Invalid value: 86401: if provided, maxExpirationSeconds must be",
                "podCertificate.keyPath: Invalid value: \"../k\": must not contain '..'",
            ],
        ),
    ],
)
def test_certificates_of_a_projected_volume_are_validated(
    source: dict[str, Any], expected: list[str]
) -> None:
    start = "volumes[0].projected.sources[0]."
    found = errors({"projected": {"sources": [source]}})
    assert len(found) == len(expected), found
    assert all(each.startswith(start + text) for each, text in zip(found, expected, strict=True)), (
        found
    )


def test_files_of_certificates_have_different_paths() -> None:
    certificate = {
        "signerName": "a.io/b",
        "keyType": "ED25519",
        "keyPath": "k",
        "certificateChainPath": "k",
    }
    assert errors({"projected": {"sources": [{"podCertificate": certificate}]}}) == [
        'volumes[0].projected: Invalid value: "k": conflicting duplicate paths'
    ]


def test_claim_of_an_ephemeral_volume_is_not_used_by_name() -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    volumes = (
        {"name": "a", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "p-a"}},
    )
    assert errors(*volumes) == []
    text = "must not reference a PVC that gets created for an ephemeral volume"
    assert errors(*volumes, pod_name="p") == [
        f'volumes[1].persistentVolumeClaim.claimName: Invalid value: "p-a": {text}'
    ]


@pytest.mark.parametrize(
    ("kind", "source", "expected"),
    [
        (
            "azureDisk",
            {
                "diskName": "d",
                "diskURI": "https://a/b.vhd",
                "kind": "Shared",
                "cachingMode": "None",
            },
            [],
        ),
        ("azureDisk", {"diskName": "d", "diskURI": "/subscriptions/s", "kind": "Managed"}, []),
        (
            "azureDisk",
            {"diskName": "d", "diskURI": "x", "kind": "Big", "cachingMode": "Some"},
            [
                'cachingMode: Unsupported value: "Some": supported values: "None", "ReadOnly", "ReadWrite"',
                'kind: Unsupported value: "Big": supported values: "Dedicated", "Managed", "Shared"',
                (
                    'diskURI: Unsupported value: "x": supported values: '
                    '"https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"'
                ),
            ],
        ),
        (
            "azureDisk",
            {"diskName": "d", "diskURI": "x", "kind": "Managed"},
            [
                (
                    'diskURI: Unsupported value: "x": supported values: "/subscriptions/{sub-id}/resourcegroups/'
                    '{group-name}/providers/microsoft.compute/disks/{disk-id}"'
                )
            ],
        ),
        (
            "flexVolume",
            {"driver": "d", "options": {"fsType": "ext4", "example.com/kubernetes.io": "x"}},
            [],
        ),
        (
            "flexVolume",
            {"driver": "d", "options": {"A.K8s.io/x": "", "kubernetes.io": ""}},
            [
                'options[A.K8s.io/x]: Invalid value: "A.K8s.io/x": kubernetes.io and k8s.io namespaces are reserved',
                (
                    'options[kubernetes.io]: Invalid value: "kubernetes.io": '
                    "kubernetes.io and k8s.io namespaces are reserved"
                ),
            ],
        ),
        ("quobyte", {"registry": "a:1,[::1]:2", "volume": "v"}, []),
        ("quobyte", {}, [f"registry: Required value: {REGISTRY}", "volume: Required value"]),
        (
            "quobyte",
            {"registry": "a:1", "volume": "v", "tenant": "t" * 65},
            ["tenant: Required value: must be a UUID and may not exceed a length of 64 characters"],
        ),
        (
            "awsElasticBlockStore",
            {"volumeID": "v", "partition": 256},
            ["partition: Invalid value: 256: must be"],
        ),
        (
            "fc",
            {},
            ["targetWWNs: Required value: must specify either targetWWNs or wwids, but not both"],
        ),
        ("cinder", {"volumeID": "v", "secretRef": {}}, ["secretRef.name: Required value"]),
        (
            "storageos",
            {"volumeName": "A", "volumeNamespace": "b.c", "secretRef": {}},
            [
                'volumeName: Invalid value: "A": a lowercase RFC 1123 label must consist of',
                'volumeNamespace: Invalid value: "b.c": must not contain dots',
                "secretRef.name: Required value",
            ],
        ),
        ("azureFile", {"secretName": "s", "shareName": "n", "secretNamespace": ""}, []),
        ("iscsi", {"targetPortal": "p", "iqn": IQN, "secretRef": {}}, []),
        (
            "iscsi",
            {"targetPortal": "p", "iqn": "x", "initiatorName": "iqn.x"},
            [
                f'iqn: Invalid value: "x": {FORMAT} starting with iqn, eui, or naa',
                f'initiatorname: Invalid value: "iqn.x": {FORMAT}',
            ],
        ),
    ],
)
def test_shared_source_is_validated(kind: str, source: dict[str, Any], expected: list[str]) -> None:
    found = shared_errors(kind, source)
    assert len(found) == len(expected), found
    assert all(
        each.startswith(f"{kind}.{start}") for each, start in zip(found, expected, strict=True)
    ), found


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"datasetName": "d"}, []),
        ({}, ["flocker: Required value: one of datasetName and datasetUUID is required"]),
        (
            {"datasetName": "d/e", "datasetUUID": "u"},
            [
                (
                    'flocker: Invalid value: "resource": datasetName and datasetUUID can not be '
                    "specified simultaneously"
                ),
                "flocker.datasetName: Invalid value: \"d/e\": must not contain '/'",
            ],
        ),
    ],
)
def test_flocker_volume_has_one_dataset(source: dict[str, Any], expected: list[str]) -> None:
    assert shared_errors("flocker", source) == expected


@pytest.mark.parametrize(
    ("kind", "source", "expected"),
    [
        (
            "cinder",
            {"volumeID": "v", "secretRef": {}},
            ["cinder.secretRef.name: Required value", "cinder.secretRef.namespace: Required value"],
        ),
        (
            "azureFile",
            {"secretName": "s", "shareName": "n", "secretNamespace": ""},
            ["azureFile.secretNamespace: Required value"],
        ),
        (
            "glusterfs",
            {"endpoints": "e", "path": "p", "endpointsNamespace": ""},
            [f'glusterfs.endpointsNamespace: Invalid value: "": {NAMESPACE_TEXT}'],
        ),
        (
            "iscsi",
            {"targetPortal": "p", "iqn": "bad", "secretRef": {}},
            [f'iscsi.iqn: Invalid value: "bad": {FORMAT}', "iscsi.secretRef.name: Required value"],
        ),
    ],
)
def test_source_of_a_persistent_volume_is_validated(
    kind: str, source: dict[str, Any], expected: list[str]
) -> None:
    assert shared_errors(kind, source, persistent=True) == expected


@pytest.mark.parametrize(
    "registry", ["a", "a:1,", "a:b:1", "[::1]", "[::1:2", "[::1]2:3", "::1:2", "a]:1", "[[a]:1"]
)
def test_registry_is_a_list_of_hosts_with_ports(registry: str) -> None:
    assert shared_errors("quobyte", {"registry": registry, "volume": "v"}) == [
        f'quobyte.registry: Invalid value: "{registry}": {REGISTRY}'
    ]


@pytest.mark.parametrize(
    ("name", "is_valid"),
    [
        (IQN, True),
        ("iqn.2001-04.c:a:b", True),
        ("iqn x:iqn.2001-04.c:a", True),
        ("iqn a,iqn.2001-04.c:a", True),
        ("iqn.2001-04.c:a:", True),
        ("iqn.2001-04.c:", False),
        ("iqn.2001-04.c", False),
        ("iqn.2001-04.:a", False),
        ("iqn.2001-4.c:a", False),
        ("iqn.2001-04.c_d:a", False),
        ("iqn.2001-04.c:a b", False),
        ("eui.0123456789abcdef", True),
        ("eui.0123456789abcde", False),
        ("naa.0123456789abcdef0123456789abcdef", True),
        ("naa.0123456789abcdef", False),
    ],
)
def test_name_of_an_iscsi_node(name: str, is_valid: bool) -> None:
    expected = [] if is_valid else [f'iscsi.iqn: Invalid value: "{name}": {FORMAT}']
    assert shared_errors("iscsi", {"targetPortal": "p", "iqn": name}) == expected


@pytest.mark.parametrize(
    "text", ["iqn.2001-04." * 80_000 + "_", "iqn" + ":a" * 300_000 + " ", "iqn" + "a:," * 300_000]
)
def test_long_name_of_an_iscsi_node_is_validated_in_linear_time(text: str) -> None:
    start = process_time()
    assert shared_errors("iscsi", {"targetPortal": "p", "iqn": text})
    assert process_time() - start < 2
