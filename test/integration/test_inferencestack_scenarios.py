"""The life of InferenceStacks: created, changed, handed over, upgraded, scaled, adopted and deleted."""

from __future__ import annotations

from typing import Any

from cfo.api.inferencestack.kinds import INFERENCE_STACKS, PERSISTENT_VOLUME_CLAIM, SCALED_OBJECT
from cfo.api.inferencestack.names import PAUSE_ANNOTATION, RETAINED
from cfo.api.inferencestack.profiles import PROFILES
from cfo.controllers.inferencestack.rendering.stack import render
from cfo.runtime.client.client import Propagation
from cfo.runtime.objects.kinds import CONFIG_MAP, DEPLOYMENT, POD, SERVICE_ACCOUNT
from cfo.runtime.objects.unstructured import (
    NamespacedName,
    Object,
    find_condition,
    key_of,
    name_of,
    owner_reference,
    owner_references_of,
)
from test.support.inference_environment import (
    KEDA_CRD,
    STACK,
    InferenceEnvironment,
    new_stack,
    run_inference_controllers,
    start_inference_environment,
)
from test.support.raycluster_environment import eventually

GATEWAY = "s-inference-stack-gateway"


async def test_stack_becomes_ready_and_only_changed_objects_are_written() -> None:
    """Scenarios a, b, d, e, f and m of one stack."""
    async with start_inference_environment() as env:
        created = await env.create(new_stack({"hello-world": {}, "other": {}}))
        async with run_inference_controllers(env):
            await check_creation(env, created)
            await check_changes(env)
        await check_restart(env)
        await check_lost_label(env)


async def check_creation(env: InferenceEnvironment, created: Object) -> None:
    ready = await env.wait_for_condition("Ready", "True")
    assert ready["message"] == "the gateway is ready, and 2 of 2 applications are ready"
    objects = await env.objects()
    assert sorted(objects) == [
        ("ConfigMap", "s-inference-stack-gateway"),
        ("ConfigMap", "s-inference-stack-hello-world"),
        ("ConfigMap", "s-inference-stack-other"),
        ("Deployment", "s-inference-stack-gateway"),
        ("Deployment", "s-inference-stack-hello-world"),
        ("Deployment", "s-inference-stack-other"),
        ("Service", "s-inference-stack-gateway"),
        ("ServiceAccount", "s-inference-stack"),
    ]
    for obj in objects.values():
        (owner,) = owner_references_of(obj)
        assert (owner["uid"], owner["controller"]) == (created["metadata"]["uid"], True)
    await env.wait_until_idle()
    assert env.child_writes() == ["apply"] * 8, "one write for each object"
    status = (await env.stack())["status"]
    assert status["readyApplications"] == "2/2"
    assert status["url"] == "http://s-inference-stack-gateway.ns.svc"
    assert [item["state"] for item in status["applications"]] == ["Ready", "Ready"]
    assert status["applications"][0]["model"] == "TitanML/dummy_model"
    types = {item["type"]: item["status"] for item in status["conditions"]}
    assert types == {
        "Ready": "True",
        "Progressing": "False",
        "Degraded": "False",
        "GatewayReady": "True",
        "ApplicationsReady": "True",
        "RoutesReady": "True",
        "ScalingReady": "True",
        "Initialized": "True",
        "Deployed": "True",
        "ReleaseFailed": "False",
        "Irreconcilable": "False",
    }


