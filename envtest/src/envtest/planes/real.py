"""The real control plane: the programs in ``$KUBEBUILDER_ASSETS``, started for one test or many.

etcd and kube-apiserver always run; kube-controller-manager runs the controllers that the embedded control plane would
run, if the folder contains it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import ssl
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from envtest.apimachinery.objects import Object, find_condition
from envtest.configuration.arguments import optional_path
from envtest.configuration.controller_names import (
    ALL,
    DEFAULT,
    KUBE_CONTROLLERS,
    checked_names,
    kube_controllers,
)
from envtest.configuration.service_network import DEFAULT_SERVICE_NETWORK, parse_service_network
from envtest.formats.certificate_authority import CertificateAuthority
from envtest.formats.manifests import Manifests, load_crds, require_sources
from envtest.planes import supervisor
from envtest.planes.base import NOT_RUNNING, AdminAccess, BaseControlPlane, InstallError
from envtest.planes.local_webhooks import free_port

if TYPE_CHECKING:
    import aiohttp

__all__ = ["RealServer", "StartFailed"]

READY_SECONDS = 60.0
"""Seconds to wait for the API server to become ready, and for a CRD to be established."""
STOP_SECONDS = 10.0
"""Seconds that a program may take to stop before it is killed."""
_ETCD = "etcd"
_APISERVER = "kube-apiserver"
_MANAGER = "kube-controller-manager"
_ACCOUNTS = "serviceaccount-controller"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
_COLLECTIONS = {
    "CustomResourceDefinition": _CRDS,
    "MutatingWebhookConfiguration": f"{_WEBHOOKS}/mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": f"{_WEBHOOKS}/validatingwebhookconfigurations",
}

_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata"}],
}
"""One event for each finished request, as in the audit log of the embedded control plane."""


class StartFailed(RuntimeError):
    """Raised when a program could not be started or did not become ready; the message ends with the tail of its log."""


class _Program:
    """A program whose output goes to a log file; its supervisor kills it if this process ends without stopping it."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name = name
        self._command = [sys.executable, "-I", "-S", supervisor.__file__, str(folder), *command]
        self._log = folder / f"{name}.log"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._log.open("ab") as out:
            try:
                # a session of its own: a signal to the group of this process must not end the supervisor
                self._process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
            except OSError as error:
                raise StartFailed(f"{self.name}: {error}") from error

    def check(self) -> None:
        """Raise :class:`StartFailed` if the program has ended."""
        if self._process is not None and self._process.returncode is not None:
            tail = self._log.read_text(errors="replace")[-2000:]
            raise StartFailed(f"{self.name} exited with code {self._process.returncode}:\n{tail}")

    def _take_process(self) -> asyncio.subprocess.Process | None:
        """Return the supervisor if it runs; from now on the program counts as stopped."""
        process = self._process
        self._process = None
        if process is None or process.returncode is not None:
            return None
        return process

    async def kill(self) -> None:
        process = self._take_process()
        if process is None:
            return
        _send(process, supervisor.KILL)
        await process.wait()

    async def stop(self) -> None:
        process = self._take_process()
        if process is None:
            return
        _send(process, supervisor.STOP)
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            _send(process, supervisor.KILL)
            await process.wait()


def _assets_folder(given: Path | str | None) -> Path | str | None:
    """Return the folder of the programs; an empty environment variable counts as unset."""
    return given if given is not None else os.environ.get("KUBEBUILDER_ASSETS") or None


def _send(process: asyncio.subprocess.Process, request: bytes) -> None:
    """Send a request to a supervisor; one that has ended ignores it."""
    assert process.stdin is not None
    process.stdin.write(request)


