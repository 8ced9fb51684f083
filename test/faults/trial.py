"""An installed operator with the work of several tenants, on which a fault is tried.

The operator runs with the permissions of its manifests, in processes that are started again when they end, as by the
kubelet. Each replica connects through a proxy of its own, which breaks connections or answers in place of the API
server.
Its webhooks are called at a URL, because neither control plane has a network in which a Service could be reached.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import orjson
from anyio.abc import TaskGroup

from cfo import operator
from cfo.api.appwrapper.models import appwrapper_crd
from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.flux.models.minicluster import minicluster_crd
from cfo.api.flux.models.queue import fluxjob_crd, fluxsetup_crd
from cfo.api.flux.names import FLUX_JOB, FLUX_SETUP, MINICLUSTER
from cfo.manifests.names import DEFAULT_NAMESPACE, SERVICE_ACCOUNT
from cfo.manifests.overlays import render
from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig, load_config
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.errors import APIError, TransportError
from cfo.runtime.client.transport import APIRequest, Transport
from cfo.runtime.manager.manager import Manager
from cfo.runtime.objects.kinds import (
    CONFIG_MAP,
    INGRESS,
    JOB,
    LEASE,
    NETWORK_POLICY,
    SECRET,
    SERVICE,
)
from cfo.runtime.objects.unstructured import NamespacedName, Object, name_of, namespace_of
from cfo.runtime.process.clock import Clock
from cfo.runtime.webhook.options import WebhookURL
from cfo.version import CONFIG_MAP_NAME
from envtest import ControlPlane, EmbeddedControlPlane, RealControlPlane
from test.faults.writes import FLUX_JOBS, AuditReader, Expected, Write
from test.support.config_map_webhooks import free_url
from test.support.faults import repeat_until_accepted
from test.support.faulty_proxy import FaultyProxy, start_faulty_proxy
from test.support.installation import create_config_map
from test.support.operator_process import OperatorProcess, run_operator
from test.support.raycluster_environment import (
    VANILLA_CRDS,
    Environment,
    eventually,
    ray_cluster,
)

__all__ = ["CONTROLLERS", "CRDS", "Replica", "Trial", "start_trial"]

CRDS: Final = (*VANILLA_CRDS, appwrapper_crd(), fluxjob_crd(), fluxsetup_crd(), minicluster_crd())
CONTROLLERS: Final = ("gc", "namespace", "serviceaccount", "job")

_INSTALLED: Final = (
    "Namespace",
    "ServiceAccount",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
)
"""The kinds of the manifests that are applied; pods cannot run here."""

_KINDS: Final = (INGRESS, NETWORK_POLICY, SECRET, SERVICE, CONFIG_MAP, JOB, MINICLUSTER)
"""The kinds of the objects that the operator creates for a tenant."""

CHILDREN: Final[Mapping[str, int]] = {
    INGRESS.kind: 2,
    NETWORK_POLICY.kind: 2,
    SECRET.kind: 2,
    SERVICE.kind: 1,
    CONFIG_MAP.kind: 1,
    JOB.kind: 2,
    MINICLUSTER.kind: 1,
}
"""How many objects of each kind the operator creates for a tenant: the second FluxJob waits for quota."""

_NAMES: Final = ("one", "two", "three")
_RESTART_SECONDS: Final = 1.0
"""After how many seconds an operator that has ended is started again; the kubelet's first pause is about as long."""
_POLL_SECONDS: Final = 0.1


