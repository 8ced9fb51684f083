"""Objects of the core and other groups: what the server checks, sets and refuses."""

from __future__ import annotations

from typing import Any

import pytest

from envtest import ControlPlane
from test.conformance.client import SpecClient, matching
from test.conformance.specs import plays

IMMUTABLE = {
    "ConfigMap should be immutable if `immutable` field is set": (
        "configmaps",
        "ConfigMap",
        "data",
        "value",
    ),
    "Secrets should be immutable if `immutable` field is set": (
        "secrets",
        "Secret",
        "data",
        "dmFsdWU=",
    ),
}


@plays(*IMMUTABLE)
@pytest.mark.parametrize("spec", IMMUTABLE)
async def test_immutable_data(client: SpecClient, namespace: str, spec: str) -> None:
    plural, kind, field, value = IMMUTABLE[spec]
    path = f"/api/v1/namespaces/{namespace}/{plural}"
    one = f"{path}/immutable"
    await client.create(
        path,
        {"apiVersion": "v1", "kind": kind, "metadata": {"name": "immutable"}, field: {"a": value}},
    )
    await client.update(one, lambda obj: obj[field].update(b=value))
    await client.update(one, lambda obj: obj.update(immutable=True))
    current = await client.read(one)
    for change in ({field: {"a": value, "b": value, "c": value}}, {"immutable": False}):
        assert (await client.put(one, {**current, **change})).code == 422
    assert (
        await client.put(one, {key: value for key, value in current.items() if key != "immutable"})
    ).code == 422
    await client.update(one, lambda obj: obj["metadata"].update(labels={"label1": "value1"}))
    assert (await client.delete(one)).code == 200


@plays(
    "ConfigMap should fail to create ConfigMap with empty key",
    "Secrets should fail to create secret due to empty secret key",
)
async def test_empty_keys_are_rejected(client: SpecClient, namespace: str) -> None:
    for plural, kind in (("configmaps", "ConfigMap"), ("secrets", "Secret")):
        body = {
            "apiVersion": "v1",
            "kind": kind,
            "metadata": {"name": "empty-key"},
            "data": {"": "dmFsdWU="},
        }
        assert (await client.post(f"/api/v1/namespaces/{namespace}/{plural}", body)).code == 422


@plays(
    "ConfigMap should update ConfigMap successfully",
    "ServiceAccounts should update a ServiceAccount",
)
async def test_fields_are_updated(client: SpecClient, namespace: str) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}
    await client.create(f"{core}/configmaps", body)
    updated = await client.update(
        f"{core}/configmaps/one", lambda obj: obj.update(data={"data": "value"})
    )
    assert updated["data"] == {"data": "value"}
    await client.create(f"{core}/serviceaccounts", {**body, "kind": "ServiceAccount"})
    await client.update(
        f"{core}/serviceaccounts/one", lambda obj: obj.update(automountServiceAccountToken=False)
    )
    assert (await client.read(f"{core}/serviceaccounts/one"))[
        "automountServiceAccountToken"
    ] is False


COLLECTIONS = {
    "Events should delete a collection of events": (
        "/api/v1/namespaces/{}/events",
        {"apiVersion": "v1", "kind": "Event", "reason": "Test", "message": "m", "type": "Normal"},
    ),
    "Events API should delete a collection of events": (
        "/apis/events.k8s.io/v1/namespaces/{}/events",
        {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "reason": "Test",
            "note": "n",
            "type": "Normal",
            "action": "Do",
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "test",
            "reportingInstance": "test",
        },
    ),
    "PodTemplates should delete a collection of pod templates": (
        "/api/v1/namespaces/{}/podtemplates",
        {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    ),
    "DisruptionController Listing PodDisruptionBudgets for all namespaces should list and delete a collection of"
    " PodDisruptionBudgets": (
        "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "spec": {"minAvailable": 2, "selector": {"matchLabels": {"foo": "bar"}}},
        },
    ),
    "Pods should delete a collection of pods": (
        "/api/v1/namespaces/{}/pods",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "token-test", "image": "agnhost"}],
            },
        },
    ),
}


