"""``cfo doctor`` on the embedded control plane: an installation that is broken in one way after the other."""

from __future__ import annotations

import base64
import json
import logging
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
import yaml
from click.testing import CliRunner

from cfo import operator
from cfo.checks.findings import RESTART_OUTSIDE
from cfo.cli import cli
from cfo.config.model import OperatorConfiguration
from cfo.console.doctor.facts import find_namespace, read_installation
from cfo.console.doctor.permissions import read_permissions
from cfo.manifests.additional import configuration as additional_configuration
from cfo.manifests.names import DEPLOYMENT as DEPLOYMENT_NAME
from cfo.manifests.names import MANAGER_BINDING, SERVICE_ACCOUNT
from cfo.manifests.overlays import render, render_roles
from cfo.runtime import (
    CONFIG_MAP,
    SECRET,
    ClientConfig,
    Manager,
    NamespacedName,
    Object,
    Rule,
    gvk_of,
    name_of,
    policy_rules,
)
from cfo.runtime.client import PatchType
from cfo.runtime.objects import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    EVENT,
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
    new_object,
)
from cfo.runtime.objects.kinds import DEPLOYMENT, LEASE
from cfo.runtime.webhook.ownership import OPERATOR_ANNOTATION, OperatorMark
from cfo.version import CONFIG_MAP_NAME
from envtest import EmbeddedControlPlane
from test.support.certificates import create_ca, create_certificate
from test.support.config_map_webhooks import free_url
from test.support.planes import local_config
from test.support.raycluster_environment import (
    VANILLA_CRDS,
    Environment,
    crd,
    eventually,
    start_environment,
)
from test.support.tenant_clients import account_token, service_account_token

NAMESPACE = "ops"
LOOPBACK = {"bindAddress": "127.0.0.1:0"}
SETTINGS = {
    "metrics": LOOPBACK,
    "health": LOOPBACK,
    "kuberay": {"ingressDomain": "apps.example.test"},
}
WITH_PROXIES = {**SETTINGS["kuberay"], "authentication": {"enabled": True}}
KEY = NamespacedName(NAMESPACE, CONFIG_MAP_NAME)


