"""An upgrade and its rollback: the release in ``UPGRADE_FROM`` and this one, each in a virtual environment of its own.

Each release is installed by its own manifests, and runs as its own process. What an upgrade changes is seen in the
objects of the control plane, embedded or real: which have another resourceVersion, and whether one was replaced.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
import yaml

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.flux.names import FLUX_JOB, FLUX_SETUP, MINICLUSTER
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.console.demo import crds
from cfo.runtime import Client, RESTMapper, Transport
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.objects.kinds import (
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    DEPLOYMENT,
    INGRESS,
    JOB,
    MUTATING_WEBHOOK_CONFIGURATION,
    NETWORK_POLICY,
    POD,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    key_of,
    resource_version_of,
    uid_of,
)
from cfo.version import CONFIG_MAP_NAME
from test.bench.gate import install_commit, resolve_commit
from test.support.config_map_webhooks import free_url
from test.support.installation import ROOT
from test.support.manifests import load_all
from test.support.operator_process import LOOPBACK_ADDRESSES, OperatorProcess
from test.support.planes import new_plane
from test.support.raycluster_environment import Environment, eventually

INFERENCE_STACK = GVK("models.takeoff.co", "v1alpha1", "InferenceStack")

FROM = os.environ.get("UPGRADE_FROM", "")

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not FROM, reason="UPGRADE_FROM is not set (make test-upgrade)"),
]

NUMBER = 30
"""How many objects of each kind exist."""

SETTLED_SECONDS = 4.0
"""How long no object may change until an operator counts as settled: longer than the backoff of its first retries."""

CONFIGURATION = {
    **LOOPBACK_ADDRESSES,
    "kuberay": {"rayDashboardOAuthEnabled": False, "ingressDomain": "apps.test"},
    "appwrapper": {"enabled": True},
    "flux": {"enabled": True},
    "inferenceStack": {"enabled": True},
}

CONTROLLERS = ("gc", "namespace", "serviceaccount", "job", "deployment", "replicaset")
"""The controllers of the embedded control plane. Pods stay pending, as on the real one, which has no nodes."""

OWN_KINDS = (RAY_CLUSTER, APPWRAPPER, FLUX_SETUP, FLUX_JOB, MINICLUSTER, INFERENCE_STACK)

WORKLOADS = (POD, JOB, DEPLOYMENT)

OTHER_KINDS = (
    SERVICE,
    SERVICE_ACCOUNT,
    SECRET,
    CONFIG_MAP,
    INGRESS,
    NETWORK_POLICY,
    CLUSTER_ROLE_BINDING,
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
)


@dataclass(frozen=True, slots=True)
class StoredState:
    """What shows whether an object was written or replaced."""

    uid: str
    resource_version: str


Snapshot = dict[tuple[str, NamespacedName], StoredState]
"""All objects of the kinds above, by kind and key."""


async def snapshot(environment: Environment) -> Snapshot:
    found: Snapshot = {}
    for kind in (*OWN_KINDS, *WORKLOADS, *OTHER_KINDS):
        for obj in await environment.client.list(kind):
            found[kind.kind, key_of(obj)] = StoredState(uid_of(obj), resource_version_of(obj))
    return found


async def settled(environment: Environment) -> Snapshot:
    """Wait until nothing changes any more, and return the objects."""
    before = await snapshot(environment)
    while True:
        await asyncio.sleep(SETTLED_SECONDS)
        after = await snapshot(environment)
        if after == before:
            return after
        before = after


def changes(before: Snapshot, after: Snapshot) -> list[str]:
    """Return a line for each object that was created, deleted, replaced or written."""
    lines: list[str] = []
    for identity in sorted(before.keys() | after.keys()):
        old = before.get(identity)
        new = after.get(identity)
        if old == new:
            continue
        if old is None:
            verb = "created"
        elif new is None:
            verb = "deleted"
        else:
            verb = "written" if old.uid == new.uid else "replaced"
        kind, key = identity
        lines.append(f"{kind} {key} {verb}")
    return lines


@asynccontextmanager
async def running(
    executable: Path, environment: Environment, directory: Path, url: str
) -> AsyncIterator[None]:
    """Run a release until the end of the block, which begins when it is ready."""
    kubeconfig = directory / "kubeconfig"
    environment.plane.kubeconfig(kubeconfig)
    options = ("--kubeconfig", str(kubeconfig), "--log-format", "json", "--webhook-url", url)
    process = await asyncio.create_subprocess_exec(
        str(executable),
        "run",
        *options,
        env={"PATH": os.environ["PATH"], "HOME": str(directory), "NAMESPACE": "default"},
        cwd=directory,
        stderr=asyncio.subprocess.PIPE,
    )
    operator = OperatorProcess(process)
    try:
        await operator.ready()
        yield
        process.terminate()
        assert await operator.exit_code() == 0, operator.output
    finally:
        if process.returncode is None:
            process.kill()
            await operator.exit_code()


async def install_crds(executable: Path, environment: Environment) -> None:
    """Apply the CRDs of a release, as its administrator does before the new version starts."""
    printed = await anyio.run_process([str(executable), "manifests"])
    for obj in load_all(printed.stdout.decode()):
        if obj["kind"] == "CustomResourceDefinition":
            await environment.client.apply(obj, force=True)


def sample(path: str, kind: GVK) -> Object:
    """Return the first object of ``kind`` in a file of ``config/samples``."""
    for obj in load_all((ROOT / "config/samples" / path).read_text()):
        if obj["kind"] == kind.kind:
            obj["metadata"]["namespace"] = "ns"
            return obj
    raise LookupError(f"{path}: no {kind.kind}")


def numbered(original: Object, number: int) -> Object:
    """Return a copy with another name; an AppWrapper's components get the same number."""
    copy: Object = yaml.safe_load(yaml.safe_dump(original))
    copy["metadata"]["name"] += f"-{number}"
    for component in copy["spec"].get("components", []):
        component["template"]["metadata"]["name"] += f"-{number}"
    return copy