class Replica:
    """A replica of the operator with its own user and proxy, which is started again whenever it ends."""

    def __init__(
        self, env: Environment, name: str, token: str, proxy: FaultyProxy, folder: Path, url: str
    ) -> None:
        self.name = name
        self.user = f"system:serviceaccount:{DEFAULT_NAMESPACE}:{account_of(name)}"
        self.proxy = proxy
        self.starts = 0
        self.log: Path | None = None
        self.executable: Path | None = None
        self.clock: Clock | None = None
        self.process: OperatorProcess | None = None
        self._env = env
        self._manager: Manager | None = None
        self._folder = folder
        self._url = url
        self._kubeconfig = folder / "proxy.kubeconfig"
        self._stopped = asyncio.Event()
        self._started = asyncio.Event()
        proxy.kubeconfig(self._kubeconfig, env.plane, token)

    @property
    def restarts(self) -> int:
        """How often the operator was started again."""
        return max(self.starts - 1, 0)

    async def run(self) -> None:
        """Run the operator until :meth:`stop`; with a clock of the test, in this process."""
        if self.clock is not None:
            await self._run_here(self.clock)
            return
        while not self._stopped.is_set():
            async with run_operator(
                self._env,
                self._folder,
                "--kubeconfig",
                str(self._kubeconfig),
                "--webhook-url",
                self._url,
                log=self.log,
                executable=self.executable,
                NAMESPACE=DEFAULT_NAMESPACE,
            ) as self.process:
                self.starts += 1
                self._started.set()
                await self.process.process.wait()
            if not self._stopped.is_set():
                await asyncio.sleep(_RESTART_SECONDS)

    async def _run_here(self, clock: Clock) -> None:
        def remember(manager: Manager) -> None:
            self._manager = manager
            self.starts += 1
            self._started.set()

        await operator.run(
            await load_config(str(self._kubeconfig)),
            NamespacedName(DEFAULT_NAMESPACE, CONFIG_MAP_NAME),
            webhook_url=WebhookURL.parse(self._url),
            configure_manager=remember,
            handle_signals=False,
            clock=clock,
        )

    async def ready(self) -> None:
        """Wait until the running operator is ready."""
        await self._started.wait()
        if self._manager is not None:
            manager = self._manager

            async def is_ready() -> bool:
                return not await manager.health.failures()

            await eventually(is_ready, "readiness")
            return
        assert self.process is not None
        await self.process.ready()

    def kill(self) -> None:
        """End the process with SIGKILL."""
        assert self.process is not None
        self.process.process.kill()

    def terminate(self) -> None:
        """End the process with SIGTERM, and start no other one."""
        self._stopped.set()
        assert self.process is not None
        self.process.process.terminate()

    def stop(self) -> None:
        """End the process with SIGKILL, and start no other one."""
        self._stopped.set()
        if self._manager is not None:
            self._manager.stop()
        if self.process is not None and self.process.process.returncode is None:
            self.process.process.kill()


def account_of(replica: str) -> str:
    """Return the name of a replica's service account."""
    return f"{SERVICE_ACCOUNT}-{replica}"