async def check_changes(env: InferenceEnvironment) -> None:
    before = await env.generations()
    env.clear_requests()
    await env.change(applications={"other": {"readerConfig": {"modelName": "org/other"}}})
    await env.wait_for_condition("Ready", "True")
    await env.wait_until_idle()
    changed = await env.generations()
    assert changed.pop("s-inference-stack-other") > before.pop("s-inference-stack-other")
    assert changed == before
    assert env.child_writes() == ["apply"] * 2, "the ConfigMap and the Deployment"
    before = await env.generations()
    env.clear_requests()
    current = await env.stack()  # as a console: read, change, replace
    current["spec"]["applications"] = {"hello-world": {}}
    await env.client.update(current)
    await env.wait_for(
        lambda obj: obj["status"].get("readyApplications") == "1/1", "the application is removed"
    )
    await env.wait_until_idle()
    assert env.child_writes() == ["delete"] * 2
    assert not [key for key in await env.objects() if key[1].endswith("other")]
    after = await env.generations()
    assert after == {name: before[name] for name in after}
    config_map = await env.get(CONFIG_MAP, GATEWAY)
    await env.delete(config_map)
    await env.patch(
        await env.get(SERVICE_ACCOUNT, "s-inference-stack"), {"metadata": {"labels": None}}
    )
    await env.wait_until_idle()
    assert (CONFIG_MAP.kind, GATEWAY) in await env.objects(), "it is recreated"
    assert (SERVICE_ACCOUNT.kind, "s-inference-stack") in await env.objects(), (
        "its labels are restored"
    )
    assert await env.generations() == after


async def check_restart(env: InferenceEnvironment) -> None:
    async with run_inference_controllers(env):
        await env.wait_until_idle()
        assert env.writes() == []


async def check_lost_label(env: InferenceEnvironment) -> None:
    before = {key: obj["metadata"]["resourceVersion"] for key, obj in (await env.objects()).items()}
    async with run_inference_controllers(env):
        await env.wait_until_idle()
        await env.label(None)
        await env.change(applications={"hello-world": None})
        await env.wait_until_idle()
        assert env.writes() == []
    assert {
        key: obj["metadata"]["resourceVersion"] for key, obj in (await env.objects()).items()
    } == before


async def test_label_change_hands_the_stack_over_without_a_restart() -> None:
    """Scenario c: the pods and the profile stay, and at no time two operators write."""
    async with start_inference_environment() as env:
        await env.create(new_stack({"a": {}}, version="v1"))
        async with run_inference_controllers(env, "v1") as first:
            await env.wait_for_condition("Ready", "True")
            await env.wait_until_idle()
            before = await env.generations()
            async with run_inference_controllers(env, "v2"):
                await env.wait_until_idle()
                assert env.writes() == []
                await env.label("v2")
                taken = await env.wait_for(
                    lambda obj: obj["status"]["operator"]["major"] == "v2", "v2 has it"
                )
                await env.wait_until_idle()
                assert (taken["status"]["profile"], await env.generations()) == ("v1.0", before)
                assert env.child_writes() == []
                assert (
                    len(first.cache.informer(STACK, label_selector="operatorVersion=v1").reader)
                    == 0
                )


async def test_deleted_stack_is_left_to_the_garbage_collector() -> None:
    """Scenario i: nothing is recreated, and the volume with the models stays."""
    async with start_inference_environment() as env:
        async with run_inference_controllers(env):
            for policy in (Propagation.FOREGROUND, Propagation.BACKGROUND):
                await env.create(new_stack({"a": {"cache": {"size": "1Gi"}}, "b": {}}))
                await env.wait_for_condition("Ready", "True")
                env.clear_requests()
                await env.client.delete(STACK, NamespacedName("ns", "s"), propagation_policy=policy)

                async def is_deleted() -> bool:
                    return await env.find(STACK, "s") is None and list(await env.objects()) == [
                        ("PersistentVolumeClaim", "s-inference-stack-a-models")
                    ]

                await eventually(is_deleted, f"deleted in the {policy}")
                await env.wait_until_idle()
                assert env.child_writes() == []
        volume = await env.get(PERSISTENT_VOLUME_CLAIM, "s-inference-stack-a-models")
        assert (owner_references_of(volume), volume["metadata"]["annotations"]) == (
            [],
            {RETAINED: "true"},
        )


async def scale(env: InferenceEnvironment, name: str, replicas: int) -> None:
    """Set the number of replicas through the scale subresource, as an autoscaler does."""
    client = env.client.with_field_manager("kube-controller-manager")
    body = {"spec": {"replicas": replicas}}
    await client.patch(DEPLOYMENT, NamespacedName("ns", name), body, subresource="scale")