@plays(*COLLECTIONS)
@pytest.mark.parametrize("spec", COLLECTIONS)
async def test_collection_is_deleted(client: SpecClient, namespace: str, spec: str) -> None:
    path, body = COLLECTIONS[spec]
    path = path.format(namespace)
    for number in (1, 2, 3):
        metadata: dict[str, Any] = {
            "name": f"set-{number}",
            "namespace": namespace,
            "labels": {"type": "Testing"},
        }
        reference = {"kind": "Pod", "namespace": namespace, "name": "p"}
        event = (
            {"involvedObject": reference}
            if body["apiVersion"] == "v1"
            else {"regarding": reference}
        )
        await client.create(
            path, {**body, "metadata": metadata, **(event if body["kind"] == "Event" else {})}
        )
    everywhere = path.replace(f"/namespaces/{namespace}", "")
    names = await client.names(everywhere, labelSelector="type=Testing")
    assert [name for name in names if name.startswith("set-")] == ["set-1", "set-2", "set-3"]
    assert (await client.delete(path, query={"labelSelector": "type=Testing"})).code == 200
    await client.eventually(path, lambda body: not body["items"], {"labelSelector": "type=Testing"})


@plays("PodTemplates should replace a pod template")
async def test_pod_template_is_replaced(client: SpecClient, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/podtemplates"
    template = {"spec": {"containers": [{"name": "e2e-test", "image": "agnhost"}]}}
    await client.create(
        path,
        {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": {"name": "pt"},
            "template": template,
        },
    )
    updated = await client.update(
        f"{path}/pt", lambda obj: obj["metadata"].update(annotations={"updated": "true"})
    )
    assert updated["metadata"]["annotations"] == {"updated": "true"}


@plays(
    "SchedulerPreemption PriorityClass endpoints verify PriorityClass endpoints can be operated with different HTTP"
    " methods"
)
async def test_priority_classes(client: SpecClient) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    version = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    for name, value in (("p1", 1), ("p2", 2)):
        await client.create(path, {**version, "metadata": {"name": name}, "value": value})
        one = f"{path}/{name}"
        for change in ({"value": value * 10}, {"preemptionPolicy": "Never"}):
            assert (await client.strategic(one, change)).code == 422
            assert (await client.put(one, {**await client.read(one), **change})).code == 422
        patched = await client.strategic(one, {"description": "new"})
        assert patched.body["description"] == "new"
        await client.update(one, lambda obj: obj.update(description="updated"))
    assert {"p1", "p2"} <= set(await client.names(path))


@plays("ServiceAccounts should guarantee kube-root-ca.crt exist in any namespace")
async def test_root_ca_is_restored(client: SpecClient, namespace: str) -> None:
    one = f"/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt"
    certificate = (await client.read(one))["data"]["ca.crt"]
    assert (await client.delete(one)).code == 200
    await client.until(one, 200)
    await client.update(one, lambda obj: obj.update(data={"ca.crt": ""}))
    await client.eventually(one, lambda body: body["data"] == {"ca.crt": certificate})


@plays("ServiceAccounts should allow opting out of API token automount")
@pytest.mark.parametrize("of_account", [None, True, False])
@pytest.mark.parametrize("of_pod", [None, True, False])
async def test_tokens_are_mounted(
    client: SpecClient, namespace: str, of_account: Any, of_pod: Any
) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "account"}}
    setting = {} if of_account is None else {"automountServiceAccountToken": of_account}
    await client.create(f"{core}/serviceaccounts", account | setting)
    spec: dict[str, Any] = {
        "serviceAccountName": "account",
        "containers": [{"name": "c", "image": "i"}],
    }
    spec |= {} if of_pod is None else {"automountServiceAccountToken": of_pod}
    pod = await client.create(
        f"{core}/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    )
    mounts = pod["spec"]["containers"][0].get("volumeMounts") or ()
    paths = [mount["mountPath"] for mount in mounts]
    expected = of_pod if of_pod is not None else of_account is not False
    assert ("/var/run/secrets/kubernetes.io/serviceaccount" in paths) == expected


@plays("ServiceAccounts should create a serviceAccountToken and ensure a successful TokenReview")
async def test_token_of_an_account_is_reviewed(client: SpecClient, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    account = await client.create(
        path, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "e2e"}}
    )
    version = {"apiVersion": "authentication.k8s.io/v1"}
    request = await client.create(
        f"{path}/e2e/token", {**version, "kind": "TokenRequest", "spec": {}}
    )
    review = {**version, "kind": "TokenReview", "spec": {"token": request["status"]["token"]}}
    status = (await client.create("/apis/authentication.k8s.io/v1/tokenreviews", review))["status"]
    assert (status["authenticated"], status.get("error")) == (True, None)
    assert status["user"]["username"] == f"system:serviceaccount:{namespace}:e2e"
    assert status["user"]["uid"] == account["metadata"]["uid"]