class Trial:
    """An installation with replicas and tenants.

    :attr:`tenants` are the namespaces of the tenants, :attr:`deleted` the objects of the operator that a user deleted,
    :attr:`expected` how often each object of a tenant is written without a fault, :attr:`allowed_repeats` how many
    writes may be repeated because their response was lost, and :attr:`running` the replicas that run.
    """

    def __init__(
        self,
        env: Environment,
        replicas: Mapping[str, Replica],
        audit: AuditReader,
        tasks: TaskGroup,
        planes: AsyncExitStack,
    ) -> None:
        self._planes = planes
        self._backup = audit.file.with_name("backup")
        self.env = env
        self.replicas = replicas
        self.tenants: list[str] = []
        self.deleted: list[str] = []
        self.expected: Expected = {}
        self.allowed_repeats = 0
        self.running: list[Replica] = []
        self._audit = audit
        self._tasks = tasks

    @property
    def plane(self) -> ControlPlane:
        """The control plane."""
        return self.env.plane

    @property
    def programs(self) -> RealControlPlane:
        """The real control plane, whose programs can be killed."""
        assert isinstance(self.env.plane, RealControlPlane)
        return self.env.plane

    @property
    def one(self) -> Replica:
        """The first replica."""
        return self.replicas[_NAMES[0]]

    @property
    def two(self) -> Replica:
        """The second replica."""
        return self.replicas[_NAMES[1]]

    @property
    def three(self) -> Replica:
        """The third replica."""
        return self.replicas[_NAMES[2]]

    def start(self, replica: Replica) -> None:
        """Start a replica."""
        self.running.append(replica)
        self._tasks.start_soon(replica.run)

    def stop(self, replica: Replica, *, graceful: bool) -> None:
        """End a replica with SIGTERM or SIGKILL, and start it no more."""
        self.running.remove(replica)
        if graceful:
            replica.terminate()
        else:
            replica.stop()

    async def back_up(self) -> None:
        """Make a backup of the data of the control plane, which is stopped meanwhile if it is the real one."""
        plane = self.env.plane
        if isinstance(plane, EmbeddedControlPlane):
            await plane.snapshot(self._backup)
            return
        programs = self.programs
        await self._while_stopped(lambda: shutil.copytree(programs.data_dir, self._backup))

    async def restore(self) -> None:
        """Put the backup back: all resource versions are as old as it."""
        plane = self.env.plane
        if not isinstance(plane, EmbeddedControlPlane):
            await self._while_stopped(self._put_back)
            return
        port = urlsplit(plane.url).port
        assert port is not None
        await plane.stop()
        self.env.plane = await self._planes.enter_async_context(
            ControlPlane.restore(
                self._backup, port=port, controllers=CONTROLLERS, audit_log=self._audit.file
            )
        )

    def _put_back(self) -> None:
        shutil.rmtree(self.programs.data_dir)
        shutil.copytree(self._backup, self.programs.data_dir)

    async def _while_stopped(self, change: Callable[[], object]) -> None:
        programs = ("kube-controller-manager", "kube-apiserver", "etcd")
        for name in programs:
            await self.programs.stop_program(name)
        change()
        for name in reversed(programs):
            await self.programs.start_program(name)
            if name == "kube-apiserver":
                await self.programs.wait_ready()

    async def leader(self) -> str:
        """Return the identity of the leader; empty if no replica leads."""
        found = await self.env.client.get(
            LEASE, NamespacedName(DEFAULT_NAMESPACE, "codeflare-operator-lock")
        )
        return str(((found or {}).get("spec") or {}).get("holderIdentity") or "")

    async def add_tenants(self, count: int) -> None:
        """Create so many tenants with a RayCluster, an AppWrapper, and two FluxJobs of which one waits for quota."""
        for _ in range(count):
            await self.add_tenant()

    async def add_tenant(self) -> str:
        """Create one tenant; return its namespace."""
        name = f"tenant-{len(self.tenants)}"
        self.tenants.append(name)
        for obj in tenant_objects(name):
            await repeat_until_accepted(lambda obj=obj: self.env.create(obj))  # type: ignore[misc]
        return name

    async def delete_children(self, tenant: str) -> None:
        """Delete the NetworkPolicies and Ingresses of a tenant, as a user can."""
        for kind, plural in ((NETWORK_POLICY, "networkpolicies"), (INGRESS, "ingresses")):
            for item in await self.env.client.list(kind, namespace=tenant):
                await self.env.delete(item)
                self.deleted.append(f"{plural} {tenant}/{name_of(item)}")

    async def missing(self) -> list[str]:
        """Return what does not exist that the operator should have created, or exists too often."""
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for kind in _KINDS:
            for item in await self.env.client.list(kind):
                if name_of(item) != "kube-root-ca.crt":
                    found[namespace_of(item)][kind.kind] += 1
        problems = []
        for tenant in self.tenants:
            for name in sorted({*CHILDREN, *found[tenant]}):
                count = found[tenant][name]
                expected = CHILDREN.get(name, 0)
                if count != expected:
                    problems.append(f"{tenant}: {count} {name}, expected {expected}")
        phases = {
            namespace_of(item): (item.get("status") or {}).get("phase")
            for item in await self.env.client.list(APPWRAPPER)
        }
        problems += [
            f"{tenant}: AppWrapper is {phases.get(tenant)}"
            for tenant in self.tenants
            if phases.get(tenant) != "Running"
        ]
        return problems

    async def complete(self, timeout: float) -> float:
        """Wait until all tenants have what the operator creates; return the seconds.

        Raises :class:`AssertionError` with what is missing after ``timeout`` seconds.
        """
        started = time.monotonic()
        problems: object = "nothing could be read"
        while time.monotonic() < started + timeout:
            with suppress(APIError, TransportError):
                problems = await self.missing()
                if not problems:
                    return time.monotonic() - started
            await asyncio.sleep(_POLL_SECONDS)
        raise AssertionError(f"not complete after {timeout:g} s: {problems}")

    async def quiet(self, seconds: float, timeout: float) -> None:
        """Wait until the replicas have written nothing for ``seconds``.

        Raises :class:`AssertionError` with the last writes if they still write after ``timeout`` seconds.
        """
        started = since = time.monotonic()
        count = len(self.writes())
        while time.monotonic() < since + seconds:
            await asyncio.sleep(_POLL_SECONDS)
            writes = self.writes()
            if len(writes) != count:
                count, since = len(writes), time.monotonic()
            if time.monotonic() > started + timeout:
                last = [write.target for write in writes[-5:]]
                raise AssertionError(f"writes without end: {last}")

    def writes(self) -> list[Write]:
        """Return the accepted writes of all replicas, without Events, Leases and reviews."""
        return self._audit.writes()

    def forget_writes(self, tenants: Sequence[str]) -> None:
        """Ignore all writes in these namespaces up to now, because they were lost."""
        self._audit.forget(tenants)

    def tenant_writes(self) -> list[Write]:
        """Return those in namespaces of tenants."""
        return [write for write in self.writes() if write.namespace in self.tenants]


