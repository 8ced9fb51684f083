"""Validation of volumes, claims and the kinds of storage.k8s.io."""

from __future__ import annotations

from typing import Any

import pytest

from envtest import User
from envtest.builtins.catalog import all_resources
from envtest.builtins.table import strategy_for
from envtest.registry.resource import RequestContext, ResourceInfo
from envtest.schema.shaping import copy_json

RESOURCES = {each.kind: each for each in all_resources() if each.group in ("", "storage.k8s.io")}
IQN = "iqn.2001-04.com.example:storage.kube.sys1"
VOLUME = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
EXISTS = {"key": "zone", "operator": "Exists"}
TERM = {"matchExpressions": [EXISTS]}


def errors(kind: str, obj: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    """Return the errors of ``obj`` after it is prepared, as an update of ``old`` or as a new object."""
    resource = RESOURCES[kind]
    strategy = strategy_for(resource)
    info = ResourceInfo(
        group=resource.group,
        version=resource.version,
        kind=kind,
        plural=resource.plural,
        singular=kind.lower(),
        namespaced=resource.namespaced,
        strategy=strategy,
    )
    ctx = RequestContext(
        info=info, namespace="", name="a", verb="update", user=User("u"), subresource=""
    )
    for each in (obj, old):
        if each is not None:
            each.setdefault("metadata", {"name": "a", "uid": "1"})
            strategy.decode(each, ctx)
            strategy.default(each)
    if old is None:
        strategy.prepare_create(obj, ctx)
    return [str(each) for each in strategy.validate(obj, old, ctx)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"hostPath": {"path": "/x"}}, []),
        (
            {"hostPath": {"path": "/a/../b"}},
            ["spec.hostPath.path: Invalid value: \"/a/../b\": must not contain '..'"],
        ),
        (
            {"hostPath": {"path": "//"}, "persistentVolumeReclaimPolicy": "Recycle"},
            [
                "spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'"
            ],
        ),
        (
            {"local": {"path": "/x"}},
            ["spec.nodeAffinity: Required value: Local volume requires node affinity"],
        ),
        (
            {"local": {"path": "/x"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [TERM]}}},
            [],
        ),
        (
            {"csi": {"driver": "d.io", "volumeHandle": "h", "nodePublishSecretRef": {"name": "s"}}},
            ["spec.csi.nodePublishSecretRef.namespace: Required value"],
        ),
        (
            {"hostPath": {"path": "/x"}, "volumeAttributesClassName": "gold"},
            ["spec.csi: Required value: has to be specified when using volumeAttributesClassName"],
        ),
        ({"iscsi": {"targetPortal": "p", "lun": 0, "iqn": ""}}, ["spec.iscsi.iqn: Required value"]),
        (
            {"iscsi": {"targetPortal": "p" * 63, "lun": 0, "iqn": IQN, "initiatorName": IQN}},
            [
                (
                    f'spec.iscsi.targetportal: Invalid value: "{"p" * 63}": Total length of '
                    "<volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is "
                    "specified."
                )
            ],
        ),
        (
            {"fc": {}},
            [
                "spec.fc.targetWWNs: Required value: must specify either targetWWNs or wwids, but not both"
            ],
        ),
        (
            {
                "csi": {
                    "driver": "d.io",
                    "volumeHandle": "h",
                    "nodeExpandSecretRef": {"name": "s", "namespace": "a.b"},
                }
            },
            ['spec.csi.nodeExpandSecretRef.namespace: Invalid value: "a.b": must not contain dots'],
        ),
        ({"hostPath": {"path": "/x"}, "flexVolume": {"driver": "d"}}, []),
        (
            {"hostPath": {"path": "/x"}, "cephfs": {"monitors": ["m"]}},
            ["spec.cephFS: Forbidden: may not specify more than 1 volume type"],
        ),
        (
            {"hostPath": {"path": "/x"}, "capacity": {"storage": "0"}},
            ['spec.capacity[storage]: Invalid value: "0": must be greater than zero'],
        ),
    ],
)
def test_volume_is_validated(source: dict[str, Any], expected: list[str]) -> None:
    assert errors("PersistentVolume", {"spec": {**VOLUME, **copy_json(source)}}) == expected


