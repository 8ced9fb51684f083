"""The official Python client: typed, dynamic and custom objects, watches, server-side apply, errors and pagination.

Runs in the interpreter in which the client is installed, with ``KUBECONFIG`` in the environment.
"""

from __future__ import annotations

import threading

from kubernetes import client, config, dynamic, utils, watch
from kubernetes.client.exceptions import ApiException

NAMESPACE = "official"
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "bolts.official.example.com"},
    "spec": {
        "group": "official.example.com",
        "scope": "Namespaced",
        "names": {"plural": "bolts", "singular": "bolt", "kind": "Bolt"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"size": {"type": "integer", "maximum": 9}},
                            },
                            "status": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                            },
                        },
                    }
                },
            }
        ],
    },
}


def status_of(call, *arguments, **keywords):
    try:
        call(*arguments, **keywords)
    except ApiException as error:
        return error.status
    return 200


def typed(api):
    core, apps = client.CoreV1Api(api), client.AppsV1Api(api)
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))
    for name in ("a", "b", "c"):
        metadata = client.V1ObjectMeta(name=name, labels={"app": "typed"})
        core.create_namespaced_config_map(
            NAMESPACE, client.V1ConfigMap(metadata=metadata, data={"k": name})
        )
    page = core.list_namespaced_config_map(NAMESPACE, label_selector="app=typed", limit=2)
    rest = core.list_namespaced_config_map(
        NAMESPACE, label_selector="app=typed", limit=2, _continue=page.metadata._continue
    )
    assert [item.metadata.name for item in page.items + rest.items] == ["a", "b", "c"]
    again = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="a"))
    assert status_of(core.create_namespaced_config_map, NAMESPACE, again) == 409
    stale = core.read_namespaced_config_map("a", NAMESPACE)
    core.patch_namespaced_config_map("a", NAMESPACE, {"data": {"k": "new"}})
    assert status_of(core.replace_namespaced_config_map, "a", NAMESPACE, stale) == 409
    assert core.read_namespaced_config_map("a", NAMESPACE).data == {"k": "new"}
    container = client.V1Container(
        name="web", image="nginx:1", ports=[client.V1ContainerPort(container_port=80)]
    )
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels={"app": "web"}),
        spec=client.V1PodSpec(containers=[container]),
    )
    selector = client.V1LabelSelector(match_labels={"app": "web"})
    spec = client.V1DeploymentSpec(replicas=2, selector=selector, template=template)
    apps.create_namespaced_deployment(
        NAMESPACE, client.V1Deployment(metadata=client.V1ObjectMeta(name="web"), spec=spec)
    )
    events = watch.Watch()
    for event in events.stream(apps.list_namespaced_deployment, NAMESPACE, timeout_seconds=100):
        if event["object"].status.available_replicas == 2:
            events.stop()
    assert event["object"].status.available_replicas == 2
    scale = apps.patch_namespaced_deployment_scale("web", NAMESPACE, {"spec": {"replicas": 1}})
    assert scale.spec.replicas == 1
    core.delete_collection_namespaced_config_map(NAMESPACE, label_selector="app=typed")
    assert status_of(core.read_namespaced_config_map, "a", NAMESPACE) == 404


def watches(api):
    core = client.CoreV1Api(api)
    start = core.list_namespaced_secret(NAMESPACE).metadata.resource_version

    def write():
        core.create_namespaced_secret(
            NAMESPACE,
            client.V1Secret(metadata=client.V1ObjectMeta(name="s"), string_data={"k": "v"}),
        )
        core.patch_namespaced_secret("s", NAMESPACE, {"stringData": {"k": "w"}})
        core.delete_namespaced_secret("s", NAMESPACE)

    thread = threading.Thread(target=write)
    thread.start()
    seen, events = [], watch.Watch()
    for event in events.stream(
        core.list_namespaced_secret, NAMESPACE, resource_version=start, timeout_seconds=100
    ):
        seen.append((event["type"], event["object"].data["k"]))
        if event["type"] == "DELETED":
            events.stop()
    thread.join()
    assert seen == [("ADDED", "dg=="), ("MODIFIED", "dw=="), ("DELETED", "dw==")], seen