def tenant_objects(namespace: str) -> list[Object]:
    """Return the objects of a tenant, whose namespace is ``namespace``."""
    template = {
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "main",
                "image": "ubuntu:noble",
                "resources": {"requests": {"cpu": "1"}},
            }
        ],
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "wrapped"},
        "spec": {"template": {"spec": template}},
    }
    flux_jobs = [
        {
            "apiVersion": FLUX_JOB.api_version,
            "kind": FLUX_JOB.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"size": 2, "command": "sleep 30"},
        }
        for name in FLUX_JOBS
    ]
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {
            "apiVersion": FLUX_SETUP.api_version,
            "kind": FLUX_SETUP.kind,
            "metadata": {"name": "quota", "namespace": namespace},
            "spec": {"max-size": 2, "mini-cluster": {"size": 1}},
        },
        ray_cluster(namespace=namespace, version=None),
        {
            "apiVersion": APPWRAPPER.api_version,
            "kind": APPWRAPPER.kind,
            "metadata": {"name": "wrapper", "namespace": namespace},
            "spec": {"components": [{"template": job}]},
        },
        *flux_jobs,
    ]


def _sections(election: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "leaderElection": {"leaderElect": True, **election},
        "kuberay": {"rayDashboardOAuthEnabled": False, "ingressDomain": "apps.test"},
        "appwrapper": {"enabled": True},
        "flux": {"enabled": True},
        "webhook": {"bindAddress": "127.0.0.1:0"},
    }


async def _install(env: Environment, election: Mapping[str, Any]) -> None:
    """Create the objects of the manifests; each replica has a service account with the operator's roles."""
    for obj in render(components=("appwrapper", "flux")):
        if obj["kind"] not in _INSTALLED:
            continue
        if obj["kind"].endswith("RoleBinding") or obj["kind"].endswith("ClusterRoleBinding"):
            subjects = obj["subjects"]
            subjects += [
                {**subject, "name": account_of(name)}
                for name in _NAMES
                for subject in list(subjects)
                if subject["name"] == SERVICE_ACCOUNT
            ]
        await env.create(obj)
    for name in _NAMES:
        metadata = {"name": account_of(name), "namespace": DEFAULT_NAMESPACE}
        await env.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    await create_config_map(env, **_sections(election))


async def _token(env: Environment, account: str) -> str:
    path = f"/api/v1/namespaces/{DEFAULT_NAMESPACE}/serviceaccounts/{account}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    response = await env.client.transport.request(APIRequest("POST", path, body=orjson.dumps(body)))
    return str(orjson.loads(response.body)["status"]["token"])


@asynccontextmanager
async def start_trial(
    new_plane: Callable[[Path], ControlPlane],
    folder: Path,
    election: Mapping[str, Any] | None = None,
) -> AsyncIterator[Trial]:
    """Install the operator on the control plane that ``new_plane`` returns for an audit log; no replica runs yet.

    ``election`` replaces durations of the leader election.
    """
    audit = folder / "audit.log"
    url = str(free_url())
    async with (
        AsyncExitStack() as planes,
        new_plane(audit) as plane,
        Transport(ClientConfig.for_control_plane(plane)) as transport,
        AsyncExitStack() as proxies,
        anyio.create_task_group() as tasks,
    ):
        client = Client(transport, RESTMapper(transport), field_manager="tester")
        env = Environment(plane, client)
        await _install(env, election or {})
        replicas = {}
        for name in _NAMES:
            proxy = await proxies.enter_async_context(start_faulty_proxy(plane))
            token = await _token(env, account_of(name))
            (folder / name).mkdir()
            replicas[name] = Replica(env, name, token, proxy, folder / name, url)
        users = [replica.user for replica in replicas.values()]
        trial = Trial(env, replicas, AuditReader(audit, users), tasks, planes)
        try:
            yield trial
        finally:
            for replica in replicas.values():
                replica.stop()