def volume_with(**parts: Any) -> dict[str, Any]:
    return {"spec": copy_json({**VOLUME, "csi": {"driver": "d.io", "volumeHandle": "h"}, **parts})}


def test_secret_for_the_expansion_of_a_volume_can_be_added() -> None:
    csi = {
        "driver": "d.io",
        "volumeHandle": "h",
        "controllerExpandSecretRef": {"name": "s", "namespace": "n"},
    }
    assert not errors("PersistentVolume", volume_with(csi=csi), volume_with())
    (error,) = errors("PersistentVolume", volume_with(), volume_with(csi=csi))
    assert error.startswith("spec.persistentvolumesource: Forbidden: ")


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("topology.kubernetes.io/zone", None),
        (
            "zone",
            (
                '{"Required":{"NodeSelectorTerms":[{"MatchExpressions":[{"Key":"zone","Operator":"Exists",'
                '"Values":null}],"MatchFields":null}]}}'
            ),
        ),
        ("", "null"),
    ],
)
def test_only_deprecated_labels_of_the_node_affinity_of_a_volume_are_changed(
    label: str, shown: str | None
) -> None:
    old, new = (
        volume_with(
            nodeAffinity={
                "required": {"nodeSelectorTerms": [{"matchExpressions": [{**EXISTS, "key": key}]}]}
            }
        )
        for key in ("failure-domain.beta.kubernetes.io/zone", label)
    )
    if not label:
        del new["spec"]["nodeAffinity"]
    text = "field is immutable, except for updating from beta label to GA"
    expected = [] if shown is None else [f"nodeAffinity: Invalid value: {shown}: {text}"]
    assert errors("PersistentVolume", new, old) == expected


def test_source_of_a_claim_is_normalized() -> None:
    claim = {
        "spec": {**copy_json(CLAIM), "dataSource": {"kind": "PersistentVolumeClaim", "name": "y"}}
    }
    assert not errors("PersistentVolumeClaim", claim)
    assert claim["spec"]["dataSourceRef"]["name"] == "y"
    unknown = {"spec": {**copy_json(CLAIM), "dataSource": {"kind": "X", "name": "y"}}}
    assert not errors("PersistentVolumeClaim", unknown)
    assert "dataSource" not in unknown["spec"]
    both = {"dataSource": {"kind": "PersistentVolumeClaim", "name": "y"}}
    both["dataSourceRef"] = {"kind": "PersistentVolumeClaim", "name": "z"}
    (error,) = errors("PersistentVolumeClaim", {"spec": {**copy_json(CLAIM), **both}})
    assert error == "spec: Invalid value: {}: must match dataSourceRef"


def test_class_of_a_claim_can_be_set_once() -> None:
    late = {"spec": {**copy_json(CLAIM), "storageClassName": "late"}}
    assert not errors("PersistentVolumeClaim", late, {"spec": copy_json(CLAIM)})
    other = {"spec": {**copy_json(CLAIM), "storageClassName": "other"}}
    (error,) = errors("PersistentVolumeClaim", other, late)
    assert error.startswith("spec: Forbidden: spec is immutable after creation except")