@plays("SubjectReview should support SubjectReview API operations")
async def test_subject_access_reviews(client: SpecClient, namespace: str) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    await client.create(
        f"{core}/serviceaccounts",
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "e2e"}},
    )
    user = f"system:serviceaccount:{namespace}:e2e"
    attributes = {"verb": "list", "resource": "configmaps", "version": "v1", "namespace": namespace}
    spec = {"user": user, "resourceAttributes": attributes}
    base = "/apis/authorization.k8s.io/v1"
    reviews = []
    for path, kind in (
        (f"{base}/subjectaccessreviews", "SubjectAccessReview"),
        (f"{base}/namespaces/{namespace}/localsubjectaccessreviews", "LocalSubjectAccessReview"),
    ):
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": kind,
            "metadata": {"namespace": namespace},
            "spec": spec,
        }
        if kind == "SubjectAccessReview":
            del body["metadata"]
        reviews.append((await client.create(path, body))["status"]["allowed"])
    response = await client.get(f"{core}/configmaps", headers={"Impersonate-User": user})
    assert (reviews, response.code) == ([False, False], 403)


@plays("Node Lifecycle should run through the lifecycle of a node")
async def test_lifecycle_of_a_node(client: SpecClient) -> None:
    path = "/api/v1/nodes"
    one = f"{path}/e2e-fake-node"
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "e2e-fake-node"}}
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True", "message": "Set from e2e"}],
    }
    await client.create(path, {**body, "status": status})
    patched = await client.strategic(one, {"metadata": {"labels": {"e2e-fake-node": "patched"}}})
    assert patched.body["metadata"]["labels"]["e2e-fake-node"] == "patched"
    assert await client.names(path, labelSelector="e2e-fake-node=patched") == ["e2e-fake-node"]
    await client.update(
        one, lambda obj: obj["metadata"]["labels"].update({"e2e-fake-node": "updated"})
    )
    async with client.watching(path, labelSelector="e2e-fake-node=updated") as watch:
        assert (await client.delete(one)).code == 200
        await matching(watch, "DELETED", lambda obj: obj["metadata"]["name"] == "e2e-fake-node")


@plays("Conformance Tests should have at least two untainted nodes")
async def test_nodes_are_ready(client: SpecClient) -> None:
    def ready(body: Any) -> bool:
        conditions = [each["status"].get("conditions") or () for each in body["items"]]
        return len(conditions) >= 2 and all(
            {"Ready"} <= {c["type"] for c in each if c["status"] == "True"} for each in conditions
        )

    nodes = (await client.eventually("/api/v1/nodes", ready))["items"]
    assert [node["spec"].get("taints") for node in nodes] == [None, None]


VOLUME = {
    "capacity": {"storage": "1Gi"},
    "accessModes": ["ReadWriteOnce"],
    "csi": {"driver": "e2e-driver", "volumeHandle": "e2e-handle"},
    "storageClassName": "e2e-class",
    "persistentVolumeReclaimPolicy": "Retain",
}
CLAIM = {
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}},
    "storageClassName": "e2e-class",
}


@plays(
    "PersistentVolumes CSI Conformance should run through the lifecycle of a PV and a PVC",
    "PersistentVolumes CSI Conformance should apply changes to a pv/pvc status",
)
async def test_lifecycle_of_volumes_and_claims(client: SpecClient, namespace: str) -> None:
    volumes, claims = (
        "/api/v1/persistentvolumes",
        f"/api/v1/namespaces/{namespace}/persistentvolumeclaims",
    )
    for path, kind, spec in (
        (volumes, "PersistentVolume", VOLUME),
        (claims, "PersistentVolumeClaim", CLAIM),
    ):
        metadata = {"name": "e2e", "labels": {"e2e-pv-pool": namespace}}
        await client.create(
            path, {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}
        )
    for path in (volumes, claims):
        one = f"{path}/e2e"
        assert (await client.read(f"{one}/status"))["kind"]
        patched = await client.strategic(one, {"metadata": {"labels": {"e2e": "patched"}}})
        assert patched.body["metadata"]["labels"]["e2e"] == "patched"
        assert await client.names(path, labelSelector="e2e=patched") == ["e2e"]
    condition = {
        "type": "StatusPatched",
        "status": "True",
        "reason": "E2E patchStatus",
        "message": "Set by e2e test",
    }
    patched = await client.strategic(
        f"{claims}/e2e/status", {"status": {"conditions": [condition]}}
    )
    assert "StatusPatched" in [each["type"] for each in patched.body["status"]["conditions"]]
    patched = await client.strategic(
        f"{volumes}/e2e/status", {"status": {"message": "StatusPatched", "reason": "E2E"}}
    )
    assert patched.body["status"]["message"] == "StatusPatched"
    updated = {**condition, "type": "StatusUpdated"}
    await client.update(
        f"{claims}/e2e", lambda obj: obj["status"].update(conditions=[updated]), "/status"
    )
    await client.update(
        f"{volumes}/e2e", lambda obj: obj["status"].update(reason="E2E", message="x"), "/status"
    )
    assert (await client.delete(f"{claims}/e2e")).code == 200
    await client.vanished(f"{claims}/e2e")
    assert (
        await client.delete(volumes, query={"labelSelector": f"e2e-pv-pool={namespace}"})
    ).code == 200
    await client.vanished(f"{volumes}/e2e")


