"""An operator with ``watchNamespaces`` that has its permissions only in these namespaces, from ``cfo manifests``."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
import yaml
from click.testing import CliRunner

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.checks.findings import PIPED
from cfo.cli import cli
from cfo.console.demo import crds
from cfo.manifests.names import DEFAULT_NAMESPACE, LABELS, SERVICE_ACCOUNT
from cfo.manifests.names import DEPLOYMENT as DEPLOYMENT_NAME
from cfo.manifests.watched import WATCHED_PREFIX
from cfo.runtime import (
    CONFIG_MAP,
    DEPLOYMENT,
    GVK,
    NETWORK_POLICY,
    POD,
    SECRET,
    Client,
    Forbidden,
    NamespacedName,
    RESTMapper,
    Transport,
    key_of,
    name_of,
    namespace_of,
)
from cfo.runtime.objects import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, EVENT
from cfo.runtime.objects.kinds import INGRESS
from cfo.version import CONFIG_MAP_NAME
from envtest import EmbeddedControlPlane
from test.support.appwrapper_environment import pod, wrapper
from test.support.config_map_webhooks import free_url
from test.support.installation import (
    create_config_map,
    delete_webhooks,
    install,
    run_in_cluster,
    run_uninstall,
)
from test.support.manifests import load_all
from test.support.planes import apply_all, local_config
from test.support.raycluster_environment import (
    Environment,
    eventually,
    ray_cluster,
    start_environment,
)
from test.support.tenant_clients import account_token

RAY_CLUSTERS = crds.load()
ROLE_BINDING = GVK("rbac.authorization.k8s.io", "v1", "RoleBinding")
WATCHED = ("--watch-namespace", "a", "--watch-namespace", "b")
WITH_ROLES = ("--with", "appwrapper")
SELECTOR = ",".join(f"{key}={value}" for key, value in LABELS.items())


async def apply_manifests(environment: Environment, command: str) -> None:
    """Run ``cfo manifests`` with these words, and apply what it prints."""
    result = CliRunner().invoke(cli, shlex.split(command), prog_name="cfo")
    assert result.exit_code == 0, result.output
    await apply_all(environment.plane, load_all(result.stdout))


async def create_configuration(environment: Environment, namespace: str, **settings: Any) -> None:
    """Create the ConfigMap as the operator does, with ``settings`` that its administrator adds."""
    deployment = await environment.get(DEPLOYMENT, DEPLOYMENT_NAME, namespace)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (argument,) = container["args"]
    document = yaml.safe_load(argument.removeprefix("--default-config="))
    assert document["watchNamespaces"] == ["a", "b"]
    loopback = {"bindAddress": "127.0.0.1:0"}
    document |= {"metrics": loopback, "health": loopback, **settings}
    await environment.create(
        {
            "apiVersion": CONFIG_MAP.api_version,
            "kind": CONFIG_MAP.kind,
            "metadata": {"name": CONFIG_MAP_NAME, "namespace": namespace},
            "data": {"config.yaml": yaml.safe_dump(document)},
        }
    )


async def permission_findings(
    environment: Environment, directory: Path, namespace: str
) -> list[dict[str, str]]:
    """Return what ``cfo doctor`` finds about the permissions of the operator; without TLS, if it is embedded."""
    kubeconfig = directory / "doctor.kubeconfig"
    if not kubeconfig.exists():
        environment.plane.kubeconfig(kubeconfig)
        server = local_config(environment.plane).server
        kubeconfig.write_text(kubeconfig.read_text().replace(environment.plane.url, server))
    command = ["doctor", "-n", namespace, "--kubeconfig", str(kubeconfig), "-o", "json"]
    result = await anyio.to_thread.run_sync(
        lambda: CliRunner().invoke(cli, command, prog_name="cfo")
    )
    found = json.loads(result.stdout)["checks"]
    return [finding for finding in found if finding["check"] == "permissions"]


def denied_requests(environment: Environment, namespace: str) -> list[str]:
    """Return what the operator was not allowed to do; a real API server has no audit log here."""
    if not isinstance(environment.plane, EmbeddedControlPlane):
        return []
    user = f"system:serviceaccount:{namespace}:{SERVICE_ACCOUNT}"
    return [
        f"{event['verb']} {event['requestURI']}"
        for event in environment.plane.audit.events
        if event["user"]["username"] == user and event["responseStatus"]["code"] == 403
    ]


async def check_work(environment: Environment) -> None:
    """Create a RayCluster and an AppWrapper in a watched namespace, and wait for what the operator creates."""
    await environment.create(ray_cluster(namespace="a"))
    await environment.create(ray_cluster(namespace="c"))
    await environment.create(wrapper(pod("wrapped"), namespace="a"))

    async def is_protected() -> bool:
        policies = await environment.client.list(NETWORK_POLICY)
        return "a" in {namespace_of(policy) for policy in policies}

    async def is_exposed() -> bool:
        return bool(await environment.client.list(INGRESS, namespace="a"))

    async def is_deployed() -> bool:
        created = await environment.client.get(POD, NamespacedName("a", "wrapped"))
        stored = await environment.get(APPWRAPPER, "w", "a")
        return created is not None and bool((stored.get("status") or {}).get("phase"))

    await eventually(is_protected, "the NetworkPolicies of the RayCluster")
    await eventually(is_exposed, "the Ingress of the RayCluster")
    await eventually(is_deployed, "the pod of the AppWrapper")
    assert not await environment.client.list(NETWORK_POLICY, namespace="c")


async def check_isolation(environment: Environment, namespace: str) -> None:
    """Check what the operator's ServiceAccount may read outside the namespaces ``a`` and ``b``."""
    token = await account_token(environment.client, NamespacedName(namespace, SERVICE_ACCOUNT))
    config = local_config(environment.plane, token=token)
    async with Transport(config) as transport:
        client = Client(transport, RESTMapper(transport), field_manager="operator")
        for kind in (SECRET, POD):
            for where in ("c", namespace, ""):
                with pytest.raises(Forbidden):
                    await client.list(kind, namespace=where, live=True)
            for watched in ("a", "b"):
                await client.list(kind, namespace=watched, live=True)
        # Their hosts are compared with those of all others.
        await client.list(INGRESS, live=True)