class RealServer(BaseControlPlane):
    """Runs etcd, kube-apiserver and kube-controller-manager; see :meth:`envtest.ControlPlane.real` for the parameters.

    RBAC is enabled and anonymous requests are allowed. Without kube-controller-manager in the folder it is the
    environment of controller-runtime's envtest: no controllers, and the ServiceAccount admission plugin is disabled.
    """

    def __init__(
        self,
        *,
        crds: list[Manifests],
        assets: Path | str | None,
        controllers: Sequence[str] = DEFAULT,
        service_cluster_ip_range: str = str(DEFAULT_SERVICE_NETWORK),
        audit_log: Path | str | None = None,
    ) -> None:
        self._audit_log = optional_path("audit_log", audit_log)
        self._service_network = parse_service_network(service_cluster_ip_range)
        self._crds = crds
        folder = optional_path("assets", _assets_folder(assets))
        if folder is None:
            raise StartFailed("cannot find etcd and kube-apiserver: set KUBEBUILDER_ASSETS")
        self._assets = folder
        has_manager = (folder / _MANAGER).is_file()
        names = checked_names(controllers)
        if ALL in names:
            names = tuple(KUBE_CONTROLLERS)
        self.controllers = names if has_manager else ()
        self._controllers = kube_controllers(self.controllers)
        self._folder: Path | None = None
        self._programs: list[_Program] = []
        self._session: aiohttp.ClientSession | None = None

    def _binary(self, name: str) -> str:
        path = self._assets / name
        if not path.is_file():
            raise StartFailed(
                f"{name} not found in {self._assets}, the folder that KUBEBUILDER_ASSETS or assets names"
            )
        return str(path)

    async def start(self) -> None:
        """Start the programs and wait until the API server is ready.

        Raises :class:`StartFailed`; RuntimeError if it is already running.
        """
        import aiohttp

        self._require_stopped()
        crds = load_crds(self._crds)
        self._folder = Path(tempfile.mkdtemp(prefix="envtest-"))
        try:
            await self._launch(self._folder)
            context = ssl.create_default_context(cadata=self.ca_pem.decode())
            self._session = aiohttp.ClientSession(
                self.url,
                connector=aiohttp.TCPConnector(ssl=context),
                headers={"Authorization": f"Bearer {self.token}"},
            )
            await self.wait_ready()
            if crds:
                await self.install_crds(*crds)
            if self._controllers:
                await self._start_controllers(self._folder)
        except BaseException:
            await self.stop()
            raise

    async def _launch(self, folder: Path) -> None:
        authority = CertificateAuthority()
        token = secrets.token_urlsafe(32)
        files = _write_credentials(folder, authority, token)
        etcd_url = f"http://127.0.0.1:{free_port()}"
        peer_url = f"http://127.0.0.1:{free_port()}"
        port = free_port()
        self._admin = AdminAccess(f"https://127.0.0.1:{port}", authority.pem, token)
        etcd = [
            self._binary(_ETCD),
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls={etcd_url}",
            f"--advertise-client-urls={etcd_url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=default={peer_url}",
            "--unsafe-no-fsync",
        ]
        apiserver = [
            self._binary(_APISERVER),
            f"--etcd-servers={etcd_url}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={port}",
            f"--tls-cert-file={files['server.crt']}",
            f"--tls-private-key-file={files['server.key']}",
            f"--client-ca-file={files['ca.crt']}",
            f"--token-auth-file={files['tokens.csv']}",
            f"--cert-dir={folder}",
            "--authorization-mode=RBAC",
            f"--service-cluster-ip-range={self._service_network}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={files['sa.key']}",
            f"--service-account-signing-key-file={files['sa.key']}",
            "--allow-privileged=true",
        ]
        # without the controller, namespaces have no service account that pods could use
        if _ACCOUNTS not in self._controllers:
            apiserver.append("--disable-admission-plugins=ServiceAccount")
        if self._audit_log is not None:
            policy = folder / "audit-policy.json"
            policy.write_bytes(orjson.dumps(_AUDIT_POLICY))
            apiserver += [
                f"--audit-policy-file={policy}",
                f"--audit-log-path={self._audit_log.absolute()}",
            ]
        await self._run(_ETCD, etcd)
        await self._run(_APISERVER, apiserver)

    @property
    def data_dir(self) -> Path:
        """The folder with the data of etcd. A copy of it, made while etcd is stopped, is a backup."""
        if self._folder is None:
            raise RuntimeError(NOT_RUNNING)
        return self._folder / "etcd"

    async def kill_program(self, name: str) -> None:
        """End ``etcd``, ``kube-apiserver`` or ``kube-controller-manager`` with SIGKILL, as a crash does."""
        await self._program(name).kill()

    async def stop_program(self, name: str) -> None:
        """End a program with SIGTERM, and wait until it has ended."""
        await self._program(name).stop()

    async def start_program(self, name: str) -> None:
        """Start a program that was ended, with the same arguments, port and files.

        Returns before it is ready; :meth:`wait_ready` waits for kube-apiserver. Raises :class:`StartFailed`.
        """
        await self._program(name).start()

    def _program(self, name: str) -> _Program:
        if not self._programs:
            raise RuntimeError(NOT_RUNNING)
        found = [program for program in self._programs if program.name == name]
        if not found:
            running = ", ".join(program.name for program in self._programs)
            raise ValueError(f"{name!r}: not a program of this control plane: {running}")
        return found[0]

    async def _run(self, name: str, command: list[str]) -> None:
        assert self._folder is not None
        program = _Program(name, command, self._folder)
        self._programs.append(program)
        await program.start()

    async def _start_controllers(self, folder: Path) -> None:
        """Start kube-controller-manager, after the CRDs: its garbage collector finds later ones only after 30 s.

        It has the permissions of the administrator, because the role of its own user is not enough for all controllers.
        """
        kubeconfig = folder / "admin.kubeconfig"
        self.kubeconfig(kubeconfig)
        await self._run(
            _MANAGER,
            [
                self._binary(_MANAGER),
                f"--kubeconfig={kubeconfig}",
                f"--controllers={','.join(self._controllers)}",
                f"--root-ca-file={folder / 'ca.crt'}",
                f"--service-account-private-key-file={folder / 'sa.key'}",
                "--use-service-account-credentials=false",
                "--leader-elect=false",
                "--secure-port=0",
                "--kube-api-qps=1000",
                "--kube-api-burst=1000",
            ],
        )
        if _ACCOUNTS in self._controllers:
            await self._wait_found("/api/v1/namespaces/default/serviceaccounts/default")

    async def _wait_found(self, path: str) -> None:
        """Wait for an object that a controller creates."""
        session = self._running_session()
        try:
            async with asyncio.timeout(READY_SECONDS):
                while True:
                    self._check_programs()
                    async with session.get(path) as response:
                        if response.status == 200:
                            return
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise StartFailed(
                f"{_MANAGER}: {path} was not created within {READY_SECONDS:.0f} s"
            ) from None

    def _check_programs(self) -> None:
        for program in self._programs:
            program.check()

    async def wait_ready(self) -> None:
        """Wait until the API server is ready. Raises :class:`StartFailed` if it is not within 60 s."""
        import aiohttp

        session = self._running_session()
        try:
            async with asyncio.timeout(READY_SECONDS):
                while True:
                    self._check_programs()
                    with suppress(aiohttp.ClientError):
                        async with session.get("/readyz") as response:
                            if response.status == 200:
                                return
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise StartFailed(
                f"kube-apiserver was not ready within {READY_SECONDS:.0f} s"
            ) from None

    async def stop(self) -> None:
        """Stop all programs, the last one first, and remove their files."""
        self._admin = None
        session = self._session
        self._session = None
        if session is not None:
            await session.close()
        while self._programs:
            await self._programs.pop().stop()
        folder = self._folder
        self._folder = None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    async def install_crds(self, *sources: Manifests) -> list[str]:
        """Apply CRDs and wait until they are established. Raises :class:`InstallError`."""
        require_sources(sources)
        names: list[str] = []
        for crd in load_crds(sources):
            names.append(crd["metadata"]["name"])
            await self._install(crd)
        for name in names:
            await self._wait_established(name)
        return names

    async def _install(self, obj: Object) -> None:
        await self._send(
            "PATCH",
            obj,
            params={"fieldManager": "envtest", "force": "true"},
            data=orjson.dumps({key: value for key, value in obj.items() if key != "status"}),
            headers={"Content-Type": "application/apply-patch+yaml"},
        )

    async def _remove(self, obj: Object) -> None:
        await self._send("DELETE", obj, ignored_status=404)

    async def _send(
        self, method: str, obj: Object, *, ignored_status: int = 0, **more: Any
    ) -> None:
        session = self._running_session()
        name = obj["metadata"]["name"]
        async with session.request(
            method, f"{_COLLECTIONS[obj['kind']]}/{name}", **more
        ) as response:
            if response.status not in {200, 201, ignored_status}:
                raise InstallError(f"{name}: {(await response.json()).get('message')}")

    def _running_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError(NOT_RUNNING)
        return self._session

    async def _wait_established(self, name: str) -> None:
        session = self._running_session()
        async with asyncio.timeout(READY_SECONDS):
            while True:
                async with session.get(f"{_CRDS}/{name}") as response:
                    conditions = ((await response.json()).get("status") or {}).get("conditions")
                established = find_condition(conditions, "Established")
                if established is not None and established.get("status") == "True":
                    return
                await asyncio.sleep(0.02)


def _write_credentials(
    folder: Path, authority: CertificateAuthority, token: str
) -> dict[str, Path]:
    """Write the files that kube-apiserver reads, readable only by their owner; return their paths by name."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    server = authority.server(["127.0.0.1", "localhost", "kubernetes.default.svc"])
    signing = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    contents = {
        "ca.crt": authority.pem,
        "server.crt": server.certificate,
        "server.key": server.key,
        "sa.key": signing,
        "tokens.csv": f'{token},admin,admin,"system:masters"\n'.encode(),
    }
    files: dict[str, Path] = {}
    for name, content in contents.items():
        file = folder / name
        file.touch(mode=0o600)
        file.write_bytes(content)
        files[name] = file
    return files