@plays("VolumeAttachment Conformance should apply changes to a volumeattachment status")
async def test_status_of_a_volume_attachment(client: SpecClient) -> None:
    path = "/apis/storage.k8s.io/v1/volumeattachments"
    spec = {
        "attacher": "e2e-test.storage.k8s.io",
        "nodeName": "n",
        "source": {"persistentVolumeName": "p"},
    }
    version = {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment"}
    created = await client.create(path, {**version, "metadata": {"name": "va"}, "spec": spec})
    assert created["status"] == {"attached": False}
    patched = await client.merge(f"{path}/va/status", {"status": {"attached": True}})
    assert patched.body["status"]["attached"] is True
    updated = await client.update(
        f"{path}/va", lambda obj: obj["status"].update(attached=False), "/status"
    )
    assert updated["status"]["attached"] is False


@plays(
    "RuntimeClass should reject a Pod requesting a non-existent RuntimeClass",
    "RuntimeClass should reject a Pod requesting a deleted RuntimeClass",
    "RuntimeClass should schedule a Pod requesting a RuntimeClass without PodOverhead",
    "RuntimeClass should schedule a Pod requesting a RuntimeClass and initialize its Overhead",
)
async def test_pods_with_runtime_classes(client: SpecClient, namespace: str) -> None:
    pods, classes = f"/api/v1/namespaces/{namespace}/pods", "/apis/node.k8s.io/v1/runtimeclasses"

    def pod(name: str) -> dict[str, Any]:
        spec = {"runtimeClassName": name, "containers": [{"name": "test", "image": "busybox"}]}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": f"{name}-"},
            "spec": spec,
        }

    refused = await client.post(pods, pod("nonexistent"))
    assert refused.code == 403, refused.body
    overhead = {"overhead": {"podFixed": {"cpu": "10m", "memory": "1Mi"}}}
    for name, more in (("plain", {}), ("overhead", overhead)):
        body = {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": name},
            "handler": "h",
        }
        await client.create(classes, body | more)
        created = await client.create(pods, pod(name))
        assert created["spec"].get("overhead") == more.get("overhead", {}).get("podFixed")
        one = f"{pods}/{created['metadata']['name']}"
        await client.eventually(one, lambda body: body["spec"].get("nodeName"))
        assert (await client.delete(f"{classes}/{name}")).code == 200
        assert (await client.post(pods, pod(name))).code == 403


@plays("Sysctls should reject invalid sysctls")
async def test_invalid_sysctls_are_rejected(client: SpecClient, namespace: str) -> None:
    values = [
        {"name": name, "value": "10"}
        for name in ("foo-", "kernel.shmmax", "safe-and-unsafe", "bar..")
    ]
    spec = {
        "securityContext": {"sysctls": values},
        "containers": [{"name": "c", "image": "busybox"}],
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sysctl"}, "spec": spec}
    response = await client.post(f"/api/v1/namespaces/{namespace}/pods", body)
    assert response.code == 422
    fields = [cause["field"] for cause in response.body["details"]["causes"]]
    assert fields == [
        "spec.securityContext.sysctls[0].name",
        "spec.securityContext.sysctls[3].name",
    ]


@plays("CSIInlineVolumes should support CSIVolumeSource in Pod API")
async def test_pods_with_csi_volumes(client: SpecClient, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    volume = {"name": "csi", "csi": {"driver": "e2e.example.com"}}
    spec = {"containers": [{"name": "c", "image": "pause"}], "volumes": [volume]}
    created = await client.create(
        path, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "inline"}, "spec": spec}
    )
    assert volume in created["spec"]["volumes"]
    patched = await client.strategic(
        f"{path}/inline", {"metadata": {"labels": {"inline": "patched"}}}
    )
    assert patched.code == 200
    assert await client.names("/api/v1/pods", labelSelector="inline=patched") == ["inline"]
    assert (await client.delete(f"{path}/inline", query={"gracePeriodSeconds": "0"})).code == 200
    await client.vanished(f"{path}/inline")


async def test_cluster_has_no_pods_of_its_own(cluster: ControlPlane, client: SpecClient) -> None:
    await cluster.advance(0)
    assert await client.names("/api/v1/pods") == []