@pytest.mark.parametrize(
    ("namespace", "options"),
    [
        (DEFAULT_NAMESPACE, WATCHED),
        ("second", ("--additional", "--namespace", "second", *WATCHED)),
    ],
)
async def test_printed_roles_are_enough_in_the_namespaces_and_grant_nothing_in_others(
    tmp_path: Path, namespace: str, options: tuple[str, ...]
) -> None:
    is_first = namespace == DEFAULT_NAMESPACE
    command = shlex.join(("manifests", *options, *WITH_ROLES))
    async with start_environment(*RAY_CLUSTERS) as environment:
        for name in ("a", "b", "c"):
            await environment.create_namespace(name)
        if not is_first:
            await install(environment)  # with the CRDs
        await apply_manifests(environment, command)
        await create_configuration(
            environment,
            namespace,
            kuberay={"rayDashboardOAuthEnabled": False, "ingressDomain": "apps.test"},
            appwrapper={"enabled": True, "requireAdmissionWebhook": is_first},
        )
        (finding,) = await permission_findings(environment, tmp_path, namespace)
        assert finding["status"] == "ok", finding
        if not is_first:  # no one serves them here
            await delete_webhooks(environment)

        webhooks = ("--webhook-url", str(free_url())) if is_first else ()
        async with run_in_cluster(
            environment, tmp_path, *webhooks, namespace=namespace
        ) as operator:
            await operator.ready()
            await check_work(environment)
            assert denied_requests(environment, namespace) == []
            assert "Permission denied" not in operator.output
            assert "is not installed" not in operator.output
            await check_events(environment, namespace)
            await check_isolation(environment, namespace)
            operator.process.terminate()
            assert await operator.exit_code() == 0, operator.output

        kept = await create_binding_of_a_tenant(environment, namespace)
        output = await run_uninstall(
            environment, tmp_path, "--namespace", namespace, "--timeout", "1"
        )
        assert "deleted RoleBinding b/codeflare-operator-watched-manager-rolebinding" in output
        for kind in (ROLE_BINDING, CLUSTER_ROLE):
            left = await environment.client.list(kind)
            names = {str(key_of(obj)) for obj in left if "operator-watched" in name_of(obj)}
            assert names == ({str(kept)} if kind == ROLE_BINDING else set())