@pytest.mark.parametrize(
    ("kind", "obj", "expected"),
    [
        (
            "StorageClass",
            {
                "provisioner": "x.io/p",
                "allowedTopologies": [{"matchLabelExpressions": [{"key": "a", "values": []}]}],
            },
            ["allowedTopologies[0].matchLabelExpressions[0].values: Required value"],
        ),
        (
            "VolumeAttributesClass",
            {"driverName": "a.io"},
            ["parameters: Required value: must contain at least one key/value pair"],
        ),
        (
            "VolumeAttachment",
            {"spec": {"attacher": "a.io", "nodeName": "n", "source": {}}},
            [
                "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName",
            ],
        ),
        (
            "VolumeAttachment",
            {
                "spec": {
                    "attacher": "a.io",
                    "nodeName": "n",
                    "source": {
                        "inlineVolumeSpec": {
                            **VOLUME,
                            "csi": {"driver": "a.io", "volumeHandle": "h"},
                        }
                    },
                }
            },
            [
                (
                    "spec.source.inlineVolumeSpec.capacity: Forbidden: may not be specified in "
                    "the context of inline volumes"
                )
            ],
        ),
        (
            "CSINode",
            {
                "spec": {
                    "drivers": [{"name": "a.io", "nodeID": "n"}, {"name": "a.io", "nodeID": ""}]
                }
            },
            [
                "spec.drivers[1].nodeID: Required value",
                'spec.drivers[1].name: Duplicate value: "a.io"',
            ],
        ),
        (
            "CSIDriver",
            {"spec": {"nodeAllocatableUpdatePeriodSeconds": 9}},
            [
                "spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 9: must be greater than or equal to 10 seconds"
            ],
        ),
        (
            "CSIDriver",
            {
                "spec": {
                    "tokenRequests": [{"audience": "a"}, {"audience": "a", "expirationSeconds": 1}]
                }
            },
            ['spec.tokenRequests[1].audience: Duplicate value: "a"'],
        ),
        (
            "CSIDriver",
            {"spec": {"serviceAccountTokenInSecrets": True}},
            [
                (
                    "spec.serviceAccountTokenInSecrets: Invalid value: true: "
                    "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
                )
            ],
        ),
        (
            "CSINode",
            {"spec": {"drivers": [{"name": "a.io", "nodeID": "n", "topologyKeys": ["a", "a"]}]}},
            ['spec.drivers[0]: Duplicate value: "a"'],
        ),
    ],
)
def test_storage_kind_is_validated(kind: str, obj: dict[str, Any], expected: list[str]) -> None:
    assert errors(kind, copy_json(obj)) == expected


@pytest.mark.parametrize(
    ("kind", "old", "new", "expected"),
    [
        (
            "CSINode",
            {"drivers": [{"name": "a.io", "nodeID": "n"}]},
            {
                "drivers": [
                    {"name": "b.io", "nodeID": "n"},
                    {"name": "a.io", "nodeID": "n", "allocatable": {"count": 1}},
                ]
            },
            [],
        ),
        (
            "CSINode",
            {"drivers": [{"name": "a.io", "nodeID": "n", "allocatable": {"count": 1}}]},
            {
                "drivers": [
                    {
                        "name": "a.io",
                        "nodeID": "m",
                        "topologyKeys": ["k"],
                        "allocatable": {"count": 1},
                    }
                ]
            },
            [
                (
                    'spec.drivers: Invalid value: {"Name":"a.io","NodeID":"m","TopologyKeys":["k"],'
                    '"Allocatable":null}: field is immutable'
                )
            ],
        ),
        (
            "CSIDriver",
            {},
            {"attachRequired": False},
            ["spec.attachedRequired: Invalid value: false: field is immutable"],
        ),
    ],
)
def test_immutable_fields_of_storage_kinds(
    kind: str, old: dict[str, Any], new: dict[str, Any], expected: list[str]
) -> None:
    assert errors(kind, {"spec": copy_json(new)}, {"spec": copy_json(old)}) == expected


def test_parameters_of_an_attributes_class_are_immutable_and_required() -> None:
    old = {"driverName": "a.io", "parameters": {"a": "b"}}
    assert errors("VolumeAttributesClass", {"driverName": "a.io"}, old) == [
        "parameters: Forbidden: updates to parameters are forbidden.",
        "parameters: Required value: must contain at least one key/value pair",
    ]