@pytest.fixture(autouse=True)
def _logging_is_restored() -> Iterator[None]:
    """Restore the configuration of logging, which the command changes for its process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


async def doctor(kubeconfig: Path, *arguments: str) -> tuple[int, dict[str, list[tuple[str, str]]]]:
    """Run ``cfo doctor``; return its exit code, and status and message of each finding by check."""
    command = ["doctor", "-n", NAMESPACE, "--kubeconfig", str(kubeconfig), "-o", "json", *arguments]
    result = await anyio.to_thread.run_sync(
        lambda: CliRunner().invoke(cli, command, prog_name="cfo")
    )
    found: dict[str, list[tuple[str, str]]] = {}
    for each in json.loads(result.stdout)["checks"]:
        found.setdefault(each["check"], []).append((each["status"], each["message"]))
        assert each["remedy"] or each["status"] in ("ok", "skip")
    return result.exit_code, found


async def only_line(kubeconfig: Path) -> str:
    """Run ``cfo doctor`` for a user who can read nothing; return the only finding."""
    command = ["doctor", "--kubeconfig", str(kubeconfig)]
    result = await anyio.to_thread.run_sync(
        lambda: CliRunner().invoke(cli, command, prog_name="cfo")
    )
    assert (result.exit_code, result.stdout.count("skip  ")) == (0, 1)
    return result.stdout


async def refused_namespace(kubeconfig: Path, namespace: str) -> str:
    """Run ``cfo doctor -n``, which must end with exit code 2 and one line; return what the line says."""
    command = ["doctor", "-n", namespace, "--kubeconfig", str(kubeconfig)]
    result = await anyio.to_thread.run_sync(
        lambda: CliRunner().invoke(cli, command, prog_name="cfo")
    )
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    return result.stderr.removeprefix("Error: --namespace: ").strip()


def write_kubeconfig(environment: Environment, path: Path, token: str) -> Path:
    cluster: dict[str, Any] = {
        "server": local_config(environment.plane).server,
        "certificate-authority-data": base64.b64encode(environment.plane.ca_pem).decode(),
    }
    document = {
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": cluster}],
        "users": [{"name": "a", "user": {"token": token}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


@asynccontextmanager
async def run_operator(
    environment: Environment, *, target: ClientConfig | None = None, serves_webhooks: bool = True
) -> AsyncIterator[Manager]:
    """Run the operator in this process, outside the cluster; by default as administrator, with webhooks."""
    if target is None:
        target = local_config(environment.plane)
    async with anyio.create_task_group() as tasks:

        async def run(*, task_status: Any) -> None:
            url = free_url() if serves_webhooks else None
            await operator.run(
                target, KEY, webhook_url=url, handle_signals=False, task_status=task_status
            )

        manager: Manager = await tasks.start(run)
        await manager.started()
        yield manager
        manager.stop()


async def write_configuration(environment: Environment, **sections: Any) -> None:
    await environment.client.with_field_manager("admin").apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"namespace": NAMESPACE, "name": CONFIG_MAP_NAME},
            "data": {"config.yaml": yaml.safe_dump({**SETTINGS, **sections})},
        }
    )


async def test_namespace_is_that_of_the_webhooks_and_not_of_a_deployment_with_the_name() -> None:
    """Any user can create a Deployment or a ConfigMap with the operator's name."""
    async with start_environment() as environment:
        for namespace in ("attacker", NAMESPACE):
            await environment.create_namespace(namespace)
        assert await find_namespace(environment.client) == ""
        template = {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        for obj in (
            {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": CONFIG_MAP_NAME}},
            {
                "kind": "Deployment",
                "apiVersion": "apps/v1",
                "metadata": {"name": DEPLOYMENT_NAME},
                "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
            },
        ):
            await environment.create(
                {**obj, "metadata": {**obj["metadata"], "namespace": "attacker"}}
            )
        assert await find_namespace(environment.client) == "", "the only one is no proof"
        for namespace, expected in (("deleted", ""), (NAMESPACE, NAMESPACE)):
            for configuration in operator.webhook_configurations(
                namespace, OperatorConfiguration()
            ):
                await environment.client.apply(configuration)
            assert await find_namespace(environment.client) == expected, "only one that exists"
        await environment.create({**obj, "metadata": {**obj["metadata"], "namespace": NAMESPACE}})
        for kind, name in (
            (MUTATING_WEBHOOK_CONFIGURATION, "codeflare-operator-mutating-webhook-configuration"),
            (
                VALIDATING_WEBHOOK_CONFIGURATION,
                "codeflare-operator-validating-webhook-configuration",
            ),
        ):
            await environment.client.delete(kind, NamespacedName("", name))
        assert await find_namespace(environment.client) == "", "unclear, so the default is used"


async def test_doctor_finds_each_defect_of_an_installation(tmp_path: Path) -> None:
    async with start_environment(*VANILLA_CRDS) as environment:
        await environment.create_namespace(NAMESPACE)
        admin = write_kubeconfig(environment, tmp_path / "admin", environment.plane.token)

        code, found = await doctor(admin)
        assert code == 1
        assert [status for status, _ in found["webhooks"]] == ["fail", "fail"]
        assert found["admission"] == [
            ("fail", "the mutating webhook was not called for a RayCluster (dry run)")
        ]
        assert found["operator"][0][0] == "fail"
        assert found["certificate"] == [
            ("skip", "no Deployment, so nothing serves a certificate in the cluster")
        ]
        assert found["kubernetes"][0][0] == found["clock"][0][0] == "ok"
        assert found["domain"][0][0] == "warn"

        refusal = await refused_namespace(admin, "nope")
        assert refusal == "namespace nope does not exist; kubectl get namespaces lists all"
        reader = await service_account_token(environment, namespace="default", name="reader")
        unprivileged = write_kubeconfig(environment, tmp_path / "reader", reader)
        refusal = await refused_namespace(unprivileged, NAMESPACE)
        assert refusal.startswith(f"namespace {NAMESPACE} cannot be read: get deployments.apps: ")
        assert "ask the administrator to run cfo doctor" in await only_line(unprivileged)

        await check_running_operator(environment, admin)
        await check_installed_operator(environment, admin)

        viewer = await service_account_token(
            environment,
            Rule("apps", "deployments", "get"),
            Rule("", ("configmaps", "pods"), ("get", "list")),
            name="viewer",
        )
        await check_viewer(write_kubeconfig(environment, tmp_path / "viewer", viewer))
        rules = [
            Rule("", "configmaps", "get"),
            Rule("apiextensions.k8s.io", "customresourcedefinitions", "get"),
        ]
        code, found = await doctor(
            write_kubeconfig(
                environment, tmp_path / "user", await service_account_token(environment, *rules)
            )
        )
        assert code == 1  # the configuration is still invalid
        _, of_admin = await doctor(admin)
        for check in ("permissions", "kueue"):
            for status, message in of_admin[check]:
                assert status != "ok", check
                assert "because the ConfigMap is invalid" in message or status == "fail"
        for check in ("operator", "permissions", "webhooks", "certificate", "admission", "kuberay"):
            assert found[check][0][0] == "skip", check
            assert "no Deployment" not in found[check][0][1], "it may exist"
        assert found["admission"] == [("skip", "not allowed to create rayclusters.ray.io")]
        assert found["configuration"][0][0] == "fail"


async def check_running_operator(environment: Environment, admin: Path) -> None:
    """An operator outside the cluster: nothing fails, and it notices changes of its ConfigMap."""
    await write_configuration(environment)
    async with run_operator(environment) as manager:
        registry = manager.metrics.registry

        async def is_admitted() -> bool:
            return not await manager.health.failures()

        await eventually(is_admitted, "the operator is ready")
        assert await find_namespace(environment.client) == NAMESPACE, "by its mark"
        code, found = await doctor(admin)
        assert code == 0, found
        _, elsewhere = await doctor(admin, "-n", "default")
        ((status, message),) = elsewhere["operators"]
        assert status == "warn"
        assert message.startswith(f"a CodeFlare operator is in namespace {NAMESPACE} (")
        strict, found = await doctor(admin, "--strict")
        assert strict == 1, "the images of this installation have no version in their tags"
        kuberay = ("warn", "the CRD exists, but no Deployment of the KubeRay operator was found")
        if isinstance(environment.plane, EmbeddedControlPlane):
            kuberay = (
                "skip",
                "the API server is envtest, where cfo run --embedded simulates KubeRay",
            )
        assert found["kuberay"] == [kuberay]
        assert found["admission"] == [("ok", "a RayCluster passes through the webhooks (dry run)")]
        assert (
            found["operator"][0][0] == found["configuration"][0][0] == found["domain"][0][0] == "ok"
        )
        await check_narrowed_webhook(environment, admin)
        assert registry.get_sample_value("cfo_configuration_changed") == 0

        async def notices(reason: str, text: str, value: int) -> None:
            async def is_recorded() -> bool:
                notes = [
                    (each["reason"], each["note"])
                    for each in await environment.client.list(EVENT, live=True)
                ]
                changed = registry.get_sample_value("cfo_configuration_changed")
                return changed == value and (
                    not reason or any(each[0] == reason and text in each[1] for each in notes)
                )

            await eventually(is_recorded, f"{reason} {text}, metric {value}")

        await write_configuration(environment, kuberay={"ingressDomain": "other.test"})
        await notices("ConfigurationChanged", "apply the new values of kuberay.ingressDomain.", 1)
        await write_configuration(environment, kuberay={"ingressDomain": 5})
        await notices("ConfigurationInvalid", "kuberay.ingressDomain: 5: must be a domain name", 1)
        await write_configuration(environment)
        await notices("", "", 0)
        await environment.client.delete(CONFIG_MAP, KEY)
        await notices("", "", 1)
        code, found = await doctor(admin)
        ((status, message),) = found["configuration"]
        assert (code, status) == (0, "warn")
        assert "was deleted; the operator keeps its settings until it is started" in message
        ((status, message),) = found["domain"]
        assert status == "skip"
        assert message.endswith("because the ConfigMap was deleted)")
        served = await environment.client.list(MUTATING_WEBHOOK_CONFIGURATION, live=True)
    await write_configuration(environment)
    await check_killed_operator(environment, admin, served)


async def check_viewer(kubeconfig: Path) -> None:
    """A user who may read the Deployment, but no webhook configurations, which show where the operator is."""
    line = await only_line(kubeconfig)
    assert "the namespace of the operator is unknown, because you are not allowed to get" in line
    assert "-> name it with --namespace" in line
    _, found = await doctor(kubeconfig)
    ((status, message),) = found["operator"]
    assert status == "fail"
    assert message.startswith("is scaled to 0 replicas")
    assert found["webhooks"] == [
        ("skip", "not allowed to get mutatingwebhookconfigurations.admissionregistration.k8s.io")
    ]


async def check_narrowed_webhook(environment: Environment, admin: Path) -> None:
    """A webhook with a selector that manifests do not have, so only a patch removes it."""
    gitops = environment.client.with_field_manager("gitops")
    name = "codeflare-operator-mutating-webhook-configuration"
    key = NamespacedName("", name)
    webhook = {
        "name": "mraycluster.ray.openshift.ai",
        "namespaceSelector": {"matchLabels": {"team": "a"}},
    }
    await gitops.patch(
        MUTATING_WEBHOOK_CONFIGURATION, key, {"webhooks": [webhook]}, PatchType.STRATEGIC
    )
    command = ["doctor", "-n", NAMESPACE, "--kubeconfig", str(admin), "-o", "json"]
    result = await anyio.to_thread.run_sync(
        lambda: CliRunner().invoke(cli, command, prog_name="cfo")
    )
    checked = json.loads(result.stdout)["checks"]
    (narrowed,) = [each for each in checked if each["status"] == "fail"]
    assert narrowed["message"].startswith(
        f"{name}: objects bypass mraycluster.ray.openshift.ai: its namespaceSelector team=a depends on a label"
    )
    (admission,) = [each for each in checked if each["check"] == "admission"]
    assert admission["message"].startswith("the operator's webhook refused a valid RayCluster: ")
    remedy = shlex.split(narrowed["remedy"])
    assert remedy[:5] == ["kubectl", "patch", "mutatingwebhookconfiguration", name, "-p"]
    await gitops.patch(
        MUTATING_WEBHOOK_CONFIGURATION, key, json.loads(remedy[5]), PatchType.STRATEGIC
    )
    code, found = await doctor(admin)
    assert code == 0, found


async def check_killed_operator(
    environment: Environment, admin: Path, served: list[Object]
) -> None:
    """The webhook configurations still have the address of an operator that was killed."""
    for configuration in served:
        fields = {name: configuration["metadata"][name] for name in ("name", "annotations")}
        await environment.client.apply({**configuration, "metadata": fields}, force=True)
    code, found = await doctor(admin)
    assert code == 1
    assert found["operator"] == [("fail", "ran outside the cluster, and does not run any more")]
    assert "of an operator outside the cluster that does not renew its" in found["webhooks"][0][1]
    command = ["doctor", "-n", NAMESPACE, "--kubeconfig", str(admin)]
    result = await anyio.to_thread.run_sync(
        lambda: CliRunner().invoke(cli, command, prog_name="cfo")
    )
    assert "if the operator there has ended, start it again" in result.stdout


async def check_installed_operator(environment: Environment, admin: Path) -> None:
    """The manifests without pods; then one object after the other is broken."""
    for kind in (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION):
        for obj in await environment.client.list(kind, live=True):
            await environment.client.delete(kind, NamespacedName("", obj["metadata"]["name"]))
    for obj in render(namespace=NAMESPACE):
        if obj["kind"] != "CustomResourceDefinition":
            await environment.client.apply(obj)
    code, found = await doctor(admin)
    assert code == 1
    assert found["operators"] == [("ok", "no other CodeFlare operator was found")]
    await check_other_operators(environment, admin)
    assert found["operator"] == [("fail", "0 of 2 replicas are ready: it has no pods")]
    assert found["permissions"][0][0] == "ok"
    assert "leads to no ready pod" in found["webhooks"][0][1]
    assert "failed calling webhook" in found["admission"][0][1]
    await check_remedy_of_a_missing_role(environment, admin)
    await check_other_namespace(admin)

    leaf = create_certificate(
        create_ca(), "x", f"codeflare-operator-webhook-service.{NAMESPACE}.svc", days=100
    )
    data = {"tls.crt": base64.b64encode(leaf.cert_pem).decode()}
    secret = NamespacedName(NAMESPACE, operator.WEBHOOK_SECRET_NAME)
    metadata = {"namespace": secret.namespace, "name": secret.name}
    if await environment.client.get(SECRET, secret, live=True) is not None:
        await environment.client.delete(SECRET, secret)
    await environment.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
    )
    (binding,) = [
        obj["metadata"]["name"]
        for obj in render(namespace=NAMESPACE)
        if obj["kind"] == "ClusterRoleBinding"
        and obj["metadata"]["name"].endswith("manager-rolebinding")
    ]
    await environment.client.delete(CLUSTER_ROLE_BINDING, NamespacedName("", binding))
    await write_configuration(environment, kuberay={"mTLSEnabled": "maybe"})
    key = NamespacedName(NAMESPACE, "codeflare-operator-manager")
    await environment.client.patch(DEPLOYMENT, key, {"spec": {"replicas": 0}})
    code, found = await doctor(admin)
    assert [status for status, _ in found["certificate"]] == ["ok", "fail", "fail"]
    assert {status for status, _ in found["permissions"]} == {"fail"}
    assert found["configuration"][0][1].endswith(
        "kuberay.mTLSEnabled: 'maybe': must be true or false"
    )
    ((status, message),) = found["operator"]
    assert status == "fail"
    assert message.startswith("is scaled to 0 replicas")


async def test_go_operator_is_named_and_gets_no_manifests_of_this_one(tmp_path: Path) -> None:
    image = "quay.io/project-codeflare/codeflare-operator:v1.16.0"
    container = {
        "name": "manager",
        "image": image,
        "command": ["/manager"],
        "ports": [{"name": "metrics", "containerPort": 8080}],
    }
    labels = {"app.kubernetes.io/name": "codeflare-operator"}
    deployment = new_object(
        DEPLOYMENT,
        DEPLOYMENT_NAME,
        NAMESPACE,
        labels={"app.opendatahub.io/codeflare": "true"},
        spec={
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    )
    async with start_environment(*VANILLA_CRDS) as environment:
        await environment.create_namespace(NAMESPACE)
        await environment.create(deployment)
        kubeconfig = tmp_path / "admin"
        environment.plane.kubeconfig(kubeconfig)
        code, found = await doctor(kubeconfig)
        assert code == 1
        assert found["version"] == [
            ("warn", f"the operator is the Go operator, image {image}, not this one")
        ]
        assert found["permissions"] == [("skip", "the Go operator has other permissions")]
        assert found["webhooks"][0][0] == "fail"
        command = ["doctor", "-n", NAMESPACE, "--kubeconfig", str(kubeconfig)]
        result = await anyio.to_thread.run_sync(
            lambda: CliRunner().invoke(cli, command, prog_name="cfo")
        )
        assert "cfo manifests" not in result.stdout
        assert "docs/migration.md#from-open-data-hub-2-or-rhoai-2" in result.stdout
        assert "#upgrade-from-the-go-operator" not in result.stdout
        await check_go_operator_after_a_rollback(environment, kubeconfig)
        removal = ["uninstall", "-n", NAMESPACE, "--kubeconfig", str(kubeconfig), "--dry-run"]
        result = await anyio.to_thread.run_sync(
            lambda: CliRunner().invoke(cli, removal, prog_name="cfo")
        )
        first, *rest = result.stdout.splitlines()
        assert first.startswith(f"Note: namespace {NAMESPACE} has the Go operator; to replace the")
        save = f"kubectl -n {NAMESPACE} get configmap codeflare-operator-config -o yaml"
        assert rest[0] == f"Note: the ConfigMap is removed; to save its settings: {save}"
        assert rest[1:], "what would be removed"


async def check_go_operator_after_a_rollback(environment: Environment, kubeconfig: Path) -> None:
    """This operator's mark stays on the webhook configurations, and its settings in the ConfigMap."""
    await write_configuration(environment, watchNamespaces=["team"])
    for configuration in operator.webhook_configurations(NAMESPACE):
        configuration["metadata"]["annotations"] = {
            OPERATOR_ANNOTATION: OperatorMark("x", NAMESPACE, "lease").encode()
        }
        hooks = configuration["webhooks"]
        configuration["webhooks"] = [hook for hook in hooks if "raycluster" in hook["name"]]
        await environment.client.apply(configuration)
    await environment.create_namespace("second")
    for obj in render("second", part={"watchNamespaces": ["other"]}):
        if obj["kind"] in ("Deployment", "ClusterRoleBinding"):
            await environment.client.apply(obj)
    command = ["doctor", "-n", NAMESPACE, "--kubeconfig", str(kubeconfig)]
    result = await anyio.to_thread.run_sync(
        lambda: CliRunner().invoke(cli, command, prog_name="cfo")
    )
    assert "cfo manifests" not in result.stdout
    assert "v1.16.0: after a rollback, or with an image of this one" in result.stdout
    assert f"reconcile the same objects: the one in namespace {NAMESPACE}" in result.stdout, (
        "the Go operator ignores watchNamespaces"
    )


async def check_other_namespace(admin: Path) -> None:
    """The namespace of the option is checked, and that of the webhooks is named."""
    code, found = await doctor(admin, "-n", "default")
    assert code == 1
    message = f"no Deployment {DEPLOYMENT_NAME} in namespace default, but the webhooks lead to namespace {NAMESPACE}"
    assert found["operator"] == [("fail", message)]
    assert any(f"in namespace {NAMESPACE} (" in message for _, message in found["operators"])


async def check_remedy_of_a_missing_role(environment: Environment, admin: Path) -> None:
    """The command that installs the role has the namespace, and the components of all enabled features."""
    await write_configuration(environment, appwrapper={"enabled": True})

    async def output(**metadata: dict[str, str]) -> str:
        """Return what doctor prints with ``metadata`` of the Deployment, which is removed again."""
        key = NamespacedName(NAMESPACE, DEPLOYMENT_NAME)
        await environment.client.patch(DEPLOYMENT, key, {"metadata": metadata})
        command = ["doctor", "-n", NAMESPACE, "--kubeconfig", str(admin)]
        result = await anyio.to_thread.run_sync(
            lambda: CliRunner().invoke(cli, command, prog_name="cfo")
        )
        removed = {field: dict.fromkeys(values) for field, values in metadata.items()}
        await environment.client.patch(DEPLOYMENT, key, {"metadata": removed})
        return result.stdout

    await check_volume_of_the_go_operator(environment, output)
    command = "cfo manifests --namespace ops --with appwrapper | kubectl apply --server-side --force-conflicts -f -"
    assert f"-> apply the manifests: {command}\n" in await output()
    release = {"meta.helm.sh/release-name": "mine", "meta.helm.sh/release-namespace": NAMESPACE}
    helm = {"app.kubernetes.io/managed-by": "Helm"}
    of_helm = {"metadata": {"annotations": release, "labels": helm}}
    without_domain = {"config.yaml": "appwrapper: {enabled: true}"}
    await environment.client.patch(CONFIG_MAP, KEY, {**of_helm, "data": without_domain})
    found = await output(annotations=release, labels=helm)
    assert "set kuberay.ingressDomain in config of the Helm release mine, for example to" in found
    of_kubectl = {field: dict.fromkeys(keys) for field, keys in of_helm["metadata"].items()}
    await environment.client.patch(CONFIG_MAP, KEY, {"metadata": of_kubectl})
    await write_configuration(environment, appwrapper={"enabled": True})
    command = "helm upgrade mine CHART --namespace ops --reuse-values --set appwrapper.enabled=true (Helm 4: "
    assert f"-> upgrade the Helm release with the chart that it has: {command}" in found
    assert "cfo manifests" not in found
    for labels, owner in (
        ({"olm.owner": "csv.v1"}, "clusterserviceversion csv.v1 --namespace ops"),
        ({"olm.operatorframework.io/owner-name": "mine", **helm}, "clusterextension mine"),
    ):
        found = await output(labels=labels, annotations=release)
        prefix = "codeflare-operator-manager-appwrapper-role"
        command = f"kubectl create clusterrolebinding {prefix}binding --clusterrole {prefix} --serviceaccount"
        assert f"{command} ops:{SERVICE_ACCOUNT}; otherwise find out" in found
        assert f"kubectl describe {owner}\n" in found
        assert "another tool, such as OLM, manages the webhook configurations" in found
        assert "cfo manifests" not in found


async def check_volume_of_the_go_operator(
    environment: Environment, output: Callable[[], Awaitable[str]]
) -> None:
    """It stays if another field manager than kubectl applied it; the remedy removes it, and nothing else."""
    key = NamespacedName(NAMESPACE, DEPLOYMENT_NAME)
    before = await environment.get(DEPLOYMENT, key.name, key.namespace)
    volume = {"name": "cert", "secret": {"secretName": operator.WEBHOOK_SECRET_NAME}}
    container = {"name": "manager", "volumeMounts": [{"name": "cert", "mountPath": "/certs"}]}
    spec = {"template": {"spec": {"volumes": [volume], "containers": [container]}}}
    metadata = {"name": key.name, "namespace": key.namespace}
    applied = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
    await environment.client.with_field_manager("argocd").apply(applied)
    found = await output()
    assert "the Deployment still has the Go operator's volume cert: its pods do not start" in found
    start = f"-> kubectl -n {NAMESPACE} patch deployment {DEPLOYMENT_NAME} -p "
    (remedy,) = [line for line in found.splitlines() if start in line]
    (patch,) = shlex.split(remedy.partition(start)[2])
    await environment.client.patch(DEPLOYMENT, key, json.loads(patch), PatchType.STRATEGIC)
    after = await environment.get(DEPLOYMENT, key.name, key.namespace)
    assert after["spec"] == before["spec"]
    assert "the Go operator's volume" not in await output()


async def check_other_operators(environment: Environment, admin: Path) -> None:
    """Another operator is found by its Deployment, its Lease and its webhooks, and is named with its namespace."""
    await environment.create_namespace("odh")
    (deployment,) = [obj for obj in render(namespace="odh") if obj["kind"] == "Deployment"]
    await environment.create(deployment)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "spec": {"holderIdentity": "a", "renewTime": now},
    }
    await environment.create(
        {**lease, "metadata": {"namespace": "odh", "name": "codeflare-operator-lock"}}
    )
    _, found = await doctor(admin)
    ((status, message),) = found["operators"]
    assert status == "warn"
    sign = "Deployment codeflare-operator-manager, 0 of 2 replicas ready, image"
    assert f"in namespace odh ({sign}" in message
    assert "Lease codeflare-operator-lock, holder a) reconciles all namespaces" in message
    assert message.startswith("two CodeFlare operators may reconcile the same objects: ")
    assert f"the one in namespace {NAMESPACE} (" in message
    binding = new_object(
        CLUSTER_ROLE_BINDING,
        "odh-operator",
        subjects=[{"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": "odh"}],
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
    )
    await environment.create(binding)
    code, found = await doctor(admin)
    assert (code, found["operators"][0][0]) == (1, "fail"), "an administrator installed it"
    tenants = [f"aa-{number:02}" for number in range(12)]
    for tenant in tenants:
        await environment.create_namespace(tenant)
        metadata = {"namespace": tenant, "name": "codeflare-operator-lock"}
        await environment.create({**lease, "metadata": metadata})
    code, found = await doctor(admin)
    assert (code, found["operators"][0][0]) == (1, "fail"), "Leases of a tenant do not hide it"
    assert "in namespace odh (" in found["operators"][0][1]
    assert "not shown: 3 more namespaces" in found["operators"][-1][1]
    for tenant in tenants:
        await environment.client.delete(LEASE, NamespacedName(tenant, "codeflare-operator-lock"))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    container["args"] = ["--default-config=watchNamespaces: [team]"]
    await environment.client.apply(deployment, force=True)
    await write_configuration(environment, watchNamespaces=["other"])
    _, found = await doctor(admin)
    assert found["operators"][0][0] == "ok", "its ConfigMap does not exist yet"
    container["args"] = ["--config", "mine"]
    await environment.client.apply(deployment, force=True)
    data = {"config.yaml": "watchNamespaces: [other]"}
    await environment.create(
        new_object(CONFIG_MAP, CONFIG_MAP_NAME, "odh", data={"config.yaml": "{}"})
    )
    await environment.create(new_object(CONFIG_MAP, "mine", "odh", data=data))
    _, found = await doctor(admin)
    assert "reconciles namespace other" in found["operators"][0][1], "the one that it reads"
    await write_configuration(environment)
    await environment.client.delete(CLUSTER_ROLE_BINDING, NamespacedName("", "odh-operator"))
    (webhooks,) = [
        obj for obj in render(namespace="odh") if obj["kind"] == "MutatingWebhookConfiguration"
    ]
    webhooks["metadata"]["name"] = "olm-generated"
    for webhook in webhooks["webhooks"]:
        webhook["failurePolicy"] = "Ignore"
    created = await environment.create(webhooks)
    _, found = await doctor(admin)
    assert found["operators"][0][0] == "fail"
    assert "MutatingWebhookConfiguration olm-generated" in found["operators"][0][1]
    for obj in (created, deployment):
        key = NamespacedName(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        await environment.client.delete(gvk_of(obj), key)


def test_unreachable_cluster_is_reported_in_one_line(tmp_path: Path, unused_tcp_port: int) -> None:
    kubeconfig = tmp_path / "k"
    kubeconfig.write_text(
        "{current-context: a, contexts: [{name: a, context: {cluster: a}}], "
        f"clusters: [{{name: a, cluster: {{server: 'https://127.0.0.1:{unused_tcp_port}'}}}}]}}"
    )
    result = CliRunner().invoke(cli, ["doctor", "--kubeconfig", str(kubeconfig)], prog_name="cfo")
    assert (result.exit_code, result.output.count("\n")) == (3, 1)
    assert result.output.endswith("; no cluster available? Try: cfo run --embedded\n")
    result = CliRunner().invoke(cli, ["doctor", "--kubeconfig", "/nowhere"], prog_name="cfo")
    assert (result.exit_code, result.output) == (3, "Error: /nowhere: no such file\n")


async def test_permissions_that_another_installation_took_are_named(tmp_path: Path) -> None:
    async with start_environment(*VANILLA_CRDS) as environment:
        for obj in render(namespace=NAMESPACE):
            await environment.client.apply(obj)
        kubeconfig = tmp_path / "admin"
        environment.plane.kubeconfig(kubeconfig)
        _, found = await doctor(kubeconfig)
        assert [status for status, _ in found["permissions"]] == ["ok"]
        part = {"watchNamespaces": ["team"]}
        await environment.create_namespace("team")
        for obj in render(namespace="additional", part=part):
            await environment.client.apply(obj)
        _, found = await doctor(kubeconfig)
        assert [status for status, _ in found["permissions"]] == ["ok"]

        for obj in render(namespace="second"):
            await environment.client.apply(obj)

        _, found = await doctor(kubeconfig)
        status, message = found["permissions"][0]
        assert status == "fail"
        assert "is for namespace second" in message
        assert "the operator in ops lost its permissions" in message
        metadata = {"name": CONFIG_MAP_NAME, "namespace": "additional"}
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        created = yaml.safe_dump(additional_configuration(part))  # by its operator
        await environment.create({**config_map, "data": {"config.yaml": created}})
        _, found = await doctor(kubeconfig, "-n", "additional")
        assert [status for status, _ in found["permissions"]] == ["ok"]

        own = NamespacedName("", f"{MANAGER_BINDING.name}-additional")
        await environment.client.delete(CLUSTER_ROLE_BINDING, own)
        for document in (created, ""):  # its administrator can remove the part
            await environment.client.update({**config_map, "data": {"config.yaml": document}})
            command = ["doctor", "-n", "additional", "--kubeconfig", str(kubeconfig)]
            result = await anyio.to_thread.run_sync(
                lambda words: CliRunner().invoke(cli, words, prog_name="cfo"), command
            )
            assert "lost its permissions" not in result.stdout
            options = "--namespace additional --additional --watch-namespace team"
            assert f"cfo manifests {options} | kubectl apply" in result.stdout


@pytest.mark.parametrize("has_oauth", [False, True])
async def test_role_bindings_are_not_enough_and_the_missing_permissions_are(
    tmp_path: Path, has_oauth: bool
) -> None:
    """What doctor names is enough for the operator to become ready in its namespaces."""
    settings: dict[str, Any] = {
        "watchNamespaces": ["default", "team"],
        "webhook": {"enabled": False},
        "kuberay": {"rayDashboardOAuthEnabled": has_oauth},
    }
    async with start_environment(*VANILLA_CRDS) as environment:
        await environment.create_namespace("team")
        manifests = render(namespace=NAMESPACE)
        for obj in manifests:
            await environment.client.apply(obj)
        await environment.client.delete(CLUSTER_ROLE_BINDING, MANAGER_BINDING)
        (binding,) = [
            obj
            for obj in manifests
            if obj["kind"] == CLUSTER_ROLE_BINDING.kind and name_of(obj) == MANAGER_BINDING.name
        ]
        for namespace in settings["watchNamespaces"]:
            metadata = {"name": "manager", "namespace": namespace}
            await environment.create({**binding, "kind": "RoleBinding", "metadata": metadata})
        await write_configuration(environment, **settings)
        kubeconfig = tmp_path / "admin"
        environment.plane.kubeconfig(kubeconfig)
        _, found = await doctor(kubeconfig)
        ((status, message),) = found["permissions"]
        assert status == "fail"
        assert "get, list, watch customresourcedefinitions.apiextensions.k8s.io" in message
        assert ("list, watch ingresses.networking.k8s.io" in message) is not has_oauth
        assert "secrets" not in message
        assert "default" not in message
        assert "team" not in message

        installation = await read_installation(environment.client, NAMESPACE, CONFIG_MAP_NAME)
        facts = await read_permissions(environment.client, installation, SERVICE_ACCOUNT)
        role = new_object(CLUSTER_ROLE, "rest", rules=policy_rules(facts.missing[""]))
        await environment.create(role)
        reference = {**binding["roleRef"], "name": "rest"}
        await environment.create({**binding, "metadata": {"name": "rest"}, "roleRef": reference})
        _, found = await doctor(kubeconfig)
        assert [status for status, _ in found["permissions"]] == ["ok"]
        token = await account_token(environment.client, NamespacedName(NAMESPACE, SERVICE_ACCOUNT))
        target = local_config(environment.plane, token=token)
        async with run_operator(environment, target=target, serves_webhooks=False) as manager:

            async def is_ready() -> bool:
                return not await manager.health.failures()

            await eventually(is_ready, "the operator is ready")


@pytest.mark.parametrize("replicas", [0, 2])
async def test_remedies_install_nothing_while_the_operator_runs_outside_the_cluster(
    tmp_path: Path, replicas: int
) -> None:
    """The manifests would scale the Deployment up again, or give the webhooks to the Service."""
    async with start_environment(*VANILLA_CRDS) as environment:
        for obj in render(NAMESPACE):
            if obj["kind"] == "Deployment":
                obj["spec"]["replicas"] = replicas
            if obj["kind"] == "MutatingWebhookConfiguration":
                del obj["webhooks"][0]
            if obj["kind"] == "ValidatingWebhookConfiguration":
                obj["webhooks"][0]["failurePolicy"] = "Ignore"
                ignoring = obj["webhooks"][0]["name"]
            if obj["kind"] != "ClusterRoleBinding":
                await environment.client.apply(obj)
        kubeconfig = tmp_path / "admin"
        environment.plane.kubeconfig(kubeconfig)
        command = ["doctor", "-n", NAMESPACE, "--kubeconfig", str(kubeconfig), "-o", "json"]

        async def findings() -> dict[str, list[dict[str, str]]]:
            result = await anyio.to_thread.run_sync(
                lambda: CliRunner().invoke(cli, command, prog_name="cfo")
            )
            found: dict[str, list[dict[str, str]]] = {}
            for finding in json.loads(result.stdout)["checks"]:
                found.setdefault(finding["check"], []).append(finding)
            return found

        def remedies(found: dict[str, list[dict[str, str]]]) -> dict[str, set[str]]:
            return {check: {each["remedy"] for each in found[check]} for check in found}

        before = remedies(await findings())
        assert any("cfo manifests" in each for each in before["permissions"])
        await write_configuration(environment, kuberay=WITH_PROXIES)
        target = local_config(environment.plane)
        async with run_operator(environment, target=target, serves_webhooks=False):

            async def findings_with_operator() -> dict[str, set[str]] | None:
                """Return the remedies of a run that found the Lease renewed: it can expire on a busy machine."""
                found = await findings()
                is_seen = found["operator"][0]["message"].startswith("runs outside the cluster: ")
                return remedies(found) if is_seen else None

            found = await eventually(findings_with_operator, "the operator renews its Lease")
            (remedy,) = found.pop("permissions")
            roles = f"cfo manifests --roles-only --namespace {NAMESPACE} --with authentication | kubectl"
            assert roles in remedy, "it contains neither Deployment nor webhooks"
            assert not any("cfo manifests" in each for check in found.values() for each in check)
            # They are those of the Deployment, which does not run.
            assert found["version"] == found["images"] == {""}
            name = "codeflare-operator-validating-webhook-configuration"
            patch = {"webhooks": [{"name": ignoring, "failurePolicy": "Fail"}]}
            assert found["webhooks"] == {
                RESTART_OUTSIDE,
                f"kubectl patch validatingwebhookconfiguration {name} -p '{json.dumps(patch)}'",
            }

            for obj in render_roles("other", ["authentication"]):
                await environment.client.apply(obj)
            found = await eventually(findings_with_operator, "the operator renews its Lease")
            (remedy,) = found["permissions"]
            assert f"--namespace {NAMESPACE} --additional --with" in remedy, "keeps that of other"
            await write_configuration(
                environment, kuberay=WITH_PROXIES, watchNamespaces=["default", "kube-public"]
            )
            found = await eventually(findings_with_operator, "the operator renews its Lease")
            (remedy,) = found["permissions"]
            watched = "--watch-namespace default --watch-namespace kube-public"
            assert f"--namespace {NAMESPACE} --additional {watched} --with" in remedy
            for obj in render_roles(
                NAMESPACE, ["authentication"], is_additional=True, watch_namespaces=["default"]
            ):
                await environment.client.apply(obj)
            found = await eventually(findings_with_operator, "the operator renews its Lease")
            assert found["permissions"] == {""}


async def test_role_of_a_disabled_feature_is_needed_until_its_bindings_are_deleted(
    tmp_path: Path,
) -> None:
    """The remedy has all options of the installation."""
    cidr = "192.0.2.0/28"
    monitoring = [
        crd("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"),
        crd("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules"),
    ]
    components = ["network-policy", "prometheus"]
    async with start_environment(*VANILLA_CRDS, *monitoring) as environment:
        for obj in render(NAMESPACE, "mirror.test/cfo:v1", components, [cidr]):
            await environment.client.apply(obj)
        kubeconfig = tmp_path / "admin"
        environment.plane.kubeconfig(kubeconfig)
        _, found = await doctor(kubeconfig)
        assert [status for status, _ in found["permissions"]] == ["ok"]
        ((status, message),) = found["monitoring"]
        assert status == "warn"
        assert "only from namespaces with the label metrics=enabled, which none has" in message
        await environment.create(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": "monitoring", "labels": {"metrics": "enabled"}},
            }
        )
        labels = {"ray.openshift.ai/cluster-name": "rc", "ray.openshift.ai/cluster-namespace": "ns"}
        reference = {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "system:auth-delegator",
        }
        await environment.create(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "proxy", "labels": labels},
                "roleRef": reference,
            }
        )
        _, found = await doctor(kubeconfig)
        assert [status for status, _ in found["monitoring"]] == ["ok"]
        ((status, message),) = found["permissions"]
        assert status == "fail"
        assert message.startswith("missing of the component authentication, whose feature is")
        assert message.endswith(": delete clusterrolebindings.rbac.authorization.k8s.io")
        command = ["doctor", "-n", NAMESPACE, "--kubeconfig", str(kubeconfig)]
        result = await anyio.to_thread.run_sync(
            lambda: CliRunner().invoke(cli, command, prog_name="cfo")
        )
        components.insert(0, "authentication")
        options = " ".join(
            ["--image mirror.test/cfo:v1", *(f"--with {name}" for name in components)]
        )
        options += f" --api-server-cidr {cidr}"
        assert f"cfo manifests --namespace {NAMESPACE} {options} | kubectl" in result.stdout