async def replicas_of(env: InferenceEnvironment, name: str) -> int:
    return int((await env.get(DEPLOYMENT, name))["spec"]["replicas"])


async def test_scaling_keeps_the_number_of_replicas() -> None:
    """Scenarios g and h: KEDA is installed later; switching autoscaling on and off never changes the count."""
    async with start_inference_environment() as env:
        name = "s-inference-stack-a"
        counts: list[int] = []
        await env.create(new_stack({"a": {"replicaCount": 6}, "b": {"replicaCount": 2}}))
        async with run_inference_controllers(env) as manager:

            def record(event: Any) -> None:
                if event.new is not None and event.key.name == name:
                    counts.append(event.new.object()["spec"]["replicas"])

            await env.wait_for_condition("Ready", "True")
            for informer in manager.cache.informers:
                if informer.gvk == DEPLOYMENT:
                    informer.add_handler(record)
            limits = {"minReplicaCount": 6, "maxReplicaCount": 8}
            await env.change(applications={"a": {"scaling": {"enabled": True, "spec": limits}}})
            absent = await env.wait_for_condition("ScalingReady", "False", "KEDANotInstalled")
            assert "does not serve ScaledObjects" in absent["message"]
            await env.create(KEDA_CRD)

            async def scaled_object() -> Object | None:
                return await env.find(SCALED_OBJECT, name)

            await eventually(scaled_object, "the ScaledObject is created when KEDA is installed")
            await env.wait_for_condition("ScalingReady", "True")
            await env.wait_until_idle()
            await scale(env, name, 8)
            await env.wait_until_idle()
            await env.change(applications={"a": {"readerConfig": {"logLevel": "DEBUG"}}})
            await env.wait_for_condition("Ready", "True")
            await env.wait_until_idle()
            assert await replicas_of(env, name) == 8
            deployment = await env.get(DEPLOYMENT, name)
            owners = [
                entry["manager"]
                for entry in deployment["metadata"]["managedFields"]
                if "f:replicas" in entry["fieldsV1"].get("f:spec", {})
            ]
            assert owners == ["kube-controller-manager"], "the autoscaler alone sets the number"
            await scale(env, name, 0)
            await env.wait_for(
                lambda obj: obj["status"]["applications"][0]["state"] == "Idle", "idle"
            )
            await env.wait_for_condition("Ready", "True")
            await scale(env, name, 8)
            await env.change(applications={"a": {"scaling": {"enabled": False}}})

            async def is_pruned() -> bool:
                return await scaled_object() is None

            await eventually(is_pruned, "the ScaledObject is deleted")
            await env.wait_for_condition("Ready", "True")
            await env.wait_until_idle()
            assert await replicas_of(env, name) == 8
            await env.change(applications={"a": {"replicaCount": 3}})
            await env.wait_for_condition("Ready", "True")
            assert await replicas_of(env, name) == 3
            await check_autoscaler_of_a_user(env)
        assert [count for count in counts if count not in (6, 8, 0, 3)] == []


async def check_autoscaler_of_a_user(env: InferenceEnvironment) -> None:
    name = "s-inference-stack-b"
    await env.wait_until_idle()
    env.clear_requests()
    for replicas in (5, 6):
        await scale(env, name, replicas)
        await env.wait_until_idle()
        assert await replicas_of(env, name) == replicas
    # On a busy machine, the second change can be seen before the label has arrived in the cache.
    assert env.child_writes() in (["apply"], ["apply", "apply"]), "the label"
    await env.change(applications={"b": {"replicaCount": 3}})
    await env.wait_for_condition("Ready", "True")
    assert await replicas_of(env, name) == 3, "a new replicaCount is written once"


