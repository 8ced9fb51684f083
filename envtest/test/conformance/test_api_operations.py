"""Specs that send each verb of a resource: discovery, create, get, list, watch, patch, update, status and deletion."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from test.conformance.client import SpecClient, matching
from test.conformance.specs import plays

LABEL = "special-label"

POD = {
    "containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10"}],
    "restartPolicy": "Never",
}
RULES = [
    {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["deployments"],
    }
]
DEVICES = {
    "devices": {"requests": [{"name": "req-0", "exactly": {"deviceClassName": "some-class"}}]}
}
CONDITION = {
    "type": "StatusUpdate",
    "status": "True",
    "reason": "E2E",
    "message": "set by a test",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


class Case(NamedTuple):
    """A spec of a resource: its path within the namespace, an object, and a status and how it is changed."""

    spec: str
    path: str
    kind: str
    body: dict[str, Any]
    status: dict[str, Any] | None = None
    namespaced: bool = False


CASES = (
    Case(
        "API priority and fairness should support FlowSchema API operations",
        "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
        "FlowSchema",
        {
            "spec": {
                "matchingPrecedence": 10000,
                "priorityLevelConfiguration": {"name": "global-default"},
                "distinguisherMethod": {"type": "ByUser"},
                "rules": [
                    {
                        "subjects": [
                            {"kind": "User", "user": {"name": "example-e2e-non-existent-user"}}
                        ],
                        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                    }
                ],
            }
        },
        {"conditions": [{**CONDITION, "type": "Dangling", "status": "False"}]},
    ),
    Case(
        "API priority and fairness should support PriorityLevelConfiguration API operations",
        "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
        "PriorityLevelConfiguration",
        {
            "spec": {
                "type": "Limited",
                "limited": {"nominalConcurrencyShares": 2, "limitResponse": {"type": "Reject"}},
            }
        },
        {"conditions": [{**CONDITION, "type": "Example"}]},
    ),
    Case(
        "MutatingAdmissionPolicy should support MutatingAdmissionPolicy API operations",
        "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
        "MutatingAdmissionPolicy",
        {
            "spec": {
                "matchConstraints": {"resourceRules": RULES},
                "reinvocationPolicy": "Never",
                "mutations": [
                    {
                        "patchType": "ApplyConfiguration",
                        "applyConfiguration": {
                            "expression": 'Object{metadata: Object.metadata{labels: {"my-label": "my-value"}}}'
                        },
                    }
                ],
            }
        },
    ),
    Case(
        "MutatingAdmissionPolicy should support MutatingAdmissionPolicyBinding API operations",
        "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
        "MutatingAdmissionPolicyBinding",
        {"spec": {"policyName": "replicalimit-policy.example.com"}},
    ),
    Case(
        "ValidatingAdmissionPolicy should support ValidatingAdmissionPolicy API operations",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
        {
            "spec": {
                "matchConstraints": {"resourceRules": RULES},
                "validations": [{"expression": "object.spec.replicas <= 100"}],
            }
        },
        {"conditions": [{**CONDITION, "type": "PolicyAccepted"}]},
    ),
    Case(
        "ValidatingAdmissionPolicy should support ValidatingAdmissionPolicyBinding API operations",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        {"spec": {"policyName": "replicalimit-policy.example.com", "validationActions": ["Deny"]}},
    ),
    Case(
        "CronJob should support CronJob API operations",
        "/apis/batch/v1/namespaces/{}/cronjobs",
        "CronJob",
        {
            "spec": {
                "schedule": "* */1 * * ?",
                "suspend": True,
                "jobTemplate": {
                    "spec": {"template": {"spec": {**POD, "restartPolicy": "OnFailure"}}}
                },
            }
        },
        {"lastScheduleTime": "2026-01-01T00:00:00Z"},
        namespaced=True,
    ),
    Case(
        "EndpointSlice should support creating EndpointSlice API operations",
        "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
        "EndpointSlice",
        {"addressType": "IPv4", "endpoints": [{"addresses": ["1.2.3.4", "5.6.7.8"]}]},
        namespaced=True,
    ),
    Case(
        "Ingress API should support creating Ingress API operations",
        "/apis/networking.k8s.io/v1/namespaces/{}/ingresses",
        "Ingress",
        {
            "spec": {
                "defaultBackend": {
                    "service": {"name": "default-backend", "port": {"name": "", "number": 8080}}
                },
                "rules": [
                    {
                        "host": "foo.example.com",
                        "http": {
                            "paths": [
                                {
                                    "path": "/",
                                    "pathType": "ImplementationSpecific",
                                    "backend": {
                                        "service": {
                                            "name": "test-backend",
                                            "port": {"number": 8080},
                                        }
                                    },
                                }
                            ]
                        },
                    }
                ],
            }
        },
        {"loadBalancer": {"ingress": [{"ip": "169.1.1.1"}]}},
        namespaced=True,
    ),
    Case(
        "IngressClass API should support creating IngressClass API operations",
        "/apis/networking.k8s.io/v1/ingressclasses",
        "IngressClass",
        {"spec": {"controller": "example.com/controller"}},
    ),
    Case(
        "RuntimeClass should support RuntimeClasses API operations",
        "/apis/node.k8s.io/v1/runtimeclasses",
        "RuntimeClass",
        {"handler": "e2e-handler"},
    ),
    Case(
        "CSIStorageCapacity should support CSIStorageCapacities API operations",
        "/apis/storage.k8s.io/v1/namespaces/{}/csistoragecapacities",
        "CSIStorageCapacity",
        {"storageClassName": "some-class", "capacity": "1Gi"},
        namespaced=True,
    ),
    Case(
        "ServiceCIDR and IPAddress API should support ServiceCIDR API operations",
        "/apis/networking.k8s.io/v1/servicecidrs",
        "ServiceCIDR",
        {"spec": {"cidrs": ["10.1.1.0/24"]}},
        {"conditions": [CONDITION]},
    ),
    Case(
        "ServiceCIDR and IPAddress API should support IPAddress API operations",
        "/apis/networking.k8s.io/v1/ipaddresses",
        "IPAddress",
        {
            "metadata": {
                "name": "192.168.1.{}",
                "labels": {"ipaddress.kubernetes.io/managed-by": "e2e"},
            },
            "spec": {
                "parentRef": {
                    "group": "",
                    "resource": "services",
                    "namespace": "foo",
                    "name": "bar",
                }
            },
        },
    ),
    Case(
        "Certificates API should support CSR API operations",
        "/apis/certificates.k8s.io/v1/certificatesigningrequests",
        "CertificateSigningRequest",
        {
            "spec": {
                "signerName": "example.com/e2e",
                "usages": ["digital signature", "key encipherment", "server auth"],
            }
        },
        {"conditions": [{**CONDITION, "type": "StatusUpdate"}]},
    ),
    Case(
        "CRUD Tests resource.k8s.io/v1 DeviceClass",
        "/apis/resource.k8s.io/v1/deviceclasses",
        "DeviceClass",
        {"spec": {"selectors": [{"cel": {"expression": 'device.driver == "dra.example.com"'}}]}},
    ),
    Case(
        "CRUD Tests resource.k8s.io/v1 ResourceClaim",
        "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims",
        "ResourceClaim",
        {"spec": DEVICES},
        {
            "allocation": {
                "devices": {
                    "results": [
                        {
                            "request": "req-0",
                            "driver": "dra.example.com",
                            "pool": "p",
                            "device": "d",
                        }
                    ]
                }
            }
        },
        namespaced=True,
    ),
    Case(
        "CRUD Tests resource.k8s.io/v1 ResourceClaimTemplate",
        "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaimtemplates",
        "ResourceClaimTemplate",
        {"spec": {"spec": DEVICES}},
        namespaced=True,
    ),
    Case(
        "CRUD Tests resource.k8s.io/v1 ResourceSlice",
        "/apis/resource.k8s.io/v1/resourceslices",
        "ResourceSlice",
        {
            "spec": {
                "driver": "dra.example.com",
                "pool": {"name": "cluster", "generation": 1, "resourceSliceCount": 1},
                "allNodes": True,
                "devices": [{"name": "device-0"}],
            }
        },
    ),
    Case(
        "VolumeAttributesClass should run through the lifecycle of a VolumeAttributesClass",
        "/apis/storage.k8s.io/v1/volumeattributesclasses",
        "VolumeAttributesClass",
        {"driverName": "e2e-fake-csi-driver", "parameters": {"iops": "10"}},
    ),
    Case(
        "StorageClasses CSI Conformance should run through the lifecycle of a StorageClass",
        "/apis/storage.k8s.io/v1/storageclasses",
        "StorageClass",
        {"provisioner": "e2e-fake-provisioner"},
    ),
    Case(
        "VolumeAttachment Conformance should run through the lifecycle of a VolumeAttachment",
        "/apis/storage.k8s.io/v1/volumeattachments",
        "VolumeAttachment",
        {
            "spec": {
                "attacher": "e2e-test.storage.k8s.io",
                "nodeName": "node-1",
                "source": {"persistentVolumeName": "pv-1"},
            }
        },
        {"attached": True},
    ),
    Case(
        "CSIInlineVolumes should run through the lifecycle of a CSIDriver",
        "/apis/storage.k8s.io/v1/csidrivers",
        "CSIDriver",
        {"spec": {"attachRequired": False, "volumeLifecycleModes": ["Ephemeral"]}},
    ),
    Case(
        "CSINodes CSI Conformance should run through the lifecycle of a csinode",
        "/apis/storage.k8s.io/v1/csinodes",
        "CSINode",
        {
            "spec": {
                "drivers": [{"name": "e2e-driver", "nodeID": "node-1", "topologyKeys": ["a", "b"]}]
            }
        },
    ),
    Case(
        "Lease lease API should be available",
        "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
        "Lease",
        {
            "spec": {
                "holderIdentity": "holder",
                "leaseDurationSeconds": 30,
                "acquireTime": "0001-01-01T00:00:02.000000Z",
                "renewTime": "0001-01-01T00:00:05.000000Z",
                "leaseTransitions": 0,
            }
        },
        namespaced=True,
    ),
    Case(
        "PodTemplates should run the lifecycle of PodTemplates",
        "/api/v1/namespaces/{}/podtemplates",
        "PodTemplate",
        {"template": {"spec": POD}},
        namespaced=True,
    ),
    Case(
        "LimitRange should list, patch and delete a LimitRange by collection",
        "/api/v1/namespaces/{}/limitranges",
        "LimitRange",
        {"spec": {"limits": [{"type": "Container", "max": {"cpu": "50m"}}]}},
        namespaced=True,
    ),
    Case(
        "Events API should ensure that an event can be fetched, patched, deleted, and listed",
        "/apis/events.k8s.io/v1/namespaces/{}/events",
        "Event",
        {
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "test-controller",
            "reportingInstance": "test-node",
            "action": "Do",
            "reason": "Test",
            "type": "Normal",
            "note": "This is a test event",
        },
        namespaced=True,
    ),
    Case(
        "Events should manage the lifecycle of an event",
        "/api/v1/namespaces/{}/events",
        "Event",
        {"message": "This is a test event", "reason": "Test", "type": "Normal", "count": 1},
        namespaced=True,
    ),
    Case(
        "ConfigMap should run through a ConfigMap lifecycle",
        "/api/v1/namespaces/{}/configmaps",
        "ConfigMap",
        {"data": {"valueName": "value"}},
        namespaced=True,
    ),
    Case(
        "Secrets should patch a secret",
        "/api/v1/namespaces/{}/secrets",
        "Secret",
        {"data": {"key": "dmFsdWU="}, "type": "Opaque"},
        namespaced=True,
    ),
    Case(
        "ServiceAccounts should run through the lifecycle of a ServiceAccount",
        "/api/v1/namespaces/{}/serviceaccounts",
        "ServiceAccount",
        {},
        namespaced=True,
    ),
    Case(
        "DisruptionController should create a PodDisruptionBudget",
        "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
        "PodDisruptionBudget",
        {"spec": {"minAvailable": "1%", "selector": {"matchLabels": {"foo": "bar"}}}},
        {"disruptedPods": {"pod-0": "2026-01-01T00:00:00Z"}},
        namespaced=True,
    ),
    Case(
        "Endpoints should test the lifecycle of an Endpoint",
        "/api/v1/namespaces/{}/endpoints",
        "Endpoints",
        {
            "subsets": [
                {
                    "addresses": [{"ip": "10.0.0.24"}],
                    "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
                }
            ]
        },
        namespaced=True,
    ),
    Case(
        "ResourceQuota should manage the lifecycle of a ResourceQuota",
        "/api/v1/namespaces/{}/resourcequotas",
        "ResourceQuota",
        {"spec": {"hard": {"cpu": "1", "memory": "500Mi"}}},
        {"hard": {"cpu": "2", "memory": "1Gi"}},
        namespaced=True,
    ),
)


def case_object(case: Case, namespace: str, number: int) -> dict[str, Any]:
    """Return the object of a case with a generated name, or the ``number``-th name if its body has one."""
    group_version = case.path.removeprefix("/api/").removeprefix("/apis/").split("/")
    version = group_version[0] if case.path.startswith("/api/") else "/".join(group_version[:2])
    given = case.body.get("metadata") or {}
    metadata: dict[str, Any] = {"labels": {**given.get("labels", {}), LABEL: namespace}}
    if "name" in given:
        metadata["name"] = given["name"].format(number)
    else:
        metadata["generateName"] = f"e2e-example-{case.kind.lower()}-"
    if case.namespaced:
        metadata["namespace"] = namespace
    body = {"apiVersion": version, "kind": case.kind, **case.body, "metadata": metadata}
    if (version, case.kind) == ("v1", "Event"):
        body["involvedObject"] = {"namespace": namespace}
    if case.kind == "Event" and version != "v1":
        body["regarding"] = {"namespace": namespace}
    if case.kind == "CertificateSigningRequest":
        body["spec"] = {**case.body["spec"], "request": certificate_request()}
    return body


def certificate_request() -> str:
    """Return a certificate request (PEM, base64)."""
    from base64 import b64encode

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "e2e-test")])
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(name)
        .sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    )
    return b64encode(request.public_bytes(serialization.Encoding.PEM)).decode()


async def check_discovery(client: SpecClient, case: Case) -> None:
    """Check that the group, its version and the resource with its subresources are in the discovery documents."""
    parts = case.path.removeprefix("/apis/").split("/")
    resource = parts[-1]
    if case.path.startswith("/api/"):
        resources = (await client.read("/api/v1"))["resources"]
    else:
        group, version = parts[:2]
        groups = {each["name"]: each for each in (await client.read("/apis"))["groups"]}
        assert f"{group}/{version}" in [each["groupVersion"] for each in groups[group]["versions"]]
        assert (await client.read(f"/apis/{group}"))["preferredVersion"]["version"] == version
        resources = (await client.read(f"/apis/{group}/{version}"))["resources"]
    found = {each["name"] for each in resources}
    assert resource in found
    assert case.status is None or f"{resource}/status" in found


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}-{case.path.split('/')[2]}")
async def test_each_verb_of_a_resource(client: SpecClient, namespace: str, case: Case) -> None:
    path, selector = case.path.format(namespace), f"{LABEL}={namespace}"
    everywhere = path.replace(f"/namespaces/{namespace}", "")
    await check_discovery(client, case)
    created = [
        await client.create(path, case_object(case, namespace, number)) for number in (1, 2, 3)
    ]
    names = sorted(each["metadata"]["name"] for each in created)
    one = f"{path}/{created[0]['metadata']['name']}"
    read = await client.read(one)
    assert (read["metadata"]["uid"], read["kind"]) == (created[0]["metadata"]["uid"], case.kind)
    assert await client.names(path, labelSelector=selector) == names
    assert await client.names(everywhere, labelSelector=selector) == names

    async with client.watching(path, labelSelector=selector) as watch:
        patched = await client.merge(one, {"metadata": {"annotations": {"patched": "true"}}})
        assert (patched.code, patched.body["metadata"]["annotations"]["patched"]) == (200, "true")
        await client.update(one, lambda obj: obj["metadata"]["annotations"].update(updated="true"))
        for annotation in ("patched", "updated"):
            await matching(
                watch,
                "MODIFIED",
                lambda obj, key=annotation: (obj["metadata"].get("annotations") or {}).get(key),
            )
        if case.status is not None:
            await check_status(client, one, case.status)
        labels = {"metadata": {"labels": {"changed": "yes"}}}
        assert (await client.strategic(one, labels)).code == 200
        assert (await client.json_patch(one, ("add", "/metadata/labels/more", "yes"))).code == 200
        version = {"apiVersion": read["apiVersion"], "kind": case.kind}
        applied = await client.apply(
            one, version | {"metadata": {"labels": {"applied": "yes"}}}, "test-apply"
        )
        assert (
            applied.body["metadata"]["labels"].items()
            >= {"changed": "yes", "more": "yes", "applied": "yes"}.items()
        )
        deleted = await client.delete(one)
        assert deleted.code == 200, deleted.body
        await matching(
            watch, "DELETED", lambda obj: obj["metadata"]["uid"] == read["metadata"]["uid"]
        )
    assert (await client.get(one)).code == 404
    assert len(await client.names(path, labelSelector=selector)) == 2
    assert (await client.delete(path, query={"labelSelector": selector})).code == 200
    await client.eventually(path, lambda body: not body["items"], {"labelSelector": selector})


STATUS_KEEPS_METADATA = frozenset(
    {
        "FlowSchema",
        "PriorityLevelConfiguration",
        "ResourceClaim",
        "ServiceCIDR",
        "ValidatingAdmissionPolicy",
        "VolumeAttachment",
    }
)
"""The kinds whose metadata a write of the status does not change."""


async def check_status(client: SpecClient, one: str, status: dict[str, Any]) -> None:
    """Patch and update the status; a patch of the status may also set annotations, except of some kinds."""
    body = {"metadata": {"annotations": {"patchedstatus": "true"}}, "status": status}
    patched = await client.merge(f"{one}/status", body)
    assert patched.code == 200, patched.body
    annotations = patched.body["metadata"].get("annotations") or {}
    is_kept = patched.body["kind"] not in STATUS_KEEPS_METADATA
    assert ("patchedstatus" in annotations) == is_kept
    name = next(iter(status))

    def change(obj: dict[str, Any]) -> None:
        value = obj.setdefault("status", {}).setdefault(name, status[name])
        if isinstance(value, list):
            value[0] = {**value[0], "message": "changed"}

    updated = await client.update(one, change, "/status")
    assert name in updated["status"]
    assert (await client.read(f"{one}/status"))["metadata"]["uid"] == updated["metadata"]["uid"]


for _case in CASES:
    plays(_case.spec)(test_each_verb_of_a_resource)
