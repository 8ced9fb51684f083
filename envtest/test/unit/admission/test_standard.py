"""The built-in admission plugins."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.admission.claim_resize import PersistentVolumeClaimResize
from envtest.admission.serviceaccount import MOUNT_PATH
from envtest.apimachinery.errors import StatusError
from envtest.apimachinery.objects import Object
from envtest.registry.resource import ResourceInfo, Strategy
from envtest.storage import Store
from test.support.admission import (
    NAMESPACES,
    NODES,
    PODS,
    FakeWebhookClient,
    admission_chain,
    config_map,
    context,
    store_object,
)


@pytest.fixture
def store() -> Store:
    store = Store()
    store_object(store, "v1", "Namespace", "namespaces", "a", metadata={"labels": {"team": "one"}})
    return store


async def test_creation_in_missing_or_terminating_namespace_is_rejected(store: Store) -> None:
    admission = admission_chain(store, FakeWebhookClient(store))
    ctx = context()
    ctx.namespace = "gone"
    with pytest.raises(StatusError, match='namespaces "gone" not found') as error:
        await admission.mutate(ctx, config_map(), None)
    assert error.value.code == 404
    terminating = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    store_object(store, "v1", "Namespace", "namespaces", "going", metadata=terminating)
    ctx.namespace = "going"
    with pytest.raises(
        StatusError, match="unable to create new content in namespace going because it is being"
    ) as error:
        await admission.mutate(ctx, config_map(), None)
    assert error.value.details is not None
    assert error.value.details["causes"][0]["reason"] == "NamespaceTerminating"
    for operation in ("UPDATE", "DELETE"):
        ctx.operation = operation
        await admission.mutate(ctx, config_map(), config_map())


async def test_system_namespaces_cannot_be_deleted(store: Store) -> None:
    admission = admission_chain(store, FakeWebhookClient(store))
    with pytest.raises(
        StatusError, match='namespaces "default" is forbidden: this namespace may not be deleted'
    ):
        await admission.mutate(
            context(NAMESPACES, "DELETE", name="default"), {}, {"metadata": {"name": "default"}}
        )
    await admission.mutate(
        context(NAMESPACES, "DELETE", name="other"), {}, {"metadata": {"name": "other"}}
    )


def pod(**spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c"}], **spec},
    }


async def test_pods_get_default_priority_and_tolerations(store: Store) -> None:
    admission = admission_chain(store, FakeWebhookClient(store))
    spec = (await admission.mutate(context(PODS), pod(), None))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert [each["key"].rpartition("/")[2] for each in spec["tolerations"]] == [
        "not-ready",
        "unreachable",
    ]
    own = [{"operator": "Exists", "effect": "NoExecute"}]
    assert (await admission.mutate(context(PODS), pod(tolerations=own), None))["spec"][
        "tolerations"
    ] == own


async def test_pods_get_priority_of_their_class(store: Store) -> None:
    admission = admission_chain(store, FakeWebhookClient(store))
    with pytest.raises(
        StatusError, match='pods "x" is forbidden: no PriorityClass with name high was found'
    ):
        await admission.mutate(context(PODS), pod(priorityClassName="high"), None)
    api = "scheduling.k8s.io/v1"
    store_object(
        store, api, "PriorityClass", "priorityclasses", "high", value=7, preemptionPolicy="Never"
    )
    store_object(
        store, api, "PriorityClass", "priorityclasses", "normal", value=3, globalDefault=True
    )
    spec = (await admission.mutate(context(PODS), pod(priorityClassName="high"), None))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (7, "Never")
    spec = (await admission.mutate(context(PODS), pod(), None))["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == ("normal", 3)
    with pytest.raises(
        StatusError, match=r"the integer value of priority \(9\) must not be provided in pod spec"
    ):
        await admission.mutate(context(PODS), pod(priority=9), None)


async def test_pods_get_service_account_and_token_volume(store: Store) -> None:
    admission = admission_chain(store, FakeWebhookClient(store), service_accounts=True)
    with pytest.raises(
        StatusError,
        match=r'error looking up service account a/default: serviceaccount "default" not found',
    ):
        await admission.mutate(context(PODS), pod(), None)
    secrets = [{"name": "pull"}]
    store_object(
        store,
        "v1",
        "ServiceAccount",
        "serviceaccounts",
        "default",
        namespace="a",
        imagePullSecrets=secrets,
    )
    spec = (await admission.mutate(context(PODS), pod(), None))["spec"]
    assert spec["serviceAccountName"] == spec["serviceAccount"] == "default"
    assert spec["imagePullSecrets"] == secrets
    (volume,) = spec["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    (mount,) = spec["containers"][0]["volumeMounts"]
    assert mount == {"name": volume["name"], "readOnly": True, "mountPath": MOUNT_PATH}
    bare = (await admission.mutate(context(PODS), pod(automountServiceAccountToken=False), None))[
        "spec"
    ]
    assert "volumes" not in bare


async def test_claims_nodes_and_ingresses_get_defaults(store: Store) -> None:
    admission = admission_chain(store, FakeWebhookClient(store))
    for api, kind, plural in (
        ("storage.k8s.io", "StorageClass", "storageclasses"),
        ("networking.k8s.io", "IngressClass", "ingressclasses"),
    ):
        annotation = f"{kind.lower()}.kubernetes.io/is-default-class"
        store_object(
            store,
            f"{api}/v1",
            kind,
            plural,
            "usual",
            metadata={"annotations": {annotation: "true"}},
        )
    claims = ResourceInfo(
        "", "v1", "persistentvolumeclaims", "x", "PersistentVolumeClaim", True, Strategy()
    )
    claim = await admission.mutate(context(claims), {"metadata": {"name": "c"}}, None)
    assert claim["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert claim["spec"]["storageClassName"] == "usual"
    named = {"metadata": {"name": "c"}, "spec": {"storageClassName": ""}}
    assert (await admission.mutate(context(claims), named, None))["spec"]["storageClassName"] == ""
    ingresses = ResourceInfo(
        "networking.k8s.io", "v1", "ingresses", "ingress", "Ingress", True, Strategy()
    )
    ingress = await admission.mutate(context(ingresses), {"metadata": {"name": "i"}}, None)
    assert ingress["spec"]["ingressClassName"] == "usual"
    node = await admission.mutate(context(NODES), {"metadata": {"name": "n"}}, None)
    assert node["spec"]["taints"] == [
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    ]


@pytest.mark.parametrize(
    ("name", "phase", "why"),
    [
        ("grows", "Bound", ""),
        ("grows", "Pending", "Only bound persistent volume claims can be expanded"),
        ("fixed", "Bound", "only dynamically provisioned pvc can be resized"),
        ("", "Bound", "only dynamically provisioned pvc can be resized"),
    ],
)
def test_claim_grows_if_its_class_allows_it(store: Store, name: str, phase: str, why: str) -> None:
    for each, allows in (("grows", True), ("fixed", False)):
        store_object(
            store,
            "storage.k8s.io/v1",
            "StorageClass",
            "storageclasses",
            each,
            allowVolumeExpansion=allows,
        )
    info = ResourceInfo(
        group="",
        version="v1",
        kind="PersistentVolumeClaim",
        plural="persistentvolumeclaims",
        singular="persistentvolumeclaim",
        namespaced=True,
        strategy=Strategy(),
    )
    old, new = (
        {
            "metadata": {"name": "c"},
            "spec": {"storageClassName": name, "resources": {"requests": {"storage": size}}},
            "status": {"phase": phase},
        }
        for size in ("1Gi", "2Gi")
    )
    plugin = PersistentVolumeClaimResize(store)
    plugin.validate(context(info, "UPDATE", name="c"), old, new)
    if not why:
        plugin.validate(context(info, "UPDATE", name="c"), new, old)
        return
    with pytest.raises(StatusError, match=why):
        plugin.validate(context(info, "UPDATE", name="c"), new, old)