@pytest.mark.parametrize("exists", [True, False])
async def test_operator_serves_its_other_namespaces_while_one_has_no_permissions(
    tmp_path: Path, *, exists: bool
) -> None:
    """The namespace was deleted, or its administrator deleted the RoleBindings; then the operator was restarted."""
    async with start_environment(*RAY_CLUSTERS) as environment:
        await environment.create_namespace("b")
        if exists:
            await environment.create_namespace("a")
        first = ("--watch-namespace", "b")
        await apply_manifests(environment, shlex.join(("manifests", *first, *WITH_ROLES)))
        await create_config_map(
            environment,
            watchNamespaces=["a", "b"],
            metrics={"bindAddress": "127.0.0.1:0"},
            health={"bindAddress": "127.0.0.1:0"},
            kuberay={"rayDashboardOAuthEnabled": False, "ingressDomain": "apps.test"},
            appwrapper={"enabled": True},
        )
        found = await permission_findings(environment, tmp_path, DEFAULT_NAMESPACE)
        assert {finding["status"] for finding in found} == {"fail"}
        options = shlex.join(("--namespace", DEFAULT_NAMESPACE, *WATCHED, *WITH_ROLES))
        apply = f"apply the manifests: cfo manifests {options} {PIPED}"
        (remedy,) = {finding["remedy"] for finding in found}
        assert apply in remedy
        assert remedy.startswith("create what is missing, then ") is not exists
        if not exists:
            assert found[0]["message"].endswith("nothing is reconciled there: namespace a")

        async with run_in_cluster(
            environment, tmp_path, "--webhook-url", str(free_url())
        ) as operator:
            await operator.ready()
            await environment.create(ray_cluster(namespace="b"))
            await wait_for_policies(environment, "b")
            if not exists:
                await environment.create_namespace("a")

            for binding in await environment.client.list(ROLE_BINDING, namespace="b"):
                metadata = {"name": name_of(binding), "namespace": "a"}
                await environment.create({**binding, "metadata": metadata})
            await environment.create(ray_cluster(namespace="a"))
            await wait_for_policies(environment, "a")
            assert operator.output.count("Permission denied in a namespace") == 1
            assert "Permission denied, will retry" not in operator.output
            assert "is not installed" not in operator.output


async def test_doctor_names_role_bindings_that_are_not_needed_any_more(tmp_path: Path) -> None:
    async with start_environment(*RAY_CLUSTERS) as environment:
        for name in ("a", "b"):
            await environment.create_namespace(name)
        await apply_manifests(environment, shlex.join(("manifests", *WATCHED)))
        await create_config_map(environment, watchNamespaces=["a", "b"])
        found = await permission_findings(environment, tmp_path, DEFAULT_NAMESPACE)
        assert [finding["status"] for finding in found] == ["ok"]

        narrowed = {"data": {"config.yaml": "watchNamespaces: [b]"}}
        key = NamespacedName(DEFAULT_NAMESPACE, CONFIG_MAP_NAME)
        await environment.client.patch(CONFIG_MAP, key, narrowed)
        found = await permission_findings(environment, tmp_path, DEFAULT_NAMESPACE)
        assert [finding["status"] for finding in found] == ["ok", "warn"]
        assert found[1]["message"].endswith("watchNamespaces no longer contains their namespace a")
        bindings = await environment.client.list(ROLE_BINDING, namespace="a")
        names = sorted(map(name_of, bindings))
        assert found[1]["remedy"] == f"kubectl -n a delete rolebindings -- {' '.join(names)}"


async def wait_for_policies(environment: Environment, namespace: str) -> None:
    """Wait for the NetworkPolicies of the RayCluster in a namespace."""

    async def is_protected() -> bool:
        return bool(await environment.client.list(NETWORK_POLICY, namespace=namespace))

    await eventually(is_protected, f"the NetworkPolicies in {namespace}")


