"""``cfo status`` and the Overview against an API server, as an administrator and as a user of one namespace."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from click.testing import CliRunner, Result

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.raycluster.names import ROUTE
from cfo.cli import cli
from cfo.console import status_command
from cfo.features import all_views
from cfo.runtime import (
    GVK,
    Cache,
    NamespacedName,
    RESTMapper,
    Rule,
    Transport,
    owner_reference,
)
from cfo.runtime.objects import new_object
from cfo.summaries.changes import ChangeType
from cfo.summaries.kind_view import related_kinds
from cfo.summaries.overview import Overview
from cfo.summaries.summary import Level
from envtest import ControlPlane
from test.support.planes import local_config
from test.support.raycluster_environment import (
    RAY_CLUSTER_CRD,
    Environment,
    crd,
    ray_cluster,
    start_environment,
)
from test.support.tenant_clients import service_account_token


@pytest.fixture
def _restore_logs() -> Iterator[None]:
    """Undo what a command configures in this process."""
    handlers = list(logging.getLogger().handlers)
    yield
    logging.getLogger().handlers[:] = handlers


APPWRAPPER_CRD = crd("workload.codeflare.dev", "v1beta2", "AppWrapper", "appwrappers")
CLUSTER_LABELS = {"ray.openshift.ai/cluster-name": "rc"}


def api_service(gvk: GVK) -> dict[str, Any]:
    """Return the registration of an aggregated API whose server does not exist."""
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{gvk.version}.{gvk.group}"},
        "spec": {
            "group": gvk.group,
            "version": gvk.version,
            "groupPriorityMinimum": 1000,
            "versionPriority": 10,
            "insecureSkipTLSVerify": True,
            "service": {"namespace": "ns", "name": "nothing"},
        },
    }


async def create_cluster(env: Environment) -> Any:
    """Create a ready and exposed RayCluster without NetworkPolicies."""
    await env.create_namespace()
    cluster = await env.create(ray_cluster())
    ready = {"state": "ready", "desiredWorkerReplicas": 2, "readyWorkerReplicas": 2}
    await env.patch(cluster, {"status": ready}, subresource="status")
    await env.create(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": {
                "name": "ray-dashboard-rc",
                "namespace": "ns",
                "labels": CLUSTER_LABELS,
                "ownerReferences": [owner_reference(cluster)],
            },
            "spec": {"rules": [{"host": "rc.apps.test"}]},
        }
    )
    return cluster


async def create_objects(env: Environment) -> Any:
    """Create a ready and exposed RayCluster without NetworkPolicies, and a failed AppWrapper."""
    cluster = await create_cluster(env)
    wrapper = await env.create(
        {
            "apiVersion": "workload.codeflare.dev/v1beta2",
            "kind": "AppWrapper",
            "metadata": {"name": "aw", "namespace": "ns"},
            "spec": {"components": [{"template": {"kind": "Job"}}]},
        }
    )
    unhealthy = {
        "type": "Unhealthy",
        "status": "True",
        "reason": "FoundFailedPods",
        "message": "1 failed pods",
    }
    await env.patch(
        wrapper, {"status": {"phase": "Failed", "conditions": [unhealthy]}}, subresource="status"
    )
    return cluster


def warning(cluster: Any, reason: str) -> dict[str, Any]:
    regarding = {
        "kind": "RayCluster",
        "namespace": "ns",
        "name": "rc",
        "uid": cluster["metadata"]["uid"],
    }
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": reason.lower(), "namespace": "ns"},
        "involvedObject": {**regarding, "apiVersion": "ray.io/v1"},
        "type": "Warning",
        "reason": reason,
        "message": "a message",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }


async def status(
    server: ControlPlane, directory: Path, *arguments: str, token: str | None = None
) -> Result:
    """Run ``cfo status`` as the administrator, or with ``token``."""
    path = directory / "kubeconfig"
    server.kubeconfig(path)
    if token is not None:
        document = yaml.safe_load(path.read_text())
        document["users"][0]["user"] = {"token": token}
        path.write_text(yaml.safe_dump(document))
    command = ["status", *arguments, "--kubeconfig", str(path)]
    return await anyio.to_thread.run_sync(lambda: CliRunner().invoke(cli, command, prog_name="cfo"))


@pytest.mark.usefixtures("_restore_logs")
async def test_status_shows_what_the_user_is_allowed_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_environment(RAY_CLUSTER_CRD, APPWRAPPER_CRD) as env:
        await create_objects(env)

        everything = await status(env.plane, tmp_path, "-n", "ns", "-o", "json")
        assert everything.exit_code == 1
        document = json.loads(everything.stdout)
        assert (document["healthy"], document["unavailable"]) == (False, {})
        cluster, wrapper = document["items"]
        assert (cluster["state"], cluster["level"], cluster["ready"]) == ("ready", "warning", "2/2")
        assert cluster["facts"]["dashboard"] == "http://rc.apps.test"
        assert cluster["problems"][0]["message"] == "No NetworkPolicy protects the RayCluster"
        assert (wrapper["state"], wrapper["level"]) == ("Failed", "failed")
        assert wrapper["problems"][0]["message"] == "FoundFailedPods: 1 failed pods"

        rules = [Rule("ray.io", "rayclusters", ("list", "watch"))]
        tenant = await service_account_token(env, *rules, namespace="ns")
        unknown = await status(env.plane, tmp_path, "-n", "nope", token=tenant)
        assert "does not exist" not in unknown.stderr  # this user may not know
        assert "in namespace nope; check the namespace's name, or ask" in unknown.stderr
        own = await status(env.plane, tmp_path, "-n", "ns", token=tenant)
        assert own.exit_code == 0  # nothing that this user may read is wrong
        assert "1 object: 1 ok in namespace ns" in own.stdout
        (line,) = [line for line in own.stderr.splitlines() if line.startswith("not read:")]
        assert "AppWrapper (forbidden)" in line
        assert "NetworkPolicy (forbidden)" in line
        (line,) = [line for line in own.stderr.splitlines() if line.startswith("forbidden in ")]
        assert line.startswith("forbidden in namespace ns: list and watch of appwrappers.workload")
        assert ", pods;" in line
        assert "secrets" not in line  # no one should have this permission only for a status
        assert (
            "not installed: RayJob, FluxSetup, FluxJob, MiniCluster, InferenceStack" in own.stderr
        )

        async def print_nothing(overview: Overview, *, name: str) -> None:
            """End instead of following changes."""

        monkeypatch.setattr(status_command, "print_changes", print_nothing)
        watched = await status(env.plane, tmp_path, "-n", "ns", "--watch", token=tenant)
        assert watched.stderr == own.stderr
        watched = await status(env.plane, tmp_path, "-n", "default", "--watch")
        assert watched.stderr.endswith("no objects in namespace default\n")

        detail = await status(env.plane, tmp_path, "-n", "ns", "raycluster/rc", token=tenant)
        assert detail.exit_code == 0
        assert "dashboard" not in detail.stdout  # unknown is not "not exposed"

        elsewhere = await status(env.plane, tmp_path, "-A", "raycluster", token=tenant)
        assert elsewhere.exit_code == 3
        assert (
            "not allowed to list rayclusters.ray.io in all namespaces; try -n NAMESPACE, or ask the administrator"
            in elsewhere.stderr
        )

        forbidden = await status(env.plane, tmp_path, "-n", "ns", "aw/aw", token=tenant)
        assert (forbidden.exit_code, forbidden.stderr.count("\n")) == (3, 1)

        missing = await status(env.plane, tmp_path, "-n", "ns", "raycluster/nope")
        assert (missing.exit_code, missing.stderr) == (
            1,
            "Error: RayCluster nope in namespace ns: not found\n",
        )
        nowhere = await status(env.plane, tmp_path, "-n", "nope")
        assert (nowhere.exit_code, nowhere.stdout) == (2, "")
        assert (
            nowhere.stderr
            == "Error: --namespace: namespace nope does not exist; kubectl get namespaces lists all\n"
        )
        kubeconfig = str(tmp_path / "kubeconfig")
        page = await anyio.to_thread.run_sync(
            lambda: CliRunner().invoke(cli, ["dashboard", "-n", "nope", "--kubeconfig", kubeconfig])
        )
        assert (page.exit_code, page.stderr) == (2, nowhere.stderr)
        watched = await status(env.plane, tmp_path, "-n", "nope", "-w")
        assert (watched.exit_code, watched.stderr) == (2, nowhere.stderr)
        yaml_output = await status(env.plane, tmp_path, "-n", "ns", "raycluster", "-o", "yaml")
        assert yaml.safe_load(yaml_output.stdout)["items"] == [cluster]


@pytest.mark.usefixtures("_restore_logs")
async def test_objects_that_start_have_a_problem_if_their_pods_cannot_be_read(
    tmp_path: Path,
) -> None:
    problem = "Why it is not ready is unknown: listing pods in namespace ns is forbidden"
    async with start_environment(RAY_CLUSTER_CRD, APPWRAPPER_CRD) as env:
        cluster = await create_objects(env)
        await env.patch(cluster, {"status": {"state": None}}, subresource="status")
        wrapper = new_object(APPWRAPPER, "aw", "ns")
        status_of_wrapper = {"phase": "Resuming", "conditions": []}
        await env.patch(wrapper, {"status": status_of_wrapper}, subresource="status")
        rules = [
            Rule("ray.io", "rayclusters", ("list", "watch")),
            Rule("workload.codeflare.dev", "appwrappers", ("list", "watch")),
            Rule("", "events", ("list", "watch")),
        ]
        tenant = await service_account_token(env, *rules, namespace="ns")
        found = await status(env.plane, tmp_path, "-n", "ns", token=tenant)
        assert found.exit_code == 0, found.stdout  # nothing may be wrong
        assert found.stdout.count(f"    {problem}\n") == 2
        assert "the permission to list and watch pods in this namespace" in found.stdout
        own = await status(env.plane, tmp_path, "-n", "ns")
        assert problem not in own.stdout


@pytest.mark.usefixtures("_restore_logs")
async def test_api_without_server_hides_only_its_own_kinds(
    tmp_path: Path,
) -> None:
    reason = "is registered, but its API server does not respond"
    async with start_environment(RAY_CLUSTER_CRD) as env:
        await create_cluster(env)
        for gvk in (APPWRAPPER, ROUTE):
            await env.create(api_service(gvk))
        found = await status(env.plane, tmp_path, "-n", "ns")
        assert found.exit_code == 1, "a problem of the RayCluster"
        assert "RayCluster ns/rc" in found.stdout
        (line,) = [line for line in found.stderr.splitlines() if line.startswith("not read:")]
        assert f"AppWrapper (workload.codeflare.dev/v1beta2 {reason})" in line
        assert f"Route (route.openshift.io/v1 {reason})" in line

        flux = await status(env.plane, tmp_path, "-n", "ns", "raycluster")
        assert "AppWrapper" not in flux.stderr, "no RayCluster depends on it"

        only = await status(env.plane, tmp_path, "-n", "ns", "appwrapper/aw")
        assert (only.exit_code, only.stderr.count("\n")) == (3, 1)
        assert reason in only.stderr


@pytest.mark.usefixtures("_restore_logs")
async def test_unreachable_cluster_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\nusers: [{name: x, user: {token: t}}]\n"
        "contexts: [{name: x, context: {cluster: x, user: x}}]\n"
        "clusters: [{name: x, cluster: {server: 'https://127.0.0.1:1'}}]\n"
    )
    arguments = ["status", "--kubeconfig", str(config), "--timeout", "0.5"]
    result = await anyio.to_thread.run_sync(
        lambda: CliRunner().invoke(cli, arguments, prog_name="cfo")
    )
    assert (result.exit_code, result.stderr.count("\n")) == (3, 1)


async def test_overview_streams_changes_of_an_object_and_of_what_belongs_to_it() -> None:
    async with (
        start_environment(RAY_CLUSTER_CRD, APPWRAPPER_CRD) as env,
        Transport(local_config(env.plane)) as transport,
        anyio.create_task_group() as tasks,
    ):
        cluster = await create_objects(env)
        cache = Cache(transport, RESTMapper(transport))
        overview = Overview(cache, all_views(), related=related_kinds(all_views()))
        await tasks.start(cache.run)
        with (
            overview.subscribe() as subscription,
            overview.subscribe() as late,
            anyio.fail_after(120),
        ):

            async def next_of_cluster() -> Any:
                while True:
                    for change in await subscription.next():
                        if change.summary.key == NamespacedName("ns", "rc"):
                            return change

            change = await next_of_cluster()
            assert change.type is ChangeType.ADDED
            while change.summary.level is not Level.WARNING or not change.summary.fact("dashboard"):
                change = await next_of_cluster()  # the informers of its objects have synced
            assert change.summary.fact("dashboard") == "http://rc.apps.test"

            await env.create(warning(cluster, "NameConflict"))
            change = await next_of_cluster()
            assert change.type is ChangeType.CHANGED
            assert [each.reason for each in change.summary.warnings] == ["NameConflict"]
            assert any("NameConflict" in problem.message for problem in change.summary.problems)

            seen = await late.next()  # what the other subscription has read already
            assert {each.type for each in seen} == {ChangeType.ADDED}
            assert change.summary in [each.summary for each in seen]

            await env.delete(cluster)
            while change.type is not ChangeType.REMOVED:
                change = await next_of_cluster()
            assert change.summary.key == NamespacedName("ns", "rc")
        assert "FluxJob" in {gvk.kind for gvk in overview.unavailable()}
        overview.close()
        tasks.cancel_scope.cancel()


@pytest.mark.usefixtures("_restore_logs")
async def test_object_in_a_queue_without_kueue_has_a_problem(tmp_path: Path) -> None:
    async with start_environment(RAY_CLUSTER_CRD) as env:
        await env.create_namespace()
        queued = ray_cluster(suspend=True)
        queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
        cluster = await env.create(queued)
        await env.patch(cluster, {"status": {"state": "suspended"}}, subresource="status")

        result = await status(env.plane, tmp_path, "-n", "ns")

        assert result.exit_code == 1
        assert "LocalQueue team: Kueue is not installed" in result.stdout
        assert "-> ask the administrator to install Kueue" in result.stdout
        assert "LocalQueue" not in result.stderr, "it is not a kind that could not be read"