async def install_with_helm(env: InferenceEnvironment, stack: Object, profile: str) -> Object:
    """Create the stack and its objects as the original operator does; return the stack."""
    created = await env.create(stack)
    helm = env.client.with_field_manager("helm-operator")
    chart = {
        "helm.sh/chart": f"inference-stack-{PROFILES[profile].chart}",
        "app.kubernetes.io/version": PROFILES[profile].app_version,
        "app.kubernetes.io/managed-by": "Helm",
    }
    for obj in render(created, PROFILES[profile]):
        metadata = obj["metadata"]
        metadata["labels"] |= chart
        metadata["annotations"] = {
            "meta.helm.sh/release-name": name_of(stack),
            "meta.helm.sh/release-namespace": "ns",
        }
        metadata["ownerReferences"] = [owner_reference(created)]
        if obj["kind"] == "Deployment":
            template = obj["spec"]["template"]["metadata"]
            template["labels"] |= chart
            template.pop("annotations", None)
        await helm.create(obj)
    status = {
        "conditions": [{"type": "Deployed", "status": "True", "reason": "InstallSuccessful"}],
        "deployedRelease": {"name": name_of(stack), "manifest": "---"},
    }
    return await helm.patch(STACK, key_of(created), {"status": status}, subresource="status")


async def test_stack_of_helm_is_adopted_without_a_restart() -> None:
    """Scenario j."""
    async with start_inference_environment() as env:
        applications = {"a": {"env": [{"name": "OLD", "value": "1"}]}, "b": {"engine": "external"}}
        stack = new_stack(applications, gateway={"replicaCount": 2})
        stack["metadata"]["finalizers"] = ["uninstall-helm-release"]
        await install_with_helm(env, stack, "v2.10")
        foreign = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "t-inference-stack-gateway"},
        }
        foreign["metadata"]["namespace"] = "ns"
        await env.create(foreign)

        async def rolled_out() -> bool:
            found = await env.client.list(DEPLOYMENT, namespace="ns")
            return all((item.get("status") or {}).get("availableReplicas") for item in found)

        await eventually(rolled_out, "Helm's Deployments are available")
        before = await env.generations()
        assert len(before) == 3
        async with run_inference_controllers(env):
            await env.wait_for_condition("Ready", "True")
            await env.wait_until_idle()
            assert await env.generations() == before
            adopted = await env.stack()
            assert "finalizers" not in adopted["metadata"]
            assert (adopted["status"]["profile"], adopted["status"]["deployedRelease"]) == (
                "v2.10",
                {"name": "s"},
            )
            for (kind, _), obj in (await env.objects()).items():
                if kind == DEPLOYMENT.kind:
                    continue
                assert "annotations" not in obj["metadata"] or not any(
                    key.startswith("meta.helm.sh") for key in obj["metadata"]["annotations"]
                )
                assert not [
                    item
                    for item in obj["metadata"]["managedFields"]
                    if item["manager"] == "helm-operator"
                ]
        async with run_inference_controllers(env):
            await env.wait_until_idle()
            assert env.writes() == []
            await env.change(upgradePolicy="OnSpecChange", applications={"a": {"env": None}})
            await env.wait_for_condition("Ready", "True")
            await env.wait_until_idle()
            container = (await env.get(DEPLOYMENT, "s-inference-stack-a"))["spec"]["template"][
                "spec"
            ]["containers"][0]
            assert "OLD" not in {item["name"] for item in container["env"]}, (
                "Helm does not own it any longer"
            )
            assert (await env.stack())["status"]["profile"] == "v2.13"
            await check_objects_of_other_owners(env)


async def check_objects_of_other_owners(env: InferenceEnvironment) -> None:
    metadata = {"name": "t-inference-stack-a-models", "namespace": "ns"}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await env.create(
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
    )
    await env.create(new_stack({"a": {"cache": {"size": "1Gi"}}, "b": {}}, name="t"))
    failed = await env.wait_for_condition("Ready", "False", "NameTaken", name="t")
    assert "ConfigMap t-inference-stack-gateway already exists" in failed["message"]
    untouched = await env.get(CONFIG_MAP, "t-inference-stack-gateway")
    assert "labels" not in untouched["metadata"]
    deployments = [name for kind, name in await env.objects("t") if kind == DEPLOYMENT.kind]
    assert deployments == ["t-inference-stack-b"], "no pod uses an object of another owner"