async def create_binding_of_a_tenant(environment: Environment, namespace: str) -> NamespacedName:
    """Bind another role to the operator in the namespace ``c``, with the name and the labels of the operator's own."""
    metadata = {"name": f"{WATCHED_PREFIX}manager-rolebinding", "namespace": "c"}
    account = {"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": namespace}
    group = "rbac.authorization.k8s.io"
    created = await environment.create(
        {
            "apiVersion": ROLE_BINDING.api_version,
            "kind": ROLE_BINDING.kind,
            "metadata": {**metadata, "labels": dict(LABELS)},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "view"},
            "subjects": [account],
        }
    )
    return key_of(created)


async def check_events(environment: Environment, namespace: str) -> None:
    """Check that the operator reports Events about its own objects."""

    async def has_reported() -> bool:
        events = await environment.client.list(EVENT, namespace=namespace)
        return any(event["regarding"]["kind"] == "Lease" for event in events)

    await eventually(has_reported, "the Event of the election")


async def test_remedy_of_role_bindings_by_hand_grants_nothing_in_the_whole_cluster(
    tmp_path: Path,
) -> None:
    """An administrator has bound the ClusterRoles in the namespaces, and deleted their ClusterRoleBindings."""
    async with start_environment(*RAY_CLUSTERS) as environment:
        for name in ("a", "b"):
            await environment.create_namespace(name)
        await install(environment, components=["appwrapper"])
        bindings = await environment.client.list(CLUSTER_ROLE_BINDING, label_selector=SELECTOR)
        for binding in bindings:
            await environment.delete(binding)
            for namespace in ("a", "b"):
                metadata = {"name": f"by-hand-{name_of(binding)}", "namespace": namespace}
                await environment.create({**binding, "kind": "RoleBinding", "metadata": metadata})
        assert len(bindings) == 2
        settings = {"appwrapper": {"enabled": True}, "watchNamespaces": ["a", "b"]}
        await create_config_map(environment, **settings)

        found = await permission_findings(environment, tmp_path, DEFAULT_NAMESPACE)

        assert "customresourcedefinitions" in found[0]["message"]
        options = ("--namespace", DEFAULT_NAMESPACE, *WATCHED, *WITH_ROLES)
        command = shlex.join(("manifests", *options))
        (remedy,) = {finding["remedy"] for finding in found}
        apply = f"apply the manifests: cfo {command} {PIPED}"
        assert remedy == f"if an administrator installed it there: {apply}"
        await apply_manifests(environment, command)
        (finding,) = await permission_findings(environment, tmp_path, DEFAULT_NAMESPACE)
        assert finding["status"] == "ok"
        await check_isolation(environment, DEFAULT_NAMESPACE)


@pytest.mark.parametrize(
    ("namespace", "options"),
    [
        (DEFAULT_NAMESPACE, ("--namespace", DEFAULT_NAMESPACE, *WATCHED)),
        ("second", ("--namespace", "second", "--additional", *WATCHED)),
    ],
)
async def test_remedy_of_missing_permissions_grants_nothing_in_the_whole_cluster(
    tmp_path: Path, namespace: str, options: tuple[str, ...]
) -> None:
    command = shlex.join(("manifests", *options, *WITH_ROLES))
    async with start_environment(*RAY_CLUSTERS) as environment:
        for name in ("a", "b"):
            await environment.create_namespace(name)
        await apply_manifests(environment, command)
        await create_configuration(environment, namespace, appwrapper={"enabled": True})
        bindings = await environment.client.list(ROLE_BINDING, namespace="b")
        for binding in bindings:
            await environment.delete(binding)
        assert len(bindings) == 2

        found = await permission_findings(environment, tmp_path, namespace)

        assert [finding["status"] for finding in found] == ["fail", "fail"]
        assert "list, patch, watch secrets in namespace b" in found[0]["message"]
        (remedy,) = {finding["remedy"] for finding in found}
        assert remedy == f"apply the manifests: cfo {command} {PIPED}"
        await apply_manifests(environment, command)
        (finding,) = await permission_findings(environment, tmp_path, namespace)
        assert finding["status"] == "ok"