def dynamic_client(api):
    resources = dynamic.DynamicClient(api)
    crds = resources.resources.get(
        api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition"
    )
    crds.create(body=CRD)
    for event in crds.watch(field_selector="metadata.name=bolts.official.example.com", timeout=100):
        if any(
            item.type == "Established" and item.status == "True"
            for item in event["object"].status.conditions or []
        ):
            break
    bolts = resources.resources.get(api_version="official.example.com/v1", kind="Bolt")
    body = {
        "apiVersion": "official.example.com/v1",
        "kind": "Bolt",
        "metadata": {"name": "one"},
        "spec": {"size": 3},
    }
    applied = bolts.server_side_apply(body=body, namespace=NAMESPACE, field_manager="first")
    assert applied.spec.size == 3
    assert applied.metadata.managedFields[0].operation == "Apply"
    body["spec"]["size"] = 4
    for manager, force, expected in (
        ("second", False, 409),
        ("second", True, 200),
        ("first", False, 409),
    ):
        assert expected == status_of(
            bolts.server_side_apply,
            body={**body, "spec": {"size": 4 if manager == "second" else 5}},
            namespace=NAMESPACE,
            field_manager=manager,
            force_conflicts=force,
        ), manager
    body["spec"]["size"] = 10
    assert (
        status_of(bolts.server_side_apply, body=body, namespace=NAMESPACE, field_manager="second")
        == 422
    )
    patch = {"status": {"phase": "Tight"}}
    bolts.status.patch(
        name="one", namespace=NAMESPACE, body=patch, content_type="application/merge-patch+json"
    )
    assert bolts.get(name="one", namespace=NAMESPACE).status.phase == "Tight"
    assert [
        item.kind
        for item in resources.resources.search(kind="Bolt")
        if item.group == "official.example.com"
    ]
    bolts.delete(name="one", namespace=NAMESPACE)
    assert bolts.get(namespace=NAMESPACE).items == []


def custom_objects(api):
    custom = client.CustomObjectsApi(api)
    where = {
        "group": "official.example.com",
        "version": "v1",
        "namespace": NAMESPACE,
        "plural": "bolts",
    }
    body = {
        "apiVersion": "official.example.com/v1",
        "kind": "Bolt",
        "metadata": {"name": "two"},
        "spec": {"size": 2},
    }
    custom.create_namespaced_custom_object(body=body, **where)
    changed = custom.patch_namespaced_custom_object(name="two", body={"spec": {"size": 5}}, **where)
    assert changed["spec"] == {"size": 5}
    events = watch.Watch()
    for event in events.stream(custom.list_namespaced_custom_object, timeout_seconds=100, **where):
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "two")
        events.stop()
    custom.delete_namespaced_custom_object(name="two", **where)


def others(api):
    assert client.VersionApi(api).get_code().minor.isdigit()
    assert "apps" in {group.name for group in client.ApisApi(api).get_api_versions().groups}
    review = client.V1SelfSubjectReview()
    assert (
        client.AuthenticationV1Api(api).create_self_subject_review(review).status.user_info.username
        == "admin"
    )
    attributes = client.V1ResourceAttributes(verb="get", resource="pods", namespace=NAMESPACE)
    spec = client.V1SubjectAccessReviewSpec(user="jane", resource_attributes=attributes)
    access = client.AuthorizationV1Api(api).create_subject_access_review(
        client.V1SubjectAccessReview(spec=spec)
    )
    assert access.status.allowed is False
    core = client.CoreV1Api(api)
    request = client.AuthenticationV1TokenRequest(
        spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=600)
    )
    assert (
        core.create_namespaced_service_account_token(
            "default", NAMESPACE, request
        ).status.token.count(".")
        == 2
    )
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "yaml", "namespace": NAMESPACE},
    }
    utils.create_from_dict(api, manifest)
    start = core.list_namespace().metadata.resource_version
    core.delete_namespace(NAMESPACE)
    for event in watch.Watch().stream(
        core.list_namespace, resource_version=start, timeout_seconds=100
    ):
        if event["type"] == "DELETED" and event["object"].metadata.name == NAMESPACE:
            return
    raise AssertionError("the namespace was not deleted")


if __name__ == "__main__":
    config.load_kube_config()
    with client.ApiClient() as shared:
        for check in (typed, watches, dynamic_client, custom_objects, others):
            check(shared)
            print(check.__name__, flush=True)
