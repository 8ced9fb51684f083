"""``cfo migrate`` on a control plane: 20 mixed RayClusters, and interruptions at each write."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
import yaml
from click.testing import CliRunner, Result
from structlog.testing import capture_logs

from cfo.api.appwrapper.models import appwrapper_crd
from cfo.api.raycluster.cluster import POD_CLUSTER_LABEL
from cfo.api.raycluster.conditions import MUTUAL_TLS
from cfo.api.raycluster.names import (
    CLUSTER_LABEL,
    FINALIZER,
    NAMESPACE_LABEL,
    RAY_CLUSTER,
    ROUTE,
    VERSION_ANNOTATION,
    label_value,
)
from cfo.cli import cli
from cfo.console.demo import crds
from cfo.console.migrate.raycluster import applying
from cfo.console.migrate.raycluster.applying import Executor
from cfo.console.migrate.raycluster.children import CHILD_KINDS
from cfo.console.migrate.raycluster.injected import clean
from cfo.console.migrate.raycluster.observation import Observer
from cfo.console.migrate.raycluster.planning import (
    SUSPENDED_ANNOTATION,
    Options,
    plan_cluster,
    plan_takeover,
)
from cfo.console.migrate.raycluster.steps import ObjectPlan, plan_lines
from cfo.console.migrate.raycluster.targets import KubeRay, Target, convert
from cfo.manifests.names import SERVICE_ACCOUNT as OPERATOR_ACCOUNT
from cfo.runtime.client.client import Client
from cfo.runtime.client.errors import UnknownKind
from cfo.runtime.client.status import apply_status
from cfo.runtime.client.transport import APIRequest, Response, Transport
from cfo.runtime.objects.kinds import (
    CLUSTER_ROLE_BINDING,
    INGRESS,
    MUTATING_WEBHOOK_CONFIGURATION,
    NETWORK_POLICY,
    POD,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
)
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    annotations_of,
    key_of,
    labels_of,
    name_of,
    new_object,
)
from cfo.version import CONFIG_MAP_NAME
from test.support.config_map_webhooks import free_url
from test.support.migration import NAMESPACE, injected, operator_objects, run_kuberay, user_cluster
from test.support.operator_process import LOOPBACK_ADDRESSES, create_config_map, run_operator
from test.support.raycluster_environment import (
    PLAIN_SETTINGS,
    ROUTE_CRD,
    Environment,
    crd,
    eventually,
    start_environment,
)
from test.support.sweeps import sampled_numbers

CERTIFICATE_CRD = crd("cert-manager.io", "v1", "Certificate", "certificates")
TO_KUBERAY = (
    "--to",
    "kuberay",
    "--kuberay-feature",
    "networkPolicy",
    "--kuberay-feature",
    "tlsOptions",
)


@asynccontextmanager
async def environment() -> AsyncIterator[Environment]:
    """Run a control plane with the CRDs of KubeRay 1.7."""
    async with start_environment(*crds.load(), ROUTE_CRD, CERTIFICATE_CRD, appwrapper_crd()) as env:
        await env.create_namespace(NAMESPACE)
        yield env


def deployment(name: str, namespace: str, *arguments: str) -> Object:
    labels = {"app.kubernetes.io/component": name}
    container = {"name": "manager", "image": "manager", "args": list(arguments)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def cluster_role_binding(name: str, namespace: str, account: str, role: str) -> Object:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": account}],
    }


async def create(env: Environment, cluster: Object, **objects: bool) -> Object:
    """Create a RayCluster and the objects that an operator creates for it."""
    stored = await env.create(cluster)
    for obj in operator_objects(stored, **objects):
        await env.create(obj)
    return stored


async def run(env: Environment, directory: Path, *arguments: str, confirmed: bool = True) -> Result:
    """Run ``cfo migrate`` with these arguments in ``directory``, without a terminal."""
    kubeconfig = directory / "admin.kubeconfig"
    env.plane.kubeconfig(kubeconfig)
    command = ["migrate", *arguments, "--kubeconfig", str(kubeconfig)]
    if confirmed and "--apply" in arguments:
        command.append("--yes")

    def invoke() -> Result:
        with capture_logs():  # another test may have left the log on stdout
            return CliRunner().invoke(cli, command, prog_name="cfo")

    return await anyio.to_thread.run_sync(invoke)


async def create_mixed_clusters(env: Environment) -> list[Object]:
    """Create 20 RayClusters with what either operator, users and others left."""
    made = [
        await create(env, injected(user_cluster("go-both"), go=True)),
        await create(env, injected(user_cluster("go-oauth"), go=True, mtls=False), mtls=False),
        await create(env, injected(user_cluster("go-mtls"), go=True, oauth=False), oauth=False),
        await create(
            env,
            injected(user_cluster("go-plain"), go=True, oauth=False, mtls=False),
            oauth=False,
            mtls=False,
        ),
        await create(env, injected(user_cluster("go-old-names"), go=True, old_names=True)),
        await create(env, injected(user_cluster("go-suspended", suspend=True), go=True)),
        await create(env, injected(user_cluster("own-both"))),
        await create(
            env, injected(user_cluster("own-suspended", suspend=True), oauth=False), oauth=False
        ),
        await create(
            env,
            injected(user_cluster("own-exposed"), oauth=False, mtls=False),
            oauth=False,
            mtls=False,
            exposed=True,
        ),
        await create(env, injected(user_cluster("own-groups", groups=3))),
        await create(
            env, injected(user_cluster("ray-2-40", rayVersion="2.40.0"), mtls=False), mtls=False
        ),
        await create(env, user_cluster("untouched"), oauth=False, mtls=False),
    ]
    edited = injected(user_cluster("edited-proxy"), go=True)
    edited["spec"]["headGroupSpec"]["template"]["spec"]["containers"][1]["args"].append(
        "--skip-auth-regex=.*"
    )
    sidecar = injected(user_cluster("sidecar-has-ca"))
    sidecar["spec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"].append(
        {
            "name": "sidecar",
            "image": "mine",
            "volumeMounts": [{"name": "ca-vol", "mountPath": "/ca"}],
        }
    )
    foreign = user_cluster("own-init-name")
    foreign["spec"]["headGroupSpec"]["template"]["spec"]["initContainers"] = [
        {"name": "create-cert", "image": "mine"}
    ]
    queued = injected(user_cluster("queued"))
    queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    owned = injected(user_cluster("of-a-job"))
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "job", "uid": "u", "controller": True}
    ]
    remote = injected(user_cluster("multikueue", managedBy="kueue.x-k8s.io/multikueue"), mtls=False)
    deleting = injected(user_cluster("go-deleting"), go=True)
    deleting["metadata"]["finalizers"].append("example.com/other")
    taken = injected(user_cluster("policy-taken"), oauth=False, mtls=False)
    made += [await create(env, obj) for obj in (edited, sidecar, queued, owned, deleting)]
    made.append(await create(env, remote, mtls=False))
    made.append(await env.create(foreign))
    made.append(await env.create(taken))
    policy = next(operator_objects(made[-1], oauth=False, mtls=False))
    del policy["metadata"]["ownerReferences"], policy["metadata"]["labels"]
    policy["metadata"]["labels"] = {"ray.io/cluster": "policy-taken"}
    await env.create(policy)
    await env.delete(deleting)
    assert len(made) == 20
    return made


async def operator_state(env: Environment) -> dict[str, Any]:
    """Return everything that a migration changes, by kind and name."""
    found: dict[str, Any] = {}
    for gvk in (RAY_CLUSTER, ROUTE, INGRESS, SERVICE, SERVICE_ACCOUNT, NETWORK_POLICY):
        for obj in await env.client.list(gvk, namespace=NAMESPACE):
            metadata = {
                key: obj["metadata"].get(key) or {}
                for key in ("labels", "annotations", "finalizers")
            }
            spec = {
                key: value
                for key, value in (obj.get("spec") or {}).items()
                if not key.startswith("clusterIP")
            }
            if gvk == RAY_CLUSTER:
                spec.setdefault("suspend", False)
            found[f"{gvk.kind} {name_of(obj)}"] = (metadata, spec)
    for binding in await env.client.list(CLUSTER_ROLE_BINDING, label_selector=CLUSTER_LABEL):
        found[f"ClusterRoleBinding {name_of(binding)}"] = (binding["roleRef"], binding["subjects"])
    return found


async def apply_until_complete(env: Environment, directory: Path, *arguments: str) -> Result:
    """Run ``cfo migrate --apply`` until KubeRay has created its policies, so that nothing is kept any more."""

    async def applied() -> Result | None:
        await env.wait_until_idle()
        result = await run(env, directory, *TO_KUBERAY, "--apply", *arguments)
        assert result.exit_code in (0, 3), result.output
        return result if "until KubeRay's own" not in result.output else None

    found: Result = await eventually(applied, "the migration is complete")
    return found


BLOCKED = {"edited-proxy", "sidecar-has-ca", "queued", "of-a-job"}


async def test_mixed_clusters_are_planned_and_migrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applying, "_POLL_SECONDS", 0.1)
    async with environment() as env:
        created = await create_mixed_clusters(env)
        async with run_kuberay(env):
            before = await operator_state(env)
            planned = await run(env, tmp_path, *TO_KUBERAY, "-A", "--allow-downtime")
            print(planned.stdout)  # pytest -s shows the plans
            assert planned.exit_code == 3, planned.output
            assert "20 RayClusters: 14 to change, 4 blocked, 11 with downtime" in planned.stdout
            assert await operator_state(env) == before, "the plan changed something"
            await assert_running_operator_is_an_obstacle(env, tmp_path)
            await assert_confirmation_is_required(env, tmp_path)
            assert await operator_state(env) == before

            applied = await apply_until_complete(env, tmp_path, "-A", "--allow-downtime")
            assert applied.exit_code == 3, applied.output  # four RayClusters are blocked
            await assert_migrated(env, created, before)
            again = await run(env, tmp_path, *TO_KUBERAY, "-n", NAMESPACE)
            assert "20 RayClusters: 0 to change, 4 blocked" in again.stdout
            for name in BLOCKED:
                assert f"RayCluster {NAMESPACE}/{name} " in again.stdout


def in_namespace(namespace: str, cluster: Object) -> Object:
    """Return ``cluster`` in ``namespace``."""
    return {**cluster, "metadata": {**cluster["metadata"], "namespace": namespace}}


async def test_pod_that_has_only_the_label_of_a_raycluster_does_not_delay_its_migration(
    tmp_path: Path,
) -> None:
    async with environment() as env:
        cluster = injected(user_cluster("rc", suspend=True), oauth=False)
        await create(env, cluster, oauth=False)
        labels = {POD_CLUSTER_LABEL: "rc"}
        spec = {"containers": [{"name": "c", "image": "i"}]}
        await env.create(new_object(POD, "imitation", NAMESPACE, labels=labels, spec=spec))
        applied = await run(env, tmp_path, *TO_KUBERAY, "-A", "--apply", "--timeout", "1s")
        assert applied.exit_code == 3, applied.output  # its policies are kept
        assert "wait until its pods are deleted" not in applied.stdout
        assert "tlsOptions" in (await env.get(RAY_CLUSTER, "rc", NAMESPACE))["spec"]


async def test_raycluster_that_does_not_stop_fails_and_all_others_are_migrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applying, "_POLL_SECONDS", 0.1)
    arguments = (*TO_KUBERAY, "-A", "--apply", "--allow-downtime", "--timeout", "5s")
    async with environment() as env:
        for namespace in ("a", "b"):
            await env.create_namespace(namespace)
        names = [("a", "stuck"), ("a", "next"), ("b", "running"), ("b", "suspended")]
        for namespace, name in names:
            cluster = user_cluster(name, suspend=name == "suspended")
            await create(env, in_namespace(namespace, injected(cluster, oauth=False)), oauth=False)
        async with run_kuberay(env):
            pods = await env.client.list(
                POD, namespace="a", label_selector=f"{POD_CLUSTER_LABEL}=stuck", live=True
            )
            held = key_of(pods[0])
            await env.client.patch(POD, held, {"metadata": {"finalizers": ["example.com/hold"]}})
            applied = await run(env, tmp_path, *arguments)
            assert applied.exit_code == 1, applied.output
            failure = (
                f"RayCluster a/stuck: pod {held.name} still exists after 5 s, so it stays suspended"
            )
            assert failure in applied.stderr
            assert "1 RayCluster failed" in applied.stderr
            for namespace, name in names:
                stored = await env.get(RAY_CLUSTER, name, namespace)
                is_stuck = name == "stuck"
                assert ("tlsOptions" in stored["spec"]) is not is_stuck, name
                assert bool(stored["spec"].get("suspend")) is (is_stuck or name == "suspended"), (
                    name
                )
            done = applied.stdout
            assert done.index("b/suspended: remove") < done.index(": suspend\n")

            await env.client.patch(POD, held, {"metadata": {"finalizers": None}})
            again = await run(env, tmp_path, *arguments)
            assert again.exit_code in (0, 3), again.output
            stored = await env.get(RAY_CLUSTER, "stuck", "a")
            assert "tlsOptions" in stored["spec"]
            assert stored["spec"]["suspend"] is False


async def test_takeover_depends_on_the_configuration_of_the_operator_that_is_installed(
    tmp_path: Path,
) -> None:
    takeover = ("--to", "cfo", "-n", NAMESPACE)
    async with start_environment(*crds.load()) as env:
        await env.create_namespace(NAMESPACE)
        cluster = injected(user_cluster("rc"), go=True, oauth=False)
        await create(env, cluster, oauth=False)
        unknown = await run(env, tmp_path, *takeover)
        note = "Note: namespace openshift-operators has neither an operator nor its ConfigMap"
        assert unknown.stderr.startswith(note)
        assert "assumes that finalizers are needed; --operator-namespace selects" in unknown.stderr
        assert "remove the finalizer" not in unknown.stdout, "an operator elsewhere may need it"
        elsewhere = await run(env, tmp_path, "--to", "kuberay", "-n", NAMESPACE)
        assert "so the plan assumes the default configuration; " in elsewhere.stderr

        namespace = await env.create_namespace("ops")
        binding = cluster_role_binding("operator", namespace, OPERATOR_ACCOUNT, "manager-role")
        await env.create(binding)
        config_map = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"namespace": namespace, "name": CONFIG_MAP_NAME},
        }
        for enabled in (True, False):
            document = {"kuberay": {"authentication": {"enabled": enabled}}}
            data = {"config.yaml": yaml.safe_dump(document)}
            await env.client.apply({**config_map, "data": data})
            found = await run(env, tmp_path, *takeover)
            assert "Note" not in found.stderr
            assert ("remove the finalizer, which nothing needs" in found.stdout) is not enabled


async def test_plan_needs_no_more_of_the_children_than_is_read() -> None:
    async with environment() as env:
        await create_mixed_clusters(env)
        async with run_kuberay(env):
            observer = Observer(env.client)
            keys = await observer.keys("")
            assert len(keys) == 20
            supported = await observer.kuberay(["networkPolicy", "tlsOptions"])
            options = [Options(target, supported, allow_downtime=True) for target in Target]
            objects: list[Object] = []
            for gvk in CHILD_KINDS:
                objects += await listed(env, gvk)
            for key in keys:
                observed = await observer.cluster(key)
                assert observed is not None
                value = label_value(key.name)
                children = tuple(
                    obj
                    for obj in objects
                    if value
                    in (labels_of(obj).get(CLUSTER_LABEL), labels_of(obj).get(POD_CLUSTER_LABEL))
                )
                whole = dataclasses.replace(observed, children=children)
                for each in options:
                    read = plan_cluster(observed, each)
                    expected = plan_cluster(whole, each)
                    assert [*plan_lines(read)] == [*plan_lines(expected)]
                    update = [step.change and step.change(step.object) for step in read.steps]
                    assert update == [
                        step.change and step.change(step.object) for step in expected.steps
                    ]
                taken = plan_takeover(observed, has_proxies=False)
                expected = plan_takeover(whole, has_proxies=False)
                assert [*plan_lines(taken)] == [*plan_lines(expected)]


async def listed(env: Environment, gvk: GVK) -> list[Object]:
    try:
        return await env.client.list(gvk, live=True)
    except UnknownKind:
        return []


async def assert_confirmation_is_required(env: Environment, directory: Path) -> None:
    command = ["--to", "kuberay", "-n", NAMESPACE, "go-both", "go-mtls", "--apply"]
    unconfirmed = await run(env, directory, *command, confirmed=False)
    assert unconfirmed.exit_code == 2
    assert "Migrate 2 RayClusters of https://" in unconfirmed.stderr
    assert "Without a terminal, --yes is required" in unconfirmed.stderr


async def assert_running_operator_is_an_obstacle(env: Environment, directory: Path) -> None:
    operator = await env.create(deployment("codeflare-operator-manager", "default"))
    await env.create(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "codeflare-operator-mutating-webhook-configuration"},
            "webhooks": [
                {
                    "name": "mraycluster.ray.openshift.ai",
                    "clientConfig": {"url": "https://127.0.0.1:1/"},
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                }
            ],
        }
    )
    await env.create(cluster_role_binding("operator", "default", OPERATOR_ACCOUNT, "operator"))
    # What users can create in their namespaces is no obstacle, with any account that a proxy or a notebook has.
    forged = deployment("codeflare-operator-manager", NAMESPACE)
    forged["spec"]["template"]["spec"]["serviceAccountName"] = "go-both-oauth-proxy"
    await env.create(forged)
    for account in ("go-both-oauth-proxy", OPERATOR_ACCOUNT):
        proxy = cluster_role_binding(account, NAMESPACE, account, "system:auth-delegator")
        await env.create(proxy)
    await env.create(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "codeflare-operator-lock", "namespace": NAMESPACE},
            "spec": {"holderIdentity": "x\x1b[2J", "renewTime": "9999-12-31T23:59:59.000000Z"},
        }
    )
    refused = await run(env, directory, "--to", "rhoai", "-A", "--apply")
    assert refused.exit_code == 3
    assert f"-n {NAMESPACE} scale deployment codeflare-operator-manager" not in refused.stderr
    assert "Lease" not in refused.stderr
    await env.delete(forged)
    assert (
        "kubectl -n default scale deployment codeflare-operator-manager --replicas 0"
        in refused.stderr
    )
    assert (
        "kubectl delete mutatingwebhookconfiguration codeflare-operator-mutating-webhook"
        in refused.stderr
    )
    takeover = await run(env, directory, "--to", "cfo", "-n", NAMESPACE, "go-both")
    assert "set policyTypes of NetworkPolicy go-both-head" in takeover.stdout
    assert "Stop or remove before cfo starts, because both would run:" in takeover.stderr
    assert "Deployment default/codeflare-operator-manager is running" in takeover.stderr
    assert "webhook" not in takeover.stderr, "cfo takes it over, so no RayCluster is unprotected"
    labels = {"app.opendatahub.io/codeflare": "true"}
    await env.patch(operator, {"metadata": {"labels": labels}})
    takeover = await run(env, directory, "--to", "cfo", "-n", NAMESPACE, "go-both")
    assert "stop it: set spec.components.codeflare.managementState of the" in takeover.stderr
    assert "scale deployment" not in takeover.stderr
    without_clusters = await run(env, directory, "--to", "cfo", "-n", "default")
    assert "0 RayClusters" in without_clusters.stdout
    assert "Deployment default/codeflare-operator-manager is running" in without_clusters.stderr
    await env.delete(operator)
    await env.client.delete(
        MUTATING_WEBHOOK_CONFIGURATION,
        NamespacedName("", "codeflare-operator-mutating-webhook-configuration"),
    )
    for target in ("cfo", "kuberay"):
        mistyped = await run(env, directory, "--to", target, "-n", "nosuch")
        message = "Error: --namespace: namespace nosuch does not exist; kubectl get namespaces lists all\n"
        assert (mistyped.exit_code, mistyped.stderr) == (2, message)
        elsewhere = await run(env, directory, "--to", target, "-A", "--operator-namespace", "nope")
        message = "Error: --operator-namespace: namespace nope does not exist; kubectl get namespaces lists all\n"
        assert (elsewhere.exit_code, elsewhere.stderr) == (2, message)
    unknown = await run(env, directory, "--to", "rhoai", "-n", NAMESPACE, "missing")
    assert (unknown.exit_code, unknown.stderr) == (
        2,
        "Error: RayCluster team-a/missing does not exist\n",
    )


async def assert_migrated(env: Environment, created: list[Object], before: dict[str, Any]) -> None:
    after = await operator_state(env)
    for cluster in created:
        name = name_of(cluster)
        if name in BLOCKED:
            assert after[f"RayCluster {name}"] == before[f"RayCluster {name}"], name
            continue
        stored = await env.get(RAY_CLUSTER, name, NAMESPACE)
        assert FINALIZER not in (stored["metadata"].get("finalizers") or ()), name
        assert SUSPENDED_ANNOTATION not in annotations_of(stored), name
        assert stored["spec"].get("suspend", False) == cluster["spec"].get("suspend", False), name
        if name not in ("multikueue", "go-deleting", "own-init-name"):
            assert "create-cert" not in str(stored["spec"]), name
            assert "oauth-proxy" not in str(stored["spec"]), name
    expected = {
        "go-both": {"tlsOptions", "authOptions", "networkPolicy"},
        "go-oauth": {"authOptions", "networkPolicy"},
        "ray-2-40": {"networkPolicy"},
        "untouched": {"networkPolicy"},
    }
    for name, fields in expected.items():
        _, spec = after[f"RayCluster {name}"]
        assert {"tlsOptions", "authOptions", "networkPolicy"} & spec.keys() == fields, name
    head = after["RayCluster own-exposed"][1]["headGroupSpec"]
    host = "ray-dashboard-own-exposed-team-a.apps.test"
    assert (head["enableIngress"], head["ingressOptions"]["host"]) == (True, host)

    async def restarted() -> bool:
        pods = await env.client.list(
            POD, namespace=NAMESPACE, label_selector="ray.io/cluster=go-both"
        )
        assert [pod for pod in pods if "create-cert" in str(pod["spec"])] == []
        return len(pods) == 2

    await eventually(restarted, "the pods of go-both were restarted")


async def test_operator_that_is_installed_again_reconciles_what_was_migrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applying, "_POLL_SECONDS", 0.1)
    strict = {"name": "strict", "namespaceSelector": "", "networkPolicy": "enforced"}
    settings = {**PLAIN_SETTINGS, "mTLSEnabled": False, "profiles": [strict]}
    document = {**LOOPBACK_ADDRESSES, "kuberay": settings}
    async with environment() as env:
        cluster = injected(user_cluster("rc"), oauth=False)
        await create(env, cluster, oauth=False, exposed=True)
        async with run_kuberay(env):
            await apply_until_complete(env, tmp_path, "-A", "--allow-downtime")
        migrated = await env.get(RAY_CLUSTER, "rc", NAMESPACE)
        assert migrated["spec"]["headGroupSpec"]["enableIngress"] is True
        assert "ingressRules" in migrated["spec"]["networkPolicy"]["head"]

        await create_config_map(env, {"config.yaml": yaml.safe_dump(document)})
        takeover = await run(env, tmp_path, "--to", "cfo", "-A", "--operator-namespace", "default")
        assert takeover.exit_code == 0, takeover.output
        for feature in ("tlsOptions", "ingressOptions"):
            assert f"add {feature} to kuberay.kubeRayFeatures" in takeover.stdout
        async with run_operator(env, tmp_path, "--webhook-url", str(free_url())) as operator:
            await operator.ready()
            note = await env.wait_for_event("ProfileEnforced", namespace=NAMESPACE)
            assert "spec.networkPolicy.head.ingressRules" in note

            async def has_conditions() -> bool:
                stored = await env.get(RAY_CLUSTER, "rc", NAMESPACE)
                assert MUTUAL_TLS in str(stored.get("status"))
                return True

            await eventually(has_conditions, "the RayCluster is reconciled")
            groups = migrated["spec"]["workerGroupSpecs"]
            scaled = [{**group, "replicas": 2} for group in groups]
            await env.patch(migrated, {"spec": {"workerGroupSpecs": scaled}})
            assert "Reconcile failed" not in operator.output


class Crash(Exception):
    """The process ends."""


class CrashingTransport:
    """A connection of a process that ends after some writes. The last one reaches the API server."""

    def __init__(self, transport: Transport, writes: int) -> None:
        self._transport = transport
        self._writes_left = writes

    async def request(self, request: APIRequest) -> Response:
        response = await self._transport.request(request)
        if request.method != "GET":
            self._writes_left -= 1
            if self._writes_left == 0:
                raise Crash
        return response


async def migrate(client: Client, namespace: str) -> ObjectPlan:
    """Migrate the RayCluster ``rc`` in ``namespace`` to KubeRay."""
    kuberay = KubeRay(FIELDS, frozenset({"networkPolicy", "tlsOptions"}), cert_manager=True)
    options = Options(Target.KUBERAY, kuberay, allow_downtime=True)
    executor = Executor(client, Observer(client), options, print, timeout=20.0)
    plan = await executor.migrate(NamespacedName(namespace, "rc"))
    assert plan is not None
    return plan


FIELDS = frozenset({"networkPolicy", "tlsOptions", "authOptions", "headGroupSpec.ingressOptions"})


@pytest.mark.sweep
async def test_interruption_at_any_write_is_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applying, "_POLL_SECONDS", 0.1)
    async with environment() as env, run_kuberay(env):
        for number in sampled_numbers():
            namespace = await env.create_namespace(f"crash-{number}")
            cluster = user_cluster("rc")
            cluster["metadata"]["namespace"] = namespace
            stored = await env.create(injected(cluster, go=True))
            for obj in operator_objects(stored):
                if obj["kind"] not in ("Route", "Service"):  # deleted like the other kinds
                    await env.create(obj)
            await eventually(lambda: Observer(env.client).pods_of(stored))  # noqa: B023
            condition = {
                "type": MUTUAL_TLS,
                "status": "True",
                "reason": "CertificateAuthority",
                "message": "The CA exists",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            await apply_status(env.client, stored, {"conditions": [condition]})
            transport = cast("Transport", CrashingTransport(env.client.transport, number))
            client = Client(transport, env.client.mapper, field_manager="cfo-migrate")
            crashed = False
            try:
                await migrate(client, namespace)
            except Crash:
                crashed = True
            await assert_is_guarded(env, namespace)
            await complete(env, namespace)
            migrated = await env.get(RAY_CLUSTER, "rc", namespace)
            assert "finalizers" not in migrated["metadata"]
            assert MUTUAL_TLS not in str(migrated["status"])
            assert annotations_of(migrated).keys() == {VERSION_ANNOTATION}
            expected = convert(
                clean(stored), [], Target.KUBERAY, KubeRay(FIELDS, cert_manager=True)
            ).cluster["spec"]
            new_fields = {"networkPolicy", "tlsOptions", "suspend"}
            assert {
                key: value for key, value in migrated["spec"].items() if key not in new_fields
            } == expected
            assert new_fields <= migrated["spec"].keys()
            assert await env.child_names(SECRET, namespace) == set()
            if not crashed:
                break
        assert number > 8


async def complete(env: Environment, namespace: str) -> None:
    async def completed() -> bool:
        return not (await migrate(env.client, namespace)).is_incomplete

    await eventually(completed)


async def assert_is_guarded(env: Environment, namespace: str) -> None:
    """Assert that a binding without finalizer, and a head without policy, never exist."""
    cluster = await env.get(RAY_CLUSTER, "rc", namespace)
    bindings = await env.client.list(
        CLUSTER_ROLE_BINDING, label_selector=f"{NAMESPACE_LABEL}={namespace}"
    )
    assert FINALIZER in cluster["metadata"].get("finalizers", ()) or bindings == []
    policies = await env.client.list(NETWORK_POLICY, namespace=namespace)
    selectors = [
        policy["spec"]["podSelector"]["matchLabels"].get("ray.io/node-type") for policy in policies
    ]
    assert {"head", "worker"} <= set(selectors)
    if "create-cert" not in str(cluster["spec"]) and not cluster["spec"].get("suspend"):
        for policy in policies:
            assert all(rule.get("from") for rule in policy["spec"].get("ingress") or ()), (
                "open to everyone"
            )