async def test_second_stack_of_a_name_in_the_other_api_group_has_taken_names() -> None:
    async with start_inference_environment() as env:
        first = await env.create(new_stack({"a": {}}))
        async with run_inference_controllers(env):
            await env.wait_for_condition("Ready", "True")
            (other,) = (gvk for gvk in INFERENCE_STACKS if gvk != STACK)
            await env.create({**new_stack({"a": {}}), "apiVersion": other.api_version})

            async def degraded() -> Object | None:
                status = (await env.get(other, "s")).get("status") or {}
                found = find_condition(status.get("conditions"), "Degraded")
                return dict(found) if found is not None and found["status"] == "True" else None

            found = await eventually(degraded, "the second stack is degraded")
            assert found["reason"] == "NameTaken"
            assert f"but to InferenceStack s of {first['apiVersion']}" in found["message"]


async def test_failures_and_upgrades_are_reported() -> None:
    """Failures of pods, stalled roll-outs and invalid specs are in the status; newer defaults arrive one by one."""
    async with start_inference_environment() as env:
        unready = {"podAnnotations": {"envtest.cfo/ready": "false"}}
        await env.create(new_stack({"a": {}, "b": {}}))
        async with run_inference_controllers(env):
            await env.wait_for_condition("Ready", "True")
            await check_pod_failure(env, unready)
            await check_invalid_spec(env)
            await check_pause(env)
            await check_upgrade(env)


async def test_failures_of_pods_are_reported_for_stacks_with_a_name_override() -> None:
    async with start_inference_environment() as env:
        unready = {"podAnnotations": {"envtest.cfo/ready": "false"}}
        for name in ("s", "t"):
            await env.create(new_stack({"a": unready}, name=name, nameOverride="custom"))
        async with run_inference_controllers(env) as manager:
            await env.wait_for_condition("Ready", "False")

            def watches() -> int:
                return len(
                    [informer for informer in manager.cache.informers if informer.gvk == POD]
                )

            async def pod() -> Object | None:
                labels = "app.kubernetes.io/component=application-a,app.kubernetes.io/instance=s"
                return next(
                    iter(await env.client.list(POD, namespace="ns", label_selector=labels)), None
                )

            found = await eventually(pod, "the pod of the application")
            await env.patch(
                found, {"status": {"reason": "Evicted", "phase": "Failed"}}, subresource="status"
            )
            await env.wait_for_condition("Degraded", "True", "Evicted")
            await env.wait_until_idle()
            assert watches() == 2
        async with run_inference_controllers(env) as manager:
            await env.wait_until_idle()
            assert env.writes() == []
            for name in ("s", "t"):
                await env.client.delete(STACK, NamespacedName("ns", name))

            async def is_stopped() -> bool:
                return watches() == 1

            await eventually(is_stopped, "the informer of a name without stacks stops")


async def check_pod_failure(env: InferenceEnvironment, unready: dict[str, Any]) -> None:
    await env.change(applications={"a": {**unready, "readerConfig": {"modelName": "m"}}})
    await env.wait_for_condition("Ready", "False", "ApplicationsNotReady")

    async def new_pod() -> Object | None:
        pods = await env.client.list(
            POD, namespace="ns", label_selector="app.kubernetes.io/component=application-a"
        )
        return next(
            (
                pod
                for pod in pods
                if pod["metadata"]["annotations"].get("envtest.cfo/ready") == "false"
            ),
            None,
        )

    pod = await eventually(new_pod, "the pod of the new revision")
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    statuses = [{"name": "x", "image": "i", "imageID": "", "ready": False, "restartCount": 0}]
    await env.patch(
        pod,
        {"status": {"containerStatuses": [{**statuses[0], "state": {"waiting": waiting}}]}},
        subresource="status",
    )
    degraded = await env.wait_for_condition("Degraded", "True", "ImagePullBackOff")
    assert degraded["message"] == "application a: ImagePullBackOff: container x: no such image"
    await env.wait_for_event("Degraded", "no such image")
    application = (await env.stack())["status"]["applications"][0]
    assert (application["state"], application["reason"]) == ("Failed", "ImagePullBackOff")
    await env.change(applications={"a": {"podAnnotations": None}})
    await env.wait_for_condition("Ready", "True")