def user_objects() -> Sequence[Object]:
    """Return what users have: a queue, and :data:`NUMBER` objects of each kind, which are not at their end."""
    samples = [
        sample("raycluster-interactive.yaml", RAY_CLUSTER),
        sample("all/appwrapper-job.yaml", APPWRAPPER),
        sample("all/flux-queue.yaml", FLUX_JOB),
        sample("all/inferencestack.yaml", INFERENCE_STACK),
    ]
    setup = sample("all/flux-queue.yaml", FLUX_SETUP)
    setup["spec"]["max-size"] = NUMBER  # half of the jobs run, the others wait
    del setup["spec"]["mini-cluster"]["pod"]
    (_, job) = samples[1]["spec"]["components"]
    del job["template"]["spec"]["template"]["metadata"]["annotations"]
    objects = [setup]
    for each in samples:
        objects += (numbered(each, number) for number in range(NUMBER))
    return objects


async def test_upgrade_and_rollback_restart_nothing_and_write_no_object_of_a_user(
    tmp_path: Path,
) -> None:
    old = install_commit(resolve_commit(FROM), ROOT / "build/gate")
    new = install_commit(resolve_commit("HEAD"), ROOT / "build/gate")
    plane = new_plane(crds.load(), CONTROLLERS)
    async with plane, Transport(ClientConfig.for_control_plane(plane)) as transport:
        environment = Environment(
            plane, Client(transport, RESTMapper(transport), field_manager="tester")
        )
        await environment.create_namespace()
        await environment.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": CONFIG_MAP_NAME, "namespace": "default"},
                "data": {"config.yaml": yaml.safe_dump(CONFIGURATION)},
            }
        )
        address = free_url()
        url = f"https://{address.host}:{address.port}"
        await install_crds(old, environment)
        async with running(old, environment, tmp_path, url):
            for obj in user_objects():
                await environment.create(obj)
            await eventually(lambda: has_pods(environment), "pods of each kind")
            await settled(environment)
        installed = await snapshot(environment)
        for kind in (RAY_CLUSTER, APPWRAPPER, FLUX_JOB, INFERENCE_STACK):
            assert sum(identity[0] == kind.kind for identity in installed) >= NUMBER

        await install_crds(new, environment)
        async with running(new, environment, tmp_path, url):
            upgraded = await settled(environment)
        report("upgrade", installed, upgraded)

        async with running(old, environment, tmp_path, url):
            rolled_back = await settled(environment)
        report("rollback, with the new CRDs", upgraded, rolled_back)

        for before, after in ((installed, upgraded), (upgraded, rolled_back)):
            of_users = [line for line in changes(before, after) if " ns/" in line]
            assert of_users == []


async def has_pods(environment: Environment) -> bool:
    """Whether an AppWrapper's Job, a MiniCluster and a stack have a pod."""
    names = " ".join(str(key_of(pod)) for pod in await environment.client.list(POD, namespace="ns"))
    missing = [
        part for part in ("nightly-report", "simulation", "my-inference-stack") if part not in names
    ]
    assert not missing, f"no pods of {missing}"
    return True


def report(step: str, before: Snapshot, after: Snapshot) -> None:
    """Print what a step changed, for ``pytest -s``."""
    lines = changes(before, after)
    print(f"\n{step}: {len(after)} objects, {len(lines)} of them changed")
    for line in lines:
        print(f"  {line}")