async def check_invalid_spec(env: InferenceEnvironment) -> None:
    await env.wait_until_idle()
    env.clear_requests()
    await env.change(applications={"Bad_Name": {}})
    found = await env.wait_for_condition("Ready", "False", "InvalidSpec")
    assert "spec.applications[Bad_Name]" in found["message"]
    await env.wait_until_idle()
    assert env.child_writes() == []
    assert (await env.stack())["status"]["readyApplications"] == "2/2"
    await env.change(applications={"Bad_Name": None})
    await env.wait_for_condition("Ready", "True")


async def check_pause(env: InferenceEnvironment) -> None:
    """While the annotation is set, only the status is written."""
    stack = await env.stack()
    env.clear_requests()
    await env.patch(
        stack, {"metadata": {"annotations": {PAUSE_ANNOTATION: "true"}}, "spec": {"suspend": True}}
    )
    await env.wait_for_condition("Paused", "True")
    await env.wait_until_idle()
    assert env.child_writes() == []
    await env.patch(stack, {"metadata": {"annotations": {PAUSE_ANNOTATION: None}}})
    await env.wait_for_condition("Ready", "False", "Suspended")

    async def is_suspended() -> bool:
        found = await env.client.list(DEPLOYMENT, namespace="ns")
        return {item["spec"]["replicas"] for item in found} == {0}

    await eventually(is_suspended, "no replicas")
    await env.change(suspend=None)
    await env.wait_for_condition("Ready", "True")
    assert not [
        item for item in (await env.stack())["status"]["conditions"] if item["type"] == "Paused"
    ]


async def check_upgrade(env: InferenceEnvironment) -> None:
    """The profile is set back to an older one: nothing happens until the policy allows newer defaults."""
    old = {"status": {"profile": "v2.1"}}
    await env.client.patch(STACK, NamespacedName("ns", "s"), old, subresource="status")
    await env.patch(await env.stack(), {"metadata": {"annotations": {"poke": "1"}}})
    await env.wait_for_condition("Ready", "True")
    await env.wait_until_idle()
    before = await env.generations()
    await env.change(upgradePolicy="Automatic")
    await env.wait_for(lambda obj: obj["status"]["profile"] == "v2.13", "upgraded")
    await env.wait_for_condition("Ready", "True")
    assert before.keys() == (await env.generations()).keys()


async def test_cluster_trigger_authentication_is_not_rendered_without_the_setting() -> None:
    """Also if the webhook was absent when the stack was stored, or the setting has changed since."""
    trigger = {
        "type": "cpu",
        "authenticationRef": {"name": "shared", "kind": "ClusterTriggerAuthentication"},
    }
    section = {"scaling": {"enabled": True, "spec": {"triggers": [trigger]}}}
    async with start_inference_environment(KEDA_CRD) as env:
        await env.create(new_stack({"a": section}))
        async with run_inference_controllers(env, allow_cluster_trigger_authentication=True):
            await env.wait_for_condition("Deployed", "True")
            assert len(await env.client.list(SCALED_OBJECT)) == 1
        await env.create(new_stack({"a": section}, "t"))
        async with run_inference_controllers(env):
            for name in "st":
                await env.wait_for_condition("Ready", "False", "InvalidSpec", name=name)
            assert "must be TriggerAuthentication" in str((await env.stack("t"))["status"])
            assert [name_of(obj) for obj in await env.client.list(SCALED_OBJECT)] == [
                "s-inference-stack-a"
            ]
            await env.change("t", applications={"a": {"scaling": None}})
            await env.wait_for_condition("Deployed", "True", name="t")
